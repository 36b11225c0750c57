"""Local adaptation of a federation's head at every simulated client, and what it changes for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from methods.baselines.softmax_regression import by_lbfgs
from secagg.encoding import Grid
from secagg.errors import BadInput
from secagg.experiments.features import Features
from secagg.experiments.own_records import Examples, Measurable
from secagg.heads import Adaptation, LinearHead, adapt, class_means, predict
from secagg.heads.adaptation import records_used


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
    measurable = Measurable.of(features, grid)
    if measurable is None:
        raise BadInput("nothing is held out to measure adaptation on", remedy="leave out --adapt")
    means = class_means(head, method, grid) if adaptation.loss == "align" else None
    found = []
    for number, rows in enumerate(clients):
        if progress is not None:
            progress(number, len(clients))
        own = measurable.own(rows)
        weights = measurable.weights(own)
        if head.present[own.labels].any() and weights is not None:
            used = records_used(own.labels, head.present, adaptation.shots)
            adapted = adapt(head, own.inputs, own.labels, adaptation, means)
            alone = _alone(own.take(used), measurable.classes, adaptation)
            found.append(_measure((head, adapted, alone), own, weights, measurable))
    if not found:
        raise BadInput("no client has records to adapt to", remedy="use fewer clients, or another partition")
    columns = [[value for value in column if value is not None] for column in zip(*found, strict=True)]
    before, after, only, *by_domain = (fmean(column) if column else None for column in columns)
    return AdaptedClients(str(adaptation), len(found), before, after, only, *by_domain)  # type: ignore[arg-type]


def _alone(own: Examples, classes: int, adaptation: Adaptation) -> LinearHead:
    head = by_lbfgs(own.inputs, own.labels, classes)
    return adapt(head, own.inputs, own.labels, replace(adaptation, weight=0.0))


def _measure(
    heads: tuple[LinearHead, LinearHead, LinearHead],
    own: Examples,
    weights: NDArray[np.float64],
    measurable: Measurable,
) -> list[float | None]:
    """One client's part of the last seven fields: three heads on records like its own, two by domain."""
    held_out, classes = measurable.held_out, measurable.classes
    right = [predict(each, held_out.inputs) == held_out.labels for each in heads]
    inside = np.isin(held_out.cells // classes, own.cells // classes)
    found: list[float | None] = [float(np.average(each, weights=weights)) for each in right]
    for side in (inside, ~inside):
        known = measurable.domains > 1 and side.any()
        found += [float(each[side].mean()) if known else None for each in right[:2]]
    return found
