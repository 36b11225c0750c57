"""Envelopes: messages sealed to one receiver's key by HPKE in base mode (RFC 9180, sections 5.1.1 and 6.1).

KEM: X-Wing, that is ML-KEM-768 and X25519 joined by SHA3-256 (draft-connolly-cfrg-xwing-kem-10, section 5), which
draft-ietf-hpke-pq-04, section 4, calls MLKEM768-X25519 and numbers 0x647A. Both texts are drafts. KDF: HKDF-SHA-256.
AEAD: ChaCha20-Poly1305. An envelope is the encapsulated key (1,120 bytes), then ciphertext and tag; it stays closed
while X25519 or ML-KEM-768 is unbroken.

Two things are the caller's. HPKE's base mode authenticates no sender, who therefore signs the envelope. And
`cryptography` draws the ephemeral keys itself, from the operating system, so that no envelope can be made twice: it is
stored before it is sent, and these bytes alone are sent again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import cryptography
from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from secagg.crypto.agreement import WeakPublicKey, is_usable
from secagg.crypto.labels import labelled, number
from secagg.crypto.sealing import SealBroken
from secagg.errors import BadInput
from secagg.randomness import RandomSource


def _lacks_ml_kem() -> BadInput:
    problem = f"the installed cryptography ({cryptography.__version__}) has no ML-KEM-768, by which secrets are sealed"
    return BadInput(problem, remedy="pip install 'cryptography>=50'")


try:
    from cryptography.hazmat.primitives import hpke
    from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
except ImportError:
    raise _lacks_ml_kem() from None

SEED_BYTES = 32
_LATTICE_KEY_BYTES = 1184
PUBLIC_KEY_BYTES = _LATTICE_KEY_BYTES + 32
ENVELOPE_BYTES = 1120 + 16
"""By how much an envelope is longer than its message: the encapsulated key, and the tag."""


@dataclass(frozen=True)
class Address:
    """The facts that an envelope is bound to: round, step (the message that carries it), sender and receiver.

    `binding` is the digest of round and protocol context that the protection binds all its keys to.
    """

    binding: bytes
    step: str
    sender: int
    receiver: int

    @property
    def info(self) -> bytes:
        """The `info` of HPKE's key schedule (RFC 9180, section 5.1): another one gives other keys."""
        return labelled("envelope", self.binding, self.step.encode(), number(self.sender), number(self.receiver))


@dataclass(frozen=True)
class EnvelopeKey:
    """An X-Wing key pair, to which envelopes are sealed; `repr` never shows the private half."""

    public: bytes
    _seed: bytes = field(repr=False)
    _private: hpke.MLKEM768X25519PrivateKey = field(repr=False)

    @classmethod
    def from_bytes(cls, seed: bytes) -> EnvelopeKey:
        """Return the key pair of a 32-byte seed (`expandDecapsulationKey` of X-Wing, section 5.2).

        Raises ValueError for another length, BadInput if the installed `cryptography` has no ML-KEM.
        """
        if len(seed) != SEED_BYTES:
            raise ValueError(f"the seed of an envelope key has {SEED_BYTES} bytes")
        expanded = hashlib.shake_256(seed).digest(96)
        with _has_ml_kem():
            lattice, curve = (
                MLKEM768PrivateKey.from_seed_bytes(expanded[:64]),
                X25519PrivateKey.from_private_bytes(expanded[64:]),
            )
        public = lattice.public_key().public_bytes_raw() + curve.public_key().public_bytes_raw()
        return cls(public, seed, hpke.MLKEM768X25519PrivateKey(lattice, curve))

    @classmethod
    def generate(cls, randomness: RandomSource) -> EnvelopeKey:
        """Return a fresh key pair."""
        return cls.from_bytes(randomness.bytes(SEED_BYTES))

    def private_bytes(self) -> bytes:
        """Return the 32-byte seed, for the sealed state only."""
        return self._seed

    def open(self, envelope: bytes, address: Address) -> bytes:
        """Return the message in an envelope. Raises SealBroken unless it was sealed to this key and this address."""
        try:
            return _suite().decrypt(envelope, self._private, info=address.info)
        except InvalidTag:
            raise SealBroken("the envelope is not sealed to this key and address") from None


def seal_envelope(public: bytes, message: bytes, address: Address) -> bytes:
    """Seal a message to a public key and an address; the result is 1,136 bytes longer. Raises WeakPublicKey."""
    try:
        return _suite().encrypt(message, _public_key(public), info=address.info)
    except ValueError:
        raise WeakPublicKey("the public key is of small order, or none") from None


def is_envelope_key(public: bytes) -> bool:
    """Return whether both halves are keys: FIPS 203's modulus check (section 7.2), and X25519's of `is_usable`."""
    try:
        _public_key(public)
    except ValueError:
        return False
    return is_usable(public[_LATTICE_KEY_BYTES:])


def check_library() -> None:
    """Raise BadInput, with the remedy, if the installed `cryptography` has no ML-KEM, before a session begins."""
    EnvelopeKey.from_bytes(bytes(SEED_BYTES))


def _public_key(public: bytes) -> hpke.MLKEM768X25519PublicKey:
    with _has_ml_kem():
        lattice = MLKEM768PublicKey.from_public_bytes(public[:_LATTICE_KEY_BYTES])
    curve = X25519PublicKey.from_public_bytes(public[_LATTICE_KEY_BYTES:])
    return hpke.MLKEM768X25519PublicKey(lattice, curve)


def _suite() -> hpke.Suite:
    return hpke.Suite(hpke.KEM.MLKEM768_X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)


@contextmanager
def _has_ml_kem() -> Iterator[None]:
    """Raise BadInput where the library was built without ML-KEM."""
    try:
        yield
    except UnsupportedAlgorithm:
        raise _lacks_ml_kem() from None
