"""CCVR: the merged moments are those of the pooled records, and virtual features have them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.baselines.baseline import ClientData
from methods.baselines.ccvr import CCVR, Moments, merged
from secagg.errors import BadInput

DRAWS = np.random.default_rng(8)
MIXING = DRAWS.normal(size=(4, 4))
FEATURES = DRAWS.normal(size=(60, 4)) @ MIXING + 10


@given(st.lists(st.integers(1, 59), max_size=8, unique=True))
def test_merged_moments_are_those_of_the_union(cuts):
    """For any division, parts of one record included, mean and covariance are numpy's of all records."""
    parts = [Moments.of(part) for part in np.split(FEATURES, sorted(cuts))]
    whole = merged(parts)
    assert whole.count == 60
    assert whole.mean == pytest.approx(FEATURES.mean(axis=0), rel=1e-12)
    assert whole.covariance == pytest.approx(np.cov(FEATURES, rowvar=False), rel=1e-9, abs=1e-11)


def test_published_form_of_the_covariance():
    """The covariance equals Luo et al.'s Σ (n_k−1)/(n−1)·Σ_k + Σ n_k/(n−1)·μ_k·μ_kᵀ − n/(n−1)·μ·μᵀ."""
    parts = [Moments.of(part) for part in np.split(FEATURES, [7, 30])]
    n, mean = 60, FEATURES.mean(axis=0)
    published = sum(
        (part.count - 1) * part.covariance + part.count * np.outer(part.mean, part.mean) for part in parts
    ) / (n - 1) - n / (n - 1) * np.outer(mean, mean)
    assert merged(parts).covariance == pytest.approx(published, rel=1e-7, abs=1e-9)


def test_a_single_record_has_no_spread():
    """One record has itself as mean and the covariance 0, and every virtual feature is that record."""
    moments = Moments.of(FEATURES[:1])
    assert (moments.mean == FEATURES[0]).all()
    assert not moments.covariance.any()
    assert (CCVR(virtual=5)._sample(moments, np.random.default_rng(0)) == FEATURES[0]).all()


def test_virtual_features_have_the_moments():
    """20,000 virtual features have the given mean and covariance, also where the covariance has no full rank.

    Means within 6 standard errors (false failures below 10⁻⁷ for 4 of them); covariances within 0.07 of the largest
    variance, above 6 standard errors √2/√20,000 of any entry.
    """
    for features in (FEATURES, FEATURES[:3]):
        moments = Moments.of(features)
        sampled = CCVR(virtual=20_000)._sample(moments, np.random.default_rng(1))
        deviations = np.sqrt(np.diag(moments.covariance))
        assert (np.abs(sampled.mean(axis=0) - moments.mean) < 6 * deviations / np.sqrt(20_000) + 1e-9).all()
        assert np.abs(np.cov(sampled, rowvar=False) - moments.covariance).max() < 0.07 * deviations.max() ** 2


@pytest.mark.parametrize(("virtual", "expected"), [(0, [2, 58]), (9, [9, 9])])
def test_number_of_virtual_features(monkeypatch, virtual, expected):
    """As many per class as there are records, or as many as were asked for; labels go with them."""
    seen = []

    def watched(features, labels, classes, generator):
        seen.append((features, labels))
        return trained(features, labels, classes, generator)

    from methods.baselines import ccvr

    trained = ccvr.by_sgd
    monkeypatch.setattr(ccvr, "by_sgd", watched)
    labels = np.repeat([0, 2], [2, 58])
    shifted = FEATURES + 100 * (labels == 2)[:, None]
    clients = [ClientData.of(shifted[rows], labels[rows]) for rows in np.array_split(np.arange(60), 3)]
    CCVR(virtual).fit(clients, 3, seed=0)
    ((features, given_labels),) = seen
    assert np.bincount(given_labels, minlength=3).tolist() == [expected[0], 0, expected[1]]
    assert ((features.mean(axis=1) > 60) == (given_labels == 2)).all()


def test_partition_moves_the_head_by_rounding_alone():
    """Any division of the records gives the same head within 10⁻⁴ of its largest weight."""
    labels = np.arange(60) % 2
    features = FEATURES / 20 + labels[:, None]
    heads = [
        CCVR().fit([ClientData.of(features[own], labels[own]) for own in np.array_split(order, parts)], 2, seed=3)
        for order, parts in [(np.arange(60), 1), (np.arange(60)[::-1], 7), (np.argsort(labels, kind="stable"), 2)]
    ]
    first, *others = (fitted.predictors[0].head for fitted in heads)
    for other in others:
        assert other.weight == pytest.approx(first.weight, abs=1e-4 * float(np.abs(first.weight).max()))


def test_negative_number_is_refused():
    """Fewer than no virtual features cannot be."""
    with pytest.raises(BadInput, match="cannot sample -1"):
        CCVR(-1)
