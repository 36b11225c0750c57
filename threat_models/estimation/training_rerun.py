"""Empirical ε of members' own noisy training: DP-SGD run again, with worst-case records and without them.

Canaries are records whose gradient is at the clip in every step, each in a direction of its own. A training runs with
half of as many directions as it has numbers: the noise of one number is independent of the others', and so is whether a
record is drawn, so that each number is a trial of its own, with a canary or without one. The steps are `dp_sgd`'s, with
the plan's sampling rate q, noise σ and number of steps T; what one sees are the noisy sums x of all steps. If they do
not add up to what the training returns, presence is guessed by what it returns.

The test. With s = σ over the clip, Σ log(1 − q + q·exp((x − ½)/s²)) is the log-likelihood ratio, and its sign is the
best guess of whether the canary is there (Neyman & Pearson 1933). It is right with probability ½·(1 + δ(0)) at most.
The right guesses give an exact interval [l, h] of that probability. At q = 1 the training is a Gaussian release, and
the test that of re-releases (`threat_models.estimation.rerelease`): μ ≥ 2·Φ⁻¹(l), ε ≥ ε(μ, δ). At q < 1 no more is used
than what every (ε, δ) promise allows: 2l − 1 ≤ (e^ε − 1 + 2δ)/(e^ε + 1) (Kairouz, Oh & Viswanath 2015). ε then comes
out far smaller than the claim, even where all is as claimed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats
from scipy.special import ndtri

from secagg.encoding.layout import Integers
from secagg.errors import BadInput
from secagg.networks import DpSgdSettings, dp_sgd
from secagg.networks.programs import BuiltIn
from secagg.networks.taint import public, require_untainted
from secagg.privacy import TrainingCost
from secagg.randomness import OperatingSystem
from threat_models.estimation.intervals import ConfidenceInterval, at_level, clopper_pearson
from threat_models.estimation.recomputation import gaussian_epsilon
from threat_models.estimation.rerelease import POWER, detectable
from threat_models.session import Floats

if TYPE_CHECKING:
    from torch import Tensor

CANARIES = 20_000
"""Most canaries of a measurement."""
MOST_GRADIENTS = 400_000
"""Most canaries' gradients, of all steps; long trainings have fewer canaries."""
TOGETHER = 200
"""Number of canaries in one training."""
LONG = 4.0
"""Length of a canary's gradient before it is clipped to 1."""


@dataclass(frozen=True)
class TrainingBound:
    """A lower bound of ε from trainings with `canaries` worst-case records, and as many without, at the claim's δ.

    `accuracy` is the interval of the probability that a guess is right, `allowed` the most that the claim's training
    allows; each interval is wrong with probability `level` at most. `power` says in words which fault of the noise
    would have been found. `is_enough`: there were canaries enough to tell, which at the sampling rate 1 show half of
    the claimed ε, and below it would have shown missing noise with probability 95 %.
    """

    epsilon: ConfidenceInterval
    accuracy: ConfidenceInterval
    allowed: float
    claimed: float
    delta: float
    steps: int
    rate: float
    canaries: int
    power: str
    is_enough: bool

    @property
    def refuted(self) -> bool:
        """Whether guesses find canaries more often than the claim allows."""
        return self.accuracy.low > self.allowed or self.epsilon.low > self.claimed

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        verdict = "A bound below the claim proves nothing."
        if self.refuted:
            verdict = "This disproves the claim: the training hides less than the plan says."
        elif not self.is_enough:
            verdict = "These are too few canaries to tell."
        return (
            f"Of {self.canaries} worst-case records in {self.steps} steps of training at the sampling rate "
            f"{self.rate:g}, and as many absent: epsilon is at least {self.epsilon.low:.3g} at delta {self.delta:g} "
            f"({self.epsilon.method}); {self.claimed:.4g} is claimed. {verdict}"
        )


