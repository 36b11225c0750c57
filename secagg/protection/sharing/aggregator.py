"""The aggregator of the shared protection: it takes shares, agrees with the others on the uploads, and adds them up.

    Collecting → SetCommitted → SetRevealed → SetAgreed → SumCommitted → SumRevealed

The aggregators agree on one set: all commit, then all reveal, then the lists are intersected. Nobody can choose its
list after seeing another's, and lists shown to two aggregators that differ are found out because each signs the
commitments that it has seen.

From the agreed set each aggregator makes its share of the sum: it adds, commits and reveals. The server adds these
shares as it adds all vectors (`secagg.session.staging`), and opens the sum. An aggregator that reveals another sum
share than it committed to is found out. One that commits to a wrong sum share, or leaves its noise out, is not: its
share is uniform to everyone else. One that keeps its share back is named, and there is no sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, ClassVar

import numpy as np

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.envelopes import EnvelopeKey
from secagg.crypto.sealing import SealBroken
from secagg.crypto.stream import MaskStream
from secagg.encoding import Integers
from secagg.errors import BadInput, ProtocolViolation, SessionAborted
from secagg.protection.interface import LocalParty, SessionContext, Transition
from secagg.protection.messages import Digest, Members, Outcome
from secagg.protection.proven_bits import Blindings, check_proofs
from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.context import FIRST, SharedContext, fewest, sum_share_bytes
from secagg.protection.sharing.derivations import ACCEPTED, KEY, SUM, check_pledges, open_share
from secagg.protection.sharing.messages import (
    AcceptedUploads,
    AggregatorPledge,
    ManifestConflict,
    Manifests,
    Pledges,
    SessionKeys,
    SetLists,
    SetPledges,
    ShareManifest,
    ShareReceipt,
    SumPledges,
    SumShare,
)
from secagg.wire import Length, message

Secret = Annotated[bytes, Length(32)]


def begin_aggregator(context: SessionContext, me: LocalParty) -> Transition:
    """Generate and publish this aggregator's session key. Raises BadInput when `me` is not one of the aggregators."""
    context = SharedContext.of(context)
    if context.helpers.get(me.member) != me.identity.public:
        raise BadInput(f"this identity key is not that of an aggregator with index {me.member}")
    fewest(context)
    key = EnvelopeKey.generate(me.randomness)
    pledge = bind.sign_pledge(context, me.identity, context.number_of(me.member), KEY, key.public)
    return Transition(Collecting(key.private_bytes(), ()), SessionKeys((pledge,)))


@message("Collecting")
@dataclass(frozen=True)
class Collecting:
    """The aggregator's state in which it accepts uploads under its published session key; the caller stores shares."""

    opened_by: ClassVar[type | None] = SessionKeys
    secret: Annotated[bytes, Length(32)] = field(repr=False)
    manifests: Manifests

    def accept(self, context: SharedContext, me: LocalParty, manifest: ShareManifest, sealed: bytes) -> Collecting:
        """Accept one client's signed list of share digests and its sealed share; a repetition changes nothing.

        The caller stores `sealed`, then the state, then sends the receipt.
        Raises ProtocolViolation (the client) for what it did not sign, a second, different upload, or a share that is
        not the signed one or cannot be opened here. Whether all aggregators' shares add up to a sensible vector
        cannot be seen by anyone.
        """
        number = context.number_of(me.member)
        if not bind.manifest_is_signed(context, manifest):
            raise ProtocolViolation(manifest.client, "did not sign the manifest for this session's aggregators")
        known = self._of(manifest.client)
        if known is not None and known.digests != manifest.digests:
            raise ProtocolViolation(manifest.client, "sent a second, different upload")
        if hashlib.sha256(sealed).digest() != manifest.digests[number - 1]:
            raise ProtocolViolation(manifest.client, "its share is not the one that it signed")
        if known is not None:
            return self
        try:
            share = open_share(context, EnvelopeKey.from_bytes(self.secret), manifest.client, number, sealed)
        except SealBroken:
            raise ProtocolViolation(manifest.client, "its share is not sealed to this aggregator and session") from None
        if number == FIRST:
            check_proofs(context, manifest.client, share.proofs, manifest.client)
        manifests = sorted((*self.manifests, manifest), key=lambda each: each.client)
        return replace(self, manifests=tuple(manifests))

    def receipt(self, context: SharedContext, me: LocalParty, client: int) -> ShareReceipt:
        """Return the receipt for an accepted upload; the same each time. Raises ProtocolViolation if there is none."""
        known = self._of(client)
        if known is None:
            raise ProtocolViolation(client, "has uploaded nothing")
        return bind.sign_receipt(context, me.identity, context.number_of(me.member), known)

    def work(
        self, context: SharedContext, me: LocalParty, kept: Callable[[int], bytes], noise: Callable[[], Integers] | None
    ) -> Transition:
        """Close the set of accepted uploads at once, since no other party is waited for."""
        return self.close(context, me)

    def close(self, context: SharedContext, me: LocalParty) -> Transition:
        """Fix the accepted uploads for ever and commit to them. Raises SessionAborted below the minimum of clients."""
        if len(self.manifests) < (needed := fewest(context)):
            raise SessionAborted(f"only {len(self.manifests)} clients uploaded; at least {needed} are needed")
        state = SetCommitted(self.secret, self.manifests, me.randomness.bytes(32))
        return Transition(state, SetPledges((state.pledge(context, me),)))

    def _of(self, client: int) -> ShareManifest | None:
        return next((manifest for manifest in self.manifests if manifest.client == client), None)


