"""What methods declare to be zero without noise is zero but for rounding, whatever the records."""

import math

import numpy as np
import pytest

from methods import method_named
from methods.round import Examples, Local, OpenedTotal
from secagg.encoding import Grid, Normalisation, quantise
from threat_models.session import ZeroSample

CLASSES, DIMENSION, LEVELS = 3, 8, 1 << 12
GRID = Grid(1.0, LEVELS, normalisation=Normalisation.CENTRED_UNIT)
DECLARING = {
    "fedcgs": ({"refine": 3}, 1),
    "prototypes": ({}, 0),
    "ccvr": ({"moments": "class"}, 0),
    "mpft": ({"slots": 2}, 0),
    "fedtc": ({"slots": 2}, 0),
}
"""Parameters of methods that declare zero sums, and how many rounds after the first."""


def worst_records():
    """Records whose rounding errors all have one sign, alike a hundred times; one-hot ones; and some that are usual."""
    generator = np.random.default_rng(1)
    tried = quantise(generator.normal(size=(20_000, DIMENSION)) * generator.choice([1, 1, 1, 30], (20_000, 1)), GRID)
    extreme = tried[np.argsort(-np.abs(tried.sum(axis=1)))[:20]]
    patterns = quantise(np.eye(DIMENSION)[[0, 1, 2]] + np.eye(DIMENSION)[[3, 4, 5]], GRID)
    usual = quantise(generator.normal(size=(50, DIMENSION)), GRID)
    return np.concatenate([np.repeat(extreme, 100, axis=0), np.repeat(patterns, 100, axis=0), usual])


@pytest.mark.parametrize("name", DECLARING)
def test_zero_sums_are_zero_but_for_rounding(name):
    """Every declared sum of worst-case records is at most the remainder of each of them, in every round."""
    parameters, rounds = DECLARING[name]
    method = method_named(name, parameters)
    records = worst_records()
    local = Local(Examples.of(records, np.arange(len(records)) % CLASSES), CLASSES, GRID)
    current = method.begin(DIMENSION, CLASSES, LEVELS)
    declared = method.sums(DIMENSION, CLASSES, LEVELS)
    for spec in declared[: 1 + rounds]:
        assert spec.zero_sums
        blocks = current.contribute(local).blocks
        for rule in spec.zero_sums:
            sample = ZeroSample.of(1, rule, 1.0, math.sqrt(0.5), blocks[rule.block])
            assert 0 < np.linalg.norm(sample.values) <= len(records) * sample.remainder
            assert sample.left_by(blocks[rule.block]) == np.linalg.norm(sample.values)
        if rounds:
            current = current.finalize(OpenedTotal(blocks, GRID)).next_round


@pytest.mark.parametrize("name", DECLARING)
def test_records_that_are_not_centred_have_no_such_sums(name):
    """The check above can fail: sums of records that keep their mean are far above the remainder."""
    grid = Grid(1.0, LEVELS, normalisation=Normalisation.UNIT)
    records = quantise(np.abs(np.random.default_rng(2).normal(size=(60, DIMENSION))), grid)
    method = method_named(name, DECLARING[name][0])
    local = Local(Examples.of(records, np.arange(len(records)) % CLASSES), CLASSES, grid)
    blocks = method.begin(DIMENSION, CLASSES, LEVELS).contribute(local).blocks
    for rule in method.sums(DIMENSION, CLASSES, LEVELS)[0].zero_sums:
        assert rule.centred
        sample = ZeroSample.of(1, rule, 1.0, math.sqrt(0.5), blocks[rule.block])
        assert np.linalg.norm(sample.values) > len(records) * sample.remainder
