"""Noise for the blocks of a release."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.encoding import accumulate
from secagg.errors import BadInput
from secagg.privacy import (
    Adjacency,
    BlockNoise,
    BlockSensitivity,
    BlockwiseSensitivity,
    Mechanism,
    MomentSensitivity,
    NoiseCalibration,
    Releases,
    Unit,
)
from secagg.privacy.calibration import SHARE_RULES, Part, calibrate_mu, calibrate_releases
from secagg.privacy.gaussian import epsilon_of, mu_of, noise_multiplier_of
from secagg.privacy.shares import ROUNDING, gap_of, variance_of

DELTA = 1e-5
LEVELS = 1 << 10
CLASSES, DIMENSION = 3, 4
EXACT, SHARES = Mechanism.GAUSSIAN, Mechanism.DISCRETE_SHARES
AROUND = [(EXACT, 2, 1), (SHARES, 10, 8)]


def calibrate(sensitivity, *, sessions=1, shares="moments", **more) -> NoiseCalibration:
    """Noise for so many equal releases that together keep the promise."""
    return calibrate_releases([Part(sensitivity, shares, sessions)], **more).first


def spent(noise: NoiseCalibration, sessions=1, honest=None) -> float:
    """ε of so many releases with this noise."""
    return Releases.of(noise, sessions).epsilon(DELTA, honest=honest)


def moments(adjacency: Adjacency = Adjacency.ADD_REMOVE, levels: int = LEVELS) -> MomentSensitivity:
    """The sensitivity of small moments."""
    return MomentSensitivity(adjacency, CLASSES, DIMENSION, levels)


def calibrated(
    mechanism=SHARES, parties=10, fewest=8, adjacency=Adjacency.ADD_REMOVE, epsilon=1.0, **more
) -> NoiseCalibration:
    """Noise for small moments."""
    return calibrate(
        moments(adjacency), epsilon=epsilon, delta=DELTA, mechanism=mechanism, parties=parties, fewest=fewest, **more
    )


@pytest.mark.parametrize(("mechanism", "parties", "fewest"), AROUND)
@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("sessions", [1, 5])
def test_the_promise_is_kept_and_not_wasted(mechanism, parties, fewest, adjacency, epsilon, sessions):
    """ε is at most what was asked for, and at most 0.03 % less."""
    noise = calibrated(mechanism, parties, fewest, adjacency, epsilon, sessions=sessions)
    assert epsilon * (1 - 3e-4) <= spent(noise, sessions=sessions) <= epsilon


@pytest.mark.parametrize(("mechanism", "parties", "fewest"), AROUND)
def test_noise_is_that_of_the_formula(mechanism, parties, fewest):
    """What counts has variance v_b = s_b²/(μ²·p_b), half of it off the diagonal; of shares r² more, divided by them."""
    noise = calibrated(mechanism, parties, fewest)
    mu = mu_of(1.0, DELTA)
    for block, length in zip(noise.blocks, (1, LEVELS, LEVELS**2), strict=True):
        share = SHARE_RULES["moments"][block.block.name]
        counted = (length * block.multiplier / mu) ** 2 / share
        lost = ROUNDING if mechanism is SHARES else 0.0
        for sigma, variance in ((block.sigma, counted), (block.off_diagonal, counted / 2)):
            if sigma is not None:
                exact = math.sqrt((variance + lost) / fewest)
                assert exact * (1 - 1e-9) <= sigma <= exact * (1 + 1e-9) + 2 / 1024


@pytest.mark.parametrize(("mechanism", "parties", "fewest"), AROUND)
def test_replacing_takes_more_noise_than_the_square_root_of_two(mechanism, parties, fewest):
    """Under the usual shares of μ² an exchange costs √2.3805 times the noise, as the worst case is within a class."""
    one, other = (calibrated(mechanism, parties, fewest, adjacency) for adjacency in Adjacency)
    assert other.blocks[2].sigma / one.blocks[2].sigma == pytest.approx(math.sqrt(2.3805), rel=1e-5)


def flat_sum(records: np.ndarray, labels: np.ndarray, noise: NoiseCalibration) -> np.ndarray:
    """The flat vector of some records, each block times its multiplier."""
    tensors = accumulate(records, labels, CLASSES, LEVELS)
    return np.concatenate([tensors[block.block.name].reshape(-1) * block.multiplier for block in noise.blocks])


@given(st.integers(0, 2**32), st.sampled_from(Adjacency), st.booleans())
def test_no_neighbour_moves_the_noisy_vector_beyond_mu(seed, adjacency, same_class):
    """Real sums of real neighbours, entry by entry over that entry's own σ, never come further than the promised μ."""
    generator = np.random.default_rng(seed)
    directions = generator.normal(size=(2, DIMENSION))
    if adjacency is Adjacency.REPLACE_ONE and seed % 2:
        directions[1] = -0.725 * directions[0] + 0.5 * directions[1]
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    records = np.trunc(directions * LEVELS * (1 - 1e-9)).astype(np.int64)
    labels = np.array([0, 0 if same_class else 1])
    noise = calibrated(SHARES, 10, 8, adjacency)
    sigma = np.concatenate([np.full(count, math.sqrt(variance_of(sigma, 8))) for sigma, count in noise.segments])
    moved = flat_sum(records[:1], labels[:1], noise)
    if adjacency is Adjacency.REPLACE_ONE:
        moved = moved - flat_sum(records[1:], labels[1:], noise)
    distance = float(np.linalg.norm(moved / sigma))
    assert distance <= noise.mu(8)
    if adjacency is Adjacency.ADD_REMOVE:
        assert distance >= noise.mu(8) * 0.99


