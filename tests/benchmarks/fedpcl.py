"""The tables of FedPCL in methods/RESULTS.md: models of members' own against one for all, exactly and at record level.

`python -m tests.benchmarks.fedpcl --data D --out F [--only digits,"PACS by both"]`

D holds `mnist_12k.npz`, `usps.npz`, `pacs_32px.npz` and the weights in `backbones`; F receives features, every run's
accuracies (what has ended is not repeated) and `fedpcl.md`. Twenty minutes on two idle cores. Every number is the mean
over members of the accuracy on test records distributed like a member's own, by class and by domain. With `--trial`
members draw from other training records and are measured on held-out training records: there every constant was chosen.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.data import Dataset
from secagg.encoding import Grid, Normalisation
from secagg.experiments.client_accuracy import ClientDistributions, LabelledInputs
from secagg.experiments.features import Features
from secagg.experiments.results import student_interval
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.experiments.tables import ResultTable
from secagg.networks import TrainedModel, TrainingSettings, train
from secagg.networks.projection import ByHead
from secagg.randomness import SeededRandomness
from secagg.system.threads import one_blas_thread
from secagg.unsafe_for_tests import TOKEN
from tests.benchmarks.accuracy import DELTA, NOISE_SEED
from tests.benchmarks.fashion_mnist import DATA
from tests.benchmarks.shifts import MEMBER, Shift, pools

SEEDS = 3
EPSILONS = (8.0, 2.0)
SHARED = {"delta": DELTA, "adjacency": "add-remove", "noise_seed": NOISE_SEED, "reference": False, "every": 10_000}
SHARED |= {"partition": f"column:{MEMBER}", "normalise": "centred-unit"}
GRID = Grid(1.0, 1 << 16, normalisation=Normalisation.CENTRED_UNIT)
ALONE = "alone"
"""Stands for no method: every member trains a projection and a head for itself."""
WIDTH = 256


@dataclass(frozen=True)
class Form:
    """A row: how it is called, settings beside `SHARED` (their method may be ALONE), and which model is measured.

    `model` names one of the members' own models; empty: the plan's artifact.
    """

    title: str
    method: str
    parameters: str = ""
    model: str = ""
    protection: str = "masked"


PCL, PROTO = "rounds=50", "rounds=50 pull=0.1"
EXACT = (
    Form("local only", ALONE, "epochs=50 rate=0.1"),
    Form("FedAvg, a perceptron", "fedavg", "model=mlp:256 rounds=50 rate=0.1 clip=10"),
    Form("FedProto, head", "fedproto", PROTO, "head"),
    Form("FedProto, shared prototypes", "fedproto", PROTO, "global"),
    Form("FedPCL, own prototypes", "fedpcl", PCL, "own"),
    Form("FedPCL, shared prototypes", "fedpcl", PCL, "global"),
    Form("the same, published exchange, own", "fedpcl", f"{PCL} exchange=published", "own", "none"),
    Form("FedCGS, one sum", "fedcgs", "refine=0"),
)
FEW = "rounds=2 epochs=50 width=64 sampling=0.3"
NOISY = (
    Form("FedAvg, softmax, gradients of records", "fedavg", "gradients=1 rounds=20 rate=1 clip=1"),
    Form("FedProto, head", "fedproto", f"{FEW} pull=0.1", "head"),
    Form("FedProto, shared prototypes", "fedproto", f"{FEW} pull=0.1", "global"),
    Form("FedPCL, own prototypes", "fedpcl", FEW, "own"),
    Form("FedPCL, shared prototypes", "fedpcl", FEW, "global"),
    Form("FedCGS, one sum", "fedcgs", "refine=0"),
)


@dataclass(frozen=True)
class Job:
    """One run of what may be several rows."""

    features: str
    shift: Shift
    seed: int
    method: str
    parameters: str
    protection: str
    epsilon: float
    is_trial: bool

    def path(self, out: Path) -> Path:
        """Where its accuracies are kept."""
        name = hashlib.sha256(repr(sorted(asdict(self).items())).encode()).hexdigest()[:24]
        return out / "runs" / f"{name}.json"


@cache
def _pools(data: Path, out: Path) -> Any:
    return pools(data, out)


def run(job: Job, data: Path, out: Path) -> None:
    """Write the accuracies of each of its models, the mean over members; nothing where that has been done."""
    path = job.path(out)
    if path.exists():
        return
    pool = _pools(data, out)[job.features]
    dataset = pool.federation(job.shift, job.seed, is_trial=job.is_trial)
    with one_blas_thread():
        found = alone(dataset, job) if job.method == ALONE else federated(dataset, job)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"job": asdict(job), "accuracy": found}), encoding="utf-8")


def federated(dataset: Dataset, job: Job) -> dict[str, float]:
    """The artifact, under the empty name, and members' own models."""
    asked = {"method": job.method, "parameters": job.parameters, "protection": job.protection, "epsilon": job.epsilon}
    settings = SimulationSettings(**asked, seed=job.seed, **SHARED)
    result = simulate_dataset(dataset, settings)
    assert result.head is not None
    measured = _measurable(dataset)
    accuracies = [
        _accuracy(result.head.evaluate, measured.held_out, weights) for _, weights in _members(dataset, measured)
    ]
    return {"": fmean(accuracies), **{each.model: each.mean for each in result.personal}}


