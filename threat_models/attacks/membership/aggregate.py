"""Test whether a record is in a sum, by the optimal likelihood-ratio test and by a test of the released sum alone.

Homer et al. 2008 and Dwork et al. 2015 tell members from exact statistics; with Gaussian noise of known strength the
likelihood ratio is the best test there is (Neyman & Pearson 1933), and it is linear in the release.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from methods import method_of, sums_of
from methods.round import Local
from secagg.encoding import Grid
from secagg.privacy import Claim, Unit
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.gaussian_likelihood import MOMENTS, Noise, fit, outside_range, squared_mu, standardise, total
from threat_models.attacks.membership import metrics
from threat_models.attacks.membership.blind_baseline import BLIND, Trial
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
"""Members in a control, over as many sums as that takes: enough to succeed for any number of limits in an audit."""
ALONE = Figures("from_release", "from the release alone")
INFORMED = Figures("informed", "knowing all other records")


@dataclass(frozen=True, eq=False)
class _BestTest:
    """The likelihood-ratio test by one who knows all records but the candidate: scores, and the records' labels (n,).

    `noise` compares the noise in the sum with the plan's. `squares_of` computes μ² of records.
    """

    scores: Scores
    labels: NDArray[np.int64]
    noise: NoiseCheck
    squares_of: Squares


def score_by_release(
    release: Blocks, noise: Noise | None, records: AuditRecords, public: AuditRecords | None
) -> Floats:
    """Score records (n,) for membership in a sum, by the released sum and public records alone.

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
    """Score records (n,) of divided classes: log likelihood in their cell less log likelihood in their public class.

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
) -> _BestTest | None:
    """Run the most powerful (Neyman-Pearson) test of whether each candidate's record is in the sum.

    Its statistic is ⟨Δ, release − expected⟩/σ² − μ²/2, where the release is expected without the candidate. It is
    N(±μ²/2, μ²) for records in the sum and not, Δ being over all blocks what `contribute` makes of the candidate alone;
    None where there is no such part, nor blocks that are moments by their kinds. Every candidate is tested with and
    without it, 10⁴ times in all of either, each time under noise of its own: tests on one release share its noise, so
    that a threshold found on some of them would know it. The noise is the plan's, or less where less is measured in a
    block.
    """
    squares_of = squares_by(contribute, knowledge.candidates, noise)
    if squares_of is None:
        return None
    members = knowledge.candidates.take(knowledge.is_member)
    if contribute is None or squares_of is squared_mu:
        known = total(members, len(release["counts"]), frozenset(release))
    else:
        known = {name: np.asarray(block, dtype=np.float64) for name, block in contribute(members).items()}
    if knowledge.others is not None:
        known = {name: block + knowledge.others[name] for name, block in known.items()}
    found = check_noise(release, known, noise, grid)
    records = choose_some(squares_of, knowledge.candidates, release)
    times = -(-TRIALS // len(records))
    squares, labels = np.tile(squares_of(records, found.reduce(noise)), 2 * times), np.tile(records.labels, 2 * times)
    is_member = np.arange(len(squares)) < len(squares) // 2
    values = np.random.default_rng(SEED).normal(0, np.sqrt(squares)) + squares * is_member - squares / 2
    return _BestTest(Scores(values, is_member), labels, found, squares_of)


def _run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view, noise, unread, best = views[0], views[0].noise, unread_in(views[0]), None
    trial = Trial.of(MEMBERSHIP_RELEASE.name, view, knowledge, progress)
    if noise is not None:
        best = run_best_test(view.release, noise, knowledge, view.plan.grid, contribute_to(view))
    progress(1, 3)
    if noise is not None and best is not None:
        unread = tuple(name for name in unread if name not in view.release)  # the test weighs all of this sum
        found = _judge_noisy(trial, noise, best)
    elif noise is None and "class_sums" in view.release:
        found = _judge_exact(trial)
    else:
        nothing = "It does not see a sum that holds class_sums."
        found = Finding(trial.attack, "", Verdict.NOT_APPLICABLE, nothing)
    progress(3, 3)
    return withhold(found, unread)


def _judge_exact(trial: Trial) -> Finding:
    """Judge membership in an exact sum by the test that knows the release alone."""
    view, alone, blind = trial.view, _score_alone(trial), trial.blind
    worst = metrics.measure_worst_class(alone, trial.records.labels, view.plan.classes)
    controls = tuple(make_sum_control(trial.knowledge, view.release, is_true) for is_true in (True, False))
    succeeded = blind.lets_succeed(alone) or (metrics.tells_class(worst) and not blind.tells)
    verdict = decide(succeeded, metrics.withstands(alone) and not blind.tells, controls)
    told = (
        f"From the exact sum alone members are {metrics.describe(alone)}. Who knows all other records knows the last."
    )
    sentence = told + metrics.describe_class(worst) + blind.sentence
    curves = (metrics.roc("Membership, from the sum", {ALONE.words: alone}, view.claim),)
    found = (*measure(alone, ALONE), *worst, *blind.measures)
    return Finding(trial.attack, "", verdict, sentence, found, curves, controls=controls)


def _judge_noisy(trial: Trial, noise: Noise, best: _BestTest) -> Finding:
    """Judge membership in a noisy sum by the best test, whose members are simulated: they are of one population.

    Who knows the release alone tells no more, so that this decides a success, and nothing else.
    """
    view, knowledge = trial.view, trial.knowledge
    lines, succeeded = {INFORMED.words: best.scores}, metrics.succeeds(best.scores)
    found = measure(best.scores, INFORMED, view.claim)
    beside: tuple[Measure, ...] = ()
    controls: tuple[Control, ...] = ()
    if "class_sums" in view.release:
        alone, blind = _score_alone(trial), trial.blind
        lines, beside = {ALONE.words: alone, **lines}, blind.measures
        found += measure(alone, ALONE)  # one noise: what ε allows is of many
        succeeded = succeeded or blind.lets_succeed(alone)
        controls = tuple(make_sum_control(knowledge, view.release, is_true) for is_true in (True, False))
    worst = metrics.measure_worst_class(best.scores, best.labels, view.plan.classes)
    found += (*filter(None, (best.noise.worst,)), *worst, *beside)
    controls += tuple(_make_noise_control(view, noise, best, knowledge, is_true) for is_true in (True, False))
    broken = metrics.crosses(found) or bool(best.noise.short)
    succeeded = succeeded or broken or metrics.tells_class(worst)
    verdict = decide(succeeded, metrics.withstands(best.scores) and best.noise.is_complete, controls)
    sentence = _describe(best, broken, view.claim) + metrics.describe_class(worst)
    curves = (metrics.roc("Membership, from the sum", lines, view.claim),)
    return Finding(trial.attack, "", verdict, sentence, found, curves, controls=controls)


def _score_alone(trial: Trial) -> Scores:
    """Score the trial's records, members and others of each class, by the release alone."""
    view, knowledge = trial.view, trial.knowledge
    values = score_by_release(view.release, view.noise, knowledge.candidates, knowledge.public)
    return trial.scored(values[trial.rows])


