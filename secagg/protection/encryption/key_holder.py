"""States of the key holder, which makes a fresh key for each session and decrypts one sum: HeldKey → SpentKey.

The first request received is the one that counts for ever: whoever drives these states journals it before `advance`
sees it, so that a crash between opening and sending opens the same sum again, to the same values, and nothing else.
What is opened is refused whole when an entry lies outside the plan's capacity, padding is not zero, or a ciphertext has
more noise than honest ones: the sum is not that of the declared set, or someone uploaded no encryption of permitted
integers, and nobody can say who. What is not the sum of the declared set keeps a mask and is uniform modulo q: it
passes with a probability below 2^−N, less than 1/2 for each coefficient.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.envelopes import EnvelopeKey
from secagg.crypto.sealing import SealBroken
from secagg.encoding import Integers, sum_digest
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation, SessionAborted
from secagg.protection.encryption import bfv
from secagg.protection.encryption import derivations as bind
from secagg.protection.encryption.derivations import EncryptedContext
from secagg.protection.encryption.messages import EncryptedUpload, Key, OpenedSum, PublishedKey, SumRequest
from secagg.protection.encryption.polynomials import Polynomials, centre, mask_of, subtract
from secagg.protection.interface import LocalParty, SessionContext, Transition
from secagg.protection.messages import Digest, Members, Outcome
from secagg.protection.proven_bits import Blindings
from secagg.wire import Length, message


def begin_holder(context: SessionContext, me: LocalParty) -> Transition:
    """Make a fresh key pair for this session and publish its public half; BFV uses the operating system's randomness.

    Raises BadInput for an identity that the plan does not name as key holder.
    """
    context = EncryptedContext.of(context)
    if context.helpers.get(me.member) != me.identity.public:
        raise BadInput("this identity is not the plan's key holder")
    key, sealing = bfv.generate(context.parameters), EnvelopeKey.generate(me.randomness)
    unsigned = PublishedKey(context.parameters.digest(), key.public, sealing.public, bytes(64))
    published = bind.sign_key(context, me.identity, unsigned)
    return Transition(HeldKey(key.secret, sealing.private_bytes(), published), published)


@message("HeldKey")
@dataclass(frozen=True)
class HeldKey:
    """The key holder's state after publishing its key, while it waits for the server's one request to open the sum."""

    awaits: ClassVar[type] = SumRequest
    secret: Annotated[bytes, Length(1, 4 << 20)] = field(repr=False)
    sealing_secret: Key = field(repr=False)
    published: PublishedKey

    def advance(self, context: SessionContext, me: LocalParty, incoming: SumRequest) -> Transition:
        """Check the request, take off the masks of exactly the declared uploads, decrypt, check the range, and sign.

        Raises ProtocolViolation, naming the server or the client whose upload is bad, before anything is decrypted;
        SessionAborted, with nothing released, for an entry outside ±`context.largest` or an excess of noise.
        """
        context = EncryptedContext.of(context)
        total = _check_sum(context, incoming, bind.message_digest(self.published))
        declaration = incoming.declaration
        digest = bind.message_digest(declaration)  # before any key is used: a declaration without an encoding ends here
        sealing = EnvelopeKey.from_bytes(self.sealing_secret)
        blindings = Blindings(context)
        for member, seed in {each.member: unseal_seed(context, sealing, each) for each in declaration.uploads}.items():
            mask = mask_of(context.parameters, context.ciphertexts, bind.mask_keys(context, seed, member))
            subtract(total[:, 0], mask, context.parameters.primes)
            blindings.apply(bind.blinding_key(context, seed, member), 1)
        integers = self._open(context, total)
        packed = context.ring.pack(context.ring.encode(integers)) + blindings.packed
        unsigned = OpenedSum(digest, len(packed), hashlib.sha256(packed).digest(), bytes(64))
        opened = bind.sign_opened(context, me.identity, unsigned)
        spent = SpentKey(declaration.members, sum_digest(integers))
        return Transition(spent, opened, packed)

    def _open(self, context: EncryptedContext, unmasked: Polynomials) -> Integers:
        try:
            values = centre(context.parameters, bfv.decrypt(context.parameters, self.secret, unmasked))
        except bfv.NoisyCiphertext as error:
            raise SessionAborted(f"the sum is not opened: {error}") from None
        integers, padding = np.split(values, [context.length])
        if padding.any() or not context.holds(integers):
            raise SessionAborted("the sum is not opened: an entry lies outside the plan's capacity")
        return integers


@message("SpentKey")
@dataclass(frozen=True)
class SpentKey:
    """The key holder's state after decrypting the sum and deleting its key, while it waits for the outcome message."""

    awaits: ClassVar[type] = Outcome
    members: Members
    aggregate_sha256: Digest

    def advance(self, context: SessionContext, me: LocalParty, incoming: Outcome) -> Transition:
        """Check that the outcome names the opened sum and its clients. Raises ProtocolViolation, blaming the server."""
        if incoming.members != self.members:
            raise ProtocolViolation(SERVER_INDEX, "the outcome has other members than the sum that was opened")
        if incoming.aggregate_sha256 != self.aggregate_sha256:
            raise ProtocolViolation(SERVER_INDEX, "the outcome names another sum than the one that was opened")
        return Transition(self)


HOLDER_STATES = (HeldKey, SpentKey)
"""The states of a key holder that survive a crash."""


def _check_sum(context: EncryptedContext, request: SumRequest, key: bytes) -> Polynomials:
    """Return the sum's polynomials, if the server declared enough uploads, all for the published `key`."""
    declaration = request.declaration
    if not bind.declaration_is_signed(context, declaration):
        raise ProtocolViolation(SERVER_INDEX, "the declaration is not signed for this session")
    if len(declaration.uploads) < context.fewest:
        raise ProtocolViolation(
            SERVER_INDEX, f"declares {len(declaration.uploads)} clients; at least {context.fewest} are needed"
        )
    if hashlib.sha256(request.packed).digest() != declaration.total:
        raise ProtocolViolation(SERVER_INDEX, "sends another sum than the declared one")
    for upload in declaration.uploads:
        if not bind.upload_is_signed(context, upload):
            raise ProtocolViolation(SERVER_INDEX, f"declares an upload that member {upload.member} did not sign")
        if upload.key != key:
            raise ProtocolViolation(SERVER_INDEX, f"declares an upload of member {upload.member} for another key")
    try:
        return context.summed(request.packed)
    except MalformedMessage as error:
        raise ProtocolViolation(SERVER_INDEX, f"the sum is no ciphertext: {error.problem}") from None


def unseal_seed(context: EncryptedContext, sealing: EnvelopeKey, upload: EncryptedUpload) -> bytes:
    """Return the seed of a client's mask. Raises ProtocolViolation, blaming the client, if it was not sealed here."""
    try:
        return sealing.open(upload.sealed_seed, bind.seed_address(context, upload.member))
    except SealBroken:
        raise ProtocolViolation(upload.member, "sealed no mask seed to the key holder") from None
