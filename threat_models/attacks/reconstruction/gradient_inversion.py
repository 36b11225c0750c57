"""Gradient inversion: reconstruct records from the first layer's parameters in a model update.

The gradient of a linear layer with bias is ∇W_j = Σ_i g_ij·x_i and ∇b_j = Σ_i g_ij for unit j and records i: their
ratio is the record itself where one record moved the unit, or a mixture of those that did (Phong et al. 2018; Geiping
et al. 2020, section 3.1). It needs no search, and several steps on one record leave it as it is. Attacks that search
for records whose gradients fit an update (Zhu, Liu & Han 2019) may find more than this one.

How many records it takes in an update, of one member or of all together, until this fails (digits, from the public
start, without noise; records recovered to a cosine of 0.99, and area under the curve against strangers of the same
classes):

    records           1     2     4     8     16    32    64    128   287   1371
    softmax          100    93     0     0     0     0     0     0     0     0 %
                     1.00  0.99  0.99  0.90  0.75  0.69  0.64  0.62  0.54  0.52
    mlp:128          100   100    99    83    28     8     4     2     0     0 %
                     1.00  1.00  1.00  1.00  0.94  0.85  0.71  0.67  0.58  0.54

Updates of an epoch in batches of 32 are much the same. No record of a stranger was ever recovered. An audit draws this
line for the plan's own program, by public records; `python -m tests.benchmarks.leakage` makes the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from methods.training.training_round import TrainingRound
from secagg.encoding import Grid
from secagg.networks import Program
from threat_models.attacks import updates
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.membership import metrics
from threat_models.attacks.membership.metrics import Figures, Scores, series_of
from threat_models.attacks.reconstruction.similarity import cosines
from threat_models.attacks.updates import DIFFERENCE, ONE_MEMBER, Moved
from threat_models.estimation.intervals import ConfidenceInterval, bootstrap, clopper_pearson
from threat_models.findings import SHARE, Control, Curve, Finding, Measure, Metric, Verdict, decide
from threat_models.session import AuditRecords, Floats, Knowledge, join_records
from threat_models.views import View

SUM = Figures("sum", "by a sum of updates")
FIGURES = {
    ONE_MEMBER: Figures("one_member", "by one member's update"),
    DIFFERENCE: Figures("difference", "by the difference of two rounds"),
}
_AS_STRANGERS = "no more than {baseline}, of strangers"
RECOVERED = Metric("recovered.members", "records recovered", SHARE, _AS_STRANGERS, leads=True, each="update")
STRANGERS = Metric("recovered.strangers", "strangers' records recovered", SHARE, "as many as of members", each="update")
COSINE = Metric("nearest_cosine", "cosine of a record with the nearest recovered", "", _AS_STRANGERS, each="update")
HARDLY = 0.05
"""A sum of updates is described as showing hardly any records where surely fewer than this share are recovered."""
MOST_DRAWN = 512
EXACT = 0.99
"""A record counts as recovered where some vector read off an update has this cosine with it, or a larger one."""
CONTROL_RECORDS = 40
SEED = 20_180_529


@dataclass(frozen=True, eq=False)
class _Recovery:
    """The largest cosine of each record (n,) with any of the vectors that were read off some updates.

    As a membership test has it: a member's record is met where it is nearer than almost all strangers'.
    """

    name: str
    scores: Scores

    @property
    def shares(self) -> tuple[Measure, Measure]:
        """The shares of members' and of strangers' records that were recovered."""
        members, strangers = (
            clopper_pearson(int((cosine >= EXACT).sum()), len(cosine)).measure(metric, of=self.name)
            for cosine, metric in ((self.scores.positive, RECOVERED), (self.scores.negative, STRANGERS))
        )
        return replace(members, baseline=strangers.value), strangers

    @property
    def succeeds(self) -> bool:
        """Whether members' records surely have larger cosines, or are recovered more often, than strangers' records."""
        if not self.scores.is_judged:
            return False
        members, strangers = self.shares
        return metrics.succeeds(self.scores) or members.low > strangers.high

    @property
    def withstood(self) -> bool:
        """Whether surely few of the members' records are recovered or told from strangers'."""
        return metrics.withstands(self.scores) and self.shares[0].high <= metrics.NOTABLE_FACTOR * metrics.RATES[0]

    def measures(self) -> tuple[Measure, ...]:
        if not self.scores.is_judged:
            return ()
        near = bootstrap(lambda values: values.mean(axis=1), [self.scores.positive], np.random.default_rng(SEED))
        cosine = near.measure(COSINE, of=self.name, baseline=float(self.scores.negative.mean()))
        return (*self.shares, cosine, *metrics.measure(self.scores, FIGURES.get(self.name, SUM)))

    def describe(self) -> str:
        share, members = self.shares[0].value, len(self.scores.positive)
        met = f"{share:.0%} of {members} members' records are read off {self.name}"
        return f"{met} to a cosine of {EXACT}, and members are {metrics.describe(self.scores)}"


def read_records(program: Program, move: Floats) -> Floats | None:
    """Return vectors (k, d) that may be records, read off a model update (size,); None if layer 1 is not linear.

    Where a unit's offset did not move its weights stand for themselves: they have the mixture's direction. Units that
    did not move at all show nothing.
    """
    weight, bias, *_ = program.shapes.values()
    if weight != (*bias, program.dimension):
        return None
    units, split = bias[0], math.prod(weight)
    rows, offsets = move[:split].reshape(weight), move[split : split + units]
    moved = rows.any(axis=1)
    return rows[moved] / np.where(offsets == 0, 1.0, offsets)[moved, None]


def nearest(found: Sequence[Floats], records: AuditRecords) -> Floats:
    """Compute each record's largest cosine (n,) with any of the vectors `found`; −1 where there are none."""
    best, known = np.full(len(records), -1.0), records.integers.astype(np.float64)
    for each in found:
        best = np.maximum(best, cosines(known, each).max(axis=1, initial=-1.0))
    return best


