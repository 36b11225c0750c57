"""`secagg simulate`: bit-exactness however the data are split, dropouts, the JSON contract, the reference numbers."""

import inspect
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.cli.simulate import simulate
from secagg.experiments.settings import SimulationSettings
from tests.cli.command import Command

KEYS = {
    "method", "dataset", "clients", "survivors", "partition", "seed", "protection", "epsilon", "delta", "adjacency",
    "unit", "accuracy", "accuracy_interval", "accuracy_reference", "head_sha256", "aggregate_sha256", "ring",
    "vector_length", "upload_bytes_per_client", "seconds",
}  # fmt: skip
DIGITS = 2730
"""10 counts + 10·64 class sums + 64·65/2 moments."""


def simulated(secagg: Command, *arguments: object) -> dict[str, Any]:
    """The JSON of a simulation that succeeds."""
    said = secagg("simulate", "--quiet", "--json", "-", *arguments)
    assert (said.code, said.err) == (0, "")
    return said.json


@pytest.fixture
def control(secagg: Command) -> dict[str, Any]:
    """All records with one client, unprotected."""
    return simulated(secagg, "--clients", 1, "--protection", "none")


def test_json_is_the_contract(secagg: Command) -> None:
    """`--json -` prints one JSON object with every key of the contract, and nothing else."""
    content = simulated(secagg)
    assert set(content) >= KEYS
    assert (content["dataset"], content["clients"], content["survivors"], content["partition"]) == (
        "digits",
        5,
        5,
        "iid",
    )
    assert (content["epsilon"], content["delta"], content["protection"]) == ("inf", None, "masked")
    assert content["vector_length"] == DIGITS
    assert 0 <= content["accuracy_interval"][0] <= content["accuracy"] <= content["accuracy_interval"][1] <= 1
    assert content["accuracy"] == content["accuracy_reference"]
    assert content["upload_bytes_per_client"] >= DIGITS * content["ring"] // 8
    assert all(isinstance(seconds, float) for seconds in content["seconds"].values())


def test_aggregate_without_noise_is_what_it_always_was(control: dict[str, Any]) -> None:
    """The digits' exact sum has the digest that every version without noise gave: formats and integers are the same."""
    assert control["aggregate_sha256"] == "bbb47ba5eeb387b339a24c6d50ff35e5abd55eb86df86d4ae216ef30ec65a306"


@pytest.mark.parametrize("arguments", [[], ["--noise", "aggregator"], ["--unit", "client"], ["--refine", 2]], ids=str)
def test_noise_is_in_the_contract(secagg: Command, arguments: list[object]) -> None:
    """With a finite epsilon the JSON says what is promised to whom, and the noise shows: no two sums are alike."""
    promise = ["--epsilon", 8, "--delta", 1e-5, "--adjacency", "add-remove"]
    content, again = (simulated(secagg, *promise, *arguments) for _ in range(2))
    assert set(content) >= KEYS
    assert (content["epsilon"], content["delta"], content["adjacency"]) == (8.0, 1e-5, "add-remove")
    assert content["promise"].startswith("What is opened tells to a limited degree")
    assert content["normalisation"] == "centred-unit"
    assert content["aggregate_sha256"] != again["aggregate_sha256"]
    assert content["accuracy_reference"] == again["accuracy_reference"] > 0.9


@pytest.mark.parametrize(
    ("clients", "partition"),
    [(3, "iid"), (10, "iid"), (3, "dirichlet:0.05"), (10, "dirichlet:0.05"), (50, "dirichlet:0.05")],
)
def test_split_does_not_change_one_bit(secagg: Command, control: dict[str, Any], clients: int, partition: str) -> None:
    """Head and aggregate are bit for bit those of one unprotected client, for any number of clients, split and seed."""
    for seed in (0, 1, 99) if clients < 50 else (2,):
        found = simulated(secagg, "--clients", clients, "--partition", partition, "--seed", seed)
        assert found["head_sha256"] == control["head_sha256"]
        assert found["aggregate_sha256"] == control["aggregate_sha256"]
        assert found["survivors"] == clients


@pytest.mark.parametrize("partition", ["shards:1", "shards:2", "dirichlet:0.01"])
def test_one_sided_clients_do_not_change_one_bit(secagg: Command, control: dict[str, Any], partition: str) -> None:
    """Clients that hold one class, or nothing at all, change nothing either."""
    found = simulated(secagg, "--clients", 10, "--partition", partition)
    assert found["aggregate_sha256"] == control["aggregate_sha256"]


@pytest.mark.parametrize("dataset", ["breast-cancer", "wine"])
def test_tables_do_not_change_one_bit(secagg: Command, dataset: str) -> None:
    """The same holds for the packaged tables."""
    heads = {
        simulated(secagg, "--dataset", dataset, *arguments)["head_sha256"]
        for arguments in (["--clients", 1, "--protection", "none"], ["--clients", 7, "--partition", "dirichlet:0.1"])
    }
    assert len(heads) == 1


