"""Integer blocks → one flat vector → residues of a ring that provably cannot wrap → packed bytes."""

from secagg.encoding.capacity import LARGEST_RING, Capacity
from secagg.encoding.layout import Block, Integers, Kind, Layout, sum_digest
from secagg.encoding.ring import Residues, Ring

__all__ = [
    "LARGEST_RING",
    "Block",
    "Capacity",
    "Integers",
    "Kind",
    "Layout",
    "Residues",
    "Ring",
    "sum_digest",
]
