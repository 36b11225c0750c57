"""ε of people with several records: never less than the truth, which other code computes."""

import math
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

from secagg.agreement.plan import NoiseFrom, ResultAccess
from secagg.errors import BadInput
from secagg.plan_facts.explanation import GROUPS, explain, group_epsilons
from secagg.privacy import Adjacency, GaussianCost, SampledSteps, TrainingCost, Unit
from secagg.privacy.claim import format_epsilon
from secagg.privacy.shares import gap_of, variance_of
from tests.privacy.exact_loss import delta_of_shares
from tests.session.noise_checks import delta_by_hand
from tests.worlds.setups import make_setup

DELTA = 1e-5
SIZES = (1, *GROUPS)
TRAININGS = [(0.1, 3.94, 100), (0.01, 1.0, 1000), (0.3, 2.0, 4), (0.2, 1.0, 1)]
"""Rate, noise multiplier, steps."""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mu", [0.05, 0.27, 2.0])
def test_group_of_a_gaussian_release_is_balle_and_wangs_at_k_mu(mu: float, size: int) -> None:
    """δ at k·μ in 40 digits: at the group's ε it is at most δ, a little below that ε it is more."""
    found = GaussianCost(mu**2).group_epsilon(size, DELTA)
    assert delta_by_hand(size * mpmath.mpf(mu), found) <= DELTA < delta_by_hand(size * mpmath.mpf(mu), found * 0.9999)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(("sigmas", "shifts", "shares"), [((5.0,), (2,), 1), ((4.0, 6.0), (1, 2), 2)])
def test_exact_delta_of_shares_is_below_that_of_the_group(sigmas, shifts, shares, size) -> None:
    """δ by convolution, of a sum that the group moves `size` times as far, is at most the group's at every ε."""
    terms = (shift**2 / variance_of(sigma, shares) for sigma, shift in zip(sigmas, shifts, strict=True))
    cost = GaussianCost(math.fsum(terms), gap_of([(sigma, 1) for sigma in sigmas], shares))
    for epsilon in (0.25, 1.0, 4.0):
        exact = delta_of_shares(sigmas, [size * shift for shift in shifts], shares, epsilon)
        assert exact <= cost.of_group(size).delta(epsilon) * (1 + 1e-9) + 1e-15
        assert exact > cost.of_group(size - 1).delta(epsilon)


def delta_of_sampled_group(size: int, rate: float, multiplier: float, steps: int, epsilon: float) -> float:
    """δ(ε), removing the group, of steps that `size` equal records are in by their own draws; to 1 % at δ = 10⁻⁵.

    Of each step the losses of ln Σ_j Binomial(j)·e^(j·x·μ − j²μ²/2), x an outcome, go to the nearest point of a grid.
    """
    grid, reach, mu = 1 << 19, 64.0, 1 / multiplier
    outcomes = np.linspace(-12, 12 + size * mu, 400_001)
    chances = [math.comb(size, j) * rate**j * (1 - rate) ** (size - j) for j in range(size + 1)]
    losses = np.log(sum(p * np.exp(j * mu * outcomes - (j * mu) ** 2 / 2) for j, p in enumerate(chances)))
    ends = np.append(outcomes, np.inf)
    masses = sum(p * np.diff(ndtr(ends - j * mu)) for j, p in enumerate(chances))
    places = np.rint(losses / (2 * reach / grid)).astype(int) % grid
    law = np.fft.irfft(np.fft.rfft(np.bincount(places, masses, minlength=grid)) ** steps, grid)
    points = np.fft.fftfreq(grid, 1 / grid) * (2 * reach / grid)
    over = points > epsilon
    return float(law[over] @ -np.expm1(epsilon - points[over]))


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("training", TRAININGS, ids=str)
def test_group_of_a_training_is_above_the_truth(training: tuple[float, float, int], size: int) -> None:
    """Records that all pull one way, the worst group, have at most the promised δ, and more at half of that ε."""
    found = TrainingCost(SampledSteps(*training)).group_epsilon(size, DELTA)
    assert delta_of_sampled_group(size, *training, found) <= DELTA
    assert delta_of_sampled_group(size, *training, found / 2) > DELTA


