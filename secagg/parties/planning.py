"""A new plan from what people know: the data's public description, the roster, and a few choices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from methods import method_named
from secagg.data import Schema
from secagg.errors import BadInput, MalformedMessage
from secagg.features import Expansion, FeatureMap, open_backbone, round_up
from secagg.parties.setup import SessionSetup
from secagg.plan import PLAN_VERSION, Plan, canonical_json
from secagg.protection.masking.quorum import most_dropouts
from secagg.randomness import RandomSource
from secagg.roster import Roster


@dataclass(frozen=True)
class PublicData:
    """What may be known of all members' data before anyone looks at a record.

    `bound` is a public L2 bound of one input, None where there is none (features).
    """

    kind: str
    input_shape: tuple[int, ...]
    classes: tuple[str, ...]
    schema: Schema | None
    bound: float | None

    @classmethod
    def of_schema(cls, schema: Schema) -> PublicData:
        """Tables of this schema."""
        return cls("table", (schema.dimension,), schema.classes, schema, schema.bound)

    @classmethod
    def of_shape(cls, shape: tuple[int, ...], classes: tuple[str, ...]) -> PublicData:
        """Images of two or three dimensions with values in [0, 1], or features of one."""
        if len(shape) == 1:
            return cls("features", shape, classes, None, None)
        return cls("images", shape, classes, None, math.sqrt(math.prod(shape)))


@dataclass(frozen=True)
class PlanChoices:
    """The choices of whoever writes the plan. None means: derive it."""

    purpose: str = ""
    method: str = "fedcgs"
    parameters: tuple[tuple[str, Any], ...] = ()
    backbone: str | None = None
    expand: int = 0
    radius: float | None = None
    centre: float = 0.0
    levels: int = 1 << 16
    max_records: int = 1 << 16
    protection: str = "masked"
    colluders: int | None = None
    dropouts: int | None = None
    minimum_cohort: int = 1
    join_seconds: int = 600
    step_seconds: int = 60
    result: str = "members"


def make_plan(data: PublicData, roster: Roster, choices: PlanChoices, randomness: RandomSource) -> Plan:
    """A plan for a fresh session. Raises BadInput for choices that do not go together."""
    spec = choices.backbone or ("pixels" if data.kind == "images" else "features")
    backbone = open_backbone(spec, data.input_shape)
    features = FeatureMap(backbone, Expansion(choices.expand) if choices.expand else None)
    colluders = _colluders(len(roster.clients), choices)
    plan = Plan(
        version=PLAN_VERSION,
        session=randomness.bytes(32),
        purpose=choices.purpose,
        method=choices.method,
        parameters=canonical_json(method_named(choices.method, dict(choices.parameters)).parameters),
        data_kind=data.kind,
        schema=data.schema.to_json() if data.schema else "",
        classes=data.classes,
        backbone=Path(spec).name if spec.endswith(".pt2") else spec,
        backbone_digest=bytes.fromhex(backbone.digest),
        input_shape=data.input_shape,
        expand=choices.expand,
        dimension=features.dimension,
        radius=_radius(data, features, choices),
        levels=choices.levels,
        centre=choices.centre,
        max_records=choices.max_records,
        protection=choices.protection,
        colluders=colluders,
        dropouts=_dropouts(len(roster.clients), colluders, choices),
        minimum_cohort=choices.minimum_cohort,
        epsilon=math.inf,
        delta=0.0,
        adjacency="",
        unit="record",
        roster=roster.digest,
        join_seconds=choices.join_seconds,
        step_seconds=choices.step_seconds,
        result=choices.result,
    )
    try:
        SessionSetup.of(plan, roster)
    except MalformedMessage as error:
        raise BadInput(f"there can be no such plan: {error.problem}") from None
    return plan


def _colluders(clients: int, choices: PlanChoices) -> int:
    """The chosen number, or 1 where there are enough clients to withstand one."""
    return choices.colluders if choices.colluders is not None else int(clients >= 3)


def _dropouts(clients: int, colluders: int, choices: PlanChoices) -> int:
    """The chosen number, or all that colluders and minimum cohort allow."""
    if choices.dropouts is not None:
        return choices.dropouts
    return max(0, min(most_dropouts(clients, colluders), clients - choices.minimum_cohort))


def _radius(data: PublicData, features: FeatureMap, choices: PlanChoices) -> float:
    """The chosen radius, or the public bound: ‖f − c‖ ≤ ‖f‖ + |c|·√d."""
    if choices.radius is not None:
        return choices.radius
    bound = features.bound(data.bound)
    if bound is None:
        raise BadInput("these features have no public bound", remedy="give --radius, a length that no record exceeds")
    return round_up(bound + abs(choices.centre) * math.sqrt(features.dimension))
