"""Sweeps: which runs a grid stands for, what is kept and not repeated, what is refused, what is written."""

import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.data import Dataset, Records
from secagg.encoding.grid import Origin
from secagg.errors import BadInput
from secagg.experiments.provenance import SOURCES, data_sha256, made_by, sources_sha256
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.experiments.sweep import SweepResult, combinations, sweep_dataset
from secagg.experiments.workers import RunFile

SCRIPT = """
import secagg
grid = {"clients": [3, 5]}
print(len(secagg.sweep("small.npz", **grid, seeds=1, out="out", workers=1).runs), "runs")
"""
FILES = {
    "results.csv",
    "results.json",
    "table.md",
    "table.tex",
    "measures.md",
    "measures.tex",
    "accuracy.png",
    "accuracy.svg",
}


def records(seed: int, count: int) -> Records:
    """Records of three classes in four dimensions."""
    labels = np.arange(count) % 3
    features = np.random.default_rng(seed).normal(size=(count, 4)) + labels[:, None]
    return Records(features, labels, {}, Origin.of("made up", np.arange(count)))


def dataset(seed: int = 0, *, test: bool = True) -> Dataset:
    """A small data set."""
    held_out = records(seed + 1, 30) if test else None
    return Dataset("small", "features", records(seed, 60), held_out, ("a", "b", "c"), None, None, None)


def test_baseline_runs_once_for_all_numbers_of_rounds() -> None:
    """No rounds and rounds by rule are the same to what has no sum; a number of rounds is refused by itself."""
    runs = combinations({"method": ["fedcgs", "dp-sgd"], "refine": [0, None, 16]}, 2)
    found = [(each["method"], each["refine"], each["seed"]) for each in runs]
    rounds = [("fedcgs", each) for each in (0, None, 16)] + [("dp-sgd", each) for each in (None, 16)]
    assert found == [(*each, seed) for each in rounds for seed in (0, 1)]


def contents(out: Path) -> dict[str, bytes]:
    """The kept runs; their bytes hold how long they took, so that a repeated run would differ."""
    return {path.name: path.read_bytes() for path in (out / "runs").iterdir()}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SweepResult, list[tuple[int, int]]]:
    """A finished sweep of three numbers of clients, one impossible, with two seeds: folder, result, progress."""
    out, seen = tmp_path_factory.mktemp("sweep"), []
    grid = {"clients": [3, 5, 0], "radius": [8.0]}
    result = sweep_dataset(dataset(), grid, 2, out, workers=2, progress=lambda done, total: seen.append((done, total)))
    return out, result, seen


def test_grid_is_a_product() -> None:
    """Every combination of the lists with every seed is there once, the settings not listed at their defaults."""
    found = combinations({"epsilon": [1.0, math.inf, 1.0], "clients": [3, 10]}, 3)
    assert len(found) == 2 * 2 * 3
    assert {(run["epsilon"], run["clients"], run["seed"]) for run in found} == {
        (epsilon, clients, seed) for epsilon in (1.0, math.inf) for clients in (3, 10) for seed in range(3)
    }
    assert SimulationSettings(**combinations({}, 1)[0]) == SimulationSettings()


@pytest.mark.parametrize(
    ("grid", "seeds", "words"),
    [({"colour": ["red"]}, 1, "colour"), ({"seed": [1]}, 1, "seed"), ({"clients": []}, 1, "clients"), ({}, 0, "seeds")],
    ids=["unknown", "seed", "empty", "no seed"],
)
def test_impossible_grid(grid: dict[str, list[Any]], seeds: int, words: str) -> None:
    """A name that is no setting, an empty list and no seed are refused by name."""
    with pytest.raises(BadInput, match=words):
        combinations(grid, seeds)


