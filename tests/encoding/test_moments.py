"""Exact sums, and what no honest sum shows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.encoding import Block, Grid, Kind, accumulate, full_matrix, moments
from secagg.encoding.moments import sanity_failures
from secagg.errors import BadInput, CapacityExceeded

CLASSES = 4


@st.composite
def record_sets(draw):
    """Integer records of norm ≤ levels with labels, some at the very edge."""
    levels = draw(st.sampled_from([1, 100, 2**16, 2**26]))
    count, dimension = draw(st.integers(0, 30)), draw(st.integers(1, 6))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    directions = generator.normal(size=(count, dimension))
    norms = np.linalg.norm(directions, axis=1, keepdims=True)
    records = np.trunc(directions / np.maximum(norms, 1e-9) * levels * (1 - 2**-40)).astype(np.int64)
    records[: count // 3] = 0
    records[: count // 3, 0] = -levels
    return records, generator.integers(0, CLASSES, count), levels


@given(record_sets())
def test_sums_are_the_integer_definition(sample):
    """Every block equals the sum in Python integers, without any rounding."""
    records, labels, levels = sample
    blocks = accumulate(records, labels, CLASSES, levels)
    exact = records.astype(object)
    dimension = records.shape[1]
    moment = sum((np.outer(row, row) for row in exact), np.zeros((dimension, dimension), dtype=object))
    assert blocks["second_moment"].tolist() == moment[np.triu_indices(dimension)].tolist()
    assert blocks["counts"].tolist() == [(labels == j).sum() for j in range(CLASSES)]
    for j in range(CLASSES):
        assert blocks["class_sums"][j].tolist() == [sum(column) for column in exact[labels == j].T]
    assert all(block.dtype == np.int64 for block in blocks.values())


@given(record_sets(), st.integers(0, 2**32), st.integers(1, 6))
def test_partition_and_order_change_no_bit(sample, seed, clients):
    """Summed over any partition in any order, the blocks are those of all records together."""
    records, labels, levels = sample
    whole = accumulate(records, labels, CLASSES, levels)
    order = np.random.default_rng(seed).permutation(len(records))
    parts = [accumulate(records[part], labels[part], CLASSES, levels) for part in np.array_split(order, clients)]
    for name, block in whole.items():
        assert (sum(part[name] for part in parts) == block).all()


def test_chunks_keep_every_bit(monkeypatch):
    """Sums that pass 2⁵³ stay exact, as each chunk's product is below it."""
    levels = 2**26
    records = np.array([[levels, 0], [levels - 1, 5], [-levels, 0], [0, levels]] * 64, dtype=np.int64)
    labels = np.arange(256) % CLASSES
    blocks = accumulate(records, labels, CLASSES, levels)
    top = 64 * (2 * levels**2 + (levels - 1) ** 2)
    assert top > 2**53
    assert blocks["second_moment"].tolist() == [top, 64 * 5 * (levels - 1), 64 * (25 + levels**2)]
    monkeypatch.setattr(moments, "ROWS", 3)
    monkeypatch.setattr(moments, "BLOCK_ENTRIES", 1)
    again = accumulate(records, labels, CLASSES, levels)
    assert all((again[name] == blocks[name]).all() for name in blocks)


@pytest.mark.parametrize("levels", [1, 2, 3, 2**16, 2**20 + 1, 2**26])
def test_exact_rows_stay_below_the_limit(levels):
    """The largest chunk's partial sums are below 2⁵³, and one more record's could reach it."""
    rows = moments._exact_rows(levels)
    assert rows * levels**2 < 2**53 <= (rows + 1) * levels**2


def test_capacity_is_refused():
    """Levels whose square is no exact float64, and record numbers that could pass int64, are refused."""
    with pytest.raises(CapacityExceeded):
        accumulate(np.zeros((1, 1), np.int64), np.zeros(1, np.int64), 1, 2**27)
    many = np.broadcast_to(np.zeros((1, 1), np.int64), (2**11, 1))
    with pytest.raises(CapacityExceeded, match="2048 records"):
        accumulate(many, np.zeros(2**11, np.int64), 1, 2**26)


@pytest.mark.parametrize(
    ("records", "labels"),
    [
        ([[3, 4]], [0, 1]),
        ([[3, 4]], [-1]),
        ([[3, 4]], [CLASSES]),
        ([[4, 4]], [0]),
        ([[0, 0], [0, -6]], [0, 0]),
        ([[2**40, 0]], [0]),
        ([[-(2**63), 0]], [0]),
    ],
)
def test_unproven_record_is_refused(records, labels):
    """A label out of range, or a record longer than the proof assumes, is refused."""
    with pytest.raises(BadInput):
        accumulate(np.array(records, dtype=np.int64), np.array(labels, dtype=np.int64), CLASSES, 5)


def test_full_matrix_is_symmetric():
    """The triangle unfolds to the matrix it came from."""
    assert full_matrix(np.array([1, 2, 3, 4, 5, 6]), 3).tolist() == [[1, 2, 3], [2, 4, 5], [3, 5, 6]]


LAYOUT = (
    Block("counts", (CLASSES,), 1, Kind.COUNTS),
    Block("class_sums", (CLASSES, 3), 100, Kind.CLASS_SUMS),
    Block("second_moment", (6,), 10_000, Kind.SECOND_MOMENT),
)


@given(record_sets())
def test_honest_sum_is_plausible(sample):
    """No honest sum gives a complaint, extreme records and empty classes included."""
    records, labels, levels = sample
    blocks = accumulate(records, labels, CLASSES, levels)
    assert sanity_failures(LAYOUT, blocks, Grid(1.0, levels)) == []


@pytest.mark.parametrize(
    ("block", "index", "value", "words"),
    [
        ("counts", 0, -1, "has -1 records"),
        ("class_sums", (0, 0), 10**7, "sums to length"),
        ("class_sums", (3, 0), 1, "class 3 sums to length"),
        ("second_moment", 0, -1, "below what"),
        ("second_moment", 0, 10**9, "trace"),
        ("second_moment", 1, 10**5, "not positive semi-definite"),
    ],
)
def test_lie_is_noticed(block, index, value, words):
    """A negative count, a sum beyond its records, a false trace or an indefinite moment gives a complaint."""
    generator = np.random.default_rng(0)
    records = generator.integers(-50, 51, (40, 3))
    blocks = accumulate(records, np.arange(40) % 3, CLASSES, 100)
    blocks[block][index] = value
    assert any(words in complaint for complaint in sanity_failures(LAYOUT, blocks, Grid(1.0, 100)))


def test_counts_of_two_sorts():
    """Beside a second block of counts an honest sum gives no complaint, and a negative entry of either gives one."""
    layout = (*LAYOUT, Block("recognised", (CLASSES,), 1, Kind.COUNTS))
    blocks = accumulate(np.full((8, 3), 50), np.arange(8) % CLASSES, CLASSES, 100)
    blocks["recognised"] = np.zeros(CLASSES, dtype=np.int64)
    assert sanity_failures(layout, blocks, Grid(1.0, 100)) == []
    for name in ("counts", "recognised"):
        negative = {**blocks, name: -1 - blocks[name]}
        assert len(sanity_failures(layout, negative, Grid(1.0, 100))) == CLASSES


def test_sums_that_no_memory_holds_are_refused():
    """A few records of many features are refused before their second moment is laid out."""
    with pytest.raises(BadInput, match="the sums of 2 classes and 60000 features would take 28800960000 bytes"):
        accumulate(np.zeros((2, 60_000), dtype=np.int64), np.array([0, 1]), 2, 1)
