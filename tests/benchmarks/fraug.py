"""The tables of members whose records look different in methods/RESULTS.md: FRAug beside what it is built on.

`python -m tests.benchmarks.fraug --data D --out F [--only mobilenet-40,mobilenet-20] [--search]`

D holds PACS as features of pre-trained networks (`NETWORKS`), which stay frozen. Four members, one a domain, train a
perceptron on them. Every seed draws the members' records anew; the test records of a domain are the same for all seeds.
Every row is measured by one rule: the mean over domains of the share of all test records of a domain that the model of
its member classifies rightly, be that model the member's own or the same for all. F receives every run and `fraug.md`;
runs that have ended are not repeated.

Rates were chosen by `--search`: with each of `RATES` in every row, members draw from other training records, with other
seeds, and are measured on training records that no member has. A row has its best rate, chosen on `PRIMARY`, in all
tables. FRAug − FedBN on `PRIMARY`, over ten seeds, is the one contrast of the paper's claim; all other differences are
descriptions.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.encoding import inputs_of
from secagg.experiments.client_accuracy import LabelledInputs
from secagg.experiments.tables import ResultTable
from secagg.system.threads import one_blas_thread
from tests.benchmarks.accuracy import DELTA
from tests.benchmarks.contrasts import Contrast, contrast_of
from tests.benchmarks.fashion_mnist import DATA
from tests.benchmarks.fedpcl import GRID, shown, trained
from tests.benchmarks.training import noise_to_signal, setup_for

NETWORKS: Mapping[str, str] = {
    "MobileNetV2": "pacs_mobilenetv2_features_224px.npz",
    "ResNet-18 to layer3": "pacs_resnet18_layer3_features_64px.npz",
    "EfficientNet-Lite2": "pacs_efficientnet_lite2_features_224px.npz",
}
"""Networks trained on ImageNet, and their features of PACS."""
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
CUT = 2022
"""Seed of the parts, and of nothing else."""


class Part(StrEnum):
    """The purposes of records."""

    MEMBERS = "members"
    """Members draw from these, and are measured on TEST."""
    TEST = "test"
    TRIAL = "trial"
    """Members draw from these in the search, and are measured on HELD_OUT. Both are training records."""
    HELD_OUT = "held-out"


SHARES = {Part.TEST: 0.4, Part.MEMBERS: 0.3, Part.TRIAL: 0.15, Part.HELD_OUT: 0.15}
"""Of each domain."""
ROUNDS, STEPS, BATCH = 30, 10, 32
"""Of every row: 300 steps of a member. In one place a step has a batch of each member's size for every member."""
RATES = (0.1, 0.3, 1.0, 3.0)
SEARCH_SEEDS, SEEDS, FEWER_SEEDS = range(2), range(2, 12), range(2, 7)
"""Of the search, of the table with the contrast, and of all other tables."""
PAPER = "alpha=1.25 beta=1.25 generator_rate=0.05 transfer_rate=0.05 latent=256 synthetic=32"
"""The paper's constants for PACS (its Table 2)."""
RAMP = 0.01 * 200 / ROUNDS
"""The paper's 0.01, stretched from its 200 rounds to ROUNDS."""


class Who(StrEnum):
    """The group of members whose records train one model."""

    MEMBERS = "members"
    ALONE = "alone"
    POOLED = "pooled"


@dataclass(frozen=True)
class Form:
    """A row: its parameters beside those that all share, who trains, and the rate that the search chose."""

    title: str
    words: str
    rate: float
    who: Who = Who.MEMBERS

    def parameters(self, rate: float) -> str:
        """Return all parameters of the method `fraug`; without a federation all steps are in one round."""
        rounds, steps = (ROUNDS, STEPS) if self.who is Who.MEMBERS else (1, ROUNDS * STEPS)
        batch = BATCH * (len(DOMAINS) if self.who is Who.POOLED else 1)
        shared = f"model=mlp:128 rounds={rounds} steps={steps} batch={batch} momentum=0.5 clip=100 rate={rate:g}"
        return f"{shared} {self.words}"


FRAUG = Form("FRAug", f"{PAPER} ramp={RAMP:g} norm=batch", 0.3)
FEDBN = Form("FedBN", "augment=0 norm=batch", 1.0)
ALONE = Form("each member alone", "augment=0 norm=batch", 1.0, Who.ALONE)
POOLED = Form("all records in one place", "augment=0 norm=batch", 1.0, Who.POOLED)
FEDAVG = Form("FedAvg", "augment=0 norm=shared", 0.1)
FEDPROX = Form("FedProx, µ = 0.01", "augment=0 norm=shared proximal=0.01", 0.1)
FORMS = FRAUG, FEDBN, ALONE, POOLED, FEDAVG, FEDPROX
"""The rows. FedAvg and FedProx share a group normalisation, the others have batch normalisation, as the paper has."""


@dataclass(frozen=True)
class Table:
    """A network, how many records each member has, the seeds and the rows."""

    network: str
    records: int
    seeds: range
    forms: tuple[Form, ...]


