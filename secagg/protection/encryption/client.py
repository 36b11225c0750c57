"""States of a client that sends one encrypted message: AwaitingKey → EncryptionReady → CiphertextUploaded.

x → Enc(0) + Δ·x + mask, the mask uniform modulo q with its seed sealed to the key holder: without the seed even the
secret key opens nothing but uniform noise.

What the key holder learns: the sum, whatever key it made. Client i's ciphertext is (zᵢ + Δ·xᵢ + mᵢ, z'ᵢ), for (zᵢ, z'ᵢ)
SEAL's encryption of zero and mᵢ the mask. The key holder is shown the sum over the clients, and can take off the masks:

    Σ(zᵢ + Δ·xᵢ + mᵢ) − Σmᵢ = Δ·X + Σzᵢ  and  Σz'ᵢ,  with X = Σxᵢ, all modulo q.

The zᵢ and z'ᵢ come from the public key and from fresh randomness, never from xᵢ. So for every public key, however it
was made and whatever was seen before, two splits of one X give the key holder the same view: an identity of
distributions, with no assumption, over any number of sessions. It rests on Δ·x being linear and exact (Fan &
Vercauteren 2012, section 3, with xᵢ not reduced modulo t). SEAL's own encryption adds round(q·m/t) for a residue m
modulo t; the sum of such roundings is no function of X, and tells who holds what.

Of each upload by itself the key holder is shown the SHA-256 digest that the client signs. Encryptions of zero under a
malicious key may hold so little randomness that vectors could be tried against it; the digest is therefore taken over
32 random bytes more (the blind), which only the server gets: a commitment, hiding in the random-oracle model.

In a census the blindings of a client's proofs are the sum of two streams: one of the mask's seed, one of a seed that
only the server gets. Neither it nor the key holder can try the commitments, which all are shown, against 0 and 1, as
far as AES-CTR is pseudo-random.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.envelopes import is_envelope_key, seal_envelope
from secagg.encoding import Residues
from secagg.errors import CapacityExceeded, MalformedMessage, ProtocolViolation
from secagg.protection.encryption import bfv
from secagg.protection.encryption import derivations as bind
from secagg.protection.encryption.derivations import EncryptedContext
from secagg.protection.encryption.messages import BLIND_BYTES, SEED_BYTES, EncryptedUpload, PublishedKey
from secagg.protection.encryption.polynomials import add, mask_of, pack, scaled
from secagg.protection.interface import LocalParty, SessionContext, Transition
from secagg.protection.messages import Digest, Outcome
from secagg.protection.proven_bits import Blindings, prove_entries
from secagg.wire import message


def begin_client(context: SessionContext, me: LocalParty) -> Transition:
    """Return the client's first state, which waits for the key holder's public key before it sends anything."""
    return Transition(AwaitingKey())


def check_key(context: EncryptedContext, key: PublishedKey, sender: int) -> None:
    """Check the key holder's signature on its public keys, and that the keys are valid, as every party does.

    Raises ProtocolViolation: `sender`, who shows it, for a key that is not signed for this session, the key holder for
    other parameters or a key that is none.
    """
    if not bind.key_is_signed(context, key):
        raise ProtocolViolation(sender, "shows a published key that its holder did not sign for this session")
    if key.parameters != context.parameters.digest():
        raise ProtocolViolation(context.holder_index, "the published key has other parameters than the plan")
    if not is_envelope_key(key.sealing_key):
        raise ProtocolViolation(context.holder_index, "published a sealing key of small order, or none")
    try:
        bfv.check_public_key(context.parameters, key.public_key)
    except MalformedMessage as error:
        raise ProtocolViolation(context.holder_index, f"published a public key that is none: {error.problem}") from None


@dataclass(frozen=True)
class AwaitingKey:
    """The client's first state, in which it waits for the key holder's public key before it sends anything."""

    awaits: ClassVar[type] = PublishedKey

    def advance(self, context: SessionContext, me: LocalParty, incoming: PublishedKey) -> Transition:
        """Check the key holder's public key. Raises ProtocolViolation."""
        check_key(EncryptedContext.of(context), incoming, SERVER_INDEX)
        return Transition(EncryptionReady(incoming))


@dataclass(frozen=True)
class EncryptionReady:
    """The client's state with the key holder's public key, ready to encrypt its vector, which no state ever holds."""

    published: PublishedKey

    def protect(self, context: SessionContext, me: LocalParty, residues: Residues) -> Transition:
        """Encrypt and mask the vector, seal the mask's seed to the key holder, sign all; the next state has no secret.

        Raises CapacityExceeded for an entry outside the plan's capacity.
        """
        context = EncryptedContext.of(context)
        key = bind.message_digest(self.published)
        seed = me.randomness.bytes(SEED_BYTES)
        integers, parameters = context.ring.decode(residues), context.parameters
        if not context.holds(integers):
            size = int(np.abs(integers).max())
            raise CapacityExceeded("an entry of the vector", size, context.largest, remedy="no bits are cut")
        ciphertexts = bfv.encrypt_zero(parameters, self.published.public_key, context.ciphertexts)
        mask = mask_of(parameters, context.ciphertexts, bind.mask_keys(context, seed, me.member))
        blindings, of_server = Blindings(context), me.randomness.bytes(SEED_BYTES * context.proves_bits)
        for each in (seed, of_server):
            blindings.apply(bind.blinding_key(context, each, me.member), 1)
        proofs = of_server + prove_entries(context, me, integers.tolist() if context.proves_bits else (), blindings)
        for part in (scaled(parameters, integers), mask):
            add(ciphertexts[:, 0], part, parameters.primes)
        vector = pack(ciphertexts, parameters.entry_bytes) + me.randomness.bytes(BLIND_BYTES) + proofs
        upload = EncryptedUpload(
            member=me.member,
            length=len(vector),
            digest=hashlib.sha256(vector).digest(),
            key=key,
            sealed_seed=seal_envelope(self.published.sealing_key, seed, bind.seed_address(context, me.member)),
            signature=bytes(64),
        )
        signed = bind.sign_upload(context, me.identity, upload)
        return Transition(CiphertextUploaded(upload.digest), signed, vector)


@message("CiphertextUploaded")
@dataclass(frozen=True)
class CiphertextUploaded:
    """The client's state after uploading its ciphertexts, while it waits for the server's outcome message."""

    awaits: ClassVar[type] = Outcome
    digest: Digest

    def advance(self, context: SessionContext, me: LocalParty, incoming: Outcome) -> Transition:
        """Check that the sum includes this client and enough others. Raises ProtocolViolation."""
        context = EncryptedContext.of(context)
        if me.member not in incoming.members or len(incoming.members) < context.fewest:
            raise ProtocolViolation(SERVER_INDEX, "the outcome leaves this client out or too many others")
        return Transition(self)
