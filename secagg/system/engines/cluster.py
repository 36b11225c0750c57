"""The engine on a Ray cluster: arrays lie in its object stores, tasks run wherever a processor is free.

The machines of a cluster have the same packages installed as this one; whoever gives work out checks what made it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TextIO, cast

from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.system.engines.interface import C, FetchedArrays, Function, R, T
from secagg.system.extras import extra
from secagg.system.threads import VARIABLES


@dataclass(frozen=True)
class RayCluster:
    """The Ray cluster at `address`; if None, a new one of `workers` processes (None: one per core) for this run."""

    workers: int | None
    address: str | None

    @contextmanager
    def open(self) -> Iterator[_Shelf]:
        """Connect to the cluster unless already connected. Raises BadInput without Ray, or where no cluster answers."""
        with extra("scale", "--engine ray", "; --engine processes needs no library"):
            import ray
        if ray.is_initialized():
            yield _Shelf()
            return
        where: dict[str, Any] = {"address": self.address or "local"}
        if self.address is None:
            where |= {"num_cpus": self.workers, "include_dashboard": False}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster started here reports to nobody
        one_thread = {"env_vars": dict.fromkeys(VARIABLES, "1")}
        with redirect_stdout(cast(TextIO, _WithoutRay(sys.stdout))):
            try:
                ray.init(**where, runtime_env=one_thread, log_to_driver=False, logging_level="error")
            except (ConnectionError, ValueError, RuntimeError) as error:
                problem = f"no Ray cluster could be had at {where['address']} ({type(error).__name__})"
                raise BadInput(problem, remedy="give --ray the address that `ray start --head` shows") from error
            try:
                yield _Shelf()
            finally:
                ray.shutdown()


@dataclass(frozen=True)
class _WithoutRay:
    """Standard output for all threads but Ray's own, whose output goes to standard error.

    They print there that a process has died, whatever its settings are, and would spoil a result.
    """

    stream: TextIO

    def __getattr__(self, name: str) -> Any:
        is_ray = threading.current_thread().name.startswith("ray_")
        return getattr(sys.stderr if is_ray else self.stream, name)


@dataclass(frozen=True)
class _Shelf:
    """Arrays as objects of the cluster, each fetched once by every machine."""

    objects: dict[str, Any] = field(default_factory=dict)
    folder: None = None

    def put(self, name: str, array: NDArray[Any]) -> None:
        import ray

        self.objects[name] = ray.put(array)

    def run(self, function: Function[C, T, R], context: C, tasks: Sequence[T]) -> Iterator[tuple[T, R]]:
        import ray

        work = ray.put(partial(function, context, FetchedArrays(partial(_fetched, self.objects))))
        remote = ray.remote(num_cpus=1, max_retries=0)(_do)
        waiting = {remote.remote(work, task): task for task in tasks}
        try:
            while waiting:
                (done, *_), _ = ray.wait(list(waiting))
                yield waiting.pop(done), ray.get(done)
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError as error:
            problem = f"a process of the cluster died ({type(error).__name__})"
            raise BadInput(problem, remedy="the same command goes on") from None
        finally:
            with suppress(ray.exceptions.RayError):  # where the cluster itself is gone
                for each in waiting:
                    ray.cancel(each, force=True)


def _fetched(objects: dict[str, Any], name: str) -> Any:
    import ray

    return ray.get(objects[name])


def _do(work: Callable[[Any], Any], task: Any) -> Any:
    return work(task)
