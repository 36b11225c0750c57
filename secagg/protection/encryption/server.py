"""States of the encrypted sum's server: AwaitingHolder → AwaitingCiphertexts → CiphertextsToAdd → AwaitingOpening.

It relays the published key, adds the clients' ciphertexts, shows the sum to the key holder and takes the opening. It
needs no homomorphic library: adding ciphertexts is adding coefficients modulo the primes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.signatures import SigningKey
from secagg.encoding import Integers
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation, SessionAborted
from secagg.protection.encryption import derivations as bind
from secagg.protection.encryption.client import check_key
from secagg.protection.encryption.derivations import EncryptedContext
from secagg.protection.encryption.messages import Declaration, EncryptedUpload, OpenedSum, PublishedKey, SumRequest
from secagg.protection.encryption.polynomials import Polynomials, add, pack
from secagg.protection.interface import CollectingStep, Outgoing, SessionContext, VectorSum
from secagg.protection.messages import Attachment
from secagg.protection.proven_bits import (
    NO_CENSUS,
    Blindings,
    check_census,
    check_proofs,
    is_census_of,
    split_proofs,
)

_UNSIGNED = bytes(64)


class AwaitingHolder(CollectingStep[PublishedKey]):
    """The server's first step, in which it waits for the key holder's public key."""

    awaits: ClassVar[type] = PublishedKey
    is_joining: ClassVar[bool] = True

    def __init__(self, context: SessionContext) -> None:
        self._context = EncryptedContext.of(context)
        super().__init__(context.helpers)
        _ = self._context.fewest  # BadInput where the plan's numbers do not go together

    def check(self, member: int, incoming: PublishedKey) -> None:
        check_key(self._context, incoming, member)

    def close(self) -> tuple[AwaitingCiphertexts, Outgoing]:
        """Send the key holder's public key to every client. Raises SessionAborted if there is none."""
        if not self.complete:
            raise SessionAborted(f"{self._context.holder_name} published no key; nothing was sent")
        published = self.messages[self._context.holder_index]
        return AwaitingCiphertexts(self._context, published), dict.fromkeys(self._context.clients, published)


class AwaitingCiphertexts(CollectingStep[EncryptedUpload]):
    """The server's step that collects clients' ciphertexts, whose length and digest the caller has already checked."""

    awaits: ClassVar[type] = EncryptedUpload
    is_joining: ClassVar[bool] = True

    def __init__(self, context: EncryptedContext, published: PublishedKey) -> None:
        self._context = context
        super().__init__(context.clients, context.fewest)
        self._key = bind.message_digest(published)

    def check(self, member: int, incoming: EncryptedUpload) -> None:
        size = self.vector_bytes(member)
        if incoming.member != member or not bind.upload_is_signed(self._context, incoming):
            raise ProtocolViolation(member, "the upload is not signed by it for this session")
        if incoming.key != self._key:
            raise ProtocolViolation(member, "the upload is for another published key")
        if incoming.length != size:
            raise ProtocolViolation(member, f"announces {incoming.length} bytes, not {size}")

    def vector_bytes(self, member: int) -> int:
        """Return the size in bytes of one client's upload."""
        return self._context.upload_bytes

    def inspect(self, member: int, vector: bytes) -> None:
        """Raise ProtocolViolation, blaming the client, unless the bytes are ciphertexts, and census entries proven."""
        _ciphertexts(self._context, member, vector)
        check_proofs(self._context, member, self._context.seed_and_proofs(vector)[1], member)

    def close(self) -> tuple[CiphertextsToAdd, Outgoing]:
        """Fix the set of clients whose ciphertexts are summed. Raises SessionAborted for too few."""
        if self.is_short:
            raise SessionAborted(f"only {len(self.members)} clients uploaded; at least {self.enough} are needed")
        return CiphertextsToAdd(self._context, tuple(self.messages[member] for member in self.members)), {}


class CiphertextsToAdd:
    """The server's step in which it adds the accepted clients' ciphertexts one by one, for the key holder to open."""

    requests: ClassVar[type] = SumRequest

    def __init__(self, context: EncryptedContext, uploads: tuple[EncryptedUpload, ...]) -> None:
        self._context = context
        self._uploads = {upload.member: upload for upload in uploads}
        self._lacking = set(self._uploads)
        shape = (context.ciphertexts, 2, len(context.parameters.primes), context.parameters.degree)
        self._total = np.zeros(shape, dtype=np.uint64)

    @property
    def vectors(self) -> tuple[int, ...]:
        """The clients whose ciphertexts are to be added, in order."""
        return tuple(self._uploads)

    def add(self, member: int, vector: bytes) -> None:
        """Add a client's ciphertexts; a repeat changes nothing. Raises BadInput for bytes that it did not announce."""
        if hashlib.sha256(vector).digest() != self._uploads[member].digest:
            raise BadInput(f"the ciphertexts of {self._context.names[member]} are missing or not those that it signed")
        if member in self._lacking:
            add(self._total, _ciphertexts(self._context, member, vector), self._context.parameters.primes)
            self._lacking.remove(member)

    def request(self, identity: SigningKey) -> SumRequest:
        """Return the signed request to open the sum. Raises BadInput if a client's ciphertexts are lacking."""
        unsigned = self._unsigned()
        return replace(unsigned, declaration=bind.sign_declaration(self._context, identity, unsigned.declaration))

    def is_sum(self, request: SumRequest) -> bool:
        """Return whether a request, but for its signature, is the one for this sum. Raises BadInput like `request`."""
        return replace(request, declaration=replace(request.declaration, signature=_UNSIGNED)) == self._unsigned()

    def requested(self, request: SumRequest) -> tuple[AwaitingOpening, Outgoing]:
        """Send the signed request to the key holder and wait for the decrypted sum.

        Raises ProtocolViolation (culprit: the server) unless it signed it, for exactly the accepted uploads.
        """
        context, declaration = self._context, request.declaration
        if not bind.declaration_is_signed(context, declaration):
            raise ProtocolViolation(SERVER_INDEX, "the declaration is not signed for this session")
        if declaration.uploads != tuple(self._uploads.values()):
            raise ProtocolViolation(SERVER_INDEX, "declares other uploads than those that it took")
        if hashlib.sha256(request.packed).digest() != declaration.total:
            raise ProtocolViolation(SERVER_INDEX, "sends another sum than the declared one")
        return AwaitingOpening(context, declaration), {context.holder_index: request}

    def _unsigned(self) -> SumRequest:
        if self._lacking:
            names = ", ".join(self._context.names[member] for member in sorted(self._lacking))
            raise BadInput(f"the sum lacks the ciphertexts of {names}")
        packed = pack(self._total, self._context.parameters.entry_bytes)
        total = hashlib.sha256(packed).digest()
        return SumRequest(Declaration(tuple(self._uploads.values()), total, _UNSIGNED), packed)


