"""A federation's plan, keys and records, and the fuses that kill its parties."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from methods.round import Examples, Local
from secagg.crypto.signatures import SigningKey
from secagg.encoding import Integers
from secagg.parties import SessionSetup
from secagg.parties.planning import PlanChoices, PublicData, make_plan
from secagg.protection import protection_named
from secagg.randomness import OperatingSystem
from secagg.roster import SERVER_INDEX, Member, Roster
from secagg.statistics import Grid
from secagg.transcript import FILE_NAME, Journal
from secagg.transcript.chain import Kind


def open_to_others(folder: Path) -> set[str]:
    """What lies under a folder and is not its owner's alone, with its mode."""
    found = set()
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # gone while one looks
            mode = path.lstat().st_mode & 0o777
            found |= {f"{path.relative_to(folder)} {mode:o}"} if mode & 0o077 else set()
    return found


class Crash(BaseException):
    """A party was killed, as by kill -9."""


@dataclass
class Fuse:
    """Kills its party at point number `point`, once; names every point that was passed."""

    point: int | None = None
    points: list[str] = field(default_factory=list)

    def burn(self, name: str) -> None:
        """Pass one point."""
        self.points.append(name)
        if len(self.points) - 1 == self.point:
            raise Crash(name)


class FusedJournal(Journal):
    """A journal whose party may die just before or just after a record is written."""

    def __init__(self, path: Path, fuse: Fuse) -> None:
        super().__init__(path)
        self._fuse = fuse
        self.is_dead = False

    def append(self, kind: Kind, content: bytes) -> None:
        """Write one record between two points. The dead write nothing."""
        if self.is_dead:
            raise Crash(kind)
        try:
            self._fuse.burn(f"before record {kind}")
            super().append(kind, content)
            self._fuse.burn(f"after record {kind}")
        except Crash:
            self.is_dead = True
            raise

    def close(self) -> None:
        """Close the file, as the end of the process does."""
        self.is_dead = True
        super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Stage:
    """Plan, keys (index 0 is the server's) and vectors of a federation under `folder`."""

    folder: Path
    setup: SessionSetup
    keys: tuple[SigningKey, ...]
    vectors: dict[int, Integers]

    def home(self, member: int) -> Path:
        """A party's folder of this session."""
        path = self.folder / self.setup.roster.name(member) / self.setup.plan.session.hex()[:16]
        path.mkdir(parents=True, exist_ok=True)
        return path

    def transcript(self, member: int) -> Path:
        """A party's transcript."""
        return self.home(member) / FILE_NAME

    def total(self, members: tuple[int, ...]) -> Integers:
        """The exact sum of these members' vectors."""
        return np.sum([self.vectors[member] for member in members], axis=0)

    def again(self) -> Stage:
        """The same federation with the plan of another session."""
        return _staged(self.folder, self.setup.roster, self.keys, _choices_of(self.setup))


def make_stage(folder: Path, clients: int = 3, seconds: int = 2, **choices: Any) -> Stage:
    """Draw identities, plan and records of a federation whose features are three numbers.

    `seconds` is the number of aggregators where the protection has them.
    """
    role = protection_named(choices.get("protection", "masked")).second_role
    count = {"": 0, "aggregator": seconds, "key-holder": 1}[role]
    keys = tuple(SigningKey.generate(OperatingSystem()) for _ in range(clients + 1 + count))
    members = [Member("server", "server", keys[SERVER_INDEX].public)]
    members += [Member(f"client-{number}", "client", keys[number].public) for number in range(1, clients + 1)]
    members += [Member(f"{role}-{place}", role, keys[clients + place].public) for place in range(1, count + 1)]
    fixed: dict[str, Any] = {"radius": 1.0, "levels": 1000, "max_records": 100, "step_seconds": 1, "join_seconds": 1}
    return _staged(folder, Roster.of("in memory", members), keys, PlanChoices(**{**fixed, **choices}))


def _choices_of(setup: SessionSetup) -> PlanChoices:
    plan = setup.plan
    return PlanChoices(
        radius=plan.radius,
        levels=plan.levels,
        max_records=plan.max_records,
        dropouts=plan.dropouts,
        protection=plan.protection,
        step_seconds=plan.step_seconds,
        join_seconds=plan.join_seconds,
    )


def _staged(folder: Path, roster: Roster, keys: tuple[SigningKey, ...], choices: PlanChoices) -> Stage:
    data = PublicData("features", (3,), ("no", "yes"), None, None)
    setup = SessionSetup.of(make_plan(data, roster, choices, OperatingSystem()), roster)
    generator = np.random.default_rng(len(roster.clients))
    vectors = {}
    for member in roster.clients:
        records = generator.integers(-400, 400, size=(20, 3))
        labels = np.arange(20) % 2
        vectors[member] = setup.layout.flatten(
            setup.method.contribute(Local(Examples.of(records, labels), 2, Grid(1.0, 1000))).blocks
        )
    return Stage(folder, setup, keys, vectors)
