"""Messages and states of the encrypted protocol. Bounds and meaning: protos/secagg/v1/encryption.proto."""

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
    """The key holder's BFV public key, and the key that mask seeds are sealed to, made for one session."""

    parameters: Digest
    public_key: Annotated[bytes, Length(1, 4 << 20)] = field(repr=False)
    sealing_key: Key
    signature: Signature


@message("EncryptedUpload")
@dataclass(frozen=True)
class EncryptedUpload(Announcement):
    """The announcement of a client's ciphertexts, with the seed of its mask sealed to the key holder."""

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
    """The uploads in the sum, and the digest of the packed sum, signed by the server."""

    uploads: Annotated[tuple[EncryptedUpload, ...], Items(1, MAX_CLIENTS, ascending="member")]
    total: Digest
    signature: Signature

    @property
    def members(self) -> tuple[int, ...]:
        """The members whose uploads are in the sum, in order."""
        return tuple(upload.member for upload in self.uploads)


@message("SumRequest")
@dataclass(frozen=True)
class SumRequest:
    """The declaration and the packed sum that the key holder is to open."""

    declaration: Declaration
    packed: Annotated[bytes, Length(1, LARGEST_SUM)] = field(repr=False)


@message("OpenedSum")
@dataclass(frozen=True)
class OpenedSum(Announcement):
    """The announcement of the opened sum, packed in the session's ring and signed by the key holder."""

    declaration: Digest
    length: Annotated[int, Range(1, LARGEST_SUM)]
    digest: Digest
    signature: Signature
