"""ε by other formulas than the project's."""

import math
from dataclasses import replace

import numpy as np
import pytest

from methods import sums_of
from methods.training import client_update
from secagg.agreement.plan import NoiseFrom
from secagg.errors import BadInput
from secagg.plan_facts.planning import PlanChoices, PublicData, SurplusNoise, make_plan
from secagg.privacy import (
    Adjacency,
    BlockwiseSensitivity,
    CellSensitivity,
    Mechanism,
    MomentSensitivity,
    Unit,
    noise_levels,
)
from secagg.privacy.gaussian import mu_of
from secagg.randomness import OperatingSystem
from tests.threat_models.estimation.claims import DELTA, KINDS, claimed
from tests.worlds.rosters import make_roster
from tests.worlds.setups import make_setup
from threat_models.estimation.empirical_sensitivity import longest_of
from threat_models.estimation.recomputation import epsilon_of, gaussian_epsilon, second_opinion
from threat_models.estimation.rerelease import worst_canary


@pytest.mark.parametrize(("epsilon", "exact"), [(0.5, 7.032), (1, 3.731), (2, 1.994), (4, 1.081), (8, 0.600)])
def test_known_values(epsilon, exact):
    """The noise multipliers at δ = 1e-5 give ε back, to the digits that they have."""
    assert gaussian_epsilon(1 / exact, DELTA) == pytest.approx(epsilon, rel=2e-3)


def test_no_distance_means_no_epsilon():
    """ε is 0 without a distance, or with one that δ covers, and infinite for a certain guess."""
    assert gaussian_epsilon(-0.1, DELTA) == gaussian_epsilon(0.0, DELTA) == gaussian_epsilon(1e-6, DELTA) == 0.0
    assert gaussian_epsilon(math.inf, DELTA) == math.inf


@pytest.mark.parametrize("mechanism", list(Mechanism))
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("parts", KINDS)
def test_agrees_with_the_accounting(mechanism, adjacency, parts):
    """Both computations agree to 0.1 % for records and clients, one sum and several."""
    claim = claimed(mechanism, adjacency, parts=parts and parts(adjacency))
    assert epsilon_of(claim.releases, DELTA) == pytest.approx(claim.releases.epsilon(DELTA), rel=1e-3)


def planned(clients=5, **choices):
    """A plan for so many clients, one of them dishonest; and its honest shares."""
    roster, _ = make_roster(clients)
    data = PublicData("features", (8,), ("a", "b", "c"), None, None)
    fixed = {"epsilon": 1.0, "delta": DELTA, "adjacency": Adjacency.ADD_REMOVE, "colluders": 1, "dropouts": 0}
    return make_plan(data, roster, PlanChoices(**{**fixed, **choices}), OperatingSystem()), clients - 1


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(
    "choices",
    [{}, {"method": "prototypes"}, {"unit": Unit.CLIENT, "max_records": 50}, {"parameters": (("refine", 3),)},
     {"class_gate": 2}, {"noise": NoiseFrom.AGGREGATOR}, {"method": "ccvr"},
     {"method": "fedtc", "parameters": (("slots", 4), ("threshold", 0.1))}, {"method": "mpft"},
     {"method": "fedpcl", "parameters": (("cap", 20), ("width", 8)), "unit": Unit.CLIENT},
     {"method": "fedproto", "parameters": (("cap", 20), ("width", 8))}],
)  # fmt: skip
def test_plans_are_confirmed(adjacency, choices):
    """The noise in a plan gives the ε that it promises and hardly less, whatever is summed."""
    opinion = second_opinion(*planned(adjacency=adjacency, **choices))
    assert opinion.agrees
    assert opinion.epsilon == pytest.approx(1.0, rel=2e-3)
    assert "as claimed" in opinion.sentence


@pytest.mark.parametrize("factor", [0.5, 0.99])
def test_smaller_noise_in_the_plan_is_a_disagreement(factor):
    """σ halved or one per cent short is more ε than is claimed."""
    plan, honest = planned()
    noises = tuple(replace(n, sigma=factor * n.sigma, off_diagonal=factor * n.off_diagonal) for n in plan.noises)
    opinion = second_opinion(replace(plan, noises=noises), honest)
    assert not opinion.agrees
    assert "more than is claimed" in opinion.sentence


def test_a_wrong_accounting_does_not_convince(monkeypatch):
    """A plan made while the accounting forgot about replaced records is not confirmed."""
    forgetful = MomentSensitivity.squared
    monkeypatch.setattr(
        MomentSensitivity,
        "squared",
        lambda self, weights: forgetful(replace(self, adjacency=Adjacency.ADD_REMOVE), weights),
    )
    monkeypatch.setattr("secagg.plan_facts.planning.check_declaration", lambda *arguments: None)  # it would be refused
    plan, honest = planned(adjacency=Adjacency.REPLACE_ONE)
    assert second_opinion(plan, honest).epsilon > 1.4


UNDERSTATED = {
    "prototypes": (CellSensitivity, {}),
    "fedtc": (CellSensitivity, {}),
    "ccvr": (MomentSensitivity, {}),
    "fedpcl": (BlockwiseSensitivity, {"parameters": (("cap", 20), ("width", 8)), "unit": Unit.CLIENT}),
}


