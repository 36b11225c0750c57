"""The engine of fresh processes on this machine, which read arrays from a folder that only this user can enter."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.system.engines.interface import C, FetchedArrays, Function, R, T
from secagg.system.threads import one_thread_each


@dataclass(frozen=True)
class LocalProcesses:
    """The engine of `workers` processes (None: one per core); its arrays lie in a new folder in `folder` until it ends.

    Where the engine is killed, its folder is removed at the next start.
    """

    workers: int | None
    folder: Path

    @contextmanager
    def open(self) -> Iterator[_Shelf]:
        """Remove the folders that killed runs left, and yield a `Shelf`, which shares arrays in a new folder."""
        remove_leftovers(self.folder)
        with owned_folder(self.folder) as folder:
            yield _Shelf(folder, self.workers or os.cpu_count() or 1)


@dataclass(frozen=True)
class _Shelf:
    """Arrays as files, memory-mapped into every process."""

    folder: Path
    workers: int

    def put(self, name: str, array: NDArray[Any]) -> None:
        np.save(self.folder / f"{name}.npy", array, allow_pickle=False)

    def run(self, function: Function[C, T, R], context: C, tasks: Sequence[T]) -> Iterator[tuple[T, R]]:
        work = partial(function, context, FetchedArrays(partial(_mapped, self.folder)))
        workers = max(1, min(self.workers, len(tasks)))
        with (
            one_thread_each(),
            ProcessPoolExecutor(workers, get_context("spawn"), initializer=_prepare, initargs=(work,)) as pool,
        ):
            try:
                with _without_main():  # each submission may start a process
                    futures = {pool.submit(_do, task): task for task in tasks}
                for future in as_completed(futures):
                    yield futures[future], future.result()
            except BrokenProcessPool:
                remedy = "the same command goes on; give fewer --workers if memory ran out"
                raise BadInput("a worker process died", remedy=remedy) from None
            finally:
                pool.shutdown(cancel_futures=True)


def _mapped(folder: Path, name: str) -> NDArray[Any]:
    return np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))


_given: list[Callable[[Any], Any]] = []
"""The function that this worker process applies to each task: a list of one, set by `_prepare`."""


def _prepare(work: Callable[[Any], Any]) -> None:
    """Set up a new worker process, which ends silently as soon as the process that started it ends."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in a sweep that a shell's `&` has started
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _given[:] = [work]


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _do(task: Any) -> Any:
    return _given[0](task)


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep processes that start in this context from running the main module again, which they do not need.

    Started from there, a script without `if __name__ == "__main__"` would sweep in every worker, and one that was read
    from standard input has no file to run.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


PREFIX = ".features-"
OWNER = "owner"
"""Name of the file in an owned folder whose lock the owning process holds."""


@contextmanager
def owned_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder in `parent` that only this user can enter (mode 0700), and remove it at the end."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=PREFIX))
        try:
            lock = os.open(folder / OWNER, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # somebody took it for a leftover before it was locked
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat((folder / OWNER).stat(), os.fstat(lock)):  # still the one in the folder
                break
        os.close(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_leftovers(parent: Path) -> int:
    """Remove the folders in `parent` whose owning processes have ended; return the number of folders removed."""
    removed = 0
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            lock = os.open(folder / OWNER, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            continue  # gone meanwhile, not ours, or no folder
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
            removed += not folder.exists()
        except OSError:
            continue  # its owner lives
        finally:
            os.close(lock)
    return removed
