"""Operating-system randomness: the only source of keys, seeds and nonces.

Protocol code asks a `RandomSource` for bytes. `OperatingSystem` is the only one that imports
expose; the seeded one needs the token of `secagg.unsafe_for_tests`, which nothing imports.
"""

from __future__ import annotations

import os
from typing import Protocol


class RandomSource(Protocol):
    """A source of uniform, independent bytes."""

    def bytes(self, count: int) -> bytes:
        """Return `count` fresh bytes."""
        ...


class OperatingSystem:
    """`getrandom(2)` through `os.urandom`."""

    def bytes(self, count: int) -> bytes:
        """Return `count` fresh bytes of the operating system's generator."""
        return os.urandom(count)
