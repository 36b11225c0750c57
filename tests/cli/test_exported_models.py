"""A model of one's own, from its file to a plan, a policy, a training and a prediction."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from secagg.agreement.plan import read_plan
from secagg.agreement.policy import read_policy
from secagg.data import open_dataset
from secagg.features.pipeline import Pipeline
from secagg.heads import to_safetensors
from secagg.networks import TrainedModel, program_named
from secagg.networks.exported import admit
from tests.cli.command import NEW_PLAN, Command
from tests.networks.exports import export, export_seeded, perceptron

NOISE = ("--epsilon", 8, "--delta", 1e-5, "--adjacency", "add-remove")


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes this process one that was given no file, as every command's is."""

    def forget() -> None:
        monkeypatch.setattr("secagg.networks.exported._admitted", {})
        monkeypatch.setattr("secagg.networks.exported._opened", {})

    return forget


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """An exported network for the three numbers of a federation's records, and two classes."""
    return export(perceptron(3, 2), tmp_path / "net.pt2", 3)


@pytest.fixture
def plan(secagg: Command, federation: Path, net: Path) -> Path:
    """A plan that trains it in three rounds."""
    (federation / "plan.json").unlink()
    roster, shape = federation / "alice" / "roster.json", ("--shape", 3, "--classes", "no,yes")
    made = secagg(*NEW_PLAN,
                  "--quiet", "--roster", roster, "--out", federation / "plan.json", *shape,
                  "--method", "fedavg", "--parameters", f"model={net} rounds=3")  # fmt: skip
    assert made.code == 0, made.err
    return federation / "plan.json"


@pytest.mark.parametrize(
    ("parameters", "promise"),
    [
        ("clip=10", ()),
        ("clip=4 cap=64", ("--unit", "client", *NOISE)),
        ("clip=4 gradients=1", NOISE),
        ("steps=3 sampling=0.1 batch=30 clip=10", ("--noise", "member", *NOISE)),
    ],
    ids=["exact", "member", "record", "everybody"],
)
def test_simulation_trains_it_under_every_promise(
    secagg: Command, tmp_path: Path, parameters: str, promise: tuple[object, ...]
) -> None:
    """A small CNN with group norm is trained on digits in secure sums; it is said to be code, and what it costs."""
    file, few = export_seeded("cnn", tmp_path / "cnn.pt2", 10), open_dataset("digits").train.take(slice(0, 300))
    np.savez(tmp_path / "digits.npz", images=few.inputs, labels=few.labels)
    said = secagg("simulate", "--dataset", tmp_path / "digits.npz", "--method", "fedavg", "--no-reference",
                  "--json", "-", "--parameters", f"model={file} rounds=2 rate=0.1 {parameters}", *promise)  # fmt: skip
    assert said.code == 0, said.err
    assert f"{file} is code" in said.err
    assert [each["round"] for each in said.json["rounds"]] == [1, 2]
    assert (said.json["promise"] is not None) == bool(promise)


def test_members_give_the_file_that_their_policy_lists(
    secagg: Command, federation: Path, net: Path, plan: Path, forget: Callable[[], None]
) -> None:
    """The plan has the digest alone; `plan policy` lists it, and plan and client are taken with the file at hand."""
    digest = hashlib.sha256(net.read_bytes()).hexdigest()
    assert read_plan(plan).method_parameters["model"] == f"pt2:{digest}"
    home = federation / "alice"
    policy = home / "own.toml"
    forget()
    assert secagg("plan", "policy", "--plan", plan, "--data-name", "a", "--out", policy).code == 0
    assert read_policy(policy).programs == (digest,)
    policy.write_text(policy.read_text().replace("refinement_without_noise = false", "refinement_without_noise = true"))
    data = ("--data", home / "records.npz")
    check = ("plan", "check", "--plan", plan, "--roster", home / "roster.json", "--policy", policy, *data)
    client = ("client", "--quiet", "--plan", plan, "--server", "127.0.0.1:1", *data, "--policy", policy, "--state",
              home / "state", "--tls", home, "--dry-run")  # fmt: skip
    show = ("plan", "show", "--plan", plan, "--roster", home / "roster.json")
    for command in (check, client, show):
        forget()
        said = secagg(*command)
        assert said.code == 2
        assert f"{digest} is not at hand" in said.complaint
        said = secagg(*command, "--model", net)
        assert said.code == 0, said.err
    assert "parameters, 1 epoch at most in each of 3 rounds" in said.out


def test_program_that_no_policy_lists_is_not_parsed(
    secagg: Command,
    federation: Path,
    net: Path,
    plan: Path,
    forget: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member whose policy does not list the file refuses the plan before torch reads a byte of it."""
    import torch

    home = federation / "alice"
    forget()
    monkeypatch.setattr(torch.export, "load", lambda *_: pytest.fail("parsed"))
    said = secagg("client", "--quiet", "--plan", plan, "--server", "127.0.0.1:1", "--data", home / "records.npz",
                  "--policy", home / "policy.toml", "--state", home / "state", "--tls", home,
                  "--model", net)  # fmt: skip
    assert said.code == 2
    assert f"programs: the plan trains {hashlib.sha256(net.read_bytes()).hexdigest()}" in said.complaint


def test_another_file_is_not_the_plan_s(
    secagg: Command, federation: Path, tmp_path: Path, plan: Path, forget: Callable[[], None]
) -> None:
    """The same network with other weights has another digest, and is not taken for the plan's."""
    other = export(perceptron(3, 2), tmp_path / "other.pt2", 3)
    forget()
    said = secagg("plan", "show", "--plan", plan, "--roster", federation / "alice" / "roster.json", "--model", other)
    assert said.code == 2
    assert "is not at hand" in said.complaint


def test_trained_model_predicts_with_the_file_at_hand(
    secagg: Command, tmp_path: Path, net: Path, plan: Path, forget: Callable[[], None]
) -> None:
    """`predict --model` reads trained weights into the network of the file, and asks for it where it is missing."""
    program = program_named(admit(net), 3, 2)
    trained = TrainedModel.of(program, program.start(bytes(32)) + 0.1)
    content = to_safetensors(trained, Pipeline.of_plan(read_plan(plan)).to_metadata())
    (tmp_path / "head.safetensors").write_bytes(content)
    features = np.random.default_rng(0).normal(size=(30, 3))
    features -= features.mean(axis=1, keepdims=True)
    labels = trained.predict(features / np.linalg.norm(features, axis=1, keepdims=True))
    np.savez(tmp_path / "own.npz", features=features, labels=labels)
    predict = ("predict", "--head", tmp_path / "head.safetensors", "--data", tmp_path / "own.npz", "--json", "-")
    forget()
    said = secagg(*predict)
    assert (said.code, "is not at hand" in said.complaint, "--model" in said.complaint) == (2, True, True)
    assert secagg(*predict, "--model", net).json["correct"] == 30
