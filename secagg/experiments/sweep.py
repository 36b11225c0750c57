"""`sweep`: simulate every combination of some settings over several seeds, and write tables and a plot.

A run that has ended is kept in a file and not repeated; a sweep that was killed goes on where it was.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from itertools import product
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from methods import METHODS, method_named, split_method
from secagg.data import Dataset
from secagg.data.partition import one_by_one
from secagg.errors import BadInput, require_type
from secagg.experiments.baselines import is_baseline
from secagg.experiments.figures import plot_accuracy
from secagg.experiments.input_data import given_data, values_of
from secagg.experiments.provenance import data_sha256, provenance_of
from secagg.experiments.results import ResultRow, Run, described, listed, method_label, results_of, summarise, varying
from secagg.experiments.settings import SimulationSettings, as_setting
from secagg.experiments.tables import Results, ResultTable, accuracy_table, by_epsilon, measures_table, pipeline_notes
from secagg.experiments.workers import RunFile, run_all
from secagg.features import Progress
from secagg.system.engines import PROCESSES, Engine, engine_of
from secagg.system.extras import require
from secagg.system.reading import parse_json
from secagg.wire import plain

T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """One job's part of the runs in a job array: every `of`-th run from number `index` on (1 ≤ index ≤ of)."""

    index: int
    of: int

    @classmethod
    def read(cls, text: str) -> Shard:
        """Parse a shard written as I/N, such as 2/16. Raises BadInput."""
        found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise BadInput(f"there is no shard {text!r}", remedy="give I/N with 1 ≤ I ≤ N, 2/16 say")
        return cls(int(found[1]), int(found[2]))

    def choose(self, runs: Sequence[T]) -> Sequence[T]:
        """Return the shard's own runs, in their order."""
        return runs[self.index - 1 :: self.of]


@dataclass(frozen=True)
class Execution:
    """Options for running a sweep: folder, engine of worker processes, shard (a job's part of the runs), callback.

    With a `shard` only its own runs are made, and no tables are written. With `collect` no run is made: all are there.
    """

    out: Path
    engine: Engine
    shard: Shard | None = None
    collect: bool = False
    progress: Progress | None = None

    @classmethod
    def of(
        cls,
        out: Path | str,
        workers: int | None = None,
        progress: Progress | None = None,
        engine: str = PROCESSES,
        ray: str | None = None,
        shard: str | None = None,
        collect: bool = False,
    ) -> Execution:
        """Build the options from the arguments that `sweep` and `compare` share. Raises BadInput."""
        require_type("out", out, (str, PathLike), "the name of a folder")
        if workers is not None:
            require_type("workers", workers, Integral, "a whole number or None")
        out = Path(out)
        if shard is not None and collect:
            raise BadInput("shard and collect exclude each other", remedy="give one of both")
        if collect and not out.is_dir():
            raise BadInput(f"there is no folder {out}", remedy="give the --out of the shards")
        chosen = Shard.read(shard) if shard is not None else None
        return cls(out, engine_of(engine, workers, out, ray), chosen, collect, progress)

    def choose(self, runs: Sequence[T]) -> Sequence[T]:
        """Select from all `runs` those to make or collect: the shard's, or all without a shard."""
        return self.shard.choose(runs) if self.shard is not None else runs


log = logging.getLogger("secagg.experiments")
SLOWEST = ("method", "parameters", "clients", "partition")
AXES = tuple(dict.fromkeys((*SLOWEST, *(each.name for each in fields(SimulationSettings) if each.name != "seed"))))
"""The settings that a grid may list, in the order of the runs and of the columns of results.csv."""
HOW = ("workers", "progress", "engine", "ray", "shard", "collect")
"""The arguments of `Execution.of` beside the folder."""
LEAVE_OUT = "leave_out"
_SHORT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
NAMED = 3
"""Most missing runs that a refusal names."""


@dataclass(frozen=True)
class Contender:
    """A method to be swept or compared, with its parameters as `simulate` takes them, and a short name for people."""

    method: str
    parameters: str = ""
    name: str = ""

    @classmethod
    def read(cls, text: str, shared: str = "") -> Contender:
        """Parse METHOD or METHOD[PARAMETER=VALUE …], with SHORT= before it or not; `shared` parameters come after.

        Raises BadInput, also for an unknown method.
        """
        require_type("method", text, str, "the name of a method, or a list of names")
        name, equals, rest = text.partition("=")
        if not equals or "[" in name:
            name, rest = "", text
        elif not _SHORT.fullmatch(name.strip()) or name.strip() in METHODS:
            problem = f"a method cannot go by the name {name.strip()!r}"
            raise BadInput(problem, remedy="give 1 to 32 letters, digits or .-_ that name no method, as in slow=fedavg")
        method, parameters = split_method(rest, shared)
        if not is_baseline(method):
            method_named(method)
        return cls(method, parameters, name.strip())


