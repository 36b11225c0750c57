"""A simulation of many rounds that is interrupted goes on where it was, and ends with the same figures."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.data import Dataset, Records
from secagg.encoding.grid import Origin
from secagg.errors import BadInput
from secagg.experiments.outcome import SimulationResult
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import Callbacks, simulate_dataset

NOISE = {"epsilon": 30.0, "delta": 1e-3, "adjacency": "add-remove"}
TIMES = ("seconds", "client_seconds", "server_seconds")
PLANS: dict[str, dict[str, Any]] = {
    "state": {"method": "fedavg", "parameters": "rounds=4 rate=0.5 server=adam server_rate=0.05", **NOISE},
    "own states": {"method": "fedpcl", "parameters": "rounds=4 width=8"},
    "chain": {"method": "fedcgs", "refine": 3, **NOISE},
    "gradients": {"method": "fedavg", "parameters": "rounds=4 gradients=1"},
    "dropouts": {"method": "fedavg", "parameters": "rounds=4 cap=9", "dropouts": 1},
    "training": {"method": "fedavg", "parameters": "rounds=4 steps=2 sampling=0.3", "noise": "member", **NOISE},
}


class Interrupted(Exception):
    """What a test stops a simulation with."""


def dataset(shift: float = 0.0) -> Dataset:
    """A small data set of three classes."""
    features = np.random.default_rng(0).normal(size=(150, 4)) + np.eye(3, 4)[np.arange(150) % 3] * 3 + shift
    parts = [
        Records(features[rows], np.arange(150)[rows] % 3, {}, Origin.of("made up", np.arange(150)[rows]))
        for rows in (slice(0, 100), slice(100, 150))
    ]
    return Dataset("small", "features", parts[0], parts[1], ("a", "b", "c"), None, None, None)


def settings_of(plan: str, **given: Any) -> SimulationSettings:
    """Five clients, the noise of a seed, and the accuracy of every round."""
    return SimulationSettings(**{"noise_seed": 7, "every": 1, "reference": False, **PLANS[plan], **given})


def watching(stop: int | None, seen: list[int]) -> Callbacks:
    """Who stops as this round ends, and notes those that did."""

    def playing(number: int, _rounds: int, _report: object) -> None:
        if number == stop:
            raise Interrupted
        seen.append(number)

    return Callbacks(playing=playing)


def played(plan: str, keep: Path | None = None, stop: int | None = None, **given: Any) -> tuple[list[int], Any]:
    """The rounds that were played and the result, None where it was stopped."""
    seen: list[int] = []
    try:
        result: SimulationResult | None = simulate_dataset(
            dataset(), settings_of(plan, **given), watching(stop, seen), keep=keep
        )
    except Interrupted:
        result = None
    return seen, result


def figures(result: SimulationResult) -> dict[str, Any]:
    """All that is said of a result, but for how long it took."""
    return {name: value for name, value in result.to_json().items() if name not in TIMES}


@pytest.mark.parametrize("plan", PLANS)
def test_interrupted_simulation_ends_as_if_it_had_not_been(plan: str, tmp_path: Path) -> None:
    """Stopped in three of its rounds, it plays every round once more at the most, and has the same bits at the end."""
    _, whole = played(plan)
    rounds = []
    for stop in (2, 3, 4, None):
        seen, result = played(plan, tmp_path, stop)
        rounds.append(seen)
    assert rounds == [[1], [2], [3], [4]]
    assert figures(result) == figures(whole)
    assert [each.number for each in result.rounds] == [1, 2, 3, 4]
    assert result.personal == whole.personal
    assert set(result.seconds) == set(whole.seconds)


@pytest.mark.parametrize("plan", ["gradients", "chain"])
def test_plan_of_another_start_takes_it_up(plan: str, tmp_path: Path) -> None:
    """Without seeds keys and session are new ones; exact sums go on from the public state, and end in the same bits."""
    exact = {"epsilon": float("inf"), "noise_seed": None, "delta": None, "adjacency": None}
    _, whole = played(plan, **exact)
    assert played(plan, tmp_path, 3, **exact)[0] == [1, 2]
    seen, result = played(plan, tmp_path, **exact)
    assert seen == [3, 4]
    for name in ("aggregate_sha256", "head_sha256", "accuracy", "rounds"):
        assert figures(result)[name] == figures(whole)[name]


def test_nothing_stays_of_what_has_ended(tmp_path: Path) -> None:
    """The folder is empty after the last round, and the same command then plays all of them again."""
    for _ in range(2):
        seen, _ = played("state", tmp_path)
        assert seen == [1, 2, 3, 4]
        assert list(tmp_path.iterdir()) == []


def test_what_is_kept_is_for_the_owner_and_sealed(tmp_path: Path) -> None:
    """Members' own states lie in files for the owner alone, and not in clear."""
    played("own states", tmp_path, 3)
    (folder,) = tmp_path.iterdir()
    (latest,) = folder.iterdir()
    assert latest.name == "2"
    files = {path.name: path for path in latest.iterdir()}
    assert set(files) == {"private.state", "private.key"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (folder, latest, *files.values()))
    assert b"openings" not in files["private.state"].read_bytes()


