"""Unmixing: whose records are in a sum of fewer records than dimensions, and what these records are.

The column space of B = Σ q qᵀ is the span of the records: who lies outside is not among them, who lies inside is, but
for a coincidence of probability 0. The records themselves follow by `threat_models.attacks.rotation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.plan import Plan
from secagg.statistics import accumulate
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.blind import Blind
from threat_models.attacks.rotation import as_features, recover, root_of
from threat_models.attacks.scores import NOTABLE_AREA, matched, verdict
from threat_models.attacks.similarity import matched_cosines
from threat_models.attacks.targets import Target, targets
from threat_models.estimation.intervals import Interval, bootstrap, clopper_pearson
from threat_models.findings import Control, Curve, Finding, Measure, Series, Verdict
from threat_models.session import SOMEBODY, Blocks, Knowledge, Records

Floats = NDArray[np.float64]
NEEDED = ("class_sums", "second_moment")
INSIDE = 1e-6
"""A record lies in the span when no more than this part of its squared length is outside."""
FALSE_ALARMS = 0.01
"""Under noise nothing lies in the span: the threshold is that which so many public records pass."""
MOST = 64
"""Largest sum whose records the default attack recovers, and the largest number of sums that it tries."""
SUMS = 3
CONTROL = 8
SIZES = (2, 4, 8, 16, 32, 64, 128)


def outside(blocks: Blocks, plan: Plan, records: int, integers: NDArray[np.int64]) -> Floats:
    """The part of each q's squared length (m,) that lies outside the span of a sum of `records` records, 0 to 1."""
    root = root_of(blocks, plan, records)
    root = root[root.any(axis=1)]
    axes = root / np.linalg.norm(root, axis=1, keepdims=True)
    rows = integers / plan.levels
    lengths = np.maximum(np.einsum("ij,ij->i", rows, rows), 1e-300)
    left = rows - (rows @ axes.T) @ axes
    part: Floats = np.einsum("ij,ij->i", left, left) / lengths
    return part


def passes(target: Target, plan: Plan, records: Records, public: Records | None) -> NDArray[np.bool_]:
    """Which records the range test takes for members (m,). From n ≥ d on the span is everything: all pass."""
    if target.records >= plan.dimension:
        return np.ones(len(records), dtype=np.bool_)
    limit = INSIDE
    if target.is_noisy and public is not None and len(public):
        known = outside(target.blocks, plan, target.records, public.integers)
        limit = float(np.quantile(known, FALSE_ALARMS))
    inside: NDArray[np.bool_] = outside(target.blocks, plan, target.records, records.integers) <= limit
    return inside


def sum_of(records: Records, plan: Plan, sigma: float = 0.0, seed: int = 0) -> dict[str, NDArray[Any]]:
    """The blocks of these records, with Gaussian noise of σ = `sigma` (class sums: R_q, second moment: R_q² is 1).

    As plans have it, entries of B off the diagonal get σ/√2. The noise is for curves, never for protection.
    """
    exact = accumulate(records.integers, records.labels, len(plan.classes), plan.levels)
    blocks: dict[str, NDArray[Any]] = dict(exact)
    if sigma:
        generator = np.random.default_rng(seed)
        sums, moment = blocks["class_sums"], blocks["second_moment"]
        rows, columns = np.triu_indices(plan.dimension)
        spread = np.where(rows == columns, 1.0, np.sqrt(0.5)) * sigma * plan.levels**2
        blocks["class_sums"] = sums + sigma * plan.levels * generator.standard_normal(sums.shape)
        blocks["second_moment"] = moment + spread * generator.standard_normal(moment.shape)
    return blocks


def cosine_curve(
    pool: Records,
    plan: Plan,
    *,
    sizes: Sequence[int] = SIZES,
    clients: int = 1,
    sigma: float = 0.0,
    public: Records | None = None,
    iterations: int = 2000,
    seed: int = 0,
) -> Series:
    """Mean cosine of one client's features with what is recovered of the sum of `clients` clients of n records each.

    Over n; with bootstrap intervals. Ends where the sum has d records or the pool is used up.
    """
    generator = np.random.default_rng(seed)
    points: list[tuple[float, Interval]] = []
    for size in sizes:
        if size * clients >= min(plan.dimension, len(pool) + 1):
            break
        rows = generator.permutation(len(pool))[: size * clients]
        blocks = sum_of(pool.take(rows), plan, sigma, seed + size)
        found = recover(blocks, plan, public=public, seed=seed, iterations=iterations)
        scores = matched_cosines(found.features, pool.features[rows[:size]])
        points.append((float(size), bootstrap(_mean, [scores], generator)))
    name = ("one client" if clients == 1 else f"sum of {clients} clients") + (f", σ = {sigma:g}" if sigma else "")
    x, found_at = tuple(n for n, _ in points), [interval for _, interval in points]
    return Series(name, x, *(tuple(getattr(each, side) for each in found_at) for side in ("value", "low", "high")))


