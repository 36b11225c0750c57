"""Clipped softmax gradients: their value, their bound, and that a record cannot see the others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.encoding import softmax_gradient as module
from secagg.encoding.softmax_gradient import RESIDUAL_LEVELS, Mapped, Whitening, softmax_gradient
from secagg.errors import BadInput, CapacityExceeded

CLASSES = 4
UNIT = 2.0**-module.WEIGHT_BITS


def whitening(generator, dimension, levels=1 << 16, scale=2.0**24):
    """A random well-conditioned map of records with at most 1,000 levels."""
    matrix = np.rint((np.eye(dimension) + 0.3 * generator.normal(size=(dimension, dimension))) * scale)
    centre = np.rint(generator.normal(size=dimension) * 100 * scale)
    return Whitening(matrix.astype(np.int64), centre.astype(np.int64), 1000, levels)


def sample(seed, count=40, dimension=5, spread=2.0):
    """Integer records, mapped by a random whitening; labels; weights."""
    generator = np.random.default_rng(seed)
    records = generator.integers(-200, 201, (count, dimension))
    mapped = whitening(generator, dimension).apply(records)
    weights = np.rint(spread * generator.normal(size=(CLASSES, dimension + 1)) / UNIT).astype(np.int64)
    return mapped, generator.integers(0, CLASSES, count), weights


def in_floats(mapped, labels, weights, clip):
    """The sum of clipped gradients, computed plainly."""
    inputs = mapped / 65536
    scores = inputs @ weights.T * UNIT
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    residuals = shares / shares.sum(axis=1, keepdims=True) - np.eye(CLASSES)[labels]
    norms = np.linalg.norm(residuals, axis=1, keepdims=True)
    return (residuals * np.minimum(1, clip / np.maximum(norms, 1e-12))).T @ inputs


@pytest.mark.parametrize("clip", [0.5, 1.0, 2**0.5])
@pytest.mark.parametrize("spread", [0.0, 2.0, 200.0])
def test_sum_is_the_clipped_gradient(clip, spread):
    """In real units the integers are the clipped cross-entropy gradient, up to rounding."""
    mapped, labels, weights = sample(1, count=300, spread=spread)
    got = softmax_gradient(Mapped.of(mapped, 65536), labels, weights, clip) * clip / (RESIDUAL_LEVELS * 65536)
    assert np.allclose(got, in_floats(mapped, labels, weights, clip), atol=300 * 2e-3 * clip)


def test_unclipped_sum_is_the_derivative():
    """Without a clip it is the derivative of the summed cross-entropy, by central differences."""
    mapped, labels, weights = sample(2)

    def loss(moved):
        scores = mapped / 65536 @ moved.T * UNIT
        return (np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(labels)), labels]).sum()

    got = softmax_gradient(Mapped.of(mapped, 65536), labels, weights, 2**0.5) * 2**0.5 / (RESIDUAL_LEVELS * 65536)
    for j, i in ((0, 0), (2, 3), (3, 5)):
        shift = np.zeros(weights.shape)
        shift[j, i] = 64
        slope = (loss(weights + shift) - loss(weights - shift)) / (128 * UNIT)
        assert got[j, i] == pytest.approx(slope, abs=0.05)


@given(st.integers(0, 2**32), st.sampled_from([0.0, 1.0, 30.0, 1000.0]), st.sampled_from([1e-3, 0.5, 2**0.5]))
def test_no_record_adds_more_than_the_bound(seed, spread, clip):
    """‖r xᵀ‖ ≤ 2¹²·R_x for every record, in exact integers."""
    mapped, labels, weights = sample(seed, count=8, spread=spread)
    for row in range(8):
        added = softmax_gradient(Mapped.of(mapped[row : row + 1], 65536), labels[row : row + 1], weights, clip)
        assert sum(int(value) ** 2 for value in added.flat) <= (RESIDUAL_LEVELS * 65536) ** 2


def test_bound_is_reached():
    """A confident mistake adds almost the whole bound: the clip is not stricter than it says."""
    mapped, _, _ = sample(3, count=1)
    weights = np.zeros((CLASSES, 6), dtype=np.int64)
    weights[0] = mapped[0] * 16
    added = softmax_gradient(Mapped.of(mapped, 65536), np.array([1]), weights, 0.5)
    assert np.linalg.norm(added) > 0.999 * RESIDUAL_LEVELS * 65536


def test_opposite_records_are_twice_the_bound_apart():
    """Replacing one record can move the sum by twice the bound of one, not by √2 times it."""
    mapped, _, _ = sample(4, count=1)
    weights = np.zeros((2, 6), dtype=np.int64)
    one, other = (softmax_gradient(Mapped.of(mapped, 65536), np.array([label]), weights, 0.5) for label in (0, 1))
    assert np.linalg.norm(one - other) > 1.99 * RESIDUAL_LEVELS * 65536


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_partition_and_order_change_no_bit(seed, clients):
    """A record's share of the sum does not depend on which records are summed with it."""
    mapped, labels, weights = sample(seed)
    whole = softmax_gradient(Mapped.of(mapped, 65536), labels, weights, 0.5)
    order = np.random.default_rng(seed).permutation(len(mapped))
    parts = [
        softmax_gradient(Mapped.of(mapped[p], 65536), labels[p], weights, 0.5) for p in np.array_split(order, clients)
    ]
    assert (sum(parts) == whole).all()


