"""An event loop for parties in one process: where all of them wait, their clock goes on to what comes next.

Nobody waits for a deadline in earnest, and what a deadline decides does not hang on how busy the machine is.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any


class Clock:
    """The clocks of a machine, as `time` has them, put forward by the waits that were left out."""

    def __init__(self) -> None:
        self.left_out = 0.0

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return time.monotonic() + self.left_out

    def time(self) -> float:
        """Seconds of the system's clock."""
        return time.time() + self.left_out


class IdleLoop(asyncio.SelectorEventLoop):
    """Leaves out every wait for a time during which no thread of it works and no socket has anything to say."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(_Selector(self))
        self._clock = clock
        self._working = 0

    def time(self) -> float:
        """The loop's clock."""
        return self._clock.monotonic()

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> Any:
        """Work in a thread, during which time goes as it goes: until both the thread and its future have ended."""
        left = 2

        def end(*_: object) -> None:
            nonlocal left
            left -= 1
            self._working -= not left

        def work() -> Any:
            try:
                return func(*args)
            finally:
                with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                    self.call_soon_threadsafe(end)

        self._working += 1
        future = super().run_in_executor(executor, work)
        future.add_done_callback(end)
        return future

    def leave_out(self, seconds: float) -> bool:
        """Put the clock forward, unless a thread works."""
        if self._working:
            return False
        self._clock.left_out += seconds
        return True


class _Selector(selectors.DefaultSelector):
    """Asks what sockets have to say; the loop is told how long it would have waited for them."""

    def __init__(self, loop: IdleLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        """What is ready: now, where the loop leaves the wait out."""
        ready = super().select(0)
        if ready or timeout is None or timeout <= 0 or not self._loop.leave_out(timeout):
            return ready or super().select(timeout)
        return ready
