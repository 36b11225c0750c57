"""FedTC as its paper has it: every client sends a set of prototypes, means of batches of its own records, in the clear.

`methods.fedtc` is the form with a secure sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from methods.baselines.baseline import NUMBER, ClientData, Fitted, Linear, holders
from methods.fedtc import fit, nearest
from secagg.errors import BadInput


@dataclass(frozen=True)
class FedTCSet:
    """Cosine filter, random batches of a class without replacement, their means, one head for all of them.

    `keep` α and `batch` B as in the paper (Eq. 1-4); a last batch of fewer than B records is dropped, as there. A class
    of which a client keeps fewer than B records would vanish with it: these make one short batch. `epochs` and
    `momentum` of SGD as in `methods.fedtc`, every prototype weighing the same.
    """

    keep: float = 0.99
    batch: int = 5
    epochs: int = 200
    momentum: float = 0.9

    name: ClassVar[str] = "fedtc-set"
    leaves: ClassVar[str] = "means of a few of the client's own records of a class, and how many there are of them"
    protections: ClassVar[str] = (
        "the server trains on every client's own prototypes, a set that has no sum, and the filter ranks records, so "
        "that no finite epsilon is possible; fedtc sums slots instead, under every protection"
    )

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1 or self.batch < 1 or self.epochs < 1 or not 0 <= self.momentum < 1:
            problem = f"keep {self.keep}, batch {self.batch}, epochs {self.epochs} and momentum {self.momentum}"
            raise BadInput(problem, remedy="keep is above 0 and at most 1, the momentum from 0 to below 1")

    def fit(self, clients: Sequence[ClientData], classes: int, seed: int) -> Fitted:
        """One head; the seed decides the batches. A client sends d float32 and a class for each prototype."""
        generator = np.random.default_rng(seed)
        sets = [self.prototypes(client, generator) for client in holders(clients)]
        rows, labels = (np.concatenate(parts) for parts in zip(*sets, strict=True))
        head = fit(rows, labels, np.ones(len(labels)), classes, self.epochs, self.momentum)
        return Fitted((Linear(head),), NUMBER * (rows.shape[1] + 1) * max(len(own) for _, own in sets))

    def prototypes(
        self, client: ClientData, generator: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return what a client with records sends: means (k, d) and their classes (k,)."""
        kept = client.take(nearest(client.features, client.labels, self.keep))
        means, labels = [], []
        for label in np.unique(kept.labels):
            own = generator.permutation(kept.features[kept.labels == label])
            size = min(self.batch, len(own))
            own = own[: len(own) // size * size]
            means.append(own.reshape(-1, size, own.shape[1]).mean(axis=1))
            labels.append(np.full(len(means[-1]), label))
        return np.concatenate(means), np.concatenate(labels)
