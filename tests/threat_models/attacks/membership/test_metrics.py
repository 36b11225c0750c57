"""Rates, areas and verdicts of membership scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from threat_models.attacks.membership.metrics import (
    NOTABLE_AREA,
    NOTABLE_FACTOR,
    Figures,
    Scores,
    describe,
    measure,
    measure_worst_class,
    roc,
    succeeds,
    tells_class,
    withstands,
)
from threat_models.estimation.intervals import Comparisons
from threat_models.findings import Control, Verdict, decide


def gaussian(mu, members=4_000, others=4_000, seed=0):
    """Scores N(μ, 1) of members and N(0, 1) of others."""
    generator = np.random.default_rng(seed)
    values = np.concatenate([generator.normal(mu, 1, members), generator.normal(0, 1, others)])
    return Scores(values, np.arange(members + others) < members)


@pytest.mark.parametrize("fpr", [0.01, 0.001])
def test_rate_covers_the_gaussian_curve(fpr):
    """The interval holds Φ(Φ⁻¹(FPR) + μ) in 95 % of draws: of 200 it misses more than 22 with probability 10⁻³."""
    truth = norm.cdf(norm.ppf(fpr) + 1.5)
    found = [gaussian(1.5, 500, 6_000, seed).rate(fpr) for seed in range(200)]
    assert sum(not each.low <= truth <= each.high for each in found) <= 22


def test_rate_counts_members_above_all_but_the_allowed_others():
    """With 100 others, one of them may exceed the threshold at a false positive rate of 1 %."""
    scores = Scores(np.concatenate([[98.5, 97.5, 200.0], np.arange(100.0)]), np.arange(103) < 3)
    assert scores.threshold(0.01) == 98.0
    assert scores.hits(0.01) == 2
    assert scores.false_rate(0.01).value == 0.01


def test_rate_without_enough_others_is_not_supported():
    """200 non-members bound no rate of 0.1 %, nor of 1 % at 95 %: the interval is all of [0, 1]."""
    found = gaussian(9.0, 200, 200).rate(0.001)
    assert (found.low, found.high) == (0.0, 1.0)
    assert "not supported by 200" in found.method
    assert not gaussian(9.0, 200, 200).supports(0.01)
    assert gaussian(9.0, 200, 1_000).supports(0.01)


def test_nothing_is_said_of_one_kind_alone():
    """Without non-members there are no figures, no success, and nothing is ruled out."""
    scores = Scores(np.ones(9), np.ones(9, dtype=bool))
    assert measure(scores, Figures("test", "of a test")) == ()
    assert not succeeds(scores)
    assert not withstands(scores)


@pytest.mark.parametrize("seed", range(20))
def test_chance_does_not_succeed(seed):
    """Scores without a difference never succeed: the false-failure rate of one test is below 10⁻⁶."""
    assert not succeeds(gaussian(0.0, 600, 600, seed))


def test_separated_scores_succeed():
    """A test that is always right succeeds, with the area 1."""
    scores = gaussian(50.0, 100, 100)
    assert succeeds(scores)
    assert scores.area().value == 1.0


def test_worse_than_chance_is_no_failure():
    """Scores that are surely lower for members say that the records are not what they are called."""
    backwards = gaussian(-2.0)
    assert not withstands(backwards)
    assert "worse than chance" in describe(backwards)


def test_few_members_found_for_sure_succeed():
    """A test that tells one member in ten for sure, and no other, succeeds by its rate and not by its area."""
    scores = gaussian(0.0, 2_000, 2_000)
    values = np.where(np.arange(4_000) < 200, 99.0, scores.values)
    assert succeeds(Scores(values, scores.is_member))
    assert Scores(values, scores.is_member).area().low < 0.6


def test_worst_class_is_found_with_a_corrected_level():
    """Of ten classes, the one whose members are told is named; the level is 5 % over all ten."""
    scores = gaussian(0.0, 2_000, 2_000)
    labels = np.arange(4_000) % 10
    values = np.where((labels == 7) & scores.is_member, 5.0, scores.values)
    (worst,) = measure_worst_class(Scores(values, scores.is_member), labels, [f"c{label}" for label in range(10)])
    assert worst.of == "c7"
    assert "99.5 %" in worst.method
    assert tells_class([worst])
    assert measure_worst_class(scores, np.arange(4_000), [str(label) for label in range(4_000)]) == ()


def test_curve_rises_within_its_limits():
    """The ROC curve is monotone, between its limits, and has no point that a logarithm cannot show."""
    line = roc("title", {"attack": gaussian(1.0)}).series[0]
    assert list(line.y) == sorted(line.y)
    assert all(0 < low <= y <= high or low == 0 for low, y, high in zip(line.low, line.y, line.high, strict=True))
    assert min(line.y) > 0


@pytest.mark.parametrize(
    ("succeeded", "withstood", "control", "expected"),
    [
        (True, False, True, Verdict.SUCCEEDS),
        (False, True, True, Verdict.FAILS),
        (False, False, True, Verdict.INCONCLUSIVE),
        (True, True, False, Verdict.INCONCLUSIVE),
    ],
)
def test_decide(succeeded, withstood, control, expected):
    """A control that misbehaves makes everything inconclusive; else success counts, then what is ruled out."""
    assert decide(succeeded, withstood, (Control("", True, control),)) is expected


@pytest.mark.parametrize(
    ("mu", "members", "others", "withstood", "words"),
    [
        (0.0, 4_000, 4_000, True, "less than the 0.6 that this audit calls success; 0.5 is chance"),
        (0.15, 100, 100, False, "perhaps by chance (0.5), perhaps by the 0.6"),
        (0.0, 4_000, 300, False, "how many are told at 1% false positives 300 others are too few to say"),
        (0.0, 500, 900, False, "are told at 1% false positives is not ruled out"),
        (0.3, 300, 300, False, "better than chance (0.5), but not surely by the 0.6"),
    ],
)
def test_attack_fails_only_where_its_success_is_ruled_out(mu, members, others, withstood, words):
    """Upper limits of area and rate below their bars are needed: chance alone, or few records, are none.

    Of Gaussian scores with these seeds; the numbers are fixed.
    """
    with Comparisons(20).apply():
        scores = gaussian(mu, members, others, seed=3)
        assert withstands(scores) == withstood
        assert not succeeds(scores)
        assert words in describe(scores)


@given(st.integers(2, 400), st.integers(2, 400), st.floats(-3, 3), st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_no_limit_above_a_bar_is_withstood(members, others, mu, seed, limits):
    """Whatever the scores: withstood means that both upper limits are below the bars, and never goes with success."""
    with Comparisons(limits).apply():
        scores = gaussian(mu, members, others, seed)
        if withstands(scores):
            assert scores.area().high <= NOTABLE_AREA
            assert scores.rate(0.01).high <= NOTABLE_FACTOR * 0.01
            assert not succeeds(scores)


@pytest.mark.parametrize("mu", [0.36, 0.6])
def test_no_number_of_records_repels_what_succeeds(mu):
    """A test whose true area is 0.6 or more is at no size called repelled (of all sizes together once in 500 draws)."""
    with Comparisons(30).apply():
        assert not any(withstands(gaussian(mu, count, count, seed=5)) for count in (50, 200, 800, 3_200, 12_800))
