"""Searches under every protection and promise: the same states for everybody, what is charged, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from methods.search.round import LOSS, SCORED
from methods.training.training_round import TrainingRound
from secagg.agreement.plan import Plan
from secagg.data import Dataset, open_dataset
from secagg.errors import BadInput, PlanRefused
from secagg.experiments.features import Features
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulated_federation import SimulatedFederation
from secagg.experiments.simulation import play_rounds, simulate_dataset
from secagg.experiments.tuning import SETTINGS_FILE, Tuning, tune_dataset
from secagg.plan_facts.explanation import explain
from secagg.plan_facts.facts import plan_cost
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.privacy import GaussianCost, TrainingCost, Unit
from secagg.session import RoundSetup, contribution_of

PROMISE = {"epsilon": 8.0, "delta": 1e-5, "adjacency": "add-remove"}
SEARCH = "rounds=3 population=2 interval=1 validation=0.4"
EXACT = f"{SEARCH} fixed=clip=5"
GRADIENTS = f"{SEARCH} fixed=gradients=1;clip=2 space=rate=log:0.1:1;server_rate=log:0.5:2"
PRIVATE = f"{SEARCH} fixed=clip=5 space=rate=log:0.1:1;sampling=0.1:0.3;steps=1:3;batch=5|10"
PROTECTIONS = ("masked", "shared", "encrypted", "none")
HIDING = PROTECTIONS[:3]
"""Where clients' shares of the noise add up: in the clear each client's must do alone, and is larger."""


@cache
def data() -> Dataset:
    """150 records of four features, in three classes, as many held out."""
    generator = np.random.default_rng(3)
    labels = np.arange(300) % 3
    features = generator.normal(size=(300, 4)) + 2 * np.eye(4)[labels]
    from secagg.data.arrays import dataset_of

    return dataset_of(features[:150], labels[:150], features[150:], labels[150:])


def settings_of(parameters: str, **given: Any) -> SimulationSettings:
    """Six members, whose draws and noise are seeded."""
    return SimulationSettings(
        **{"method": "fedpop", "parameters": parameters, "clients": 6, "noise_seed": 4, "reference": False, **given}
    )


def setup_of(parameters: str, **given: Any) -> RoundSetup:
    """The plan of such a search."""
    settings = settings_of(parameters, **given)
    return SimulatedFederation.of(Features.of(data(), settings), settings).setup


def states_of(parameters: str, **given: Any) -> list[bytes]:
    """The digest of the state after each round, and of the model after the last."""
    settings = settings_of(parameters, **given)
    cast, found = SimulatedFederation.of(Features.of(data(), settings), settings), []

    def prepare(setup: RoundSetup, records: Any, member: int, state: bytes) -> Any:
        source = cast.randomness.source("contribution", setup.number, member)
        return contribution_of(setup, records, source, member, state)

    for played in play_rounds(cast, cast.dropouts, prepare):
        following = played.result.following
        found.append(following.state.digest if isinstance(following, TrainingRound) else played.result.artifact_sha256)
    return found


@pytest.mark.parametrize(
    ("parameters", "given", "protections"),
    [
        (EXACT, {}, PROTECTIONS),
        (EXACT, {"dropouts": 1, "clients": 10}, PROTECTIONS),
        (f"{EXACT} local=2", {"clients": 12}, PROTECTIONS),
        (GRADIENTS, {}, PROTECTIONS),
        (PRIVATE, {}, PROTECTIONS),
        (GRADIENTS, PROMISE, HIDING),
        (PRIVATE, {**PROMISE, "noise": "member"}, PROTECTIONS),
    ],
    ids=["updates", "dropout", "beside", "gradients", "private", "gradients at 8", "private at 8"],
)
def test_every_protection_leads_to_the_same_states(
    parameters: str, given: dict[str, Any], protections: tuple[str, ...]
) -> None:
    """Models, settings, scores and cohorts after every round are the same bits, however vectors are hidden."""
    found = [states_of(parameters, protection=each, **given) for each in protections]
    assert len(found[0]) == 3
    assert len(set(found[0])) == 3
    assert all(each == found[0] for each in found)


def test_client_level_names_the_members_that_it_takes() -> None:
    """Under a promise about members six cannot drown the noise on scores; so many as are named can."""
    promise = {**PROMISE, "epsilon": 1.0}
    with pytest.raises(BadInput, match=r"noise drowns the scores of 6: with [0-9]+ it would be 0\.2") as refusal:
        setup_of(EXACT, unit="client", **promise)
    needed = int(refusal.value.problem.split("with ")[1].split()[0])
    assert 100 < needed < 400
    rows = np.random.default_rng(0).permutation(150).repeat(8)
    many = replace(data(), train=data().train.take(rows))
    settings = settings_of(EXACT, unit="client", clients=needed + 10, **promise)
    assert SimulatedFederation.of(Features.of(many, settings), settings).setup.facts.claim is not None


def test_all_rounds_are_charged_together() -> None:
    """The scores of every round are in the plan's cost, beside what the method itself costs."""
    setup = setup_of(GRADIENTS, **PROMISE)
    assert {noise.block for noise in setup.plan.noises} == {"gradient", "count", LOSS, SCORED}
    claim = setup.facts.sum_claim
    assert claim is not None
    ((calibration, times),) = claim.releases.parts
    cost = claim.releases.cost()
    assert isinstance(cost, GaussianCost)
    assert times == 3
    alone = calibration.cost()
    assert math.isclose(cost.squared_mu, 3 * alone.squared_mu, rel_tol=1e-9)
    assert cost.epsilon(1e-5) <= 8.0 * (1 + 1e-9)