FEWER = FRAUG, FEDBN, ALONE, FEDAVG
TABLES: Mapping[str, Table] = {
    "mobilenet-40": Table("MobileNetV2", 40, SEEDS, FORMS),
    "mobilenet-20": Table("MobileNetV2", 20, FEWER_SEEDS, FEWER),
    "mobilenet-80": Table("MobileNetV2", 80, FEWER_SEEDS, FEWER),
    "layer3-40": Table("ResNet-18 to layer3", 40, FEWER_SEEDS, FEWER),
    "efficientnet-40": Table("EfficientNet-Lite2", 40, FEWER_SEEDS, FEWER),
}
PROMISE: Mapping[str, Any] = {"clients": 200, "epsilon": 8.0, "delta": DELTA, "unit": "client"}
"""About each of many members."""
PRIMARY = "mobilenet-40"
"""FRAUG − FEDBN on it, the mean of the four domains, is the one contrast of the paper's claim."""


@dataclass(frozen=True)
class Job:
    """One run: a network's features, records a member, and the parameters of a row."""

    network: str
    records: int
    seed: int
    who: Who
    parameters: str
    is_trial: bool

    def path(self, out: Path) -> Path:
        """The file of its answers."""
        name = hashlib.sha256(repr(sorted(asdict(self).items())).encode()).hexdigest()[:24]
        return out / "runs" / f"{name}.json"


@cache
def domains_of(network: str, data: Path) -> tuple[dict[Part, LabelledInputs], ...]:
    """Return the parts of each domain, cut by a fixed seed; inputs are normalised, cells are the domains."""
    found, fixed = [], np.random.default_rng(CUT)
    with np.load(data / NETWORKS[network]) as content:
        for number, name in enumerate(DOMAINS):
            inputs = inputs_of(content[f"{name}_features"] * content["scale"].astype(np.float64), GRID)
            labels = content[f"{name}_labels"].astype(np.int64)
            whole = LabelledInputs(inputs, labels, np.full(len(labels), number))
            ends = np.rint(np.cumsum(list(SHARES.values())) * len(labels)).astype(np.int64)[:-1]
            rows = np.split(fixed.permutation(len(labels)), ends)
            found.append({part: whole.take(own) for part, own in zip(SHARES, rows, strict=True)})
    return tuple(found)


def records_of(network: str, data: Path, part: Part) -> LabelledInputs:
    """Return all records of a part, domain after domain."""
    return joined([domain[part] for domain in domains_of(network, data)])


def joined(parts: Sequence[LabelledInputs]) -> LabelledInputs:
    """Return all parts' records, one part after the other."""
    columns = zip(*((each.inputs, each.labels, each.cells) for each in parts), strict=True)
    return LabelledInputs(*map(np.concatenate, columns))


def answers(job: Job, data: Path) -> NDArray[np.bool_]:
    """Return for each held-out record, domain after domain, whether its domain's member classifies it rightly."""
    source, held_out = (Part.TRIAL, Part.HELD_OUT) if job.is_trial else (Part.MEMBERS, Part.TEST)
    domains, draw = domains_of(job.network, data), np.random.default_rng(job.seed)
    drawn = [draw.permutation(len(domain[source].labels))[: job.records] for domain in domains]
    members = [domain[source].take(rows) for domain, rows in zip(domains, drawn, strict=True)]
    groups = {Who.MEMBERS: [members], Who.ALONE: [[each] for each in members], Who.POOLED: [[joined(members)]]}
    classes = 1 + max(int(domain[Part.TEST].labels.max()) for domain in domains)
    models = [
        own.get("own", own[""])
        for group in groups[job.who]
        for own in trained(group, classes, "fraug", job.parameters, job.seed)
    ]
    models *= len(domains) // len(models)
    parts = [domain[held_out] for domain in domains]
    return np.concatenate(
        [model.predict(each.inputs) == each.labels for model, each in zip(models, parts, strict=True)]
    )


def run(jobs: Sequence[Job], data: Path, out: Path) -> None:
    """Write the answers of each job and its CPU seconds; jobs that have ended are not repeated."""
    left = [job for job in dict.fromkeys(jobs) if not job.path(out).exists()]
    (out / "runs").mkdir(parents=True, exist_ok=True)
    for done, job in enumerate(left, start=1):
        begun = time.process_time()
        with one_blas_thread():
            right = answers(job, data)
        kept = {"job": asdict(job), "right": right.astype(int).tolist(), "cpu": time.process_time() - begun}
        job.path(out).write_text(json.dumps(kept), encoding="utf-8")
        print(f"\r  {done} of {len(left)} runs", end="" if done < len(left) else "\n", file=sys.stderr, flush=True)


def added(job: Job, data: Path, out: Path) -> NDArray[np.float64]:
    """Return each held-out record's share of the accuracy, in which every domain weighs the same."""
    right = np.array(json.loads(job.path(out).read_text(encoding="utf-8"))["right"], dtype=np.float64)
    domain = records_of(job.network, data, Part.HELD_OUT if job.is_trial else Part.TEST).cells
    return right / (len(DOMAINS) * np.bincount(domain)[domain])


