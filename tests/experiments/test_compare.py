"""Comparisons that run: what is tried, under which protection, what is kept, and the table on real digits."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.data import Dataset, Records, open_dataset
from secagg.encoding.grid import Origin
from secagg.errors import BadInput
from secagg.experiments.comparison import Comparison, compare_dataset
from secagg.experiments.sweep import Contender, distinct
from tests.experiments.test_sweep import FILES

CURVES = {"curves.csv", "curves.png", "curves.svg"}
"""Of a method with rounds."""
DOMAINS = np.array(["art", "photo", "sketch"])
GRID: dict[str, list[Any]] = {"leave_out": ["domain=*"], "clients": [3], "normalise": ["unit"], "colluders": [1]}
CONTENDERS = (
    Contender("fedcgs", "refine=1"),
    Contender("prototypes"),
    Contender("ensemble"),
    Contender("magic"),
)


def records(seed: int, count: int) -> Records:
    """Records of three classes in four dimensions and three domains."""
    number = np.arange(count)
    features = np.random.default_rng(seed).normal(size=(count, 4)) + (number % 3)[:, None]
    return Records(features, number % 3, {"domain": DOMAINS[number // 3 % 3]}, Origin.of("made up", number))


def dataset() -> Dataset:
    """A small data set."""
    return Dataset("small", "features", records(0, 60), records(1, 30), ("a", "b", "c"), None, None, None)


def contents(out: Path) -> dict[str, bytes]:
    """The kept runs; their bytes hold how long they took, so that a repeated run would differ."""
    return {path.name: path.read_bytes() for path in (out / "runs").iterdir()}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Comparison, list[tuple[int, int]]]:
    """Two methods, a baseline and an unknown method over the three left-out domains: folder, result, progress."""
    out, seen = tmp_path_factory.mktemp("compare"), []
    how = {"workers": 1, "progress": lambda done, total: seen.append((done, total))}
    result = compare_dataset(dataset(), CONTENDERS, GRID, 1, out, **how)
    return out, result, seen


def test_digits(tmp_path: Path) -> None:
    """The accuracies and bytes of one-shot methods on digits are these numbers, whatever the partition: exact sums."""
    methods = [Contender("fedcgs"), Contender("prototypes"), Contender("prototypes", "no=such")]
    grid = {"partition": ["iid", "dirichlet:0.1"], "clients": [4]}
    table = compare_dataset(open_dataset("digits"), methods, grid, 1, tmp_path, workers=1).table
    assert [(*row[:4], *row[-2:]) for row in table.rows] == [
        ("fedcgs", *2 * ("94.43 (91.53–96.56)",), "22,423", "none", "masked"),
        ("prototypes", *2 * ("86.63 (82.67–89.97)",), "8,643", "none", "masked"),
        ("prototypes[no=such]", "–¹", "–¹", "–", "–", "–"),
    ]
    assert len(table.notes) == 1
    assert table.notes[0].startswith("¹ Refused: method prototypes cannot take 'no=such'")


def test_each_runs_under_what_it_can(compared: tuple[Path, Comparison, Any]) -> None:
    """Sums run masked; a baseline that cannot runs without protection, says so and why; what cannot run says why."""
    rows = compared[1].rows
    assert [row.label for row in rows] == ["fedcgs[refine=1]", "prototypes", "ensemble", "magic"]
    assert [row.protections for row in rows] == [("masked",), ("masked",), ("none",), ()]
    assert [entry.unprotected for entry in rows[0].cells + rows[1].cells] == [()] * 10
    for entry in rows[2].cells:
        (why,) = entry.unprotected
        assert why.startswith("ensemble cannot run masked: ")
    assert all("magic" in entry.refusals[0] for entry in rows[3].cells)
    for run in compared[1].runs:
        ran = None if run.result is None else run.result["protection"]
        expected = {"ensemble": "none", "magic": None}.get(run.settings["method"], "masked")
        assert (ran, run.unprotected is None) == (expected, expected == "masked")


def test_baselines_do_without_what_sums_have(compared: tuple[Path, Comparison, Any]) -> None:
    """What only a secure sum has is not asked of a baseline, and the table says so."""
    asked = {run.settings["method"]: run.settings["colluders"] for run in compared[1].runs}
    assert asked == {"fedcgs": 1, "prototypes": 1, "ensemble": None, "magic": 1}
    assert compared[1].table.notes[-1] == "Baselines make no secure sum and ran without colluders."


def test_costs(compared: tuple[Path, Comparison, Any]) -> None:
    """Whatever ran has bytes and seconds; what did not has none."""
    for row in compared[1].rows:
        costs = (row.bytes_per_client, row.client_seconds, row.server_seconds)
        assert all(cost is None for cost in costs) if row.label == "magic" else all(cost is not None for cost in costs)


def test_each_domain_is_left_out(compared: tuple[Path, Comparison, Any]) -> None:
    """A star stands for each domain; the columns are the domains, their mean and the accuracy within the others."""
    assert [column.label for column in compared[1].columns] == [*DOMAINS, "mean", "in domain"]
    entries = compared[1].rows[0].cells
    assert entries[3].accuracy == pytest.approx(np.mean([entry.accuracy for entry in entries[:3]]))


def test_files(compared: tuple[Path, Comparison, Any]) -> None:
    """All results are written, and features are not left behind."""
    out, result, _ = compared
    assert {path.name for path in out.iterdir()} == FILES | CURVES | {"runs"}
    assert json.loads((out / "results.json").read_text()) == result.to_json()
    rows = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    assert [row["protection"] for row in rows] == ["masked"] * 6 + ["none"] * 6
    assert [bool(row["unprotected_because"]) for row in rows] == [False] * 6 + [True] * 6
    assert [bool(row["refused"]) for row in rows] == [False] * 9 + [True] * 3


def test_progress_never_goes_back(compared: tuple[Path, Comparison, list[tuple[int, int]]]) -> None:
    """Progress grows from none to all, tries without protection included."""
    seen = compared[2]
    assert seen[0] == (0, 12)
    assert seen[-1] == (18, 18)
    assert seen == sorted(seen)


def test_nothing_is_repeated(compared: tuple[Path, Comparison, Any]) -> None:
    """The same command, with a method more, leaves every run that is there as it is and says the same of it."""
    out, first, _ = compared
    before = contents(out)
    assert len(before) == 9
    again = compare_dataset(dataset(), (*CONTENDERS[:3], Contender("local-only")), GRID, 1, out, workers=1)
    assert len(contents(out)) == 12
    assert before.items() <= contents(out).items()
    assert again.table.rows[:3] == first.table.rows[:3]


@pytest.mark.parametrize(
    ("text", "contender"),
    [
        ("fedcgs", Contender("fedcgs")),
        (" fedtc[slots=16  keep=0.9] ", Contender("fedtc", "slots=16 keep=0.9")),
        ("fedtc[]", Contender("fedtc")),
        ("few=fedtc[slots=2]", Contender("fedtc", "slots=2", "few")),
        ("c.1 = fedcgs", Contender("fedcgs", "", "c.1")),
    ],
)
def test_contender(text: str, contender: Contender) -> None:
    """Brackets hold what --parameters takes."""
    assert Contender.read(text) == contender


@pytest.mark.parametrize("text", ["", "[slots=1]", "fedtc[slots=1", "fedtc]", "a[b][c]", "a[b]c", "few=", "few=[b=1]"])
def test_no_contender(text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(BadInput, match="write fedcgs or fedtc"):
        Contender.read(text)


def test_unknown_method() -> None:
    """A mistyped name is refused before anything runs."""
    with pytest.raises(BadInput, match="unknown method 'ensembel'"):
        Contender.read("ensembel")


@pytest.mark.parametrize("name", ["", "fedavg", "two words", "a" * 33, "-a", "a,b"])
def test_short_names_are_short_and_name_no_method(name: str) -> None:
    """A short name that misleads or fits nowhere is refused with an example."""
    with pytest.raises(BadInput, match=r"cannot go by the name .*slow=fedavg"):
        Contender.read(f"{name}=fedcgs")


@pytest.mark.parametrize("texts", [("a=fedcgs", "a=prototypes"), ("a=fedcgs", "b=fedcgs"), ("a=fedcgs", "fedcgs")])
def test_names_and_methods_go_one_to_one(texts: tuple[str, ...]) -> None:
    """One name for two methods, or two for one method, would make a legend that says the wrong thing."""
    with pytest.raises(BadInput, match="is given twice"):
        distinct(map(Contender.read, texts))


@pytest.mark.parametrize(
    ("contenders", "grid", "words"),
    [
        ([], {}, "no method"),
        (CONTENDERS, {"clients": [3, 5]}, "takes one clients; several values go with partition"),
        (CONTENDERS, {"method": ["fedcgs"]}, "has no method"),
        (CONTENDERS, {"colour": ["red"]}, "has no colour"),
        (CONTENDERS, {"leave_out": ["site=*"]}, "no column 'site'"),
    ],
    ids=["no method", "list", "method", "unknown", "column"],
)
def test_impossible(contenders: Any, grid: dict[str, Any], words: str, tmp_path: Path) -> None:
    """A comparison that cannot be is refused before anything is written."""
    with pytest.raises(BadInput, match=words):
        compare_dataset(dataset(), contenders, grid, 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()
