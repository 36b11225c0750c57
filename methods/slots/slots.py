"""Slots: hash buckets that divide a class's sum; a public hash of each record chooses the bucket that it goes into."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from methods.method import DOMAINS, SimpleMethod, SumSpec, Traits, ZeroSums, domain_count
from methods.round import Blocks, Examples
from secagg.encoding import cell_sums
from secagg.encoding.layout import Block, Integers, Kind
from secagg.errors import BadInput, MalformedMessage
from secagg.privacy import Adjacency, CellSensitivity
from secagg.wire import Length, Range, decode, encode, message

MOST_SLOTS = 1 << 16
Slots = Annotated[int, Range(1, MOST_SLOTS), "Parts into which the records of a class are divided"]
SEED = "secagg slots v2"
NAMES = ("slot_counts", "slot_sums")
"""Names of the blocks of a sum of slots."""
SHARES = {"slot_counts": 0.1, "slot_sums": 0.9}
"""The blocks' shares of μ², as for class prototypes: a count only scales its mean."""
MAX_CENTRE_BYTES = 8 << 20
MOST_TOLD = 1000
"""The last round that centres can open."""
Words = NDArray[np.uint64]


def slot_of(records: Integers, slots: int) -> Integers:
    """Return the slot in 0…J−1 of each record q (n, d), J = `slots`, by a hash of the record's integers alone.

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
    mixed: Words = records.view(np.uint64) @ constants[1:] + constants[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)  # SplitMix64's (Steele et al. 2014)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return ((mixed >> np.uint64(32)) * np.uint64(slots) >> np.uint64(32)).astype(np.int64)


def sum_cells(examples: Examples, cells: Integers, shape: tuple[int, ...]) -> Blocks:
    """Return counts (C, …) and sums (C, …, d) of examples by class and part of the class, given as an index in `cells`.

    A cell is counted within its class; an example in cell −1 is in none.
    """
    counted = cells >= 0
    places = (examples.labels * math.prod(shape[1:]) + cells)[counted]
    counts, sums = cell_sums(examples.records[counted], places, math.prod(shape))
    return {NAMES[0]: counts.reshape(shape), NAMES[1]: sums.reshape(*shape, sums.shape[1])}


def spec_of_cells(shape: tuple[int, ...], dimension: int, levels: int) -> SumSpec:
    """Specify the sum that `sum_cells` makes: a record q adds 1 to the count and q to the sum of its part of a class.

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
    """The base of methods whose sums divide each class by hash into `slots`, in each of its `domains` if any."""

    slots: int

    def require_domains(self) -> None:
        """Raise BadInput for a domain without a name, or for two with the same name."""
        domains = str(self.parameters[DOMAINS])
        names = domains.split("+")
        if domains and (not all(names) or len(set(names)) != len(names)):
            raise BadInput(f"the domains are {domains!r}", remedy="name each once, joined by +")

    def require_slots(self, fewest: int = 1) -> None:
        """Raise BadInput for too many slots, or fewer than `fewest`."""
        if self.slots not in range(fewest, MOST_SLOTS + 1):
            raise BadInput(f"{self.slots} slots", remedy=f"give {fewest} to {MOST_SLOTS}")

    @property
    def parts(self) -> tuple[int, int]:
        """The number D of domains, and the number J of hash slots in each domain."""
        return domain_count(self.parameters), self.slots

    @property
    def traits(self) -> Traits:
        """Method properties: a class gate counts the clients of each of a class's D·J hash slots separately."""
        cells = math.prod(self.parts)
        return replace(super().traits, cells_per_class=cells, needs_gate=cells > 1)

    def cell_of(self, examples: Examples) -> Integers:
        return self.place(examples, slot_of(examples.records, self.slots))

    def place(self, examples: Examples, slots: Integers) -> Integers:
        """Return each example's part of its class, domain·J + slot, given its hash slot out of J in `slots` (n,)."""
        return np.ravel_multi_index((examples.domains, slots), self.parts).astype(np.int64)


@message("Centres")
@dataclass(frozen=True)
class Centres:
    """The broadcast of a round's centres or prototypes; little-endian int32, row by row."""

    number: Annotated[int, Range(1, MOST_TOLD)]
    rows: Annotated[bytes, Length(4, MAX_CENTRE_BYTES)]


def told_centres(number: int, centres: Integers) -> bytes:
    """Encode centres (…, d), integers below 2³¹, as the broadcast of a round. Raises BadInput if they are too many."""
    rows = centres.astype("<i4").tobytes()
    if len(rows) > MAX_CENTRE_BYTES:
        raise BadInput(f"centres of {len(rows)} bytes", remedy=f"{MAX_CENTRE_BYTES} can be told: use fewer")
    return encode(Centres(number, rows))


def lengths_of(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the L2 length of each row (n,), the same bits on every machine.

    Each sum of squares is rounded once (`math.fsum`: Shewchuk 1997); numpy's own rounds in an order that depends on the
    processor.
    """
    return np.sqrt(np.array([math.fsum(row.tolist()) for row in rows * rows], dtype=np.float64))


def read_centres(broadcast: bytes, number: int, largest: int) -> Integers:
    """Decode the centres of round `number` from its broadcast; entries are at most `largest` in absolute value.

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
    """Return the hash's constants for so many slots: b, then a (d,)."""
    stream = hashlib.shake_256(f"{SEED}: {dimension}, {slots}".encode()).digest(8 * (dimension + 1))
    constants: Words = np.frombuffer(stream, dtype="<u8").astype(np.uint64)
    constants.flags.writeable = False
    return constants