def test_scores_beside_private_training_are_charged() -> None:
    """A member's own noise on its scores costs what the plan says, with the largest sampling rate and step count."""
    setup = setup_of(PRIVATE, noise="member", **PROMISE)
    (spent,) = plan_cost(setup.facts)
    assert isinstance(spent.cost, TrainingCost)
    assert (spent.cost.steps.rate, spent.cost.steps.steps) == (0.3, 9)
    sigmas = {noise.block: noise.sigma for noise in setup.plan.noises}
    lengths = {block.name: block.l2 for block in setup.sum.spec.training.further}  # type: ignore[union-attr]
    releases = 3 * sum((length / sigmas[name]) ** 2 for name, length in lengths.items())
    assert math.isclose(spent.cost.squared_mu, releases, rel_tol=0.2)
    assert spent.cost.squared_mu > releases
    assert 7.5 < spent.cost.epsilon(1e-5) <= 8.0
    assert spent.cost.epsilon(1e-5) > TrainingCost(spent.cost.steps).epsilon(1e-5)


@pytest.mark.parametrize("block", [0, 1, 2])
def test_less_noise_is_no_plan(block: int) -> None:
    """A smaller σ of training or of scores than ε takes is refused by everybody who derives the plan."""
    setup = setup_of(PRIVATE, noise="member", **PROMISE)
    noises = list(setup.plan.noises)
    noises[block] = replace(noises[block], sigma=0.5 * noises[block].sigma)
    with pytest.raises(BadInput, match="is claimed, but the noise gives"):
        RoundSetup.of(replace(setup.plan, noises=tuple(noises)), setup.roster)
    with pytest.raises(BadInput, match="not for members' training and loss and scored"):
        RoundSetup.of(replace(setup.plan, noises=setup.plan.noises[:1]), setup.roster)


@pytest.mark.parametrize(
    ("clients", "cohorts", "colluders", "dropouts"), [(10, 3, 1, 0), (10, 2, 1, 1), (9, 3, 1, 0), (12, 2, 2, 2)]
)
def test_members_allow_so_many_settings(clients: int, cohorts: int, colluders: int, dropouts: int) -> None:
    """A cohort has c + D + 2 members; the plan says how many settings that allows, and refuses one more."""
    given = {"clients": clients, "colluders": colluders, "dropouts": dropouts}
    setup = setup_of(EXACT.replace("population=2", f"population={cohorts}"), **given)
    assert setup.facts.fewest >= clients - dropouts
    said = dict(explain(setup.facts))["groups"]
    assert f"{cohorts} groups of {clients // cohorts} clients or more, always the same" in said
    assert f"{clients} clients allow {cohorts}" in said
    with pytest.raises(BadInput, match=f"{clients} members allow {cohorts} of the [0-9]+ groups"):
        setup_of(EXACT.replace("population=2", f"population={cohorts + 1}"), **given)


def test_smaller_minimum_cohort_leaves_no_cohort_unguarded() -> None:
    """Whatever minimum a plan names, no more members than its dropouts are missing from a sum."""
    setup = setup_of(EXACT, clients=10, dropouts=1)
    weaker: Plan = replace(setup.plan, min_clients_in_sum=1)
    assert RoundSetup.of(weaker, setup.roster).facts.fewest == 9


