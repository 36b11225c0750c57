"""Run simulations in an engine's worker processes; each result is written to its own file as soon as it is ready."""

from __future__ import annotations

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
from secagg.experiments.tables import digest_of
from secagg.system.engines import Engine, Shelf
from secagg.system.engines.interface import Arrays
from secagg.system.files import write_synced
from secagg.system.reading import parse_json

Kind = tuple[str | None, int]
"""A backbone and an expansion, which decide the features of a data set."""


@dataclass(frozen=True)
class RunFile:
    """The file of one run, named by the digest of all that decides its result: `settings`, data, code and versions."""

    folder: Path
    settings: Mapping[str, Any]
    data_sha256: str

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that decides the run's result: settings, data, code and versions of libraries (see `identity_of`)."""
        return identity_of(self.settings, self.data_sha256)

    @cached_property
    def question(self) -> dict[str, Any]:
        """The question that the run answers: its settings, and digests of the data and code that the settings name."""
        return question_of(self.settings, self.data_sha256)

    @property
    def path(self) -> Path:
        """The file's path, whether or not the file exists."""
        return self.folder / f"{digest_of(self.identity)}.json"

    def read(self) -> tuple[Any, str | None] | None:
        """Return (result, reason of a refusal); None where the run was never finished, or the file is damaged."""
        try:
            content = parse_json(self.path.read_bytes())
            is_this = {name: content[name] for name in self.identity} == self.identity
            if is_this and content["result_sha256"] == digest_of(content["result"]):
                return content["result"], content.get("refused")
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return None

    def write(self, result: Mapping[str, Any] | None, refusal: str | None = None) -> tuple[Any, str | None]:
        """Write a result or a refusal's reason atomically, and return (result, reason) as `read` does.

        A process killed meanwhile leaves no half-written file. A refusal is read where the shards of a sweep are
        collected, and nowhere else.
        """
        kept = json.loads(json.dumps(result, allow_nan=False))
        refused = {"refused": refusal} if refusal is not None else {}
        content = {**self.identity, "result_sha256": digest_of(kept), "result": kept, **refused}
        write_synced(self.path, json.dumps(content, indent=2, allow_nan=False).encode())
        return kept, refusal


def run_all(dataset: Dataset, files: Sequence[RunFile], engine: Engine) -> Iterator[tuple[RunFile, Run]]:
    """Run the simulations of these files in the engine's worker processes, and yield each as it ends.

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
                file, (result, refusal, code) = ready[place], answer
                if result is None:
                    yield file, Run(file.settings, None, refusal)
                    continue
                if code != file.identity["made_by"]:  # which a process reads after the work was given out
                    problem = "a process has other versions of Python or libraries"
                    if code["code_sha256"] != file.identity["made_by"]["code_sha256"]:
                        problem = "the code was edited while it ran"
                    raise BadInput(problem, remedy="the same command goes on, with what all processes have")
                yield file, Run(file.settings, *file.write(result))


@dataclass(frozen=True, eq=False)
class _Context:
    """The input that all runs share: the data set, the number of each kind of features, and each run's settings."""

    dataset: Dataset
    kinds: Mapping[Kind, int]
    settings: Sequence[Mapping[str, Any]]
    references: References


def _kind(settings: Mapping[str, Any]) -> Kind:
    return settings["backbone"], settings["expand"]


def _extract(
    dataset: Dataset, files: Sequence[RunFile], engine: Engine, shelf: Shelf
) -> tuple[list[tuple[RunFile, Run]], dict[Kind, int]]:
    """Extract the features that the runs need; return the runs that fail for lack of them, and each kind's number."""
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


def _run(
    context: _Context, arrays: Arrays, place: int
) -> tuple[Mapping[str, Any] | None, str | None, Mapping[str, str]]:
    """Return a run's result as JSON, or why it was refused, and the versions that made it; called in a process."""
    clock = Clock()
    try:
        settings = SimulationSettings(**context.settings[place])
        kind = settings.backbone, settings.expand
        train, test = (arrays[f"{part}-{context.kinds[kind]}"] for part in ("train", "test"))
        features = Features(context.dataset, map_of(context.dataset, *kind), train, test).cut(settings)
        clock.lap("features")
        result = simulate_features(features, settings, clock, references=context.references)
    except SecaggError as error:
        return None, str(error), {}
    return result.to_json(), None, {**made_by(), "code_sha256": sources_sha256(*SOURCES)}
