"""Membership from a release: the best test, the test from the release alone, and the ceilings."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from secagg.encoding import Grid, Normalisation, accumulate, quantise
from secagg.privacy import OpenedNoise
from tests.threat_models.attacks.audited import attacked, measured, rehearsed
from threat_models.attacks.gaussian_likelihood import (
    MOMENTS,
    draw_noise,
    noise_ratio,
    off_diagonal,
    outside_range,
    squared_mu,
    total,
)
from threat_models.attacks.membership.aggregate import MEMBERSHIP_RELEASE, run_best_test, score_by_release
from threat_models.attacks.membership.metrics import Scores, match_classes, succeeds
from threat_models.attacks.membership.noise_check import check_noise as noise_measured
from threat_models.attacks.membership.noise_check import parities_agree
from threat_models.estimation.intervals import Comparisons
from threat_models.findings import Verdict
from threat_models.session import AuditRecords, Knowledge

NOISE = {
    "counts": OpenedNoise(2.0),
    "class_sums": OpenedNoise(300.0),
    "second_moment": OpenedNoise(40_000.0, triangle=True),
}
CLASSES = 3
GRID = Grid(1.0, 100)
CENTRED = Grid(1.0, 1 << 10, normalisation=Normalisation.CENTRED_UNIT)


def some_records(count=40, dimension=6, seed=0):
    """Integer records with labels."""
    generator = np.random.default_rng(seed)
    integers = generator.integers(-100, 100, (count, dimension))
    return AuditRecords(integers, generator.integers(0, CLASSES, count), integers.astype(float))


def flat(records, row):
    """One record's part of the sum, every entry over its σ."""
    blocks = total(records.take([row]), CLASSES, MOMENTS)
    sigma = np.full(len(blocks["second_moment"]), NOISE["second_moment"].sigma)
    sigma[off_diagonal(len(sigma))] /= math.sqrt(2)
    parts = [blocks["counts"] / 2.0, blocks["class_sums"].ravel() / 300.0, blocks["second_moment"] / sigma]
    return np.concatenate(parts)


def test_total_is_the_sum_of_the_package():
    """`total` gives what `secagg.encoding.accumulate` gives."""
    records = some_records()
    blocks = total(records, CLASSES, MOMENTS)
    for name, block in accumulate(records.integers, records.labels, CLASSES, 1 << 16).items():
        assert np.array_equal(block, blocks[name])


def test_squared_mu_is_that_of_the_flat_vector():
    """μ² is the squared length of a record's part of the sum, each entry over its own σ."""
    records = some_records()
    lengths = [np.linalg.norm(flat(records, row)) for row in range(len(records))]
    assert np.allclose(np.sqrt(squared_mu(records, NOISE)), lengths)


def test_best_test_reaches_the_gaussian_curve():
    """Records of length R under exact noise give TPR = Φ(Φ⁻¹(FPR) + μ) within 4 standard errors (rate 10⁻⁴)."""
    records = some_records()
    integers = np.rint(1_000 * records.integers / np.linalg.norm(records.integers, axis=1, keepdims=True))
    records = replace(records, integers=integers.astype(np.int64))
    noise = {
        name: OpenedNoise(sigma, triangle=name == "second_moment")
        for name, sigma in (("counts", 10.0), ("class_sums", 2e3), ("second_moment", 1e6))
    }
    mu = math.sqrt(float(squared_mu(records, noise).mean()))
    knowledge = Knowledge(records, ("",) * len(records))
    far = {name: block + 1e9 for name, block in total(records, CLASSES, MOMENTS).items()}
    scores = run_best_test(far, noise, knowledge, GRID).scores
    for fpr in (0.5, 0.1, 0.01):
        expected = norm.cdf(norm.ppf(fpr) + mu)
        # the threshold is itself an order statistic: its error adds to that of the rate
        slope = norm.pdf(norm.ppf(fpr) + mu) / norm.pdf(norm.ppf(fpr))
        error = math.sqrt((expected * (1 - expected) + slope**2 * fpr * (1 - fpr)) / 10_000)
        assert abs(scores.hits(fpr) / len(scores.positive) - expected) < 4 * error
    assert abs(scores.area().value - norm.cdf(mu / math.sqrt(2))) < 0.02


def test_noise_in_the_sum_is_measured_where_all_records_are_known():
    """The interval of the worst block's noise misses the plan's in 3 of 10⁴ sums: 4 of 200 have the rate 10⁻⁶."""
    records = some_records()
    knowledge = Knowledge(records, ("a",) * 30 + ("",) * 10)
    exact = total(records.take(slice(0, 30)), CLASSES, MOMENTS)
    missed = 0
    for seed in range(200):
        extra = draw_noise(exact, NOISE, seed)
        found = run_best_test({name: exact[name] + extra[name] for name in exact}, NOISE, knowledge, GRID).noise.worst
        missed += not found.low <= 1 <= found.high
    assert missed < 4


