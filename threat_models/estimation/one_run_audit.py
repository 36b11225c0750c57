"""Lower bounds of ε from a single run: canaries put in or left out by fair coins, and guesses of the coins.

For a federation that cannot be run again. Steinke, Nasr & Jagielski 2023 ("Privacy Auditing with One (1) Training
Run"), Theorem 5.2 and Appendix D: of r guesses about m independent fair coins, made from an (ε, δ)-private release, v
or more are right with probability at most β + 2·m·δ·α, where β = P(Bin(r, q) ≥ v), q = e^ε/(1 + e^ε), and

    α = max over i ≥ 1 of P(v − i ≤ Bin(r, q) < v)/i.

How many guesses are made follows from what the plan and the auditor's knowledge let one expect, before the coins are
looked at: choosing the best of many is what makes such bounds wrong. The bound is about canaries that are added or left
out. It is weak: with every guess right 10 canaries show ε ≥ 1.05, 100 show 3.49 and 1000 show 5.8.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from methods import sums_of
from secagg.agreement.plan import Plan
from secagg.errors import BadInput
from secagg.privacy import Adjacency, Claim, TrainingClaim, Unit
from threat_models.estimation.canaries import Canaries, canary_scores
from threat_models.estimation.intervals import at_level
from threat_models.estimation.recomputation import epsilon_of
from threat_models.session import AuditRecords, Floats, Session

LARGEST_EPSILON = 60.0
LEVEL = 0.05
SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
"""Shares of the canaries whose coins may be guessed; one of these shares is chosen."""
DRAWS = 400
SEED = 20_230_515


@dataclass(frozen=True)
class OneRunBound:
    """A lower bound of ε from one run, which is wrong with probability `level` at most.

    Of `canaries` coins `guesses` were guessed, and `right` of them rightly.

    `claimed` is ε of one record added or left out, ∞ where nothing is promised. `expected` is the bound that noise as
    planned mostly leads to, None where nothing was planned. `caught` are the probabilities with which half of the noise
    (in σ), and none of it, would have disproved the claim.
    """

    lower: float
    delta: float
    level: float
    canaries: int
    guesses: int
    right: int
    claimed: float = math.inf
    expected: float | None = None
    caught: tuple[float, float] | None = None

    @property
    def largest(self) -> float:
        """The bound on ε if all guesses had been right, which is the most that this run could show."""
        return _bound(self.canaries, self.guesses, self.guesses, self.delta, self.level)

    @property
    def refuted(self) -> bool:
        """True if the lower bound exceeds the claimed ε, which disproves the claim."""
        return self.lower > self.claimed

    @property
    def method(self) -> str:
        """The name of the method that gave the bound, with its confidence level."""
        return at_level("Steinke et al. 2023, one run", self.level)

    @property
    def sentence(self) -> str:
        """Sentences on the bound found, the claim, and the conclusion that the bound allows."""
        claim, end = f"{self.claimed:.4g} is claimed", "A bound below the claim proves nothing."
        if math.isinf(self.claimed):
            claim, end = "nothing is claimed", "There is no claim to disprove."
        elif self.refuted:
            end = "This disproves the claim."
        return (
            f"One run with {self.canaries} canaries: {self.right} of {self.guesses} guesses were right, so epsilon of "
            f"a record added or left out is at least {self.lower:.3g} at delta {self.delta:g} ({self.method}); {claim}."
            f" {end}"
        )

    @property
    def power(self) -> str:
        """A text on the largest bound that these canaries could have shown, and their chance to find missing noise."""
        most = f"{self.largest:.3g}"
        words = f"{self.guesses} guesses about {self.canaries} canaries could have shown no more than {most}."
        if self.expected is not None:
            words += f" What is planned mostly shows about {self.expected:.3g}."
        if self.caught is not None:
            half, none = (f"{100 * each:.0f} %" for each in self.caught)
            words += (
                f" With half of the planned sigma they would have disproved the claim with probability {half}, "
                f"without any noise with {none}."
            )
        return words


def audit_canaries(
    session: Session,
    canaries: Canaries,
    known: AuditRecords | None = None,
    public: AuditRecords | None = None,
    level: float = LEVEL,
) -> OneRunBound:
    """Guess which canaries are in a session's sum, and bound ε from below by how many guesses are right.

    `known` and `public` are as in `canary_scores`. Raises BadInput as that does, and for fewer than two canaries.
    """
    if len(canaries) < 2:
        raise BadInput(f"{len(canaries)} canaries", remedy="plant at least 2; 100 show no more than 3.49")
    claim, scores = session.claim, canary_scores(session, canaries, known, public)
    delta = claim.delta if claim is not None else 0.0
    claimed = record_epsilon(session.plan, claim) if claim is not None else math.inf
    chosen = choose_guesses(scores.mu, scores.bare, claimed, delta, level)
    bound = bound_epsilon(scores.values, canaries.included, guesses=chosen.count, delta=delta, level=level)
    return replace(bound, claimed=claimed, expected=chosen.expected, caught=chosen.caught)


def record_epsilon(plan: Plan, claim: Claim) -> float:
    """Compute the ε of the plan's noise for one record added or left out, which is what canaries measure."""
    if isinstance(claim, TrainingClaim) or (plan.unit, plan.adjacency) == (Unit.RECORD, Adjacency.ADD_REMOVE):
        return claim.epsilon
    moved = [each.sensitivity(Unit.RECORD, Adjacency.ADD_REMOVE, plan.max_records) for each in sums_of(plan)]
    return epsilon_of(claim.releases.about(Unit.RECORD, Adjacency.ADD_REMOVE, moved), claim.delta)


