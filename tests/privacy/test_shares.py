"""Sums of discrete-Gaussian shares keep what their Gaussian promises: the theorem, checked against exact δ."""

import itertools
import math
import warnings
from collections.abc import Sequence

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from secagg.errors import BadInput
from secagg.privacy import (
    Adjacency,
    BlockNoise,
    BlockSensitivity,
    BlockwiseSensitivity,
    Mechanism,
    NoiseCalibration,
    Unit,
)
from secagg.privacy.gaussian import delta_of, epsilon_of
from secagg.privacy.shares import ROUNDING, GaussianCost, gap_of, sigma_for, variance_of
from tests.privacy.exact_loss import composed, delta_of_losses, delta_of_shares, joint, losses_of, on_grid
from tests.session.noise_checks import delta_by_hand

DELTA = 1e-5
EPSILONS = (0.05, 0.25, 1.0, 2.0, 4.0)
mus = st.floats(1e-3, 10)
deltas = st.floats(-14, -1).map(lambda power: 10**power)


def cost_of(sigmas: Sequence[float], shifts: Sequence[int], shares: int) -> GaussianCost:
    """What the theorem says of entries with these σ a share, which neighbours move by `shifts`."""
    terms = (shift**2 / variance_of(sigma, shares) for sigma, shift in zip(sigmas, shifts, strict=True))
    return GaussianCost(math.fsum(terms), gap_of([(sigma, 1) for sigma in sigmas], shares))


def releases() -> list[tuple[tuple[float, ...], tuple[int, ...], int]]:
    """σ of a share (from little more than the rounding takes), shifts and shares: 1 to 3 entries, alike and mixed."""
    found = []
    for shares, total in itertools.product((1, 2, 3, 5), (2.2, 3.0, 5.0)):
        small, large = total / math.sqrt(shares), 1.7 * total / math.sqrt(shares)
        found += [((small,), shifts, shares) for shifts in ((1,), (2,), (5,))]
        found += [((small, large), shifts, shares) for shifts in ((1, 1), (2, 5))]
        found += [((small, small, large), shifts, shares) for shifts in ((1, 1, 1), (1, 2, 3))]
    return found


@pytest.mark.parametrize(("sigmas", "shifts", "shares"), releases())
def test_exact_delta_is_below_the_bound(sigmas, shifts, shares):
    """δ by convolution, with nothing of the theorem, is at most the theorem's at every ε."""
    cost = cost_of(sigmas, shifts, shares)
    for epsilon in EPSILONS:
        exact = delta_of_shares(sigmas, shifts, shares, epsilon)
        assert exact <= cost.delta(epsilon) * (1 + 1e-9) + 1e-15


def test_bound_is_tight_where_shares_are_large():
    """At σ = 30 grid units the exact δ reaches 98 % of the bound: nothing is given away."""
    cost = cost_of((30.0,), (30,), 1)
    for epsilon in (0.5, 1.0, 2.0):
        assert delta_of_shares((30.0,), (30,), 1, epsilon) > 0.98 * cost.delta(epsilon)


def test_without_the_rounding_the_bound_is_false():
    """With the whole variance K·σ² for v, δ lies above Balle and Wang's: r² is not there for caution."""
    found = []
    for sigmas, shifts, shares in releases():
        squared = math.fsum(shift**2 / (shares * sigma**2) for sigma, shift in zip(sigmas, shifts, strict=True))
        for epsilon in EPSILONS:
            exact = delta_of_shares(sigmas, shifts, shares, epsilon)
            bound = delta_of(math.sqrt(squared), epsilon)
            found.append(exact / bound if bound > 1e-12 else 0.0)
    assert max(found) > 1.01


@pytest.mark.parametrize("shares", [1, 2, 3, 5])
def test_triangle_loses_the_rounding_on_each_entry(shares):
    """A triangle counts min(v, 2·v_off): with σ/√2 off the diagonal 2r² less than its σ says, and exact δ is below."""
    sigma = 3 * math.sqrt(2)
    block = BlockSensitivity("triangle", 9.0, 3, triangle=True)
    noise = BlockNoise(block, 1, sigma, sigma / math.sqrt(2))
    sensitivity = BlockwiseSensitivity(Unit.RECORD, Adjacency.ADD_REMOVE, (block,))
    cost = NoiseCalibration(sensitivity, Mechanism.DISCRETE_SHARES, (noise,), shares, shares).cost()
    assert cost.squared_mu == pytest.approx(81 / (shares * sigma**2 - 2 * ROUNDING))
    off = sigma / math.sqrt(2)
    for record in ((3, 0), (2, 2), (1, 2)):  # q·qᵀ has Frobenius norm ‖q‖² ≤ 9
        moved = (record[0] ** 2, record[0] * record[1], record[1] ** 2)
        for epsilon in EPSILONS:
            exact = delta_of_shares((sigma, off, sigma), moved, shares, epsilon)
            assert exact <= cost.delta(epsilon) * (1 + 1e-9) + 1e-15


