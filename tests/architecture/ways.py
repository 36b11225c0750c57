"""The ways through the code that CONTRIBUTING lists, and a profiler that records how a run goes them.

A way is a list of points, each of one party; a point names functions as `file.py: name`. A profiler notes when each
party first enters each of them, and from where. That is enough to say whether the list is true (`complaints`), and how
far a reader has to go who follows it (`route`).
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import groupby, pairwise, takewhile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.architecture.source import PACKAGES, ROOT

PARTIES = ("client", "server")
PARTY: ContextVar[str] = ContextVar("PARTY", default="")
"""Whose work this is. A task hands it to the tasks and threads that it starts."""
_POINT = re.compile(rf"^\d+\. (?:\*({'|'.join(PARTIES)})\*: )?(.*)$", re.MULTILINE)
_CODE = re.compile(r"`([\w/]+\.py): ([\w., ]+)`")
_CALLERS: ContextVar[tuple[FrameType, ...]] = ContextVar("_CALLERS", default=())
"""Frames that a thread's work was handed over from."""


@dataclass(frozen=True)
class Place:
    """A function by its file and its qualified name."""

    file: str
    function: str

    def __str__(self) -> str:
        return f"{self.file}: {self.function}"


@dataclass(frozen=True)
class Part:
    """Functions that one party enters, in this order."""

    party: str
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Entry:
    """The first entry of a function by a party: its place in the order of all, and the calls that led there.

    `calls` are (id of the call, file), the outermost first, the function itself last.
    """

    number: int
    calls: tuple[tuple[int, str], ...]


Entries = Mapping[tuple[str, Place], Entry]


def ways_in(text: str) -> dict[str, tuple[Part, ...]]:
    """Read the ways in a guide's section by their titles: paragraphs in bold with a numbered list each.

    A point that begins with `*client*:` or `*server*:` says whose it and those after it are. Of a function that a party
    is said to enter twice the first naming counts.
    """
    ways = {}
    for title, points in re.findall(r"^\*\*(.+?)\*\*(.+?)(?=^\*\*|\Z)", text, re.MULTILINE | re.DOTALL):
        parts: list[tuple[str, list[Place]]] = []
        named: set[tuple[str, Place]] = set()
        for party, words in _POINT.findall(points):
            if party or not parts:
                parts.append((party, []))
            current, places = parts[-1]
            for place in (Place(file, name) for file, names in _CODE.findall(words) for name in names.split(", ")):
                if (current, place) not in named:
                    named.add((current, place))
                    places.append(place)
        ways[title] = tuple(Part(party, tuple(places)) for party, places in parts)
    return ways


def complaints(parts: tuple[Part, ...], entries: Entries) -> list[str]:
    """Say what a way lists that was not entered, or not in its order (which one, see `test_ways`)."""
    found = [f"{each.party} does not enter {place}" for each in parts for place in each.places
             if (each.party, place) not in entries]  # fmt: skip
    for party in dict.fromkeys(each.party for each in parts):
        own = [place for each in parts if each.party == party for place in each.places if (party, place) in entries]
        found += [
            f"{party} enters {later} before {earlier}"
            for earlier, later in pairwise(own)
            if entries[party, later].number <= entries[party, earlier].number
        ]
    ends = [(each.party, each.places[-1]) for each in parts if (each.party, each.places[-1]) in entries]
    found += [
        f"{later[0]} enters {later[1]} before {earlier[0]} enters {earlier[1]}"
        for earlier, later in pairwise(ends)
        if entries[later].number <= entries[earlier].number
    ]
    return found


def route(parts: tuple[Part, ...], entries: Entries) -> tuple[str, ...]:
    """Give the files that control is in, one after the other, on the way from the first listed function to the last.

    From one function of a party it returns, call by call, to the innermost call that led to the party's next one too,
    and goes down to that. Where no call led to both (another task goes on) it begins at the outermost that led to the
    next. A file that is entered again counts again.
    """
    files: list[str] = []
    before: dict[str, tuple[tuple[int, str], ...]] = {}
    for each in parts:
        for place in each.places:
            left, calls = before.get(each.party, ()), entries[each.party, place].calls
            both = takewhile(lambda pair: pair[0] == pair[1], zip(left, calls, strict=False))
            shared = len(list(both))
            if shared:
                files += [file for _, file in reversed(left[shared - 1 :])]
            files += [file for _, file in calls[shared:]]
            before[each.party] = calls
    return tuple(file for file, _ in groupby(files))


class Profiler:
    """Notes the first entry of each of some functions by each party; to be handed to `sys.setprofile`."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.entries: dict[tuple[str, Place], Entry] = {}
        self._wanted = frozenset(places)
        self._known: dict[CodeType, Place | None] = {}
        self._frames: list[FrameType] = []  # so that no two have one id
        self._loop = threading.get_ident()

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event != "call":
            return
        if frame.f_code is asyncio.to_thread.__code__:
            _CALLERS.set(self._calls_of(frame))
            return
        place = self._place_of(frame.f_code)
        if place in self._wanted and (PARTY.get(), place) not in self.entries:
            calls = self._calls_of(frame)
            self._frames.extend(calls)
            files = [(id(each), self._place_of(each.f_code)) for each in calls]
            found = tuple((number, each.file) for number, each in files if each is not None)
            self.entries[PARTY.get(), place] = Entry(len(self.entries), found)

    def _calls_of(self, frame: FrameType) -> tuple[FrameType, ...]:
        """Our frames that led here, outermost first; in a thread, with those that handed the work over."""
        frames: list[FrameType] = []
        inner: FrameType | None = frame
        while inner is not None:
            if self._place_of(inner.f_code) is not None:
                frames.append(inner)
            inner = inner.f_back
        before = () if threading.get_ident() == self._loop else _CALLERS.get()
        return (*before, *reversed(frames))

    def _place_of(self, code: CodeType) -> Place | None:
        """The function, where it is one of ours."""
        if code not in self._known:
            path = Path(code.co_filename)
            ours = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
            self._known[code] = Place(path.relative_to(ROOT).as_posix(), code.co_qualname) if ours else None
        return self._known[code]


@contextmanager
def profiled(profiler: Profiler) -> Iterator[None]:
    """Have all that this thread and new ones do noted meanwhile."""
    before, of_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(profiler)
    sys.setprofile(profiler)
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(of_threads)
