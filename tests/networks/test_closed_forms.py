"""Closed forms of records' gradients: bits that no other record decides, and the values that torch and float64 have."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from secagg.encoding.updates import integers_of_records, sum_of_records
from secagg.networks import program_named, record_gradients
from secagg.networks.closed_forms import LAYERED
from secagg.networks.training import _Backward
from tests.networks.models import some_parameters, some_records

ROUNDING = 2.0**-20
"""Sixteen times float32's unit roundoff: no more of a record's largest number is lost at these sizes."""
SIZES = (
    ("softmax", 1, 2),
    ("softmax", 33, 3),
    ("softmax", 784, 10),
    ("mlp:1", 7, 2),
    ("mlp:17", 50, 5),
    ("mlp:64", 100, 3),
)
SPOILT = (np.nan, np.inf, -np.inf, np.float32(3e38))
every_size = pytest.mark.parametrize("named", SIZES, ids=str)


def gradients(program, flat, records, labels):
    """All records' gradients (n, size)."""
    return np.concatenate(list(record_gradients(program, flat, records, labels)))


def by_backward(program, flat, records, labels):
    """The same by torch's backward pass, record by record."""
    rows = np.empty((len(records), program.size), dtype=np.float32)
    _Backward(program, torch.tensor(flat, dtype=torch.float32), tolerant=False).fill(rows, records, labels)
    return rows


def in_float64(program, flat, record, label):
    """The gradient (size,) of one record in float64, written from the chain rule for at most one hidden layer."""
    ends = np.cumsum([np.prod(shape) for shape in program.shapes.values()])
    parts = np.split(flat.astype(np.float32).astype(np.float64), ends)
    tensors = [part.reshape(shape) for part, shape in zip(parts, program.shapes.values(), strict=False)]
    seen, before = record.astype(np.float64), []
    if len(tensors) == 4:
        hidden = tensors[0] @ seen + tensors[1]
        before = [hidden, seen]
        seen = np.where(hidden > 0, hidden, 0.0)
    scores = tensors[-2] @ seen + tensors[-1]
    odds = np.exp(scores[:, None] - scores[None, :]).sum(axis=0)  # softmax_j = 1 / Σ_k exp(z_k − z_j)
    error = 1 / odds - (np.arange(program.classes) == label)
    found = [np.outer(error, seen).ravel(), error]
    if before:
        back = (error @ tensors[-2]) * (before[0] > 0)
        found = [np.outer(back, before[1]).ravel(), back, *found]
    return np.concatenate(found)


@given(
    st.sampled_from(SIZES),
    st.lists(st.integers(0, 11), min_size=1, max_size=40),
    st.lists(st.sampled_from(SPOILT), max_size=3),
)
def test_a_records_bits_are_its_own(named, rows, spoilt):
    """Whoever is beside it, in whatever order, number and place, and not finite too: a record has its bits alone."""
    program = program_named(*named)
    (records, labels), flat = some_records(program, 12), some_parameters(program)
    for place, value in enumerate(spoilt):
        records[place, 0] = value
    found = gradients(program, flat, records[rows], labels[rows])
    for place, row in enumerate(rows):
        (alone,) = gradients(program, flat, records[row : row + 1], labels[row : row + 1])
        if np.isfinite(alone).all():
            assert found[place].tobytes() == alone.tobytes()
        else:
            assert np.array_equal(found[place], alone, equal_nan=True)


@every_size
def test_values_are_torchs_and_those_of_float64(named):
    """Every entry is within 2⁻²⁰ of its record's largest number of a reference in float64, as torch's own is."""
    program = program_named(*named)
    (records, labels), flat = some_records(program, 25), some_parameters(program)
    expected = np.array([in_float64(program, flat, *each) for each in zip(records, labels, strict=True)])
    for found in (gradients(program, flat, records, labels), by_backward(program, flat, records, labels)):
        assert (np.abs(found - expected) <= ROUNDING * np.abs(records).max(axis=1, keepdims=True)).all()


@every_size
@pytest.mark.parametrize("value", SPOILT, ids=str)
def test_what_is_not_finite_is_so_by_torch_too(named, value):
    """Entries are finite, and a record's integers zeros, exactly where they are by torch's backward pass."""
    program = program_named(*named)
    (records, labels), flat = some_records(program, 6), some_parameters(program)
    records[::2, -1] = value
    found, expected = (way(program, flat, records, labels) for way in (gradients, by_backward))
    assert np.array_equal(np.isfinite(found), np.isfinite(expected))
    integers = (integers_of_records(each.astype(np.float64), 0.5, 1000) for each in (found, expected))
    one, other = (each.any(axis=1) for each in integers)
    assert np.array_equal(one, other)


@every_size
def test_parameters_that_are_not_finite_leave_no_finite_gradient_that_torch_has_not(named):
    """With an infinite weight, entries are finite exactly where they are by torch's backward pass."""
    program = program_named(*named)
    (records, labels), flat = some_records(program, 6), some_parameters(program)
    flat[0] = np.inf
    found, expected = (np.isfinite(way(program, flat, records, labels)) for way in (gradients, by_backward))
    assert np.array_equal(found, expected)


@every_size
def test_clipped_integers_are_no_longer_than_the_clip_and_add_up(named):
    """A record's integers are within the levels in length, and their sum is that of each record's alone."""
    program = program_named(*named)
    (records, labels), flat = some_records(program, 12), some_parameters(program)
    found = gradients(program, flat, 100 * records, labels).astype(np.float64)
    integers = integers_of_records(found, 0.5, 1000)
    assert (np.square(integers).sum(axis=1) <= 1000**2).all()
    assert integers.any()
    alone = [sum_of_records(found[row : row + 1], 0.5, 1000) for row in range(12)]
    assert np.array_equal(np.sum(alone, axis=0), integers.sum(axis=0))


def test_a_network_built_on_one_with_a_closed_form_has_none():
    """Normalised perceptrons are perceptrons, and are differentiated by torch."""
    program = program_named("mlp-group:5", 7, 3)
    assert isinstance(program, tuple(LAYERED))
    (records, labels), flat = some_records(program, 9), some_parameters(program)
    assert gradients(program, flat, records, labels).tobytes() == by_backward(program, flat, records, labels).tobytes()
