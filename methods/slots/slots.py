"""Slots: partial sums of a class, of which every record goes into the one that a public hash of it names."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from methods.method import DOMAINS, SimpleMethod, SumSpec, Traits, ZeroSums, domain_count
from methods.round import Blocks, Examples
from secagg.encoding.layout import Block, Integers, Kind
from secagg.errors import BadInput, MalformedMessage
from secagg.privacy import Adjacency, BlockSensitivity, Unit
from secagg.wire import Length, Range, decode, encode, message

MOST_SLOTS = 1 << 16
SEED = "secagg slots v2"
NAMES = ("slot_counts", "slot_sums")
"""Of the blocks of a sum of slots."""
SHARES = {"slot_counts": 0.1, "slot_sums": 0.9}
"""Of μ², as for class prototypes: a count only scales its mean."""
MAX_CENTRE_BYTES = 8 << 20
MOST_TOLD = 1000
"""The last round that centres can open."""
Words = NDArray[np.uint64]


def slot_of(records: Integers, slots: int) -> Integers:
    """Return the slot (n,) in 0…J−1 of records q (n, d), J = `slots`: a function of each record's integers alone.

    s = Σ aᵢqᵢ + b mod 2⁶⁴ with public constants from a SHAKE-256 stream: the multiply-shift family for vectors
    (Dietzfelbinger et al. 1997; Thorup 2015, section 3.5). Were they drawn at random, two different records, whose
    entries are at most 2²⁶ apart from 0, would have one s with probability at most 2⁻³⁷. SplitMix64's mixer, which maps
    64 bits one to one, then spreads even records that differ by 1 in one entry, and the slot is ⌊m·J/2³²⌋ of
    its upper 32 bits m: uneven by at most J/2³².

    The constants are drawn for each length d and each J by itself: were they the same for J and J + 1, their slots
    would nest, and differences of two plans' sums would be single records.

    So a sum of slots is the same for any partition, order or restart. The price: whoever knows a record knows
    its slot, equal records share one, and a record hides among N_j/J others of its class and not N_j. Exact sums of
    the same records with another J or other levels are further equations: N_j of them are solved for every record.
    """
    if not 1 <= slots <= MOST_SLOTS:
        raise BadInput(f"{slots} slots", remedy=f"give 1 to {MOST_SLOTS}")
    constants = _constants(records.shape[1], slots)
    mixed = _mix(records.view(np.uint64) @ constants[1:] + constants[0])
    return ((mixed >> np.uint64(32)) * np.uint64(slots) >> np.uint64(32)).astype(np.int64)


def cell_sums(records: Integers, cells: Integers, size: int) -> tuple[Integers, Integers]:
    """Return how many of the records (n, d) are in each of `size` cells, (size,), and their sums (size, d), exactly."""
    sums = np.zeros((size, records.shape[1]), dtype=np.int64)
    np.add.at(sums, cells, records)
    return np.bincount(cells, minlength=size).astype(np.int64), sums


def sum_cells(examples: Examples, cells: Integers, shape: tuple[int, ...]) -> Blocks:
    """Return counts `shape` = (C, …) and sums (C, …, d), by `NAMES`, of examples in the `cells` (n,) of their classes.

    A cell is counted within its class; an example in cell −1 is in none.
    """
    counted = cells >= 0
    places = (examples.labels * math.prod(shape[1:]) + cells)[counted]
    counts, sums = cell_sums(examples.records[counted], places, math.prod(shape))
    return {NAMES[0]: counts.reshape(shape), NAMES[1]: sums.reshape(*shape, sums.shape[1])}


def spec_of_cells(shape: tuple[int, ...], dimension: int, levels: int) -> SumSpec:
    """Return the sum of which `sum_cells` gives a member's part: a record adds 1 to a count and q to the same sum.

    ‖q‖₂ ≤ R_q = `levels`, whichever cell of whichever class that is.
    """
    return SumSpec(
        blocks=(
            Block(NAMES[0], shape, bound=1, kind=Kind.COUNTS),
            Block(NAMES[1], (*shape, dimension), bound=levels, kind=Kind.CLASS_SUMS),
        ),
        sensitivities=tuple(CellSensitivity(each, NAMES, math.prod(shape), dimension, levels) for each in Adjacency),
        shares=SHARES,
        zero_sums=(ZeroSums(NAMES[1], -1, dimension / 2),),
    )


class Slotted(SimpleMethod):
    """A method whose sums tell apart `slots` of each class, in each of its `domains` where it has any."""

    slots: int

    def require_domains(self) -> None:
        """Raise BadInput for a domain without a name, or with another's."""
        domains = str(self.parameters[DOMAINS])
        names = domains.split("+")
        if domains and (not all(names) or len(set(names)) != len(names)):
            raise BadInput(f"the domains are {domains!r}", remedy="name each once, joined by +")

    def require_slots(self, fewest: int = 1) -> None:
        """Raise BadInput for fewer slots, or too many."""
        if self.slots not in range(fewest, MOST_SLOTS + 1):
            raise BadInput(f"{self.slots} slots", remedy=f"give {fewest} to {MOST_SLOTS}")

    @property
    def parts(self) -> tuple[int, int]:
        """D and J."""
        return domain_count(self.parameters), self.slots

    @property
    def traits(self) -> Traits:
        """A class gate counts each of the D·J slots of a class by itself."""
        cells = math.prod(self.parts)
        return replace(super().traits, cells_per_class=cells, needs_gate=cells > 1)

    def part_of(self, examples: Examples) -> Integers:
        """domain·J + slot."""
        return self.place(examples, slot_of(examples.records, self.slots))

    def place(self, examples: Examples, slots: Integers) -> Integers:
        """Return domain·J + slot for examples with their slots (n,)."""
        return np.ravel_multi_index((examples.domains, slots), self.parts).astype(np.int64)


