"""Plans whose members train with noise of their own: the promise, what it costs, and everything that would break it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from secagg.agreement.plan import NoiseFrom, PlannedNoise
from secagg.errors import BadInput
from secagg.networks import program_named
from secagg.plan_facts.explanation import explain
from secagg.plan_facts.facts import plan_cost
from secagg.privacy import Adjacency, TrainingClaim, TrainingCost, Unit
from secagg.privacy.shares import gap_of
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup, contribution_of
from tests.worlds.setups import DELTA, make_setup, some_records

PARAMETERS = {"rounds": 3, "sampling": 0.2, "steps": 4, "batch": 5, "clip": 20.0}
FALSE_FAILURE = 1e-9


def trained(**choices: Any) -> RoundSetup:
    """A plan of three rounds of four noisy steps each, ε = 1."""
    parameters = {**PARAMETERS, **choices.pop("parameters", {})}
    given = {"method": "fedavg", "parameters": tuple(parameters.items()), "noise": NoiseFrom.MEMBER, **choices}
    return make_setup(**given)


def test_the_promise_is_of_all_steps_of_all_rounds() -> None:
    """Twelve steps, a record in each with probability 0.2, are claimed at the plan's ε, and the ledger pays."""
    setup = trained()
    assert isinstance(setup.facts.claim, TrainingClaim)
    steps = setup.facts.claim.cost.steps
    assert (steps.rate, steps.steps) == (0.2, 12)
    assert 0.98 < setup.facts.claim.cost.epsilon(DELTA) <= 1.0
    (spent,) = plan_cost(setup.facts)
    assert (spent.unit, spent.adjacency) == (Unit.RECORD, Adjacency.ADD_REMOVE)
    assert isinstance(spent.cost, TrainingCost)
    assert spent.cost == setup.facts.claim.cost


def test_gap_of_discrete_noise_is_that_of_every_number_of_every_step() -> None:
    """T is that of one number's noise (`gap_of`), times the program's numbers, the steps and the rounds."""
    setup = trained()
    assert isinstance(setup.facts.claim, TrainingClaim)
    size = program_named("softmax", setup.plan.dimension, len(setup.plan.classes)).size
    one = gap_of([(setup.plan.training_sigma, 1)], 1)
    assert one > 0
    assert setup.facts.claim.cost.gap == pytest.approx(size * 4 * 3 * one, rel=1e-9, abs=0)


def test_rounds_are_paid_for_one_by_one() -> None:
    """After one round of three its four steps are spent, and less than all; after three the whole claim."""
    claim = trained().facts.claim
    assert isinstance(claim, TrainingClaim)
    third = TrainingCost(replace(claim.cost.steps, steps=4), gap=claim.cost.gap / 3)
    assert claim.after(1, 3) == pytest.approx(third.epsilon(DELTA), rel=1e-12)
    assert claim.after(1, 3) < claim.after(3, 3) == claim.cost.epsilon(DELTA) <= claim.epsilon


def test_opacus_agrees() -> None:
    """Its accountant, which shares no code, gives the plan's noise an ε within two per cent, and none above 1.01."""
    accountants = pytest.importorskip("opacus.accountants")
    steps = trained().facts.claim.cost.steps  # type: ignore[union-attr]
    accountant = accountants.PRVAccountant()
    accountant.history = [(steps.multiplier, steps.rate, steps.steps)]
    assert 0.98 < accountant.get_epsilon(DELTA, eps_error=0.005) < 1.01


def test_less_noise_is_no_plan() -> None:
    """A plan that says a smaller σ than its ε takes is refused by everybody who derives it."""
    setup = trained()
    (noise,) = setup.plan.noises
    less = replace(setup.plan, noises=(replace(noise, sigma=0.99 * noise.sigma),))
    with pytest.raises(BadInput, match="is claimed, but the noise gives"):
        RoundSetup.of(less, setup.roster)


