"""What DP-SGD inside a member costs: never less than the truth, and hardly more."""

import math
import warnings
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from secagg.errors import BadInput
from secagg.privacy import GaussianCost, SampledSteps, TrainingCost, multiplier_for
from secagg.privacy import subsampled as accounting
from secagg.privacy.gaussian import epsilon_of, mu_of
from secagg.privacy.subsampled import SLACK, Law, SubsampledSteps, delta_of_steps, epsilon_of_steps
from tests.privacy import exact_loss

DELTA = 1e-5


def cost_of(rate: float, multiplier: float, steps: int, squared_mu: float = 0.0) -> TrainingCost:
    """Training, and further releases."""
    return TrainingCost(SampledSteps(rate, multiplier, steps), squared_mu)


def delta_of_one_step(rate: float, sigma: float, epsilon: float, *, removed: bool) -> float:
    """δ(ε) of a single step, from its definition with 40 digits: both probabilities of where the loss exceeds ε."""
    with mpmath.workdps(40):
        q, mu = mpmath.mpf(rate), 1 / mpmath.mpf(sigma)
        bound = mpmath.e ** (mpmath.mpf(epsilon) if removed else -mpmath.mpf(epsilon))
        if bound <= 1 - q:
            return 0.0
        point = mpmath.log((bound - 1 + q) / q) / mu + mu / 2
        if removed:
            without = mpmath.ncdf(-point)
            return float((1 - q) * without + q * mpmath.ncdf(mu - point) - bound * without)
        without = mpmath.ncdf(point)
        return float(without - ((1 - q) * without + q * mpmath.ncdf(point - mu)) / bound)


def delta_in_direction(rate: float, sigma: float, epsilon: float, *, removed: bool) -> float:
    """Ours, for one step in one direction."""
    return accounting._compose([SubsampledSteps(rate, 1 / sigma, 1)], removed, math.log(1e-12), epsilon).delta(epsilon)


@pytest.mark.parametrize("removed", [True, False])
@pytest.mark.parametrize("rate", [0.01, 0.05, 0.3, 0.95])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
def test_one_step_against_integration(rate, sigma, removed):
    """For one step δ(ε) is never below the integral, in either direction, and at most 0.1 % above it."""
    checked = 0
    for epsilon in (0.0, 0.004, 0.1, 0.5, 1.0, 3.0):
        true = delta_of_one_step(rate, sigma, epsilon, removed=removed)
        ours = delta_in_direction(rate, sigma, epsilon, removed=removed)
        assert ours >= true
        if true > 1e-9:
            assert ours <= true * 1.001
            checked += 1
    assert checked >= 1


@pytest.mark.parametrize("rate", [1e-9, 1e-5, 0.1, 1 - 1e-7])
@pytest.mark.parametrize("sigma", [0.05, 0.3, 1.0, 1e4])
def test_extremes_are_covered(rate, sigma):
    """However odd the parameters, ε at a tiny δ is one at which the true δ of one step is no larger."""
    for delta in (1e-5, 1e-15, 1e-200):
        epsilon = cost_of(rate, sigma, 1).epsilon(delta)
        assert math.isfinite(epsilon)
        assert max(delta_of_one_step(rate, sigma, epsilon, removed=each) for each in (True, False)) <= delta


@pytest.mark.parametrize("rate", [1e-9, 0.3])
@pytest.mark.parametrize("sigma", [0.01, 1e6])
@pytest.mark.parametrize("steps", [1000, 10**7])
def test_extremes_of_many_steps_are_numbers(rate, sigma, steps):
    """Whatever is composed, ε is a number, never above that of steps that take every record, never below one step's."""
    for delta in (1e-15, 0.1):
        epsilon = cost_of(rate, sigma, steps).epsilon(delta)
        assert cost_of(rate, sigma, 1).epsilon(delta) * (1 - 1e-3) <= epsilon <= cost_of(1, sigma, steps).epsilon(delta)


def prv(rate: float, sigma: float, steps: int) -> tuple[float, float, float]:
    """Opacus' lower bound, estimate and upper bound of ε by numerical composition."""
    accountants = pytest.importorskip("opacus.accountants")
    accountant = accountants.PRVAccountant()
    accountant.history = [(sigma, rate, steps)]
    found = accountant._get_dprv(eps_error=0.005, delta_error=DELTA / 1000)
    bounds = found.compute_epsilon(DELTA, DELTA / 1000, 0.005)
    return float(bounds[0]), float(bounds[1]), float(bounds[2])


