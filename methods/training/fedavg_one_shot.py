"""One-shot federated averaging: one secure sum of members' long training (McMahan et al. 2017, with one round)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from methods.training.fedavg import FedAvg


@dataclass(frozen=True)
class FedAvgOneShot(FedAvg):
    """`FedAvg` with one round of many epochs, as Guan et al. 2025 (section 4) compare it: 50, in batches of 128.

    A rate of 0.1 without momentum goes as far as theirs of 0.01 with 0.9. Members weigh by their records, up to `cap`.
    Everything else, and every promise, is `FedAvg`'s.
    """

    name: ClassVar[str] = "fedavg-one-shot"
    rounds: int = field(default=1, init=False)
    epochs: int = 50
    batch: int = 128
    clip: float = 20.0
    cap: int = 1024
