"""One member's records as the flat integer vector that it contributes. Reading happens before the member joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from methods import method_of
from methods.method import domains_of
from methods.round import Examples, Local
from secagg.agreement.plan import NoiseFrom, Plan
from secagg.data import Records
from secagg.data.profile import Profile, profile_of
from secagg.data.records import BAD, DOMAIN
from secagg.data.sources import line_breaks_of
from secagg.encoding import Integers, quantise
from secagg.errors import BadInput
from secagg.features import FeatureMap, Progress
from secagg.features.program import first_line
from secagg.plan_facts.setup import SessionSetup
from secagg.privacy import discrete_gaussian, rounded_gaussian
from secagg.randomness import RandomSource
from secagg.session.pipeline import Pipeline, Source, name_of


@dataclass(frozen=True, eq=False)
class LocalRecords:
    """Integers (n, d), labels (n,) and domains (n,); the label −1 marks a record that does not count.

    Without noise such a record is refused; with noise it is left out by a rule that looks at it alone, since a refusal
    would tell of it. Nothing here is for other eyes than the operator's. `inputs` (n, …) are what the records were
    made of by `feature_map`, where the plan's method reads them; else None.
    """

    integers: Integers = field(repr=False)
    labels: Integers = field(repr=False)
    domains: Integers = field(repr=False)
    inputs: NDArray[Any] | None = field(default=None, repr=False)
    feature_map: FeatureMap | None = None

    @classmethod
    def of(
        cls, plan: Plan, features: NDArray[np.float64], records: Records, feature_map: FeatureMap | None = None
    ) -> LocalRecords:
        """Quantise. Raises BadRecord for one that a plan without noise cannot take, BadInput for lack of a domain."""
        integers = quantise(features, plan.grid, records.origin)
        domains, known = _domains_of(plan, records)
        reads = method_of(plan).traits.reads_inputs
        made_of = (records.inputs, feature_map) if reads else (None, None)
        if not plan.grid.is_normalised:
            return cls(integers, records.labels, domains, *made_of)
        counted = known & (records.labels >= 0) & (integers != 0).any(axis=1)
        if not plan.has_noise and not counted.all():
            index = int(np.argmin(counted))
            raise records.origin.refusal(index, "the feature vector has no direction", "mend or remove the record")
        return cls(integers, np.where(counted, records.labels, BAD), domains, *made_of)

    @classmethod
    def pooled(cls, parts: Sequence[LocalRecords]) -> LocalRecords:
        """All members' records in one place, which only an experiment has."""
        inputs = [each.inputs for each in parts if each.inputs is not None]
        return cls(
            np.concatenate([each.integers for each in parts]),
            np.concatenate([each.labels for each in parts]),
            np.concatenate([each.domains for each in parts]),
            np.concatenate(inputs) if inputs else None,
            parts[0].feature_map,
        )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def bad(self) -> int:
        """How many do not count."""
        return int((self.labels == BAD).sum())

    def take(self, rows: NDArray[np.int64]) -> LocalRecords:
        """The records at `rows`."""
        inputs = None if self.inputs is None else self.inputs[rows]
        return replace(
            self, integers=self.integers[rows], labels=self.labels[rows], domains=self.domains[rows], inputs=inputs
        )

    @cached_property
    def examples(self) -> Examples:
        """Those that count."""
        examples, counted = Examples(self.integers, self.labels, self.domains), self.labels != BAD
        return examples if counted.all() else examples.take(counted)

    def at(self, setup: SessionSetup, randomness: RandomSource, member: int = 0, state: bytes = b"") -> Local:
        """What the member with this index has in a session's round, `state` being left from the round before."""
        inputs = None if self.inputs is None else self.inputs[self.labels != BAD]
        classes, grid, sigma = len(setup.plan.classes), setup.plan.grid, setup.plan.training_sigma
        own = inputs, self.feature_map, sigma, setup.plan.further_sigmas, setup.plan.has_noise
        return Local(self.examples, classes, grid, member, state, randomness, *own)


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
    setup: SessionSetup, source: Source, backbone_path: str | None = None, progress: Progress | None = None
) -> LocalRecords:
    """Read, extract and quantise.

    Raises BadInput or BadRecord for data that the plan does not allow: nothing has been sent then.
    """
    plan = setup.plan
    pipeline = Pipeline.of_plan(plan)
    records = pipeline.records(source, tolerant=plan.has_noise, most=plan.max_records)
    if len(records) > plan.max_records:
        raise BadInput(
            f"{name_of(source)} holds {len(records)} records, the plan allows {plan.max_records} per client",
            remedy="have a plan made with a larger max_records",
        )
    feature_map = pipeline.feature_map(backbone_path, progress)
    features = _features_of(feature_map, records, tolerant=plan.has_noise)
    if features.shape[1] != plan.dimension:
        raise BadInput(f"the backbone gives {features.shape[1]} features, the plan has {plan.dimension}")
    own = LocalRecords.of(plan, features, records, feature_map)
    if setup.method.traits.needs_two_classes and not plan.has_noise and len(set(own.labels.tolist())) == 1:
        problem = f"all records of {name_of(source)} are of the class {plan.classes[own.labels[0]]}"
        raise BadInput(problem, remedy=f"{plan.method} learns to tell classes apart: bring another")
    return own


