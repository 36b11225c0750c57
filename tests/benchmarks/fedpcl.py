"""The tables of FedPCL in methods/RESULTS.md: models of members' own against one for all, exactly and at record level.

`python -m tests.benchmarks.fedpcl --data D --out F [--only digits,"PACS by both"]`

D holds `mnist_12k.npz`, `usps.npz`, `pacs_32px.npz` and the weights in `backbones`; F receives features, every run's
accuracies (what has ended is not repeated) and `fedpcl.md`. Half an hour on two idle cores. Every number is the mean
over members of the accuracy on test records distributed like a member's own, by class and by domain.

Rates were chosen on training records alone, by `--search`: members draw from other ones and are measured on held-out
ones, under label shift, with each of `RATES` in every row. Of a method the rate stands in all its rows with which its
best model did best; that model of `fedpcl` stands in the one contrast of the paper's claim (`PRIMARY`), over seeds that
neither the search nor earlier tables had. All other differences are descriptions.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from methods import method_named, parameters_of
from methods.round import Examples
from secagg.data import Dataset
from secagg.encoding import Grid, Normalisation, quantise
from secagg.experiments.client_accuracy import ClientDistributions, LabelledInputs
from secagg.experiments.features import Features
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.experiments.tables import ResultTable
from secagg.heads import Artifact
from secagg.networks import TrainedModel, TrainingSettings, train
from secagg.networks.projection import ByHead
from secagg.networks.training import row_size
from secagg.randomness import SeededRandomness
from secagg.system.threads import one_blas_thread
from secagg.unsafe_for_tests import TOKEN
from tests.benchmarks.accuracy import DELTA, NOISE_SEED
from tests.benchmarks.contrasts import contrast_of, mean_and_gap
from tests.benchmarks.fashion_mnist import DATA
from tests.benchmarks.played import played
from tests.benchmarks.shifts import COMPLETE, MEMBER, NAMES, Shift, pool_named

SEEDS, SEARCH_SEEDS, NOISY_SEEDS = range(3, 13), range(2), range(3)
RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
EPSILONS = (8.0, 2.0)
SHARED = {"delta": DELTA, "adjacency": "add-remove", "noise_seed": NOISE_SEED, "reference": False, "every": 10_000}
SHARED |= {"partition": f"column:{MEMBER}", "normalise": "centred-unit"}
GRID = Grid(1.0, 1 << 16, normalisation=Normalisation.CENTRED_UNIT)
ALONE, ALONE_PCL = "alone", "fedpcl alone"
"""Stand for no federation: members train a projection and a head for themselves; `fedpcl` with one's own prototypes."""
WIDTH = 256


@dataclass(frozen=True)
class Form:
    """A row: how it is called, settings beside `SHARED` (their method may be ALONE), and which model is measured.

    `model` names one of the members' own models; empty: the plan's artifact.
    """

    title: str
    method: str
    settings: str = ""
    model: str = ""
    protection: str = "masked"
    rate: float = 0.0

    @property
    def parameters(self) -> str:
        """The method's parameters, with the rate where there is one."""
        return f"{self.settings} rate={self.rate:g}" if self.rate else self.settings


PCL, PROTO, PUBLISHED = "rounds=50", "rounds=50 pull=0.1", "rounds=50 exchange=published"
RATE = {ALONE: 0.003, ALONE_PCL: 0.003, "fedavg": 0.03, PROTO: 0.003, PCL: 0.003, PUBLISHED: 0.001}
"""The rates that the search chose; the paper has 0.001."""
EXACT = (
    Form("local only", ALONE, "epochs=50", rate=RATE[ALONE]),
    Form("local only, rate 0.001", ALONE, "epochs=50", rate=0.001),
    Form("own prototypes, no federation", ALONE_PCL, PCL, "own", rate=RATE[ALONE_PCL]),
    Form("FedAvg, a perceptron", "fedavg", "model=mlp:256 rounds=50 clip=10", rate=RATE["fedavg"]),
    Form("FedProto, head", "fedproto", PROTO, "head", rate=RATE[PROTO]),
    Form("FedProto, shared prototypes", "fedproto", PROTO, "global", rate=RATE[PROTO]),
    Form("FedPCL, own prototypes", "fedpcl", PCL, "own", rate=RATE[PCL]),
    Form("FedPCL, own prototypes, padded", "fedpcl", PCL, "padded", rate=RATE[PCL]),
    Form("FedPCL, shared prototypes", "fedpcl", PCL, "global", rate=RATE[PCL]),
    Form("the same, published exchange, own", "fedpcl", PUBLISHED, "own", "none", RATE[PUBLISHED]),
    Form("the same, published exchange, padded", "fedpcl", PUBLISHED, "padded", "none", RATE[PUBLISHED]),
    Form("the same, published exchange, shared", "fedpcl", PUBLISHED, "global", "none", RATE[PUBLISHED]),
    Form("FedCGS, one sum", "fedcgs", "refine=0"),
)
BRIEF = tuple(form for form in EXACT if form.method != ALONE_PCL and form.rate != 0.001)
"""The rows on features of complete networks."""
SGD = "optimiser=sgd momentum=0.5"
FEW = f"rounds=2 epochs=50 width=64 sampling=0.3 noisy_rate=0.1 {SGD}"
NOISY = (
    Form("local only, without noise", ALONE, f"epochs=50 {SGD}", rate=0.1),
    Form("FedAvg, softmax, gradients of records", "fedavg", "gradients=1 rounds=20 rate=1 clip=1"),
    Form("FedProto, head", "fedproto", f"{FEW} pull=0.1", "head", rate=0.3),
    Form("FedProto, shared prototypes", "fedproto", f"{FEW} pull=0.1", "global", rate=0.3),
    Form("FedPCL, own prototypes", "fedpcl", FEW, "own", rate=0.1),
    Form("FedPCL, shared prototypes", "fedpcl", FEW, "global", rate=0.1),
    Form("FedCGS, one sum", "fedcgs", "refine=0"),
)
PRIMARY = "digits by SqueezeNet", Shift.LABEL, "FedPCL, shared prototypes"


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


