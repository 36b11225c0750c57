"""Ed25519 signatures (RFC 8032) over labelled parts."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from secagg.crypto.labels import labelled
from secagg.randomness import RandomSource


@dataclass(frozen=True)
class SigningKey:
    """A member's identity key. `public` is 32 bytes; the private half never prints."""

    public: bytes
    _private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def from_bytes(cls, private: bytes) -> SigningKey:
        """Read 32 private bytes. Raises ValueError for another length."""
        key = Ed25519PrivateKey.from_private_bytes(private)
        return cls(key.public_key().public_bytes_raw(), key)

    @classmethod
    def generate(cls, randomness: RandomSource) -> SigningKey:
        """A fresh key."""
        return cls.from_bytes(randomness.bytes(32))

    def private_bytes(self) -> bytes:
        """The 32 private bytes, for the key file only."""
        return self._private.private_bytes_raw()

    def sign(self, label: str, *parts: bytes) -> bytes:
        """64-byte signature over the labelled parts."""
        return self._private.sign(labelled(label, *parts))


def is_signed(public: bytes, signature: bytes, label: str, *parts: bytes) -> bool:
    """Whether `signature` is `public`'s over the labelled parts."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, labelled(label, *parts))
    except (InvalidSignature, ValueError):
        return False
    return True
