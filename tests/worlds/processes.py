"""A federation of real processes over gRPC, which tests kill with SIGKILL and start again."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from secagg.agreement.plan import Plan, write_plan
from secagg.agreement.roster import Roster
from secagg.encoding import Integers
from secagg.errors import SecaggError
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.plan_facts.records import read_records
from secagg.protection import protection_named
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup, contribution_of
from secagg.transcript import FILE_NAME, peek, read_transcript
from tests.worlds.forks import FORKS
from tests.worlds.rosters import SERVER, enrol

HELPERS = {"aggregator": ("north", "south"), "key-holder": ("holder",)}
PATIENCE = 90.0


def run_command(words: list[str], said: Path) -> None:
    """A party's whole process: the command line, both streams in a file, under a mask that forbids nothing."""
    from secagg.cli.main import main

    os.umask(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts tests in the background has it ignored
    file = os.open(said, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = ["secagg", *words]
    main()


@dataclass(frozen=True)
class Party:
    """A party's process."""

    process: BaseProcess

    @classmethod
    def start(cls, words: list[str], said: Path) -> Party:
        """Start `secagg` with these words; what it says goes to a file."""
        process = FORKS.Process(target=run_command, args=(words, said), daemon=True)
        process.start()
        return cls(process)

    def wait(self, seconds: float | None = None) -> int | None:
        """The exit code, or None where it still runs after so many seconds."""
        self.process.join(seconds)
        return self.process.exitcode

    def kill(self) -> None:
        """SIGKILL, where it still runs, and wait until it is gone."""
        self.process.kill()
        self.process.join()


@dataclass
class Processes:
    """The folders of a federation, and its running processes by member; `names` are the clients."""

    folder: Path
    names: tuple[str, ...]
    roster: Roster
    plan: Plan
    running: dict[str, Party] = field(default_factory=dict)
    address: str = "127.0.0.1:0"
    aggregators: dict[str, str] = field(default_factory=dict)

    def session(self, name: str) -> Path:
        """A party's folder of the session: the only one in its state folder."""
        state = self.folder / name / "state"
        return next((path for path in state.glob("*") if path.is_dir()), state / "none")

    def transcript(self, name: str) -> Path:
        """A party's transcript."""
        return self.session(name) / FILE_NAME

    def command(self, name: str, *more: str) -> list[str]:
        """The words of a member's command; `more` are options, which stand in place of those that it has."""
        home = self.folder / name
        arguments = ["--plan", self.folder / "plan.json", "--state", home / "state", "--tls", home]
        role = self.roster.role(self.roster.index(name))
        if name == SERVER:
            arguments = ["--listen", self.address, *arguments]
        else:
            arguments = ["--server", self.address, *arguments, "--wait", "60"]
        if role == "client":
            arguments += ["--policy", home / "policy.toml", "--data", home / "records.npz"]
            arguments += [word for each in self.aggregators.items() for word in ("--aggregator", "=".join(each))]
        if role == "aggregator":
            arguments += ["--listen", self.aggregators.get(name, "127.0.0.1:0")]
        return [role, *map(str, arguments), *more]

    def start(self, name: str, *more: str) -> None:
        """Start a member's process, or start it again; `more` are options."""
        self.running[name] = Party.start(self.command(name, *more), self.folder / name / "said.txt")
        role = self.roster.role(self.roster.index(name))
        if name == SERVER and self.address.endswith(":0"):
            self.address = self.listens(name)
        if role == "aggregator" and name not in self.aggregators:
            self.aggregators[name] = self.listens(name)

    def listens(self, name: str) -> str:
        """Where a party listens, once it does."""

        def is_there() -> bool:
            return (self.session(name) / "address").exists()

        self.until(is_there, f"{name} listens")
        return (self.session(name) / "address").read_text()

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.running[name].kill()

    def has(self, name: str, kind: str, step: str) -> bool:
        """Whether a transcript holds a record of this kind: a frame of the step, or the step's name itself."""
        with contextlib.suppress(SecaggError):
            return any(record.kind == kind and step in (record.content.decode(errors="replace"), _step(record))
                       for record in read_transcript(self.transcript(name)))  # fmt: skip
        return False

    def until_has(self, name: str, kind: str, step: str) -> None:
        """Wait until a transcript holds that record."""
        self.until(lambda: self.has(name, kind, step), f"{name} has {kind} {step}")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Look until the condition holds; fail with what the processes said."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"never: {what}\n{self.said()}"
            time.sleep(0.005)

    def finish(self) -> None:
        """Wait until every process has ended well."""
        for name, party in self.running.items():
            assert party.wait(PATIENCE) == 0, f"{name} failed\n{self.said()}"

    def said(self) -> str:
        """What all processes said."""
        return "\n".join(f"{name}: {(self.folder / name / 'said.txt').read_text()}" for name in self.running)

    def expected(self, names: Iterable[str] | None = None) -> Integers:
        """The exact sum of these members' records; of all members' by default."""
        setup = RoundSetup.of(self.plan, self.roster)
        names = self.names if names is None else names
        records = [read_records(setup.plan, str(self.folder / name / "records.npz")) for name in names]
        return np.asarray(np.sum([contribution_of(setup, each, OperatingSystem())[0] for each in records], axis=0))

    def opened(self) -> Integers:
        """The sum that the server opened."""
        with np.load(self.session(SERVER) / "aggregate.npz") as blocks:
            names = [block.name for block in RoundSetup.of(self.plan, self.roster).sum.layout.blocks]
            return np.concatenate([blocks[name].reshape(-1) for name in names])


def _step(record: object) -> str:
    kind, content = record.kind, record.content  # type: ignore[attr-defined]
    return peek(content).step if kind in ("sent", "received") else ""


@contextlib.contextmanager
def processes(
    folder: Path,
    dimension: int = 40,
    protection: str = "masked",
    names: tuple[str, ...] = ("a", "b", "c"),
    data: PublicData | None = None,
    **choices: Any,
) -> Iterator[Processes]:
    """A server, clients, and the helpers that the protection needs, enrolled, with plan, policies and data.

    Nobody runs yet, all are gone at the end. `choices` are the plan's, beside or in place of those made here. A plan
    for other `data` than features has members whose records a test brings.
    """
    federation = make_processes(folder, names, dimension, protection, data, **choices)
    try:
        yield federation
    finally:
        for party in federation.running.values():
            party.kill()


def make_processes(
    folder: Path,
    names: tuple[str, ...],
    dimension: int,
    protection: str,
    data: PublicData | None = None,
    **choices: Any,
) -> Processes:
    """The folders of a federation of these clients, with keys, plan, policies and data."""
    role = protection_named(protection).helper_role
    roster = enrol(folder, *names, helpers=dict.fromkeys(HELPERS.get(role, ()), role))
    data = data or PublicData("features", (dimension,), ("no", "yes"), None, None)
    fixed = {"radius": 1.0, "max_records": 64, "dropouts": 0, "join_seconds": 60, "step_seconds": 60}
    plan = make_plan(data, roster, PlanChoices(**{**fixed, "protection": protection, **choices}), OperatingSystem())
    write_plan(plan, folder / "plan.json")
    for number, name in enumerate(names):
        generator = np.random.default_rng(number)
        features = generator.uniform(-0.9, 0.9, size=(30, dimension)) / np.sqrt(dimension)
        np.savez(folder / name / "records.npz", features=features, labels=np.arange(30) % 2)
        (folder / name / "policy.toml").write_text(policy_accepting(plan, name).to_toml())
    return Processes(folder, names, roster, plan)
