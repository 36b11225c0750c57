"""The noise that prototype papers add to what a client sends, by name, and the ε that it amounts to.

FedTC Eq. 6 and FedPCL §5.6 send t·(1 − p) + noise, MPFT §5.6 sends p + q·N(0, s²). Neither clips its records, so as
published no ε holds at all. The noise here is drawn in floating point, which gives bits of the noise away
(Mironov 2012): it reproduces papers and protects nothing. Protection comes from `calibrate` and `discrete_gaussian`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from secagg.errors import BadInput
from secagg.privacy.claim import format_epsilon
from secagg.privacy.gaussian import LARGEST_MU, epsilon_of
from secagg.randomness import OperatingSystem, RandomSource

Reals = NDArray[np.float64]
Distribution = Literal["laplace", "gaussian", "exponential"]
OUTWARD = 1 + 2.0**-50
"""Factor that covers the rounding of a handful of float64 operations."""


@dataclass(frozen=True)
class FedTCNoise:
    """t·(1 − p) + noise, for FedTC (Eq. 6) and FedPCL (§5.6); `scale` > 0, 0 ≤ p < 1.

    `scale` is the distribution's parameter, as in FedPCL's code: the standard deviation is `scale` for gaussian and
    exponential noise and √2·`scale` for laplace. Exponential noise is never negative: it adds `scale` on average.
    """

    distribution: Distribution
    scale: float = 0.05
    p: float = 0.1

    def __post_init__(self) -> None:
        if self.distribution not in get_args(Distribution):
            problem = f"unknown noise distribution {self.distribution!r}"
            raise BadInput(problem, remedy=f"give {', '.join(get_args(Distribution))}")
        _check_above_zero("scale", self.scale)
        if not 0 <= self.p < 1:
            raise BadInput(f"p is {self.p}", remedy="give a number from 0 to below 1")

    def apply(self, prototypes: Reals, source: RandomSource | None = None) -> Reals:
        """Return the noisy prototypes (k, d); noise from `source`, by default the operating system. Raises BadInput."""
        _check_prototypes(prototypes)
        noise = DRAWS[self.distribution](_words(prototypes.size, source)).reshape(prototypes.shape)
        noisy: Reals = prototypes * (1 - self.p) + self.scale * noise
        return noisy

    def epsilon(self, *, sensitivity: float | None, dimension: int, delta: float) -> float:
        """Return an ε that holds at `delta`, rounded up, when one unit moves `dimension` numbers by L2 `sensitivity`.

        `sensitivity` is that of the prototypes; (1 − p) times it reaches the noise. None: records are not clipped, so
        ∞. Gaussian: exact. Laplace: pure ε from the L1 length, at most √`dimension` times the L2 length. Exponential:
        ∞, since no outcome lies below its prototype, which tells neighbours apart. Raises BadInput.
        """
        length = _move(sensitivity, dimension, delta) * (1 - self.p) / self.scale
        if self.distribution == "exponential":
            return math.inf
        if self.distribution == "laplace":
            return length * math.sqrt(dimension) * OUTWARD
        return _gaussian(length, delta)

    def sentence(self, epsilon: float, delta: float) -> str:
        """Return one line: what noise this is, and what the `epsilon` that it gives at `delta` is worth."""
        what = (
            f"FedTC's and FedPCL's {self.distribution} noise of scale {self.scale:g} on prototypes times {1 - self.p:g}"
        )
        one_sided = "its noise is never negative" if self.distribution == "exponential" else None
        return _sentence(what, epsilon, delta, one_sided)


@dataclass(frozen=True)
class MPFTNoise:
    """p + q·N(0, s²) for MPFT (§5.6): gaussian noise with standard deviation q·s; q > 0, s > 0."""

    q: float = 0.1
    s: float = 0.05

    def __post_init__(self) -> None:
        _check_above_zero("q", self.q)
        _check_above_zero("s", self.s)

    def apply(self, prototypes: Reals, source: RandomSource | None = None) -> Reals:
        """Return the noisy prototypes (k, d); noise from `source`, by default the operating system. Raises BadInput."""
        _check_prototypes(prototypes)
        noisy: Reals = prototypes + self.q * self.s * _normal(_words(prototypes.size, source)).reshape(prototypes.shape)
        return noisy

    def epsilon(self, *, sensitivity: float | None, dimension: int, delta: float) -> float:
        """Return ε at `delta`, rounded up, for L2 `sensitivity`; None: records are not clipped, so ∞. Raises BadInput.

        `dimension`, how many numbers one unit moves, does not matter to gaussian noise.
        """
        return _gaussian(_move(sensitivity, dimension, delta) / (self.q * self.s), delta)

    def sentence(self, epsilon: float, delta: float) -> str:
        """Return one line: what noise this is, and what the `epsilon` that it gives at `delta` is worth."""
        return _sentence(f"MPFT's noise {self.q:g}·N(0, {self.s:g}²) on prototypes", epsilon, delta)


PaperNoise = FedTCNoise | MPFTNoise
FORMS = "fedtc:DISTRIBUTION[:SCALE[:P]], fedpcl:DISTRIBUTION[:SCALE[:P]] or mpft[:Q[:S]]"


def paper_noise(text: str) -> PaperNoise:
    """Return the noise that a text names, such as fedtc:gaussian:0.05:0.1 or mpft:0.1:0.05. Raises BadInput.

    Numbers left out take the defaults: scale 0.05, p 0.1; q 0.1, s 0.05.
    """
    paper, *rest = text.split(":")
    if paper in ("fedtc", "fedpcl") and 1 <= len(rest) <= 3:
        # The class refuses a distribution that is not one of its names.
        return FedTCNoise(rest[0], **_numbers(text, ("scale", "p"), rest[1:]))  # type: ignore[arg-type]
    if paper == "mpft" and len(rest) <= 2:
        return MPFTNoise(**_numbers(text, ("q", "s"), rest))
    raise BadInput(f"unknown noise {text!r}", remedy=f"give {FORMS}")


def _numbers(text: str, names: tuple[str, ...], given: list[str]) -> dict[str, float]:
    try:
        return {name: float(number) for name, number in zip(names, given, strict=False)}
    except ValueError:
        raise BadInput(f"the noise {text!r} has something else than a number", remedy=f"give {FORMS}") from None


def _words(count: int, source: RandomSource | None) -> NDArray[np.uint64]:
    return np.frombuffer((source or OperatingSystem()).bytes(8 * count), "<u8")


def _uniform(words: NDArray[np.uint64]) -> Reals:
    """Odd multiples of 2⁻⁵³ between 0 and 1, from the upper 52 bits."""
    uniform: Reals = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return uniform


def _exponential(words: NDArray[np.uint64]) -> Reals:
    magnitudes: Reals = -np.log(_uniform(words))
    return magnitudes


def _laplace(words: NDArray[np.uint64]) -> Reals:
    """Exponential magnitudes whose sign is the lowest bit, which `_uniform` leaves."""
    signed: Reals = np.where(words & np.uint64(1), -1.0, 1.0) * _exponential(words)
    return signed


def _normal(words: NDArray[np.uint64]) -> Reals:
    quantiles: Reals = ndtri(_uniform(words))
    return quantiles


DRAWS: Mapping[str, Callable[[NDArray[np.uint64]], Reals]] = {
    "laplace": _laplace,
    "gaussian": _normal,
    "exponential": _exponential,
}
"""Draws with the distribution's parameter 1, one for each 64-bit word."""


