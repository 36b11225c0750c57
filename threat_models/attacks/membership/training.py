"""Was this record among those that a model was trained on, round by round? By its losses, and by its gradients.

Whoever sees the rounds has the model before and after each. A record that was trained on loses more from round to round
than others of its class, and a round's opened sum points along its gradient more than along theirs (Nasr, Shokri &
Houmansadr 2019, of members and servers of federated learning). Both are held against the mean of public records of its
class, so that easy classes are no sign (Watson, Guo, Cormode & Sablayrolles 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from methods.training.training_round import TrainingRound
from secagg.encoding import Grid
from secagg.networks import TrainedModel
from threat_models.attacks.attack import Attack
from threat_models.attacks.membership.blind_baseline import BLIND, Trial, make_controls, try_candidates
from threat_models.attacks.membership.metrics import Figures
from threat_models.attacks.of_methods.lira import losses
from threat_models.attacks.updates import (
    Moved,
    beyond_class,
    count_rounds,
    gradients_of,
    inputs_of,
    play,
    rounds_in,
    states_in,
    sums_of_rounds,
    trains_nothing,
)
from threat_models.findings import Control, Finding
from threat_models.session import AuditRecords, Floats

LOSSES = Figures("losses", "by losses along the rounds")
GRADIENTS = Figures("gradients", "by gradients along the rounds")
BOTH = (LOSSES, GRADIENTS)
MOST_ROUNDS = 8
"""Rounds at which gradients are taken, evenly spread: a record's takes a tenth of a millisecond or so."""
CONTROL_RECORDS, CONTROL_CHAINS, CONTROL_ROUNDS = 6, 8, 3
SEED = 20_190_520


def score_by_losses(models: Sequence[TrainedModel], records: AuditRecords, public: AuditRecords, grid: Grid) -> Floats:
    """Score records (n,): how far their loss falls from the first model on, beyond that of their class; on average."""
    return beyond_class(lambda some: _falls_of(models, some, grid), records, public)


def _falls_of(models: Sequence[TrainedModel], records: AuditRecords, grid: Grid) -> Floats:
    """The fall of each record's loss (n,) below that of the first model; of one model, minus its loss."""
    seen = [losses(each.scores(inputs_of(records, grid)), records.labels)[0] for each in models]
    return seen[0] - np.mean(seen[1:], axis=0) if len(seen) > 1 else -seen[0]


def score_by_gradients(moves: Sequence[Moved], records: AuditRecords, public: AuditRecords, grid: Grid) -> Floats:
    """Score records (n,): how far rounds moved against their gradients, beyond those of their class; in all.

    Each round counts in units of what it moved.
    """
    places = np.linspace(0, len(moves) - 1, min(MOST_ROUNDS, len(moves)))
    chosen = [moves[int(place)] for place in places]
    return beyond_class(lambda some: _falls_along(chosen, some, grid), records, public)


def _falls_along(moves: Sequence[Moved], records: AuditRecords, grid: Grid) -> Floats:
    """The fall of each record's loss (n,) along the moves, each of length 1, by its gradient."""
    total = np.zeros(len(records))
    for each in moves:
        way = each.move / max(float(np.linalg.norm(each.move)), 1e-300)
        total -= np.concatenate([rows @ way for rows in gradients_of(each.round, records, grid)])
    return total


def _score(rounds: tuple[TrainingRound, ...], trial: Trial) -> Finding:
    view, known, public, grid = trial.view, trial.records, trial.public, trial.view.plan.grid
    tests = {LOSSES: trial.scored(score_by_losses(states_in(view), known, public, grid))}
    trial.progress(1, 3)
    if moves := sums_of_rounds(view):
        tests[GRADIENTS] = trial.scored(score_by_gradients(moves, known, public, grid))
    trial.progress(2, 3)
    controls = _make_controls(rounds[0], trial.outside, public, grid)
    trial.progress(3, 3)
    how = f"From the models before and after {len(rounds)} of {count_rounds(view.plan)} rounds: {{words}}.{{blind}}"
    is_whole = len(rounds) == count_rounds(view.plan) and len(tests) == len(BOTH)
    return trial.find(tests, controls, how, "Membership, from the rounds", withstood=is_whole)


def _make_controls(
    round_: TrainingRound, outside: AuditRecords, public: AuditRecords, grid: Grid
) -> tuple[Control, Control]:
    """Play rounds over a few records with random labels, which a model can only memorise.

    Their own records must be told from others, and others called their own must not.
    """
    generator = np.random.default_rng(SEED)
    shuffled = replace(outside, labels=generator.permutation(outside.labels))
    few = min(CONTROL_RECORDS, len(outside) // 3)

    def draw() -> Floats:
        mixed = shuffled.take(generator.permutation(len(shuffled)))
        after = play(round_, mixed.take(slice(few)), CONTROL_ROUNDS, grid)
        return score_by_losses((round_.model, after.model), mixed, public, grid)

    names = f"{CONTROL_CHAINS} models trained on {few} records with labels at random", "other records, called theirs"
    return make_controls(names, (draw() for _ in range(CONTROL_CHAINS)), few)


MEMBERSHIP_TRAINING = Attack(
    "membership_training",
    "Membership of a record, from the rounds of training",
    "Nasr, Shokri & Houmansadr 2019; Yeom et al. 2018; Watson, Guo, Cormode & Sablayrolles 2022",
    (),
    try_candidates(
        "membership_training",
        "No rounds move a model from a public state.",
        lambda view: rounds_in(view) or None,
        _score,
    ),
    (*LOSSES.metrics, *GRADIENTS.metrics, BLIND),
    tells_members=True,
    limits=8,
    meaning="Whether somebody's record was among the data can be told from the rounds of training.",
    remedy="Plan with a finite epsilon, fewer rounds, or more records.",
    lacks=trains_nothing,
)
"""Needs rounds that move a public state, which whoever sees sums is told: found out when it runs."""
