"""Plans whose members train with noise of their own and whose sums have noise too: one promise and one row for both."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

import secagg
from secagg.agreement.plan import NoiseFrom
from secagg.errors import BadInput
from secagg.plan_facts.explanation import explain, noise_in_records
from secagg.plan_facts.facts import plan_cost
from secagg.privacy import Adjacency, PrivacyClaim, TrainingCost, Unit
from secagg.privacy.gaussian import mu_of
from secagg.session import RoundSetup
from tests.experiments.test_sweep import dataset
from tests.worlds.setups import DELTA, IN_SUMS, make_setup
from threat_models.estimation.recomputation import epsilon_of, honest_shares, second_opinion

ROUNDS, STEPS, RATE, WIDTH = 2, 2, 0.3, 8
PARAMETERS = {"rounds": ROUNDS, "steps": STEPS, "sampling": RATE, "width": WIDTH, "sum_share": 0.6}
every_method = pytest.mark.parametrize("method", ["fedpcl", "fedproto"])


def shared(**choices: Any) -> RoundSetup:
    """A plan of two sums over projections of four noisy dimensions, two noisy steps between them, ε = 2."""
    parameters = {**PARAMETERS, **choices.pop("parameters", {})}
    fixed = {"method": "fedpcl", "epsilon": 2.0, "parameters": tuple(parameters.items())}
    return make_setup(**{**fixed, **choices})


def claim_of(setup: RoundSetup) -> PrivacyClaim:
    """What it promises about its sums."""
    assert isinstance(setup.facts.claim, PrivacyClaim)
    return setup.facts.claim


def squared_mu(setup: RoundSetup) -> float:
    """μ² of all sums by hand, from the σ in the plan: every record adds 1 to a count and R to a class's sum."""
    plan = setup.plan
    counts, sums = plan.noises[1:]
    if plan.noise == NoiseFrom.AGGREGATOR:
        found = [each.sigma**2 for each in (counts, sums)]
    else:
        honest = len(setup.context.clients) - plan.dropouts - max(1, plan.colluders)
        found = [honest * each.sigma**2 - 3 for each in (counts, sums)]
    return ROUNDS * (counts.multiplier**2 / found[0] + plan.levels**2 / found[1])


def delta_by_integration(setup: RoundSetup, epsilon: float) -> float:
    """δ(ε) of two sampled steps and a Gaussian release: the steps' outcomes on a grid, the release in closed form."""
    training = setup.sum.spec.training
    assert training is not None
    away = training.levels / math.sqrt(setup.plan.training_sigma**2 - 3)
    mu = math.sqrt(squared_mu(setup))
    points = np.linspace(-12, 12 + away, 3001)
    wide = points[1] - points[0]
    plain, moved = (np.exp(-(place**2) / 2) / math.sqrt(2 * math.pi) * wide for place in (points, points - away))
    mixed = (1 - RATE) * plain + RATE * moved
    found = []
    for here, there in ((mixed, plain), (plain, mixed)):
        losses = np.log(here / there)
        left = epsilon - np.add.outer(losses, losses)
        hockey = ndtr(mu / 2 - left / mu) - np.exp(left) * ndtr(-mu / 2 - left / mu)
        found.append(float(here @ hockey @ here))
    return max(found)


@every_method
@pytest.mark.parametrize("noise", IN_SUMS)
def test_claim_is_the_composition_of_both(method: str, noise: NoiseFrom) -> None:
    """δ of the sampled steps and of the sums together, integrated numerically, is the plan's at the claimed ε."""
    setup = shared(method=method, noise=noise)
    releases = claim_of(setup).releases
    assert releases.cost().squared_mu == pytest.approx(squared_mu(setup), rel=1e-9)
    epsilon = releases.epsilon(DELTA)
    assert 1.995 < epsilon <= 2.0
    assert 0.99 * DELTA < delta_by_integration(setup, epsilon) <= DELTA


def test_sums_alone_or_steps_alone_are_less() -> None:
    """Either part by itself has a smaller ε than both: nothing is left out of the composition."""
    releases = claim_of(shared()).releases
    assert releases.training is not None
    parts = releases.cost().epsilon(DELTA), releases.training.epsilon(DELTA)
    assert max(parts) < releases.epsilon(DELTA) < sum(parts)


@pytest.mark.parametrize("share", [0.1, 0.6, 0.95])
def test_share_of_the_sums_is_the_plans(share: float) -> None:
    """The sums have the stated share of μ², and the steps no more noise than ε then takes."""
    setup = shared(parameters={"sum_share": share})
    releases = claim_of(setup).releases
    assert releases.cost().squared_mu == pytest.approx(share * mu_of(2.0, DELTA) ** 2, rel=2e-3)
    assert releases.epsilon(DELTA) > 1.99


@every_method
def test_ledger_has_one_row_for_both(method: str) -> None:
    """What is charged is the training with the sums' μ² in it, for a record added or removed, and for nothing else."""
    setup = shared(method=method)
    (spent,) = plan_cost(setup.facts)
    assert (spent.unit, spent.adjacency) == (Unit.RECORD, Adjacency.ADD_REMOVE)
    assert isinstance(spent.cost, TrainingCost)
    assert spent.cost.steps.steps == STEPS * (ROUNDS - 1)
    assert spent.cost.squared_mu == pytest.approx(squared_mu(setup), rel=1e-9)
    assert spent.cost.epsilon(DELTA) == claim_of(setup).releases.epsilon(DELTA)


def test_first_round_costs_no_steps_but_is_charged_some() -> None:
    """After one of two sums less is spent than after both, and more than that sum alone."""
    claim = claim_of(shared())
    (calibration, _) = claim.releases.parts[0]
    assert calibration.cost().epsilon(DELTA) < claim.after(1, 2) < claim.after(2, 2) <= claim.epsilon