def change_settings(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Another seed."""
    return {"seed": 1}


def change_code(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Code of another digest."""
    patch.setattr("secagg.experiments.provenance.made_by", lambda: {"code_sha256": "00"})
    return {}


def change_data(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Records that are others."""
    patch.setattr(f"{__name__}.dataset", lambda: _DATASET(0.5))
    return {}


_DATASET = dataset


@pytest.mark.parametrize("change", [change_settings, change_code, change_data], ids=lambda each: each.__name__)
def test_other_settings_code_and_data_begin_anew(
    change: Callable[[pytest.MonkeyPatch], dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is taken over from a simulation that could end otherwise, and it stays where it is."""
    played("state", tmp_path, 3)
    with monkeypatch.context() as patch:
        seen, _ = played("state", tmp_path, **change(patch))
    assert seen == [1, 2, 3, 4]
    assert played("state", tmp_path)[0] == [3, 4]


@pytest.mark.parametrize("file", ["private.state", "private.key"])
@pytest.mark.parametrize("damage", [b"", b"damaged" * 20])
def test_damaged_round_counts_for_nothing(file: str, damage: bytes, tmp_path: Path) -> None:
    """A round whose file is cut off or changed was not kept: the simulation begins anew, and ends right."""
    _, whole = played("state")
    played("state", tmp_path, 3)
    (path,) = tmp_path.rglob(file)
    path.write_bytes(damage)
    seen, result = played("state", tmp_path)
    assert seen == [1, 2, 3, 4]
    assert figures(result) == figures(whole)


def test_killed_between_two_writes_it_has_the_round_before(tmp_path: Path) -> None:
    """Of a round that was about to be kept a folder may be there, and its key: it counts for nothing."""
    played("state", tmp_path, 3)
    (folder,) = tmp_path.iterdir()
    (folder / "3").mkdir()
    (folder / "3" / "private.key").write_bytes(bytes(32))
    assert played("state", tmp_path)[0] == [3, 4]


def test_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """A file in the folder's place is refused before any round."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"cannot write to .*file.*give another --keep"):
        played("state", tmp_path / "file")


@pytest.mark.long  # a killed sweep, in test_shards.py, goes on by the same files in every run
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_command_goes_on(how: signal.Signals, tmp_path: Path) -> None:
    """`simulate --keep` is killed after some rounds; the same command ends with an uninterrupted one's JSON."""
    words = [sys.executable, "-m", "secagg", "simulate", "--dataset", "wine", "--method", "fedavg", "--rounds", "16"]
    words += ["--noise-seed", "1", "--no-reference", "--json", "-", "--quiet"]
    whole = subprocess.run(words, capture_output=True, check=True).stdout
    words += ["--keep", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not any(int(each.parent.name) > 2 for each in tmp_path.rglob("private.state")):
            time.sleep(0.01)
        process.send_signal(how)
    assert process.returncode in (-how, 130)
    assert any(tmp_path.iterdir())
    again = subprocess.run(words, capture_output=True, check=True).stdout
    kept = [{name: value for name, value in json.loads(each).items() if name not in TIMES} for each in (whole, again)]
    assert kept[0] == kept[1]
    assert kept[0]["rounds"][-1]["round"] == 16
