"""Means of slots (hashed subsets of a class's records) from an opened sum, to generate pictures or classify records."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.heads import Artifact, parse_tensors
from secagg.heads.linear import ABSENT_BIAS

KIND, SLOT_MEANS = "kind", "slot means"
"""Key of a text in a file, and the text for this artifact."""
CLASSES, DOMAINS, NORMALISED = "classes_in_all", "domains", "normalised"
YES, NO = "yes", "no"
MEANS, CELLS, COUNTS = "means", "cells", "counts"
OF_CLASS, OF_DOMAIN = "class_concepts", "domain_concepts"
COUNT = re.compile(r"[1-9][0-9]{0,5}")
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class SlotMeans(Artifact):
    """Means (m, d) of m slots (subsets of a class's records), with `cells` (m, 3): class, domain, slot; `counts` (m,).

    Means are as heads take features: of records that are `normalised` to length 1, or as they are. `concepts`, where
    there are any, are a vector for each class (C, e) and for each domain (D, e). Raises BadInput for what does not fit
    together.
    """

    classes: int
    domains: tuple[str, ...]
    normalised: bool
    means: Floats = field(repr=False)
    cells: NDArray[np.int64] = field(repr=False)
    counts: Floats = field(repr=False)
    concepts: tuple[Floats, Floats] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        m = len(self.means)
        shapes = self.means.ndim == 2 and self.cells.shape == (m, 3) and self.counts.shape == (m,)
        if not (m and shapes):
            raise BadInput("there are no means of slots", remedy="the sum takes records of one class at least")
        limits = self.classes, max(1, len(self.domains)), np.iinfo(np.int64).max
        if not ((self.cells >= 0) & (self.cells < limits)).all():
            raise BadInput(f"a mean is of none of {limits[0]} classes and {limits[1]} domains")
        if not all(array.dtype == np.float32 and np.isfinite(array).all() for array in (self.means, self.counts)):
            raise BadInput("means of slots are finite float32")
        if self.concepts is None:
            return
        of_class, of_domain = self.concepts
        rows = limits[:2]
        fit = of_class.ndim == of_domain.ndim == 2 and (len(of_class), len(of_domain)) == rows
        if not fit or of_class.shape[1] != of_domain.shape[1]:
            raise BadInput(f"concepts of shape {of_class.shape} and {of_domain.shape}, not for {rows}")
        if not all(each.dtype == np.float32 and np.isfinite(each).all() for each in (of_class, of_domain)):
            raise BadInput("concepts are finite float32")

    @property
    def tensors(self) -> Mapping[str, NDArray[Any]]:
        named: dict[str, NDArray[Any]] = {MEANS: self.means, CELLS: self.cells, COUNTS: self.counts}
        return named | (dict(zip((OF_CLASS, OF_DOMAIN), self.concepts, strict=True)) if self.concepts else {})

    @property
    def texts(self) -> Mapping[str, str]:
        domains = "+".join(self.domains)
        return {
            KIND: SLOT_MEANS,
            CLASSES: str(self.classes),
            DOMAINS: domains,
            NORMALISED: YES if self.normalised else NO,
        }

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of a line of JSON (metadata `texts`, the tensors' shapes), then the tensors, little-endian."""
        shapes = [[name, list(array.shape)] for name, array in self.tensors.items()]
        line = json.dumps([list(self.texts.items()), shapes], separators=(",", ":")) + "\n"
        content = (array.astype(array.dtype.newbyteorder("<")).tobytes() for array in self.tensors.values())
        return hashlib.sha256(line.encode() + b"".join(content)).hexdigest()

    def require_fit(self, classes: int, dimension: int) -> None:
        if (self.classes, self.means.shape[1]) != (classes, dimension):
            raise BadInput(f"the means are of {self.classes} classes and {self.means.shape[1]} features")

    def is_close_to(self, other: Artifact) -> bool:
        return isinstance(other, SlotMeans) and self.texts == other.texts and super().is_close_to(other)

    def scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return scores (n, C): 2⟨f, m⟩ − ‖m‖² of each class's nearest mean m; `ABSENT_BIAS` for a class without means.

        Raises BadInput for features of another length.
        """
        if features.ndim != 2 or features.shape[1] != self.means.shape[1]:
            raise BadInput(f"the means have {self.means.shape[1]} features, got records {features.shape[1:]}")
        means: NDArray[np.float64] = self.means.astype(np.float64)
        found = np.full((len(features), self.classes), float(ABSENT_BIAS))
        near = 2 * features @ means.T - (means * means).sum(axis=1)
        for label in np.unique(self.cells[:, 0]):
            found[:, label] = near[:, self.cells[:, 0] == label].max(axis=1)
        return found

    def among(self, rows: NDArray[np.int64], classes: int) -> SlotMeans:
        """Return a copy with `classes` classes: class i gets the index rows[i]; new ones no mean, and zero concepts."""
        cells = np.column_stack([rows[self.cells[:, 0]], self.cells[:, 1:]])
        concepts = self.concepts
        if concepts is not None:
            wide = np.zeros((classes, concepts[0].shape[1]), dtype=np.float32)
            wide[rows] = concepts[0]
            concepts = wide, concepts[1]
        return SlotMeans(classes, self.domains, self.normalised, self.means, cells, self.counts, concepts)


def read_slot_means(content: bytes) -> tuple[SlotMeans, dict[str, str]]:
    """Return the slot means and the metadata in a file that `to_safetensors` made. Raises BadInput for other files."""
    tensors, texts = parse_tensors(content)
    wanted = {MEANS, CELLS, COUNTS} | ({OF_CLASS, OF_DOMAIN} & set(tensors))
    if texts.get(KIND) != SLOT_MEANS or set(tensors) != wanted or len(wanted) == 4:
        raise BadInput("the file holds no means of slots")
    told = bool(COUNT.fullmatch(texts.get(CLASSES, ""))) and texts.get(NORMALISED) in (YES, NO)
    if not told or tensors[CELLS].dtype != np.int64:
        raise BadInput("the file does not say what its means are of")
    domains = tuple(name for name in texts.get(DOMAINS, "").split("+") if name)
    concepts = (tensors[OF_CLASS], tensors[OF_DOMAIN]) if OF_CLASS in tensors else None
    known = int(texts[CLASSES]), domains, texts[NORMALISED] == YES
    return SlotMeans(*known, tensors[MEANS], tensors[CELLS], tensors[COUNTS], concepts), texts