def test_removing_one_record_removes_its_share():
    """With and without one record the sums differ by exactly what that record adds alone, in every bit."""
    mapped, labels, weights = sample(5, count=1000, dimension=17)
    whole = softmax_gradient(Mapped.of(mapped, 65536), labels, weights, 0.5)
    for row in (0, 499, 999):
        rest = np.arange(1000) != row
        alone = softmax_gradient(Mapped.of(mapped[row : row + 1], 65536), labels[row : row + 1], weights, 0.5)
        assert (whole - softmax_gradient(Mapped.of(mapped[rest], 65536), labels[rest], weights, 0.5) == alone).all()


def test_chunks_keep_every_bit(monkeypatch):
    """However the records are cut, the map and the sum are the same."""
    generator = np.random.default_rng(6)
    records, labels = generator.integers(-200, 201, (100, 9)), generator.integers(0, CLASSES, 100)
    transform = whitening(generator, 9)
    weights = generator.integers(-(2**17), 2**17, (CLASSES, 10))
    mapped = transform.apply(records)
    whole = softmax_gradient(Mapped.of(mapped, 65536), labels, weights, 0.5)
    monkeypatch.setattr(module, "ROWS", 7)
    assert (transform.apply(records) == mapped).all()
    assert (softmax_gradient(Mapped.of(mapped, 65536), labels, weights, 0.5) == whole).all()


@given(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([256, 65536, 2**24]))
def test_mapped_records_have_one_length(seed, dimension, levels):
    """Mapped records are at most R_x long, in exact integers, and hardly shorter."""
    generator = np.random.default_rng(seed)
    records = generator.integers(-100, 101, (6, dimension)) + np.eye(6, dimension, dtype=np.int64)
    mapped = whitening(generator, dimension, levels).apply(records)
    for row in mapped[(records != 0).any(axis=1)]:
        squared = sum(int(value) ** 2 for value in row)
        assert (levels - 2 * (dimension + 1) ** 0.5) ** 2 * 0.98 <= squared <= levels**2


def test_map_is_centred_whitened_and_normalised():
    """x/R_x is √(d/D)·(q M − c)/‖q M − c‖ with 1/√D behind it, D = d + 1."""
    generator = np.random.default_rng(7)
    records = generator.integers(-300, 301, (50, 6))
    transform = whitening(generator, 6)
    moved = records @ transform.matrix.astype(float) - transform.centre
    expected = moved / np.linalg.norm(moved, axis=1, keepdims=True) * (6 / 7) ** 0.5
    mapped = transform.apply(records) / 65536
    assert np.allclose(mapped[:, :-1], expected, atol=1e-4)
    assert np.allclose(mapped[:, -1], 7**-0.5, atol=1e-4)