@pytest.mark.parametrize(
    "cost",
    [
        GaussianCost(0.07, 1e-9),
        *(TrainingCost(SampledSteps(*each), 0.01, 1e-9) for each in TRAININGS[:2]),
        TrainingCost(SampledSteps(1.0, 30.0, 10)),
    ],
    ids=str,
)
def test_more_records_cost_more_and_one_is_the_unit(cost: GaussianCost | TrainingCost) -> None:
    """ε grows with the group, at least k-fold, and that of one record is the cost's own."""
    found = [cost.group_epsilon(size, DELTA) for size in SIZES]
    assert found[0] == cost.epsilon(DELTA)
    assert all(each >= size * found[0] for size, each in zip(SIZES, found, strict=True))
    assert found == sorted(found)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    "cost", [GaussianCost(1e12), TrainingCost(SampledSteps(0.5, 0.01, 10**6)), GaussianCost(0.1, 50.0)], ids=str
)
def test_group_beyond_what_is_computed_has_no_finite_epsilon(cost: GaussianCost | TrainingCost) -> None:
    """Where nothing can be promised, ε is infinite, and no number that looks like a promise."""
    assert cost.group_epsilon(10, DELTA * 1e-240) == math.inf


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_gap_counts_once_for_each_record(rate: float) -> None:
    """Records in different sums have T each: ε of three is 2·3·T more than without T, at a δ smaller by e^(3T)."""
    for without, cost in [
        (GaussianCost(0.1), GaussianCost(0.1, 0.1)),
        (TrainingCost(SampledSteps(rate, 9.0, 9)), TrainingCost(SampledSteps(rate, 9.0, 9), gap=0.1)),
    ]:
        least = without.group_epsilon(3, DELTA * math.exp(-0.3)) + 0.6
        assert least <= cost.group_epsilon(3, DELTA) * (1 + 1e-12) <= least * 1.001


def test_groups_of_no_record_are_refused() -> None:
    """A group has one record or more."""
    with pytest.raises(BadInput, match="a group of 0 units"):
        GaussianCost(0.1).of_group(0)


TRAINED: dict[str, Any] = {
    "method": "fedavg", "noise": NoiseFrom.MEMBER,
    "parameters": (("model", "softmax"), ("sampling", 0.2), ("rounds", 2), ("steps", 3)),
}  # fmt: skip


@pytest.mark.parametrize(
    "choices",
    [{}, {"refine": 2}, {"adjacency": Adjacency.REPLACE_ONE}, {"colluders": 0, "result": ResultAccess.SERVER}],
)
def test_plan_tells_groups_at_its_own_delta(choices: dict[str, Any]) -> None:
    """Row and figures are of k·μ of the plan's releases; with one record they are the plan's ε as shown."""
    facts = make_setup(**choices).facts
    found, mu = group_epsilons(facts), facts.claim.releases.whole().mu
    assert format_epsilon(facts.claim.of_group(1)) == format_epsilon(facts.plan.epsilon)
    for size, epsilon in found.items():
        moved = size * mpmath.mpf(mu)
        assert delta_by_hand(moved, epsilon) <= DELTA <= delta_by_hand(moved, epsilon * 0.999)
        assert f"{format_epsilon(epsilon)} with {size}" in dict(explain(facts))["several records"]


def test_plan_of_noisy_training_tells_groups_too() -> None:
    """Where members' own training is all that is released the figures are the training's."""
    facts = make_setup(**TRAINED).facts
    assert format_epsilon(facts.claim.of_group(1)) == format_epsilon(facts.plan.epsilon)
    assert group_epsilons(facts) == {size: facts.claim.cost.group_epsilon(size, DELTA) for size in GROUPS}


def test_group_is_never_promised_more_than_one_record() -> None:
    """A plan that claims less than its noise gives says no more of groups than it claims."""
    claim = replace(make_setup().facts.claim, epsilon=50.0)
    assert [claim.of_group(size) for size in SIZES] == [50.0] * len(SIZES)


@pytest.mark.parametrize(
    "choices",
    [{"unit": Unit.CLIENT}, {"epsilon": math.inf, "delta": None, "adjacency": None, "normalise": "centred-unit"}],
)
def test_plan_without_a_promise_for_records_tells_no_group(choices: dict[str, Any]) -> None:
    """A promise about members covers all records of one, an exact sum none."""
    facts = make_setup(**choices).facts
    assert group_epsilons(facts) == {}
    assert "several records" not in dict(explain(facts))
