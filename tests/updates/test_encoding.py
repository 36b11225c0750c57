"""Updates as integers and sums of integers as updates; records as integers one by one."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from secagg.encoding.updates import UpdateEncoding, integers_of_records, sum_of_records
from secagg.errors import BadInput, CapacityExceeded
from secagg.randomness import OperatingSystem, SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from tests.vectors.files import load

VECTORS = load("updates")["encoding"]
SEED = bytes(range(32))
clips = st.sampled_from([1e-300, 1e-3, 1.0, 7.3, 1e300])
levels_of = st.sampled_from([1, 2, 1000, 2**20, 2**26])
anything = arrays(np.float64, st.integers(1, 90), elements=st.floats())
batches = arrays(np.float64, st.tuples(st.integers(0, 6), st.integers(1, 9)), elements=st.floats())


class AlwaysUp:
    """A source of zeros: every entry that is no integer is rounded away from zero."""

    def bytes(self, count: int) -> bytes:
        """Zeros."""
        return bytes(count)


def squares(integers: np.ndarray) -> int:
    """Σz² in Python's integers."""
    return sum(int(z) ** 2 for z in integers)


def clipped(vector: np.ndarray, clip: float) -> np.ndarray:
    """The vector, shortened to `clip` where it is longer."""
    return vector * min(1.0, clip / max(float(np.linalg.norm(vector)), 1e-300))


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["randomness"])
def test_encoding_and_decoding_are_the_reference_s(case):
    """Sixty digits and whole Hadamard matrices give the same integers and flags, and the same bits on the way back."""
    public = (case[name] for name in ("size", "clip", "levels", "entry"))
    encoding = UpdateEncoding(*public, bytes.fromhex(case["seed"]))
    update = np.array([float.fromhex(x) for x in case["update"]])
    encoded = encoding.encode(update, SeededRandomness(case["randomness"].encode(), TOKEN))
    assert encoding.squared_bound == case["squared_bound"]
    assert encoded.integers.tolist() == case["integers"]
    assert (encoded.shortened, encoded.clipped_entries) == (case["shortened"], case["clipped_entries"])
    assert [x.hex() for x in encoding.decode(encoded.integers).tolist()] == case["decoded"]


@given(anything, clips, levels_of, st.data())
def test_bounds_hold_for_everything(update, clip, levels, data):
    """Whatever an update holds, Σz² ≤ Δ² ≤ length² and |z| ≤ entry, also when twenty draws were too long."""
    encoding = UpdateEncoding(len(update), clip, levels, data.draw(st.integers(1, levels)), SEED)
    for source in (OperatingSystem(), AlwaysUp()):
        encoded = encoding.encode(update, source)
        assert encoded.integers.dtype == np.int64
        assert encoded.integers.shape == (encoding.padded,)
        assert squares(encoded.integers) <= encoding.squared_bound <= Fraction(encoding.length) ** 2
        assert np.abs(encoded.integers).max() <= encoding.entry


@given(st.integers(1, 90), levels_of)
def test_length_is_rounded_up_and_no_further(size, levels):
    """`length` is at least Δ, and two floats below it are not."""
    encoding = UpdateEncoding(size, 1.0, levels, levels, SEED)
    below = math.nextafter(math.nextafter(encoding.length, 0), 0)
    assert Fraction(below) ** 2 < encoding.squared_bound <= Fraction(encoding.length) ** 2


@given(st.integers(1, 200), st.sampled_from([0.01, 1.0, 30.0]), st.integers(1, 6), st.integers(0, 2**32))
def test_sum_of_encodings_is_near_the_sum_of_clipped_updates(size, scale, members, draw):
    """What a sum decodes to is off by less than one grid unit per member and padded entry, in length."""
    updates = scale * np.random.default_rng(draw).normal(size=(members, size))
    encoding = UpdateEncoding(size, 2.0, 5000, 5000, SEED)
    total = np.sum([encoding.encode(each, OperatingSystem()).integers for each in updates], axis=0)
    expected = np.sum([clipped(each, 2.0) for each in updates], axis=0)
    step = 2.0 / 5000
    assert np.linalg.norm(encoding.decode(total) - expected) <= members * math.sqrt(encoding.padded) * step * 1.000001


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_update_that_is_not_finite_is_zeros(value):
    """One bad entry among good ones makes the integers zeros, and the member learns it; nothing is raised."""
    update = np.ones(100)
    update[50] = value
    encoding = UpdateEncoding(100, 1.0, 1000, 1000, SEED)
    encoded = encoding.encode(update, OperatingSystem())
    assert not encoded.integers.any()
    assert encoded.shortened


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e-8, 1e200, 1.7e308])
@pytest.mark.parametrize("clip", [1e-290, 1.0, 1e290])
def test_extreme_scales_keep_their_direction(scale, clip):
    """Updates whose squares overflow or vanish are clipped like others, or rounded to a few units at most."""
    update = np.full(64, scale)
    update[::3] *= -1
    encoding = UpdateEncoding(64, clip, 1 << 20, 1 << 20, SEED)
    encoded = encoding.encode(update, OperatingSystem())
    assert encoded.shortened == (scale > clip)
    expected = np.sign(update) * min(scale / clip, 1 / 8)
    assert np.linalg.norm(encoding.decode(encoded.integers) / clip - expected) <= 8 * 2.0**-20


