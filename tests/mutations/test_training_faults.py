"""What `audit --simulate` must see of members' own noisy training: faults of its noise, clip, sampling and steps.

Each audit is run as the code is, where it finds nothing, and with the fault, where the promise does not hold. Sound
code fails a test here with probability 10⁻² at most, and chance is the same in every run (`repeatable_chance`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import pytest

from methods.search import round as search_round
from methods.training import client_update
from secagg.experiments.settings import SimulationSettings
from secagg.networks import private_training
from secagg.privacy import discrete_gaussian
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from tests.mutations.test_simulated_faults import dataset
from tests.threat_models.report.sample import report
from threat_models.estimation import training_rerun
from threat_models.evidence import training_noise
from threat_models.evidence.session_noise import noise_of_sessions
from threat_models.evidence.simulation import Rehearsal, rehearse
from threat_models.report.content import GateOutcome, Promise
from threat_models.report.gate import DEFAULT, Gate
from threat_models.report.gate_evaluation import judge
from threat_models.report.summary_facts import add_drawn, add_recorded, measure_promise

pytestmark = pytest.mark.usefixtures("repeatable_chance")
Plant = Callable[[pytest.MonkeyPatch], None]
STEPS = {"epsilon": 4.0, "method": "fedavg", "parameters": "rounds=2 sampling=1 steps=3 batch=50 clip=1"}
SAMPLED = {**STEPS, "parameters": "rounds=2 sampling=0.3 steps=3 batch=50 clip=1"}
SCORES = {
    "epsilon": 8.0,
    "method": "fedpop",
    "parameters": "rounds=2 population=1 fixed=sampling=0.3;steps=3;batch=50;clip=1 space=rate=log:0.1:1",
}
BESIDE_SUMS = {
    "epsilon": 8.0,
    "noise": "client",
    "method": "fedpcl",
    "parameters": "rounds=2 sampling=0.3 steps=3 batch=50 width=8 sum_share=0.5",
}


@cache
def simulated(**choices: Any) -> tuple[Promise, Rehearsal]:
    """The promise of a plan that is simulated as the code is, and all that was seen."""
    return audited(**choices)


def audited(*, canaries: int = 1_000, entries: int = 200, **choices: Any) -> tuple[Promise, Rehearsal]:
    """The promise of a simulated plan with all that the audit finds, by so many canaries and further numbers."""
    fixed = {"delta": 1e-5, "adjacency": "add-remove", "clients": 6, "noise": "member"}
    with mock.patch.object(training_noise, "ENTRIES", entries):
        found = rehearse(dataset(), SimulationSettings(**{**fixed, **choices}))
    sessions = found.sessions[:1]
    with mock.patch.object(training_rerun, "CANARIES", canaries):  # more take longer and tell more
        promise = measure_promise(sessions, lambda *_: None, sees_training=bool(found.trained))
    promise = add_drawn(promise, found.drawn, found.opinion)
    return add_recorded(promise, noise_of_sessions(sessions, found.knowledge, found.trained), ()), found


def outcome(promise: Promise) -> GateOutcome:
    """What the packaged gate says of a promise alone, the worst of its lines."""
    today = date(2026, 3, 1)
    gate = judge(Gate.read(DEFAULT, today), replace(report(), promise=promise), today)
    found = {line.outcome for line in gate.lines if line.attack in ("promise", "noise")}
    return next(each for each in (GateOutcome.FAIL, GateOutcome.INCONCLUSIVE, GateOutcome.PASS) if each in found)


def weaker(module: Any, factor: float) -> Plant:
    """Noise made smaller by a factor, wherever this module draws it."""

    def drawn(segments: Any, source: Any) -> Any:
        return np.rint(factor * discrete_gaussian(segments, source)).astype(np.int64)

    return lambda patch: patch.setattr(module, "discrete_gaussian", drawn)


def one_step_without(patch: pytest.MonkeyPatch) -> None:
    """No noise in one step of one contribution; the first steps are of the planner's trial of the method."""
    honest, calls = private_training._noise, iter(range(10**9))
    patch.setattr(private_training, "_noise", lambda *asked: honest(*asked) * (next(calls) != 50))


