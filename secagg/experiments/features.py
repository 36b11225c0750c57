"""Feature vectors of an experiment's records, and a clock that measures the seconds of the experiment's parts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from secagg.data import Dataset, Records
from secagg.data.partition import LeftOut, hold_out, leave_out
from secagg.data.records import BAD, DOMAIN
from secagg.encoding import Grid, inputs_of
from secagg.experiments.settings import SimulationSettings
from secagg.features import Expansion, FeatureMap, Progress, open_backbone
from secagg.features.accelerator import Accelerator
from secagg.heads import Artifact, Evaluation
from secagg.scoring.metrics import Metrics
from secagg.scoring.predictor import probabilities_of
from secagg.system.engines import Engine

JUDGED = 1_000
"""Most training records that are evaluated to find out whether training diverged."""
Measure = Callable[[NDArray[np.float64], NDArray[np.int64]], Evaluation]
"""A function that evaluates a model on head inputs (m, d) with labels (m,), m ≥ 1."""


@dataclass(frozen=True)
class DomainAccuracy:
    """Accuracy on the held-out records of one domain; `left_out` says that no client had a record of the domain."""

    domain: str
    evaluation: Evaluation
    left_out: bool


@dataclass(frozen=True, eq=False)
class Features:
    """A data set's feature vectors: `train` (n, d) and, where it has a test part, `test` (m, d).

    `left_out` says which records the test part is, when it is those of a domain that no client has; `others` are then
    the held-out records of the other domains, and their features.
    """

    dataset: Dataset
    map: FeatureMap
    train: NDArray[np.float64] = field(repr=False)
    test: NDArray[np.float64] | None = field(repr=False)
    left_out: LeftOut | None = None
    others: tuple[Records, NDArray[np.float64]] | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        settings: SimulationSettings,
        progress: Progress | None = None,
        engine: Engine | Accelerator | None = None,
    ) -> Features:
        """Extract a data set's features, in worker processes if an engine is given, and choose the test records."""
        features = map_of(dataset, settings.backbone, settings.expand, progress, engine)
        test = features.extract(dataset.test.inputs) if dataset.test is not None else None
        return cls(dataset, features, features.extract(dataset.train.inputs), test).cut(settings)

    def cut(self, settings: SimulationSettings) -> Features:
        """Return the features with test records chosen by the settings `validate` or `leave_out`. Raises BadInput."""
        if not settings.validate:
            return self.without(settings.leave_out)
        dataset, held = hold_out(self.dataset, settings.validate)
        return replace(self, dataset=dataset, train=self.train[~held], test=self.train[held])

    def without(self, left_out: str | None) -> Features:
        """Return the features with the records where COLUMN=VALUE as test part; unchanged for None. Raises BadInput."""
        if left_out is None:
            return self
        left = LeftOut.read(left_out)
        cut = leave_out(self.dataset, left.column, left.value)
        train, test = left.rows(self.dataset)
        tested, others = self.train[train], None
        if self.dataset.test is not None and self.test is not None:
            tested = np.concatenate([tested, self.test[test]])
            others = (self.dataset.test.take(np.flatnonzero(~test)), self.test[~test])
        return replace(self, dataset=cut, train=self.train[~train], test=tested, left_out=left, others=others)

    def measure(self, measure: Measure, grid: Grid) -> Evaluation | None:
        """Evaluate a model by calling `measure` on the labelled held-out records; return None without such records."""
        return self.measuring(grid)(measure)

    def measuring(self, grid: Grid) -> Callable[[Measure], Evaluation | None]:
        """Return a function that evaluates models as `Features.measure` does; it computes the head inputs only once."""
        if self.dataset.test is None or self.test is None:
            return lambda measure: None
        held_out = _inputs(self.dataset.test, self.test, grid)
        return lambda measure: measure(*held_out) if len(held_out[1]) else None

    def training_fit(self, head: Artifact, grid: Grid) -> tuple[float, float, float]:
        """Return a head's mean log loss in nats and accuracy on training records, and the most common class's fraction.

        Of at most JUDGED training records with a label, evenly spaced, since many files are sorted by class. The loss
        is NaN where scores are no numbers, or no record has a label.
        """
        known = np.flatnonzero(self.dataset.train.labels >= 0)
        few = known[:: max(1, -(-len(known) // JUDGED))]
        inputs, labels = _inputs(self.dataset.train.take(few), self.train[few], grid)
        if not len(labels):
            return math.nan, 0.0, 1.0
        scores = head.scores(inputs)
        with np.errstate(invalid="ignore", over="ignore"):
            chances = log_softmax(scores, axis=1)[np.arange(len(labels)), labels]
        right = float(np.mean(np.argmax(scores, axis=1) == labels))
        return -float(np.mean(chances)), right, float(np.bincount(labels).max()) / len(labels)

    def score(self, head: Artifact, grid: Grid) -> Metrics | None:
        """Return a classifying head's metrics on the labelled held-out records; None without such records."""
        if self.dataset.test is None or self.test is None:
            return None
        inputs, labels = _inputs(self.dataset.test, self.test, grid)
        positive = self.dataset.schema.positive if self.dataset.schema is not None else ""
        chances = probabilities_of(head.scores(inputs))
        return Metrics.of(chances, labels, self.dataset.classes, positive=positive) if len(labels) else None

    def by_domain(self, measure: Measure, grid: Grid) -> tuple[DomainAccuracy, ...]:
        """Return the accuracy, computed by `measure`, on each domain, or on each value of the column that is left out.

        It is () without such a column.
        """
        column = self.left_out.column if self.left_out is not None else DOMAIN
        groups = [(self.dataset.test, self.test, self.left_out is not None), (*(self.others or (None, None)), False)]
        found = []
        for records, features, left in groups:
            if records is None or features is None or column not in records.columns:
                continue
            values = records.columns[column]
            for value in np.unique(values):
                own = np.flatnonzero(values == value)
                inputs, labels = _inputs(records.take(own), features[own], grid)
                if len(labels):
                    found.append(DomainAccuracy(str(value), measure(inputs, labels), left))
        return tuple(found)


def map_of(
    dataset: Dataset,
    backbone: str | None,
    expand: int,
    progress: Progress | None = None,
    engine: Engine | Accelerator | None = None,
) -> FeatureMap:
    """Build a data set's feature map, a backbone (default: raw pixels or values) and an expansion. Raises BadInput."""
    spec = backbone or ("pixels" if dataset.kind == "images" else "features")
    opened = open_backbone(spec, dataset.train.inputs.shape[1:], progress=progress, engine=engine)
    return FeatureMap(opened, Expansion(expand) if expand else None)


def _inputs(
    records: Records, features: NDArray[np.float64], grid: Grid
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return a head's inputs for the labelled records, and their labels."""
    labelled = records.labels != BAD
    return inputs_of(features[labelled], grid), records.labels[labelled]


class Clock:
    """A stopwatch that adds up the seconds of an experiment's named parts (laps)."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def add(self, laps: Mapping[str, float]) -> None:
        """Add the laps that another clock has measured."""
        for name, seconds in laps.items():
            self.laps[name] = self.laps.get(name, 0.0) + seconds

    def lap(self, name: str) -> None:
        """Add the time since the end of the last lap to the lap `name`."""
        begun, self._last = self._last, time.perf_counter()
        self.add({name: self._last - begun})