@pytest.mark.parametrize("block", ["update", "Training", "training "])
def test_noise_for_something_else_is_no_plan(block: str) -> None:
    """The one noise in such a plan is that of training."""
    setup = trained()
    other = replace(setup.plan, noises=(PlannedNoise(block, 1, setup.plan.noises[0].sigma, 0.0),))
    with pytest.raises(BadInput, match="not for members' training"):
        RoundSetup.of(other, setup.roster)


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_other_promises_are_refused(unit: Unit, adjacency: Adjacency) -> None:
    """Sampling amplifies for one record added or removed; for all else there is no such plan."""
    if (unit, adjacency) == (Unit.RECORD, Adjacency.ADD_REMOVE):
        assert trained(unit=unit, adjacency=adjacency).facts.claim is not None
        return
    with pytest.raises(BadInput, match="promises nothing for"):
        trained(unit=unit, adjacency=adjacency)


@pytest.mark.parametrize("noise", [NoiseFrom.CLIENT, NoiseFrom.AGGREGATOR])
def test_noise_is_not_paid_for_twice(noise: NoiseFrom) -> None:
    """Where training adds noise nobody else does: with theirs alone, records would be sampled for nothing."""
    with pytest.raises(BadInput, match="own training adds the noise"):
        trained(noise=noise)


@pytest.mark.parametrize(
    ("method", "parameters"), [("fedcgs", {"refine": 0}), ("fedavg", {}), ("fedavg", {"gradients": 1})]
)
def test_who_does_not_train_so_has_no_such_noise(method: str, parameters: dict[str, Any]) -> None:
    """Other methods' members release what their records add: noise elsewhere would hide nothing."""
    with pytest.raises(BadInput, match="do not train with noise of their own here; say how"):
        make_setup(method=method, parameters=tuple(parameters.items()), noise=NoiseFrom.MEMBER)


@pytest.mark.parametrize("forbidden", [{"gradients": 1}, {"cap": 10}, {"proximal": 0.1}])
def test_what_would_leave_beside_the_steps_is_refused(forbidden: dict[str, Any]) -> None:
    """A weight by the number of records, or a pull that is no record's, is no part of the accounted steps."""
    with pytest.raises(BadInput, match="sampling goes with no"):
        trained(parameters=forbidden)


def test_a_member_without_records_sends_noise() -> None:
    """Its update is as long as its steps' noise, by a χ² test that fails a sound one with probability 10⁻⁹."""
    from scipy.stats import chi2

    setup = trained(parameters={"rate": 0.5})
    nobody = some_records(setup, 0)
    total = contribution_of(setup, nobody, OperatingSystem(), 1)[0]
    work = setup.round.work  # type: ignore[attr-defined]
    update = work.encoding.decode(total)
    training = setup.sum.spec.training
    assert training is not None
    sigma = setup.plan.training_sigma / training.levels * 0.5 / 5 * math.sqrt(training.steps)
    low, high = chi2.ppf([FALSE_FAILURE / 2, 1 - FALSE_FAILURE / 2], len(update))
    assert low < (update @ update) / sigma**2 < high


def test_reference_has_the_same_steps_without_noise() -> None:
    """What a contribution adds is drawn by the plan alone: without noise in it, training adds none."""
    setup = trained()
    assert setup.plan.training_sigma > 0
    exact = replace(setup.plan, epsilon=float("inf"), delta=0.0, adjacency="", noise="", noises=())
    assert exact.training_sigma == 0
    nobody = some_records(setup, 0)
    assert not contribution_of(RoundSetup.of(exact, setup.roster), nobody, OperatingSystem(), 1)[0].any()


def test_it_is_explained() -> None:
    """`plan show` says whose noise it is, at each step, and that it holds against everybody."""
    rows = dict(explain(trained().facts))
    assert "longest gradients at each step" in rows["noise of one party"]
    assert rows["against"].startswith("everybody")
    assert "12 steps, a record in each with probability 0.2" in rows["promise"]
    assert "its training leaves its noise out" in rows["what breaks it"].replace("whose", "its")
