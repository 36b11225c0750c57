"""What the models are worth that a method leaves each member for itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from secagg.experiments.features import Features
from secagg.experiments.own_records import Examples, Measurable
from secagg.heads.evaluation import clopper_pearson
from secagg.networks import TrainedModel
from secagg.session import RoundSetup, SumResult
from secagg.session.outcome import personal_models


@dataclass(frozen=True)
class ClientAccuracy:
    """Of one client's model, on held-out records distributed like its own, with its 95 % interval."""

    client: int
    accuracy: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class PersonalAccuracy:
    """Of all clients' models of one kind: each one's, and their mean."""

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
    """Measure the models that the last sum and their `states` leave its members, on records like those at `rows`.

    A member is left out that has no held-out records like its own. Empty where there is nothing to measure.
    """
    models = {
        each: {name: model.over(features.map) for name, model in own.items()}
        for each, own in _models(last, result, states)
    }
    prepared = any(model.reads_inputs for own in models.values() for model in own.values())
    measurable = Measurable.of(features, last.plan.grid, prepared=prepared) if any(models.values()) else None
    if measurable is None:
        return ()
    found: dict[str, list[ClientAccuracy]] = {}
    for client, own in models.items():
        weights = measurable.weights(measurable.own(rows[client]))
        if weights is not None:
            for name, model in own.items():
                found.setdefault(name, []).append(_measure(client, model, measurable.held_out, weights))
    return tuple(
        PersonalAccuracy(name, fmean(each.accuracy for each in clients), tuple(clients))
        for name, clients in found.items()
    )


def _models(
    last: RoundSetup, result: SumResult, states: Mapping[int, bytes]
) -> Iterator[tuple[int, Mapping[str, TrainedModel]]]:
    """Every member's own models."""
    for member in result.members:
        own = personal_models(last, result.members, result.vector, states[member])
        yield member, {name: model for name, model in own.items() if isinstance(model, TrainedModel)}


def _measure(client: int, model: TrainedModel, held_out: Examples, weights: NDArray[np.float64]) -> ClientAccuracy:
    """The weighted mean, and the interval for as many records as the weighted ones are worth (Kish 1965)."""
    own, like = held_out.take(np.flatnonzero(weights)), weights[weights > 0]
    accuracy = float(np.average(model.predict(own.inputs) == own.labels, weights=like))
    worth = float(weights.sum() ** 2 / (weights @ weights))
    return ClientAccuracy(client, accuracy, clopper_pearson(accuracy * worth, worth))
