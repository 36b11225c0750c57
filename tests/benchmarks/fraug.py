"""The tables of members whose records look different in methods/RESULTS.md: FRAug beside what it is built on.

`python -m tests.benchmarks.fraug --data D --out F [--only digits-1,digits-10,pacs,private,members] [--seeds 3]`

D holds `mnist_12k.npz`, `usps.npz` and `pacs_32px.npz`. Four members, one a domain, from scratch: every seed draws the
members' records anew, and the starts of their trainings. F receives the drawn data, the runs (what has ended is not
repeated) and `fraug.md`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from PIL import Image

from secagg.crypto.labels import digest
from secagg.data import Dataset, open_dataset
from secagg.experiments.results import Run
from secagg.experiments.sweep import Execution, combinations, runs_of
from secagg.experiments.tables import ResultTable
from secagg.networks import TrainedModel, program_named
from secagg.networks.augmented import Augmented, Distance, Weights
from secagg.networks.augmented_training import AugmentedSettings, train_augmented
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from tests.benchmarks.accuracy import DELTA, say
from tests.benchmarks.fashion_mnist import DATA
from tests.benchmarks.training import noise_to_signal, setup_for

Arrays = dict[str, np.ndarray[Any, Any]]
ROUNDS, STEPS, BATCH, RATE, MOMENTUM = 100, 5, 32, 0.02, 0.5
"""Of every row. RATE is the best of 0.02, 0.05 and 0.1 for FedAvg on a fifth of seed 0's training records, held out."""
HELD_OUT = 0.2
"""Of each domain of PACS."""
FRACTIONS = {"digits-1": 0.01, "digits-10": 0.1, "pacs": 0.1, "members": 1 / 3}
"""Of the records there are, what members have."""
TITLES = {
    "digits-1": "Digits, 1 % of the records: 100 of MNIST in each of three forms, 73 of USPS",
    "digits-10": "Digits, 10 %: 1,000 in each of three forms, 729 of USPS",
    "pacs": "PACS at 32 pixels, 10 %: 133 to 314 records a domain",
}
PAPERS = {
    "digits": "alpha=1 beta=1.5 generator_rate=0.005 transfer_rate=0.005",
    "pacs": "alpha=1.25 beta=1.25 generator_rate=0.05 transfer_rate=0.05",
}
"""The paper's constants (its Table 2) for each set."""
RAMP = 0.02
"""Over ROUNDS what the paper's 0.01 is over its 200."""
FORMS: Mapping[str, str] = {
    "FedAvg": "augment=0 norm=shared",
    "FedProx, µ = 0.01": "augment=0 norm=shared proximal=0.01",
    "FedBN, group normalisation": "augment=0",
    "FedBN, batch normalisation": "augment=0 norm=batch",
    "FRAug": f"PAPER ramp={RAMP}",
    "FRAug, batch normalisation": f"PAPER ramp={RAMP} norm=batch",
}
"""Rows: parameters beside those that all share."""
LOCAL, CENTRAL = "each member alone", "all records in one place"
PRIVATE_ROUNDS, PRIVATE_STEPS, SAMPLING = 20, 5, 0.05
PRIVATE = (
    f"model=cnn steps={PRIVATE_STEPS} sampling={SAMPLING} batch=45 rate=0.25 momentum=0 "
    "gradient_clip=1 clip=10 server=momentum generator_distance=l2 transfer_distance=l2"
)
"""The constants of `tests.benchmarks.training`."""
PRIVATE_RAMP = 0.1
"""RAMP over so few rounds."""
EPSILON = 8.0
MEMBERS, SMALL_SIDE = 200, 8
SMALL = "model=mlp:16 hidden=16 latent=8 steps=5 rate=0.2 clip=1"
"""Not tuned."""
OF_MEMBERS: Mapping[str, Any] = {"delta": DELTA, "adjacency": "add-remove", "unit": "client"}


def draw(name: str, data: Path, out: Path, seed: int) -> Dataset:
    """Return the data set that this seed draws, from a file that is made once."""
    path = out / f"{name}-{seed}.npz"
    if not path.exists():
        make = {"pacs": pacs, "members": small_digits}.get(name, digits)
        np.savez(path, **make(data, FRACTIONS[name], np.random.default_rng(seed)))  # type: ignore[arg-type]
    return open_dataset(str(path))


