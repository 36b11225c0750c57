"""An aggregator while uploads come in, any time before the deadline.

Collecting → SetCommitted → SetRevealed → SetAgreed → SumCommitted → SumRevealed
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from secagg.crypto.agreement import AgreementKey
from secagg.crypto.sealing import SealBroken
from secagg.encoding import Integers
from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection.interface import LocalParty, SessionContext, Transition
from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.aggregation import SumCommitted, SumRevealed
from secagg.protection.sharing.context import SharedContext, fewest
from secagg.protection.sharing.envelope import open_share
from secagg.protection.sharing.equivocation import KEY
from secagg.protection.sharing.messages import Manifests, SessionKeys, SetPledges, ShareManifest, ShareReceipt
from secagg.protection.sharing.set_agreement import SetCommitted, SetRevealed
from secagg.wire import Length, message


def begin_aggregator(context: SessionContext, me: LocalParty) -> Transition:
    """Draw this aggregator's session key. Raises BadInput when `me` is none of the aggregators."""
    context = SharedContext.of(context)
    context.check_aggregator(me)
    fewest(context)
    key = AgreementKey.generate(me.randomness)
    pledge = bind.sign_pledge(context, me.identity, context.number_of(me.member), KEY, key.public)
    return Transition(Collecting(key.private_bytes(), ()), SessionKeys((pledge,)))


@message("Collecting")
@dataclass(frozen=True)
class Collecting:
    """The session key is published; uploads are taken. The sealed shares themselves lie where the caller keeps them."""

    opened_by: ClassVar[type | None] = SessionKeys
    secret: Annotated[bytes, Length(32)] = field(repr=False)
    manifests: Manifests

    def accept(self, context: SharedContext, me: LocalParty, manifest: ShareManifest, sealed: bytes) -> Collecting:
        """Take one upload; the same again changes nothing. Keep `sealed`, then the state, then send the receipt.

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
            open_share(context, AgreementKey.from_bytes(self.secret), manifest.client, number, sealed)
        except SealBroken:
            raise ProtocolViolation(manifest.client, "its share is not sealed to this aggregator and session") from None
        manifests = sorted((*self.manifests, manifest), key=lambda each: each.client)
        return replace(self, manifests=tuple(manifests))

    def receipt(self, context: SharedContext, me: LocalParty, client: int) -> ShareReceipt:
        """The receipt for an accepted upload; the same each time. Raises ProtocolViolation when there is none."""
        known = self._of(client)
        if known is None:
            raise ProtocolViolation(client, "has uploaded nothing")
        return bind.sign_receipt(context, me.identity, context.number_of(me.member), known)

    def work(
        self,
        context: SharedContext,
        me: LocalParty,
        kept: Callable[[int], bytes],
        noise: Callable[[], Integers] | None,
    ) -> Transition:
        """Nobody else is waited for."""
        return self.close(context, me)

    def close(self, context: SharedContext, me: LocalParty) -> Transition:
        """Fix the accepted set, once and for ever. Raises SessionAborted below the minimum of clients."""
        if len(self.manifests) < (needed := fewest(context)):
            raise SessionAborted(f"only {len(self.manifests)} clients uploaded; at least {needed} are needed")
        state = SetCommitted(self.secret, self.manifests, me.randomness.bytes(32))
        return Transition(state, SetPledges((state.pledge(context, me),)))

    def _of(self, client: int) -> ShareManifest | None:
        return next((manifest for manifest in self.manifests if manifest.client == client), None)


AGGREGATOR_STATES = (Collecting, SetCommitted, SetRevealed, SumCommitted, SumRevealed)
"""What an aggregator remembers; what lies between follows from what the server said."""
