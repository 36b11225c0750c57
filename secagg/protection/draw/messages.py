"""Messages of the draw, and what its parties hash and sign. Bounds and meaning: protos/secagg/v1/cohorts.proto."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

from secagg.agreement.roster import MAX_CLIENTS
from secagg.crypto.labels import digest, number
from secagg.crypto.signatures import SigningKey, is_signed
from secagg.protection import SessionContext
from secagg.protection.messages import Digest, Index, Signature
from secagg.wire import Items, Length, encode, message

Nonce = Annotated[bytes, Length(32)]
_UNSIGNED = bytes(64)


@message("NonceCommitment")
@dataclass(frozen=True)
class NonceCommitment:
    """A member's signed commitment to its nonce."""

    member: Index
    commitment: Digest
    signature: Signature

    @classmethod
    def of(cls, context: SessionContext, member: int, identity: SigningKey, nonce: bytes) -> NonceCommitment:
        """Commit to a uniform nonce, which its hash therefore hides."""
        bare = cls(member, commitment_to(context, member, nonce), _UNSIGNED)
        return replace(bare, signature=identity.sign("nonce commitment", *bare._parts(context)))

    def is_signed(self, context: SessionContext) -> bool:
        """Whether the member signed it for this plan."""
        identity = context.identities.get(self.member, b"")
        return is_signed(identity, self.signature, "nonce commitment", *self._parts(context))

    def _parts(self, context: SessionContext) -> tuple[bytes, ...]:
        return *_binding(context), number(self.member), self.commitment


@message("Commitments")
@dataclass(frozen=True)
class Commitments:
    """The commitments that the draw is made of."""

    entries: Annotated[tuple[NonceCommitment, ...], Items(1, MAX_CLIENTS, ascending="member")]

    @property
    def members(self) -> tuple[int, ...]:
        """Their members, in order."""
        return tuple(entry.member for entry in self.entries)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical bytes."""
        return hashlib.sha256(encode(self)).digest()


@message("NonceReveal")
@dataclass(frozen=True)
class NonceReveal:
    """A member's nonce, for one list of commitments alone."""

    member: Index
    nonce: Nonce
    signature: Signature

    @classmethod
    def of(
        cls, context: SessionContext, member: int, identity: SigningKey, nonce: bytes, commitments: bytes
    ) -> NonceReveal:
        """Reveal a nonce; `commitments` is the list's digest."""
        bare = cls(member, nonce, _UNSIGNED)
        return replace(bare, signature=identity.sign("nonce reveal", *bare._parts(context, commitments)))

    def is_signed(self, context: SessionContext, commitments: bytes) -> bool:
        """Whether the member signed it for this list."""
        identity = context.identities.get(self.member, b"")
        return is_signed(identity, self.signature, "nonce reveal", *self._parts(context, commitments))

    def _parts(self, context: SessionContext, commitments: bytes) -> tuple[bytes, ...]:
        return *_binding(context), number(self.member), self.nonce, commitments


@message("Draw")
@dataclass(frozen=True)
class Draw:
    """All commitments with the nonces behind them: plan and roster suffice to check it (`check_draw`)."""

    commitments: Commitments
    reveals: Annotated[tuple[NonceReveal, ...], Items(1, MAX_CLIENTS, ascending="member")]

    @property
    def members(self) -> tuple[int, ...]:
        """The members whose nonces are in it, in order."""
        return self.commitments.members


def commitment_to(context: SessionContext, member: int, nonce: bytes) -> bytes:
    """The hash that commits a member to a nonce."""
    return digest("nonce", *_binding(context), number(member), nonce)


def seed_of(context: SessionContext, draw: Draw) -> bytes:
    """The seed of the schedule (32 bytes): of plan, session, roster, who is in the draw, and their nonces alone.

    No signature of a reveal is in it: who reveals last could choose among several.
    """
    nonces = (reveal.nonce for reveal in draw.reveals)
    return digest("seed of the cohorts", *_binding(context), draw.commitments.digest, *nonces)


def _binding(context: SessionContext) -> tuple[bytes, ...]:
    return context.round_digest, context.session_id, context.roster
