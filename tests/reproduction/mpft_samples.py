"""MPFT's other prototypes as its paper has them: every client sends embeddings, or k-means centres, in the clear.

`methods.slots.mpft` is the form with a secure sum; its paper's average sampling is `--parameters slots=1` there.
"""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from methods.baselines.baseline import NUMBER, ClientData, Fitted, Linear, holders
from methods.slots.fedtc import MOST_EPOCHS
from secagg.errors import BadInput
from secagg.heads.descent import adapted_head
from secagg.system.extras import extra

Reals = NDArray[np.float64]


@dataclass(frozen=True)
class MPFTSamples(ABC):
    """⌈`rate`·n⌉ rows for each class of which a client has n records (paper Algorithm 1), and one adapter for all.

    The adapter and the frozen head, from the means of what was sent, are those of `methods.slots.mpft`.
    """

    rate: float = 0.1
    epochs: int = 200

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1 or self.epochs not in range(1, MOST_EPOCHS + 1):
            remedy = f"the rate is above 0 and at most 1, the epochs 1 to {MOST_EPOCHS}"
            raise BadInput(f"a rate of {self.rate} and {self.epochs} epochs", remedy=remedy)

    def fit(self, clients: Sequence[ClientData], classes: int, seed: int) -> Fitted:
        """One head; the seed decides what is sampled. A client sends d float32 and a class for each row."""
        generator = np.random.default_rng(seed)
        start = time.process_time()
        sets = [self.prototypes(client, generator) for client in holders(clients)]
        seconds = time.process_time() - start
        rows, labels = (np.concatenate(parts) for parts in zip(*sets, strict=True))
        head = adapted_head(rows, labels, np.ones(len(labels)), classes, self.epochs)
        return Fitted((Linear(head),), NUMBER * (rows.shape[1] + 1) * max(len(own) for _, own in sets), seconds)

    def prototypes(self, client: ClientData, generator: np.random.Generator) -> tuple[Reals, NDArray[np.int64]]:
        """Return what a client with records sends: rows (k, d) and their classes (k,)."""
        rows, labels = [], []
        for label in np.unique(client.labels):
            own = client.features[client.labels == label]
            rows.append(self._sample(own, math.ceil(self.rate * len(own)), generator))
            labels.append(np.full(len(rows[-1]), label))
        return np.concatenate(rows), np.concatenate(labels)

    @abstractmethod
    def _sample(self, features: Reals, count: int, generator: np.random.Generator) -> Reals:
        """`count` ≤ n rows (count, d) that stand for `features` (n, d)."""


@dataclass(frozen=True)
class MPFTRandom(MPFTSamples):
    """Random sampling: embeddings of single records, without replacement."""

    name: ClassVar[str] = "mpft-random"
    leaves: ClassVar[str] = "embeddings of some of the client's own records, each as it is"
    protections: ClassVar[str] = (
        "no secure sum and no finite epsilon, as an embedding of one record leaves the client; mpft sums the records "
        "of a class in a domain, or of a slot of it, under every protection"
    )

    def _sample(self, features: Reals, count: int, generator: np.random.Generator) -> Reals:
        return features[generator.choice(len(features), count, replace=False)]


@dataclass(frozen=True)
class MPFTCluster(MPFTSamples):
    """Cluster sampling: the centres of scikit-learn's k-means, started once by k-means++, of which some are records."""

    name: ClassVar[str] = "mpft-cluster"
    leaves: ClassVar[str] = "k-means centres of the client's own records of a class, many of them of a few records"
    protections: ClassVar[str] = (
        "no secure sum and no finite epsilon, as every client clusters its own records and a centre may be one of "
        "them; mpft with sampling=cluster takes the steps of k-means in secure sums over all clients"
    )

    def _sample(self, features: Reals, count: int, generator: np.random.Generator) -> Reals:
        with extra("experiments"):
            from sklearn.cluster import KMeans
            from sklearn.exceptions import ConvergenceWarning
            from threadpoolctl import threadpool_limits

        model = KMeans(count, n_init=1, random_state=int(generator.integers(2**32)))
        # Threads would add up in an order of their own.
        with warnings.catch_warnings(), threadpool_limits(limits=1):
            warnings.simplefilter("ignore", ConvergenceWarning)  # equal records give fewer clusters, which is fine
            centres: Reals = model.fit(features).cluster_centers_
        return centres