def _features_of(feature_map: FeatureMap, records: Records, *, tolerant: bool) -> NDArray[np.float64]:
    """Extract features (n, d); a record on which the backbone fails is refused, or NaN throughout with `tolerant`.

    Where it fails on some records, both halves are tried apart: no record's features depend on its batch. What it says
    of an empty batch is of shape and type alone, and is raised in any case.
    """
    feature_map.extract(records.inputs[:0])
    try:
        return feature_map.extract(records.inputs)
    except Exception as error:  # of a backbone that somebody brought, whatever it is
        if len(records) > 1:
            halves = np.array_split(np.arange(len(records)), 2)
            return np.concatenate([_features_of(feature_map, records.take(rows), tolerant=tolerant) for rows in halves])
        if not tolerant:
            problem = f"the backbone {feature_map.name} fails on it ({first_line(error)})"
            raise records.origin.refusal(0, problem, "mend or remove the record, or mend the backbone") from error
        return np.full((len(records), feature_map.dimension), np.nan)


def look_at_own(setup: SessionSetup, source: str) -> Profile:
    """What a member's records look like beside what the plan declares: for the member's own eyes, and in no message.

    Raises what `read_records` raises.
    """
    plan, pipeline = setup.plan, Pipeline.of_plan(setup.plan)
    records = pipeline.records(source, tolerant=plan.has_noise, most=plan.max_records)
    return profile_of(records, plan.classes, pipeline.schema, line_breaks_of(source, pipeline.schema))


@dataclass(frozen=True, eq=False)
class Prepared:
    """A member's flat vector for a round (int64, its share of the noise in it), and its state for the next round.

    The vector may leave, protected; the state never does.
    """

    vector: Integers = field(repr=False)
    state: bytes = field(default=b"", repr=False)


def contribution_of(
    setup: SessionSetup, records: LocalRecords, randomness: RandomSource, member: int = 0, state: bytes = b""
) -> Prepared:
    """Contribute to the session's round, plus this client's share of the noise where the plan says so.

    `member` is its roster index, `state` what the round before left it. The noise is drawn before the records are
    touched: how long that takes then says nothing of them.
    """
    plan, calibration = setup.plan, setup.calibration
    noise = None
    if calibration is not None and plan.noise == NoiseFrom.CLIENT:
        noise = discrete_gaussian(calibration.segments, randomness)
    made = setup.round.contribute(records.at(setup, randomness, member, state))
    vector = setup.layout.flatten(made.blocks)
    return Prepared(vector if noise is None else vector + noise, made.state)


def opening_noise_of(setup: SessionSetup, randomness: RandomSource) -> Callable[[], Integers] | None:
    """What draws the noise of one party that opens the session's sum; None where the plan has it add none."""
    calibration = setup.calibration
    if calibration is None or setup.plan.noise != NoiseFrom.AGGREGATOR:
        return None
    return partial(rounded_gaussian, calibration.segments, randomness)
