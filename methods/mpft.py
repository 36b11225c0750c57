"""MPFT: an adapter trained on the prototypes of every class in every domain (Zhang et al. 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import numpy as np

from methods.fedtc import CERTAIN, prototypes
from methods.method import Examples, Noise, OneShot, Parameters, Round, Sum, domains_of
from methods.slots import (
    MAX_CENTRE_BYTES,
    MOST_SLOTS,
    CellSensitivity,
    cell_sums,
    read_centres,
    slot_of,
    told_centres,
)
from secagg.encoding.layout import Block, Integers
from secagg.errors import BadInput, ProtocolViolation
from secagg.head import LinearHead
from secagg.head.residual import adapted_head
from secagg.privacy import Adjacency
from secagg.roster import SERVER_INDEX
from secagg.statistics import Grid

NAMES = ("slot_counts", "slot_sums")
MOST_ROUNDS = 100
MOST_EPOCHS = 10_000
SHARES = {"slot_counts": 0.1, "slot_sums": 0.9}
"""Of μ², as for class prototypes."""
CENTRE_BYTES = 4
"""Of one number of a broadcast centre."""


@dataclass(frozen=True)
class MPFT(OneShot):
    """Counts (C, D, J) and sums (C, D, J, d) of each class in each of D `domains`, divided over J `slots`.

    `sampling` "mean": a record's slot is `slot_of` its integers, one slot giving the paper's prototypes, the means of
    the (class, domain) cells. "cluster": these sums are the start, a random partition, of k-means in every cell
    (Lloyd 1982): in each of `rounds` further secure sums a record goes to the nearest of its cell's centres, which are
    the opened, perhaps noisy, means of the sum before. "random", the paper's third, is refused: it sends embeddings.

    The server trains a residual adapter on the prototypes for at most `epochs` (`secagg.head.residual`).

    Exact sums hide records in their slot and clients in their cell, no more: a slot may hold one record alone, and one
    that alone changes its slot between two rounds is the difference of two exact sums. Against either there is ε.
    """

    name: ClassVar[str] = "mpft"
    domains: str = ""
    sampling: str = "mean"
    slots: int = 1
    rounds: int = 0
    epochs: int = 200

    def __post_init__(self) -> None:
        names = self.domains.split("+")
        if self.domains and (not all(names) or len(set(names)) != len(names)):
            raise BadInput(f"the domains are {self.domains!r}", remedy="name each once, joined by +")
        if self.sampling == "random":
            raise BadInput(
                "an embedding of one record leaves the client with random sampling",
                remedy="use mean or cluster; the baseline mpft-random shows it under protection none",
            )
        if self.sampling not in ("mean", "cluster"):
            raise BadInput(f"unknown sampling {self.sampling!r}", remedy="give mean or cluster")
        clusters = self.sampling == "cluster"
        if self.slots not in range(1 + clusters, MOST_SLOTS + 1):
            raise BadInput(f"{self.slots} slots", remedy=f"give {1 + clusters} to {MOST_SLOTS} for {self.sampling}")
        if self.rounds not in (range(1, MOST_ROUNDS + 1) if clusters else (0,)):
            remedy = f"give 1 to {MOST_ROUNDS}" if clusters else "means take none: use sampling=cluster"
            raise BadInput(f"{self.rounds} rounds of {self.sampling} sampling", remedy=remedy)
        if self.epochs not in range(1, MOST_EPOCHS + 1):
            raise BadInput(f"{self.epochs} epochs", remedy=f"give 1 to {MOST_EPOCHS}")

    @property
    def parameters(self) -> Parameters:
        """`domains`, `sampling`, `slots`, `rounds` and `epochs`."""
        return asdict(self)

    @property
    def parts(self) -> tuple[int, int]:
        """D and J."""
        return len(domains_of(self.parameters)) or 1, self.slots

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[Sum, ...]:
        """One record adds 1 to one count and q, ‖q‖₂ ≤ R_q, to the sum of the same slot, whichever slot that is.

        In a round of clustering the centres are fixed before the records are looked at, so that this holds there too;
        all sums have equal parts of μ². Raises BadInput for more centres than can be told.
        """
        shape = (classes, *self.parts)
        size = int(np.prod(shape))
        if self.rounds and size * dimension * CENTRE_BYTES > MAX_CENTRE_BYTES:
            raise BadInput(f"{size} centres of {dimension} numbers are too many to be told", remedy="give fewer slots")
        first = Sum(
            blocks=(Block(NAMES[0], shape, bound=1), Block(NAMES[1], (*shape, dimension), bound=levels)),
            sensitivity={each: CellSensitivity(each, NAMES, size, dimension, levels) for each in Adjacency},
            shares=SHARES,
            budget=1 / (self.rounds + 1),
        )
        again = replace(first, times=self.rounds, budget=self.rounds / (self.rounds + 1))
        return (first, again) if self.rounds else (first,)

    def contribute(self, examples: Examples, classes: int, levels: int) -> dict[str, Integers]:
        """Integer sums over the slots that a public hash gives."""
        return self.summed(examples, self.places(examples, classes), classes)

    def places(self, examples: Examples, classes: int) -> Integers:
        """domain·J + slot."""
        return self.placed(examples, slot_of(examples.records, self.slots))

    def placed(self, examples: Examples, slots: Integers) -> Integers:
        """Return domain·J + slot for examples with their slots (n,)."""
        return np.ravel_multi_index((examples.domains, slots), self.parts).astype(np.int64)

    def summed(self, examples: Examples, places: Integers, classes: int) -> dict[str, Integers]:
        """Return both blocks for examples with their places (n,)."""
        shape = (classes, *self.parts)
        cells = examples.labels * int(np.prod(self.parts)) + places
        counts, sums = cell_sums(examples.records, cells, int(np.prod(shape)))
        return {"slot_counts": counts.reshape(shape), "slot_sums": sums.reshape(*shape, -1)}

    def implausibilities(self, aggregate: Mapping[str, Integers], grid: Grid) -> list[str]:
        """Counts below 0 and sums longer than their counts allow."""
        counts = aggregate["slot_counts"]
        lengths = np.linalg.norm(aggregate["slot_sums"].astype(np.float64), axis=-1)
        long = lengths > np.maximum(counts, 0) * grid.levels * (1 + 1e-9)
        named = [("class {}, domain {}, slot {}".format(*place), place) for place in np.ndindex(counts.shape)]
        return [f"{name} has the count {counts[place]}" for name, place in named if counts[place] < 0] + [
            f"{name} sums to length {lengths[place]:.6g}, above {counts[place]} records of {grid.levels}"
            for name, place in named
            if long[place]
        ]

    def head(self, aggregate: Mapping[str, Integers], grid: Grid, noise: Noise | None) -> LinearHead | None:
        """The head after a mean; None where clustering goes on. Raises BadInput when no class has a prototype."""
        return None if self.rounds else self.trained(aggregate, grid, noise)

    def trained(self, aggregate: Mapping[str, Integers], grid: Grid, noise: Noise | None) -> LinearHead:
        """The frozen head behind the adapter, from the opened counts and sums. Raises BadInput without any prototype.

        Prototypes as `methods.fedtc.prototypes` has them, with the (domain, slot) pairs in the place of slots.
        """
        counts, sums = (aggregate[name] for name in NAMES)
        flat = {NAMES[0]: counts.reshape(len(counts), -1), NAMES[1]: sums.reshape(len(sums), -1, sums.shape[-1])}
        return adapted_head(*prototypes(flat, grid, noise), len(counts), self.epochs)

    def following(self, aggregate: Mapping[str, Integers], grid: Grid, noise: Noise | None) -> Round | None:
        """The first round of clustering, if there is to be any."""
        if not self.rounds:
            return None
        before = np.zeros(aggregate["slot_sums"].shape, dtype=np.int64)
        return Clustering(self, 1, _centres(aggregate, before, grid, noise).ravel())

    def announced(self, broadcast: bytes, grid: Grid) -> Round:
        """The first round of clustering. Raises MalformedMessage or ProtocolViolation."""
        if not self.rounds:
            return super().announced(broadcast, grid)
        return Clustering(self, 1, read_centres(broadcast, 1, grid.levels))


@dataclass(frozen=True, eq=False)
class Clustering:
    """Round `number` of k-means in every cell: the nearest of its `centres` (C·D·J·d,), integers as records are."""

    method: MPFT
    number: int
    centres: Integers

    def contribute(self, examples: Examples, classes: int, levels: int) -> dict[str, Integers]:
        """Integer sums over the nearest centres. Raises BadInput for centres that are not this plan's."""
        return self.method.summed(examples, self.places(examples, classes), classes)

    def places(self, examples: Examples, classes: int) -> Integers:
        """domain·J + the nearest centre, in exact arithmetic; of equally near ones the first. Raises BadInput."""
        shape = (classes, *self.method.parts, examples.records.shape[1])
        if len(self.centres) != np.prod(shape):
            raise BadInput(f"{len(self.centres)} numbers are no centres for {classes} classes")
        return self.method.placed(examples, _nearest(examples, self.centres.reshape(shape)))

    def implausibilities(self, aggregate: Mapping[str, Integers], grid: Grid) -> list[str]:
        """Those of the first sum."""
        return self.method.implausibilities(aggregate, grid)

    def head(self, aggregate: Mapping[str, Integers], grid: Grid, noise: Noise | None) -> LinearHead | None:
        """The head after the last round; None before."""
        return self.method.trained(aggregate, grid, noise) if self.number == self.method.rounds else None

    def following(self, aggregate: Mapping[str, Integers], grid: Grid, noise: Noise | None) -> Round | None:
        """The round at the means of this one's slots."""
        if self.number == self.method.rounds:
            return None
        before = self.centres.reshape(aggregate["slot_sums"].shape)
        return Clustering(self.method, self.number + 1, _centres(aggregate, before, grid, noise).ravel())

    def broadcast(self) -> bytes:
        """The centres."""
        return told_centres(self.number, self.centres)

    def announced(self, broadcast: bytes, grid: Grid) -> Round:
        """The next round as the server announces it. Raises MalformedMessage or ProtocolViolation."""
        if self.number == self.method.rounds:
            raise ProtocolViolation(SERVER_INDEX, "announces a round that the plan does not have")
        return Clustering(self.method, self.number + 1, read_centres(broadcast, self.number + 1, grid.levels))

    def check(self, told: Round) -> None:
        """Every centre is this client's own but for rounding."""
        if not isinstance(told, Clustering) or told.number != self.number:
            raise ProtocolViolation(SERVER_INDEX, "announces another kind of round than the sums lead to")
        same = told.centres.shape == self.centres.shape
        if not (same and np.abs(told.centres - self.centres).max(initial=0) <= 1):
            raise ProtocolViolation(SERVER_INDEX, "the centres it broadcasts do not follow from the released sums")


