"""States of a client that sends additive shares in one message: AwaitingSessionKeys → SharingReady → SharesSent.

`missing` proves from receipts and public lists which aggregator signed for an upload and left it out. Nobody can prove
that a sum share is wrong or lacks its noise when its aggregator committed to it as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.envelopes import seal_envelope
from secagg.crypto.stream import MaskStream
from secagg.encoding import Residues
from secagg.errors import BadInput, ProtocolViolation
from secagg.protection.interface import Delivery, LocalParty, SessionContext, Transition
from secagg.protection.messages import Outcome
from secagg.protection.proven_bits import Blindings, prove_entries
from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.aggregator import check_list
from secagg.protection.sharing.context import FIRST, SEED_BYTES, SharedContext, fewest, sealed_bytes
from secagg.protection.sharing.messages import (
    AcceptedUploads,
    Pledges,
    SessionKeys,
    SetLists,
    ShareManifest,
    ShareReceipt,
)
from secagg.wire import message


def begin_client(context: SessionContext, me: LocalParty) -> Transition:
    """Return the client's first state, which waits for session keys. Raises BadInput when `me` is not a client."""
    if context.identities.get(me.member) != me.identity.public:
        raise BadInput(f"this identity key is not that of client {me.member}")
    return Transition(AwaitingSessionKeys())


def deliveries(context: SharedContext) -> tuple[Delivery, ...]:
    """Return the parts of an upload by aggregator; each goes along with the signed list of all parts' digests."""
    sizes = [sealed_bytes(context, number) for number in context.numbers]
    starts = accumulate(sizes, initial=0)
    return tuple(Delivery(*part) for part in zip(context.helpers, starts, sizes, strict=False))


@dataclass(frozen=True)
class AwaitingSessionKeys:
    """The client's first state, in which it waits for the aggregators' session keys before it sends anything."""

    awaits: ClassVar[type] = SessionKeys

    def advance(self, context: SessionContext, me: LocalParty, incoming: SessionKeys) -> Transition:
        """Check every session key. Raises ProtocolViolation, blaming the server or the aggregator of a bad key."""
        context = SharedContext.of(context)
        bind.check_pledges(context, bind.KEY, incoming.pledges, SERVER_INDEX, of=context.numbers)
        bind.session_keys(context, incoming.pledges)
        return Transition(SharingReady(incoming.pledges))


@dataclass(frozen=True)
class SharingReady:
    """The client's state with all aggregators' session keys, ready to split a vector into shares."""

    pledges: Pledges

    def protect(self, context: SessionContext, me: LocalParty, residues: Residues) -> Transition:
        """Split the vector into additive shares, one for each aggregator, and seal each to its session key.

        x = Σ share_a mod 2^b. For a ≥ 2, share_a is the stream of a fresh seed; share_1 = x − Σ_{a ≥ 2} share_a,
        packed. Any m − 1 shares are uniform and independent of x. `residues` is overwritten. The sealed shares follow
        each other in the order of the aggregators. In a census every aggregator's seed gives a part of the blindings;
        the first gets one too, and the proofs. Raises BadInput for a vector of another session.
        """
        context = SharedContext.of(context)
        context.check_vector(residues)
        seeded = context.numbers if context.proves_bits else context.numbers[1:]
        seeds = {number: me.randomness.bytes(SEED_BYTES) for number in seeded}
        entries, stream, blindings = residues.tolist() if context.proves_bits else (), MaskStream(), Blindings(context)
        for number, seed in seeds.items():
            key = bind.stream_key(context, seed, me.member, number)
            blindings.apply(key, 1)
            if number != FIRST:
                stream.apply(residues, key, -1)
        proven = seeds[FIRST] + prove_entries(context, me, entries, blindings) if context.proves_bits else b""
        shares = seeds | {FIRST: context.ring.pack(residues) + proven}
        sealed = [
            seal_envelope(key, shares[number], bind.share_address(context, me.member, number))
            for number, key in bind.session_keys(context, self.pledges).items()
        ]
        digests = (hashlib.sha256(each).digest() for each in sealed)
        manifest = bind.sign_manifest(context, me.identity, me.member, digests)
        return Transition(SharesSent(manifest), manifest, b"".join(sealed))