def same_in_all_steps(patch: pytest.MonkeyPatch) -> None:
    """Every step's noise from one seed."""
    source = SeededRandomness
    patch.setattr(
        private_training, "discrete_gaussian", lambda segments, _: discrete_gaussian(segments, source(b"one", TOKEN))
    )


def less_noise_on_records(patch: pytest.MonkeyPatch) -> None:
    """A third of the noise where a member has records, and all of it where it has none."""
    honest = private_training.dp_sgd

    def wrong(program: Any, start: Any, x: Any, labels: Any, settings: Any, *rest: Any) -> Any:
        return honest(
            program, start, x, labels, replace(settings, sigma=settings.sigma / (1 + 2 * (len(x) > 0))), *rest
        )

    patch.setattr(client_update, "dp_sgd", wrong)


def all_records(patch: pytest.MonkeyPatch) -> None:
    """Every record in every step, though the promise counts on sampling."""
    patch.setattr(private_training, "poisson_sample", lambda count, rate, randomness: np.arange(count))


def twice_the_clip(patch: pytest.MonkeyPatch) -> None:
    """Gradients clipped to twice the length that the noise is made for."""
    honest = private_training.sum_of_records
    patch.setattr(private_training, "sum_of_records", lambda rows, clip, levels: 2 * honest(rows, clip, levels))


def noise_taken_off(patch: pytest.MonkeyPatch) -> None:
    """Steps show their noise, and training moves without it."""
    honest = private_training.dp_sgd

    def wrong(program: Any, start: Any, x: Any, labels: Any, settings: Any, randomness: Any, watch: Any = None) -> Any:
        shown: list[Any] = []

        def keep(of: Any, noise: Any, total: Any) -> None:
            shown.append(noise)
            if watch is not None:
                watch(of, noise, total)

        trained = honest(program, start, x, labels, settings, randomness, keep)
        unit = settings.rate * settings.clip / (settings.levels * settings.denominator)
        return trained.then(lambda weights: weights + unit * sum(shown))

    patch.setattr(client_update, "dp_sgd", wrong)
    patch.setattr(training_rerun, "dp_sgd", wrong)


def settings(change: Callable[[Any], dict[str, Any]]) -> Plant:
    """Settings of a member's steps that are not the plan's."""
    honest = client_update.dp_sgd

    def wrong(program: Any, start: Any, x: Any, labels: Any, planned: Any, *rest: Any) -> Any:
        return honest(program, start, x, labels, replace(planned, **change(planned)), *rest)

    return lambda patch: patch.setattr(client_update, "dp_sgd", wrong)


more_steps = settings(lambda planned: {"steps": planned.steps + 1})
higher_rate = settings(lambda planned: {"sampling_rate": 0.31})
longer_clip = settings(lambda planned: {"levels": 2 * planned.levels})


@dataclass(frozen=True)
class Fault:
    """A fault, part of what the audit says of it, and the plan in which it shows."""

    name: str
    plant: Plant
    says: str
    choices: dict[str, Any] = field(default_factory=lambda: STEPS)


FAULTS = (
    Fault("sigma of steps x 0.9", weaker(private_training, 0.9), "members' training steps has"),
    Fault("one step without noise", one_step_without, "The noise on step"),
    Fault("one step without noise beside sums", one_step_without, "The noise on step", BESIDE_SUMS),
    Fault("the same noise in all steps", same_in_all_steps, "are the same"),
    Fault("less noise on records", less_noise_on_records, "members' training steps has"),
    Fault("scores' noise / 10", weaker(search_round, 0.1), "loss beside members' training has", SCORES),
    Fault("one step more", more_steps, "takes more than the plan's 3 steps"),
    Fault("a higher rate", higher_rate, "has the sampling rate 0.31", SAMPLED),
    Fault("a longer clip", longer_clip, "more than 1 or 1048576"),
    Fault("all records in every step", all_records, "", SAMPLED),
    Fault("twice the clip", twice_the_clip, ""),
    Fault("noise taken off again", noise_taken_off, ""),
    Fault("noise taken off again, sampled", noise_taken_off, "", SAMPLED),
)
PLANS = {"every record": STEPS, "sampled": SAMPLED, "scores": SCORES, "beside sums": BESIDE_SUMS}


