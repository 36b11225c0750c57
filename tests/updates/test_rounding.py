"""Random rounding to integers: exactly unbiased, never longer than was stated."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from secagg.encoding.updates.encoding import PART, longest, round_randomly
from secagg.errors import BadInput, CapacityExceeded
from secagg.randomness import OperatingSystem, SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from tests.vectors.files import load

VECTORS = load("updates")["rounding"]
LARGEST = 2**53 - 1
vectors = arrays(np.float64, st.integers(1, 40), elements=st.floats(-1000, 1000))
anything = arrays(np.float64, st.integers(0, 40), elements=st.floats())


class Listed:
    """A source that gives these words (uint16) in order, and counts the requests."""

    def __init__(self, words: list[int] | np.ndarray) -> None:
        self._left = np.asarray(words, dtype="<u2").tobytes()
        self.requests = 0

    def bytes(self, count: int) -> bytes:
        """The next bytes; zeros after the last."""
        given_now, self._left = self._left[:count], self._left[count:]
        self.requests += 1
        return given_now.ljust(count, b"\0")


def squares(integers: np.ndarray) -> int:
    """Σz² in Python's integers."""
    return sum(int(z) ** 2 for z in integers)


@pytest.mark.parametrize("case", VECTORS["longest"], ids=lambda case: f"{case['length']}-{case['size']}")
def test_bound_is_the_reference_s(case):
    """Sixty digits give the same integer bound."""
    assert longest(float.fromhex(case["length"]), case["size"]) == case["squared_bound"]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["seed"])
def test_draws_are_the_reference_s(case):
    """An independent implementation makes the same integers from the same bytes, redrawn and truncated ones too."""
    vector = np.array([float.fromhex(x) for x in case["vector"]])
    drawn = round_randomly(vector, case["squared_bound"], SeededRandomness(case["seed"].encode(), TOKEN))
    assert drawn.dtype == np.int64
    assert drawn.tolist() == case["integers"]


@given(anything, st.sampled_from([0, 1, 10, 10**6, LARGEST]))
def test_bound_holds_for_everything(vector, bound):
    """Whatever the vector holds, NaN and infinity too, nothing is raised and Σz² keeps the bound."""
    drawn = round_randomly(vector, bound, OperatingSystem())
    assert drawn.shape == vector.shape
    assert squares(drawn) <= bound


@given(vectors)
def test_neighbours_are_drawn_within_the_stated_length(vector):
    """With the bound of its own length each entry becomes a neighbouring integer of its sign; grid points stay."""
    bound = longest(float(np.linalg.norm(vector)) * (1 + 1e-12), len(vector))
    drawn = round_randomly(vector, bound, OperatingSystem())
    assert squares(drawn) <= bound
    assert (np.abs(drawn - vector) < 1).all()
    assert (drawn * np.sign(vector) >= 0).all()
    assert np.array_equal(drawn[vector == np.trunc(vector)], vector[vector == np.trunc(vector)])


