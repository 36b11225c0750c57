"""Small federations whose members differ in what they see, in which classes they see, or in both.

Five domains of digits (MNIST, the same turned by 45°, inverted, and noisy; USPS) and the four of PACS, as the features
of frozen networks. No record is in two domains or in two parts; parts are cut once, by a fixed seed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from secagg.data import Dataset, Records
from secagg.data.records import DOMAIN
from secagg.encoding.grid import Origin
from secagg.features import open_backbone
from tests.threat_models.backbones import IMAGENET, ResNet18, SqueezeNet, export

Images = NDArray[np.uint8]
MEMBER = "member"
CUT = 2022
"""Seed of the parts, of the noise in pictures, and of nothing else."""
RECORDS = 100
"""Of one member."""
ALPHA = 1.0
"""Dirichlet's, of the classes of a member under label shift."""
TURN, NOISE = 45.0, 64.0
"""Degrees; standard deviation in grey levels of 255."""


class Shift(StrEnum):
    """In what members differ."""

    LABEL = "label"
    """Each has classes of its own, by Dirichlet's distribution, of all the domains that the pool mixes."""
    FEATURE = "feature"
    """Each has a domain of its own, and every class alike."""
    BOTH = "both"
    """Each has a domain of its own, and classes by Dirichlet's distribution."""


class Part(StrEnum):
    """What records are for."""

    MEMBERS = "members"
    """Members of the tables draw from these, and are measured on TEST."""
    TEST = "test"
    TRIAL = "trial"
    """Members draw from these where constants are chosen, and are measured on HELD_OUT. Both are training records."""
    HELD_OUT = "held-out"