@pytest.mark.parametrize("place", [0, 1, 2])
def test_less_noise_anywhere_is_no_plan(place: int) -> None:
    """A plan with one per cent less noise on training, counts or sums is refused by everybody who derives it."""
    setup = shared()
    noises = list(setup.plan.noises)
    noises[place] = replace(noises[place], sigma=0.97 * noises[place].sigma)
    with pytest.raises(BadInput, match="is claimed, but the noise gives"):
        RoundSetup.of(replace(setup.plan, noises=tuple(noises)), setup.roster)


def test_noise_for_training_is_neither_missing_nor_idle() -> None:
    """Without it, or with it in a plan whose members do not train so, there is no plan."""
    setup = shared()
    with pytest.raises(BadInput, match="other than what its method does"):
        RoundSetup.of(replace(setup.plan, noises=setup.plan.noises[1:]), setup.roster)
    plain = make_setup(method="prototypes", parameters=())
    idle = replace(plain.plan, noises=(setup.plan.noises[0], *plain.plan.noises))
    with pytest.raises(BadInput, match="other than what its method does"):
        RoundSetup.of(idle, plain.roster)


@every_method
@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_other_promises_are_refused(method: str, unit: Unit, adjacency: Adjacency) -> None:
    """Sampling amplifies for one record added or removed; for all else there is no such plan."""
    if (unit, adjacency) == (Unit.RECORD, Adjacency.ADD_REMOVE):
        return
    with pytest.raises(BadInput, match="promises nothing for"):
        shared(method=method, unit=unit, adjacency=adjacency)


def test_members_noise_alone_does_not_cover_the_sums() -> None:
    """Training is private, the sums over it are not: a plan without noise in them is refused, with the reason."""
    with pytest.raises(BadInput, match="takes noise in the sums too"):
        shared(noise=NoiseFrom.MEMBER)


def test_census_of_a_gate_is_charged_too() -> None:
    """Behind a class gate its noised census is in the same μ², and the whole keeps ε."""
    setup = shared(class_gate=1, dropouts=0, colluders=1)
    releases = claim_of(setup).releases
    assert [each.block for each in setup.plan.noises] == ["training", "census", "counts", "class_sums"]
    assert len(releases.parts) == 2
    assert releases.cost().squared_mu == pytest.approx(0.6 * mu_of(2.0, DELTA) ** 2, rel=2e-3)
    assert 1.99 < releases.epsilon(DELTA) <= 2.0


@every_method
@pytest.mark.parametrize("noise", IN_SUMS)
def test_auditor_agrees(method: str, noise: NoiseFrom) -> None:
    """The audit's own composition gives the plan's ε, and more where one part's noise is short."""
    setup = shared(method=method, noise=noise)
    plan, honest = setup.plan, honest_shares(setup.plan, len(setup.context.clients))
    opinion = second_opinion(plan, honest)
    assert opinion.agrees
    assert opinion.epsilon == pytest.approx(2.0, rel=3e-3)
    assert epsilon_of(claim_of(setup).releases, DELTA) == pytest.approx(opinion.epsilon, rel=1e-3)
    for place in range(3):
        noises = list(plan.noises)
        noises[place] = replace(noises[place], sigma=0.9 * noises[place].sigma)
        assert not second_opinion(replace(plan, noises=tuple(noises)), honest).agrees


def test_it_is_explained() -> None:
    """`plan show` says whose noise it is, and how many records it outweighs in a step and in a class's sum."""
    setup = shared(at_least=300)
    rows, found = dict(explain(setup.facts)), noise_in_records(setup.facts)
    training = setup.sum.spec.training
    assert training is not None
    assert found["training"] == pytest.approx(
        math.sqrt(training.size) * setup.plan.training_sigma / training.levels, rel=1e-12
    )
    opened = setup.plan.noises[2].sigma * math.sqrt(len(setup.context.clients))
    assert found["class_sums"] == pytest.approx(math.sqrt(WIDTH) * opened / setup.plan.levels, rel=1e-12)
    assert f"on a step of training as long as {found['training']:.3g} records" in rows["noise of a round"]
    assert f"{found['class_sums'] / 100:.3g} times those stated" in rows["noise of a round"]
    assert "longest gradients at each step" in rows["noise of one party"]
    assert "members' own training, too (2 steps, a record in each with probability 0.3)" in rows["promise"]
    assert "a member whose training leaves its noise out" in rows["what breaks it"]


def digests(**settings: Any) -> tuple[str, str]:
    """What a run of two members opened and released, with noise from a seed: each knows its own share."""
    records = dataset()
    made = secagg.simulate(
        records.train.inputs,
        records.train.labels,
        clients=2,
        colluders=0,
        method="fedpcl",
        parameters="rounds=3 width=8 sampling=0.3",
        epsilon=2.0,
        delta=1e-5,
        adjacency="add-remove",
        noise_seed=7,
        reference=False,
        **settings,
    ).to_json()
    return str(made["aggregate_sha256"]), str(made["head_sha256"])


def test_same_sums_under_every_protection() -> None:
    """Where one member's share must be enough anyway, the same noise gives the same bits, however they are hidden."""
    found = {each: digests(protection=each) for each in ("masked", "shared", "encrypted", "none")}
    assert len(set(found.values())) == 1


def test_same_sums_by_an_aggregators_noise() -> None:
    """The noise of who opens is the same under masks and under none, and another than the members' shares."""
    found = {each: digests(protection=each, noise="aggregator") for each in ("masked", "none")}
    assert len(set(found.values())) == 1
    assert digests(protection="none") not in found.values()