@message("SetCommitted")
@dataclass(frozen=True)
class SetCommitted:
    """The aggregator's state with its set of accepted uploads fixed, while it waits for the others' commitments."""

    awaits: ClassVar[type] = SetPledges
    secret: Secret = field(repr=False)
    manifests: Manifests
    nonce: Digest = field(repr=False)

    def pledge(self, context: SharedContext, me: LocalParty) -> AggregatorPledge:
        """Return the signed commitment to the accepted uploads."""
        number = context.number_of(me.member)
        commitment = bind.set_commitment(context, number, self.nonce, self.manifests)
        return bind.sign_pledge(context, me.identity, number, ACCEPTED, commitment)

    def advance(self, context: SessionContext, me: LocalParty, incoming: SetPledges) -> Transition:
        """Reveal the list of accepted uploads once all have committed. Raises ProtocolViolation (`check_pledges`)."""
        context = SharedContext.of(context)
        own, pledges = self.pledge(context, me), incoming.pledges
        check_pledges(context, ACCEPTED, pledges, SERVER_INDEX, of=context.numbers, known=(own,))
        shown = AcceptedUploads(own.aggregator, self.nonce, self.manifests, pledges, bind.UNSIGNED)
        return Transition(SetRevealed(self.secret, pledges), SetLists((bind.sign_list(context, me.identity, shown),)))


@message("SetRevealed")
@dataclass(frozen=True)
class SetRevealed:
    """The aggregator's state after revealing its committed list of uploads, while it waits for the others' lists."""

    awaits: ClassVar[type] = SetLists
    secret: Secret = field(repr=False)
    pledges: Pledges

    def advance(self, context: SessionContext, me: LocalParty, incoming: SetLists) -> Transition:
        """Agree on the uploads that are in all aggregators' lists. Raises ProtocolViolation or SessionAborted."""
        context = SharedContext.of(context)
        check_lists(context, self.pledges, incoming.lists, SERVER_INDEX, of=context.numbers)
        return Transition(SetAgreed(self.secret, *intersect(context, incoming.lists)))


def check_lists(
    context: SharedContext,
    known: tuple[AggregatorPledge, ...],
    lists: tuple[AcceptedUploads, ...],
    culprit: int,
    *,
    of: tuple[int, ...],
) -> None:
    """Check the revealed lists of uploads, one of each aggregator in `of`, against the `known` commitments.

    Raises ProtocolViolation (`culprit`: who shows them), Equivocated when two aggregators were told different things.
    """
    if tuple(shown.aggregator for shown in lists) != of:
        raise ProtocolViolation(culprit, f"does not show one list of {', '.join(map(context.name_of, of))}")
    for shown in lists:
        check_list(context, known, shown, culprit)


