"""One member's records as the flat integer vector that it contributes. Reading happens before the member joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from methods.method import Examples, domains_of
from secagg.data import Records
from secagg.data.records import BAD, DOMAIN
from secagg.encoding import Integers
from secagg.errors import BadInput
from secagg.parties.pipeline import Pipeline, Progress
from secagg.parties.setup import SessionSetup
from secagg.plan import NoiseFrom, Plan
from secagg.privacy import discrete_gaussian, rounded_gaussian
from secagg.randomness import RandomSource
from secagg.statistics import quantise


@dataclass(frozen=True, eq=False)
class LocalRecords:
    """Integers (n, d), labels (n,) and domains (n,); the label −1 marks a record that does not count.

    Without noise such a record is refused; with noise it is left out by a rule that looks at it alone, since a refusal
    would tell of it. Nothing here is for other eyes than the operator's.
    """

    integers: Integers = field(repr=False)
    labels: Integers = field(repr=False)
    domains: Integers = field(repr=False)

    @classmethod
    def of(cls, plan: Plan, features: NDArray[np.float64], records: Records) -> LocalRecords:
        """Quantise. Raises BadRecord for one that a plan without noise cannot take, BadInput for lack of a domain."""
        integers = quantise(features, plan.grid, records.origin)
        domains, known = _domains_of(plan, records)
        if not plan.grid.is_normalised:
            return cls(integers, records.labels, domains)
        counted = known & (records.labels >= 0) & (integers != 0).any(axis=1)
        if not plan.has_noise and not counted.all():
            index = int(np.argmin(counted))
            raise records.origin.refusal(index, "the feature vector has no direction", "mend or remove the record")
        return cls(integers, np.where(counted, records.labels, BAD), domains)

    @classmethod
    def pooled(cls, parts: Sequence[LocalRecords]) -> LocalRecords:
        """All members' records in one place, which only an experiment has."""
        return cls(
            np.concatenate([each.integers for each in parts]),
            np.concatenate([each.labels for each in parts]),
            np.concatenate([each.domains for each in parts]),
        )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def bad(self) -> int:
        """How many do not count."""
        return int((self.labels == BAD).sum())

    def take(self, rows: NDArray[np.int64]) -> LocalRecords:
        """The records at `rows`."""
        return LocalRecords(self.integers[rows], self.labels[rows], self.domains[rows])

    @property
    def examples(self) -> Examples:
        """Those that count."""
        return Examples(self.integers, self.labels, self.domains).take(self.labels != BAD)


def _domains_of(plan: Plan, records: Records) -> tuple[Integers, NDArray[np.bool_]]:
    """Each record's place among the plan's domains, and whether it has one; 0 where the plan tells none apart.

    Raises BadInput for data without the column, and BadRecord, unless the plan has noise, for an unknown domain.
    """
    names = domains_of(plan.method_parameters)
    if not names:
        return np.zeros(len(records), dtype=np.int64), np.ones(len(records), dtype=np.bool_)
    if DOMAIN not in records.columns:
        raise BadInput(f"the plan tells {len(names)} domains apart, but the data have no column {DOMAIN!r}")
    places = records.columns[DOMAIN][:, None] == np.array(names)[None, :]
    known = places.any(axis=1)
    if not plan.has_noise and not known.all():
        raise records.origin.refusal(int(np.argmin(known)), "its domain is none of the plan's", "mend the column")
    return np.argmax(places, axis=1).astype(np.int64), known


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
    tensors = setup.round.contribute(records.examples, len(plan.classes), plan.levels)
    vector = setup.layout.flatten(tensors)
    return vector if noise is None else vector + noise


def opening_noise_of(setup: SessionSetup, randomness: RandomSource) -> Callable[[], Integers] | None:
    """What draws the noise of one party that opens the session's sum; None where the plan has it add none."""
    calibration = setup.calibration
    if calibration is None or setup.plan.noise != NoiseFrom.AGGREGATOR:
        return None
    return partial(rounded_gaussian, calibration.segments, randomness)
