"""Rounds of a plan in order: one session for each, until an outcome opens none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import ProtocolViolation
from secagg.protection.draw import Draw
from secagg.protection.messages import Acknowledgement, Attachment, Outcome, RoundOpening
from secagg.session.round_setup import RoundSetup

LAST = bytes(32)
"""What is acknowledged to be opened by the last round of a plan without cohorts, and by a draw."""


class Ended(Protocol):
    """End of a session: an `Outcome` from the server, or a `SumResult` where the sum was opened."""

    @property
    def members(self) -> tuple[int, ...]:
        """The clients in the sum."""
        ...

    @property
    def aggregate_sha256(self) -> bytes:
        """The digest of the opened sum."""
        ...

    @property
    def opens(self) -> Attachment | None:
        """Attachment that names the broadcast of the next round; None after the last."""
        ...


E = TypeVar("E", bound=Ended)


class Rounds(Generic[E]):
    """The sessions of a plan in order, each as soon as the one before has `ended`; the iteration stops where none has.

    `dropped_out` are the clients that were not in the latest sum that they could be in: parties do not wait for them
    until they ask to rejoin. It is a new set after each session, which changes while its session is open.

    So it may be taken up again, as by a server that waits for outcomes:

        for setup in rounds:
            rounds.ended(*carry_out(setup))
    """

    def __init__(self, first: RoundSetup) -> None:
        self._due: RoundSetup | None = first
        self._open = first
        self.done: list[tuple[RoundSetup, E]] = []
        self.dropped_out: set[int] = set()
        self._rejoining: set[int] = set()

    def __iter__(self) -> Iterator[RoundSetup]:
        while (setup := self._due) is not None:
            self._open, self._due = setup, None
            yield setup

    def ended(self, how: E, broadcast: bytes = b"", draw: Draw | None = None) -> None:
        """End the open session; `broadcast` is what opens the next, where that is at hand, `draw` that of the cohorts.

        The next round is decoded from these bytes, though whoever opened the sum has computed it: every party begins at
        them, and so does this one after a restart, so that bytes which say something else show at once. Raises what
        `RoundSetup.following` raises, or `RoundSetup.with_draw`.
        """
        self.done.append((self._open, how))
        rejoining, self._rejoining = self._rejoining, set()
        self.dropped_out = (self.dropped_out | set(self._open.context.clients)) - set(how.members) - rejoining
        self._due = following_setup(self._open, how, broadcast) if draw is None else self._open.with_draw(draw)

    def request_rejoin(self, client: int) -> None:
        """A client that was away asks to be let in: it is waited for in the round that is open, and in the next one."""
        self._rejoining.add(client)
        self.dropped_out.discard(client)

    def go_on_at(self, setup: RoundSetup) -> None:
        """The next session is a later one: this party has missed those between."""
        self._due = setup

    @property
    def last(self) -> E:
        """End of the latest session."""
        return self.done[-1][1]


def opening_after(setup: RoundSetup, how: Ended) -> RoundOpening | None:
    """Opening of the next round; None after the last."""
    if how.opens is None:
        return None
    return RoundOpening(setup.number + 1, setup.context.round_digest, how.aggregate_sha256, how.opens)


def following_setup(setup: RoundSetup, how: Ended, broadcast: bytes = b"") -> RoundSetup | None:
    """The session that an end opens; None after the last.

    What it sums is known with the `broadcast` that opens it. Raises what `RoundSetup.following` raises.
    """
    opening = opening_after(setup, how)
    return None if opening is None else setup.following(opening, broadcast)


def acknowledgement_of(setup: RoundSetup, how: Outcome) -> Acknowledgement:
    """Acknowledgement of a checked end: the sum, and what it opens.

    So many clients say so of a round that one that was away may believe them (`secagg.session.rejoin`).
    """
    opening = opening_after(setup, how) or end_after(setup, how)
    return Acknowledgement(how.aggregate_sha256, LAST if opening is None else opening.statement(setup.plan.digest))


def end_after(setup: RoundSetup, outcome: Outcome) -> RoundOpening | None:
    """Opening of the end of a plan with cohorts: the result, for those that were not in the last round; else None."""
    if not setup.seed or not setup.is_last or not outcome.head:
        return None
    return RoundOpening(setup.number + 1, setup.context.round_digest, outcome.aggregate_sha256, outcome.head[0])


NOTHING = bytes(32)


def outcome_of_draw(members: tuple[int, ...], seed: bytes) -> Outcome:
    """Outcome of a draw: its seed in the place of a sum, and nothing else."""
    return Outcome(members, seed, NOTHING)


def check_outcome_of_draw(outcome: Outcome) -> None:
    """Raise ProtocolViolation for an end of the draw that shows anything but a seed."""
    if outcome != outcome_of_draw(outcome.members, outcome.aggregate_sha256):
        raise ProtocolViolation(SERVER_INDEX, "ends the draw with more than its seed")
