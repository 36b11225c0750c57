"""Every client trains a linear head on its own records; two ways to use them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from methods.baselines.baseline import ClientData, Fitted, Linear, head_bytes, holders
from methods.baselines.softmax_regression import by_sgd, softmax
from secagg.heads import LinearHead

OWN_HEAD = "a head trained on the client's records alone"


def local_heads(clients: Sequence[ClientData], classes: int, seed: int) -> tuple[tuple[LinearHead, ...], float]:
    """Return each client's head, in their order, for those that have records, and the CPU seconds that it took.

    Raises BadInput where none has.
    """
    holders(clients)
    start = time.process_time()
    each = zip(clients, np.random.default_rng(seed).spawn(len(clients)), strict=True)
    heads = tuple(by_sgd(own.features, own.labels, classes, stream) for own, stream in each if len(own))
    return heads, time.process_time() - start


@dataclass(frozen=True)
class LocalOnly:
    """What a client has that does not take part: the mean accuracy of W_k, over the clients k that have records.

    Measured on the common held-out records, so that a client which lacks classes is wrong on them; Guan et al. 2025
    (Table 3) measure on records distributed like the client's own.
    """

    name: ClassVar[str] = "local-only"
    leaves: ClassVar[str] = "nothing"
    protections: ClassVar[str] = "nothing leaves a client, so that there is nothing to protect and no sum to make"

    def fit(self, clients: Sequence[ClientData], classes: int, seed: int) -> Fitted:
        """One head per client, each from its own records."""
        heads, seconds = local_heads(clients, classes, seed)
        return Fitted(tuple(map(Linear, heads)), 0, seconds)


@dataclass(frozen=True)
class Ensemble:
    """argmax_y Σ_k softmax(W_k·f + b_k)_y: the mean of the clients' predictions (Guha et al. 2019)."""

    name: ClassVar[str] = "ensemble"
    leaves: ClassVar[str] = OWN_HEAD
    protections: ClassVar[str] = (
        "no secure sum, as the server needs every client's own head: the mean is of their outputs, not of their "
        "weights; no finite epsilon, as one record moves a trained head without a bound"
    )

    def fit(self, clients: Sequence[ClientData], classes: int, seed: int) -> Fitted:
        """The clients' heads side by side. A client sends its head."""
        heads, seconds = local_heads(clients, classes, seed)
        return Fitted((MeanOutput(heads),), head_bytes(*heads[0].weight.shape), seconds)


@dataclass(frozen=True)
class MeanOutput:
    """Predicts by the mean of the heads' softmax outputs, each with the same weight."""

    heads: tuple[LinearHead, ...]

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """The class with the largest mean probability; ties go to the lower class."""
        mean = np.zeros((len(features), len(self.heads[0].bias)))
        for head in self.heads:
            mean += softmax(features @ head.weight.T.astype(np.float64) + head.bias)
        best: NDArray[np.int64] = np.argmax(mean, axis=1).astype(np.int64)
        return best
