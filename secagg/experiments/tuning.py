"""`tune`: simulate the search for a training method's settings, and write those that it found as a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from methods.search.fedpop import FedPop
from secagg.data import Dataset
from secagg.errors import BadInput
from secagg.experiments.results import grouped, results_of, varying
from secagg.experiments.sweep import Execution, SweepResult, combinations, runs_of
from secagg.features import Progress
from secagg.system.files import write_synced

SETTINGS_FILE = "settings{}.txt"


@dataclass(frozen=True)
class Tuning:
    """A search for the settings in `space` of `method`, beside its `fixed` ones, as words.

    An empty space is FedPop's own. `search` are other parameters of `FedPop`, as words: "population=5 interval=5".
    """

    method: str
    fixed: str = ""
    space: str = ""
    search: str = ""

    def parameters(self, draw: int) -> str:
        """FedPop's, the first population being the one of this number."""
        texts = {"fixed": self.fixed, "space": self.space}
        joined = [f"{name}={';'.join(text.split())}" for name, text in texts.items() if text.strip()]
        return " ".join([f"method={self.method}", *joined, *self.search.split(), f"draw={draw}"])


@dataclass(frozen=True)
class Found:
    """One search's result: the method's `parameters` as words, written to the file of this name.

    `search`: in what it differs from the others, "epsilon 4.0, clients 20" say; empty where there is no other.
    """

    search: str
    parameters: str
    file: str


@dataclass(frozen=True)
class TuneResult:
    """Every run, and what each search found: the settings of its seed with the lowest validation loss."""

    tuning: Tuning
    sweep: SweepResult

    @property
    def found(self) -> tuple[Found, ...]:
        """In the order of the searches; one that was refused found nothing."""
        searches = grouped(self.sweep.runs, lambda run: run.settings_without("seed"))
        tuned = [[each for result in results_of(runs) if (each := result["tuned"]) is not None] for runs in searches]
        best = [
            (runs[0].settings_without("seed"), min(found, key=lambda each: each["loss"]))
            for runs, found in zip(searches, tuned, strict=True)
            if found
        ]
        names = varying([shared for shared, _ in best])
        return tuple(
            Found(
                ", ".join(f"{name.replace('_', ' ')} {shared[name]}" for name in names),
                " ".join([*self.tuning.fixed.split(), *tuned["settings"].split()]),
                SETTINGS_FILE.format(f"-{place}" if len(best) > 1 else ""),
            )
            for place, (shared, tuned) in enumerate(best, start=1)
        )

    def to_json(self) -> dict[str, Any]:
        """The sweep's, with what was found."""
        return {**self.sweep.to_json(), "method": self.tuning.method, "found": [asdict(each) for each in self.found]}

    def write(self, out: Path) -> tuple[Path, ...]:
        """Write the sweep's files and, for each search, its settings: one a line, as --parameters takes them."""
        self.sweep.write(out)
        for each in self.found:
            write_synced(out / each.file, ("\n".join(each.parameters.split()) + "\n").encode())
        return tuple(out / each.file for each in self.found)


def tune(
    dataset: Dataset,
    tuning: Tuning,
    grid: Mapping[str, Sequence[Any]],
    seeds: int,
    out: Path | str,
    workers: int | None = None,
    progress: Progress | None = None,
    **how: Any,
) -> TuneResult:
    """Search with the seeds 0…seeds−1 for every combination of the grid, and write what was found into `out`.

    A seed moves the partition, and numbers the first population. All else as `sweep` has it; raises as it does.
    """
    if {"method", "parameters"} & set(grid):
        raise BadInput("what is tuned is no part of the grid", remedy="give it as the tuning")
    settings = combinations({**grid, "method": (FedPop.name,)}, seeds)
    asked = [{**each, "parameters": tuning.parameters(each["seed"])} for each in settings]
    execution = Execution.of(Path(out), workers, progress, **how)
    ran = runs_of(dataset, execution.choose(asked), Path(out), execution)
    # Tables and curves take seeds as one series, although these differ in the first population too.
    name = f"{tuning.method} {tuning.search}".strip()
    alike = tuple(replace(run, settings={**run.settings, "parameters": name}) for run in ran.runs)
    result = TuneResult(tuning, SweepResult(dataset.name, alike, ran.notes, len(asked)))
    if result.sweep.series and execution.is_whole:
        result.write(Path(out))
    return result
