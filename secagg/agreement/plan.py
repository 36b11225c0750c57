"""The plan: all settings of one federation, for all of its rounds, on which its parties agree beforehand by SHA-256."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from secagg.agreement.roster import MAX_CLIENTS
from secagg.agreement.schema import Schema
from secagg.encoding import Grid, Normalisation
from secagg.errors import BadInput
from secagg.privacy import Adjacency, Unit
from secagg.system.printable import first_unprintable
from secagg.system.reading import parse_json
from secagg.wire import Choice, Items, Length, Range, Text, encode, message, read_choices, read_json, to_json

PLAN_VERSION = 9
_AGAIN = "write it again with plan new"
TRAINING = "training"
"""Name of the noise of members' own training among a plan's noises, of which it is the first."""
SMALLEST_EPSILON = 1e-6
MOST_NOISE_LEVELS = 2
"""The most levels at which part of the clients' noise is removed from a sum."""
MOST_STATED = 1 << 40
"""The most records of all members together that a plan may state."""


class NoiseFrom(Choice):
    """The party that adds the differential-privacy noise."""

    CLIENT = "client"
    """Every client adds a share before it protects its vector: nobody sees a sum without noise."""
    AGGREGATOR = "aggregator"
    """The party that opens the sum adds all the noise, and is trusted to."""
    MEMBER = "member"
    """Every step of a member's own training adds noise (DP-SGD), which makes all that leaves the member private."""


class DataKind(Choice):
    """The kind of records that a plan takes: features, images, rows of a table, or triplets (picture, text, answer)."""

    FEATURES = "features"
    IMAGES = "images"
    TABLE = "table"
    TRIPLETS = "triplets"


class ResultAccess(Choice):
    """The parties that receive the classifier head: the server alone, or all members too."""

    SERVER = "server"
    """The server alone."""
    MEMBERS = "members"
    """The server and all members."""


@message("PlannedNoise")
@dataclass(frozen=True)
class PlannedNoise:
    """The noise that one party adds to one block (named array) of a sum.

    `off_diagonal` is 0 unless the block is a matrix's triangle; `secagg.privacy.BlockNoise` explains the fields.
    """

    block: Annotated[str, Text(1, 40)]
    multiplier: Annotated[int, Range(1, 1 << 31)]
    sigma: Annotated[float, Range(0.0, 1e15)]
    off_diagonal: Annotated[float, Range(0.0, 1e15)]


