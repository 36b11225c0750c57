"""The draw as state machines: every member commits to a nonce, then all who have reveal theirs.

Whoever reveals has signed the list of commitments that it was shown, and signs one list only. A draw counts with the
reveals of at least t members, all of its list, 2t > n + c: so no plan has two draws that honest members follow, one of
which somebody could choose, and of the t nonces more than c are honest ones. These are uniform, and unknown until the
list stands; no other can be changed by then. A member that does not reveal, or reveals something else, ends the plan by
name before anything is computed. To go on without it would let it choose between two draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Integers, Residues
from secagg.errors import MalformedMessage, ProtocolViolation, SessionAborted
from secagg.protection import LocalParty, Protection, Script, SessionContext
from secagg.protection.draw.messages import (
    Commitments,
    Draw,
    Nonce,
    NonceCommitment,
    NonceReveal,
    commitment_to,
    seed_of,
)
from secagg.protection.interface import CollectingStep, Transition
from secagg.protection.messages import Digest, Outcome, Return, UploadHeader
from secagg.wire import message

FOLLOWS = "the cohorts follow from nonces that their members had committed to before any was known"
VOID = "the draw is void; nothing was computed: agree on a new plan"


def quorum_of(context: SessionContext) -> int:
    """The number of members that the draw needs: t of the n in the context, the least with 2t > n + c."""
    return (len(context.identities) + context.colluders) // 2 + 1


def commit(context: SessionContext, me: LocalParty) -> Transition:
    """Draw a nonce and commit to it."""
    nonce = me.randomness.bytes(32)
    entry = NonceCommitment.of(context, me.member, me.identity, nonce)
    return Transition(NonceCommitted(nonce, entry), entry)


@message("NonceCommitted")
@dataclass(frozen=True)
class NonceCommitted:
    """The nonce is fixed; everybody's commitments are awaited."""

    awaits: ClassVar[type] = Commitments
    nonce: Nonce = field(repr=False)
    entry: NonceCommitment

    def advance(self, context: SessionContext, me: LocalParty, incoming: Commitments) -> Transition:
        """Reveal the nonce for this list, and for no other."""
        if self.entry not in incoming.entries:
            raise ProtocolViolation(SERVER_INDEX, "the commitments do not hold this member's own")
        _check_commitments(context, incoming)
        reveal = NonceReveal.of(context, me.member, me.identity, self.nonce, incoming.digest)
        return Transition(NonceRevealed(incoming.digest), reveal)


@message("NonceRevealed")
@dataclass(frozen=True)
class NonceRevealed:
    """The nonce is out; the draw is awaited."""

    awaits: ClassVar[type] = Draw
    commitments: Digest

    def advance(self, context: SessionContext, me: LocalParty, incoming: Draw) -> Transition:
        """Check the draw, and that it is made of the list that this member signed."""
        if incoming.commitments.digest != self.commitments:
            raise ProtocolViolation(SERVER_INDEX, "draws with other commitments than it has shown")
        return Transition(DrawChecked(check_draw(context, incoming)))


@message("DrawAwaited")
@dataclass(frozen=True)
class DrawAwaited:
    """An aggregator or a key holder waits for the draw."""

    awaits: ClassVar[type] = Draw

    def advance(self, context: SessionContext, me: LocalParty, incoming: Draw) -> Transition:
        """Check it."""
        return Transition(DrawChecked(check_draw(context, incoming)))


@message("DrawChecked")
@dataclass(frozen=True)
class DrawChecked:
    """The draw is known; the server's end of the session is awaited, which names its seed."""

    awaits: ClassVar[type] = Outcome
    seed: Digest

    def advance(self, context: SessionContext, me: LocalParty, incoming: Outcome) -> Transition:
        """Check that nothing else was drawn."""
        if incoming.aggregate_sha256 != self.seed:
            raise ProtocolViolation(SERVER_INDEX, "ends the draw with another seed than its nonces give")
        return Transition(self)


def wait(context: SessionContext, me: LocalParty) -> Transition:
    """A second party says nothing in a draw."""
    return Transition(DrawAwaited())


class AwaitingCommitments(CollectingStep):
    """The server collects commitments as members come."""

    awaits: ClassVar[type] = NonceCommitment
    is_joining: ClassVar[bool] = True

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        super().__init__(context.clients)
        self.enough = quorum_of(context)

    def check(self, member: int, incoming: NonceCommitment) -> None:
        """Take the sender's own, signed."""
        if incoming.member != member or not incoming.is_signed(self._context):
            raise ProtocolViolation(member, "commits to a nonce in another name, or for another plan")

    def close(self) -> tuple[AwaitingReveals, Mapping[int, Any]]:
        """Fix who is in the draw."""
        if self.is_short:
            raise SessionAborted(
                f"only {len(self.members)} members came to the draw; at least {self.enough} are needed"
            )
        shown = Commitments(tuple(self.messages[member] for member in self.members))
        return AwaitingReveals(self._context, shown), dict.fromkeys(self.members, shown)


