"""From the agreed set to the opened sum: add, commit, reveal, open.

    SetAgreed → SumCommitted → SumRevealed → SumOpened

An aggregator that reveals another sum share than it committed to is found out. One that commits to a wrong sum
share, or leaves its noise out, is not: its share is uniform to everyone else. The last one to reveal may learn the
sum and keep its share back: it is named, and the others have no sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from secagg.crypto.agreement import AgreementKey
from secagg.crypto.sealing import SealBroken
from secagg.crypto.stream import MaskStream
from secagg.encoding import Integers
from secagg.errors import BadInput, ProtocolViolation, SessionAborted
from secagg.protection.messages import Digest, Members
from secagg.protection.seam import LocalParty
from secagg.protection.sharing import binding as bind
from secagg.protection.sharing.context import FIRST, SharedContext
from secagg.protection.sharing.envelope import open_share
from secagg.protection.sharing.messages import AggregatorPledge, Pledges, ShareManifest, SumShare
from secagg.protection.sharing.pledges import SUM, compare, gather
from secagg.wire import message


class ShareSum:
    """One aggregator's shares of the agreed set, added one at a time: memory for one vector and one upload."""

    def __init__(
        self, context: SharedContext, aggregator: int, secret: bytes, manifests: tuple[ShareManifest, ...]
    ) -> None:
        self._context = context
        self._aggregator = aggregator
        self._key = AgreementKey.from_bytes(secret)
        self._waiting = {manifest.client: manifest.digests[aggregator - 1] for manifest in manifests}
        self._stream = MaskStream()
        self._total = np.zeros(context.session.length, dtype=context.session.ring.word)

    @property
    def waiting(self) -> tuple[int, ...]:
        """The clients whose share is still to be added."""
        return tuple(self._waiting)

    def add(self, client: int, sealed: bytes) -> None:
        """Add the kept share of one client. Raises BadInput unless it is awaited and the very one that was accepted."""
        if hashlib.sha256(sealed).digest() != self._waiting.get(client):
            raise BadInput(f"the kept share of client {client} is not one that is awaited", remedy="restore the file")
        session = self._context.session
        try:
            share = open_share(self._context, self._key, client, self._aggregator, sealed)
        except SealBroken:
            raise BadInput(f"the kept share of client {client} does not open with this session's key") from None
        if self._aggregator == FIRST:
            self._total += session.ring.unpack(share, session.length)
        else:
            key = bind.stream_key(self._context, share, client, self._aggregator)
            self._stream.apply(self._total, key, 1)
        del self._waiting[client]

    def packed(self, noise: Integers | None) -> bytes:
        """The packed sum share with this aggregator's own noise in it; `noise` is None where the plan has none.

        Each aggregator adds the full calibrated amount, so that one honest one suffices. Raises BadInput while shares
        are missing or when the noise has another length, CapacityExceeded when it does not fit the ring.
        """
        if self._waiting:
            raise BadInput(f"the shares of clients {list(self._waiting)} have not been added")
        ring, total = self._context.session.ring, self._total
        if noise is not None:
            residues = ring.encode(noise)
            self._context.check_vector(residues)
            total = total + residues
        return ring.pack(total)


@message("SumCommitted")
@dataclass(frozen=True)
class SumCommitted:
    """The sum share is fixed and the session key forgotten; the others' commitments are awaited."""

    members: Members
    agreed: Digest
    nonce: Digest = field(repr=False)
    digest: Digest = field(repr=False)

    @classmethod
    def of(
        cls, context: SharedContext, me: LocalParty, manifests: tuple[ShareManifest, ...], packed: bytes
    ) -> SumCommitted:
        """Commit to a packed sum share over the agreed manifests. Raises BadInput for another length."""
        if len(packed) != context.session.packed_bytes:
            raise BadInput(f"a sum share has {context.session.packed_bytes} bytes, not {len(packed)}")
        members = tuple(manifest.client for manifest in manifests)
        agreed = bind.set_digest(context, manifests)
        return cls(members, agreed, me.randomness.bytes(32), hashlib.sha256(packed).digest())

    def announcement(self, context: SharedContext, me: LocalParty) -> AggregatorPledge:
        """The commitment to the sum share, for the other aggregators."""
        commitment = bind.sum_commitment(context, me.member, self.agreed, self.nonce, self.digest)
        return bind.sign_pledge(context, me.identity, me.member, SUM, commitment)

    def reveal(self, context: SharedContext, me: LocalParty, others: Iterable[AggregatorPledge]) -> SumRevealed:
        """Once everyone has committed, the sum share may be shown. Raises what `gather` raises."""
        pledges = gather(context, SUM, (self.announcement(context, me), *others))
        return SumRevealed(self.members, self.agreed, self.nonce, self.digest, pledges)


