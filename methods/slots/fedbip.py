"""FedBiP: a diffusion model draws training pictures from secure sums of latents and concept vectors (Chen 2024).

The paper's members send every picture's latent, half of it another's, with noise of the schedule's last step. Here
latents are *summed*, over members, in J slots of each class in each domain, and the server interpolates between opened
means: in a sum over all records Σ(γz_i + (1 − γ)z_π(i)) = Σz_i, interpolation would be nothing, and pairs chosen from
the data's order would leave one record's part unbounded.

**What leaves a member of concept vectors**: of each class, and of each domain, what training moved its vector, and that
it has records of it. Both blocks' lengths are checked on integers: the movements together are no longer than the clip,
R_q in grid units, and each presence is R_q/√rows, so that a block is no longer than √2·R_q whatever the member has or
does. The promise is about members. A record moves its member's vectors by as much as training may: at record level the
same lengths count, of a member's whole part replaced (`SumSpec.sensitivity`), or ε is ∞.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from methods.method import SumSpec, Traits, clipped, domain_count, domains_of
from methods.round import Blocks, Contribution, Examples, Local, OpenedTotal, Round, SimpleRound, Step
from methods.slots.fedtc import CERTAIN
from methods.slots.slots import NAMES, Slots, Slotted, read_centres, spec_of_cells, sum_cells, told_centres
from secagg.agreement.policy import Effort
from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Grid
from secagg.encoding.layout import Block, Integers, Kind
from secagg.encoding.updates import integers_of_records
from secagg.errors import MalformedMessage, ProtocolViolation
from secagg.features import latents_of
from secagg.generation import ConceptTraining, train_concepts
from secagg.generation.concepts import LARGEST
from secagg.heads import Artifact
from secagg.networks import SlotMeans
from secagg.networks.slot_means import read_slot_means
from secagg.privacy import Unit
from secagg.wire import Range, require_in_range

OF_CLASS, OF_DOMAIN = "class_concepts", "domain_concepts"
TOLD_LEVELS = 1 << 20
"""Levels of a broadcast vector: its unit is the clip divided by this number."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ConceptSums:
    """The sum of concept vectors that clients train (`training`): `width` numbers for each class and each domain.

    A member's movements, of classes and of domains, are each no longer than `clip`, which is `levels` grid units.
    """

    domains: int
    width: int
    clip: float
    levels: int
    training: ConceptTraining

    def spec(self, classes: int, budget: float) -> SumSpec:
        """Specify the sum of concept vectors, a row for each class and each domain.

        Each row's last entry marks that records exist.
        There are C class and D domain rows of `width` + 1 entries.
        """
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
        """Return trained concept vectors, clipped, truncated, 0 for NaN. Raises BadInput without a diffusion model."""
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

    def broadcast_means(self, opened: OpenedTotal) -> Integers:
        """Return each concept's mean vector (C + D, width) over clients with records of it, as integers to send."""
        means = np.concatenate([self._mean(opened, name) for name in (OF_CLASS, OF_DOMAIN)])
        return np.rint(np.clip(means / self.clip, -1, 1) * TOLD_LEVELS).astype(np.int64)

    def vectors(self, told: Integers, classes: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Split broadcast concept vectors: classes' (C, width), domains' (D, width). Raises MalformedMessage."""
        if len(told) != classes + self.domains:
            raise MalformedMessage("Centres", f"{len(told)} concept vectors for {classes} classes")
        vectors = (told * (self.clip / TOLD_LEVELS)).astype(np.float32)
        return vectors[:classes], vectors[classes:]

    def _encode(self, moved: Floats, places: Integers) -> Integers:
        """Return movements (rows, width) as integers, and beside each row a mark if the member has a record of it."""
        rows = integers_of_records(moved.reshape(1, -1), self.clip, self.levels).reshape(moved.shape)
        present = np.bincount(places, minlength=len(moved)) > 0
        return np.column_stack([rows, present * self._one(len(moved))]).astype(np.int64)

    def _one(self, rows: int) -> int:
        """Return the mark of one row in grid units: R_q/⌈√rows⌉, so that all rows' marks have length R_q at most."""
        return self.levels // (math.isqrt(rows - 1) + 1)

    def _mean(self, opened: OpenedTotal, name: str) -> Floats:
        """Return the mean over members with records, divided by at least one member and the noise on their number."""
        block = opened.blocks[name] / opened.multiplier(name)
        one = self._one(len(block))
        sigma = opened.noise[name].of_record.sigma if opened.noise is not None else 0.0
        members = np.maximum(block[:, -1] / one, max(1.0, sigma / one))
        mean: Floats = block[:, :-1] * (self.clip / self.levels) / members[:, None]
        return mean


CONCEPT_SHARE = 0.5
"""The share of μ² of concept vectors, where there are any: no rule says how much they are worth beside latents."""
MOST_WIDTH = 1 << 13


@dataclass(frozen=True)
class FedBiP(Slotted):
    """The method FedBiP: counts (C, D, J) and sums (C, D, J, d) of image latents by class, D `domains`, J hash `slots`.

    A slot is a public hash of a record's integers (`slots.py`), with constants of the software, of which a plan
    chooses J and, by its levels, the integers: whoever writes plans can try many until a known record's slot is as they
    like, but cannot choose it. A class gate counts each slot by itself, so that every opened mean is of as many members
    as the gate says, and so is each domain. An exact plan that tells slots or domains apart takes none without one.

    With `concepts` 1 another secure sum comes before: vectors of `width` numbers for each class and domain, which each
    member trains for `epochs` in batches of `batch` at `rate` (the paper's 50, 8 and 0.1), no longer than `clip`
    (`ConceptSums`). Its promise is about members; a record's follows, as if all of its member's part were replaced.
    """

    name: ClassVar[str] = "fedbip"
    domains: str = ""
    slots: Slots = 1
    concepts: Annotated[int, Range(0, 1), "1: a sum of concept vectors, which members train, comes first"] = 0
    epochs: Annotated[int, Range(1, math.inf)] = 50
    rate: Annotated[float, Range(0, LARGEST, above=True)] = 0.1
    batch: Annotated[int, Range(1, math.inf)] = 8
    clip: Annotated[
        float,
        Range(0, math.inf, above=True, below=True),
        "Largest L2 norm of a member's concept vectors, of all classes and of all domains",
    ] = 10.0
    width: Annotated[int, Range(1, MOST_WIDTH), "Numbers of a concept vector"] = 768

    def __post_init__(self) -> None:
        self.require_domains()
        self.require_slots()
        require_in_range(self)

    @property
    def traits(self) -> Traits:
        """Requirements: records keep their mean (a picture's brightness); to train concept vectors, raw inputs."""
        usual, concepts = super().traits, self.concepts == 1
        return replace(usual, needs_gate=concepts or usual.needs_gate, keeps_mean=True, reads_inputs=concepts)

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        share = CONCEPT_SHARE if self.concepts else 0.0
        slots = replace(spec_of_cells((classes, *self.parts), dimension, levels), budget=1 - share)
        return (self._concept_sums(levels).spec(classes, share), slots) if self.concepts else (slots,)

    def contribute(self, local: Local) -> Contribution:
        if self.concepts:
            return self._concept_sums(local.grid.levels).contribute(local)
        return Contribution(self.slot_blocks(local))

    def slot_blocks(self, local: Local) -> Blocks:
        """Return the integer counts and sums of a client's latents by class, domain and hash slot."""
        return sum_cells(local.examples, self.cell_of(local.examples), (local.classes, *self.parts))

    def cells(self, examples: Examples, classes: int) -> Integers:
        """Return each example's part of its class: domain·J + hash slot (of J); −1 while concept vectors are summed."""
        return np.full(len(examples), -1, dtype=np.int64) if self.concepts else self.cell_of(examples)

    def finalize(self, opened: OpenedTotal) -> Step:
        if self.concepts:
            return Step(next_round=LatentRound(self, self._concept_sums(opened.grid.levels).broadcast_means(opened)))
        return Step(self.means(opened))

    def means(self, opened: OpenedTotal, concepts: Integers | None = None) -> SlotMeans:
        """Return the mean latent of each hash slot with records, and concept vectors. Raises BadInput if all are empty.

        Under noise of slots whose count is at least 1 + 3σ, σ being its noise; a class and domain without such a slot
        is represented by the mean of all its slots, as slot 0, their count taken as at least 1. None is longer than a
        record can be.
        """
        counts, sums, grid = opened.blocks[NAMES[0]], opened.blocks[NAMES[1]], opened.grid
        multiplier = opened.multiplier(NAMES[0])
        sigma = opened.noise[NAMES[0]].sigma if opened.noise is not None else 0.0
        counted, least = counts / multiplier, 1 + CERTAIN * sigma / multiplier
        held = counted >= least
        lone = sums.any(axis=(2, 3)) & ~held.any(axis=2)  # what a gate left out is zeros
        cells = np.concatenate([np.argwhere(held), np.pad(np.argwhere(lone), ((0, 0), (0, 1)))])
        weights = np.concatenate([counted[held], counted.sum(axis=2)[lone]])
        rows = np.concatenate([sums[held], sums.sum(axis=2)[lone]]) / np.maximum(weights, 1.0)[:, None]
        unit, offset = grid.unit(rows.shape[1]), 0.0 if grid.is_normalised else grid.centre
        rows *= np.minimum(1.0, unit / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0))
        means = rows * (grid.radius / unit) + offset
        return SlotMeans(
            classes=len(counts),
            domains=domains_of(self.parameters),
            normalised=grid.is_normalised,
            means=means.astype(np.float32),
            cells=cells.astype(np.int64),
            counts=weights.astype(np.float32),
            concepts=None if concepts is None else self._concept_sums(grid.levels).vectors(concepts, len(counts)),
        )

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        if not self.concepts:
            return super().decode_broadcast(broadcast, grid)
        entries = read_centres(broadcast, 1, TOLD_LEVELS)
        if len(entries) % self.width:
            raise MalformedMessage("Centres", f"{len(entries)} numbers are no vectors of {self.width}")
        return LatentRound(self, entries.reshape(-1, self.width))

    def read_artifact(self, content: bytes) -> tuple[Artifact, dict[str, str]]:
        return read_slot_means(content)

    def _concept_sums(self, levels: int) -> ConceptSums:
        training = ConceptTraining(self.epochs, self.rate, self.batch)
        return ConceptSums(domain_count(self.parameters), self.width, self.clip, levels, training)


@dataclass(frozen=True, eq=False)
class LatentRound(SimpleRound):
    """The round that sums latents by hash slot, after the concept vectors, broadcast as `concepts` (C + D, width)."""

    method: FedBiP
    concepts: Integers = field(repr=False)

    def contribute(self, local: Local) -> Contribution:
        return Contribution(self.method.slot_blocks(local))

    def cells(self, examples: Examples, classes: int) -> Integers:
        return self.method.cell_of(examples)

    def finalize(self, opened: OpenedTotal) -> Step:
        return Step(self.method.means(opened, self.concepts))

    def broadcast(self) -> bytes:
        return told_centres(1, self.concepts)

    def require_equal(self, told: Round) -> None:
        if not (isinstance(told, LatentRound) and np.array_equal(told.concepts, self.concepts)):
            raise ProtocolViolation(SERVER_INDEX, "the concept vectors it broadcasts do not follow from the sum")