@pytest.mark.parametrize("name", UNDERSTATED)
def test_a_joint_case_lowered_by_a_hundredth_does_not_convince(name, monkeypatch):
    """Where the accounting takes a replaced unit to move 1 % less of μ² than it can, the auditor finds more ε."""
    stated, choices = UNDERSTATED[name]
    squared = stated.squared
    monkeypatch.setattr(stated, "squared", lambda self, weights: 0.99 * squared(self, weights))
    monkeypatch.setattr("secagg.plan_facts.planning.check_declaration", lambda *arguments: None)  # it would be refused
    plan, honest = planned(method=name, adjacency=Adjacency.REPLACE_ONE, **choices)
    assert not second_opinion(plan, honest).agrees


def test_a_sign_that_was_denied_does_not_convince(monkeypatch):
    """Updates said to have no negative entry get too little noise: one that is found to have one says so."""
    said = client_update.clipped
    monkeypatch.setattr(client_update, "clipped", lambda *arguments: said(*arguments, nonnegative=True))
    monkeypatch.setattr("secagg.plan_facts.planning.check_declaration", lambda *arguments: None)  # it would be refused
    choices = {"method": "fedavg", "parameters": (("rounds", 2),), "unit": Unit.CLIENT, "epsilon": 8.0}
    plan, honest = planned(adjacency=Adjacency.REPLACE_ONE, **choices)
    (kind,) = sums_of(plan)
    for smallest, is_true in ((0, True), (-1, False)):
        found = longest_of([{"update": np.array([smallest, 1])}], kind)
        assert second_opinion(plan, honest, {(0, name): length for name, length in found.items()}).agrees == is_true


def test_a_share_fewer_is_more_epsilon():
    """With one honest share fewer than planned the recomputed ε is above the claim."""
    plan, honest = planned()
    assert not second_opinion(plan, honest - 1).agrees


SCORED_TRAINING = {
    "clients": 10,
    "method": "fedpop",
    "noise": NoiseFrom.MEMBER,
    "epsilon": 4.0,
    "parameters": (("rounds", 3), ("fixed", "sampling=0.1;steps=4"), ("space", "rate=log:0.01:1")),
}
"""Members train with noise of their own, and measure a loss and a count beside it."""


def test_numbers_noised_beside_the_training_count():
    """The steps and both numbers together spend what the plan claims; the steps alone would give 3.6 of 4."""
    opinion = second_opinion(*planned(**SCORED_TRAINING))
    assert opinion.agrees
    assert opinion.epsilon == pytest.approx(4.0, rel=5e-3)


@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("factor", [0.9, 0.1, 1e-9])
def test_smaller_noise_beside_the_training_is_a_disagreement(place, factor):
    """Each number that members noise beside their steps is checked: ε is above the claim where its σ is smaller."""
    plan, honest = planned(**SCORED_TRAINING)
    noises = list(plan.noises)
    noises[place] = replace(noises[place], sigma=factor * noises[place].sigma)
    assert not second_opinion(replace(plan, noises=tuple(noises)), honest).agrees


def test_noise_missing_beside_the_training_is_refused():
    """A plan that lacks the noise of a number that its members measure has no epsilon."""
    plan, honest = planned(**SCORED_TRAINING)
    with pytest.raises(BadInput, match="members measure"):
        second_opinion(replace(plan, noises=plan.noises[:2]), honest)


def test_plans_that_promise_nothing_are_refused():
    """Without noise, without an honest share, or with noise for another method there is no ε."""
    plan, honest = planned()
    plain, _ = planned(epsilon=math.inf, delta=None, adjacency=None, radius=1.0)
    for wrong in ((plain, honest), (plan, 0), (replace(plan, noises=plan.noises[:2]), honest)):
        with pytest.raises(BadInput):
            second_opinion(*wrong)


@pytest.mark.parametrize("is_faulty", [False, True])
@pytest.mark.parametrize("refine", [0, 2])
def test_every_noise_level_is_recomputed(monkeypatch: pytest.MonkeyPatch, is_faulty: bool, refine: int) -> None:
    """ε of each level agrees; a first part 3 % too small is found, though the whole share is as it should be."""
    levelled = make_setup(13, dropouts=4, refine=refine, surplus_noise=SurplusNoise.REMOVE)
    releases, honest = levelled.facts.sum_claim.releases, noise_levels.parts_of

    def faulty(*arguments):
        first, *others, last = honest(*arguments)
        return (0.97 * first, *others, math.sqrt(last**2 + (1 - 0.97**2) * first**2))

    if is_faulty:
        monkeypatch.setattr("secagg.privacy.calibration.parts_of", faulty)
    found, canary = epsilon_of(releases, DELTA), worst_canary(releases)
    assert found == pytest.approx(releases.epsilon(DELTA), rel=1e-3)
    assert (found > 1.02 * levelled.plan.epsilon) == is_faulty
    assert (canary.mu > 1.02 * mu_of(levelled.plan.epsilon, DELTA)) == is_faulty
