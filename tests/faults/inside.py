"""Faults inside one process of a party: a kill, a disk that refuses, a clock that jumps."""

from __future__ import annotations

import datetime
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol

import grpc._channel as blocking_calls
import grpc.aio._utils as calls

from tests.federation.deaths import note_what_is_said, watch_writes, watched_writes
from tests.federation.outages import run_limited

JUMPED = "jumped.txt"


class Inside(Protocol):
    """What is wrong inside every process of one party."""

    def begin(self, home: Path) -> None:
        """Plant it in this process, whose folder is `home`."""

    def has_struck(self, home: Path) -> bool:
        """Whether it came in any process of the party whose folder is `home`."""


@dataclass(frozen=True)
class Life:
    """A process of a party: it notes what it says, and has its fault, if any."""

    home: Path
    fault: Inside | None = None

    def run(self, words: list[str], said: Path) -> None:
        """The party's command."""
        note_what_is_said(self.home)
        if self.fault is not None:
            self.fault.begin(self.home)
        run_limited(words, said)


@dataclass(frozen=True)
class Killed:
    """SIGKILL right after a party's write of this number, once; after every new write where it is 0."""

    number: int = 0

    def begin(self, home: Path) -> None:
        """Watch the writes."""

        def strike(number: int) -> None:
            if self.number in (0, number):
                os.kill(os.getpid(), signal.SIGKILL)

        watch_writes(home, strike)

    def has_struck(self, home: Path) -> bool:
        """Whether the party made that write."""
        return len(watched_writes(home)) >= max(1, self.number)


@dataclass(frozen=True)
class Refusing:
    """The system call of the new write of this number, of those named, fails once; of each where it is 0."""

    error: int
    of: tuple[str, ...]
    number: int = 0

    def begin(self, home: Path) -> None:
        """Watch the writes."""

        def strike(number: int) -> None:
            if self.number in (0, number):
                raise OSError(self.error, os.strerror(self.error))

        watch_writes(home, strike, self.of, before=True)

    def has_struck(self, home: Path) -> bool:
        """Whether the party came to that write."""
        return len(watched_writes(home)) >= max(1, self.number)


@dataclass(frozen=True)
class Jumping:
    """The wall clock jumps by so many seconds after the third sync, and stays there in later lives.

    `dies`: two syncs later the party is killed, so that its next life compares what the clock said before.
    """

    seconds: float
    dies: bool

    def begin(self, home: Path) -> None:
        """Watch the syncs."""
        jumped = home / JUMPED
        if jumped.exists():
            self._jump()

        def strike(number: int) -> None:
            if number == 3:
                jumped.touch()
                self._jump()
            if number == 5 and self.dies:
                os.kill(os.getpid(), signal.SIGKILL)

        watch_writes(home, strike, ("fsync",))

    def has_struck(self, home: Path) -> bool:
        """Whether the clock has jumped."""
        return (home / JUMPED).exists()

    def _jump(self) -> None:
        true, seconds = time.time, self.seconds
        time.time = lambda: true() + seconds
        # gRPC's core asks the system for the time: deadlines by another clock would be over, or never come
        calls.time = blocking_calls.time = SimpleNamespace(**{**vars(time), "time": true})

        class Jumped(datetime.datetime):
            @classmethod
            def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
                return datetime.datetime.fromtimestamp(time.time(), tz)

        datetime.datetime = Jumped  # type: ignore[misc]
