"""Rényi curves and sums of discrete shares."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from secagg.errors import BadInput
from secagg.privacy.gaussian import epsilon_of
from secagg.privacy.rdp import ORDERS, RdpCurve, gaussian_curve, shares_mu, summation_gap
from tests.vectors.files import load

VECTORS = load("privacy_accounting")
DELTA = float(VECTORS["delta"])
mus = st.floats(1e-3, 10)
deltas = st.floats(-15, -1).map(lambda power: 10**power)


@pytest.mark.parametrize("case", VECTORS["single"], ids=lambda case: case["epsilon"])
def test_noise_of_shares(case):
    """The grid of orders costs at most 10⁻⁴ of the noise against the best real order, and is never below it."""
    best = float(case["noise_multiplier_of_shares"])
    assert best <= 1 / shares_mu(float(case["epsilon"]), DELTA) <= best * (1 + 1e-4)


@given(mus, deltas)
def test_conversion_is_an_upper_bound(mu, delta):
    """For a Gaussian release the Rényi ε is never below the exact one, and δ at that ε is δ again."""
    curve = gaussian_curve(mu)
    epsilon = curve.epsilon(delta)
    assert epsilon >= epsilon_of(mu, delta)
    assert epsilon == 0 or curve.delta(epsilon) == pytest.approx(delta, rel=1e-6)


@given(mus, mus, st.integers(1, 50), deltas)
def test_composition_adds(one, other, sessions, delta):
    """Adding curves and repeating sessions is the curve of √Σμ², rounded up."""
    together = gaussian_curve(one).times(sessions) + gaussian_curve(other)
    joint = gaussian_curve(math.sqrt(sessions * one**2 + other**2))
    assert together.epsilon(delta) == pytest.approx(joint.epsilon(delta), rel=1e-12, abs=1e-12)
    assert np.all(np.array(together.values) >= np.array(joint.values) * (1 - 1e-15))


def divergences(sigma: float, shares: int, shift: int) -> np.ndarray:
    """D_α of the sum of discrete Gaussians from the sum moved by `shift`, from the definition, for every order ≤ 6."""
    points = np.arange(-60, 61)
    one = np.exp(-(points**2) / (2 * sigma**2))
    total = np.array([1.0])
    for _ in range(shares):
        total = np.convolve(total, one / one.sum())
    here, moved = total[shift:], total[: len(total) - shift]
    seen = (here > 1e-290) & (moved > 1e-290)
    here, moved = np.log(here[seen]), np.log(moved[seen])
    low = (alpha for alpha in ORDERS if alpha <= 6)
    return np.array([logsumexp(alpha * here + (1 - alpha) * moved) / (alpha - 1) for alpha in low])


@pytest.mark.parametrize("sigma", [0.5, 0.6, 0.8, 1.0])
@pytest.mark.parametrize("shares", [1, 2, 3, 6])
@pytest.mark.parametrize("shift", [1, 2])
def test_curve_bounds_the_sum_of_discrete_gaussians(sigma, shares, shift):
    """Where shares are so small that the sum is visibly no discrete Gaussian, the curve still bounds it."""
    true = divergences(sigma, shares, shift)
    curve = gaussian_curve(shift / (sigma * math.sqrt(shares)), summation_gap([(sigma, 1)], shares))
    assert np.all(true <= np.array(curve.values)[: len(true)] * (1 + 1e-12))


def test_gap_is_that_of_the_paper():
    """τ for one coordinate as tabled; it grows with the shares, adds over coordinates and is 0 for one share."""
    for sigma, tau in [(1.0, 5.4e-4), (1.5, 2.27e-9), (2.0, 7.16e-17), (3.0, 2.65e-38)]:
        assert summation_gap([(sigma, 1)], 5) == pytest.approx(tau, rel=0.01)
    assert summation_gap([(1.0, 1)], 50) > summation_gap([(1.0, 1)], 5) > summation_gap([(1.0, 1)], 1) == 0
    both = summation_gap([(1.0, 3), (0.7, 4)], 5)
    assert both == pytest.approx(3 * summation_gap([(1.0, 1)], 5) + 4 * summation_gap([(0.7, 1)], 5))


def test_gap_counts_against_the_budget():
    """With many coordinates of small shares the same ε takes more noise, and in the end no noise is enough."""
    tight = summation_gap([(1.0, 1000)], 10)
    assert shares_mu(4.0, DELTA, gap=tight) < shares_mu(4.0, DELTA)
    assert gaussian_curve(shares_mu(4.0, DELTA, gap=tight), tight).epsilon(DELTA) <= 4.0
    with pytest.raises(BadInput, match="no amount of noise"):
        shares_mu(0.1, DELTA, gap=tight)


def test_opacus_and_dp_accounting_agree():
    """Both compute the Rényi ε of composed Gaussian releases; ours is theirs within their coarser orders."""
    accounting = pytest.importorskip("dp_accounting")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accountants = pytest.importorskip("opacus.accountants")
        for noise, steps in [(4.0, 1), (4.0, 10), (1.1, 3), (20.0, 100)]:
            ours = gaussian_curve(1 / noise).times(steps).epsilon(DELTA)
            opacus = accountants.RDPAccountant()
            google = accounting.rdp.RdpAccountant()
            google.compose(accounting.SelfComposedDpEvent(accounting.GaussianDpEvent(noise), steps))
            for _ in range(steps):
                opacus.step(noise_multiplier=noise, sample_rate=1)
            assert ours == pytest.approx(google.get_epsilon(DELTA), rel=2e-3)
            assert ours == pytest.approx(opacus.get_epsilon(DELTA), rel=2e-3)


def test_orders_are_the_same_everywhere():
    """The grid ascends and is made of multiples of 2⁻¹², so that curves of two machines add."""
    assert len(ORDERS) == 641
    assert list(ORDERS) == sorted(set(ORDERS))
    assert all((order * 4096).is_integer() for order in ORDERS)


@pytest.mark.parametrize("call", [
    lambda: RdpCurve((1.0,)), lambda: RdpCurve((math.nan,) * len(ORDERS)), lambda: RdpCurve((-1.0,) * len(ORDERS)),
    lambda: gaussian_curve(math.inf), lambda: gaussian_curve(-1), lambda: gaussian_curve(1, math.nan),
    lambda: gaussian_curve(1).times(0), lambda: gaussian_curve(1).epsilon(0), lambda: gaussian_curve(1).delta(-1),
    lambda: summation_gap([(0.49, 1)], 2), lambda: summation_gap([(math.nan, 1)], 2),
    lambda: summation_gap([(3, 1)], 0),
    lambda: shares_mu(0, DELTA), lambda: shares_mu(math.inf, DELTA),
])  # fmt: skip
def test_impossible_questions_are_refused(call):
    """Values without a meaning raise BadInput instead of giving a number."""
    with pytest.raises(BadInput):
        call()
