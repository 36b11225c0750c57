"""Messages of the encrypted protection; the bounds and meaning of fields are in protos/secagg/v1/encryption.proto."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from secagg.agreement.roster import MAX_CLIENTS
from secagg.crypto.sealing import TAG_BYTES
from secagg.protection.messages import MAX_VECTOR_BYTES, Announcement, Digest, Index, Signature
from secagg.wire import Items, Length, Range, message

Key = Annotated[bytes, Length(32)]
SEED_BYTES = 32
BLIND_BYTES = 32
"""Random bytes at the end of an upload, so that its digest, which the key holder sees, reveals nothing of the rest."""
LARGEST_SUM = 60 << 20
"""Bytes of the longest packed sum: with the declaration of 4,096 uploads it fits into one frame."""


@message("PublishedKey")
@dataclass(frozen=True)
class PublishedKey:
    """The key holder's public keys for one session: one for BFV, one to which clients seal their masks' seeds."""

    parameters: Digest
    public_key: Annotated[bytes, Length(1, 4 << 20)] = field(repr=False)
    sealing_key: Key
    signature: Signature


@message("EncryptedUpload")
@dataclass(frozen=True)
class EncryptedUpload(Announcement):
    """A client's announcement of its ciphertexts (length and digest), with its mask's seed sealed to the key holder."""

    member: Index
    length: Annotated[int, Range(1, MAX_VECTOR_BYTES)]
    digest: Digest
    key: Digest
    ephemeral: Key
    sealed_seed: Annotated[bytes, Length(SEED_BYTES + TAG_BYTES)]
    signature: Signature


@message("Declaration")
@dataclass(frozen=True)
class Declaration:
    """The server's signed statement of which uploads are in the sum, with the digest of the packed sum."""

    uploads: Annotated[tuple[EncryptedUpload, ...], Items(1, MAX_CLIENTS, ascending="member")]
    total: Digest
    signature: Signature

    @property
    def members(self) -> tuple[int, ...]:
        """The clients whose uploads are in the sum, in order."""
        return tuple(upload.member for upload in self.uploads)


@message("SumRequest")
@dataclass(frozen=True)
class SumRequest:
    """The server's request that the key holder open the sum: the signed declaration and the packed ciphertexts."""

    declaration: Declaration
    packed: Annotated[bytes, Length(1, LARGEST_SUM)] = field(repr=False)


@message("OpenedSum")
@dataclass(frozen=True)
class OpenedSum(Announcement):
    """The key holder's signed length and digest of the decrypted sum, whose bytes (packed ring elements) follow."""

    declaration: Digest
    length: Annotated[int, Range(1, LARGEST_SUM)]
    digest: Digest
    signature: Signature
