"""The wavelet scattering transform of small grey pictures: features from public formulas, without weights or files.

Bruna & Mallat 2013 ("Invariant scattering convolution networks"), equations 5 to 9: the means, over places, of
x ⋆ φ, |x ⋆ ψ_λ| ⋆ φ and ||x ⋆ ψ_λ| ⋆ ψ_μ| ⋆ φ. Tramèr & Boneh 2021 ("Differentially private learning needs better
features (or much more data)") found that such features need less data than pixels at the same ε. Every constant
below is public and was fixed before an accuracy was measured; filters and borders are those of the library Kymatio.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.features.backbone import Backbone, Features, Progress, digest_of
from secagg.features.cache import FeatureCache, recall

SCATTERING = "scattering"
PARAMETERS = "J=2:L=8:orders=0..2:places=3x3"
PLANNED = f"{SCATTERING}:{PARAMETERS}"
"""The backbone's name in plans: the one choice of scales J, angles L, orders and places."""
SCALES, ANGLES, PLACES = 2, 8, 3
SUITS = "for drawn shapes, such as digits and clothes, not photographs or textures"
SMALLEST, LARGEST = 8, 64
"""Least and greatest side of a picture in pixels."""
BANDWIDTH, FREQUENCY, SLANT = 0.8, 0.75 * math.pi, 4.0 / ANGLES
"""Morlet wavelets at scale j: standard deviation 0.8·2^j pixels along the wave, twice that across it (1 ÷ the slant),
frequency (3π/4)/2^j radians a pixel. φ is a round Gaussian of 0.8·2^(J−1) pixels."""
WRAPS = range(-2, 3)
"""Periods of the padded picture over which a filter is summed, to make it periodic."""
FAINT = 1e-9
"""An order shorter than this (a blank picture's, up to rounding errors) becomes zeros."""
CHANNELS = 1 + SCALES * ANGLES + ANGLES * ANGLES * SCALES * (SCALES - 1) // 2
RULE = (
    "Morlet, angles (3-k)*pi/8, sigma 0.8*2^j, frequency 3*pi/4/2^j, slant 1/2, wraps -2..2; phi sigma 1.6; "
    "reflected to ((side+4)//4+1)*4; means over overlapping thirds; each order centred and of length 1, below 1e-9 zero"
)
"""All that the parameters leave open; it is part of the digest, as the picture's size is."""


@dataclass(frozen=True)
class Scattering(Backbone):
    """The backbone `scattering`: grey pictures of 8 to 64 pixels a side become 81 × 3 × 3 = 729 numbers.

    `input_shape` is (h, w) or (h, w, 1); uint8 pixels are divided by 255. Order 0 has 9 numbers, order 1 has
    16 × 9, order 2 has 64 × 9: channels as in `moduli_of`, each with its 3 × 3 places in rows. Each order loses its own
    mean and gets length 1, so ‖f‖₂ ≤ √3. Everything is float64, one record at a
    time: numpy's FFT and einsum without BLAS use one thread, so that a record's bits depend neither on its batch nor on
    the number of threads. Between machines they may differ in the last places (about 1e-15), which the grid rounds.
    Raises BadInput for another shape.
    """

    input_shape: tuple[int, ...]
    cache: FeatureCache | None = None
    progress: Progress | None = field(default=None, repr=False)
    name: str = SCATTERING
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        shown = "×".join(map(str, self.input_shape))
        problem = f"scattering takes grey pictures of {SMALLEST} to {LARGEST} pixels a side, not records of {shown}"
        if len(self.input_shape) not in (2, 3):
            raise BadInput(problem, remedy="use features, or random-features:M, for vectors")
        if self.input_shape[2:] not in ((), (1,)):
            raise BadInput(problem, remedy="convert them to grey, or use a network (see `secagg backbone export`)")
        if not all(SMALLEST <= side <= LARGEST for side in self.input_shape[:2]):
            raise BadInput(problem, remedy="scale them, or use a network (see `secagg backbone export`)")

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the name, the parameters, the rule and the picture's size; anybody recomputes it."""
        height, width = self.input_shape[:2]
        return digest_of(f"secagg backbone v1: {PLANNED}; {RULE}; {height}x{width}")

    @property
    def dimension(self) -> int:
        return CHANNELS * PLACES**2

    def bound(self, _input_bound: float | None, /) -> float | None:
        """Return slightly more than √3, since each of the three orders has length 0 or 1."""
        return math.sqrt(3) * (1 + 1e-12)

    def extract(self, inputs: NDArray[Any]) -> Features:
        """Map pictures (n, h, w), or (n, h, w, 1), to features (n, 729). Raises BadInput for pictures of another shape.

        A picture with a NaN or infinite pixel becomes NaN, and no other does.
        """
        if inputs.shape[1:] != self.input_shape:
            raise BadInput(f"the backbone takes inputs of shape {self.input_shape}, got {inputs.shape[1:]}")
        made_by = f"{self.digest} numpy {np.__version__}"  # whose FFT decides the last bits
        return recall(self.cache, made_by, inputs, self.dimension, lambda: self._extract_all(inputs))

    def _extract_all(self, inputs: NDArray[Any]) -> Features:
        features = np.empty((len(inputs), self.dimension))
        for index, record in enumerate(inputs):
            picture = record.reshape(self.input_shape[:2]) / (255.0 if inputs.dtype == np.uint8 else 1.0)
            features[index] = _features_of(picture.astype(np.float64))
            if self.progress is not None:
                self.progress(index + 1, len(inputs))
        return features


