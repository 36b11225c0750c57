"""The discriminant head against scikit-learn, and its corrections."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from secagg.encoding import Grid, accumulate, quantise
from secagg.errors import BadInput
from secagg.features import radius_of
from secagg.heads import head_digest, predict
from secagg.heads.discriminant import discriminant
from secagg.heads.linear import ABSENT_BIAS


def sample(seed=0, count=400, dimension=5, classes=3, shift=0.0):
    """Overlapping Gaussian classes of unequal size with one correlated covariance."""
    generator = np.random.default_rng(seed)
    labels = np.sort(generator.integers(0, classes, count) * generator.integers(0, 2, count))
    means = generator.normal(size=(classes, dimension))
    mixing = np.eye(dimension) + 0.4 * generator.normal(size=(dimension, dimension))
    return means[labels] + generator.normal(size=(count, dimension)) @ mixing + shift, labels


def head_of(features, labels, classes=3, covariance="within", ridge=0.0, centre=0.0):
    """The head from exact sums on a fine grid."""
    grid = Grid(radius_of(features, centre), 2**24, centre)
    aggregate = accumulate(quantise(features, grid), labels, classes, grid.levels)
    return discriminant(aggregate, grid, covariance=covariance, ridge=ridge)


def scores(head, features):
    """Scores less their mean over classes: what decides."""
    raw = features @ head.weight.T.astype(np.float64) + head.bias
    return raw - raw.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(5))
def test_within_is_linear_discriminant_analysis(seed):
    """Scores are those of scikit-learn's LDA, whose covariance has the divisor N instead of N − C."""
    features, labels = sample(seed)
    reference = LinearDiscriminantAnalysis(solver="lsqr").fit(features, labels)
    prior = np.log(reference.priors_)
    expected = (reference.decision_function(features) - prior) * (400 - 3) / 400 + prior
    got = scores(head_of(features, labels), features)
    assert np.allclose(got, expected - expected.mean(axis=1, keepdims=True), atol=2e-4)


@pytest.mark.parametrize("covariance", ["within", "total"])
def test_scores_are_the_papers_equation(covariance):
    """Decisions are Eq. 10's, w = Σ⁻¹μ and b = log π − ½ μᵀΣ⁻¹μ, with the chosen covariance."""
    features, labels = sample(3)
    means = np.array([features[labels == j].mean(axis=0) for j in range(3)])
    within = sum((labels == j).sum() * np.cov(features[labels == j].T, bias=True) for j in range(3)) / (400 - 3)
    inverse = np.linalg.inv(within if covariance == "within" else np.cov(features.T))
    bias = np.log(np.bincount(labels) / 400) - 0.5 * np.einsum("jd,de,je->j", means, inverse, means)
    expected = features @ inverse @ means.T + bias
    got = scores(head_of(features, labels, covariance=covariance), features)
    assert np.allclose(got, expected - expected.mean(axis=1, keepdims=True), atol=2e-4)


def test_ridge_scales_with_the_trace():
    """γ adds γ·tr(Σ)/d to the diagonal, whatever the features' unit."""
    features, labels = sample(4)
    means = np.array([features[labels == j].mean(axis=0) for j in range(3)])
    sigma = np.cov(features.T)
    inverse = np.linalg.inv(sigma + 0.3 * np.trace(sigma) / 5 * np.eye(5))
    head = head_of(features, labels, covariance="total", ridge=0.3)
    assert np.allclose(head.weight, (means - features.mean(axis=0)) @ inverse, atol=1e-4)
    small = head_of(features / 1000, labels, covariance="total", ridge=0.3)
    assert np.allclose(small.weight / 1000, head.weight, atol=1e-4)


@pytest.mark.parametrize("centre", [0.5, -3.0])
def test_centre_of_the_grid_does_not_matter(centre):
    """The head is in feature units: the grid's centre changes nothing but rounding."""
    features, labels = sample(5)
    plain, moved = head_of(features, labels), head_of(features, labels, centre=centre)
    assert np.allclose(scores(plain, features), scores(moved, features), atol=2e-4)


def test_absent_class_never_wins():
    """A class without records has zero weights and the lowest bias; the others are as without it."""
    features, labels = sample(6, classes=2)
    head = head_of(features, labels * 3, classes=5)
    two = head_of(features, labels, classes=2)
    assert head.present.tolist() == [True, False, False, True, False]
    assert (head.bias[~head.present] == ABSENT_BIAS).all()
    assert (head.weight[[0, 3]] == two.weight).all()
    assert set(predict(head, features * 1e6)) <= {0, 3}


def test_dead_and_repeated_features_are_carried_by_the_ridge():
    """A constant column gets next to no weight; a repeated column shares it; the weights stay moderate."""
    features, labels = sample(7)
    wide = np.hstack([features, np.full((400, 1), 2.0), features[:, :1]])
    head = head_of(wide, labels, ridge=1e-6)
    assert np.abs(head.weight[:, 5]).max() < 1e-6
    assert np.allclose(head.weight[:, 0], head.weight[:, 6], rtol=1e-3, atol=1e-4)
    assert np.abs(head.weight).max() < 100
    assert (predict(head, wide) == predict(head_of(features, labels), features)).mean() > 0.99


@given(st.integers(0, 2**32), st.integers(2, 6))
def test_partition_changes_no_bit_of_the_head(seed, clients):
    """The head's digest is the same however the records are divided and ordered."""
    features, labels = sample(8, count=60)
    grid = Grid(radius_of(features))
    records = quantise(features, grid)
    whole = discriminant(accumulate(records, labels, 3, grid.levels), grid)
    order = np.random.default_rng(seed).permutation(60)
    parts = [accumulate(records[part], labels[part], 3, grid.levels) for part in np.array_split(order, clients)]
    summed = {name: np.sum([part[name] for part in parts], axis=0) for name in parts[0]}
    assert head_digest(discriminant(summed, grid)) == head_digest(whole)


GRID = Grid(1.0, 100)


def blocks(counts, sums, moment):
    """An aggregate from lists."""
    return {
        "counts": np.array(counts, dtype=np.int64),
        "class_sums": np.array(sums, dtype=np.int64),
        "second_moment": np.array(moment, dtype=np.int64),
    }


@pytest.mark.parametrize(
    ("aggregate", "words"),
    [
        (blocks([0, 0], [[0], [0]], [0]), "0 records"),
        (blocks([1, 1], [[5], [9]], [106]), "2 records of 2 classes"),
        (blocks([-1, 9], [[5], [9]], [106]), "8 records"),
        (blocks([2, 2], [[10], [18]], [212]), "not positive definite"),
        (blocks([2, 2], [[10], [18]], [100]), "not positive definite"),
    ],
)
def test_sum_that_gives_no_head_is_refused(aggregate, words):
    """Too few records, negative counts, no variation and an impossible covariance are refused."""
    with pytest.raises(BadInput, match=words):
        discriminant(aggregate, GRID)


@pytest.mark.parametrize("options", [{"covariance": "diagonal"}, {"ridge": -1.0}, {"ridge": float("nan")}])
def test_unknown_option_is_refused(options):
    """Another covariance and a negative or undefined ridge are refused."""
    with pytest.raises(BadInput):
        discriminant(blocks([2, 2], [[10], [18]], [300]), GRID, **options)
