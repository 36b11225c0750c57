"""`tune`: simulate the search for a training method's settings, and write those that it found as a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from methods.fedpop import FedPop
from secagg.data import Dataset
from secagg.errors import BadInput
from secagg.experiments.execution import Execution
from secagg.experiments.summary import Run
from secagg.experiments.sweep import SweepResult, combinations, runs_of
from secagg.features import Progress
from secagg.files import write_synced

SETTINGS_FILE = "settings{}.txt"


@dataclass(frozen=True)
class Tuning:
    """What is searched: the settings in `space` of `method`, beside its `fixed` ones, as words.

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
class TuneResult:
    """Every run, and the settings that each series of them found: those of the seed with the lowest validation loss."""

    tuning: Tuning
    sweep: SweepResult

    @property
    def found(self) -> tuple[str, ...]:
        """The method's parameters as words, one text for each series."""
        best: dict[str, Mapping[str, Any]] = {}
        for run in self.sweep.runs:
            if run.result is not None and run.result["tuned"] is not None:
                series = repr({name: value for name, value in run.settings.items() if name != "seed"})
                known = best.get(series)
                if known is None or run.result["tuned"]["loss"] < known["loss"]:
                    best[series] = run.result["tuned"]
        return tuple(" ".join([*self.tuning.fixed.split(), *each["settings"].split()]) for each in best.values())

    def to_json(self) -> dict[str, Any]:
        """The sweep's, with what was found."""
        return {**self.sweep.to_json(), "method": self.tuning.method, "found": list(self.found)}

    def write(self, out: Path) -> tuple[Path, ...]:
        """Write the sweep's files and, for each series, its settings: one a line, as --parameters takes them."""
        self.sweep.write(out)
        paths = []
        for place, words in enumerate(self.found, start=1):
            paths.append(out / SETTINGS_FILE.format(f"-{place}" if len(self.found) > 1 else ""))
            write_synced(paths[-1], ("\n".join(words.split()) + "\n").encode())
        return tuple(paths)


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
    asked = [_with(each, tuning) for each in combinations({**grid, "method": (FedPop.name,)}, seeds)]
    execution = Execution.of(Path(out), workers, progress, **how)
    ran = runs_of(dataset, execution.choose(asked), Path(out), execution)
    alike = tuple(_alike(run, tuning) for run in ran.runs)
    result = TuneResult(tuning, SweepResult(dataset.name, alike, ran.notes, len(asked)))
    if result.sweep.series and execution.is_whole:
        result.write(Path(out))
    return result


def _with(settings: Mapping[str, Any], tuning: Tuning) -> dict[str, Any]:
    return {**settings, "parameters": tuning.parameters(settings["seed"])}


def _alike(run: Run, tuning: Tuning) -> Run:
    """The run as tables and curves call it: seeds differ in the first population too, and are one series."""
    return replace(run, settings={**run.settings, "parameters": f"{tuning.method} {tuning.search}".strip()})
