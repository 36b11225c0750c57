"""Accuracy of adapted heads and of members' own models, on held-out records weighted like each client's own.

The held-out records are weighted to a client's distribution, so that none has to be dealt to anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from methods import method_named
from methods.baselines.softmax_regression import by_lbfgs
from secagg.data.records import BAD, DOMAIN
from secagg.encoding import Grid, inputs_of
from secagg.errors import BadInput
from secagg.experiments.features import Features
from secagg.heads import LinearHead, predict
from secagg.heads.adaptation import Adaptation, adapt, class_means, records_used
from secagg.heads.artifact import clopper_pearson
from secagg.networks import TrainedModel
from secagg.session import RoundSetup, SumResult
from secagg.session.outcome import personal_models


@dataclass(frozen=True, eq=False)
class LabelledInputs:
    """A model's inputs (n, d), their labels (n,), and the index of each record's (domain, class) pair (n,)."""

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    cells: NDArray[np.int64]

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> LabelledInputs:
        """Return the records that `rows` selects, a boolean array (n,) or indices."""
        return LabelledInputs(self.inputs[rows], self.labels[rows], self.cells[rows])


@dataclass(frozen=True, eq=False)
class ClientDistributions:
    """The training records and the labelled held-out records of a data set, and its number of domains.

    The label of a training record that a plan with noise would not count is BAD, as a bad record's is.
    """

    train: LabelledInputs
    held_out: LabelledInputs
    classes: int
    domains: int

    @classmethod
    def of(cls, features: Features, grid: Grid, *, prepared: bool = False) -> ClientDistributions | None:
        """Convert a data set's records to the inputs of heads or, if `prepared`, of models that contain the encoder.

        The heads are those made on `grid`. None for data without held-out ones. Raises BadInput for
        `prepared` records without an encoder.
        """
        dataset = features.dataset
        if dataset.test is None or features.test is None:
            return None
        classes, names, made = len(dataset.classes), np.array([""]), []
        if all(DOMAIN in records.columns for records in (dataset.train, dataset.test)):
            names = np.unique(np.concatenate([dataset.train.columns[DOMAIN], dataset.test.columns[DOMAIN]]))
        for records, vectors in ((dataset.train, features.train), (dataset.test, features.test)):
            inputs: NDArray[Any]
            labels = records.labels
            if prepared:
                inputs = features.map.encoder.prepare(records.inputs)
            else:
                inputs = inputs_of(vectors, grid)
                good = np.isfinite(inputs).all(axis=1) & (not grid.is_normalised or inputs.any(axis=1))
                labels = np.where(good, labels, BAD)
            domains = np.searchsorted(names, records.columns[DOMAIN]) if len(names) > 1 else 0
            made.append(LabelledInputs(inputs, labels, labels + classes * domains))
        train, held_out = made
        return cls(train, held_out.take(held_out.labels != BAD), classes, len(names))

    def own(self, rows: NDArray[np.int64]) -> LabelledInputs:
        """Return one client's training records, those at `rows`, without the bad ones."""
        return self.train.take(rows[self.train.labels[rows] != BAD])

    def weights(self, own: LabelledInputs) -> NDArray[np.float64] | None:
        """Return weights of the held-out records (m,) under which they are distributed like the client's `own` records.

        Those of a (domain, class) cell weigh together as much as the client has records of it. None where no held-out
        record is in a cell of the client's.
        """
        cells = self.held_out.cells
        shares = np.bincount(own.cells, minlength=self.domains * self.classes)[cells] / np.bincount(cells)[cells]
        return shares if shares.any() else None


@dataclass(frozen=True)
class ClientAccuracy:
    """The accuracy of one client's model on held-out records distributed like its own, with its 95 % interval."""

    client: int
    accuracy: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class PersonalAccuracy:
    """The accuracies of one kind of personal model, client by client, and their mean."""

    model: str
    mean: float
    clients: tuple[ClientAccuracy, ...]


