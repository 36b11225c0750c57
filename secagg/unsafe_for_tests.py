"""Seeded randomness, for tests and vectors only. Nothing in the package imports this module.

Keys drawn from a seed protect nothing: whoever knows the seed opens every share and mask.
"""

from __future__ import annotations

import hashlib


class SeededRandomness:
    """A reproducible byte stream: SHAKE-256(seed ‖ counter). Never use it for a real session."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._counter = 0

    def bytes(self, count: int) -> bytes:
        """Return the next `count` bytes of the stream."""
        self._counter += 1
        return hashlib.shake_256(self._seed + self._counter.to_bytes(8, "big")).digest(count)
