"""The client of the encrypted protocol: AwaitingKey → EncryptionReady → CiphertextUploaded. It speaks once.

x → Enc(x + PRG(seed) mod t), with the seed sealed to the key holder: without the seed even the secret key opens nothing
but uniform noise.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

from secagg.crypto.agreement import AgreementKey, is_usable
from secagg.crypto.sealing import seal
from secagg.encoding import Residues
from secagg.errors import MalformedMessage, ProtocolViolation
from secagg.protection.encryption import bfv
from secagg.protection.encryption import binding as bind
from secagg.protection.encryption.binding import EncryptedContext
from secagg.protection.encryption.masks import apply_mask, widen
from secagg.protection.encryption.messages import SEED_BYTES, EncryptedUpload, PublishedKey
from secagg.protection.encryption.polynomials import pack
from secagg.protection.messages import Digest, Outcome
from secagg.protection.seam import LocalParty, SessionContext, Transition
from secagg.wire import message


def begin_client(context: SessionContext, me: LocalParty) -> Transition:
    """There is nothing to say before the key is published."""
    return Transition(AwaitingKey())


def check_key(context: EncryptedContext, key: PublishedKey) -> None:
    """What everyone checks of a published key.

    Raises ProtocolViolation (culprit: the key holder) for other parameters, another session, a key that is none.
    """
    if not bind.key_is_signed(context, key):
        raise ProtocolViolation(context.holder_name, "the published key is not signed for this session")
    if key.parameters != context.parameters.digest():
        raise ProtocolViolation(context.holder_name, "the published key has other parameters than the plan")
    if not is_usable(key.sealing_key):
        raise ProtocolViolation(context.holder_name, "published a sealing key of small order")
    try:
        bfv.check_public_key(context.parameters, key.public_key)
    except MalformedMessage as error:
        raise ProtocolViolation(context.holder_name, f"published a public key that is none: {error.problem}") from None


@dataclass(frozen=True)
class AwaitingKey:
    """The published key is awaited; nothing was sent."""

    awaits: ClassVar[type] = PublishedKey

    def advance(self, context: SessionContext, me: LocalParty, incoming: PublishedKey) -> Transition:
        """Check the published key. Raises ProtocolViolation."""
        check_key(EncryptedContext.of(context), incoming)
        return Transition(EncryptionReady(incoming))


@dataclass(frozen=True)
class EncryptionReady:
    """Everything needed to encrypt is known; the vector itself is never part of a state."""

    published: PublishedKey

    def protect(self, context: SessionContext, me: LocalParty, residues: Residues) -> Transition:
        """Mask, encrypt, seal the mask's seed and sign it all; the next state holds no secret."""
        context = EncryptedContext.of(context)
        parameters = context.parameters
        key = bind.message_digest(self.published)
        seed, ephemeral = me.randomness.bytes(SEED_BYTES), AgreementKey.generate(me.randomness)
        values = widen(parameters, residues)
        apply_mask(parameters, values, bind.mask_key(context, seed, me.member), 1)
        packed = pack(bfv.encrypt(parameters, self.published.public_key, values), parameters.entry_bytes)
        upload = EncryptedUpload(
            member=me.member,
            length=len(packed),
            digest=hashlib.sha256(packed).digest(),
            key=key,
            ephemeral=ephemeral.public,
            sealed_seed=seal(
                bind.seed_key(context, ephemeral, self.published.sealing_key, me.member, key),
                seed,
                bind.seed_associated(context, me.member, key),
            ),
            signature=bytes(64),
        )
        signed = bind.sign_upload(context, me.identity, upload)
        return Transition(CiphertextUploaded(upload.digest), signed, packed)


@message("CiphertextUploaded")
@dataclass(frozen=True)
class CiphertextUploaded:
    """The ciphertexts are out; the outcome is awaited."""

    awaits: ClassVar[type] = Outcome
    digest: Digest

    def advance(self, context: SessionContext, me: LocalParty, incoming: Outcome) -> Transition:
        """Check that this client is among those summed, and enough others. Raises ProtocolViolation."""
        context = EncryptedContext.of(context)
        if me.member not in incoming.members or len(incoming.members) < context.fewest:
            raise ProtocolViolation(context.server_name, "the outcome leaves this client out or too many others")
        return Transition(self)


CLIENT_STATES = (CiphertextUploaded,)
"""What a client remembers."""
