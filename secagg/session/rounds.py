"""The rounds of a plan in order, one session each, and the return of a client that missed some of them.

# How a client returns: others' signatures on a round's opening stand for the rounds that it has missed

Every party that has checked the end of a round acknowledges it, and names in that the opening that follows from it for
this plan. Acknowledgements of t other clients (`witnesses_of`) make an opening as certain to who was away as
the quorum of a masked sum makes a set of survivors: of any t at most c lie, any two sets of t share an honest client,
and no honest one acknowledges two ends of one session. The server can keep them back; it cannot make them up. Where
helpers confirm outcomes, their signatures alone count (`Protection.confirmers`): a client may have acknowledged an end
that is never confirmed.

In a plan with cohorts who is not drawn is away. It returns in the next round that it is drawn for, on the word of t
members of the cohort before it, 2t > k + c: all c colluders may be in that. At the end the last cohort signs the result
for all others in the same way, as what would open a round after the last.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation
from secagg.plan_facts.facts import may_return, witnesses_of
from secagg.protection.draw import Draw
from secagg.protection.messages import Acknowledgement, Attachment, Confirmation, Outcome, Return, RoundOpening
from secagg.session.round_setup import RoundSetup
from secagg.transcript import FrameBody, open_frame, payload_of, peek

LAST = bytes(32)
"""Stands in an Acknowledgement for the next round's opening if there is none.

There is none after a draw, nor after the last round of a plan without cohorts.
"""


class Ended(Protocol):
    """Interface of a finished session's result: the server's `Outcome` message, or a `SumResult` of the opened sum."""

    @property
    def members(self) -> tuple[int, ...]:
        """Roster indices of the clients in the sum."""

    @property
    def aggregate_sha256(self) -> bytes:
        """The SHA-256 of the opened sum."""

    @property
    def opens(self) -> Attachment | None:
        """Digest and length (Attachment) of the next round's broadcast; None after the last round."""


E = TypeVar("E", bound=Ended)


