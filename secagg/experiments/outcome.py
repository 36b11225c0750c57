"""What one simulated run gave."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from methods.gate import GatedRound
from secagg.experiments.settings import SimulationSettings
from secagg.head import Evaluation, LinearHead, head_digest
from secagg.parties import SessionSetup, SumResult


@dataclass(frozen=True)
class Federated:
    """What only a federated run has: its last session, that session's sum, and what each client sent in all."""

    setup: SessionSetup
    result: SumResult
    upload_bytes: int

    @property
    def classes_left_out(self) -> list[str]:
        """The names of those that did not pass the plan's class gate."""
        classes, last = self.setup.plan.classes, self.setup.round
        return [classes[j] for j in last.left_out(len(classes))] if isinstance(last, GatedRound) else []


@dataclass(frozen=True)
class SimulationResult:
    """One run. `to_json` has the keys of the command-line contract; `federated` is None for a centralised baseline."""

    settings: SimulationSettings
    dataset: str
    clients: int
    head: LinearHead
    evaluation: Evaluation | None
    reference: Evaluation | None
    promise: str | None
    bad_records: int
    federated: Federated | None
    notes: tuple[str, ...]
    seconds: Mapping[str, float] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file; null where a baseline has nothing."""
        s, test, reference = self.settings, self.evaluation, self.reference
        return {
            "method": s.method,
            "dataset": self.dataset,
            "clients": self.clients,
            "survivors": len(self.federated.result.members) if self.federated else self.clients,
            "partition": s.partition,
            "seed": s.seed,
            "protection": s.protection if self.federated else "none",
            "epsilon": "inf" if math.isinf(s.epsilon) else s.epsilon,
            "delta": s.delta,
            "adjacency": s.adjacency,
            "unit": s.unit,
            "noise": s.noise if self.federated and (math.isfinite(s.epsilon) or s.paper_noise) else None,
            "refine": s.refine,
            "class_gate": s.class_gate,
            "covariance": s.covariance,
            "expand": s.expand,
            "accuracy": test.accuracy if test else None,
            "accuracy_interval": list(test.interval) if test else None,
            "accuracy_reference": reference.accuracy if reference else None,
            "promise": self.promise,
            "head_sha256": head_digest(self.head),
            "bad_records": self.bad_records,
            **(_federated(self.federated) if self.federated else dict.fromkeys(FEDERATED_KEYS)),
            "seconds": dict(self.seconds),
            "classes_left_out": self.federated.classes_left_out if self.federated else [],
            "notes": list(self.notes),
        }


FEDERATED_KEYS = (
    "normalisation",
    "radius",
    "levels",
    "aggregate_sha256",
    "ring",
    "vector_length",
    "upload_bytes_per_client",
    "bytes_saved_by_grid",
)


def _federated(run: Federated) -> dict[str, Any]:
    plan = run.setup.plan
    values = (
        plan.normalisation,
        plan.radius,
        plan.levels,
        run.result.aggregate_sha256.hex(),
        run.setup.context.ring.bits,
        len(run.result.vector),
        run.upload_bytes,
        run.setup.bytes_saved_by_grid,
    )
    return dict(zip(FEDERATED_KEYS, values, strict=True))
