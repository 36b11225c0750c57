"""results.json tells where its runs are from, and makes the same tables again; equal sweeps share their runs."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import secagg
from secagg.errors import BadInput
from secagg.experiments.provenance import data_sha256, made_by
from secagg.experiments.sweep import SweepResult, sweep_dataset
from tests.experiments.test_sweep import dataset

CHEAP: dict[str, Any] = {"clients": [4], "reference": [False]}
NOISE: dict[str, Any] = {"epsilon": [8.0, float("inf")], "delta": [1e-3], "adjacency": ["add-remove"]}
TABLES = ("table.md", "table.tex", "measures.md", "measures.tex", "results.csv", "accuracy.svg")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of two methods, one by a short name, in one/, one of a third in two/, and a comparison in compared/."""
    out = tmp_path_factory.mktemp("saved")
    pipeline = {"pipeline": ["under-noise"]}
    sweep_dataset(dataset(), {**CHEAP, **NOISE, **pipeline, "method": ["near=prototypes", "fedcgs[refine=1]"]}, 2,
                  out / "one", workers=1)  # fmt: skip
    sweep_dataset(dataset(), {**CHEAP, **NOISE, **pipeline, "method": ["fedcgs[refine=1]", "ccvr"]}, 1,
                  out / "two", workers=1)  # fmt: skip
    secagg.compare(dataset(), method=["near=prototypes", "ensemble"], clients=4, seeds=1, out=out / "compared",
                   workers=1, radius=8.0)  # fmt: skip
    return out


def rewritten(path: Path, change: Any) -> Path:
    """A copy of a results.json beside it, changed."""
    content = json.loads(path.read_text())
    change(content)
    copy = path.with_name("changed.json")
    copy.write_text(json.dumps(content))
    return copy


def test_one_command_has_several_methods_against_epsilon(folder: Path) -> None:
    """Each method has an accuracy at each ε, infinity in the same pipeline included, by its name, in results.json."""
    content = json.loads((folder / "one" / "results.json").read_text())
    assert [(each["series"], each["epsilon"]) for each in content["summary"]] == [
        (name, epsilon) for name in ("near", "fedcgs") for epsilon in (8.0, "inf")
    ]
    assert len({run["result"]["normalisation"] for run in content["runs"]}) == 1
    assert not any("no limit of the others" in note for note in content["notes"])
    assert (folder / "one" / "accuracy.png").stat().st_size > 0


def test_results_name_their_origin(folder: Path) -> None:
    """Digests of data, plug-ins and code, versions of libraries and the command line stand in results.json."""
    for name in ("one", "compared"):
        origin = json.loads((folder / name / "results.json").read_text())["provenance"]
        assert origin["data_sha256"] == data_sha256(dataset())
        assert origin["made_by"] == made_by()
        assert (origin["backbone_sha256"], origin["method_sha256"]) == ([], [])
        assert origin["command"]


@pytest.mark.parametrize("name", ["one", "compared"])
def test_tables_come_again_to_the_byte(name: str, folder: Path, tmp_path: Path) -> None:
    """What is made of results.json alone is what the sweep or comparison wrote, short names included."""
    secagg.read_results(folder / name / "results.json").write(tmp_path)
    for file in TABLES:
        assert (tmp_path / file).read_bytes() == (folder / name / file).read_bytes(), file


def test_several_files_make_one_table(folder: Path, tmp_path: Path) -> None:
    """Runs of two sweeps over the same data stand in one table, each once, and the table can be read again."""
    files = [folder / name / "results.json" for name in ("one", "two")]
    both = secagg.read_results(*files)
    assert [row[0] for row in both.table.rows] == ["near", "fedcgs", "ccvr"]
    assert len(both.runs) == 10
    assert both.notes[0] == "2 runs stand in several files; the first of each counts"
    both.write(tmp_path)
    again = secagg.read_results(tmp_path / "results.json")
    assert isinstance(again, SweepResult)
    assert again.table == both.table
    made_from = json.loads((tmp_path / "results.json").read_text())["provenance"]["made_from"]
    assert [each["file"] for each in made_from] == [str(file) for file in files]


def test_runs_by_other_code_are_noted(folder: Path) -> None:
    """A table of runs that different versions made says so."""
    other = rewritten(folder / "two" / "results.json", lambda c: c["provenance"]["made_by"].update(numpy="1.0"))
    assert any("different code or versions" in note for note in secagg.read_results(folder / "one" / "results.json",
                                                                                    other).notes)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c["runs"][0]["result"].update(accuracy=1.0), "were changed after it was written"),
        (lambda c: c["runs"][0]["settings"].update(epsilon=0.1), "were changed after it was written"),
        (lambda c: c.pop("runs"), "no results.json of a sweep or comparison"),
        (lambda c: c.pop("provenance"), "no results.json of a sweep or comparison"),
        (lambda c: c["provenance"].update(data_sha256="0" * 64), "are of different data"),
    ],
)
def test_other_runs_are_refused(change: Any, said: str, folder: Path) -> None:
    """An edited accuracy or setting, another file, and other data make no table."""
    changed = rewritten(folder / "one" / "results.json", change)
    with pytest.raises(BadInput, match=said):
        secagg.read_results(folder / "two" / "results.json", changed)


def test_other_kinds_of_result_are_refused(folder: Path, tmp_path: Path) -> None:
    """A sweep and a comparison, nothing, a folder, and what is no JSON."""
    with pytest.raises(BadInput, match="different kinds of result"):
        secagg.read_results(folder / "one" / "results.json", folder / "compared" / "results.json")
    with pytest.raises(BadInput, match="there is no file to read"):
        secagg.read_results()
    with pytest.raises(BadInput, match="cannot read"):
        secagg.read_results(tmp_path)
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(BadInput, match=r"no results\.json"):
        secagg.read_results(tmp_path / "results.json")


def test_equal_sweeps_at_once_share_their_runs(tmp_path: Path) -> None:
    """Of two equal sweeps that begin together into one folder one makes every run, and the other takes all over."""
    grid = {**CHEAP, "method": ["prototypes", "fedcgs"], "radius": [8.0]}
    found: list[SweepResult] = []

    def sweep() -> None:
        found.append(sweep_dataset(dataset(), grid, 2, tmp_path, workers=1))

    threads = [threading.Thread(target=sweep) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    taken = sorted(any("4 of 4 runs were taken over" in note for note in each.notes) for each in found)
    assert taken == [False, True]
    assert found[0].table == found[1].table
