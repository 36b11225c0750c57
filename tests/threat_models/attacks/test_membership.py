"""Membership from a release: the best test, the test from the release alone, and the ceilings."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from secagg.privacy import OpenedNoise
from secagg.statistics import accumulate
from tests.threat_models.attacks.audited import attacked, measured, rehearsed
from threat_models.attacks.likelihood import (
    MOMENTS,
    drawn,
    noise_ratio,
    off_diagonal,
    outside_range,
    squared_mu,
    total,
)
from threat_models.attacks.membership import MEMBERSHIP_RELEASE, from_release, informed
from threat_models.attacks.scores import Scores, succeeds
from threat_models.findings import Verdict
from threat_models.session import Knowledge, Records

NOISE = {"counts": OpenedNoise(2.0), "class_sums": OpenedNoise(300.0), "second_moment": OpenedNoise(40_000.0)}
CLASSES = 3


def some_records(count=40, dimension=6, seed=0):
    """Integer records with labels."""
    generator = np.random.default_rng(seed)
    integers = generator.integers(-100, 100, (count, dimension))
    return Records(integers, generator.integers(0, CLASSES, count), integers.astype(float))


def flat(records, row):
    """One record's part of the sum, every entry over its σ."""
    blocks = total(records.take([row]), CLASSES, MOMENTS)
    sigma = np.full(len(blocks["second_moment"]), NOISE["second_moment"].sigma)
    sigma[off_diagonal(len(sigma))] /= math.sqrt(2)
    parts = [blocks["counts"] / 2.0, blocks["class_sums"].ravel() / 300.0, blocks["second_moment"] / sigma]
    return np.concatenate(parts)


def test_total_is_the_sum_of_the_package():
    """`total` gives what `secagg.statistics.accumulate` gives."""
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
        name: OpenedNoise(sigma) for name, sigma in (("counts", 10.0), ("class_sums", 2e3), ("second_moment", 1e6))
    }
    mu = math.sqrt(float(squared_mu(records, noise).mean()))
    knowledge = Knowledge(records, ("",) * len(records))
    far = {name: block + 1e9 for name, block in total(records, CLASSES, MOMENTS).items()}
    scores = informed(far, noise, knowledge).scores
    for fpr in (0.5, 0.1, 0.01):
        expected = norm.cdf(norm.ppf(fpr) + mu)
        # the threshold is itself an order statistic: its error adds to that of the rate
        slope = norm.pdf(norm.ppf(fpr) + mu) / norm.pdf(norm.ppf(fpr))
        error = math.sqrt((expected * (1 - expected) + slope**2 * fpr * (1 - fpr)) / 10_000)
        assert abs(scores.rate(fpr).value - expected) < 4 * error
    assert abs(scores.area().value - norm.cdf(mu / math.sqrt(2))) < 0.02


def test_noise_in_the_sum_is_measured_where_all_records_are_known():
    """The interval of the noise's variance misses the plan's in one of 10⁴ sums: 4 of 200 have the rate 10⁻⁸."""
    records = some_records()
    knowledge = Knowledge(records, ("a",) * 30 + ("",) * 10)
    exact = total(records.take(slice(0, 30)), CLASSES, MOMENTS)
    missed = 0
    for seed in range(200):
        extra = drawn(exact, NOISE, seed)
        found = informed({name: exact[name] + extra[name] for name in exact}, NOISE, knowledge).noise
        missed += not found.low <= 1 <= found.high
    assert missed < 4


def test_unknown_records_are_not_taken_for_noise():
    """Where other records than the candidates were summed, nothing is said of the noise in the sum."""
    records = some_records(400)
    knowledge = Knowledge(records.take(slice(0, 20)), ("a",) * 10 + ("",) * 10)
    assert informed(total(records, CLASSES, MOMENTS), NOISE, knowledge).noise is None


def test_sum_without_the_planned_noise_is_told_completely():
    """A sum that claims noise and has none leaves no doubt about any record."""
    records = some_records()
    knowledge = Knowledge(records, ("a",) * 30 + ("",) * 10)
    best = informed(total(records.take(slice(0, 30)), CLASSES, MOMENTS), NOISE, knowledge)
    assert best.noise.high < 0.01
    assert best.scores.area().value == 1.0


def test_exact_sum_of_few_records_tells_members_without_error():
    """With fewer records than features the range of B holds members, and them alone."""
    records = some_records(60, 40)
    release = total(records.take(slice(0, 25)), CLASSES, MOMENTS)
    assert outside_range(records, release)[:25].max() < 1e-6
    assert outside_range(records, release)[25:].min() > 1e-2
    scores = Scores(from_release(release, None, records, None), np.arange(60) < 25)
    assert scores.area().value == 1.0


def test_noise_ratio_is_one_under_the_planned_noise():
    """Noise as planned has the ratio 1 ± 6 standard deviations (rate 10⁻⁹), and half of its variance one half."""
    shapes = total(some_records(10, 30), CLASSES, MOMENTS)
    residual = drawn(shapes, NOISE, 3)
    ratio, entries = noise_ratio(residual, NOISE)
    assert abs(ratio - 1) < 6 * math.sqrt(2 / entries)
    halved = {name: block / math.sqrt(2) for name, block in residual.items()}
    assert noise_ratio(halved, NOISE)[0] == pytest.approx(ratio / 2)


def test_release_with_epsilon_one_stays_below_its_ceiling():
    """At ε = 1 the ceilings are those of the claim, at most 0.25 % and 0.6, and no rate is above one for sure."""
    finding = attacked(MEMBERSHIP_RELEASE, "curious_server", rehearsed("digits", 1.0))
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is Verdict.FAILS
    rate = measured(finding, "TPR at 0.1 % FPR, knowing all other records")
    assert rate.ceiling < 0.0025
    assert measured(finding, "AUC, knowing all other records").ceiling < 0.6
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
    assert measured(finding, "noise variance over the plan's").high < 0.9
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
    values = from_release(rehearsal.sessions[0].release, rehearsal.sessions[0].noise, mixed.candidates, mixed.public)
    assert not succeeds(Scores(values, mixed.is_member))
