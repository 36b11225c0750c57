"""The interface of baselines, which take every client's records in the clear: nothing here protects anybody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.heads import LinearHead

NUMBER = 4
"""Bytes of one float32, or of one count, on the wire."""


@dataclass(frozen=True, eq=False)
class ClientData:
    """One client's unprotected records: `features` (n, d) float64, class `labels` (n,) in 0…C−1, domain numbers (n,).

    n ≥ 0; the domains are all 0 where the records have none.
    """

    features: NDArray[np.float64] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    domains: NDArray[np.int64] = field(repr=False)

    @classmethod
    def of(cls, features: NDArray[np.float64], labels: NDArray[np.int64]) -> ClientData:
        """Return the records of a client that has one domain only."""
        return cls(features, labels, np.zeros(len(labels), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: NDArray[Any]) -> ClientData:
        """Return the records that `rows` selects, by their indices or by boolean flags."""
        return ClientData(self.features[rows], self.labels[rows], self.domains[rows])


class BaselineModel(Protocol):
    """A model that a baseline trained: it predicts classes."""

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the predicted classes (m,) of feature vectors (m, d)."""


@dataclass(frozen=True)
class Linear:
    """A predictor that applies a linear head to features."""

    head: LinearHead

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return each record's class with the largest score."""
        return self.head.predict(features)


@dataclass(frozen=True)
class Fitted:
    """The result of a baseline's training: one or more predictors, whose mean accuracy is the baseline's accuracy.

    `bytes_per_client`: most that one client sends. `client_seconds`: CPU seconds of all clients together, where told.
    `note`: what else is to be known of this run, in one line.
    """

    predictors: tuple[BaselineModel, ...]
    bytes_per_client: int
    client_seconds: float | None = None
    note: str = ""


class Baseline(Protocol):
    """The interface of a baseline: a frozen dataclass of parameters that are numbers or texts, each with a default."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    name: ClassVar[str]
    """Name on the command line."""
    leaves: ClassVar[str]
    """The data that leave a client in the clear, as the end of "what leaves a client: …"."""
    protections: ClassVar[str]
    """The protections that it can and cannot use, and why, in one sentence."""

    def fit(self, clients: Sequence[ClientData], classes: int, seed: int) -> Fitted:
        """Train on the clients' records; the same `seed` gives the same result. Raises BadInput."""


def holders(clients: Sequence[ClientData]) -> tuple[ClientData, ...]:
    """Return the clients that have records. Raises BadInput if no client has any."""
    kept = tuple(client for client in clients if len(client))
    if not kept:
        raise BadInput("no client holds a record", remedy="a baseline needs one at least")
    return kept


def pooled(clients: Sequence[ClientData]) -> ClientData:
    """Return all clients' records together, in an order independent of who held them. Raises BadInput for none."""
    held = holders(clients)
    together = ClientData(
        np.concatenate([client.features for client in held]),
        np.concatenate([client.labels for client in held]),
        np.concatenate([client.domains for client in held]),
    )
    bytes_of_rows = np.ascontiguousarray(np.column_stack([together.labels, together.features]))
    return together.take(np.argsort(bytes_of_rows.view(f"V{bytes_of_rows[0].nbytes}").ravel(), kind="stable"))


def head_bytes(classes: int, dimension: int) -> int:
    """Return the size in bytes of a linear head in float32."""
    return NUMBER * classes * (dimension + 1)
