"""The table of tuning in methods/RESULTS.md: FedPop against random search and successive halving, in as many rounds.

`python -m tests.benchmarks.tune --data D --out F`

D holds `mnist_12k.npz`, of which the first 2,000 training records are used, at half the side. F receives a folder of
runs for each half of the table (what has ended is not repeated) and `tune.md`. All searches start from the same five
settings in 30 rounds of twenty members, and choose by the validation records that members hold back; then the method is
trained anew with what was chosen. Test records are looked at for the table alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from secagg.data import Dataset, open_dataset
from secagg.experiments.results import Run
from secagg.experiments.sweep import Execution, combinations, runs_of
from secagg.experiments.tables import ResultTable
from secagg.experiments.tuning import Tuning
from tests.benchmarks.accuracy import DELTA, NOISE_SEED, say
from tests.benchmarks.fashion_mnist import DATA

RECORDS, MEMBERS, ROUNDS, POPULATION, SEEDS = 2000, 20, 30, 5, 3
SEARCHES = {"FedPop": "evolution", "random search": "random", "successive halving": "halving"}
SHARED = {"clients": (MEMBERS,), "rounds": (ROUNDS,), "every": (ROUNDS,), "reference": (False,)}
SHARED |= {"noise_seed": (NOISE_SEED,), "method": ("fedavg",), "protection": ("shared",)}
PROMISE = {"epsilon": (8.0,), "delta": (DELTA,), "adjacency": ("add-remove",)}
KINDS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "ε = ∞": ("model=mlp:16 clip=10", "batch=8|16|32|64;epochs=1:5;rate=log:0.0001:1;server_rate=log:0.1:10", {}),
    "ε = 8": ("model=mlp:16 gradients=1 clip=4", "rate=log:0.001:10;server_rate=log:0.1:10", PROMISE),
}
"""For each half of the table: what stays, what is tried, and the promise."""


def some_of(data: Path, out: Path) -> Dataset:
    """The first training records and all test records, means of 2×2 pixels in place of each four."""
    path = out / "mnist_2000.npz"
    if not path.exists():
        with np.load(data / "mnist_12k.npz") as whole:
            content = {name: whole[name][:RECORDS] for name in whole}
        for name in ("train_images", "test_images"):
            content[name] = content[name].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).astype(np.uint8)
        np.savez(path, **content)
    return open_dataset(str(path))


def measure(kind: str, data: Dataset, out: Path, workers: int | None) -> list[tuple[str, ...]]:
    """The rows of one half of the table; `out` keeps its runs."""
    fixed, space, promise = KINDS[kind]
    seeds = combinations({**SHARED, **promise}, SEEDS)
    tunings = {
        name: Tuning("fedavg", fixed, space, f"population={POPULATION} search={each}")
        for name, each in SEARCHES.items()
    }
    searches = [
        {**each, "method": "fedpop", "parameters": tuning.parameters(each["seed"])}
        for tuning in tunings.values()
        for each in seeds
    ]
    tuned = _run(data, searches, out, workers)
    chosen = [
        {**seeds[place % SEEDS], "parameters": f"{fixed} {run.result['tuned']['settings']}"}
        for place, run in enumerate(tuned)
    ]
    trained = _run(data, chosen, out, workers)
    untuned = _run(data, [{**each, "parameters": fixed} for each in seeds], out, workers)
    rows = [(kind, "nothing: the defaults", "–", "–", _accuracy(untuned), "–")]
    for place, name in enumerate(SEARCHES):
        part = slice(place * SEEDS, (place + 1) * SEEDS)
        losses = " ".join(f"{run.result['tuned']['loss']:.2f}" for run in tuned[part] if run.result)
        settings = "; ".join(run.result["tuned"]["settings"] for run in tuned[part] if run.result)
        rows.append((kind, name, losses, _accuracy(tuned[part]), _accuracy(trained[part]), settings))
    return rows


def _run(data: Dataset, settings: Sequence[Mapping[str, Any]], out: Path, workers: int | None) -> list[Run]:
    """Their runs in order. Raises RuntimeError where one was refused."""
    runs = list(runs_of(data, settings, out, Execution.of(out, workers, say)).runs)
    if refused := [run.refusal for run in runs if run.result is None]:
        raise RuntimeError(f"refused: {refused[0]}")
    return runs


def _accuracy(runs: Sequence[Run]) -> str:
    """The mean, and the lowest and the highest: three seeds are too few for an interval."""
    found = [100 * run.result["accuracy"] for run in runs if run.result]
    return f"{mean(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Everything that was measured as Markdown."""
    caption = (
        f"{RECORDS} records of MNIST at 14×14 pixels, {MEMBERS} members, iid, a perceptron of 16 units, {POPULATION} "
        f"settings at a time, {ROUNDS} rounds of each search and of the training after it; accuracy in per cent on "
        f"2,000 records that nobody tuned on, mean of {SEEDS} seeds (the lowest to the highest); two aggregators, "
        f"δ = {DELTA:g}, add/remove of a record; at ε = 8 search and training after it cost that each, on the same "
        "records."
    )
    header = ("promise", "search", "validation loss", "its own model", "trained with what it chose", "chosen")
    return ResultTable(caption, header, tuple(rows)).markdown()


def main() -> None:
    """Run what is missing and write the table."""
    parser = argparse.ArgumentParser(description="Tuning, as in methods/RESULTS.md")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; its runs are not repeated")
    parser.add_argument("--workers", type=int, default=None, help="processes; default: one per core")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    data = some_of(given.data, given.out)
    rows = []
    for number, kind in enumerate(KINDS):
        folder = given.out / f"half-{number + 1}"
        folder.mkdir(exist_ok=True)
        rows += measure(kind, data, folder, given.workers)
        (given.out / "tune.md").write_text(table(rows), encoding="utf-8")
    print((given.out / "tune.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