def _move(sensitivity: float | None, dimension: int, delta: float) -> float:
    if not 0 < delta < 1:
        raise BadInput(f"delta cannot be {delta}", remedy="give a number between 0 and 1")
    if dimension < 1:
        raise BadInput(f"one unit moves {dimension} numbers", remedy="give 1 or more")
    if sensitivity is None:
        return math.inf
    _check_above_zero("the sensitivity", sensitivity)
    return sensitivity


def _gaussian(mu: float, delta: float) -> float:
    mu *= OUTWARD
    return epsilon_of(mu, delta) if mu <= LARGEST_MU else math.inf


def _sentence(what: str, epsilon: float, delta: float, reason: str | None = None) -> str:
    if epsilon == math.inf:
        return f"{what} gives no differential privacy: {reason or 'records are not clipped'} (epsilon inf)."
    amount = f"{what} amounts to epsilon {format_epsilon(epsilon)} at delta {delta:g}"
    return f"{amount}; it reproduces a paper and protects nothing."


def _check_above_zero(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise BadInput(f"{name} is {value}", remedy="give a finite number above 0")


def _check_prototypes(prototypes: Reals) -> None:
    if prototypes.ndim != 2 or not np.isfinite(prototypes).all():
        raise BadInput(f"prototypes of shape {prototypes.shape}", remedy="give finite numbers (k, d)")