_pool = cache(pool_named)


def run(job: Job, data: Path, out: Path) -> None:
    """Write the accuracies of each of its models, the mean over members; nothing where that has been done."""
    path = job.path(out)
    if path.exists():
        return
    pool = _pool(job.features, data, out)
    dataset = pool.federation(job.shift, job.seed, is_trial=job.is_trial)
    with one_blas_thread():
        if math.isinf(job.epsilon) or job.method == ALONE:
            right = exact(dataset, job)
            found = {"accuracy": {name: float(each.sum()) for name, each in right.items()}}
            found["records"] = {name: each.tolist() for name, each in right.items()}
        else:
            found = {"accuracy": federated(dataset, job)}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"job": asdict(job), **found}), encoding="utf-8")


def exact(dataset: Dataset, job: Job) -> dict[str, NDArray[np.float64]]:
    """What each test record adds to the accuracy of each kind of model, the mean over members; they add up to it."""
    measured = _measurable(dataset)
    members, classes = _members(dataset, measured), len(dataset.classes)
    if job.method == ALONE:
        models = [{"": alone(own, classes, job, number)} for number, (own, _) in enumerate(members)]
    elif job.method == ALONE_PCL:
        models = [trained([own], classes, "fedpcl", job.parameters, job.seed)[0] for own, _ in members]
    else:
        models = trained([own for own, _ in members], classes, job.method, job.parameters, job.seed)
    found: dict[str, NDArray[np.float64]] = {}
    for (_, weights), own in zip(members, models, strict=True):
        for name, model in own.items():
            right = model.predict(measured.held_out.inputs) == measured.held_out.labels
            found[name] = found.get(name, 0.0) + right * weights / weights.sum() / len(members)
    return found


def trained(
    members: Sequence[LabelledInputs], classes: int, name: str, parameters: str, seed: int
) -> list[dict[str, Artifact]]:
    """Return each member's models after a method's rounds without noise."""
    groups = f" groups={len(members)}" if "exchange" in parameters else ""
    method = method_named(name, parameters_of(name, {}, parameters + groups))
    examples = [Examples.of(quantise(own.inputs, GRID), own.labels) for own in members]
    return played(examples, classes, method, GRID, seed)


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


def alone(own: LabelledInputs, classes: int, job: Job, number: int) -> TrainedModel:
    """What a member reaches by a projection and a head of its own, trained as FedProto's are."""
    chosen = dict(word.split("=") for word in job.parameters.split())
    optimiser = cast("Any", chosen.get("optimiser", "adam"))
    momentum = float(chosen.get("momentum", 0))
    settings = TrainingSettings(int(chosen["epochs"]), float(chosen["rate"]), 32, momentum, 0.0, 1e-4, optimiser)
    program = ByHead(own.inputs.shape[1], classes, WIDTH)
    stream = SeededRandomness(f"alone {job.seed} {number}".encode(), TOKEN)
    row = np.zeros(row_size(program, optimiser))
    row[: program.size] = program.start(hashlib.sha256(b"alone").digest())
    inputs = (math.sqrt(program.dimension) * own.inputs).astype(np.float32)
    return TrainedModel.of(program, train(program, row, inputs, own.labels, settings, stream)[: program.size])


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


def jobs_of(features: str, forms: Sequence[Form], epsilon: float) -> list[Job]:
    """The runs that these rows take, each once."""
    runs = dict.fromkeys((form.method, form.parameters, form.protection) for form in forms)
    return [
        Job(features, shift, seed, *each, epsilon, is_trial=False)
        for shift in Shift
        for seed in seeds_of(epsilon)
        for each in runs
    ]


