"""Randomness that repeats, for tests of what errs now and then by design: audits, attacks, and their power."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from secagg.randomness import OperatingSystem, SeededRandomness
from secagg.unsafe_for_tests import TOKEN


@contextmanager
def repeatable(name: str) -> Iterator[None]:
    """A context in which this process draws keys and noise from a stream of this name, the same in every run."""
    source, lock = SeededRandomness(name.encode(), TOKEN), threading.Lock()

    def drawn(_: OperatingSystem, count: int) -> bytes:
        with lock:
            return source.bytes(count)

    with mock.patch.object(OperatingSystem, "bytes", drawn):
        yield