def _mean(values: Floats) -> float:
    return float(values.mean())


def _class_means(target: Target, plan: Plan) -> Floats:
    """What each record would be guessed to be from class sums alone (n, d)."""
    counts = target.counts
    means = np.asarray(target.blocks["class_sums"]) / np.maximum(counts, 1)[:, None] / plan.levels
    return as_features(np.repeat(means, counts, axis=0), plan)


def _membership(found: Sequence[Target], plan: Plan, knowledge: Knowledge) -> tuple[Interval, Interval] | None:
    """True- and false-positive rate of the range test over all sums; None where no member or no stranger is known.

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


def _recovery(target: Target, plan: Plan, knowledge: Knowledge) -> tuple[Interval, float, float] | None:
    """Mean cosine of the known members' features with what was recovered; the least; and that of class means."""
    held = np.flatnonzero(target.holds(knowledge))
    if not len(held):
        return None
    true = knowledge.candidates.features[held]
    found = recover(target.blocks, plan, public=knowledge.public)
    scores = matched_cosines(found.features, true)
    baseline = _mean(matched_cosines(_class_means(target, plan), true))
    return bootstrap(_mean, [scores], np.random.default_rng(0)), float(scores.min()), baseline


def _controls(plan: Plan, knowledge: Knowledge) -> tuple[Control, ...]:
    """The range test on a sum of a few records that nobody protects, and on one of random directions."""
    free = knowledge.public if knowledge.public is not None else knowledge.candidates.take(~knowledge.is_member)
    size = min(CONTROL, plan.dimension // 2, len(free) // 2)
    if size < 2:
        return (Control("a few records, unprotected", expected=True, succeeded=False),)
    known, others = free.take(np.arange(size)), free.take(np.arange(size, len(free)))
    generator = np.random.default_rng(0)
    noise = generator.standard_normal((size, plan.dimension))
    noise *= 0.9 * plan.levels / np.linalg.norm(noise, axis=1, keepdims=True)
    random = Records(np.rint(noise).astype(np.int64), known.labels, noise)
    results = []
    for records in (known, random):
        target = Target("control", sum_of(records, plan), frozenset(), is_noisy=False)
        hits, alarms = (passes(target, plan, each, None).mean() for each in (known, others))
        results.append(bool(hits > 0.99 and alarms < 0.5))
    return (
        Control(f"the range test on {size} public records, unprotected", expected=True, succeeded=results[0]),
        Control("the range test on random directions instead", expected=False, succeeded=results[1]),
    )


def _run(views: tuple[Any, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    plan = views[0].plan
    found = targets(views[0], *NEEDED)
    if not found:
        sentence = "It sees no second moment of others' records."
        return Finding(UNMIXING.name, "", Verdict.NOT_APPLICABLE, sentence)
    small = [each for each in found if 1 <= each.records < plan.dimension]
    steps = 2 + min(SUMS, len(small))
    progress(0, steps)
    controls = _controls(plan, knowledge)
    rates = _membership(small or found[:1], plan, knowledge)
    progress(2, steps)
    recovered: list[tuple[Target, tuple[Interval, float, float]]] = []
    for done, target in enumerate([each for each in small if each.records <= MOST][:SUMS]):
        if (scored := _recovery(target, plan, knowledge)) is not None:
            recovered.append((target, scored))
        progress(3 + done, steps)
    progress(steps, steps)
    rows = matched(knowledge.candidates.labels, knowledge.is_member)
    blind = Blind.of(knowledge.candidates.take(rows), knowledge.is_member[rows])
    return _finding(plan, found[0], rates, recovered, blind, controls)


def _finding(
    plan: Plan,
    least: Target,
    rates: tuple[Interval, Interval] | None,
    recovered: Sequence[tuple[Target, tuple[Interval, float, float]]],
    blind: Blind,
    controls: tuple[Control, ...],
) -> Finding:
    measures: list[Measure] = []
    if rates is not None:
        measures.append(rates[0].measure("members found by the range of B", baseline=rates[1].value))
        measures.append(rates[1].measure("strangers taken for members"))
    for target, (mean, low, baseline) in recovered:
        name = f"{target.name} ({target.records} records)"
        measures.append(mean.measure(f"cosine of the recovered features, {name}", baseline=baseline))
        measures.append(Measure(f"least cosine, {name}", low, low, low, "none", baseline))
    is_member_known = rates is not None and _beats(blind, rates)
    best = max((mean.value for _, (mean, _, baseline) in recovered if mean.low > baseline), default=None)
    succeeded = is_member_known or best is not None
    withstood = least.records >= plan.dimension or (_withstood(rates, recovered) and not blind.tells)
    sentence = _sentence(plan, least, rates if is_member_known else None, best, withstood)
    outcome = verdict(succeeded, withstood, controls)
    if blind.tells and rates is not None:
        measures += blind.found
    return Finding(UNMIXING.name, "", outcome, sentence, tuple(measures), controls=controls)


def _beats(blind: Blind, rates: tuple[Interval, Interval]) -> bool:
    """Whether more members than strangers are found, by more than a guess without the sum tells them apart.

    A test with one threshold has the area (1 + TPR − FPR)/2.
    """
    least = (1 + rates[0].low - rates[1].high) / 2
    return rates[0].low > rates[1].high and (blind.area is None or not blind.tells or least > blind.area.high)


def _withstood(
    rates: tuple[Interval, Interval] | None, recovered: Sequence[tuple[Target, tuple[Interval, float, float]]]
) -> bool:
    """Whether surely no more is found of sums of few: of members than this area, of features than of class means."""
    if rates is None or not recovered or (1 + rates[0].high - rates[1].low) / 2 > NOTABLE_AREA:
        return False
    return all(mean.high <= baseline for _, (mean, _, baseline) in recovered)


def _sentence(
    plan: Plan, least: Target, rates: tuple[Interval, Interval] | None, best: float | None, withstood: bool
) -> str:
    size = f"The smallest sum that it sees, {least.name}, holds {least.records} records in {plan.dimension} dimensions"
    said = []
    if rates is not None:
        said.append(f"the range of B finds {rates[0].value:.1%} of the members at {rates[1].value:.1%} false alarms")
    if best is not None:
        said.append(f"the features of single records come out with a mean cosine of {best:.3f}")
    if said:
        return f"{size}: {', and '.join(said)}."
    if least.records >= plan.dimension:
        return f"{size}: its range is the whole space, and no record stands out."
    ending = "" if withstood else " That more could be found is not ruled out."
    return f"{size}, but neither who is in it nor what the records are was found.{ending}"


def _series_of(pool: Records, plan: Plan, public: Records | None, sizes: Sequence[int]) -> tuple[Series, ...]:
    unprotected = {"clients": 1, "sigma": 0.0}
    settings = (unprotected, {"clients": 4, "sigma": 0.0}, *({"clients": 1, "sigma": s} for s in (0.001, 0.01, 0.1)))
    return tuple(
        cosine_curve(pool, plan, sizes=sizes, clients=int(each["clients"]), sigma=each["sigma"], public=public)
        for each in settings
    )


def recovery_curve(pool: Records, plan: Plan, *, public: Records | None = None, sizes: Sequence[int] = SIZES) -> Curve:
    """What stops it: cosine over records per client, of one client, of a sum of 4, and with noise; and class means."""
    means = []
    for size in (size for size in sizes if size < min(plan.dimension, len(pool) + 1)):
        rows = np.random.default_rng(size).permutation(len(pool))[:size]
        target = Target("one client", sum_of(pool.take(rows), plan), frozenset(), is_noisy=False)
        means.append((float(size), _mean(matched_cosines(_class_means(target, plan), pool.features[rows]))))
    baseline = Series("class means", tuple(x for x, _ in means), tuple(y for _, y in means))
    return Curve(
        "Features recovered from counts, class sums and second moment",
        "records per client",
        "mean cosine with the true feature",
        (*_series_of(pool, plan, public, sizes), baseline),
    )


UNMIXING = Attack(
    name="unmixing",
    title="Unmixing: members and single features out of a sum of few records",
    paper="Guan et al., FedCGS (2503.06962), claims that B hides features; Elser, Rankenburg & Thibault 2007",
    needs=(),
    run=_run,
    trusts_owners=True,
    limits=3 + SUMS,
)
"""Needs contributions or a release: which of them a view has is found out when it runs."""
