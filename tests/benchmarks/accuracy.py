"""Every table of accuracy under noise in methods/ACCURACY.md: one script, which also says where a goal is missed.

`python -m tests.benchmarks.accuracy --data D --out F [--only digits,heart]`

D holds the data sets of `TASKS` under their usual names; digits and breast-cancer come with scikit-learn. F receives a
sweep's folder for each (what has ended is not repeated) and `accuracy.md`. All constants, of the rule for rounds and
of DP-SGD alike, were chosen on the sets marked `chosen_on` (methods/ACCURACY.md says on which part); the others were
first looked at afterwards.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from secagg.agreement.schema import load_schema
from secagg.data import Dataset, open_dataset
from secagg.experiments.results import Run, Value, accuracy_of, measure_of, student_interval
from secagg.experiments.sweep import Execution, combinations, runs_of
from secagg.experiments.tables import SHOWN, ResultTable, beside_accuracy, shown_accuracy
from tests.benchmarks.fashion_mnist import CLASSES, DATA, read

DELTA = 1e-5
NOISE_SEED = 0
"""The tables are the same bits every time; nothing of them is private."""
EPSILONS = (0.25, 1.0, 4.0)
ADULT = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
)
"""The columns of the published file, which has no header."""
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """One data set: its file under the data folder, how it is cut and mapped, and its goals at `EPSILONS`.

    `seeds`: 20 where fewer than 1,000 records are held out, so that one record more or less is not the answer.
    `floors`: goals that the lower end of the 95 % interval must reach; of `goals` only the upper end must.
    """

    title: str
    source: str
    seeds: int
    expand: int = 0
    clients: int | None = 10
    label: str | None = None
    schema: str | None = None
    chosen_on: bool = False
    goals: tuple[float, ...] = ()
    floors: tuple[float, ...] = ()
    backbone: str | None = None


TASKS: Mapping[str, Task] = {
    "cifar": Task(
        "CIFAR-10, ResNet-18 to layer3",
        "cifar10_resnet18_layer3_features.npz",
        5,
        chosen_on=True,
        goals=(65.9, 69.3, 70.8),
    ),
    "fashion": Task("Fashion-MNIST, pixels", "fashion-mnist", 5, 512, chosen_on=True, goals=(81.7, 83.9, 84.8)),
    "digits": Task("digits", "digits", 20, 256, chosen_on=True, goals=(67.5, 89.4, 93.5)),
    "heart": Task(
        "four hospitals",
        "tabular/heart",
        20,
        clients=None,
        schema="heart-disease",
        chosen_on=True,
        goals=(79.5, 81.7, 82.4),
    ),
    "breast-cancer": Task("breast-cancer", "breast-cancer", 20),
    "mnist": Task("MNIST, 10,000 records", "mnist_12k.npz", 5, 512),
    "pneumonia": Task("PneumoniaMNIST", "pneumoniamnist.npz", 20, 256),
    "pacs": Task("PACS, ResNet-18 to layer3", "pacs_resnet18_layer3_features_64px.npz", 5),
    "adult": Task("adult", "tabular/adult.data.gz", 5, label="income"),
    "credit": Task("credit", "tabular/credit_default.csv.gz", 5, label="default.payment.next.month"),
    "usps": Task("USPS, pixels", "usps.npz", 5, 512),
    "usps-scattering": Task("USPS, scattering", "usps.npz", 5, backbone="scattering", floors=(90.5, 93.0, 95.0)),
    "mnist-scattering": Task(
        "MNIST, 10,000 records, scattering", "mnist_12k.npz", 5, backbone="scattering", floors=(88.0, 93.0, 96.0)
    ),
    "digits-scattering": Task("digits, scattering", "digits", 20, backbone="scattering"),
    "pneumonia-scattering": Task("PneumoniaMNIST, scattering", "pneumoniamnist.npz", 20, backbone="scattering"),
    "fashion-scattering": Task("Fashion-MNIST, scattering", "fashion-mnist", 5, backbone="scattering"),
}
ROUNDS: Settings = {"method": "fedcgs", "colluders": 1}
ROWS: Mapping[str, Settings] = {
    "rounds": ROUNDS,
    "one sum": {"method": "fedcgs", "refine": 0, "colluders": 1},
    "DP-SGD, all records in one place": {"method": "dp-sgd"},
}
OTHERS: Mapping[str, Settings] = {
    "rounds, eight of ten shares count": {**ROUNDS, "colluders": 2},
    "rounds, replace-one": {**ROUNDS, "adjacency": "replace-one"},
    "rounds, client": {**ROUNDS, "unit": "client", "max_records": 8192},
}
"""Further promises, on the first of the sets; eight of ten shares count where one member may collude, one leave."""
CONFIRMED = "rounds, seeds 5 to 24"
FRESH_SEEDS = range(5, 25)
"""Where a task has floors: the first five seeds, a pilot, spread so much at ε = 0.25 that their interval tells nothing
of such a goal. So twenty other seeds judge it too, named before the first of them ran; both verdicts are printed."""


@dataclass(frozen=True)
class Cell:
    """The accuracies (seeds,) of one row at one ε, or another measure's values, in per cent."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return float(np.mean(self.values))

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return float(np.std(self.values, ddof=1) / math.sqrt(len(self.values)))

    def __str__(self) -> str:
        low, high = student_interval(self.values)
        return shown_accuracy(self.mean / 100, (low / 100, high / 100), len(self.values), refused=0)

    def is_below(self, other: Cell) -> bool:
        """Whether the mean is below another's by more than two standard errors of the difference."""
        return other.mean - self.mean > 2 * math.hypot(self.error, other.error)


