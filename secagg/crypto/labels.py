"""Unambiguous byte strings for everything that is hashed, signed or derived."""

from __future__ import annotations

import hashlib


def labelled(label: str, *parts: bytes) -> bytes:
    """Join a domain label and parts so that no two different inputs give the same bytes.

    Every element is preceded by its length (8 bytes, big-endian), as in NIST SP 800-185 `encode_string`.
    """
    elements = (f"secagg/v1/{label}".encode(), *parts)
    return b"".join(len(element).to_bytes(8, "big") + element for element in elements)


def digest(label: str, *parts: bytes) -> bytes:
    """SHA-256 of `labelled(label, *parts)`, 32 bytes."""
    return hashlib.sha256(labelled(label, *parts)).digest()


def number(value: int) -> bytes:
    """A member index as 4 big-endian bytes."""
    return value.to_bytes(4, "big")
