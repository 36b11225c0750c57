"""DP-SGD at one client (Abadi et al. 2016, Algorithm 1), with integers and exact noise in place of floats.

Every step takes each record with probability q, independently; makes its gradient, cut to the length `clip`, an integer
vector of length ≤ `levels`; and adds up these vectors and discrete Gaussian noise exactly. So one record moves a step's
sum by at most `levels` in L2, whatever the rest is, and the rest of the step (division by a public number, Adam's
moments, weight decay, the update) is computed from noisy sums alone. Under adding or removing one record, a training
is `steps` Poisson-subsampled Gaussian releases of sensitivity `levels` and standard deviation √(σ² − 3), which the
discrete noise rounds but for a factor e^±T of all probabilities (`secagg.privacy.shares`: one share, r² = 3,
`steps`·size entries).

How long a training takes depends on how many records were drawn: whoever may see that sees more than is promised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from secagg.encoding.updates import sum_of_records
from secagg.errors import BadInput
from secagg.networks.programs import Program
from secagg.networks.taint import Untainted, require_untainted
from secagg.networks.training import (
    NotNegative,
    OptimiserName,
    Positive,
    RowAdam,
    record_gradients,
    require_records,
)
from secagg.privacy import discrete_gaussian
from secagg.randomness import RandomSource
from secagg.system.threads import one_thread
from secagg.wire import Range, require_in_range

MOST_LEVELS = 1 << 26
"""The largest length of integer vectors: their squares stay below 2⁵³, where float64 holds them exactly."""
LEAST_SAMPLING = 2.0**-30
SMALLEST_SIGMA, LARGEST_SIGMA = 2.0, 1e12
"""Bounds of σ: √(σ² − 3) is a standard deviation of 1 or more."""


@dataclass(frozen=True)
class DpSgdSettings:
    """DP-SGD settings: `steps` ≥ 1 on records drawn with probability `sampling_rate`, gradients clipped to `clip` > 0.

    `levels`, from 1 to 2²⁶, are the grid units of `clip`, and `sigma` is the noise in grid units: from 2 to 10¹², or 0
    for none. A step is w ← w − `rate`·(sum/`denominator` + `decay`·w), the sum in units of a gradient, or Adam's for
    that noisy gradient; the denominator is public, such as the number of records that a plan expects a step to draw.
    All of it is the plan's, none is a member's own.
    """

    rate: Positive
    steps: int
    sampling_rate: float
    clip: Positive
    levels: Annotated[int, Range(1, MOST_LEVELS)]
    sigma: float
    denominator: Positive
    optimiser: OptimiserName = "sgd"
    decay: NotNegative = 0.0

    def __post_init__(self) -> None:
        if self.steps < 1 or not LEAST_SAMPLING <= self.sampling_rate <= 1:
            problem = f"{self.steps} steps with the sampling rate {self.sampling_rate}"
            raise BadInput(problem, remedy="1 step or more, a sampling rate from 2^-30 to 1")
        require_in_range(self)
        if self.sigma != 0 and not SMALLEST_SIGMA <= self.sigma <= LARGEST_SIGMA:
            raise BadInput(f"sigma is {self.sigma} grid units", remedy="give 2 to 1e12, or 0 for no noise")


StepWatch = Callable[[DpSgdSettings, NDArray[np.int64], NDArray[np.int64]], None]
"""Sees a step's settings, noise and noisy sum, (size,) each in grid units; only a simulation's audit has one."""


def dp_sgd(
    program: Untainted[Program],
    start: Untainted[NDArray[np.float64]],
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    settings: DpSgdSettings,
    randomness: RandomSource,
    watch: StepWatch | None = None,
) -> Untainted[NDArray[np.float64]]:
    """Return parameters (size,), or with Adam a row (`row_size`), after DP-SGD from `start` on records (n, d), n ≥ 0.

    A step without records is a noisy step, a record whose gradient is not finite adds nothing, nor, with noise, one on
    which the program fails, and n appears nowhere. A `watch` sees each step, and changes none.
    Raises BadInput for other shapes or labels, TypeError for a start, or a program, that is not `Untainted`: a loss may
    hold more than parameters, such as prototypes. Nothing else of the member's is read.
    """
    network, row = require_untainted(program), require_untainted(start)
    require_records(network, row, x, labels, settings.optimiser)
    for _ in range(settings.steps):
        # The noise is drawn before the records are touched: how long that takes says nothing of them (Jin et al. 2022).
        noise = _noise(network.size, settings.sigma, randomness)
        drawn = poisson_sample(len(labels), settings.sampling_rate, randomness)
        weights, total = row[: network.size], noise.copy()
        for gradients in record_gradients(network, weights, x[drawn], labels[drawn], tolerant=settings.sigma > 0):
            total += sum_of_records(gradients, settings.clip, settings.levels)
        if watch is not None:
            watch(settings, noise, total)
        row = _step(network, row, total, settings)
    return Untainted(row)


def _step(
    program: Program, row: NDArray[np.float64], noisy: NDArray[np.int64], settings: DpSgdSettings
) -> NDArray[np.float64]:
    """Return the row after a step against the `noisy` sum of gradients, the only thing of records that it reads."""
    parts = settings.levels * settings.denominator
    if settings.optimiser == "sgd":
        return row - settings.rate * settings.clip / parts * noisy - settings.rate * settings.decay * row
    with one_thread():
        descent = RowAdam(program, row, settings.rate, settings.decay)
        descent.gradient.numpy()[:] = settings.clip / parts * noisy
        descent.step()
        return descent.row.numpy().astype(np.float64)


def poisson_sample(count: int, rate: float, randomness: RandomSource) -> NDArray[np.int64]:
    """Return indices of a Poisson sample of `count` records, each drawn independently with probability ⌊2⁶⁴·rate⌋/2⁶⁴.

    That is `rate` itself from 2⁻¹¹ on, and never more: below, a record is drawn less often by under 2⁻⁶⁴.
    """
    words = np.frombuffer(randomness.bytes(8 * count), dtype="<u8")
    return np.flatnonzero(words <= np.uint64(int(rate * 2**64) - 1)).astype(np.int64)


def _noise(size: int, sigma: float, randomness: RandomSource) -> NDArray[np.int64]:
    return discrete_gaussian([(sigma, size)], randomness) if sigma else np.zeros(size, dtype=np.int64)