def check_list(
    context: SharedContext, known: tuple[AggregatorPledge, ...], shown: AcceptedUploads, culprit: int
) -> None:
    """Check one revealed list of uploads against its commitment, and the commitments in it against `known` ones.

    Raises what `check_lists` raises.
    """
    number, name = shown.aggregator, context.name_of(shown.aggregator)
    if not bind.list_is_signed(context, shown):
        raise ProtocolViolation(culprit, f"shows a list that {name} did not sign")
    check_pledges(context, ACCEPTED, shown.pledges, culprit, of=context.numbers, known=known)
    if bind.set_commitment(context, number, shown.nonce, shown.manifests) != shown.pledges[number - 1].content:
        raise ProtocolViolation(culprit, f"shows another list than the one that {name} committed to")
    if any(later.client <= earlier.client for earlier, later in pairwise(shown.manifests)):
        raise ProtocolViolation(culprit, f"shows a list of {name} that is not in order")
    for manifest in shown.manifests:
        if not bind.manifest_is_signed(context, manifest):
            raise ProtocolViolation(culprit, f"shows an upload that client {manifest.client} did not sign")


def intersect(
    context: SharedContext, lists: tuple[AcceptedUploads, ...]
) -> tuple[tuple[ShareManifest, ...], tuple[ManifestConflict, ...]]:
    """Return the uploads that are the same in all lists, and a conflicting pair for each client that signed two.

    Raises SessionAborted when fewer uploads are left than may be summed.
    """
    agreed, conflicts = [], []
    by_client = [{manifest.client: manifest for manifest in shown.manifests} for shown in lists]
    for client in sorted({client for each in by_client for client in each}):
        found = [each[client] for each in by_client if client in each]
        other = next((manifest for manifest in found if manifest.digests != found[0].digests), None)
        if other is not None:
            conflicts.append(ManifestConflict(found[0], other))
        elif len(found) == len(lists):
            agreed.append(found[0])
    if len(agreed) < (needed := fewest(context)):
        raise SessionAborted(
            f"only {len(agreed)} clients' uploads reached every aggregator; at least {needed} are needed"
        )
    return tuple(agreed), tuple(conflicts)


class _ShareSum:
    """The sum of one aggregator's shares of the agreed set, which takes memory for one vector and one upload."""

    def __init__(
        self, context: SharedContext, aggregator: int, secret: bytes, manifests: tuple[ShareManifest, ...]
    ) -> None:
        self._context = context
        self._aggregator = aggregator
        self._key = EnvelopeKey.from_bytes(secret)
        self._waiting = {manifest.client: manifest.digests[aggregator - 1] for manifest in manifests}
        self._stream = MaskStream()
        self._total = np.zeros(context.length, dtype=context.ring.word)
        self._blindings = Blindings(context)
        self._proofs: list[bytes] = []

    @property
    def waiting(self) -> tuple[int, ...]:
        """The clients whose share is still to be added."""
        return tuple(self._waiting)

    def add(self, client: int, sealed: bytes) -> None:
        """Add the stored share of one client. Raises BadInput unless it is awaited and the one that was accepted."""
        if hashlib.sha256(sealed).digest() != self._waiting.get(client):
            raise BadInput(f"the kept share of client {client} is not one that is awaited", remedy="restore the file")
        context = self._context
        try:
            share = open_share(context, self._key, client, self._aggregator, sealed)
        except SealBroken:
            raise BadInput(f"the kept share of client {client} does not open with this session's key") from None
        if share.vector:
            self._total += context.ring.unpack(share.vector, context.length)
        if share.seed:
            key = bind.stream_key(context, share.seed, client, self._aggregator)
            self._blindings.apply(key, 1)
            if not share.vector:
                self._stream.apply(self._total, key, 1)
        self._proofs.append(share.proofs)
        del self._waiting[client]

    def packed(self, noise: Integers | None) -> bytes:
        """Return the packed sum share with this aggregator's own noise; `noise` is None where the plan has none.

        Each aggregator adds the full calibrated amount, so that one honest one suffices. Raises BadInput while shares
        are missing or when the noise has another length, CapacityExceeded when it does not fit the ring.
        """
        if self._waiting:
            raise BadInput(f"the shares of clients {list(self._waiting)} have not been added")
        ring, total = self._context.ring, self._total
        if noise is not None:
            residues = ring.encode(noise)
            self._context.check_vector(residues)
            total = total + residues
        return ring.pack(total) + self._blindings.packed + b"".join(self._proofs)