class AwaitingOpening(CollectingStep[OpenedSum]):
    """The server's step that waits for the decrypted sum, whose length and digest the caller has already checked."""

    awaits: ClassVar[type] = OpenedSum

    def __init__(self, context: EncryptedContext, declaration: Declaration) -> None:
        self._context = context
        super().__init__(context.helpers)
        self._declaration = bind.message_digest(declaration)
        self._members = declaration.members

    def check(self, member: int, incoming: OpenedSum) -> None:
        if not bind.opened_is_signed(self._context, incoming):
            raise ProtocolViolation(member, "the opened sum is not signed for this session")
        if incoming.declaration != self._declaration:
            raise ProtocolViolation(member, "opened another sum than the declared one")
        if incoming.length != (size := self.vector_bytes(member)):
            raise ProtocolViolation(member, f"opened {incoming.length} bytes, not {size}")

    def vector_bytes(self, member: int) -> int:
        """Return the size in bytes of the decrypted sum, packed in the session's ring, and of opened blindings."""
        return self._context.packed_bytes + self._context.blinding_bytes

    def inspect(self, member: int, vector: bytes) -> None:
        """Raise ProtocolViolation, blaming the key holder, for integers that no sum of this plan can have."""
        context = self._context
        try:
            integers = context.ring.decode(
                context.ring.unpack(vector[: len(vector) - context.blinding_bytes], context.length)
            )
        except MalformedMessage as error:
            raise ProtocolViolation(context.holder_index, f"opened what is no sum: {error.problem}") from None
        if not context.holds(integers):
            raise ProtocolViolation(context.holder_index, "opened an entry outside the plan's capacity")

    def close(self) -> tuple[VectorSum, Outgoing]:
        """End the step: the vector from the key holder already is the sum of the clients' vectors."""
        if not self.complete:
            raise SessionAborted(f"{self._context.holder_name} did not open the sum")
        return OpenedCiphertexts(self._members, (self._context.holder_index,)), {}


@dataclass(frozen=True)
class OpenedCiphertexts(VectorSum):
    """The sum as the key holder opened it, and in a census what shows that clients' proven entries add up to it."""

    def release(
        self, context: EncryptedContext, read: Callable[[int], bytes], frames: Mapping[int, bytes]
    ) -> tuple[bytes, ...]:
        """Return no file but in a census, where others get the sum, then the blindings' sum with all proofs.

        Raises SessionAborted for a census that is not the sum of the proven entries.
        """
        if not context.proves_bits:
            return ()
        opened, proofs = read(context.holder_index), []
        packed, blindings = opened[: context.packed_bytes], Blindings(context, opened[context.packed_bytes :])
        for member in self.members:
            seed, shown = context.seed_and_proofs(read(member))
            blindings.apply(bind.blinding_key(context, seed, member), 1)
            proofs.append(shown)
        census = context.ring.decode(context.ring.unpack(packed, context.length))
        if not is_census_of(context, proofs, census, blindings):
            raise SessionAborted(NO_CENSUS)
        return packed, blindings.packed + b"".join(proofs)


def check_lengths(context: SessionContext, members: tuple[int, ...], named: Sequence[Attachment]) -> None:
    """Raise ProtocolViolation, blaming the server, unless the files of a release have the lengths of a sum."""
    proven = (context.blinding_bytes + len(members) * context.proof_bytes,) * context.proves_bits
    if tuple(each.length for each in named) != (context.packed_bytes, *proven):
        raise ProtocolViolation(SERVER_INDEX, "the released sum has another length than the plan's")


def open_release(
    context: SessionContext, heard: Mapping[type, Any], members: tuple[int, ...], parts: Sequence[bytes], signed: Any
) -> Integers:
    """Return a released sum. Raises ProtocolViolation, blaming the server, for a census that no proofs show."""
    opened = context.ring.decode(context.ring.unpack(parts[0], context.length))
    if context.proves_bits:
        blindings, proofs = parts[1][: context.blinding_bytes], parts[1][context.blinding_bytes :]
        shown = split_proofs(context, members, proofs)
        check_census(context, shown, opened, Blindings(context, blindings), SERVER_INDEX)
    return opened


def _ciphertexts(context: EncryptedContext, member: int, vector: bytes) -> Polynomials:
    try:
        return context.uploaded(vector)
    except MalformedMessage as error:
        raise ProtocolViolation(member, f"uploads what is no ciphertext: {error.problem}") from None
