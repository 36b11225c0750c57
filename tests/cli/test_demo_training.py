"""`secagg demo` where a model is trained: processes of their own, real gRPC, and a summary that claims what is so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from secagg.agreement.plan import read_plan
from tests.cli.command import Command


@pytest.fixture(autouse=True)
def _processes_at_once(monkeypatch: pytest.MonkeyPatch, commands: Path) -> None:
    """Each party's process is forked from one that has loaded what it needs."""
    monkeypatch.setattr(sys, "executable", str(commands / "secagg"))


def test_demo_trains_a_model_in_rounds(secagg: Command, tmp_path: Path) -> None:
    """Two rounds of three members give a model that knows the digits, verifies, and is called a model."""
    out = tmp_path / "demo"
    said = secagg("demo", "--quiet", "--out", out, "--method", "fedavg", "--rounds", "2", "--clients", "3")
    assert said.code == 0, said.err
    rows = dict(line.strip().split("  ", 1) for line in said.out.splitlines() if "  " in line.strip())
    assert {"the model", "accuracy in one place", "the server learned"} <= rows.keys()
    assert not {"the head", "accuracy on pooled data", "clinic-1's counts begin"} & rows.keys()
    assert rows["the server learned"].strip().startswith("2 sums, the last of 3 vectors")
    assert rows["its transcript"].strip().startswith("verifies; countersigned by 3 members")
    (model,) = out.glob("coordinator/state/*/head.safetensors")
    assert rows["the model"].strip() == str(model)
    predicted = secagg("predict", "--head", model, "--data", out / "public" / "records.npz", "--json", "-").json
    assert predicted["accuracy"] > 0.8
    assert torch.load(model.with_name("head.pt"), weights_only=True)["weight"].shape == (10, 64)


def test_demo_takes_rounds_of_methods_that_have_some(secagg: Command, tmp_path: Path) -> None:
    """The number of rounds is a parameter of the method: others refuse it, and none takes it twice."""
    for given in (["--rounds", "2"], ["--method", "fedavg", "--parameters", "rounds=3", "--rounds", "2"]):
        said = secagg("demo", "--quiet", "--out", tmp_path / "demo", *given)
        assert said.code == 2
        assert "cannot take 'rounds=2'" in said.complaint


def test_demo_takes_a_class_gate_and_tolerated_dropouts(secagg: Command, tmp_path: Path) -> None:
    """The demo's plan has the gate and the dropouts that are asked for; the census is shown, and verifies."""
    out = tmp_path / "demo"
    given = ["--clients", "3", "--expand", "0", "--class-gate", "1", "--tolerate", "0"]
    said = secagg("demo", "--quiet", "--out", out, *given)
    assert said.code == 0, said.err
    plan = read_plan(out / "plan.json")
    assert (plan.dropouts, plan.method_parameters["gate"]) == (0, 2)
    rows = dict(line.strip().split("  ", 1) for line in said.out.splitlines() if "  " in line.strip())
    assert "coordinator received" in rows
    assert rows["its transcript"].strip().startswith("verifies;")


@pytest.mark.long
@pytest.mark.parametrize("protection", ["masked", "shared"])
def test_demo_draws_cohorts(secagg: Command, tmp_path: Path, protection: str) -> None:
    """Four of six processes for each of three rounds: all end with one model, audited, and the transcripts verify."""
    out = tmp_path / "demo"
    given = ["--method", "fedavg", "--rounds", "3", "--clients", "6", "--cohort", "4", "--protection", protection]
    said = secagg("demo", "--quiet", "--out", out, "--epsilon", "8", *given)
    assert said.code == 0, said.err
    rows = dict(line.strip().split("  ", 1) for line in said.out.splitlines() if "  " in line.strip())
    assert rows["clients in the sum"].strip().startswith("4 of 4 (all) of the last round's cohort; 6 clients in all")
    assert rows["its transcript"].strip().startswith("verifies; countersigned by 4 members")
    models = {path.read_bytes() for path in out.glob("c*/state/*/head.safetensors")}
    assert len(models) == 1
    transcripts = sorted(out.glob("coordinator/state/*/transcript.log"))
    assert len(transcripts) == 4
    assert secagg("verify", "--plan", out / "plan.json", *transcripts).code == 0


def test_refused_demo_leaves_what_was_there(secagg: Command, tmp_path: Path) -> None:
    """A demo whose plan cannot be leaves an earlier one as it is, and nothing where there was none."""
    out = tmp_path / "demo"
    for before in ({}, {"plan.json": "an earlier demo's", "report.json": "its report"}):
        for name, text in before.items():
            out.mkdir(exist_ok=True)
            (out / name).write_text(text)
        said = secagg("demo", "--quiet", "--out", out, "--class-gate", "6")
        assert said.code == 2
        assert {path.name: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == before