class Rounds(Generic[E]):
    """The sessions of a plan in order: iteration yields the next one after `ended` was called for the one before.

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
        """End the current session; prepare the next from the bytes of its `broadcast`, or from the `draw` of cohorts.

        The next round is decoded from these bytes, though whoever opened the sum has computed it: every party begins at
        them, and so does this one after a restart, so that bytes which say something else show at once. Raises what
        `RoundSetup.following` raises, or `RoundSetup.with_draw`.
        """
        self.done.append((self._open, how))
        rejoining, self._rejoining = self._rejoining, set()
        self.dropped_out = (self.dropped_out | set(self._open.context.clients)) - set(how.members) - rejoining
        self._due = following_setup(self._open, how, broadcast) if draw is None else self._open.with_draw(draw)

    def request_rejoin(self, client: int) -> None:
        """Let a client that was away rejoin: parties wait for it in the current round and in the next one."""
        self._rejoining.add(client)
        self.dropped_out.discard(client)

    def go_on_at(self, setup: RoundSetup) -> None:
        """Continue with the later round `setup`, as this party has missed the rounds before it."""
        self._due = setup

    @property
    def last(self) -> E:
        """The result (Outcome or SumResult) of the latest finished session."""
        return self.done[-1][1]


def opening_after(setup: RoundSetup, how: Ended) -> RoundOpening | None:
    """Return the message (RoundOpening) that begins the next round; None after the last round."""
    if how.opens is None:
        return None
    return RoundOpening(setup.number + 1, setup.context.round_digest, how.aggregate_sha256, how.opens)


def following_setup(setup: RoundSetup, how: Ended, broadcast: bytes = b"") -> RoundSetup | None:
    """Return the round that follows a finished session, begun by the bytes `broadcast`; None after the last round."""
    opening = opening_after(setup, how)
    return None if opening is None else setup.following(opening, broadcast)


def acknowledgement_of(setup: RoundSetup, how: Outcome) -> Acknowledgement:
    """Return the message with which a party confirms a checked outcome: its sum, and the next round, if any."""
    opening = opening_after(setup, how) or end_after(setup, how)
    opens = LAST if opening is None else opening.statement(setup.plan.digest)
    return Acknowledgement(how.aggregate_sha256, opens, how.digest(setup.context.round_digest))


def check_confirmation(setup: RoundSetup, outcome: Outcome, confirmation: Confirmation) -> None:
    """Check that enough parties of this round have acknowledged this very outcome (`Protection.confirmers`).

    Raises MalformedMessage or ProtocolViolation (the server).
    """
    _, enough = setup.protocol.confirmers(setup.context)
    expected = acknowledgement_of(setup, outcome)
    signers = [confirmer_of(setup, frame, expected) for frame in confirmation.acknowledgements]
    if signers != sorted(set(signers)):
        raise ProtocolViolation(SERVER_INDEX, "shows one party's acknowledgement twice, or out of order")
    if len(signers) < enough:
        raise ProtocolViolation(SERVER_INDEX, f"shows {len(signers)} of the {enough} acknowledgements of one outcome")


def confirmer_of(setup: RoundSetup, frame: bytes, expected: Acknowledgement) -> int:
    """Return the party that has signed the `expected` acknowledgement in this frame, if its word counts.

    Raises MalformedMessage or ProtocolViolation (the server).
    """
    confirmers, _ = setup.protocol.confirmers(setup.context)
    body = _open_acknowledgement(setup, frame, setup.context.round_digest, confirmers)
    if payload_of(body, Acknowledgement) != expected:
        raise ProtocolViolation(SERVER_INDEX, f"shows that {setup.roster.name(body.sender)} has another outcome")
    return body.sender


def end_after(setup: RoundSetup, outcome: Outcome) -> RoundOpening | None:
    """Return the message that hands the result to clients outside the last cohort; None before the last round."""
    if not setup.seed or not setup.is_last or not outcome.head:
        return None
    return RoundOpening(setup.number + 1, setup.context.round_digest, outcome.aggregate_sha256, outcome.head[0])


def outcome_of_draw(members: tuple[int, ...], seed: bytes) -> Outcome:
    """Return the Outcome of a draw of cohorts, with the random seed in place of a sum's digest, and without files."""
    return Outcome(members, seed, bytes(32))


def check_outcome_of_draw(outcome: Outcome) -> None:
    """Raise ProtocolViolation unless the outcome of a draw of cohorts holds nothing but members and seed."""
    if outcome != outcome_of_draw(outcome.members, outcome.aggregate_sha256):
        raise ProtocolViolation(SERVER_INDEX, "ends the draw with more than its seed")


def show_return(setup: RoundSetup, acknowledged: Mapping[int, bytes], client: int) -> Return | None:
    """Build the message (`Return`) that lets an absent client join this round; None if it is not drawn for it.

    None too if fewer other clients than needed have signed.
    `acknowledged` are the signed acknowledgements of the session before, by client.
    """
    if setup.opening is None or client not in setup.context.identities:
        return None
    return _signed_by_enough(setup, setup.opening, acknowledged, client)


def show_end(last: RoundSetup, outcome: Outcome, acknowledged: Mapping[int, bytes], client: int) -> Return | None:
    """Build the message (`Return`) that brings the signed result to a client outside the last cohort.

    None without cohorts, or if too few have signed.
    """
    end = end_after(last, outcome)
    return None if end is None else _signed_by_enough(last, end, acknowledged, client)


def _signed_by_enough(
    setup: RoundSetup, opening: RoundOpening, acknowledged: Mapping[int, bytes], client: int
) -> Return | None:
    signers, enough = _witnesses(setup, opening.number)
    others = [acknowledged[each] for each in sorted(signers) if each in acknowledged and each != client]
    return Return(opening, tuple(others[:enough])) if len(others) >= enough else None


