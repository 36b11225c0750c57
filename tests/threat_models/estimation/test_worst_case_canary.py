"""The worst neighbours."""

import numpy as np
import pytest

from methods import method_named
from methods.round import Examples, Local
from secagg.encoding import Grid, Normalisation, accumulate
from secagg.errors import BadInput
from secagg.privacy import Adjacency, Mechanism, Unit
from secagg.privacy.calibration import Part
from tests.threat_models.estimation.claims import KINDS, MOMENTS, claimed, of_cells, several
from threat_models.estimation.rerelease import draw_release, worst_canary


@pytest.mark.parametrize("mechanism", list(Mechanism))
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("parts", KINDS)
def test_no_neighbours_are_farther_apart(mechanism, adjacency, parts):
    """The canary lies as far off as the claim's sensitivity allows, but for rounding to integers.

    Where counts weigh most, and so do the three squared units that their shares' noise counts less, by 0.5 % at most.
    """
    releases = claimed(mechanism, adjacency, parts=parts and parts(adjacency)).releases
    most = releases.mu(releases.first.fewest)
    assert (0.995 if parts is of_cells else 0.999) * most < worst_canary(releases).mu <= most


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("shares", ["moments", {"counts": 0.1, "class_sums": 0.1, "second_moment": 0.8}])
@pytest.mark.parametrize("spread", [1, 2, 5])
def test_moves_are_those_of_real_records(adjacency, shares, spread):
    """The moves are the difference of the statistics of two records within the radius, entry by entry, σ included."""
    releases = claimed(Mechanism.DISCRETE_SHARES, adjacency, shares=shares).releases
    canary, sensitivity = worst_canary(releases, spread), MOMENTS[adjacency]
    totals = []
    for pair in (canary.absent, canary.present):
        rows = np.zeros((0 if pair is None else 1, sensitivity.dimension), dtype=np.int64)
        if pair is not None:
            rows[0, : len(pair[0])] = pair[0]
        labels = np.array([] if pair is None else [pair[1]], dtype=np.int64)
        totals.append(accumulate(rows, labels, sensitivity.classes, sensitivity.levels))
    noises = {noise.block.name: noise for noise in releases.first.blocks}
    expected = {}
    for name, noise in noises.items():
        moved = noise.multiplier * (totals[1][name] - totals[0][name]).reshape(-1)
        sigmas = np.concatenate([np.full(count, sigma) for sigma, count in noise.segments])
        expected |= {(name, place): (moved[place], sigmas[place]) for place in np.flatnonzero(moved)}
    assert {(move.block, move.place): (move.shift, move.sigma) for move in canary.moves} == expected
    assert canary.mu > 0.995 * releases.mu(2)


def test_one_hot_record_touches_three_entries():
    """A record in one direction moves its count, one entry of its class sum and one of the diagonal."""
    moves = worst_canary(claimed().releases).moves
    assert [(move.block, move.place) for move in moves] == [("counts", 0), ("class_sums", 0), ("second_moment", 0)]


def test_rounds_are_all_there():
    """Every sum of a plan has its own entries."""
    moves = worst_canary(claimed(parts=several(Adjacency.ADD_REMOVE)).releases).moves
    assert [(move.part, move.turn) for move in moves] == [
        (0, 0),
        (1, 0),
        (1, 0),
        (1, 0),
        (2, 0),
        (2, 1),
        (2, 2),
        (2, 3),
    ]


@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_scores_are_standard_normal_around_half_the_distance(mechanism):
    """Mean ±μ/2 and variance 1 under the planned noise, over 20 000 draws (false-failure rate below 1e-6)."""
    canary = worst_canary(claimed(mechanism, parts=several(Adjacency.REPLACE_ONE)).releases)
    release = draw_release(canary)
    for there, sign in ((True, 1), (False, -1)):
        scores = canary.scores(release(there, 20_000).astype(np.float64))
        assert scores.mean() == pytest.approx(sign * canary.mu / 2, abs=5.2 / 20_000**0.5)
        assert scores.var() == pytest.approx(1, abs=5.2 * (2 / 20_000) ** 0.5)


@pytest.mark.parametrize(("adjacency", "spread"), [(Adjacency.ADD_REMOVE, 0), (Adjacency.ADD_REMOVE, 17),
                                                   (Adjacency.REPLACE_ONE, 17)])  # fmt: skip
def test_no_room_for_the_canary(adjacency, spread):
    """A canary over no feature, or over more than there are, is refused."""
    with pytest.raises(BadInput, match="a canary over"):
        worst_canary(claimed(adjacency=adjacency).releases, spread)


def test_narrow_features_have_opposite_canaries():
    """Where there is no room for a second direction the pair is the best of one line."""
    canary = worst_canary(claimed(adjacency=Adjacency.REPLACE_ONE).releases, 9)
    assert len(canary.present[0]) == len(canary.absent[0]) == 9
    assert np.all(np.sign(canary.present[0]) == -np.sign(canary.absent[0]))


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("spread", [1, 3])
@pytest.mark.parametrize("name", ["ccvr", "prototypes"])
def test_moves_are_those_of_a_method_s_own_sums(adjacency, spread, name):
    """Moments of each class, and sums without moments: the moves are what the method makes of the two records."""
    dimension, classes, grid = 8, 3, Grid(1.0, 1 << 12, normalisation=Normalisation.UNIT)
    method = method_named(name, {})
    (spec,) = method.sums(dimension, classes, grid.levels)
    stated = spec.sensitivity(Unit.RECORD, adjacency, 1)
    canary = worst_canary(claimed(adjacency=adjacency, parts=[Part(stated, spec.shares)]).releases, spread)
    flat = []
    for pair in (canary.absent, canary.present):
        rows = np.zeros((0 if pair is None else 1, dimension), dtype=np.int64)
        if pair is not None:
            rows[0, : len(pair[0])] = pair[0]
        labels = np.array([] if pair is None else [pair[1]], dtype=np.int64)
        flat.append(dict(method.contribute(Local(Examples.of(rows, labels), classes, grid)).blocks))
    moves = {(move.block, move.place): move.shift for move in canary.moves}
    expected = {}
    for block in spec.blocks:
        difference = (flat[1][block.name] - flat[0][block.name]).reshape(-1)
        multipliers = [move.shift // difference[move.place] for move in canary.moves if move.block == block.name]
        assert len(set(multipliers)) <= 1
        expected |= {(block.name, place): difference[place] * multipliers[0] for place in np.flatnonzero(difference)}
    assert moves == expected
