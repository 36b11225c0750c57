"""Models that know a few records by heart: what attacks on released models are tried on, which must succeed there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secagg.agreement.plan import Plan
from secagg.networks import Program, TrainedModel, TrainingSettings, train
from secagg.randomness import OperatingSystem
from threat_models.attacks.of_methods.lira import Recipe
from threat_models.session import Records, Released

SEED = bytes(32)
EPOCHS, RATE, MOMENTUM = 200, 0.2, 0.9


@dataclass(frozen=True, eq=False)
class ByHeart(Recipe):
    """Makes models by another training than the plan's: exact, and on all records at once until they are known."""

    program: Program | None = None

    @classmethod
    def like(cls, plan: Plan, model: TrainedModel) -> ByHeart:
        """Models of the same program as one that a plan released."""
        return cls(plan, program=model.program)

    @property
    def is_changed_by_record(self) -> bool:
        """No: they are trained."""
        return False

    def head_of(self, records: Records, seed: int = 0) -> Released:
        """Train from a public start."""
        if self.program is None:
            return super().head_of(records, seed)
        settings = TrainingSettings(EPOCHS, RATE, max(1, len(records)), MOMENTUM)
        inputs = (records.integers / self.plan.grid.unit(records.integers.shape[1])).astype(np.float32)
        start = self.program.start(SEED)
        return TrainedModel.of(
            self.program, train(self.program, start, inputs, records.labels, settings, OperatingSystem())
        )
