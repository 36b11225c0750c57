"""`secagg sweep`: lists of every setting, what is said, and that an interrupted sweep goes on."""

import csv
import inspect
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from secagg.cli.simulate import simulate
from secagg.cli.sweep import sweep, values_of
from secagg.experiments.sweep import AXES
from tests.cli.command import Command


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A small file of features."""
    path = tmp_path / "small.npz"
    labels = np.arange(90) % 3
    site = np.array([f"s{number % 3}" for number in np.arange(90) // 3])
    features = np.random.default_rng(0).normal(size=(90, 4)) + labels[:, None]
    np.savez(path, features=features, labels=labels, site=site)
    return path


def test_takes_what_simulate_takes() -> None:
    """Every option of simulate is there with its default and help; sweeps count, run and draw by themselves."""
    offered = inspect.signature(sweep).parameters
    simulated = inspect.signature(simulate, eval_str=True).parameters
    assert set(simulated) - set(offered) == {"seed", "processes", "device", "curves", "keep", "save"}
    for name in AXES:
        default = simulated[name].default
        flag = isinstance(default, bool)
        assert offered[name].default == (default if flag else None if default in (None, "") else str(default))
        assert offered[name].annotation.__metadata__[0].help == simulated[name].annotation.__metadata__[0].help


def test_lists(secagg: Command, data: Path, tmp_path: Path) -> None:
    """Lists are multiplied out; the table goes to stdout, what is refused to stderr, and the exit code is 0."""
    arguments = ["--dataset", data, "--out", tmp_path / "out", "--clients", "default, 3", "--dropouts", "0,4",
                 "--epsilon", "inf", "--ridge", "0.1", "--seeds", 2, "--workers", 1]  # fmt: skip
    said = secagg("sweep", *arguments)
    assert said.code == 0, said
    assert "fedcgs, clients default" in said.out
    assert "refused: fedcgs, clients 3, dropouts 4 at ε = inf: 3 clients tolerate at most 0 dropouts" in said.err
    rows = list(csv.DictReader((tmp_path / "out" / "results.csv").read_text().splitlines()))
    assert [(row["clients"], row["dropouts"], row["seed"]) for row in rows if row["clients"] == "3"] == [
        ("3", "0", "0"), ("3", "0", "1"), ("3", "4", "0"), ("3", "4", "1")
    ]  # fmt: skip
    assert {row["ridge"] for row in rows} == {"0.1"}


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        ("dirichlet:0.05,0.1,0.5", ("dirichlet:0.05", "dirichlet:0.1", "dirichlet:0.5")),
        ("iid, shards:1,2", ("iid", "shards:1", "shards:2")),
        ("dirichlet:1,default", ("dirichlet:1", "iid")),
    ],
)
def test_partitions(text: str, partitions: tuple[str, ...]) -> None:
    """A number alone has the form of the partition before it."""
    assert values_of("partition", text) == partitions


def test_leaves_out_each_domain(secagg: Command, data: Path, tmp_path: Path) -> None:
    """`--leave-out COLUMN=*` runs once for every value of the column."""
    said = secagg(
        "sweep", "--dataset", data, "--out", tmp_path / "out", "--leave-out", "site=*", "--seeds", 1, "--workers", 1
    )
    assert said.code == 0, said
    assert [line.split("  ")[0] for line in said.out.splitlines()[2:5]] == [
        f"fedcgs, leave out site=s{site}" for site in range(3)
    ]


@pytest.mark.parametrize("command", [["sweep"], ["compare", "--methods", "fedcgs"]], ids=lambda command: command[0])
def test_shard_without_runs(secagg: Command, data: Path, tmp_path: Path, command: list[object]) -> None:
    """A job of an array that is larger than the grid has nothing to do, says so and succeeds."""
    said = secagg(*command, "--dataset", data, "--out", tmp_path / "out", "--seeds", 2, "--shard", "3/4")
    assert (said.code, said.out) == (0, ""), said
    assert "shard 3/4 has no runs" in said.err


@pytest.mark.parametrize("command", [["sweep"], ["compare", "--methods", "fedcgs"]], ids=lambda command: command[0])
def test_shard_shows_no_table(secagg: Command, data: Path, tmp_path: Path, command: list[object]) -> None:
    """What some of the runs come to is no result: a shard says how many it made, and prints nothing."""
    arguments = [*command, "--dataset", data, "--out", tmp_path / "out", "--seeds", 2, "--workers", 1]
    said = secagg(*arguments, "--shard", "1/2")
    assert (said.code, said.out) == (0, ""), said
    assert "1 runs of shard 1/2 are in" in said.err
    assert secagg(*arguments, "--shard", "3/3", "--json", "-").json["runs"] == []


def test_json_and_nothing_else(secagg: Command, data: Path, tmp_path: Path) -> None:
    """`--json -` prints the results and nothing else, and `--quiet` says nothing."""
    said = secagg("sweep", "--dataset", data, "--out", tmp_path, "--seeds", 1, "--json", "-", "--quiet")
    assert (said.code, said.err) == (0, "")
    assert said.json["summary"][0]["interval_kind"] == "clopper-pearson"


def test_every_run_refused(secagg: Command, data: Path, tmp_path: Path) -> None:
    """When nothing could run, the exit code is 2 and one line gives a reason; results of an earlier sweep stay."""
    (tmp_path / "results.csv").write_text("earlier")
    methods = "fedcgs[magic=1],fedcgs[spell=1]"
    said = secagg("sweep", "--dataset", data, "--out", tmp_path, "--method", methods, "--seeds", 1, "--quiet")
    assert said.code == 2
    assert "every run was refused: fedcgs[magic=1] at ε = inf: " in said.complaint
    assert (tmp_path / "results.csv").read_text() == "earlier"
    assert not (tmp_path / "accuracy.png").exists()


def test_each_reason_is_said_once(secagg: Command, data: Path, tmp_path: Path) -> None:
    """When every run is refused, no reason stands on two lines."""
    methods = ("fedcgs[magic=1]", "fedcgs[spell=1]")
    said = secagg("sweep", "--dataset", data, "--out", tmp_path, "--methods", ",".join(methods), "--seeds", 1)
    assert said.code == 2
    assert [said.err.count(f"{name} at ε = inf") for name in methods] == [1, 1]


def test_other_data_is_not_mixed_in(secagg: Command, data: Path, tmp_path: Path) -> None:
    """A folder with results over other data is refused with the remedy, and keeps its table; the same data goes on."""
    arguments = ["--out", tmp_path / "out", "--seeds", 1, "--quiet"]
    assert secagg("sweep", "--dataset", data, *arguments).code == 0
    kept = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    for command in (["sweep"], ["compare", "--methods", "fedcgs"]):
        said = secagg(*command, "--dataset", "wine", *arguments)
        assert said.code == 2
        assert "out holds results over other data; give another --out" in said.complaint
        assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == kept
    assert secagg("sweep", "--dataset", data, *arguments, "--clients", 3).code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--clients", "3,many"],
        ["--clients", "3,,5"],
        ["--epsilon", "much"],
        ["--seeds", "0"],
        ["--workers", "0"],
        ["--seed", "1"],
        ["--out", "/proc/none"],
        ["--dataset", "no-such-data"],
        ["--dataset", "digits", "--method", "fedcgs,fedcg"],
    ],
    ids=" ".join,
)
def test_bad_option(secagg: Command, tmp_path: Path, arguments: list[str]) -> None:
    """A list that cannot be read, or an option that cannot be, is said in one line before anything runs."""
    said = secagg("sweep", "--quiet", "--out", tmp_path / "out", *arguments)
    assert said.code == 2
    assert said.complaint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", [["sweep"], ["compare", "--methods", "fedcgs"]], ids=lambda command: command[0])
def test_bad_records_as_in_simulate(secagg: Command, tmp_path: Path, command: list[object]) -> None:
    """Under noise bad rows count as zero in every command and are said; without noise every command names the row."""
    features = np.random.default_rng(0).normal(size=(90, 4)) + np.arange(90)[:, None] % 3
    features[[5, 50]] = np.nan
    np.savez(tmp_path / "bad.npz", features=features, labels=np.arange(90) % 3)
    promise = ["--epsilon", "4", "--delta", "1e-5", "--adjacency", "add-remove"]
    kept = ["--seeds", 1, "--workers", 1, "--out", tmp_path / "out"]
    said = secagg(*command, "--dataset", tmp_path / "bad.npz", *kept, *promise)
    alone = secagg("simulate", "--dataset", tmp_path / "bad.npz", *promise, "--json", "-")
    assert (said.code, alone.code) == (0, 0)
    note = (
        "note: 2 of 72 training records are bad and count as zero; 0 of 18 held-out records are bad and are not scored"
    )
    assert note in said.err
    assert note in alone.err
    assert "Not private: accuracies are counted on held-out records without noise" in said.out
    for exact in (command, ["simulate"]):
        said = secagg(*exact, "--quiet", "--dataset", tmp_path / "bad.npz", *(kept if exact == command else []))
        assert said.code == 2
        assert "bad.npz" in said.complaint
        assert "row 6: a feature is NaN" in said.complaint


def test_what_was_taken_over_is_said(secagg: Command, data: Path, tmp_path: Path) -> None:
    """Two commands may share a folder, and the one that asks for all of their runs repeats none, and says so."""
    arguments = ["sweep", "--dataset", data, "--out", tmp_path / "out", "--seeds", 1, "--workers", 1]
    for clients in (3, 4):
        assert "taken over" not in secagg(*arguments, "--clients", clients).err
    said = secagg(*arguments, "--clients", "3,4,5")
    assert said.code == 0
    assert "note: 2 of 3 runs were taken over\n" in said.err


def worker_of(parent: int) -> int:
    """The process that works for a sweep."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    (worker,) = (child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes())
    return int(worker)