def digits(data: Path, fraction: float, generator: np.random.Generator) -> Arrays:
    """USPS, and MNIST as it is, inverted, and turned by a quarter: different records each, all of 28×28 pixels."""
    mnist, usps = np.load(data / "mnist_12k.npz"), np.load(data / "usps.npz")
    forms: dict[str, Callable[[Any], Any]] = {
        "inverted": lambda images: 255 - images,
        "mnist": lambda images: images,
        "turned": lambda images: np.rot90(images, axes=(1, 2)),
    }
    count = int(fraction * len(mnist["train_labels"]))
    rows = generator.permutation(len(mnist["train_labels"]))
    train = [
        (name, form(mnist["train_images"][mine]), mnist["train_labels"][mine])
        for (name, form), mine in zip(forms.items(), np.split(rows[: 3 * count], 3), strict=True)
    ]
    test = [(name, form(mnist["test_images"]), mnist["test_labels"]) for name, form in forms.items()]
    mine = generator.permutation(len(usps["train_labels"]))[: int(fraction * len(usps["train_labels"]))]
    train.append(("usps", _scaled(usps["train_images"][mine], 28), usps["train_labels"][mine]))
    test.append(("usps", _scaled(usps["test_images"], 28), usps["test_labels"]))
    return _joined("train", train) | _joined("test", test)


def small_digits(data: Path, fraction: float, generator: np.random.Generator) -> Arrays:
    """The same at SMALL_SIDE×SMALL_SIDE pixels."""
    found = digits(data, fraction, generator)
    return {name: _scaled(each, SMALL_SIDE) if name.endswith("images") else each for name, each in found.items()}


def pacs(data: Path, fraction: float, generator: np.random.Generator) -> Arrays:
    """Four domains; the held-out fifth of each is the same for every seed."""
    content, fixed = np.load(data / "pacs_32px.npz"), np.random.default_rng(0)
    train, test = [], []
    for name in ("art_painting", "cartoon", "photo", "sketch"):
        images, labels = content[f"{name}_images"], content[f"{name}_labels"]
        order = fixed.permutation(len(labels))
        held_out, rest = np.split(order, [int(HELD_OUT * len(labels))])
        mine = generator.permutation(rest)[: int(fraction * (1 - HELD_OUT) * len(labels))]
        train.append((name, images[mine], labels[mine]))
        test.append((name, images[held_out], labels[held_out]))
    return {**_joined("train", train), **_joined("test", test), "classes": content["classes"]}


def _scaled(images: np.ndarray[Any, Any], side: int) -> np.ndarray[Any, Any]:
    size, how = (side, side), Image.Resampling.BILINEAR
    return np.array([np.asarray(Image.fromarray(each).resize(size, how)) for each in images])


def _joined(part: str, domains: Sequence[tuple[str, Any, Any]]) -> Arrays:
    return {
        f"{part}_images": np.concatenate([images for _, images, _ in domains]),
        f"{part}_labels": np.concatenate([labels for _, _, labels in domains]),
        f"{part}_domain": np.concatenate([np.full(len(labels), name) for name, _, labels in domains]),
    }


def settings_of(name: str, form: str, seed: int) -> dict[str, Any]:
    """A row's settings: everything but `form` is every row's."""
    kind = name.split("-", maxsplit=1)[0]
    words = FORMS[form].replace("PAPER", PAPERS[kind])
    shared = f"model=cnn steps={STEPS} batch={BATCH} rate={RATE} momentum={MOMENTUM} clip=10"
    chosen = {
        "method": "fraug",
        "parameters": f"{shared} {words}",
        "partition": "column:domain",
        "rounds": ROUNDS,
        "every": ROUNDS,
        "protection": "none",
        "unit": "client",
        "noise_seed": seed,
        "reference": False,
    }
    return whole(chosen)


