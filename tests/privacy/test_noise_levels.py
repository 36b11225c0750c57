"""Noise levels keep the promise with every number of missing clients: exact δ, variances, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import BadInput
from secagg.privacy import (
    Adjacency,
    BlockSensitivity,
    BlockwiseSensitivity,
    MomentSensitivity,
    NoiseCalibration,
    NoiseLevel,
    Unit,
)
from secagg.privacy.calibration import Mechanism, calibrate_mu
from secagg.privacy.noise_levels import LEAST_PART, parts_of
from secagg.privacy.shares import gap_of_parts
from tests.privacy.exact_loss import delta_of_losses, law_of, losses_between

EPSILONS = (0.05, 0.25, 1.0, 2.0)


def levels_of(clients: int, known: int, *missing: int) -> tuple[NoiseLevel, ...]:
    """Levels of clients of whom the adversary knows so many."""
    return tuple(NoiseLevel(each, clients - each - known) for each in missing)


def counted(mu: float, clients: int, known: int, dropouts: int, *missing: int) -> NoiseCalibration:
    """A calibrated release of one scalable block of one entry, which a record moves by 1."""
    block = BlockSensitivity("counts", 1.0, 1, scalable=True)
    sensitivity = BlockwiseSensitivity(Unit.RECORD, Adjacency.ADD_REMOVE, (block,))
    fewest, lower = clients - dropouts - known, levels_of(clients, known, *missing)
    shares = Mechanism.DISCRETE_SHARES
    return calibrate_mu(
        sensitivity, mu=mu, mechanism=shares, parties=clients, fewest=fewest, shares="equal", lower=lower
    )


def sum_of_parts(sigmas: tuple[float, ...], shares: int) -> np.ndarray:
    """P of the sum of so many shares, each of independent parts with these σ."""
    law = np.ones(1)
    for sigma in sigmas:
        law = np.convolve(law, law_of(sigma, shares))
    return law


@pytest.mark.parametrize("sigmas", [(0.6, 0.5), (1.0, 0.7), (2.5, 2.45), (3.0, 0.5, 1.2), (0.5, 3.0)])
@pytest.mark.parametrize("shares", [1, 2, 3, 5])
def test_sum_of_unequal_parts_is_within_its_bound_of_a_discrete_gaussian(sigmas, shares):
    """The exact law of the sum is within e^±(T less the rounding) of the discrete Gaussian of the summed variance."""
    bound = gap_of_parts([(sigmas, 1)], shares) - gap_of_parts([((1e6,), 1)], 1)
    law = sum_of_parts(sigmas, shares)
    points = np.arange(len(law)) - len(law) // 2
    variance = shares * sum(sigma**2 for sigma in sigmas)
    near = np.abs(points) <= 6 * math.sqrt(variance)
    gaussian = np.exp(-(points**2) / (2 * variance))
    ratio = np.log(law[near] / law.sum()) - np.log(gaussian[near] / gaussian.sum())
    assert np.abs(ratio).max() <= bound + 1e-12


@pytest.mark.parametrize(
    ("clients", "known", "dropouts", "missing"),
    [(4, 1, 1, (0,)), (5, 1, 2, (0, 1)), (10, 1, 1, (0,)), (3, 0, 2, (0, 1)), (6, 2, 3, (0,))],
)
def test_exact_delta_of_every_level_is_below_its_bound(clients, known, dropouts, missing):
    """For each number of missing clients the exact δ of the noise that is left is at most the calibration's."""
    noise = counted(1.0, clients, known, dropouts, *missing)
    block = noise.blocks[0]
    sigmas = [part[0][0] for part in noise.parts]
    for gone in range(dropouts + 1):
        stays = 1 + sum(gone > level.missing for level in noise.lower)
        honest = clients - gone - known
        law = sum_of_parts(tuple(sigmas[:stays]), honest)
        cost = noise.cost(honest, gone)
        assert cost.mu <= 1.0
        for epsilon in EPSILONS:
            exact = delta_of_losses(losses_between(law, block.multiplier), epsilon)
            assert exact <= cost.delta(epsilon) * (1 + 1e-9) + 1e-15
            assert exact <= noise.cost().delta(epsilon) * (1 + 1e-9) + 1e-15


