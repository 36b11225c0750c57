"""Test whether a model was trained on a record, round by round: by the record's losses, and by its gradients.

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
from threat_models.attacks import updates
from threat_models.attacks.attack import Attack
from threat_models.attacks.membership.blind_baseline import BLIND, Trial, make_controls, try_candidates
from threat_models.attacks.membership.metrics import Figures
from threat_models.attacks.of_methods.lira import losses
from threat_models.attacks.updates import beyond_class, count_rounds
from threat_models.findings import Control, Finding
from threat_models.session import AuditRecords, Floats

LOSSES = Figures("losses", "by losses along the rounds")
GRADIENTS = Figures("gradients", "by gradients along the rounds")
NOTHING = "No rounds move a model from a public state."
MOST_ROUNDS = 8
"""Most rounds at which gradients are taken, evenly spread: a record's gradient takes about a tenth of a millisecond."""
CONTROL_RECORDS, CONTROL_CHAINS, CONTROL_ROUNDS = 6, 8, 3
SEED = 20_190_520


def score_by_losses(models: Sequence[TrainedModel], records: AuditRecords, public: AuditRecords, grid: Grid) -> Floats:
    """Score records (n,) by how far their loss falls after the first model, minus the usual fall in their class.

    Of one model, minus its loss.
    """

    def falls(some: AuditRecords) -> Floats:
        seen = [losses(each.scores(updates.inputs_of(some, grid)), some.labels)[0] for each in models]
        return seen[0] - np.mean(seen[1:], axis=0) if len(seen) > 1 else -seen[0]

    return beyond_class(falls, records, public)


def _score(rounds: tuple[TrainingRound, ...], trial: Trial) -> Finding:
    view, known, public, grid = trial.view, trial.records, trial.public, trial.view.plan.grid
    tests = {LOSSES: trial.scored(score_by_losses(updates.states_in(view), known, public, grid))}
    trial.progress(1, 3)
    moves = updates.moves_in(view)
    if all(moved := [[each for each in moves if each.round is round_] for round_ in rounds]):
        sums = [max(each, key=lambda move: len(move.owners)) for each in moved]
        places = np.linspace(0, len(sums) - 1, min(MOST_ROUNDS, len(sums)))

        def falls_along(some: AuditRecords) -> Floats:  # how far rounds moved against the records' gradients
            total = np.zeros(len(some))
            for each in (sums[int(place)] for place in places):  # each in units of what it moved
                total -= np.concatenate([rows @ each.way for rows in updates.gradients_of(each.round, some, grid)])
            return total

        tests[GRADIENTS] = trial.scored(beyond_class(falls_along, known, public))
    trial.progress(2, 3)
    controls = _make_controls(rounds[0], trial.outside, public, grid)
    trial.progress(3, 3)
    how = f"From the models before and after {len(rounds)} of {count_rounds(view.plan)} rounds: {{words}}.{{blind}}"
    is_whole = len(rounds) == count_rounds(view.plan) and len(tests) == 2
    return trial.find(tests, controls, how, "Membership, from the rounds", withstood=is_whole)


def _make_controls(
    round_: TrainingRound, outside: AuditRecords, public: AuditRecords, grid: Grid
) -> tuple[Control, Control]:
    """Make the controls from rounds over a few records with random labels, which a model can only memorise.

    Their own records must be told from others, and others called their own must not.
    """
    generator = np.random.default_rng(SEED)
    shuffled = replace(outside, labels=generator.permutation(outside.labels))
    few = min(CONTROL_RECORDS, len(outside) // 3)

    def draw() -> Floats:
        mixed = shuffled.take(generator.permutation(len(shuffled)))
        after = updates.play(round_, mixed.take(slice(few)), CONTROL_ROUNDS, grid)
        return score_by_losses((round_.model, after.model), mixed, public, grid)

    names = f"{CONTROL_CHAINS} models trained on {few} records with labels at random", "other records, called theirs"
    return make_controls(names, (draw() for _ in range(CONTROL_CHAINS)), few)


MEMBERSHIP_TRAINING = Attack(
    "membership_training",
    "Membership of a record, from the rounds of training",
    "Nasr, Shokri & Houmansadr 2019; Yeom et al. 2018; Watson, Guo, Cormode & Sablayrolles 2022",
    (),
    try_candidates("membership_training", NOTHING, lambda view: updates.rounds_in(view) or None, _score),
    (*LOSSES.metrics, *GRADIENTS.metrics, BLIND),
    tells_members=True,
    limits=8,
    meaning="Whether somebody's record was among the data can be told from the rounds of training.",
    remedy="Plan with a finite epsilon, fewer rounds, or more records.",
    lacks=updates.trains_nothing,
)
