"""The sums that an adversary sees: single clients', the others' after colluders subtract theirs, and the cohort's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from methods.own_models.local_projection import LocalProjection
from methods.search.round import LOSS, SCORED, PopulationRound
from methods.training.training_round import TrainingRound
from threat_models.attacks.gaussian_likelihood import MOMENTS
from threat_models.findings import Finding, Verdict
from threat_models.session import SOMEBODY, Blocks, Knowledge
from threat_models.views import View


@dataclass(frozen=True, eq=False)
class Target:
    """One sum that an adversary sees: its blocks (named arrays), its records' owners, and whether it holds noise."""

    name: str
    blocks: Blocks = field(repr=False)
    owners: frozenset[str]
    is_noisy: bool

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of records of each class (C,), rounded and at least 0 where there is noise."""
        return np.maximum(np.rint(np.asarray(self.blocks["counts"], dtype=np.float64)), 0).astype(np.int64)

    @property
    def records(self) -> int:
        """The number of records in the sum."""
        return int(self.counts.sum())

    def holds(self, knowledge: Knowledge) -> NDArray[np.bool_]:
        """Flag which of the candidates (m,) are in this sum."""
        return np.array([owner in self.owners for owner in knowledge.owners], dtype=np.bool_)


def targets_in(view: View, *needs: str) -> tuple[Target, ...]:
    """Return the visible sums that have counts and all blocks (named arrays) in `needs`, the fewest records first."""
    complete = [each for each in sums_in(view) if all(name in each.blocks for name in ("counts", *needs))]
    return tuple(sorted(complete, key=lambda each: each.records))


def sums_in(view: View) -> tuple[Target, ...]:
    """Return all sums that an adversary sees, whatever arrays they hold.

    Where the view has the blocks of every member in clear: each member's, and the release. Else the release, without
    the blocks in clear if there are some: these are the adversary's own side.
    """
    own = {client: blocks for client, blocks in view.in_clear.items() if client in view.members}
    is_noisy = view.noise is not None
    found = []
    if set(own) == set(view.members):
        found = [Target(f"{client}'s own", blocks, frozenset({client}), is_noisy) for client, blocks in own.items()]
    if "release" in view.sees:
        release = view.release
        others = frozenset(view.members) - (set() if found else set(own))
        left = release if found else subtract(release, own.values())
        everybody = others == set(view.members)
        name = "the sum of all" if everybody else "the sum without the colluders'"
        found.append(Target(name, left, others | {SOMEBODY} if everybody else others, is_noisy))
    return tuple(found)


def subtract(blocks: Blocks, others: Iterable[Blocks]) -> Blocks:
    """Subtract each of the sums `others` from a sum, entry by entry of each block (named array)."""
    rest: dict[str, NDArray[Any]] = dict(blocks)
    for other in others:
        rest = {name: block - other[name] for name, block in rest.items()}
    return rest


READ = MOMENTS | {"census"}
"""Names of the blocks that attacks read. A census only counts the clients that hold each class."""
HALF_READ = (TrainingRound, LocalProjection)
"""Kinds of rounds whose other blocks some attacks read in part."""


def unread_in(view: View) -> tuple[str, ...]:
    """Return names of blocks (named arrays) in an adversary's sums that no attack here reads, in alphabetical order.

    A method's author picks the kind of each block: its label is no evidence of what it holds or does not hold.
    """
    found: set[str] = set()
    for each in (view, *view.earlier):
        names = {name for target in sums_in(each) for name in target.blocks}
        if isinstance(each.round, PopulationRound):  # of several models: attacks on one model do not part them
            found |= names - {LOSS, SCORED}
        elif not isinstance(each.round, HALF_READ):
            found |= names - READ
    return tuple(sorted(found))


def withhold(finding: Finding, unread: tuple[str, ...]) -> Finding:
    """Make a finding inconclusive, naming the sum's `unread` arrays, unless the attack succeeded or all are read."""
    if not unread or finding.verdict is Verdict.SUCCEEDS:
        return finding
    names = ", ".join(name.replace("_", " ") for name in unread)
    sentence = f"The attack does not know what these blocks of the sum hold: {names}."
    if finding.verdict is not Verdict.NOT_APPLICABLE:
        sentence = f"{finding.sentence} {sentence}".lstrip()
    return replace(finding, verdict=Verdict.INCONCLUSIVE, sentence=sentence)