def test_record_of_zeros_adds_nothing():
    """A record that may not count stays zero, constant included, and leaves the sum as it was."""
    generator = np.random.default_rng(8)
    mapped = whitening(generator, 5).apply(np.array([[0] * 5, [3, 0, -4, 0, 9]]))
    assert not mapped[0].any()
    assert mapped[1].any()
    weights = np.ones((CLASSES, 6), dtype=np.int64)
    assert not softmax_gradient(Mapped.of(mapped[:1], 65536), np.array([2]), weights, 0.5).any()
    assert not softmax_gradient(Mapped.of(mapped[:0], 65536), np.zeros(0, dtype=np.int64), weights, 0.5).any()


def test_record_on_the_centre_is_mapped_to_the_constant():
    """Where nothing is left after centring only the constant remains; nothing divides by zero."""
    identity = np.eye(2, dtype=np.int64)
    mapped = Whitening(identity, np.array([3, 4]), 10).apply(np.array([[3, 4]]))
    assert mapped.tolist() == [[0, 0, 37837]]


def test_numbers_that_could_round_are_refused():
    """Whitenings, weights and record numbers whose exactness is not proven raise CapacityExceeded."""
    identity = np.eye(2, dtype=np.int64)
    with pytest.raises(CapacityExceeded):
        Whitening(identity << 44, np.zeros(2, dtype=np.int64), 1 << 10)
    with pytest.raises(CapacityExceeded):
        Whitening(identity, np.array([0, 1 << 53]), 1 << 10)
    one, label = np.array([[1, 1]]), np.zeros(1, dtype=np.int64)
    with pytest.raises(CapacityExceeded):
        softmax_gradient(Mapped.of(one, 1 << 16), label, identity << 40, 0.5)
    many = Mapped(np.broadcast_to(np.zeros((1, 2)), (1 << 27, 2)), 1 << 24)
    with pytest.raises(CapacityExceeded):
        softmax_gradient(many, np.broadcast_to(label, 1 << 27), identity, 0.5)


@pytest.mark.parametrize(
    ("records", "labels", "weights", "clip"),
    [
        ([[300, 0]], [0], [[1, 1], [1, 1]], 0.5),
        ([[3, 0]], [2], [[1, 1], [1, 1]], 0.5),
        ([[3, 0]], [-1], [[1, 1], [1, 1]], 0.5),
        ([[3, 0]], [0, 1], [[1, 1], [1, 1]], 0.5),
        ([[3, 0]], [0], [[1, 1, 1], [1, 1, 1]], 0.5),
        ([[3, 0]], [0], [[1, 1], [1, 1]], 0.0),
        ([[3, 0]], [0], [[1, 1], [1, 1]], 2.0),
    ],
)
def test_what_does_not_fit_is_refused(records, labels, weights, clip):
    """A record that is too long, an unknown label, other shapes and an impossible clip are refused."""
    with pytest.raises(BadInput):
        softmax_gradient(Mapped.of(np.array(records), 256), np.array(labels), np.array(weights), clip)


def test_whitening_refuses_what_its_proof_does_not_cover():
    """Records longer than declared, matrices that are not square and impossible levels are refused."""
    transform = Whitening(np.eye(2, dtype=np.int64), np.zeros(2, dtype=np.int64), 10)
    with pytest.raises(BadInput, match="longer than 10"):
        transform.apply(np.array([[8, 8]]))
    for shape, levels in (((2, 3), 256), ((2, 2), 2), ((2, 2), 1 << 25)):
        with pytest.raises(BadInput):
            Whitening(np.ones(shape, dtype=np.int64), np.zeros(2, dtype=np.int64), 10, levels)
