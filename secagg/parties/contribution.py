"""One member's records as the flat integer vector that it contributes. Reading happens before the member joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secagg.data import Records
from secagg.data.records import BAD
from secagg.encoding import Integers
from secagg.errors import BadInput
from secagg.parties.pipeline import Pipeline, Progress
from secagg.parties.setup import SessionSetup
from secagg.plan import NoiseFrom, Plan
from secagg.privacy import discrete_gaussian
from secagg.randomness import RandomSource
from secagg.statistics import quantise


@dataclass(frozen=True, eq=False)
class LocalRecords:
    """Integers (n, d) and labels (n,); the label −1 marks a record that does not count, whatever its integers.

    Without noise such a record is refused; with noise it is left out by a rule that looks at it alone, since a refusal
    would tell of it. Nothing here is for other eyes than the operator's.
    """

    integers: Integers = field(repr=False)
    labels: Integers = field(repr=False)

    @classmethod
    def of(cls, plan: Plan, features: NDArray[np.float64], records: Records) -> LocalRecords:
        """Quantise. Raises BadRecord for one that a plan without noise cannot take."""
        integers = quantise(features, plan.grid, records.origin)
        if not plan.grid.is_normalised:
            return cls(integers, records.labels)
        counted = (records.labels >= 0) & (integers != 0).any(axis=1)
        if not plan.has_noise and not counted.all():
            index = int(np.argmin(counted))
            raise records.origin.refusal(index, "the feature vector has no direction", "mend or remove the record")
        return cls(integers, np.where(counted, records.labels, BAD))

    @classmethod
    def pooled(cls, parts: Sequence[LocalRecords]) -> LocalRecords:
        """All members' records in one place, which only an experiment has."""
        return cls(np.concatenate([each.integers for each in parts]), np.concatenate([each.labels for each in parts]))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def bad(self) -> int:
        """How many do not count."""
        return int((self.labels == BAD).sum())

    def take(self, rows: NDArray[np.int64]) -> LocalRecords:
        """The records at `rows`."""
        return LocalRecords(self.integers[rows], self.labels[rows])


def read_records(
    setup: SessionSetup, source: str, backbone_path: str | None = None, progress: Progress | None = None
) -> LocalRecords:
    """Read, extract and quantise.

    Raises BadInput or BadRecord for data that the plan does not allow: nothing has been sent then.
    """
    plan = setup.plan
    pipeline = Pipeline.of_plan(plan)
    records = pipeline.records(source, tolerant=plan.has_noise)
    if len(records) > plan.max_records:
        raise BadInput(
            f"{source} holds {len(records)} records, the plan allows {plan.max_records} per client",
            remedy="have a plan made with a larger max_records",
        )
    features = pipeline.features(records.inputs, backbone_path, progress)
    if features.shape[1] != plan.dimension:
        raise BadInput(f"the backbone gives {features.shape[1]} features, the plan has {plan.dimension}")
    return LocalRecords.of(plan, features, records)


def contribution_of(setup: SessionSetup, records: LocalRecords, randomness: RandomSource) -> Integers:
    """Sum the records for the session's round, plus this client's share of the noise where the plan says so.

    The noise is drawn before the records are touched: how long that takes then says nothing of them.
    """
    plan, calibration = setup.plan, setup.calibration
    noise = None
    if calibration is not None and plan.noise == NoiseFrom.CLIENT:
        noise = discrete_gaussian(calibration.segments, randomness)
    counted = records.labels != BAD
    tensors = setup.round.contribute(records.integers[counted], records.labels[counted], len(plan.classes), plan.levels)
    vector = setup.layout.flatten(tensors)
    return vector if noise is None else vector + noise
