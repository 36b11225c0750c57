"""A cache for work that simulated parties repeat: computed once, with its CPU time charged to each of them.

A simulation plays every party: all members check the same signatures on the same directory, and both ends of a pair
agree on the same key. A real party is alone in its process; for it nothing is remembered, and `once` only calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass
class _Done:
    """Results and the CPU seconds each took, by key; `spared`: the seconds that were saved by not computing again."""

    found: dict[Hashable, tuple[Any, float]] = field(default_factory=dict, repr=False)
    spared: float = 0.0


_DONE: ContextVar[_Done | None] = ContextVar("work that parties share", default=None)


@contextmanager
def shared_work() -> Iterator[None]:
    """Open a context in which `once` caches results, for processes that play all parties; the cache ends with it."""
    token = _DONE.set(_Done())
    try:
        yield
    finally:
        _DONE.reset(token)


def once(key: Hashable, compute: Callable[[], T]) -> T:
    """Return `compute()`, or inside `shared_work` the cached result of an equal `key`. Errors are not cached."""
    done = _DONE.get()
    if done is None:
        return compute()
    if key in done.found:
        value, seconds = done.found[key]
        done.spared += seconds
        return value  # type: ignore[no-any-return]  # it was put there by the same key's computation
    begun = time.process_time()
    value = compute()
    done.found[key] = value, time.process_time() - begun
    return value


def spared_seconds() -> float:
    """Return the CPU seconds saved by caching so far: the time that each reused result had taken to compute."""
    done = _DONE.get()
    return done.spared if done is not None else 0.0
