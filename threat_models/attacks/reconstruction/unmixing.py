"""Unmix a sum of fewer records than dimensions: find which records are in it, and recover them.

The column space of B = Σ q qᵀ is the span of the records: who lies outside is not among them, who lies inside is, but
for a coincidence of probability 0. The records themselves follow by `threat_models.attacks.reconstruction.rotation`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from secagg.agreement.plan import Plan
from secagg.encoding import accumulate
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.membership.blind_baseline import BLIND, Blind, Trial
from threat_models.attacks.membership.metrics import NOTABLE_AREA
from threat_models.attacks.reconstruction.rotation import as_features, recover, root_of
from threat_models.attacks.reconstruction.similarity import match_cosines
from threat_models.attacks.targets import Target, targets_in
from threat_models.estimation.intervals import ConfidenceInterval, bootstrap, clopper_pearson
from threat_models.findings import SHARE, Control, Finding, Measure, Metric, Verdict, decide
from threat_models.session import SOMEBODY, AuditRecords, Blocks, Floats, Knowledge
from threat_models.views import View

_BY_MEANS = "no more than {baseline}, by class means"
FEW = "sum of few records"
COSINE = Metric("cosine", "cosine of the recovered features", "", _BY_MEANS, leads=True, each=FEW)
LEAST_COSINE = Metric("least_cosine", "least cosine", "", _BY_MEANS, each=FEW)
_AS_STRANGERS = "no more than of strangers, of whom {baseline} are found"
FOUND = Metric("members_found", "members found by the range of B", SHARE, _AS_STRANGERS, leads=True)
MISTAKEN = Metric("strangers_found", "strangers taken for members", SHARE, "as many as members found")
NEEDED = ("class_sums", "second_moment")
INSIDE = 1e-6
"""A record counts as inside the span with at most this share of its squared length outside."""
FALSE_ALARMS = 0.01
"""Share of public records that pass the test of a noisy sum, in whose span no record lies exactly."""
MOST = 64
"""Most records in a sum whose records the attack recovers. `SUMS` is the most sums that it tries."""
SUMS = 3
CONTROL = 8
Recovered = Sequence[tuple[Target, tuple[ConfidenceInterval, float, float]]]
"""Sums whose records were recovered: the mean and the least cosine of features, and the mean cosine by class means."""


def outside(blocks: Blocks, plan: Plan, records: int, integers: NDArray[np.int64]) -> Floats:
    """Compute the fraction (m,) of each record's squared length outside the span of the records in a sum.

    `integers` (m, d) are the records to test, `records` the number of those in the sum.
    """
    root = root_of(blocks, plan, records)
    root = root[root.any(axis=1)]
    axes = root / np.linalg.norm(root, axis=1, keepdims=True)
    rows = integers / plan.levels
    lengths = np.maximum(np.einsum("ij,ij->i", rows, rows), 1e-300)
    left = rows - (rows @ axes.T) @ axes
    return np.asarray(np.einsum("ij,ij->i", left, left) / lengths)


def passes(target: Target, plan: Plan, records: AuditRecords, public: AuditRecords | None) -> NDArray[np.bool_]:
    """Flag the records (m,) that the range test calls members: those inside the span of the records in the sum.

    All are for a sum of n ≥ d records, none for n = 0.
    """
    if target.records < 1:  # noise made a small sum one of no records: it spans nothing
        return np.zeros(len(records), dtype=np.bool_)
    if target.records >= plan.dimension:
        return np.ones(len(records), dtype=np.bool_)
    limit = INSIDE
    if target.is_noisy and public is not None and len(public):
        known = outside(target.blocks, plan, target.records, public.integers)
        limit = float(np.quantile(known, FALSE_ALARMS))
    return outside(target.blocks, plan, target.records, records.integers) <= limit


def sum_of(records: AuditRecords, plan: Plan) -> Blocks:
    """Compute the exact sum over records: counts, class sums and second moment."""
    return accumulate(records.integers, records.labels, len(plan.classes), plan.levels)


def _test_membership(
    found: Sequence[Target], plan: Plan, knowledge: Knowledge
) -> tuple[ConfidenceInterval, ConfidenceInterval] | None:
    """Measure the range test's true and false positive rates over all sums; None where no member or stranger is known.

    Where none of the sums is known to hold a member, one of somebody's counts as found by any. If it is not, it may be
    in a sum that was not tried, and the rates say nothing.
    """
    taken = np.array([passes(each, plan, knowledge.candidates, knowledge.public) for each in found])
    held = np.array([each.holds(knowledge) for each in found])
    is_unplaced = not held.any()
    if is_unplaced:
        taken, held = np.atleast_2d(taken.any(axis=0)), np.array([[each == SOMEBODY for each in knowledge.owners]])
    nobody = np.broadcast_to(~knowledge.is_member, taken.shape)
    if not (held.any() and nobody.any()):
        return None
    hits, alarms = (clopper_pearson(int(taken[rows].sum()), int(rows.sum())) for rows in (held, nobody))
    return None if is_unplaced and hits.low <= alarms.high else (hits, alarms)


def _score_recovery(target: Target, plan: Plan, knowledge: Knowledge) -> tuple[ConfidenceInterval, float, float] | None:
    """Compare known members' features with the recovered ones: mean and least cosine, mean by class means; or None."""
    held = np.flatnonzero(target.holds(knowledge))
    if not len(held):
        return None
    true, counts = knowledge.candidates.features[held], target.counts
    scores = match_cosines(recover(target.blocks, plan, public=knowledge.public).features, true)
    # The guess (n, d) of each record from class sums alone.
    means = np.asarray(target.blocks["class_sums"]) / np.maximum(counts, 1)[:, None] / plan.levels
    baseline = float(match_cosines(as_features(np.repeat(means, counts, axis=0), plan), true).mean())
    mean = bootstrap(lambda samples: samples.mean(axis=1), [scores], np.random.default_rng(0))
    return mean, float(scores.min()), baseline


