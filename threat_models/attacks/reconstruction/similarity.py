"""Measures of the similarity of two features or two images."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.optimize import linear_sum_assignment

from secagg.errors import BadInput
from threat_models.session import Floats


def cosines(features: Floats, others: Floats) -> Floats:
    """Compute the cosines (n, m) of every row of (n, d) with every row of (m, d); 0 for rows of zeros."""
    rows, columns = (
        each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-300) for each in (features, others)
    )
    return np.asarray(rows @ columns.T)


def match_cosines(found: Floats, true: Floats) -> Floats:
    """Compute the cosine (m,) of each true feature (m, d) with its partner in the best one-to-one matching, or 0."""
    table = cosines(true, found)
    result = np.zeros(len(true))
    rows, columns = linear_sum_assignment(-table)
    result[rows] = table[rows, columns]
    return result


def match_rows(true: Floats, found: Floats) -> NDArray[np.intp]:
    """Match true features (m, d) one-to-one to found ones (n, d), n ≥ m, by largest cosine sum; return rows (m,)."""
    return np.asarray(linear_sum_assignment(-cosines(true, found))[1])


def psnr(image: Floats, other: Floats) -> float:
    """Compute the peak signal-to-noise ratio, in dB, of two images of one shape in [0, 1]; infinity for equal ones."""
    error = float(np.mean(_difference(image, other) ** 2))
    return float(-10 * np.log10(error)) if error else float("inf")


def ssim(image: Floats, other: Floats) -> float:
    """Compute the structural similarity of two images (h, w, c) in [0, 1], averaged over positions and channels.

    Wang, Bovik, Sheikh & Simoncelli 2004, Eq. 13 with their Gaussian window (11×11, σ = 1.5), K₁ = 0.01, K₂ = 0.03;
    only where the window lies inside. Raises BadInput for images smaller than the window.
    """
    if min(image.shape[:2]) < 11:
        raise BadInput(f"SSIM needs images of 11×11 pixels or more (got {image.shape[0]}×{image.shape[1]})")
    _difference(image, other)

    def local(values: Floats) -> Floats:
        return np.asarray(gaussian_filter(values, sigma=1.5, radius=5, axes=(0, 1))[5:-5, 5:-5])

    mean, mean_other = local(image), local(other)
    spread, spread_other = local(image**2) - mean**2, local(other**2) - mean_other**2
    together = local(image * other) - mean * mean_other
    small, little = 0.01**2, 0.03**2
    likeness = (2 * mean * mean_other + small) * (2 * together + little)
    return float(np.mean(likeness / ((mean**2 + mean_other**2 + small) * (spread + spread_other + little))))


def _difference(image: Floats, other: Floats) -> Floats:
    if image.shape != other.shape:
        raise BadInput(f"two images must have one shape (got {image.shape} and {other.shape})")
    return image - other
