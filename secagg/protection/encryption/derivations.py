"""Functions of the encrypted protection that hash, sign, check signatures and derive keys.

One function for each labelled string.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

from secagg.crypto.agreement import derive
from secagg.crypto.envelopes import Address
from secagg.crypto.labels import digest, number
from secagg.crypto.signatures import SigningKey, is_signed
from secagg.encoding import Integers
from secagg.errors import BadInput, CapacityExceeded
from secagg.protection.encryption.messages import (
    BLIND_BYTES,
    LARGEST_SUM,
    SEED_BYTES,
    Declaration,
    EncryptedUpload,
    OpenedSum,
    PublishedKey,
)
from secagg.protection.encryption.parameters import HeParameters, for_capacity
from secagg.protection.encryption.polynomials import Polynomials, unpack
from secagg.protection.interface import SessionContext
from secagg.wire import encode


@dataclass(frozen=True)
class EncryptedContext(SessionContext):
    """The public facts of an encrypted session; its `helpers` are the key holder alone.

    Raises BadInput without exactly one key holder and for a sum too long to be shown to it, CapacityExceeded for one
    that no ciphertext has room for.
    """

    def __post_init__(self) -> None:
        if len(self.helpers) != 1:
            raise BadInput(
                f"an encrypted sum has one key holder, not {len(self.helpers)}",
                remedy="add a member with the role key-holder to the roster",
            )
        if self.sum_bytes > LARGEST_SUM:
            raise BadInput(
                f"the ciphertexts of {self.length} integers take {self.sum_bytes} bytes; one message to the key "
                f"holder takes {LARGEST_SUM}",
                remedy="use fewer features",
            )

    @property
    def holder_index(self) -> int:
        """The key holder's index in the roster."""
        return next(iter(self.helpers))

    @property
    def holder(self) -> bytes:
        """The key holder's Ed25519 public key."""
        return self.helpers[self.holder_index]

    @property
    def holder_name(self) -> str:
        """The key holder's name, for error messages that blame it."""
        return self.names.get(self.holder_index, "key holder")

    @cached_property
    def parameters(self) -> HeParameters:
        """The plan's BFV parameters. Raises CapacityExceeded, or BadInput if none reach the plan's security level."""
        needed = self.largest.bit_length() + 1
        if needed > self.ring.bits:
            raise CapacityExceeded("the ring of the sum (bits)", needed, self.ring.bits)
        return for_capacity(self.largest, len(self.identities), self.security)

    @property
    def ciphertexts(self) -> int:
        """The number of ciphertexts that one vector takes, which is the same for the sum."""
        return self.parameters.ciphertexts(self.length)

    @property
    def sum_bytes(self) -> int:
        """Size in bytes of the sum's packed ciphertexts."""
        return self.parameters.packed_bytes(self.length)

    @property
    def upload_bytes(self) -> int:
        """Size in bytes of an upload: ciphertexts as long as the sum's, random bytes that blind the digest, and proofs.

        Before proofs stands the seed of the blindings' part that the server opens.
        """
        return self.sum_bytes + BLIND_BYTES + SEED_BYTES * self.proves_bits + self.proof_bytes

    def summed(self, packed: bytes) -> Polynomials:
        """Unpack the ciphertexts of the sum. Raises MalformedMessage for bytes that are not such ciphertexts."""
        parameters = self.parameters
        return unpack(packed, self.ciphertexts, parameters.primes, parameters.degree, parameters.entry_bytes)

    def uploaded(self, vector: bytes) -> Polynomials:
        """Unpack the ciphertexts at the front of an upload. Raises MalformedMessage for bytes that hold none."""
        return self.summed(vector[: self.sum_bytes - self.upload_bytes])

    def seed_and_proofs(self, vector: bytes) -> tuple[bytes, bytes]:
        """Split what follows an upload's random bytes: the blindings' seed for the server, and the signed proofs."""
        begun = self.sum_bytes + BLIND_BYTES
        return vector[begun : begun + SEED_BYTES], vector[begun + SEED_BYTES :]

    def holds(self, integers: Integers) -> bool:
        """Return whether no entry's absolute value exceeds the largest that the plan allows in the sum."""
        return -self.largest <= int(integers.min()) and int(integers.max()) <= self.largest

    @property
    def fewest(self) -> int:
        """The smallest number of clients whose sum may be opened. Raises BadInput for a plan with fewer clients."""
        return fewest(self)

    @cached_property
    def binding(self) -> bytes:
        """The digest of round, session, roster and BFV parameters that every signature and key is bound to."""
        return digest("encrypted context", self.round_digest, self.session_id, self.roster, self.parameters.digest())


def fewest(context: SessionContext) -> int:
    """Return the smallest number of clients whose sum may be opened: at least all but the tolerated drop-outs.

    It is at least the plan's minimum and two more than the colluders. Raises BadInput when there are fewer clients.
    """
    clients = len(context.identities)
    needed = max(context.min_clients_in_sum, context.colluders + 2, clients - context.dropouts)
    if needed > clients:
        raise BadInput(
            f"a sum of {needed} clients cannot be reached with {clients}",
            remedy="lower colluders or min_clients_in_sum",
        )
    return needed