def whole(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of one run, defaults included."""
    (found,) = combinations({name: (value,) for name, value in chosen.items()}, 1)
    return dict(found)


def accuracies(run: Run) -> list[float]:
    """Per cent of each member, in the order of their domains: of its own model where it has one, else of all's."""
    if run.result is None:
        raise ValueError(str(run.refusal))
    if run.result["personal"]:
        (own,) = run.result["personal"]
        return [100 * each["accuracy"] for each in own["clients"]]
    return [100 * each["accuracy"] for _, each in sorted(run.result["by_domain"]["domains"].items())]


def without_sums(dataset: Dataset, seed: int) -> dict[str, list[float]]:
    """Accuracies of members who train alone, as often as in a federation, and of one model of all records.

    The one has batches four times as large.
    """
    x, labels, domains = _inputs(dataset.train)
    held_out, wanted, theirs = _inputs(dataset.test)
    names = sorted(set(domains))
    alone = []
    for name in names:
        model = _trained(x[domains == name], labels[domains == name], len(dataset.classes), BATCH, seed)
        alone.append(100 * float((model.predict(held_out) == wanted)[theirs == name].mean()))
    model = _trained(x, labels, len(dataset.classes), len(names) * BATCH, seed)
    right = model.predict(held_out) == wanted
    return {LOCAL: alone, CENTRAL: [100 * float(right[theirs == name].mean()) for name in names]}


def _inputs(records: Any) -> tuple[np.ndarray[Any, Any], ...]:
    """Records as programs take them: each without its mean, of length √d."""
    rows = records.inputs.reshape(len(records), -1).astype(np.float64)
    rows -= rows.mean(axis=1, keepdims=True)
    rows *= np.sqrt(rows.shape[1]) / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return rows.astype(np.float32), records.labels, records.columns["domain"]


def _trained(x: Any, labels: Any, classes: int, batch: int, seed: int) -> TrainedModel:
    """FedAvg's classifier after as many steps as a federation's members take, one after the other."""
    classifier = program_named("cnn-group", x.shape[1], classes)
    settings = AugmentedSettings(ROUNDS * STEPS, batch, RATE, MOMENTUM, 0.0, RATE, RATE, 1, 1.0)
    start = classifier.start(digest("public start", classifier.name.encode()))
    weights = Weights(0.0, 0.0, Distance.MMD, Distance.MMD, 1.0)
    none = np.zeros((classes, classifier.width))  # type: ignore[attr-defined]
    draws = SeededRandomness(f"without sums {seed}".encode(), TOKEN)
    flat, _ = train_augmented(Augmented(classifier, None), start, none, x, labels, settings, weights, draws)  # type: ignore[arg-type]
    return TrainedModel.of(classifier, flat)


def make_accuracy(name: str, data: Path, out: Path, workers: int | None, seeds: int) -> str:
    """Every form on one data set."""
    found: dict[str, list[list[float]]] = {form: [] for form in (*FORMS, LOCAL, CENTRAL)}
    domains: list[str] = []
    for seed in range(seeds):
        dataset = draw(name, data, out, seed)
        domains = sorted(set(dataset.train.columns["domain"]))
        flat = [settings_of(name, form, seed) for form in FORMS]
        folder = out / f"{name}-{seed}"
        runs = runs_of(dataset, flat, folder, Execution.of(folder, workers, say)).runs
        for form, run in zip(FORMS, runs, strict=True):
            found[form].append(accuracies(run))
        for form, values in without_sums(dataset, seed).items():
            found[form].append(values)
    rows = tuple((form, *_cells(values)) for form, values in found.items())
    caption = (
        f"{TITLES[name]}; a CNN of 72,000 parameters from scratch, {ROUNDS} rounds of {STEPS} steps on {BATCH} records "
        f"at the rate {RATE:g}: accuracy in per cent on each domain's held-out records, the mean of {seeds} seeds, and "
        "the standard deviation of the mean over domains."
    )
    return ResultTable(caption, ("", *domains, "mean"), rows).markdown()


def _cells(values: Sequence[Sequence[float]]) -> list[str]:
    """The mean over seeds of each domain, and of all."""
    table = np.array(values)
    whole = table.mean(axis=1)
    spread = f" ± {whole.std(ddof=1):.2f}" if len(values) > 1 else ""
    return [*(f"{mean(column):.2f}" for column in table.T), f"{whole.mean():.2f}{spread}"]


def make_private(data: Path, out: Path, workers: int | None, seeds: int) -> str:
    """The promise about records, on ten per cent of the digits; seed 0."""
    dataset = draw("digits-10", data, out, 0)
    shared = settings_of("digits-10", "FRAug", 0)
    promise = {"noise": "member", "unit": "record", "delta": DELTA, "adjacency": "add-remove"}
    forms = {"FRAug": f"{PAPERS['digits']} ramp={PRIVATE_RAMP}", "FedBN, group normalisation": "augment=0"}
    flat = [
        {
            **shared,
            **promise,
            "parameters": f"{PRIVATE} {words}",
            "rounds": PRIVATE_ROUNDS,
            "every": PRIVATE_ROUNDS,
            "epsilon": each,
        }
        for words in forms.values()
        for each in (EPSILON, float("inf"))
    ]
    runs = iter(runs_of(dataset, flat, out / "private", Execution.of(out / "private", workers, say)).runs)
    rows = tuple((form, *(f"{mean(accuracies(next(runs))):.2f}" for _ in range(2))) for form in forms)
    caption = (
        f"{TITLES['digits-10']}; DP-SGD inside the member, a record added or removed, δ = {DELTA:g}, {PRIVATE_ROUNDS} "
        f"rounds of {PRIVATE_STEPS} steps on a record with probability {SAMPLING:g}: accuracy in per cent, the mean of "
        "four members, seed 0."
    )
    return ResultTable(caption, ("", f"ε = {EPSILON:g}", "ε = ∞, the same steps"), rows).markdown()


def make_members(data: Path, out: Path, workers: int | None, seeds: int) -> str:
    """A promise about each of 200 members: its noise for the CNN and for small networks, and runs of these; seed 0."""
    rows = []
    for title, words, shape in (
        ("CNN, 28×28 pixels", "model=cnn clip=1", (28, 28)),
        ("mlp:16 on 8×8 pixels, hidden=16 latent=8", SMALL, (SMALL_SIDE, SMALL_SIDE)),
        ("the same without ω: FedBN", f"{SMALL} augment=0", (SMALL_SIDE, SMALL_SIDE)),
    ):
        settings = {"method": "fraug", "parameters": words, "clients": MEMBERS, "epsilon": EPSILON, **OF_MEMBERS}
        planned = (setup_for({**settings, "rounds": rounds}, shape) for rounds in (ROUNDS, PRIVATE_ROUNDS))
        rows.append((title, *(f"{noise_to_signal(each):.3g}" for each in planned)))
    caption = (
        f"{MEMBERS} members, masked, a promise about a whole member, ε = {EPSILON:g}, δ = {DELTA:g}: the length of a "
        "round's noise ÷ that of all updates where each is as long as it may be."
    )
    noise = ResultTable(caption, ("", f"{ROUNDS} rounds", f"{PRIVATE_ROUNDS} rounds"), tuple(rows)).markdown()
    return f"{noise}\n{_runs_of_members(data, out, workers)}"


def _runs_of_members(data: Path, out: Path, workers: int | None) -> str:
    """What the small networks are worth."""
    dataset = draw("members", data, out, 0)
    forms = {"FRAug": f"{PAPERS['digits']} ramp={PRIVATE_RAMP}", "FedBN, group normalisation": "augment=0"}
    chosen = {"method": "fraug", "partition": f"column:domain:{MEMBERS // 4}", "rounds": PRIVATE_ROUNDS}
    chosen |= {"every": PRIVATE_ROUNDS, "noise_seed": 0, "reference": False, "protection": "none"}
    flat = [
        whole({**chosen, "parameters": f"{SMALL} {words}", **promise})
        for words in forms.values()
        for promise in ({**OF_MEMBERS, "epsilon": EPSILON, "noise": "aggregator"}, {"unit": "client"})
    ]
    runs = iter(runs_of(dataset, flat, out / "members", Execution.of(out / "members", workers, say)).runs)
    rows = tuple((form, *(f"{mean(accuracies(next(runs))):.2f}" for _ in range(2))) for form in forms)
    caption = (
        f"{MEMBERS} members with some 60 digits of {SMALL_SIDE}×{SMALL_SIDE} pixels each, a quarter of them a domain; "
        f"{PRIVATE_ROUNDS} rounds ({SMALL}): accuracy in per cent, the mean of all members' own models, seed 0; one "
        "party adds the noise."
    )
    return ResultTable(caption, ("", f"ε = {EPSILON:g} a member", "no noise"), rows).markdown()


MAKERS: Mapping[str, Callable[[Path, Path, int | None, int], str]] = {
    **{name: partial(make_accuracy, name) for name in TITLES},
    "private": make_private,
    "members": make_members,
}


def main() -> None:
    """Make what was asked for and write the tables."""
    parser = argparse.ArgumentParser(description="FRAug and what it is built on, as in methods/RESULTS.md")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; a run in it is not repeated")
    parser.add_argument("--only", default=",".join(MAKERS), help="tables, separated by commas")
    parser.add_argument("--workers", type=int, default=None, help="processes; default: one per core")
    parser.add_argument("--seeds", type=int, default=3, help="of the tables of accuracy")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    made = []
    for name in chosen.only.split(","):
        print(name, file=sys.stderr)
        made.append(MAKERS[name](chosen.data, chosen.out, chosen.workers, chosen.seeds))
        (chosen.out / "fraug.md").write_text("\n".join(made), encoding="utf-8")
    print("\n".join(made))


if __name__ == "__main__":
    main()