def cleaned(source: Path, out: Path) -> Path:
    """A table of census income or of credit as CSV with a header; "?" is a value, row numbers are left out."""
    with gzip.open(source, "rt", encoding="utf-8") as file:
        rows = [["unknown" if cell.strip() == "?" else cell.strip() for cell in row] for row in csv.reader(file) if row]
    if source.name.startswith("adult"):
        rows.insert(0, list(ADULT))
    elif rows[0][0] == "ID":
        rows = [row[1:] for row in rows]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    path = out / f"{source.name.split('.')[0]}.csv"
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def open_task(task: Task, data: Path, out: Path) -> Dataset:
    """The records of a task; what `open_dataset` does not read as it is published is written to `out` first."""
    path = data / task.source
    if task.source == "fashion-mnist":
        content = {
            f"{part}_{kind}": read(data, part, kind, shape)
            for part in ("train", "test")
            for kind, shape in (("images", (-1, 28, 28)), ("labels", (-1,)))
        }
        path = out / "fashion_mnist.npz"
        np.savez(path, **content, classes=np.array(CLASSES))
    elif task.source.startswith("tabular/") and path.is_file():
        path = cleaned(path, out)
    source = str(path) if path.exists() else task.source
    return open_dataset(source, label=task.label, schema=load_schema(task.schema) if task.schema else None)


