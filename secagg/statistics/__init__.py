"""Records as integers on a public grid, and their exact sums."""

from secagg.statistics.grid import Grid, Normalisation, inputs_of, quantise
from secagg.statistics.moments import accumulate, full_matrix
from secagg.statistics.plausibility import sanity_failures

__all__ = ["Grid", "Normalisation", "accumulate", "full_matrix", "inputs_of", "quantise", "sanity_failures"]
