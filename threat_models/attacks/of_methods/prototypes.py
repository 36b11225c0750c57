"""Was this record behind shared prototypes? By the sums that opened them, and by its likeness to them.

In the first round all members project by one public start: its sum is one of class sums, and tells members as these do
(Homer et al. 2008). Later ones are of projections that members have trained for themselves; the public start is what
an outsider has of them. A record also is nearer to the prototypes that it is part of (Yeom et al. 2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from methods import sums_of
from methods.own_models.local_projection import LocalProjection
from methods.round import Opened
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
from threat_models.findings import Control, Finding
from threat_models.session import OTHER, AuditRecords, Floats, Knowledge, Session
from threat_models.views import View

SUMS = Figures("sums", "by the sums of projections")
LIKENESS = Figures("likeness", "by likeness to the prototypes")
NOTHING = "Its sums hold no prototypes of projections."
WEIGHT = "weight"
"""The projection's tensor."""


def prototype_rounds(view: View) -> tuple[View, ...]:
    """The rounds of a view, in order, whose sums open prototypes of members' own projections."""
    shown = (*view.earlier, view)
    return tuple(each for each in shown if isinstance(each.round, LocalProjection) and "release" in each.sees)


def model_after(view: View) -> TrainedModel | None:
    """The public start with the prototypes that this round opened; None where they give no model."""
    round_ = view.round
    if not isinstance(round_, LocalProjection):
        return None
    opened = Opened(_own_names(view.release), view.plan.grid, _own_names(view.noise or {}) or None, len(view.members))
    try:
        found = replace(round_, number=round_.rounds).finalize(opened).artifact  # as if it were the last round
    except BadInput:  # no class has a prototype, as under much noise
        return None
    return found if isinstance(found, TrainedModel) else None


def _own_names(blocks: Mapping[str, Any]) -> dict[str, Any]:
    """Blocks by their method's names: a session says that they are other ones where attacks take a name otherwise."""
    return {name.removeprefix(OTHER): block for name, block in blocks.items()}


def project_records(model: TrainedModel, records: AuditRecords, grid: Grid) -> AuditRecords:
    """The records as such a round sums them: their projections as integers (n, width)."""
    raised = np.maximum(inputs_of(records, grid) @ model.parameters[WEIGHT].T.astype(np.float64), 0.0)
    z = raised / np.maximum(np.linalg.norm(raised, axis=1, keepdims=True), 1e-300)
    return replace(records, integers=np.trunc(z * grid.levels).astype(np.int64), features=z, in_cells=None)


def score_by_sums(rounds: Sequence[View], model: TrainedModel, records: AuditRecords, public: AuditRecords) -> Floats:
    """Score records (n,): how much likelier each is under a round's sums than among public ones; over all rounds."""
    grid = rounds[0].plan.grid
    seen, others = (project_records(model, each, grid) for each in (records, public))
    total = np.zeros(len(records))
    for each in rounds:
        noise: Noise | None = None if each.noise is None else _own_names(each.noise)
        values = score_by_release(_own_names(each.release), noise, seen, others)
        total += values / max(float(values.std()), 1e-300)
    return total


def score_by_likeness(
    models: Sequence[TrainedModel], records: AuditRecords, public: AuditRecords, grid: Grid
) -> Floats:
    """Score records (n,): how small their losses are under the prototypes, beyond those of their class."""

    def fit(some: AuditRecords) -> Floats:
        found: Floats = -np.mean(
            [losses(each.scores(inputs_of(some, grid)), some.labels)[0] for each in models], axis=0
        )
        return found

    return beyond_class(fit, records, public)


def _score(rounds: tuple[View, ...], trial: Trial) -> Finding:
    plan, known, public = trial.view.plan, trial.records, trial.public
    models = [model for each in rounds if (model := model_after(each)) is not None]
    if not models:
        return trial.say("The prototypes that were opened give no model.")
    tests = {SUMS: trial.scored(score_by_sums(rounds, models[0], known, public))}
    trial.progress(1, 3)
    tests[LIKENESS] = trial.scored(score_by_likeness(models, known, public, plan.grid))
    trial.progress(2, 3)
    controls = _make_controls(rounds[0], models[0], trial.knowledge)
    trial.progress(3, 3)
    of = f"{len(rounds)} of {count_rounds(plan)} rounds, as if all projected by the public start"
    sentence, is_whole = f"From the sums of {of}: {{words}}.{{blind}}", len(rounds) == count_rounds(plan)
    return trial.find(tests, controls, sentence, "Membership, from shared prototypes", withstood=is_whole)


def _make_controls(first: View, model: TrainedModel, knowledge: Knowledge) -> tuple[Control, ...]:
    """Sum projections of a few records exactly: the test must find them, and not others called theirs."""
    grid, public = first.plan.grid, knowledge.public
    seen = replace(
        knowledge,
        candidates=project_records(model, knowledge.candidates, grid),
        public=None if public is None else project_records(model, public, grid),
    )
    release = _own_names(first.release)
    return tuple(make_sum_control(seen, release, is_true) for is_true in (True, False))


def _projects_nothing(session: Session) -> str:
    """Explain a lack of prototypes; "" where sessions open some, or the plan sums what members keep to themselves."""
    shown = any(isinstance(each.round, LocalProjection) for each in (*session.earlier, session))
    may = shown or any(kind.keeps_state for kind in sums_of(session.plan))
    return "" if may else NOTHING


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
"""Needs sums of prototypes of members' own projections: found out when it runs."""