def kept(out: Path) -> dict[str, bytes]:
    """The runs that a sweep has kept so far."""
    return {path.name: path.read_bytes() for path in out.glob("runs/*.json")}


def disturbed(out: Path, fate: str) -> tuple[int, str]:
    """Exit code and complaint of a sweep of 40 runs that meets its fate as soon as it has kept two more."""
    arguments = ["sweep", "--quiet", "--out", str(out), "--clients", "3", "--seeds", "40", "--workers", "1"]
    enough = len(kept(out)) + 2
    heeds = signal.SIG_IGN if fate == "ignored interrupt" else signal.default_int_handler
    before = signal.signal(signal.SIGINT, heeds)  # what a process inherits: a shell's `&` has it ignored
    try:
        command = [sys.executable, "-m", "secagg", *arguments]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        while process.poll() is None and len(list(out.glob("runs/*.json"))) < enough:
            time.sleep(0.01)
        if fate == "kill":
            process.kill()
        elif fate == "crash":
            os.kill(worker_of(process.pid), signal.SIGKILL)
        else:
            os.killpg(process.pid, signal.SIGINT)
        assert process.stderr is not None
        complaint = process.stderr.read()  # ends when no process of the sweep is left
    return process.returncode, complaint


@pytest.mark.long
def test_interrupted_sweep_goes_on(tmp_path: Path) -> None:
    """A sweep that is killed, interrupted or loses a worker leaves no process; the same command does the rest.

    The last one was started where interrupts are ignored, and is not disturbed by one.
    """
    before: dict[str, bytes] = {}
    for fate, code in (("kill", -signal.SIGKILL), ("interrupt", 130), ("crash", 2), ("ignored interrupt", 0)):
        found, complaint = disturbed(tmp_path, fate)
        assert found == code, complaint
        assert "Traceback" not in complaint
        assert ("a worker process died; the same command goes on" in complaint) == (fate == "crash")
        assert len(list(tmp_path.glob(".features-*"))) == (fate == "kill")
        after = kept(tmp_path)
        assert before.items() < after.items()
        assert (len(after) == 40) == (fate == "ignored interrupt")
        before = after


