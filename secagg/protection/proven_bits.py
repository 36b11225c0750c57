"""Clients' proofs that the entries of an exact census are 0 or 1, and that the opened census is their sum.

In such a sum (`SessionContext.proves_bits`) each client commits to every entry and proves it
(`secagg.crypto.bit_proofs`). What it signs of that follows its protected vector. Its blindings are sums of streams of
keys that the protection opens as it opens masks, so that the blindings of all clients in the sum are known once the sum
is, and those of one client never: with them its commitments could be tried against 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from secagg.crypto import bit_proofs, envelopes
from secagg.crypto.bit_proofs import (
    SCALAR_BYTES,
    WIDE_BYTES,
    ZERO,
    add_scalars,
    add_up_to,
    are_bits,
    prove_bits,
    scalars_of,
)
from secagg.crypto.labels import digest, number
from secagg.crypto.signatures import SIGNATURE_BYTES, is_signed
from secagg.crypto.stream import keystream
from secagg.encoding import Integers
from secagg.errors import ProtocolViolation
from secagg.protection.interface import LocalParty, SessionContext


def check_libraries() -> None:
    """Raise BadInput, with the remedy, if a library lacks what envelopes or proofs need, before a session begins."""
    envelopes.check_library()
    bit_proofs.check_library()


class Blindings:
    """The sum of blindings of one or several clients, a scalar for each entry; without any if the context has none."""

    def __init__(self, context: SessionContext, packed: bytes = b"") -> None:
        self._first = -(-context.length * context.ring.word.itemsize // 16)
        self.scalars = [packed[start : start + SCALAR_BYTES] for start in range(0, len(packed), SCALAR_BYTES)]
        self.scalars = self.scalars or [ZERO] * context.length * context.proves_bits

    def apply(self, key: bytes, sign: int) -> None:
        """Add sign times the scalars of a mask's keystream, which stand after the mask of the vector."""
        if self.scalars:
            uniform = keystream(key, WIDE_BYTES * len(self.scalars), self._first)
            self.scalars = add_scalars(self.scalars, scalars_of(uniform), sign)

    def add(self, other: Blindings) -> None:
        """Add the scalars of another sum of blindings."""
        self.scalars = add_scalars(self.scalars, other.scalars)

    @property
    def packed(self) -> bytes:
        """The scalars as bytes, 32 each."""
        return b"".join(self.scalars)


def prove_entries(context: SessionContext, me: LocalParty, bits: Iterable[int], blindings: Blindings) -> bytes:
    """Return this client's signed commitments and proofs for the entries of its vector; empty if the sum has none."""
    if not context.proves_bits:
        return b""
    proofs = prove_bits(bits, blindings.scalars, me.randomness, _binding(context, me.member))
    return me.identity.sign("proven bits", *_parts(context, me.member), proofs) + proofs


def check_proofs(context: SessionContext, client: int, proofs: bytes, culprit: int) -> None:
    """Raise ProtocolViolation (`culprit`: who shows them) unless these are `client`'s signed proofs for each entry."""
    if not context.proves_bits:
        return
    is_whole, identity = len(proofs) == context.proof_bytes, context.identities.get(client, b"")
    signature, proofs = proofs[:SIGNATURE_BYTES], proofs[SIGNATURE_BYTES:]
    if not (is_whole and is_signed(identity, signature, "proven bits", *_parts(context, client), proofs)):
        raise ProtocolViolation(culprit, f"shows proofs that member {client} did not sign for this census")
    if not are_bits(proofs, _binding(context, client)):
        raise ProtocolViolation(culprit, f"shows a census entry of member {client} that is not proven to be 0 or 1")


def is_census_of(context: SessionContext, proofs: Iterable[bytes], census: Integers, blindings: Blindings) -> bool:
    """Return whether an opened sum is that of the entries in clients' checked proofs; True in a sum without proofs."""
    if not context.proves_bits:
        return True
    return add_up_to([each[SIGNATURE_BYTES:] for each in proofs], census.tolist(), blindings.scalars)


def check_census(
    context: SessionContext, proofs: Mapping[int, bytes], census: Integers, blindings: Blindings, culprit: int
) -> None:
    """Check all proofs, and that the census is the sum of their entries. Raises ProtocolViolation (`culprit`).

    For those who are shown a sum: an honest server has made the same checks, and shows none that fails.
    """
    for client, shown in proofs.items():
        check_proofs(context, client, shown, culprit)
    if not is_census_of(context, proofs.values(), census, blindings):
        raise ProtocolViolation(culprit, "opens a census that is not the sum of the entries that clients proved")


def split_proofs(context: SessionContext, clients: Sequence[int], proofs: bytes) -> dict[int, bytes]:
    """Return each client's proofs, from those of all in the clients' order."""
    size = context.proof_bytes
    return {client: proofs[place * size : (place + 1) * size] for place, client in enumerate(clients)}


PROVEN_CENSUS = "the published census is the sum of entries that each of its clients has proven to be 0 or 1"
"""A text on what the transcript of a census proves, with the files of its release."""
NO_CENSUS = "the opened census is not the sum of the entries that clients proved; nobody can tell whose doing that is"


def _parts(context: SessionContext, client: int) -> tuple[bytes, ...]:
    return context.round_digest, context.session_id, context.roster, number(client)


def _binding(context: SessionContext, client: int) -> bytes:
    return digest("bit prover", *_parts(context, client))
