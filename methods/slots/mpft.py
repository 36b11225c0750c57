"""MPFT: an adapter trained on the prototypes of every class in every domain (Zhang et al. 2025)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from methods.method import SumSpec, Traits, domain_count
from methods.round import Contribution, Examples, Local, OpenedTotal, Round, SimpleRound, Step
from methods.slots.fedtc import CERTAIN, Epochs, prototypes
from methods.slots.slots import (
    MAX_CENTRE_BYTES,
    NAMES,
    Slots,
    Slotted,
    lengths_of,
    read_centres,
    slot_of,
    spec_of_cells,
    sum_cells,
    told_centres,
)
from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Grid
from secagg.encoding.layout import Integers
from secagg.errors import BadInput, ProtocolViolation
from secagg.heads import LinearHead
from secagg.heads.descent import adapted_head
from secagg.wire import require_in_range

MOST_ROUNDS = 100
CENTRE_BYTES = 4
"""Bytes of one number of a broadcast centre."""


@dataclass(frozen=True)
class MPFT(Slotted):
    """The method MPFT: an adapter trained on mean records by class, domain and slot (hash bucket or cluster).

    The means come from counts (C, D, J) and sums (C, D, J, d).
    `sampling` "mean": a record's slot is `slot_of` its integers, one slot giving the paper's prototypes, the means of
    the (class, domain) cells. "cluster": these sums are the start, a random partition, of k-means in every cell
    (Lloyd 1982): in each of `rounds` further secure sums a record goes to the nearest of its cell's centres, which are
    the opened, perhaps noisy, means of the sum before. "random", the paper's third, is refused: it sends embeddings.

    The server trains a residual adapter on the prototypes for at most `epochs` (`secagg.heads.descent`).

    Exact sums hide records in their slot and clients in their cell, no more. A class gate counts every slot by itself,
    but not clusters, which follow from the records: with "cluster" it counts classes in domains, a cluster may hold one
    record alone, and one that alone changes its cluster between two rounds is the difference of two exact sums. Against
    that there is ε.
    """

    name: ClassVar[str] = "mpft"
    libraries: ClassVar[tuple[str, ...]] = ("torch",)
    domains: str = ""
    sampling: Annotated[str, "Means to sum: mean, of slots by hash; or cluster, of slots by k-means"] = "mean"
    slots: Slots = 1
    rounds: Annotated[int, f"Steps of k-means, 1 to {MOST_ROUNDS} with sampling=cluster; 0 with mean"] = 0
    epochs: Epochs = 200

    def __post_init__(self) -> None:
        self.require_domains()
        if self.sampling == "random":
            raise BadInput(
                "an embedding of one record leaves the client with random sampling",
                remedy="use mean or cluster; tests/reproduction/mpft_samples.py has the paper's, mpft-random",
            )
        if self.sampling not in ("mean", "cluster"):
            raise BadInput(f"unknown sampling {self.sampling!r}", remedy="give mean or cluster")
        clusters = self.sampling == "cluster"
        self.require_slots(1 + clusters)
        if self.rounds not in (range(1, MOST_ROUNDS + 1) if clusters else (0,)):
            remedy = f"give 1 to {MOST_ROUNDS}" if clusters else "means take none: use sampling=cluster"
            raise BadInput(f"{self.rounds} rounds of {self.sampling} sampling", remedy=remedy)
        require_in_range(self)

    @property
    def traits(self) -> Traits:
        """Method properties: with clustering a class gate counts clients by domain alone, as clusters come later."""
        usual = replace(super().traits, weights="directions")
        return replace(usual, cells_per_class=domain_count(self.parameters)) if self.rounds else usual

    def cell_of(self, examples: Examples) -> Integers:
        """Return each example's part of its class: domain·J + hash slot (of J); with clustering the domain alone."""
        return examples.domains if self.rounds else super().cell_of(examples)

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """Return each kind of sum's specification: counts and sums by hash slot, then by cluster in clustering rounds.

        In a round of clustering the centres are fixed before the records are looked at, so that this holds there too;
        all sums have equal parts of μ². Raises BadInput for more centres than can be told.
        """
        shape = (classes, *self.parts)
        size = math.prod(shape)
        if self.rounds and size * dimension * CENTRE_BYTES > MAX_CENTRE_BYTES:
            raise BadInput(f"{size} centres of {dimension} numbers are too many to be told", remedy="give fewer slots")
        first = replace(spec_of_cells(shape, dimension, levels), budget=1 / (self.rounds + 1))
        again = replace(first, times=self.rounds, budget=self.rounds / (self.rounds + 1))
        return (first, again) if self.rounds else (first,)

    def contribute(self, local: Local) -> Contribution:
        return self.sum_in(self.cells(local.examples, local.classes), local)

    def cells(self, examples: Examples, classes: int) -> Integers:
        return self.place(examples, slot_of(examples.records, self.slots))

    def sum_in(self, cells: Integers, local: Local) -> Contribution:
        """Return a client's counts and sums of examples per cluster of a class; `cells` (n,) name each example's."""
        return Contribution(sum_cells(local.examples, cells, (local.classes, *self.parts)))

    def finalize(self, opened: OpenedTotal) -> Step:
        if not self.rounds:
            return Step(self.train(opened))
        before = np.zeros(opened.blocks["slot_sums"].shape, dtype=np.int64)
        return Step(next_round=Clustering(self, 1, _centres(opened, before).ravel()))

    def train(self, opened: OpenedTotal) -> LinearHead:
        """Return the head with an adapter trained on the opened counts and sums. Raises BadInput without records.

        Prototypes as `methods.slots.fedtc.prototypes` has them, with the (domain, slot) pairs in the place of slots.
        """
        counts, sums = (opened.blocks[name] for name in NAMES)
        flat = {NAMES[0]: counts.reshape(len(counts), -1), NAMES[1]: sums.reshape(len(sums), -1, sums.shape[-1])}
        return adapted_head(*prototypes(flat, opened.grid, opened.noise), len(counts), self.epochs)

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        if not self.rounds:
            return super().decode_broadcast(broadcast, grid)
        return Clustering(self, 1, read_centres(broadcast, 1, grid.levels))


