"""Random features: exact, batch independent, pinned."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from secagg.errors import BadInput, CapacityExceeded
from secagg.features import Expansion
from secagg.features.expansion import projection_of

finite = st.floats(-1e6, 1e6, allow_subnormal=False)
batches = arrays(np.float64, st.tuples(st.integers(1, 20), st.just(6)), elements=finite)


@given(batches, st.integers(0, 2**32))
def test_row_depends_on_its_record_alone(features, seed):
    """Alone, in any order and in any batch, a record expands to the same bits."""
    order = np.random.default_rng(seed).permutation(len(features))
    together = Expansion(33).expand(features)
    assert (Expansion(33).expand(features[order]) == together[order]).all()
    for index, record in enumerate(features):
        assert (Expansion(33).expand(record[None])[0] == together[index]).all()


def test_row_is_the_same_inside_a_large_batch():
    """A record's bits do not change between a batch of one and a batch that BLAS cuts into panels."""
    features = np.random.default_rng(0).normal(size=(3000, 200))
    together = Expansion(150).expand(features)
    for index in (0, 1, 1499, 2999):
        assert (Expansion(150).expand(features[index][None])[0] == together[index]).all()


@given(arrays(np.float64, (6,), elements=finite))
def test_values_are_the_integer_definition(record):
    """The float64 product equals the definition computed in Python integers and fractions of two."""
    (got,) = Expansion(5).expand(record[None])
    exponent = int(np.frexp(np.abs(record).max())[1])
    integers = [round(float(np.ldexp(value, 21 - exponent))) for value in record]
    for column in range(5):
        total = sum(x * int(p) for x, p in zip(integers, projection_of(6, 5)[:, column], strict=True))
        assert got[column] == np.ldexp(float(max(total, 0)), exponent - 29)


def test_projection_is_the_published_stream():
    """P is eight bytes of SHAKE-256 per entry, summed and centred; its moments are those of that sum."""
    stream = hashlib.shake_256(b"secagg random features v1: 64 x 512").digest(8 * 64 * 512)
    projection = projection_of(64, 512)
    assert projection[0, 0] == sum(stream[:8]) - 1020
    assert projection[1, 0] == sum(stream[8 * 512 : 8 * 513]) - 1020
    assert abs(projection.mean()) < 5 * 209 / np.sqrt(projection.size)
    assert abs(projection.std() - np.sqrt(8 * (256**2 - 1) / 12)) < 3


def test_zero_record_expands_to_zeros():
    """A zero record has no exponent and stays zero."""
    assert (Expansion(7).expand(np.zeros((2, 3))) == 0).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_bad_record_becomes_nan_and_spares_the_others(value):
    """A NaN or infinite entry marks its own row only, for the grid to refuse."""
    features = np.ones((3, 4))
    features[1, 2] = value
    expanded = Expansion(6).expand(features)
    assert np.isnan(expanded[1]).all()
    assert (expanded[[0, 2]] == Expansion(6).expand(np.ones((2, 4)))).all()


@given(batches)
def test_bound_holds(features):
    """No expanded record is longer than the public bound for its input's length."""
    length = float(np.linalg.norm(features, axis=1).max())
    for size in (3, 40):
        expanded = np.linalg.norm(Expansion(size).expand(features), axis=1).max()
        assert expanded <= Expansion(size).bound(6, length)


def test_too_many_features_are_refused():
    """Where a partial sum could reach 2⁵³ the product is refused instead of rounded."""
    assert 4_210_752 * 2**21 * 1020 < 2**53 <= 4_210_753 * 2**21 * 1020
    with pytest.raises(CapacityExceeded):
        Expansion(1).expand(np.zeros((1, 4_210_753)))


def test_size_must_be_positive():
    """An expansion to no features is refused."""
    with pytest.raises(BadInput):
        Expansion(0)


def test_digest_names_the_size():
    """Each size has its own digest."""
    assert len({Expansion(size).digest for size in (1, 2, 512)}) == 3