def _make_controls(plan: Plan, knowledge: Knowledge) -> tuple[Control, ...]:
    """Run the range test on an unprotected sum of a few records, and on one of random directions, where it must fail.

    No controls where no record is known that took no part.
    """
    free = knowledge.public if knowledge.public is not None else knowledge.candidates.take(~knowledge.is_member)
    if not len(free):
        return ()
    size = min(CONTROL, plan.dimension // 2, len(free) // 2)
    if size < 2:
        return (Control("a few records, unprotected", expected=True, succeeded=False),)
    known, others = free.take(slice(size)), free.take(slice(size, None))
    noise = np.random.default_rng(0).standard_normal((size, plan.dimension))
    noise *= 0.9 * plan.levels / np.linalg.norm(noise, axis=1, keepdims=True)
    random = AuditRecords(np.rint(noise).astype(np.int64), known.labels, noise)
    results = []
    for records in (known, random):
        target = Target("control", sum_of(records, plan), frozenset(), is_noisy=False)
        hits, alarms = (passes(target, plan, each, None).mean() for each in (known, others))
        results.append(bool(hits > 0.99 and alarms < 0.5))
    return (
        Control(f"the range test on {size} public records, unprotected", expected=True, succeeded=results[0]),
        Control("the range test on random directions instead", expected=False, succeeded=results[1]),
    )


def _run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    plan = views[0].plan
    found = targets_in(views[0], *NEEDED)
    if not found:
        return Finding(UNMIXING.name, "", Verdict.NOT_APPLICABLE, "It sees no second moment of others' records.")
    small = [each for each in found if 1 <= each.records < plan.dimension]
    steps = 2 + min(SUMS, len(small))
    progress(0, steps)
    controls = _make_controls(plan, knowledge)
    rates = _test_membership(small or found[:1], plan, knowledge)
    progress(2, steps)
    recovered: list[tuple[Target, tuple[ConfidenceInterval, float, float]]] = []
    for done, target in enumerate([each for each in small if each.records <= MOST][:SUMS]):
        if (scored := _score_recovery(target, plan, knowledge)) is not None:
            recovered.append((target, scored))
        progress(3 + done, steps)
    progress(steps, steps)
    blind, least = Trial.of(UNMIXING.name, views[0], knowledge, progress).blind, found[0]
    measures: list[Measure] = []
    for target, (mean, low, baseline) in recovered:
        name = f"{target.name} ({target.records} records)"
        measures += [
            mean.measure(COSINE, of=name, baseline=baseline),
            LEAST_COSINE.exact(low, of=name, baseline=baseline),
        ]
    if rates is not None:
        measures += [rates[0].measure(FOUND, baseline=rates[1].value), rates[1].measure(MISTAKEN)]
    is_member_known = rates is not None and _beats(blind, rates)
    best = max((mean.value for _, (mean, _, baseline) in recovered if mean.low > baseline), default=None)
    succeeded = is_member_known or best is not None
    withstood = least.records >= plan.dimension or (_is_withstood(rates, recovered) and not blind.tells)
    sentence = _describe(plan, least, rates if is_member_known else None, best, withstood)
    outcome = decide(succeeded, withstood, controls) if controls else Verdict.INCONCLUSIVE
    if blind.tells and rates is not None:
        measures += blind.measures
    return Finding(UNMIXING.name, "", outcome, sentence, tuple(measures), controls=controls)


def _beats(blind: Blind, rates: tuple[ConfidenceInterval, ConfidenceInterval]) -> bool:
    """Return whether surely more members than strangers are found, by more than the blind guess separates them.

    A test with one threshold has the area (1 + TPR − FPR)/2.
    """
    least = (1 + rates[0].low - rates[1].high) / 2
    return rates[0].low > rates[1].high and (blind.area is None or not blind.tells or least > blind.area.high)


def _is_withstood(rates: tuple[ConfidenceInterval, ConfidenceInterval] | None, recovered: Recovered) -> bool:
    """Return whether sums of few records surely withstand the attack: neither members nor features are found well."""
    if rates is None or not recovered or (1 + rates[0].high - rates[1].low) / 2 > NOTABLE_AREA:
        return False
    return all(mean.high <= baseline for _, (mean, _, baseline) in recovered)


def _describe(
    plan: Plan,
    least: Target,
    rates: tuple[ConfidenceInterval, ConfidenceInterval] | None,
    best: float | None,
    withstood: bool,
) -> str:
    size = f"The smallest sum that it sees, {least.name}, holds {least.records} records in {plan.dimension} dimensions"
    parts = []
    if rates is not None:
        parts.append(f"the range of B finds {rates[0].value:.1%} of the members at {rates[1].value:.1%} false alarms")
    if best is not None:
        parts.append(f"the features of single records come out with a mean cosine of {best:.3f}")
    if parts:
        return f"{size}: {', and '.join(parts)}."
    if least.records >= plan.dimension:
        return f"{size}: its range is the whole space, and no record stands out."
    ending = "" if withstood else " That more could be found is not ruled out."
    return f"{size}, but neither who is in it nor what the records are was found.{ending}"


UNMIXING = Attack(
    name="unmixing",
    title="Unmixing: members and single features out of a sum of few records",
    paper="Guan et al., FedCGS (2503.06962), claims that B hides features; Elser, Rankenburg & Thibault 2007",
    needs=(),
    run=_run,
    metrics=(COSINE, LEAST_COSINE, FOUND, MISTAKEN, BLIND),
    trusts_owners=True,
    limits=3 + SUMS,
    meaning="Single records' features, which are nearly the records, come out of the sum.",
    remedy="Sum many more records than a record has dimensions, or plan with a finite epsilon.",
)
