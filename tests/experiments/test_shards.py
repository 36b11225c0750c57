"""A sweep as the jobs of an array, killed and resumed, or by another engine, is the plain sweep, byte for byte."""

from __future__ import annotations

import csv
import io
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from secagg.errors import BadInput
from secagg.experiments.comparison import compare_dataset
from secagg.experiments.provenance import SOURCES
from secagg.experiments.sweep import Contender, Shard, sweep_dataset
from secagg.system.engines import ENGINES, RAY
from tests.experiments.test_compare import CURVES
from tests.experiments.test_sweep import FILES, dataset

GRID: dict[str, list[Any]] = {
    "clients": [3, 5],
    "epsilon": [1.0, 8.0],
    "refine": [0, 1],
    "delta": [1e-3],
    "adjacency": ["add-remove"],
    "noise_seed": [7],
}
SEEDS = 2
RUNS = 16
KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from tests.experiments.test_shards import GRID, SEEDS
from tests.experiments.test_sweep import dataset
from secagg.experiments.sweep import sweep_dataset
sweep_dataset(dataset(), GRID, SEEDS, sys.argv[1], workers=2, engine=sys.argv[2])
"""


def without_times(path: Path) -> str:
    """A table of results but for what was timed."""
    rows = list(csv.DictReader(path.read_text().splitlines()))
    names = [name for name in rows[0] if "seconds" not in name]
    text = io.StringIO()
    csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\\n").writerows(rows)
    return text.getvalue()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The results of the sweep in one go."""
    out = tmp_path_factory.mktemp("plain")
    assert len(sweep_dataset(dataset(), GRID, SEEDS, out, workers=2).runs) == RUNS
    return without_times(out / "results.csv")


def test_shards_are_the_sweep(plain: str, tmp_path: Path) -> None:
    """Four shards make each run once and write no table; collected they are the plain sweep."""
    for number in (3, 1, 4):
        part = sweep_dataset(dataset(), GRID, SEEDS, tmp_path, workers=1, shard=f"{number}/4")
        assert (len(part.runs), part.asked) == (4, RUNS)
    with pytest.raises(BadInput, match="4 of 16 runs are missing"):
        sweep_dataset(dataset(), GRID, SEEDS, tmp_path, collect=True)
    sweep_dataset(dataset(), GRID, SEEDS, tmp_path, workers=1, shard="2/4")
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}
    kept = {path.name: path.read_bytes() for path in (tmp_path / "runs").iterdir()}
    assert len(kept) == RUNS
    sweep_dataset(dataset(), GRID, SEEDS, tmp_path, collect=True)
    assert without_times(tmp_path / "results.csv") == plain
    assert {path.name: path.read_bytes() for path in (tmp_path / "runs").iterdir()} == kept
    assert {path.name for path in tmp_path.iterdir()} == FILES | CURVES | {"runs"}


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(name, marks=pytest.mark.skipif(name == RAY and find_spec("ray") is None, reason="no Ray here"))
        for name in ENGINES
    ],
)
def test_killed_and_resumed(plain: str, tmp_path: Path, engine: str) -> None:
    """Killed after some runs, and started again by the same engine, a sweep is the plain one; kept runs stay."""
    root = str(SOURCES[0].parent)
    command = [sys.executable, "-c", KILLED, str(tmp_path), engine, root]
    runs = tmp_path / "runs"
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": root}, start_new_session=True) as process:
        while process.poll() is None and len(list(runs.glob("*.json"))) < 3:
            time.sleep(0.002)
        os.killpg(process.pid, signal.SIGKILL)
    kept = {path.name: path.read_bytes() for path in runs.glob("*.json")}
    assert 3 <= len(kept) < RUNS
    result = sweep_dataset(dataset(), GRID, SEEDS, tmp_path, workers=2, engine=engine)
    assert result.notes[0] == f"{len(kept)} of {RUNS} runs were taken over"
    assert without_times(tmp_path / "results.csv") == plain
    assert kept.items() <= {path.name: path.read_bytes() for path in runs.glob("*.json")}.items()


