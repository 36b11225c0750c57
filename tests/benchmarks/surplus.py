"""The table of methods/ACCURACY.md on what removing surplus noise is worth: each run beside one that keeps it.

`python -m tests.benchmarks.surplus --data D --out F` writes it between its marks there. D holds `usps.npz`, without
which its rows are left out; F keeps the runs, and what has ended is not repeated. Partitions are the same with and
without removal, seed by seed; noise is drawn afresh.

Goals, written down before the first run: digits: 4 clients > 5/0.5/0, 10 clients > 0 at epsilon = 0.25 (lower ends of
the 95 % interval of the paired gain).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from secagg.experiments.results import student_interval
from secagg.experiments.sweep import Execution, runs_of
from tests.architecture.source import ROOT
from tests.benchmarks.accuracy import EPSILONS, ROUNDS, Cell, Task, open_task, say, settings_of
from tests.benchmarks.fashion_mnist import DATA
from tests.benchmarks.leaving import placed

PAGE = ROOT / "methods" / "ACCURACY.md"
BEGIN = "<!-- made by: python -m tests.benchmarks.surplus -->\n"
TASKS = (Task("digits", "digits", 20), Task("USPS", "usps.npz", 10))
CLIENTS = (4, 10)
TOLERATED = {"tolerate": 1, "noise_seed": None}
GOALS: Mapping[tuple[str, int], tuple[float, ...]] = {("digits", 4): (5.0, 0.5, 0.0), ("digits", 10): (0.0,)}
"""For each ε of `EPSILONS` that has a goal, what the lower end of the gain's interval must exceed, in points."""
Arms = Mapping[str, tuple[Cell, ...]]
"""Accuracies with surplus noise removed and kept, a cell for each ε."""


def measure(task: Task, clients: int, data: Path, out: Path, workers: int | None) -> Arms:
    """Run both arms. Raises AssertionError for a run that is refused."""
    folder = out / task.title
    folder.mkdir(parents=True, exist_ok=True)
    rows = {arm: {**ROUNDS, **TOLERATED, "clients": clients, "surplus_noise": arm} for arm in ("remove", "keep")}
    asked = [each for row in rows.values() for each in settings_of(task, row, EPSILONS)]
    values = []
    for run in runs_of(open_task(task, data, folder), asked, folder, Execution.of(folder, workers, say)).runs:
        assert run.result is not None, run.refusal
        values.append(100 * run.result["accuracy"])
    cells = [Cell(tuple(values[first : first + task.seeds])) for first in range(0, len(values), task.seeds)]
    return {"remove": tuple(cells[: len(EPSILONS)]), "keep": tuple(cells[len(EPSILONS) :])}


def gains_of(arms: Arms) -> list[Cell]:
    """Return accuracy with removal less that without, seed by seed, for each ε."""
    pairs = zip(arms["remove"], arms["keep"], strict=True)
    return [Cell(tuple(a - b for a, b in zip(*(each.values for each in pair), strict=True))) for pair in pairs]


def table(measured: Mapping[tuple[Task, int], Arms]) -> str:
    """Return all rows and a line on every goal, in Markdown."""
    lines = [f"| | ε | {' | '.join(f'{each:g}' for each in EPSILONS)} |", "| --- | --- |" + " ---: |" * len(EPSILONS)]
    verdicts = []
    for (task, clients), arms in measured.items():
        gains = gains_of(arms)
        intervals = [student_interval(gain.values) for gain in gains]
        shown = [
            f"{gain.mean:+.2f} ({low:+.2f} to {high:+.2f})" for gain, (low, high) in zip(gains, intervals, strict=True)
        ]
        name = f"{task.title}, {clients} clients, {task.seeds} seeds"
        for label, cells in ((f"{name} | kept", arms["keep"]), (" | removed", arms["remove"]), (" | gain", shown)):
            lines.append(f"| {label} | {' | '.join(map(str, cells))} |")
        for epsilon, (low, _), goal in zip(EPSILONS, intervals, GOALS.get((task.title, clients), ()), strict=False):
            said = f"lower end {low:+.2f}, goal above {goal:g}: {'met' if low > goal else 'missed'}"
            verdicts.append(f"- {task.title}, {clients} clients, ε = {epsilon:g}: {said}")
    return "\n".join([*lines, "", *verdicts, ""])


def main() -> None:
    """Run all of it and write the table."""
    parser = argparse.ArgumentParser(description="What removing surplus noise is worth, as in methods/ACCURACY.md")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; a run in it is not repeated")
    parser.add_argument("--workers", type=int, default=None, help="processes; default: one per core")
    chosen = parser.parse_args()
    measured = {}
    for task in TASKS:
        if task.source.endswith(".npz") and not (chosen.data / task.source).is_file():
            print(f"{task.title}: skipped, as there is no {chosen.data / task.source}", file=sys.stderr)
            continue
        for clients in CLIENTS:
            print(f"{task.title}, {clients} clients", file=sys.stderr)
            measured[task, clients] = measure(task, clients, chosen.data, chosen.out, chosen.workers)
    PAGE.write_text(placed(PAGE.read_text(encoding="utf-8"), table(measured), BEGIN), encoding="utf-8")


if __name__ == "__main__":
    main()
