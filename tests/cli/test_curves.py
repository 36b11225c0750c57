"""`--curves`, `--rounds` and `--every` on the command line, and the curves that sweep and compare leave."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from secagg.cli.simulate import _follow
from secagg.experiments.figures import curves_of
from secagg.experiments.results import Run, student_interval
from secagg.experiments.rounds import RoundReport
from secagg.heads import Evaluation
from tests.cli.command import Command

DESCENT = ("--method", "fedavg", "--parameters", "gradients=1 rate=1.0", "--clients", 3, "--dataset", "wine")
NOISE = ("--epsilon", 4, "--delta", 1e-5, "--adjacency", "add-remove")
FILES = {"curves.csv", "curves.png", "curves.svg"}


def rows_of(folder: Path) -> list[dict[str, str]]:
    """The table, after a look at both pictures."""
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert ElementTree.parse(folder / "curves.svg").getroot().tag.endswith("svg")  # noqa: S314 (written above)
    with (folder / "curves.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def axes_of(folder: Path) -> int:
    """How many panels the picture has."""
    return (folder / "curves.svg").read_text().count('id="axes_')


def test_curves_are_the_rounds(secagg: Command, tmp_path: Path) -> None:
    """The files hold what the JSON says; under noise there is a second panel, and the table is marked."""
    out = tmp_path / "new" / "curves"
    said = secagg("simulate", *DESCENT, *NOISE, "--rounds", 6, "--every", 2, "--curves", out, "--json", tmp_path / "r")
    assert said.code == 0, said.err
    rounds = json.loads((tmp_path / "r").read_text())["rounds"]
    rows = rows_of(out)
    assert {path.name for path in out.iterdir()} == FILES
    assert [int(row["round"]) for row in rows] == [2, 4, 6]
    for row, told in zip(rows, rounds, strict=True):
        assert float(row["accuracy"]) == told["accuracy"]
        assert [float(row["accuracy_low"]), float(row["accuracy_high"])] == told["accuracy_interval"]
        assert float(row["epsilon_spent"]) == told["epsilon_spent"]
        assert int(row["upload_bytes"]) == told["upload_bytes"]
        assert row["not_private"] == "accuracy"
    assert axes_of(out) == 2
    assert "playing 6 rounds" in said.err
    assert f"2: {100 * rounds[0]['accuracy']:.2f} %" in said.out


def test_members_own_models_have_curves(secagg: Command, tmp_path: Path) -> None:
    """What each kind of own models is worth stands round by round, the last as in the report; one seed has no band."""
    given = ("--method", "fedpcl", "--clients", 3, "--dataset", "wine", "--rounds", 3, "--every", 1)
    said = secagg("simulate", *given, "--curves", tmp_path / "own", "--json", tmp_path / "r")
    assert said.code == 0, said.err
    told = {each["model"]: each["mean"] for each in json.loads((tmp_path / "r").read_text())["personal"]}
    rows = [row for row in rows_of(tmp_path / "own") if ": members' own, " in row["series"]]
    assert [int(row["round"]) for row in rows] == [1, 2, 3] * len(told)
    assert {row["accuracy_low"] for row in rows} == {""}
    last = {row["series"].rpartition(", ")[2]: float(row["accuracy"]) for row in rows if row["round"] == "3"}
    assert last == told


def test_curves_without_noise(secagg: Command, tmp_path: Path) -> None:
    """Without noise there is one panel, nothing is marked, and nothing was spent."""
    assert secagg("simulate", *DESCENT, "--rounds", 3, "--curves", tmp_path).code == 0
    assert [(row["epsilon_spent"], row["not_private"]) for row in rows_of(tmp_path)] == [("", "")] * 3
    assert axes_of(tmp_path) == 1


def test_plan_of_one_sum_draws_nothing(secagg: Command, tmp_path: Path) -> None:
    """Where there is one sum it says so, and leaves no file."""
    said = secagg("simulate", "--dataset", "wine", "--clients", 3, "--curves", tmp_path)
    assert said.code == 0
    assert "the plan has one sum" in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rounds", 5], "method fedcgs has no rounds"),
        (["--method", "centralised", "--protection", "none", "--curves", "c"], "no rounds that curves could show"),
    ],
    ids=["rounds", "baseline"],
)
def test_refused_before_the_work(
    secagg: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Sequence[object], words: str
) -> None:
    """What has no rounds refuses them, and curves of them, in one line."""
    monkeypatch.chdir(tmp_path)
    said = secagg("simulate", "--quiet", "--dataset", "wine", *arguments)
    assert said.code == 2
    assert words in said.complaint
    assert list(tmp_path.iterdir()) == []


def test_help_teaches(secagg: Command) -> None:
    """The help of simulate shows how rounds are asked for, and every command has the options."""
    assert "--method fedavg --rounds 50" in " ".join(secagg("simulate", "--help").out.split())
    for command in ("simulate", "sweep", "compare"):
        said = secagg(command, "--help").out
        assert "--rounds" in said
        assert "--every" in said


def test_sweep_draws_a_curve_for_each_setting(secagg: Command, tmp_path: Path) -> None:
    """A sweep keeps the rounds of every run, and draws one curve for each setting with rounds, over its seeds."""
    words = ("--dataset", "wine", "--method", "fedavg,prototypes", "--clients", 3, "--parameters", "default",
             "--seeds", 2, "--every", 2, "--workers", 1, "--no-reference", "--out", tmp_path)  # fmt: skip
    assert secagg("sweep", *words).code == 0
    runs = json.loads((tmp_path / "results.json").read_text())["runs"]
    assert [len(run["result"]["rounds"]) for run in runs] == [10, 10, 0, 0]
    rows = rows_of(tmp_path)
    assert [(row["series"], int(row["round"]), row["seeds"]) for row in rows] == [
        ("fedavg", 2 * number, "2") for number in range(1, 11)
    ]


def run(seed: int, accuracies: Sequence[float | None], epsilon: float = math.inf, **settings: Any) -> Run:
    """A run of which these accuracies are known, round by round."""
    noisy = math.isfinite(epsilon)
    rounds = [
        {
            "round": number,
            "accuracy": value,
            "accuracy_interval": None if value is None else [value - 0.1, value + 0.1],
            "epsilon_spent": number + seed / 100 if noisy else None,
            "upload_bytes": 100 * number,
            "personal": {},
        }
        for number, value in enumerate(accuracies, start=1)
    ]
    chosen = {"method": "fedavg", "parameters": "", "epsilon": epsilon, "clients": 5, **settings, "seed": seed}
    result = {"rounds": rounds, "protection": "masked", "reproducible_noise": None}
    return Run(chosen, {**result, "not_private": ["rounds"] if noisy else []})


def test_curve_is_the_mean_over_seeds() -> None:
    """Several seeds give their mean with Student's interval, cut to [0, 1]; what is spent is the most of any."""
    (curve,) = curves_of([run(0, [None, 0.5, 1.0], 2.0), run(1, [None, 0.6, 0.98], 2.0)])
    assert [point.accuracy for point in curve.points] == [None, pytest.approx(0.55), pytest.approx(0.99)]
    low, high = student_interval([0.5, 0.6])
    assert curve.points[1].interval == pytest.approx((max(0.0, low), min(1.0, high)))
    assert curve.points[2].interval is not None
    assert curve.points[2].interval[1] == 1.0
    assert [point.epsilon_spent for point in curve.points] == [1.01, 2.01, 3.01]
    assert [point.round for point in curve.measured] == [2, 3]
    assert curve.not_private


