"""Model updates as integers, opened integer sums as real vectors again, and the public state that a sum moves."""

from secagg.encoding.updates.encoding import Encoded, UpdateEncoding, integers_of_records, sum_of_records
from secagg.encoding.updates.rotation import LARGEST_BLOCK, Rotation, blocks_of
from secagg.encoding.updates.rounding import longest, round_randomly, truncate
from secagg.encoding.updates.steps import SERVER_STEPS, Adam, Average, Momentum, ServerStep, State

__all__ = [
    "LARGEST_BLOCK",
    "SERVER_STEPS",
    "Adam",
    "Average",
    "Encoded",
    "Momentum",
    "Rotation",
    "ServerStep",
    "State",
    "UpdateEncoding",
    "blocks_of",
    "integers_of_records",
    "longest",
    "round_randomly",
    "sum_of_records",
    "truncate",
]