@dataclass(frozen=True)
class _Guesses:
    """The number of coins to guess, the bound of ε to expect, and the chances to find missing noise (`caught`)."""

    count: int
    expected: float
    caught: tuple[float, float] | None


def choose_guesses(mu: Floats, bare: Floats, claimed: float, delta: float, level: float = LEVEL) -> _Guesses:
    """Choose how many coins to guess so that missing noise is found with the highest probability.

    Among equal ones, the number with the highest expected bound.

    For canaries (m,) that are `mu` deviations apart under the planned noise and `bare` without. Found by drawing scores
    N(±μ²/2, μ²) with a fixed seed, never from a run.
    """
    counts = tuple(sorted({max(1, round(share * len(mu))) for share in SHARES}))
    half = 1 / np.sqrt(1 / bare**2 + (1 / mu**2 - 1 / bare**2) / 4)
    found = []
    for count, *rights in zip(counts, *(_simulate_right(each, counts) for each in (mu, half, bare)), strict=True):
        least, mostly = _least_right(len(mu), count, claimed, delta, level), int(np.median(rights[0]))
        caught = (float((rights[1] >= least).mean()), float((rights[2] >= least).mean()))
        chosen = _Guesses(count, _bound(len(mu), count, mostly, delta, level), caught if claimed < math.inf else None)
        found.append((round(sum(caught), 1), chosen.expected, -p_value(len(mu), count, mostly, 0.0, delta), chosen))
    return max(found, key=lambda each: each[:3])[3]


def _simulate_right(mu: Floats, counts: tuple[int, ...]) -> list[NDArray[np.int64]]:
    """Simulate `DRAWS` runs; return how many guesses are right in each run, for each number in `counts`."""
    generator = np.random.default_rng(SEED)
    coins = generator.random((DRAWS, len(mu))) < 0.5
    scores = generator.normal(size=coins.shape) * mu + np.where(coins, 0.5, -0.5) * mu**2
    right = np.take_along_axis((scores > 0) == coins, np.argsort(-np.abs(scores), axis=1), axis=1)
    return [right[:, :count].sum(axis=1) for count in counts]


def _least_right(canaries: int, guesses: int, epsilon: float, delta: float, level: float) -> int:
    """Return the fewest right guesses that show more than ε; `guesses` + 1 where no number does."""
    if math.isinf(epsilon):
        return guesses + 1
    return bisect_left(range(guesses + 1), x=True, key=lambda n: p_value(canaries, guesses, n, epsilon, delta) <= level)


def bound_epsilon(
    scores: Floats, included: NDArray[np.bool_], *, guesses: int, delta: float, level: float = LEVEL
) -> OneRunBound:
    """Bound ε from below by guessing "in" for scores above 0, else "out", for the `guesses` scores farthest from 0.

    `included` (m,) are the coins. Ties go by place. Raises BadInput for numbers that do not go together.
    """
    canaries = len(scores)
    if scores.shape != included.shape or not 1 <= guesses <= canaries:
        raise BadInput(f"{guesses} guesses about {canaries} scores and {len(included)} coins")
    if not (0 <= delta < 1 and 0 < level < 1):
        raise BadInput(f"a bound at delta {delta} that is wrong with probability {level}")
    if not np.isfinite(scores).all():
        raise BadInput("a canary has no finite score")
    sure = np.argsort(-np.abs(scores), kind="stable")[:guesses]
    right = int(((scores[sure] > 0) == included[sure]).sum())
    return OneRunBound(_bound(canaries, guesses, right, delta, level), delta, level, canaries, guesses, right)


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return an upper bound, growing with ε, on the probability of `right` or more right guesses under (ε, δ)-DP."""
    q = 1 / (1 + math.exp(-epsilon))
    beta = float(stats.binom.sf(right - 1, guesses, q))
    if right == 0 or delta == 0:
        return min(1.0, beta)
    below = np.cumsum(stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, q))
    alpha = float((below / np.arange(1, right + 1)).max())
    return min(1.0, beta + 2 * canaries * delta * alpha)


def _bound(canaries: int, guesses: int, right: int, delta: float, level: float) -> float:
    """Return the largest ε that is refuted at `level`, rounded down; 0 where none is."""
    if p_value(canaries, guesses, right, 0.0, delta) > level:
        return 0.0
    low, high = 0.0, LARGEST_EPSILON
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(canaries, guesses, right, middle, delta) <= level else (low, middle)
    return low
