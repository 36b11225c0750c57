"""Every method of the registry, under every protection, with and without noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from methods import METHODS, method_named
from methods.baselines import BASELINES
from methods.method import DOMAINS
from secagg.data import Dataset, open_dataset
from secagg.errors import BadInput
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset

PROTECTIONS = ("masked", "shared", "encrypted")
PROMISE = {"epsilon": 4.0, "delta": 1e-5, "adjacency": "add-remove"}
CHANCE = 0.1
OF_FEATURES = [name for name in METHODS if not method_named(name).traits.reads_inputs]
"""Methods that train inside an encoder take other records: `test_feddat.py`."""
OWN = ("fedpcl", "fedproto", "fraug")
"""Four members' noise drowns what they share; but for `fraug`, members' own models are what counts."""
TUNED = "rounds=12 interval=4 fixed=clip=10 space=rate=log:0.01:1;epochs=1:5"
TUNED_GRADIENTS = "rounds=6 interval=3 fixed=gradients=1;clip=4 space=rate=log:0.3:3"
CLIENTS = {"fedpop": 8}
"""Two cohorts, in each of which two honest ones are left; of the others four are enough."""
ROUNDS = {
    "ccvr": "virtual=500",
    "fedavg": "rounds=3 rate=0.5 clip=10",
    "fedavg-one-shot": "epochs=10 rate=0.5",
    "fedpop": TUNED,
    **dict.fromkeys(OWN, "rounds=3"),
    "fraug": "rounds=2 steps=20 rate=0.1 model=mlp:32 hidden=16",
}
NOISY_ROUNDS = {
    "ccvr": "virtual=500",
    "fedavg": "rounds=4 rate=2 clip=4 gradients=1",
    "fedavg-one-shot": "rate=1 clip=4 gradients=1",
    "fedpop": TUNED_GRADIENTS,
    **dict.fromkeys(OWN, "rounds=3 cap=50"),
    "fraug": "rounds=3 steps=3 model=mlp:32 hidden=16 clip=0.3",
}
"""Where something trains: briefly, and under noise about records those that promise something of a record."""


def settings_of(name: str, **given: Any) -> SimulationSettings:
    """Few clients; short trainings; domains and slots only behind a gate, as a plan must have it."""
    method = method_named(name)
    parameters = method.parameters
    if name in ROUNDS:
        short = (NOISY_ROUNDS if "epsilon" in given else ROUNDS)[name]
    else:
        short = "epochs=10" if "epochs" in parameters else ""
    if "slots" in parameters and "epsilon" in given:
        short += " slots=1"  # under noise the fewest slots lose least
    elif name == "fedtc":
        short += " slots=8"
    gate = 2 if {DOMAINS, "slots"} & set(parameters) and "epsilon" not in given else 0
    clients = CLIENTS.get(name, 4)
    return SimulationSettings(method=name, parameters=short, clients=clients, class_gate=gate, **given)


def check_bits(name: str, data: Dataset, least: float, **given: Any) -> None:
    """All protections open the same bits, from which one head comes, better than `least`.

    What members draw, the order in which they train say, is seeded.
    """
    runs = [simulate_dataset(data, settings_of(name, protection=each, noise_seed=1, **given)) for each in PROTECTIONS]
    assert len({run.to_json()["aggregate_sha256"] for run in runs}) == 1
    assert len({run.to_json()["head_sha256"] for run in runs}) == 1
    assert runs[0].evaluation is not None
    assert runs[0].evaluation.accuracy > least


def check_noise(name: str, data: Dataset, protection: str, **given: Any) -> None:
    """Under a protection the plan carries the promise, and the head is far better than chance."""
    run = simulate_dataset(data, settings_of(name, protection=protection, **PROMISE, **given))
    assert run.promise is not None
    assert "epsilon 4" in run.promise
    assert run.evaluation is not None
    assert name in OWN or run.evaluation.accuracy > 2 * CHANCE


@pytest.mark.parametrize("name", OF_FEATURES)
def test_every_protection_opens_the_same_bits(name: str) -> None:
    """Without noise masked, shared and encrypted give one sum and one head, which knows the digits."""
    check_bits(name, open_dataset("digits"), 0.8)


@pytest.mark.parametrize(
    "protection", ["masked", *(pytest.param(each, marks=pytest.mark.long) for each in PROTECTIONS[1:])]
)
@pytest.mark.parametrize("name", OF_FEATURES)
def test_every_method_takes_noise(name: str, protection: str) -> None:
    """At ε = 4 every method runs under every protection."""
    check_noise(name, open_dataset("digits"), protection, expand=128)


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_what_no_protection_can_hide_is_refused_with_its_reason(name: str, protection: str) -> None:
    """A baseline runs under `none` alone, and says why."""
    with pytest.raises(BadInput) as refusal:
        simulate_dataset(open_dataset("digits"), SimulationSettings(method=name, protection=protection, clients=4))
    assert "--protection none" in str(refusal.value)
    assert len(refusal.value.problem) > 40


@pytest.mark.long
@pytest.mark.parametrize("name", OF_FEATURES)
def test_every_method_on_cifar_features(name: str, data_folder: Path) -> None:
    """The same, on the 256 features of 50,000 CIFAR-10 images."""
    data = open_dataset(str(data_folder / "cifar10_resnet18_layer3_features.npz"))
    check_bits(name, data, 0.5)
    for each in PROTECTIONS:
        check_noise(name, data, each)