def settings_of(
    task: Task, row: Settings, epsilons: Sequence[float], seeds: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """The settings of every run of one row: by ε, then by seed, of which the task says how many."""
    chosen = range(task.seeds) if seeds is None else seeds
    shared = {"expand": task.expand, "clients": task.clients, "delta": DELTA, "adjacency": "add-remove"}
    shared |= {"noise_seed": NOISE_SEED, "reference": False, "backbone": task.backbone}
    grid = {name: (value,) for name, value in {**shared, **row}.items() if value is not None}
    if row["method"] == "dp-sgd":
        grid.pop("clients", None)
    runs = combinations({**grid, "epsilon": tuple(epsilons)}, max(chosen) + 1)
    return [dict(each) for each in runs if each["seed"] in chosen]


def measure(
    name: str, data: Path, out: Path, workers: int | None, only: Sequence[str] = ()
) -> dict[str, dict[float, Cell]]:
    """The accuracies of a data set by row and ε, of every row or of some; `out` keeps its runs. Prints refusals.

    Where classes are unequal each row has balanced accuracy and AUC in two more.
    """
    task, folder = TASKS[name], out / name
    folder.mkdir(parents=True, exist_ok=True)
    rows = {**ROWS, **(OTHERS if name == next(iter(TASKS)) else {})}
    asked = {
        label: settings_of(task, row, EPSILONS if label in OTHERS else (*EPSILONS, math.inf))
        for label, row in rows.items()
    }
    if task.floors:
        asked[CONFIRMED] = settings_of(task, ROUNDS, EPSILONS, FRESH_SEEDS)
    asked = {label: group for label, group in asked.items() if not only or label in only}
    flat = [settings for group in asked.values() for settings in group]
    runs = iter(runs_of(open_task(task, data, folder), flat, folder, Execution.of(folder, workers, say)).runs)
    found = {}
    for label, group in asked.items():
        own = [next(runs) for _ in group]
        for run in own:
            if run.result is None:
                said = f"refused: {run.settings['method']} at ε = {run.settings['epsilon']:g}: {run.refusal}"
                print(said, file=sys.stderr)
        found[label] = _cells(own, accuracy_of)
        found |= {f"{label}, {SHOWN[each]}": _cells(own, measure_of(each)) for each in beside_accuracy(own)}
    return found


def _cells(runs: Sequence[Run], value: Value) -> dict[float, Cell]:
    found: dict[float, list[float]] = {}
    for run in runs:
        if run.result is not None and (one := value(run.result)) is not None:
            found.setdefault(run.settings["epsilon"], []).append(100 * one[0])
    return {epsilon: Cell(tuple(values)) for epsilon, values in found.items()}


def tables(measured: Mapping[str, Mapping[str, Mapping[float, Cell]]]) -> str:
    """Everything that was measured as Markdown: one table for each data set, then what was missed."""
    parts = []
    for name, rows in measured.items():
        task = TASKS[name]
        epsilons = sorted({epsilon for cells in rows.values() for epsilon in cells})
        header = ("ε", *("∞" if math.isinf(epsilon) else f"{epsilon:g}" for epsilon in epsilons))
        body = tuple(
            (label, *(str(cells.get(each, "–")) for each in epsilons)) for label, cells in rows.items() if cells
        )
        chosen = "constants chosen on it" if task.chosen_on else "first seen afterwards"
        expanded = f", {task.expand} random features" if task.expand else ""
        members = "one table each" if task.clients is None else f"{task.clients} members"
        caption = (
            f"{task.title}{expanded} ({chosen}): accuracy in per cent, mean of {task.seeds} seeds ± half the 95 % "
            f"interval; {members}, masked, δ = {DELTA:g}, add/remove of a record, c = 1, D = 0 where not said."
        )
        parts.append(f"### {task.title}\n\n{ResultTable(caption, header, body).markdown()}")
    return "\n".join([*parts, "", *verdicts(measured)])


def verdicts(measured: Mapping[str, Mapping[str, Mapping[float, Cell]]]) -> list[str]:
    """A line for each goal, and for each ε at which the rounds are significantly below DP-SGD."""
    lines = []
    for name, rows in measured.items():
        ours, theirs = rows.get("rounds", {}), rows.get("DP-SGD, all records in one place", {})
        task = TASKS[name]
        for label in [each for each in ("rounds", CONFIRMED) if each in rows]:
            for epsilon, goal in zip(EPSILONS, task.floors or task.goals, strict=False):
                cell = rows[label][epsilon]
                reached = student_interval(cell.values)[0 if task.floors else 1] >= goal
                kind = "goal of the lower end" if task.floors else "goal"
                said = f"{cell} against the {kind} {goal}: {'reached' if reached else 'missed'}"
                lines.append(f"- {name}, {label}, ε = {epsilon:g}: {said}")
        lost = [f"{each:g}" for each, cell in ours.items() if each in theirs and cell.is_below(theirs[each])]
        if theirs:
            said = f"significantly below DP-SGD at ε = {', '.join(lost)}" if lost else "no loss"
            lines.append(f"- {name}: {said}")
    return lines


def say(done: int, total: int) -> None:
    """Progress on stderr."""
    print(f"\r  {done} of {total} runs", end="" if done < total else "\n", file=sys.stderr, flush=True)


def main() -> None:
    """Run what was asked for and write the tables."""
    parser = argparse.ArgumentParser(description="Accuracy under noise, as in methods/ACCURACY.md")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder to write to; a run that is in it is not repeated"
    )
    parser.add_argument("--only", default=",".join(TASKS), help="data sets, separated by commas")
    parser.add_argument("--rows", default="", help="only these rows, separated by semicolons")
    parser.add_argument("--workers", type=int, default=None, help="processes; default: one per core")
    chosen = parser.parse_args()
    measured = {}
    for name in chosen.only.split(","):
        print(name, file=sys.stderr)
        only = tuple(filter(None, chosen.rows.split(";")))
        measured[name] = measure(name, chosen.data, chosen.out, chosen.workers, only)
        (chosen.out / "accuracy.md").write_text(tables(measured), encoding="utf-8")
    print((chosen.out / "accuracy.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
