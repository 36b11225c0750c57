"""One member's records as the flat integer vector of the plan. All of it happens before the member joins."""

from __future__ import annotations

from dataclasses import dataclass, field

from secagg.encoding import Integers
from secagg.errors import BadInput
from secagg.parties.pipeline import Pipeline, Progress
from secagg.parties.setup import SessionSetup
from secagg.statistics import quantise


@dataclass(frozen=True)
class Contribution:
    """The vector, and the number of records in it (for the operator's eyes only)."""

    records: int
    vector: Integers = field(repr=False)


def contribution_of(
    setup: SessionSetup, source: str, backbone_path: str | None = None, progress: Progress | None = None
) -> Contribution:
    """Read, extract, quantise and sum.

    Raises BadInput or BadRecord for data that the plan does not allow: nothing has been sent then.
    """
    plan = setup.plan
    pipeline = Pipeline.of_plan(plan)
    records = pipeline.records(source)
    if len(records) > plan.max_records:
        raise BadInput(
            f"{source} holds {len(records)} records, the plan allows {plan.max_records} per client",
            remedy="have a plan made with a larger max_records",
        )
    features = pipeline.features(records.inputs, backbone_path, progress)
    if features.shape[1] != plan.dimension:
        raise BadInput(f"the backbone gives {features.shape[1]} features, the plan has {plan.dimension}")
    integers = quantise(features, plan.grid, records.origin)
    tensors = setup.method.contribute(integers, records.labels, len(plan.classes), plan.levels)
    return Contribution(len(records), setup.layout.flatten(tensors))