def distinct(contenders: Iterable[Contender]) -> tuple[Contender, ...]:
    """Return the contenders, each once. Raises BadInput where two share a name, or the same method has two names."""
    found = tuple(dict.fromkeys(contenders))
    if not found:
        raise BadInput("there is no method to try", remedy="name one or more")
    names = [each.name for each in found if each.name] + [method_label(each.method, each.parameters) for each in found]
    if twice := [each for each in names if names.count(each) > 1]:
        raise BadInput(f"{twice[0]} is given twice", remedy="give each method one name, and each name one method")
    return found


@dataclass(frozen=True)
class Ran:
    """The finished runs of a sweep, in the order of their settings, and how many of them were reused or made again.

    `kept`: how many were there and were not repeated. `again`: how many were there, but made by other code or other
    versions of libraries, and were made again.
    """

    runs: tuple[Run, ...]
    kept: int
    again: int
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the runs: how many were reused from an earlier start, and each distinct note of their results."""
        said = f"{self.kept} of {len(results_of(self.runs))} runs were taken over"
        said += f"; {self.again} of other code or versions had to run again" if self.again else ""
        return (*([said] if self.kept or self.again else []), *listed(self.runs, "notes"))


@dataclass(frozen=True)
class SweepResult(Results):
    """The runs of a sweep, or of one shard of it, in the order of the grid.

    `asked`: how many there are in the whole grid. `notes` are its own and those of the runs, each once.
    """

    dataset: str
    runs: tuple[Run, ...]
    notes: tuple[str, ...] = ()
    asked: int = 0
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def series(self) -> tuple[ResultRow, ...]:
        """A row for each series (runs that differ in ε and seed alone) with a result."""
        return summarise(self.runs)

    @property
    def table(self) -> ResultTable:
        """The table of accuracies by series and ε."""
        return accuracy_table(self.dataset, self.runs)

    @property
    def tables(self) -> tuple[ResultTable, ...]:
        groups = [group for row in self.series for group in by_epsilon(row.label, row.runs)]
        further = measures_table(self.dataset, "ε", groups, pipeline_notes(self.runs))
        return (self.table, further) if further else (self.table,)

    @property
    def refusals(self) -> tuple[str, ...]:
        """A line for each combination of settings (ε and seed apart) that was refused, with the reason."""
        names = [name for name in varying([run.settings for run in self.runs]) if name not in ("epsilon", "seed")]
        refused: dict[tuple[str, str], dict[str, None]] = {}
        for run in self.runs:
            if run.refusal is not None:
                epsilons = refused.setdefault((described(run.settings, names, run.name), run.refusal), {})
                epsilons[f"{run.settings['epsilon']:g}"] = None
        return tuple(f"{label} at ε = {', '.join(found)}: {reason}" for (label, reason), found in refused.items())

    def plot(self, paths: Sequence[Path]) -> None:
        plot_accuracy(self.series, paths, notes=pipeline_notes(self.runs))

    def to_json(self) -> dict[str, Any]:
        summary = [
            {"series": row.label, "settings": plain(row.settings), "epsilon": plain(cell.epsilon)}
            | cell.to_json()
            | {"refused": cell.refused}
            for row in self.series
            for cell in row.cells
        ]
        return {
            "version": 1,
            "dataset": self.dataset,
            **self.runs_to_json(),
            "summary": summary,
            "refusals": list(self.refusals),
            "notes": [*self.notes, *pipeline_notes(self.runs)],
            "not_private": listed(self.runs, "not_private"),
        }


def sweep(
    features: Any,
    labels: Any = None,
    *,
    out: Path | str,
    seeds: int = 5,
    test_features: Any = None,
    test_labels: Any = None,
    classes: Sequence[str] | None = None,
    **settings: Any,
) -> SweepResult:
    """Simulate every combination of some settings with the seeds 0…seeds−1, and write the results into `out`.

    Data and settings are those of `simulate`, and each setting may be a list of values to try; records to be held out
    must be there. A method may have parameters of its own, and a short name for tables and figures, as in
    method=["fedcgs", "slow=fedavg[rounds=50 rate=0.1]"]. Further arguments: `workers`, processes, by default one per
    core; `progress`, which takes (runs done, runs in all); `engine`, "processes" or "ray", and `ray`, the address of a
    cluster; `shard`, "2/16" say, makes some of the runs and writes no table, and `collect=True` makes none, but writes
    the tables of all. A combination that is refused is recorded and does not end the sweep. Raises BadInput for
    settings that cannot be, for data that are none or without held-out records, and where runs to collect are missing.

    >>> sweep("digits", clients=[5, 50], epsilon=2.0, delta=1e-5, adjacency="add-remove", out="out")  # doctest: +SKIP
    """
    dataset, grid, how = given_grid(features, (labels, test_features, test_labels, classes), settings)
    return sweep_dataset(dataset, grid, seeds, out, **how)


def given_grid(
    features: Any, arrays: Sequence[Any], settings: Mapping[str, Any]
) -> tuple[Dataset, dict[str, tuple[Any, ...]], dict[str, Any]]:
    """Return the data set, the values to try of each setting, and the arguments of `Execution.of`. Raises BadInput.

    `features` and the four `arrays` are as in `given_data`.
    """
    how = {name: settings[name] for name in HOW if name in settings}
    given = {name: value for name, value in settings.items() if name not in HOW}
    dataset, chosen = given_data(features, arrays, given, listed=True)
    return dataset, {name: values_of(value) for name, value in chosen.items()}, how


def sweep_dataset(
    dataset: Dataset, grid: Mapping[str, Sequence[Any]], seeds: int, out: Path | str, **how: Any
) -> SweepResult:
    """Simulate as `sweep` does. `grid` has the values to try of each setting, `how` the arguments of `Execution.of`."""
    grid = {**grid, LEAVE_OUT: one_by_one(dataset, grid.get(LEAVE_OUT, (None,)))}
    shared = [as_setting("parameters", each) for each in grid.get("parameters", ("",))]
    methods = grid.get("method", (SimulationSettings().method,))
    contenders = distinct(Contender.read(method, each) for method in methods for each in shared)
    given = [{**grid, "method": (each.method,), "parameters": (each.parameters,)} for each in contenders]
    asked, execution = [each for own in given for each in combinations(own, seeds)], Execution.of(out, **how)
    ran = runs_of(dataset, execution.choose(asked), execution, contenders)
    result = SweepResult(dataset.name, ran.runs, ran.notes, len(asked), ran.provenance)
    if result.series and execution.shard is None:  # refusals alone must not replace what an earlier sweep has written
        result.write(execution.out)
    return result


def runs_of(
    dataset: Dataset,
    settings: Sequence[Mapping[str, Any]],
    execution: Execution,
    contenders: Iterable[Contender] = (),
) -> Ran:
    """Simulate each of the settings, in order, reusing finished runs from its folder. Raises as `sweep` does.

    The runs of `contenders` get their short names, which are no part of what is kept. Of two sweeps at once into one
    folder the later waits, so that neither makes a run that the other makes. A run is taken over where data, settings,
    code and versions are the same. A refusal is only where it is collected: it says what a shard had, and another start
    may have more.
    """
    if dataset.test is None or not len(dataset.test):
        remedy = "give test_features and test_labels, or a data set that has a test part"
        raise BadInput(f"{dataset.name} has no held-out records to measure accuracy on", remedy=remedy)
    require("matplotlib", "experiments")
    folder = execution.out / "runs"
    with nullcontext() if execution.collect or execution.shard else _alone(folder):
        ran = _finish(dataset, settings, folder, execution)
    names = {(each.method, each.parameters): each.name for each in contenders}
    short = [names.get((run.settings["method"], run.settings["parameters"]), "") for run in ran.runs]
    return replace(ran, runs=tuple(replace(run, name=name) for run, name in zip(ran.runs, short, strict=True)))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of runs, which the system releases when its holder dies; wait for another's."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.warning("another sweep makes runs in %s: waiting for them", folder)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _finish(dataset: Dataset, settings: Sequence[Mapping[str, Any]], folder: Path, execution: Execution) -> Ran:
    """Make the runs that are missing in the folder, and return all. Raises BadInput."""
    digest = data_sha256(dataset)
    files = [RunFile(folder, each, digest) for each in settings]
    known = _questions(folder, digest)
    found = {file.path: Run(file.settings, *there) for file in files if (there := file.read()) is not None}
    ended = {path: run for path, run in found.items() if run.result is not None or execution.collect}
    missing = [file for file in files if file.path not in ended]
    if missing and execution.collect:
        raise _incomplete(execution.out, files, missing, known)
    folder.mkdir(parents=True, exist_ok=True)  # a shard's, which takes no lock
    again = {file.path for file in missing if file.path not in found and json.dumps(file.question) in known}
    kept = len(files) - len(missing)
    said = _RunLog(execution.progress, settings, len(files), kept)
    for file, run in run_all(dataset, missing, execution.engine) if missing else ():
        if run.refusal is not None and execution.shard is not None:
            file.write(None, run.refusal)
        ended[file.path] = run
        said.end(run)
    origin = provenance_of([file.question for file in files], digest)
    return Ran(tuple(ended[file.path] for file in files), kept, len(again), origin)


def _incomplete(out: Path, files: Sequence[RunFile], missing: Sequence[RunFile], there: set[str]) -> BadInput:
    """Return the refusal to collect a sweep: it names the runs that are missing, and what the folder holds instead."""
    asked = {json.dumps(file.question) for file in files}
    old = sum(json.dumps(file.question) in there for file in missing)
    names = (*(name for name in varying([file.settings for file in files]) if name != "seed"), "seed")
    named = "; ".join(described(file.settings, names) for file in missing[:NAMED])
    more = "; …" if len(missing) > NAMED else ""
    problem = f"{len(missing)} of {len(files)} runs are missing in {out} ({named}{more})"
    problem += f"; {old} of them are there from other code or versions" if old else ""
    others = len(there - asked)
    problem += f"; it holds {others} of other settings" if others else ""
    return BadInput(problem, remedy="run the shards that are missing, or the command without collecting")


class _RunLog:
    def __init__(self, progress: Progress | None, settings: Sequence[Mapping[str, Any]], total: int, kept: int) -> None:
        self._progress = progress or (lambda done, total: None)
        self._names = ("epsilon", *(name for name in varying(settings) if name not in ("epsilon", "seed")))
        self._total, self._kept, self._done = total, kept, kept
        self._begun = time.monotonic()
        self._progress(kept, total)
        log.info("%d of %d runs are there", kept, total)

    def end(self, run: Run) -> None:
        """Log one more finished run, with an estimate of the time that the others take."""
        self._done += 1
        self._progress(self._done, self._total)
        passed = time.monotonic() - self._begun
        left = passed / (self._done - self._kept) * (self._total - self._done)
        what = f"{described(run.settings, self._names)}, seed {run.settings['seed']}"
        how = f"{100 * (run.result['accuracy'] or 0.0):.2f} %" if run.result else f"refused: {run.refusal}"
        log.info("run %d of %d, %.0f s, about %.0f s left: %s: %s", self._done, self._total, passed, left, what, how)


def _questions(folder: Path, data_sha256: str) -> set[str]:
    """Return settings and digests, as JSON, of the runs in a folder, whatever version of the code made them.

    Raises BadInput where one is over other data: the tables beside it would be replaced.
    """
    found = set()
    for path in folder.glob("*.json"):
        try:
            content = parse_json(path.read_bytes())
            question = {name: content[name] for name in ("data_sha256", "backbone_sha256", "settings")}
        except (ValueError, KeyError, TypeError):
            continue  # no run, which `RunFile` would not take for one either
        if question["data_sha256"] != data_sha256:
            raise BadInput(f"{folder.parent} holds results over other data", remedy="give another --out")
        found.add(json.dumps(question))
    return found


def combinations(grid: Mapping[str, Sequence[Any]], seeds: int) -> tuple[dict[str, Any], ...]:
    """Return the settings of every run: each combination of the grid with each of the seeds 0…seeds−1.

    Raises BadInput for a name that is no setting, an empty list, a value of another type, or no seed.
    """
    for name, values in grid.items():
        if name not in AXES:
            raise BadInput(f"{name} cannot be swept", remedy=f"choose among {', '.join(AXES)}")
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise BadInput(f"{name} has {values!r} to try", remedy="give a list")
        if not len(values):
            raise BadInput(f"there is no value of {name} to try")
    require_type("seeds", seeds, Integral, "how many seeds, a whole number from 1 on")
    if seeds < 1:
        raise BadInput(f"seeds must be at least 1 (got {seeds})")
    default = SimulationSettings()
    given = {name: [as_setting(name, value) for value in grid[name]] for name in grid}
    lists = [tuple(dict.fromkeys(given.get(name, (getattr(default, name),)))) for name in AXES]
    names = (*AXES, "seed")
    found = {}
    for values in product(*lists, range(seeds)):
        settings = dict(zip(names, values, strict=True))
        if is_baseline(settings["method"]) and not settings["refine"]:
            settings["refine"] = None  # a baseline has no sum: no rounds and rounds by rule are the same
        found[tuple(settings.values())] = settings
    return tuple(found.values())
