"""`secagg tune`: what it writes, what takes its file, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from secagg.agreement.plan import read_plan
from tests.cli.command import NEW_PLAN, Command

SEARCH = ["--clients", 6, "--rounds", 2, "--search", "population=2 interval=1", "--workers", 1, "--protection", "none"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A small file of features, with held-out ones."""
    path = tmp_path / "small.npz"
    labels = np.arange(180) % 3
    features = np.random.default_rng(0).normal(size=(180, 4)) + 2 * np.eye(4)[labels]
    parts = {"train_features": features[:90], "train_labels": labels[:90]}
    np.savez(path, **parts, test_features=features[90:], test_labels=labels[90:])
    return path


def test_what_is_found_can_be_used(secagg: Command, data: Path, tmp_path: Path, federation: Path) -> None:
    """Settings are written one a line; simulate and plan new take the file, and a file of the space is read."""
    space, out = tmp_path / "space.txt", tmp_path / "out"
    space.write_text("rate=log:0.01:1\nepochs=1:3\n")
    said = secagg("tune", "--dataset", data, "--out", out, "--parameters", "clip=5", "--space", space, *SEARCH)
    assert said.code == 0, said
    assert "rate=" in said.out
    lines = (out / "settings.txt").read_text().splitlines()
    assert [line.split("=")[0] for line in lines] == ["clip", "epochs", "rate"]
    for name in ("results.json", "table.md", "curves.csv", "accuracy.png"):
        assert (out / name).exists()
    settings = ["--method", "fedavg", "--parameters", out / "settings.txt"]
    found = secagg("simulate", "--quiet", "--json", "-", "--dataset", data, "--clients", 6, "--rounds", 2, *settings)
    assert found.json["accuracy"] > 0.5
    roster, plan = federation / "alice" / "roster.json", federation / "tuned.json"
    new = secagg(*NEW_PLAN,
                 "--roster", roster, "--shape", 4, "--classes", "a,b,c", "--out", plan, *settings,
                 "--rounds", 2)  # fmt: skip
    assert new.code == 0, new
    chosen = dict(line.split("=") for line in lines)
    parameters = read_plan(plan).method_parameters
    assert (parameters["rate"], parameters["epochs"], parameters["clip"], parameters["rounds"]) == (
        float(chosen["rate"]), int(chosen["epochs"]), 5.0, 2
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--space", "clip=1:5"], "clip is no setting that may be tried"),
        (["--space", "nowhere.txt"], "'nowhere.txt' is no file of settings"),
        (["--method", "fedcgs"], "no settings of fedcgs can be tried"),
        (["--search", "population=3", "--protection", "masked"], "6 members allow 2 of the 3 groups"),
        (
            ["--epsilon", "1", "--delta", "1e-5", "--adjacency", "add-remove", "--unit", "client"],
            "noise drowns the scores",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(
    secagg: Command, data: Path, tmp_path: Path, words: list[str], complaint: str
) -> None:
    """In one line with exit code 2, and nothing is written."""
    given = [*SEARCH, "--parameters", "clip=5", "--space", "rate=0.1:1", *words]
    said = secagg("tune", "--quiet", "--dataset", data, "--out", tmp_path / "out", *given)
    assert said.code == 2
    assert complaint in said.complaint
    assert not (tmp_path / "out" / "settings.txt").exists()
