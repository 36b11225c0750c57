"""The tables of FedCGS, MPFT and FedTC in methods/RESULTS.md on features of frozen networks, beside their rivals.

`python -m tests.benchmarks.oneshot --data D --out F [--only target,domains,shards]`

D holds the features of PACS (`pacs_….npz`), F `fashion_mnist_resnet18.npz`, which `tests.benchmarks.fashion_mnist`
makes. F receives every run's answers; a run that has ended is not repeated. Three tasks:

target    FedCGS's Table 2: each domain of PACS is left out in turn and tested on; five clients a source domain
domains   MPFT's Table 1: a domain a client; a fixed fifth of the records is tested on, seeds draw 7 of 8 others
shards    FedTC's Table 1: the same 20,000 records of Fashion-MNIST by ten clients with two classes each

`PRIMARY` states one contrast for each, which was fixed before its first run on test records; all else describes.
What a row has to choose, a rate for most, was chosen by `--search` on held-out training records, with a seed of its
own; FedTC and FedCGS have the product's defaults. Where an exact sum is the same however records are divided, one run
stands for all seeds. Rows without secure sum take features as they are, and so do `fedcgs`, `mpft` and `fedtc`, as in
`simulate`.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from methods import method_named, parameters_of, read_parameters
from methods.baselines import baseline_named
from methods.baselines.baseline import BaselineModel, ClientData
from methods.baselines.softmax_regression import RATE
from methods.round import Examples
from secagg.data.partition import held_out, partition
from secagg.encoding import Grid, Normalisation, inputs_of, quantise
from secagg.encoding.grid import round_up
from secagg.experiments.tables import ResultTable
from secagg.system.threads import one_blas_thread
from tests.benchmarks.contrasts import Contrast, contrast_of, mean_and_gap
from tests.benchmarks.fashion_mnist import DATA
from tests.benchmarks.played import played

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
MOBILENET, LITE = "mobilenetv2_features_224px", "efficientnet_lite2_features_224px"
LAYER3 = "resnet18_layer3_features_64px"
SEEDS, SEARCH_SEED = range(5), 100
RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
EPOCHS = (25, 50, 100, 200, 400)
"""What is searched of MPFT, whose rate is a constant."""
DRAWN, TRIED = 20_000, 5_000
"""Records of Fashion-MNIST that members have, and others on which they are measured in a search."""
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Form:
    """A row: its title, a method or baseline, its settings, whose `model` is measured, and what it has to choose.

    `model`: one of the members' own; empty: the one for all. `chooses`: a parameter, whose `values` the search tries.
    The `rate` of a baseline is a constant, 0.01: another one is had by features √(rate/0.01) times as long.
    """

    title: str
    method: str
    settings: str = ""
    model: str = ""
    chooses: str = ""
    values: tuple[float, ...] = ()
    value: float = 0.0

    @property
    def parameters(self) -> str:
        """Return the settings, with the chosen value where the method has that parameter."""
        own = self.chooses and not (self.chooses == "rate" and self.is_baseline)
        return f"{self.settings} {self.chooses}={self.value:g}".strip() if own else self.settings

    @property
    def is_baseline(self) -> bool:
        """Return whether the row makes no secure sum."""
        return baseline_named(self.method) is not None

    @property
    def is_one_sum(self) -> bool:
        """Return whether the model follows from an exact sum, which is the same however records are divided."""
        return self.method in ("fedcgs", "fedtc")


def _by_rate(title: str, method: str, settings: str = "", model: str = "") -> Form:
    return Form(title, method, settings, model, "rate", RATES)


FEDCGS, FEDPFT = Form("FedCGS", "fedcgs", "refine=0"), Form("FedPFT", "fedpft", "", "", "rate", RATES[1:6])
MPFT = Form("MPFT, class means", "mpft", chooses="epochs", values=EPOCHS)
FEDAVG = _by_rate("FedAvg, softmax", "fedavg", "rounds=50 clip=100 cap=4096")
FEDPROTO = Form(
    "FedProto, shared prototypes", "fedproto", "rounds=50 batch=128 pull=0.1", "global", "rate", (0.001, 0.003, 0.01)
)
FEDTC = Form("FedTC, 200 slots", "fedtc", "slots=200")
ONE_SHOT = Form("FedAvg, one shot", "fedavg-one-shot", "clip=100", "", "rate", (0.00003, 0.0001, *RATES))
RIDGED = Form("FedCGS, ridge searched", "fedcgs", "refine=0", "", "ridge", (0.001, 0.01, 0.1, 1.0))
TARGET = {MOBILENET: (FEDPFT, FEDCGS, RIDGED), LITE: (FEDCGS, RIDGED)}
LOCAL = _by_rate("local", "local-only")
FEDPROX = Form("FedProx, softmax", "fedavg", f"{FEDAVG.settings} proximal=0.1", "", "rate", RATES[1:4])
AMONG_DOMAINS = {
    MOBILENET: (LOCAL, FEDAVG, FEDPROX, MPFT, FEDCGS),
    LAYER3: (
        LOCAL,
        FEDAVG,
        FEDPROX,
        replace(FEDPROTO, title="FedProto, head", model="head"),
        FEDPROTO,
        MPFT,
        Form("MPFT, 32 slots", "mpft", "slots=32 epochs=50"),
        Form("MPFT, 8 clusters", "mpft", "sampling=cluster slots=8 rounds=3 epochs=50"),
        FEDCGS,
    ),
}
BY_SHARDS = (
    ONE_SHOT,
    _by_rate("ensemble", "ensemble"),
    FEDPFT,
    FEDTC,
    Form("FedTC without adapter", "fedtc", "slots=200 adapter=0"),
    FEDCGS,
)


@dataclass(frozen=True)
class Case:
    """A task on the features of one network; `target` is the domain that is left out, if any."""

    task: str
    features: str
    target: str = ""

    @property
    def key(self) -> str:
        """Return the name under which a choice stands."""
        return f"{self.task} {self.features} {self.target}".strip()


BY_TARGET = {name: [Case("target", name, each) for each in DOMAINS] for name in (MOBILENET, LITE)}
TOGETHER = {name: Case("domains", name) for name in (MOBILENET, LAYER3)}
SHARDS = Case("shards", "fashion_mnist_resnet18")
CHOSEN: Mapping[str, Mapping[str, float]] = {
    f"target {MOBILENET} art_painting": {FEDPFT.title: 0.003, RIDGED.title: 0.01},
    f"target {MOBILENET} cartoon": {FEDPFT.title: 0.01, RIDGED.title: 0.1},
    f"target {MOBILENET} photo": {FEDPFT.title: 0.01, RIDGED.title: 0.01},
    f"target {MOBILENET} sketch": {FEDPFT.title: 0.001, RIDGED.title: 0.1},
    f"target {LITE} art_painting": {RIDGED.title: 0.01},
    f"target {LITE} cartoon": {RIDGED.title: 0.1},
    f"target {LITE} photo": {RIDGED.title: 0.1},
    f"target {LITE} sketch": {RIDGED.title: 0.1},
    TOGETHER[MOBILENET].key: {LOCAL.title: 0.01, FEDAVG.title: 0.003, FEDPROX.title: 0.003, MPFT.title: 50},
    TOGETHER[LAYER3].key: {
        LOCAL.title: 0.3,
        FEDAVG.title: 0.03,
        FEDPROX.title: 0.01,
        "FedProto, head": 0.001,
        FEDPROTO.title: 0.001,
        MPFT.title: 100,
    },
    SHARDS.key: {ONE_SHOT.title: 0.0003, "ensemble": 0.1, FEDPFT.title: 0.01},
}
"""What the search chose."""
PRIMARY = {
    "FedCGS": "FedCGS − FedPFT, mean of PACS's four target domains, MobileNetV2",
    "MPFT": "MPFT by class means − FedAvg, ood acc on PACS, MobileNetV2",
    "FedTC": "FedTC by 200 slots − one-shot FedAvg, Fashion-MNIST, two classes a member",
}
"""The contrasts, over `SEEDS`, on test records that all seeds share."""


@cache
def pacs(path: Path) -> ClientData:
    """Return the features of all records of PACS, with their classes and domains."""
    with np.load(path) as file:
        parts = [file[f"{name}_features"] for name in DOMAINS]
        labels = np.concatenate([file[f"{name}_labels"] for name in DOMAINS]).astype(np.int64)
        features = np.concatenate(parts) * file["scale"].astype(np.float64)
    return ClientData(features, labels, np.repeat(np.arange(len(DOMAINS)), list(map(len, parts))))


@cache
def fashion(path: Path) -> tuple[ClientData, ClientData]:
    """Return the features of the training and the test records of Fashion-MNIST."""
    with np.load(path) as file:
        return tuple(
            ClientData.of(file[f"{part}_features"].astype(np.float64), file[f"{part}_labels"])
            for part in ("train", "test")
        )  # type: ignore[return-value]


def strata(records: ClientData) -> NDArray[np.int64]:
    """Return the number of each record's (class, domain) pair."""
    return records.labels * len(DOMAINS) + records.domains


