"""FedCGS's Table 3 in methods/RESULTS.md: heads of members' own on frozen CIFAR-10 features, beside federated ones.

`python -m tests.benchmarks.personalised --data D --out F`

D holds `cifar10_resnet18_layer3_features.npz`; F receives every run's accuracies (a run that has ended is not
repeated). Members have `RECORDS` records each: a fifth of all classes, the rest of three dominant ones, as in FedPAC's
code (Xu et al. 2023), which the paper follows. An accuracy is over the 10,000 test records, weighted by the member's
shares of the classes, the mean over members. Rates were chosen by `--search` on training records that no member has.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from methods import method_named, parameters_of
from methods.baselines.baseline import ClientData
from methods.baselines.softmax_regression import by_lbfgs
from methods.round import Examples
from secagg.encoding import Grid, Normalisation, quantise
from secagg.experiments.tables import ResultTable
from secagg.heads import Artifact, LinearHead
from secagg.heads.adaptation import Adaptation, adapt
from secagg.networks import TrainedModel, TrainingSettings, program_named, train
from secagg.randomness import SeededRandomness
from secagg.system.threads import one_blas_thread
from secagg.unsafe_for_tests import TOKEN
from tests.benchmarks.contrasts import mean_and_gap
from tests.benchmarks.fashion_mnist import DATA
from tests.benchmarks.played import played

SEEDS, SEARCH_SEED = range(5), 100
MEMBERS, RECORDS, CLASSES, TRIED = 10, 600, 10, 5_000
EVERYWHERE = 0.2
"""The share of a member's records that is drawn from all classes."""
DOMINANT = ((0, 1, 2), (2, 3, 4), (4, 5, 6), (6, 7, 8), (8, 9, 0))
GRID = Grid(1.0, normalisation=Normalisation.CENTRED_UNIT)
RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
CHOSEN: Mapping[str, float] = {"alone": 0.003, "fedavg": 0.1, "fine-tuned": 0.001, "fedproto": 0.0003}
"""The best of `RATES` by `search`, for FedProto of its best model; FedCGS has the rate of its paper, and no search."""
LOCAL = {"batch": 128, "momentum": 0.5, "decay": 5e-4}
FEDAVG = "rounds=100 batch=128 clip=100"
ROWS = {
    "local only": "alone",
    "local only, adapter and head": "adapted alone",
    "FedAvg": "fedavg",
    "FedAvg, then own training": "fine-tuned",
    "FedProto, head": "fedproto head",
    "FedProto, shared prototypes": "fedproto global",
    "FedCGS, the received head": "fedcgs",
    "FedCGS, λ = 0": "align:0",
    "FedCGS, λ = 1": "align:1",
}
"""The rows by title: the models that they measure."""


@cache
def records(path: Path) -> tuple[ClientData, ClientData]:
    """Return the training and the test records, each feature vector centred and of length 1, as a plan rounds it."""
    with np.load(path) as file:
        parts = [
            ClientData.of(
                quantise(file[f"{part}_features"] * file["scale"].astype(np.float64), GRID)
                / GRID.unit(len(file["scale"])),
                file[f"{part}_labels"].astype(np.int64),
            )
            for part in ("train", "test")
        ]
    return parts[0], parts[1]


def dealt(labels: NDArray[np.int64], seed: int) -> list[NDArray[np.int64]]:
    """Return each member's rows, none twice: 20 % of any class, the rest of its dominant ones in equal parts."""
    shuffled, everywhere = np.random.default_rng(seed).permutation(len(labels)), round(EVERYWHERE * RECORDS)
    members, free = np.split(shuffled[: MEMBERS * everywhere], MEMBERS), shuffled[MEMBERS * everywhere :]
    for number in range(MEMBERS):
        dominant = DOMINANT[number % len(DOMINANT)]
        each = (RECORDS - everywhere) // len(dominant)
        own = np.concatenate([free[labels[free] == label][:each] for label in dominant])
        members[number] = np.concatenate([members[number], own])
        free = free[~np.isin(free, own)]
    return members


