"""Texts of four domains with a sentiment, positive or negative: the data of `tests.benchmarks.feddat`.

They are tweets and sentences of film reviews, of Amazon reviews and of New York Times editorials, each with the mean
score of 20 people from −4 to 4 (Hutto and Gilbert, "VADER", 2014), in the PyPI package vaderSentiment 0.5 (MIT).
"""

from __future__ import annotations

import html
import io
import tarfile
import zipfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secagg.data import Dataset, Records
from secagg.data.records import DOMAIN
from secagg.data.triplets import join
from secagg.encoding.grid import Origin
from secagg.system.reading import sha256_of

SHA256 = "5d97c37f3ef6e24eef331122e055dbedafeb6a56abfce0608b326701116ea49a"
"""Of vaderSentiment-0.5.zip, the package's source distribution."""
INNER = "vaderSentiment-0.5/additional_resources/hutto_ICWSM_2014.tar.gz"
FILES = {
    "tweets": "tweets",
    "films": "movieReviewSnippets",
    "products": "amazonReviewSnippets",
    "editorials": "nytEditorialSnippets",
}
"""The domains, and the beginnings of their files' names."""
CLASSES = ("negative", "positive")
CLEAR = 1.0
"""A text is taken where its mean score is farther than this from 0."""
LONGEST = 100
"""Bytes of the longest text that is taken: nearly all then have no more than 24 tokens."""
TEST = 80
"""Test records of each domain and class."""


@dataclass(frozen=True, eq=False)
class Texts:
    """A domain's texts, their labels (n,), and the document (n,) that each is a sentence of."""

    texts: NDArray[np.str_]
    labels: NDArray[np.int64]
    documents: NDArray[np.str_]

    def take(self, rows: NDArray[np.int64]) -> Texts:
        """Return the texts at these indices."""
        return Texts(self.texts[rows], self.labels[rows], self.documents[rows])

    def first(self, count: int, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indices of the first `count` texts of each class in an order of the texts."""
        return np.concatenate([order[self.labels[order] == label][:count] for label in range(len(CLASSES))])


def parse(content: str) -> Texts:
    """Return the clear, short, distinct texts of a file: lines of identifier, mean score and text, between tabs."""
    lines = [line.split("\t", 2) for line in content.splitlines()]
    texts = [html.unescape(text).strip() for _, _, text in lines]
    often = Counter(texts)
    kept = [
        (text, float(score) > 0, name.partition("_")[0])
        for (name, score, _), text in zip(lines, texts, strict=True)
        if abs(float(score)) > CLEAR and len(text.encode()) <= LONGEST and often[text] == 1
    ]
    words, labels, documents = zip(*kept, strict=True)
    return Texts(np.array(words), np.array(labels, dtype=np.int64), np.array(documents))


def divided(whole: Texts, seed: int) -> tuple[Texts, Texts]:
    """Return the texts to train on, in a random order, and `TEST` of each class to test; no document is in both."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(np.unique(whole.documents))
    place = {name: number for number, name in enumerate(names)}
    order = np.argsort([place[name] for name in whole.documents], kind="stable")
    test = whole.first(TEST, order)
    rest = np.flatnonzero(~np.isin(whole.documents, whole.documents[test]))
    return whole.take(rng.permutation(rest)), whole.take(test)


@cache
def domains(package: Path) -> dict[str, tuple[Texts, Texts]]:
    """Return each domain's texts to train on and to test, always the same. Raises ValueError for another package."""
    if sha256_of(package) != SHA256:
        raise ValueError(f"{package} is not the source distribution of vaderSentiment 0.5")
    with zipfile.ZipFile(package) as outer, tarfile.open(fileobj=io.BytesIO(outer.read(INNER))) as inner:
        found = {}
        for number, (domain, name) in enumerate(FILES.items()):
            file = inner.extractfile(f"hutto_ICWSM_2014/{name}_GroundTruth.txt")
            assert file is not None
            found[domain] = divided(parse(file.read().decode("utf-8")), number)
    return found


def federation(package: Path, seed: int, count: int, held_out: int = 0) -> Dataset:
    """Return `count` training texts of each domain and class, drawn by the seed, and the test texts.

    With `held_out` the test texts are instead so many further training texts of each domain and class.
    """
    train: dict[str, Texts] = {}
    test: dict[str, Texts] = {}
    for number, (domain, (pool, fixed)) in enumerate(domains(package).items()):
        order = np.random.default_rng([seed, number]).permutation(len(pool.labels))
        drawn = pool.first(count, order)
        left = order[~np.isin(order, drawn)]
        train[domain] = pool.take(drawn)
        test[domain] = pool.take(pool.first(held_out, left)) if held_out else fixed
    return Dataset("sentiment", "triplets", records_of(train), records_of(test), CLASSES, is_named=False)


def records_of(by_domain: dict[str, Texts]) -> Records:
    """Return texts as records of a black pixel and a text, with the column `domain`."""
    texts = np.concatenate([each.texts for each in by_domain.values()])
    labels = np.concatenate([each.labels for each in by_domain.values()])
    names = np.repeat(list(by_domain), [len(each.labels) for each in by_domain.values()])
    inputs = join(np.zeros((len(texts), 1, 1, 3), dtype=np.uint8), texts.tolist())
    return Records(inputs, labels, {DOMAIN: names}, Origin.of("sentiment", np.arange(1, len(texts) + 1)))
