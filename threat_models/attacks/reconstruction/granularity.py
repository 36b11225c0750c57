"""The levels of detail at which a view shows single records, from a mean of many to the record, beside references."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secagg.agreement.plan import Plan
from threat_models.attacks.reconstruction.rotation import recover
from threat_models.attacks.reconstruction.similarity import match_rows
from threat_models.attacks.targets import Target, targets_in
from threat_models.session import Knowledge, Records
from threat_models.views import View

Floats = NDArray[np.float64]
MOST = 64
"""Largest sum whose records are recovered."""
RAW = "raw feature"
RANDOM = "random feature"
CLASS = "class mean of public records"
OTHERS = "class mean of other members"
NOT_SEEN = (RAW, RANDOM, CLASS, OTHERS)
"""Levels that are in no view: the controls, and what the class alone tells, of other people and of these."""
MIXED = 4
"""Public records in one random mixture."""


@dataclass(frozen=True, eq=False)
class Level:
    """One way of knowing each chosen record: what is known of it (n, d), in units of R_q."""

    name: str
    known: Floats = field(repr=False)


def levels_with_references(view: View, knowledge: Knowledge, rows: NDArray[np.intp]) -> tuple[Level, ...]:
    """The raw features, the view's levels, random features, and what the class alone tells, in this order."""
    raw = knowledge.candidates.integers[rows] / view.plan.levels
    found = (
        Level(RAW, raw),
        *levels_in(view, knowledge, rows),
        Level(RANDOM, _draw_random(raw, knowledge.public, view.plan)),
    )
    return (*found, *_levels_by_class(knowledge, rows, view.plan))


def _levels_by_class(knowledge: Knowledge, rows: NDArray[np.intp], plan: Plan) -> tuple[Level, ...]:
    """What the class alone tells of records: class means of public records, and of other members."""
    known, labels = knowledge.candidates, knowledge.candidates.labels[rows]
    sources = {OTHERS: known.take(knowledge.is_member)}
    if knowledge.public is not None:
        sources[CLASS] = knowledge.public
    found = []
    for name, source in sources.items():
        own = known.integers[rows] if name == OTHERS else np.zeros((len(rows), plan.dimension))
        counts = np.array([int((source.labels == label).sum()) for label in labels]) - (name == OTHERS)
        if counts.min() > 0:
            sums = np.stack([source.integers[source.labels == label].sum(axis=0) for label in labels])
            found.append(Level(name, (sums - own) / counts[:, None] / plan.levels))
    return tuple(found)


def _draw_random(raw: Floats, public: Records | None, plan: Plan) -> Floats:
    """Draw features (n, d) that have nothing to do with `raw`: mixtures of public ones, else random directions."""
    generator = np.random.default_rng(0)
    if public is not None and len(public):
        picked = public.integers[generator.integers(len(public), size=(len(raw), MIXED))] / plan.levels
        mixed: Floats = np.einsum("nm,nmd->nd", generator.dirichlet(np.ones(MIXED), len(raw)), picked)
        return mixed
    random = generator.standard_normal(raw.shape)
    if not plan.grid.is_normalised:
        random = np.abs(random)
    scaled: Floats = random * np.linalg.norm(raw, axis=1, keepdims=True) / np.linalg.norm(random, axis=1, keepdims=True)
    return scaled


def levels_in(view: View, knowledge: Knowledge, rows: NDArray[np.intp]) -> tuple[Level, ...]:
    """What a view shows about the candidates at `rows`, all of them members: the smallest sums first."""
    chosen = knowledge.candidates.take(rows)
    owners = [knowledge.owners[row] for row in rows]
    shown = targets_in(view, "class_sums")
    singles = {next(iter(each.owners)): each for each in shown if len(each.owners) == 1}
    sums = [each for each in shown if len(each.owners) > 1 and set(owners) <= each.owners]
    sources = [(each.name.removeprefix("the "), dict.fromkeys(owners, each)) for each in sums]
    if set(owners) <= set(singles):
        sources.insert(0, ("its client", {owner: singles[owner] for owner in owners}))
    found = []
    for name, parts in sources:
        source = f"noisy {name}" if parts[owners[0]].is_noisy else name
        if (records := _recover(parts, owners, chosen, knowledge.public, view.plan)) is not None:
            found.append(Level(f"N, A and B of {source}", records))
        means = [_class_mean(parts[owner], label, view.plan) for owner, label in zip(owners, chosen.cells, strict=True)]
        found.append(Level(f"class mean of {source}", np.stack(means)))
    return tuple(found)


def _class_mean(target: Target, label: int, plan: Plan) -> Floats:
    mean: Floats = np.asarray(target.blocks["class_sums"][label], dtype=np.float64) / plan.levels
    return mean / max(int(target.counts[label]), 1)


def _recover(
    parts: dict[str, Target], owners: list[str], chosen: Records, public: Records | None, plan: Plan
) -> Floats | None:
    """Recover the records of sums and choose the nearest to each of `chosen`; None where a sum is too large."""
    known = np.empty(chosen.integers.shape)
    for owner, target in parts.items():
        mine = np.flatnonzero(np.array(owners) == owner)
        if "second_moment" not in target.blocks or not len(mine) <= target.records < min(plan.dimension, MOST + 1):
            return None
        found = recover(target.blocks, plan, public=public)
        known[mine] = found.records[match_rows(chosen.features[mine], found.features)]
    return known
