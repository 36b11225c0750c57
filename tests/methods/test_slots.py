"""Slots: a public function of one record, even over slots, whose sums add up; and the centres that are told."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from methods import method_named
from methods.gate import GatedRound
from methods.round import Examples
from methods.slots.fedtc import SlotRound
from methods.slots.mpft import MPFT, Clustering
from methods.slots.slots import (
    MAX_CENTRE_BYTES,
    MOST_SLOTS,
    SEED,
    Centres,
    lengths_of,
    read_centres,
    slot_of,
    told_centres,
)
from secagg.encoding import cell_sums
from secagg.errors import BadInput, MalformedMessage
from secagg.privacy import Adjacency, CellSensitivity, Unit
from secagg.wire import encode
from tests.methods.steps import contribute

FALSE_FAILURE = 1e-9
"""With which a test of evenness would fail for slots that are drawn at random."""
WORD = 1 << 64
RECORDS = np.random.default_rng(5).integers(-(1 << 16), 1 << 16, (2000, 12))


def slot_by_hand(record: list[int], slots: int) -> int:
    """The slot in Python's integers, from the definition."""
    import hashlib

    stream = hashlib.shake_256(f"{SEED}: {len(record)}, {slots}".encode()).digest(8 * (len(record) + 1))
    constants = [int.from_bytes(stream[8 * place : 8 * place + 8], "little") for place in range(len(record) + 1)]
    word = (constants[0] + sum(a * q for a, q in zip(constants[1:], record, strict=True))) % WORD
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB % WORD
    word ^= word >> 31
    return (word >> 32) * slots >> 32


def check_even(slots: np.ndarray, count: int) -> None:
    """A χ² test of equal shares."""
    filled = np.bincount(slots, minlength=count)
    assert len(filled) == count
    assert stats.chisquare(filled).pvalue > FALSE_FAILURE


@pytest.mark.parametrize("slots", [1, 2, 7, 64, MOST_SLOTS])
def test_slot_is_that_of_the_definition(slots):
    """Machine words that wrap around give what whole numbers give, for entries up to 2²⁶ of both signs."""
    records = np.concatenate([RECORDS[:20], np.full((1, 12), -(1 << 26)), np.full((1, 12), 1 << 26), np.zeros((1, 12))])
    records = records.astype(np.int64)
    assert slot_of(records, slots).tolist() == [slot_by_hand(record.tolist(), slots) for record in records]


@given(st.permutations(range(50)), st.integers(1, 50))
def test_slot_depends_on_the_record_alone(order, size):
    """Any order, batch or memory layout gives a record the same slot."""
    whole = slot_of(RECORDS[:50], 16)
    batch = list(order)[:size]
    assert np.array_equal(slot_of(RECORDS[batch], 16), whole[batch])
    assert np.array_equal(slot_of(np.asfortranarray(RECORDS[batch]), 16), whole[batch])
    assert np.array_equal(slot_of(RECORDS[:50][::2], 16), whole[::2])


@pytest.mark.parametrize("slots", [2, 10, 64])
@pytest.mark.parametrize(
    "records",
    [
        RECORDS,
        np.arange(2000)[:, None] * np.ones((1, 12), dtype=np.int64),
        np.arange(2000)[:, None] * np.eye(12, dtype=np.int64)[3],
        (np.arange(2000)[:, None] >> np.arange(12)) & 1,
        -4096 * np.abs(RECORDS),
    ],
    ids=["noise", "a line", "one entry", "zeros and ones", "multiples of 4096"],
)
def test_slots_are_even(records, slots):
    """Different records, however alike, are as evenly spread as if drawn at random (χ², false failures 10⁻⁹ each)."""
    distinct = np.unique(records, axis=0)
    check_even(slot_of(distinct, slots), slots)


def test_neighbours_scatter():
    """Records that differ by 1 in one entry share a slot about once in J (binomial, false failures 10⁻⁹)."""
    moved = np.concatenate(
        [RECORDS + step * np.eye(12, dtype=np.int64)[place] for place in (0, 11) for step in (-1, 1)]
    )
    same = slot_of(moved, 64) == np.tile(slot_of(RECORDS, 64), 4)
    assert stats.binomtest(int(same.sum()), len(same), 1 / 64).pvalue > FALSE_FAILURE


