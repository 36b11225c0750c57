"""The table of tuning in methods/RESULTS.md: random search and successive halving, each alone and with FedPop in it.

`python -m tests.benchmarks.tune --data D --out F`

D holds `mnist_12k.npz`, of which the first 4,500 training records are used, at half the side. F receives the answers of
every run (a run that has ended is not repeated) and `tune.md`. All searches start from the same five configurations
and take 30 rounds of 45 members, each of whom trains once in a round; they choose by the validation records that
members hold back. Accuracy is that of the search's own model after its last round, as in the paper's Table 2.

**The primary contrast**, fixed before its first run, is `PRIMARY`: FedPop within halving minus halving, without noise,
on the 2,000 test records, paired by seed, over 10 seeds. All else describes. No constant was searched for: T_g is a
tenth of the rounds, ρ, η and the annealing are the paper's, and so are the settings tried without noise, which are
some of the paper's. Groups of three members are the smallest of which a sum is opened, hence 45 members for FedPop-L.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.data import Dataset, open_dataset
from secagg.encoding import inputs_of
from secagg.experiments.features import Features
from secagg.experiments.results import student_interval
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.experiments.tables import ResultTable
from secagg.experiments.tuning import Tuning
from tests.benchmarks.accuracy import DELTA, NOISE_SEED
from tests.benchmarks.contrasts import Contrast, contrast_of
from tests.benchmarks.fashion_mnist import DATA

RECORDS, MEMBERS, ROUNDS, POPULATION, INTERVAL = 4500, 45, 30, 5, 3
WITHIN_HALVING, HALVING, WITHIN_RANDOM, RANDOM = "FedPop within halving", "halving", "FedPop within random", "random"
SEARCHES = {
    WITHIN_HALVING: "evolution-in-halving",
    HALVING: "halving",
    WITHIN_RANDOM: "evolution",
    RANDOM: "random",
}
PRIMARY = (WITHIN_HALVING, HALVING)
CONTRASTS = (PRIMARY, (WITHIN_RANDOM, RANDOM), (WITHIN_HALVING, RANDOM))
"""The primary contrast, then descriptions."""
DEFAULTS = "none: the defaults"


@dataclass(frozen=True)
class Half:
    """One half of the table: what stays, what is tried, seeds, FedPop-L's settings beside each, and the promise."""

    fixed: str
    space: str
    seeds: int
    local: int
    promise: Mapping[str, Any]


HALVES = {
    "ε = ∞": Half(
        "model=mlp:16 clip=10",
        "batch=8|16|32|64|128;epochs=1:5;rate=log:0.0001:1;server_rate=log:0.1:10",
        10,
        3,
        {"protection": "none"},
    ),
    "ε = 8": Half(
        "model=mlp:16 gradients=1 clip=4",
        "rate=log:0.001:10;server_rate=log:0.1:10",
        5,
        1,
        {"protection": "shared", "epsilon": 8.0, "delta": DELTA, "adjacency": "add-remove"},
    ),
}
"""Sums are exact: without noise models are the same to the bit under every protection, and none takes half the time.
With gradients=1 members do not train by themselves, so that there is no FedPop-L."""


@dataclass(frozen=True)
class Answers:
    """One run: which test records its model names rightly (n,), and its CPU seconds."""

    right: NDArray[np.bool_]
    cpu_seconds: float


def some_of(data: Path, out: Path) -> Dataset:
    """The first training records and all test records, means of 2×2 pixels in place of each four."""
    path = out / f"mnist_{RECORDS}.npz"
    if not path.exists():
        with np.load(data / "mnist_12k.npz") as whole:
            content = {name: whole[name][:RECORDS] for name in whole}
        for name in ("train_images", "test_images"):
            content[name] = content[name].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).astype(np.uint8)
        np.savez(path, **content)
    return open_dataset(str(path))


