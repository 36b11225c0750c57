"""The auditor's own ε of training on sampled records, with sums beside it, by privacy losses on one grid of its own.

One step with noise multiplier m and sampling rate q is the pair N(0, m²) and (1 − q)·N(0, m²) + q·N(1, m²): the loss of
an outcome x is ±log((1 − q) + q·e^((2x − 1)/(2m²))). Losses of independent steps add up, so that their distribution is
a power of the step's under the Fourier transform (Koskela, Jälkö & Honkela 2020); that of sums with Gaussian noise of
the same records is normal, with mean μ²/2 and variance μ², and multiplies it. Nothing is shared with the accounting
of `secagg.privacy`, which bounds the same from above: this rounds to the nearest grid point, and is no bound.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from secagg.errors import BadInput

Floats = NDArray[np.float64]
CELLS = 1 << 18
"""Grid points of the loss: a power of two, for the Fourier transform."""
SPREADS = 40.0
"""How many standard deviations of all steps' loss the grid reaches on either side."""
LEAST_REACH = 8.0
LARGEST_SQUARED_MU = 1e6
"""ε is above half of it then, and a grid that reached so far would blur the steps' losses."""


def sampled_epsilon(rate: float, multiplier: float, steps: int, delta: float, squared_mu: float = 0.0) -> float:
    """ε of `steps` ≥ 1 sampled Gaussian steps at δ, of a record added or removed, whichever is more; ∞ for no noise.

    `squared_mu` is μ² of all releases beside them; above `LARGEST_SQUARED_MU` ε is ∞. Raises BadInput for a rate
    outside (0, 1].
    """
    if not 0 < rate <= 1 or steps < 1:
        raise BadInput(f"{steps} steps at the sampling rate {rate}")
    if not multiplier > 0 or squared_mu > LARGEST_SQUARED_MU:
        return math.inf
    reach = _reach(rate, multiplier, steps, delta) + squared_mu / 2 + SPREADS * math.sqrt(squared_mu)
    sums = _normal(squared_mu, reach)
    return max(
        _epsilon(_step(rate, multiplier, is_removed, reach), steps, sums, delta, reach) for is_removed in (True, False)
    )


def _reach(rate: float, multiplier: float, steps: int, delta: float) -> float:
    """Where the grid ends: all steps' loss is beyond it with a probability far below δ.

    The loss of a step is no larger than (x + 1/2)/m² or so, and its square is q²(e^(1/m²) − 1) on average.
    """
    square = steps * rate**2 * math.expm1(min(1 / multiplier**2, 50.0))
    largest = (math.sqrt(-2 * math.log(delta)) + 1 / multiplier) * math.sqrt(steps) / multiplier
    gaussian = steps / (2 * multiplier**2) + 3 * largest
    return max(LEAST_REACH, min(gaussian, square / 2 + SPREADS * math.sqrt(square) + 3 * largest / math.sqrt(steps)))


def _step(rate: float, multiplier: float, is_removed: bool, reach: float) -> Floats:
    """Probabilities of one step's loss on the grid −reach … reach, (CELLS,), the middle being 0."""
    edges = (np.arange(CELLS + 1) - 0.5 - CELLS // 2) * (2 * reach / CELLS)
    sign = 1.0 if is_removed else -1.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inner = (np.exp(sign * edges) - (1 - rate)) / rate
        x = np.where(inner > 0, multiplier**2 * np.log(np.maximum(inner, 1e-300)) + 0.5, -np.inf)
    x = np.where(np.isposinf(np.exp(np.minimum(sign * edges, 709.0))), np.inf, x)
    below = ndtr(x / multiplier)
    if is_removed:  # outcomes with the record there
        below = (1 - rate) * below + rate * ndtr((x - 1) / multiplier)
    found: Floats = np.abs(np.diff(below))
    return found


def _normal(squared_mu: float, reach: float) -> Floats:
    """Probabilities of the loss of sums with this μ² on the same grid: all in the middle for 0."""
    edges = (np.arange(CELLS + 1) - 0.5 - CELLS // 2) * (2 * reach / CELLS)
    found: Floats = np.diff(ndtr((edges - squared_mu / 2) / max(math.sqrt(squared_mu), 1e-12)))
    return found


def _epsilon(step: Floats, steps: int, sums: Floats, delta: float, reach: float) -> float:
    """ε at δ of so many independent losses, and the sums'; what a step leaves outside the grid counts as infinite."""
    transformed = [np.fft.rfft(np.fft.ifftshift(each)) for each in (step, sums)]
    power = np.fft.irfft(transformed[0] ** steps * transformed[1], CELLS)
    masses = np.maximum(np.fft.fftshift(power), 0.0)
    losses = (np.arange(CELLS) - CELLS // 2) * (2 * reach / CELLS)
    lost = max(0.0, -math.expm1(steps * math.log(min(1.0, float(step.sum())))))

    def excess(epsilon: float) -> float:
        above = losses > epsilon
        return lost + float(masses[above] @ -np.expm1(epsilon - losses[above])) - delta

    if excess(0.0) <= 0:
        return 0.0
    return math.inf if excess(reach) > 0 else float(brentq(excess, 0.0, reach, xtol=1e-9))
