"""Test membership in a sum: the best test there is, and a test by the release alone.

Homer et al. 2008 and Dwork et al. 2015 tell members from exact statistics; with Gaussian noise of known strength the
likelihood ratio is the best test there is (Neyman & Pearson 1933), and it is linear in the release.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from methods import method_of, sums_of
from methods.round import Local
from secagg.encoding import Grid
from secagg.privacy import PrivacyClaim, Unit
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.gaussian_likelihood import (
    MOMENTS,
    Noise,
    fit,
    outside_range,
    squared_length,
    squared_mu,
    total,
)
from threat_models.attacks.membership import metrics
from threat_models.attacks.membership.blind_baseline import BLIND, Blind
from threat_models.attacks.membership.metrics import Figures, Scores, measure
from threat_models.attacks.membership.noise_check import NOISE, NoiseCheck, check_noise
from threat_models.attacks.targets import unread_in, withhold
from threat_models.evidence.blocks import names_of
from threat_models.findings import Control, Finding, Measure, Verdict, decide
from threat_models.session import AuditRecords, Blocks, Floats, Knowledge
from threat_models.views import View

SEED = 20_080_829
TRIALS = 10_000
CONTROL_MU = 5.0
CONTROL_MEMBERS = 40
"""So many members, of as many sums as it takes, succeed however many limits an audit corrects for."""
ALONE = Figures("from_release", "from the release alone")
INFORMED = Figures("informed", "knowing all other records")


@dataclass(frozen=True, eq=False)
class BestTest:
    """The test of an adversary that knows all records but the candidate: scores and labels (n,) of what it scored.

    `noise` compares the noise in the sum with the plan's. `squares_of` computes μ² of records.
    """

    scores: Scores
    labels: NDArray[np.int64]
    noise: NoiseCheck
    squares_of: Squares


def score_by_release(
    release: Blocks, noise: Noise | None, records: AuditRecords, public: AuditRecords | None
) -> Floats:
    """Score records (n,) as an adversary can who knows the release and public records alone.

    An exact sum of fewer records than features: whether the record lies in the range of B. Else how much likelier the
    record is under the classes that the release describes than under those of the release and the public records
    together (Gaussian plug-in): both describe the population, and the release alone is bent towards its members.
    """
    classes, dimension = release["class_sums"].shape
    if noise is None and "second_moment" in release and float(np.sum(release["counts"])) < dimension:
        return -outside_range(records, release)
    if public is None:
        return fit(release, noise).log_likelihood(records)
    if public.in_cells is not None:
        return _score_by_cell(release, noise, records, public)
    known = total(public, classes, MOMENTS)
    spread = fit(known)
    population = fit({name: release[name] + known[name] for name in known if name in release}, noise, spread)
    return fit(release, noise, spread).log_likelihood(records) - population.log_likelihood(records)


def _score_by_cell(release: Blocks, noise: Noise | None, records: AuditRecords, public: AuditRecords) -> Floats:
    """Score records of divided classes: by the mean of the record's cell against the public mean of its class.

    The cell is one of many that public records hardly fill, so that the population is that of the class. A cell that an
    exact sum has empty holds nobody.
    """
    by_label = replace(public, in_cells=None)
    classes = 1 + int(max(records.labels.max(initial=0), public.labels.max(initial=0)))
    population = fit(total(by_label, classes, MOMENTS))
    inside = fit(release, noise, population).log_likelihood(records)
    values = inside - population.log_likelihood(replace(records, in_cells=None))
    if noise is None:
        values[np.asarray(release["counts"])[records.cells] == 0] = -np.inf
    return values


def run_best_test(
    release: Blocks, noise: Noise, knowledge: Knowledge, grid: Grid, contribute: Contribute | None = None
) -> BestTest | None:
    """Run the Neyman-Pearson test: ⟨Δ, release − expected⟩/σ² − μ²/2, expected without the candidate.

    It is N(±μ²/2, μ²) for records in the sum and not, Δ being over all blocks what `contribute` makes of the candidate
    alone; None where there is no such part, nor blocks that are moments by their kinds. Every candidate is tested with
    and without it, 10⁴ times in all of either, each time under noise of its own: tests on one release share its noise,
    so that a threshold found on some of them would know it. The noise is the plan's, or less where less is measured in
    a block.
    """
    squares_of = squares_by(contribute, knowledge.candidates, noise)
    if squares_of is None:
        return None
    found = check_noise(release, _sum_known(release, knowledge, contribute, squares_of), noise, grid)
    records = choose_some(squares_of, knowledge.candidates, release)
    times = -(-TRIALS // len(records))
    squares, labels = np.tile(squares_of(records, found.reduce(noise)), 2 * times), np.tile(records.labels, 2 * times)
    is_member = np.arange(len(squares)) < len(squares) // 2
    values = np.random.default_rng(SEED).normal(0, np.sqrt(squares)) + squares * is_member - squares / 2
    return BestTest(Scores(values, is_member), labels, found, squares_of)


def _sum_known(
    release: Blocks, knowledge: Knowledge, contribute: Contribute | None, squares_of: Squares
) -> dict[str, Floats]:
    """Sum what is known of the members' records, exactly: their moments by cell, or the method's blocks."""
    members = knowledge.candidates.take(knowledge.is_member)
    if contribute is None or squares_of is squared_mu:
        known = total(members, len(release["counts"]), frozenset(release))
    else:
        known = {name: np.asarray(block, dtype=np.float64) for name, block in contribute(members).items()}
    if knowledge.others is None:
        return known
    return {name: block + knowledge.others[name] for name, block in known.items()}


def _run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view, noise, unread, best = views[0], views[0].noise, unread_in(views[0]), None
    if noise is not None:
        best = run_best_test(view.release, noise, knowledge, view.plan.grid, contribute_to(view))
    progress(1, 3)
    if noise is not None and best is not None:
        unread = tuple(name for name in unread if name not in view.release)  # the test weighs all of this sum
        found = _judge_noisy(view, noise, best, knowledge)
    elif noise is None and "class_sums" in view.release:
        found = _judge_exact(view, knowledge)
    else:
        nothing = "It does not see a sum that holds class_sums."
        found = Finding(MEMBERSHIP_RELEASE.name, "", Verdict.NOT_APPLICABLE, nothing)
    progress(3, 3)
    return withhold(found, unread)


def _judge_exact(view: View, knowledge: Knowledge) -> Finding:
    """Judge an exact sum by what it tells alone."""
    alone, labels, blind = _score_alone(view, knowledge)
    worst = metrics.measure_worst_class(alone, labels, view.plan.classes)
    controls = tuple(make_sum_control(knowledge, view.release, is_true) for is_true in (True, False))
    succeeded = blind.lets_succeed(alone) or (metrics.tells_class(worst) and not blind.tells)
    withstood = metrics.withstands(alone) and not blind.tells
    told = (
        f"From the exact sum alone members are {metrics.describe(alone)}. Who knows all other records knows the last."
    )
    return Finding(
        MEMBERSHIP_RELEASE.name,
        "",
        decide(succeeded, withstood, controls),
        told + metrics.describe_class(worst) + blind.sentence,
        (*measure(alone, ALONE), *worst, *blind.measures),
        (metrics.roc("Membership, from the sum", {ALONE.words: alone}, view.claim),),
        controls=controls,
    )


def _judge_noisy(view: View, noise: Noise, best: BestTest, knowledge: Knowledge) -> Finding:
    """Judge by the best test, whose members are drawn, not found: they are of one population.

    Who knows the release alone tells no more, so that this decides a success, and nothing else.
    """
    lines, succeeded = {INFORMED.words: best.scores}, metrics.succeeds(best.scores)
    found = measure(best.scores, INFORMED, view.claim)
    beside: tuple[Measure, ...] = ()
    controls: tuple[Control, ...] = ()
    if "class_sums" in view.release:
        alone, _, blind = _score_alone(view, knowledge)
        lines, beside = {ALONE.words: alone, **lines}, blind.measures
        found += measure(alone, ALONE)  # one noise: what ε allows is of many
        succeeded = succeeded or blind.lets_succeed(alone)
        controls = tuple(make_sum_control(knowledge, view.release, is_true) for is_true in (True, False))
    worst = metrics.measure_worst_class(best.scores, best.labels, view.plan.classes)
    found += (*filter(None, (best.noise.worst,)), *worst, *beside)
    controls += tuple(_make_noise_control(view, noise, best, knowledge, is_true) for is_true in (True, False))
    broken = metrics.crosses(found) or bool(best.noise.short)
    succeeded = succeeded or broken or metrics.tells_class(worst)
    withstood = metrics.withstands(best.scores) and best.noise.is_complete
    return Finding(
        MEMBERSHIP_RELEASE.name,
        "",
        decide(succeeded, withstood, controls),
        _describe(best, broken, view.claim) + metrics.describe_class(worst),
        found,
        (metrics.roc("Membership, from the sum", lines, view.claim),),
        controls=controls,
    )


def _score_alone(view: View, knowledge: Knowledge) -> tuple[Scores, NDArray[np.int64], Blind]:
    """Score members and as many others of each class by the release alone, with their labels; and without it."""
    rows = metrics.match_classes(knowledge.candidates.labels, knowledge.is_member)
    records, is_member = knowledge.candidates.take(rows), knowledge.is_member[rows]
    values = score_by_release(view.release, view.noise, knowledge.candidates, knowledge.public)
    return Scores(values[rows], is_member), records.labels, Blind.of(records, is_member)


def _describe(best: BestTest, broken: bool, claim: PrivacyClaim | None) -> str:
    limit = "This is more than the claim allows." if broken else "The claim allows this."
    which = "the plan's noise"
    if best.noise.short:
        which = "the noise that is there"
        noise = f"There is less noise in the sum than planned: in its {', '.join(best.noise.short).replace('_', ' ')}."
    elif best.noise.is_complete:
        noise = "The noise in each of its blocks was measured."
    else:
        noise = "Whether the sum holds this noise cannot be told without all its records."
    result = f"By the best test under {which}, knowing all other records, members are {metrics.describe(best.scores)}."
    return f"{result} {limit if claim is not None else 'Nothing is claimed.'} {noise}"


def _choose_pool(knowledge: Knowledge) -> AuditRecords:
    """Choose public records where there are enough, else the candidates that nobody had, else all candidates."""
    outside = knowledge.candidates.take(~knowledge.is_member)
    chosen = [each for each in (knowledge.public, outside) if each is not None and len(each) >= 100]
    return chosen[0] if chosen else knowledge.candidates


def make_sum_control(knowledge: Knowledge, release: Blocks, is_true: bool) -> Control:
    """Try exact sums of a few records: the test must find their members, and not others called members."""
    pool, generator = _choose_pool(knowledge), np.random.default_rng(SEED)
    classes, dimension = release["class_sums"].shape
    few = max(1, min(max(dimension // 2, 2) if "second_moment" in release else classes, len(pool) // 4))
    parts = []
    for _ in range(-(-CONTROL_MEMBERS // few)):
        order = generator.permutation(len(pool))
        summed, called, others = order[:few], order[few : 2 * few], order[2 * few :]
        blocks = total(pool.take(summed), classes, frozenset(release))
        tested = np.concatenate([summed if is_true else called, others])
        values = score_by_release(blocks, None, pool.take(tested), knowledge.public)
        parts.append(Scores(values, np.arange(len(tested)) < few))
    sums = f"exact sum{'s' * (len(parts) > 1)} of {few} records"
    name = f"{len(parts)} {sums}" if is_true else f"others, called members of {len(parts)} {sums}"
    return Control(name, is_true, metrics.succeeds(metrics.pool_scores(parts)))


def _make_noise_control(view: View, noise: Noise, best: BestTest, knowledge: Knowledge, is_true: bool) -> Control:
    """Try the best test under so little noise that it must succeed, or on records none of which was summed."""
    pool = choose_some(best.squares_of, _choose_pool(knowledge), view.release)
    generator = np.random.default_rng(SEED + 1)
    called = generator.permutation(len(pool)) < len(pool) // 2
    squares = np.full(len(pool), CONTROL_MU**2) if is_true else best.squares_of(pool, noise)
    values = generator.normal(0, np.sqrt(squares)) + (squares * called if is_true else 0.0) - squares / 2
    name = f"noise {1 / CONTROL_MU:g} times a record's length" if is_true else "the planned noise and no member"
    return Control(name, is_true, metrics.succeeds(Scores(values, called)))


MEMBERSHIP_RELEASE = Attack(
    "membership_release",
    "Membership of a record, from the sum",
    "Neyman & Pearson 1933; Homer et al. 2008; Dwork et al. 2015",
    ("release", "class_sums"),
    _run,
    (*INFORMED.metrics, *ALONE.metrics, NOISE, metrics.WORST_CLASS, BLIND),
    tells_members=True,
    limits=9,
    weighs_all=True,
    meaning="Whether somebody's record was among the data can be told from the opened sum.",
    remedy="Plan with a finite epsilon, or with many more records in the sum.",
)


Contribute = Callable[[AuditRecords], Blocks]
"""Computes some records' part of a sum."""
Squares = Callable[[AuditRecords, Noise], Floats]
"""Computes μ² = ‖Δ‖²/σ² of every record, (n,), where a record adds Δ."""
TRIED = 8
"""Records by which the closed form of moments is tried against `contribute`."""
MOST_ENTRIES = 1 << 27
FEWEST = 64
"""Beyond so many entries of single records' parts fewer records stand for all, but no fewer than these."""


