"""`compare`: methods beside each other over partitions and seeds, each under the protection asked for if it can.

A method that cannot runs without protection, and every number of such a run is marked. Runs are kept and not repeated,
as by `sweep`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any

from methods import method_named
from secagg.data import Dataset
from secagg.data.shift import one_by_one
from secagg.errors import BadInput
from secagg.experiments.baselines import BASELINES, FEDERATED
from secagg.experiments.comparison import Comparison
from secagg.experiments.execution import Execution
from secagg.experiments.given import given_dataset
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.summary import results_of
from secagg.experiments.sweep import AXES, LEAVE_OUT, Ran, combinations, runs_of
from secagg.features import Progress
from secagg.protection import UNPROTECTED, USUAL

LISTED = ("partition", "epsilon", "expand", LEAVE_OUT)
"""The settings that may have several values, beside the methods."""
SINGLE = tuple(name for name in AXES if name not in ("method", "parameters", *LISTED))
OF_SUMS = {name: getattr(SimulationSettings(), name) for name in FEDERATED}
"""What has no meaning for a baseline, which runs without."""
_CONTENDER = re.compile(r"([^\s\[\]]+)(?:\[([^\[\]]*)\])?")


@dataclass(frozen=True)
class Contender:
    """A method with its parameters, as `simulate` takes them."""

    method: str
    parameters: str = ""

    @classmethod
    def read(cls, text: str) -> Contender:
        """Read METHOD or METHOD[NAME=VALUE …], the brackets holding what --parameters takes.

        Raises BadInput, for a method that there is not as well.
        """
        found = _CONTENDER.fullmatch(text.strip())
        if found is None:
            raise BadInput(f"cannot tell the method in {text!r}", remedy="write fedcgs or fedtc[slots=16 keep=0.9]")
        if found[1] not in BASELINES:
            method_named(found[1])
        return cls(found[1], " ".join((found[2] or "").split()))


def compare(
    dataset: Dataset | str | PathLike[str] | Sequence[Any],
    contenders: Sequence[Contender],
    grid: Mapping[str, Sequence[Any]],
    seeds: int,
    out: Path | str,
    workers: int | None = None,
    progress: Progress | None = None,
    **how: Any,
) -> Comparison:
    """Simulate every contender in every condition with the seeds 0…seeds−1, and write the results into `out`.

    `dataset`: as `sweep` takes it. `grid`: fields of SimulationSettings with the values to try, several for those in
    `LISTED`, one for the others. A run that is refused is tried again with the protection `none`; its `unprotected`
    then says why. `workers`, `progress` and `how` are those of `sweep`. Raises BadInput for a comparison that
    cannot be.
    """
    out = Path(out)
    dataset = given_dataset(dataset, grid)
    execution = Execution.of(out, workers, progress, **how)
    settings = execution.choose(_ask(dataset, contenders, grid, seeds))
    asked = runs_of(dataset, settings, out, execution)
    refused = [run for run in asked.runs if run.result is None and run.settings["protection"] != UNPROTECTED]
    open_ones = [{**run.settings, "protection": UNPROTECTED} for run in refused]
    done = len(asked.runs)
    report = None if progress is None else lambda more, total: progress(done + more, done + total)
    bare = runs_of(dataset, open_ones, out, replace(execution, progress=report)) if refused else Ran((), 0, 0)
    instead = {id(run): replace(other, unprotected=run.refusal) for run, other in zip(refused, bare.runs, strict=True)}
    runs = tuple(instead.get(id(run), run) for run in asked.runs)
    ran = Ran(runs, asked.kept + bare.kept, asked.again + bare.again)
    name, protection = dataset.name, str(grid.get("protection", (USUAL,))[0])
    comparison = Comparison(name, protection, runs, _inapplicable(contenders, grid), ran.notes)
    if results_of(runs) and execution.is_whole:  # refusals alone must not replace what was written before
        comparison.write(out)
    return comparison


def _ask(
    dataset: Dataset, contenders: Sequence[Contender], grid: Mapping[str, Sequence[Any]], seeds: int
) -> list[dict[str, Any]]:
    """The settings of every run as asked for. Raises BadInput."""
    if not contenders:
        raise BadInput("there is no method to compare")
    for name, values in grid.items():
        if name not in (*LISTED, *SINGLE):
            raise BadInput(f"a comparison has no {name}", remedy=f"choose among {', '.join((*LISTED, *SINGLE))}")
        if name in SINGLE and len(values) != 1:
            raise BadInput(f"a comparison takes one {name}", remedy=f"several values go with {', '.join(LISTED)}")
    spelled = {**grid, LEAVE_OUT: one_by_one(dataset, grid.get(LEAVE_OUT, (None,)))}
    conditions = combinations(spelled, seeds)
    return [
        {
            **condition,
            **(OF_SUMS if contender.method in BASELINES else {}),
            "method": contender.method,
            "parameters": contender.parameters,
        }
        for contender, condition in product(dict.fromkeys(contenders), conditions)
    ]


def _inapplicable(contenders: Sequence[Contender], grid: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    """What was asked for that baselines among the contenders do without."""
    if not any(contender.method in BASELINES for contender in contenders):
        return ()
    return tuple(name for name, default in OF_SUMS.items() if tuple(grid.get(name, (default,))) != (default,))
