"""The public rotation: its blocks, forwards in float64, backwards in exact integers."""

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.encoding.updates.encoding import LARGEST_BLOCK, Rotation, blocks_of
from secagg.errors import BadInput, CapacityExceeded
from tests.vectors.files import load

VECTORS = load("updates")["rotation"]
SEED = bytes(range(32))
sizes = st.integers(1, 700) | st.sampled_from([4096, 70_000])


def real_vector(size: int, seed: int) -> np.ndarray:
    """A vector whose entries differ by orders of magnitude."""
    generator = np.random.default_rng(seed)
    return generator.normal(size=size) * np.exp2(generator.integers(-30, 30, size))


@given(st.integers(1, 10**9))
def test_blocks_waste_little(size):
    """Blocks are falling powers of two up to 2¹⁶; at most 2 % or 63 entries are padding; no last block is a sliver."""
    blocks = blocks_of(size)
    padding = sum(blocks) - size
    assert 0 <= padding <= max(size * 0.02, 63)
    assert all(block & (block - 1) == 0 for block in blocks)
    assert list(blocks) == sorted(blocks, reverse=True)
    assert blocks[0] <= LARGEST_BLOCK
    assert blocks[-1] >= min(LARGEST_BLOCK, size / 100)
    assert padding < size


@pytest.mark.parametrize("case", VECTORS["blocks"], ids=lambda case: str(case["size"]))
def test_blocks_are_the_reference_s(case):
    """An independent statement of the rule gives the same blocks."""
    blocks = blocks_of(case["size"])
    assert [[block, blocks.count(block)] for block in sorted(set(blocks), reverse=True)] == case["blocks"]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: str(case["size"]))
def test_both_directions_are_the_reference_s(case):
    """Products with whole Hadamard matrices give the same: forwards up to rounding, backwards bit for bit."""
    rotation = Rotation(case["size"], bytes.fromhex(case["seed"]))
    applied = rotation.apply(np.array([float.fromhex(x) for x in case["vector"]]))
    assert np.allclose(applied, [float.fromhex(y) for y in case["applied"]], rtol=0, atol=1e-14)
    undone = rotation.undo(np.array(case["total"], dtype=np.int64))
    assert [x.hex() for x in undone.tolist()] == case["undone"]


def test_large_entries_are_undone_bit_for_bit():
    """Entries of 50 bits, whose transform is beyond float64, give the reference's bits."""
    case = VECTORS["large"]
    rotation = Rotation(case["size"], bytes.fromhex(case["seed"]))
    undone = rotation.undo(np.array(case["total"], dtype=np.int64))
    assert hashlib.sha256(undone.astype("<f8").tobytes()).hexdigest() == case["sha256"]


@given(sizes, st.integers(0, 2**32), st.binary(min_size=32, max_size=32))
def test_length_is_kept(size, draw, seed):
    """A rotated vector is as long as the vector, whatever the seed."""
    vector = real_vector(size, draw)
    rotated = Rotation(size, seed).apply(vector)
    assert math.isclose(np.linalg.norm(rotated), np.linalg.norm(vector), rel_tol=1e-12)


@given(sizes, st.integers(0, 2**32))
def test_undoing_gives_the_vector_back(size, draw):
    """Rotated, rounded to integers of 40 bits and undone, a vector is off by no more than that rounding."""
    rotation = Rotation(size, SEED)
    vector = np.random.default_rng(draw).uniform(-1, 1, size)
    integers = np.rint(rotation.apply(vector) * 2.0**30).astype(np.int64)
    assert np.linalg.norm(rotation.undo(integers) * 2.0**-30 - vector) <= 2.0**-31 * math.sqrt(rotation.padded) + 1e-12


@given(st.integers(1, 300), st.integers(0, 2**32))
def test_undoing_is_linear_in_exact_integers(size, draw):
    """Undoing a sum of multiples of √m, where nothing rounds, is exactly the sum of what is undone."""
    rotation = Rotation(size, SEED)
    blocks = np.repeat(rotation.blocks, rotation.blocks)
    one, two = np.random.default_rng(draw).integers(-(2**20), 2**20, (2, rotation.padded)) * blocks
    scale = np.sqrt(blocks[:size])
    parts = [np.rint(rotation.undo(each) / scale) for each in (one, two, one + two)]
    assert np.array_equal(parts[0] + parts[1], parts[2])


def test_one_entry_is_spread_evenly():
    """A vector with one entry has the same size everywhere in its block, and nothing in the others."""
    rotation = Rotation(100_000, SEED)
    vector = np.zeros(100_000)
    vector[70_000] = 1.0
    rotated = np.abs(rotation.apply(vector))
    start, block = LARGEST_BLOCK, rotation.blocks[1]
    assert np.allclose(rotated[start : start + block], 1 / math.sqrt(block), rtol=1e-14)
    assert np.count_nonzero(rotated) == block


def test_seeds_give_different_rotations():
    """Half the signs of two seeds differ, give or take six standard deviations; equal seeds are equal rotations."""
    count = 1 << 16
    one, two = (Rotation(count, bytes([first]) * 32)._signs for first in (0, 1))
    assert abs(int((one != two).sum()) - count / 2) < 6 * math.sqrt(count) / 2
    assert Rotation(9, SEED) == Rotation(9, bytes(SEED))


def test_border_of_int64_is_exact():
    """The largest total that cannot overflow is undone; one more is refused."""
    rotation = Rotation(64, SEED)
    most = (2**63 - 1) // 64
    signs = rotation._signs[:64].astype(np.int64)
    assert rotation.undo(most * np.ones(64, dtype=np.int64))[0] == signs[0] * (float(64 * most) / 8.0)
    for entry in (most + 1, -most - 1, 2**63 - 1, -(2**63)):
        with pytest.raises(CapacityExceeded):
            rotation.undo(np.array([0] * 63 + [entry], dtype=np.int64))


@pytest.mark.parametrize("seed", [b"", bytes(31), bytes(33)])
def test_other_seeds_are_refused(seed):
    """A seed has 32 bytes."""
    with pytest.raises(BadInput, match="32 bytes"):
        Rotation(4, seed)


@pytest.mark.parametrize("size", [0, -1])
def test_nothing_cannot_be_rotated(size):
    """A rotation has at least one entry."""
    with pytest.raises(BadInput):
        Rotation(size, SEED)


@pytest.mark.parametrize(
    "wrong", [np.zeros(99), np.zeros((1, 100)), np.zeros(100, np.float32), np.zeros(100, np.int64)]
)
def test_only_the_stated_vector_is_rotated(wrong):
    """Another shape or type is refused."""
    with pytest.raises(BadInput):
        Rotation(100, SEED).apply(wrong)


@pytest.mark.parametrize("wrong", [np.zeros(100, np.int64), np.zeros((1, 128), np.int64), np.zeros(128)])
def test_only_the_stated_total_is_undone(wrong):
    """A total has the padded size, in int64."""
    with pytest.raises(BadInput):
        Rotation(100, SEED).undo(wrong)


def test_nothing_given_is_changed():
    """Neither direction writes into its argument."""
    rotation = Rotation(100, SEED)
    vector, total = np.arange(100.0), np.arange(128)
    rotation.apply(vector)
    rotation.undo(total)
    assert np.array_equal(vector, np.arange(100.0))
    assert np.array_equal(total, np.arange(128))
