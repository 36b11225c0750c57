"""Link a member's anonymous contribution of one round to its contribution of another round, or to its data set.

Where members' own parts are to be seen (without protection, or where a method hands them round) names can be taken off
them. What is left says whose they are if a member's part resembles its part of another round, or what a data set
would have sent, more than any other member's does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from methods import method_of
from methods.round import Local
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.member_contributions import Rows, rows_of
from threat_models.attacks.reconstruction.similarity import cosines
from threat_models.estimation.intervals import clopper_pearson
from threat_models.findings import SHARE, Control, Finding, Measure, Metric, Verdict, decide
from threat_models.session import Blocks, Floats, Knowledge
from threat_models.views import View

_CHANCE = "{baseline}, by chance"
ROWS = Metric("linked.rows", "rows of parts linked to their member", SHARE, _CHANCE, leads=True, each="link")
WHOLE = Metric("linked.parts", "whole parts linked to their member", SHARE, _CHANCE, each="link")
ROUNDS, DATA = "first and last round", "a round and data sets"
"""Names of the two kinds of links."""
NOTABLE = 0.2
"""A success links surely more than this share of the rows that guesses leave unlinked, in addition to those that they
link: 60 % of the rows of two members (like an area of 0.6), 36 % of five members'."""


@dataclass(frozen=True, eq=False)
class _LinkedParts:
    """The result of linking two lists of the same n members' parts: the `hits` (rows, n) among the `tried` (rows, n).

    `wholes` (n,) are whole parts linked by the mean of their rows' cosines.
    """

    name: str
    hits: NDArray[np.bool_] = field(repr=False)
    tried: NDArray[np.bool_] = field(repr=False)
    wholes: NDArray[np.bool_] = field(repr=False)

    @property
    def chance(self) -> float:
        """The share of rows that random guesses link."""
        return 1 / len(self.wholes)

    @property
    def bar(self) -> float:
        """The share of linked rows above which the attack succeeds."""
        return self.chance + NOTABLE * (1 - self.chance)

    @property
    def share(self) -> Measure:
        """The share of the tried rows that were linked to their member."""
        found = clopper_pearson(int(self.hits[self.tried].sum()), max(1, int(self.tried.sum())))
        return found.measure(ROWS, of=self.name, baseline=self.chance)

    @property
    def measures(self) -> tuple[Measure, Measure]:
        whole = clopper_pearson(int(self.wholes.sum()), len(self.wholes))
        return self.share, whole.measure(WHOLE, of=self.name, baseline=self.chance)

    def describe(self) -> str:
        share, whole = self.measures
        return (
            f"{share.value:.0%} ({share.low:.0%} to {share.high:.0%}) of the rows of members' parts, and "
            f"{round(whole.value * len(self.wholes))} of {len(self.wholes)} whole parts, are linked between {self.name}"
        )


def link(name: str, ones: Sequence[Rows], others: Sequence[Rows]) -> _LinkedParts:
    """Match each member's rows in `ones` to the most similar rows in `others`, which lists members in the same order.

    Rows are taken in direction alone, beyond the mean of all members; of equals none is the most alike. Rows of zeros,
    and of one number, have no direction.
    """
    hits, tried, tables = [], [], []
    for block in ones[0]:
        left, right = (np.stack([_directions(part[block]) for part in parts]) for parts in (ones, others))
        for row in range(left.shape[1] if left.shape[2] > 1 else 0):
            table = cosines(left[:, row] - left[:, row].mean(axis=0), right[:, row] - right[:, row].mean(axis=0))
            hits.append(_hits(table))
            tried.append(left[:, row].any(axis=1) & right[:, row].any(axis=1))
            tables.append(table)
    if not tables:
        nothing = np.zeros((0, len(ones)), dtype=np.bool_)
        return _LinkedParts(name, nothing, nothing, np.zeros(len(ones), dtype=np.bool_))
    return _LinkedParts(name, np.array(hits), np.array(tried), _hits(np.mean(tables, axis=0)))