def federation(case: Case, seed: int, data: Path, out: Path, *, is_trial: bool) -> tuple[list[ClientData], ClientData]:
    """Return the clients' records, and those to measure on: of `is_trial` training records that no client has."""
    if case.task == "shards":
        train, test = fashion(out / f"{case.features}.npz")
        drawn = np.random.default_rng(0).permutation(len(train))
        own, tried = (train.take(rows) for rows in (drawn[:DRAWN], drawn[DRAWN : DRAWN + TRIED]))
        parts = partition(own.labels, {}, "shards:2", 10, seed)
        return [own.take(rows) for rows in parts], tried if is_trial else test
    everything = pacs(data / f"pacs_{case.features}.npz")
    if case.task == "target":
        is_target = everything.domains == DOMAINS.index(case.target)
        sources, test = everything.take(~is_target), everything.take(is_target)
        if is_trial:
            aside = held_out(strata(sources), seed=seed)
            sources, test = sources.take(~aside), sources.take(aside)
        parts = partition(sources.labels, {"domain": sources.domains.astype(str)}, "column:domain:5", None, seed)
        return [sources.take(rows) for rows in parts], test
    is_test = held_out(strata(everything))
    rest, test = everything.take(~is_test), everything.take(is_test)
    aside = held_out(strata(rest), 1 / 8, seed=1000 + seed)
    own = rest.take(~aside)
    clients = [own.take(own.domains == domain) for domain in np.unique(own.domains)]
    return clients, rest.take(aside) if is_trial else test