def test_unknown_records_are_not_taken_for_noise():
    """Where other records than the candidates were summed, nothing is said of the noise in the sum."""
    records = some_records(400)
    knowledge = Knowledge(records.take(slice(0, 20)), ("a",) * 10 + ("",) * 10)
    assert not run_best_test(total(records, CLASSES, MOMENTS), NOISE, knowledge, GRID).noise.blocks


def test_sum_without_the_planned_noise_is_told_completely():
    """A sum that claims noise and has none leaves no doubt about any record."""
    records = some_records()
    knowledge = Knowledge(records, ("a",) * 30 + ("",) * 10)
    best = run_best_test(total(records.take(slice(0, 30)), CLASSES, MOMENTS), NOISE, knowledge, GRID)
    assert best.noise.short == ("class_sums", "second_moment")  # three counts of noise 0 are too few to tell
    assert best.scores.area().value == 1.0


def test_exact_sum_of_few_records_tells_members_without_error():
    """With fewer records than features the range of B holds members, and them alone."""
    records = some_records(60, 40)
    release = total(records.take(slice(0, 25)), CLASSES, MOMENTS)
    assert outside_range(records, release)[:25].max() < 1e-6
    assert outside_range(records, release)[25:].min() > 1e-2
    scores = Scores(score_by_release(release, None, records, None), np.arange(60) < 25)
    assert scores.area().value == 1.0


def test_noise_ratio_is_one_under_the_planned_noise():
    """Noise as planned has the ratio 1 ± 6 standard deviations (rate 10⁻⁹), and half of its variance one half."""
    shapes = total(some_records(10, 30), CLASSES, MOMENTS)
    residual = draw_noise(shapes, NOISE, 3)
    ratio, entries = noise_ratio(residual, NOISE)
    assert abs(ratio - 1) < 6 * math.sqrt(2 / entries)
    halved = {name: block / math.sqrt(2) for name, block in residual.items()}
    assert noise_ratio(halved, NOISE)[0] == pytest.approx(ratio / 2)


def test_release_with_epsilon_one_stays_below_its_ceiling():
    """At ε = 1 the ceilings are those of the claim, at most 0.25 % and 0.6, and no rate is above one for sure."""
    finding = attacked(MEMBERSHIP_RELEASE, "curious_server", rehearsed("digits", 1.0))
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is Verdict.FAILS
    rate = measured(finding, "tpr_at_1e-3.informed")
    assert rate.ceiling < 0.0025
    assert measured(finding, "auc.informed").ceiling < 0.6
    assert all(each.low <= each.ceiling for each in finding.measures if each.ceiling is not None)


def test_golden_ceiling_of_an_exact_gaussian_release():
    """With μ of (1, 10⁻⁵) the best test has TPR 0.24 % at FPR 0.1 %, and the area 0.575."""
    mu = 0.2681
    scores = Scores(
        np.concatenate([norm.ppf((np.arange(1e6) + 0.5) / 1e6) + mu, norm.ppf((np.arange(1e6) + 0.5) / 1e6)]),
        np.arange(2_000_000) < 1_000_000,
    )
    assert scores.rate(0.001).value == pytest.approx(0.0024, abs=5e-5)
    assert scores.area().value == pytest.approx(0.575, abs=5e-4)


def test_large_epsilon_is_told_and_allowed():
    """At ε = 8 members are told, within what the claim allows, and the finding says both."""
    finding = attacked(MEMBERSHIP_RELEASE, "curious_server", rehearsed(epsilon=8.0))
    assert finding.verdict is Verdict.SUCCEEDS
    assert "The claim allows this" in finding.sentence


def test_noise_too_small_by_half_its_variance_is_found():
    """A sum whose noise is √2 too small breaks the claim, where all records are known."""
    rehearsal = rehearsed(epsilon=1.0)
    session, knowledge = rehearsal.sessions[0], rehearsal.knowledge
    exact = total(knowledge.candidates.take(knowledge.is_member), len(session.plan.classes), frozenset(session.release))
    shrunk = {name: exact[name] + (block - exact[name]) / math.sqrt(2) for name, block in session.release.items()}
    finding = attacked(MEMBERSHIP_RELEASE, "curious_server", rehearsal, replace(session, release=shrunk))
    assert measured(finding, "noise_variance").high < 0.9
    assert finding.verdict is Verdict.SUCCEEDS
    assert "less noise in the sum than planned" in finding.sentence


