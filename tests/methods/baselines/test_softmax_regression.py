"""Softmax regression: the hand-written SGD is torch's, and the converged head is a minimum."""

import numpy as np
import pytest

from methods.baselines import softmax_regression
from methods.baselines.softmax_regression import by_lbfgs, by_sgd, softmax
from secagg.errors import BadInput

DRAWS = np.random.default_rng(3)
LABELS = DRAWS.integers(0, 4, 300)
FEATURES = DRAWS.normal(size=(300, 5)) + 1.5 * np.eye(5)[LABELS]


def by_torch(features, labels, classes, generator):
    """The same training by torch's own layer, loss, gradient and optimiser."""
    import torch

    layer = torch.nn.Linear(features.shape[1], classes)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9)
    inputs, targets = torch.from_numpy(features.astype(np.float32)), torch.from_numpy(labels)
    for _ in range(50):
        for rows in torch.from_numpy(generator.permutation(len(labels))).split(128):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(layer(inputs[rows]), targets[rows]).backward()
            optimizer.step()
    return layer.weight.detach().numpy(), layer.bias.detach().numpy()


@pytest.mark.parametrize("n", [1, 5, 128, 300])
def test_sgd_is_torchs(n):
    """Weights and biases are those of torch's SGD over the same batches, the short last one included."""
    head = by_sgd(FEATURES[:n], LABELS[:n], 4, np.random.default_rng(1))
    weight, bias = by_torch(FEATURES[:n], LABELS[:n], 4, np.random.default_rng(1))
    assert head.weight == pytest.approx(weight, abs=2e-5)
    assert head.bias == pytest.approx(bias, abs=2e-5)


def test_converged_head_is_a_minimum():
    """At the head of L-BFGS the gradient of the mean cross-entropy, computed here, vanishes."""
    head = by_lbfgs(FEATURES, LABELS, 4)
    errors = softmax(FEATURES @ head.weight.T.astype(np.float64) + head.bias) - np.eye(4)[LABELS]
    assert np.abs(errors.T @ FEATURES / 300).max() < 1e-4
    assert np.abs(errors.mean(axis=0)).max() < 1e-4


def test_softmax_of_large_scores():
    """Scores beyond the exponential's range give probabilities, and a row's constant does not matter."""
    scores = np.array([[1000.0, 1000.0, -1000.0], [-3000.0, -3000.0, -5000.0]])
    assert softmax(scores) == pytest.approx(np.array([[0.5, 0.5, 0.0]] * 2))


def test_divergence_is_refused():
    """Features too long for the published rate end in a refusal, not in a head of infinities."""
    with pytest.raises(BadInput, match="too long to train on"):
        by_sgd(FEATURES * 1e30, LABELS, 4, np.random.default_rng(0))


def test_published_settings():
    """Epochs, batch, rate and momentum of Guan et al. 2025, section 4."""
    module = softmax_regression
    assert (module.EPOCHS, module.BATCH, module.RATE, module.MOMENTUM) == (50, 128, 0.01, 0.9)
