"""CPU time by party where many parties share one process: what each callback and thread takes, by its context.

asyncio runs every step of a task, and every function given to `asyncio.to_thread`, in the context of the task. The
account of a party is a variable of that context, so that work is charged to the party it is done for, in whichever
order and thread the work of all parties is carried out.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from tests.worlds.idle_time import Clock, IdleLoop

T = TypeVar("T")


@dataclass
class Account:
    """What one party has used: CPU seconds, by the step that they led up to, and seconds of waiting for the disk."""

    cpu: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    disk: float = 0.0
    step: str = ""
    uncharged: float = 0.0

    def charge(self, step: str | None = None) -> None:
        """Charge what was used since the last charge to the step (None: the one before)."""
        self.step = step or self.step
        self.cpu[self.step] += self.uncharged
        self.uncharged = 0.0

    @property
    def total(self) -> float:
        """CPU seconds, charged or not."""
        return sum(self.cpu.values()) + self.uncharged


ACCOUNT: ContextVar[Account | None] = ContextVar("the account of the party that works", default=None)


@dataclass(frozen=True)
class Balance:
    """Seconds of one session: what its parties were charged and the process used, measured apart from each other.

    `wall` passed; `disk` is what parties waited for it, one after the other or at once, and `queue` what the event loop
    waited for a processor that others used.
    """

    charged: float
    process: float
    wall: float = 0.0
    disk: float = 0.0
    queue: float = 0.0

    def require(self) -> None:
        """Raise ValueError unless the parties' CPU is the process's, and nobody sat waiting.

        Both within 5 per cent and a quarter of a second for CPU (the event loop's own work is nobody's), 25 per cent
        and 2 s for the time that passed.
        """
        if abs(self.process - self.charged) > 0.05 * self.process + 0.25:
            raise ValueError(f"parties were charged {self.charged:.2f} s of CPU, the process used {self.process:.2f} s")
        busy = self.process + self.disk + self.queue
        if self.wall > 1.25 * busy + 2.0:
            raise ValueError(f"the session took {self.wall:.1f} s; CPU and disk explain {busy:.1f} s: a party waited")


def queue_seconds() -> float:
    """Return the seconds that the main thread has waited for a processor; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


class Meter:
    """Charges the thread's CPU time to the account of the context. `cpu` reads that time, in seconds."""

    def __init__(self, cpu: Callable[[], float] = time.thread_time) -> None:
        self._cpu = cpu
        self._thread = threading.local()
        self._adding = threading.Lock()

    def run(self, work: Callable[..., T], *args: Any) -> T:
        """Do some work on the account of the context."""
        self._thread.begun = self._cpu()
        try:
            return work(*args)
        finally:
            self.lap()

    def lap(self) -> None:
        """Add what this thread has used since `run` or the last lap to the account."""
        now = self._cpu()
        account = ACCOUNT.get()
        if account is not None:
            with self._adding:
                account.uncharged += now - self._thread.begun
        self._thread.begun = now


class MeteredLoop(IdleLoop):
    """An event loop that charges what its callbacks and threads do, and leaves out waits in which nobody works.

    Raises RuntimeError when more than `most_left_out` seconds are left out: somebody waits by another clock.
    """

    def __init__(self, meter: Meter, most_left_out: float) -> None:
        self._meter = meter
        self._most_left_out = most_left_out
        self.clock = Clock()
        super().__init__(self.clock)

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        """Call back in the next turn, on the account of the context."""
        return super().call_soon(self._meter.run, callback, *args, context=context)

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        """Call back, from any thread, on the account of the context."""
        return super().call_soon_threadsafe(self._meter.run, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        """Call back at a time, on the account of the context."""
        return super().call_at(when, self._meter.run, callback, *args, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> Any:
        """Work in a thread; `asyncio.to_thread` gives a function that runs in the caller's context."""
        context = copy_context()
        return super().run_in_executor(executor, lambda: context.run(self._meter.run, func, *args))

    def leave_out(self, seconds: float) -> bool:
        """Put the clock forward, unless a thread works."""
        if self.clock.left_out > self._most_left_out:
            raise RuntimeError(f"parties have waited for {self.clock.left_out:.0f} s: a deadline has another clock")
        return super().leave_out(seconds)


async def on_account(account: Account, work: Coroutine[Any, Any, T]) -> T:
    """Do a party's work for another one that waits for it."""
    context = copy_context()
    context.run(ACCOUNT.set, account)
    return await asyncio.create_task(work, context=context)


@contextmanager
def metered_disk() -> Iterator[None]:
    """Inside, the account of whoever waits for the disk receives the seconds."""
    fsync = os.fsync

    def timed(descriptor: int) -> None:
        begun = time.perf_counter()
        fsync(descriptor)
        if (account := ACCOUNT.get()) is not None:
            account.disk += time.perf_counter() - begun

    with patch.object(os, "fsync", timed):
        yield
