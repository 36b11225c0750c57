"""FedTC: an adapter and a head trained on prototypes from secure sums (anonymous, under review)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from methods.closed_form.prototypes import Prototypes
from methods.method import SumSpec
from methods.round import Blocks, Contribution, Examples, Local, Noise, OpenedTotal, Round, SimpleRound, Step
from methods.slots.slots import (
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
from secagg.heads.descent import Recipe, fresh_head, train
from secagg.wire import Range, require_in_range

WIDTHS = (1024, 512)
"""Widths of the adapter's layers (paper Table 5)."""
RATE = 0.01
"""The paper says 0.001 and no momentum: without one that leaves the head untrained after 200 epochs (21 % on CIFAR-10
features with 64 slots; 57 % with the momentum 0.9, 58 % at this rate)."""
BATCH = 64
LEAST_BATCHES = 10
"""The fewest batches of an epoch: few prototypes in batches of the paper's 64 would hardly be trained on."""
MOST_EPOCHS = 10_000
Epochs = Annotated[int, Range(1, MOST_EPOCHS), "Most passes of the server's training over the slots' means"]
CENTRE_SHARE = 0.1
"""The first round's share of μ² where there is a threshold: directions of whole classes take little."""
CENTRE_LENGTH = 1 << 20
"""Length of a broadcast centre: its product with a record of 2²⁶ is far below 2⁵³, where products are exact."""
FIRST = Prototypes()
"""The method of the first round where there is a threshold: its class means are the centres."""
CERTAIN = 3.0
"""The number of σ above 1 record from which on a noisy count is divided by."""


@dataclass(frozen=True, eq=False)
class SlotRound(SimpleRound):
    """The round that sums by hash slot the records whose cosine to their class centre is at least `threshold`.

    The arrays are counts (C, J) and sums (C, J, d).
    `centres` are all entries of C rows of d integers, row by row; None: every record counts. The head is trained
    behind an adapter with layers of these `widths`, or without one if there are none.
    """

    slots: int
    epochs: int
    momentum: float
    threshold: float = -1.0
    centres: Integers | None = field(default=None, repr=False)
    widths: tuple[int, ...] = WIDTHS

    def contribute(self, local: Local) -> Contribution:
        examples, classes = local.examples, local.classes
        return Contribution(sum_cells(examples, self.cells(examples, classes), (classes, self.slots)))

    def cells(self, examples: Examples, classes: int) -> Integers:
        """Return each record's hash slot; −1 for a cosine to its class centre below `threshold`, computed exactly."""
        slots = slot_of(examples.records, self.slots)
        if self.centres is None:
            return slots
        dimension = examples.records.shape[1]
        if self.centres.size != classes * dimension:
            raise ProtocolViolation(
                SERVER_INDEX, f"broadcasts centres of {self.centres.size} entries for {classes} classes"
            )
        records, centres = examples.records, self.centres.reshape(classes, dimension)[examples.labels]
        lengths = np.sqrt((records * records).sum(axis=1)) * np.sqrt((centres * centres).sum(axis=1))
        return np.where((records * centres).sum(axis=1) >= self.threshold * lengths, slots, -1)

    def finalize(self, opened: OpenedTotal) -> Step:
        """Return the head trained on the mean record of each hash slot, weighted by its number of records.

        An adapter comes before it: the paper's Eq. 5 and Algorithm 1 print it behind, its Figure 2 and Table 5 before.
        Raises BadInput without records.
        """
        found = prototypes(opened.blocks, opened.grid, opened.noise)
        return Step(fit(*found, len(opened.blocks["slot_counts"]), self.epochs, self.momentum, self.widths))

    def broadcast(self) -> bytes:
        return b"" if self.centres is None else told_centres(1, self.centres)

    def require_equal(self, told: Round) -> None:
        own = self.centres
        its = told.centres if isinstance(told, SlotRound) else None
        if own is None or its is None or not np.array_equal(its, own.ravel()):
            raise ProtocolViolation(SERVER_INDEX, "the centres it broadcasts do not follow from the released sum")


