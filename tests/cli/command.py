"""Runs the command line inside this process, and looks at what it said and left behind."""

from __future__ import annotations

import json
import logging
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.cli import main

MEMBERS = ("alice", "bob", "carol")
SERVER = "coordinator"
NEW_PLAN = ("plan", "new", "--purpose", "tests")
"""The beginning of each command that writes a plan; a plan states a purpose."""


@dataclass(frozen=True)
class Said:
    """The exit code and both streams of one command."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line of an error: nothing else may stand on either stream."""
        assert self.out == "", self.out
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("secagg: ")
        assert "Traceback" not in self.err
        return lines[0]

    @property
    def json(self) -> dict[str, Any]:
        """Standard output, which holds one JSON object and nothing else."""
        content: dict[str, Any] = json.loads(self.out)
        return content


Command = Callable[..., Said]


def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """What runs `secagg ARGUMENTS` in this process."""

    def run(*arguments: object) -> Said:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["secagg", *map(str, arguments)])
        root = logging.getLogger()
        before = list(root.handlers)
        with pytest.raises(SystemExit) as end:
            main()
        for handler in [handler for handler in root.handlers if handler not in before]:
            root.removeHandler(handler)
        streams = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Said(end.value.code, streams.out, streams.err)

    return run


def found(run: Command, folder: Path) -> None:
    """A consortium with a plan, policies and data, made by the commands that people use."""
    assert run("pki", "init", "--ca", folder / "ca", "--consortium", "cli").code == 0
    requests = []
    for name in (SERVER, *MEMBERS):
        role = "server" if name == SERVER else "client"
        assert run("pki", "request", name, "--tls", folder / name, "--role", role).code == 0
        requests.append(folder / name / "request.json")
    assert run("pki", "issue", *requests, "--ca", folder / "ca").code == 0
    for name in (SERVER, *MEMBERS):
        for file in (folder / "ca" / "issued" / name).iterdir():
            (folder / name / file.name).write_bytes(file.read_bytes())
    chosen = ["--shape", "3", "--classes", "no,yes", "--radius", "1", "--max-records", "100", "--step-seconds", "5"]
    roster = folder / SERVER / "roster.json"
    assert run(*NEW_PLAN, "--roster", roster, "--out", folder / "plan.json", *chosen).code == 0
    for number, name in enumerate(MEMBERS):
        write_records(folder / name / "records.npz", number)
        policy = folder / name / "policy.toml"
        assert run("plan", "policy", "--plan", folder / "plan.json", "--data-name", name, "--out", policy).code == 0


def write_records(path: Path, seed: int = 0, **changes: Any) -> None:
    """Twenty records of three features and two classes."""
    features = np.random.default_rng(seed).uniform(-0.5, 0.5, size=(20, 3))
    np.savez(path, **{"features": features, "labels": np.arange(20) % 2, **changes})


def releases(state: Path) -> int:
    """How many releases the ledger of a state folder holds."""
    path = state / "ledger.sqlite"
    if not path.exists() or not path.stat().st_size:
        return 0
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM releases").fetchone()[0])
    finally:
        connection.close()


def nothing_sent(state: Path) -> bool:
    """Neither a release, nor a protected vector, nor a sent frame in a client's state folder."""
    if not state.exists():
        return True
    logs = [path.read_bytes() for path in state.rglob("transcript.log")]
    vectors = list(state.rglob("protected.bin"))
    return not releases(state) and not vectors and not any(b"\x1a\x04sent" in log for log in logs)