@message("SumRevealed")
@dataclass(frozen=True)
class SumRevealed:
    """The sum share is shown; the others' are awaited."""

    members: Members
    agreed: Digest
    nonce: Digest
    digest: Digest
    pledges: Pledges

    def announcement(self, context: SharedContext, me: LocalParty) -> SumShare:
        """What goes to the other aggregators, with the packed sum share."""
        return SumShare(me.member, self.agreed, self.nonce, self.digest, self.pledges)

    def opening(self, context: SharedContext, me: LocalParty, others: Iterable[SumShare]) -> Opening:
        """Where the sum shares are added, this aggregator's own too.

        Raises ProtocolViolation for one that is not what its aggregator committed to, Equivocated when two aggregators
        were told different things, SessionAborted when one is missing.
        """
        digests = {me.member: self.digest}
        for shown in others:
            self._check(context, shown)
            digests[shown.aggregator] = shown.digest
        if absent := [context.names[number] for number in context.numbers if number not in digests]:
            raise SessionAborted(f"{', '.join(absent)} did not reveal its sum share")
        return Opening(context, self.members, digests)

    def _check(self, context: SharedContext, shown: SumShare) -> None:
        number = shown.aggregator
        if number not in context.aggregators:
            raise ProtocolViolation(f"aggregator {number}", "is not an aggregator of this session")
        name = context.names[number]
        compare(context, SUM, self.pledges, shown.pledges, name)
        if shown.agreed != self.agreed:
            raise ProtocolViolation(name, "sums another set than the one that was agreed on")
        commitment = bind.sum_commitment(context, number, shown.agreed, shown.nonce, shown.digest)
        if commitment != self.pledges[number - 1].content:
            raise ProtocolViolation(name, "reveals another sum share than the one that it committed to")


class Opening:
    """All sum shares, added one at a time."""

    def __init__(self, context: SharedContext, members: tuple[int, ...], digests: dict[int, bytes]) -> None:
        self._context = context
        self.members = members
        self._waiting = dict(digests)
        self._total = np.zeros(context.session.length, dtype=context.session.ring.word)

    def add(self, aggregator: int, packed: bytes) -> None:
        """Add one packed sum share. Raises ProtocolViolation (the aggregator) unless it is the announced one."""
        session = self._context.session
        announced = self._waiting.get(aggregator)
        if len(packed) != session.packed_bytes or hashlib.sha256(packed).digest() != announced:
            culprit = self._context.names.get(aggregator, f"aggregator {aggregator}")
            raise ProtocolViolation(culprit, "its sum share is not awaited or not the one that it committed to")
        self._total += session.ring.unpack(packed, session.length)
        del self._waiting[aggregator]

    def integers(self) -> Integers:
        """The signed integers of the members' sum. Raises BadInput while a sum share is missing."""
        if self._waiting:
            raise BadInput(f"the sum shares of aggregators {list(self._waiting)} have not been added")
        return self._context.session.ring.decode(self._total)

    def opened(self) -> SumOpened:
        """The end of the session; the integers are to be on the disk before this state is."""
        opened = self.integers().astype("<i8").tobytes()
        return SumOpened(self.members, hashlib.sha256(opened).digest())


@message("SumOpened")
@dataclass(frozen=True)
class SumOpened:
    """The session has answered, once."""

    members: Members
    aggregate_sha256: Digest
