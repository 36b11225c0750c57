"""Records as integers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from secagg.encoding import Grid, quantise
from secagg.encoding.grid import Origin
from secagg.errors import BadInput, BadRecord
from secagg.features import radius_of

features_of = arrays(np.float64, st.tuples(st.integers(1, 10), st.integers(1, 8)), elements=st.floats(-100, 100))


@given(features_of, st.sampled_from([1, 7, 2**16, 2**26]), st.floats(-5, 5), st.integers(0, 2**32))
def test_integers_stay_inside_and_near(features, levels, centre, seed):
    """‖q‖ ≤ R_q, q·step lies within one step of f − c towards zero, and batch and order do not matter."""
    radius = radius_of(np.vstack([features, np.full(features.shape[1], centre + 1.0)]), centre)
    grid = Grid(radius, levels, centre)
    q = quantise(features, grid)
    assert all(sum(int(entry) ** 2 for entry in row) <= levels**2 for row in q)
    exact = features - centre
    assert (np.abs(q * grid.step) <= np.abs(exact) * (1 + 1e-12)).all()
    assert (np.abs(q * grid.step - exact) < grid.step * (1 + 1e-6)).all()
    order = np.random.default_rng(seed).permutation(len(features))
    assert (quantise(features[order], grid) == q[order]).all()
    assert all((quantise(row[None], grid)[0] == q[i]).all() for i, row in enumerate(features))


def test_chunks_do_not_show():
    """A data set larger than one chunk gives each record the integers it has alone."""
    features = np.random.default_rng(0).normal(size=(20_000, 3))
    grid = Grid(radius_of(features))
    q = quantise(features, grid)
    for index in (0, 8191, 8192, 19_999):
        assert (quantise(features[index][None], grid)[0] == q[index]).all()


@pytest.mark.parametrize(
    ("value", "words"),
    [(math.nan, "NaN"), (math.inf, "infinite"), (-math.inf, "infinite"), (1.01, "longer than"), (1e300, "longer than")],
)
def test_bad_record_is_named(value, words):
    """A NaN, infinite or too long record is refused with file and row, also beyond the first chunk."""
    features = np.zeros((9000, 2))
    features[8500, 1] = value
    origin = Origin.of("hospital.csv", np.arange(2, 9002))
    with pytest.raises(BadRecord, match=words) as refusal:
        quantise(features, Grid(1.0), origin)
    assert (refusal.value.source, refusal.value.row) == ("hospital.csv", 8502)
    with pytest.raises(BadRecord, match="features, row 8501"):
        quantise(features, Grid(1.0))


def test_length_is_decided_in_integers():
    """A record whose every entry fits is refused when its norm does not, by one unit."""
    assert quantise(np.array([[3.0, 4.0]]), Grid(5.0, 5)).tolist() == [[3, 4]]
    with pytest.raises(BadRecord):
        quantise(np.array([[4.0, 4.0]]), Grid(5.0, 5))
    wide = np.full((1, 1 << 20), 1.0)
    assert quantise(wide, Grid(1024.0, 1024)).sum() == 1 << 20
    wide[0, 0] = 2.0
    with pytest.raises(BadRecord):
        quantise(wide, Grid(1024.0, 1024))


@pytest.mark.parametrize(
    "values", [(0.0, 16, 0.0), (-1.0, 16, 0.0), (math.nan, 16, 0.0), (math.inf, 16, 0.0), (5e-324, 16, 0.0),
               (1.0, 0, 0.0), (1.0, 2**26 + 1, 0.0), (1.0, 16, math.nan)]
)  # fmt: skip
def test_impossible_grid_is_refused(values):
    """Radius, levels and centre outside their ranges are refused."""
    with pytest.raises(BadInput):
        Grid(*values)
