"""Cohorts in simulations and plans: the same bits under every protection, charges for own rounds, refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from secagg.agreement.plan import NoiseFrom
from secagg.data import open_dataset
from secagg.errors import BadInput, PlanRefused
from secagg.experiments.outcome import SimulationResult
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.plan_facts.explanation import explain
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.privacy import Adjacency, TrainingClaim, Unit
from secagg.protection.draw import most_rounds
from tests.worlds.setups import make_setup
from threat_models.estimation.recomputation import honest_shares, second_opinion

TRAINING: dict[str, Any] = {"method": "fedavg", "clients": 9, "cohort": 5, "rounds": 4, "parameters": "rate=0.5 clip=5"}
NOISY: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE}
EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": None, "adjacency": None}


def simulated(**settings: Any) -> SimulationResult:
    """A simulation on a small data set whose members train with known randomness."""
    chosen = {"noise_seed": 5, "reference": False, **TRAINING, **settings}
    return simulate_dataset(open_dataset("wine"), SimulationSettings(**chosen))


@cache
def masked() -> SimulationResult:
    """Under masks."""
    return simulated(protection="masked")


@pytest.mark.parametrize("protection", ["shared", "encrypted", "none"])
def test_no_bit_depends_on_the_protection(protection: str) -> None:
    """The same cohorts train the same model whatever hides their updates."""
    run = simulated(protection=protection)
    assert run.head is not None
    assert masked().head is not None
    assert run.head.digest == masked().head.digest  # type: ignore[union-attr]


def test_only_the_drawn_are_in_a_sum() -> None:
    """Five of nine in the last round, who are the schedule's; another seed draws others."""
    run, other = masked(), simulated(protection="none", seed=1)
    for each in (run, other):
        assert each.federated is not None
        last = each.federated.setup
        assert each.federated.result.members == last.cohort(4)
        assert len(last.cohort(4)) == 5
        assert each.to_json()["cohort"] == 5
    assert run.federated.setup.seed != other.federated.setup.seed  # type: ignore[union-attr]


def test_the_reference_is_of_the_same_cohorts() -> None:
    """Without noise, and nobody missing, a run is its own reference; with a drop-out it is another."""
    run = simulated(protection="none", reference=True)
    assert run.reference == run.evaluation
    left = simulated(protection="none", reference=True, dropouts=1)
    assert left.federated is not None
    assert left.reference is not None


def test_spent_grows_with_the_rounds_that_one_member_can_be_in() -> None:
    """Of four rounds of five of nine a member is in one after one round, and in no more than three at the end."""
    run = simulated(protection="none", noise="aggregator", unit="client", every=1, **NOISY)
    spent = [each.epsilon_spent for each in run.rounds]
    assert [most_rounds(9, 5, number) for number in (1, 2, 3, 4)] == [1, 2, 2, 3]
    assert spent[0] < spent[1] == spent[2] < spent[3] <= 8.0  # type: ignore[operator]


def plan_of(**choices: Any) -> Any:
    """A plan of nine members, of whom five are drawn for each of four rounds."""
    given = {"method": "fedavg", "parameters": (("rounds", 4),), "cohort": 5, "dropouts": 1, "colluders": 1}
    return make_setup(9, **{**given, **NOISY, **choices})


@pytest.mark.parametrize(
    ("choices", "unit"),
    [({"unit": Unit.CLIENT}, Unit.CLIENT), ({"parameters": (("rounds", 4), ("gradients", 1))}, Unit.RECORD)],
)
def test_noise_is_for_a_members_own_rounds(choices: dict[str, Any], unit: Unit) -> None:
    """As much as in a plan of three rounds of five members, and less than in one of four; the auditor agrees."""
    setup = plan_of(**choices)
    own, all_four = (
        make_setup(5, **{**NOISY, "method": "fedavg", "dropouts": 1, "colluders": 1, **choices, "parameters": given})
        for given in ((("rounds", rounds), *choices.get("parameters", ())[1:]) for rounds in (3, 4))
    )
    sigmas = [[noise.sigma for noise in each.plan.noises] for each in (setup, own, all_four)]
    assert sigmas[0] == sigmas[1]
    assert sigmas[0] < sigmas[2]
    assert setup.facts.claim.unit == unit
    assert setup.facts.fewest == own.facts.fewest == 4
    plan = setup.plan
    assert second_opinion(plan, honest_shares(plan, 9), consortium=9).agrees
    assert not second_opinion(plan, honest_shares(plan, 9), consortium=6).agrees
    assert not second_opinion(plan, honest_shares(plan, 9)).agrees


