"""The likelihood ratio attack on a head (Carlini et al. 2022), with shadow heads that cost almost nothing.

Each shadow is a head over records that the adversary has. For the exact discriminant every candidate's margin with and
without itself follows from the shadow by a rank-one update (`leave_one_out`); other heads, and noisy ones, are made
anew, with the candidates at random inside or outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from methods import Method, method_named
from methods.fedcgs import FedCGS
from methods.gate import GATE
from secagg.errors import BadInput
from secagg.head import LinearHead
from secagg.plan import Plan
from secagg.statistics import Grid
from threat_models.attacks.attack import Progress
from threat_models.attacks.leave_one_out import Discriminant, margins
from threat_models.attacks.likelihood import Noise, drawn, total
from threat_models.session import Records

Floats = NDArray[np.float64]

SHADOWS = 64
NARROWEST = 0.05
"""Least standard deviation of a margin, in units of the mean over candidates."""


@dataclass(frozen=True, eq=False)
class Shadows:
    """Margins of each candidate under shadow heads with and without it: (shadows, n) each, NaN where there is none."""

    inside: Floats = field(repr=False)
    outside: Floats = field(repr=False)

    def ratios(self, seen: Floats, mode: Literal["online", "offline"] = "online") -> Floats:
        """Scores (n,) of the margins that the head gave, larger for members.

        Online: log N(seen; inside) − log N(seen; outside), each with the mean and variance of the candidate's margins.
        Offline: how many standard deviations above the margins without it.
        """
        outside, wide = _moments(self.outside)
        above: Floats = (seen - outside) / wide
        if mode == "offline":
            return above
        inside, narrow = _moments(self.inside)
        ratio = (above**2 - ((seen - inside) / narrow) ** 2) / 2 + np.log(wide / narrow)
        return np.where(np.isfinite(ratio), ratio, above)


def _moments(margins_: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation over shadows, (n,); NaN where a candidate has no margin."""
    seen = np.ma.masked_invalid(margins_)
    spread = seen.std(axis=0)
    least = max(NARROWEST * float(spread.mean()), 1e-9)
    return seen.mean(axis=0).filled(np.nan), np.maximum(spread.filled(np.nan), least)


def head_scores(head: LinearHead, records: Records, grid: Grid) -> Floats:
    """The scores (n, C) that a head gives to records on the grid."""
    inputs = records.integers.astype(np.float64)
    inputs = inputs / grid.unit(inputs.shape[1]) if grid.is_normalised else inputs * grid.step + grid.centre
    inputs = inputs if head.before is None else head.before.apply(inputs)
    scores: Floats = inputs @ head.weight.T.astype(np.float64) + head.bias
    return scores


