"""How good something is on records like a client's own, without dealing any held-out record to anybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.data import Records
from secagg.data.records import BAD, DOMAIN
from secagg.encoding import Grid, inputs_of
from secagg.experiments.features import Features
from secagg.features import FeatureMap


@dataclass(frozen=True, eq=False)
class Examples:
    """What models take (n, d), labels (n,), and which of all (domain, class) cells each record is in (n,)."""

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    cells: NDArray[np.int64]

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Examples:
        """Those where `rows` holds, or at `rows`."""
        return Examples(self.inputs[rows], self.labels[rows], self.cells[rows])


@dataclass(frozen=True, eq=False)
class Measurable:
    """A data set's training records, row by row, and its held-out ones with a label; and how many domains there are.

    The label of a training record that a plan with noise would not count is BAD, as a bad record's is.
    """

    train: Examples
    held_out: Examples
    classes: int
    domains: int

    @classmethod
    def of(cls, features: Features, grid: Grid, *, prepared: bool = False) -> Measurable | None:
        """The records as heads of this grid take them, or `prepared` for models in the encoder.

        None for data without held-out ones. Raises BadInput for `prepared` records without an encoder.
        """
        dataset = features.dataset
        if dataset.test is None or features.test is None:
            return None
        classes, names = len(dataset.classes), _domains(dataset.train, dataset.test)
        both = (dataset.train, features.train), (dataset.test, features.test)
        made = [_prepared(features.map, own) if prepared else _usable(given, own, grid) for own, given in both]
        train, held_out = (_examples(own, *each, names, classes) for (own, _), each in zip(both, made, strict=True))
        return cls(train, held_out.take(held_out.labels != BAD), classes, len(names))

    def own(self, rows: NDArray[np.int64]) -> Examples:
        """A client's training records, at `rows`, that count."""
        return self.train.take(rows[self.train.labels[rows] != BAD])

    def weights(self, own: Examples) -> NDArray[np.float64] | None:
        """Weights of the held-out records (m,) under which they are distributed like a client's own.

        Those of a (domain, class) cell weigh together as much as the client has records of it. None where no held-out
        record is in a cell of the client's.
        """
        cells = self.held_out.cells
        shares = np.bincount(own.cells, minlength=self.domains * self.classes)[cells] / np.bincount(cells)[cells]
        return shares if shares.any() else None


def _domains(*groups: Records) -> NDArray[np.str_]:
    """The domains' names; one where the records do not tell any apart."""
    if not all(DOMAIN in each.columns for each in groups):
        return np.array([""])
    return np.unique(np.concatenate([each.columns[DOMAIN] for each in groups]))


def _prepared(feature_map: FeatureMap, records: Records) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """What models in the encoder take of the records, and their labels."""
    return feature_map.encoder.prepare(records.inputs), records.labels


def _usable(features: NDArray[np.float64], records: Records, grid: Grid) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """What heads take of the records, and their labels, BAD where a plan with noise would not count them."""
    inputs = inputs_of(features, grid)
    good = np.isfinite(inputs).all(axis=1) & (not grid.is_normalised or inputs.any(axis=1))
    return inputs, np.where(good, records.labels, BAD)


def _examples(
    records: Records, inputs: NDArray[Any], labels: NDArray[np.int64], domains: NDArray[np.str_], classes: int
) -> Examples:
    told_apart = len(domains) > 1
    index = np.searchsorted(domains, records.columns[DOMAIN]) if told_apart else np.zeros(len(records), dtype=np.int64)
    return Examples(inputs, labels, labels + classes * index)
