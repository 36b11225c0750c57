"""CCVR: a head trained on virtual features from class-wise Gaussians (Luo et al. 2021)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from methods.baselines.baseline import NUMBER, ClientData, Fitted, Linear, holders
from methods.baselines.softmax_regression import by_sgd
from secagg.errors import BadInput


@dataclass(frozen=True, eq=False)
class Moments:
    """Of the records of one class: their number n ≥ 1, mean (d,) and covariance (d, d) with the divisor n − 1.

    A single record has the covariance 0.
    """

    count: int
    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]

    @classmethod
    def of(cls, features: NDArray[np.float64]) -> Moments:
        """Those of features (n, d)."""
        mean = features.mean(axis=0)
        centred = features - mean
        return cls(len(features), mean, centred.T @ centred / max(1, len(features) - 1))


def merged(parts: Sequence[Moments]) -> Moments:
    """Return the moments of the union (Luo et al. 2021), up to rounding.

    μ = Σ n_k·μ_k/n; Σ = Σ (n_k − 1)/(n − 1)·Σ_k + Σ n_k/(n − 1)·(μ_k − μ)(μ_k − μ)ᵀ, written without the paper's
    difference of large numbers.
    """
    count = sum(part.count for part in parts)
    mean = np.average([part.mean for part in parts], axis=0, weights=[part.count for part in parts])
    scatter = np.zeros_like(parts[0].covariance)
    for part in parts:
        apart = part.mean - mean
        scatter += (part.count - 1) * part.covariance + part.count * np.outer(apart, apart)
    return Moments(count, mean, scatter / max(1, count - 1))


@dataclass(frozen=True)
class CCVR:
    """Clients send (n, μ, Σ) of each class; the server samples N(μ_j, Σ_j) of the merged moments and trains a head.

    `virtual`: features sampled per class, 0 for as many as the class has records (the paper's is chosen per data
    set). The paper calibrates the head of a model that FedAvg has trained; on frozen features there is none, and the
    head is trained from zero like every other one here.
    """

    virtual: int = 0

    name: ClassVar[str] = "ccvr"
    leaves: ClassVar[str] = "the number, mean and covariance of the client's own records of every class"
    protections: ClassVar[str] = (
        "in the published form each client's own means and covariances leave it in the clear; their merger depends on "
        "sums alone (counts, class sums, second moments of each class), which is not had here as a secure sum, nor "
        "with a finite epsilon: fedcgs is that, with one covariance for all classes"
    )

    def __post_init__(self) -> None:
        if self.virtual < 0:
            raise BadInput(f"ccvr cannot sample {self.virtual} features", remedy="give 0 or more")

    def fit(self, clients: Sequence[ClientData], classes: int, seed: int) -> Fitted:
        """One head. A client sends 1 + d + d² float32 for each class that it holds."""
        start = time.process_time()
        held: list[list[Moments]] = [[] for _ in range(classes)]
        for client in holders(clients):
            for label in np.unique(client.labels):
                held[label].append(Moments.of(client.features[client.labels == label]))
        seconds = time.process_time() - start
        generator = np.random.default_rng(seed)
        present = [label for label in range(classes) if held[label]]
        samples = [self._sample(merged(held[label]), generator) for label in present]
        labels = np.repeat(present, [len(sample) for sample in samples])
        head = by_sgd(np.concatenate(samples), labels, classes, generator)
        dimension = head.weight.shape[1]
        most = max(len(np.unique(client.labels)) for client in clients)
        return Fitted((Linear(head),), NUMBER * (1 + dimension + dimension**2) * most, seconds)

    def _sample(self, moments: Moments, generator: np.random.Generator) -> NDArray[np.float64]:
        """Virtual features through Σ^½, the one root that rounding in Σ moves little."""
        values, vectors = np.linalg.eigh(moments.covariance)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        draws = generator.standard_normal((self.virtual or moments.count, len(values)))
        sampled: NDArray[np.float64] = moments.mean + draws @ root
        return sampled
