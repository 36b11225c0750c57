"""A private key under a passphrase, as PKCS #8 has it, and as hard to guess as is asked for today.

The library writes such keys too, but stretches the passphrase by 2,048 iterations: whoever has the file tries
hundreds of times as many passphrases a second as here. It reads these, as openssl does.
"""

from __future__ import annotations

import base64
import hashlib

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7

from secagg.randomness import RandomSource

ITERATIONS = 600_000
"""Of PBKDF2 with HMAC-SHA-256: OWASP, "Password Storage Cheat Sheet" (2023)."""
_BLOCK = 16
_SEQUENCE, _INTEGER, _OCTETS = 0x30, 0x02, 0x04
_NULL = bytes.fromhex("0500")
_PBES2, _PBKDF2 = bytes.fromhex("06092a864886f70d01050d"), bytes.fromhex("06092a864886f70d01050c")
_HMAC_SHA256, _AES256_CBC = bytes.fromhex("06082a864886f70d0209"), bytes.fromhex("060960864801650304012a")
"""Object identifiers in DER (RFC 8018, appendix C)."""


def locked(key: bytes, passphrase: bytes, randomness: RandomSource) -> bytes:
    """The PEM of a key (PrivateKeyInfo, DER) encrypted by PBES2 (RFC 8018, section 6.2): PBKDF2 and AES-256-CBC."""
    salt, vector = randomness.bytes(_BLOCK), randomness.bytes(_BLOCK)
    padder = PKCS7(8 * _BLOCK).padder()
    stretched = hashlib.pbkdf2_hmac("sha256", passphrase, salt, ITERATIONS)
    cipher = Cipher(AES256(stretched), CBC(vector)).encryptor()
    content = cipher.update(padder.update(key) + padder.finalize()) + cipher.finalize()
    counted = _der(_INTEGER, ITERATIONS.to_bytes(3, "big"))
    stretching = _der(
        _SEQUENCE,
        _PBKDF2,
        _der(_SEQUENCE, _der(_OCTETS, salt), counted, _der(_SEQUENCE, _HMAC_SHA256, _NULL)),
    )
    scheme = _der(_SEQUENCE, stretching, _der(_SEQUENCE, _AES256_CBC, _der(_OCTETS, vector)))
    whole = _der(_SEQUENCE, _der(_SEQUENCE, _PBES2, scheme), _der(_OCTETS, content))
    lines = base64.b64encode(whole).decode()
    rows = [lines[begin : begin + 64] for begin in range(0, len(lines), 64)]
    label = "ENCRYPTED PRIVATE KEY"
    return "\n".join([f"-----BEGIN {label}-----", *rows, f"-----END {label}-----", ""]).encode()


def _der(tag: int, *parts: bytes) -> bytes:
    """An element of DER (X.690, section 8.1): its tag, its length, and what it holds, shorter than 64 KiB."""
    content = b"".join(parts)
    length = len(content)
    long = length.to_bytes(2 if length > 0xFF else 1, "big")
    return bytes([tag]) + (long if length < 0x80 else bytes([0x80 | len(long)]) + long) + content