def answers(form: Form, case: Case, clients: Sequence[ClientData], test: ClientData, seed: int) -> dict[str, Flags]:
    """Return by kind of model which test records are answered rightly, (models, n), by one for all or each client's."""
    classes = int(test.labels.max()) + 1
    models: Mapping[str, Sequence[BaselineModel]]
    if (kind := baseline_named(form.method)) is not None:
        scale = math.sqrt(form.value / RATE) if form.chooses == "rate" else 1.0
        baseline = kind(**read_parameters(kind.name, asdict(kind()), form.parameters))
        longer = [replace(each, features=each.features * scale) for each in clients]
        models, inputs = {"": baseline.fit(longer, classes, seed).predictors}, test.features * scale
    else:
        text = f"{form.parameters} domains={'+'.join(DOMAINS)}" if form.method == "mpft" else form.parameters
        method = method_named(form.method, parameters_of(form.method, {}, text))
        longest = max(float(np.linalg.norm(each.features, axis=1).max()) for each in clients)
        plain = Grid(round_up(longest))
        grid = Grid(1.0, normalisation=Normalisation.CENTRED_UNIT) if method.traits.needs_unit_length else plain
        members = [
            Examples(quantise(each.features, grid), each.labels, np.full(len(each), number))
            for number, each in enumerate(clients)
        ]
        found = played(members, classes, method, grid, seed)
        inputs = inputs_of(test.features, grid)
        models = {name: [each[name] for each in (found if name else found[:1])] for name in found[0]}
    return {name: np.stack([model.predict(inputs) == test.labels for model in kind]) for name, kind in models.items()}


