"""What trainings with worst-case records say of ε: never too much, and enough where all records are in each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from secagg.errors import BadInput
from secagg.networks import private_training
from secagg.privacy import SampledSteps, TrainingCost, multiplier_for
from threat_models.estimation import training_rerun
from threat_models.estimation.training_rerun import TrainingBound, audit_training

pytestmark = pytest.mark.usefixtures("repeatable_chance")
LEVELS = 1 << 20
DELTA = 1e-5
LEVEL = 1e-3
"""Sound code fails one of these tests with this probability at most; chance is the same in every run."""


def bound(rate: float, steps: int, epsilon: float, *, canaries: int, noise: float = 1.0, **more: Any) -> TrainingBound:
    """The bound of steps that promise ε, whose σ is `noise` times what that takes."""
    multiplier = multiplier_for(rate, steps, epsilon=epsilon, delta=DELTA)
    cost, sigma = TrainingCost(SampledSteps(rate, multiplier, steps), gap=1e-12), noise * multiplier * LEVELS
    return audit_training(cost, sigma, LEVELS, epsilon=epsilon, delta=DELTA, level=LEVEL, canaries=canaries, **more)


@pytest.mark.parametrize(("steps", "epsilon"), [(1, 1.0), (2, 4.0)])
def test_every_record_in_every_step_shows_half_of_the_claim(steps: int, epsilon: float) -> None:
    """At the sampling rate 1 the bound is between half of the claimed ε and all of it."""
    found = bound(1.0, steps, epsilon, canaries=4_000)
    assert epsilon / 2 <= found.epsilon.low <= epsilon
    assert (found.refuted, found.is_enough) == (False, True)
    multiplier = multiplier_for(1.0, steps, epsilon=epsilon, delta=DELTA)
    assert found.allowed == pytest.approx(ndtr(steps**0.5 / multiplier / 2))


def test_sampled_records_show_less_than_the_claim() -> None:
    """Below the rate 1 the bound is above 0 and below the claim, which holds."""
    found = bound(0.5, 2, 4.0, canaries=2_000)
    assert 0 < found.epsilon.low < 4.0
    assert (found.refuted, found.is_enough) == (False, True)
    assert "sampling rate 0.5" in found.sentence


@pytest.mark.parametrize(("rate", "noise"), [(1.0, 0.5), (0.5, 0.3)])
def test_less_noise_than_promised_is_found(rate: float, noise: float) -> None:
    """Steps with a smaller σ than the claim counts on disprove it."""
    found = bound(rate, 2, 4.0, canaries=2_000, noise=noise)
    assert found.refuted
    assert "disproves" in found.sentence


def test_missing_noise_of_sampled_steps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any noise each canary that is drawn shows, which disproves the claim; ε is then unbounded or large."""
    monkeypatch.setattr(private_training, "_noise", lambda size, *_: np.zeros(size, dtype=np.int64))
    found = bound(0.5, 2, 4.0, canaries=500)
    assert found.refuted
    assert found.accuracy.value == pytest.approx(1 - 0.5**2 / 2, abs=0.05)


@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_too_few_canaries_do_not_tell(rate: float) -> None:
    """With ten canaries nothing is disproved, and the bound says that they are too few."""
    found = bound(rate, 2, 1.0, canaries=10)
    assert (found.refuted, found.is_enough) == (False, False)
    assert "too few canaries to tell" in found.sentence


def test_long_trainings_have_fewer_canaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of canaries is what their gradients in all steps allow, two at least."""
    monkeypatch.setattr(training_rerun, "MOST_GRADIENTS", 60)
    cost = TrainingCost(SampledSteps(1.0, 5.0, 3))
    found = audit_training(cost, 5.0 * LEVELS, LEVELS, epsilon=4.0, delta=DELTA, level=LEVEL)
    assert found.canaries == 20


@pytest.mark.parametrize("wrong", [{"canaries": 1}, {"level": 0.0}])
def test_what_tells_nothing_is_refused(wrong: dict[str, Any]) -> None:
    """Fewer than two canaries, and a level that is no probability, are refused."""
    given = {"canaries": 2, "level": LEVEL, **wrong}
    with pytest.raises(BadInput):
        audit_training(TrainingCost(SampledSteps(1.0, 5.0, 1)), 5.0 * LEVELS, LEVELS, epsilon=4.0, delta=DELTA, **given)
