"""Model updates as integers, opened integer sums as real vectors again, and the public state that a sum moves."""

from secagg.encoding.updates.encoding import (
    LARGEST_BLOCK,
    Encoded,
    Rotation,
    UpdateEncoding,
    blocks_of,
    integers_of_records,
    longest,
    round_randomly,
    sum_of_records,
    truncate,
)
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