def rounds(shares: int) -> list[tuple[tuple[float, ...], tuple[int, ...]]]:
    """Three sums one after the other, with other σ and shifts each."""
    scale = 1 / math.sqrt(shares)
    return [((3 * scale, 5 * scale), (1, 2)), ((4 * scale,), (2,)), ((6 * scale, 6 * scale), (3, 1))]


@pytest.mark.parametrize("shares", [1, 3])
def test_loss_distribution_of_rounds_is_below_the_bound(shares):
    """Rounds compose as Σμ²: δ of their exact loss distributions, convolved by FFT and rounded down, is below."""
    costs = [cost_of(sigmas, shifts, shares) for sigmas, shifts in rounds(shares)]
    total = costs[0] + costs[1] + costs[2]
    each = [
        joint([losses_of(sigma, shares, shift) for sigma, shift in zip(sigmas, shifts, strict=True)])
        for sigmas, shifts in rounds(shares)
    ]
    found = composed([on_grid(one, upwards=False) for one in each])
    for epsilon in EPSILONS:
        assert delta_of_losses(found, epsilon) <= total.delta(epsilon) + 1e-12
    assert delta_of_losses(found, 1.0) > 0.5 * total.delta(1.0)


def gaussian_losses(mu: float) -> tuple[np.ndarray, np.ndarray]:
    """The loss N(μ²/2, μ²) of a Gaussian release in cells of 2⁻¹⁴, at their middles."""
    edges = np.arange(-30 * 2**14, 30 * 2**14 + 1) / 2**14
    return (edges[1:] + edges[:-1]) / 2, np.diff(norm.cdf(edges, mu * mu / 2, mu))


@pytest.mark.parametrize("parts", [(0.3,), (0.5, 0.2, 0.9), (0.1,) * 16])
def test_gaussian_rounds_are_what_a_loss_distribution_says(parts):
    """δ of Gaussian releases in sequence lies between that of their loss distributions rounded down and up."""
    total = GaussianCost(math.fsum(mu * mu for mu in parts))
    low, high = (composed([on_grid(gaussian_losses(mu), upwards=up) for mu in parts]) for up in (False, True))
    for epsilon in (0.05, 0.5, 1.0, 2.0):
        assert delta_of_losses(low, epsilon) - 1e-12 <= total.delta(epsilon) <= delta_of_losses(high, epsilon) + 1e-12


@given(mus, deltas, st.floats(0, 1e-3))
def test_epsilon_is_that_of_the_theorem(mu, delta, gap):
    """ε is at least 2T + ε_BW(μ, δ·e^−T), δ at that ε is at most δ, and both are so in 40 digits."""
    cost = GaussianCost(mu * mu, gap)
    epsilon = cost.epsilon(delta)
    assert epsilon >= 2 * gap
    assert cost.delta(epsilon) <= delta * (1 + 1e-9)
    with mpmath.workdps(40):
        by_hand = mpmath.exp(gap) * delta_by_hand(mpmath.mpf(mu), mpmath.mpf(epsilon) - 2 * mpmath.mpf(gap))
    assert by_hand <= delta * (1 + 1e-12)
    assert epsilon <= epsilon_of(mu, delta * math.exp(-gap)) * (1 + 1e-12) + 2.1 * gap


@pytest.mark.parametrize("cost", [GaussianCost(1.1e12), GaussianCost(1e40, 1e-20), GaussianCost(1, 600.0)])
def test_costs_beyond_what_is_computed_are_infinite(cost):
    """Where no ε is computed any more it is infinite, and δ 1, which refuses a plan in numbers and promises nothing."""
    assert cost.epsilon(1e-5) == math.inf
    assert cost.delta(1000.0) == 1.0
    assert GaussianCost(0.99e12).epsilon(1e-5) < 1e12


@given(st.lists(mus, min_size=1, max_size=5), st.integers(1, 50))
def test_costs_add_in_squares(parts, sessions):
    """Costs add and repeat as Σμ² and ΣT, rounded up."""
    costs = [GaussianCost(mu * mu, mu * 1e-9) for mu in parts]
    total = sum(costs[1:], start=costs[0]).times(sessions)
    squared, gap = sessions * math.fsum(mu * mu for mu in parts), sessions * math.fsum(parts) * 1e-9
    assert squared * (1 - 1e-15) <= total.squared_mu <= squared * (1 + 1e-12)
    assert gap * (1 - 1e-15) <= total.gap <= gap * (1 + 1e-12)


