"""Infer class shares and means of groups from a client's vector, or from the sum, and compare with public records.

Where a sum divides classes into cells, these are added up: single cells are for `small_cells`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.disclosure.label_counts import (
    CONTROL_CLIENTS,
    NAMES,
    SEED,
    class_means,
    class_shares,
    compare_errors,
    records_of_adversary,
    split_by_class,
)
from threat_models.attacks.gaussian_likelihood import total
from threat_models.estimation.intervals import Interval, at_level, current_level
from threat_models.findings import SHARE, Control, Finding, Measure, Metric, Verdict, decide
from threat_models.session import AuditRecords, Blocks, Floats, Knowledge, by_class
from threat_models.views import View

SHARES = Metric(
    "class_shares", "error of a class share", SHARE, "no less than {baseline}, by public records", leads=True
)
MEANS = Metric("class_means", "error of a class mean, relative", SHARE, "no less than {baseline}, by public records")
_AS_MEANT = "any value, as a sum is meant to tell it; by public records {baseline}"
OF_SUM = (
    Metric("class_shares.sum", "error of a class share, of all together", SHARE, _AS_MEANT, leads=True),
    Metric("class_means.sum", "error of a class mean, of all together, relative", SHARE, _AS_MEANT),
)
RESAMPLES = 200


def _errors(
    groups: Sequence[tuple[Blocks, AuditRecords]], known: AuditRecords
) -> tuple[Floats, Floats, Floats, Floats]:
    """The errors of the class shares and class means in blocks, each with the error of a guess by known records."""
    shares, means = [], []
    for blocks, true in groups:
        classes = len(blocks["counts"])
        counts = np.bincount(true.labels, minlength=classes)
        public = class_shares(np.bincount(known.labels, minlength=classes))
        guessed = class_shares(blocks["counts"])
        shares.append(np.column_stack([np.abs(guessed - class_shares(counts)), np.abs(public - class_shares(counts))]))
        present = counts > 0
        centres, public_means = class_means(true, classes), class_means(known, classes)
        own = np.asarray(blocks["class_sums"], dtype=np.float64) / np.maximum(blocks["counts"], 1.0)[:, None]
        far = [np.linalg.norm((each - centres)[present], axis=1) for each in (own, public_means)]
        means.append(np.column_stack(far) / max(1.0, math.sqrt(float((centres**2).sum(axis=1).max()))))
    one, other = np.concatenate(shares), np.concatenate(means)
    return one[:, 0], one[:, 1], other[:, 0], other[:, 1]


def _run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view, knowledge, classes = views[0], knowledge.by_class, len(views[0].plan.classes)
    clients = view.in_clear
    owners = np.array(knowledge.owners)
    rows = {client: owners == client for client in clients} or {"": knowledge.is_member}
    sums = {client: by_class(blocks, classes) for client, blocks in (clients or {"": view.release}).items()}
    groups = [(sums[client], knowledge.candidates.take(own)) for client, own in rows.items() if own.any()]
    controls = tuple(_make_control(knowledge, classes, is_true) for is_true in (True, False))
    progress(1, 1)
    if not groups:
        unplaced = "Of the known records it is not known which client had them"
        why = unplaced if knowledge.is_member.any() else "No member's records are known"
        why += ", so that nothing can be compared."
        return Finding("property_inference", "", Verdict.INCONCLUSIVE, why, controls=controls)
    found, gains = _measure(groups, records_of_adversary(knowledge), (SHARES, MEANS) if clients else OF_SUM)
    if clients:
        sentence = f"The vectors of {len(groups)} clients tell of each {_describe(gains)}."
        succeeded, withstood = any(gain.low > 0 for gain in gains), all(gain.high <= 0 for gain in gains)
    else:
        sentence = f"The sum tells of all members together {_describe(gains)}. It tells nothing of any one member's."
        succeeded, withstood = False, True
    outcome = decide(succeeded, withstood, controls)
    return Finding("property_inference", "", outcome, sentence, found, controls=controls)


def _describe(gains: Sequence[Interval]) -> str:
    """Say what is known better than by public records, what is not, and what may be either, as the intervals say."""
    names: dict[str, list[str]] = {}
    for name, gain in zip(("class shares", "class means"), gains, strict=True):
        how = (
            "better than" if gain.low > 0 else "no better than" if gain.high <= 0 else "not surely better or worse than"
        )
        names.setdefault(how, []).append(name)
    return ", and ".join(f"{' and '.join(each)} {how} public records do" for how, each in names.items())


def _measure(
    groups: Sequence[tuple[Blocks, AuditRecords]], known: AuditRecords, metrics: tuple[Metric, Metric] = (SHARES, MEANS)
) -> tuple[tuple[Measure, ...], list[Interval]]:
    """Measure the errors of class shares and class means, and by how much each is smaller than by public records."""
    errors = _errors(groups, known)
    resampled: Floats | None = None
    measures, gains = [], []
    for place, metric in zip((0, 2), metrics, strict=True):
        measure, gain = compare_errors(metric, errors[place], errors[place + 1])
        if gain is None:
            resampled = _resample_records(groups, known) if resampled is None else resampled
            guessed, blind = resampled[:, place], resampled[:, place + 1]
            error = _interval_of(measure.value, guessed, least=0.0)
            measure = error.measure(metric, baseline=measure.baseline)
            gain = _interval_of(float(errors[place + 1].mean()) - measure.value, blind - guessed)
        measures.append(measure)
        gains.append(gain)
    return tuple(measures), gains


def _resample_records(groups: Sequence[tuple[Blocks, AuditRecords]], known: AuditRecords) -> Floats:
    """The mean errors (resamples, 4), in the order of `_errors`, each time with the records drawn anew.

    Few errors, such as those of two classes, cannot be resampled; the records behind them can (Efron 1979).
    """
    generator = np.random.default_rng(SEED)

    def resample(records: AuditRecords) -> AuditRecords:
        return records.take(generator.integers(len(records), size=len(records)))

    drawn = [_errors([(blocks, resample(true)) for blocks, true in groups], resample(known)) for _ in range(RESAMPLES)]
    return np.array([[each.mean() for each in errors] for errors in drawn])


def _interval_of(value: float, resampled: Floats, least: float = -math.inf) -> Interval:
    """The normal interval of an estimate whose standard error is that of its resamples."""
    level = current_level()
    reach = float(stats.norm.isf(level / 2)) * float(resampled.std(ddof=1))
    method = at_level(f"normal, {RESAMPLES} resamples of the records", level)
    return Interval(value, max(least, value - reach), value + reach, method)


def _make_control(knowledge: Knowledge, classes: int, is_true: bool) -> Control:
    """Try exact sums of unequal clients, which must tell their properties, or of other records, which must not."""
    parts = split_by_class(knowledge.candidates)
    sums = [total(part, classes, NAMES) for part in parts.values()]
    if not is_true:
        order = np.random.default_rng(SEED).permutation(len(knowledge.candidates))
        others = np.array_split(order, CONTROL_CLIENTS)
        parts = {str(number): knowledge.candidates.take(rows) for number, rows in enumerate(others)}
    _, gains = _measure(list(zip(sums, parts.values(), strict=True)), records_of_adversary(knowledge))
    name = "exact sums of clients with unequal classes" if is_true else "sums of other records than the clients'"
    return Control(name, is_true, any(gain.low > 0 for gain in gains))


PROPERTY_INFERENCE = Attack(
    "property_inference",
    "Class shares and group means",
    "Ateniese et al. 2015; PROLIN, arXiv:2303.03908",
    ("release", "class_sums"),
    _run,
    (SHARES, MEANS, *OF_SUM),
    trusts_owners=True,
    limits=2,
    meaning="Shares of classes and means of groups among all members' records together are known.",
    remedy="A sum is for that; if it must stay secret, plan with a finite epsilon for a member (--unit client).",
)
