"""Limit BLAS and torch to one thread per process, and run work in a thread that can be interrupted.

Processes are what runs in parallel here: threads of small products spend more processor time waiting for each other
than computing (3 to 7 times more, measured on a busy machine). And how many there are decides the order of torch's
sums, and with it the last bits.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables with the number of threads, which numpy and torch read when they load."""


def begin_with_one_thread() -> None:
    """Limit this process and those it starts to one computing thread, unless the user has set the number.

    To be called before numpy or torch are loaded.
    """
    for name in VARIABLES:
        os.environ.setdefault(name, "1")


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Limit processes that start in this context to one computing thread, however many this process uses."""
    before = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    os.environ.update(dict.fromkeys(VARIABLES, "1"))
    try:
        yield
    finally:
        for name in VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(before)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit the loaded BLAS and OpenMP libraries to one thread in this context; does nothing without threadpoolctl."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        yield
        return
    with threadpool_limits(limits=1):
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread in this context, and restore the number afterwards."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Interrupted(BaseException):
    """Raised in the working thread when the task that waits for it was cancelled."""


async def compute_aside(work: Callable[[], T]) -> T:
    """Run long work in a thread, so that the event loop goes on; cancelling the caller ends the work too.

    It then ends at its next step of Python: an interrupted process does not have to wait for all of it, as with
    `asyncio.to_thread` alone.
    """
    at_work: list[int] = []

    def run() -> T:
        at_work.append(threading.get_ident())
        try:
            return work()
        finally:
            at_work.clear()

    try:
        return await asyncio.to_thread(run)
    except asyncio.CancelledError:
        for thread in at_work:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_Interrupted))
        raise
