"""Centralised baselines under the same roof: same features, same ε, same report."""

from __future__ import annotations

import math

from methods.baselines.dp_sgd import DpSgd
from secagg.errors import BadInput
from secagg.experiments.features import Clock, Features
from secagg.experiments.outcome import SimulationResult
from secagg.experiments.settings import SimulationSettings
from secagg.parties.planning import PlanChoices, coarsest_levels, normalisation_for
from secagg.privacy import Adjacency
from secagg.privacy.claim import shown
from secagg.statistics import Grid, Normalisation, quantise

BASELINES = ("dp-sgd",)
FEDERATED = (
    *("refine", "class_gate", "unit", "noise", "shares"),
    *("dropouts", "colluders", "radius", "levels", "max_records"),
)
"""Settings without a meaning where somebody has all the records; clients, partition and protection just do nothing."""


def run_baseline(features: Features, settings: SimulationSettings, clock: Clock) -> SimulationResult:
    """Train DP-SGD on pooled, normalised records (softmax regression without privacy at ε = ∞).

    Records are normalised as a plan with the same settings would. Raises BadInput for settings that ask for what a
    centralised baseline does not have.
    """
    plain = SimulationSettings()
    for name in FEDERATED:
        if getattr(settings, name) != getattr(plain, name):
            option = name.replace("_", "-")
            raise BadInput(f"dp-sgd has all records in one place and no {name}", remedy=f"leave out --{option}")
    noisy = PlanChoices(epsilon=1.0, centre=settings.centre, normalisation=_chosen(settings))
    normalisation = normalisation_for(noisy)
    if normalisation is Normalisation.NONE:
        raise BadInput("dp-sgd clips, and takes normalised records", remedy="choose centred-unit or unit")
    grid = Grid(1.0, 16 * coarsest_levels(features.map.dimension), settings.centre, normalisation)
    records = quantise(features.train, grid) / grid.levels
    labels = features.dataset.train.labels
    counted = (labels >= 0) & (records != 0).any(axis=1)
    head, spent = DpSgd().fit(
        records[counted],
        labels[counted],
        len(features.dataset.classes),
        adjacency=Adjacency(settings.adjacency or Adjacency.ADD_REMOVE),
        epsilon=settings.epsilon,
        delta=settings.delta or 0.0,
        seed=settings.seed,
    )
    clock.lap("training")
    return SimulationResult(
        settings=settings,
        dataset=features.dataset.name,
        clients=1,
        head=head,
        evaluation=features.evaluate(head, grid),
        reference=None,
        promise=_promise(spent, settings),
        bad_records=int((~counted).sum()),
        federated=None,
        notes=("centralised: somebody trusted holds all records in the clear",),
        seconds=clock.laps,
    )


def _chosen(settings: SimulationSettings) -> Normalisation | None:
    return Normalisation(settings.normalise) if settings.normalise else None


def _promise(spent: float, settings: SimulationSettings) -> str | None:
    if math.isinf(spent):
        return None
    return (
        f"epsilon {shown(spent)} at delta {settings.delta:g} (add-remove, record level, n public; opacus' accountant), "
        "against all but the party that holds all records; its noise is floating-point and pseudo-random"
    )
