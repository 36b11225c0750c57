"""The smallest ring that provably cannot wrap."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.encoding.ring import Capacity
from secagg.errors import CapacityExceeded

COUNTS = st.integers(1, 2**20)


def smallest_by_force(capacity: Capacity) -> int | None:
    """The first of 8, 16, …, 64 bits that holds both ends of the sum."""
    largest = capacity.clients * capacity.records * capacity.bound + capacity.noise
    for bits in range(8, 65, 8):
        if largest <= 2 ** (bits - 1) - 1 and -largest >= -(2 ** (bits - 1)):
            return bits
    return None


@given(st.builds(Capacity, COUNTS, COUNTS, st.integers(0, 2**30), st.integers(0, 2**40)))
def test_ring_is_the_smallest_that_holds_the_sum(capacity: Capacity) -> None:
    """The chosen width is the one that brute force finds; where there is none, the plan is refused."""
    expected = smallest_by_force(capacity)
    if expected is None:
        with pytest.raises(CapacityExceeded):
            capacity.ring()
    else:
        assert capacity.ring().bits == expected


@pytest.mark.parametrize("bits", range(8, 65, 8))
def test_the_border_between_two_rings_is_exact(bits: int) -> None:
    """2^(bits−1) − 1 still fits a ring; one more needs the next, or is refused beyond 64 bits."""
    assert Capacity(1, 1, 2 ** (bits - 1) - 1).ring().bits == bits
    above = Capacity(1, 1, 2 ** (bits - 1) - 2, noise=2)
    if bits < 64:
        assert above.ring().bits == bits + 8
    else:
        with pytest.raises(CapacityExceeded) as caught:
            above.ring()
        assert (caught.value.needed, caught.value.available, caught.value.exit_code) == (65, 64, 2)


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 10**6))
def test_extreme_sums_do_not_wrap(clients: int, records: int, bound: int) -> None:
    """When every client contributes the extreme, the ring sum is still the integer sum, at both ends."""
    ring = Capacity(clients, records, bound).ring()
    for sign in (1, -1):
        total = np.zeros(1, dtype=ring.word)
        for _ in range(clients):
            total += ring.encode(np.array([sign * records * bound], dtype=np.int64))
        assert ring.decode(total).tolist() == [sign * clients * records * bound]


@pytest.mark.parametrize("noise", [0, 12_345])
def test_proof_can_be_checked_by_hand(noise: int) -> None:
    """The numbers in the proof's line multiply and add up, and stay below the stated power of two."""
    capacity = Capacity(5, 1000, 65_536, noise)
    line = capacity.proof()
    terms = [int(term) for term in re.findall(r"\d+", line.split("=")[0])]
    largest, bits = int(re.search(r"= (\d+) <", line)[1]), int(re.search(r"2\^(\d+)", line)[1])
    assert terms[0] * terms[1] * terms[2] + sum(terms[3:]) == largest == capacity.largest
    assert largest < 2**bits
    assert line.endswith(f"a ring of {bits + 1} bits cannot wrap")