def alone(dataset: Dataset, job: Job) -> dict[str, float]:
    """What members reach by a projection and a head of their own, trained as FedProto's are."""
    measured = _measurable(dataset)
    chosen = {name: float(value) for name, value in (word.split("=") for word in job.parameters.split())}
    settings = TrainingSettings(int(chosen["epochs"]), chosen["rate"], 32, 0.5, decay=1e-4)
    program = ByHead(dataset.train.inputs.shape[1], len(dataset.classes), WIDTH)
    scale = math.sqrt(program.dimension)
    held_out = LabelledInputs(scale * measured.held_out.inputs, measured.held_out.labels, measured.held_out.cells)
    found = []
    for own, weights in _members(dataset, measured):
        stream = SeededRandomness(f"alone {job.seed} {len(found)}".encode(), TOKEN)
        start = program.start(hashlib.sha256(b"alone").digest())
        flat = train(program, start, (scale * own.inputs).astype(np.float32), own.labels, settings, stream)
        found.append(_accuracy(TrainedModel.of(program, flat).evaluate, held_out, weights))
    return {"": fmean(found)}


def _measurable(dataset: Dataset) -> ClientDistributions:
    features = Features.of(dataset, SimulationSettings())
    measured = ClientDistributions.of(features, GRID)
    assert measured is not None
    return measured


def _members(dataset: Dataset, measured: ClientDistributions) -> list[tuple[LabelledInputs, NDArray[np.float64]]]:
    """Every member's records, and the weights of the held-out ones for it."""
    names = dataset.train.columns[MEMBER]
    own = [measured.own(np.flatnonzero(names == name)) for name in np.unique(names)]
    return [(each, weights) for each in own if (weights := measured.weights(each)) is not None]


def _accuracy(evaluate: Any, held_out: LabelledInputs, weights: NDArray[np.float64]) -> float:
    """Of one member; a model is asked class and domain by class and domain, whose records all weigh the same."""
    right = 0.0
    for cell in np.unique(held_out.cells[weights > 0]):
        where = np.flatnonzero(held_out.cells == cell)
        right += weights[where].sum() * evaluate(held_out.inputs[where], held_out.labels[where]).accuracy
    return float(right / weights.sum())


def jobs_of(features: str, forms: Sequence[Form], epsilon: float, *, is_trial: bool, seeds: int) -> list[Job]:
    """The runs that these rows take, each once."""
    runs = dict.fromkeys((form.method, form.parameters, form.protection) for form in forms)
    return [
        Job(features, shift, seed, *each, epsilon, is_trial)
        for shift in Shift
        for seed in range(seeds)
        for each in runs
    ]


def table(
    features: str, forms: Sequence[Form], epsilon: float, out: Path, *, is_trial: bool = False, seeds: int = SEEDS
) -> str:
    """Accuracy in per cent by shift, the mean over seeds, and how far above a member alone with the same records."""
    by_shift = {}
    for shift in Shift:
        jobs = partial(Job, features, shift, is_trial=is_trial)
        alone = [found(jobs(seed, ALONE, EXACT[0].parameters, "masked", math.inf), out) for seed in range(seeds)]
        for form in forms:
            what = form.method, form.parameters, form.protection, epsilon
            by_shift[form, shift] = shown([found(jobs(seed, *what), out)[form.model] for seed in range(seeds)], alone)
    rows = tuple((form.title, *(by_shift[form, shift] for shift in Shift)) for form in forms)
    promise = "exact" if math.isinf(epsilon) else f"ε = {epsilon:g}, δ = {DELTA:g}, record level"
    return ResultTable(f"{features}, {promise}.", ("", *(f"{shift} shift" for shift in Shift)), rows).markdown()


def found(job: Job, out: Path) -> dict[str, float]:
    """The accuracies that a run left."""
    kept: dict[str, float] = json.loads(job.path(out).read_text(encoding="utf-8"))["accuracy"]
    return kept


def shown(values: list[float], alone: list[dict[str, float]]) -> str:
    """The mean of some accuracies; of their differences to those alone, seed by seed, half Student's 95 % interval."""
    above = [100 * (value - each[""]) for value, each in zip(values, alone, strict=True)]
    if not any(above):
        return f"{100 * fmean(values):.1f}"
    low, high = student_interval(above)
    return f"{100 * fmean(values):.1f} ({fmean(above):+.1f} ± {(high - low) / 2:.1f})"


def main() -> None:
    """Make what was asked for and write the tables."""
    parser = argparse.ArgumentParser(description="FedPCL and others under shifts, as in methods/RESULTS.md")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of pictures and weights")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; a run in it is not repeated")
    parser.add_argument("--only", default="digits,PACS", help="beginnings of features' names, separated by commas")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--trial", action="store_true", help="on held-out training records")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    names = [name for name in _pools(chosen.data, chosen.out) if name.startswith(tuple(chosen.only.split(",")))]
    kinds = [(math.inf, EXACT), *((epsilon, NOISY) for epsilon in EPSILONS)]
    asked = {"is_trial": chosen.trial, "seeds": SEEDS}
    jobs = [job for name in names for epsilon, forms in kinds for job in jobs_of(name, forms, epsilon, **asked)]
    work(jobs, chosen.data, chosen.out, chosen.workers)
    made = [table(name, forms, epsilon, chosen.out, **asked) for name in names for epsilon, forms in kinds]
    (chosen.out / "fedpcl.md").write_text("\n".join(made), encoding="utf-8")
    print("\n".join(made))


def work(jobs: Sequence[Job], data: Path, out: Path, workers: int) -> None:
    """Run what has not been run, in so many processes."""
    left = [job for job in jobs if not job.path(out).exists()]
    with ProcessPoolExecutor(workers) as pool:
        for done, each in enumerate([pool.submit(run, job, data, out) for job in left], start=1):
            each.result()
            print(f"\r  {done} of {len(left)} runs", end="" if done < len(left) else "\n", file=sys.stderr)


if __name__ == "__main__":
    main()
