"""The steps from a data source to features, as prescribed by a plan, or by a head made under it.

Nothing here is up to the member but the path of the data and of the backbone's file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.agreement.schema import Schema
from secagg.data import Dataset, Records, open_dataset
from secagg.data.arrays import dataset_of
from secagg.data.records import Faults, Tolerance
from secagg.data.sources import A_TABLE, IMAGE_FOLDER, kind_of, open_unlabelled, read_tables, tables_at
from secagg.encoding import Grid, Normalisation, inputs_of
from secagg.errors import BadInput
from secagg.features import Expansion, FeatureMap, Progress, open_backbone
from secagg.features.opening import needs_files
from secagg.plan_facts.records import FeatureRecipe
from secagg.system.printable import is_printable

Source = str | Dataset | tuple[Any, Any]
"""A member's data: a source for `open_dataset`, a data set, or feature vectors (n, d) with labels (n,)."""


def name_of(source: Source) -> str:
    """Return the name of a client's data for error messages."""
    return source if isinstance(source, str) else source.name if isinstance(source, Dataset) else "arrays"


@dataclass(frozen=True)
class Pipeline(FeatureRecipe):
    """The steps that a `FeatureRecipe` prescribes: open data, extract features and prepare the inputs of heads.

    `runs_files`: whether a program or a model that `backbone` names is opened. No head's own word is enough.
    """

    runs_files: bool = field(default=True, compare=False)

    @property
    def positive(self) -> str:
        """Name of the class that the schema calls positive; "" if it declares none."""
        return self.schema.positive if self.schema is not None else ""

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, str]) -> Pipeline:
        """Read a head's pipeline from the metadata of its file. Raises BadInput if these are incomplete."""
        try:
            schema, grid = metadata["schema"], json.loads(metadata["grid"])
            names = json.loads(metadata["classes"])
            if not isinstance(names, list) or not all(isinstance(each, str) and is_printable(each) for each in names):
                raise ValueError("class names are text that can be shown")
            return cls(
                metadata["data_kind"],
                Schema.from_json(schema) if schema else None,
                tuple(names),
                tuple(json.loads(metadata["input_shape"])),
                metadata["backbone"],
                metadata["backbone_digest"],
                int(metadata["expand"]),
                Grid(**{**grid, "normalisation": Normalisation(grid["normalisation"])}),
                runs_files=False,
            )
        except (KeyError, ValueError, TypeError, RecursionError):
            problem = "the head's file does not say which features it takes"
            raise BadInput(problem, remedy="use one that secagg wrote") from None

    def to_predict(self, source: str, *, tolerant: bool = False) -> Records:
        """Open records to classify, with labels or without (`UNLABELLED`). Raises BadInput as `records` does.

        `tolerant`: a bad row of a table is marked with the label −1, not refused; of others there is no such row.
        """
        self._refuse_other_kind(source)
        if tolerant and self.schema is None:
            raise BadInput(f"{source} is no table, and has no rows to skip", remedy="leave out --skip-bad-rows")
        how: dict[str, Any] = {"schema": self.schema, "image_size": self.input_shape, "classes": self.classes}
        return self._checked(source, open_unlabelled(source, tolerant=tolerant, **how), tolerant=tolerant)

    def records(self, source: Source, *, tolerant: bool = False, most: int | None = None) -> Records:
        """Open a client's data. Raises BadInput when their kind, shape or labels differ from the plan's.

        `tolerant`: a record at fault is not refused but marked with the label −1, and `most`: how many records the plan
        allows (see `open_dataset` for both).
        """
        if isinstance(source, tuple):
            source = dataset_of(*source, classes=self.classes, tolerant=tolerant)
        if isinstance(source, Dataset):
            if source.test is not None:
                problem = f"{source.name} holds {len(source.test)} records back for tests"
                raise BadInput(problem, remedy="open it with split=False: all of a member's records take part")
            records = self._checked(source.name, source, tolerant=tolerant)
            faults = Faults(records.origin, tolerant=tolerant)
            faults.add(records.labels < 0, "it has no class of the plan", "mend or remove it")
            return records.discard(faults.bad)
        self._refuse_other_kind(source)
        schema, of_recipe = self.schema, (self.data_kind, self.input_shape, self.classes)  # a head's file chooses each
        is_table = schema is not None and of_recipe == ("table", (schema.dimension,), schema.classes)
        if schema is not None and is_table and kind_of(source) == A_TABLE:
            return read_tables(tables_at(Path(source)), schema, Tolerance(most) if tolerant else None)
        how: dict[str, Any] = {"schema": schema, "image_size": self.input_shape, "classes": self.classes}
        dataset = open_dataset(source, split=False, tolerant=tolerant, most=most, **how)
        return self._checked(source, dataset, tolerant=tolerant)

    def _checked(self, source: str, dataset: Dataset, *, tolerant: bool) -> Records:
        records = dataset.train
        if dataset.kind != self.data_kind or records.inputs.shape[1:] != self.input_shape:
            remedy = f"the plan asks for {self.data_kind} of shape {self.input_shape}"
            raise BadInput(f"{source} holds {dataset.kind} of shape {records.inputs.shape[1:]}", remedy=remedy)
        records = dataset.under(self.classes).train
        faults, count = Faults(records.origin, tolerant=tolerant), len(self.classes)
        faults.add(records.labels >= count, f"the label is none of the plan's {count} classes", "labels count from 0")
        return records.discard(faults.bad)

    def _refuse_other_kind(self, source: str) -> None:
        """Raise BadInput for tables or image folders where the plan takes neither, and for other data where it does."""
        given = kind_of(source)
        other_images = given == IMAGE_FOLDER and self.data_kind != "images"
        if given is None or ((given == A_TABLE) == (self.schema is not None) and not other_images):
            return
        asked = f"{self.data_kind} of shape {self.input_shape}"
        if self.schema is not None:
            asked = f"a table of {len(self.schema.columns)} columns and the label {self.schema.label!r}"
        raise BadInput(f"{source} is {given}", remedy=f"the plan asks for {asked}")

    def feature_map(self, backbone_path: str | None = None, progress: Progress | None = None) -> FeatureMap:
        """Open the frozen feature map; a backbone file's digest is compared before it is parsed. Raises BadInput.

        So it does where nobody gave the program or the model's folder that a head names: on a head's word nothing is
        read, run or fetched.
        """
        if backbone_path is None and not self.runs_files and needs_files(self.backbone):
            problem = f"the head was made over {self.backbone}: no program or model is opened on a head's word"
            raise BadInput(problem, remedy=f"give it with --backbone, if you trust the SHA-256 {self.backbone_digest}")
        spec = backbone_path or self.backbone
        backbone = open_backbone(spec, self.input_shape, expected_digest=self.backbone_digest, progress=progress)
        return FeatureMap(backbone, Expansion(self.expand) if self.expand else None)

    def features(
        self, inputs: NDArray[Any], backbone_path: str | None = None, progress: Progress | None = None
    ) -> NDArray[np.float64]:
        """Return the feature vectors (n, d) of inputs (n, …); row i depends on record i alone."""
        return self.feature_map(backbone_path, progress).extract(inputs)

    def head_inputs(
        self, inputs: NDArray[Any], backbone_path: str | None = None, progress: Progress | None = None
    ) -> NDArray[np.float64]:
        """Return a head's inputs (n, d) for these records: features, normalised if the plan says so."""
        return inputs_of(self.features(inputs, backbone_path, progress), self.grid)
