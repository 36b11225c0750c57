"""Predict records' classes with a head from a file and its backbone; the probabilities may be calibrated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from secagg.data import Records
from secagg.data.records import BAD, UNLABELLED
from secagg.data.sources import reasons_of
from secagg.encoding import inputs_of
from secagg.errors import BadInput
from secagg.features import FeatureMap, Progress
from secagg.features.pipeline import Pipeline
from secagg.heads import LinearHead, load_as
from secagg.heads.linear import ABSENT_BIAS
from secagg.networks import SlotMeans, TrainedModel, parse_artifact
from secagg.scoring.metrics import Metrics

FEWEST = 10
"""Fewest labelled records to which a temperature is fitted."""
RANGE = (1e-2, 1e3)
"""Bounds of the fitted temperature: for records that are all classified right the best one would be 0."""


def probabilities_of(scores: NDArray[np.float64], temperature: float = 1.0) -> NDArray[np.float64]:
    """Return the softmax (n, C) of scores (n, C) divided by the temperature, which keeps the most probable class."""
    found: NDArray[np.float64] = np.exp(log_softmax(scores / temperature, axis=1))
    return found


@dataclass(frozen=True)
class Calibration:
    """A softmax `temperature` > 0, the number of `records` it is fitted to, mean log loss `before` and `after` it."""

    temperature: float
    records: int
    before: float
    after: float

    @classmethod
    def fit(cls, scores: NDArray[np.float64], labels: NDArray[np.int64]) -> Calibration:
        """Fit the softmax temperature of least log loss to scores (n, C), labels (n,) (Guo et al. 2017, section 4.2).

        Raises BadInput for fewer than ten records, or none of a class that the head knows.
        """
        if len(labels) < FEWEST:
            problem = f"{len(labels)} labelled records are too few to calibrate by"
            raise BadInput(problem, remedy=f"give {FEWEST} or more")
        rows = np.arange(len(labels))

        def loss(exponent: float) -> float:
            # A class that the head never saw has the score −10³⁰: records of it have no say.
            own = log_softmax(scores / math.exp(exponent), axis=1)[rows, labels]
            return float(-np.mean(own[usable]))

        usable = scores[rows, labels] > ABSENT_BIAS / 2
        if not usable.any():
            raise BadInput("the head knows none of the classes of the records to calibrate by")
        found = minimize_scalar(loss, bounds=(math.log(RANGE[0]), math.log(RANGE[1])), method="bounded")
        return cls(math.exp(float(found.x)), int(usable.sum()), loss(0.0), float(found.fun))


def read_head(path: Path) -> tuple[LinearHead | TrainedModel | SlotMeans, dict[str, str]]:
    """Read a head or a model, and its metadata, from a file. Raises BadInput if it predicts no classes."""
    model, metadata = load_as(path, parse_artifact)
    if not model.predicts:
        raise BadInput(f"{path} tells no classes apart by itself", remedy="give a member's own model")
    return model, metadata


@dataclass(frozen=True, eq=False)
class Predictor:
    """A head or a trained model with the pipeline from records to its features, and its file's `metadata`."""

    model: LinearHead | TrainedModel | SlotMeans
    pipeline: Pipeline
    feature_map: FeatureMap
    metadata: Mapping[str, str] = field(repr=False)

    @classmethod
    def open(cls, head: Path | str, backbone: str | None = None) -> Predictor:
        """Build a predictor from a head's file. Raises BadInput if the file holds no head that predicts classes."""
        return cls.of(*read_head(Path(head)), backbone)

    @classmethod
    def of(
        cls,
        model: LinearHead | TrainedModel | SlotMeans,
        metadata: Mapping[str, str],
        backbone: str | None = None,
        progress: Progress | None = None,
    ) -> Predictor:
        """Build a predictor from the result of `read_head`; `progress` is called while the backbone works."""
        pipeline = Pipeline.of_metadata(metadata)
        feature_map = pipeline.feature_map(backbone, progress)
        whole = model.over(feature_map) if isinstance(model, TrainedModel) else model
        return cls(whole, pipeline, feature_map, metadata)

    def scores(self, inputs: NDArray[Any]) -> NDArray[np.float64]:
        """Return the classes' scores (n, C), before the softmax, of records' inputs (n, …)."""
        prepared: Any
        if isinstance(self.model, TrainedModel) and self.model.reads_inputs:
            prepared = self.feature_map.encoder.prepare(inputs)
        else:
            prepared = inputs_of(self.feature_map.extract(inputs), self.pipeline.grid)
        return self.model.scores(prepared)

    def predict(
        self, source: str, calibration: Calibration | None = None, *, skip_bad_rows: bool = False
    ) -> Predictions:
        """Predict the classes of the records in a file or folder, with labels or without. Raises BadInput.

        `skip_bad_rows`: a row of a table that cannot be used has no prediction but a reason, and refuses nothing.
        """
        records = self.pipeline.to_predict(source, tolerant=skip_bad_rows)
        schema, good = self.pipeline.schema, records.labels != BAD
        temperature = calibration.temperature if calibration is not None else 1.0
        probabilities = np.full((len(records), len(self.pipeline.classes)), np.nan)
        scores = self.scores(records.inputs[good])
        probabilities[good] = probabilities_of(scores, temperature)
        skipped = reasons_of(records, schema) if schema is not None else {}
        absent = np.flatnonzero((scores <= ABSENT_BIAS / 2).all(axis=0)).tolist() if len(scores) else []
        never = tuple(self.pipeline.classes[each] for each in absent)
        return Predictions(self.pipeline.classes, records, probabilities, self.pipeline.positive, skipped, never)

    def calibrate(self, source: str) -> Calibration:
        """Fit a softmax temperature to the labelled records in a file or folder. Raises BadInput."""
        records = self.pipeline.to_predict(source)
        known = records.labels != UNLABELLED
        return Calibration.fit(self.scores(records.inputs[known]), records.labels[known])


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for n records: `probabilities` (n, C), each row adding up to 1, beside the `records` themselves.

    `positive` is the schema's positive class; "" where none is declared. `skipped`: why a row has no prediction, by
    its index; its probabilities are NaN. `never_predicted`: the classes that the model's file knows no record of.
    """

    classes: tuple[str, ...]
    records: Records = field(repr=False)
    probabilities: NDArray[np.float64] = field(repr=False)
    positive: str = ""
    skipped: Mapping[int, str] = field(default_factory=dict)
    never_predicted: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.records)

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The most probable class of each record (n,); of equally probable ones the lowest."""
        found: NDArray[np.int64] = np.argmax(self.probabilities, axis=1).astype(np.int64)
        return found

    @property
    def known(self) -> NDArray[np.bool_]:
        """Boolean array (n,), true for records that have a label and were not skipped."""
        found: NDArray[np.bool_] = self.records.labels >= 0
        return found

    @property
    def labelled(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Probabilities (m, C) and labels (m,) of the m records with a label."""
        return self.probabilities[self.known], self.records.labels[self.known]

    @property
    def metrics(self) -> Metrics | None:
        """Metrics of the labelled records; None where no record has a label."""
        probabilities, labels = self.labelled
        return Metrics.of(probabilities, labels, self.classes, positive=self.positive) if len(labels) else None

    def rows(self) -> list[dict[str, Any]]:
        """Return each record's file and row, predicted class, probabilities by class, and label (None: unlabelled).

        A skipped row has neither class nor probabilities, and says under "skipped" why; others have None there.
        """
        origin, names = self.records.origin, (*self.classes, None)
        places = zip(origin.file.tolist(), origin.row.tolist(), strict=True)
        labels = np.where(self.known, self.records.labels, len(self.classes)).tolist()
        columns = zip(places, self.predicted.tolist(), self.probabilities.tolist(), labels, strict=True)
        return [
            {
                "file": origin.files[file],
                "row": row,
                "class": self.classes[said] if index not in self.skipped else None,
                "probabilities": dict(zip(self.classes, chances, strict=True)) if index not in self.skipped else None,
                "label": names[label],
                "skipped": self.skipped.get(index),
            }
            for index, ((file, row), said, chances, label) in enumerate(columns)
        ]
