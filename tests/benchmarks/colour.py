"""Whether scattering should take colour: grey pixels, colour pixels, grey scattering and colour scattering compared.

`python -m tests.benchmarks.colour --data D`, where D holds cifar10_images_3k.npz (2,000 + 1,000 photographs, CIFAR-10).
Colour scattering is one rule: luminance at all orders, each chroma (BT.601) at orders 0 and 1, 1,035 numbers. Settings
and seeds were written down before the first run.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

from secagg import simulate
from secagg.experiments.results import student_interval
from secagg.experiments.tables import ResultTable
from secagg.features import Expansion, open_backbone
from tests.benchmarks.fashion_mnist import DATA

EPSILONS = (1.0, 4.0, math.inf)
SEEDS = range(5)
EXPANDED = 512
FIRST_ORDERS = 9 + 16 * 9
"""Orders 0 and 1 of the 729 numbers."""
BT601 = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])


def features_of(pictures: np.ndarray) -> dict[str, np.ndarray]:
    """Each kind of features (n, d) of colour pictures (n, h, w, 3) of bytes."""
    planes = [pictures @ row / 255.0 for row in BT601]
    scattering = open_backbone("scattering", pictures.shape[1:3])
    grey, *chroma = (scattering.extract(plane) for plane in planes)
    flat = [each.reshape(len(pictures), -1) for each in (planes[0], pictures / 255.0)]
    return {
        f"grey pixels, {EXPANDED} random features": Expansion(EXPANDED).expand(flat[0]),
        f"colour pixels, {EXPANDED} random features": Expansion(EXPANDED).expand(flat[1]),
        "grey scattering, 729": grey,
        "colour scattering, 1,035": np.hstack([grey, *(each[:, :FIRST_ORDERS] for each in chroma)]),
    }


def cells(train: np.ndarray, labels: np.ndarray, test: np.ndarray, truth: np.ndarray) -> list[str]:
    """The accuracy of one sum, of ten masked members, at each ε: mean over the seeds ± half the 95 % interval."""
    found = []
    for epsilon in EPSILONS:
        private = {"delta": 1e-5, "adjacency": "add-remove"} if math.isfinite(epsilon) else {}
        values = []
        for seed in SEEDS if private else SEEDS[:1]:  # without noise a partition changes no bit
            run = simulate(
                train, labels, test_features=test, test_labels=truth, clients=10, colluders=1, refine=0,
                epsilon=epsilon, seed=seed, noise_seed=seed, normalise="centred-unit", reference=False, **private,
            )  # fmt: skip
            values.append(100 * run.evaluation.accuracy)
        low, high = student_interval(tuple(values)) if len(values) > 1 else (values[0], values[0])
        found.append(f"{np.mean(values):.1f}" + (f" ± {(high - low) / 2:.1f}" if high > low else ""))
    return found


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description="Colour and grey scattering, side by side")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    with np.load(parser.parse_args().data / "cifar10_images_3k.npz") as file:
        train, test = (features_of(file[f"{part}_images"]) for part in ("train", "test"))
        labels, truth = (file[f"{part}_labels"].astype(np.int64) for part in ("train", "test"))
    body = tuple((kind, *cells(train[kind], labels, test[kind], truth)) for kind in train)
    header = ("one sum", *("∞" if math.isinf(epsilon) else f"{epsilon:g}" for epsilon in EPSILONS))
    print(ResultTable("CIFAR-10, 2,000 + 1,000 pictures: accuracy in per cent by ε.", header, body).markdown())


if __name__ == "__main__":
    main()
