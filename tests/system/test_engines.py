"""Both engines do the same: tasks in other processes of one thread, over shared arrays that nobody writes to."""

from __future__ import annotations

import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from secagg.errors import BadInput
from secagg.system.engines import ENGINES, RAY, Engine, engine_of
from tests.system import work

ENGINES_HERE = [
    pytest.param(
        name,
        marks=[pytest.mark.skipif(name == RAY and find_spec("ray") is None, reason="Ray is not installed")],
    )
    for name in ENGINES
]
NUMBERS = np.arange(10.0) / 3


@pytest.fixture(params=ENGINES_HERE)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    """Each engine with two workers."""
    return engine_of(request.param, 2, tmp_path)


def test_tasks_are_done_elsewhere(engine: Engine, tmp_path: Path) -> None:
    """Each task's result comes once, from a process of one thread that is not this one; no array is left behind."""
    with engine.open() as shelf:
        shelf.put("numbers", NUMBERS)
        done = dict(shelf.run(work.add, 5, range(10)))
    assert [done[task][0] for task in range(10)] == [5 + number for number in NUMBERS.tolist()]
    assert os.getpid() not in {process for _, process, _ in done.values()}
    assert all(threads == ["1", "1", "1"] for _, _, threads in done.values())
    assert list(tmp_path.iterdir()) == []


def test_arrays_are_read_only(engine: Engine) -> None:
    """A task that writes to a shared array fails."""
    with engine.open() as shelf:
        shelf.put("numbers", NUMBERS)
        with pytest.raises(ValueError, match="read-only"):
            list(shelf.run(work.write, None, [0]))


def test_process_that_dies_is_said(engine: Engine) -> None:
    """A process that dies ends the work with one line that says what to do."""
    with engine.open() as shelf, pytest.raises(BadInput, match=r"died.*; the same command goes on"):
        list(shelf.run(work.die, None, [0, 1]))


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_what_ray_says_is_no_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That a process died is told on standard error: standard output is for results, and has what we print alone."""
    out, err, patience = "", "", 100
    with engine_of(RAY, 2, tmp_path).open() as shelf:
        with pytest.raises(BadInput, match="died"):
            list(shelf.run(work.die, None, [0, 1]))
        print("a result")
        while "died" not in err + out and patience:  # Ray says it when it likes
            time.sleep(0.1)
            found = capsys.readouterr()
            out, err, patience = out + found.out, err + found.err, patience - 1
    assert out + capsys.readouterr().out == "a result\n"
    assert "died" in err


@pytest.mark.parametrize(
    ("name", "workers", "address", "words"),
    [
        ("slurm", None, None, "there is no engine 'slurm'; choose among processes, ray"),
        ("processes", 0, None, "0 workers cannot work"),
        ("processes", None, "auto", "give the engine ray"),
    ],
)
def test_impossible_engines(name: str, workers: int | None, address: str | None, words: str, tmp_path: Path) -> None:
    """Another name, no worker, and an address for what has none are refused."""
    with pytest.raises(BadInput, match=words):
        engine_of(name, workers, tmp_path, address)


def test_ray_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library the engine says what to install, and what needs none."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInput) as error, engine_of(RAY, 2, tmp_path).open():
        pass
    said = "--engine ray needs the library ray, which is not installed; pip install 'secagg[scale]'"
    assert str(error.value) == f"{said}; --engine processes needs no library"
