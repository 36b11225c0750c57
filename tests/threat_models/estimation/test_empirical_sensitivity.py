"""Lengths are found by trying what methods contribute, whatever they declare."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from methods.closed_form.fedcgs import FedCGS
from methods.round import Examples
from secagg.encoding import Grid, Normalisation
from secagg.privacy import Adjacency, Unit
from tests.methods.readme import readme_method
from tests.threat_models.estimation.test_recomputation import planned
from tests.threat_models.ridge import Ridge
from threat_models.estimation.empirical_sensitivity import longest_parts
from threat_models.estimation.recomputation import honest_shares, second_opinion

LEVELS, DIMENSION, CLASSES = 1 << 12, 6, 3
GRID = Grid(1.0, LEVELS, normalisation=Normalisation.UNIT)


def found(method):
    """The longest parts of a method's first sum, with a few records at hand."""
    records = np.full((4, DIMENSION), 100, dtype=np.int64)
    at_hand = [Examples.of(records, np.arange(4) % CLASSES)]
    return longest_parts(method, method.sums(DIMENSION, CLASSES, LEVELS)[0], GRID, CLASSES, 1, at_hand)


def test_moments_are_as_long_as_they_can_be():
    """A record adds 1, R_q and R_q², the triangle counted as the whole matrix."""
    lengths = found(FedCGS())
    assert lengths["counts"] == 1.0
    assert lengths["class_sums"] == pytest.approx(LEVELS, rel=1e-9)
    assert lengths["second_moment"] == pytest.approx(LEVELS**2, rel=1e-9)


def test_longer_parts_than_declared_are_found():
    """Targets that are summed three times are three times as long."""
    assert found(Ridge(factor=3))["targets"] == pytest.approx(3 * LEVELS, rel=1e-9)


def test_updates_are_tried_by_client():
    """A clipped update is found no longer than its clip, and not far from it."""
    method = readme_method("averaging")(clip=0.5)
    assert 0.9 * (1 << 16) <= found(method)["update"] <= 1 << 16


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_found_lengths_count(adjacency):
    """A part that was found twice as long as declared makes the recomputed ε larger, in either adjacency."""
    plan, honest = planned(adjacency=adjacency)
    longer = second_opinion(plan, honest, {(0, "class_sums"): 2.0 * plan.levels})
    assert longer.epsilon > 1.3
    assert second_opinion(plan, honest, {(0, "class_sums"): 0.5 * plan.levels}) == second_opinion(plan, honest)


def test_honest_shares_follow_from_the_plan():
    """Less dropouts and colluders, no fewer than the minimum cohort leaves; one where a share hides alone."""
    plan, _ = planned()
    assert honest_shares(plan, 5) == 4
    assert honest_shares(replace(plan, dropouts=2, minimum_cohort=1), 5) == 2
    assert honest_shares(replace(plan, dropouts=2, minimum_cohort=4), 5) == 3
    assert honest_shares(replace(plan, protection="none"), 5) == 1
    assert honest_shares(replace(plan, noise="aggregator"), 5) == 1


def test_client_by_its_most_records():
    """ε of a client grows with the most records that a plan allows it, in proportion and not as their root."""
    plan, honest = planned(unit=Unit.SILO, max_records=50)
    more = second_opinion(replace(plan, max_records=100), honest)
    assert more.epsilon > 2.1
    assert math.isfinite(more.epsilon)