def _directions(rows: Floats) -> Floats:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1.0)


def _hits(table: Floats) -> NDArray[np.bool_]:
    """Return which rows (n,) of a table of cosines (n, n) have their only maximum on the diagonal."""
    own = np.diag(table)
    rest = np.where(np.eye(len(table), dtype=np.bool_), -np.inf, table)
    return np.asarray(own > rest.max(axis=1) + 1e-12)


def _links(shown: Sequence[View], classes: int, knowledge: Knowledge) -> list[_LinkedParts]:
    """Link the first round to the last, where both show parts of the same blocks, and the first round to data sets."""
    found, (first, last) = [], (shown[0], shown[-1])
    both = sorted(set(first.in_clear) & set(last.in_clear))
    parts = [[rows_of(each.in_clear[member], classes) for member in both] for each in (first, last)]
    if first is not last and len(both) > 1:
        shapes = [{name: block.shape for name, block in each[0].items()} for each in parts]
        found += [link(ROUNDS, *parts)] if shapes[0] == shapes[1] else []
    if made := _made_of_data(first, knowledge):
        sent = [rows_of(first.in_clear[member], classes) for member in made]
        found.append(link(DATA, sent, [rows_of(blocks, classes) for blocks in made.values()]))
    return found


def _made_of_data(view: View, knowledge: Knowledge) -> Mapping[str, Blocks]:
    """Compute the parts of members with these known records in a view's round; {} where none can be computed."""
    plan, owners = view.plan, np.array(knowledge.owners, dtype=object)
    members = [member for member in sorted(view.in_clear) if (owners == member).any()]
    if view.round is None or len(members) < 2 or method_of(plan).traits.reads_inputs:
        return {}
    found = {}
    for member in members:
        records = knowledge.candidates.take(np.flatnonzero(owners == member))
        made = view.round.contribute(Local(records.examples, len(plan.classes), plan.grid)).blocks
        by_size = {np.size(block): block for block in made.values()}
        found[member] = {
            name: np.reshape(made[name] if name in made else by_size[np.size(block)], np.shape(block))
            for name, block in view.in_clear[member].items()
        }
    return found


def _run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view, classes = views[0], len(views[0].plan.classes)
    shown = [each for each in (*view.earlier, view) if len(each.in_clear) > 1]
    found = _links(shown, classes, knowledge) if shown else []
    progress(1, 2)
    if not found:
        why = "It sees no two members' own parts that could be linked."
        return Finding(LINKAGE.name, "", Verdict.NOT_APPLICABLE, why)
    parts = [rows_of(blocks, classes) for blocks in shown[0].in_clear.values()]
    same, shuffled = link("itself", parts, parts), link("others' names", parts, [*parts[1:], parts[0]])
    controls = (
        Control("a round linked with itself", True, same.share.low > same.bar),
        Control("a round linked with itself, members' names exchanged", False, shuffled.share.low > shuffled.bar),
    )
    progress(2, 2)
    worked = [each for each in found if each.share.low > each.bar]
    withstood = all(each.share.high <= each.bar for each in found)
    ordered = (*worked, *(each for each in found if each not in worked))
    measures = tuple(measure for each in ordered for measure in each.measures)
    sentence = f"{'. '.join(each.describe() for each in worked or found)}; by chance {found[0].chance:.0%}."
    return Finding(LINKAGE.name, "", decide(bool(worked), withstood, controls), sentence, measures, controls=controls)


LINKAGE = Attack(
    name="linkage",
    title="Members' parts linked between rounds, and to data sets",
    paper="Sweeney 2002 and Narayanan & Shmatikov 2008 (linking); Tan et al. 2022 (own prototypes are handed round)",
    needs=("contributions",),
    run=_run,
    metrics=(ROWS, WHOLE),
    tries_records=False,
    limits=4,
    weighs_all=True,
    meaning="Members' parts are recognised from round to round, and by their likeness to other data.",
    remedy="Hide clients' vectors: --protection masked, shared or encrypted.",
)
