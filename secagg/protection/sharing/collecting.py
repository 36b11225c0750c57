"""An aggregator while uploads come in, any time before the deadline."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Annotated

from secagg.crypto.agreement import AgreementKey
from secagg.crypto.sealing import SealBroken
from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection.seam import LocalParty
from secagg.protection.sharing import binding as bind
from secagg.protection.sharing.agreeing import SetCommitted
from secagg.protection.sharing.context import SharedContext, fewest
from secagg.protection.sharing.envelope import open_share
from secagg.protection.sharing.messages import AggregatorPledge, Manifests, ShareManifest, ShareReceipt
from secagg.protection.sharing.pledges import KEY
from secagg.wire import Length, message


def begin(context: SharedContext, me: LocalParty) -> Collecting:
    """Draw this aggregator's session key. Raises BadInput when `me` is none of the aggregators."""
    context.check_aggregator(me)
    fewest(context.session)
    return Collecting(AgreementKey.generate(me.randomness).private_bytes(), ())


@message("Collecting")
@dataclass(frozen=True)
class Collecting:
    """The session key is published; uploads are taken. The sealed shares themselves lie where the caller keeps them."""

    secret: Annotated[bytes, Length(32)] = field(repr=False)
    manifests: Manifests

    def announcement(self, context: SharedContext, me: LocalParty) -> AggregatorPledge:
        """The signed session key, for the clients."""
        return bind.sign_pledge(context, me.identity, me.member, KEY, AgreementKey.from_bytes(self.secret).public)

    def accept(self, context: SharedContext, me: LocalParty, manifest: ShareManifest, sealed: bytes) -> Collecting:
        """Take one upload; the same again changes nothing. Keep `sealed`, then the state, then send the receipt.

        Raises ProtocolViolation (the client) for what it did not sign, a second, different upload, or a share that is
        not the signed one or cannot be opened here. Whether all aggregators' shares add up to a sensible vector
        cannot be seen by anyone.
        """
        name = context.session.names.get(manifest.client, f"client {manifest.client}")
        if not bind.manifest_is_signed(context, manifest):
            raise ProtocolViolation(name, "did not sign the manifest for this session's aggregators")
        known = self._of(manifest.client)
        if known is not None and known.digests != manifest.digests:
            raise ProtocolViolation(name, "sent a second, different upload")
        if hashlib.sha256(sealed).digest() != manifest.digests[me.member - 1]:
            raise ProtocolViolation(name, "its share is not the one that it signed")
        if known is not None:
            return self
        try:
            open_share(context, AgreementKey.from_bytes(self.secret), manifest.client, me.member, sealed)
        except SealBroken:
            raise ProtocolViolation(name, "its share is not sealed to this aggregator and session") from None
        manifests = sorted((*self.manifests, manifest), key=lambda each: each.client)
        return replace(self, manifests=tuple(manifests))

    def receipt(self, context: SharedContext, me: LocalParty, client: int) -> ShareReceipt:
        """The receipt for an accepted upload; the same each time. Raises ProtocolViolation when there is none."""
        known = self._of(client)
        if known is None:
            raise ProtocolViolation(context.session.names.get(client, f"client {client}"), "has uploaded nothing")
        return bind.sign_receipt(context, me.identity, me.member, known)

    def close(self, context: SharedContext, me: LocalParty) -> SetCommitted:
        """Fix the accepted set, once and for ever. Raises SessionAborted below the minimum cohort."""
        if len(self.manifests) < (needed := fewest(context.session)):
            raise SessionAborted(f"only {len(self.manifests)} clients uploaded; at least {needed} are needed")
        return SetCommitted(self.secret, self.manifests, me.randomness.bytes(32))

    def _of(self, client: int) -> ShareManifest | None:
        return next((manifest for manifest in self.manifests if manifest.client == client), None)
