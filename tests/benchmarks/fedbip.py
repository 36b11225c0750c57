"""The tables of FedBiP in methods/RESULTS.md: accuracy, noise on opened latents, audit; contact sheets to look at.

`python -m tests.benchmarks.fedbip --data D --model F --out O [--only table,noise,audit]`

D holds `fashion-mnist`; F is the folder that `tests.benchmarks.tiny_diffusion` writes, whose pictures none of the
members has. Twelve members, three of each of four styles; every seed draws their pictures anew. O receives the drawn
data, `sheet-SEED.png` and `fedbip.md`.

**The primary contrast**, fixed before its first run, is `CONTRASTS[0]`: the paper's classifier on generated pictures,
begun at the schedule's end, minus FedAvg of `ROUNDS` rounds, in accuracy on held-out pictures, paired by seed, over
`SEEDS` seeds, each with pictures of its own. Both train the same network by as many steps at the same effective rate.
The other contrast, begun halfway, is a description.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from secagg.data import Dataset, open_dataset
from secagg.encoding import inputs_of
from secagg.experiments.features import Features
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.features import Latents, open_backbone
from secagg.generation import GenerationSettings, Pictures, contact_sheet, generate, train_classifier
from secagg.generation.pictures import GRID, as_inputs
from secagg.networks import SlotMeans, program_named
from secagg.privacy.gaussian import mu_of
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from tests.benchmarks.contrasts import contrast_of
from tests.benchmarks.fashion_mnist import read
from threat_models.audit import audit

STYLES = ("plain", "inverted", "noisy", "blurred")
PICTURES = 750
"""Of each style and seed; a fifth of them is held out."""
SIDE, CLASSES, CLIENTS = 32, 10, 12
COUNT, STEPS = 15, 20
"""Generated pictures of each class and style, and steps of the sampler: what two cores make in the time."""
GUIDANCE = 1.0
"""None: the tiny network learnt to follow its vectors, and guidance takes twice the time."""
CONCEPTS = "concepts=1 width=32 epochs=10 batch=32"
"""Vectors as wide as the tiny model's; epochs and batch by time, the rate is the paper's."""
ROUNDS = 125
"""Of FedAvg, an epoch each in batches of 64: four steps of a member's 200 pictures, 500 in all. As many does the
classifier make on 600 generated pictures in 50 epochs of the same batches; a rate of 0.1 goes as far as its 0.01 with
momentum 0.9."""
FEDAVG = f"model=cnn rounds={ROUNDS} epochs=1 batch=64 rate=0.1 clip=20"
GENERATED, HALFWAY, MULTI_ROUND = (
    "sums, classifier on generated pictures",
    "the same from half of the schedule",
    f"FedAvg of {ROUNDS} rounds, CNN on pictures",
)
CONTRASTS = ((GENERATED, MULTI_ROUND), (HALFWAY, MULTI_ROUND))
"""The primary contrast, then the secondary one."""
SEEDS = 5
DELTA = 1e-5
Bytes = NDArray[np.uint8]


def main() -> int:
    """Run what was asked for and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("data", "model", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--only", default="table,noise,audit")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    lines = []
    if "noise" in chosen.only:
        lines += noise_table(chosen.data, chosen.model, chosen.out)
    if "table" in chosen.only:
        lines += accuracy_table([rows_of(chosen.data, chosen.model, chosen.out, seed) for seed in range(SEEDS)])
    if "audit" in chosen.only:
        lines += audit_table(chosen.data, chosen.model, chosen.out)
    (chosen.out / "fedbip.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def accuracy_table(runs: list[dict[str, Any]]) -> list[str]:
    """Every row's mean accuracy and standard deviation over the seeds, in per cent, and the contrasts."""
    lines = [f"| | accuracy, {len(runs)} seeds |", "|---|---:|"]
    for name in runs[0]["accuracy"]:
        values = [100 * run["accuracy"][name] for run in runs]
        lines.append(f"| {name} | {mean(values):.1f} ± {stdev(values):.1f} |")
    labels = [np.array(run["labels"]) for run in runs]
    minutes = sum(run["cpu_seconds"] for run in runs) / 60
    for names in CONTRASTS:
        ours, theirs = ([np.array(run["right"][name]) / len(run["labels"]) for run in runs] for name in names)
        found = contrast_of(" − ".join(names), ours, theirs, labels, same_records=False, cpu_minutes=minutes)
        lines += ["", f"{found.name}: {found.says()}"]
        lines += ["", found.as_toml("FedBiP")] if names == CONTRASTS[0] else []
    return lines


def styled(pictures: Bytes, style: str, rng: np.random.Generator) -> Bytes:
    """Grey pictures (n, 32, 32) in a style."""
    if style == "inverted":
        return 255 - pictures
    if style == "noisy":
        return np.clip(pictures + rng.normal(scale=40, size=pictures.shape), 0, 255).astype(np.uint8)
    if style == "blurred":
        return np.stack([np.asarray(Image.fromarray(each).filter(ImageFilter.GaussianBlur(2))) for each in pictures])
    return pictures


def draw(data: Path, out: Path, seed: int) -> Dataset:
    """Four styles of different pictures, 80 % for members."""
    shown = read(data, "train", "images", (-1, 28, 28))
    labels = read(data, "train", "labels", (-1,))
    rng, arrays = np.random.default_rng(seed), dict[str, Any]()
    rows = rng.permutation(len(shown))[: PICTURES * len(STYLES)].reshape(len(STYLES), PICTURES)
    for style, own in zip(STYLES, rows, strict=True):
        padded = np.pad(shown[own], ((0, 0), (2, 2), (2, 2)))
        arrays |= {f"{style}_images": styled(padded, style, rng), f"{style}_labels": labels[own].astype(np.int64)}
    np.savez(out / f"styles-{seed}.npz", **arrays)
    return open_dataset(str(out / f"styles-{seed}.npz"))


def rows_of(data: Path, model: Path, out: Path, seed: int) -> dict[str, Any]:
    """One seed's accuracies on held-out pictures of all styles, answers of the contrasts' rows, and CPU seconds."""
    path = out / f"rows-{seed}.json"
    if not path.exists():
        begun = time.process_time()
        found = measured_rows(data, model, out, seed)
        path.write_text(json.dumps({**found, "cpu_seconds": time.process_time() - begun}), encoding="utf-8")
    return dict[str, Any](json.loads(path.read_text(encoding="utf-8")))


def measured_rows(data: Path, model: Path, out: Path, seed: int) -> dict[str, Any]:
    """Accuracies of one seed, and of the contrasts' rows which pictures were named rightly."""
    dataset, backbone = draw(data, out, seed), f"diffusers:{model}"
    usual = {"clients": CLIENTS, "partition": f"column:domain:{CLIENTS // len(STYLES)}", "seed": seed}
    gated = {"class_gate": 2, "dropouts": 0, "colluders": 1}
    assert dataset.test is not None
    labels = dataset.test.labels
    found: dict[str, float] = {}
    right: dict[str, list[bool]] = {}

    def run(name: str, **settings: Any) -> Any:
        result = simulate_dataset(dataset, SimulationSettings(**{**usual, "reference": False, **settings}))
        if name:
            assert result.evaluation is not None
            found[name] = result.evaluation.accuracy
        sys.stderr.write(f"{seed}: {name}\n")
        return result

    secure = run("sums, the nearest slot mean", method="fedbip", backbone=backbone, **gated,
                 parameters=f"slots=4 {CONCEPTS}")  # fmt: skip
    run("sums at ε = 8 (record), the nearest mean", method="fedbip", backbone=backbone, dropouts=0,
        parameters="slots=1", epsilon=8.0, delta=DELTA, adjacency="add-remove")  # fmt: skip
    latents = open_backbone(backbone, (SIDE, SIDE))
    assert isinstance(latents, Latents)
    sheets = []
    for name, means, strength in (
        (GENERATED, secure.head, 1.0),
        (HALFWAY, secure.head, 0.5),
    ):
        made = generate(latents, means, GenerationSettings(COUNT, STEPS, strength, GUIDANCE, seed=seed))
        right[name] = classified(made, dataset, seed).tolist()
        found[name] = mean(right[name])
        sheets.append(made)
    write_sheet(sheets, dataset, latents, out / f"sheet-{seed}.png")
    run("one-shot FedAvg, CNN on pictures", method="fedavg-one-shot", parameters="model=cnn")
    trained = run(MULTI_ROUND, method="fedavg", parameters=FEDAVG)
    inputs = inputs_of(Features.of(dataset, trained.settings).test, trained.federated.setup.plan.grid)
    right[MULTI_ROUND] = (trained.head.predict(inputs) == labels).tolist()
    assert found[MULTI_ROUND] == mean(right[MULTI_ROUND])
    run("FedCGS on the same latents", method="fedcgs", backbone=backbone, refine=0)
    return {"accuracy": found, "right": right, "labels": labels.tolist()}


def classified(pictures: Pictures, dataset: Dataset, seed: int) -> NDArray[np.bool_]:
    """Which held-out pictures a CNN names rightly that was trained on these pictures alone."""
    program = program_named("cnn", SIDE * SIDE, CLASSES)
    model = train_classifier(pictures, (SIDE, SIDE), program, SeededRandomness(f"cnn {seed}".encode(), TOKEN))
    assert dataset.test is not None
    x = inputs_of(as_inputs(coloured(dataset.test.inputs), (SIDE, SIDE)), GRID)
    return np.asarray(model.predict(x) == dataset.test.labels)


def coloured(pictures: NDArray[Any]) -> Bytes:
    """Grey pictures (n, h, w) with three channels."""
    return np.repeat(pictures.astype(np.uint8)[..., None], 3, axis=3)


def write_sheet(sets: list[Pictures], dataset: Dataset, latents: Latents, path: Path) -> None:
    """Of each class a picture in each style, a row for each set, and below the first set members' nearest pictures."""
    rows = []
    known = latents.extract(dataset.train.inputs)
    for number, each in enumerate(sets):
        shown = [np.flatnonzero((each.labels == c) & (each.domains == d))[:1] for d in range(4) for c in range(CLASSES)]
        pixels = each.pixels[np.concatenate(shown)]
        rows.append(pixels)
        if number == 0:
            seen = latents.extract(pixels.mean(axis=3).round().astype(np.uint8))
            squares = (known**2).sum(axis=1) - 2 * seen @ known.T
            rows.append(coloured(dataset.train.inputs[squares.argmin(axis=1)]))
    contact_sheet(rows, path)


def noise_table(data: Path, model: Path, out: Path) -> list[str]:
    """σ of an entry of a class's mean latent, measured in one run, beside R/(n·μ)."""
    lines = ["| records a class | ε | measured | R/(n·μ) |", "|---:|---:|---:|---:|"]
    shown = read(data, "train", "images", (-1, 28, 28))
    labels = read(data, "train", "labels", (-1,))
    for count in (100, 1000):
        rows = np.concatenate([np.flatnonzero(labels == label)[:count] for label in range(CLASSES)])
        path = out / f"noise-{count}.npz"
        np.savez(path, images=np.pad(shown[rows], ((0, 0), (2, 2), (2, 2))), labels=labels[rows].astype(np.int64))
        dataset = open_dataset(str(path))
        usual = {"method": "fedbip", "parameters": "slots=1", "backbone": f"diffusers:{model}", "reference": False,
                 "normalise": "unit", "seed": 1}  # fmt: skip
        exact = simulate_dataset(dataset, SimulationSettings(**usual)).head
        for epsilon in (1.0, 8.0):
            promise = {"epsilon": epsilon, "delta": DELTA, "adjacency": "add-remove"}
            noisy = simulate_dataset(dataset, SimulationSettings(**usual, **promise)).head
            assert isinstance(exact, SlotMeans)
            assert isinstance(noisy, SlotMeans)
            radius = (noisy.means.shape[1] - 1) ** 0.5
            sigma = float((noisy.means - exact.means).std()) * radius
            expected = radius / (float(exact.counts.mean()) * mu_of(epsilon, DELTA))
            lines.append(f"| {exact.counts.mean():.0f} | {epsilon:g} | {sigma:.3f} | {expected:.3f} |")
    return [*lines, ""]


def audit_table(data: Path, model: Path, out: Path) -> list[str]:
    """What the audit finds of members' pictures in sums, generated pictures and published latents, one run each.

    AUC of a Gaussian likelihood, and of the matched filter; then members' share of the records that are pointed at, and
    in brackets of all candidates.
    """
    draw(data, out, 0)
    exact = {"class_gate": 2}
    private = {"epsilon": 8.0, "delta": DELTA, "adjacency": "add-remove"}
    lines = ["| slots of a class, in a style | ε | AUC, likelihood | AUC, filter | sums | generated | published |",
             "|---:|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for slots, promise in ((1, exact), (4, exact), (1, private)):
        settings = {
            **promise,
            "method": "fedbip",
            "parameters": f"slots={slots} domains={'+'.join(STYLES)}",
            "clients": CLIENTS,
            "partition": f"column:domain:{CLIENTS // len(STYLES)}",
            "dropouts": 0,
            "backbone": f"diffusers:{model}",
        }
        report = audit(dataset=str(out / "styles-0.npz"), threat_models=["curious_server"], **settings).to_json()
        (findings,) = [each["findings"] for each in report["adversaries"]]
        asked = "reidentification_latents", "membership_release"
        measures = {each["id"]: each for found in findings if found["attack"] in asked for each in found["measures"]}
        areas = [measures[name] for name in ("auc.from_release", "auc.slots")]
        cells = [f"{area['value']:.2f} ({area['low']:.2f} to {area['high']:.2f})" for area in areas]
        for name in ("slots", "generated", "published"):
            own = measures.get(f"reidentified.{name}")
            cells.append(f"{100 * own['value']:.0f} % ({100 * own['baseline']:.0f} %)" if own else "none pointed at")
        lines.append(f"| {slots} | {promise.get('epsilon', '∞')} | {' | '.join(cells)} |")
    return [*lines, ""]


if __name__ == "__main__":
    sys.exit(main())
