"""Client sampling: each round's clients follow from nonces that all members first commit to and then reveal.

Whoever reveals has signed the list of commitments that it was shown, and signs one list only. A draw counts with the
reveals of at least t members, all of its list, 2t > n + c: so no plan has two draws that honest members follow, one of
which somebody could choose, and of the t nonces more than c are honest ones. These are uniform, and unknown until the
list stands; no other can be changed by then. A missing reveal, or one of another nonce, ends the plan before anything
is computed. To go on without it would let its member choose between two draws.

Whether a member has kept its reveal back or the server has dropped it nobody can tell: the end says that the server has
none. A member with the server's signed acceptance (`Taken`) shows that the server lies.

# The schedule: k of n members for every round, from one public seed

Fresh permutations of the members are laid one behind the other and cut into slices of k. The first R·k places hold
⌊R·k/n⌋ whole permutations and a part of one more, and a permutation holds everybody once: so everybody is drawn
⌊R·k/n⌋ or ⌈R·k/n⌉ times. A slice spans at most two permutations, as k ≤ n. Where it does, the second one begins with
members that are not in the slice yet (there are at least n − k + what is missing): nobody is in a slice twice, and the
order within a permutation changes no number above.

No promise of privacy rests on the draw. It could be known, or chosen by an adversary: what is accounted is the most
rounds that a member can be in, with all c colluders in every cohort, and nothing is claimed for a member's being drawn
by chance (amplification by sampling). Balance and nonces keep the work even and training honest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, ClassVar

from secagg.agreement.roster import MAX_CLIENTS, SERVER_INDEX
from secagg.crypto.labels import digest, labelled, number
from secagg.crypto.signatures import SigningKey, is_signed
from secagg.encoding import Integers, Residues
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation, SessionAborted
from secagg.protection import LocalParty, Protection, Script, SessionContext
from secagg.protection.interface import Acceptance, CollectingStep, Outgoing, Transition, quorum_of
from secagg.protection.messages import Digest, Entries, Index, Outcome, Return, Signature, UploadHeader
from secagg.wire import Items, Length, message

_WORD = 8
_BLOCK = 512
"""The number of the stream's words that are computed at a time."""


