"""The key holder: a fresh key for each session, one sum opened with it, ever.

HeldKey → (checks, then the caller makes SpentKey durable) → SumOpening. A request that fails a check spends nothing;
one that passes spends the key for good, whatever comes after. What is opened is refused whole when an entry lies
outside the plan's capacity or a ciphertext has more noise than honest ones: either says that someone uploaded no
encryption of permitted integers, and nobody can say who.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Annotated

from secagg.crypto.agreement import AgreementKey, WeakPublicKey
from secagg.crypto.sealing import SealBroken, unseal
from secagg.crypto.signatures import SigningKey
from secagg.encoding import Integers
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation, SessionAborted
from secagg.protection.encryption import bfv
from secagg.protection.encryption import binding as bind
from secagg.protection.encryption.binding import EncryptedContext
from secagg.protection.encryption.masks import apply_mask, centre
from secagg.protection.encryption.messages import Declaration, EncryptedUpload, Key, OpenedSum, PublishedKey
from secagg.protection.encryption.polynomials import Polynomials, unpack
from secagg.protection.messages import Digest
from secagg.randomness import RandomSource
from secagg.wire import Length, message

SERVER = "server"


@message("SpentKey")
@dataclass(frozen=True)
class SpentKey:
    """The key was spent on this declaration; no other request is ever answered."""

    declaration: Digest

    def begin(self, context: EncryptedContext, declaration: Declaration, packed: bytes) -> Commitment:
        """Refuse. Raises ProtocolViolation (culprit: the server)."""
        raise ProtocolViolation(SERVER, "asks to open a second sum of one session")


@message("HeldKey")
@dataclass(frozen=True)
class HeldKey:
    """The key is made and published; one request is awaited."""

    secret: Annotated[bytes, Length(1, 4 << 20)] = field(repr=False)
    sealing_secret: Key = field(repr=False)
    published: PublishedKey

    def begin(self, context: EncryptedContext, declaration: Declaration, packed: bytes) -> Commitment:
        """Check a request as far as that needs no decryption.

        Raises ProtocolViolation, naming the server or the client whose upload is bad; the key is then not spent.
        """
        _check_declaration(context, declaration, packed, bind.message_digest(self.published))
        parameters = context.parameters
        number = parameters.ciphertexts(context.length)
        try:
            total = unpack(packed, number, parameters.primes, parameters.degree, parameters.entry_bytes)
        except MalformedMessage as error:
            raise ProtocolViolation(SERVER, f"the sum is no ciphertext: {error.problem}") from None
        sealing = AgreementKey.from_bytes(self.sealing_secret)
        keys = tuple(_mask_key(context, sealing, upload) for upload in declaration.uploads)
        digest = bind.message_digest(declaration)
        return Commitment(SpentKey(digest), SumOpening(digest, self.secret, total, keys))


@dataclass(frozen=True)
class Commitment:
    """The state to make durable first, and the opening that may follow once it is."""

    state: SpentKey
    opening: SumOpening


@dataclass(frozen=True)
class SumOpening:
    """Everything to open one sum; it lives in memory alone."""

    declaration: bytes
    secret: bytes = field(repr=False)
    total: Polynomials = field(repr=False)
    mask_keys: tuple[bytes, ...] = field(repr=False)

    def open(self, context: EncryptedContext, identity: SigningKey, noise: Integers | None) -> OpenedSum:
        """Decrypt, take off the masks of exactly the declared set, check the range, add the noise, sign.

        Raises SessionAborted, with nothing released, for an entry outside ±`context.largest` or an excess of noise.
        """
        parameters = context.parameters
        try:
            values = bfv.decrypt(parameters, self.secret, self.total)
        except bfv.NoisyCiphertext as error:
            raise SessionAborted(f"the sum is not opened: {error}") from None
        for key in self.mask_keys:
            apply_mask(parameters, values, key, -1)
        integers = centre(parameters, values, context.length)
        if int(integers.max()) > context.largest or int(integers.min()) < -context.largest:
            raise SessionAborted("the sum is not opened: an entry lies outside the plan's capacity")
        if noise is not None:
            integers = integers + noise
        opened = OpenedSum(self.declaration, integers.astype("<i8").tobytes(), bytes(64))
        return bind.sign_opened(context, identity, opened)


def make_key(context: EncryptedContext, identity: SigningKey, randomness: RandomSource) -> HeldKey:
    """A fresh key for this session; `published` inside is what goes out, signed.

    BFV's own randomness comes from the operating system. Raises BadInput for an identity that the plan does not name.
    """
    if identity.public != context.holder:
        raise BadInput("this identity is not the plan's key holder")
    key, sealing = bfv.generate(context.parameters), AgreementKey.generate(randomness)
    unsigned = PublishedKey(context.parameters.digest(), key.public, sealing.public, bytes(64))
    return HeldKey(key.secret, sealing.private_bytes(), bind.sign_key(context, identity, unsigned))


def _check_declaration(context: EncryptedContext, declaration: Declaration, packed: bytes, key: bytes) -> None:
    if not bind.declaration_is_signed(context, declaration):
        raise ProtocolViolation(SERVER, "the declaration is not signed for this session")
    if len(declaration.uploads) < context.fewest:
        raise ProtocolViolation(
            SERVER, f"declares {len(declaration.uploads)} clients; at least {context.fewest} are needed"
        )
    if hashlib.sha256(packed).digest() != declaration.total:
        raise ProtocolViolation(SERVER, "sends another sum than the declared one")
    for upload in declaration.uploads:
        if not bind.upload_is_signed(context, upload):
            raise ProtocolViolation(SERVER, f"declares an upload that member {upload.member} did not sign")
        if upload.key != key:
            raise ProtocolViolation(SERVER, f"declares an upload of member {upload.member} for another key")


def _mask_key(context: EncryptedContext, sealing: AgreementKey, upload: EncryptedUpload) -> bytes:
    try:
        key = bind.seed_key(context, sealing, upload.ephemeral, upload.member, upload.key)
        seed = unseal(key, upload.sealed_seed, bind.seed_associated(context, upload.member, upload.key))
    except (SealBroken, WeakPublicKey):
        raise ProtocolViolation(context.names[upload.member], "sealed no mask seed to the key holder") from None
    return bind.mask_key(context, seed, upload.member)