def test_curve_of_one_seed_has_the_interval_of_its_records() -> None:
    """One seed's band is the interval of its test records; runs with other rounds share the rounds they all have."""
    (one,) = curves_of([run(0, [0.5])])
    assert one.points[0].interval == (0.4, 0.6)
    (both,) = curves_of([run(0, [0.5, 0.6]), run(1, [0.5])])
    assert [point.round for point in both.points] == [1]


def test_labels_say_what_differs() -> None:
    """A curve is called by its method and by what differs among the curves, nothing else."""
    runs = [run(0, [0.5], 2.0), run(0, [0.5], parameters="rate=1"), run(0, [0.5], 2.0, clients=9)]
    labels = [curve.label for curve in curves_of(runs)]
    assert labels == ["fedavg, clients 5, ε = 2", "fedavg[rate=1], clients 5, no noise", "fedavg, clients 9, ε = 2"]
    assert [curve.label for curve in curves_of(runs[:1])] == ["fedavg"]


def test_bar_says_what_was_known_last() -> None:
    """Of every round it says how far it is, with the last accuracy and ε; of a plan of one sum nothing."""
    told: list[str] = []
    playing = _follow(lambda text, done, total, state="": told.append(state))
    report = RoundReport(2, Evaluation.counted(9, 10), 1.23456, 100)
    playing(1, 3, None)
    playing(3, 3, report)
    playing(1, 1, report)
    assert told == ["round 1 of 3", "round 3 of 3; after 2: 90.00 %, ε 1.2346"]
