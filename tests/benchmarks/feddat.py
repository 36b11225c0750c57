"""The tables of FedDAT in methods/RESULTS.md: five members of different questions, against what else they could do.

`python -m tests.benchmarks.feddat --questions Q --out F [--only exact,records,members] [--workers 2]`

Q holds what `python -m tests.benchmarks.questions` writes. F keeps every run (`NAME-SEED.json`; what is there is not
repeated) and receives `feddat.md`. Rates were chosen on a fifth of the training records (`--validate`).
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from secagg.data import open_dataset
from secagg.experiments.features import Clock, Features
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_features
from secagg.experiments.tables import ResultTable
from secagg.features import BOTTLENECK
from secagg.networks import TrainedModel
from secagg.networks.adapted import EncoderAdapter, WithHead
from secagg.networks.distillation import DistillingSettings, distil
from secagg.networks.training import shuffled
from secagg.randomness import SeededRandomness
from secagg.system.threads import one_thread
from secagg.unsafe_for_tests import TOKEN

ROUNDS, RANK, BATCH = 10, 8, 32
RATES = {"adapters": 1e-2, "lora": 1e-2, "full": 1e-3}
SEEDS = (1, 2, 3)
DELTA = 1e-5
COMMON = f"rounds={ROUNDS} rank={RANK} batch={BATCH}"
BOTTLENECKS, LORAS = "places=2x64", "places=4x64 kind=lora"
SHARED: Mapping[str, Any] = {"method": "feddat", "every": ROUNDS, "reference": False, "protection": "none"}
Accuracies = dict[str, dict[str, float]]
"""By model ("shared", "personal"), then by domain."""


@dataclass(frozen=True)
class Row:
    """A row of a table: what it is called, and what gives the accuracies of its models for a seed."""

    title: str
    run: Callable[[Path, int, float], Accuracies]
    seeds: Sequence[int] = SEEDS


@cache
def features_of(questions: Path, file: str, validate: float) -> Features:
    """The triplets of a file with the encoder's features."""
    dataset = open_dataset(str(questions / file))
    settings = SimulationSettings(backbone=f"transformers:{questions / 'encoder'}", validate=validate)
    return Features.of(dataset, settings)


def simulated(parameters: str, questions: Path, seed: int, validate: float, **given: Any) -> Accuracies:
    """A plan in memory, a member for each domain; without a protection: the same bits, and cheaper."""
    file, each_domain = given.pop("file", "members.triplets.parquet"), given.pop("members", 1)
    features = features_of(questions, file, validate)
    place = {"partition": f"column:domain:{each_domain}", "backbone": f"transformers:{questions / 'encoder'}"}
    chosen = {**SHARED, **place, "parameters": parameters, "noise_seed": seed, "validate": validate, **given}
    run = simulate_features(features, SimulationSettings(**chosen), Clock())
    names = np.unique(features.dataset.train.columns["domain"])
    return {
        each.model: {f"{names[(one.client - 1) // each_domain]} {one.client}": one.accuracy for one in each.clients}
        for each in run.personal
    }


def seeded(seed: int, member: int, turn: int = 0) -> SeededRandomness:
    """The stream of one member's training."""
    return SeededRandomness(f"feddat benchmark: {seed}, {member}, {turn}".encode(), TOKEN)