SIZES = {Part.MEMBERS: 1300, Part.TRIAL: 500, Part.HELD_OUT: 400, Part.TEST: 500}
"""Records of a domain; of PACS, whose smallest domain has 1,670, so many of 1,670 in proportion."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Features (n, d), labels (n,), domains (n,) and parts (n,) of all records."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    domains: NDArray[np.str_]
    parts: NDArray[np.str_]
    classes: tuple[str, ...]
    mixed: tuple[str, ...]
    """Domains from which members draw where only labels shift."""

    @property
    def names(self) -> tuple[str, ...]:
        """The domains, sorted."""
        return tuple(sorted(set(self.domains.tolist())))

    def beside(self, other: Pool) -> Pool:
        """The same records with the features of both side by side, each of length 1."""
        parts = [each.features / np.linalg.norm(each.features, axis=1, keepdims=True) for each in (self, other)]
        return replace(self, features=np.concatenate(parts, axis=1))

    def federation(self, shift: Shift, seed: int, *, is_trial: bool = False) -> Dataset:
        """Members' records, the column `member` saying whose, and all held-out ones; the seed draws the former.

        Under label shift there are as many members as there are domains.
        """
        source, held_out = (Part.TRIAL, Part.HELD_OUT) if is_trial else (Part.MEMBERS, Part.TEST)
        draw = np.random.default_rng([seed, list(Shift).index(shift)])
        free = np.flatnonzero(self.parts == source)
        chosen, owners = [], []
        for number, domain in enumerate(self.names):
            among = self.mixed if shift is Shift.LABEL else (domain,)
            mine = free[np.isin(self.domains[free], among)]
            count = len(self.classes)
            shares = np.full(count, 1 / count) if shift is Shift.FEATURE else draw.dirichlet(np.full(count, ALPHA))
            rows = _take(mine, self.labels, shares, draw)
            free = np.setdiff1d(free, rows)
            chosen.append(rows)
            owners += [str(number)] * len(rows)
        test = np.flatnonzero(self.parts == held_out)
        if shift is Shift.LABEL:
            test = test[np.isin(self.domains[test], self.mixed)]
        train = self._records(np.concatenate(chosen), shift, member=np.array(owners))
        return Dataset(shift, "features", train, self._records(test, shift), self.classes, None, None, None)

    def _records(self, rows: NDArray[np.int64], shift: Shift, **columns: NDArray[np.str_]) -> Records:
        """Under label shift nobody is told of domains: every member has the same mixture."""
        domains = {} if shift is Shift.LABEL else {DOMAIN: self.domains[rows]}
        origin = Origin.of("pool", rows + 1)
        return Records(self.features[rows].astype(np.float64), self.labels[rows], {**domains, **columns}, origin)


def _take(
    free: NDArray[np.int64], labels: NDArray[np.int64], shares: NDArray[np.float64], draw: np.random.Generator
) -> NDArray[np.int64]:
    """`RECORDS` of the free rows with these shares of the classes; fewer where a class has not enough."""
    ends = np.rint(np.cumsum(shares) * RECORDS).astype(np.int64)
    wanted = np.diff(ends, prepend=0)
    found = [draw.permutation(free[labels[free] == label])[:count] for label, count in enumerate(wanted)]
    return np.concatenate(found)


def digit_images(data: Path) -> dict[str, tuple[Images, NDArray[np.int64], NDArray[np.str_]]]:
    """Images (n, 28, 28), labels and parts of every domain; the test part is of the sets' own test files."""
    noise = np.random.default_rng(CUT)
    with np.load(data / "mnist_12k.npz") as file:
        mnist = {part: (file[f"{part}_images"], file[f"{part}_labels"]) for part in ("train", "test")}
    with np.load(data / "usps.npz") as file:
        usps = {part: (_enlarged(file[f"{part}_images"]), file[f"{part}_labels"]) for part in ("train", "test")}
    changes: Mapping[str, Callable[[Images], Images]] = {
        "mnist": lambda images: images,
        "rotated": _turned,
        "inverted": lambda images: 255 - images,
        "noisy": lambda images: np.clip(images + noise.normal(0, NOISE, images.shape), 0, 255).astype(np.uint8),
    }
    order = {part: noise.permutation(len(labels)) for part, (_, labels) in mnist.items()}
    found = {}
    for place, (name, change) in enumerate(changes.items()):
        own = {part: np.array_split(order[part], len(changes))[place] for part in order}
        found[name] = _parted({part: (change(mnist[part][0][own[part]]), mnist[part][1][own[part]]) for part in own})
    shuffled = {part: noise.permutation(len(labels)) for part, (_, labels) in usps.items()}
    found["usps"] = _parted({part: (usps[part][0][rows], usps[part][1][rows]) for part, rows in shuffled.items()})
    return found


def _parted(
    halves: Mapping[str, tuple[Images, NDArray[Any]]],
) -> tuple[Images, NDArray[np.int64], NDArray[np.str_]]:
    """The records of a domain that are used: of its training half three parts, of its test half one."""
    images, labels, parts, start = [], [], [], 0
    for part, size in SIZES.items():
        half = halves["test" if part is Part.TEST else "train"]
        begin = 0 if part is Part.TEST else start
        images.append(half[0][begin : begin + size])
        labels.append(half[1][begin : begin + size].astype(np.int64))
        parts += [part] * len(labels[-1])
        start += 0 if part is Part.TEST else size
    return np.concatenate(images), np.concatenate(labels), np.array(parts, dtype=np.str_)