@given(
    st.floats(10, 1e9),
    st.integers(2, 40).flatmap(lambda fewest: st.tuples(st.just(fewest), st.integers(1, 20), st.integers(1, 20))),
)
def test_each_level_leaves_the_variance_of_the_smallest_sum(sigma, counts):
    """Honest shares of a level times what is left of one are at least the fewest times σ², and little more."""
    fewest, more, further = counts
    lower = (NoiseLevel(0, fewest + more + further), NoiseLevel(1, fewest + more))
    parts = parts_of(sigma, lower, fewest)
    for place, level in enumerate((*lower, NoiseLevel(2, fewest))):
        left = level.fewest * math.fsum(part**2 for part in parts[: place + 1])
        assert fewest * sigma**2 <= left * (1 + 1e-12)
        assert left <= fewest * (sigma + 3 / 1024 * math.sqrt(level.fewest)) ** 2 * (1 + 1e-9) + level.fewest
    assert all((part * 1024).is_integer() for part in parts)


def test_multiplier_makes_every_part_large_enough():
    """Where counts are small their multiplier grows until each part of a share has 6 squared grid units."""
    plain, levelled = counted(3.0, 20, 1, 2), counted(3.0, 20, 1, 2, 0, 1)
    assert plain.blocks[0].multiplier < levelled.blocks[0].multiplier
    assert min(sigma for part in levelled.parts for sigma, _ in part) >= LEAST_PART
    less = levelled.blocks[0].multiplier - 1
    smaller = levelled.blocks[0].sigma * less / levelled.blocks[0].multiplier
    assert min(parts_of(smaller, levelled.lower, levelled.fewest)) < LEAST_PART + 2 / 1024


def test_small_parts_of_fixed_blocks_are_refused():
    """A block that cannot be scaled, and whose share is too small to take apart, has no noise levels."""
    sensitivity = MomentSensitivity(Adjacency.ADD_REMOVE, 3, 4, 2)
    common = {"mechanism": Mechanism.DISCRETE_SHARES, "parties": 20, "fewest": 17}
    assert calibrate_mu(sensitivity, mu=0.1, **common)
    with pytest.raises(BadInput, match=r"removable part of a noise share has sigma .*keep the surplus noise"):
        calibrate_mu(sensitivity, mu=0.1, lower=levels_of(20, 1, 0, 1), **common)


@pytest.mark.parametrize(
    "lower",
    [
        ((0, 3),),  # no fewer honest shares in the smallest sum
        ((0, 2),),
        ((1, 9), (0, 8)),
        ((0, 8), (1, 8)),
        ((0, 11),),
    ],
)
def test_levels_out_of_order_are_refused(lower):
    """Levels ascend in missing clients, and each has fewer honest shares than the one before."""
    noise = counted(0.5, 10, 1, 6)
    levels = tuple(NoiseLevel(*each) for each in lower)
    with pytest.raises(BadInput, match="there are no noise levels"):
        NoiseCalibration(noise.sensitivity, noise.mechanism, noise.blocks, noise.fewest, noise.parties, levels)


def test_noise_of_one_party_has_no_levels():
    """Noise that one party adds in full has no surplus."""
    noise = counted(0.5, 10, 1, 6)
    with pytest.raises(BadInput, match="one honest party is enough"):
        NoiseCalibration(noise.sensitivity, Mechanism.GAUSSIAN, noise.blocks, 1, 10, levels_of(10, 1, 0))


def test_cost_counts_those_who_arrived():
    """Against one colluder more the cost is the worst over levels, and a sum's own cost that of its level."""
    noise = counted(1.0, 10, 1, 4, 0, 2)
    assert noise.cost().squared_mu <= 1.0
    assert noise.cost(noise.fewest - 1).mu == pytest.approx(
        max(noise.cost(10 - gone - 2, gone).mu for gone in (0, 2, 4)), rel=1e-12
    )
    assert noise.cost(9, 0).mu <= 1.0 < noise.cost(8, 0).mu
    assert noise.cost(8, 1).mu < noise.cost(7, 1).mu
    opened = {members: noise.opened_noise(members)["counts"].sigma for members in (10, 9, 8, 7, 6)}
    least = opened[10] * math.sqrt(9 / 10)
    for gone, members in enumerate((10, 9, 8, 7, 6)):
        honest = members - 1
        assert opened[members] * math.sqrt(honest / members) >= least * (1 - 1e-3), gone
    assert noise.largest >= 10 * max(opened.values())
