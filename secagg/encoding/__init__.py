"""Records as integers on a public grid, their exact sums, and blocks of them as residues of a ring that cannot wrap."""

from secagg.encoding.grid import Grid, Normalisation, inputs_of, quantise
from secagg.encoding.layout import Block, Integers, Kind, Layout, sum_digest
from secagg.encoding.moments import accumulate, cell_sums, full_matrix, sanity_failures
from secagg.encoding.ring import LARGEST_RING, Capacity, Residues, Ring

__all__ = [
    "LARGEST_RING",
    "Block",
    "Capacity",
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
    "sanity_failures",
    "sum_digest",
]
