"""What all sums of one plan cost together, for every kind of neighbour."""

import math
from dataclasses import replace
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.errors import BadInput
from secagg.privacy import (
    Adjacency,
    BlockSensitivity,
    BlockwiseSensitivity,
    Mechanism,
    MomentSensitivity,
    NoiseCalibration,
    Releases,
    Unit,
)
from secagg.privacy.calibration import Part, calibrate_mu, calibrate_releases, of_client
from secagg.privacy.gaussian import epsilon_of
from tests.session.noise_checks import delta_by_hand

DELTA = 1e-5
EXACT, SHARES = Mechanism
ADD, REPLACE = Adjacency
LEVELS = 1 << 10
AROUND = [(EXACT, 1, 1), (SHARES, 6, 4)]


def moments(adjacency: Adjacency = ADD) -> MomentSensitivity:
    """The first sum of three classes and four features."""
    return MomentSensitivity(adjacency, 3, 4, LEVELS)


def gradient(adjacency: Adjacency = ADD, unit: Unit = Unit.RECORD) -> BlockwiseSensitivity:
    """A round's sum."""
    return BlockwiseSensitivity(unit, adjacency, (BlockSensitivity("gradient", float(1 << 28), 15),))


def calibrated(mechanism=SHARES, parties=6, fewest=4, adjacency=ADD, epsilon=2.0, rounds=3, first=0.5) -> Releases:
    """One release of moments and some rounds."""
    parts = [Part(moments(adjacency), "moments", 1, first), Part(gradient(adjacency), "equal", rounds, 1 - first)]
    return calibrate_releases(parts, epsilon=epsilon, delta=DELTA, mechanism=mechanism, parties=parties, fewest=fewest)


def squared_mu(calibration: NoiseCalibration, shares: int) -> Any:
    """μ² of one add/remove sum in 40 digits: Σ (multiplier·l2)²/v over its blocks, v = shares·σ² − 3 or one party's σ².

    Of a triangle twice the variance off its diagonal where that is less.
    """
    lost = 3 if calibration.mechanism is SHARES else 0
    with mpmath.workdps(40):
        total = mpmath.mpf(0)
        for noise in calibration.blocks:
            variances = [shares * mpmath.mpf(noise.sigma) ** 2 - lost]
            if noise.off_diagonal is not None:
                variances.append(2 * (shares * mpmath.mpf(noise.off_diagonal) ** 2 - lost))
            total += (noise.multiplier * mpmath.mpf(noise.block.l2)) ** 2 / min(variances)
        return total


@pytest.mark.parametrize(("mechanism", "parties", "fewest"), AROUND)
@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize(("rounds", "first"), [(1, 0.5), (16, 0.5), (4, 0.9)])
def test_asked_epsilon_is_kept_and_used(mechanism, parties, fewest, adjacency, epsilon, rounds, first):
    """All sums together have at most the ε that was asked for, and at least 99.9 % of it."""
    releases = calibrated(mechanism, parties, fewest, adjacency, epsilon, rounds, first)
    assert 0.999 * epsilon <= releases.epsilon(DELTA) <= epsilon


def test_gaussian_releases_add_in_squares():
    """μ of 1 + 3 sums is the root of the sum of squares, and ε is the exact one of that μ."""
    releases = calibrated(EXACT, 1, 1)
    one, other = (calibration for calibration, _ in releases.parts)
    by_hand = float(mpmath.sqrt(squared_mu(one, 1) + 3 * squared_mu(other, 1)))
    assert releases.mu(1) == pytest.approx(by_hand, rel=1e-9)
    assert releases.mu(1) >= by_hand
    assert releases.epsilon(DELTA) == epsilon_of(releases.mu(1), DELTA)


@pytest.mark.parametrize("honest", [4, 5, 6])
def test_costs_of_all_sums_add(honest):
    """μ² of 1 + 3 sums is the sum of theirs, and so is the gap; ε is that of both, whatever came before what."""
    releases = calibrated()
    one, other = (calibration.cost(honest) for calibration, _ in releases.parts)
    cost = releases.cost(honest)
    squared, gap = one.squared_mu + 3 * other.squared_mu, one.gap + 3 * other.gap
    assert squared <= cost.squared_mu <= squared * (1 + 1e-13)
    assert gap <= cost.gap <= gap * (1 + 1e-13)
    assert releases.epsilon(DELTA, honest=honest) == cost.epsilon(DELTA)


