"""Softmax regression from zero weights, and baselines that train it on pooled records or on each client's own.

To convergence, or as Guan et al. 2025 (section 4) train one-shot baselines: both minimise the mean cross-entropy.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from methods.baselines.baseline import NUMBER, ClientData, Fitted, Linear, head_bytes, holders, pooled
from secagg.errors import BadInput
from secagg.heads import LinearHead
from secagg.system.threads import one_thread

if TYPE_CHECKING:
    import torch

Real = TypeVar("Real", np.float32, np.float64)
STEPS = 500
"""The most iterations of L-BFGS."""
EPOCHS, BATCH, RATE, MOMENTUM = 50, 128, 0.01, 0.9
"""Settings of SGD for FedAvg, the ensemble and FedPFT in Guan et al. 2025."""


def by_sgd(
    features: NDArray[np.float64], labels: NDArray[np.int64], classes: int, generator: np.random.Generator
) -> LinearHead:
    """Return the softmax head trained by SGD for EPOCHS on features (n, d) with labels (n,), n ≥ 1.

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
    """Return probabilities (n, C) of scores (n, C), row by row."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: NDArray[Real] = powers / powers.sum(axis=1, keepdims=True)
    return shares


def by_lbfgs(features: NDArray[np.float64], labels: NDArray[np.int64], classes: int) -> LinearHead:
    """Return the softmax head trained by L-BFGS, at most STEPS iterations, on features (n, d) with labels (n,)."""
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
    """Return a linear layer whose weights are all 0."""
    import torch

    layer = torch.nn.Linear(dimension, classes)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    return layer


def head_of(layer: torch.nn.Linear) -> LinearHead:
    """Return a torch linear layer's weight and bias as a `LinearHead`."""
    return LinearHead(layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy())


@dataclass(frozen=True)
class Centralised:
    """The baseline of one softmax head, trained by L-BFGS on all clients' records; the seed changes nothing."""

    name: ClassVar[str] = "centralised"
    leaves: ClassVar[str] = "every record, with its label"
    protections: ClassVar[str] = (
        "training needs the records themselves, and no secure sum holds a record; the same head under a finite epsilon "
        "is the baseline dp-sgd"
    )

    def fit(self, clients: Sequence[ClientData], classes: int, seed: int) -> Fitted:
        """Train one head on all records. A client sends d features in float32 and a label per record."""
        everything = pooled(clients)
        head = by_lbfgs(everything.features, everything.labels, classes)
        numbers = everything.features.shape[1] + 1
        return Fitted((Linear(head),), NUMBER * numbers * max(map(len, clients)), client_seconds=0.0)


def local_heads(clients: Sequence[ClientData], classes: int, seed: int) -> tuple[tuple[LinearHead, ...], float]:
    """Return the head of each client that has records, in the clients' order, and the CPU seconds that training took.

    Raises BadInput where none has.
    """
    holders(clients)
    start = time.process_time()
    each = zip(clients, np.random.default_rng(seed).spawn(len(clients)), strict=True)
    heads = tuple(by_sgd(own.features, own.labels, classes, stream) for own, stream in each if len(own))
    return heads, time.process_time() - start


@dataclass(frozen=True)
class LocalOnly:
    """The baseline in which each client trains a head on its own records; accuracy is the mean over these clients.

    Measured on the common held-out records, so that a client which lacks classes is wrong on them; Guan et al. 2025
    (Table 3) measure on records distributed like the client's own.
    """

    name: ClassVar[str] = "local-only"
    leaves: ClassVar[str] = "nothing"
    protections: ClassVar[str] = "nothing leaves a client, so that there is nothing to protect and no sum to make"

    def fit(self, clients: Sequence[ClientData], classes: int, seed: int) -> Fitted:
        """Return one head per client, each trained on the client's own records."""
        heads, seconds = local_heads(clients, classes, seed)
        return Fitted(tuple(map(Linear, heads)), 0, seconds)


@dataclass(frozen=True)
class Ensemble:
    """The baseline that predicts by the mean of the clients' softmax outputs (Guha et al. 2019)."""

    name: ClassVar[str] = "ensemble"
    leaves: ClassVar[str] = "a head trained on the client's records alone"
    protections: ClassVar[str] = (
        "no secure sum, as the server needs every client's own head: the mean is of their outputs, not of their "
        "weights; no finite epsilon, as one record moves a trained head without a bound"
    )

    def fit(self, clients: Sequence[ClientData], classes: int, seed: int) -> Fitted:
        """Train a head at each client; return the predictor that averages their outputs. A client sends its head."""
        heads, seconds = local_heads(clients, classes, seed)
        return Fitted((MeanOutput(heads),), head_bytes(*heads[0].weight.shape), seconds)


@dataclass(frozen=True)
class MeanOutput:
    """A predictor that averages the softmax outputs of several heads, each with the same weight."""

    heads: tuple[LinearHead, ...]

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the class with the largest mean probability; ties go to the lower class."""
        mean = np.zeros((len(features), len(self.heads[0].bias)))
        for head in self.heads:
            mean += softmax(features @ head.weight.T.astype(np.float64) + head.bias)
        best: NDArray[np.int64] = np.argmax(mean, axis=1).astype(np.int64)
        return best
