"""Leave-one-out heads by rank-one updates are the heads that training anew gives."""

import numpy as np
import pytest

from secagg.encoding import Grid, accumulate
from secagg.heads.discriminant import discriminant
from threat_models.attacks.of_methods.lira import FARTHEST, Discriminant, losses, margins
from threat_models.session import AuditRecords

CLASSES, DIMENSION, COUNT = 4, 12, 60
GRID = Grid(radius=1.0, levels=1 << 12)


def some_records(count=COUNT, seed=0):
    """Integer records around class means."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    integers = generator.integers(-300, 300, (count, DIMENSION)) + 200 * (labels[:, None] == np.arange(DIMENSION))
    return AuditRecords(integers, labels, integers.astype(float))


def retrained(records, candidate, covariance):
    """The margin of one record under a head made anew."""
    return Discriminant.of(records, CLASSES, covariance, 1e-3).margins(candidate, np.zeros(1, dtype=int))[0]


@pytest.mark.parametrize("covariance", ["within", "total"])
@pytest.mark.parametrize("step", [-1, 1])
def test_updates_are_retraining(covariance, step):
    """Adding or removing a record changes its margin as training anew does, to 10⁻⁹."""
    records, others = some_records(), some_records(seed=1)
    tested = records if step < 0 else others
    found = Discriminant.of(records, CLASSES, covariance, 1e-3).margins(tested, np.full(COUNT, step))
    for row in range(0, COUNT, 7):
        rows = np.arange(COUNT) != row
        joined = AuditRecords(
            np.concatenate([records.integers, others.integers[[row]]]),
            np.concatenate([records.labels, others.labels[[row]]]),
            np.concatenate([records.features, others.features[[row]]]),
        )
        kept = records.take(rows) if step < 0 else joined
        assert found[row] == pytest.approx(retrained(kept, tested.take([row]), covariance), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("covariance", ["within", "total"])
def test_margins_are_those_of_the_package_head(covariance):
    """Without a change the margins are those of `secagg.heads.discriminant`, but for its float32."""
    records = some_records()
    blocks = accumulate(records.integers, records.labels, CLASSES, GRID.levels)
    head = discriminant(blocks, GRID, covariance=covariance)
    scores = records.integers * GRID.step @ head.weight.T.astype(float) + head.bias
    expected = margins(scores, records.labels)
    own = Discriminant.of(records, CLASSES, covariance, 1e-3).margins(records, np.zeros(COUNT, dtype=int))
    assert np.abs(own - expected).max() < 1e-4


def test_first_record_of_a_class_makes_it_present():
    """A class with one record has a margin with it, and none without it."""
    records = some_records()
    rows = (records.labels > 0) | (np.arange(COUNT) == 0)
    shadow = Discriminant.of(records.take(rows), CLASSES, "within", 1e-3)
    with_it, without = (shadow.margins(records.take([0]), np.array([step]))[0] for step in (0, -1))
    assert without == -FARTHEST
    assert with_it > -FARTHEST
    bare = Discriminant.of(records.take(records.labels > 0), CLASSES, "within", 1e-3)
    assert bare.margins(records.take([0]), np.array([1]))[0] == pytest.approx(with_it, rel=1e-9)


def test_losses_are_cross_entropy_and_entropy():
    """Golden: scores (0, ln 3) give the probabilities ¼ and ¾."""
    loss, entropy = losses(np.array([[0.0, np.log(3)]]), np.array([1]))
    assert loss[0] == pytest.approx(-np.log(0.75))
    assert entropy[0] == pytest.approx(-0.25 * np.log(0.25) - 0.75 * np.log(0.75))
    assert margins(np.array([[0.0, np.log(3)]]), np.array([1]))[0] == pytest.approx(np.log(3))
