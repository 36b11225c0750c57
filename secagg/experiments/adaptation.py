"""Local adaptation of a federation's head at every simulated client, and what it changes for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from methods.baselines.softmax_regression import by_lbfgs
from secagg.data import Records
from secagg.data.records import BAD, DOMAIN
from secagg.errors import BadInput
from secagg.experiments.features import Features
from secagg.head import Adaptation, LinearHead, adapt, class_means, predict
from secagg.head.adaptation import records_used
from secagg.statistics import Grid, inputs_of


@dataclass(frozen=True)
class AdaptedClients:
    """Mean accuracies over the `clients` that could be measured; `how` is the `Adaptation`.

    `local_…` is what one expects on records distributed like the client's own: the accuracies on the held-out records
    of each (domain,) class, weighted by the client's shares of these; no held-out record needs to be dealt to anybody.
    `before`: by the head that came from the sum. `after`: by the adapted head. `only`: without a federation, by softmax
    regression (L-BFGS to convergence) on the records that adaptation uses, then the same training, held by nothing.
    `in_domain_…`: on held-out records of the domains that the client has; `out_of_domain_…`: of the others. None where
    the data tell no domains apart, or no client lacks one.
    """

    how: str
    clients: int
    local_before: float
    local_after: float
    local_only: float
    in_domain_before: float | None
    in_domain_after: float | None
    out_of_domain_before: float | None
    out_of_domain_after: float | None


@dataclass(frozen=True, eq=False)
class _Examples:
    """Head inputs (n, d), labels (n,), and which of all (domain, class) cells each record is in (n,)."""

    inputs: NDArray[np.float64]
    labels: NDArray[np.int64]
    cells: NDArray[np.int64]

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> _Examples:
        return _Examples(self.inputs[rows], self.labels[rows], self.cells[rows])


def adapt_clients(
    features: Features,
    clients: Sequence[NDArray[np.int64]],
    head: LinearHead,
    method: str,
    grid: Grid,
    adaptation: Adaptation,
    progress: Callable[[int, int], None] | None = None,
) -> AdaptedClients:
    """Adapt `head`, which `method` made on this grid, to the training records that each client has (their rows).

    A client without a record of a class that the head knows, or without held-out records like its own, is left out.
    `progress` takes (clients done, clients in all). Raises BadInput for data without held-out records, when no client
    is left, and as `adapt` does.
    """
    dataset = features.dataset
    if dataset.test is None or features.test is None:
        raise BadInput("nothing is held out to measure adaptation on", remedy="leave out --adapt")
    classes, names = len(dataset.classes), _domains(dataset.train, dataset.test)
    everybody = _examples(features.train, dataset.train, grid, names, classes)
    held_out = _examples(features.test, dataset.test, grid, names, classes)
    held_out = held_out.take(held_out.labels != BAD)
    means = class_means(head, method, grid) if adaptation.loss == "align" else None
    found = []
    for number, rows in enumerate(clients):
        if progress is not None:
            progress(number, len(clients))
        own = everybody.take(rows[everybody.labels[rows] != BAD])
        if head.present[own.labels].any() and np.isin(own.cells, held_out.cells).any():
            used = records_used(own.labels, head.present, adaptation.shots)
            adapted = adapt(head, own.inputs, own.labels, adaptation, means)
            right = [
                predict(each, held_out.inputs) == held_out.labels
                for each in (head, adapted, _alone(own.take(used), classes, adaptation))
            ]
            found.append(_measure(right, own.cells, held_out.cells, classes, domains=len(names)))
    if not found:
        raise BadInput("no client has records to adapt to", remedy="use fewer clients, or another partition")
    columns = [[value for value in column if value is not None] for column in zip(*found, strict=True)]
    before, after, only, *by_domain = (fmean(column) if column else None for column in columns)
    return AdaptedClients(str(adaptation), len(found), before, after, only, *by_domain)  # type: ignore[arg-type]


def _alone(own: _Examples, classes: int, adaptation: Adaptation) -> LinearHead:
    head = by_lbfgs(own.inputs, own.labels, classes)
    return adapt(head, own.inputs, own.labels, replace(adaptation, weight=0.0))


def _measure(
    right: Sequence[NDArray[np.bool_]],
    own: NDArray[np.int64],
    held_out: NDArray[np.int64],
    classes: int,
    *,
    domains: int,
) -> list[float | None]:
    """One client's part of the last seven fields, from which held-out records each of three heads gets right."""
    shares = np.bincount(own, minlength=domains * classes)[held_out] / np.bincount(held_out)[held_out]
    inside = np.isin(held_out // classes, own // classes)
    found: list[float | None] = [float(np.average(each, weights=shares)) for each in right]
    for side in (inside, ~inside):
        known = domains > 1 and side.any()
        found += [float(each[side].mean()) if known else None for each in right[:2]]
    return found


def _domains(*groups: Records) -> NDArray[np.str_]:
    """The domains' names; one where the records do not tell any apart."""
    if not all(DOMAIN in each.columns for each in groups):
        return np.array([""])
    return np.unique(np.concatenate([each.columns[DOMAIN] for each in groups]))


def _examples(
    features: NDArray[np.float64], records: Records, grid: Grid, domains: NDArray[np.str_], classes: int
) -> _Examples:
    """Records as the head takes them; what a plan with noise would not count is marked, as bad records are."""
    inputs = inputs_of(features, grid)
    good = np.isfinite(inputs).all(axis=1) & (not grid.is_normalised or inputs.any(axis=1))
    labels = np.where(good, records.labels, BAD)
    told_apart = len(domains) > 1
    index = np.searchsorted(domains, records.columns[DOMAIN]) if told_apart else np.zeros(len(records), dtype=np.int64)
    return _Examples(inputs, labels, labels + classes * index)