@pytest.mark.parametrize("digit", [0, 1, 777, 32_768, 65_535])
@pytest.mark.parametrize("sign", [1, -1])
def test_chances_are_exact(digit, sign):
    """Of all 65,536 first words exactly as many round up as the chance has 65,536ths, and one asks for more."""
    vector = np.full(65_536, sign * (5 + digit / 65_536 + 2.0**-20))  # a sixteenth of a 65,536th more
    after = (digit // PART + 1) * PART  # the words of the part in which one is asked for
    for second, more in ((0, 1), (4095, 1), (4096, 0), (65_535, 0)):
        source = Listed([*range(after), second, *range(after, 65_536)])
        drawn = round_randomly(vector, LARGEST, source)
        assert int((drawn == sign * 6).sum()) == digit + more
        assert source.requests == 65_536 // PART + 1


@given(st.floats(0, 1, exclude_max=True))
def test_chances_have_all_digits_of_a_float(chance):
    """An entry rounds up for the largest uniform number below its fraction and down for the fraction itself."""
    numerator, denominator = chance.as_integer_ratio()
    rounds = max(1, -(-denominator.bit_length() // 16))
    exact = numerator * 2 ** (16 * rounds) // denominator
    for number, expected in ((exact - 1, 1), (exact, 0)):
        if number >= 0:
            words = [number >> 16 * (rounds - 1 - at) & 0xFFFF for at in range(rounds)]
            assert round_randomly(np.array([chance]), 1, Listed(words))[0] == expected


def test_mean_is_the_vector():
    """Means of 20,000 draws are within six standard errors of each of 200 entries: one false alarm in 10⁶ runs."""
    vector = np.random.default_rng(1).uniform(-2, 2, 200)
    drawn = round_randomly(np.tile(vector, 20_000), LARGEST, OperatingSystem()).reshape(20_000, 200)
    error = np.sqrt(np.abs(vector % 1 * (1 - vector % 1)) / 20_000)
    assert (np.abs(drawn.mean(axis=0) - vector) <= 6 * error).all()


@pytest.mark.parametrize(("fraction", "size"), [(0.5, 1000), (0.5, 4), (0.1, 50), (0.9, 7)])
def test_a_try_succeeds_as_often_as_promised(fraction, size):
    """At least 1 − e^(−1/2) of all tries fit the bound; 2,000 show less by six standard errors once in 10⁹ runs."""
    vector = np.full(size, 3 + fraction)
    bound = longest(float(np.linalg.norm(vector)), size)
    drawn = round_randomly(np.tile(vector, 2000), LARGEST, OperatingSystem()).reshape(2000, size)
    fits = np.mean([squares(row) <= bound for row in drawn])
    promised = 1 - math.exp(-0.5)
    assert fits >= promised - 6 * math.sqrt(promised * (1 - promised) / 2000)


def test_a_draw_that_is_too_long_is_drawn_anew():
    """Two draws that round everything up are thrown away, the third is kept."""
    source = Listed([0, 0, 0, 0, 65_535, 0])
    assert round_randomly(np.array([1.5, -1.5]), 5, source).tolist() == [1, -2]
    assert source.requests == 3


def test_twenty_failures_end_in_truncation():
    """A source that always rounds up is asked twenty times; then the vector is truncated toward zero."""
    source = Listed([])
    assert round_randomly(np.array([1.5, -2.5, 0.5]), 13, source).tolist() == [1, -2, 0]
    assert source.requests == 20


def test_bound_is_compared_to_one_unit():
    """Near 2⁵³ a vector that meets the bound exactly is kept, and one unit less makes it zeros."""
    vector = np.array([2.0**26, 2.0**26 - 1, 3.0])
    exact = squares(vector)
    assert round_randomly(vector, exact, Listed([])).tolist() == vector.tolist()
    assert round_randomly(vector, exact - 1, Listed([])).tolist() == [0, 0, 0]
    assert round_randomly(np.full(2, 1e200), exact, Listed([])).tolist() == [0, 0]


@given(vectors)
def test_truncation_is_never_longer(vector):
    """Each entry moves toward zero by less than one, so that no vector becomes longer."""
    integers = round_randomly(vector, squares(np.trunc(vector)), Listed([]))  # whatever is rounded up is too long
    assert integers.dtype == np.int64
    assert (np.abs(integers) <= np.abs(vector)).all()
    assert (np.abs(vector) - np.abs(integers) < 1).all()
    assert (integers * vector >= 0).all()


@given(st.floats(0, 2.0**26), st.integers(1, 10**9))
def test_bound_leaves_room_for_truncation(length, size):
    """Δ² is at least c² + c: float64's errors in a clipped vector's length do not matter."""
    assert longest(length, size) >= math.floor(length * length) + math.floor(length)


@pytest.mark.parametrize(("length", "size"), [(math.nan, 1), (math.inf, 1), (-1.0, 1), (1.0, 0)])
def test_impossible_lengths_are_refused(length, size):
    """A length is finite and not negative, of at least one entry."""
    with pytest.raises(BadInput):
        longest(length, size)


def test_lengths_that_float64_cannot_compare_are_refused():
    """Squared bounds reach up to 2⁵³ − 1."""
    with pytest.raises(CapacityExceeded):
        longest(2.0**26.5, 1)
    for bound in (-1, 2**53):
        with pytest.raises(BadInput):
            round_randomly(np.zeros(1), bound, OperatingSystem())
