"""What the encrypted protocol hashes, signs and derives: one function for each labelled string."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from secagg.crypto.agreement import AgreementKey, derive
from secagg.crypto.labels import digest, labelled, number
from secagg.crypto.signatures import SigningKey, is_signed
from secagg.errors import BadInput, CapacityExceeded
from secagg.protection.encryption.messages import Declaration, EncryptedUpload, OpenedSum, PublishedKey
from secagg.protection.encryption.parameters import HeParameters, for_capacity
from secagg.protection.seam import SessionContext
from secagg.wire import encode

LONGEST_SUM = (63 << 20) // 8
"""Integers in the longest `OpenedSum`."""


@dataclass(frozen=True)
class EncryptedContext(SessionContext):
    """The public facts of an encrypted session.

    `server` and `holder` are the Ed25519 identities of the server and of the key holder; `largest` is the plan's
    capacity: the largest absolute value of an entry of the sum, noise included. Raises BadInput for a sum too long.
    """

    server: bytes
    holder: bytes
    largest: int

    def __post_init__(self) -> None:
        if self.length > LONGEST_SUM:
            raise BadInput(
                f"an opened sum of {self.length} integers does not fit one message, which takes {LONGEST_SUM}",
                remedy="use fewer features",
            )

    @property
    def parameters(self) -> HeParameters:
        """The BFV parameters that the plan leads to. Raises CapacityExceeded."""
        found = for_capacity(self.largest, len(self.identities))
        if found.plain_bits > self.ring.bits:
            raise CapacityExceeded("the ring of the sum (bits)", found.plain_bits, self.ring.bits)
        return found

    @classmethod
    def of(cls, session: SessionContext, server: bytes, holder: bytes, largest: int) -> EncryptedContext:
        """A session of the plan with its two openers and its capacity."""
        return cls(**vars(session), server=server, holder=holder, largest=largest)

    @property
    def fewest(self) -> int:
        """The smallest number of clients whose sum is opened. Raises BadInput when there are not that many."""
        return fewest(self)

    @property
    def binding(self) -> bytes:
        """Digest of plan, session, roster and parameters, inside every signature and key."""
        return digest("encrypted context", self.plan, self.session, self.roster, self.parameters.digest())


def fewest(context: SessionContext) -> int:
    """The smallest number of clients whose sum is opened: all but the tolerated dropouts, two of them honest.

    Raises BadInput when there are not that many clients.
    """
    clients = len(context.identities)
    needed = max(context.minimum_cohort, context.colluders + 2, clients - context.dropouts)
    if needed > clients:
        raise BadInput(
            f"a sum of {needed} clients cannot be reached with {clients}",
            remedy="lower colluders or minimum_cohort",
        )
    return needed


def explain(context: SessionContext) -> str:
    """What holds, in words."""
    n, d, c = len(context.clients), context.dropouts, context.colluders
    needed = f"all but D = {d} of n = {n}, and at least 2 more than c = {c}"
    lines = [
        "a vector stays secret unless the server and the key holder collude; clients speak once and may leave",
        f"the sum of fewer than {fewest(context)} clients is never opened: {needed}",
        "the key holder is trusted to be there and to open one sum, once, as it is; the server to add what it got",
        "the rounding of the ciphertexts tells the key holder a little more than the sum; no promise covers that",
    ]
    return "\n".join(lines)


def message_digest(value: PublishedKey | EncryptedUpload | Declaration) -> bytes:
    """SHA-256 of the canonical message."""
    return hashlib.sha256(encode(value)).digest()


def _key_parts(context: EncryptedContext, key: PublishedKey) -> tuple[bytes, ...]:
    return (context.binding, key.parameters, key.public_key, key.sealing_key)


def sign_key(context: EncryptedContext, identity: SigningKey, key: PublishedKey) -> PublishedKey:
    """The key with the key holder's signature in place of whatever stood there."""
    return replace(key, signature=identity.sign("published key", *_key_parts(context, key)))


def key_is_signed(context: EncryptedContext, key: PublishedKey) -> bool:
    """Whether the key holder published this key for this session."""
    return is_signed(context.holder, key.signature, "published key", *_key_parts(context, key))


def _upload_parts(context: EncryptedContext, upload: EncryptedUpload) -> tuple[bytes, ...]:
    size = upload.length.to_bytes(8, "big")
    sealed = (upload.ephemeral, upload.sealed_seed)
    return (context.binding, number(upload.member), size, upload.digest, upload.key, *sealed)


def sign_upload(context: EncryptedContext, identity: SigningKey, upload: EncryptedUpload) -> EncryptedUpload:
    """The upload with its client's signature."""
    return replace(upload, signature=identity.sign("encrypted upload", *_upload_parts(context, upload)))


def upload_is_signed(context: EncryptedContext, upload: EncryptedUpload) -> bool:
    """Whether the roster's identity of `upload.member` signed the upload for this session."""
    identity = context.identities.get(upload.member, b"")
    return is_signed(identity, upload.signature, "encrypted upload", *_upload_parts(context, upload))


def _declaration_parts(context: EncryptedContext, declaration: Declaration) -> tuple[bytes, ...]:
    return (context.binding, declaration.total, *(message_digest(upload) for upload in declaration.uploads))


def sign_declaration(context: EncryptedContext, identity: SigningKey, declaration: Declaration) -> Declaration:
    """The declaration with the server's signature."""
    return replace(declaration, signature=identity.sign("declaration", *_declaration_parts(context, declaration)))


def declaration_is_signed(context: EncryptedContext, declaration: Declaration) -> bool:
    """Whether the server declared this set and sum for this session."""
    return is_signed(context.server, declaration.signature, "declaration", *_declaration_parts(context, declaration))


def sign_opened(context: EncryptedContext, identity: SigningKey, opened: OpenedSum) -> OpenedSum:
    """The opened sum with the key holder's signature."""
    return replace(opened, signature=identity.sign("opened sum", context.binding, opened.declaration, opened.values))


def opened_is_signed(context: EncryptedContext, opened: OpenedSum) -> bool:
    """Whether the key holder opened this sum in this session."""
    return is_signed(context.holder, opened.signature, "opened sum", context.binding, opened.declaration, opened.values)


def seed_key(context: EncryptedContext, secret: AgreementKey, peer: bytes, member: int, key: bytes) -> bytes:
    """Single-use key that seals `member`'s mask seed under the published key of digest `key`. Raises WeakPublicKey."""
    return secret.agree(peer, context.binding, "mask seed", number(member), key)


def seed_associated(context: EncryptedContext, member: int, key: bytes) -> bytes:
    """Associated data of a sealed mask seed: session, published key and sender."""
    return labelled("sealed mask seed", context.binding, number(member), key)


def mask_key(context: EncryptedContext, seed: bytes, member: int) -> bytes:
    """Key of the mask stream that `member`'s seed stands for in this session."""
    return derive(seed, context.binding, "upload mask", number(member))