class AwaitingReveals(CollectingStep):
    """The server collects the nonces."""

    awaits: ClassVar[type] = NonceReveal

    def __init__(self, context: SessionContext, commitments: Commitments) -> None:
        self._context = context
        self._commitments = commitments
        super().__init__(commitments.members)

    def check(self, member: int, incoming: NonceReveal) -> None:
        """Take what the sender has signed for this list; whether it is the right nonce is seen at the end."""
        if incoming.member != member or not incoming.is_signed(self._context, self._commitments.digest):
            raise ProtocolViolation(member, "reveals a nonce in another name, or for other commitments")

    def close(self) -> tuple[Drawn, Mapping[int, Any]]:
        """Nobody may be missing, and nobody may have changed its mind."""
        if missing := sorted(self.expected - set(self.members)):
            names = ", ".join(self._context.names[member] for member in missing)
            raise SessionAborted(f"{names} committed to a nonce and did not reveal it: {VOID}")
        draw = Draw(self._commitments, tuple(self.messages[member] for member in self.members))
        drawn = Drawn(draw, check_draw(self._context, draw))
        return drawn, dict.fromkeys((*self.members, *self._context.seconds), draw)


@dataclass(frozen=True)
class Drawn:
    """The end of a draw, in the place of a sum to open: of no vectors. `seed` is the schedule's."""

    draw: Draw
    seed: bytes

    @property
    def members(self) -> tuple[int, ...]:
        """The members whose nonces are in it."""
        return self.draw.members

    @property
    def vectors(self) -> tuple[int, ...]:
        """Empty: a draw has no vectors."""
        return ()

    def open(self, context: SessionContext, total: Residues) -> Integers:
        """Raise MalformedMessage: a draw has no sum."""
        raise MalformedMessage("Draw", "a draw opens nothing")


SHOWN_DRAW = Drawn.__name__
"""The step by which a member that was late for the draw fetches it; the answer is a Draw without a frame."""


def check_draw(context: SessionContext, draw: Draw) -> bytes:
    """Return the seed that a draw gives, `context` being that of all n members before it.

    Raises ProtocolViolation: the server for a draw of too few, or without the reveals that its list names; a member for
    a nonce that it signed and had not committed to.
    """
    _check_commitments(context, draw.commitments)
    if tuple(reveal.member for reveal in draw.reveals) != draw.members:
        raise ProtocolViolation(SERVER_INDEX, "draws without the nonces of all who have committed")
    for entry, reveal in zip(draw.commitments.entries, draw.reveals, strict=True):
        if not reveal.is_signed(context, draw.commitments.digest):
            raise ProtocolViolation(SERVER_INDEX, f"shows a nonce that member {reveal.member} did not sign")
        if commitment_to(context, reveal.member, reveal.nonce) != entry.commitment:
            raise ProtocolViolation(reveal.member, f"reveals another nonce than it had committed to: {VOID}")
    return seed_of(context, draw)


def _check_commitments(context: SessionContext, shown: Commitments) -> None:
    needed = quorum_of(context)
    if len(shown.entries) < needed:
        raise ProtocolViolation(SERVER_INDEX, f"draws with {len(shown.entries)} members; at least {needed} are needed")
    for entry in shown.entries:
        if not entry.is_signed(context):
            raise ProtocolViolation(SERVER_INDEX, f"shows a commitment that member {entry.member} did not sign")


DRAW = Protection(
    name="draw",
    fewest=quorum_of,
    explain=lambda context: f"{quorum_of(context)} of {len(context.identities)} members must take part in the draw",
    client=Script(
        commit, (NonceCommitted, NonceRevealed, DrawChecked), UploadHeader, "whose nonces the cohorts were drawn by"
    ),
    second=Script(wait, (DrawAwaited, DrawChecked), UploadHeader, "whose nonces the cohorts were drawn by"),
    begin_server=AwaitingCommitments,
    proves=FOLLOWS,
    reveals=Return,  # no message of a draw: nothing is ever opened
    revealed="",
    steps=(NonceCommitment, NonceReveal),
    trust="nobody: no promise rests on the draw",
    sum_trust="nobody: a draw opens no sum",
    visits="one visit, with all others",
    absence="who does not come is drawn like everybody else; who does not reveal ends it",
)
"""The session before the first round of a plan with cohorts: no vector is in it, whatever protects those of sums."""
