"""ε of members' training on sampled records, by the auditor's own composition."""

import math
from dataclasses import replace

import pytest

from secagg.agreement.plan import NoiseFrom
from secagg.errors import BadInput
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.privacy import Adjacency, SampledSteps, TrainingCost
from secagg.randomness import OperatingSystem
from tests.worlds.rosters import make_roster
from threat_models.estimation.recomputation import gaussian_epsilon, sampled_epsilon, second_opinion

DELTA = 1e-5


@pytest.mark.parametrize(("multiplier", "steps"), [(4.0, 20), (1.0, 1)])
def test_without_sampling_it_is_the_gaussian(multiplier, steps):
    """At rate 1 steps compose to one Gaussian release of √steps/multiplier."""
    exact = gaussian_epsilon(math.sqrt(steps) / multiplier, DELTA)
    assert sampled_epsilon(1.0, multiplier, steps, DELTA) == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize(("rate", "multiplier", "steps"), [(0.1, 1.0, 15), (0.01, 0.8, 1000), (0.5, 2.0, 50)])
def test_agrees_with_the_accounting(rate, multiplier, steps):
    """Both computations agree to 0.01 %."""
    claimed = TrainingCost(SampledSteps(rate, multiplier, steps)).epsilon(DELTA)
    assert sampled_epsilon(rate, multiplier, steps, DELTA) == pytest.approx(claimed, rel=1e-4)


def test_no_noise_is_no_promise():
    """ε is infinite without noise, and nothing is said of a rate of 0."""
    assert sampled_epsilon(0.1, 0.0, 10, DELTA) == math.inf
    with pytest.raises(BadInput, match="sampling rate 0"):
        sampled_epsilon(0.0, 1.0, 10, DELTA)


def test_plan_of_trained_members_is_confirmed_and_a_weaker_one_is_not():
    """The plan's σ gives its ε; one per cent less of it, or a second round that nobody paid for, does not."""
    data, (roster, _) = PublicData("features", (8,), ("a", "b", "c"), None, None), make_roster(5)
    parameters = (("rounds", 2), ("sampling", 0.1), ("steps", 5))
    choices = {"method": "fedavg", "parameters": parameters, "noise": NoiseFrom.MEMBER, "epsilon": 4.0}
    choices |= {"delta": DELTA, "adjacency": Adjacency.ADD_REMOVE, "colluders": 1, "dropouts": 0}
    plan = make_plan(data, roster, PlanChoices(**choices), OperatingSystem())
    opinion = second_opinion(plan, 1)
    assert opinion.agrees
    assert opinion.epsilon == pytest.approx(4.0, rel=1e-3)
    less = tuple(replace(noise, sigma=0.99 * noise.sigma) for noise in plan.noises)
    assert not second_opinion(replace(plan, noises=less), 1).agrees
    longer = replace(plan, parameters=plan.parameters.replace('"rounds":2', '"rounds":3'))
    assert longer.parameters != plan.parameters
    assert not second_opinion(longer, 1).agrees