@pytest.mark.parametrize(
    ("rate", "sigma", "steps"),
    [(0.05, 4.0, 500), (0.01, 1.0, 1000), (0.2, 2.0, 200), (0.001, 0.8, 2000), (0.2, 2.0, 2)],
)
def test_opacus_agrees(rate, sigma, steps):
    """Its PRV accountant's bounds hold ours, its estimate is within 1 %, and its Rényi accountant needs more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accountants = pytest.importorskip("opacus.accountants")
        by_renyi = accountants.RDPAccountant()
        by_renyi.history = [(sigma, rate, steps)]
        ours = cost_of(rate, sigma, steps).epsilon(DELTA)
        low, estimate, high = prv(rate, sigma, steps)
        assert low <= ours <= high
        assert ours == pytest.approx(estimate, rel=0.01)
        assert ours < by_renyi.get_epsilon(DELTA)


def crude(rate: float, sigma: float, *, removed: bool, upwards: bool) -> exact_loss.Floats:
    """One step's losses on the coarse grid, from small pieces of the real line, each at one of its ends."""
    points = np.linspace(-9 * sigma, 1 + 9 * sigma, 100_001) / sigma
    ends = np.log1p(rate * np.expm1(points / sigma - 1 / (2 * sigma**2)))
    without, moved = np.diff(ndtr(points)), np.diff(ndtr(points - 1 / sigma))
    masses = (1 - rate) * without + rate * moved if removed else without
    ends = ends if removed else -ends
    pieces = (np.maximum if upwards else np.minimum)(ends[1:], ends[:-1])
    return exact_loss.on_grid((pieces, masses), upwards=upwards)


@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "mu"), [(0.2, 1.0, 6, 0.7), (0.5, 2.0, 3, 0.0), (0.02, 0.7, 7, 1.5)]
)
@pytest.mark.parametrize("removed", [True, False])
def test_composition_lies_between_crude_bounds(rate, sigma, steps, mu, removed):
    """Steps and a Gaussian release together lie between losses that are all rounded down and all rounded up."""
    parts = [SubsampledSteps(rate, 1 / sigma, steps)] + [SubsampledSteps(1.0, mu, 1)] * (mu > 0)
    bounds = []
    for upwards in (False, True):
        laws = [crude(rate, sigma, removed=removed, upwards=upwards)] * steps
        if mu:
            laws.append(crude(1.0, 1 / mu, removed=True, upwards=upwards))
        bounds.append(exact_loss.composed(laws))
    for epsilon in (0.5, 1.0, 2.0):
        low, high = (exact_loss.delta_of_losses(bound, epsilon) for bound in bounds)
        ours = accounting._compose(parts, removed, math.log(1e-6), epsilon)
        assert low - 1e-12 <= ours.delta(epsilon) <= high + 1e-12
        assert high < 1.2 * low


@pytest.mark.parametrize(("mu", "times"), [(0.01, 1), (0.3, 1), (0.1, 100), (1.0, 9), (0.01, 10**4)])
def test_grid_gives_the_gaussian_back(mu, times):
    """Steps that take every record, composed on the grid all the same, have their Gaussian's ε, or 0.1 % more."""
    for delta in (1e-3, 1e-15, 1e-100):
        true = epsilon_of(mu * math.sqrt(times), delta)
        assert true * (1 - 1e-12) <= epsilon_of_steps([SubsampledSteps(1.0, mu, times)], delta) <= true * 1.001


def test_every_record_in_every_step_is_a_gaussian_release():
    """With q = 1 training is accounted as the Gaussian release that it is, exactly, gaps too."""
    training = TrainingCost(SampledSteps(1.0, 5.0, 20), 0.3, 1e-12)
    release = GaussianCost(20 / 25 + 0.3, 1e-12)
    assert training.epsilon(DELTA) == pytest.approx(release.epsilon(DELTA), rel=1e-12)
    assert training.delta(1.0) == pytest.approx(release.delta(1.0), rel=1e-12)


def test_gap_is_the_theorems():
    """A gap T costs a factor e^T of δ and 2T of ε, and below 2T nothing is promised."""
    steps = SampledSteps(0.1, 2.0, 50)
    plain, widened = TrainingCost(steps), TrainingCost(steps, 0.0, 0.01)
    assert widened.epsilon(DELTA) == pytest.approx(plain.epsilon(DELTA * math.exp(-0.01)) + 0.02, rel=1e-9)
    assert widened.delta(1.0) == pytest.approx(math.exp(0.01) * plain.delta(0.98), rel=1e-9)
    assert widened.delta(0.019) == 1


def test_delta_and_epsilon_are_inverse():
    """δ at the ε of a δ is that δ, to 0.1 %."""
    cost = cost_of(0.05, 2.0, 500, 0.1)
    for delta in (1e-3, 1e-12):
        assert cost.delta(cost.epsilon(delta)) == pytest.approx(delta, rel=1e-3)


@settings(max_examples=4)
@given(st.floats(1e-3, 0.9), st.floats(0.6, 20), st.integers(1, 5000), st.floats(0, 2), st.data())
def test_more_costs_more(rate, multiplier, steps, squared_mu, data):
    """ε does not fall when more records are drawn, more steps are taken, or more is released, with no more noise."""
    more = cost_of(
        data.draw(st.floats(rate, 1)),
        data.draw(st.floats(0.5, multiplier)),
        data.draw(st.integers(steps, 6000)),
        data.draw(st.floats(squared_mu, 3)),
    )
    less = cost_of(rate, multiplier, steps, squared_mu)
    assert less.epsilon(DELTA) <= more.epsilon(DELTA) * (1 + 1e-3) + 1e-9
    assert less.row(DELTA / 128).mu <= more.row(DELTA / 128).mu * (1 + 1e-3) + 1e-9