def rows_of(name: str, noisy: Sequence[tuple[float, Sequence[Form]]]) -> list[tuple[float, Sequence[Form]]]:
    """Return the ε and the rows of each table of a set of features; complete networks have the exact one alone."""
    return [(math.inf, BRIEF)] if name in COMPLETE else [(math.inf, EXACT), *noisy]


def seeds_of(epsilon: float) -> range:
    """The seeds of exact tables, or of noisy ones."""
    return SEEDS if math.isinf(epsilon) else NOISY_SEEDS


def table(features: str, forms: Sequence[Form], epsilon: float, out: Path) -> str:
    """Accuracy in per cent by shift, the mean over seeds, and how far above the first row's on the same records."""
    by_shift = {}
    for shift in Shift:
        of_forms = [
            [found(_job(features, shift, seed, form, epsilon), out)[form.model] for seed in seeds_of(epsilon)]
            for form in forms
        ]
        for form, values in zip(forms, of_forms, strict=True):
            by_shift[form, shift] = shown(values, of_forms[0])
    rows = tuple((form.title, *(by_shift[form, shift] for shift in Shift)) for form in forms)
    promise = "exact" if math.isinf(epsilon) else f"ε = {epsilon:g}, δ = {DELTA:g}, record level"
    return ResultTable(f"{features}, {promise}.", ("", *(f"{shift} shift" for shift in Shift)), rows).markdown()


def _job(features: str, shift: Shift, seed: int, form: Form, epsilon: float, *, is_trial: bool = False) -> Job:
    return Job(features, shift, seed, form.method, form.parameters, form.protection, epsilon, is_trial)


def found(job: Job, out: Path, what: str = "accuracy") -> dict[str, Any]:
    """The accuracies, or other things, that a run left."""
    return cast("dict[str, Any]", json.loads(job.path(out).read_text(encoding="utf-8"))[what])


def shown(values: list[float], alone: list[float]) -> str:
    """The mean of some accuracies; of their differences to those alone, seed by seed, half Student's 95 % interval."""
    return mean_and_gap([100 * each for each in values], [100 * each for each in alone], digits=1)


def contrast(data: Path, out: Path) -> str:
    """The primary contrast: points above a member alone, with both paired intervals; then as methods/contrasts.toml."""
    features, shift, title = PRIMARY
    form = next(each for each in EXACT if each.title == title)
    ours, theirs = (
        [np.array(found(_job(features, shift, seed, each, math.inf), out, "records")[each.model]) for seed in SEEDS]
        for each in (form, EXACT[0])
    )
    labels = _measurable(_pool(features, data, out).federation(shift, SEEDS[0])).held_out.labels
    name = f"{title} − {EXACT[0].title}, digits, label shift"
    measured = contrast_of(name, ours, theirs, [labels] * len(SEEDS), same_records=True)
    return f"{name}: {measured.says()}\n\n{measured.as_toml('FedPCL')}"


def search(data: Path, out: Path, workers: int) -> str:
    """Every exact row with every rate, on held-out training records under the primary contrast's shift, in per cent."""
    features, shift, _ = PRIMARY
    tried = [[replace(form, rate=rate) for rate in RATES] for form in EXACT if form.rate]
    jobs = {
        form: [_job(features, shift, seed, form, math.inf, is_trial=True) for seed in SEARCH_SEEDS]
        for row in tried
        for form in row
    }
    work(list(dict.fromkeys(job for each in jobs.values() for job in each)), data, out, workers)
    rows = tuple(
        (row[0].title, *(f"{100 * fmean(found(job, out)[form.model] for job in jobs[form]):.1f}" for form in row))
        for row in tried
    )
    return ResultTable(f"{features}, {shift} shift, the search.", ("", *map(str, RATES)), rows).markdown()


def main() -> None:
    """Make what was asked for and write the tables."""
    parser = argparse.ArgumentParser(description="FedPCL and others under shifts, as in methods/RESULTS.md")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of pictures and weights")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; a run in it is not repeated")
    parser.add_argument("--only", default="digits,PACS", help="beginnings of features' names, separated by commas")
    parser.add_argument("--epsilons", type=float, nargs="*", default=EPSILONS, help="of the noisy tables")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--search", action="store_true", help="the rates, on held-out training records; no table")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.search:
        print(search(chosen.data, chosen.out, chosen.workers))
        return
    names = [name for name in NAMES if name.startswith(tuple(chosen.only.split(",")))]
    noisy = [(epsilon, NOISY) for epsilon in chosen.epsilons]
    asked = [(name, *kind) for name in names for kind in rows_of(name, noisy)]
    jobs = [job for name, epsilon, forms in asked for job in jobs_of(name, forms, epsilon)]
    work(jobs, chosen.data, chosen.out, chosen.workers)
    made = [table(name, forms, epsilon, chosen.out) for name, epsilon, forms in asked]
    if PRIMARY[0] in names:
        made.append(contrast(chosen.data, chosen.out))
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