@pytest.mark.parametrize("method", ["fedcgs", "prototypes"])
def test_exact_release_of_any_method_has_controls_that_hold(method):
    """Without noise the attack works from the sum alone, for sums with a second moment and without."""
    finding = attacked(MEMBERSHIP_RELEASE, "curious_server", rehearsed(method=method))
    assert all(control.holds for control in finding.controls)
    assert not any(each.ceiling for each in finding.measures)


def test_shuffled_owners_are_not_told():
    """Where membership is a coin toss, the test on a release tells nothing."""
    rehearsal = rehearsed(epsilon=8.0)
    owners = np.array(rehearsal.knowledge.owners)
    mixed = replace(rehearsal.knowledge, owners=tuple(np.random.default_rng(1).permutation(owners)))
    values = score_by_release(
        rehearsal.sessions[0].release, rehearsal.sessions[0].noise, mixed.candidates, mixed.public
    )
    assert not succeeds(Scores(values, mixed.is_member))


@pytest.mark.parametrize("missing", list(NOISE))
def test_noise_missing_from_one_block_is_found(missing):
    """A block without noise is named, however many entries the others have, where all records are known."""
    rehearsal = rehearsed("digits", 1.0)
    session, known = rehearsal.sessions[0], rehearsal.knowledge
    exact = exact_sum(session, known)
    finding = attacked(
        MEMBERSHIP_RELEASE,
        "curious_server",
        rehearsal,
        replace(session, release={**session.release, missing: exact[missing]}),
    )
    assert measured(finding, "noise_variance").high < 0.01
    assert finding.verdict is Verdict.SUCCEEDS
    assert f"less noise in the sum than planned: in its {missing.replace('_', ' ')}." in finding.sentence


def exact_sum(session, knowledge):
    """What was summed in a simulation."""
    known = total(knowledge.candidates.take(knowledge.is_member), len(session.cells), frozenset(session.release))
    return {name: np.rint(block + knowledge.others[name]).astype(np.int64) for name, block in known.items()}


def test_simulation_knows_all_that_was_summed():
    """Candidates and the others make up the sum, up to the noise: of every block, the noise is measured."""
    rehearsal = rehearsed("plenty", 1.0, method="prototypes")
    session, known = rehearsal.sessions[0], rehearsal.knowledge
    assert known.is_member.sum() < exact_sum(session, known)["counts"].sum() == 9_000
    assert known.records is None  # add-remove protects it
    finding = attacked(MEMBERSHIP_RELEASE, "curious_server", rehearsal)
    assert finding.verdict is Verdict.FAILS
    assert "The noise in each of its blocks was measured." in finding.sentence


@pytest.mark.parametrize("method", ["fedcgs", "prototypes"])
def test_noise_that_cannot_be_measured_is_no_defence(method):
    """Where some records are known, a noisy sum is inconclusive, and one whose noise is missing gives itself away."""
    rehearsal = rehearsed("digits", 1.0, method=method)
    session, known = rehearsal.sessions[0], rehearsal.knowledge
    partly = replace(rehearsal, knowledge=replace(known, others=None, owners=("",) * 900 + known.owners[900:]))
    finding = attacked(MEMBERSHIP_RELEASE, "curious_server", partly)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "cannot be told without all its records" in finding.sentence
    bare = replace(session, release=exact_sum(session, known))
    finding = attacked(MEMBERSHIP_RELEASE, "curious_server", partly, bare)
    assert finding.verdict is Verdict.SUCCEEDS
    assert measured(finding, "noise_variance").high < 0.01


def test_sums_of_centred_records_show_their_noise():
    """Noise in A and B has its variance where exact sums have 0: of 200 sums with it, none is short (rate 0.06)."""
    features = np.random.default_rng(3).normal(size=(90, 40))
    records = AuditRecords(quantise(features, CENTRED), np.arange(90) % CLASSES, features)
    exact, nobody = total(records, CLASSES, MOMENTS), total(records.take(slice(0, 0)), CLASSES, MOMENTS)
    noise = dict(zip(NOISE, (OpenedNoise(2.0), OpenedNoise(5e3), OpenedNoise(6e6, triangle=True)), strict=True))
    ratios = []
    for seed in range(200):
        extra = draw_noise(exact, noise, seed)
        found = noise_measured({name: exact[name] + extra[name] for name in exact}, nobody, noise, CENTRED)
        assert not found.short
        assert not found.is_complete
        ratios.append([found.blocks[name].value for name in ("class_sums", "second_moment")])
    assert np.abs(np.mean(ratios, axis=0) - 1).max() < 6 * math.sqrt(2 / (200 * CLASSES))
    halved = {name: exact[name] + extra[name] * (0.1 if name == "second_moment" else 1) for name in exact}
    assert noise_measured(halved, nobody, noise, CENTRED).short == ("second_moment",)