def _centres(aggregate: Mapping[str, Integers], before: Integers, grid: Grid, noise: Noise | None) -> Integers:
    """The slots' means (C, D, J, d), no longer than a record can be.

    Where the (noisy) count is too small to be divided by, as in `methods.fedtc.prototypes`, the centre stays.
    """
    known = noise[NAMES[0]] if noise is not None else None
    counts = aggregate[NAMES[0]] / (known.multiplier if known else 1)
    held = counts >= (1 + CERTAIN * known.sigma / known.multiplier if known else 1)
    centres = before.copy()
    means = aggregate[NAMES[1]][held] / counts[held][:, None]
    lengths = np.sqrt((means * means).sum(axis=1, keepdims=True))
    centres[held] = np.rint(means * np.minimum(1.0, grid.levels / np.maximum(lengths, 1.0))).astype(np.int64)
    return centres


def _nearest(examples: Examples, centres: Integers) -> Integers:
    """The nearest of its cell's centres (C, D, J, d) for every example (n,): the largest 2⟨q, c⟩ − ‖c‖², in int64.

    Exact, since q and c are shorter than 2²⁶ and a float64 product of them below 2⁵³.
    """
    found = np.zeros(len(examples), dtype=np.int64)
    for class_, domain in np.unique(np.column_stack([examples.labels, examples.domains]), axis=0):
        rows = np.flatnonzero((examples.labels == class_) & (examples.domains == domain))
        own = centres[class_, domain]
        products = examples.records[rows].astype(np.float64) @ own.astype(np.float64).T
        found[rows] = np.argmax(2 * products.astype(np.int64) - (own * own).sum(axis=1), axis=1)
    return found