def pacs_records(
    path: Path, kind: str = "images"
) -> tuple[dict[str, tuple[NDArray[Any], NDArray[np.int64], NDArray[np.str_]]], tuple[str, ...]]:
    """Images or features (n, …), labels and parts of every domain, in the proportions of `SIZES`; and the classes.

    Files of PACS have the records in one order, so that the parts are the same.
    """
    draw, found = np.random.default_rng(CUT), {}
    with np.load(path) as file:
        for key in sorted(each for each in file.files if each.endswith(f"_{kind}")):
            name = key.removesuffix(f"_{kind}")
            order = draw.permutation(len(file[key]))
            ends = np.cumsum([len(order) * size // sum(SIZES.values()) for size in SIZES.values()])
            parts = np.repeat(np.array(list(SIZES), dtype=np.str_), np.diff(ends, prepend=0))
            rows = order[: ends[-1]]
            found[name] = file[key][rows], file[f"{name}_labels"][rows].astype(np.int64), parts
        classes = tuple(file["classes"].tolist())
    return found, classes


def _enlarged(images: Images) -> Images:
    return np.stack([np.asarray(Image.fromarray(each).resize((28, 28), Image.Resampling.BILINEAR)) for each in images])


def _turned(images: Images) -> Images:
    return np.stack([np.asarray(Image.fromarray(each).rotate(TURN, Image.Resampling.BILINEAR)) for each in images])


COMPLETE = {
    "PACS by MobileNetV2": ("mobilenetv2",),
    "PACS by MobileNetV2 and EfficientNet-Lite2": ("mobilenetv2", "efficientnet_lite2"),
}
"""Features by complete networks, of pictures of 224 pixels."""
NAMES = "digits by SqueezeNet", "PACS by both", "PACS by layer3", "PACS by SqueezeNet", *COMPLETE
"""The sets of features."""


def pool_named(name: str, data: Path, out: Path) -> Pool:
    """One of the sets of features `NAMES`. Programs and features are kept in `out`."""
    if name == NAMES[0]:
        digits = digit_images(data)
        return _pool(
            digits, tuple(map(str, range(10))), ("mnist",), _extracted(data, out, "digits", "squeezenet", digits, 28)
        )
    if name in COMPLETE:
        return _complete(data, COMPLETE[name])
    pictures, classes = pacs_records(data / "pacs_32px.npz")
    layer3, wide = (
        _pool(pictures, classes, tuple(pictures), _extracted(data, out, "pacs", network, pictures, 32))
        for network in ("resnet18", "squeezenet")
    )
    return {NAMES[1]: layer3.beside(wide), NAMES[2]: layer3, NAMES[3]: wide}[name]


def _complete(data: Path, networks: Sequence[str]) -> Pool:
    pools = []
    for network in networks:
        path = data / f"pacs_{network}_features_224px.npz"
        domains, classes = pacs_records(path, "features")
        with np.load(path) as file:
            features = np.concatenate([values for values, _, _ in domains.values()]) * file["scale"]
        pools.append(_pool(domains, classes, tuple(domains), features))
    first, *others = pools
    return first.beside(*others) if others else first


def _pool(
    domains: Mapping[str, tuple[NDArray[Any], NDArray[np.int64], NDArray[np.str_]]],
    classes: tuple[str, ...],
    mixed: tuple[str, ...],
    features: NDArray[np.float32],
) -> Pool:
    labels = np.concatenate([labels for _, labels, _ in domains.values()])
    names = np.concatenate([np.full(len(labels), name) for name, (_, labels, _) in domains.items()])
    parts = np.concatenate([parts for _, _, parts in domains.values()])
    return Pool(features, labels, names, parts, classes, mixed)


def _extracted(
    data: Path, out: Path, task: str, network: str, domains: Mapping[str, Sequence[Any]], pixels: int
) -> NDArray[np.float32]:
    """The network's features of all images, domain after domain; 28 pixels are enlarged to 32."""
    kept = out / f"{task}-{network}.npy"
    if kept.exists():
        return np.asarray(np.load(kept), dtype=np.float32)
    print(f"features of {task} by {network}", file=sys.stderr)
    weights = data / "backbones"
    made = ResNet18(weights, *IMAGENET) if network == "resnet18" else SqueezeNet(weights)
    program = export(made, out / f"{task}-{network}.pt2", image_size=pixels, resize=32 if pixels != 32 else None)
    images = np.concatenate([images for images, _, _ in domains.values()])
    features = open_backbone(str(program), images.shape[1:]).extract(images).astype(np.float32)
    np.save(kept, features)
    return features