def contribute_to(view: View) -> Contribute | None:
    """Return what computes some records' part of a view's sum; None where single records have no part of their own.

    By the method's own `contribute`, whatever the blocks' kinds; in the session's names and shapes, per record.
    """
    kinds = [kind for kind in sums_of(view.plan) for _ in range(kind.times)]
    kind, round_, plan = kinds[view.number - 1], view.round, view.plan
    is_of_records = kind.is_additive and kind.per is Unit.RECORD and not kind.keeps_state and kind.training is None
    names = names_of(kind.blocks, plan.dimension)
    if (
        round_ is None
        or not is_of_records
        or method_of(plan).traits.reads_inputs
        or set(names.values()) != set(view.release)
    ):
        return None

    def contribute(records: AuditRecords) -> Blocks:
        made = round_.contribute(Local(records.examples, len(plan.classes), plan.grid)).blocks
        return {names[name]: np.reshape(block, np.shape(view.release[names[name]])) for name, block in made.items()}

    return contribute


def squares_by(contribute: Contribute | None, records: AuditRecords, noise: Noise) -> Squares | None:
    """Return what computes μ² of records over all blocks that `noise` is on; None where nothing does.

    This is the closed form of moments where the blocks are called so, and some of the `records` add just these. Else
    each record's part is computed by itself.
    """
    by_record = None if contribute is None else partial(_squared_mu_by, contribute)
    if not {"counts", "class_sums"} <= set(noise) <= MOMENTS:
        return by_record
    some = records.take(_evenly(len(records), TRIED))
    if by_record is None or np.allclose(by_record(some, noise), squared_mu(some, noise), rtol=1e-9):
        return squared_mu
    return by_record


def _squared_mu_by(contribute: Contribute, records: AuditRecords, noise: Noise) -> Floats:
    parts = (contribute(records.take([row])) for row in range(len(records)))
    return np.array([squared_length(part, noise) for part in parts])


def choose_some(squares: Squares, records: AuditRecords, release: Blocks) -> AuditRecords:
    """Choose the records to compute μ² of: all with the closed form, else as many as take a moment, evenly."""
    if squares is squared_mu:
        return records
    entries = max(1, sum(np.size(block) for block in release.values()))
    return records.take(_evenly(len(records), max(FEWEST, MOST_ENTRIES // entries)))


def _evenly(count: int, most: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.intp))
