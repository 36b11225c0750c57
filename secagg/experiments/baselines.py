"""Simulate baselines, which make no secure sum, on the clients and records of a plan, with a plan's form of result."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from methods import read_parameters
from methods.baselines import Baseline, DpSgd, baseline_named
from methods.baselines.baseline import BaselineModel, ClientData, Linear
from secagg.data import Records
from secagg.data.records import DOMAIN
from secagg.encoding import Grid, Normalisation, inputs_of, quantise
from secagg.errors import BadInput
from secagg.experiments.features import Clock, Features
from secagg.experiments.outcome import SimulationResult
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulated_federation import split
from secagg.heads import Evaluation
from secagg.heads.artifact import clopper_pearson
from secagg.plan_facts.facts import FINE_LEVELS
from secagg.plan_facts.planning import PlanChoices, coarsest_levels, normalisation_for
from secagg.privacy import Adjacency
from secagg.privacy.claim import format_epsilon
from secagg.protection import protection_named

DP_SGD = "dp-sgd"
LEAVES_FOR_DP_SGD = "every record: somebody trusted has them all"
DP_SGD_PROMISE = (
    "(add-remove, record level, n public; opacus' accountant), against all but the party that holds all records; its "
    "noise is floating-point and pseudo-random"
)
FEDERATED = (
    *("covariance", "ridge", "refine", "rounds", "class_gate", "unit", "noise", "shares"),
    *("cohort", "dropouts", "colluders", "radius", "levels", "max_records", "adapt"),
)
"""Settings that mean something for a secure sum alone; a baseline refuses them."""


def is_baseline(method: str) -> bool:
    """Return whether a method (a name, or FILE.py:NAME) is a baseline or `dp-sgd`. Raises BadInput."""
    return method == DP_SGD or baseline_named(method) is not None


def run_baseline(features: Features, settings: SimulationSettings, clock: Clock) -> SimulationResult:
    """Train and evaluate the baseline that `settings` name, on records normalised as in a plan with these settings.

    Raises BadInput for settings that ask for what a baseline does not have, and for a protection that it cannot have.
    """
    if settings.method == DP_SGD:
        return _dp_sgd(features, settings, clock)
    kind = baseline_named(settings.method)
    if kind is None:
        raise BadInput(f"{settings.method} is no baseline", remedy="secagg methods lists them")
    _refuse_what_sums_have(settings, f"{kind.name} makes no secure sum")
    if protection_named(settings.protection).hides_vectors:
        problem = f"{kind.name} cannot run {settings.protection}: {kind.protections}"
        raise BadInput(problem, remedy="give --protection none, which protects nothing")
    if math.isfinite(settings.epsilon):
        problem = f"{kind.name} cannot keep an epsilon: {kind.protections}"
        raise BadInput(problem, remedy="leave out --epsilon; the baseline with one is dp-sgd")
    baseline = kind(**read_parameters(kind.name, asdict(kind()), settings.parameters))
    return _run_unprotected(baseline, features, settings, clock)


def _run_unprotected(
    baseline: Baseline, features: Features, settings: SimulationSettings, clock: Clock
) -> SimulationResult:
    alike = PlanChoices(centre=settings.centre, pipeline=settings.pipeline)
    normalisation = settings.normalise or normalisation_for(alike)
    grid = Grid(1.0, FINE_LEVELS, settings.centre, normalisation)
    everybody = _in_the_clear(features, grid)
    clients = [everybody.take(rows) for rows in split(features.dataset, settings)]
    clock.lap("quantise")
    start = time.process_time()
    fitted = baseline.fit(clients, len(features.dataset.classes), settings.seed)
    seconds = time.process_time() - start
    clock.lap("training")
    (first, *others), at_clients = fitted.predictors, fitted.client_seconds
    measure = partial(mean_accuracy, fitted.predictors)
    empty = sum(not len(client) for client in clients)
    head = first.head if isinstance(first, Linear) and not others else None
    return SimulationResult(
        settings=settings,
        dataset=features.dataset.name,
        clients=len(clients),
        head=head,
        metrics=features.score(head, grid) if head is not None else None,
        evaluation=features.measure(measure, grid),
        by_domain=features.by_domain(measure, grid),
        baseline_bytes=fitted.bytes_per_client,
        leaves=baseline.leaves,
        notes=(
            f"no protection: with {settings.method}, what leaves a client is: {baseline.leaves}",
            *([f"{empty} of {len(clients)} clients hold no record"] if empty else []),
            *([fitted.note] if fitted.note else []),
        ),
        seconds=clock.laps,
        client_seconds=at_clients / len(clients) if at_clients is not None else None,
        server_seconds=seconds - at_clients if at_clients is not None else None,
    )


def mean_accuracy(
    predictors: Sequence[BaselineModel], features: NDArray[np.float64], labels: NDArray[np.int64]
) -> Evaluation:
    """Return the mean of the predictors' accuracies on head inputs (m, d) with labels (m,), m ≥ 1.

    `correct` is that mean times m, rounded, and the interval is of as many right ones: of several predictors it is
    rather too wide, since a record's mean of zeros and ones varies less than one of them.
    """
    accuracy = float(np.mean([(each.predict(features) == labels).mean() for each in predictors]))
    correct = round(accuracy * len(labels))
    return Evaluation(correct, len(labels), accuracy, clopper_pearson(correct, len(labels)))


def _in_the_clear(features: Features, grid: Grid) -> ClientData:
    """Return all training records as head inputs. Raises BadRecord for one that a plan without noise cannot take."""
    records = features.dataset.train
    inputs = inputs_of(features.train, grid)
    bad = ~np.all(np.isfinite(inputs), axis=1) | (grid.is_normalised & ~np.any(inputs, axis=1))
    _refuse_faulty(np.asarray(bad), records)
    domains = np.zeros(len(records), dtype=np.int64)
    if DOMAIN in records.columns:
        domains = np.unique(records.columns[DOMAIN], return_inverse=True)[1].astype(np.int64)
    return ClientData(inputs, records.labels, domains)


def _refuse_faulty(faulty: NDArray[np.bool_], records: Records) -> None:
    if faulty.any():
        problem = "the feature vector has no direction, or NaN or infinite entries"
        raise records.origin.refusal(int(np.argmax(faulty)), problem, "mend or remove the record")


def _dp_sgd(features: Features, settings: SimulationSettings, clock: Clock) -> SimulationResult:
    """Train softmax regression by DP-SGD (plain at ε = ∞) on pooled records, without clients or protection."""
    _refuse_what_sums_have(settings, "dp-sgd has all records in one place")
    noisy = PlanChoices(epsilon=1.0, centre=settings.centre, normalise=settings.normalise)
    normalisation = normalisation_for(noisy)
    if normalisation is Normalisation.NONE:
        raise BadInput("dp-sgd clips, and takes normalised records", remedy="choose centred-unit or unit")
    grid = Grid(1.0, 16 * coarsest_levels(features.map.dimension), settings.centre, normalisation)
    records = quantise(features.train, grid) / grid.levels
    labels = features.dataset.train.labels
    counted = (labels >= 0) & (records != 0).any(axis=1)
    if math.isinf(settings.epsilon):
        _refuse_faulty(~counted, features.dataset.train)
    noise = settings.randomness.source("dp-sgd")  # with a seed for noise both decide
    seed = settings.seed if settings.noise_seed is None else int.from_bytes(noise.bytes(4), "big")
    chosen: dict[str, Any] = read_parameters(DP_SGD, asdict(DpSgd()), settings.parameters)
    how: dict[str, Any] = {"epsilon": settings.epsilon, "delta": settings.delta or 0.0, "seed": seed}
    how["adjacency"] = settings.adjacency or Adjacency.ADD_REMOVE
    head, spent = DpSgd(**chosen).fit(records[counted], labels[counted], len(features.dataset.classes), **how)
    clock.lap("training")
    stated = f"epsilon {format_epsilon(spent)} at delta {settings.delta:g}" if math.isfinite(spent) else ""
    return SimulationResult(
        settings=settings,
        dataset=features.dataset.name,
        clients=1,
        head=head,
        evaluation=features.measure(head.evaluate, grid),
        by_domain=features.by_domain(head.evaluate, grid),
        metrics=features.score(head, grid),
        promise=f"{stated} {DP_SGD_PROMISE}" if stated else None,
        bad_records=int((~counted).sum()),
        leaves=LEAVES_FOR_DP_SGD,
        notes=("centralised: somebody trusted holds all records in the clear",),
        seconds=clock.laps,
    )


def _refuse_what_sums_have(settings: SimulationSettings, why: str) -> None:
    plain = SimulationSettings()
    for name in FEDERATED:
        allowed = (getattr(plain, name), *([0] if name == "refine" else []))
        if getattr(settings, name) not in allowed:
            raise BadInput(f"{why} and no {name}", remedy=f"leave out --{name.replace('_', '-')}")