def test_worst_survivor_count_is_charged():
    """The cost is the largest over all allowed numbers of honest shares, its gap that of all of them."""
    noise = calibrated()
    assert noise.cost().squared_mu == max(noise.cost(honest).squared_mu for honest in range(8, 11))
    assert {noise.cost(honest).gap for honest in range(1, 11)} == {noise.cost().gap}
    assert spent(noise) == spent(noise, honest=8) > spent(noise, honest=9)


def test_gap_of_many_small_shares_is_charged():
    """The counts of a hundred clients have shares of about 3 grid units: what they lack, at a hundred, is in T."""
    noise = calibrated(SHARES, 100, 50, epsilon=8.0)
    counts = noise.blocks[0]
    assert counts.sigma < 3.5
    every = [(block.least, block.block.size) for block in noise.blocks]
    assert noise.cost().gap == gap_of(every, 100) > gap_of([(counts.sigma, CLASSES)], 100) > 1e-25


def test_fewer_survivors_break_the_promise():
    """One share below the calibrated minimum costs more than was promised, at the known rate."""
    noise = calibrated()
    assert spent(noise, honest=7) > 1.05
    assert spent(noise, honest=7) == pytest.approx(epsilon_of(mu_of(1.0, DELTA) * math.sqrt(8 / 7), DELTA), rel=1e-3)


def test_collusion_costs_noise():
    """Calibrating for half of ten clients doubles the variance of the whole sum."""
    all_honest, half = calibrated(SHARES, 10, 10), calibrated(SHARES, 10, 5)
    ratio = half.opened_noise(10)["class_sums"].sigma / all_honest.opened_noise(10)["class_sums"].sigma
    assert ratio == pytest.approx(math.sqrt(2), rel=1e-4)


def weakened(noise: NoiseCalibration, factor: float) -> NoiseCalibration:
    """The same with every σ times a factor."""
    blocks = (
        replace(block, sigma=block.sigma * factor, off_diagonal=block.off_diagonal and block.off_diagonal * factor)
        for block in noise.blocks
    )
    return replace(noise, blocks=tuple(blocks))


@pytest.mark.parametrize(("mechanism", "parties", "fewest"), AROUND)
@pytest.mark.parametrize("factor", [0.5, 1 / math.sqrt(2), 0.99])
def test_weaker_noise_is_seen(mechanism, parties, fewest, factor):
    """Recomputing ε from the figures of a plan with too little noise gives more than was promised."""
    assert spent(weakened(calibrated(mechanism, parties, fewest), factor)) > 1.005


