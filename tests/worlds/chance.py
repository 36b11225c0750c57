"""Randomness that repeats, for tests of what errs now and then by design: audits, attacks, and their power."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from secagg.randomness import OperatingSystem


@contextmanager
def repeatable(name: str) -> Iterator[None]:
    """A context in which this process draws keys and noise from a stream of this name, the same in every run."""
    import numpy as np  # once the number of its threads is set

    seed = int.from_bytes(hashlib.sha256(name.encode()).digest(), "big")
    stream, lock = np.random.default_rng(seed), threading.Lock()

    def drawn(_: OperatingSystem, count: int) -> bytes:
        with lock:
            return stream.bytes(count)

    with mock.patch.object(OperatingSystem, "bytes", drawn):
        yield
