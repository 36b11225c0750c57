"""The interface to `secagg.data` and `secagg.features`, packages that turn records into integers, loaded on first use.

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
"""A member's data: a name (of a file, folder or data set), a data set, or features (n, d) with labels (n,)."""
Progress = Callable[[int, int], None]
"""A function that reports progress: it takes (records done, records in all)."""
_BEHIND = "secagg.features.local_records"
BAD = -1
"""The label of an unusable record (see `LocalRecords`)."""


@dataclass(frozen=True, eq=False)
class LocalRecords(Examples):
    """A member's records as training examples in integers; the label −1 marks an unusable record.

    Without noise such a record is refused; with noise it is left out by a rule that looks at it alone, since a refusal
    would tell of it. Nothing here is for other eyes than the operator's. `inputs` (n, …) are what the records were
    made of by `feature_map`, where the plan's method reads them; else None.
    """

    inputs: NDArray[Any] | None = field(default=None, repr=False)
    feature_map: FeatureMap | None = None

    @classmethod
    def pooled(cls, parts: Sequence[LocalRecords]) -> LocalRecords:
        """Join the records of all members into one data set, for experiments, which alone have them all."""
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
        """The records as integers on the plan's quantisation grid, of shape (n, d)."""
        return self.records

    @property
    def bad(self) -> int:
        """The number of unusable records (label −1)."""
        return int((self.labels == BAD).sum())

    def take(self, rows: NDArray[np.bool_] | Integers) -> LocalRecords:
        """Return the records that `rows` selects, a boolean array (n,) or indices."""
        inputs = None if self.inputs is None else self.inputs[rows]
        return LocalRecords(self.records[rows], self.labels[rows], self.domains[rows], inputs, self.feature_map)

    @cached_property
    def counted(self) -> LocalRecords:
        """The usable records, without those of label −1."""
        counted = self.labels != BAD
        return self if counted.all() else self.take(counted)


@dataclass(frozen=True)
class FeatureRecipe:
    """The recipe that turns inputs of one kind into quantised feature vectors; `schema` is None except for tables."""

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
        """Return the recipe that a plan fixes."""
        inputs = plan.data_kind, plan.table_schema(), plan.classes, plan.input_shape
        return cls(*inputs, plan.backbone, plan.backbone_digest.hex(), plan.expand, plan.grid)

    def to_metadata(self) -> dict[str, str]:
        """Return the recipe as metadata of a head's file; `Pipeline.of_metadata` reads it."""
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
    """A plan's backbone: name, SHA-256 (hex), number of features, and upper `bound` of their L2 norm (or None)."""

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
    """Describe a backbone (name or file) for a plan; `input_bound` limits the L2 norm of an input. Raises BadInput."""
    found: PlannedFeatures = import_module(_BEHIND).plan_features(backbone, input_shape, expand, input_bound)
    return found


def admit_program(file: Path) -> None:
    """Permit the program in a file to be parsed if a plan names its digest. Raises BadInput."""
    import_module("secagg.networks.exported").admit(file)


def write_model_card(folder: Path, setup: Any, head_sha256: str, members: Sequence[int]) -> None:
    """Write a head's model card into `folder`, from the last round's `setup` and its `members`, by roster index."""
    scoring = import_module("secagg.scoring.card")
    scoring.write_card(folder, scoring.card_of(setup, head_sha256, members))
