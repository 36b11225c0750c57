"""Softmax regression on pooled records: what a single place with all of them in the clear would train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from methods.baselines.baseline import NUMBER, ClientData, Fitted, Linear, pooled
from methods.baselines.softmax_regression import by_lbfgs


@dataclass(frozen=True)
class Centralised:
    """argmin over (W, b) of −Σ log softmax(W·f + b)_y over all records, by L-BFGS; the seed plays no part."""

    name: ClassVar[str] = "centralised"
    leaves: ClassVar[str] = "every record, with its label"
    protections: ClassVar[str] = (
        "training needs the records themselves, and no secure sum holds a record; the same head under a finite epsilon "
        "is the baseline dp-sgd"
    )

    def fit(self, clients: Sequence[ClientData], classes: int, seed: int) -> Fitted:
        """One head on all records. A client sends d float32 and a label per record."""
        everything = pooled(clients)
        head = by_lbfgs(everything.features, everything.labels, classes)
        numbers = everything.features.shape[1] + 1
        return Fitted((Linear(head),), NUMBER * numbers * max(map(len, clients)), client_seconds=0.0)
