"""Ed25519 signatures (RFC 8032) over a domain-separation label and byte strings, joined by `labelled`."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from secagg.crypto.labels import labelled
from secagg.crypto.shared_work import once
from secagg.randomness import RandomSource

SIGNATURE_BYTES = 64
_PRIME = 2**255 - 19
_OF_ORDER_8 = (
    0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
    0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD83D3D706A17C7,
)
_SMALL_ORDER = {0, 1, _PRIME - 1, *_OF_ORDER_8}
"""The y coordinates of the eight points whose order divides 8: two points for each y, but one for 1 and for −1."""


@dataclass(frozen=True)
class SigningKey:
    """The Ed25519 key pair that identifies a party. `public` has 32 bytes; `repr` never shows the private half."""

    public: bytes
    _private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def from_bytes(cls, private: bytes) -> SigningKey:
        """Return the key with these 32 private bytes. Raises ValueError for another length."""
        key = Ed25519PrivateKey.from_private_bytes(private)
        return cls(key.public_key().public_bytes_raw(), key)

    @classmethod
    def generate(cls, randomness: RandomSource) -> SigningKey:
        """Return a fresh key."""
        return cls.from_bytes(randomness.bytes(32))

    def private_bytes(self) -> bytes:
        """Return the 32 private bytes, for the key file only."""
        return self._private.private_bytes_raw()

    def sign(self, label: str, *parts: bytes) -> bytes:
        """Sign a domain-separation label and byte strings, joined by `labelled`; return the 64-byte signature."""
        return self._private.sign(labelled(label, *parts))


def is_signed(public: bytes, signature: bytes, label: str, *parts: bytes) -> bool:
    """Return whether `signature`, by the key `public`, is valid for a label and byte strings joined by `labelled`.

    Refused whatever the library says: a key or a first half R that is not the one encoding of its point, or of small
    order (as libsodium does). Verifiers disagree on these (Chalkias, Garillot & Nikolaenko 2020, "Taming the many
    EdDSAs"), so that one signature could divide the members.
    """
    signed = labelled(label, *parts)
    return once((public, signature, signed), lambda: _verify(public, signature, signed))


def _verify(public: bytes, signature: bytes, signed: bytes) -> bool:
    if not (_is_ordinary(public) and _is_ordinary(signature[:32])):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True


def _is_ordinary(point: bytes) -> bool:
    """Return whether 32 bytes encode a point with y below the prime (RFC 8032, section 5.1.3), not of small order.

    Only points of small order have x = 0, where a sign bit would be a second encoding.
    """
    y = int.from_bytes(point, "little") & ((1 << 255) - 1)
    return len(point) == 32 and y < _PRIME and y not in _SMALL_ORDER