def _describe(best: _BestTest, broken: bool, claim: Claim | None) -> str:
    limit = "This is more than the claim allows." if broken else "The claim allows this."
    which = "the noise that is there" if best.noise.short else "the plan's noise"
    if best.noise.short:
        noise = f"There is less noise in the sum than planned: in its {', '.join(best.noise.short).replace('_', ' ')}."
    elif best.noise.is_complete:
        noise = "The noise in each of its blocks was measured."
    else:
        noise = "Whether the sum holds this noise cannot be told without all its records."
    result = f"By the best test under {which}, knowing all other records, members are {metrics.describe(best.scores)}."
    return f"{result} {limit if claim is not None else 'Nothing is claimed.'} {noise}"


def _choose_pool(knowledge: Knowledge) -> AuditRecords:
    """Choose a control's records: public ones or else those that nobody had, if 100 or more; else all candidates."""
    outside = knowledge.candidates.take(~knowledge.is_member)
    chosen = [each for each in (knowledge.public, outside) if each is not None and len(each) >= 100]
    return chosen[0] if chosen else knowledge.candidates


def make_sum_control(knowledge: Knowledge, release: Blocks, is_true: bool) -> Control:
    """Run a control on exact sums: if `is_true` the test must find the summed records, else it must find no others."""
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


def _make_noise_control(view: View, noise: Noise, best: _BestTest, knowledge: Knowledge, is_true: bool) -> Control:
    """Run the best test under so little noise that it must succeed, or on records that were not summed: it must not."""
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
"""A function that computes the part of a sum that some records add."""
Squares = Callable[[AuditRecords, Noise], Floats]
"""A function that computes μ² = ‖Δ‖²/σ² of each record (n,), where the record adds Δ to the sum."""
TRIED = 8
"""Number of records on which the closed form of μ² for moments is compared with `contribute`."""
MOST_ENTRIES = 1 << 27
FEWEST = 64
"""Least number of records to compute μ² of, where the parts of all would have more than `MOST_ENTRIES` entries."""


def contribute_to(view: View) -> Contribute | None:
    """Return a function that computes what records add to the sum in a view; None where it is not a sum over records.

    By the method's own `contribute`, whatever the blocks' kinds; in the session's names and shapes, per record.
    """
    kinds = [kind for kind in sums_of(view.plan) for _ in range(kind.times)]
    kind, round_, plan = kinds[view.number - 1], view.round, view.plan
    is_of_records = kind.is_additive and kind.per is Unit.RECORD and not kind.keeps_state and kind.training is None
    names = names_of(kind.blocks, plan.dimension)
    is_other = method_of(plan).traits.reads_inputs or set(names.values()) != set(view.release)
    if round_ is None or not is_of_records or is_other:
        return None

    def contribute(records: AuditRecords) -> Blocks:
        made = round_.contribute(Local(records.examples, len(plan.classes), plan.grid)).blocks
        return {names[name]: np.reshape(block, np.shape(view.release[names[name]])) for name, block in made.items()}

    return contribute


def squares_by(contribute: Contribute | None, records: AuditRecords, noise: Noise) -> Squares | None:
    """Return a function that computes μ² = ‖Δ‖²/σ² of each record's contribution Δ to a noisy sum; None if impossible.

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
    parts = (standardise(contribute(records.take([row])), noise).values() for row in range(len(records)))
    return np.array([math.fsum(float(entries @ entries) for entries in part) for part in parts])


def choose_some(squares: Squares, records: AuditRecords, release: Blocks) -> AuditRecords:
    """Choose records on which to compute μ² by `squares`: all if cheap (`squared_mu`), else evenly spread ones."""
    if squares is squared_mu:
        return records
    entries = max(1, sum(np.size(block) for block in release.values()))
    return records.take(_evenly(len(records), max(FEWEST, MOST_ENTRIES // entries)))


def _evenly(count: int, most: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.intp))