def audit_training(
    cost: TrainingCost,
    sigma: float,
    levels: int,
    *,
    epsilon: float,
    delta: float,
    level: float,
    canaries: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> TrainingBound:
    """Bound ε of a member's training from below by DP-SGD with worst-case records, whose presence is guessed.

    `cost` is that of the training, of which the steps are run; `sigma` its noise and `levels` its clip, in grid units;
    `epsilon` is claimed at `delta`, and `level` the probability with which an interval may be wrong. `canaries` is by
    default as large as `CANARIES` and `MOST_GRADIENTS` allow. Raises BadInput for numbers out of range.
    """
    at_level("", level)
    steps = cost.steps
    if canaries is None:
        canaries = max(2, min(CANARIES, int(MOST_GRADIENTS / (steps.rate * steps.steps))))
    if canaries < 2:
        raise BadInput(f"canaries must be 2 or more (got {canaries})", remedy="leave the number out")
    settings = DpSgdSettings(1.0, steps.steps, steps.rate, 1.0, levels, sigma, denominator=1.0)
    there, absent = _draw_scores(settings, canaries, progress)
    right = int((there > 0).sum() + (absent <= 0).sum())
    accuracy = clopper_pearson(right, 2 * canaries, level)
    alone = replace(cost, squared_mu=0.0)
    # A factor e^±T widens what the steps' Gaussian losses allow.
    allowed = 0.5 * (1 + min(1.0, alone.delta(2 * cost.gap) + math.expm1(2 * cost.gap)))
    if steps.rate == 1:
        found = accuracy.through(lambda p: gaussian_epsilon(max(0.0, 2 * float(ndtri(p))), delta))
        fraction = detectable(alone.mu, alone.mu, 2 * canaries, level)
        is_enough = found.low >= epsilon / 2
        fault = None if fraction is None else f"noise >= {math.ceil(1000 * fraction) / 10:g} % too small"
    else:
        found = accuracy.through(lambda p: _least_epsilon(2 * p - 1, delta))
        is_enough = _finds_no_noise(settings, canaries, allowed, level)
        fault = "steps without any noise" if is_enough else None
    power = f"Trainings with {fault} would have shown it with probability 95 %."
    if fault is None:
        power = "Trainings would have shown no lack of noise with probability 95 %."
    shown = steps.steps, steps.rate, canaries
    return TrainingBound(found, accuracy, allowed, epsilon, delta, *shown, power, is_enough)


def _least_epsilon(apart: float, delta: float) -> float:
    """Compute the least ε at which two cases may be `apart`, the difference of their probabilities of one outcome."""
    if apart <= delta:
        return 0.0
    return math.log((1 + apart - 2 * delta) / (1 - apart)) if apart < 1 else math.inf


def _finds_no_noise(settings: DpSgdSettings, canaries: int, allowed: float, level: float) -> bool:
    """Return whether steps without noise, which show each canary that is drawn once, are found with `POWER`."""
    most = stats.binom.isf(level / 2, 2 * canaries, allowed)
    right = 1 - (1 - settings.sampling_rate) ** settings.steps / 2
    return bool(stats.binom.sf(most, 2 * canaries, right) >= POWER)


def _draw_scores(
    settings: DpSgdSettings, canaries: int, progress: Callable[[int, int], None] | None
) -> tuple[Floats, Floats]:
    """Run trainings with `canaries` records in all; return scores with and without a canary, (canaries,) each."""
    scores = []
    for start in range(0, canaries, TOGETHER):
        scores.append(_train(settings, min(TOGETHER, canaries - start)))
        if progress is not None:
            progress(start + len(scores[-1]) // 2, canaries)
    halves = [np.split(each, 2) for each in scores]
    return np.concatenate([there for there, _ in halves]), np.concatenate([absent for _, absent in halves])


def _train(settings: DpSgdSettings, canaries: int) -> Floats:
    """Return the log-likelihood ratios (2·canaries,) of the numbers of one training; the first half has canaries."""
    program = _OneNumberEach(2 * canaries, classes=2)
    variance, rate = (settings.sigma / settings.levels) ** 2, settings.sampling_rate
    scores, shown = np.zeros(program.size), np.zeros(program.size)
    with np.errstate(divide="ignore"):
        missed, drawn = np.log1p(-rate), math.log(rate)

    def watch(_: DpSgdSettings, noise: Integers, total: Integers) -> None:
        shown[:] += total / settings.levels
        scores[:] += np.logaddexp(missed, drawn + (total / settings.levels - 0.5) / variance)

    start = public(np.zeros(program.size))
    records, labels = np.eye(canaries, program.dimension, dtype=np.float32), np.zeros(canaries, dtype=np.int64)
    trained = dp_sgd(public(program), start, records, labels, settings, OperatingSystem(), watch)
    leaving = -require_untainted(trained)
    return scores if np.allclose(leaving, shown) else leaving - rate * settings.steps / 2


class _OneNumberEach(BuiltIn):
    """A program with one parameter for each entry of a record, whose loss is their product: x is its gradient."""

    name = "worst case"

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"weights": (self.dimension,)}

    @property
    def bounds(self) -> Mapping[str, float]:
        return {}

    def logits(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return x * parameters["weights"]

    def loss(self, parameters: Mapping[str, Tensor], x: Tensor, labels: Tensor) -> Tensor:
        return LONG * self.logits(parameters, x).sum()
