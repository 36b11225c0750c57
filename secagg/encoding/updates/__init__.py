"""Model updates encoded as integers, opened sums decoded, and the server's update rules for the public model state."""

from secagg.encoding.updates.encoding import UpdateEncoding, integers_of_records, sum_of_records
from secagg.encoding.updates.steps import ServerStep, State

__all__ = ["ServerStep", "State", "UpdateEncoding", "integers_of_records", "sum_of_records"]
