"""Ceilings of membership tests."""

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import norm

from secagg.errors import BadInput
from secagg.privacy import Mechanism, SampledSteps, TrainingClaim, TrainingCost
from tests.threat_models.estimation.claims import claimed
from threat_models.estimation.ceilings import auc_ceiling, ceiling, roc_ceiling


@pytest.mark.parametrize(
    ("epsilon", "at_percent", "at_permille", "area"),
    [(0.5, 0.0145, 0.0016, 0.540), (1, 0.0198, 0.0024, 0.575), (2, 0.0340, 0.0048, 0.639), (4, 0.0805, 0.0152, 0.743),
     (8, 0.255, 0.0772, 0.881)],
)  # fmt: skip
def test_exact_claims_have_the_known_ceiling(epsilon, at_percent, at_permille, area):
    """TPR at 1 % and 0.1 % FPR, and the area, of a Gaussian release at δ = 1e-5."""
    claim = claimed(epsilon=epsilon)
    found = (ceiling(claim, 0.01), ceiling(claim, 0.001), auc_ceiling(claim))
    assert found == pytest.approx((at_percent, at_permille, area), abs=6e-4)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
def test_claims_of_shares_have_the_ceiling_of_what_they_round(epsilon):
    """Shares allow what a Gaussian release of their μ does, below e^ε·FPR + δ, and hardly more by what they lack."""
    claim = claimed(Mechanism.DISCRETE_SHARES, epsilon=epsilon)
    mu = claim.releases.cost().mu
    rates = np.geomspace(1e-5, 1, 60)
    found = np.array([ceiling(claim, rate) for rate in rates])
    assert found == pytest.approx(norm.cdf(norm.ppf(rates) + mu), rel=1e-12)
    assert (found <= np.minimum(1, np.exp(epsilon) * rates + 1e-5) + 1e-9).all()
    assert (np.diff(found) >= 0).all()
    assert auc_ceiling(claim) == pytest.approx(norm.cdf(mu / np.sqrt(2)), rel=1e-12)


@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_ends(mechanism):
    """Who is never wrong about others finds next to nobody; who accuses all finds all; the curve says the same."""
    claim = claimed(mechanism)
    assert ceiling(claim, 0.0) < 1e-9
    assert ceiling(claim, 1.0) == 1.0
    series = roc_ceiling(claim)
    assert (series.x[0], series.x[-1], series.y[-1]) == pytest.approx((1e-4, 1.0, 1.0))
    assert series.y[10] == pytest.approx(ceiling(claim, series.x[10]))


@pytest.mark.parametrize("wrong", [lambda claim: ceiling(claim, 1.5), lambda claim: roc_ceiling(claim, 0.7)])
def test_rates_out_of_range_are_refused(wrong):
    """A rate is a probability."""
    with pytest.raises(BadInput):
        wrong(claimed())


def training(rate: float, multiplier: float, steps: int) -> TrainingClaim:
    """The claim of members' training with these steps, at δ = 1e-5."""
    cost = TrainingCost(SampledSteps(rate, multiplier, steps), gap=1e-12)
    return TrainingClaim(cost, cost.epsilon(1e-5), 1e-5)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.9])
def test_no_test_of_a_sampled_step_passes_the_ceiling(rate: float) -> None:
    """The best test of one sampled step, by the noisy sum itself, stays below the ceiling, and comes near it somewhere.

    Removing a record: H0 is a sum without it, N(0, m²), H1 one that has it with probability q. Adding it: the reverse.
    """
    multiplier = 0.8
    claim, at = training(rate, multiplier, 1), np.linspace(-6, 8, 400)
    without, with_it = (norm.sf(at, shift, multiplier) for shift in (0, 1))
    mixed = (1 - rate) * without + rate * with_it
    for false, true in ((without, mixed), (1 - mixed, 1 - without)):
        limits = np.array([ceiling(claim, each) for each in false])
        assert (true <= limits + 1e-9).all()
        assert np.min(limits - true) < 0.01
        assert abs(trapezoid(true, false)) <= auc_ceiling(claim) + 1e-9


def test_sampling_lowers_the_ceiling() -> None:
    """Sampled steps have a lower ceiling than the same steps with every record, and those that of their Gaussian."""
    sampled, whole = training(0.1, 1.0, 20), training(1.0, 1.0, 20)
    assert auc_ceiling(sampled) < auc_ceiling(whole) - 0.1
    assert ceiling(sampled, 0.01) < ceiling(whole, 0.01) / 2
    assert ceiling(whole, 0.01) == pytest.approx(norm.cdf(norm.ppf(0.01) + np.sqrt(20)), rel=1e-6)