def test_noise_that_rounds_to_nothing_is_no_lack_of_it():
    """Two counts whose noise is 0, which is so once in a hundred sums, say nothing; of twenty they do."""
    noise = {"counts": OpenedNoise(4.5), "class_sums": OpenedNoise(300.0)}
    for cells, short in ((2, ()), (20, ("counts",))):
        nobody = {"counts": np.zeros(cells), "class_sums": np.zeros((cells, 6))}
        release = {"counts": np.zeros(cells), "class_sums": draw_noise(nobody, noise, 1)["class_sums"]}
        assert noise_measured(release, nobody, noise, GRID).short == short


def test_parities_agree_in_exact_sums_alone():
    """Any exact sum has a diagonal as odd as its class sums; noise on either breaks it but for a chance of 2⁻⁴⁰."""
    exact = {name: block.astype(np.int64) for name, block in total(some_records(50, 40), CLASSES, MOMENTS).items()}
    assert parities_agree(exact)
    for name in ("class_sums", "second_moment"):
        extra = np.rint(draw_noise(exact, NOISE, 5)[name]).astype(np.int64)
        assert not parities_agree({**exact, name: exact[name] + extra})
    assert not parities_agree(total(some_records(50, 6), CLASSES, MOMENTS))


@pytest.mark.parametrize("method", ["fedcgs", "prototypes"])
@pytest.mark.parametrize("dataset", ["digits", "breast-cancer"])
def test_controls_hold_however_many_limits_are_corrected_for(method, dataset):
    """The controls behave in an audit of 200 confidence limits as in one of a single limit."""
    for count in (1, 200):
        with Comparisons(count).apply():
            finding = attacked(MEMBERSHIP_RELEASE, "curious_server", rehearsed(dataset, method=method))
        assert all(control.holds for control in finding.controls)


def test_classes_of_members_are_no_sign_of_membership():
    """Scores that know a record's class alone tell nothing where members and others are matched by class."""
    generator = np.random.default_rng(4)
    is_member = np.arange(2_000) < 1_000
    labels = np.where(is_member, generator.integers(0, 2, 2_000), generator.integers(0, 10, 2_000))
    rows = match_classes(labels, is_member)
    assert set(labels[rows]) == {0, 1}
    assert Scores(labels.astype(float), is_member).area().low < 0.4
    found = Scores(labels.astype(float), is_member).take(rows).area()
    assert found.low < 0.5 < found.high
    assert rows.sum() > 1_100
    assert not match_classes(np.where(is_member, 0, 1), is_member).any()


def test_records_of_one_client_do_not_break_a_true_claim():
    """Of 10 sums with noise for ε = 1, and a client of two classes known, none breaks the claim, in it or not.

    One seems to lack noise with a probability of 3·10⁻⁴.
    """
    rehearsal = rehearsed("digits", 1.0, partition="shards:2", method="prototypes", clients=5)
    session, known = rehearsal.sessions[0], rehearsal.knowledge
    owners, exact = np.array(known.owners), exact_sum(session, known)
    mine = owners == session.clients[0]
    own = total(known.candidates.take(mine), len(session.cells), frozenset(exact))
    kept = np.flatnonzero(mine | (owners == ""))
    knowledge = replace(known, candidates=known.candidates.take(kept), owners=tuple(owners[kept].tolist()), others=None)
    told = replace(rehearsal, knowledge=knowledge)
    for seed in range(10):
        extra = draw_noise(exact, session.noise, seed)
        noisy = {name: exact[name] + extra[name] - (own[name] if seed % 2 else 0) for name in exact}
        finding = attacked(MEMBERSHIP_RELEASE, "curious_server", told, replace(session, release=noisy))
        assert finding.verdict is Verdict.INCONCLUSIVE
        assert not any(each.ceiling is not None and each.low > each.ceiling for each in finding.measures)


def test_total_of_many_cells_takes_no_table_of_cells_and_records():
    """The sum of n records in K cells takes memory for the K cells and for the records, not for K·n numbers."""
    import tracemalloc

    cells, count = 4_000, 2_000
    integers = np.ones((count, 2), dtype=np.int64)
    records = AuditRecords(integers, np.arange(count), integers.astype(float), in_cells=np.arange(count) - 1)
    tracemalloc.start()
    blocks = total(records, cells, frozenset({"counts", "class_sums"}))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 * cells * count / 10
    assert blocks["counts"].sum() == count - 1  # the first is in no cell
