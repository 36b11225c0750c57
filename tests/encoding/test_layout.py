"""Blocks in and out of the flat vector."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.encoding import Block, Kind, Layout
from secagg.errors import BadInput


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Layout, dict[str, np.ndarray]]:
    """A layout with blocks of any shape, and tensors for it."""
    names = draw(st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4, unique=True))
    shapes = [tuple(draw(st.lists(st.integers(0, 3), max_size=3))) for _ in names]
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    blocks = [
        Block(name, shape, draw(st.integers(1, 100)), Kind.OTHER, draw(st.integers(1, 1000)))
        for name, shape in zip(names, shapes, strict=True)
    ]
    tensors = {block.name: generator.integers(-(10**6), 10**6, block.shape, dtype=np.int64) for block in blocks}
    return Layout(tuple(blocks)), tensors


@given(layouts())
def test_splitting_undoes_flattening(sample: tuple[Layout, dict[str, np.ndarray]]) -> None:
    """Every block comes back in its shape, times its multiplier, and the lengths add up."""
    layout, tensors = sample
    flat = layout.flatten(tensors)
    assert flat.dtype == np.int64
    assert len(flat) == layout.length == sum(math.prod(block.shape) for block in layout.blocks)
    parts = layout.split(flat)
    assert list(parts) == [block.name for block in layout.blocks]
    for block in layout.blocks:
        assert parts[block.name].shape == block.shape
        assert parts[block.name].tolist() == (tensors[block.name] * block.multiplier).tolist()


@given(layouts())
def test_order_of_the_mapping_does_not_matter(sample: tuple[Layout, dict[str, np.ndarray]]) -> None:
    """The layout alone fixes the order of the blocks."""
    layout, tensors = sample
    backwards = dict(reversed(tensors.items()))
    assert np.array_equal(layout.flatten(tensors), layout.flatten(backwards))


def test_bound_is_the_largest_after_scaling() -> None:
    """The bound of a layout is the largest bound times multiplier of its blocks."""
    assert Layout((Block("a", (2,), 10, Kind.OTHER), Block("b", (2,), 3, Kind.OTHER, 7))).bound == 21


LAYOUT = Layout((Block("counts", (2,), 1, Kind.COUNTS), Block("sums", (2, 3), 9, Kind.CLASS_SUMS)))
COUNTS, SUMS = np.zeros(2, dtype=np.int64), np.zeros((2, 3), dtype=np.int64)


@pytest.mark.parametrize(
    "tensors",
    [
        {"counts": COUNTS},
        {"counts": COUNTS, "sums": SUMS, "more": COUNTS},
        {"counts": COUNTS, "sums": SUMS.T},
        {"counts": COUNTS, "sums": SUMS.reshape(-1)},
        {"counts": COUNTS, "sums": SUMS.astype(np.float64)},
        {"counts": COUNTS.astype(np.int32), "sums": SUMS},
    ],
    ids=["missing", "unknown", "transposed", "flat", "float64", "int32"],
)
def test_other_blocks_are_refused(tensors: dict[str, np.ndarray]) -> None:
    """A block that is missing, unknown, of another shape or not int64 raises BadInput."""
    with pytest.raises(BadInput):
        LAYOUT.flatten(tensors)


@pytest.mark.parametrize("flat", [np.zeros(7, dtype=np.int64), np.zeros(9, dtype=np.int64), np.zeros(8)])
def test_other_vectors_are_refused(flat: np.ndarray) -> None:
    """Splitting takes exactly the layout's int64 entries."""
    with pytest.raises(BadInput, match="8 int64 entries"):
        LAYOUT.split(flat)
