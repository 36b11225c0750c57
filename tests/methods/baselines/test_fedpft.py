"""FedPFT: what is sent is a mixture in float16, small cells are kept, and samples are of it."""

import math

import numpy as np
import pytest

from methods.baselines import fedpft
from methods.baselines.baseline import ClientData
from methods.baselines.fedpft import LEAST_VARIANCE, FedPFT, Mixture
from secagg.errors import BadInput

DRAWS = np.random.default_rng(6)
CENTRES = np.array([[0.0, 8.0, 0.0], [6.0, 0.0, 0.0]])
TWO = np.repeat(CENTRES, [200, 600], axis=0) + DRAWS.normal(size=(800, 3)) * np.repeat([0.5, 1.0], [200, 600])[:, None]


def of(features, label=0):
    """A client whose records are all of one class."""
    return ClientData.of(features, np.full(len(features), label))


def test_mixture_finds_the_components():
    """Two separate clusters give two components with the clusters' shares, means and variances, in float16."""
    mixture = FedPFT(components=2).mixture(TWO, seed=0)
    assert {part.dtype for part in (mixture.weights, mixture.means, mixture.variances)} == {np.dtype(np.float16)}
    order = np.argsort(mixture.weights)
    assert mixture.weights[order] == pytest.approx([0.25, 0.75], abs=1e-3)
    for component, part in zip(order, (TWO[:200], TWO[200:]), strict=True):
        assert mixture.means[component] == pytest.approx(part.mean(axis=0), abs=5e-3)
        assert mixture.variances[component] == pytest.approx(part.var(axis=0), rel=5e-3)


def test_one_component_is_mean_and_variance():
    """With K = 1 the mixture is the mean and the variances with the divisor n, rounded to float16."""
    mixture = FedPFT(components=1).mixture(TWO, seed=0)
    assert (mixture.means[0] == TWO.mean(axis=0).astype(np.float16)).all()
    assert mixture.variances[0] == pytest.approx(TWO.var(axis=0) + LEAST_VARIANCE, rel=1e-3)
    assert mixture.weights.tolist() == [1.0]


@pytest.mark.parametrize("n", [1, 2, 9, 10, 11])
def test_small_cells_have_a_component_per_record(n):
    """n records up to K have n components: the records themselves, with the least variance."""
    mixture = FedPFT().mixture(TWO[:n], seed=0)
    assert mixture.weights.shape == (min(n, 10),)
    if n <= 10:
        sent = np.sort(mixture.means, axis=0)
        assert (sent == np.sort(TWO[:n].astype(np.float16), axis=0)).all()
        assert mixture.variances == pytest.approx(LEAST_VARIANCE, rel=0.1)


def test_equal_records_are_no_trouble():
    """Fewer different records than components are fitted without a word, and every sample is next to one of them."""
    mixture = FedPFT().mixture(np.ones((30, 3)), seed=0)
    assert np.abs(mixture.sample(100, np.random.default_rng(0)) - 1).max() < 0.01


def test_samples_are_of_the_mixture():
    """40,000 samples have the mixture's shares, means and variances, computed here from what is sent.

    Shares, means and variances within 6 standard errors: false failures below 10⁻⁷.
    """
    mixture = FedPFT(components=2).mixture(TWO, seed=0)
    sampled = mixture.sample(40_000, np.random.default_rng(4))
    first = np.argmax(mixture.weights)
    own = np.linalg.norm(sampled - mixture.means[first], axis=1) < np.linalg.norm(
        sampled - mixture.means[1 - first], axis=1
    )
    share = float(mixture.weights[first]) / float(mixture.weights.sum(dtype=np.float64))
    assert own.mean() == pytest.approx(share, abs=6 * math.sqrt(share * (1 - share) / 40_000))
    for component, part in ((first, sampled[own]), (1 - first, sampled[~own])):
        variances = mixture.variances[component].astype(np.float64)
        errors = 6 * np.sqrt(variances / len(part))
        assert (np.abs(part.mean(axis=0) - mixture.means[component]) < errors).all()
        assert part.var(axis=0) == pytest.approx(variances, rel=6 * math.sqrt(2 / len(part)))


@pytest.mark.parametrize(("fewest", "expected"), [(1, {0: 30, 1: 10, 2: 1}), (11, {0: 30})])
def test_as_many_samples_as_records(monkeypatch, fewest, expected):
    """The server draws n_kj features per client and class; the published rule leaves out cells of 10 and fewer."""
    seen = []

    def watched(features, labels, classes, generator):
        seen.append((features, labels))
        return trained(features, labels, classes, generator)

    trained = fedpft.by_sgd
    monkeypatch.setattr(fedpft, "by_sgd", watched)
    clients = [of(TWO[:10], 1), of(TWO[200:230]), of(TWO[:1], 2)]
    FedPFT(fewest=fewest).fit(clients, 3, seed=0)
    ((features, labels),) = seen
    assert features.shape == (sum(expected.values()), 3)
    assert {int(label): int((labels == label).sum()) for label in np.unique(labels)} == expected
    assert np.abs(features[labels == 0].mean(axis=0) - CENTRES[1]).max() < 2


def test_nothing_left_is_refused():
    """Where every cell is too small for the published rule there is nothing to train on, and it says so."""
    with pytest.raises(BadInput, match="no client has 11 records of a class"):
        FedPFT(fewest=11).fit([of(TWO[:10]), of(TWO[:3], 1)], 2, seed=0)


def test_features_beyond_float16_are_refused():
    """A feature above 65,504 would be sent as infinity."""
    with pytest.raises(BadInput, match="too large for the float16"):
        FedPFT().mixture(TWO * 1e5, seed=0)


def test_size_is_that_of_the_arrays():
    """Bytes of what is sent: (2d + 1)·K float16."""
    zeros = np.zeros((10, 512), dtype=np.float16)
    assert Mixture(np.ones(10, dtype=np.float16), zeros, zeros).size == 2 * (2 * 512 + 1) * 10


@pytest.mark.parametrize("field", ["components", "iterations", "fewest"])
def test_settings_below_one_are_refused(field):
    """No number of components, iterations or records is below 1."""
    with pytest.raises(BadInput, match="1 or more"):
        FedPFT(**{field: 0})