def test_policies_judge_the_smallest_cohort() -> None:
    """What a policy says of the fewest whose sum may be opened, it says of a cohort; its bounds hold for the space."""
    setup = setup_of(EXACT, clients=10)
    policy = replace(policy_accepting(setup.plan, "data"), refinement_without_noise=True)
    setup.facts.check(replace(policy, min_clients_in_sum=5))
    with pytest.raises(PlanRefused, match="min_clients_in_sum: the sum of 5 of 10 clients"):
        setup.facts.check(replace(policy, min_clients_in_sum=6))
    with pytest.raises(PlanRefused, match="max_epochs: a round trains for 5 epochs"):
        setup.facts.check(replace(policy, max_epochs=4))


def test_what_was_found_can_be_used(tmp_path: Path) -> None:
    """The file holds what stays and what was found of the best seed; simulate takes its words as parameters."""
    tuning = Tuning("fedavg", "clip=5", "rate=log:0.01:1 epochs=1:3", "population=2 interval=1")
    grid = {"clients": [6], "rounds": [3], "reference": [False], "protection": ["none"]}
    result = tune_dataset(data(), tuning, grid, seeds=2, out=tmp_path, workers=1)
    (found,) = result.found
    words = found.parameters
    assert (tmp_path / SETTINGS_FILE.format("")).read_text().split() == words.split()
    tuned = [run.result["tuned"] for run in result.sweep.runs if run.result]
    assert f"clip=5 {min(tuned, key=lambda each: each['loss'])['settings']}" == words
    assert tuned[0]["settings"] != tuned[1]["settings"]
    run = simulate_dataset(data(), SimulationSettings(method="fedavg", parameters=words, rounds=2, clients=6))
    assert run.evaluation is not None
    content = json.loads((tmp_path / "results.json").read_text())
    assert len(content["runs"]) == 2
    assert len(content["summary"]) == 1
    again = tune_dataset(data(), tuning, grid, seeds=2, out=tmp_path, workers=1)
    assert again.found == result.found
    assert "2 of 2 runs were taken over" in again.sweep.notes


def test_what_each_search_found_is_named(tmp_path: Path) -> None:
    """Of several searches each says in what it differs from the others, and which file is its own."""
    tuning = Tuning("fedavg", "clip=5", "rate=log:0.01:1", "population=2 interval=1")
    grid = {"clients": [6, 8], "rounds": [2], "reference": [False], "protection": ["none"]}
    first, second = tune_dataset(data(), tuning, grid, seeds=1, out=tmp_path, workers=1).found
    assert (first.search, second.search) == ("clients 6", "clients 8")
    for found in (first, second):
        assert (tmp_path / found.file).read_text().split() == found.parameters.split()
    assert first.file != second.file


@pytest.mark.long
def test_shards_make_the_same(tmp_path: Path) -> None:
    """Each shard makes its own searches and writes nothing but these; collected they are what one command makes."""
    tuning = Tuning("fedavg", "clip=5", "rate=log:0.01:1", "population=2 interval=1")
    grid = {"clients": [6], "rounds": [2], "reference": [False], "protection": ["none"], "noise_seed": [0]}
    for shard in ("1/2", "2/2"):
        tune_dataset(data(), tuning, grid, seeds=2, out=tmp_path / "shards", workers=1, shard=shard)
    assert not (tmp_path / "shards" / SETTINGS_FILE.format("")).exists()
    collected = tune_dataset(data(), tuning, grid, seeds=2, out=tmp_path / "shards", workers=1, collect=True)
    assert collected.found == tune_dataset(data(), tuning, grid, seeds=2, out=tmp_path / "one", workers=1).found


@pytest.mark.long
@pytest.mark.parametrize("search", ["evolution", "halving", "evolution-in-halving", "random"])
def test_a_search_finds_a_rate_that_works(search: str) -> None:
    """Of rates from a millionth to one, each search ends with one under which digits are learnt."""
    settings = settings_of(
        f"rounds=15 population=4 search={search} draw=1 fixed=clip=10 space=rate=log:0.000001:1", clients=12
    )
    run = simulate_dataset(open_dataset("digits"), settings)
    assert run.evaluation is not None
    assert run.evaluation.accuracy > 0.8


def test_units_are_derived() -> None:
    """A promise about records over updates is that about members, as it is for the method itself."""
    with pytest.raises(BadInput, match="noise drowns the scores"):
        setup_of(EXACT, unit=Unit.RECORD.value, **PROMISE)
