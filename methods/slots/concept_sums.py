"""Concept vectors of all members in one secure sum, each member's part no longer than a clip.

**What leaves a member**: of each class, and of each domain, what training moved its vector, and that it has records of
it. Both blocks' lengths are checked on integers: the movements together are no longer than the clip, R_q in grid units,
and each presence is R_q/√rows, so that a block is no longer than √2·R_q whatever the member has or does. The promise is
about members. A record moves its member's vectors by as much as training may: at record level the same lengths count,
of a member's whole part replaced (`SumSpec.sensitivity`), or ε is ∞.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from methods.method import SumSpec, clipped
from methods.round import Contribution, Local, Opened
from methods.slots.slots import read_centres
from secagg.agreement.policy import Effort
from secagg.encoding.layout import Block, Integers, Kind
from secagg.encoding.updates import integers_of_records
from secagg.errors import MalformedMessage
from secagg.features import latents_of
from secagg.generation import ConceptTraining, train_concepts
from secagg.privacy import Unit

OF_CLASS, OF_DOMAIN = "class_concepts", "domain_concepts"
TOLD_LEVELS = 1 << 20
"""A vector is told in units of the clip over this many."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ConceptSums:
    """Vectors of `width` numbers for each class and each of so many `domains`, trained from zeros by `training`.

    A member's movements, of classes and of domains, are each no longer than `clip`, which is `levels` grid units.
    """

    domains: int
    width: int
    clip: float
    levels: int
    training: ConceptTraining

    def spec(self, classes: int, budget: float) -> SumSpec:
        """Rows (C, width + 1) and (D, width + 1), whose last entry says that a member has records of them."""
        rows = {OF_CLASS: classes, OF_DOMAIN: self.domains}
        blocks = tuple(
            Block(name, (count, self.width + 1), bound=self.levels, kind=Kind.UPDATE) for name, count in rows.items()
        )
        lengths = {name: math.sqrt(2.0) * self.levels for name in rows}
        return SumSpec(
            blocks=blocks,
            sensitivities=clipped(blocks, lengths),
            shares="equal",
            per=Unit.CLIENT,
            budget=budget,
            is_additive=False,
            effort=Effort(epochs=self.training.epochs, parameters=sum(rows.values()) * self.width),
        )

    def contribute(self, local: Local) -> Contribution:
        """Train, clip, truncate to integers. What is no number sends zeros. Raises BadInput for another backbone."""
        examples, zeros = local.examples, (np.zeros((local.classes, self.width)), np.zeros((self.domains, self.width)))
        if local.feature_map is None:
            trained = zeros
        else:
            latents = local.feature_map.latents
            lengths = np.linalg.norm(examples.records, axis=1, keepdims=True)
            records = latents_of(examples.records / lengths), examples.labels, examples.domains
            trained = train_concepts(latents, zeros, records, self.training, local.randomness)
        places = (OF_CLASS, examples.labels), (OF_DOMAIN, examples.domains)
        return Contribution({name: self._encode(own, rows) for (name, rows), own in zip(places, trained, strict=True)})

    def told(self, opened: Opened) -> Integers:
        """The mean vectors (C + D, width) over the members that have records of each, as they are told."""
        means = np.concatenate([self._mean(opened, name) for name in (OF_CLASS, OF_DOMAIN)])
        return np.rint(np.clip(means / self.clip, -1, 1) * TOLD_LEVELS).astype(np.int64)

    def vectors(self, told: Integers, classes: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Undo `told`: of classes (C, width) and of domains (D, width). Raises MalformedMessage for fewer or more."""
        if len(told) != classes + self.domains:
            raise MalformedMessage("Centres", f"{len(told)} concept vectors for {classes} classes")
        vectors = (told * (self.clip / TOLD_LEVELS)).astype(np.float32)
        return vectors[:classes], vectors[classes:]

    def _encode(self, moved: Floats, places: Integers) -> Integers:
        """Movements (rows, width), and beside each row whether a record is in its place."""
        rows = integers_of_records(moved.reshape(1, -1), self.clip, self.levels).reshape(moved.shape)
        present = np.bincount(places, minlength=len(moved)) > 0
        return np.column_stack([rows, present * self._one(len(moved))]).astype(np.int64)

    def _one(self, rows: int) -> int:
        """A presence among so many rows in grid units: R_q/⌈√rows⌉, so that all of them are no longer than R_q."""
        return self.levels // (math.isqrt(rows - 1) + 1)

    def _mean(self, opened: Opened, name: str) -> Floats:
        """Over members that have records; never divided by less than one of them, or than the noise on their number."""
        block = opened.blocks[name] / opened.multiplier(name)
        one = self._one(len(block))
        sigma = opened.noise[name].of_record.sigma if opened.noise is not None else 0.0
        members = np.maximum(block[:, -1] / one, max(1.0, sigma / one))
        mean: Floats = block[:, :-1] * (self.clip / self.levels) / members[:, None]
        return mean


def read_concepts(broadcast: bytes, width: int) -> Integers:
    """The vectors (C + D, width) of a broadcast. Raises MalformedMessage."""
    entries = read_centres(broadcast, 1, TOLD_LEVELS)
    if len(entries) % width:
        raise MalformedMessage("Centres", f"{len(entries)} numbers are no vectors of {width}")
    return entries.reshape(-1, width)