def answers_of(
    data: Dataset, out: Path, seed: int, method: str, parameters: str, promise: Mapping[str, Any]
) -> Answers:
    """Simulate one run, or read what it answered from `out`."""
    shared: dict[str, Any] = {"clients": MEMBERS, "rounds": ROUNDS, "every": ROUNDS, "reference": False}
    shared |= {"noise_seed": NOISE_SEED, "seed": seed, "method": method, "parameters": parameters, **promise}
    settings = SimulationSettings(**shared)
    path = out / f"{hashlib.sha256(repr(settings).encode()).hexdigest()[:16]}.json"
    if not path.exists():
        begun = time.process_time()
        run = simulate_dataset(data, settings)
        assert data.test is not None
        assert run.head is not None
        assert run.federated is not None
        inputs = inputs_of(Features.of(data, settings).test, run.federated.setup.plan.grid)
        right = run.head.predict(inputs) == data.test.labels
        assert run.evaluation is not None
        assert run.evaluation.correct == right.sum()
        found = {"right": right.astype(int).tolist(), "cpu_seconds": time.process_time() - begun}
        path.write_text(json.dumps(found), encoding="utf-8")
        print(f"{method} {parameters}, seed {seed}: {100 * right.mean():.2f}", file=sys.stderr)
    read = json.loads(path.read_text(encoding="utf-8"))
    return Answers(np.array(read["right"], dtype=bool), read["cpu_seconds"])


Rows = dict[str, list[Answers]]


def measure(half: Half, data: Dataset, out: Path) -> Rows:
    """Return the answers by row, for each seed: of the model of every search, and of `fedavg` with its defaults."""
    found = {}
    for name, search in SEARCHES.items():
        local = half.local if search.startswith("evolution") else 1
        how = f"population={POPULATION} interval={INTERVAL} local={local} search={search}"
        tuning = Tuning("fedavg", half.fixed, half.space, how)
        found[name] = [
            answers_of(data, out, seed, "fedpop", tuning.parameters(seed), half.promise) for seed in range(half.seeds)
        ]
    found[DEFAULTS] = [answers_of(data, out, seed, "fedavg", half.fixed, half.promise) for seed in range(half.seeds)]
    return found


def accuracy(runs: Sequence[Answers]) -> str:
    """Return the mean over the seeds in per cent, Student's 95 % interval, and the lowest seed."""
    values = [100 * float(each.right.mean()) for each in runs]
    low, high = student_interval(values)
    return f"{fmean(values):.2f} ({low:.2f} to {high:.2f}; lowest {min(values):.2f})"


def contrasts(title: str, rows: Rows, labels: NDArray[np.int64], minutes: float) -> list[Contrast]:
    """Return the contrasts of one half of the table, the one of `PRIMARY` first."""
    found = []
    for names in CONTRASTS:
        ours, theirs = ([each.right / len(labels) for each in rows[name]] for name in names)
        strata = [labels] * len(ours)
        name = f"{' − '.join(names)}, {title}, MNIST"
        found.append(contrast_of(name, ours, theirs, strata, same_records=True, cpu_minutes=minutes))
    return found


def table(found: Mapping[str, Rows]) -> str:
    """Return all accuracies as Markdown."""
    caption = (
        f"{RECORDS} records of MNIST at 14×14 pixels, {MEMBERS} members, iid, a perceptron of 16 units, {POPULATION} "
        f"configurations, {ROUNDS} rounds; accuracy in per cent on 2,000 records that nobody tuned on, mean (95 % "
        f"interval over seeds; lowest seed); ε = 8: two aggregators, δ = {DELTA:g}, add/remove of a record."
    )
    rows = [(title, name, accuracy(runs)) for title, half in found.items() for name, runs in half.items()]
    return ResultTable(caption, ("promise", "search", "accuracy"), tuple(rows)).markdown()


def main() -> None:
    """Run what is missing and write the table and the contrasts."""
    parser = argparse.ArgumentParser(description="Tuning, as in methods/RESULTS.md")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; its runs are not repeated")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    data = some_of(given.data, given.out)
    assert data.test is not None
    found = {title: measure(half, data, given.out) for title, half in HALVES.items()}
    minutes = sum(run.cpu_seconds for rows in found.values() for runs in rows.values() for run in runs) / 60
    shown = [each for title, rows in found.items() for each in contrasts(title, rows, data.test.labels, minutes)]
    lines = [table(found), "", *(f"- {each.name}: {each.says()}" for each in shown), "", shown[0].as_toml("FedPop")]
    (given.out / "tune.md").write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
