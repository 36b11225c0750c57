"""Rates, areas and verdicts of membership scores."""

import numpy as np
import pytest
from scipy.stats import norm

from threat_models.attacks.scores import (
    Scores,
    could_notice,
    in_words,
    measures,
    roc,
    succeeds,
    tells,
    verdict,
    worst_class,
)
from threat_models.findings import Control, Verdict


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
    """Without non-members there are no figures, no success, and nothing could have been noticed."""
    scores = Scores(np.ones(9), np.ones(9, dtype=bool))
    assert measures(scores) == ()
    assert not succeeds(scores)
    assert not could_notice(scores)


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
    scores = gaussian(2.0, 300, 300)
    backwards = Scores(-scores.values, scores.is_member)
    assert could_notice(scores)
    assert not could_notice(backwards)
    assert "worse than chance" in in_words(backwards)


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
    (worst,) = worst_class(Scores(values, scores.is_member), labels, [f"c{label}" for label in range(10)])
    assert "c7" in worst.name
    assert "99.5 %" in worst.method
    assert tells([worst])
    assert worst_class(scores, np.arange(4_000), [str(label) for label in range(4_000)]) == ()


def test_curve_rises_within_its_limits():
    """The ROC curve is monotone, between its limits, and has no point that a logarithm cannot show."""
    line = roc("title", {"attack": gaussian(1.0)}).series[0]
    assert list(line.y) == sorted(line.y)
    assert all(0 < low <= y <= high or low == 0 for low, y, high in zip(line.low, line.y, line.high, strict=True))
    assert min(line.y) > 0


@pytest.mark.parametrize(
    ("succeeded", "noticeable", "control", "expected"),
    [
        (True, False, True, Verdict.SUCCEEDS),
        (False, True, True, Verdict.FAILS),
        (False, False, True, Verdict.INCONCLUSIVE),
        (True, True, False, Verdict.INCONCLUSIVE),
    ],
)
def test_verdict(succeeded, noticeable, control, expected):
    """A control that misbehaves makes everything inconclusive; else success counts, then power."""
    assert verdict(succeeded, noticeable, (Control("", True, control),)) is expected
