"""The mask stream: an AES-256-CTR keystream, read as ring elements and added to a vector in place.

Key = a 32-byte derived key used for one stream only, initial counter = 0. Entry k of the stream is the k-th
little-endian word of the keystream: 4 bytes wide in rings of up to 32 bits, 8 bytes above. A ring of fewer bits
takes the word modulo 2^bits, which keeps it uniform. What follows in the keystream serves other masks (`keystream`).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

_CHUNK_BYTES = 1 << 17  # stays in the second-level cache between encryption and addition
_ZEROS = bytes(_CHUNK_BYTES)
_BLOCK_BYTES = 16


def keystream(key: bytes, size: int, first: int) -> bytes:
    """Return `size` bytes of a key's keystream from its block number `first` on, of 16 bytes each."""
    return Cipher(AES256(key), CTR(first.to_bytes(_BLOCK_BYTES, "big"))).encryptor().update(bytes(size))


class KeystreamBytes:
    """A key's keystream, read from its beginning: a `RandomSource` whose bytes follow from the key."""

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(AES256(key), CTR(bytes(_BLOCK_BYTES))).encryptor()

    def bytes(self, count: int) -> bytes:
        """Return the next `count` bytes of the keystream."""
        return self._encryptor.update(bytes(count))


class MaskStream:
    """Adds mask keystreams to vectors or subtracts them; use one object per vector, since it holds one buffer."""

    def __init__(self) -> None:
        self._buffer = np.empty(_CHUNK_BYTES + _BLOCK_BYTES, dtype=np.uint8)

    def apply(self, vector: NDArray[Any], key: bytes, sign: Literal[1, -1]) -> None:
        """Add sign · stream(key) to a contiguous uint32 or uint64 `vector` in place, modulo 2³² or 2⁶⁴."""
        words = self._buffer[:_CHUNK_BYTES].view(vector.dtype.newbyteorder("<"))
        per_chunk = len(words)
        encryptor = Cipher(AES256(key), CTR(bytes(_BLOCK_BYTES))).encryptor()
        combine = np.add if sign == 1 else np.subtract
        for start in range(0, len(vector), per_chunk):
            part = vector[start : start + per_chunk]
            size = part.nbytes
            encryptor.update_into(memoryview(_ZEROS)[:size], self._buffer.data[: size + _BLOCK_BYTES])
            combine(part, words[: len(part)], out=part)
