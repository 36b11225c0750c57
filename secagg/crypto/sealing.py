"""Authenticated encryption of one message under a key that is used once.

ChaCha20-Poly1305 (RFC 8439). The nonce is zero because every key seals exactly one message: a state file's key is drawn
anew each time that the file is written. What is sealed to another party goes into an envelope (`envelopes.py`).
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

_NONCE = bytes(12)


class SealBroken(ValueError):
    """Raised for a ciphertext that was not made under this key and associated data."""


def seal(key: bytes, message: bytes, associated: bytes) -> bytes:
    """Encrypt `message` under a 32-byte single-use key and authenticate `associated`; the result is 16 bytes longer."""
    return ChaCha20Poly1305(key).encrypt(_NONCE, message, associated)


def unseal(key: bytes, sealed: bytes, associated: bytes) -> bytes:
    """Decrypt what `seal` returned. Raises SealBroken if key, ciphertext or associated data differ."""
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, associated)
    except InvalidTag:
        raise SealBroken("the seal does not verify") from None