def refuse_other_parameters(parameters: str) -> None:
    """Raise BadInput unless these are the parameters that `scattering` has, or none are given."""
    if parameters not in ("", PARAMETERS):
        problem = f"scattering has the parameters {PARAMETERS}, not {parameters!r}"
        raise BadInput(problem, remedy=f"give {SCATTERING} alone")


def moduli_of(picture: Features) -> tuple[Features, Features, Features]:
    """Return x (1, H, W), |x ⋆ ψ_λ| (16, H, W) and ||x ⋆ ψ_λ| ⋆ ψ_μ| (64, H, W) of a picture (h, w).

    H and W are the padded sides. Second-order wavelets μ are coarser than λ: 8 angles of scale 0, each with 8 of scale
    1. Moduli are √(re² + im²), operations that IEEE 754 rounds in one way only.
    """
    padded = np.pad(picture, [margins_of(side) for side in picture.shape], mode="reflect")
    wavelets = _wavelets(*padded.shape)
    first = _modulus(np.fft.ifft2(np.fft.fft2(padded) * wavelets))
    spectra = np.fft.fft2(first[:ANGLES])
    second = _modulus(np.fft.ifft2(spectra[:, None] * wavelets[ANGLES:]))
    return padded[None], first, second.reshape(-1, *padded.shape)


def margins_of(side: int) -> tuple[int, int]:
    """Return how many pixels a side is reflected by, before and after: to the next multiple of 4 but one above it."""
    step = 2**SCALES
    more = ((side + step) // step + 1) * step - side
    return more // 2, more - more // 2


@lru_cache(maxsize=8)
def smoothing(size: int) -> Features:
    """Return the circulant matrix (size, size) that convolves one axis with φ, which is a product of two Gaussians."""
    sigma = BANDWIDTH * 2 ** (SCALES - 1)
    ahead = np.arange(size)[:, None] + size * np.array(WRAPS)
    kernel = np.exp(-(ahead**2) / (2 * sigma**2)).sum(axis=1) / (math.sqrt(2 * math.pi) * sigma)
    apart = (np.arange(size)[:, None] - np.arange(size)) % size
    return np.ascontiguousarray(kernel[apart])


@lru_cache(maxsize=8)
def _pooling(side: int) -> Features:
    """Return the matrix (padded side, 3) that smooths with φ, cuts the margins off and takes the mean of each third.

    The thirds of a side that 3 does not divide overlap: from ⌊a·side/3⌋ to ⌈(a + 1)·side/3⌉.
    """
    before, after = margins_of(side)
    thirds = np.zeros((before + side + after, PLACES))
    for place in range(PLACES):
        start, end = place * side // PLACES, -(-(place + 1) * side // PLACES)
        thirds[before + start : before + end, place] = 1.0 / (end - start)
    pooling: Features = np.einsum("ij,ja->ia", smoothing(len(thirds)), thirds)
    return pooling


@lru_cache(maxsize=8)
def _wavelets(height: int, width: int) -> Features:
    """Return the Fourier transforms (16, height, width) of the Morlet wavelets: 8 angles of scale 0, then of scale 1.

    ψ(u) = g(u)·(e^(iξ·u) − β), β such that ψ sums to 0; real, since ψ(−u) is ψ(u)'s conjugate.
    """
    rows, columns = (np.arange(WRAPS[0] * size, (WRAPS[-1] + 1) * size) for size in (height, width))
    filters = []
    for scale in range(SCALES):
        for number in range(ANGLES):
            angle = (ANGLES // 2 - 1 - number) * math.pi / ANGLES
            along = rows[:, None] * math.cos(angle) + columns * math.sin(angle)
            across = columns * math.cos(angle) - rows[:, None] * math.sin(angle)
            sigma = BANDWIDTH * 2**scale
            envelope = np.exp(-(along**2 + (SLANT * across) ** 2) / (2 * sigma**2)) * SLANT / (2 * math.pi * sigma**2)
            wave = np.exp(1j * FREQUENCY / 2**scale * along)
            shape = (len(WRAPS), height, len(WRAPS), width)
            gabor, gauss = ((envelope * each).reshape(shape).sum(axis=(0, 2)) for each in (wave, 1.0))
            filters.append(np.fft.fft2(gabor - gauss * (gabor.sum() / gauss.sum())).real)
    return np.stack(filters)


def _features_of(picture: Features) -> Features:
    """Return the 729 features of one picture (h, w): each order's means at 3 × 3 places, centred and of length 1."""
    rows, columns = map(_pooling, picture.shape)
    with np.errstate(all="ignore"):  # of NaN, of infinite and of huge pixels, which the grid makes zeros or refuses
        means = [
            np.einsum("caj,jb->cab", np.einsum("cij,ia->caj", maps, rows), columns).ravel()
            for maps in moduli_of(picture)
        ]
        return np.concatenate([_centred_unit(each) for each in means])


def _centred_unit(values: Features) -> Features:
    """Return values (m,) minus their mean, divided by their length; zeros for a length that is faint."""
    centred = values - values.mean()
    length = math.sqrt(float(np.sum(centred * centred)))
    return np.zeros_like(centred) if length < FAINT else centred / length


def _modulus(values: NDArray[np.complex128]) -> Features:
    return np.sqrt(values.real**2 + values.imag**2)
