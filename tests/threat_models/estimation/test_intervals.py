"""Intervals."""

import numpy as np
import pytest
from scipy import stats

from secagg.errors import BadInput
from threat_models.estimation.intervals import auc_interval, bonferroni, bootstrap, clopper_pearson, holm
from threat_models.findings import Metric


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.308497), (10, 10, 0.691503, 1.0), (5, 20, 0.086571, 0.491046)],
)
def test_published_values(successes, trials, low, high):
    """Exact 95 % intervals as tables have them; for no success of n the upper end is 1 − 0.025^(1/n)."""
    interval = clopper_pearson(successes, trials)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=2e-6)
    assert interval.method == "Clopper-Pearson, 95 %"
    assert interval.measure(Metric("rate", "rate"), ceiling=0.5).ceiling == 0.5


@pytest.mark.parametrize("level", [0.05, 1e-6])
def test_agrees_with_scipy(level):
    """The same interval as scipy's exact binomial test, at any level."""
    for successes, trials in ((0, 7), (3, 7), (7, 7), (11_066, 20_000)):
        theirs = stats.binomtest(successes, trials).proportion_ci(1 - level, method="exact")
        ours = clopper_pearson(successes, trials, level)
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=1e-9)


def test_area_is_the_chance_of_the_right_order():
    """The area is the share of pairs in the right order, ties half; DeLong's variance is that of its own formula."""
    generator = np.random.default_rng(0)
    positive, negative = generator.integers(0, 9, 40) + 1.0, generator.integers(0, 9, 60) + 0.0
    order = (positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)
    variance = order.mean(axis=1).var(ddof=1) / 40 + order.mean(axis=0).var(ddof=1) / 60
    interval = auc_interval(positive, negative)
    assert interval.value == pytest.approx(order.mean())
    assert interval.high - interval.low == pytest.approx(2 * 1.959964 * variance**0.5)


def test_area_interval_covers():
    """Of 400 intervals at 95 %, no fewer than 90 % cover the true area 0.76 (false-failure rate below 1e-4)."""
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        interval = auc_interval(generator.normal(1, 1, 80), generator.normal(0, 1, 120))
        covered += interval.low <= stats.norm.cdf(1 / np.sqrt(2)) <= interval.high
    assert covered >= 360


def test_separated_scores_are_not_certain():
    """Ten perfectly separated scores do not give an interval of one point; nor do scores that are all tied."""
    assert auc_interval(np.arange(10.0) + 20, np.arange(10.0)).low == pytest.approx(0.691503, abs=1e-6)
    tied = auc_interval(np.zeros(10), np.zeros(10))
    assert tied.low < 0.3 < 0.5 == tied.value < 0.7 < tied.high


def test_bootstrap_of_a_mean_is_near_the_normal_interval():
    """For a mean of 400 values the percentile interval is the usual one, to a tenth of its width; seeds repeat it."""
    values = np.random.default_rng(2).normal(3, 2, 400)
    first, second = (bootstrap(lambda each: each.mean(axis=1), [values], np.random.default_rng(3)) for _ in "ab")
    half = 1.96 * values.std() / 20
    assert (first.low, first.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.2 * half)
    assert first == second


def _mean(values):
    return values.mean(axis=-1)


@pytest.mark.parametrize(("statistic", "shape"), [(_mean, (300,)), (lambda rows: np.median(rows, axis=-1), (7,))])
def test_bootstrap_is_that_of_one_replicate_after_the_other(statistic, shape):
    """Many replicates at once give the bits of as many, each drawn and computed alone."""
    values, replicates = np.random.default_rng(4).normal(size=shape), 5_000
    generator = np.random.default_rng(5)
    alone = [float(statistic(values[generator.integers(len(values), size=len(values))])) for _ in range(replicates)]
    found = bootstrap(statistic, [values], np.random.default_rng(5), level=0.05, replicates=replicates)
    assert (found.low, found.high) == tuple(np.quantile(alone, [0.025, 0.975]))


def test_bootstrap_resamples_each_sample_and_keeps_rows_together():
    """Of two samples each is drawn from alone; of pairs that sum to 1 every resampled mean does."""
    generator = np.random.default_rng(6)
    gap = bootstrap(lambda one, other: _mean(other) - _mean(one), [np.zeros(9), np.ones(5)], generator)
    assert (gap.low, gap.high) == (1, 1)
    share = generator.random(50)
    pairs = np.column_stack([share, 1 - share])
    both = bootstrap(lambda rows: rows.sum(axis=-1).mean(axis=-1), [pairs], generator)
    assert (both.low, both.high) == pytest.approx((1, 1))


def test_many_tests_are_corrected():
    """Bonferroni divides the level; Holm's adjusted values are those worked out by hand."""
    assert bonferroni(0.05, 5) == pytest.approx(0.01)
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([0.9, 0.8]) == (1.0, 1.0)
    assert holm([]) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: clopper_pearson(1, 0),
        lambda: clopper_pearson(3, 2),
        lambda: clopper_pearson(1, 2, level=0.0),
        lambda: auc_interval(np.zeros(1), np.zeros(5)),
        lambda: bootstrap(lambda each: each.mean(axis=1), [np.zeros(0)], np.random.default_rng(0)),
        lambda: bonferroni(0.05, 0),
    ],
)
def test_impossible_numbers_are_refused(wrong):
    """Counts, levels and samples that make no sense are bad input."""
    with pytest.raises(BadInput):
        wrong()
