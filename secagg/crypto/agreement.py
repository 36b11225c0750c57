"""X25519 key agreement (RFC 7748) and HKDF-SHA-256 (RFC 5869)."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secagg.crypto.labels import labelled
from secagg.crypto.shared_work import once
from secagg.randomness import RandomSource

KEY_BYTES = 32


class WeakPublicKey(ValueError):
    """Raised for a peer's public key of small order: the shared secret would be all zero (RFC 7748, section 6.1)."""


def is_usable(public: bytes) -> bool:
    """Return whether an X25519 public key is encoded canonically (below 2²⁵⁵ − 19) and is not of small order."""
    if len(public) != KEY_BYTES or int.from_bytes(public, "little") >= 2**255 - 19:
        return False
    any_scalar = bytes([64] + [0] * 30 + [64])  # all are multiples of 8
    probe = X25519PrivateKey.from_private_bytes(any_scalar)
    try:
        probe.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class AgreementKey:
    """An ephemeral X25519 key pair; `repr` never shows the private half."""

    public: bytes
    _private: X25519PrivateKey = field(repr=False)

    @classmethod
    def from_bytes(cls, private: bytes) -> AgreementKey:
        """Return the key pair with these 32 private bytes. Raises ValueError for another length."""
        key = X25519PrivateKey.from_private_bytes(private)
        return cls(key.public_key().public_bytes_raw(), key)

    @classmethod
    def generate(cls, randomness: RandomSource) -> AgreementKey:
        """Return a fresh key pair."""
        return cls.from_bytes(randomness.bytes(KEY_BYTES))

    def private_bytes(self) -> bytes:
        """Return the 32 private bytes, to be secret-shared or encrypted."""
        return self._private.private_bytes_raw()

    def agree(self, peer: bytes, context: bytes, label: str, *parts: bytes) -> bytes:
        """Derive a 32-byte key from the X25519 secret with `peer`, a context, label and parts. Raises WeakPublicKey."""
        pair = tuple(sorted((self.public, peer)))  # both ends get the same
        return once((pair, context, label, parts), lambda: derive(self._secret(pair, peer), context, label, *parts))

    def _secret(self, pair: tuple[bytes, ...], peer: bytes) -> bytes:
        try:
            return once(pair, lambda: self._private.exchange(X25519PublicKey.from_public_bytes(peer)))
        except ValueError:
            raise WeakPublicKey("the peer's X25519 key gives an all-zero secret") from None


def derive(secret: bytes, context: bytes, label: str, *parts: bytes) -> bytes:
    """Derive 32 bytes from `secret` by HKDF-SHA-256: salt = `context` (32 bytes), info = `labelled(label, *parts)`."""
    return HKDF(SHA256(), KEY_BYTES, salt=context, info=labelled(label, *parts)).derive(secret)