@pytest.mark.parametrize(("mechanism", "parties", "fewest"), AROUND)
def test_noise_for_another_adjacency_is_seen(mechanism, parties, fewest):
    """Noise for add/remove, and the same times √2 only, both promise less than ε = 1 under replace-one."""
    noise = calibrated(mechanism, parties, fewest)
    for factor, least in [(1.0, 1.55), (math.sqrt(2), 1.08)]:
        moved = replace(weakened(noise, factor), sensitivity=moments(Adjacency.REPLACE_ONE))
        assert spent(moved) > least


def test_too_little_off_the_diagonal_is_seen():
    """A triangle whose off-diagonal entries have less than σ/√2 gives no credit for the diagonal's larger σ."""
    noise = calibrated()
    counts, sums, moment = noise.blocks
    cut = replace(noise, blocks=(counts, sums, replace(moment, off_diagonal=moment.sigma / 2)))
    assert spent(cut) > 1.05
    more = replace(noise, blocks=(counts, sums, replace(moment, off_diagonal=moment.sigma)))
    assert spent(more) <= 1.0


def test_one_joint_release_needs_less_than_three():
    """With equal shares one unit of sensitivity takes σ = 6.46, where three releases at ε/3 and δ/3 take 10.97."""
    noise = calibrated(EXACT, 1, 1, shares="equal")
    assert noise.blocks[1].sigma / LEVELS == pytest.approx(6.4616, rel=1e-4)
    assert noise_multiplier_of(mu_of(1 / 3, DELTA / 3)) == pytest.approx(10.9707, rel=1e-4)


def test_counts_are_multiplied_until_their_share_is_large_enough():
    """With many clients the count's share is brought to 3 units by the least integer; the grid's blocks never are."""
    noise = calibrate(moments(levels=1 << 14), epsilon=1.0, delta=DELTA, mechanism=SHARES, parties=1000, fewest=1000)
    counts = noise.blocks[0]
    assert counts.multiplier > 1
    assert counts.sigma >= 3 > counts.sigma * (counts.multiplier - 1) / counts.multiplier - 1 / 1024
    assert [block.multiplier for block in noise.blocks[1:]] == [1, 1]
    assert noise.opened_noise(1000)["counts"].of_record.sigma == pytest.approx(
        1 / (mu_of(1.0, DELTA) * math.sqrt(0.02)), rel=1e-3
    )


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 4.0, 16.0])
@pytest.mark.parametrize("fewest", [1, 2, 10, 50])
def test_counts_are_multiplied_until_the_rounding_is_a_hundredth(epsilon, fewest):
    """r² is at most 1 % of what the fewest shares of the counts add, by the least such integer."""
    noise = calibrated(SHARES, 50, fewest, epsilon=epsilon, adjacency=Adjacency.ADD_REMOVE)
    counts = noise.blocks[0]
    assert 0.01 * fewest * counts.sigma**2 >= ROUNDING
    if counts.multiplier > 1:
        fewer = (counts.multiplier - 1) / counts.multiplier
        variance = (fewest * counts.sigma**2 - ROUNDING) * fewer**2 + ROUNDING
        assert 0.01 * variance < ROUNDING * 1.001 or variance / fewest < 9


def test_a_share_below_three_grid_units_is_refused():
    """A grid too coarse for the noise is refused with the figures."""
    with pytest.raises(BadInput, match=r"class_sums: a noise share would have sigma 0\.3269 grid units .* at least 3"):
        calibrate(moments(levels=8), epsilon=8.0, delta=DELTA, mechanism=SHARES, parties=400, fewest=400)


def test_segments_follow_the_rows_of_the_triangle():
    """The flat vector's σ: counts, class sums, then per row of B one diagonal entry and the rest of the row."""
    noise = calibrated()
    diagonal, others = noise.blocks[2].sigma, noise.blocks[2].off_diagonal
    triangle = [(diagonal, 1), (others, 3), (diagonal, 1), (others, 2), (diagonal, 1), (others, 1), (diagonal, 1)]
    assert list(noise.segments) == [(noise.blocks[0].sigma, 3), (noise.blocks[1].sigma, 12), *triangle]
    flat = np.concatenate([np.full(count, sigma) for sigma, count in noise.segments[2:]])
    rows, columns = np.triu_indices(DIMENSION)
    assert ((flat == diagonal) == (rows == columns)).all()