@dataclass(frozen=True)
class Run:
    """One row's training and its answers, by one seed."""

    form: Form
    case: Case
    seed: int
    is_trial: bool = False

    @property
    def decisive_seed(self) -> int:
        """Return the seed, or the first of all where none changes the answers."""
        is_same = self.form.is_one_sum and self.case.task != "domains" and not self.is_trial
        return SEEDS[0] if is_same else self.seed

    def of(self, data: Path, out: Path) -> tuple[Flags, ClientData, float]:
        """Return the answers (models, n), the records asked about, and the CPU seconds; kept in `out` once made."""
        seed = self.decisive_seed
        clients, test = federation(self.case, seed, data, out, is_trial=self.is_trial)
        settings = (self.form.method, self.form.parameters, self.form.value)
        name = repr((settings, astuple(self.case), seed, self.is_trial))
        path = out / "runs" / f"oneshot-{hashlib.sha256(name.encode()).hexdigest()[:24]}.npz"
        if not path.exists():
            print(f"  {self.case.key} {self.form.title} {self.form.value:g} seed {seed}", file=sys.stderr)
            start = time.process_time()
            with one_blas_thread():
                right = answers(self.form, self.case, clients, test, seed)
            path.parent.mkdir(exist_ok=True)
            np.savez(
                path, **{f"right {name}": each for name, each in right.items()}, seconds=time.process_time() - start
            )
        with np.load(path) as file:
            return file[f"right {self.form.model}"], test, float(file["seconds"])


def shares(right: Flags, test: ClientData, case: Case, *, outside: bool) -> NDArray[np.float64]:
    """Return what each record adds to the accuracy, (n,).

    In `domains` that is MPFT's ind acc or, `outside`, its ood acc (Zhang et al. 2025, Eq. 3), client i having domain i;
    else the mean over models.
    """
    if case.task == "domains":
        counted = (np.arange(len(DOMAINS))[:, None] == test.domains) != outside
        return (right & counted).sum(axis=0) / counted.sum()
    mean: NDArray[np.float64] = right.mean(axis=0) / len(test)
    return mean


def chosen(form: Form, case: Case) -> Form:
    """Return the row with the value that the search chose for it."""
    return replace(form, value=CHOSEN[case.key][form.title]) if form.chooses else form


