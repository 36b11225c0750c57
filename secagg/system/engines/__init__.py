"""Engines that run tasks in many processes: on this machine, or on a Ray cluster."""

from __future__ import annotations

from pathlib import Path

from secagg.errors import BadInput
from secagg.system.engines.cluster import RayCluster
from secagg.system.engines.interface import Engine, Shelf
from secagg.system.engines.processes import LocalProcesses

PROCESSES, RAY = "processes", "ray"
ENGINES = (PROCESSES, RAY)

__all__ = ["ENGINES", "PROCESSES", "RAY", "Engine", "LocalProcesses", "RayCluster", "Shelf", "engine_of"]


def engine_of(name: str, workers: int | None, folder: Path, address: str | None = None) -> Engine:
    """Return the engine named `name`: local processes that share arrays in `folder`, or a Ray cluster.

    `workers` None: one process per core. `address`: of a Ray cluster; None starts one of so many workers on this
    machine. Raises BadInput.
    """
    if workers is not None and workers < 1:
        raise BadInput(f"{workers} workers cannot work", remedy="give at least 1")
    if name not in ENGINES:
        raise BadInput(f"there is no engine {name!r}", remedy=f"choose among {', '.join(ENGINES)}")
    if name == RAY:
        return RayCluster(workers, address)
    if address is not None:
        raise BadInput("the address of a Ray cluster is of no use to processes", remedy=f"give the engine {RAY}")
    return LocalProcesses(workers, folder)
