"""Read a client's data as integers on a plan's quantisation grid; `secagg.plan_facts.records` calls these functions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from methods import method_of
from methods.method import domains_of
from secagg.agreement.plan import Plan
from secagg.data import Records
from secagg.data.profile import Profile, profile_of
from secagg.data.records import BAD, DOMAIN
from secagg.data.sources import line_breaks_of
from secagg.encoding.grid import quantise
from secagg.errors import BadInput
from secagg.features.backbone import Progress
from secagg.features.expansion import Expansion
from secagg.features.feature_map import FeatureMap
from secagg.features.opening import open_backbone, planned_name
from secagg.features.pipeline import Pipeline, Source, name_of
from secagg.features.program import first_line
from secagg.plan_facts.records import LocalRecords, PlannedFeatures


def quantised_records(
    plan: Plan, features: NDArray[np.float64], records: Records, feature_map: FeatureMap | None = None
) -> LocalRecords:
    """Quantise features on the plan's grid, and add labels and domains. Raises BadInput for a missing domain column.

    Raises BadRecord, unless the plan has noise, for a record that it cannot take, or of a domain that is none of its.
    """
    integers = quantise(features, plan.grid, records.origin)
    domains, known = np.zeros(len(records), dtype=np.int64), np.ones(len(records), dtype=np.bool_)
    if names := domains_of(plan.method_parameters):
        if DOMAIN not in records.columns:
            raise BadInput(f"the plan tells {len(names)} domains apart, but the data have no column {DOMAIN!r}")
        places = records.columns[DOMAIN][:, None] == np.array(names)[None, :]
        domains, known = np.argmax(places, axis=1).astype(np.int64), places.any(axis=1)
        if not plan.has_noise and not known.all():
            raise records.origin.refusal(int(np.argmin(known)), "its domain is none of the plan's", "mend the column")
    reads = method_of(plan).traits.reads_inputs
    made_of = (records.inputs, feature_map) if reads else (None, None)
    if not plan.grid.is_normalised:
        return LocalRecords(integers, records.labels, domains, *made_of)
    counted = known & (records.labels >= 0) & (integers != 0).any(axis=1)
    if not plan.has_noise and not counted.all():
        index = int(np.argmin(counted))
        raise records.origin.refusal(index, "the feature vector has no direction", "mend or remove the record")
    return LocalRecords(integers, np.where(counted, records.labels, BAD), domains, *made_of)


def read_records(
    plan: Plan, source: Source, backbone_path: str | None = None, progress: Progress | None = None
) -> LocalRecords:
    """Read data, extract features and quantise them (see `secagg.plan_facts.records.read_records`)."""
    pipeline = Pipeline.of_plan(plan)
    records = pipeline.records(source, tolerant=plan.has_noise, most=plan.max_records)
    if len(records) > plan.max_records:
        problem = f"{name_of(source)} holds {len(records)} records, the plan allows {plan.max_records} per client"
        raise BadInput(problem, remedy="have a plan made with a larger max_records")
    feature_map = pipeline.feature_map(backbone_path, progress)
    features = _features_of(feature_map, records, tolerant=plan.has_noise)
    if features.shape[1] != plan.dimension:
        raise BadInput(f"the backbone gives {features.shape[1]} features, the plan has {plan.dimension}")
    own = quantised_records(plan, features, records, feature_map)
    if method_of(plan).traits.needs_two_classes and not plan.has_noise and len(set(own.labels.tolist())) == 1:
        problem = f"all records of {name_of(source)} are of the class {plan.classes[own.labels[0]]}"
        raise BadInput(problem, remedy=f"{plan.method} learns to tell classes apart: bring another")
    return own


def _features_of(feature_map: FeatureMap, records: Records, *, tolerant: bool) -> NDArray[np.float64]:
    """Extract features (n, d). Where the backbone fails on a record, refuse it, or with `tolerant` make it all NaN.

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


def look_at_own(plan: Plan, source: str) -> Profile:
    """Profile a client's records under the plan's schema, for that client alone. Raises as `read_records` does."""
    pipeline = Pipeline.of_plan(plan)
    records = pipeline.records(source, tolerant=plan.has_noise, most=plan.max_records)
    return profile_of(records, plan.classes, pipeline.schema, line_breaks_of(source, pipeline.schema))


def plan_features(
    backbone: str, input_shape: tuple[int, ...], expand: int, input_bound: float | None
) -> PlannedFeatures:
    """Return a backbone's name, digest, dimension and bound for a plan (`secagg.plan_facts.records.plan_features`)."""
    features = FeatureMap(open_backbone(backbone, input_shape), Expansion(expand) if expand else None)
    bound = features.bound(input_bound)
    return PlannedFeatures(planned_name(backbone), features.backbone.digest, features.dimension, bound)
