"""The integer sum Y of the masked uploads, and the random linear tags by which everyone checks it.

A tag of an upload y is ⟨r, y⟩ modulo 2⁶⁴ with r uniform: the check of Freivalds 1977 ("Probabilistic machines can
use less running time"), for sums the small-exponents test of Bellare, Garay & Rabin 1998 (EUROCRYPT, section 3.3).
The vectors r₁ … r₁₀ follow by Fiat & Shamir 1986 from the hash of all that is endorsed, the digest of Y among it;
honest clients' uploads are fixed before, by their signed headers.

Soundness. For words of w ≤ 40 bits of n ≤ 2¹² clients an entry e ≠ 0 of a false Y minus the true one has |e| < n·2ʷ,
so that ⟨r, e⟩ = 0 modulo 2⁶⁴ with probability at most 2^(w + ⌈log₂ n⌉ − 65). All ten tags miss it with 2⁻¹³⁰ at the
worst, and with 2⁻⁶⁶ for a server that tries 2⁶⁴ sums. Entries of more bits are cut into two words: whole, an error
that is a multiple of a large power of two would pass (of 2⁶³ each tag with probability ½).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.crypto.stream import MaskStream
from secagg.encoding import Residues
from secagg.errors import MalformedMessage
from secagg.protection.interface import SessionContext
from secagg.protection.masking import derivations as bind
from secagg.protection.masking.messages import TAGS

Words = NDArray[np.uint64]
_WIDEST = 40
_AT_ONCE = 1 << 15  # words that are packed together: a multiple of 8, so that they fill bytes


def _word_bits(context: SessionContext) -> int:
    """Bits of a word: all of an entry's, or half of them where an entry has more than 40."""
    bits = context.ring.bits
    return bits if bits <= _WIDEST else bits // 2


def _sum_bits(context: SessionContext) -> int:
    """Bits of an entry of Y: those of a word, and as many as its clients may carry."""
    return _word_bits(context) + (len(context.identities) - 1).bit_length()


def _word_count(context: SessionContext) -> int:
    return context.length * (context.ring.bits // _word_bits(context))


def words_of(context: SessionContext, upload: bytes) -> Words:
    """Return an upload's entries as words: as they are, or all their low halves, then all their high halves."""
    entries = context.ring.unpack(upload[: context.packed_bytes], context.length).astype(np.uint64, copy=False)
    bits = _word_bits(context)
    if bits == context.ring.bits:
        return entries
    return np.concatenate((entries & np.uint64((1 << bits) - 1), entries >> np.uint64(bits)))


def no_words(context: SessionContext) -> Words:
    """Return the sum of no upload, to which others are added in place."""
    return np.zeros(_word_count(context), dtype=np.uint64)


def residues_of(context: SessionContext, total: Words) -> Residues:
    """Return a sum of words as entries in the ring."""
    bits = _word_bits(context)
    if bits != context.ring.bits:
        total = total[: context.length] + (total[context.length :] << np.uint64(bits))
    return total.astype(context.ring.word)


def packed_size(context: SessionContext) -> int:
    """Size in bytes of the packed sum of words."""
    return -(-_word_count(context) * _sum_bits(context) // 8)


def pack_total(context: SessionContext, total: Words) -> bytes:
    """Pack a sum of words at as many bits as its entries can have, the lowest first."""
    bits, packed = _sum_bits(context), []
    for start in range(0, len(total), _AT_ONCE):
        part = total[start : start + _AT_ONCE].astype("<u8").view(np.uint8).reshape(-1, 8)
        packed.append(np.packbits(np.unpackbits(part, axis=1, bitorder="little")[:, :bits], bitorder="little"))
    return b"".join(map(bytes, packed))


def unpack_total(context: SessionContext, packed: bytes) -> Words:
    """Return the sum of words in packed bytes. Raises MalformedMessage for another length."""
    if len(packed) != packed_size(context):
        raise MalformedMessage("sum of uploads", f"it has {len(packed)} bytes, not {packed_size(context)}")
    bits, total = _sum_bits(context), no_words(context)
    step = _AT_ONCE * bits // 8
    for place, start in enumerate(range(0, len(packed), step)):
        count = min(_AT_ONCE, len(total) - place * _AT_ONCE)
        octets = np.frombuffer(packed, np.uint8, min(step, len(packed) - start), start)
        spread = np.zeros((count, 64), dtype=np.uint8)
        spread[:, :bits] = np.unpackbits(octets, count=count * bits, bitorder="little").reshape(count, bits)
        total[place * _AT_ONCE :][:count] = np.packbits(spread, axis=1, bitorder="little").view("<u8")[:, 0]
    return total


def tags_of(parts: tuple[bytes, ...], vectors: Sequence[Words]) -> NDArray[Any]:
    """Return each vector's ten tags, a row for each; `parts` are what an endorsement signs."""
    seed, stream = bind.challenge(parts), MaskStream()
    tags = np.zeros((len(vectors), TAGS), dtype="<u8")
    for place in range(TAGS if vectors else 0):
        random = np.zeros(len(vectors[0]), dtype=np.uint64)
        stream.apply(random, bind.tag_vector_key(seed, place + 1), 1)
        tags[:, place] = [np.dot(random, vector) for vector in vectors]
    return tags


def read_tags(tags: bytes) -> NDArray[Any]:
    """Return the ten numbers in a message's tags."""
    return np.frombuffer(tags, dtype="<u8")