def test_pairs_are_independent():
    """The slots of a record and of its double fill all J² pairs evenly (χ², false failures 10⁻⁹)."""
    check_even(slot_of(RECORDS, 8) * 8 + slot_of(2 * RECORDS, 8), 64)


@pytest.mark.parametrize(("slots", "others"), [(10, 11), (8, 16), (4, MOST_SLOTS)])
def test_numbers_of_slots_do_not_nest(slots, others):
    """A record's slot of J tells nothing of its slot of J': all pairs fill evenly (χ², false failures 10⁻⁹)."""
    parts = min(others, 16)
    coarse = slot_of(RECORDS, others) * parts // others
    check_even(slot_of(RECORDS, slots) * parts + coarse, slots * parts)


@pytest.mark.parametrize("slots", [0, -1, MOST_SLOTS + 1])
def test_number_of_slots_is_bounded(slots):
    """No slots and too many are refused."""
    with pytest.raises(BadInput, match="slots"):
        slot_of(RECORDS, slots)


def test_cells_hold_their_records():
    """Counts and sums of cells are those of a loop; cells without records hold zeros."""
    cells = slot_of(RECORDS, 5) * 2
    counts, sums = cell_sums(RECORDS, cells, 10)
    for cell in range(10):
        assert counts[cell] == (cells == cell).sum()
        assert np.array_equal(sums[cell], RECORDS[cells == cell].sum(axis=0))
    assert not sums[1::2].any()
    assert [part.shape for part in cell_sums(RECORDS[:0], cells[:0], 3)] == [(3,), (3, 12)]


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("weights", [(1.0, 1e-6), (1.0, 1e-5), (1e-3, 1e-6)])
def test_sensitivity_is_met_and_not_passed(adjacency, weights):
    """Over records of full length in all directions and cells the longest weighted step is the stated one."""
    sensitivity = CellSensitivity(adjacency, ("n", "a"), cells=2, dimension=2, levels=1000)
    angles = np.arange(8) * np.pi / 4
    records = np.trunc(1000 * np.stack([np.cos(angles), np.sin(angles)], axis=1)).astype(np.int64)
    ones = [cell_sums(record[None], np.array([cell]), 2) for record in records for cell in range(2)]
    nothing = cell_sums(records[:0], np.zeros(0, dtype=np.int64), 2)
    others = ones if adjacency is Adjacency.REPLACE_ONE else [nothing]
    steps = [
        sum(weight * ((own - its) ** 2).sum() for weight, own, its in zip(weights, one, other, strict=True))
        for one in ones
        for other in others
    ]
    assert sensitivity.squared({"n": weights[0], "a": weights[1]}) == pytest.approx(max(steps), rel=1e-12)
    assert sensitivity.unit is Unit.RECORD
    assert [(each.name, each.l2, each.size) for each in sensitivity.blocks] == [("n", 1.0, 2), ("a", 1000.0, 4)]


def test_one_cell_leaves_only_the_sum_to_move():
    """Where all records share a cell, replacing one never moves a count."""
    only = CellSensitivity(Adjacency.REPLACE_ONE, ("n", "a"), cells=1, dimension=2, levels=10)
    assert only.squared({"n": 7.0, "a": 0.01}) == pytest.approx(4.0)


@given(st.lists(st.integers(-(1 << 20), 1 << 20), min_size=1, max_size=60), st.integers(1, 100))
def test_centres_are_read_as_they_were_told(entries, number):
    """What is broadcast is what is read, entry by entry."""
    assert read_centres(told_centres(number, np.array(entries)), number, 1 << 20).tolist() == entries


