"""FedTC as its paper has it: every client sends a set of prototypes, means of batches of its own records, in the clear.

`methods.slots.fedtc` is the form with a secure sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from methods.baselines.baseline import NUMBER, ClientData, Fitted, Linear, holders
from methods.baselines.paper_noise import paper_noise
from methods.slots.fedtc import fit, nearest
from secagg.errors import BadInput

DELTA = 1e-5
"""The δ at which a note states ε."""
ROUNDED = 1e-3
"""Records of length 1 are no further from it than this, once they are integers."""


@dataclass(frozen=True)
class FedTCSet:
    """Cosine filter, random batches of a class without replacement, their means, one head for all of them.

    `keep` α and `batch` B as in the paper (Eq. 1-4); a last batch of fewer than B records is dropped, as there. A class
    of which a client keeps fewer than B records would vanish with it: these make one short batch. `epochs` and
    `momentum` of SGD as in `methods.slots.fedtc`, every prototype weighing the same.

    `noise` is the paper's on every prototype (Eq. 6), as `methods.baselines.paper_noise` names it; the run's note says
    what it is worth. Of records of length 1, none filtered out, another one of the same class in a batch of B moves one
    prototype by at most 2/B. With the filter, or where no rule bounds the records, no ε holds.
    """

    keep: float = 0.99
    batch: int = 5
    epochs: int = 200
    momentum: float = 0.9
    noise: str = ""

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
        if self.noise:
            paper_noise(self.noise)

    def fit(self, clients: Sequence[ClientData], classes: int, seed: int) -> Fitted:
        """One head; the seed decides the batches. A client sends d float32 and a class for each prototype."""
        generator = np.random.default_rng(seed)
        held = holders(clients)
        sets = [self.prototypes(client, generator) for client in held]
        rows, labels = (np.concatenate(parts) for parts in zip(*sets, strict=True))
        note = ""
        if self.noise:
            mechanism = paper_noise(self.noise)
            rows = mechanism.apply(rows, generator)
            epsilon = mechanism.epsilon(sensitivity=self._move(held), dimension=rows.shape[1], delta=DELTA)
            tail = "the filter ranks records" if self.keep < 1 else "another record of the same label, public batches"
            note = f"{mechanism.sentence(epsilon, DELTA)} ({tail})"
        head = fit(rows, labels, np.ones(len(labels)), classes, self.epochs, self.momentum)
        number = max(len(own) for _, own in sets)
        return Fitted((Linear(head),), NUMBER * (rows.shape[1] + 1) * number, note=note)

    def _move(self, clients: Sequence[ClientData]) -> float | None:
        """How far one record moves the one prototype that it is in: 2/B at length 1; None where nothing bounds it."""
        longest = max(float(np.abs(np.linalg.norm(client.features, axis=1) - 1).max()) for client in clients) + 1
        if self.keep < 1 or longest > 1 + ROUNDED:
            return None
        return 2 * longest / min(self.batch, *(int(np.unique_counts(each.labels).counts.min()) for each in clients))

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
