"""Simulations in worker processes, each kept in a file of its own as soon as it ends."""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.data import Dataset
from secagg.errors import BadInput, SecaggError
from secagg.experiments.features import Clock, Features, map_of
from secagg.experiments.provenance import SOURCES, made_by, sources_sha256
from secagg.experiments.scratch import owned_folder
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_features
from secagg.experiments.summary import Run
from secagg.parties.sealed_state import write_synced
from secagg.reading import parse_json

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
Kind = tuple[str | None, int]
"""Backbone and expansion: what decides the features of a data set."""


@dataclass(frozen=True)
class RunFile:
    """Where the result of one run is kept: its name is the digest of all that decides the result.

    `settings`: the fields of SimulationSettings by name. `data_sha256`: the digest of the data set.
    """

    folder: Path
    settings: Mapping[str, Any]
    data_sha256: str

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What was asked, and what made the answer: code and versions."""
        return {"version": 2, **self.question, "made_by": made_by()}

    @cached_property
    def question(self) -> dict[str, Any]:
        """The settings, and the digests of the data and of a backbone's files."""
        programs = [Path(part) for part in (self.settings["backbone"] or "").split("+")]
        return {
            "data_sha256": self.data_sha256,
            "backbone_sha256": [sha256_of(program) for program in programs if program.is_file()],
            "settings": plain(self.settings),
        }

    @property
    def path(self) -> Path:
        """The file, whether or not it is there."""
        return self.folder / f"{hashlib.sha256(json.dumps(self.identity).encode()).hexdigest()}.json"

    def read(self) -> Run | None:
        """The run, or None where it was never finished, or where its file is damaged."""
        try:
            content = parse_json(self.path.read_bytes())
            is_this = {name: content[name] for name in self.identity} == self.identity
            if is_this and content["result_sha256"] == _digest(content["result"]):
                return Run(self.settings, content["result"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return None

    def write(self, result: Mapping[str, Any]) -> Run:
        """Keep a result; a process that is killed meanwhile leaves no half of it."""
        kept = json.loads(json.dumps(result, allow_nan=False))
        content = {**self.identity, "result_sha256": _digest(kept), "result": kept}
        write_synced(self.path, json.dumps(content, indent=2, allow_nan=False).encode())
        return Run(self.settings, kept)


def _digest(result: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(result).encode()).hexdigest()


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a JSON file holds them: "inf" for infinity."""
    return {name: "inf" if value == math.inf else value for name, value in settings.items()}


def sha256_of(path: Path) -> str:
    """The digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def data_sha256(dataset: Dataset) -> str:
    """The digest of all records of a data set, its name, its classes and its parts."""
    digest = hashlib.sha256(repr((dataset.name, dataset.kind, dataset.classes, dataset.bound)).encode())
    arrays: list[NDArray[Any]] = [rows for _, rows in dataset.parts or ()]
    for records in filter(None, (dataset.train, dataset.test)):
        arrays += [records.inputs, records.labels, *(records.columns[name] for name in sorted(records.columns))]
    for array in arrays:
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def run_all(dataset: Dataset, files: Sequence[RunFile], workers: int) -> Iterator[tuple[RunFile, Run]]:
    """Run what the files stand for in fresh processes of one thread each, and give each run as it ends.

    Features are extracted here, once for each backbone and expansion, and mapped into every process from a folder that
    only the user can read; it stands beside the runs and goes when this ends (where it is killed, at the next start).
    Raises BadInput when a process dies or the code is edited meanwhile; what has ended is kept.
    """
    with owned_folder(files[0].folder.parent) as folder:
        refused, extracted = _extract(dataset, files, folder)
        yield from refused
        ready = [file for file in files if _kind(file.settings) in extracted]
        if ready:
            yield from _in_processes(ready, min(workers, len(ready)), Extracted(dataset, extracted))


@dataclass(frozen=True, eq=False)
class Extracted:
    """A data set, and where its features are: by backbone and expansion, training ones and test ones."""

    dataset: Dataset
    paths: Mapping[Kind, tuple[Path, Path]]

    def features(self, settings: SimulationSettings) -> Features:
        """What `Features.of` gives for these settings."""
        train, test = (
            np.asarray(np.load(path, mmap_mode="r")) for path in self.paths[settings.backbone, settings.expand]
        )
        made_by = map_of(self.dataset, settings.backbone, settings.expand)
        return Features(self.dataset, made_by, train, test).cut(settings)


def _kind(settings: Mapping[str, Any]) -> Kind:
    return settings["backbone"], settings["expand"]


def _extract(
    dataset: Dataset, files: Sequence[RunFile], folder: Path
) -> tuple[list[tuple[RunFile, Run]], dict[Kind, tuple[Path, Path]]]:
    """Write the features that the runs need; and what cannot run for lack of them."""
    refused, extracted = [], {}
    for number, kind in enumerate(dict.fromkeys(_kind(file.settings) for file in files)):
        try:
            features = map_of(dataset, *kind)
            paths = folder / f"{number}-train.npy", folder / f"{number}-test.npy"
            for path, records in zip(paths, filter(None, (dataset.train, dataset.test)), strict=True):
                np.save(path, features.extract(records.inputs))
            extracted[kind] = paths
        except SecaggError as error:
            refused += [(file, Run(file.settings, None, str(error))) for file in files if _kind(file.settings) == kind]
    return refused, extracted


def _in_processes(files: Sequence[RunFile], workers: int, extracted: Extracted) -> Iterator[tuple[RunFile, Run]]:
    with (
        _one_thread_each(),
        ProcessPoolExecutor(workers, get_context("spawn"), initializer=_prepare, initargs=(extracted,)) as pool,
    ):
        try:
            with _without_main():  # each submission may start a process
                futures = {pool.submit(_run, file): file for file in files}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            remedy = "the same command goes on; give fewer --workers if memory ran out"
            raise BadInput("a worker process died", remedy=remedy) from None
        finally:
            pool.shutdown(cancel_futures=True)


_received: dict[str, Extracted] = {}


def _prepare(extracted: Extracted) -> None:
    """Set up a fresh worker, which ends at once, and silently, with the sweep that started it."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in a sweep that a shell's `&` has started
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _received["extracted"] = extracted


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _run(file: RunFile) -> Run:
    clock = Clock()
    try:
        settings = SimulationSettings(**file.settings)
        features = _received["extracted"].features(settings)
        clock.lap("features")
        result = simulate_features(features, settings, clock)
    except SecaggError as error:
        return Run(file.settings, None, str(error))
    if sources_sha256(*SOURCES) != file.identity["made_by"]["code_sha256"]:  # which a worker reads after it was taken
        raise BadInput("the code was edited while it ran", remedy="the same command goes on, with the code as it is")
    return file.write(result.to_json())


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Have processes started meanwhile compute with one thread; numpy and torch read this when they load."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _without_main() -> Iterator[None]:
    """Have processes started meanwhile not run the main module again, which they do not need.

    Started from there, a script without `if __name__ == "__main__"` would sweep in every worker, and one that was read
    from standard input has no file to run.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
