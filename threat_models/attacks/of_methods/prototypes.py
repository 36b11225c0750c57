"""Test whether a record is part of shared prototypes, by the sums that they come from and by its likeness to them.

In the first round all members project by one public start: its sum is one of class sums, and tells members as these do
(Homer et al. 2008). Later ones are of projections that members have trained for themselves; the public start is what
an outsider has of them. A record also is nearer to the prototypes that it is part of (Yeom et al. 2018).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from methods import sums_of
from methods.own_models.local_projection import LocalProjection
from methods.round import OpenedTotal
from secagg.encoding import Grid
from secagg.errors import BadInput
from secagg.networks import TrainedModel
from threat_models.attacks.attack import Attack
from threat_models.attacks.gaussian_likelihood import Noise
from threat_models.attacks.membership.aggregate import make_sum_control, score_by_release
from threat_models.attacks.membership.blind_baseline import BLIND, Trial, try_candidates
from threat_models.attacks.membership.metrics import Figures
from threat_models.attacks.of_methods.lira import losses
from threat_models.attacks.updates import beyond_class, count_rounds, inputs_of
from threat_models.findings import Finding
from threat_models.session import OTHER, AuditRecords, Floats, Session
from threat_models.views import View

SUMS = Figures("sums", "by the sums of projections")
LIKENESS = Figures("likeness", "by likeness to the prototypes")
NOTHING = "Its sums hold no prototypes of projections."
WEIGHT = "weight"
"""The name of the projection's weight tensor in a model's parameters."""


def prototype_rounds(view: View) -> tuple[View, ...]:
    """Return in order the rounds in which an adversary sees summed prototypes of members' own projections."""
    shown = (*view.earlier, view)
    return tuple(each for each in shown if isinstance(each.round, LocalProjection) and "release" in each.sees)


def model_after(view: View) -> TrainedModel | None:
    """Return the public starting model with the prototypes that a round's sum gives; None without prototypes."""
    round_ = view.round
    if not isinstance(round_, LocalProjection):
        return None
    noise = _own_names(view.noise or {}) or None
    opened = OpenedTotal(_own_names(view.release), view.plan.grid, noise, len(view.members))
    try:
        found = replace(round_, number=round_.rounds).finalize(opened).artifact  # as if it were the last round
    except BadInput:  # no class has a prototype, as under much noise
        return None
    return found if isinstance(found, TrainedModel) else None


def _own_names(blocks: Mapping[str, Any]) -> dict[str, Any]:
    """Return blocks by their method's names, without the prefix `OTHER` that sessions give to other kinds of blocks."""
    return {name.removeprefix(OTHER): block for name, block in blocks.items()}


def project_records(model: TrainedModel, records: AuditRecords, grid: Grid) -> AuditRecords:
    """Return records with their projections by the model, as integers (n, width), in place of their features."""
    raised = np.maximum(inputs_of(records, grid) @ model.parameters[WEIGHT].T.astype(np.float64), 0.0)
    z = raised / np.maximum(np.linalg.norm(raised, axis=1, keepdims=True), 1e-300)
    return replace(records, integers=np.trunc(z * grid.levels).astype(np.int64), features=z, in_cells=None)


def _score(rounds: tuple[View, ...], trial: Trial) -> Finding:
    plan, known, public = trial.view.plan, trial.records, trial.public
    models = [model for model in map(model_after, rounds) if model is not None]
    if not models:
        return trial.say("The prototypes that were opened give no model.")
    candidates = trial.knowledge.candidates
    tried, pool, others = (project_records(models[0], each, plan.grid) for each in (known, candidates, public))
    total = np.zeros(len(known))
    for each in rounds:  # how much likelier each record is under a round's sums than among public ones; over all rounds
        noise: Noise | None = None if each.noise is None else _own_names(each.noise)
        values = score_by_release(_own_names(each.release), noise, tried, others)
        total += values / max(float(values.std()), 1e-300)
    tests = {SUMS: trial.scored(total)}
    trial.progress(1, 3)

    def nearness(some: AuditRecords) -> Floats:  # how small losses are under the prototypes
        seen = [losses(each.scores(inputs_of(some, plan.grid)), some.labels)[0] for each in models]
        return np.asarray(-np.mean(seen, axis=0))

    tests[LIKENESS] = trial.scored(beyond_class(nearness, known, public))
    trial.progress(2, 3)
    knowledge, release = replace(trial.knowledge, candidates=pool, public=others), _own_names(rounds[0].release)
    controls = tuple(make_sum_control(knowledge, release, is_true) for is_true in (True, False))
    trial.progress(3, 3)
    of = f"{len(rounds)} of {count_rounds(plan)} rounds, as if all projected by the public start"
    sentence, is_whole = f"From the sums of {of}: {{words}}.{{blind}}", len(rounds) == count_rounds(plan)
    return trial.find(tests, controls, sentence, "Membership, from shared prototypes", withstood=is_whole)


def _projects_nothing(session: Session) -> str:
    """Return why a session opens no prototypes; "" where it opens some, or the plan's sums keep private state."""
    shown = any(isinstance(each.round, LocalProjection) for each in (*session.earlier, session))
    return "" if shown or any(kind.keeps_state for kind in sums_of(session.plan)) else NOTHING


MEMBERSHIP_PROTOTYPES = Attack(
    "membership_prototypes",
    "Membership of a record, from shared prototypes",
    "Homer et al. 2008; Yeom et al. 2018; Tan et al. 2022 (the prototypes)",
    ("release",),
    try_candidates("membership_prototypes", NOTHING, lambda view: prototype_rounds(view) or None, _score),
    (*SUMS.metrics, *LIKENESS.metrics, BLIND),
    tells_members=True,
    limits=8,
    meaning="Whether somebody's record was among the data can be told from prototypes that members share.",
    remedy="Plan with a finite epsilon, or with more records of every class.",
    lacks=_projects_nothing,
)
