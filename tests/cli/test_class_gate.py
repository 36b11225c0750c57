"""`--class-gate` on the command line: in a plan and its explanation, and in a simulation."""

import json
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from secagg.agreement.plan import read_plan
from tests.cli.command import NEW_PLAN, SERVER, Command
from tests.cli.test_simulate import simulated

LONELY = ["--partition", "dirichlet:0.05", "--clients", 6, "--normalise", "centred-unit"]


def test_simulation_names_the_classes_left_out(secagg: Command) -> None:
    """`simulate --json` lists the classes by name, none without a gate, and the head's accuracy shows the loss."""
    plain, gated = (simulated(secagg, *LONELY, "--colluders", 0, "--class-gate", gate) for gate in (0, 2))
    assert plain["classes_left_out"] == []
    assert gated["classes_left_out"] == ["0", "4", "5", "8"]
    assert gated["accuracy"] < gated["accuracy_reference"] == plain["accuracy"]


def test_classes_that_a_head_never_predicts_are_named(secagg: Command, tmp_path: Path) -> None:
    """`simulate` and `predict` name the classes that the gate left out, as the model card does; no gate, no line."""
    digits = load_digits()
    np.savez(tmp_path / "digits.npz", images=digits.images.astype(np.uint8), labels=digits.target)
    for gate, left_out in ((2, ["0", "4", "5", "8"]), (0, [])):
        said = secagg("simulate", "--quiet", "--dataset", "digits", *LONELY, "--colluders", 0, "--class-gate", gate,
                      "--save", tmp_path / "run")  # fmt: skip
        assert said.code == 0, said.err
        assert ("0, 4, 5, 8; the head never predicts them" in said.out) == bool(left_out)
        asked = (
            "predict",
            "--quiet",
            "--head",
            tmp_path / "run" / "head.safetensors",
            "--data",
            tmp_path / "digits.npz",
        )
        found = secagg(*asked, "--json", "-").json
        card = json.loads((tmp_path / "run" / "model_card.json").read_text())
        assert found["never_predicted"] == card["classes_left_out"] == left_out
        assert not {each["class"] for each in found["predictions"]} & set(left_out)
        assert ("0, 4, 5, 8: a class gate left them out" in " ".join(secagg(*asked).out.split())) == bool(left_out)


def test_a_gate_that_leaves_nothing_out_says_so(secagg: Command) -> None:
    """Where every class passes the gate, the result says how many were kept."""
    said = secagg("simulate", "--dataset", "digits", "--clients", 3, "--class-gate", 2, "--quiet")
    assert [line.split() for line in said.out.splitlines() if "class gate" in line] == [
        ["class", "gate", "2", "all", "10", "classes", "kept"]
    ]


def test_gate_above_the_clients_is_a_usage_error(secagg: Command) -> None:
    """A gate that nothing can pass ends with code 2 and one line that says what to lower."""
    said = secagg("simulate", "--quiet", *LONELY, "--class-gate", 7)
    assert said.code == 2
    assert "a class gate of 7" in said.complaint
    assert "lower the class gate" in said.complaint


def test_plan_holds_the_threshold_and_explains_it(secagg: Command, federation: Path) -> None:
    """`plan new` adds dropouts and colluders to the gate, and `plan show` says so of the file; 0 writes no gate."""
    roster = federation / SERVER / "roster.json"
    chosen = ["--shape", 3, "--classes", "no,yes", "--normalise", "unit", "--dropouts", 0, "--colluders", 1]
    for gate, name in ((2, "gated.json"), (0, "plain.json")):
        new = [*NEW_PLAN, "--quiet", "--roster", roster, "--out", federation / name, *chosen, "--class-gate", gate]
        assert secagg(*new).code == 0
    assert read_plan(federation / "gated.json").method_parameters["gate"] == 3
    assert "gate" not in read_plan(federation / "plain.json").parameters
    said = secagg("plan", "show", "--plan", federation / "gated.json", "--roster", roster, "--json", "-")
    assert "fewer than 3 clients" in said.json["explained"]["class gate"]
