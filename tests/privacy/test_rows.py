"""A training as a row (μ, δ₀): another accountant finds it dominated, in both orders, and hardly more."""

import math
from functools import lru_cache

import numpy as np
import pytest

from secagg.privacy import GaussianCost, SampledSteps, TrainingCost, multiplier_for
from secagg.privacy import subsampled as accounting
from secagg.privacy.gaussian import delta_at_least, delta_of
from secagg.privacy.subsampled import CHANCE, SubsampledSteps
from tests.privacy.sampled_losses import curve, gaussian_curve

DELTA = 1e-5
CHANCES = (DELTA * CHANCE, 1e-7, 1e-9)
CASES = [
    (0.1, 3.9416609599299504, 100), (0.02, 2.512029451406562, 1000), (0.01, 1.0, 10), (0.01, 0.7, 1000), (0.3, 2.0, 4),
    (0.001, 0.5, 100), (0.5, 5.0, 50), (0.05, 20.0, 100), (0.9, 3.0, 1), (0.01, 50.0, 20_000), (0.2, 0.6, 1),
    (0.05, 1.0, 60), (0.25, 1.5, 30), (0.003, 0.8, 3000),
]  # fmt: skip
"""Rate, noise multiplier, steps."""


@lru_cache(maxsize=4)
def true_curves(rate: float, multiplier: float, steps: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """δ(ε) in both orders at half a million points, as the other accountant has it."""
    reach = 40.0 if multiplier < 10 else 2.0  # tiny losses take a finer grid
    return [curve(rate, multiplier, steps, removed, reach) for removed in (True, False)]


def exceeds(case: tuple[float, float, int], mu: float, chance: float) -> bool:
    """Whether δ(ε) is anywhere, in either order, above what the row (μ, δ₀) allows."""
    found = []
    for epsilons, deltas in true_curves(*case):
        allowed = chance + (1 - chance) * gaussian_curve(mu, epsilons)
        found.append(bool(np.any(deltas > allowed * (1 + 1e-6) + 1e-13)))
    return any(found)


@pytest.mark.parametrize("chance", CHANCES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_row_dominates_training_and_hardly_more(case: tuple[float, float, int], chance: float) -> None:
    """The inequality holds at every point of a finer grid, in both orders; one of half a per cent less does not."""
    rate, multiplier, steps = case
    row = TrainingCost(SampledSteps(rate, multiplier, steps)).row(chance)
    assert not exceeds(case, row.mu, chance)
    assert exceeds(case, row.mu * 0.98, chance)


@pytest.mark.parametrize(("rate", "steps"), [(0.1, 100), (0.02, 1000)])
def test_row_of_epsilon_one_is_the_prototypes(rate: float, steps: int) -> None:
    """At δ₀ = 10⁻⁷ a training of ε = 1 is a Gaussian release of μ = 0.2686 and 0.2681, as a prototype had found."""
    multiplier = multiplier_for(rate, steps, epsilon=1.0, delta=DELTA)
    found = TrainingCost(SampledSteps(rate, multiplier, steps)).row(1e-7)
    assert found.mu == pytest.approx({0.1: 0.26859, 0.02: 0.26812}[rate], abs=2e-5)
    assert TrainingCost(SampledSteps(rate, multiplier, steps)).row(DELTA * CHANCE).mu > found.mu


def test_row_holds_between_the_points_of_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a coarse grid, too, the law's own δ(ε) is covered at every ε between two points, and in the tail."""
    monkeypatch.setattr(accounting, "SIZE", 1 << 8)
    accounting._row_of.cache_clear()
    parts = (SubsampledSteps(0.3, 0.5, 4),)
    mu = accounting._row_of(parts, 1e-6, 9.0)
    accounting._row_of.cache_clear()
    for removed in (True, False):
        law = accounting._compose(parts, removed, math.log(1e-6))
        assert law.step > 0.01
        for epsilon in np.linspace(0.0, 6.0, 4001):
            allowed = 1e-6 + (1 - 1e-6) * float(gaussian_curve(mu, np.array([epsilon]))[0])
            assert law.delta(float(epsilon)) <= allowed * (1 + 1e-9)


def test_tail_beyond_the_last_point_counts() -> None:
    """Where losses go on beyond all points with a chance above δ₀, the row is that of steps that take every record."""
    cost = TrainingCost(SampledSteps(0.001, 0.025, 1))
    assert cost.row(1e-6).mu == pytest.approx(cost.mu, rel=1e-12)
    assert cost.row(0.002).mu < 1


def test_both_orders_of_neighbours_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of the two orders is the worse one, the row covers it."""
    parts, compose = (SubsampledSteps(0.2, 1.0, 5),), accounting._compose
    accounting._row_of.cache_clear()
    found = accounting._row_of(parts, 1e-7, 9.0)
    accounting._row_of.cache_clear()
    monkeypatch.setattr(accounting, "_compose", lambda some, removed, *rest: compose(some, not removed, *rest))
    assert accounting._row_of(parts, 1e-7, 9.0) == found
    accounting._row_of.cache_clear()


def test_releases_beside_and_gaps_are_in_the_row() -> None:
    """Gaussian sums of the same plan are composed with the steps before the fit; the gap is the plan's."""
    alone, beside = (TrainingCost(SampledSteps(0.05, 2.0, 200), squared, 1e-15) for squared in (0.0, 0.09))
    found = beside.row(1e-7)
    assert found.gap == 1e-15
    assert math.sqrt(alone.row(1e-7).squared_mu + 0.09) * 0.98 < found.mu
    assert found.mu < math.sqrt(alone.row(1e-7).squared_mu + 0.09) * 1.0001


def test_every_record_in_every_step_never_fails() -> None:
    """With q = 1 the row is the Gaussian release that it is, whatever δ₀ is."""
    assert TrainingCost(SampledSteps(1.0, 5.0, 20), 0.3, 1e-12).row(1e-7) == TrainingCost(
        SampledSteps(1.0, 5.0, 20), 0.3, 1e-12
    ).row(0.1)
    found = TrainingCost(SampledSteps(1.0, 5.0, 20), 0.3, 1e-12).row(1e-7)
    assert found.squared_mu == pytest.approx(20 / 25 + 0.3, rel=1e-12)


@pytest.mark.parametrize("rate", [1e-9, 1e-3, 0.5])
@pytest.mark.parametrize("multiplier", [0.01, 1.0, 1e6])
@pytest.mark.parametrize("steps", [1, 10**7])
def test_extremes_have_a_row(rate: float, multiplier: float, steps: int) -> None:
    """Whatever is fitted, the row is a number, at most that of steps that take every record."""
    cost = TrainingCost(SampledSteps(rate, multiplier, steps))
    assert isinstance(cost.row(1e-7), GaussianCost)
    assert 0 < cost.row(1e-7).mu <= cost.mu * (1 + 1e-12)


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.2681, 1.0, 7.0, 1e3])
def test_delta_rounded_down_is_below_delta_rounded_up(mu: float) -> None:
    """Of a Gaussian release the two differ by rounding alone, from ε = 0 to where δ has no float."""
    epsilons = np.concatenate([[0.0], np.geomspace(1e-9, 600, 400)])
    low = delta_at_least(mu, epsilons)
    high = np.array([delta_of(mu, float(epsilon)) for epsilon in epsilons])
    assert np.all(low <= high)
    sizable = high > 1e-12
    assert np.all(low[sizable] >= high[sizable] * (1 - 1e-4))
