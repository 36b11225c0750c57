"""Infer class shares and class means from a client's vector or from the sum, and compare them with public records.

Where a sum divides classes into cells, these are added up: single cells are for `small_cells`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.disclosure import label_counts
from threat_models.attacks.gaussian_likelihood import total
from threat_models.estimation.intervals import ConfidenceInterval, at_level, current_level
from threat_models.findings import SHARE, Control, Finding, Measure, Metric, Verdict, decide
from threat_models.session import AuditRecords, Blocks, Floats, Knowledge, by_class
from threat_models.views import View

_NO_LESS = "no less than {baseline}, by public records"
SHARES = Metric("class_shares", "error of a class share", SHARE, _NO_LESS, leads=True)
MEANS = Metric("class_means", "error of a class mean, relative", SHARE, _NO_LESS)
_AS_MEANT = "any value, as a sum is meant to tell it; by public records {baseline}"
OF_SUM = (
    Metric("class_shares.sum", "error of a class share, of all together", SHARE, _AS_MEANT, leads=True),
    Metric("class_means.sum", "error of a class mean, of all together, relative", SHARE, _AS_MEANT),
)
RESAMPLES = 200


def _errors(
    groups: Sequence[tuple[Blocks, AuditRecords]], known: AuditRecords
) -> tuple[Floats, Floats, Floats, Floats]:
    """Compute the errors of class shares and class means in blocks, each beside those of a guess by `known` records."""
    shares, means = [], []
    for blocks, true in groups:
        classes = len(blocks["counts"])
        counts, public = (np.bincount(each.labels, minlength=classes) for each in (true, known))
        guesses = (label_counts.class_shares(each) for each in (blocks["counts"], public))
        shares.append(np.column_stack([np.abs(guess - label_counts.class_shares(counts)) for guess in guesses]))
        present = counts > 0
        centres, public_means = label_counts.class_means(true, classes), label_counts.class_means(known, classes)
        own = np.asarray(blocks["class_sums"], dtype=np.float64) / np.maximum(blocks["counts"], 1.0)[:, None]
        far = [np.linalg.norm((each - centres)[present], axis=1) for each in (own, public_means)]
        means.append(np.column_stack(far) / max(1.0, math.sqrt(float((centres**2).sum(axis=1).max()))))
    one, other = np.concatenate(shares), np.concatenate(means)
    return one[:, 0], one[:, 1], other[:, 0], other[:, 1]


def _run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view, knowledge, classes = views[0], knowledge.by_class, len(views[0].plan.classes)
    clients, owners = view.in_clear, np.array(knowledge.owners)
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
    known = label_counts.records_of_adversary(knowledge)
    found, gains = _measure(groups, known, (SHARES, MEANS) if clients else OF_SUM)
    outcome = decide(False, True, controls)
    sentence = f"The sum tells of all members together {_describe(gains)}. It tells nothing of any one member's."
    if clients:
        outcome = decide(any(gain.low > 0 for gain in gains), all(gain.high <= 0 for gain in gains), controls)
        sentence = f"The vectors of {len(groups)} clients tell of each {_describe(gains)}."
    return Finding("property_inference", "", outcome, sentence, found, controls=controls)


def _describe(gains: Sequence[ConfidenceInterval]) -> str:
    """Describe which properties the blocks give better than public records do, which not, and which are undecided."""
    names: dict[str, list[str]] = {}
    for name, gain in zip(("class shares", "class means"), gains, strict=True):
        less = "no better than" if gain.high <= 0 else "not surely better or worse than"
        names.setdefault("better than" if gain.low > 0 else less, []).append(name)
    return ", and ".join(f"{' and '.join(each)} {how} public records do" for how, each in names.items())


def _measure(
    groups: Sequence[tuple[Blocks, AuditRecords]], known: AuditRecords, metrics: tuple[Metric, Metric] = (SHARES, MEANS)
) -> tuple[tuple[Measure, ...], list[ConfidenceInterval]]:
    """Measure the errors of class shares and class means, and how much smaller each is than by public records."""
    errors, resampled = _errors(groups, known), None
    measures, gains = [], []
    for place, metric in zip((0, 2), metrics, strict=True):
        measure, gain = label_counts.compare_errors(metric, errors[place], errors[place + 1])
        if gain is None:
            resampled = _resample_records(groups, known) if resampled is None else resampled
            guessed, blind = resampled[:, place : place + 2].T
            error = _interval_of(measure.value, guessed, least=0.0)
            measure = error.measure(metric, baseline=measure.baseline)
            gain = _interval_of(float(errors[place + 1].mean()) - measure.value, blind - guessed)
        measures.append(measure)
        gains.append(gain)
    return tuple(measures), gains


def _resample_records(groups: Sequence[tuple[Blocks, AuditRecords]], known: AuditRecords) -> Floats:
    """Compute the mean errors (resamples, 4), in the order of `_errors`, for records drawn anew with replacement.

    Few errors, such as those of two classes, cannot be resampled; the records behind them can (Efron 1979).
    """
    generator = np.random.default_rng(label_counts.SEED)

    def resample(records: AuditRecords) -> AuditRecords:
        return records.take(generator.integers(len(records), size=len(records)))

    drawn = [_errors([(blocks, resample(true)) for blocks, true in groups], resample(known)) for _ in range(RESAMPLES)]
    return np.array([[each.mean() for each in errors] for errors in drawn])


def _interval_of(value: float, resampled: Floats, least: float = -math.inf) -> ConfidenceInterval:
    """Return the normal confidence interval of an estimate, by the standard deviation of its resamples."""
    level = current_level()
    reach = float(stats.norm.isf(level / 2)) * float(resampled.std(ddof=1))
    method = at_level(f"normal, {RESAMPLES} resamples of the records", level)
    return ConfidenceInterval(value, max(least, value - reach), value + reach, method)


def _make_control(knowledge: Knowledge, classes: int, is_true: bool) -> Control:
    """Run the attack on exact sums of unequal clients, where it must succeed, or with other records as the truth."""
    parts = label_counts.split_by_class(knowledge.candidates)
    sums = [total(part, classes, label_counts.NAMES) for part in parts]
    if not is_true:
        order = np.random.default_rng(label_counts.SEED).permutation(len(knowledge.candidates))
        parts = [knowledge.candidates.take(rows) for rows in np.array_split(order, label_counts.CONTROL_CLIENTS)]
    _, gains = _measure(list(zip(sums, parts, strict=True)), label_counts.records_of_adversary(knowledge))
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