def timed(name: str, case: object, *, is_long: bool) -> Any:
    """A case of a test, which is a long one where it takes more than a few seconds."""
    return pytest.param(case, id=name, marks=[pytest.mark.long] if is_long else [])


@pytest.mark.parametrize("fault", [timed(each.name, each, is_long=each.choices is BESIDE_SUMS) for each in FAULTS])
def test_fault_is_flagged(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fault planted the promise does not hold, the audit says why, and the gate fails."""
    fault.plant(monkeypatch)
    found, _ = audited(canaries=20 if fault.says else 1_000, **fault.choices)
    assert found.drawn is not None
    assert found.measured is not None
    assert found.disproved
    if fault.says:
        assert any(fault.says in flaw for flaw in found.drawn.flaws), found.drawn.flaws
    else:
        assert found.measured.refuted
    assert outcome(found) is GateOutcome.FAIL


@pytest.mark.parametrize("choices", [timed(*each, is_long=each[1] in (SCORES, BESIDE_SUMS)) for each in PLANS.items()])
def test_the_code_as_it_is_keeps_its_promise(choices: dict[str, Any]) -> None:
    """Without a fault nothing is disproved, and the noise of every step is as planned."""
    found, rehearsal = simulated(**choices)
    assert found.drawn is not None
    assert (found.drawn.flaws, found.agrees, found.disproved) == ((), True, False)
    assert rehearsal.trained
    # Of the noise on sums, 90 entries are too few to tell.
    assert outcome(found) is (GateOutcome.INCONCLUSIVE if choices is BESIDE_SUMS else GateOutcome.PASS)
    assert "No transcript" not in found.sentence
    assert "Nothing here" not in found.sentence


def test_half_of_the_claim_is_seen_where_every_record_is_in_every_step() -> None:
    """At the sampling rate 1 the measured bound is at least half of the claimed ε, and no more than all of it."""
    found, _ = simulated(**STEPS)
    assert found.measured is not None
    assert found.claimed / 2 <= found.measured.lower <= found.claimed


def test_too_few_canaries_are_no_pass() -> None:
    """A few canaries prove nothing of an honest training, and the gate says that it could not tell."""
    found, _ = audited(canaries=20, **STEPS)
    assert found.measured is not None
    assert (found.disproved, found.measured.is_enough) == (False, False)
    assert "too few canaries to tell" in found.measured.sentence
    assert outcome(found) is GateOutcome.INCONCLUSIVE


def test_too_few_further_numbers_are_no_pass() -> None:
    """Where the noise of members' scores was seen a few times alone, it is not known, and the gate could not tell."""
    found, _ = audited(canaries=20, entries=1, **SCORES)
    assert found.session_noise is not None
    assert "not known well enough" in found.session_noise.sentence
    assert not found.disproved
    assert outcome(found) is GateOutcome.INCONCLUSIVE


def test_a_transcript_shows_nothing_of_training() -> None:
    """Without the steps of a simulation the promise is not measured, the noise not known, and the page says so."""
    _, rehearsal = simulated(**STEPS)
    promise = measure_promise(rehearsal.sessions[:1], lambda *_: None)
    promise = add_recorded(promise, noise_of_sessions(rehearsal.sessions[:1], rehearsal.knowledge), ())
    assert "No transcript shows whether members' training drew that noise." in promise.sentence
    assert (promise.measured, promise.drawn) == (None, None)
    assert promise.session_noise is not None
    assert not promise.session_noise.is_known
    assert outcome(promise) is GateOutcome.INCONCLUSIVE


def test_training_that_shows_no_step_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that lets nobody watch its steps is treated as a transcript: nothing about it is known."""
    honest = client_update.dp_sgd
    monkeypatch.setattr(client_update, "dp_sgd", lambda *given: honest(*given[:-1]))
    found, rehearsal = audited(**STEPS)
    assert rehearsal.trained == ()
    assert found.drawn is None
    assert outcome(found) is GateOutcome.INCONCLUSIVE
