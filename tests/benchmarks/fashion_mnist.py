"""Features of Fashion-MNIST by two frozen networks, for the table in methods/RESULTS.md.

`python -m tests.benchmarks.fashion_mnist --data D --out F`

Grey images of 28 pixels are resized to 32 (bilinear) and repeated over three channels, inside the programs. D holds
the four original files in `fashion-mnist`, and the weights of `tests/threat_models/backbones.py` in `backbones`.
It takes some ten minutes for all 70,000 records on one idle core; features are kept as `secagg` keeps them
(SECAGG_CACHE), so that a second run only writes.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secagg.features import open_backbone
from tests.threat_models.backbones import IMAGENET, ResNet18, SqueezeNet, export

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
HEADER = {"images": 16, "labels": 8}
"""Bytes before the content of an idx file."""
PARTS = {"train": "train", "test": "t10k"}


def read(data: Path, part: str, kind: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """One of the four original files."""
    path = data / "fashion-mnist" / f"{PARTS[part]}-{kind}-idx{len(shape)}-ubyte.gz"
    with gzip.open(path) as file:
        return np.frombuffer(file.read()[HEADER[kind] :], dtype=np.uint8).reshape(shape)


def say(done: int, total: int) -> None:
    """Progress on stderr."""
    if done % 1000 == 0 or done == total:
        print(f"\r  {done} of {total}", end="" if done < total else "\n", file=sys.stderr)


def main() -> None:
    """Write the programs, the images and the features of both networks."""
    parser = argparse.ArgumentParser(description="Features of Fashion-MNIST by ResNet-18 (conv1–layer3) and SqueezeNet")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of images and weights")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--train", type=int, default=60_000, help="how many training records")
    parser.add_argument("--test", type=int, default=10_000, help="how many test records")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    content: dict[str, NDArray[np.generic]] = {"classes": np.array(CLASSES)}
    images = {}
    for part, count in (("train", chosen.train), ("test", chosen.test)):
        images[part] = read(chosen.data, part, "images", (-1, 28, 28))[:count]
        content[f"{part}_labels"] = read(chosen.data, part, "labels", (-1,))[:count].astype(np.int64)
    np.savez_compressed(chosen.out / "fashion_mnist.npz", **content, **{f"{k}_images": v for k, v in images.items()})
    weights = chosen.data / "backbones"
    networks = {"resnet18": ResNet18(weights, *IMAGENET), "squeezenet": SqueezeNet(weights)}
    for name, network in networks.items():
        program = chosen.out / f"{name}.pt2"
        if not program.exists():
            export(network, program, image_size=28, resize=32)
        backbone = open_backbone(str(program), (28, 28), progress=say)
        print(f"{name}: {backbone.dimension} features", file=sys.stderr)
        features = {f"{part}_features": backbone.extract(values).astype(np.float32) for part, values in images.items()}
        np.savez(chosen.out / f"fashion_mnist_{name}.npz", **content, **features)


if __name__ == "__main__":
    main()
