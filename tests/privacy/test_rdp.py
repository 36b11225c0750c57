"""Rényi curves."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from secagg.errors import BadInput
from secagg.privacy.gaussian import epsilon_of
from secagg.privacy.rdp import ORDERS, RdpCurve, best_order
from secagg.privacy.shares import GaussianCost, gap_of, variance_of
from tests.vectors.files import load

VECTORS = load("privacy_accounting")
DELTA = float(VECTORS["delta"])
mus = st.floats(1e-3, 10)
deltas = st.floats(-15, -1).map(lambda power: 10**power)


def curve_of(mu: float) -> RdpCurve:
    """The curve of a Gaussian release."""
    return GaussianCost(mu * mu).curve()


@pytest.mark.parametrize("case", VECTORS["single"], ids=lambda case: case["epsilon"])
def test_orders_are_dense_enough(case):
    """The grid of orders costs at most 10⁻⁴ of ε against the best real order, and is never below it."""
    epsilon = curve_of(1 / float(case["noise_multiplier_by_renyi"])).epsilon(DELTA)
    assert 1 - 1e-12 <= epsilon / float(case["epsilon"]) <= 1 + 1e-4


@settings(max_examples=20)
@given(mus, deltas)
def test_conversion_is_an_upper_bound(mu, delta):
    """For a Gaussian release the Rényi ε is never below the exact one, at its best order or at any other."""
    curve = curve_of(mu)
    assert curve.epsilon(delta) >= epsilon_of(mu, delta)
    assert curve.epsilon(delta) == min(curve.epsilon(delta, place) for place in range(len(ORDERS)))


@settings(max_examples=20)
@given(st.floats(0.05, 20), deltas)
def test_best_order_of_a_budget_has_room_for_most_noise(epsilon, delta):
    """At the budget's order the largest Gaussian release that fits at any order fits still."""
    place = best_order(epsilon, delta)
    above = [curve_of(10.0).epsilon(delta, other) - 50 * order for other, order in enumerate(ORDERS)]
    room = [(epsilon - more) / order for more, order in zip(above, ORDERS, strict=True)]
    assert room[place] == pytest.approx(max(room), rel=1e-6)
    fits = math.sqrt(2 * max(room)) * (1 - 1e-6)
    assert curve_of(fits).epsilon(delta) <= curve_of(fits).epsilon(delta, place) <= epsilon


@given(mus, mus, deltas)
def test_composition_adds(one, other, delta):
    """The sum of two curves is the curve of √Σμ², rounded up."""
    together = curve_of(one) + curve_of(other)
    joint = curve_of(math.sqrt(one**2 + other**2))
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


@pytest.mark.parametrize(("sigma", "shares"), [(2.0, 1), (1.4, 2), (1.1, 3), (0.8, 6)])
@pytest.mark.parametrize("shift", [1, 2])
def test_curve_of_a_sum_of_discrete_gaussians_bounds_it(sigma, shares, shift):
    """Beside what has a curve alone, shares are composed by a curve that is never below their true divergences."""
    true = divergences(sigma, shares, shift)
    cost = GaussianCost(shift**2 / variance_of(sigma, shares), gap_of([(sigma, 1)], shares))
    assert np.all(true <= np.array(cost.curve().values)[: len(true)] * (1 + 1e-12))


@given(mus, st.floats(1e-12, 1e-3))
def test_gap_widens_the_curve_as_its_source_says(mu, gap):
    """A gap T adds T·(2α − 1)/(α − 1) at each order, rounded up."""
    widened = np.array(GaussianCost(mu * mu, gap).curve().values)
    exact = [alpha * mu * mu / 2 + gap * (2 * alpha - 1) / (alpha - 1) for alpha in ORDERS]
    assert np.allclose(widened, exact, rtol=1e-12, atol=0)
    assert np.all(widened >= np.array(exact))


def test_orders_are_the_same_everywhere():
    """The grid ascends and is made of multiples of 2⁻¹², so that curves of two machines add."""
    assert len(ORDERS) == 641
    assert list(ORDERS) == sorted(set(ORDERS))
    assert all((order * 4096).is_integer() for order in ORDERS)


@pytest.mark.parametrize("call", [
    lambda: RdpCurve((1.0,)), lambda: RdpCurve((math.nan,) * len(ORDERS)), lambda: RdpCurve((-1.0,) * len(ORDERS)),
    lambda: curve_of(1).epsilon(0), lambda: best_order(1.0, 1.0),
])  # fmt: skip
def test_impossible_questions_are_refused(call):
    """Values without a meaning raise BadInput instead of giving a number."""
    with pytest.raises(BadInput):
        call()