def test_training_is_charged_for_a_members_own_rounds() -> None:
    """DP-SGD inside a member: the steps of three rounds of four, against everybody."""
    parameters = (("rounds", 4), ("sampling", 0.1), ("steps", 5))
    setup = plan_of(parameters=parameters, noise=NoiseFrom.MEMBER)
    assert isinstance(setup.facts.claim, TrainingClaim)
    assert setup.facts.claim.cost.steps.steps == 15
    assert second_opinion(setup.plan, 1, consortium=9).agrees


def test_a_weaker_noise_cannot_be_claimed() -> None:
    """A plan whose noise is for fewer rounds than a member can be in is refused by every party."""
    setup = plan_of(unit=Unit.CLIENT)
    weaker = tuple(replace(noise, sigma=0.9 * noise.sigma) for noise in setup.plan.noises)
    with pytest.raises(BadInput, match="is claimed, but the noise gives"):
        type(setup).of(replace(setup.plan, noises=weaker), setup.roster)
    longer = replace(setup.plan, parameters=setup.plan.parameters.replace('"rounds":4', '"rounds":6'))
    with pytest.raises(BadInput, match="is claimed, but the noise gives"):
        type(setup).of(longer, setup.roster)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"cohort": 9}, "a cohort of 9 cannot be drawn from 9 members"),
        ({"cohort": 12}, "a cohort of 12 cannot be drawn from 9 members"),
        ({"parameters": (("rounds", 1),)}, "takes one sum here"),
        ({"method": "fedcgs", "parameters": (("refine", 3),)}, "takes what was left by rounds"),
        ({"method": "fedcgs", "parameters": (("refine", 3),), **EXACT}, "are equations"),
        ({"method": "fedpcl", "parameters": (("cap", 20),), "unit": Unit.CLIENT}, "takes what was left by rounds"),
        ({"method": "fedproto", "parameters": (), **EXACT}, "are equations"),
        ({"result": "server"}, "that are not drawn for the last round"),
        ({"dropouts": 3}, "4 of a cohort of 5 must sign what others return by, of whom only 2 are sure"),
    ],
)
def test_what_cohorts_cannot_be_is_refused_with_the_reason(choices: dict[str, Any], words: str) -> None:
    """Cohorts are for rounds that stand alone, of methods that train, with enough to sign for who was not there."""
    given = {"unit": Unit.CLIENT, "protection": "shared", **choices}
    with pytest.raises(BadInput, match=words) as refusal:
        plan_of(**given)
    assert refusal.value.remedy


def test_a_policy_counts_the_exact_sums_that_a_member_is_in() -> None:
    """At ε = ∞ the default refuses a chain, for a member's own rounds; where one is in one sum alone there is none."""
    setup = plan_of(**EXACT)
    policy = policy_accepting(setup.plan, "data")
    with pytest.raises(PlanRefused, match="2 more exact sums"):
        setup.facts.check(policy)
    once = make_setup(9, method="fedavg", parameters=(("rounds", 2),), cohort=4, dropouts=1, colluders=1, **EXACT)
    assert once.facts.record_sums == 1
    once.facts.check(policy_accepting(once.plan, "data"))


def test_plan_show_says_who_is_in_which_round() -> None:
    """Cohort, rounds per member, thresholds of five, and that nothing rests on the draw."""
    rows = dict(explain(plan_of(unit=Unit.CLIENT).facts))
    assert "5 of 9 members are drawn for each of 4 rounds, nobody for more than 3" in rows["cohorts"]
    assert "no promise rests on the draw" in rows["cohorts"]
    assert "t = 4 of n = 5 clients" in rows["who must agree"]
    assert "5 clients" in rows["ring"]
    assert "cohorts" not in dict(explain(plan_of(unit=Unit.CLIENT, cohort=0).facts))