def members_of(features: Features) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Prepared records and labels of each domain, for training and held out."""
    train, test = features.dataset.train, features.dataset.test
    assert test is not None
    encoder, found = features.map.encoder, {}
    for name in np.unique(train.columns["domain"]):
        parts = [each.take(np.flatnonzero(each.columns["domain"] == name)) for each in (train, test)]
        found[str(name)] = tuple(x for each in parts for x in (encoder.prepare(each.inputs), each.labels))
    return found  # type: ignore[return-value]  # four arrays each


def local_adapters(questions: Path, seed: int, validate: float) -> Accuracies:
    """Every member an adapter and a head for itself, as many epochs as there are rounds."""
    features = features_of(questions, "members.triplets.parquet", validate)
    encoder, classes = features.map.encoder, len(features.dataset.classes)
    program = WithHead(encoder.dimension, classes, EncoderAdapter(BOTTLENECK, RANK, "2x64")).over(encoder)
    settings, found = DistillingSettings(ROUNDS, RATES["adapters"], BATCH), {}
    for member, (name, (x, y, held, wanted)) in enumerate(members_of(features).items()):
        weights = distil(program, program.start(bytes(32)), x, y, settings, (1, 1), seeded(seed, member))
        model = TrainedModel.of(program, weights)  # type: ignore[arg-type]
        found[name] = accuracy(model.predict(held), wanted, y)
    return {"personal": found}


def accuracy(said: np.ndarray, wanted: np.ndarray, trained: np.ndarray) -> float:
    """The share of held-out labels `wanted` that was `said`, their classes as frequent as in what was `trained` on.

    As members' own models are measured in a simulation.
    """
    frequent, found = (np.bincount(each, minlength=1 + max(trained.max(), wanted.max())) for each in (trained, wanted))
    return float(np.average(said == wanted, weights=(frequent / np.maximum(1, found))[wanted]))


def full_sharing(questions: Path, seed: int, validate: float) -> Accuracies:
    """All of the encoder is trained by everybody and averaged; heads stay with their members (the paper's oracle)."""
    import torch

    features = features_of(questions, "members.triplets.parquet", validate)
    encoder, classes = features.map.encoder, len(features.dataset.classes)
    members = members_of(features)
    torch.manual_seed(seed)
    heads = {name: torch.nn.Linear(encoder.dimension, classes) for name in members}
    shared = copy.deepcopy(encoder.module).requires_grad_(True)
    with one_thread():
        for turn in range(ROUNDS):
            trained = []
            for member, (name, (x, y, _, _)) in enumerate(members.items()):
                own = copy.deepcopy(shared)
                train_whole(replace(encoder, module=own), heads[name], x, y, seeded(seed, member, turn))
                trained.append(own.state_dict())
            shared.load_state_dict(
                {key: torch.stack([each[key].double() for each in trained]).mean(dim=0) for key in trained[0]}
            )
        whole, found = replace(encoder, module=shared), {}
        with torch.inference_mode():
            for name, (_, y, held, wanted) in members.items():
                said = heads[name](whole.pooled(torch.from_numpy(held))).argmax(dim=1).numpy()
                found[name] = accuracy(said, wanted, y)
    return {"shared": found}


def train_whole(encoder: Any, head: Any, x: np.ndarray, y: np.ndarray, randomness: SeededRandomness) -> None:
    """An epoch of AdamW over an encoder and a head, at rates as adapters have them in a round."""
    import torch
    from torch.nn import functional

    settings = DistillingSettings(1, RATES["full"], BATCH)
    optimiser = torch.optim.AdamW(
        [*encoder.module.parameters(), *head.parameters()], lr=settings.rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    order = shuffled(len(y), randomness)
    batches = np.split(order, range(BATCH, len(order), BATCH))
    for step, rows in enumerate(batches):
        optimiser.param_groups[0]["lr"] = settings.rate * settings.rate_at(step, len(batches))
        scores = head(encoder.pooled(torch.from_numpy(x[rows])))
        optimiser.zero_grad()
        functional.cross_entropy(scores, torch.from_numpy(y[rows])).backward()
        optimiser.step()


def plain(told: str, **given: Any) -> Callable[[Path, int, float], Accuracies]:
    """A plan of `feddat` with these parameters beside those that all have; exact, so longer than any update."""
    clip = "" if "clip=" in told else " clip=10"
    return partial(_plain, f"{COMMON} {told}{clip}", tuple(given.items()))


def _plain(told: str, given: tuple[tuple[str, Any], ...], questions: Path, seed: int, validate: float) -> Accuracies:
    return simulated(told, questions, seed, validate, **dict(given))


ADAPTERS, LORA_RATE = f"rate={RATES['adapters']}", f"rate={RATES['lora']}"
EXACT: Mapping[str, Row] = {
    "feddat": Row("FedDAT", plain(f"{BOTTLENECKS} {ADAPTERS}")),
    "averaged": Row("adapters averaged", plain(f"{BOTTLENECKS} {ADAPTERS} variant=averaged")),
    "lora": Row("LoRA averaged", plain(f"{LORAS} {LORA_RATE} variant=averaged")),
    "local": Row("local adapters", local_adapters),
    "full": Row("full sharing", full_sharing),
}
PROMISE = {"delta": DELTA, "adjacency": "add-remove"}
OF_RECORDS = {**PROMISE, "noise": "member", "colluders": None}
DP_SGD = f"{BOTTLENECKS} sampling=0.1 steps=8 batch=100 gradient_clip=1 rate=1"
RECORDS: Mapping[str, Row] = {
    f"records-{epsilon:g}": Row(
        f"FedDAT, ε = {epsilon:g}", plain(DP_SGD.replace("batch=100", ""), epsilon=epsilon, **OF_RECORDS), seeds=(1,)
    )
    for epsilon in (8.0, 2.0)
}
MANY: Mapping[str, Any] = {"members": 40, "file": "many.triplets.parquet"}
TRUSTED = {**PROMISE, "unit": "client", "noise": "aggregator", **MANY}
OF_MEMBERS = f"{BOTTLENECKS} {ADAPTERS} clip=0.5 epochs=2"
MEMBERS: Mapping[str, Row] = {
    "members-8": Row("FedDAT, ε = 8", plain(OF_MEMBERS, epsilon=8.0, **TRUSTED), seeds=(1,)),
    "members-exact": Row("FedDAT, no noise", plain(OF_MEMBERS, **MANY), seeds=(1,)),
}
TABLES: Mapping[str, Mapping[str, Row]] = {"exact": EXACT, "records": RECORDS, "members": MEMBERS}


def result_of(row: str, seed: int, questions: Path, out: Path, validate: float) -> Accuracies:
    """One run's accuracies, from the disk where it has ended before."""
    path = out / f"{row}-{seed}.json"
    if not path.exists():
        rows = {name: each for table in TABLES.values() for name, each in table.items()}
        found = rows[row].run(questions, seed, validate)
        path.write_text(json.dumps(found), encoding="utf-8")
        print(row, seed, {model: round(mean(each.values()), 4) for model, each in found.items()}, file=sys.stderr)
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def shown(found: Sequence[Accuracies], model: str) -> str:
    """The mean over members and seeds in per cent, ± the deviation over seeds."""
    values = [100 * mean(each[model].values()) for each in found if model in each]
    if not values:
        return ""
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def of_task(found: Sequence[Accuracies], model: str, task: str) -> float:
    """A model's mean over the members of a task."""
    return mean(value for each in found for name, value in each[model].items() if name.startswith(task))


def table_of(rows: Mapping[str, Row], found: Mapping[str, Sequence[Accuracies]]) -> str:
    """Each row's shared and personal accuracies, and the best model's of each question."""
    asked = ("digits", "counts", "pairs", "garments", "things")
    body = []
    for name, row in rows.items():
        best = max(found[name][0], key=lambda model: mean(mean(each[model].values()) for each in found[name]))
        models = (shown(found[name], model) for model in ("shared", "personal"))
        body.append((row.title, *models, *(f"{100 * of_task(found[name], best, task):.1f}" for task in asked)))
    return ResultTable("", ("", "shared", "personal", *asked), tuple(body)).markdown()


def main() -> None:
    """Run what was asked for, and write the tables."""
    parser = argparse.ArgumentParser(description="FedDAT against what else five members could do")
    parser.add_argument("--questions", type=Path, required=True, help="what tests.benchmarks.questions wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; a run in it is not repeated")
    parser.add_argument("--only", default=",".join(TABLES), help="tables, or rows of them, separated by commas")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--validate", type=float, default=0.0, help="measure on this share of the training records")
    chosen = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    chosen.out.mkdir(parents=True, exist_ok=True)
    made = []
    for name in chosen.only.split(","):
        rows = TABLES.get(name) or {name: next(each[name] for each in TABLES.values() if name in each)}
        asked = sorted(((row, seed) for row, each in rows.items() for seed in each.seeds), key=lambda each: each[1])
        tell = partial(result_of, questions=chosen.questions, out=chosen.out, validate=chosen.validate)
        with ProcessPoolExecutor(chosen.workers) as pool:
            results = list(pool.map(tell, *zip(*asked, strict=True)))
        found = {row: [each for (of, _), each in zip(asked, results, strict=True) if of == row] for row in rows}
        made.append(table_of(rows, found))
        (chosen.out / "feddat.md").write_text("\n".join(made), encoding="utf-8")
    print("\n".join(made))


if __name__ == "__main__":
    main()