def test_audit_draws_success_against_epsilon(secagg: Command, data: Path, tmp_path: Path) -> None:
    """Every plan of the sweep is attacked, with intervals and what ε allows; what was tried is not tried again."""
    out = tmp_path / "out"
    asked = ("sweep", "--dataset", data, "--out", out, "--clients", 3, "--epsilon", "1,8", "--delta", "1e-3",
             "--adjacency", "add-remove", "--seeds", 1, "--workers", 1, "--audit", "membership_release")  # fmt: skip
    assert secagg(*asked).code == 0
    rows = list(csv.DictReader((out / "attack.csv").read_text(encoding="utf-8").splitlines()))
    areas = {row["epsilon"]: row for row in rows if row["measure"] == "auc.informed"}
    assert set(areas) == {"1.0", "8.0"}
    for row in areas.values():
        assert float(row["low"]) <= float(row["value"]) <= float(row["high"])
        assert row["adversary"] == "curious_server"
    assert float(areas["1.0"]["ceiling"]) < float(areas["8.0"]["ceiling"])
    assert "the most that" in (out / "attack.svg").read_text(encoding="utf-8")
    assert (out / "attack.png").stat().st_size > 1000
    kept = {path: path.stat().st_mtime_ns for path in (out / "audits").rglob("*.json")}
    assert secagg(*asked).code == 0
    assert {path: path.stat().st_mtime_ns for path in (out / "audits").rglob("*.json")} == kept
    assert len(kept) == 2


@pytest.mark.parametrize(
    ("more", "problem"),
    [(("--audit", "magic"), "no attack 'magic'"), (("--audit", "unmixing", "--shard", "1/2"), "--collect")],
)
def test_audit_that_cannot_be_is_refused_first(
    secagg: Command, data: Path, tmp_path: Path, more: tuple[str, ...], problem: str
) -> None:
    """An unknown attack, and a shard, end before anything is simulated."""
    said = secagg("sweep", "--dataset", data, "--out", tmp_path / "out", *more)
    assert said.code == 2
    assert problem in said.err
    assert not (tmp_path / "out").exists()