def measure_personal(
    features: Features,
    last: RoundSetup,
    result: SumResult,
    states: Mapping[int, bytes],
    rows: Mapping[int, NDArray[np.int64]],
) -> tuple[PersonalAccuracy, ...]:
    """Measure the accuracy of each member's personal model, from its private state, on held-out records like its own.

    A member is left out that has no held-out records like its own. Empty where there is nothing to measure.
    """
    models = {}
    for member in result.members:
        own = personal_models(last, result.members, result.vector, states[member])
        trained = {name: model for name, model in own.items() if isinstance(model, TrainedModel)}
        models[member] = {name: model.over(features.map) for name, model in trained.items()}
    prepared = any(model.reads_inputs for own in models.values() for model in own.values())
    measurable = ClientDistributions.of(features, last.plan.grid, prepared=prepared) if any(models.values()) else None
    if measurable is None:
        return ()
    found: dict[str, list[ClientAccuracy]] = {}
    for client, own in models.items():
        weights = measurable.weights(measurable.own(rows[client]))
        if weights is not None:
            for name, model in own.items():
                single, like = measurable.held_out.take(np.flatnonzero(weights)), weights[weights > 0]
                accuracy = float(np.average(model.predict(single.inputs) == single.labels, weights=like))
                worth = float(weights.sum() ** 2 / (weights @ weights))
                one = ClientAccuracy(client, accuracy, clopper_pearson(accuracy * worth, worth))
                found.setdefault(name, []).append(one)
    means = {name: fmean(each.accuracy for each in clients) for name, clients in found.items()}
    return tuple(PersonalAccuracy(name, means[name], tuple(clients)) for name, clients in found.items())


@dataclass(frozen=True)
class AdaptedClients:
    """Mean accuracies before and after clients adapt the head to their own records; `how` names the adaptation.

    All are in [0, 1], over the `clients` clients that could be measured. `local_…` is what one expects on records
    distributed like the client's own: the accuracies on the held-out records of each (domain,) class, weighted by the
    client's shares of these; no held-out record needs to be dealt to anybody. `before`: by the head that came from the
    sum. `after`: by the adapted head. `only`: without a federation, by softmax regression (L-BFGS to convergence) on
    the records that adaptation uses, then the same training, held by nothing. `in_domain_…`: on held-out records of the
    domains that the client has; `out_of_domain_…`: of the others; both weight clients by the number of these records
    (ind acc and ood acc, MPFT's Eq. 3). `before` is of one model for all: there both are one number, where each client
    has one domain and each domain as many clients. None where the data tell no domains apart, or no client lacks one.
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
    """Adapt `head` to each client's training records, and return the mean accuracies before and after.

    `clients` holds each client's rows; `method` made the head, on this grid. A client without a record of a class that
    the head knows, or without held-out records like its own, is left out. `progress` takes (clients done, clients in
    all). Raises BadInput for data without held-out records, when no client is left, and as `adapt` does.
    """
    measurable = ClientDistributions.of(features, grid)
    if measurable is None:
        raise BadInput("nothing is held out to measure adaptation on", remedy="leave out --adapt")
    held_out = measurable.held_out
    means = class_means(head, method_named(method).traits.weights, grid) if adaptation.loss == "align" else None
    found: list[list[tuple[float, int]]] = []  # of each client the last seven fields, each with its weight
    for number, rows in enumerate(clients):
        if progress is not None:
            progress(number, len(clients))
        own = measurable.own(rows)
        weights = measurable.weights(own)
        if head.present[own.labels].any() and weights is not None:
            used = records_used(own.labels, head.present, adaptation.shots)
            adapted = adapt(head, own.inputs, own.labels, adaptation, means)
            few = own.take(used)
            alone = by_lbfgs(few.inputs, few.labels, measurable.classes)
            alone = adapt(alone, few.inputs, few.labels, replace(adaptation, weight=0.0))
            right = [predict(each, held_out.inputs) == held_out.labels for each in (head, adapted, alone)]
            inside = np.isin(held_out.cells // measurable.classes, own.cells // measurable.classes)
            measures = [(float(np.average(each, weights=weights)), 1) for each in right]
            for side in (inside, ~inside):
                count = int(side.sum()) if measurable.domains > 1 else 0
                measures += [(float(each[side].mean()) if count else 0.0, count) for each in right[:2]]
            found.append(measures)
    if not found:
        raise BadInput("no client has records to adapt to", remedy="use fewer clients, or another partition")
    values, counts = np.moveaxis(np.array(found), 2, 0)
    known = zip(values.T, counts.T, strict=True)
    before, after, only, *by_domain = (fmean(own, each) if each.any() else None for own, each in known)
    return AdaptedClients(str(adaptation), len(found), before, after, only, *by_domain)  # type: ignore[arg-type]
