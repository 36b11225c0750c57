"""The interface of baselines, which take every client's records in the clear: nothing here protects anybody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.heads import LinearHead
from secagg.heads.linear import predict

NUMBER = 4
"""Bytes of a float32, or of a count, on the wire."""


@dataclass(frozen=True, eq=False)
class ClientData:
    """One client's head inputs in the clear: `features` (n, d) float64, `labels` (n,) in 0…C−1, `domains` (n,).

    n ≥ 0; the domains are all 0 where the records have none.
    """

    features: NDArray[np.float64] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    domains: NDArray[np.int64] = field(repr=False)

    @classmethod
    def of(cls, features: NDArray[np.float64], labels: NDArray[np.int64]) -> ClientData:
        """Records of one domain."""
        return cls(features, labels, np.zeros(len(labels), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: NDArray[Any]) -> ClientData:
        """The records at `rows`, or where `rows` holds."""
        return ClientData(self.features[rows], self.labels[rows], self.domains[rows])


class Predictor(Protocol):
    """A trained model of a baseline."""

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the classes (m,) of head inputs (m, d)."""


@dataclass(frozen=True)
class Linear:
    """A linear head as a predictor."""

    head: LinearHead

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """The class with the largest score."""
        return predict(self.head, features)


@dataclass(frozen=True)
class Fitted:
    """The result of a baseline's training; accuracy is the mean of the predictors'.

    `bytes_per_client`: most that one client sends. `client_seconds`: CPU seconds of all clients together, where told.
    `note`: what else is to be known of this run, in one line.
    """

    predictors: tuple[Predictor, ...]
    bytes_per_client: int
    client_seconds: float | None = None
    note: str = ""


class Baseline(Protocol):
    """A frozen dataclass whose fields are the baseline's parameters, numbers or texts, each with a default."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    name: ClassVar[str]
    """Name on the command line."""
    leaves: ClassVar[str]
    """What leaves a client in the clear, as the end of "what leaves a client: …"."""
    protections: ClassVar[str]
    """Which protection it can and cannot use, and why, in one sentence."""

    def fit(self, clients: Sequence[ClientData], classes: int, seed: int) -> Fitted:
        """Train on the clients' records; the same `seed` gives the same bits. Raises BadInput."""


def holders(clients: Sequence[ClientData]) -> tuple[ClientData, ...]:
    """The clients that have records. Raises BadInput where none has."""
    kept = tuple(client for client in clients if len(client))
    if not kept:
        raise BadInput("no client holds a record", remedy="a baseline needs one at least")
    return kept


def pooled(clients: Sequence[ClientData]) -> ClientData:
    """All records in one place, in an order that does not depend on who held them. Raises BadInput without any."""
    held = holders(clients)
    together = ClientData(
        np.concatenate([client.features for client in held]),
        np.concatenate([client.labels for client in held]),
        np.concatenate([client.domains for client in held]),
    )
    bytes_of_rows = np.ascontiguousarray(np.column_stack([together.labels, together.features]))
    return together.take(np.argsort(bytes_of_rows.view(f"V{bytes_of_rows[0].nbytes}").ravel(), kind="stable"))


def head_bytes(classes: int, dimension: int) -> int:
    """Bytes of a linear head in float32."""
    return NUMBER * classes * (dimension + 1)