def test_expanded_features_do_not_change_one_bit(secagg: Command) -> None:
    """Random features come from a public seed: they, too, are the same everywhere."""
    arguments = ["--expand", 64, "--seed", 5]
    heads = {simulated(secagg, "--clients", clients, *arguments)["head_sha256"] for clients in (3, 8)}
    assert len(heads) == 1


def test_seed_moves_only_who_leaves(secagg: Command) -> None:
    """With dropouts the seed changes whose records are in the sum, and the same seed gives the same sum."""
    run = ["--clients", 10, "--dropouts", 3]
    first, again, other = (simulated(secagg, *run, "--seed", seed)["aggregate_sha256"] for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_dropouts_give_the_survivors_sum(secagg: Command, seed: int) -> None:
    """Three of ten vanish at different steps: the sum is exactly that of the survivors, as without protection."""
    found = simulated(secagg, "--clients", 10, "--dropouts", 3, "--seed", seed)
    assert 7 <= found["survivors"] <= 10
    assert found["accuracy"] > 0.9


@pytest.mark.parametrize("clients", [[], ["--clients", 10]], ids=["default", "10"])
@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted", "none"])
def test_too_many_dropouts(
    secagg: Command, monkeypatch: pytest.MonkeyPatch, protection: str, clients: list[object]
) -> None:
    """More dropouts than a sum survives are a bad option, with what it does survive, before a session begins."""
    monkeypatch.setattr("secagg.experiments.simulation.play_rounds", None)
    said = secagg("simulate", "--quiet", "--json", "-", "--protection", protection, *clients, "--dropouts", 9)
    assert said.code == 2
    most = {("masked", 5): 1, ("masked", 10): 4}.get((protection, 10 if clients else 5), 7 if clients else 2)
    assert f"{10 if clients else 5} clients tolerate at most {most} dropouts" in said.complaint


def test_missing_protection_is_said(secagg: Command) -> None:
    """Without protection a warning is printed, and stdout stays JSON."""
    said = secagg("simulate", "--json", "-", "--protection", "none", "--clients", 3)
    assert "WARNING" in said.err
    assert said.json["protection"] == "none"


def test_what_the_gate_leaves_out_is_said(secagg: Command) -> None:
    """Classes that too few clients hold are named, as in the JSON, and what it is compared with has no gate."""
    arguments = ["--dataset", "digits", "--clients", 10, "--partition", "dirichlet:0.05", "--class-gate", 4]
    said, plain = (secagg("simulate", *arguments, *more) for more in ([], ["--class-gate", 0]))
    assert said.code == plain.code == 0
    assert "left out by the class gate" in said.out
    assert "left out" not in plain.out
    assert "accuracy, pooled, no gate or noise" in said.out
    assert "accuracy, pooled, no noise" in plain.out


def test_json_file_and_lines(secagg: Command, tmp_path: Path) -> None:
    """With a file the JSON goes there and the lines for people to stdout."""
    said = secagg("simulate", "--quiet", "--clients", 3, "--json", tmp_path / "result.json")
    assert said.code == 0
    assert "head sha256" in said.out
    assert set(json.loads((tmp_path / "result.json").read_text())) >= KEYS


def test_own_arrays(secagg: Command, tmp_path: Path) -> None:
    """An .npz of one's own works, and the pooled maximum as its radius is said in the notes."""
    features = np.random.default_rng(0).normal(size=(60, 4))
    np.savez(tmp_path / "own.npz", features=features, labels=np.arange(60) % 3)
    found = simulated(secagg, "--dataset", tmp_path / "own.npz", "--clients", 4)
    assert found["vector_length"] == 3 + 12 + 10
    assert any("radius" in note for note in found["notes"])


@pytest.mark.parametrize(("covariance", "accuracy"), [("total", 67.75), ("within", 68.38)])
def test_reference_numbers(secagg: Command, data_folder: Path, covariance: str, accuracy: float) -> None:
    """The CIFAR-10 features give the reference accuracy with ten unequal clients and the defaults."""
    found = simulated(
        secagg, "--dataset", data_folder / "cifar10_resnet18_layer3_features.npz", "--clients", 10,
        "--partition", "dirichlet:0.05", "--covariance", covariance,
    )  # fmt: skip
    assert 100 * found["accuracy"] == pytest.approx(accuracy, abs=0.05)
    assert found["accuracy"] == found["accuracy_reference"]


def test_hospitals(secagg: Command, data_folder: Path) -> None:
    """A folder of four tables is four clients; the pooled result is the same."""
    folder = data_folder / "tabular" / "heart"
    found = simulated(secagg, "--dataset", folder, "--schema", "heart-disease")
    assert (found["clients"], found["survivors"]) == (4, 4)
    assert found["accuracy"] == found["accuracy_reference"]


def test_defaults_are_those_of_the_settings() -> None:
    """What `simulate` does without an option is what `secagg.simulate` does without the argument of the same name."""
    offered = inspect.signature(simulate).parameters
    spelled = {"epsilon": "inf", "refine": "auto"}
    assert {each.name: offered[each.name].default for each in fields(SimulationSettings)} == {
        each.name: spelled.get(each.name, each.default) for each in fields(SimulationSettings)
    }
