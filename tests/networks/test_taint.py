"""The rule of taint: what of a member's enters a mechanism, or leaves it, beside what the mechanism itself gave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from methods import method_named
from methods.round import Local
from methods.training.client_update import ProgramUpdate
from methods.training.training_round import TrainingRound
from secagg.encoding import Grid
from secagg.errors import BadInput
from secagg.networks import DpSgdSettings, TrainingSettings, dp_sgd, program_named, record_gradients, train
from secagg.networks.taint import public
from secagg.privacy import Unit
from tests.networks.models import seeded, some_records

SETTINGS = DpSgdSettings(rate=0.1, steps=2, sampling_rate=0.5, clip=1.0, levels=1 << 20, sigma=4.0e6, denominator=10.0)
PROGRAM = program_named("softmax", 6, 3)


def own_prototypes(records: Any, labels: Any) -> Any:
    """A member's exact class means, as if they were a start."""
    means = [records[labels == label].mean(axis=0) for label in range(3)]
    return np.concatenate([np.concatenate(means), np.zeros(3)]).astype(np.float64)


def own_teacher(records: Any, labels: Any) -> Any:
    """What a member has trained without noise."""
    start = np.zeros(PROGRAM.size)
    return train(PROGRAM, start, records, labels, TrainingSettings(1, 0.1, 8), seeded("teacher"))


@pytest.mark.parametrize("planted", [own_prototypes, own_teacher])
def test_what_records_decided_enters_no_mechanism(planted: Any) -> None:
    """Own prototypes and an un-noised teacher are refused as what steps read: they would move every record's step."""
    records, labels = some_records(PROGRAM, 30)
    with pytest.raises(TypeError, match="rule of taint"):
        dp_sgd(public(PROGRAM), planted(records, labels), records, labels, SETTINGS, seeded("steps"))


def begun() -> TrainingRound:
    """The first round of a plan whose members train with noise of their own."""
    round_ = method_named("fedavg", {"sampling": 0.5, "steps": 2}).begin(6, 3, 1 << 16)
    assert isinstance(round_, TrainingRound)
    return round_


def test_what_records_decided_does_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update that no mechanism gave is not encoded, whoever computed it."""
    work = begun().work
    records, labels = some_records(PROGRAM, 30)
    monkeypatch.setattr(ProgramUpdate, "train_privately", lambda *_: own_teacher(records, labels))
    with pytest.raises(TypeError, match="rule of taint"):
        work.contribute(np.zeros(PROGRAM.size), Local(None, 3, Grid(1.0)))  # type: ignore[arg-type]


@pytest.mark.parametrize("weights", [{"cap": 100}, {"gradients": 1}])
def test_no_number_of_records_leaves(weights: dict[str, Any]) -> None:
    """A weight by records, or their count, beside accounted steps is no plan."""
    with pytest.raises(BadInput, match="no count leaves"):
        method_named("fedavg", {"sampling": 0.5, **weights})


def test_no_statistic_of_a_batch_enters_a_gradient() -> None:
    """A record's gradient has the same bits alone, in company, and among records that are a million times as long."""
    records, labels = some_records(PROGRAM, 9)
    weights = PROGRAM.start(bytes(32))
    (alone,) = np.concatenate(list(record_gradients(PROGRAM, weights, records[4:5], labels[4:5])))
    records[:4] *= 1e6
    among = np.concatenate(list(record_gradients(PROGRAM, weights, records, labels)))[4]
    assert alone.tobytes() == among.tobytes()


def test_what_follows_from_the_untainted_is_untainted() -> None:
    """Rules of public values and outcomes pass; their result is the rule's."""
    records, labels = some_records(PROGRAM, 30)
    trained = dp_sgd(public(PROGRAM), public(np.zeros(PROGRAM.size)), records, labels, SETTINGS, seeded("steps"))
    assert np.array_equal(trained.then(lambda weights: 2 * weights).value, 2 * trained.value)
    dp_sgd(public(PROGRAM), trained, records, labels, SETTINGS, seeded("more"))


def test_the_plan_has_one_release() -> None:
    """What is summed states no sensitivity of its own: it is paid for by the steps, or not at all."""
    spec = begun().work.spec(3)
    assert spec.training is not None
    with pytest.raises(BadInput, match="in the members' training"):
        spec.sensitivity(Unit.RECORD, "add-remove", 10)  # type: ignore[arg-type]
