"""Signed integers in a ring, and as packed bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.encoding import Ring
from secagg.errors import BadInput, CapacityExceeded, MalformedMessage
from tests.vectors.files import load, named

VECTORS = load("ring")
RINGS = tuple(range(8, 65, 8))


def integers(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def half(bits: int) -> int:
    """The least value that is too large."""
    return 2 ** (bits - 1)


@st.composite
def fitting(draw: st.DrawFn) -> tuple[Ring, np.ndarray]:
    """A ring and values that fit it, the ends included."""
    bits = draw(st.sampled_from(RINGS))
    single = st.integers(-half(bits), half(bits) - 1) | st.sampled_from([-half(bits), half(bits) - 1])
    return Ring(bits), integers(draw(st.lists(single, max_size=20)))


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: f"{case['bits']} bits")
def test_packed_bytes_are_those_of_the_vector(case: dict) -> None:
    """Values encode and pack to the vector's bytes, and come back from them."""
    ring, values = Ring(case["bits"]), integers(case["values"])
    packed = bytes.fromhex(case["packed"])
    assert ring.pack(ring.encode(values)) == packed
    assert ring.decode(ring.unpack(packed, len(values))).tolist() == case["values"]


@pytest.mark.parametrize("case", VECTORS["encode_refused"], ids=named)
def test_values_that_do_not_fit_are_refused(case: dict) -> None:
    """One beyond either end of the ring raises CapacityExceeded with the bits that it would need."""
    with pytest.raises(CapacityExceeded) as caught:
        Ring(case["bits"]).encode(integers([0, *case["values"]]))
    assert (caught.value.needed, caught.value.available) == (case["bits"] + 1, case["bits"])


@pytest.mark.parametrize("case", VECTORS["unpack_refused"], ids=named)
def test_packed_bytes_of_another_length_are_refused(case: dict) -> None:
    """Unpacking takes exactly the bytes of the announced number of entries."""
    with pytest.raises(MalformedMessage):
        Ring(case["bits"]).unpack(bytes.fromhex(case["packed"]), case["length"])


@given(fitting())
def test_decoding_undoes_encoding(sample: tuple[Ring, np.ndarray]) -> None:
    """Every fitting value comes back, directly and through packed bytes, and the input stays as it was."""
    ring, values = sample
    before = values.copy()
    residues = ring.encode(values)
    assert residues.dtype == ring.word
    assert np.array_equal(ring.decode(residues), values)
    packed = ring.pack(residues)
    assert len(packed) == len(values) * ring.entry_bytes
    unpacked = ring.unpack(memoryview(packed), len(values))
    assert np.array_equal(ring.decode(unpacked), values)
    assert ring.pack(unpacked) == packed
    residues[...] = 1
    unpacked[...] = 1
    assert np.array_equal(values, before)


@given(st.sampled_from(RINGS), st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3), min_size=1))
def test_sums_are_modular(bits: int, vectors: list[list[int]]) -> None:
    """Residues added in machine words decode to the integer sum, reduced into the ring's signed range."""
    ring = Ring(bits)
    total = np.zeros(3, dtype=ring.word)
    for vector in vectors:
        folded = [(value + half(bits)) % 2**bits - half(bits) for value in vector]
        total += ring.encode(integers(folded))
    expected = [(sum(column) + half(bits)) % 2**bits - half(bits) for column in zip(*vectors, strict=True)]
    assert ring.decode(total).tolist() == expected
    assert ring.decode(ring.unpack(ring.pack(total), 3)).tolist() == expected


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(RINGS))
def test_a_value_fits_or_is_refused(value: int, bits: int) -> None:
    """No value is ever cut: it comes back whole, or CapacityExceeded says how many bits it needs."""
    ring = Ring(bits)
    if -half(bits) <= value < half(bits):
        assert ring.decode(ring.encode(integers([value]))).tolist() == [value]
        return
    with pytest.raises(CapacityExceeded) as caught:
        ring.encode(integers([value]))
    needed = caught.value.needed
    assert -half(needed) <= value < half(needed)
    assert not -half(needed - 1) <= value < half(needed - 1)


@pytest.mark.parametrize("bits", [-8, 0, 1, 7, 9, 31, 33, 63, 65, 72, 128])
def test_only_whole_bytes_up_to_eight(bits: int) -> None:
    """A ring of another width raises BadInput."""
    with pytest.raises(BadInput, match="a ring has"):
        Ring(bits)


@pytest.mark.parametrize(
    "values",
    [np.zeros(3), np.zeros(3, dtype=np.int32), np.zeros(3, dtype=np.uint64), np.zeros((3, 1), dtype=np.int64)],
    ids=["float64", "int32", "uint64", "two_dimensional"],
)
def test_only_flat_int64_is_encoded(values: np.ndarray) -> None:
    """Another type or shape raises BadInput; nothing is converted silently."""
    with pytest.raises(BadInput, match="one-dimensional int64"):
        Ring(32).encode(values)


@pytest.mark.parametrize("bits", RINGS)
def test_nothing_packs_to_nothing(bits: int) -> None:
    """An empty vector is allowed everywhere."""
    ring = Ring(bits)
    assert ring.pack(ring.encode(integers([]))) == b""
    assert ring.decode(ring.unpack(b"", 0)).tolist() == []