@dataclass(frozen=True)
class SetAgreed:
    """The aggregator's state with the agreed uploads fixed for ever, before it adds its shares of exactly these.

    `conflicts` is the evidence against clients that were left out because they told aggregators different things.
    """

    opened_by: ClassVar[type | None] = None
    secret: bytes = field(repr=False)
    manifests: tuple[ShareManifest, ...]
    conflicts: tuple[ManifestConflict, ...]

    @property
    def members(self) -> tuple[int, ...]:
        """The clients whose uploads are summed."""
        return tuple(manifest.client for manifest in self.manifests)

    def summing(self, context: SharedContext, me: LocalParty) -> _ShareSum:
        """Return an empty sum, to which this aggregator's shares of the agreed uploads are added one at a time."""
        return _ShareSum(context, context.number_of(me.member), self.secret, self.manifests)

    def work(
        self, context: SharedContext, me: LocalParty, kept: Callable[[int], bytes], noise: Callable[[], Integers] | None
    ) -> Transition:
        """Add the stored shares of the agreed uploads and this aggregator's own noise, and commit to the result."""
        total = self.summing(context, me)
        for client in total.waiting:
            total.add(client, kept(client))
        return self.commit(context, me, total.packed(noise() if noise is not None else None))

    def commit(self, context: SharedContext, me: LocalParty, packed: bytes) -> Transition:
        """Fix `packed` as this aggregator's share of the sum, for ever, commit to it, and forget the session key.

        That these bytes, which `_ShareSum.packed` gave, are the sum of the shares is known to this aggregator alone:
        nobody can check it. Raises BadInput for another length.
        """
        size = sum_share_bytes(context, context.number_of(me.member), len(self.members))
        if len(packed) != size:
            raise BadInput(f"a sum share has {size} bytes, not {len(packed)}")
        agreed, nonce = bind.set_digest(context, self.manifests), me.randomness.bytes(32)
        state = SumCommitted(self.members, agreed, nonce, hashlib.sha256(packed).digest())
        return Transition(state, SumPledges((state.pledge(context, me),)), packed)


@message("SumCommitted")
@dataclass(frozen=True)
class SumCommitted:
    """The aggregator's state with its share of the sum fixed, its key deleted, while it awaits others' commitments."""

    awaits: ClassVar[type] = SumPledges
    members: Members
    agreed: Digest
    nonce: Digest = field(repr=False)
    digest: Digest = field(repr=False)

    def pledge(self, context: SharedContext, me: LocalParty) -> AggregatorPledge:
        """Return the signed commitment to this aggregator's share of the sum."""
        number = context.number_of(me.member)
        commitment = bind.sum_commitment(context, number, self.agreed, self.nonce, self.digest)
        return bind.sign_pledge(context, me.identity, number, SUM, commitment)

    def advance(self, context: SessionContext, me: LocalParty, incoming: SumPledges) -> Transition:
        """Reveal the share of the sum once everyone has committed. Raises ProtocolViolation (`check_pledges`)."""
        context = SharedContext.of(context)
        own, pledges = self.pledge(context, me), incoming.pledges
        check_pledges(context, SUM, pledges, SERVER_INDEX, of=context.numbers, known=(own,))
        size = sum_share_bytes(context, own.aggregator, len(self.members))
        share = SumShare(own.aggregator, self.agreed, self.nonce, size, self.digest, pledges)
        return Transition(SumRevealed(self.members), share)


@message("SumRevealed")
@dataclass(frozen=True)
class SumRevealed:
    """The aggregator's state after revealing its share of the sum, while it waits for the server's outcome message."""

    awaits: ClassVar[type] = Outcome
    members: Members

    def advance(self, context: SessionContext, me: LocalParty, incoming: Outcome) -> Transition:
        """Check that the outcome names the agreed clients. Raises ProtocolViolation, blaming the server."""
        if incoming.members != self.members:
            raise ProtocolViolation(SERVER_INDEX, "opened the sum of another set")
        return Transition(self)


AGGREGATOR_STATES = (Collecting, SetCommitted, SetRevealed, SumCommitted, SumRevealed)
"""The states of an aggregator that survive a crash; the states between follow from the server's messages."""
