"""Simulations in the processes of an engine, each kept in a file of its own as soon as it ends."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from secagg.data import Dataset
from secagg.errors import BadInput, SecaggError
from secagg.experiments.features import Clock, Features, map_of
from secagg.experiments.provenance import SOURCES, identity_of, made_by, question_of, sources_sha256
from secagg.experiments.reference import References
from secagg.experiments.results import Run
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_features
from secagg.system.engines import Engine, Shelf
from secagg.system.engines.interface import Arrays
from secagg.system.files import write_synced
from secagg.system.reading import parse_json

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
        """The question, and the code and versions that answer it."""
        return identity_of(self.settings, self.data_sha256)

    @cached_property
    def question(self) -> dict[str, Any]:
        """The settings and the digests of data and code that they name."""
        return question_of(self.settings, self.data_sha256)

    @property
    def path(self) -> Path:
        """The file, whether or not it is there."""
        return self.folder / f"{hashlib.sha256(json.dumps(self.identity).encode()).hexdigest()}.json"

    def read(self) -> tuple[Any, str | None] | None:
        """The result or why it was refused; None where it was never finished, or where the file is damaged."""
        try:
            content = parse_json(self.path.read_bytes())
            is_this = {name: content[name] for name in self.identity} == self.identity
            if is_this and content["result_sha256"] == _digest(content["result"]):
                return content["result"], content.get("refused")
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return None

    def write(self, result: Mapping[str, Any]) -> tuple[Any, None]:
        """Keep a result, and return what `read` does; a process that is killed meanwhile leaves no half of it."""
        kept = json.loads(json.dumps(result, allow_nan=False))
        self._write({"result_sha256": _digest(kept), "result": kept})
        return kept, None

    def write_refusal(self, refusal: str) -> None:
        """Keep the reason of a refusal, which is read where the shards of a sweep are collected, and nowhere else."""
        self._write({"result_sha256": _digest(None), "result": None, "refused": refusal})

    def _write(self, content: Mapping[str, Any]) -> None:
        text = json.dumps({**self.identity, **content}, indent=2, allow_nan=False)
        write_synced(self.path, text.encode())


def _digest(result: Mapping[str, Any] | None) -> str:
    return hashlib.sha256(json.dumps(result).encode()).hexdigest()


def run_all(dataset: Dataset, files: Sequence[RunFile], engine: Engine) -> Iterator[tuple[RunFile, Run]]:
    """Run what the files stand for in the engine's processes, and give each run as it ends.

    Features are extracted once for each backbone and expansion, and laid out for all processes.
    Raises BadInput when a process dies, or works with other code or libraries; what has ended is kept.
    """
    with engine.open() as shelf:
        refused, extracted = _extract(dataset, files, engine, shelf)
        yield from refused
        ready = [file for file in files if _kind(file.settings) in extracted]
        if ready:
            references = References(files[0].data_sha256, shelf.folder)
            context = _Context(dataset, extracted, tuple(file.settings for file in ready), references)
            for place, answer in shelf.run(_run, context, range(len(ready))):
                yield ready[place], _keep(ready[place], answer)


@dataclass(frozen=True, eq=False)
class _Context:
    """The common input of all runs: data, the places of their features, and the settings of every run by place."""

    dataset: Dataset
    kinds: Mapping[Kind, int]
    settings: Sequence[Mapping[str, Any]]
    references: References

    def features(self, settings: SimulationSettings, arrays: Arrays) -> Features:
        """The features for these settings, as `Features.of` makes them."""
        kind = settings.backbone, settings.expand
        train, test = (arrays[f"{part}-{self.kinds[kind]}"] for part in ("train", "test"))
        return Features(self.dataset, map_of(self.dataset, *kind), train, test).cut(settings)


@dataclass(frozen=True)
class _Answer:
    """A process's answer: the result as JSON or why it was refused, and the versions that made it."""

    result: Mapping[str, Any] | None
    refusal: str | None
    made_by: Mapping[str, str]


def _kind(settings: Mapping[str, Any]) -> Kind:
    return settings["backbone"], settings["expand"]


def _extract(
    dataset: Dataset, files: Sequence[RunFile], engine: Engine, shelf: Shelf
) -> tuple[list[tuple[RunFile, Run]], dict[Kind, int]]:
    """Lay the features out that the runs need; and say what cannot run for lack of them."""
    refused, extracted = [], {}
    for number, kind in enumerate(dict.fromkeys(_kind(file.settings) for file in files)):
        try:
            features = map_of(dataset, *kind, engine=engine)
            for part, records in (("train", dataset.train), ("test", dataset.test)):
                if records is not None:
                    shelf.put(f"{part}-{number}", features.extract(records.inputs))
            extracted[kind] = number
        except SecaggError as error:
            refused += [(file, Run(file.settings, None, str(error))) for file in files if _kind(file.settings) == kind]
    return refused, extracted


def _run(context: _Context, arrays: Arrays, place: int) -> _Answer:
    """Simulate with the settings at a place in the list."""
    clock = Clock()
    try:
        settings = SimulationSettings(**context.settings[place])
        features = context.features(settings, arrays)
        clock.lap("features")
        result = simulate_features(features, settings, clock, references=context.references)
    except SecaggError as error:
        return _Answer(None, str(error), {})
    return _Answer(result.to_json(), None, {**made_by(), "code_sha256": sources_sha256(*SOURCES)})


def _keep(file: RunFile, answer: _Answer) -> Run:
    """The run, kept in its file where it has a result."""
    if answer.result is None:
        return Run(file.settings, None, answer.refusal)
    if answer.made_by != file.identity["made_by"]:  # which a process reads after the work was given out
        edited = answer.made_by["code_sha256"] != file.identity["made_by"]["code_sha256"]
        problem = (
            "the code was edited while it ran" if edited else "a process has other versions of Python or libraries"
        )
        raise BadInput(problem, remedy="the same command goes on, with what all processes have")
    return Run(file.settings, *file.write(answer.result))