def _recover(moves: Sequence[Moved], knowledge: Knowledge) -> _Recovery:
    """Compare known records with the vectors read off moves of one kind: a member's record with those of its own moves.

    A stranger's is compared with those of a member that has a record of its class. So a class that a member has is no
    sign of its records, and each stranger is compared once.
    """
    groups = sorted({each.owners for each in moves}, key=sorted)
    place_of = {owner: place for place, group in enumerate(groups) for owner in group}
    holders = np.array([place_of.get(owner, -1) for owner in knowledge.owners], dtype=np.intp)  # −1: nobody's
    generator, labels = np.random.default_rng(SEED), knowledge.candidates.labels
    for label in np.unique(labels):
        held = generator.permutation(np.flatnonzero((labels == label) & (holders >= 0)))
        others = np.flatnonzero((labels == label) & ~knowledge.is_member)
        if len(held):
            holders[others] = holders[np.resize(held, len(others))]
    values = np.full(len(holders), -1.0)
    for place, group in enumerate(groups):
        read = [read_records(each.round.program, each.move) for each in moves if each.owners == group]
        rows = np.flatnonzero(holders == place)
        values[rows] = nearest([each for each in read if each is not None], knowledge.candidates.take(rows))
    kept = np.flatnonzero(holders >= 0)
    kept = kept[metrics.match_classes(labels[kept], knowledge.is_member[kept])]
    return _Recovery(moves[0].name, Scores(values[kept], knowledge.is_member[kept]))


def _run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view, name = views[0], GRADIENT_INVERSION.name
    moves = updates.moves_in(view)
    if not moves:
        return Finding(name, "", Verdict.NOT_APPLICABLE, updates.NO_UPDATES)
    program = moves[0].round.program
    if read_records(program, moves[0].move) is None:
        why = f"The first layer of {program.name} is not linear: what its updates show of records was not tried."
        return Finding(name, "", Verdict.INCONCLUSIVE, why)
    kinds: dict[Figures, list[Moved]] = {}
    for each in moves:
        kinds.setdefault(FIGURES.get(each.name, SUM), []).append(each)
    found = [_recover(same, knowledge) for same in kinds.values()]
    progress(1, 2)
    controls = _make_controls(view, knowledge)
    progress(2, 2)
    worked = [each for each in found if each.succeeds]
    withstood = all(each.withstood for each in found)
    sentence = ". ".join(each.describe() for each in worked or found if each.scores.is_judged)
    sentence = f"{sentence}." if sentence else "Of no update does the audit know who is behind it."
    ordered = (*worked, *(each for each in found if not each.succeeds))
    measures = tuple(measure for each in ordered for measure in each.measures())
    outside = knowledge.candidates.take(~knowledge.is_member)
    pool = outside if knowledge.public is None else join_records(outside, knowledge.public)
    line = recovered_of(updates.rounds_in(view)[0], pool, view.plan.grid)
    curves: tuple[Curve, ...] = ()
    if line:
        sentence = f"{sentence} {_describe_line(program, line)}"
        shares = {float(count): share for count, share in line.items()}
        series = series_of("public records, exact, at the public start", shares)
        title = "Records recovered from a sum of gradients"
        curves = (Curve(title, "records in the sum", "share recovered", (series,)),)
    verdict = decide(bool(worked), withstood, controls)
    return Finding(name, "", verdict, sentence, measures, curves, controls=controls)


