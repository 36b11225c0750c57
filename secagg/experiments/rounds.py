"""Reports of a simulated plan's rounds: accuracy on held-out records, ε spent, bytes sent.

A real federation measures nothing of this: the accuracy of each round would be one more release.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from methods.training.training_round import TrainingRound
from secagg.experiments.client_accuracy import PersonalAccuracy
from secagg.experiments.features import Features
from secagg.heads import Artifact, Evaluation
from secagg.session import RoundSetup, SumResult

POINTS = 20
"""About how often accuracy is measured during a run, unless `every` says otherwise."""


@dataclass(frozen=True)
class RoundReport:
    """Accuracy, ε spent and bytes sent after round `number`.

    `evaluation`: of the model as it is then; None where there is none, or nothing to measure it on. `personal`: of the
    members' own models as they are then. `epsilon_spent`: of the sums so far that one client can be in, at the plan's
    δ, rounded up; None without noise. `upload_bytes`: the most that one client has sent so far.
    """

    number: int
    evaluation: Evaluation | None
    epsilon_spent: float | None
    upload_bytes: int
    personal: tuple[PersonalAccuracy, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        test = self.evaluation
        return {
            "round": self.number,
            "accuracy": test.accuracy if test else None,
            "accuracy_interval": list(test.interval) if test else None,
            "epsilon_spent": self.epsilon_spent,
            "upload_bytes": self.upload_bytes,
            "personal": {each.model: each.mean for each in self.personal},
        }


Watcher = Callable[[int, int, RoundReport | None], None]
"""A function called after each round with the rounds done, all rounds, and the latest report if there is one."""


@dataclass(frozen=True)
class EndedRound:
    """Round `number` of `rounds` of a simulation has ended, `seconds` after the simulation began.

    `report` is the latest, which may be an earlier round's; None before there is one.
    """

    number: int
    rounds: int
    seconds: float
    report: RoundReport | None


RoundListener = Callable[[EndedRound], None]
"""A function called once after each round; what it raises ends the simulation and reaches whoever called it."""


def watcher_for(listener: RoundListener) -> Watcher:
    """Return a watcher that tells a listener of each round, with the seconds from now."""
    begun = time.monotonic()
    return lambda number, rounds, report: listener(EndedRound(number, rounds, time.monotonic() - begun, report))


class RoundLog:
    """A log of reports on rounds, `points`: one on every `every`-th round, and one on the last.

    `every` None: on about `POINTS` rounds in all.
    """

    def __init__(self, features: Features, first: RoundSetup, every: int | None, watcher: Watcher | None) -> None:
        self._every = every or -(-first.rounds // POINTS)
        self._measure = features.measuring(first.plan.grid)
        self._watcher = watcher
        self.points: list[RoundReport] = []

    def end(
        self,
        setup: RoundSetup,
        result: SumResult,
        sent: Mapping[int, int],
        personal: Callable[[], tuple[PersonalAccuracy, ...]],
    ) -> None:
        """Log a report on an ended round, if the log is to have one; `sent` are each client's bytes so far.

        `personal` measures members' own models.
        """
        if setup.is_last or setup.number % self._every == 0:
            model = model_after(result)
            measured = self._measure(model.evaluate) if model is not None else None
            facts = setup.facts
            spent = facts.claim.after(*map(facts.draws, (setup.number, setup.rounds))) if facts.claim else None
            most = max(sent[each] for each in result.members)
            self.points.append(RoundReport(setup.number, measured, spent, most, personal()))
        if self._watcher is not None:
            self._watcher(setup.number, setup.rounds, self.points[-1] if self.points else None)


def model_after(result: SumResult) -> Artifact | None:
    """Return a round's model, final or in training; None if it cannot predict. Raises BadInput for infinite values."""
    model = result.artifact
    if model is None and isinstance(result.following, TrainingRound):
        model = result.following.model
    return model if model is not None and model.predicts else None