@message("Plan")
@dataclass(frozen=True)
class Plan:
    """The plan: all that a federation agrees on (protos/secagg/v1/plan.proto). Raises BadInput for bad values."""

    version: Annotated[int, Range(PLAN_VERSION, PLAN_VERSION)]
    session: Annotated[bytes, Length(32)]
    purpose: Annotated[str, Text(0, 200)]
    method: Annotated[str, Text(1, 105)]
    parameters: Annotated[str, Text(2, 4096)]
    data_kind: Annotated[DataKind, Text(1, 40)]
    schema: Annotated[str, Text(0, 1 << 20)]
    classes: Annotated[tuple[str, ...], Items(2, 10_000, each=Text(1, 100))]
    backbone: Annotated[str, Text(1, 200)]
    backbone_digest: Annotated[bytes, Length(32)]
    input_shape: Annotated[tuple[int, ...], Items(1, 4, each=Range(1, 1 << 20))]
    expand: Annotated[int, Range(0, 65_536)]
    dimension: Annotated[int, Range(1, 65_536)]
    radius: Annotated[float, Range(math.ulp(0.0), 1e300)]
    levels: Annotated[int, Range(1, 1 << 24)]
    centre: Annotated[float, Range(-1e300, 1e300)]
    max_records: Annotated[int, Range(1, 1 << 31)]
    protection: Annotated[str, Text(1, 40)]
    colluders: Annotated[int, Range(0, MAX_CLIENTS - 1)]
    dropouts: Annotated[int, Range(0, MAX_CLIENTS - 1)]
    min_clients_in_sum: Annotated[int, Range(1, MAX_CLIENTS)]
    epsilon: Annotated[float, Range(SMALLEST_EPSILON, math.inf)]
    delta: Annotated[float, Range(0.0, 0.5)]
    adjacency: Annotated[Adjacency | Literal[""], Text(0, 20)]
    unit: Annotated[Unit, Text(1, 20)]
    roster: Annotated[bytes, Length(32)]
    join_seconds: Annotated[int, Range(1, 2_592_000)]
    step_seconds: Annotated[int, Range(1, 86_400)]
    result: Annotated[ResultAccess, Text(1, 20)]
    normalisation: Annotated[Normalisation, Text(1, 20)]
    noise: Annotated[NoiseFrom | Literal[""], Text(0, 20)]
    noises: Annotated[tuple[PlannedNoise, ...], Items(0, 20)]
    security: Annotated[int, Range(128, 256)]
    at_least: Annotated[int, Range(0, MOST_STATED)]
    round_seconds: Annotated[int, Range(1, 2_592_000)]
    cohort: Annotated[int, Range(0, MAX_CLIENTS)] = 0
    noise_levels: Annotated[tuple[int, ...], Items(0, MOST_NOISE_LEVELS, each=Range(0, MAX_CLIENTS - 1))] = ()
    contact: Annotated[str, Text(0, 200)] = ""
    retention: Annotated[str, Text(0, 200)] = ""

    def __post_init__(self) -> None:
        read_choices(self)
        if self.security not in (128, 192, 256):
            raise BadInput(f"the plan asks for {self.security} bits of security", remedy="choose 128, 192 or 256")
        if len(set(self.classes)) != len(self.classes):
            raise BadInput("the plan names a class twice", remedy="have it written by plan new")
        if (self.data_kind is DataKind.TABLE) != bool(self.schema):
            raise BadInput("a plan has a schema exactly when its data are tables", remedy="have it written by plan new")
        if canonical_json(self.method_parameters) != self.parameters:
            raise BadInput("the JSON of the plan's parameters is not canonical", remedy="have it written by plan new")
        if odd := first_unprintable("".join(f"{key}{value}" for key, value in self.method_parameters.items())):
            problem = f"the plan's parameters hold the character {odd}, which cannot be shown"
            raise BadInput(problem, remedy="have it written without it")
        promise = (self.delta > 0, bool(self.adjacency), bool(self.noise), bool(self.noises))
        if set(promise) != {self.has_noise}:
            raise BadInput(
                f"the plan has epsilon {self.epsilon:g}, delta {self.delta:g}, adjacency {self.adjacency!r} and "
                f"{len(self.noises)} noises",
                remedy="a finite epsilon needs delta, adjacency and noise for every block; without noise none of them",
            )
        levels = self.noise_levels
        if levels and (self.noise is not NoiseFrom.CLIENT or sorted(set(levels)) != list(levels)):
            problem = f"the plan has noise levels {list(levels)} and noise from {self.noise or 'nobody'}"
            raise BadInput(problem, remedy="noise levels ascend, and are of noise that clients add")
        if self.has_noise and not self.grid.is_normalised:
            raise BadInput("a plan with noise needs normalised records", remedy="choose centred-unit or unit")

    @property
    def digest(self) -> bytes:
        """SHA-256 of the plan's canonical bytes; every signature and key derivation covers it."""
        return hashlib.sha256(encode(self)).digest()

    @property
    def grid(self) -> Grid:
        """The quantisation grid, which turns features into integers."""
        return Grid(self.radius, self.levels, self.centre, self.normalisation)

    @property
    def has_noise(self) -> bool:
        """Whether the plan adds noise, that is, has a finite ε."""
        return math.isfinite(self.epsilon)

    @property
    def training_sigma(self) -> float:
        """σ of the noise in each DP-SGD step of members, in quantisation units of a gradient; 0 without DP-SGD."""
        return self.noises[0].sigma if self.has_training_noise else 0.0

    @property
    def has_training_noise(self) -> bool:
        """Whether members add noise in their own training (DP-SGD), with or without further noise in the sums."""
        return bool(self.noises) and self.noises[0].block == TRAINING

    @property
    def sum_noises(self) -> tuple[PlannedNoise, ...]:
        """The noise on each block (named array) of the plan's sums, in the blocks' order."""
        return self.noises[self.has_training_noise :]

    @property
    def further_sigmas(self) -> Mapping[str, float]:
        """σ of noise that members add outside training, by block (named array), in quantisation units; {} if none."""
        return {each.block: each.sigma for each in self.noises[1:]} if self.noise is NoiseFrom.MEMBER else {}

    def table_schema(self) -> Schema | None:
        """Return the schema of the plan's tables; None for other kinds of data.

        Raises BadInput if it is malformed, or has other classes than the plan.
        """
        schema = Schema.from_json(self.schema) if self.schema else None
        if schema is not None and schema.classes != self.classes:
            raise BadInput("the plan's schema has other classes than the plan", remedy="have it written by plan new")
        return schema

    @property
    def method_parameters(self) -> dict[str, Any]:
        """The method's parameters by name."""
        try:
            value = parse_json(self.parameters, parse_float=_finite, parse_constant=_finite)
        except ValueError as error:
            raise BadInput(f"the plan's parameters cannot be read ({error})", remedy=_AGAIN) from None
        if not isinstance(value, dict):
            raise BadInput("the plan's parameters are not a JSON object", remedy=_AGAIN)
        return value


def _finite(number: str) -> float:
    """Read a JSON number or constant as float64. Raises ValueError for NaN and for what float64 cannot hold."""
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is not a finite number")
    return value


def canonical_json(value: Mapping[str, Any]) -> str:
    """Return a mapping's canonical JSON text: order kept, no spaces, ASCII. Raises BadInput for NaN and infinity."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        problem = f"parameters must be finite numbers (got {dict(value)})"
        raise BadInput(problem, remedy="give each a number that is neither NaN nor infinite") from None


def read_plan(path: Path) -> Plan:
    """Read a plan file. Raises BadInput when it is missing, malformed or of another version."""
    return read_json(Plan, path, "plan", _AGAIN)


def write_plan(plan: Plan, path: Path) -> None:
    """Write a plan as a readable JSON file."""
    path.write_text(to_json(plan), encoding="utf-8")
