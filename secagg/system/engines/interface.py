"""The interface of an engine: put arrays where all its processes can read them, and run tasks in the processes.

A task depends on its own values, the context and the arrays alone, and every process computes with one thread; so what
comes of it is the same, bit for bit, in whatever process and order (on processors that round alike).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

C = TypeVar("C")
T = TypeVar("T")
R = TypeVar("R")
Arrays = Mapping[str, NDArray[Any]]
"""A shelf's arrays by name, read-only; an array is loaded when a task first looks it up."""
Function = Callable[[C, Arrays, T], R]
"""A module-level function from (context, arrays, task) to a result, all of which can be pickled."""


class FetchedArrays(dict[str, NDArray[Any]]):
    """Arrays by name, each loaded by `fetch` when it is first looked up."""

    def __init__(self, fetch: Callable[[str], NDArray[Any]]) -> None:
        self._fetch = fetch

    def __missing__(self, name: str) -> NDArray[Any]:
        self[name] = array = self._fetch(name)
        return array


class Shelf(Protocol):
    """Shared arrays of an open engine, which all its processes can read, and the means to run tasks on them."""

    @property
    def folder(self) -> Path | None:
        """A private folder that all processes share, removed when the engine ends; None where they share no disk."""

    def put(self, name: str, array: NDArray[Any]) -> None:
        """Make an array readable to all processes under a name."""

    def run(self, function: Function[C, T, R], context: C, tasks: Sequence[T]) -> Iterator[tuple[T, R]]:
        """Run a function on every task, and yield each task with its result as soon as that is there, in any order.

        Raises BadInput when a process dies; what was given before stays.
        """


class Engine(Protocol):
    """Processes that run tasks, on this machine or on others."""

    def open(self) -> AbstractContextManager[Shelf]:
        """Start or connect the processes, and return a `Shelf` of shared arrays. Raises BadInput where that fails."""
