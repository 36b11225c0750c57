"""Empirical ε by re-releases: the plan's noise drawn again and again, with a worst-case record and without it.

The test. Whoever guesses from a release whether the canary is in it, which is so in half of the cases, is right with
probability ½·(1 − FPR + TPR) ≤ Φ(μ/2) while the release is μ-Gaussian (Dong, Roth & Su 2022). Gaussian noise
reaches this with a linear score and a threshold at the midpoint; the plan fixes both before anything is drawn. The
right guesses give one exact interval [l, h] of that probability, hence μ ≥ 2·Φ⁻¹(l) and ε ≥ ε(2·Φ⁻¹(l), δ). Intervals
of FPR and TPR apart would be 1.4 times as wide.

What it rests on. Nothing else: rounded Gaussians are post-processing of a μ-Gaussian release, and so are sums of
discrete-Gaussian shares, but for a factor below 1 + 10⁻¹⁵ (`secagg.privacy.shares`).

Beside the guesses. What is missing on a few entries alone hardly moves a score over all of them: the variance of the
noise on each entry that the canary moves is compared with the plan's by χ².

What it covers. Records and clients, add/remove and replace-one, all sums of a plan together; of the noise, the entries
that the canary moves. It tests what is drawn, not whether a party draws it: `release` takes the place of the plan's own
noise where something else is to be tested. A bound above the claim disproves it; one below proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.special import ndtr, ndtri

from secagg.errors import BadInput
from secagg.privacy import PrivacyClaim
from threat_models.estimation.ceilings import roc_ceiling
from threat_models.estimation.intervals import Interval, at_level, bonferroni, clopper_pearson
from threat_models.estimation.recomputation import epsilon_of, gaussian_epsilon
from threat_models.estimation.worst_case_canary import Canary, Release, draw_release, worst_canary
from threat_models.findings import Curve, Series
from threat_models.session import Floats

BATCH = 5_000
POWER = 0.95
REPEATED = 1e-9
"""Probability with which fresh noise is taken for repeated noise."""


@dataclass(frozen=True)
class EpsilonBound:
    """Bounds of ε from re-releases, at the claim's δ; every interval is wrong with probability `level` at most.

    `mu` is the distance of the two cases that the guesses show, `planned` the one that the claim's noise allows.
    `releases` were drawn of each case; `repeated` is the number of releases whose noise had been there before, where
    that is no chance, else 0. `short` are the blocks with an entry whose noise varies less than planned: what one block
    lacks shows little in guesses, which go by all. `detectable`: noise with σ too small everywhere by this fraction or
    more would have been found with probability 95 %; None where no fraction would. `recomputed` is the auditor's own ε
    of the claim's noise.
    """

    epsilon: Interval
    mu: Interval
    accuracy: Interval
    planned: float
    claimed: float
    recomputed: float
    delta: float
    level: float
    releases: int
    repeated: int
    short: tuple[str, ...]
    detectable: float | None
    curve: Curve

    @property
    def lower(self) -> float:
        """ε is at least this."""
        return self.epsilon.low

    @property
    def refuted(self) -> bool:
        """Whether the noise is not what the claim counts on: too little, or the same again."""
        return self.mu.low > self.planned or self.repeated > 0 or bool(self.short)

    @property
    def power(self) -> str:
        """The power of this audit."""
        if self.detectable is None:
            return "Re-releases would have shown no lack of noise with probability 95 %."
        percent = math.ceil(1000 * self.detectable) / 10
        return f"Re-releases with noise >= {percent:g} % too small would have shown it with probability 95 %."

    @property
    def sentence(self) -> str:
        """The outcome, and what it does not say."""
        found = (
            f"Of {2 * self.releases} re-releases: epsilon is at least {self.lower:.3g} at delta {self.delta:g} "
            f"({self.epsilon.method}); {self.claimed:.4g} is claimed."
        )
        if self.repeated:
            verdict = f"The noise of {self.repeated} releases had been there before."
        elif self.lower > self.claimed:
            verdict = "This disproves the claim."
        elif self.short:
            verdict = f"The noise on {', '.join(self.short)} is less than the plan says."
        elif self.refuted:
            verdict = "The noise is less than the plan says."
        else:
            verdict = "A bound below the claim proves nothing."
        return f"{found} {verdict}"


def audit_release(
    claim: PrivacyClaim,
    *,
    releases: int = 20_000,
    level: float = 0.05,
    spread: int = 1,
    release: Release | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> EpsilonBound:
    """Draw `releases` ≥ 2 releases with `worst_canary(claim.releases, spread)` and as many without it, and test them.

    `release` gives them in place of `draw_release`. Raises BadInput for numbers out of range.
    """
    if releases < 2:
        raise BadInput(f"{releases} re-releases", remedy="give 2 or more")
    at_level("", level)
    canary = worst_canary(claim.releases, spread)
    there, absent, repeated, variances = _draw_scores(canary, release or draw_release(canary), releases, progress)
    right = int((there > 0).sum() + (absent <= 0).sum())
    accuracy = clopper_pearson(right, 2 * releases, level)
    mu = accuracy.through(lambda probability: 2 * float(ndtri(probability)))
    delta, planned = claim.delta, claim.releases.cost().mu
    # Find blocks with an entry whose noise varies less than planned; by χ², which the guesses leave half the level.
    draws = 2 * releases
    least = stats.chi2.ppf(bonferroni(level / 2, len(variances)), draws) / draws
    return EpsilonBound(
        epsilon=mu.through(lambda distance: gaussian_epsilon(distance, delta)),
        mu=mu,
        accuracy=accuracy,
        planned=planned,
        claimed=claim.epsilon,
        recomputed=epsilon_of(claim.releases, delta),
        delta=delta,
        level=level,
        releases=releases,
        repeated=repeated,
        short=tuple(
            dict.fromkeys(move.block for move, found in zip(canary.moves, variances, strict=True) if found < least)
        ),
        detectable=detectable(canary.mu, planned, 2 * releases, level),
        curve=_curve(claim, canary.mu, there, absent, level),
    )


def detectable(mu: float, planned: float, guesses: int, level: float = 0.05) -> float | None:
    """The least fraction by which σ can be too small so that the test finds it with probability 95 %, rounded up.

    `mu` is the canary's distance under the planned noise, `planned` the one above which the test reports. None: it
    cannot find any.
    """
    most = stats.binom.isf(level / 2, guesses, ndtr(planned / 2))  # one right guess more is reported

    def is_found(fraction: float) -> bool:
        return bool(stats.binom.sf(most, guesses, ndtr(mu / (1 - fraction) / 2)) >= POWER)

    low, high = 0.0, 1 - 1e-6
    if not is_found(high):
        return None
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if is_found(middle) else (middle, high)
    return high


def _draw_scores(
    canary: Canary, release: Release, releases: int, progress: Callable[[int, int], None] | None
) -> tuple[Floats, Floats, int, Floats]:
    """Draw scores with and without the canary; count repeated noise, and measure its variance by entry over the plan's.

    Release i of one case is compared with release i of the other, and with the one before it in each case.
    """
    scores: dict[bool, list[Floats]] = {True: [], False: []}
    squares = np.zeros(len(canary.moves))
    equal = compared = 0
    for start in range(0, releases, BATCH):
        count = min(BATCH, releases - start)
        opened = {there: np.asarray(release(there, count), dtype=np.float64) for there in (True, False)}
        for there, values in opened.items():
            if values.shape != (count, len(canary.moves)):
                raise BadInput(f"a release has the shape {values.shape}, not {(count, len(canary.moves))}")
            scores[there].append(canary.scores(values))
        noise = np.stack([opened[True] - canary.shifts, opened[False]])
        squares += ((noise / canary.sigmas) ** 2).sum(axis=(0, 1))
        pairs = [noise[0] == noise[1], *(case[1::2] == case[:-1:2] for case in noise)]
        equal += sum(int(pair.all(axis=1).sum()) for pair in pairs)
        compared += sum(len(pair) for pair in pairs)
        if progress is not None:
            progress(start + count, releases)
    coincidence = float(np.prod(1 / (2 * math.sqrt(math.pi) * canary.sigmas)))
    by_chance = stats.binom.sf(equal - 1, compared, min(1.0, 2 * coincidence)) >= REPEATED
    repeated = 0 if by_chance else equal
    return np.concatenate(scores[True]), np.concatenate(scores[False]), repeated, squares / (2 * releases)


def _curve(claim: PrivacyClaim, mu: float, there: Floats, absent: Floats, level: float) -> Curve:
    """The ROC curve of the scores at thresholds that the plan fixes, an interval for each point, and the ceiling."""
    thresholds = -ndtri(np.geomspace(1e-4, 0.9, 33)) - mu / 2
    points = []
    for threshold in thresholds:
        false, true = int((absent > threshold).sum()), int((there > threshold).sum())
        if false and true:
            rate = clopper_pearson(true, len(there), level)
            points.append((false / len(absent), rate.value, rate.low, rate.high))
    measured = Series("re-releases", *zip(*points, strict=True)) if points else Series("re-releases", (), ())
    chance = Series("chance", (1e-4, 1.0), (1e-4, 1.0))
    return Curve(
        "Is the canary in the release?",
        "false positive rate",
        "true positive rate",
        (measured, roc_ceiling(claim), chance),
        logarithmic=True,
    )