@dataclass(frozen=True)
class Federation:
    """Members' records, and the number of a run; what the rows of the table train."""

    members: list[ClientData]
    seed: int

    def shared(self, name: str, text: str) -> list[dict[str, Artifact]]:
        """Return each member's models after the rounds of a method with a secure sum."""
        examples = [Examples.of(quantise(own.features, GRID), own.labels) for own in self.members]
        return played(examples, CLASSES, method_named(name, parameters_of(name, {}, text)), GRID, self.seed)

    def softmax(self, own: ClientData, start: NDArray[np.float64], rate: float) -> TrainedModel:
        """Return a member's head after 200 epochs from `start`, weights for records of length √d."""
        program = program_named("softmax", own.features.shape[1], CLASSES)
        stream = SeededRandomness(f"own {self.seed}".encode(), TOKEN)
        inputs = (program.scale * own.features).astype(np.float32)
        row = train(program, start, inputs, own.labels, TrainingSettings(200, rate, **LOCAL), stream)  # type: ignore[arg-type]
        weights = CLASSES * own.features.shape[1]
        return TrainedModel.of(program, np.concatenate([row[:weights] * program.scale, row[weights:]]))

    def models(self, kind: str, rate: float) -> dict[str, list[Artifact]]:
        """Return the members' models of one kind of training, by the names in `ROWS`."""
        size = CLASSES * (self.members[0].features.shape[1] + 1)
        if kind == "alone":
            return {kind: [self.softmax(own, np.zeros(size), rate) for own in self.members]}
        if kind in ("fedavg", "fine-tuned"):
            average = self.shared("fedavg", f"{FEDAVG} rate={rate if kind == 'fedavg' else CHOSEN['fedavg']:g}")
            if kind == "fedavg":
                return {kind: [each[""] for each in average]}
            weight, bias = (np.asarray(each, dtype=np.float64) for each in average[0][""].tensors.values())
            start = np.concatenate([weight.ravel() / np.sqrt(weight.shape[1]), bias])
            return {kind: [self.softmax(own, start, rate) for own in self.members]}
        if kind == "fedproto":
            found = self.shared("fedproto", f"rounds=100 batch=128 pull=0.1 rate={rate:g}")
            return {f"fedproto {name}": [each[name] for each in found] for name in ("head", "global")}
        return self.adapted()

    def adapted(self) -> dict[str, list[Artifact]]:
        """Return FedCGS's head, the same after own training with and without alignment, and what is had without it."""
        head = self.shared("fedcgs", "refine=0 personalise=1")[0][""]
        assert isinstance(head, LinearHead)
        assert head.means is not None
        found: dict[str, list[Artifact]] = {"fedcgs": [head] * len(self.members)}
        for weight in (0.0, 1.0):
            how = Adaptation("align", weight)
            found[str(how)] = [adapt(head, own.features, own.labels, how, head.means) for own in self.members]
        heads = [by_lbfgs(own.features, own.labels, CLASSES) for own in self.members]
        plain = Adaptation("align", 0.0)
        pairs = zip(heads, self.members, strict=True)
        found["adapted alone"] = [adapt(each, own.features, own.labels, plain) for each, own in pairs]
        return found


def run(kind: str, rate: float, seed: int, data: Path, out: Path, *, is_trial: bool = False) -> dict[str, float]:
    """Return the mean accuracies of the members' models of one kind of training, and the CPU seconds; kept in `out`."""
    path = out / "runs" / f"personalised-{kind}-{rate:g}-{seed}-{is_trial}.json"
    if path.exists():
        return dict(json.loads(path.read_text(encoding="utf-8")))
    print(f"  {kind} {rate:g} seed {seed}", file=sys.stderr)
    everything, test = records(data / "cifar10_resnet18_layer3_features.npz")
    parts, start = dealt(everything.labels, seed), time.process_time()
    members = [everything.take(rows) for rows in parts]
    if is_trial:
        test = everything.take(np.setdiff1d(np.arange(len(everything)), np.concatenate(parts))[:TRIED])
    with one_blas_thread():
        models = Federation(members, seed).models(kind, rate)
    found = {}
    for name, own_models in models.items():
        accuracies = []
        for own, model in zip(members, own_models, strict=True):
            weights = (np.bincount(own.labels, minlength=CLASSES) / np.bincount(test.labels))[test.labels] / len(own)
            accuracies.append(100 * float(weights @ (model.predict(test.features) == test.labels)))
        found[name] = fmean(accuracies)
    found["seconds"] = time.process_time() - start
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found), encoding="utf-8")
    return found


def search(data: Path, out: Path) -> Iterator[str]:
    """Yield the accuracies of every kind of training that has a rate, rate by rate."""
    for kind in ("alone", "fedavg", "fine-tuned", "fedproto"):
        for rate in RATES:
            yield f"{kind} {rate:g}: {run(kind, rate, SEARCH_SEED, data, out, is_trial=True)}"


def table(data: Path, out: Path) -> str:
    """Return the table: accuracies in per cent, and how far above those of a member alone, seed by seed."""
    kinds = {**CHOSEN, "adapted": 0.0}
    found: dict[str, list[float]] = {}
    for kind, rate in kinds.items():
        for seed in SEEDS:
            for name, value in run(kind, rate, seed, data, out).items():
                found.setdefault(name, []).append(value)
    rows = []
    for title, name in ROWS.items():
        rows.append((title, mean_and_gap(found[name], found["alone"])))
    made = ResultTable("CIFAR-10, layer 3.", ("", "accuracy (− local only)"), tuple(rows)).markdown()
    return f"{made}\n{sum(found['seconds']) / 60:.1f} CPU minutes"


def main() -> None:
    """Search, or make the table, and print it."""
    parser = argparse.ArgumentParser(description="FedCGS's Table 3 on CIFAR-10 features, as in methods/RESULTS.md")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of features")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; a run in it is not repeated")
    parser.add_argument("--search", action="store_true", help="the rates, on held-out training records; no table")
    chosen = parser.parse_args()
    for line in search(chosen.data, chosen.out) if chosen.search else [table(chosen.data, chosen.out)]:
        print(line, flush=True)


if __name__ == "__main__":
    main()
