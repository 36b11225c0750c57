"""Members' own models in simulations: accuracy on records like each one's, by hand, and where it is reported."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from secagg.data import Dataset, Records
from secagg.encoding import Grid
from secagg.encoding.grid import Origin
from secagg.experiments.client_accuracy import ClientDistributions
from secagg.experiments.features import Features
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.heads.artifact import clopper_pearson

DOMAINS = np.array(["art", "photo"])
SHORT = "rounds=3 width=16"
SETTINGS = SimulationSettings(method="fedpcl", parameters=SHORT, clients=3, protection="none", noise_seed=1)


def records(seed: int, count: int, *, told: bool = True) -> Records:
    """Records of three classes in six dimensions, and two domains that move them."""
    number = np.arange(count)
    labels, domain = number % 3, number // 3 % 2
    centres = 3 * np.eye(6)
    features = np.random.default_rng(seed).normal(size=(count, 6)) + centres[labels] + 2 * domain[:, None] * centres[3]
    return Records(features, labels, {"domain": DOMAINS[domain]} if told else {}, Origin.of(f"made up {seed}", number))


def dataset(*, told: bool = True, held_out: int = 60) -> Dataset:
    """Ninety training records."""
    test = records(2, held_out, told=told) if held_out else None
    return Dataset("domains", "features", records(1, 90, told=told), test, ("a", "b", "c"), None, None, None)


def test_weights_are_the_clients_shares() -> None:
    """Held-out records of a cell weigh together as much as the client has records of it; of other cells nothing."""
    features = Features.of(dataset(), SETTINGS)
    measurable = ClientDistributions.of(features, Grid(20.0))
    assert measurable is not None
    own = measurable.own(np.array([0, 6, 12, 4]))  # three of class a in art, one of class b in photo
    weights = measurable.weights(own)
    assert weights is not None
    labels, domains = features.dataset.test.labels, features.dataset.test.columns["domain"]  # type: ignore[union-attr]
    for label, domain, share in ((0, "art", 3.0), (1, "photo", 1.0), (1, "art", 0.0), (2, "photo", 0.0)):
        assert weights[(labels == label) & (domains == domain)].sum() == pytest.approx(share)


def test_nothing_is_like_a_client_that_has_what_nobody_held_out() -> None:
    """No weights, and no accuracy, for records whose like is not held out."""
    parts = records(1, 90), records(2, 60).take(np.arange(60)[records(2, 60).labels != 0])
    features = Features.of(Dataset("d", "features", *parts, ("a", "b", "c"), None, None, None), SETTINGS)
    measurable = ClientDistributions.of(features, Grid(20.0))
    assert measurable is not None
    assert measurable.weights(measurable.own(np.array([0, 3]))) is None
    assert measurable.weights(measurable.own(np.array([0, 1]))) is not None
    assert measurable.weights(measurable.own(np.array([], dtype=np.int64))) is None


def test_a_member_of_one_domain_is_measured_in_it() -> None:
    """With a domain each, as even in classes as what is held out, accuracy and interval are the domain's."""
    settings = SimulationSettings(method="fedpcl", parameters=SHORT, partition="column:domain", protection="none")
    run = simulate_dataset(dataset(), settings)
    assert [each.model for each in run.personal] == list(OWN_MODELS["fedpcl"])
    for each in run.personal:
        assert [client.client for client in each.clients] == [1, 2]
        assert each.mean == pytest.approx(np.mean([client.accuracy for client in each.clients]))
        for client in each.clients:
            right = 30 * client.accuracy  # thirty records of the domain are held out
            assert right == pytest.approx(round(right))
            assert client.interval == pytest.approx(clopper_pearson(round(right), 30))


OWN_MODELS = {"fedpcl": ("global", "own", "padded"), "fedproto": ("global", "head")}


@pytest.mark.parametrize("method", OWN_MODELS)
def test_report_has_every_members_accuracy(method: str) -> None:
    """In the JSON by model and client; at a finite ε among what it does not cover; without held-out records nowhere."""
    run = simulate_dataset(dataset(told=False), SimulationSettings(method=method, parameters="rounds=3", clients=3))
    content = json.loads(json.dumps(run.to_json()))
    assert {each["model"]: len(each["clients"]) for each in content["personal"]} == dict.fromkeys(OWN_MODELS[method], 3)
    for each in content["personal"]:
        for client in each["clients"]:
            low, high = client["interval"]
            assert 0 <= low <= client["accuracy"] <= high <= 1
    assert content["personal"][0]["mean"] > 0.6
    assert "personal" not in content["not_private"]
    noisy = SimulationSettings(method=method, parameters="rounds=2 cap=20", clients=3, unit="client", epsilon=8.0,
                               delta=1e-5, adjacency="add-remove", reference=False)  # fmt: skip
    assert "personal" in simulate_dataset(dataset(told=False), noisy).to_json()["not_private"]
    assert simulate_dataset(dataset(held_out=0), SETTINGS).to_json()["personal"] is None


def test_other_methods_leave_no_models() -> None:
    """A head is for everybody."""
    assert simulate_dataset(dataset(), SimulationSettings(clients=3)).to_json()["personal"] is None


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
def test_protections_give_one_result(protection: str) -> None:
    """What members draw being seeded, the sum, the public model and everybody's own are those of no protection."""
    plain = simulate_dataset(dataset(), SETTINGS)
    other = simulate_dataset(dataset(), replace(SETTINGS, protection=protection))
    for name in ("aggregate_sha256", "head_sha256", "personal"):
        assert plain.to_json()[name] == other.to_json()[name]