def nearest(records: NDArray[np.float64], labels: NDArray[np.int64], keep: float) -> NDArray[np.int64]:
    """Return the indices of the fraction `keep` of each class's records (n, d) nearest to the class's mean by cosine.

    Paper Eq. 1-3. Of records as near as each other the earlier one is kept.
    """
    kept = [np.zeros(0, dtype=np.int64)]
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        rows = records[own]
        lengths = np.linalg.norm(rows, axis=1)
        cosines = (rows * rows.mean(axis=0)).sum(axis=1) / np.where(lengths > 0, lengths, 1.0)
        kept.append(own[np.argsort(-cosines, kind="stable")[: math.ceil(keep * len(own))]])
    return np.sort(np.concatenate(kept))


def prototypes(
    aggregate: Blocks, grid: Grid, noise: Noise | None
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the hash slots' mean features (n, d), their classes (n,) and numbers of records (n,), for training.

    Exact sums: of the slots that have records. Under noise: of the slots whose count is at least 1 + 3σ, σ being its
    noise, and σ'√d/R, σ' being that on a sum: so neither divisor nor mean is mostly noise. A class without such a
    slot is represented by the mean of all its slots, its count taken as at least 1.
    """
    sums = aggregate["slot_sums"].astype(np.float64)
    unit = grid.unit(sums.shape[2])
    multiplier, least = 1, 1.0
    if noise is not None:
        multiplier = noise["slot_counts"].multiplier
        of_count = 1.0 + CERTAIN * noise["slot_counts"].sigma / multiplier
        least = max(of_count, noise["slot_sums"].sigma * math.sqrt(sums.shape[2]) / unit)
    counts = aggregate["slot_counts"] / multiplier
    labels, slots = np.nonzero(counts >= least)
    rows, weights = sums[labels, slots], counts[labels, slots]
    if noise is not None:
        others = np.setdiff1d(np.arange(len(counts)), labels)
        labels = np.concatenate([labels, others])
        rows = np.concatenate([rows, sums[others].sum(axis=1)])
        weights = np.concatenate([weights, np.maximum(counts[others].sum(axis=1), 1.0)])
    offset = 0.0 if grid.is_normalised else grid.centre
    return rows / weights[:, None] * (grid.radius / unit) + offset, labels, weights


def fit(
    rows: NDArray[np.float64],
    labels: NDArray[np.int64],
    weights: NDArray[np.float64],
    classes: int,
    epochs: int,
    momentum: float,
    widths: tuple[int, ...] = WIDTHS,
) -> LinearHead:
    """Train a head behind an adapter with layers of these `widths` (none: no adapter) on weighted `rows` (n, d).

    Classes without rows are marked absent. Raises BadInput without any row.
    """
    if not len(labels):
        raise BadInput("the sum holds no record", remedy="the head needs one class at least")
    start = fresh_head((rows.shape[1], *widths), np.isin(np.arange(classes), labels))
    batch = min(BATCH, math.ceil(len(rows) / LEAST_BATCHES))
    return train(start, rows, labels, weights, Recipe("sgd", RATE, epochs, batch, momentum))


@dataclass(frozen=True)
class FedTC(Slotted):
    """The method FedTC: records are summed in J hash `slots` a class; the server trains adapter and head on slot means.

    The paper's clients send the means of random batches of 5 of their own records. Here every record goes into one of
    J slots of its class, the same for all clients (`slots.slot_of`), and a mean mixes the N_j/J records of a
    slot across clients. Without noise J > 1 takes a class gate, which counts every slot by itself, since a slot of one
    record *is* that record. Choose J well below N_j: a slot of 50 still tells whether a record is in it (AUC 0.9,
    tests/threat_models/test_prototypes_leak.py).

    `keep` α in (0, 1]: every client leaves out all but the ⌈α·n⌉ records of a class that are nearest to its own class
    mean by cosine (paper Eq. 1-3, α = 0.99; rounded up, so that no client's only record goes). Then the sum depends on
    who holds what, one record changes the fate of others, and ε can only be ∞. Default 1: all are kept.
    `threshold` t in [−1, 1): a record counts if its cosine to its class's centre is at least t. The centres come from
    a first, charged sum of counts and class sums, and are public. Default −1: no threshold, one sum. Without noise
    the two sums' difference is the sum of the records left out, so that this is a rule for finite ε.
    Either filter leaves records out after the gate's census: a slot may then be of fewer clients than were counted.
    `epochs` and `momentum` of SGD (paper: 200; the momentum is unstated). `adapter=0` is the paper's variant M3
    (Table 2): the server trains a linear head on the slots' means. The sums are the same.
    """

    name: ClassVar[str] = "fedtc"
    libraries: ClassVar[tuple[str, ...]] = ("torch",)
    slots: Slots = 1
    keep: Annotated[
        float, Range(0, 1, above=True), "Share of a member's records of a class that count, the nearest to their mean"
    ] = 1.0
    threshold: Annotated[
        float, Range(-1, 1, below=True), "Least cosine to the class's centre of a record that counts; -1: all count"
    ] = -1.0
    epochs: Epochs = 200
    momentum: Annotated[float, Range(0, 1, below=True)] = 0.9
    adapter: Annotated[int, Range(0, 1), "1: an adapter is trained before the head; 0: the head alone"] = 1

    def __post_init__(self) -> None:
        require_in_range(self)
        if self.keep < 1 and self.threshold > -1:
            raise BadInput("keep and threshold are two filters", remedy="give one of them")

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        slots = spec_of_cells((classes, self.slots), dimension, levels)
        if self.keep < 1:
            reason = "keep ranks a client's records, so that one of them decides which others count; threshold does not"
            return (replace(slots, sensitivities=(), is_additive=False, refusal=reason),)
        if not self._has_threshold:
            return (slots,)
        (first,) = FIRST.sums(dimension, classes, levels)
        return (replace(first, budget=CENTRE_SHARE), replace(slots, budget=1 - CENTRE_SHARE))

    def contribute(self, local: Local) -> Contribution:
        if self._has_threshold:
            return FIRST.contribute(local)
        examples, classes = local.examples, local.classes
        return Contribution(sum_cells(examples, self.cells(examples, classes), (classes, self.slots)))

    def cells(self, examples: Examples, classes: int) -> Integers:
        """Return each record's hash slot, or −1 if it is filtered out.

        With a `threshold` the first round has one slot, 0 for all records.
        """
        if self._has_threshold:
            return FIRST.cells(examples, classes)
        cells = self._slot_round().cells(examples, classes)
        if self.keep < 1:
            kept = nearest(examples.records.astype(np.float64), examples.labels, self.keep)
            cells[np.setdiff1d(np.arange(len(cells)), kept)] = -1
        return cells

    def finalize(self, opened: OpenedTotal) -> Step:
        if not self._has_threshold:
            return self._slot_round().finalize(opened)
        sums = opened.blocks["class_sums"].astype(np.float64)
        lengths = np.maximum(lengths_of(sums), 1.0)
        centres = np.rint(sums * (CENTRE_LENGTH / lengths)[:, None]).astype(np.int64)
        return Step(next_round=self._slot_round(centres))

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        if not self._has_threshold:
            return super().decode_broadcast(broadcast, grid)
        return self._slot_round(read_centres(broadcast, 1, CENTRE_LENGTH))

    @property
    def _has_threshold(self) -> bool:
        return self.threshold > -1

    def _slot_round(self, centres: Integers | None = None) -> SlotRound:
        widths = WIDTHS if self.adapter else ()
        return SlotRound(self.slots, self.epochs, self.momentum, self.threshold, centres, widths)