@dataclass(frozen=True, eq=False)
class Clustering(SimpleRound):
    """K-means round `number` in every class and domain: records are summed by the nearest of `centres` (C·D·J·d,)."""

    method: MPFT
    number: int
    centres: Integers

    def contribute(self, local: Local) -> Contribution:
        return self.method.sum_in(self.cells(local.examples, local.classes), local)

    def cells(self, examples: Examples, classes: int) -> Integers:
        """Return each example's part of its class: domain·J + nearest of J centres (first of ties). Raises BadInput.

        Exact, since q and c are shorter than 2²⁶ and a float64 product of them below 2⁵³.
        """
        centres = self._shaped(classes, examples.records.shape[1])
        found = np.zeros(len(examples), dtype=np.int64)
        for class_, domain in np.unique(np.column_stack([examples.labels, examples.domains]), axis=0):
            rows = np.flatnonzero((examples.labels == class_) & (examples.domains == domain))
            own = centres[class_, domain]
            products = examples.records[rows].astype(np.float64) @ own.astype(np.float64).T
            found[rows] = np.argmax(2 * products.astype(np.int64) - (own * own).sum(axis=1), axis=1)
        return self.method.place(examples, found)

    def _shaped(self, classes: int, dimension: int) -> Integers:
        """Return the centres as (C, D, J, d). Raises BadInput for another number of entries."""
        shape = (classes, *self.method.parts, dimension)
        if len(self.centres) != np.prod(shape):
            raise BadInput(f"{len(self.centres)} numbers are no centres for {classes} classes")
        return self.centres.reshape(shape)

    def finalize(self, opened: OpenedTotal) -> Step:
        sums = opened.blocks["slot_sums"]
        before = self._shaped(len(sums), sums.shape[-1])
        if self.number == self.method.rounds:
            return Step(self.method.train(opened))
        return Step(next_round=Clustering(self.method, self.number + 1, _centres(opened, before).ravel()))

    def broadcast(self) -> bytes:
        return told_centres(self.number, self.centres)

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        if self.number == self.method.rounds:
            raise ProtocolViolation(SERVER_INDEX, "announces a round that the plan does not have")
        return Clustering(self.method, self.number + 1, read_centres(broadcast, self.number + 1, grid.levels))

    def require_equal(self, told: Round) -> None:
        if not isinstance(told, Clustering) or told.number != self.number:
            raise ProtocolViolation(SERVER_INDEX, "announces another kind of round than the sums lead to")
        if not np.array_equal(told.centres, self.centres):
            raise ProtocolViolation(SERVER_INDEX, "the centres it broadcasts do not follow from the released sums")


def _centres(opened: OpenedTotal, before: Integers) -> Integers:
    """Return the slots' means (C, D, J, d), each no longer than a record can be.

    Where the (noisy) count is too small to be divided by, as in `methods.slots.fedtc.prototypes`, the centre stays.
    """
    known = opened.noise[NAMES[0]] if opened.noise is not None else None
    aggregate, grid = opened.blocks, opened.grid
    counts = aggregate[NAMES[0]] / (known.multiplier if known else 1)
    held = counts >= (1 + CERTAIN * known.sigma / known.multiplier if known else 1)
    centres = before.copy()
    means = aggregate[NAMES[1]][held] / counts[held][:, None]
    lengths = lengths_of(means)[:, None]
    centres[held] = np.rint(means * np.minimum(1.0, grid.levels / np.maximum(lengths, 1.0))).astype(np.int64)
    return centres
