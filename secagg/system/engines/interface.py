"""The interface of an engine: lay arrays out where all its processes can read them, and do tasks in these.

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
"""What lies on the shelf, by name; nobody writes to it. An array is loaded when a task asks for it."""
Function = Callable[[C, Arrays, T], R]
"""Does one task. It is a function of a module, and what it takes and gives can be pickled."""


class Shelf(Protocol):
    """Arrays for the processes of one engine, as long as it is open."""

    @property
    def folder(self) -> Path | None:
        """A private folder that all processes share, and that goes with the shelf; None where they share no disk."""

    def put(self, name: str, array: NDArray[Any]) -> None:
        """Lay an array out under a name."""

    def run(self, function: Function[C, T, R], context: C, tasks: Sequence[T]) -> Iterator[tuple[T, R]]:
        """Do every task, and give each with what came of it as soon as it is there, in any order.

        Raises BadInput when a process dies; what was given before stays.
        """


class Engine(Protocol):
    """Processes, wherever they are."""

    def open(self) -> AbstractContextManager[Shelf]:
        """A shelf. Raises BadInput where the engine cannot be had."""