def test_budget_is_divided_in_squares():
    """The parts' μ² are as their budgets, each divided by the number of its sums."""
    releases = calibrated(rounds=4, first=0.2)
    one, other = (squared_mu(calibration, 4) for calibration, _ in releases.parts)
    assert one / (one + 4 * other) == pytest.approx(0.2, rel=1e-4)


@settings(max_examples=20)
@given(st.floats(0.05, 20), st.integers(1, 50), st.integers(1, 9), st.floats(0.01, 0.99))
def test_epsilon_is_never_below_the_exact_one(epsilon, rounds, fewest, first):
    """δ of the same noise in 40 digits, at ε of shares as computed, is at most δ; at 10⁻⁹ less it is more."""
    releases = calibrated(SHARES, 9, fewest, ADD, epsilon, rounds, first)
    mu = mpmath.sqrt(sum(times * squared_mu(calibration, fewest) for calibration, times in releases.parts))
    found = releases.epsilon(DELTA)
    assert delta_by_hand(mu, found) <= DELTA < delta_by_hand(mu, found * (1 - 1e-9))


def test_fewer_honest_shares_cost_more():
    """ε rises with every share that is missing, for all sums together."""
    releases = calibrated()
    found = [releases.epsilon(DELTA, honest=honest) for honest in (6, 5, 4, 3, 2, 1)]
    assert found == sorted(found)
    assert found[2] == releases.epsilon(DELTA)
    assert found[3] > 1.05 * releases.epsilon(DELTA)


@pytest.mark.parametrize("records", [1, 7, 1000])
def test_client_is_so_many_records(records):
    """A client of m records moves each block m times as far; exchanging clients moves it twice as far again."""
    weights = {"counts": 0.3, "class_sums": 0.2 / LEVELS**2, "second_moment": 0.7 / LEVELS**4}
    client = of_client(moments(), records)
    assert client.unit is Unit.CLIENT
    assert [block.l2 for block in client.blocks] == [records * block.l2 for block in moments().blocks]
    assert client.squared(weights) == pytest.approx(records**2 * moments().squared(weights))
    replaced = of_client(moments(REPLACE), records)
    assert replaced.adjacency is REPLACE
    assert replaced.squared(weights) == pytest.approx(4 * client.squared(weights))
    assert replaced.squared(weights) >= records**2 * moments(REPLACE).squared(weights)


def test_client_noise_is_so_many_times_a_records():
    """The same promise for clients of up to 50 records takes 50 times the noise."""
    one, other = (
        calibrate_releases([Part(each, "moments")], epsilon=1.0, delta=DELTA, mechanism=EXACT, parties=1, fewest=1)
        for each in (moments(), of_client(moments(), 50))
    )
    for small, large in zip(one.first.blocks, other.first.blocks, strict=True):
        assert large.sigma / large.multiplier == pytest.approx(50 * small.sigma / small.multiplier, rel=1e-3)


@pytest.mark.parametrize("records", [0, -1])
def test_client_without_records_is_refused(records):
    """A client of no records cannot be bounded by them."""
    with pytest.raises(BadInput, match="client"):
        of_client(moments(), records)


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("unit", Unit)
def test_same_noise_about_other_neighbours(unit, adjacency):
    """`about` keeps every σ and counts it for the other neighbours: as if it had been planned for them."""
    releases = calibrated()
    others = [moments(adjacency), gradient(adjacency)]
    if unit is Unit.CLIENT:
        others = [of_client(each, 5) for each in others]
    moved = releases.about(unit, adjacency, others)
    assert (moved.first.unit, moved.first.adjacency) == (unit, adjacency)
    total = 0.0
    for (old, _), (new, times), other in zip(releases.parts, moved.parts, others, strict=True):
        assert [noise.sigma for noise in new.blocks] == [noise.sigma for noise in old.blocks]
        weights = {}
        for noise in old.blocks:
            variances = [4 * noise.sigma**2 - 3, 2 * (4 * noise.least**2 - 3)][: 1 + noise.block.triangle]
            weights[noise.block.name] = noise.multiplier**2 / min(variances)
        total += times * other.squared(weights)
    assert moved.epsilon(DELTA) == pytest.approx(epsilon_of(math.sqrt(total), DELTA), rel=1e-9)
    if (unit, adjacency) == (Unit.RECORD, ADD):
        assert moved == releases
    else:
        assert moved.epsilon(DELTA) > releases.epsilon(DELTA)


