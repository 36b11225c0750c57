"""Feature vectors as grid integers, their exact sums, and encoding modulo 2^bits, wide enough that no sum wraps."""

from secagg.encoding.grid import Grid, Normalisation, inputs_of, quantise
from secagg.encoding.layout import Block, Integers, Kind, Layout, sum_digest
from secagg.encoding.moments import accumulate, cell_sums, full_matrix
from secagg.encoding.ring import Residues, Ring

__all__ = [
    "Block",
    "Grid",
    "Integers",
    "Kind",
    "Layout",
    "Normalisation",
    "Residues",
    "Ring",
    "accumulate",
    "cell_sums",
    "full_matrix",
    "inputs_of",
    "quantise",
    "sum_digest",
]
