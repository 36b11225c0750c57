"""`tune`: simulate a federated search for a training method's hyperparameters, and write the best ones to files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from methods import split_method
from methods.search.fedpop import FedPop
from secagg.data import Dataset
from secagg.errors import BadInput, require_type
from secagg.experiments.results import grouped, results_of, varying
from secagg.experiments.settings import as_setting
from secagg.experiments.sweep import Execution, SweepResult, combinations, given_grid, runs_of
from secagg.system.files import write_synced

SETTINGS_FILE = "settings{}.txt"


@dataclass(frozen=True)
class Tuning:
    """A hyperparameter search for `method`: the values to try (`space`), and the parameters kept `fixed`.

    Both are written as NAME=… words. An empty space is FedPop's own. `search` are other parameters of `FedPop`, as
    words: "population=5 interval=5".
    """

    method: str
    fixed: str = ""
    space: str = ""
    search: str = ""

    def __post_init__(self) -> None:
        """Move parameters in brackets after the method's name to the fixed ones. Raises BadInput."""
        method, fixed = split_method(self.method, self.fixed)
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "fixed", fixed)

    def parameters(self, draw: int) -> str:
        """Return the parameters of FedPop, the search method, as text; `draw` selects one random first population."""
        texts = {"fixed": self.fixed, "space": self.space}
        joined = [f"{name}={';'.join(text.split())}" for name, text in texts.items() if text.strip()]
        return " ".join([f"method={self.method}", *joined, *self.search.split(), f"draw={draw}"])


@dataclass(frozen=True)
class Found:
    """The result of one search: the method's `parameters` as text, and the name of the file that holds them.

    `search`: in what it differs from the others, "epsilon 4.0, clients 20" say; empty where there is no other.
    """

    search: str
    parameters: str
    file: str


@dataclass(frozen=True)
class _TuneResult:
    """The runs of a tuning, and what each search found: the settings with the lowest validation loss of its seeds."""

    tuning: Tuning
    sweep: SweepResult

    @property
    def found(self) -> tuple[Found, ...]:
        """The results of the searches, in order; a search that was refused has none."""
        searches = grouped(self.sweep.runs, lambda run: run.settings_without("seed"))
        tuned = [[each for result in results_of(runs) if (each := result["tuned"]) is not None] for runs in searches]
        ended = [(runs[0].settings_without("seed"), each) for runs, each in zip(searches, tuned, strict=True) if each]
        names, found = varying([shared for shared, _ in ended]), []
        for place, (shared, results) in enumerate(ended, start=1):
            search = ", ".join(f"{name.replace('_', ' ')} {shared[name]}" for name in names)
            best = min(results, key=lambda each: each["loss"])
            parameters = " ".join([*self.tuning.fixed.split(), *best["settings"].split()])
            found.append(Found(search, parameters, SETTINGS_FILE.format(f"-{place}" if len(ended) > 1 else "")))
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of the sweep, with the settings that were found."""
        return {**self.sweep.to_json(), "method": self.tuning.method, "found": [asdict(each) for each in self.found]}

    def write(self, out: Path) -> tuple[Path, ...]:
        """Write the sweep's files, and one file for each search's settings: one a line, as --parameters reads them."""
        self.sweep.write(out)
        for each in self.found:
            write_synced(out / each.file, ("\n".join(each.parameters.split()) + "\n").encode())
        return tuple(out / each.file for each in self.found)


def tune(
    features: Any,
    labels: Any = None,
    *,
    out: Path | str,
    method: str = "fedavg",
    parameters: str = "",
    space: str = "",
    search: str = "",
    seeds: int = 1,
    test_features: Any = None,
    test_labels: Any = None,
    classes: Sequence[str] | None = None,
    **settings: Any,
) -> _TuneResult:
    """Search the parameters of a method that trains, for each seed in 0…seeds−1, and write those found into `out`.

    `parameters` stay; `space` and `search` are those of `Tuning`. Data, settings and further arguments are those of
    `sweep`, by default with 20 clients and no reference. Raises BadInput.

    >>> tune("digits", method="fedavg", space="rate=log:0.05:2", rounds=4, out="out").found  # doctest: +SKIP
    """
    for name, value in (("method", method), ("space", space), ("search", search)):
        require_type(name, value, str, "a text")
    given = {"clients": 20, "reference": False, **settings}
    dataset, grid, how = given_grid(features, (labels, test_features, test_labels, classes), given)
    tuning = Tuning(method, as_setting("parameters", parameters), space, search)
    result = tune_dataset(dataset, tuning, grid, seeds, out, **how)
    if result.sweep.refusals and not result.found and how.get("shard") is None:
        raise BadInput(f"every search was refused: {result.sweep.refusals[0]}")
    return result


def tune_dataset(
    dataset: Dataset, tuning: Tuning, grid: Mapping[str, Sequence[Any]], seeds: int, out: Path | str, **how: Any
) -> _TuneResult:
    """Search for each combination of the grid. A seed moves the partition, and numbers the first population."""
    if {"method", "parameters"} & set(grid):
        raise BadInput("the grid of a search holds no method and no parameters", remedy="give them as the tuning")
    settings = combinations({**grid, "method": (FedPop.name,)}, seeds)
    asked = [{**each, "parameters": tuning.parameters(each["seed"])} for each in settings]
    execution = Execution.of(out, **how)
    ran = runs_of(dataset, execution.choose(asked), execution)
    # Tables and curves take seeds as one series, although these differ in the first population too.
    name = f"{tuning.method} {tuning.search}".strip()
    alike = tuple(replace(run, settings={**run.settings, "parameters": name}) for run in ran.runs)
    result = _TuneResult(tuning, SweepResult(dataset.name, alike, ran.notes, len(asked), ran.provenance))
    if result.sweep.series and execution.shard is None:
        result.write(execution.out)
    return result
