"""Exact privacy of Gaussian releases."""

import math
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import BadInput
from secagg.privacy.gaussian import delta_of, epsilon_of, mu_of, noise_multiplier_of
from tests.vectors.files import load

VECTORS = load("privacy_accounting")
DELTA = float(VECTORS["delta"])
mus = st.floats(1e-3, 50)
deltas = st.floats(-20, -0.1).map(lambda power: 10**power)


@pytest.mark.parametrize("case", VECTORS["single"], ids=lambda case: case["epsilon"])
def test_one_release(case):
    """μ is the tabled one from below, the noise multiplier from above, and both give ε back from below."""
    epsilon, mu, noise = float(case["epsilon"]), float(case["mu"]), float(case["noise_multiplier"])
    assert mu * (1 - 1e-10) <= mu_of(epsilon, DELTA) <= mu
    assert noise <= noise_multiplier_of(mu_of(epsilon, DELTA)) <= noise * (1 + 1e-10)
    assert epsilon_of(mu_of(epsilon, DELTA), DELTA) <= epsilon
    assert epsilon_of(1 / noise_multiplier_of(mu_of(epsilon, DELTA)), DELTA) <= epsilon


@pytest.mark.parametrize("case", VECTORS["wide"], ids=lambda case: f"{case['mu']} {case['delta']}")
def test_epsilon_over_a_wide_range(case):
    """ε is never below the value with 60 digits, and at most 10⁻⁸ above it."""
    epsilon = float(case["epsilon"])
    assert epsilon <= epsilon_of(float(case["mu"]), float(case["delta"])) <= epsilon * (1 + 1e-8) + 1e-9


@pytest.mark.parametrize("case", VECTORS["scaled"], ids=lambda case: case["name"])
def test_what_a_mistake_or_a_loss_costs(case):
    """Noise planned for ε = 1 that is too small by the named factor gives the tabled ε, far above the claim."""
    reached = epsilon_of(mu_of(1.0, DELTA) * float(case["factor"]), DELTA)
    assert reached == pytest.approx(float(case["epsilon"]), rel=1e-9)
    assert reached > 1.05


def test_a_budget_split_by_epsilon_wastes_noise():
    """Three blocks at ε/3 and δ/3 each take 1.7 times the noise of one joint release, and spend only 0.56."""
    split = VECTORS["split"]
    third = mu_of(1 / 3, DELTA / 3)
    assert noise_multiplier_of(third) == pytest.approx(float(split["noise_multiplier_per_block"]), rel=1e-9)
    jointly = noise_multiplier_of(mu_of(1.0, DELTA) / math.sqrt(3))
    assert jointly == pytest.approx(float(split["noise_multiplier_jointly"]), rel=1e-9)
    assert epsilon_of(third * math.sqrt(3), DELTA) == pytest.approx(float(split["epsilon_spent"]), rel=1e-9)


@given(mus, deltas)
def test_epsilon_covers_delta_and_is_the_least(mu, delta):
    """At the returned ε the release has no more than δ; a little below it has more."""
    epsilon = epsilon_of(mu, delta)
    assert delta_of(mu, epsilon) <= delta
    assert epsilon == 0 or delta_of(mu, epsilon * (1 - 1e-12)) > delta


@given(st.floats(1e-3, 100), deltas)
def test_mu_and_epsilon_are_inverse(epsilon, delta):
    """The μ for ε never gives more than ε, and a thousandth more μ does."""
    mu = mu_of(epsilon, delta)
    assert epsilon_of(mu, delta) <= epsilon < epsilon_of(mu * 1.001, delta)


@given(mus, st.floats(-8, 20))
def test_delta_is_never_understated(mu, distance):
    """δ is at least that of 300-digit arithmetic, up to 20 standard deviations from the middle of the privacy loss."""
    mpmath = pytest.importorskip("mpmath")
    epsilon = max(0.0, mu * (distance + mu / 2))
    with mpmath.workdps(300):
        high, small = mpmath.mpf(epsilon) / mu, mpmath.mpf(mu) / 2
        exact = mpmath.ncdf(small - high) - mpmath.exp(epsilon) * mpmath.ncdf(-small - high)
        assert 0 < exact <= delta_of(mu, epsilon)


@given(mus, deltas)
def test_dp_accounting_agrees(mu, delta):
    """Google's dp_accounting gives the same noise to within its tolerance."""
    accounting = pytest.importorskip("dp_accounting")
    epsilon = epsilon_of(mu, delta)
    theirs = accounting.get_epsilon_gaussian(1 / mu, delta)
    assert epsilon == pytest.approx(theirs, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("case", VECTORS["single"], ids=lambda case: case["epsilon"])
def test_opacus_is_never_below(case):
    """opacus' Rényi accountant, which is not tight, never gives less; one full-batch step is one release."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accountants = pytest.importorskip("opacus.accountants")
        accountant = accountants.RDPAccountant()
        accountant.step(noise_multiplier=float(case["noise_multiplier"]), sample_rate=1)
        theirs = accountant.get_epsilon(DELTA)
    assert epsilon_of(1 / float(case["noise_multiplier"]), DELTA) <= theirs <= float(case["epsilon"]) * 1.12


@pytest.mark.parametrize("call", [
    lambda: epsilon_of(0, 0.1), lambda: epsilon_of(math.nan, 0.1), lambda: epsilon_of(math.inf, 0.1),
    lambda: epsilon_of(1, 0), lambda: epsilon_of(1, 1), lambda: epsilon_of(1, math.nan),
    lambda: mu_of(-1, 0.1), lambda: mu_of(math.inf, 0.1), lambda: mu_of(math.nan, 0.1),
    lambda: delta_of(1, -1), lambda: noise_multiplier_of(0), lambda: mu_of(0, 1e-40),
])  # fmt: skip
def test_impossible_questions_are_refused(call):
    """Values without a meaning raise BadInput instead of giving a number."""
    with pytest.raises(BadInput):
        call()