@pytest.mark.parametrize(
    "broadcast",
    [
        b"",
        b"\xff\xff",
        encode(Centres(2, bytes(8))),
        encode(Centres(1, bytes(7))),
        told_centres(1, np.array([0, 101])),
        told_centres(1, np.array([-101])),
        told_centres(1, np.array([-(1 << 31)])),
        told_centres(1, np.array([3])) + b"\x00",
    ],
    ids=["nothing", "no message", "another round", "cut short", "too large", "too small", "least int32", "more bytes"],
)
def test_malformed_centres_are_refused(broadcast):
    """A broadcast of another round, of no whole numbers, or with an entry beyond the bound is the server's fault."""
    with pytest.raises(MalformedMessage):
        read_centres(broadcast, 1, 100)


def test_centres_are_bounded():
    """More centres than a message holds are refused before they are told."""
    with pytest.raises(BadInput, match="use fewer"):
        told_centres(1, np.zeros(MAX_CENTRE_BYTES // 4 + 1, dtype=np.int64))


def _rounds():
    """Every kind of round that divides classes, with the places that each record may have."""
    generator = np.random.default_rng(3)
    domains = method_named("mpft", {"domains": "art+photo", "slots": 3})
    clusters = MPFT(domains="art+photo", sampling="cluster", slots=3, rounds=1)
    slots, keep = (method_named("fedtc", {"slots": 5, **each}) for each in ({}, {"keep": 0.7}))
    centres = generator.integers(-1000, 1000, (4, 6))
    clustering = Clustering(clusters, 1, generator.integers(-1000, 1000, 4 * 2 * 3 * 6))
    gated = GatedRound(domains, (0, 1, 3, 6), frozenset({"slot_counts", "slot_sums"}), 2)
    return {
        "slots": (slots, 5),
        "keep": (keep, 5),
        "threshold": (SlotRound(5, 1, 0.0, 0.1, centres), 5),
        "domains": (domains, 6),
        "clusters": (clustering, 6),
        "gate": (gated, 6),
    }


@pytest.mark.parametrize("kind", ["slots", "keep", "threshold", "domains", "clusters", "gate"])
def test_places_are_those_of_the_sum(kind):
    """What a round sums are the records in the cells that it names, whichever rule leaves records out."""
    round_, parts = _rounds()[kind]
    generator = np.random.default_rng(4)
    examples = Examples(
        generator.integers(-1000, 1000, (200, 6)), generator.integers(0, 4, 200), generator.integers(0, 2, 200)
    )
    places = round_.cells(examples, 4)
    inside = places >= 0
    assert inside.all() == (kind in ("slots", "domains", "clusters"))
    assert inside.any()
    cells = (examples.labels * parts + places)[inside]
    counts, sums = cell_sums(examples.records[inside], cells, 4 * parts)
    blocks = contribute(round_, examples, 4, 1 << 16)
    assert np.array_equal(blocks["slot_counts"].ravel(), counts)
    assert np.array_equal(blocks["slot_sums"].reshape(-1, 6), sums)


def test_undivided_classes_are_one_cell_each():
    """A method without slots has every record in the one cell of its class, as has a sum before a threshold."""
    examples = Examples.of(np.ones((3, 2), dtype=np.int64), np.array([0, 1, 1]))
    for method in (method_named("fedcgs"), method_named("prototypes"), method_named("fedtc", {"threshold": 0.5})):
        assert method.cells(examples, 2).tolist() == [0, 0, 0]


def test_lengths_have_the_same_bits_in_every_order() -> None:
    """The length of a row does not depend on the order in which its squares are added, as that of numpy's sums does."""
    rows = np.random.default_rng(3).normal(size=(200, 301)) * 2.0 ** np.arange(301)[::-1].clip(0, 40)
    orders = [np.random.default_rng(seed).permutation(301) for seed in range(5)]
    assert all(np.array_equal(lengths_of(rows), lengths_of(rows[:, order])) for order in orders)
    naive = [np.sqrt((rows[:, order] ** 2).sum(axis=1)) for order in orders]
    assert not all(np.array_equal(naive[0], each) for each in naive)
    assert lengths_of(np.zeros((0, 3))).shape == (0,)
    assert np.allclose(lengths_of(rows), np.linalg.norm(rows, axis=1), rtol=1e-14)
