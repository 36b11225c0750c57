"""The walk through a plan: one session for each round, until an outcome opens none. Whoever walks does the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from secagg.parties.setup import SessionSetup
from secagg.protection.messages import RoundOpening


class Ended(Protocol):
    """How a session ended: an `Outcome` as the server tells it, or a `SumResult` where the sum was opened."""

    @property
    def members(self) -> tuple[int, ...]:
        """The clients in the sum."""
        ...

    @property
    def aggregate_sha256(self) -> bytes:
        """The digest of the opened sum."""
        ...

    @property
    def broadcast(self) -> bytes:
        """What opens the next round; empty after the last."""
        ...


E = TypeVar("E", bound=Ended)


class Rounds(Generic[E]):
    """The sessions of a plan in order, each as soon as the one before has `ended`; the iteration stops where none has.

    So it may be taken up again, as by a server that waits for outcomes:

        for setup in rounds:
            rounds.ended(carry_out(setup))
    """

    def __init__(self, first: SessionSetup) -> None:
        self._first = first
        self._due: SessionSetup | None = first
        self._open = first
        self.done: list[tuple[SessionSetup, E]] = []

    def __iter__(self) -> Iterator[SessionSetup]:
        while (setup := self._due) is not None:
            self._open, self._due = setup, None
            yield setup

    def ended(self, how: E) -> None:
        """The session that is open has come to its end. Raises what `SessionSetup.following` raises."""
        self.done.append((self._open, how))
        self._due = following_setup(self._open, how)

    @property
    def last(self) -> E:
        """How the latest session ended."""
        return self.done[-1][1]

    @property
    def gone(self) -> frozenset[int]:
        """The clients that the latest sum left behind: they take part no more."""
        return frozenset(self._first.context.clients) - frozenset(self.last.members) if self.done else frozenset()


def following_setup(setup: SessionSetup, how: Ended) -> SessionSetup | None:
    """The session that an end opens; None after the last. Raises what `SessionSetup.following` raises."""
    if not how.broadcast:
        return None
    return setup.following(RoundOpening(setup.number + 1, setup.context.plan, how.aggregate_sha256, how.broadcast))
