"""Unambiguous encoding of a domain-separation label and byte strings, for all that is hashed, signed or derived."""

from __future__ import annotations

import hashlib
from functools import cache


def labelled(label: str, *parts: bytes) -> bytes:
    """Join a domain-separation label and byte strings so that no two different inputs give the same bytes.

    Every element is preceded by its length (8 bytes, big-endian), as in NIST SP 800-185 `encode_string`.
    """
    joined = [_domain(label)]
    for part in parts:
        joined += (len(part).to_bytes(8, "big"), part)
    return b"".join(joined)


@cache
def _domain(label: str) -> bytes:
    """Return the encoded label that stands first; cached, since the code has few labels."""
    name = f"secagg/v1/{label}".encode()
    return len(name).to_bytes(8, "big") + name


def digest(label: str, *parts: bytes) -> bytes:
    """Return the SHA-256 (32 bytes) of a domain-separation label and byte strings, joined by `labelled`."""
    return hashlib.sha256(labelled(label, *parts)).digest()


def number(value: int) -> bytes:
    """Encode a member index as 4 big-endian bytes."""
    return value.to_bytes(4, "big")