def test_every_sigma_is_a_fraction_of_1024():
    """Plans hold σ exactly."""
    noise = calibrated()
    assert all((sigma * 1024).is_integer() for sigma, _ in noise.segments)


def test_client_level_and_other_blocks():
    """Any blocks can be calibrated, for a whole client and for shares of the caller's choice."""
    blocks = (BlockSensitivity("gradient", 5000.0, 10), BlockSensitivity("moment", 1e6, 6, triangle=True))
    sensitivity = BlockwiseSensitivity(Unit.CLIENT, Adjacency.REPLACE_ONE, blocks)
    noise = calibrate_mu(
        sensitivity, mu=0.5, mechanism=EXACT, parties=1, fewest=1, shares={"gradient": 0.25, "moment": 0.75}
    )
    assert 0.5 * (1 - 1e-5) <= noise.mu(1) <= 0.5
    assert noise.blocks[0].sigma == pytest.approx(2 * 5000 / (0.5 * math.sqrt(0.25)), rel=1e-5)


def test_more_noisers_change_nothing_when_each_adds_all():
    """With the gaussian mechanism the promise rests on one honest party, and is exact, without a gap."""
    one, three = calibrated(EXACT, 1, 1), calibrated(EXACT, 3, 1)
    assert one.blocks == three.blocks
    assert three.cost().gap == 0
    assert spent(three, honest=1) == spent(three, honest=3) == spent(one)
    assert three.opened_noise(3)["class_sums"].sigma == pytest.approx(math.sqrt(3) * one.blocks[1].sigma)


PLAIN = BlockSensitivity("plain", 10.0, 3)
TRIANGLE = BlockSensitivity("triangle", 10.0, 6, triangle=True)
WRONG = {
    "unknown_rule": lambda: calibrated(shares="thirds"),
    "unnamed_block": lambda: calibrated(shares={"counts": 0.5, "class_sums": 0.5}),
    "zero_share": lambda: calibrated(shares={"counts": 0.0, "class_sums": 0.5, "second_moment": 0.5}),
    "more_than_everything": lambda: calibrated(shares={"counts": 0.5, "class_sums": 0.5, "second_moment": 0.5}),
    "no_honest_share": lambda: calibrated(SHARES, 10, 0),
    "more_honest_than_there_are": lambda: calibrated(SHARES, 10, 11),
    "two_noisers_that_share": lambda: calibrated(EXACT, 2, 2),
    "no_sessions": lambda: calibrated(sessions=0),
    "no_sessions_exactly": lambda: calibrated(EXACT, 1, 1, sessions=0),
    "honest_out_of_range": lambda: spent(calibrated(), honest=11),
    "no_honest_noiser": lambda: spent(calibrated(EXACT, 2, 1), honest=0),
    "nobody_honest": lambda: spent(calibrated(), honest=0),
    "no_multiplier": lambda: BlockNoise(PLAIN, 0, 5.0),
    "too_small": lambda: BlockNoise(PLAIN, 1, 2.9),
    "too_large": lambda: BlockNoise(PLAIN, 1, 1.1e12),
    "not_a_number": lambda: BlockNoise(PLAIN, 1, math.nan),
    "no_triangle": lambda: BlockNoise(PLAIN, 1, 5.0, 5.0),
    "triangle_forgotten": lambda: BlockNoise(TRIANGLE, 1, 5.0),
    "too_small_off_the_diagonal": lambda: BlockNoise(TRIANGLE, 1, 5.0, 2.0),
    "blocks_in_another_order": lambda: replace(calibrated(), blocks=calibrated().blocks[::-1]),
    "block_missing": lambda: replace(calibrated(), blocks=calibrated().blocks[:2]),
}


@pytest.mark.parametrize("name", WRONG)
def test_impossible_noise_is_refused(name):
    """What no plan may hold raises BadInput."""
    with pytest.raises(BadInput):
        WRONG[name]()