def test_an_update_at_the_clip_is_not_shortened():
    """An update of exactly the clip's length keeps it; one bit longer is shortened."""
    encoding = UpdateEncoding(2, 5.0, 5 << 10, 5 << 10, SEED)
    assert not encoding.encode(np.array([3.0, 4.0]), OperatingSystem()).shortened
    assert encoding.encode(np.array([3.0, 4.0 + 2.0**-50]), OperatingSystem()).shortened


def test_entries_beyond_the_plan_s_are_counted():
    """A vector that the rotation gathers in one entry is cut there, once, and the rest of it arrives."""
    encoding = UpdateEncoding(64, 1.0, 1000, 100, SEED)
    gathered = encoding.decode(np.array([0, 1000] + [0] * 62))  # the update whose rotation is one entry
    encoded = encoding.encode(gathered, OperatingSystem())
    assert encoded.clipped_entries == 1
    assert encoded.integers[1] == 100
    assert np.abs(np.delete(encoded.integers, 1)).max() <= 1


@pytest.mark.parametrize("size", [1, 70, 5000, 140_000])
def test_the_usual_entry_clips_nothing(size):
    """No entry is clipped of updates that are spread out, of a single entry or in the smallest block alone."""
    levels = 1 << 20
    entry = UpdateEncoding.usual_entry(size, levels)
    encoding = UpdateEncoding(size, 1.0, levels, entry, SEED)
    last, single, spread = np.zeros(size), np.zeros(size), np.ones(size)
    last[-min(size, 1000) :], single[size // 2] = 1.0, 1.0
    for update in (last, single, spread):
        assert encoding.encode(5.0 * update, OperatingSystem()).clipped_entries == 0


def test_the_usual_entry_narrows_the_ring():
    """A million entries need a twentieth of the levels; a vector of few entries needs them all."""
    assert UpdateEncoding.usual_entry(10**6, 1 << 20) < (1 << 20) / 20
    assert UpdateEncoding.usual_entry(10, 1 << 20) == 1 << 20


@given(batches, clips, levels_of)
def test_each_record_is_short_and_alone(gradients, clip, levels):
    """Σz² ≤ levels² for each record, whatever it holds; others do not change it; the sum is the integers' sum."""
    integers = integers_of_records(gradients, clip, levels)
    assert integers.dtype == np.int64
    assert all(squares(row) <= levels**2 for row in integers)
    for row, gradient in zip(integers, gradients, strict=True):
        assert np.array_equal(integers_of_records(gradient[None], clip, levels)[0], row)
        assert np.isfinite(gradient).all() or not row.any()
    assert np.array_equal(sum_of_records(gradients, clip, levels), integers.sum(axis=0))


@given(st.integers(1, 50), st.sampled_from([0.01, 1.0, 30.0]), st.integers(0, 2**32))
def test_records_are_truncated_after_the_clip(size, scale, draw):
    """Each entry is the clipped gradient's in grid units, moved toward zero by less than one unit."""
    gradients = scale * np.random.default_rng(draw).normal(size=(4, size))
    integers = integers_of_records(gradients, 2.0, 5000)
    exact = np.array([clipped(row, 2.0) for row in gradients]) * 2500
    assert (np.abs(integers) <= np.abs(exact) * (1 + 1e-12)).all()
    assert (np.abs(exact) - np.abs(integers) < 1 + 1e-9).all()
    assert (integers * exact >= 0).all()


def test_records_are_the_reference_s():
    """Sixty digits give the same integers."""
    case = VECTORS["records"]
    gradients = np.array([[float.fromhex(x) for x in row] for row in case["gradients"]])
    assert integers_of_records(gradients, case["clip"], case["levels"]).tolist() == case["integers"]


def test_chunks_of_records_do_not_show():
    """A batch of many chunks, stored the other way round too, gives each record the integers it has alone."""
    gradients = np.random.default_rng(0).normal(size=(700, 1000))
    integers = integers_of_records(gradients, 10.0, 4096)
    assert np.array_equal(integers_of_records(np.asfortranarray(gradients), 10.0, 4096), integers)
    single = gradients.astype(np.float32)
    assert np.array_equal(sum_of_records(single, 10.0, 4096), sum_of_records(single.astype(np.float64), 10.0, 4096))
    for row in (0, 261, 262, 699):
        assert np.array_equal(integers_of_records(gradients[[row]], 10.0, 4096)[0], integers[row])
    assert np.array_equal(sum_of_records(gradients, 10.0, 4096), integers.sum(axis=0))


def test_sums_that_float64_might_round_are_refused():
    """More records than 2²⁷, whose integers could add up to more than 2⁵³, are refused before any is read."""
    with pytest.raises(BadInput, match="add up at most 134217728"):
        sum_of_records(np.broadcast_to(np.zeros((1, 1)), (2**27 + 1, 1)), 1.0, 2**26)


def test_one_record_moves_the_sum_by_at_most_its_clip():
    """Leaving a record out moves the sum of all by an integer vector no longer than the levels."""
    gradients = 100 * np.random.default_rng(3).normal(size=(20, 500))
    total = sum_of_records(gradients, 1.0, 64)
    assert all(squares(total - sum_of_records(np.delete(gradients, row, 0), 1.0, 64)) <= 64**2 for row in range(20))


@pytest.mark.parametrize(
    "values",
    [(10, 0.0, 8, 8), (10, -1.0, 8, 8), (10, math.nan, 8, 8), (10, math.inf, 8, 8), (10, 5e-324, 8, 8), (0, 1.0, 8, 8),
     (10, 1.0, 0, 1), (10, 1.0, 2**26 + 1, 8), (10, 1.0, 8, 0), (10, 1.0, 8, 9)],
)  # fmt: skip
def test_impossible_encodings_are_refused(values):
    """Size, clip, levels and entry outside their ranges are refused."""
    with pytest.raises(BadInput):
        UpdateEncoding(*values, SEED)


@pytest.mark.parametrize("seed", [bytes(31), bytes(33)])
def test_other_seeds_are_refused(seed):
    """A seed has 32 bytes."""
    with pytest.raises(BadInput):
        UpdateEncoding(10, 1.0, 8, 8, seed)


@pytest.mark.parametrize("update", [np.zeros(9), np.zeros((10, 1)), np.zeros(10, np.float32), np.zeros(10, np.int64)])
def test_other_updates_are_refused(update):
    """An update's shape and type are public, so they may raise."""
    with pytest.raises(BadInput):
        UpdateEncoding(10, 1.0, 8, 8, SEED).encode(update, OperatingSystem())


@pytest.mark.parametrize("total", [np.zeros(10, np.int64), np.zeros(16), np.zeros(16, np.int32)])
def test_other_totals_are_refused(total):
    """A total has the padded size, in int64."""
    with pytest.raises(BadInput):
        UpdateEncoding(10, 1.0, 8, 8, SEED).decode(total)


def test_oversized_totals_are_refused():
    """Entries whose transform could leave int64 are refused, not wrapped."""
    with pytest.raises(CapacityExceeded):
        UpdateEncoding(10, 1.0, 8, 8, SEED).decode(np.full(16, 2**59))


@pytest.mark.parametrize(
    ("gradients", "clip", "levels"),
    [(np.zeros(3), 1.0, 8), (np.zeros((2, 3), np.float16), 1.0, 8), (np.zeros((2, 3)), 0.0, 8),
     (np.zeros((2, 3)), 1.0, 0), (np.zeros((0, 3)), 0.0, 8), (np.zeros((2, 3)), 1.0, 2**26 + 1)],
)  # fmt: skip
def test_other_records_are_refused(gradients, clip, levels):
    """Gradients are rows of float32 or float64, on a grid that exists."""
    for rule in (integers_of_records, sum_of_records):
        with pytest.raises(BadInput):
            rule(gradients, clip, levels)