def explain(context: SessionContext) -> str:
    """Return a text for people: the conditions under which vectors stay secret and the sum can be opened."""
    n, d, c = len(context.clients), context.dropouts, context.colluders
    needed = f"all but D = {d} of n = {n}, and at least 2 more than c = {c}"
    lines = [
        "a vector stays secret unless the server and the key holder collude; clients speak once and may leave",
        f"the sum of fewer than {fewest(context)} clients is never opened: {needed}",
        "the key holder is trusted to be there and to open one sum, once, as it is; the server to add what it got",
        "the key holder, honest or not, learns nothing but the sum that it opens, whatever key it made",
    ]
    return "\n".join(lines)


def message_digest(value: PublishedKey | EncryptedUpload | Declaration) -> bytes:
    """Return the SHA-256 of a message's canonical encoding."""
    return hashlib.sha256(encode(value)).digest()


def _key_parts(context: EncryptedContext, key: PublishedKey) -> tuple[bytes, ...]:
    return (context.binding, key.parameters, key.public_key, key.sealing_key)


def sign_key(context: EncryptedContext, identity: SigningKey, key: PublishedKey) -> PublishedKey:
    """Return the published key with the key holder's signature, in place of any other."""
    return replace(key, signature=identity.sign("published key", *_key_parts(context, key)))


def key_is_signed(context: EncryptedContext, key: PublishedKey) -> bool:
    """Return whether the key holder signed this published key for this session."""
    return is_signed(context.holder, key.signature, "published key", *_key_parts(context, key))


def _upload_parts(context: EncryptedContext, upload: EncryptedUpload) -> tuple[bytes, ...]:
    size = upload.length.to_bytes(8, "big")
    return (context.binding, number(upload.member), size, upload.digest, upload.key, upload.sealed_seed)


def sign_upload(context: EncryptedContext, identity: SigningKey, upload: EncryptedUpload) -> EncryptedUpload:
    """Return the upload with its client's signature."""
    return replace(upload, signature=identity.sign("encrypted upload", *_upload_parts(context, upload)))


def upload_is_signed(context: EncryptedContext, upload: EncryptedUpload) -> bool:
    """Return whether the client that the upload names signed it for this session, by its identity in the roster."""
    identity = context.identities.get(upload.member, b"")
    return is_signed(identity, upload.signature, "encrypted upload", *_upload_parts(context, upload))


def _declaration_parts(context: EncryptedContext, declaration: Declaration) -> tuple[bytes, ...]:
    return (context.binding, declaration.total, *(message_digest(upload) for upload in declaration.uploads))


def sign_declaration(context: EncryptedContext, identity: SigningKey, declaration: Declaration) -> Declaration:
    """Return the server's declaration of the summed uploads, with the server's signature."""
    return replace(declaration, signature=identity.sign("declaration", *_declaration_parts(context, declaration)))


def declaration_is_signed(context: EncryptedContext, declaration: Declaration) -> bool:
    """Return whether the server signed this declaration of the summed uploads and their sum for this session."""
    return is_signed(context.server, declaration.signature, "declaration", *_declaration_parts(context, declaration))


def _opened_parts(context: EncryptedContext, opened: OpenedSum) -> tuple[bytes, ...]:
    return (context.binding, opened.declaration, opened.length.to_bytes(8, "big"), opened.digest)


def sign_opened(context: EncryptedContext, identity: SigningKey, opened: OpenedSum) -> OpenedSum:
    """Return the announcement of the opened sum with the key holder's signature."""
    return replace(opened, signature=identity.sign("opened sum", *_opened_parts(context, opened)))


def opened_is_signed(context: EncryptedContext, opened: OpenedSum) -> bool:
    """Return whether the key holder signed this announcement of the opened sum in this session."""
    return is_signed(context.holder, opened.signature, "opened sum", *_opened_parts(context, opened))


def seed_address(context: EncryptedContext, member: int) -> Address:
    """Return what the envelope of a mask's seed is bound to: session, step, client and key holder."""
    return Address(context.binding, "EncryptedUpload", member, context.holder_index)


def blinding_key(context: EncryptedContext, seed: bytes, member: int) -> bytes:
    """Derive the key of the part of a client's blindings that who has the seed opens: key holder or server."""
    return derive(seed, context.binding, "entry blindings", number(member))


def mask_keys(context: EncryptedContext, seed: bytes, member: int) -> tuple[bytes, ...]:
    """Derive this session's mask keystream keys from a client's seed, one for each prime of the ciphertext modulus."""
    places = range(len(context.parameters.primes))
    return tuple(derive(seed, context.binding, "upload mask", number(member), number(place)) for place in places)
