"""The server of the encrypted protocol: it adds ciphertexts as they arrive, declares the set, and takes the opening.

Memory is one running sum, whatever the number of clients. The server needs no homomorphic library: adding ciphertexts
is adding coefficients modulo the primes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from secagg.crypto.agreement import is_usable
from secagg.crypto.signatures import SigningKey
from secagg.encoding import Integers
from secagg.errors import MalformedMessage, ProtocolViolation, SessionAborted
from secagg.protection.encryption import binding as bind
from secagg.protection.encryption.binding import EncryptedContext
from secagg.protection.encryption.client import HOLDER, check_key
from secagg.protection.encryption.messages import Declaration, EncryptedUpload, OpenedSum, PublishedKey
from secagg.protection.encryption.polynomials import add, pack, unpack
from secagg.protection.seam import Collected


class AwaitingCiphertexts:
    """Collects uploads under one published key. Raises ProtocolViolation (key holder) for a key that is none."""

    def __init__(self, context: EncryptedContext, published: PublishedKey) -> None:
        check_key(context, published)
        self._context = context
        self._key = bind.message_digest(published)
        self._collected = Collected(context, context.clients)
        parameters = context.parameters
        shape = (parameters.ciphertexts(context.length), 2, len(parameters.primes), parameters.degree)
        self._total = np.zeros(shape, dtype=np.uint64)
        self.expected = self._collected.expected

    def accept(self, member: int, incoming: EncryptedUpload, packed: bytes) -> None:
        """Check an upload with its ciphertexts and add them; the same upload twice changes nothing.

        Raises ProtocolViolation, with the member as culprit, for what is not signed by it for this session and key,
        not of the one right size, or no ciphertexts of these parameters.
        """
        if not self._collected.is_new(member, incoming):
            return
        self._check(member, incoming)
        name, parameters = self._context.names[member], self._context.parameters
        if len(packed) != incoming.length or hashlib.sha256(packed).digest() != incoming.digest:
            raise ProtocolViolation(name, "sends other bytes than its signed upload announces")
        try:
            number = parameters.ciphertexts(self._context.length)
            polynomials = unpack(packed, number, parameters.primes, parameters.degree, parameters.entry_bytes)
        except MalformedMessage as error:
            raise ProtocolViolation(name, f"uploads what is no ciphertext: {error.problem}") from None
        add(self._total, polynomials, parameters.primes)
        self._collected.put(member, incoming)

    @property
    def complete(self) -> bool:
        """Whether every client's ciphertexts are in the sum."""
        return len(self._collected.messages) == len(self.expected)

    def close(self, identity: SigningKey) -> DeclaredSum:
        """Declare the set, signed by the server. Raises SessionAborted when too few have uploaded."""
        uploads = [self._collected.messages[member] for member in self._collected.members]
        if len(uploads) < self._context.fewest:
            raise SessionAborted(f"only {len(uploads)} clients uploaded; at least {self._context.fewest} are needed")
        packed = pack(self._total, self._context.parameters.entry_bytes)
        unsigned = Declaration(tuple(uploads), hashlib.sha256(packed).digest(), bytes(64))
        return DeclaredSum(bind.sign_declaration(self._context, identity, unsigned), packed)

    def _check(self, member: int, upload: EncryptedUpload) -> None:
        name = self._context.names[member]
        size = self._context.parameters.packed_bytes(self._context.length)
        if upload.member != member or not bind.upload_is_signed(self._context, upload):
            raise ProtocolViolation(name, "the upload is not signed by it for this session")
        if upload.key != self._key:
            raise ProtocolViolation(name, "the upload is for another published key")
        if upload.length != size:
            raise ProtocolViolation(name, f"announces {upload.length} bytes, not {size}")
        if not is_usable(upload.ephemeral):
            raise ProtocolViolation(name, "the upload's key is of small order")


@dataclass(frozen=True)
class DeclaredSum:
    """The signed declaration and the packed sum for the key holder."""

    declaration: Declaration
    packed: bytes = field(repr=False)

    def opened(self, context: EncryptedContext, opened: OpenedSum) -> Integers:
        """The signed integers of the sum. Raises ProtocolViolation (key holder) for what is no opening of this sum."""
        if not bind.opened_is_signed(context, opened):
            raise ProtocolViolation(HOLDER, "the opened sum is not signed for this session")
        if opened.declaration != bind.message_digest(self.declaration):
            raise ProtocolViolation(HOLDER, "opened another sum than the declared one")
        if len(opened.values) != 8 * context.length:
            raise ProtocolViolation(HOLDER, f"opened {len(opened.values)} bytes, not {context.length} integers")
        return np.frombuffer(opened.values, dtype="<i8").astype(np.int64)