def follow_return(
    first: RoundSetup, shown: Return, client: int | None, after: int, broadcast: bytes = b""
) -> RoundSetup:
    """Check the message that lets a client rejoin (`Return`); return the round in which the client rejoins.

    What it sums is known with the `broadcast`. Raises MalformedMessage or ProtocolViolation (the server) for a round
    that is not a later one of the plan, a plan that nobody may return to, for fewer than t valid signatures of distinct
    others in the round before, and for a broadcast that they have not signed.
    """
    number = shown.opening.number
    if not may_return(first.facts):
        raise ProtocolViolation(SERVER_INDEX, "shows a way back into a plan that has none")
    if not after < number <= first.rounds + bool(first.seed):
        raise ProtocolViolation(SERVER_INDEX, f"shows a way back into round {number}, after round {after}")
    if client is not None and client not in first.cohort(number):
        raise ProtocolViolation(SERVER_INDEX, f"shows a way into round {number}, for which this client is not drawn")
    signers = [_signer(first, shown, frame) for frame in shown.acknowledgements]
    if len(set(signers)) < len(signers):
        raise ProtocolViolation(SERVER_INDEX, "shows one party's signature twice")
    others, (_, enough) = set(signers) - {client}, _witnesses(first, number)
    if len(others) < enough:
        said = f"shows {len(others)} signatures of others on what opened round {number}"
        raise ProtocolViolation(SERVER_INDEX, f"{said}, fewer than {enough}")
    return first.at(shown.opening, broadcast, shown)


def outcome_at_end(setup: RoundSetup, head: bytes) -> Outcome:
    """Return the Outcome for a client outside the last cohort; its `members` are the clients that signed the result.

    They have checked these very bytes, `head`. Raises ProtocolViolation (the server) for what can be no result.
    """
    if setup.rejoin is None or not setup.is_end:
        raise ProtocolViolation(SERVER_INDEX, "shows no result")
    opening = setup.rejoin.opening
    try:
        artifact, _ = setup.method.read_artifact(head)
    except BadInput as error:
        raise ProtocolViolation(SERVER_INDEX, f"the result is not the plan's: {error.problem}") from None
    signers = tuple(sorted(peek(frame).sender for frame in setup.rejoin.acknowledgements))
    return Outcome(signers, opening.aggregate_sha256, bytes.fromhex(artifact.digest), (opening.broadcast,))


def _witnesses(first: RoundSetup, number: int) -> tuple[frozenset[int], int]:
    """Return the parties whose signatures stand for what opened round `number`, and how many of them it takes.

    Helpers, where they confirm outcomes: a client may then have acknowledged one that is never confirmed.
    """
    confirmers, enough = first.protection.confirmers(first.context)
    if confirmers <= first.context.helpers.keys():
        return confirmers, enough
    return frozenset(first.cohort(number - 1)), witnesses_of(first.facts)


def _signer(first: RoundSetup, shown: Return, frame: bytes) -> int:
    """Return the party that signed this acknowledgement. Raises MalformedMessage or ProtocolViolation."""
    opening = shown.opening
    signers, _ = _witnesses(first, opening.number)
    body = _open_acknowledgement(first, frame, opening.previous, signers)
    told = payload_of(body, Acknowledgement)
    if (told.aggregate_sha256, told.opens) != (opening.aggregate_sha256, opening.statement(first.plan.digest)):
        raise ProtocolViolation(SERVER_INDEX, f"shows what {first.roster.name(body.sender)} signed of something else")
    return body.sender


def _open_acknowledgement(setup: RoundSetup, frame: bytes, round_digest: bytes, signers: Container[int]) -> FrameBody:
    """Open a frame that one of the `signers` sent to the server in this round; the server shows it to others."""
    try:
        sender = peek(frame).sender
        if sender in signers:
            return open_frame(frame, setup.roster, round_digest, sender, SERVER_INDEX)
    except (MalformedMessage, ProtocolViolation) as error:
        raise ProtocolViolation(SERVER_INDEX, f"shows what is not signed: {setup.roster.name_culprit(error)}") from None
    raise ProtocolViolation(SERVER_INDEX, f"shows a signature of party {sender}, whose word does not count there")