@message("SharesSent")
@dataclass(frozen=True)
class SharesSent:
    """The client's state with its sealed shares fixed, unable to open them; it can only send the same bytes again."""

    awaits: ClassVar[type] = Outcome
    receipt: ClassVar[type] = ShareReceipt
    evidence: ClassVar[type] = SetLists
    manifest: ShareManifest

    def check_receipt(self, context: SharedContext, receipt: ShareReceipt) -> None:
        """Raise ProtocolViolation, blaming the aggregator, if its receipt is not signed or is for another upload."""
        upload = (self.manifest.client, bind.manifest_digest(context, self.manifest))
        if (receipt.client, receipt.manifest) != upload or not bind.receipt_is_signed(context, receipt):
            raise ProtocolViolation(
                context.index_of(receipt.aggregator), "its receipt is not signed by it for this upload"
            )

    def broken_by(
        self, context: SharedContext, receipts: Iterable[ShareReceipt], evidence: SetLists
    ) -> tuple[str, ...]:
        """Return the names of aggregators that signed a receipt but left the upload out of their list (`missing`)."""
        return tuple(context.name_of(receipt.aggregator) for receipt in missing(context, receipts, evidence.lists))

    def advance(self, context: SessionContext, me: LocalParty, incoming: Outcome) -> Transition:
        """Check that the sum includes this client and enough others. Raises ProtocolViolation, blaming the server."""
        if me.member not in incoming.members:
            raise ProtocolViolation(SERVER_INDEX, "the outcome leaves this client out")
        if len(incoming.members) < (needed := fewest(context)):
            raise ProtocolViolation(
                SERVER_INDEX, f"opened the sum of {len(incoming.members)} clients, not {needed} or more"
            )
        return Transition(self)


CLIENT_STATES = (SharesSent,)
"""The states of a client that survive a crash."""


def share_digest(context: SharedContext, manifest: ShareManifest, sender: int, receiver: int) -> bytes | None:
    """Return the signed digest of aggregator `receiver`'s share; None unless `sender` signed for these aggregators."""
    if manifest.client != sender or not bind.manifest_is_signed(context, manifest):
        return None
    return manifest.digests[context.number_of(receiver) - 1]


def is_receipt(context: SharedContext, receipt: ShareReceipt, sender: int, receiver: int) -> bool:
    """Return whether the aggregator `sender` signed this receipt for the client `receiver`."""
    return (
        sender in context.helpers
        and receipt.aggregator == context.number_of(sender)
        and receipt.client == receiver
        and bind.receipt_is_signed(context, receipt)
    )


def missing(
    context: SharedContext, receipts: Iterable[ShareReceipt], lists: Iterable[AcceptedUploads]
) -> tuple[ShareReceipt, ...]:
    """Return the receipts of aggregators that left the acknowledged upload out of the list that they committed to.

    A receipt with that list, which holds the aggregator's signed commitment, is proof. Receipts that are not signed,
    or whose aggregator's list is not given, prove nothing and are passed over. Raises ProtocolViolation for a list
    that is none.
    """
    listed: dict[int, set[tuple[int, bytes]]] = {}
    for shown in lists:
        check_list(context, (), shown, context.index_of(shown.aggregator))
        uploads = {(manifest.client, bind.manifest_digest(context, manifest)) for manifest in shown.manifests}
        listed[shown.aggregator] = uploads
    return tuple(
        receipt
        for receipt in receipts
        if bind.receipt_is_signed(context, receipt)
        and receipt.aggregator in listed
        and (receipt.client, receipt.manifest) not in listed[receipt.aggregator]
    )
