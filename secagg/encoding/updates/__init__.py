"""Model updates as integers, opened integer sums as real vectors, and the public state that a sum moves."""

from secagg.encoding.updates.encoding import UpdateEncoding, integers_of_records, sum_of_records
from secagg.encoding.updates.steps import ServerStep, State

__all__ = ["ServerStep", "State", "UpdateEncoding", "integers_of_records", "sum_of_records"]