def recovered_of(round_: TrainingRound, pool: AuditRecords, grid: Grid) -> dict[int, ConfidenceInterval]:
    """Measure the share of records recovered from exact sums of 1, 2, 4, … gradients, by the number of gradients.

    Gradients are those at the round's state.
    """
    chosen = pool.take(np.random.default_rng(SEED).permutation(len(pool))[:MOST_DRAWN])
    gradients = np.concatenate(list(updates.gradients_of(round_, chosen, grid))) if len(chosen) else np.zeros((0, 0))
    found, count = {}, 1
    while count <= len(chosen):
        rows, hits = [np.arange(start, start + count) for start in range(0, len(chosen) - count + 1, count)], 0
        for each in rows:
            read = read_records(round_.program, gradients[each].sum(axis=0))
            hits += 0 if read is None else int((nearest([read], chosen.take(each)) >= EXACT).sum())
        found[count] = clopper_pearson(hits, count * len(rows))
        count *= 2
    return found


def _describe_line(program: Program, line: Mapping[int, ConfidenceInterval]) -> str:
    """Describe up to how many records in one sum most are recovered, and from how many on hardly any."""
    most = max((count for count, share in line.items() if share.low > 0.5), default=0)
    hardly = (count for count in line if all(line[each].high < HARDLY for each in line if each >= count))
    fewest = min(hardly, default=0)
    said = f"most of {most} or fewer are recovered" if most else "most are recovered of none"
    rest = f"hardly any (surely below {HARDLY:.0%}) of {fewest} or more"
    if not fewest:
        rest = f"how many of {max(line)}, the most tried, is not surely below {HARDLY:.0%}"
    return f"In exact sums of other records' gradients of {program.name}, of one member or many, {said}, and {rest}."


def _make_controls(view: View, knowledge: Knowledge) -> tuple[Control, Control]:
    """Run the attack on single records' gradients: it must recover these records, and not others called theirs."""
    outside = knowledge.candidates.take(~knowledge.is_member)
    few, round_ = min(CONTROL_RECORDS, len(outside) // 3), updates.rounds_in(view)[0]
    gradients = chain.from_iterable(updates.gradients_of(round_, outside.take(slice(few)), view.plan.grid))
    read = [found for each in gradients if (found := read_records(round_.program, each)) is not None]
    return (
        Control(f"gradients of {few} single records", True, _meets(read, outside, 0, few)),
        Control("other records, called those of these gradients", False, _meets(read, outside, few, few)),
    )


def _meets(read: Sequence[Floats], records: AuditRecords, first: int, few: int) -> bool:
    """Return whether vectors read off `few` gradients recover the `few` records from `first` on, unlike strangers'."""
    if not read:
        return False
    rows = np.concatenate([np.arange(first, first + few), np.arange(2 * few, len(records))])
    one_each = [nearest([read[place % few]], records.take([row])) for place, row in enumerate(rows)]
    return _Recovery("a control", Scores(np.concatenate(one_each), np.arange(len(rows)) < few)).succeeds


GRADIENT_INVERSION = Attack(
    name="gradient_inversion",
    title="Gradient inversion: records out of a model's updates",
    paper="Phong, Aono, Hayashi, Wang & Moriai 2018; Geiping, Bauermeister, Dröge & Moeller 2020, section 3.1",
    needs=(),
    run=_run,
    metrics=(RECOVERED, STRANGERS, COSINE, *(metric for each in (*FIGURES.values(), SUM) for metric in each.metrics)),
    tells_members=True,
    limits=12,
    meaning="Whole records can be read off the sums of updates.",
    remedy="Train on many more records at a time, or plan with a finite epsilon.",
    lacks=updates.trains_nothing,
)
