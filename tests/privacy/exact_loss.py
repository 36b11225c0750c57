"""Exact privacy losses of sums of discrete-Gaussian shares, by convolution: nothing of the accounting is used.

A loss distribution is a pair of arrays: losses ln P(x)/Q(x), and the probabilities of P.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Losses = tuple[Floats, Floats]


def law_of(sigma: float, shares: int) -> Floats:
    """P of the sum of so many N_Z(0, σ²), on the integers around 0; tails below 10⁻⁶⁰ are cut off."""
    reach = int(17 * sigma) + 2
    points = np.arange(-reach, reach + 1)
    one = np.exp(-(points**2) / (2 * sigma**2))
    law = np.ones(1)
    for _ in range(shares):
        law = np.convolve(law, one / one.sum())
    return law


def losses_of(sigma: float, shares: int, shift: int) -> Losses:
    """Of one entry that neighbours move by `shift`."""
    return losses_between(law_of(sigma, shares), shift)


def losses_between(law: Floats, shift: int) -> Losses:
    """Of one entry with this law of the noise that neighbours move by `shift`."""
    here, moved = law[shift:], law[: len(law) - shift]
    seen = here > 1e-30
    return np.log(here[seen]) - np.log(moved[seen]), here[seen]


def joint(parts: Sequence[Losses]) -> Losses:
    """Of independent entries together: losses add."""
    losses, probabilities = np.zeros(1), np.ones(1)
    for more, its in parts:
        losses = np.add.outer(losses, more).reshape(-1)
        probabilities = np.multiply.outer(probabilities, its).reshape(-1)
        likely = probabilities > 1e-22
        losses, probabilities = losses[likely], probabilities[likely]
    return losses, probabilities


def delta_of_losses(found: Losses, epsilon: float) -> float:
    """δ(ε) = E_P[(1 − e^(ε − loss))₊]; what is cut off lies below 10⁻¹⁵."""
    losses, probabilities = found
    over = losses > epsilon
    return float(probabilities[over] @ -np.expm1(epsilon - losses[over]))


def delta_of_shares(sigmas: Sequence[float], shifts: Sequence[int], shares: int, epsilon: float) -> float:
    """The exact δ of one release of entries with these σ a share, which neighbours move by `shifts`."""
    parts = [losses_of(sigma, shares, shift) for sigma, shift in zip(sigmas, shifts, strict=True)]
    return delta_of_losses(joint(parts), epsilon)


STEP = 2.0**-10


def on_grid(found: Losses, *, upwards: bool) -> Floats:
    """The distribution on multiples of STEP from −SPAN to SPAN, every loss rounded up or down."""
    losses, probabilities = found
    places = (np.ceil if upwards else np.floor)(losses / STEP).astype(int) + CENTRE
    return np.bincount(np.clip(places, 0, 2 * CENTRE), probabilities, minlength=2 * CENTRE + 1)


CENTRE = 1 << 15
"""Losses lie within ±32."""


def composed(distributions: Sequence[Floats]) -> Losses:
    """The loss distribution of independent releases one after the other, by FFT (Koskela et al. 2020)."""
    size = 2 * CENTRE * len(distributions) + 1
    padded = 1 << (size - 1).bit_length()
    product = np.prod([np.fft.rfft(each, padded) for each in distributions], axis=0)
    total = np.maximum(np.fft.irfft(product, padded)[:size], 0.0)
    return (np.arange(size) - CENTRE * len(distributions)) * STEP, total