def minutes(out: Path) -> float:
    """Return the CPU minutes of all runs in the folder, the search included."""
    spent = (json.loads(path.read_text(encoding="utf-8"))["cpu"] for path in (out / "runs").glob("*.json"))
    return math.fsum(spent) / 60


def jobs_of(table: Table, form: Form) -> list[Job]:
    """Return the runs of a row, by seed."""
    parameters = form.parameters(form.rate)
    return [Job(table.network, table.records, seed, form.who, parameters, is_trial=False) for seed in table.seeds]


def search(data: Path, out: Path) -> str:
    """Return the accuracy of every row with every rate on training records that no member has, in per cent."""
    network, records = TABLES[PRIMARY].network, TABLES[PRIMARY].records
    tried = {
        (form, rate): [
            Job(network, records, seed, form.who, form.parameters(rate), is_trial=True) for seed in SEARCH_SEEDS
        ]
        for form in FORMS
        for rate in RATES
    }
    run([job for jobs in tried.values() for job in jobs], data, out)
    means = {key: 100 * fmean(added(job, data, out).sum() for job in jobs) for key, jobs in tried.items()}
    rows = tuple((form.title, *(f"{means[form, rate]:.2f}" for rate in RATES)) for form in FORMS)
    return ResultTable(f"{network}, {records} records a domain, the search.", ("", *map(str, RATES)), rows).markdown()


def make(table: Table, data: Path, out: Path) -> str:
    """Return a table of accuracies in per cent by domain, and the contrasts.

    Means over seeds; the mean of the domains has its difference to members alone, ± half its 95 % interval over seeds.
    """
    run([job for form in table.forms for job in jobs_of(table, form)], data, out)
    domain = records_of(table.network, data, Part.TEST).cells
    found = {
        form: np.array([np.bincount(domain, weights=added(job, data, out)) for job in jobs_of(table, form)])
        for form in table.forms
    }
    alone = found[ALONE].sum(axis=1).tolist()
    rows = tuple(
        (
            form.title,
            f"{form.rate:g}",
            *(f"{100 * len(DOMAINS) * each:.1f}" for each in values.mean(axis=0)),
            shown(values.sum(axis=1).tolist(), alone),
        )
        for form, values in found.items()
    )
    caption = f"{table.network}, {table.records} records a domain, {len(table.seeds)} seeds."
    pairs = [(FRAUG, FEDBN), (FRAUG, ALONE), (FEDBN, ALONE), (FEDAVG, ALONE)]
    contrasts = [contrast(table, *pair, data, out) for pair in pairs]
    lines = [f"- {each.name}: {each.says()}" for each in contrasts]
    if table is TABLES[PRIMARY]:
        lines.append(f"\n```toml\n{contrasts[0].as_toml('FRAug')}```")
    return "\n".join([ResultTable(caption, ("", "rate", *DOMAINS, "mean"), rows).markdown(), *lines, ""])


def contrast(table: Table, ours: Form, theirs: Form, data: Path, out: Path) -> Contrast:
    """Return the contrast of two rows; the strata are the classes of each domain."""
    one, other = ([added(job, data, out) for job in jobs_of(table, form)] for form in (ours, theirs))
    records = records_of(table.network, data, Part.TEST)
    strata = [len(DOMAINS) * records.labels + records.cells] * len(table.seeds)
    name = f"{ours.title} − {theirs.title}, {table.network}, {table.records} records a domain"
    return contrast_of(name, one, other, strata, same_records=True, cpu_minutes=minutes(out))


def members_noise() -> str:
    """Return the table of noise ÷ signal under a promise about each of many members; nothing is trained."""
    rows = []
    for form in (FRAUG, FEDBN):
        settings = {"method": "fraug", "parameters": form.parameters(form.rate), "adjacency": "add-remove", **PROMISE}
        rows.append((form.title, f"{noise_to_signal(setup_for(settings, (1280,), 7)):.3g}"))
    caption = (
        f"{PROMISE['clients']} members, masked, a promise about a whole member, ε = {PROMISE['epsilon']:g}, "
        f"δ = {DELTA:g}, {ROUNDS} rounds: the length of a round's noise ÷ that of all updates where each is as long as "
        "it may be."
    )
    return ResultTable(caption, ("", "noise ÷ signal"), tuple(rows)).markdown()


def main() -> None:
    """Make what was asked for and write the tables."""
    parser = argparse.ArgumentParser(description="FRAug and what it is built on, as in methods/RESULTS.md")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the features")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; a run in it is not repeated")
    parser.add_argument("--only", default=",".join((*TABLES, "members")), help="tables, separated by commas")
    parser.add_argument("--search", action="store_true", help="the rates, on held-out training records; no table")
    chosen = parser.parse_args()
    if chosen.search:
        print(search(chosen.data, chosen.out))
        return
    made = []
    for name in chosen.only.split(","):
        print(name, file=sys.stderr)
        made.append(make(TABLES[name], chosen.data, chosen.out) if name in TABLES else members_noise())
        (chosen.out / "fraug.md").write_text("\n".join(made), encoding="utf-8")
    print("\n".join(made), f"{minutes(chosen.out):.1f} CPU minutes", sep="\n")


if __name__ == "__main__":
    main()
