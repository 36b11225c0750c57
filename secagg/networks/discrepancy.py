"""How far apart two sets of embeddings are: a maximum mean discrepancy, which is bounded, or mean squares."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

KERNELS = 5
"""Gaussian kernels, each twice as wide as the one before."""
NARROWEST = 0.25
"""The first one's width, of the mean squared distance of different rows of both sets."""
SMALL = 1e-12


def mean_discrepancy(a: Tensor, b: Tensor) -> Tensor:
    """Return MMD² (Gretton et al. 2012) of rows (g, m, d) and (g, n, d), the mean over the g pairs of sets.

    The biased statistic, summed over `KERNELS` kernels whose widths are constants to the gradient: from 0 to 10.
    """
    from torch import cat, cdist, stack

    both = cat([a, b], dim=1)
    squares = cdist(both, both, compute_mode="donot_use_mm_for_euclid_dist").square()
    first, rows = a.shape[1], both.shape[1]
    width = squares.detach().sum(dim=(1, 2), keepdim=True) / max(1, rows * (rows - 1)) * NARROWEST + SMALL
    kernels = stack([(-squares / (width * 2**place)).exp() for place in range(KERNELS)]).sum(dim=0)
    within = kernels[:, :first, :first].mean(dim=(1, 2)) + kernels[:, first:, first:].mean(dim=(1, 2))
    return (within - 2 * kernels[:, :first, first:].mean(dim=(1, 2))).mean()


def mean_square(a: Tensor, b: Tensor) -> Tensor:
    """Return the mean square of the differences of rows (…, d), which are paired."""
    return (a - b).square().mean()


def bounded_square(a: Tensor, b: Tensor) -> Tensor:
    """Return the mean of s/(1 + s), s the mean square of a pair's differences: below 1, so that it may be maximised."""
    squares = (a - b).square().mean(dim=-1)
    return (squares / (1 + squares)).mean()
