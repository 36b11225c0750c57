"""From the agreed set to this aggregator's share of the sum: add, commit, reveal.

    SetAgreed → SumCommitted → SumRevealed

The server adds these shares as it adds all vectors (`secagg.session.staging`), and opens the sum. An aggregator that
reveals another sum share than it committed to is found out. One that commits to a wrong sum share, or leaves its noise
out, is not: its share is uniform to everyone else. One that keeps its share back is named, and there is no sum.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.agreement import AgreementKey
from secagg.crypto.sealing import SealBroken
from secagg.crypto.stream import MaskStream
from secagg.encoding import Integers
from secagg.errors import BadInput, ProtocolViolation
from secagg.protection.interface import LocalParty, SessionContext, Transition
from secagg.protection.messages import Digest, Members, Outcome
from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.context import FIRST, SharedContext
from secagg.protection.sharing.envelope import open_share
from secagg.protection.sharing.equivocation import SUM, check_pledges
from secagg.protection.sharing.messages import AggregatorPledge, ShareManifest, SumPledges, SumShare
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
        self._total = np.zeros(context.length, dtype=context.ring.word)

    @property
    def waiting(self) -> tuple[int, ...]:
        """The clients whose share is still to be added."""
        return tuple(self._waiting)

    def add(self, client: int, sealed: bytes) -> None:
        """Add the kept share of one client. Raises BadInput unless it is awaited and the very one that was accepted."""
        if hashlib.sha256(sealed).digest() != self._waiting.get(client):
            raise BadInput(f"the kept share of client {client} is not one that is awaited", remedy="restore the file")
        context = self._context
        try:
            share = open_share(context, self._key, client, self._aggregator, sealed)
        except SealBroken:
            raise BadInput(f"the kept share of client {client} does not open with this session's key") from None
        if self._aggregator == FIRST:
            self._total += context.ring.unpack(share, context.length)
        else:
            key = bind.stream_key(context, share, client, self._aggregator)
            self._stream.apply(self._total, key, 1)
        del self._waiting[client]

    def packed(self, noise: Integers | None) -> bytes:
        """The packed sum share with this aggregator's own noise in it; `noise` is None where the plan has none.

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
        return ring.pack(total)


@message("SumCommitted")
@dataclass(frozen=True)
class SumCommitted:
    """The sum share is fixed and the session key forgotten; the others' commitments are awaited."""

    awaits: ClassVar[type] = SumPledges
    members: Members
    agreed: Digest
    nonce: Digest = field(repr=False)
    digest: Digest = field(repr=False)

    @classmethod
    def of(
        cls, context: SharedContext, me: LocalParty, manifests: tuple[ShareManifest, ...], packed: bytes
    ) -> SumCommitted:
        """Commit to a packed sum share over the agreed manifests. Raises BadInput for another length."""
        if len(packed) != context.packed_bytes:
            raise BadInput(f"a sum share has {context.packed_bytes} bytes, not {len(packed)}")
        members = tuple(manifest.client for manifest in manifests)
        agreed = bind.set_digest(context, manifests)
        return cls(members, agreed, me.randomness.bytes(32), hashlib.sha256(packed).digest())

    def pledge(self, context: SharedContext, me: LocalParty) -> AggregatorPledge:
        """The commitment to the sum share."""
        number = context.number_of(me.member)
        commitment = bind.sum_commitment(context, number, self.agreed, self.nonce, self.digest)
        return bind.sign_pledge(context, me.identity, number, SUM, commitment)

    def advance(self, context: SessionContext, me: LocalParty, incoming: SumPledges) -> Transition:
        """Once everyone has committed, the sum share may be shown. Raises what `check_pledges` raises."""
        context = SharedContext.of(context)
        own, pledges = self.pledge(context, me), incoming.pledges
        check_pledges(context, SUM, pledges, SERVER_INDEX, of=context.numbers, known=(own,))
        share = SumShare(own.aggregator, self.agreed, self.nonce, context.packed_bytes, self.digest, pledges)
        return Transition(SumRevealed(self.members), share)


@message("SumRevealed")
@dataclass(frozen=True)
class SumRevealed:
    """The sum share is shown; the outcome is awaited."""

    awaits: ClassVar[type] = Outcome
    members: Members

    def advance(self, context: SessionContext, me: LocalParty, incoming: Outcome) -> Transition:
        """Check that the sum is that of the agreed set. Raises ProtocolViolation (the server)."""
        if incoming.members != self.members:
            raise ProtocolViolation(SERVER_INDEX, "opened the sum of another set")
        return Transition(self)
