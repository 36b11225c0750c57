"""Operating-system randomness: the only source of keys, seeds and nonces.

Protocol code asks a `RandomSource` for bytes. `OperatingSystem` is the only one that can be had without the token of
`secagg.unsafe_for_tests`, which the package imports in one place, for simulations (after Tink's secret key access).
"""

from __future__ import annotations

import hashlib
import os
from typing import Protocol


class RandomSource(Protocol):
    """A source of uniform, independent bytes."""

    def bytes(self, count: int) -> bytes:
        """Return `count` fresh bytes."""


class OperatingSystem:
    """The operating system's generator: `getrandom(2)` through `os.urandom`."""

    def bytes(self, count: int) -> bytes:
        """Return `count` fresh bytes of the operating system's generator."""
        return os.urandom(count)


class UnsafeToken:
    """A token that permits the use of insecure `SeededRandomness`; the only one is in `secagg.unsafe_for_tests`."""


class SeededRandomness:
    """A reproducible byte stream, SHAKE-256(seed ‖ counter), for tests, vectors and simulations with known noise.

    Keys drawn from a seed protect nothing: whoever knows the seed opens every share and mask. Raises TypeError without
    the token of `secagg.unsafe_for_tests`.
    """

    def __init__(self, seed: bytes, token: UnsafeToken) -> None:
        if not isinstance(token, UnsafeToken):
            raise TypeError("seeded randomness takes the token of secagg.unsafe_for_tests")
        self._seed = seed
        self._counter = 0

    def bytes(self, count: int) -> bytes:
        """Return the next `count` bytes of the stream."""
        self._counter += 1
        return hashlib.shake_256(self._seed + self._counter.to_bytes(8, "big")).digest(count)
