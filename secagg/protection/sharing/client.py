"""The client of the shared protection: it speaks once, and keeps its receipts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from secagg.crypto.stream import MaskStream
from secagg.encoding import Residues
from secagg.errors import BadInput, ProtocolViolation
from secagg.protection.seam import LocalParty
from secagg.protection.sharing import binding as bind
from secagg.protection.sharing.context import FIRST, SharedContext
from secagg.protection.sharing.envelope import SEED_BYTES, seal_share
from secagg.protection.sharing.messages import AggregatorPledge, Receipts, ShareManifest, ShareReceipt
from secagg.protection.sharing.pledges import session_keys
from secagg.wire import message


@message("SharesSent")
@dataclass(frozen=True)
class SharesSent:
    """The shares are fixed; nothing that could unmask them is left here. Only the same bytes are ever sent again."""

    manifest: ShareManifest
    receipts: Receipts

    @property
    def announcement(self) -> ShareManifest:
        """What goes to every aggregator, with the share that is sealed to it."""
        return self.manifest

    def acknowledged(self, context: SharedContext, receipt: ShareReceipt) -> SharesSent:
        """Keep one aggregator's receipt. Raises ProtocolViolation for one that is not signed or for another upload."""
        name = context.names.get(receipt.aggregator, f"aggregator {receipt.aggregator}")
        upload = (self.manifest.client, bind.manifest_digest(context, self.manifest))
        if (receipt.client, receipt.manifest) != upload or not bind.receipt_is_signed(context, receipt):
            raise ProtocolViolation(name, "its receipt is not signed by it for this upload")
        kept = {known.aggregator: known for known in self.receipts} | {receipt.aggregator: receipt}
        return replace(self, receipts=tuple(kept[number] for number in sorted(kept)))

    def unacknowledged(self, context: SharedContext) -> tuple[int, ...]:
        """The aggregators whose receipt is still missing."""
        known = {receipt.aggregator for receipt in self.receipts}
        return tuple(number for number in context.numbers if number not in known)


def share(
    context: SharedContext, me: LocalParty, pledges: Iterable[AggregatorPledge], residues: Residues
) -> tuple[SharesSent, tuple[bytes, ...]]:
    """Split x into one share for each aggregator, x = Σ share_a mod 2^b, each sealed to its session key.

    For a ≥ 2, share_a is the stream of a fresh seed; share_1 = x − Σ_{a ≥ 2} share_a, packed. Any m − 1 shares are
    uniform and independent of x. `residues` is overwritten. State and sealed shares (in the order of the aggregators)
    are to be on the disk before the first byte leaves.
    Raises BadInput for a stranger or a vector of another session; what `session_keys` raises before anything is drawn.
    """
    if context.session.identities.get(me.member) != me.identity.public:
        raise BadInput(f"this identity key is not that of client {me.member}")
    context.check_vector(residues)
    keys = session_keys(context, pledges)
    seeds = {number: me.randomness.bytes(SEED_BYTES) for number in context.numbers if number != FIRST}
    stream = MaskStream()
    for number, seed in seeds.items():
        stream.apply(residues, bind.stream_key(context, seed, me.member, number), -1)
    shares = {FIRST: context.session.ring.pack(residues), **seeds}
    sealed = tuple(
        seal_share(context, keys[number], me.member, number, shares[number], me.randomness)
        for number in context.numbers
    )
    digests = (hashlib.sha256(each).digest() for each in sealed)
    return SharesSent(bind.sign_manifest(context, me.identity, me.member, digests), ()), sealed