class Tables:
    """The tables and contrasts of the runs in one folder; `spent` is the CPU seconds of those that were asked for."""

    def __init__(self, data: Path, out: Path) -> None:
        self.data, self.out = data, out
        self.spent: dict[Run, float] = {}

    @property
    def minutes(self) -> float:
        """Return the CPU minutes of the runs."""
        return sum(self.spent.values()) / 60

    def accuracy(self, form: Form, case: Case, seed: int, *, is_trial: bool = False, outside: bool = False) -> float:
        """Return the accuracy in per cent of one run."""
        run = Run(replace(form, title="", values=()), case, seed, is_trial)
        same = replace(run, form=replace(run.form, model=""), seed=run.decisive_seed)
        right, test, self.spent[same] = run.of(self.data, self.out)
        return 100 * float(shares(right, test, case, outside=outside).sum())

    def over_seeds(self, form: Form, case: Case, *, outside: bool = False) -> list[float]:
        """Return the accuracies of the chosen form, one for each seed."""
        return [self.accuracy(chosen(form, case), case, seed, outside=outside) for seed in SEEDS]

    def contrast(self, name: str, forms: tuple[Form, Form], cases: Sequence[Case]) -> Contrast:
        """Return one form's contrast to another, the mean over the cases; by ood acc in `domains`."""
        rows, labels = ([], []), []
        for seed in SEEDS:
            for row, form in zip(rows, forms, strict=True):
                made = [(case, *Run(chosen(form, case), case, seed).of(self.data, self.out)) for case in cases]
                each = [shares(right, test, case, outside=True) for case, right, test, _ in made]
                row.append(np.concatenate(each) / len(cases))
            labels.append(np.concatenate([strata(test) for _, _, test, _ in made]))
        return contrast_of(name, *rows, labels, same_records=True, cpu_minutes=self.minutes)

    def target(self) -> Iterator[str]:
        """Yield FedCGS's Table 2 of both networks."""
        for features, cases in BY_TARGET.items():
            yield self.by_domain(f"{features}, accuracy on the domain left out.", TARGET[features], cases)

    def domains(self) -> Iterator[str]:
        """Yield MPFT's two measures on both networks."""
        for features, case in TOGETHER.items():
            rows, rival = [], self.over_seeds(FEDAVG, case, outside=True)
            for form in AMONG_DOMAINS[features]:
                inside, outside = (self.over_seeds(form, case, outside=each) for each in (False, True))
                rows.append((form.title, mean_and_gap(inside), mean_and_gap(outside, rival)))
            yield ResultTable(f"{features}.", ("", "ind acc", "ood acc (− FedAvg)"), tuple(rows)).markdown()

    def by_domain(self, caption: str, forms: Sequence[Form], cases: Sequence[Case]) -> str:
        """Return the accuracies on each case's target and their mean; in brackets the mean less that of the first."""
        rows, first = [], None
        for form in forms:
            found = [self.over_seeds(form, case) for case in cases]
            mean = [fmean(each) for each in zip(*found, strict=True)]
            rows.append((form.title, *map(mean_and_gap, found), mean_and_gap(mean, first)))
            first = first or mean
        header = ("", *DOMAINS, f"mean (− {forms[0].title})")
        return ResultTable(caption, header, tuple(rows)).markdown()

    def shards(self) -> Iterator[str]:
        """Yield FedTC's comparison with two classes a member."""
        rival = self.over_seeds(ONE_SHOT, SHARDS)
        rows = tuple((form.title, mean_and_gap(self.over_seeds(form, SHARDS), rival)) for form in BY_SHARDS)
        yield ResultTable(f"{SHARDS.features}.", ("", "accuracy (− one-shot FedAvg)"), rows).markdown()

    def search(self, case: Case, forms: Sequence[Form]) -> Iterator[str]:
        """Yield a line for every form that has something to choose: its accuracies by value, and the best value."""
        for form in (each for each in forms if each.chooses):
            found = {
                value: self.accuracy(replace(form, value=value), case, SEARCH_SEED, is_trial=True)
                for value in form.values
            }
            best = max(found, key=found.__getitem__)
            yield f"{case.key}: {form.title!r}: {best:g}  {', '.join(f'{k:g}: {v:.2f}' for k, v in found.items())}"


CONTRASTS = {
    "target": ("FedCGS", (FEDCGS, FEDPFT), BY_TARGET[MOBILENET]),
    "domains": ("MPFT", (MPFT, FEDAVG), [TOGETHER[MOBILENET]]),
    "shards": ("FedTC", (FEDTC, ONE_SHOT), [SHARDS]),
}
SEARCHED = {
    "target": [(case, TARGET[case.features]) for cases in BY_TARGET.values() for case in cases],
    "domains": [(case, AMONG_DOMAINS[case.features]) for case in TOGETHER.values()],
    "shards": [(SHARDS, BY_SHARDS)],
}


def main() -> None:
    """Make the tables that were asked for, or search, and print them."""
    parser = argparse.ArgumentParser(description="FedCGS, MPFT and FedTC beside their rivals, as in methods/RESULTS.md")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of features")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; a run in it is not repeated")
    parser.add_argument("--only", default=",".join(SEARCHED), help="tasks, separated by commas")
    parser.add_argument("--search", action="store_true", help="choose on held-out training records; no table")
    asked = parser.parse_args()
    tables, tasks = Tables(asked.data, asked.out), asked.only.split(",")
    if asked.search:
        made = (line for task in tasks for case, forms in SEARCHED[task] for line in tables.search(case, forms))
    else:
        made = (each for task in tasks for each in getattr(tables, task)())
    for each in made:
        print(each, flush=True)
    for system, forms, cases in () if asked.search else (CONTRASTS[task] for task in tasks):
        contrast = tables.contrast(PRIMARY[system], forms, cases)
        print(f"{contrast.name}: {contrast.says()}\n\n{contrast.as_toml(system)}")
    print(f"{tables.minutes:.1f} CPU minutes", file=sys.stderr)


if __name__ == "__main__":
    main()