def test_needs_held_out_records(tmp_path: Path) -> None:
    """Data without held-out records are refused before anything is written."""
    with pytest.raises(BadInput, match="held-out"):
        sweep_dataset(dataset(test=False), {}, 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_needs_workers(tmp_path: Path) -> None:
    """No worker is refused."""
    with pytest.raises(BadInput, match="0 workers"):
        sweep_dataset(dataset(), {}, 1, tmp_path, workers=0)


def test_runs_are_simulations(swept: tuple[Path, SweepResult, Any]) -> None:
    """A run of a sweep has the bits that the same simulation has alone."""
    run = swept[1].runs[3]
    alone = simulate_dataset(dataset(), SimulationSettings(clients=5, radius=8.0, seed=1)).to_json()
    assert run.result is not None
    assert (run.settings["clients"], run.settings["seed"]) == (5, 1)
    assert {name: run.result[name] for name in ("head_sha256", "aggregate_sha256", "accuracy")} == {
        name: alone[name] for name in ("head_sha256", "aggregate_sha256", "accuracy")
    }


def test_refused_runs_do_not_end_the_sweep(swept: tuple[Path, SweepResult, Any]) -> None:
    """A combination that is refused is in the results with its reason, once in the list of refusals, and not kept."""
    out, result, _ = swept
    assert [run.result is None for run in result.runs] == [False] * 4 + [True] * 2
    assert len(result.refusals) == 1
    assert result.refusals[0].startswith("fedcgs, clients 0 at ε = inf: give at least one client")
    assert len(contents(out)) == 4


def test_progress_counts_every_run(swept: tuple[Path, SweepResult, list[tuple[int, int]]]) -> None:
    """Progress goes from none to all in single steps."""
    assert swept[2] == [(done, 6) for done in range(7)]


def test_log_has_a_line_for_every_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a log file says: how many runs are there, then each that ends, with what it was and what came of it."""
    caplog.set_level("INFO", "secagg.experiments")
    grid = {"clients": [3, 0], "radius": [8.0]}
    sweep_dataset(dataset(), grid, 1, tmp_path, workers=1)
    first, *runs = [record.getMessage() for record in caplog.records]
    refusal = "give at least one client, and no negative number of dropouts or colluders"
    assert first == "0 of 2 runs are there"
    assert [re.sub(r"[0-9.]+ (s|%)", "_", run) for run in runs] == [
        "run 1 of 2, _, about _ left: fedcgs, epsilon inf, clients 3, seed 0: _",
        f"run 2 of 2, _, about _ left: fedcgs, epsilon inf, clients 0, seed 0: refused: {refusal}",
    ]
    caplog.clear()
    sweep_dataset(dataset(), grid, 1, tmp_path, workers=1)
    assert caplog.records[0].getMessage() == "1 of 2 runs are there"


def test_files(swept: tuple[Path, SweepResult, Any]) -> None:
    """All results are written; the CSV has a row per run and the JSON is what `to_json` gives."""
    out, result, _ = swept
    assert {path.name for path in out.iterdir()} == FILES | {"runs"}
    rows = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    assert [row["clients"] for row in rows] == ["3", "3", "5", "5", "0", "0"]
    assert [bool(row["refused"]) for row in rows] == [False] * 4 + [True] * 2
    assert float(rows[0]["accuracy_low"]) <= float(rows[0]["accuracy"]) <= float(rows[0]["accuracy_high"])
    content = json.loads((out / "results.json").read_text())
    assert content == result.to_json()
    assert content["version"] == 1
    assert [(each["series"], each["seeds"], each["epsilon"]) for each in content["summary"]] == [
        ("fedcgs, clients 3", 2, "inf"),
        ("fedcgs, clients 5", 2, "inf"),
    ]


def test_nothing_is_repeated(swept: tuple[Path, SweepResult, Any], tmp_path: Path) -> None:
    """A larger sweep in the same folder leaves every run that is there as it is, and adds the missing ones."""
    out = swept[0]
    before = contents(out)
    result = sweep_dataset(dataset(), {"clients": [3, 5], "radius": [8.0]}, 3, out, workers=1)
    after = contents(out)
    assert len(after) == 6
    assert before.items() <= after.items()
    assert all(run.result for run in result.runs)


def test_features_are_those_of_a_simulation(tmp_path: Path) -> None:
    """Runs with several backbones and expansions have the bits that they have alone; what does not open is refused."""
    grid = {"backbone": [None, "random-features:8", "nonsense"], "expand": [0, 16], "leave_out": [None, "site=x"]}
    data = dataset()
    for part in (data.train, data.test):
        assert part is not None
        part.columns["site"] = np.array(["x", "y"])[np.arange(len(part)) % 2]  # type: ignore[index]
    result = sweep_dataset(data, grid, 1, tmp_path, workers=2)
    assert [run.settings["backbone"] for run in result.runs if run.result is None] == ["nonsense"] * 4
    for run in result.runs:
        if run.result is None:
            assert run.refusal is not None
            assert "unknown backbone 'nonsense'" in run.refusal
        else:
            alone = simulate_dataset(data, SimulationSettings(**run.settings)).to_json()
            assert (run.result["head_sha256"], run.result["accuracy"]) == (alone["head_sha256"], alone["accuracy"])
    assert {path.name for path in tmp_path.iterdir()} == FILES | {"runs"}


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version": 2}', b"\xff"], ids=repr)
def test_damaged_file_is_no_run(damage: bytes, tmp_path: Path) -> None:
    """A file that is not a whole run of these settings counts as missing."""
    file = RunFile(tmp_path, combinations({}, 1)[0], "00")
    assert file.read() is None
    run = file.write({"accuracy": 0.5})
    assert file.read() == run
    file.path.write_bytes(damage)
    assert file.read() is None


def test_changed_result_is_no_run(tmp_path: Path) -> None:
    """A run whose result was changed, lost a field or is nested without end counts as missing."""
    file = RunFile(tmp_path, combinations({}, 1)[0], "00")
    run = file.write({"accuracy": 0.5, "seconds": {"noise": 0.1}})
    whole = file.path.read_text()
    for old, new in (
        ('"accuracy": 0.5', '"accuracy": 0.9'),
        ('"noise"', '"nois"'),
        ("0.1", "[" * 5000),
        ("0.1", "NaN"),
    ):
        file.path.write_text(whole.replace(old, new))
        assert file.read() is None
    file.path.write_text(whole)
    assert file.read() == run


def test_another_question_is_another_file(tmp_path: Path) -> None:
    """A changed setting, seed, data set or backbone file is another run; the same ones are the same."""
    backbone = tmp_path / "backbone.pt2"
    backbone.write_bytes(b"one")
    settings = {**combinations({}, 1)[0], "backbone": str(backbone)}
    paths = [
        RunFile(tmp_path, settings, "00").path,
        RunFile(tmp_path, settings, "01").path,
        RunFile(tmp_path, {**settings, "seed": 1}, "00").path,
        RunFile(tmp_path, {**settings, "epsilon": 1.0}, "00").path,
    ]
    assert RunFile(tmp_path, dict(settings), "00").path == paths[0]
    backbone.write_bytes(b"two")
    paths.append(RunFile(tmp_path, settings, "00").path)
    assert len(set(paths)) == 5


def test_another_maker_is_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run by other code, or by another version of a library or of Python, is another run and is not taken over."""
    settings = combinations({}, 1)[0]
    file = RunFile(tmp_path, settings, "00")
    run = file.write({"accuracy": 0.5})
    assert RunFile(tmp_path, settings, "00").read() == run
    assert made_by().keys() >= {"code_sha256", "python", "numpy", "torch"}
    for name in made_by():
        other = {**made_by(), name: "other"}
        with monkeypatch.context() as patch:
            patch.setattr("secagg.experiments.provenance.made_by", lambda other=other: other)
            assert RunFile(tmp_path, settings, "00").path != file.path
            assert RunFile(tmp_path, settings, "00").read() is None


def test_digest_of_sources(tmp_path: Path) -> None:
    """One changed byte of any source, a new file and a moved line change the digest of the code; other files do not."""
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    (package / "one.py").write_text("a = 1\n")
    (package / "inner" / "two.py").write_text("b = 2\n")
    found = [sources_sha256(package)]
    (package / "inner" / "two.pyc").write_text("c")
    assert sources_sha256(package) == found[0]
    for change in (
        lambda: (package / "inner" / "two.py").write_text("b = 3\n"),
        lambda: (package / "inner" / "three.py").write_text(""),
        lambda: (package / "inner" / "two.py").rename(package / "two.py"),
        lambda: (package / "one.py").write_text("a = 1\nb = 3\n") and (package / "two.py").write_text(""),
    ):
        change()
        found.append(sources_sha256(package))
    assert len(set(found)) == 5
    assert made_by()["code_sha256"] == sources_sha256(*SOURCES)
    assert {folder.name for folder in SOURCES} == {"secagg", "methods"}


def test_runs_of_other_code_are_made_again(tmp_path: Path) -> None:
    """What other code left in the folder is made again and not shown, what is the same is taken over; both are said."""
    grid = {"clients": [3, 5], "radius": [8.0]}
    first = sweep_dataset(dataset(), grid, 1, tmp_path, workers=1)
    assert not any("taken over" in note for note in first.notes)
    old = sorted((tmp_path / "runs").iterdir())
    content = json.loads(old[0].read_bytes())
    content["made_by"]["code_sha256"] = "00"
    content["result"]["accuracy"] = 0.0
    old[0].write_text(json.dumps(content))
    old[0].rename(tmp_path / "runs" / "of-other-code.json")
    result = sweep_dataset(dataset(), grid, 1, tmp_path, workers=1)
    assert result.notes[0] == "1 of 2 runs were taken over; 1 of other code or versions had to run again"
    assert [run.result["accuracy"] for run in result.runs] == [run.result["accuracy"] for run in first.runs]
    assert json.loads((tmp_path / "results.json").read_text())["notes"] == list(result.notes)
    assert sweep_dataset(dataset(), grid, 1, str(tmp_path), workers=1).notes[0] == "2 of 2 runs were taken over"


def copied_sources(folder: Path) -> Path:
    """A folder with the packages' sources, to be edited."""
    copy = folder / "copy"
    for source in SOURCES:
        shutil.copytree(source, copy / source.name, ignore=shutil.ignore_patterns("__pycache__", "generated"))
    shutil.copytree(SOURCES[0] / "wire" / "generated", copy / "secagg" / "wire" / "generated")
    return copy


EDITED_MEANWHILE = """
from pathlib import Path
import methods, secagg
from secagg.errors import BadInput
source = Path(methods.__file__).parent / "closed_form" / "prototypes.py"
def edit(done, total):
    source.write_text(source.read_text() + "EDITED = True\\n")
try:
    secagg.sweep("wine", method="prototypes", seeds=1, out="out", workers=1, progress=edit)
except BadInput as error:
    print(error.problem, len(list(Path("out/runs").iterdir())))
"""


def test_method_that_is_edited_while_a_sweep_runs(tmp_path: Path) -> None:
    """What a worker computed with code edited after the sweep began is not kept as a result of the code before."""
    environment = os.environ | {"PYTHONPATH": str(copied_sources(tmp_path))}
    script = [sys.executable, "-P", "-c", EDITED_MEANWHILE]
    said = subprocess.check_output(script, env=environment, text=True, cwd=tmp_path)
    assert said == "the code was edited while it ran 0\n"


def test_edited_method_is_run_again(tmp_path: Path) -> None:
    """A sweep after an edit of a method's source, by whoever imports it, shows what the new code gives."""
    copy = copied_sources(tmp_path)
    script = [sys.executable, "-P", "-c", "from secagg.experiments.provenance import made_by; print(made_by())"]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    before, same = (subprocess.check_output(script, env=environment, text=True) for _ in range(2))
    source = copy / "methods" / "closed_form" / "prototypes.py"
    source.write_text(source.read_text() + "EDITED = True\n")
    after = subprocess.check_output(script, env=environment, text=True)
    assert before == same != after
    assert made_by()["code_sha256"] in before


@pytest.mark.parametrize("code", [SCRIPT, f"import os\n{SCRIPT}"], ids=["stdin", "file"])
def test_needs_no_main_guard(tmp_path: Path, code: str) -> None:
    """A script without a main guard, and one from standard input, sweeps as any other: no traceback, all runs."""
    np.savez(tmp_path / "small.npz", features=dataset().train.inputs, labels=dataset().train.labels)
    command, typed = [sys.executable, "-"], code
    if code != SCRIPT:
        (tmp_path / "script.py").write_text(code)
        command, typed = [sys.executable, str(tmp_path / "script.py")], ""
    environment = os.environ | {"PYTHONPATH": str(SOURCES[0].parent)}
    done = subprocess.run(
        command, input=typed, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "2 runs\n"


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ({"clients": [10.0]}, "clients cannot be 10.0; give a whole number or None"),
        ({"epsilon": ["1"]}, "epsilon cannot be '1'; give a number"),
        ({"epsilon": 1.0}, "epsilon has 1.0 to try; give a list"),
        ({"method": ["fedcgs", "prototypes[x=1"]}, "cannot tell the method in 'prototypes.x=1'"),
        ({"method": ["fedcgs", "fedcg"]}, "unknown method 'fedcg'"),
        ({"refine": ["Auto"]}, "refine cannot be 'Auto'; give a whole number or \"auto\""),
    ],
    ids=str,
)
def test_values_of_other_types(grid: dict[str, Any], words: str, tmp_path: Path) -> None:
    """A value of another type than its setting, no list, or an unknown method is refused before anything is written."""
    with pytest.raises(BadInput, match=words):
        sweep_dataset(dataset(), grid, 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_methods_have_parameters_and_names_of_their_own(tmp_path: Path) -> None:
    """Each method runs with its own parameters, tables and curves call it by its name, and runs are kept by neither."""
    both = {"clients": [3], "radius": [8.0], "reference": [False]}
    methods = ["stiff=fedcgs[ridge=0.5]", "fedcgs[ridge=0.1]", "prototypes", "none=fedcgs[rabbits=1]"]
    result = sweep_dataset(dataset(), {**both, "method": methods}, 1, tmp_path, workers=1)
    assert [row[0] for row in result.table.rows] == ["stiff", "fedcgs[ridge=0.1]", "prototypes", "none"]
    assert [run.settings["parameters"] for run in result.runs[:2]] == ["ridge=0.5", "ridge=0.1"]
    alone = simulate_dataset(dataset(), SimulationSettings(method="fedcgs[ridge=0.5]", clients=3, radius=8.0))
    assert result.runs[0].result is not None
    assert result.runs[0].result["head_sha256"] == alone.head.digest
    assert any(line.startswith("none at") for line in result.refusals)
    grid = {**both, "method": ["fedcgs", "prototypes"], "parameters": ["ridge=0.5"]}
    again = sweep_dataset(dataset(), grid, 1, tmp_path, workers=1)
    assert again.notes[0] == "1 of 1 runs were taken over"


def test_bad_records_alike_in_all_runs(tmp_path: Path) -> None:
    """In a grid over ε the noisy runs count bad records as zero and say so, and the exact run is refused by row."""
    marked = np.arange(60) == 7
    data = replace(dataset(), train=dataset().train.discard(marked))
    grid = {"epsilon": [8.0, math.inf], "delta": [1e-5], "adjacency": ["add-remove"]}
    result = sweep_dataset(data, grid, 1, tmp_path, workers=1)
    noisy, exact = result.runs
    assert noisy.result is not None
    assert (noisy.result["bad_records"], noisy.result["bad_held_out"]) == (1, 0)
    assert any("1 of 60 training records are bad and count as zero" in note for note in result.notes)
    assert exact.result is None
    assert str(exact.refusal).startswith("made up, row 7: it cannot be used, and only noise lets a record be left out")
    (row, _) = csv.DictReader((tmp_path / "results.csv").read_text().splitlines())
    assert {"accuracy", "bad_records", "notes"} <= set(row["not_private"].split())
    assert result.to_json()["not_private"] == noisy.result["not_private"]


def test_digest_of_data() -> None:
    """The same records have the same digest; one changed value, in training or test, changes it."""
    assert data_sha256(dataset()) == data_sha256(dataset())
    for part in ("train", "test"):
        changed = dataset()
        getattr(changed, part).inputs[7, 2] += 1
        assert data_sha256(changed) != data_sha256(dataset())


def test_refused_runs_are_not_counted_among_those_taken_over(tmp_path: Path) -> None:
    """Repeating a sweep takes over every run that can be made: those refused are none that would run again."""
    grid = {"protection": ["masked", "none"], "method": ["fedpft"]}
    refused = [run for run in sweep_dataset(dataset(), grid, 1, tmp_path, workers=1).runs if run.result is None]
    assert len(refused) == 1
    assert sweep_dataset(dataset(), grid, 1, tmp_path, workers=1).notes[0] == "1 of 1 runs were taken over"


def test_refused_settings_stay_in_every_output(tmp_path: Path) -> None:
    """A setting that is refused has a row with a dash and its reason in the table, and is in CSV and JSON."""
    result = sweep_dataset(dataset(), {"method": ["fedcgs", "fedcgs[magic=1]"], "reference": [False]}, 1, tmp_path)
    row, (note, *_) = result.table.rows[1], result.table.notes
    assert row == ("fedcgs[magic=1]", "–¹")
    assert note.startswith("¹ Refused: method fedcgs cannot take 'magic=1'")
    assert note in (tmp_path / "table.md").read_text()
    assert "cannot take 'magic=1'" in (tmp_path / "results.csv").read_text()
    assert json.loads((tmp_path / "results.json").read_text())["refusals"] == list(result.refusals)