def most_rounds(members: int, size: int, rounds: int) -> int:
    """Return the most of the first `rounds` rounds that one member can be drawn for: ⌈rounds·size/members⌉."""
    return -(-rounds * size // members)


@lru_cache(maxsize=8)
def cohorts(seed: bytes, members: int, size: int, rounds: int) -> tuple[tuple[int, ...], ...]:
    """Return each round's cohort (its clients): `size` of the members 1…`members`, drawn by `seed`, in ascending order.

    Raises BadInput for a cohort that so many members cannot make.
    """
    if not 1 <= size <= members:
        raise BadInput(f"a cohort of {size} cannot be drawn from {members} members")
    words, waiting, drawn = _words(seed), list[int](), list[tuple[int, ...]]()
    for _ in range(rounds):
        chosen, waiting = waiting[:size], waiting[size:]
        if missing := size - len(chosen):
            fresh, known = _permuted(members, words), set(chosen)
            first = [each for each in fresh if each not in known][:missing]
            known = set(first)
            chosen, waiting = chosen + first, [each for each in fresh if each not in known]
        drawn.append(tuple(sorted(chosen)))
    return tuple(drawn)


def _permuted(members: int, words: Iterator[int]) -> list[int]:
    """Return 1…`members` in random order by Fisher and Yates's shuffle (Knuth, TAOCP, 3.4.2, algorithm P)."""
    order = list(range(1, members + 1))
    for place in range(members - 1, 0, -1):
        largest = (1 << 8 * _WORD) // (place + 1) * (place + 1)  # words beyond are passed over
        other = next(word for word in words if word < largest) % (place + 1)
        order[place], order[other] = order[other], order[place]
    return order


def _words(seed: bytes) -> Iterator[int]:
    """Yield the public stream: SHAKE-256 of the labelled seed and a block's number, as little-endian 64-bit words."""
    block = 0
    while True:
        content = hashlib.shake_256(labelled("cohorts", seed, number(block))).digest(_WORD * _BLOCK)
        for start in range(0, len(content), _WORD):
            yield int.from_bytes(content[start : start + _WORD], "little")
        block += 1


Nonce = Annotated[bytes, Length(32)]
_UNSIGNED = bytes(64)


@message("NonceCommitment")
@dataclass(frozen=True)
class NonceCommitment:
    """A member's signed commitment to the random nonce that it contributes to client sampling."""

    member: Index
    commitment: Digest
    signature: Signature

    @classmethod
    def of(cls, context: SessionContext, member: int, identity: SigningKey, nonce: bytes) -> NonceCommitment:
        """Return the signed commitment of `member` to `nonce`, which must be uniform, so that its hash hides it."""
        bare = cls(member, commitment_to(context, member, nonce), _UNSIGNED)
        return replace(bare, signature=identity.sign("nonce commitment", *bare._parts(context)))

    def is_signed(self, context: SessionContext) -> bool:
        """Return whether the member signed this commitment for this plan."""
        identity = context.identities.get(self.member, b"")
        return is_signed(identity, self.signature, "nonce commitment", *self._parts(context))

    def _parts(self, context: SessionContext) -> tuple[bytes, ...]:
        return *_binding(context), number(self.member), self.commitment


@message("Commitments")
@dataclass(frozen=True)
class Commitments(Entries):
    """The nonce commitments of all members that take part in one draw of the rounds' clients."""

    entries: Annotated[tuple[NonceCommitment, ...], Items(1, MAX_CLIENTS, ascending="member")]


@message("NonceReveal")
@dataclass(frozen=True)
class NonceReveal:
    """A member's revealed nonce, signed together with the one list of commitments that it is revealed for."""

    member: Index
    nonce: Nonce
    signature: Signature

    @classmethod
    def of(
        cls, context: SessionContext, member: int, identity: SigningKey, nonce: bytes, commitments: bytes
    ) -> NonceReveal:
        """Return the signed reveal of a member's nonce; `commitments` is the digest of all members' commitments."""
        bare = cls(member, nonce, _UNSIGNED)
        return replace(bare, signature=identity.sign("nonce reveal", *bare._parts(context, commitments)))

    def is_signed(self, context: SessionContext, commitments: bytes) -> bool:
        """Return whether the member signed this nonce for the list of commitments that has the digest `commitments`."""
        identity = context.identities.get(self.member, b"")
        return is_signed(identity, self.signature, "nonce reveal", *self._parts(context, commitments))

    def _parts(self, context: SessionContext, commitments: bytes) -> tuple[bytes, ...]:
        return *_binding(context), number(self.member), self.nonce, commitments


@message("Draw")
@dataclass(frozen=True)
class Draw:
    """The public record of client sampling: all commitments and nonces. Plan and roster suffice to check it."""

    commitments: Commitments
    reveals: Annotated[tuple[NonceReveal, ...], Items(1, MAX_CLIENTS, ascending="member")]

    @property
    def members(self) -> tuple[int, ...]:
        """The members that contributed nonces to client sampling, in ascending order."""
        return self.commitments.members


def commitment_to(context: SessionContext, member: int, nonce: bytes) -> bytes:
    """Return the hash that commits a member to a nonce."""
    return digest("nonce", *_binding(context), number(member), nonce)


def seed_of(context: SessionContext, draw: Draw) -> bytes:
    """Return the 32-byte seed of client sampling, from plan, session, roster, drawing members and their nonces alone.

    No signature of a reveal is in it: who reveals last could choose among several.
    """
    nonces = (reveal.nonce for reveal in draw.reveals)
    return digest("seed of the cohorts", *_binding(context), draw.commitments.digest, *nonces)


def _binding(context: SessionContext) -> tuple[bytes, ...]:
    return context.round_digest, context.session_id, context.roster


FOLLOWS = "the cohorts follow from nonces that their members had committed to before any was known"
_NO_REVEAL = "the server has no reveal of "
VOID = "the draw is void; nothing was computed: agree on a new plan"


def denies_reveal(reason: str, name: str) -> bool:
    """Return whether the server ends a draw for the reason that it has no reveal of the member of this name."""
    listed, end, _ = reason.removeprefix(_NO_REVEAL).partition(": ")
    names = listed.split(", ")
    whole = names if end else names[:-1]  # of a reason that was cut off, the last name may be a part of another
    return reason.startswith(_NO_REVEAL) and name in whole


def commit(context: SessionContext, me: LocalParty) -> Transition:
    """Generate a random nonce for client sampling and send a signed commitment to it."""
    nonce = me.randomness.bytes(32)
    entry = NonceCommitment.of(context, me.member, me.identity, nonce)
    return Transition(NonceCommitted(nonce, entry), entry)


@message("NonceCommitted")
@dataclass(frozen=True)
class NonceCommitted:
    """A member's state after committing to its nonce, while it waits for all members' commitments."""

    awaits: ClassVar[type] = Commitments
    nonce: Nonce = field(repr=False)
    entry: NonceCommitment

    def advance(self, context: SessionContext, me: LocalParty, incoming: Commitments) -> Transition:
        """Check the list of all commitments and reveal the nonce, with a signature for this list alone."""
        if self.entry not in incoming.entries:
            raise ProtocolViolation(SERVER_INDEX, "the commitments do not hold this member's own")
        _check_commitments(context, incoming)
        reveal = NonceReveal.of(context, me.member, me.identity, self.nonce, incoming.digest)
        return Transition(NonceRevealed(incoming.digest), reveal)


@message("NonceRevealed")
@dataclass(frozen=True)
class NonceRevealed:
    """A member's state after revealing its nonce, while it waits for all members' commitments and nonces (the draw)."""

    awaits: ClassVar[type] = Draw
    commitments: Digest

    def advance(self, context: SessionContext, me: LocalParty, incoming: Draw) -> Transition:
        """Check the draw, and that it holds the list of commitments for which this member revealed its nonce."""
        if incoming.commitments.digest != self.commitments:
            raise ProtocolViolation(SERVER_INDEX, "draws with other commitments than it has shown")
        return Transition(DrawChecked(check_draw(context, incoming)))


@message("DrawAwaited")
@dataclass(frozen=True)
class DrawAwaited:
    """The state of a helper (aggregator or key holder) waiting for all members' commitments and nonces (the draw)."""

    awaits: ClassVar[type] = Draw

    def advance(self, context: SessionContext, me: LocalParty, incoming: Draw) -> Transition:
        """Check all members' signatures, commitments and nonces with `check_draw`."""
        return Transition(DrawChecked(check_draw(context, incoming)))


@message("DrawChecked")
@dataclass(frozen=True)
class DrawChecked:
    """A party's state after checking the draw, while it waits for the server's closing message with the draw's seed."""

    awaits: ClassVar[type] = Outcome
    seed: Digest

    def advance(self, context: SessionContext, me: LocalParty, incoming: Outcome) -> Transition:
        """Check that the server's closing message has the seed of the draw that this party checked."""
        if incoming.aggregate_sha256 != self.seed:
            raise ProtocolViolation(SERVER_INDEX, "ends the draw with another seed than its nonces give")
        return Transition(self)


class AwaitingCommitments(CollectingStep[NonceCommitment]):
    """The server's step in which it collects nonce commitments while members join the draw."""

    awaits: ClassVar[type] = NonceCommitment
    is_joining: ClassVar[bool] = True

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        super().__init__(context.clients, quorum_of(context))

    def check(self, member: int, incoming: NonceCommitment) -> None:
        if incoming.member != member or not incoming.is_signed(self._context):
            raise ProtocolViolation(member, "commits to a nonce in another name, or for another plan")

    def close(self) -> tuple[_AwaitingReveals, Outgoing]:
        """Fix the members of the draw and send each the list of all commitments. Raises SessionAborted for too few."""
        if self.is_short:
            raise SessionAborted(
                f"only {len(self.members)} members came to the draw; at least {self.enough} are needed"
            )
        shown = Commitments(tuple(self.messages[member] for member in self.members))
        return _AwaitingReveals(self._context, shown), dict.fromkeys(self.members, shown)


class _AwaitingReveals(CollectingStep[NonceReveal]):
    """The server's step in which it collects the nonces."""

    awaits: ClassVar[type] = NonceReveal

    def __init__(self, context: SessionContext, commitments: Commitments) -> None:
        self._context = context
        super().__init__(commitments.members)
        self._commitments = commitments

    def check(self, member: int, incoming: NonceReveal) -> None:
        """Check that the sender signed the nonce for this list; `close` checks that the nonce is the right one."""
        if incoming.member != member or not incoming.is_signed(self._context, self._commitments.digest):
            raise ProtocolViolation(member, "reveals a nonce in another name, or for other commitments")

    def close(self) -> tuple[Drawn, Outgoing]:
        """Make the draw. Raises if a member is missing or has changed its nonce."""
        if missing := sorted(self.expected - set(self.members)):
            names = ", ".join(self._context.names[member] for member in missing)
            raise SessionAborted(f"{_NO_REVEAL}{names}: {VOID}")
        draw = Draw(self._commitments, tuple(self.messages[member] for member in self.members))
        drawn = Drawn(draw, check_draw(self._context, draw))
        return drawn, dict.fromkeys((*self.members, *self._context.helpers), draw)


@dataclass(frozen=True)
class Drawn:
    """The server's result of client sampling: the draw and its seed, with no vectors and no sum to open."""

    vectors: ClassVar[tuple[int, ...]] = ()
    draw: Draw
    seed: bytes

    @property
    def members(self) -> tuple[int, ...]:
        """The members that contributed nonces to client sampling."""
        return self.draw.members

    def open(self, context: SessionContext, total: Residues) -> Integers:
        """Raise MalformedMessage, since client sampling has no sum to open."""
        raise MalformedMessage("Draw", "a draw opens nothing")


SHOWN_DRAW = Drawn.__name__
"""The step by which a member that was late for the draw fetches it; a Draw without a frame is the answer."""


def check_draw(context: SessionContext, draw: Draw) -> bytes:
    """Check a draw of clients and return its seed; `context` is the session's, with all n members and not a cohort.

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
    helper=Script(
        lambda context, me: Transition(DrawAwaited()),
        (DrawAwaited, DrawChecked),
        UploadHeader,
        "whose nonces the cohorts were drawn by",
    ),
    begin_server=AwaitingCommitments,
    proves=FOLLOWS,
    reveals=Return,  # no message of a draw: nothing is ever opened
    revealed="",
    server_steps=(NonceCommitment, NonceReveal),
    steps=(NonceCommitment, NonceReveal),
    trust="nobody: no promise rests on the draw",
    sum_trust="nobody: a draw opens no sum",
    visits="one visit, with all others",
    absence="who does not come is drawn like everybody else; who does not reveal ends it",
    acceptance=Acceptance(NonceReveal, (Draw, Outcome), denies_reveal),
)
"""The protection of the session before the first round of a plan with cohorts, in which no vector is sent."""
