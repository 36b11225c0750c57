"""A softmax head trained on draws from Gaussians of opened moments: CCVR's virtual features (Luo et al. 2021).

Draws are public and always the same: one sum gives one head, under any protection, and whoever has the sum makes it
again. All of it is post-processing of the sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import ndtri

from secagg.crypto.labels import digest
from secagg.encoding import Grid, full_matrix
from secagg.errors import BadInput
from secagg.heads.discriminant import in_feature_units, within_scatter
from secagg.heads.linear import ABSENT_BIAS, LinearHead
from secagg.heads.noise_aware import unbiased_scatter
from secagg.heads.opened_moments import ReleaseNoise, read_release
from secagg.heads.spectrum import denoise
from secagg.heads.training import Recipe, train

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Gaussian:
    """What a class's records are like, in grid units: how many, their mean (d,) and a root (d, d) of the covariance."""

    count: float
    mean: Floats
    root: Floats


def gaussians_of(
    part: Mapping[str, NDArray[np.int64]], grid: Grid, noise: ReleaseNoise | None
) -> tuple[Gaussian | None, ...]:
    """Return the Gaussian of each class in opened moments, all with the covariance within these classes.

    `part` holds `counts` (c,), `class_sums` (c, d) and one `second_moment` of them all (upper triangle), as opened.
    Without noise a class of no records has none, and where no class has two the covariance is 0. Under noise the
    moments are those of `noise_aware_discriminant`: counts of at least 1, the spectrum denoised with the known σ.
    """
    dimension = part["class_sums"].shape[1]
    if noise is not None:
        release, unit = read_release(part, grid, noise), grid.unit(dimension)
        values, vectors = denoise(unbiased_scatter(release), release.moment_sigma)
        root = _root(values / release.total * unit**2, vectors)
        return tuple(
            Gaussian(float(count), row / count * unit, root)
            for count, row in zip(release.counts, release.class_sums, strict=True)
        )
    counts, sums = (part[name].astype(np.float64) for name in ("counts", "class_sums"))
    held = counts > 0
    if not held.any():
        return (None,) * len(counts)
    scatter = within_scatter(full_matrix(part["second_moment"], dimension), sums[held], counts[held])
    root = _root(*eigh(scatter / max(1.0, counts[held].sum() - held.sum())))
    pairs = zip(counts, sums, strict=True)
    return tuple(Gaussian(float(count), row / count, root) if count > 0 else None for count, row in pairs)


def calibrate(gaussians: Sequence[Gaussian | None], grid: Grid, each: int, recipe: Recipe) -> LinearHead:
    """Return the head of all classes, trained on `each` draws of every class that has a Gaussian.

    A draw weighs as many records as its class has for one draw. Draws are moved to mean 0 and brought to entries of
    about 1 before the training, and the head undoes that: so one rate fits features of any length. Raises BadInput
    where there is no class, or where the training leaves the finite numbers.
    """
    present = np.array([gaussian is not None for gaussian in gaussians])
    known = [(label, own) for label, own in enumerate(gaussians) if own is not None]
    if not known:
        raise BadInput("the sum holds no record", remedy="the head needs one class at least")
    draws = (standard_normal(label, each, len(own.mean)) for label, own in known)
    rows = np.concatenate([own.mean + drawn @ own.root for (_, own), drawn in zip(known, draws, strict=True)])
    weights = np.repeat([own.count for _, own in known], each)
    centre = np.average(rows, axis=0, weights=weights)
    rows -= centre
    spread = float(np.sqrt(np.mean(rows * rows))) or 1.0
    rows /= spread
    zero = np.zeros((len(present), rows.shape[1]), dtype=np.float32)
    start = LinearHead(zero, np.where(present, np.float32(0), ABSENT_BIAS).astype(np.float32))
    trained = train(start, rows, np.repeat(np.flatnonzero(present), each), weights, recipe)
    weight = trained.weight[present] / np.float64(spread)
    return in_feature_units(weight, trained.bias[present] - weight @ centre, present, grid)


def standard_normal(label: int, count: int, dimension: int) -> Floats:
    """Return draws (count, d) of a class from SHAKE-256 of its number: the same everywhere but for Φ⁻¹'s last bits.

    Each takes 8 bytes, a little-endian word w, and is Φ⁻¹((⌊w/2¹²⌋ + ½)/2⁵²).
    """
    stream = hashlib.shake_256(digest("virtual features", label.to_bytes(4, "big"))).digest(8 * count * dimension)
    words = np.frombuffer(stream, dtype="<u8")
    drawn: Floats = ndtri(((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)
    return drawn.reshape(count, dimension)


def _root(values: Floats, vectors: Floats) -> Floats:
    """Σ^½ of Σ's eigenvalues and eigenvectors: of all its roots the one that rounding in Σ moves little."""
    root: Floats = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return root
