"""The seam between the core and what turns records into integers: `secagg.data`, `secagg.features` and what they need.

Before it a plan, after it integers on the plan's grid, labels and domains. Whatever stands behind it is loaded by name
when it is first asked for, so that who reads the core, or follows its imports, ends here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from methods.round import Examples
from secagg.agreement.plan import Plan
from secagg.agreement.schema import Schema
from secagg.encoding import Integers
from secagg.encoding.grid import Grid

if TYPE_CHECKING:
    from secagg.features import FeatureMap

Source = Any
"""A member's data: the name of what can be opened, a data set, or feature vectors (n, d) and their labels (n,)."""
Progress = Callable[[int, int], None]
"""What takes (records done, records in all)."""
_BEHIND = "secagg.features.local_records"
BAD = -1
"""The label of a record that does not count."""


@dataclass(frozen=True, eq=False)
class LocalRecords(Examples):
    """A member's records as examples; the label −1 marks a record that does not count.

    Without noise such a record is refused; with noise it is left out by a rule that looks at it alone, since a refusal
    would tell of it. Nothing here is for other eyes than the operator's. `inputs` (n, …) are what the records were
    made of by `feature_map`, where the plan's method reads them; else None.
    """

    inputs: NDArray[Any] | None = field(default=None, repr=False)
    feature_map: FeatureMap | None = None

    @classmethod
    def pooled(cls, parts: Sequence[LocalRecords]) -> LocalRecords:
        """All members' records in one place, which only an experiment has."""
        inputs = [each.inputs for each in parts if each.inputs is not None]
        return cls(
            np.concatenate([each.records for each in parts]),
            np.concatenate([each.labels for each in parts]),
            np.concatenate([each.domains for each in parts]),
            np.concatenate(inputs) if inputs else None,
            parts[0].feature_map,
        )

    @property
    def integers(self) -> Integers:
        """The records on the plan's grid (n, d)."""
        return self.records

    @property
    def bad(self) -> int:
        """Number of records that do not count."""
        return int((self.labels == BAD).sum())

    def take(self, rows: NDArray[np.bool_] | Integers) -> LocalRecords:
        """The records where `rows` holds, or at `rows`."""
        inputs = None if self.inputs is None else self.inputs[rows]
        return LocalRecords(self.records[rows], self.labels[rows], self.domains[rows], inputs, self.feature_map)

    @cached_property
    def counted(self) -> LocalRecords:
        """The records that count."""
        counted = self.labels != BAD
        return self if counted.all() else self.take(counted)


@dataclass(frozen=True)
class FeatureRecipe:
    """Recipe from inputs of one kind to feature vectors on a grid. `schema` is None unless the data are tables."""

    data_kind: str
    schema: Schema | None
    classes: tuple[str, ...]
    input_shape: tuple[int, ...]
    backbone: str
    backbone_digest: str
    expand: int
    grid: Grid

    @classmethod
    def of_plan(cls, plan: Plan) -> Self:
        """The one that a plan fixes."""
        return cls(
            plan.data_kind,
            plan.table_schema(),
            plan.classes,
            plan.input_shape,
            plan.backbone,
            plan.backbone_digest.hex(),
            plan.expand,
            plan.grid,
        )

    def to_metadata(self) -> dict[str, str]:
        """Text for the head's file; `Pipeline.of_metadata` undoes it."""
        return {
            "data_kind": self.data_kind,
            "schema": self.schema.to_json() if self.schema else "",
            "classes": json.dumps(self.classes),
            "input_shape": json.dumps(self.input_shape),
            "backbone": self.backbone,
            "backbone_digest": self.backbone_digest,
            "expand": str(self.expand),
            "grid": json.dumps(asdict(self.grid)),
        }


@dataclass(frozen=True)
class PlannedFeatures:
    """Facts of a backbone with its expansion that a plan states: name, SHA-256 (hex), number of features.

    `bound` is a length that no feature vector exceeds, None where none is known.
    """

    name: str
    digest: str
    dimension: int
    bound: float | None


def read_records(
    plan: Plan, source: Source, backbone_path: str | None = None, progress: Progress | None = None
) -> LocalRecords:
    """Read a member's data, extract features and quantise them.

    Raises BadInput or BadRecord for data that the plan does not allow: nothing has been sent then.
    """
    found: LocalRecords = import_module(_BEHIND).read_records(plan, source, backbone_path, progress)
    return found


def plan_features(
    backbone: str, input_shape: tuple[int, ...], expand: int, input_bound: float | None
) -> PlannedFeatures:
    """Open a backbone (by name or file) to state it in a plan; `input_bound` is a public L2 bound of one input.

    Raises BadInput.
    """
    found: PlannedFeatures = import_module(_BEHIND).plan_features(backbone, input_shape, expand, input_bound)
    return found


def admit_program(file: Path) -> None:
    """Let a file's program be parsed where a plan names it. Raises BadInput."""
    import_module("secagg.networks").admit(file)


def write_model_card(folder: Path, setup: Any, head_sha256: str, members: Sequence[int]) -> None:
    """Write the card of a head beside it, `setup` being the last round's and `members` those in its sum."""
    scoring = import_module("secagg.scoring")
    scoring.write_card(folder, scoring.card_of(setup, head_sha256, members))