def losses(scores: Floats, labels: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Cross-entropy of the own class and entropy of the prediction, in nats, (n,) each."""
    logarithms = scores - logsumexp(scores, axis=1, keepdims=True)
    entropy: Floats = -(np.exp(logarithms) * np.maximum(logarithms, -1e3)).sum(axis=1)
    return -logarithms[np.arange(len(labels)), labels], entropy


def _method(plan: Plan) -> Method:
    """The plan's method, without a class gate."""
    return method_named(plan.method, {name: value for name, value in plan.method_parameters.items() if name != GATE})


def trained(plan: Plan, records: Records, noise: Noise | None = None, seed: int = 0) -> LinearHead:
    """The head of the plan's first sum of moments over these records, with noise of the given strength.

    Raises BadInput as the method does, for too few records say.
    """
    method = _method(plan)
    blocks = total(records, len(plan.classes), _names(method, plan))
    if noise is not None:
        extra = drawn(blocks, noise, seed)
        blocks = {name: block + extra[name] for name, block in blocks.items()}
    return _head(method, blocks, plan.grid, noise)


def _names(method: Method, plan: Plan) -> frozenset[str]:
    """The blocks of the method's first sum."""
    return frozenset(block.name for block in method.sums(plan.dimension, len(plan.classes), plan.levels)[0].blocks)


def _head(method: Method, blocks: dict[str, Any], grid: Grid, noise: Noise | None) -> LinearHead:
    made = method.head(blocks, grid, noise)
    if made is None:
        raise BadInput(f"the first sum of {method.name} gives no head")
    return made


def shadows_of(
    plan: Plan,
    noise: Noise | None,
    candidates: Records,
    pool: Records,
    size: int,
    progress: Progress,
    *,
    shadows: int = SHADOWS,
    seed: int = 0,
) -> Shadows:
    """Shadow heads over `size` records of the candidates and `pool` at random. Raises BadInput as `trained` does."""
    everything = _joined(candidates, pool)
    generator = np.random.default_rng(seed)
    pairs = []
    for number in range(shadows):
        order = generator.permutation(len(everything))
        if noise is not None:
            rows = _halved(order, len(candidates), size)
            pairs.append(_retrained(plan, noise, candidates, everything, rows, number))
        else:
            exact = _updated if plan.method == FedCGS.name else _remade
            pairs.append(exact(plan, candidates, everything, order[:size]))
        progress(number + 1, shadows)
    return Shadows(np.array([one for one, _ in pairs]), np.array([other for _, other in pairs]))


def _halved(order: NDArray[np.int64], candidates: int, size: int) -> NDArray[np.int64]:
    """`size` of the records in `order`: half of the candidates, which stand first, or as many as there is room for."""
    inside = order[order < candidates][: min(size, (candidates + 1) // 2)]
    return np.concatenate([inside, order[order >= candidates][: size - len(inside)]])


def _updated(plan: Plan, candidates: Records, everything: Records, rows: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Margins with and without each candidate, by adding or removing it."""
    parameters: dict[str, Any] = _method(plan).parameters
    shadow = Discriminant.of(
        everything.take(rows), len(plan.classes), parameters["covariance"], float(parameters["ridge"])
    )
    there = np.isin(np.arange(len(candidates)), rows)
    as_is = shadow.margins(candidates, np.zeros(len(candidates), dtype=np.int64))
    other = shadow.margins(candidates, np.where(there, -1, 1))
    return np.where(there, as_is, other), np.where(there, other, as_is)


def _remade(plan: Plan, candidates: Records, everything: Records, rows: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Margins with and without each candidate, by making the head of the changed sums anew."""
    method, grid = _method(plan), plan.grid
    blocks = total(everything.take(rows), len(plan.classes), _names(method, plan))
    there = np.isin(np.arange(len(candidates)), rows)
    as_is = margins(head_scores(_head(method, blocks, grid, None), candidates, grid), candidates.labels)
    other = np.empty_like(as_is)
    for row in range(len(candidates)):
        one = candidates.take([row])
        own = total(one, len(plan.classes), frozenset(blocks))
        changed = {name: block + (-1 if there[row] else 1) * own[name] for name, block in blocks.items()}
        other[row] = margins(head_scores(_head(method, changed, grid, None), one, grid), one.labels)[0]
    return np.where(there, as_is, other), np.where(there, other, as_is)


def _retrained(
    plan: Plan, noise: Noise | None, candidates: Records, everything: Records, rows: NDArray[np.int64], seed: int
) -> tuple[Floats, Floats]:
    """Margins under one new head: each candidate's is one with it, or one without it."""
    head = trained(plan, everything.take(rows), noise, seed)
    found = margins(head_scores(head, candidates, plan.grid), candidates.labels)
    there = np.isin(np.arange(len(candidates)), rows)
    return np.where(there, found, np.nan), np.where(there, np.nan, found)


def _joined(one: Records, other: Records) -> Records:
    """Both, one after the other; images are not needed here."""
    return Records(
        np.concatenate([one.integers, other.integers]),
        np.concatenate([one.labels, other.labels]),
        np.concatenate([one.features, other.features]),
    )