@pytest.mark.parametrize("tilt", [0.0, 2.5, -1.0])
def test_convolution_is_covered_by_its_error(tilt):
    """Every point of the sum's law is at least the exact one, and hardly more where it is not tiny."""
    chance = np.random.default_rng(7)
    laws = [
        Law(-20, 0.125, chance.dirichlet(np.ones(60)), 0.0),
        Law(3, 0.125, np.ones(4) / 4, 0.0),
    ]
    exact = np.ones(1)
    for law, times in zip(laws, (9, 2), strict=True):
        for _ in range(times):
            exact = np.convolve(exact, law.masses)
    tilted, shift = accounting._convolve([9, 2], laws, tilt)
    first = 9 * -20 + 2 * 3
    places = first + np.arange(len(exact))
    found = tilted[places % accounting.SIZE] * np.exp(shift - tilt * places * 0.125)
    assert np.all(found >= exact * (1 - 1e-13))
    likely = exact * np.exp(tilt * places * 0.125 - shift) > 1e-4
    assert np.allclose(found[likely], exact[likely], rtol=1e-5)


@pytest.mark.parametrize("step", [2.0**-10, 0.25, 2.0])
def test_epsilon_of_a_law_is_enough(step):
    """At the ε that a law gives for δ its δ is that, or less where points are far apart, also between two points."""
    law = Law(-5, step, np.random.default_rng(3).dirichlet(np.ones(40)), 1e-9)
    for delta in np.linspace(0.001, 0.5, 100):
        epsilon = law.epsilon(float(delta))
        assert law.delta(epsilon) <= delta * (1 + 1e-9)
        assert step > 1 or epsilon == 0 or law.delta(epsilon) >= delta * (1 - 1e-6)


def test_normal_distribution_is_as_exact_as_allowed_for():
    """Its relative error, down to where floats end, is below what every tail is raised by."""
    for point in np.linspace(-37, 37, 371):
        assert abs(float(ndtr(point) / mpmath.ncdf(mpmath.mpf(float(point))) - 1)) < SLACK / 4


def test_multiplier_keeps_the_promise_and_hardly_less_would():
    """The multiplier that is found keeps (ε, δ) beside the further releases; half a per cent less does not."""
    releases = 0.2 * mu_of(2.0, DELTA) ** 2
    found = multiplier_for(0.05, 300, epsilon=2.0, delta=DELTA, squared_mu=releases, gap=1e-12)
    keeps = TrainingCost(SampledSteps(0.05, found, 300), releases, 1e-12)
    assert keeps.epsilon(DELTA) <= 2.0
    assert cost_of(0.05, 0.995 * found, 300, releases).epsilon(DELTA) > 2.0
    assert cost_of(0.05, found, 300).epsilon(DELTA) < 1.9


def test_speed_does_not_depend_on_the_steps():
    """The grid has one size, whatever is composed."""
    for steps in (1, 10**7):
        law = accounting._compose(
            [SubsampledSteps(0.05, 1.0, steps), SubsampledSteps(1.0, 0.5, 1)], True, math.log(DELTA)
        )
        assert len(law.masses) == accounting.SIZE


@pytest.mark.parametrize("call", [
    lambda: SampledSteps(0, 1, 1), lambda: SampledSteps(1.01, 1, 1), lambda: SampledSteps(math.nan, 1, 1),
    lambda: SampledSteps(0.1, 0, 1), lambda: SampledSteps(0.1, math.inf, 1), lambda: SampledSteps(0.1, math.nan, 1),
    lambda: SampledSteps(0.1, 1, 0), lambda: SampledSteps(0.1, 1, 10**7 + 1),
    lambda: cost_of(0.1, 1, 1, -1), lambda: cost_of(0.1, 1, 1, math.nan),
    lambda: TrainingCost(SampledSteps(0.1, 1, 1), 0, -1), lambda: TrainingCost(SampledSteps(0.1, 1, 1), 0, math.inf),
    lambda: cost_of(0.1, 1, 1).epsilon(0), lambda: cost_of(0.1, 1, 1).delta(-1),
    lambda: cost_of(0.1, 1, 1).delta(math.inf), lambda: multiplier_for(0.1, 1, epsilon=0, delta=DELTA),
    lambda: multiplier_for(0.1, 10, epsilon=1, delta=DELTA, squared_mu=1.0),
])  # fmt: skip
def test_impossible_questions_are_refused(call: Any) -> None:
    """Values without a meaning, and promises that no noise keeps, raise BadInput instead of giving a number."""
    with pytest.raises(BadInput):
        call()


def test_both_directions_count():
    """δ is the larger of removing and adding a record, and they differ."""
    parts = [SubsampledSteps(0.2, 1.0, 5)]
    each = [accounting._compose(parts, removed, math.log(1e-3), 1.0).delta(1.0) for removed in (True, False)]
    assert abs(each[0] / each[1] - 1) > 0.05
    assert delta_of_steps(parts, 1.0) == pytest.approx(max(each), rel=1e-3)
