"""Records of one length: what a normalised feature vector becomes, whatever its scale and whatever lies beside it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from secagg.encoding import Grid, Normalisation, inputs_of, quantise
from secagg.errors import BadInput, BadRecord

UNIT, CENTRED = Normalisation.UNIT, Normalisation.CENTRED_UNIT
EITHER = st.sampled_from([UNIT, CENTRED])

anything = arrays(
    np.float64,
    st.tuples(st.integers(1, 12), st.integers(1, 9)),
    elements=st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True),
)
wholes = st.floats(-1e6, 1e6).map(lambda value: float(round(value)))


def grid(normalisation: Normalisation, levels: int = 1 << 16, centre: float = 0.0) -> Grid:
    """A grid of normalised records."""
    return Grid(1.0, levels, centre, normalisation)


def squares(row: np.ndarray) -> int:
    """‖q‖² in Python integers."""
    return sum(int(entry) ** 2 for entry in row)


@given(anything, EITHER, st.integers(0, 2**32))
def test_a_record_does_not_depend_on_those_beside_it(features, normalisation, seed):
    """Any order and any division into batches gives every record the integers that it has alone, bit for bit."""
    rule = grid(normalisation, 1 << 10)
    whole = quantise(features, rule)
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(features))
    assert np.array_equal(quantise(features[order], rule), whole[order])
    cuts = np.sort(generator.integers(0, len(features) + 1, size=3))
    assert np.array_equal(np.concatenate([quantise(part, rule) for part in np.split(features, cuts)]), whole)
    assert all(np.array_equal(quantise(row[None], rule)[0], whole[index]) for index, row in enumerate(features))


@pytest.mark.parametrize("normalisation", [UNIT, CENTRED])
@pytest.mark.parametrize("dimension", [3, 130])
def test_chunks_and_memory_layout_do_not_show(normalisation, dimension):
    """Rows beyond one chunk, strided and Fortran-ordered arrays give the same integers."""
    features = np.random.default_rng(dimension).normal(size=(8195, dimension))
    rule = grid(normalisation)
    whole = quantise(features, rule)
    assert np.array_equal(quantise(np.asfortranarray(features), rule), whole)
    assert np.array_equal(quantise(np.repeat(features, 2, axis=1)[:, ::2], rule), whole)
    for index in (0, 8190, 8191, 8192, 8194):
        assert np.array_equal(quantise(features[index : index + 1], rule)[0], whole[index])


def at_a_tie(row: np.ndarray, rule: Grid) -> list[np.ndarray]:
    """The row with first entries around the one from which on its first integer is one higher."""
    low, high = 0.0, 1.0

    def first(value: float) -> int:
        return int(quantise(np.array([[value, *row[1:]]]), rule)[0, 0])

    start = first(low)
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if first(middle) > start else (middle, high)
    return [np.array([low + step * math.ulp(low), *row[1:]]) for step in range(-8, 9)]


@pytest.mark.parametrize("normalisation", [UNIT, CENTRED])
def test_memory_layout_does_not_show_at_ties(normalisation):
    """Also where one bit before rounding decides, C and Fortran order, alone or beside others, give the same."""
    rule = grid(normalisation)
    for row in np.random.default_rng(4).normal(size=(20, 16)):
        rows = np.stack(at_a_tie(row, rule))
        whole = quantise(rows, rule)
        assert np.array_equal(quantise(np.asfortranarray(rows), rule), whole)
        assert all(np.array_equal(quantise(each[None], rule)[0], q) for each, q in zip(rows, whole, strict=True))


@given(anything, EITHER, st.sampled_from([16, 1 << 10, 1 << 16, 1 << 26]), st.floats(-1e6, 1e6))
def test_no_record_is_longer_than_the_grid(features, normalisation, levels, centre):
    """‖q‖₂ ≤ R_q in whole numbers for every float64 there is: NaN, infinite, huge, denormal."""
    rule = grid(normalisation, levels, centre if normalisation is UNIT else 0.0)
    assert all(squares(row) <= levels**2 for row in quantise(features, rule))


@pytest.mark.parametrize("normalisation", [UNIT, CENTRED])
@pytest.mark.parametrize("dimension", [1, 2, 3, 7, 64, 512, 2047, 2048])
@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-160, 1.0, 1e155, 1e300])
def test_length_is_that_of_a_unit_vector(normalisation, dimension, scale):
    """Random, one-hot, and alternating records of any scale have unit − √d ≤ ‖q‖₂ ≤ R_q."""
    generator = np.random.default_rng(dimension)
    rows = generator.normal(size=(5, dimension))
    rows[1:3] = 0.0
    rows[1, 0], rows[2, -1] = 1.0, -1.0
    rows[3] = np.where(np.arange(dimension) % 2, 1.0, -1.0)
    rows[4] = np.sign(rows[4])
    if scale < 1e-300:
        rows = np.rint(10 * rows)
    rule = grid(normalisation)
    integers = quantise(rows * scale, rule)
    if normalisation is CENTRED and dimension == 1:
        assert not integers.any()
        return
    for row, features in zip(integers, rows * scale, strict=True):
        if normalisation is CENTRED and (features == features[0]).all():
            assert not row.any()
            continue
        assert squares(row) <= rule.levels**2
        assert math.sqrt(squares(row)) >= rule.unit(dimension) - math.sqrt(dimension)


@given(arrays(np.float64, st.integers(2, 9), elements=wholes), st.floats(0.001, 1000), EITHER)
def test_scale_of_a_record_does_not_matter(features, factor, normalisation):
    """f and c·f have the same integers, but for rounding by one."""
    rows = np.stack([features, 7 * features, factor * features])
    first, *others = quantise(rows, grid(normalisation))
    assert all(np.abs(other - first).max() <= 1 for other in others)


@given(arrays(np.float64, st.integers(2, 9), elements=wholes))
def test_powers_of_two_are_exactly_invariant(features):
    """Doubling a record, or halving it, changes not one bit."""
    for normalisation in (UNIT, CENTRED):
        first, *others = quantise(np.stack([features, 2 * features, features / 1024]), grid(normalisation))
        assert all(np.array_equal(first, other) for other in others)


@given(arrays(np.float64, st.integers(2, 9), elements=st.integers(-1000, 1000).map(float)), st.integers(-1000, 1000))
def test_shift_of_a_record_does_not_matter_when_it_is_centred(features, shift):
    """f and f + c have the same integers under centred-unit, but for rounding by one."""
    one, other = quantise(np.stack([features, features + shift]), grid(CENTRED))
    assert np.abs(one - other).max() <= 1


@given(arrays(np.float64, st.integers(2, 9), elements=st.integers(-1000, 1000).map(float)), EITHER)
def test_direction_is_kept(features, normalisation):
    """q is (f − c)/‖f − c‖ times R_q − √d/2, rounded to the nearest."""
    centred = features - (features.mean() if normalisation is CENTRED else 0.25)
    integers = quantise(features[None], grid(normalisation, centre=0.0 if normalisation is CENTRED else 0.25))[0]
    length = np.linalg.norm(centred)
    if length < 1e-6:
        assert not integers.any()
        return
    expected = centred / length * grid(normalisation).unit(len(features))
    assert np.abs(integers - expected).max() <= 0.5 + 1e-6


@pytest.mark.parametrize("normalisation", [UNIT, CENTRED])
@pytest.mark.parametrize(
    "bad", [[np.nan, 1.0, 2.0], [np.inf, 1.0, 2.0], [-np.inf, np.inf, 0.0], [np.nan] * 3, [0.0, 0.0, 0.0]]
)
def test_bad_rows_are_zero_and_change_no_other(normalisation, bad):
    """A row without a direction is all zeros; the rows around it are what they were."""
    good = np.random.default_rng(0).normal(size=(4, 3))
    rule = grid(normalisation)
    with_bad = quantise(np.vstack([good[:2], bad, good[2:]]), rule)
    assert not with_bad[2].any()
    assert np.array_equal(np.delete(with_bad, 2, axis=0), quantise(good, rule))


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 2048))
def test_constant_rows_are_zero_when_centred(value, dimension):
    """A record whose entries are all alike has no direction of its own, whatever rounding makes of its mean."""
    assert not quantise(np.full((1, dimension), value), grid(CENTRED)).any()


@given(st.floats(-1e6, 1e6), st.integers(1, 100))
def test_record_at_the_centre_is_zero(centre, dimension):
    """A record that is the public centre has no direction."""
    assert not quantise(np.full((1, dimension), centre), grid(UNIT, centre=centre)).any()


@given(anything, EITHER)
def test_bad_rows_of_any_kind_leave_no_warning_and_no_trace(features, normalisation):
    """Every row is either zero or of full length: there is nothing in between."""
    rule = grid(normalisation)
    for row in quantise(features, rule):
        length = math.sqrt(squares(row))
        assert length == 0 or length >= rule.unit(features.shape[1]) - math.sqrt(features.shape[1])


def test_inputs_of_a_head_are_the_integers_that_were_summed():
    """What a head takes is q over the unit: length 1 but for rounding; without normalisation the features."""
    features = np.random.default_rng(1).normal(size=(20, 6))
    rule = grid(CENTRED)
    inputs = inputs_of(features, rule)
    assert np.array_equal(inputs, quantise(features, rule) / rule.unit(6))
    assert np.allclose(np.linalg.norm(inputs, axis=1), 1, atol=1e-4)
    assert inputs_of(features, Grid(10.0)) is features


def test_keeping_the_length_still_refuses():
    """Without normalisation the same bad row is refused and named."""
    with pytest.raises(BadRecord, match="row 1"):
        quantise(np.array([[np.nan, 1.0]]), Grid(10.0))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ((2.0, 16, 0.0, UNIT), "have length 1"),
        ((1.0, 16, 0.5, CENTRED), "own mean"),
        ((1.0, 0, 0.0, UNIT), "0 levels"),
        ((1.0, 16, math.inf, UNIT), "the centre"),
    ],
)
def test_impossible_normalised_grid_is_refused(fields, words):
    """A normalised grid has radius 1, and no centre where the records take their own."""
    with pytest.raises(BadInput, match=words):
        Grid(*fields)


def test_too_few_levels_for_the_dimension_are_refused():
    """Where rounding could eat half of a record up, the grid is refused."""
    assert grid(UNIT, 16).unit(256) == 8
    with pytest.raises(BadInput, match="cannot hold 257 features"):
        grid(UNIT, 16).unit(257)
    with pytest.raises(BadInput, match="cannot hold"):
        quantise(np.ones((1, 257)), grid(UNIT, 16))
