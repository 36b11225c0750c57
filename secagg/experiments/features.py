"""The features of an experiment, and the clock that says where its time went."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secagg.data import Dataset
from secagg.data.records import BAD
from secagg.experiments.settings import SimulationSettings
from secagg.features import Expansion, FeatureMap, open_backbone
from secagg.head import Evaluation, LinearHead, evaluate
from secagg.parties import Progress
from secagg.statistics import Grid, inputs_of


@dataclass(frozen=True, eq=False)
class Features:
    """A data set's feature vectors: `train` (n, d) and, where it has a test part, `test` (m, d)."""

    dataset: Dataset
    map: FeatureMap
    train: NDArray[np.float64] = field(repr=False)
    test: NDArray[np.float64] | None = field(repr=False)

    @classmethod
    def of(cls, dataset: Dataset, settings: SimulationSettings, progress: Progress | None = None) -> Features:
        """Extract them as the settings say."""
        spec = settings.backbone or ("pixels" if dataset.kind == "images" else "features")
        backbone = open_backbone(spec, dataset.train.inputs.shape[1:], progress=progress)
        features = FeatureMap(backbone, Expansion(settings.expand) if settings.expand else None)
        test = features.extract(dataset.test.inputs) if dataset.test is not None else None
        return cls(dataset, features, features.extract(dataset.train.inputs), test)

    def evaluate(self, head: LinearHead, grid: Grid) -> Evaluation | None:
        """Accuracy on the held-out records with a label; None without them."""
        if self.dataset.test is None or self.test is None:
            return None
        labels = self.dataset.test.labels
        labelled = labels != BAD
        return evaluate(head, inputs_of(self.test[labelled], grid), labels[labelled])


class Clock:
    """Seconds since the lap before, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Add the time since the last lap to the one of that name."""
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._last
        self._last = now