def test_about_wants_the_sensitivities_of_those_neighbours():
    """Sensitivities for other neighbours than are asked about are refused."""
    with pytest.raises(BadInput, match="not for client and add-remove"):
        calibrated().about(Unit.CLIENT, ADD, [moments(), gradient()])
    with pytest.raises(BadInput, match="not for record and replace-one"):
        calibrated().about(Unit.RECORD, REPLACE, [moments(REPLACE), gradient()])


@pytest.mark.parametrize("budgets", [(0.5, 0.4), (0.5, 0.6), (1.0, 1.0), (1 / 3, 1 / 3)])
def test_budgets_must_sum_to_one(budgets):
    """Shares of μ² that leave some over, or spend more than there is, are refused."""
    parts = [Part(moments(), "moments", 1, budgets[0]), Part(gradient(), "equal", 2, budgets[1])]
    with pytest.raises(BadInput, match="do not sum to 1"):
        calibrate_releases(parts, epsilon=1.0, delta=DELTA, mechanism=SHARES, parties=6, fewest=4)


@pytest.mark.parametrize(("times", "budget"), [(0, 0.5), (-1, 0.5), (1, 0.0), (1, -0.1), (1, 1.1), (1, math.nan)])
def test_part_without_sums_or_budget_is_refused(times, budget):
    """A part has at least one sum and a share between 0 and 1."""
    with pytest.raises(BadInput, match="budget"):
        Part(moments(), "moments", times, budget)


@pytest.mark.parametrize(
    "other",
    [
        {"mechanism": EXACT, "parties": 6, "fewest": 1},
        {"mechanism": SHARES, "parties": 7, "fewest": 4},
        {"mechanism": SHARES, "parties": 6, "fewest": 3},
        {"sensitivity": gradient(REPLACE)},
        {"sensitivity": gradient(ADD, Unit.CLIENT)},
    ],
    ids=["mechanism", "parties", "fewest", "adjacency", "unit"],
)
def test_sums_of_one_plan_are_of_one_kind(other):
    """Sums with other noisers, or about other neighbours, are no single promise."""
    fixed = {"mu": 0.1, "mechanism": SHARES, "parties": 6, "fewest": 4}
    one = calibrate_mu(moments(), **fixed)
    two = calibrate_mu(**{"sensitivity": gradient(), "shares": "equal", **fixed, **other})
    with pytest.raises(BadInput, match="different parties"):
        Releases(((one, 1), (two, 1)))


@pytest.mark.parametrize(
    "parts", [(), ((calibrate_mu(gradient(), mu=0.1, mechanism=EXACT, parties=1, fewest=1, shares="equal"), 0),)]
)
def test_a_plan_releases_something(parts):
    """No sums, or a kind of which there are none, are no plan."""
    with pytest.raises(BadInput, match="at least one sum"):
        Releases(parts)


def test_more_sums_than_planned_cost_more():
    """One round more with the same noise is above the promise."""
    releases = calibrated(rounds=3)
    (first, _), (second, times) = releases.parts
    assert Releases(((first, 1), (second, times + 1))).epsilon(DELTA) > 1.05 * releases.epsilon(DELTA)
    assert replace(releases, parts=((first, 1),)).epsilon(DELTA) < releases.epsilon(DELTA)


def test_first_sums_cost_what_they_alone_would():
    """The first sums of a plan are those parts of it in order; all of them are the plan, and there are no others."""
    releases = calibrated(rounds=3)
    (first, _), (second, _) = releases.parts
    assert releases.until(1) == Releases(((first, 1),))
    assert releases.until(3) == Releases(((first, 1), (second, 2)))
    assert releases.until(4) == releases
    spent = [releases.until(sums).epsilon(DELTA) for sums in (1, 2, 3, 4)]
    assert spent == sorted(set(spent))
    for sums in (-1, 0, 5):
        with pytest.raises(BadInput, match="no first"):
            releases.until(sums)