@given(st.floats(1e-3, 1e9), st.integers(1, 1000))
def test_sigma_for_a_variance_counts_as_it(variance, shares):
    """Shares of the σ for a variance count as that variance, but for the last digits, and never as more than is so."""
    sigma = sigma_for(variance, shares)
    counted = variance_of(sigma, shares)
    assert counted == pytest.approx(variance, rel=1e-9, abs=1e-12)
    with mpmath.workdps(40):
        assert counted <= shares * mpmath.mpf(sigma) ** 2 - ROUNDING


def test_gap_is_that_of_the_sources():
    """Peikert's ratio for r² = 3 on every entry; and the convolution's, which grows with the shares."""
    rounding = gap_of([(1.0, 1)], 1)
    with mpmath.workdps(40):
        eta = 2 * mpmath.nsum(lambda k: mpmath.exp(-6 * mpmath.pi**2 * k * k), [1, mpmath.inf])
        assert mpmath.log((1 + eta) / (1 - eta)) <= rounding <= 1.0001 * mpmath.log((1 + eta) / (1 - eta))
    assert gap_of([(3.0, 10**6)], 1) == pytest.approx(10**6 * rounding)
    assert gap_of([(3.0, 10**6)], 10_000) < 1e-19
    for sigma, half in [(1.0, 2.7e-4), (1.5, 1.135e-9), (2.0, 3.58e-17)]:
        assert gap_of([(sigma, 1)], 5) == pytest.approx(half, rel=0.01)
    assert gap_of([(1.0, 1)], 50) > gap_of([(1.0, 1)], 5) > gap_of([(1.0, 1)], 2) > rounding
    both = gap_of([(1.0, 3), (0.7, 4)], 5)
    assert both == pytest.approx(3 * gap_of([(1.0, 1)], 5) + 4 * gap_of([(0.7, 1)], 5))


@pytest.mark.parametrize("sigma", [0.5, 0.6, 0.8, 1.0])
@pytest.mark.parametrize("shares", [2, 3, 6])
def test_sum_of_shares_is_within_the_gap_of_one_discrete_gaussian(sigma, shares):
    """Where shares are so small that their sum is visibly no discrete Gaussian, no probability is off by more."""
    points = np.arange(-25, 26)
    one = np.exp(-(np.arange(-80, 81) ** 2) / (2 * sigma**2))
    law = np.ones(1)
    for _ in range(shares):
        law = np.convolve(law, one / one.sum())
    whole = np.exp(-(np.arange(-400, 401) ** 2) / (2 * shares * sigma**2))
    ratios = np.log(law[len(law) // 2 + points]) - np.log((whole / whole.sum())[400 + points])
    assert np.abs(ratios[np.abs(points) < 6 * sigma * math.sqrt(shares)]).max() <= gap_of([(sigma, 1)], shares) + 1e-12


def test_opacus_agrees():
    """It computes ε of composed Gaussian releases by loss distributions; ours is its own within its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accountants = pytest.importorskip("opacus.accountants")
        for noise, steps in [(4.0, 1), (4.0, 10), (20.0, 100)]:
            ours = GaussianCost(1 / noise**2).times(steps).epsilon(DELTA)
            opacus = accountants.PRVAccountant()
            for _ in range(steps):
                opacus.step(noise_multiplier=noise, sample_rate=1)
            assert ours == pytest.approx(opacus.get_epsilon(DELTA, eps_error=0.001), abs=0.003)


@pytest.mark.parametrize("call", [
    lambda: variance_of(1.0, 3), lambda: variance_of(math.nan, 3), lambda: variance_of(math.inf, 3),
    lambda: gap_of([(0.49, 1)], 2), lambda: gap_of([(math.nan, 1)], 2), lambda: gap_of([(3, 1)], 0),
    lambda: GaussianCost(0.0), lambda: GaussianCost(math.nan), lambda: GaussianCost(math.inf),
    lambda: GaussianCost(1, -1),
    lambda: GaussianCost(1, math.inf), lambda: GaussianCost(1, math.nan), lambda: GaussianCost(1).times(0),
    lambda: GaussianCost(1).epsilon(0), lambda: GaussianCost(1).delta(-1), lambda: GaussianCost(1).delta(math.nan),
])  # fmt: skip
def test_impossible_questions_are_refused(call):
    """Values without a meaning raise BadInput instead of giving a number."""
    with pytest.raises(BadInput):
        call()
