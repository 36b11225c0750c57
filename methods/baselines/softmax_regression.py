"""Softmax regression from zero weights: to convergence, or as Guan et al. 2025 (section 4) train one-shot baselines.

Both minimise the mean cross-entropy, without a penalty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.heads import LinearHead
from secagg.system.threads import one_thread

if TYPE_CHECKING:
    import torch

Real = TypeVar("Real", np.float32, np.float64)
STEPS = 500
"""Most iterations of L-BFGS."""
EPOCHS, BATCH, RATE, MOMENTUM = 50, 128, 0.01, 0.9
"""Of FedAvg, the ensemble and FedPFT in Guan et al. 2025."""


def by_sgd(
    features: NDArray[np.float64], labels: NDArray[np.int64], classes: int, generator: np.random.Generator
) -> LinearHead:
    """Return the head after EPOCHS of SGD over features (n, d), labels (n,), n ≥ 1, shuffled by `generator`.

    As `torch.optim.SGD` with momentum does it, in float32, the short last batch included; by hand, which is six times
    as fast. The published heads start at torch's random weights; these at zero, which the clients of a FedAvg then
    have in common. Raises BadInput when training leaves the finite numbers.
    """
    inputs = np.column_stack([features, np.ones(len(features))]).astype(np.float32)
    targets = np.eye(classes, dtype=np.float32)[labels]
    weight = np.zeros((inputs.shape[1], classes), dtype=np.float32)
    velocity = np.zeros_like(weight)
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        for _ in range(EPOCHS):
            order = generator.permutation(len(inputs))
            for start in range(0, len(order), BATCH):
                rows = order[start : start + BATCH]
                batch = inputs[rows]
                velocity *= MOMENTUM
                velocity += batch.T @ ((softmax(batch @ weight) - targets[rows]) / np.float32(len(rows)))
                weight -= RATE * velocity
    if not np.isfinite(weight).all():
        raise BadInput("the features are too long to train on at the published rate", remedy="use --normalise")
    return LinearHead(np.ascontiguousarray(weight[:-1].T), weight[-1].copy())


def softmax(scores: NDArray[Real]) -> NDArray[Real]:
    """Probabilities (n, C) of scores (n, C), row by row."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: NDArray[Real] = powers / powers.sum(axis=1, keepdims=True)
    return shares


def by_lbfgs(features: NDArray[np.float64], labels: NDArray[np.int64], classes: int) -> LinearHead:
    """Return the head after at most STEPS iterations of L-BFGS over features (n, d) with labels (n,), n ≥ 1."""
    import torch

    inputs, targets = torch.from_numpy(features.astype(np.float32)), torch.from_numpy(labels.astype(np.int64))
    layer = zero_layer(features.shape[1], classes)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=STEPS, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(layer(inputs), targets)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with one_thread():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    return head_of(layer)


def zero_layer(dimension: int, classes: int) -> torch.nn.Linear:
    """A linear layer whose weights are all 0."""
    import torch

    layer = torch.nn.Linear(dimension, classes)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    return layer


def head_of(layer: torch.nn.Linear) -> LinearHead:
    """The layer's weights as a head of its own."""
    return LinearHead(layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy())