def test_refusals_are_collected(tmp_path: Path) -> None:
    """What a shard refused is no missing run for who collects, and is tried again by who does not."""
    grid = {"clients": [3, 0], "radius": [8.0]}
    for number in (1, 2):
        sweep_dataset(dataset(), grid, 1, tmp_path, workers=1, shard=f"{number}/2")
    collected = sweep_dataset(dataset(), grid, 1, tmp_path, collect=True)
    assert [run.refusal is None for run in collected.runs] == [True, False]
    again = sweep_dataset(dataset(), grid, 1, tmp_path, workers=1)
    assert again.refusals == collected.refusals
    assert again.notes[0] == "1 of 1 runs were taken over"


def test_collecting_names_what_is_missing(tmp_path: Path) -> None:
    """Who collects too early, or with other settings than the shards', learns which are missing and what is there."""
    for clients in (3, 4):
        sweep_dataset(dataset(), {"clients": [clients], "radius": [8.0]}, 1, tmp_path, workers=1)
    asked = {"clients": [3, 5, 6], "radius": [8.0]}
    with pytest.raises(BadInput) as refused:
        sweep_dataset(dataset(), asked, 2, tmp_path, collect=True)
    first = "fedcgs, clients 3, seed 1; fedcgs, clients 5, seed 0; fedcgs, clients 5, seed 1; …"
    assert f"5 of 6 runs are missing in {tmp_path} ({first}); it holds 1 of other settings;" in str(refused.value)


def test_collecting_makes_no_folder(tmp_path: Path) -> None:
    """A folder that is not there has no runs to collect; it is named and not made."""
    with pytest.raises(BadInput, match="there is no folder"):
        sweep_dataset(dataset(), {}, 1, tmp_path / "wrong", collect=True)
    with pytest.raises(BadInput, match="there is no folder"):
        compare_dataset(dataset(), [Contender("fedcgs")], {}, 1, tmp_path / "wrong", collect=True)
    with pytest.raises(BadInput, match="1 of 1 runs are missing"):
        sweep_dataset(dataset(), {}, 1, tmp_path, collect=True)
    assert not any(tmp_path.iterdir())


@pytest.mark.long
def test_comparison_in_shards(tmp_path: Path) -> None:
    """Shards of a comparison run without protection what cannot be protected; collected it is the plain one."""
    contenders = [Contender("fedcgs"), Contender("fedpft"), Contender("prototypes")]
    grid = {"clients": [3]}
    whole = compare_dataset(dataset(), contenders, grid, 2, tmp_path / "plain", workers=1)
    for number in (1, 2):
        compare_dataset(dataset(), contenders, grid, 2, tmp_path / "parts", workers=1, shard=f"{number}/2")
    assert not (tmp_path / "parts" / "results.csv").exists()
    collected = compare_dataset(dataset(), contenders, grid, 2, tmp_path / "parts", collect=True)
    assert [run.unprotected for run in collected.runs] == [run.unprotected for run in whole.runs]
    assert without_times(tmp_path / "parts" / "results.csv") == without_times(tmp_path / "plain" / "results.csv")


def test_shards_divide_the_runs() -> None:
    """Every run is in exactly one shard; more shards than runs leave some without any."""
    for of in (1, 4, 7, 20):
        parts = [list(Shard(index, of).choose(range(16))) for index in range(1, of + 1)]
        assert sorted(run for part in parts for run in part) == list(range(16))


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "-1/4", "1/4/2", "a/b", ""])
def test_no_shard(text: str) -> None:
    """What is not I/N with 1 ≤ I ≤ N is refused."""
    with pytest.raises(BadInput, match="there is no shard"):
        Shard.read(text)


def test_shard_and_collect_exclude_each_other(tmp_path: Path) -> None:
    """Whoever collects makes no run."""
    with pytest.raises(BadInput, match="give one of both"):
        sweep_dataset(dataset(), {}, 1, tmp_path, shard="1/2", collect=True)
