"""ε from a single run: canaries put in or left out by fair coins, and guesses of the coins.

For a federation that cannot be run again. Steinke, Nasr & Jagielski 2023 ("Privacy Auditing with One (1) Training
Run"), Theorem 5.2 and Appendix D: of r guesses about m independent fair coins, made from an (ε, δ)-private release, v
or more are right with probability at most β + 2·m·δ·α, where β = P(Bin(r, q) ≥ v), q = e^ε/(1 + e^ε), and

    α = max over i ≥ 1 of P(v − i ≤ Bin(r, q) < v)/i.

How many guesses are made on each side is fixed before the scores are seen: choosing the best of many is what makes such
bounds wrong. The bound is about canaries that are added or left out. It is weak: with every guess right 10 canaries
show ε ≥ 1.05, 100 show 3.49 and 1000 show 5.8; and whoever does not know the other records hardly sees a canary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from secagg.encoding.layout import Integers
from secagg.errors import BadInput
from secagg.plan import Plan
from secagg.privacy import OpenedNoise
from secagg.statistics import full_matrix

LARGEST_EPSILON = 60.0
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Canaries:
    """Records on the plan's grid, integers (m, d) and labels (m,), and the coins (m,): which of them to put in."""

    integers: Integers = field(repr=False)
    labels: Integers = field(repr=False)
    included: NDArray[np.bool_] = field(repr=False)


def draw_canaries(plan: Plan, count: int, generator: np.random.Generator) -> Canaries:
    """`count` ≤ d records of nearly full length in orthogonal directions, so that none hides another, and their coins.

    The classes take turns. Raises BadInput for more canaries than features.
    """
    if not 1 <= count <= plan.dimension:
        raise BadInput(f"{count} orthogonal canaries in {plan.dimension} features", remedy="plant fewer")
    directions, _ = np.linalg.qr(generator.normal(size=(plan.dimension, count)))
    integers = np.trunc(directions.T * plan.levels * (1 - 1e-9)).astype(np.int64)
    return Canaries(integers, np.arange(count) % len(plan.classes), generator.random(count) < 0.5)


def canary_scores(
    release: Mapping[str, Integers],
    known: Mapping[str, Integers] | None,
    noise: Mapping[str, OpenedNoise],
    canaries: Canaries,
) -> Floats:
    """⟨q_i, A_y⟩/σ_A² + q_iᵀ·B·q_i/σ_B², (m,): the log-likelihood ratio of one canary, up to a constant.

    `release` and `known`, the sum of all other records where the auditor has them, are in units of one record's
    integers. Counts say the same of every canary of a class and are left out.
    """
    rest = {name: release[name] - (known[name] if known is not None else 0) for name in release}
    records = canaries.integers.astype(np.float64)
    scores = np.zeros(len(records))
    for name, own in noise.items():
        weight = (own.multiplier / own.sigma) ** 2
        if name == "class_sums":
            scores += weight * np.einsum("id,id->i", records, rest[name][canaries.labels])
        elif name == "second_moment":
            matrix = full_matrix(rest[name], records.shape[1])
            scores += weight * np.einsum("id,id->i", records @ matrix, records)
    return scores


@dataclass(frozen=True)
class OneRunBound:
    """ε ≥ `lower`, but for a probability of `level`: `right` of `guesses` about `canaries` coins were right."""

    lower: float
    delta: float
    level: float
    canaries: int
    guesses: int
    right: int

    @property
    def largest(self) -> float:
        """What would have been shown had all guesses been right."""
        return _bound(self.canaries, self.guesses, self.guesses, self.delta, self.level)

    @property
    def sentence(self) -> str:
        """The outcome, and what it does not say."""
        return (
            f"One run with {self.canaries} canaries: {self.right} of {self.guesses} guesses were right, so epsilon is "
            f"at least {self.lower:.3g} at delta {self.delta:g} (Steinke et al. 2023, {100 * (1 - self.level):.4g} %). "
            f"No more than {self.largest:.3g} could have been shown. A bound below the claim proves nothing."
        )


def one_run(
    scores: Floats,
    included: NDArray[np.bool_],
    *,
    guesses: tuple[int, int],
    delta: float,
    level: float = 0.05,
) -> OneRunBound:
    """Guess "in" for the highest `guesses[0]` scores and "out" for the lowest `guesses[1]`; abstain for the others.

    `included` (m,) are the coins. Ties go by place. Raises BadInput for numbers that do not go together.
    """
    canaries, (high, low) = len(scores), guesses
    if scores.shape != included.shape or min(guesses) < 0 or not 1 <= high + low <= canaries:
        raise BadInput(f"{high} + {low} guesses about {canaries} scores and {len(included)} coins")
    if not (0 <= delta < 1 and 0 < level < 1):
        raise BadInput(f"a bound at delta {delta} that is wrong with probability {level}")
    if not np.isfinite(scores).all():
        raise BadInput("a canary has no finite score")
    order = np.argsort(scores, kind="stable")
    right = int(included[order[canaries - high :]].sum() + (~included[order[:low]]).sum())
    bound = _bound(canaries, high + low, right, delta, level)
    return OneRunBound(bound, delta, level, canaries, high + low, right)


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """An upper bound of the probability that `right` or more guesses are right under (ε, δ)-privacy; grows with ε."""
    q = 1 / (1 + math.exp(-epsilon))
    beta = float(stats.binom.sf(right - 1, guesses, q))
    if right == 0 or delta == 0:
        return min(1.0, beta)
    below = np.cumsum(stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, q))
    alpha = float((below / np.arange(1, right + 1)).max())
    return min(1.0, beta + 2 * canaries * delta * alpha)


def _bound(canaries: int, guesses: int, right: int, delta: float, level: float) -> float:
    """The largest ε that is refuted at `level`, rounded down; 0 where none is."""
    if p_value(canaries, guesses, right, 0.0, delta) > level:
        return 0.0
    low, high = 0.0, LARGEST_EPSILON
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(canaries, guesses, right, middle, delta) <= level else (low, middle)
    return low