@dataclass(frozen=True)
class CellSensitivity:
    """Counts and sums of cells, `names` in that order: a record adds 1 to one count and q, ‖q‖₂ ≤ R_q, to its sum.

    Add or remove a record: 1 and R_q. Replace it: in another cell √2 and √2·R_q; in the same cell the count stays
    and the sum moves by 2·R_q, for opposite records.
    """

    adjacency: Adjacency
    names: tuple[str, str]
    cells: int
    dimension: int
    levels: int

    @property
    def unit(self) -> Unit:
        """One record."""
        return Unit.RECORD

    @property
    def blocks(self) -> tuple[BlockSensitivity, ...]:
        """One record moves counts by 1 and sums by R_q."""
        counts, sums = self.names
        return (
            BlockSensitivity(counts, 1.0, self.cells, scalable=True),
            BlockSensitivity(sums, float(self.levels), self.cells * self.dimension),
        )

    def squared(self, weights: Mapping[str, float]) -> float:
        """Return n + a for add/remove and max(2n + 2a, 4a) for replace-one, n = w_counts and a = w_sums·R_q²."""
        n, a = weights[self.names[0]], weights[self.names[1]] * self.levels**2
        if self.adjacency is Adjacency.ADD_REMOVE:
            return n + a
        return max(2 * (n + a), 4 * a) if self.cells > 1 else 4 * a


@message("Centres")
@dataclass(frozen=True)
class Centres:
    """Public centres that open a round of sums by distance or angle to them: little-endian int32, row by row."""

    number: Annotated[int, Range(1, MOST_TOLD)]
    rows: Annotated[bytes, Length(4, MAX_CENTRE_BYTES)]


def told_centres(number: int, centres: Integers) -> bytes:
    """Return the broadcast of a round's centres (…, d), integers below 2³¹. Raises BadInput for too many."""
    rows = centres.astype("<i4").tobytes()
    if len(rows) > MAX_CENTRE_BYTES:
        raise BadInput(f"centres of {len(rows)} bytes", remedy=f"{MAX_CENTRE_BYTES} can be told: use fewer")
    return encode(Centres(number, rows))


def are_told(own: Integers, told: Integers) -> bool:
    """Whether all entries that a server tells are a client's own but for rounding, and as many."""
    return told.shape == own.shape and bool(np.abs(told - own).max(initial=0) <= 1)


def read_centres(broadcast: bytes, number: int, largest: int) -> Integers:
    """Return all entries, at most `largest` apart from 0, of the centres that open round `number`.

    Raises MalformedMessage.
    """
    told = decode(Centres, broadcast)
    if told.number != number or len(told.rows) % 4:
        raise MalformedMessage("Centres", f"{len(told.rows)} bytes open round {told.number}, not {number}")
    entries = np.frombuffer(told.rows, dtype="<i4").astype(np.int64)
    if np.abs(entries).max() > largest:
        raise MalformedMessage("Centres", f"a centre has an entry beyond {largest}")
    return entries


@lru_cache(maxsize=8)
def _constants(dimension: int, slots: int) -> Words:
    """b, then a (d,), for so many slots."""
    stream = hashlib.shake_256(f"{SEED}: {dimension}, {slots}".encode()).digest(8 * (dimension + 1))
    constants: Words = np.frombuffer(stream, dtype="<u8").astype(np.uint64)
    constants.flags.writeable = False
    return constants


def _mix(words: Words) -> Words:
    """SplitMix64's finaliser (Steele, Lea & Flood 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
