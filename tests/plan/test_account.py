"""What a budget says is what it then does: the plan that is left fits, and one that costs a little more does not."""

import math
from dataclasses import replace

import pytest

from secagg.errors import PlanRefused
from secagg.policy import Budget
from secagg.privacy import GaussianCost
from secagg.privacy.gaussian import epsilon_of, mu_of
from secagg.spending import Release, Spent, account_of, refuse_overspending, total_epsilon

DELTA = 1e-5
PAIR = ("record", "add-remove")
EXACT = Release("heart", bytes([99]) * 32, bytes([9]) * 32, "record", "", math.inf, 0.0, ())


def plan(session: int, epsilon: float = 1.0) -> Release:
    """A Gaussian plan about heart that costs ε at δ."""
    cost = Spent(*PAIR, GaussianCost(mu_of(epsilon, DELTA) ** 2, 1e-20))
    return Release("heart", bytes([session]) * 32, bytes([9]) * 32, *PAIR, epsilon, DELTA, (cost,))


@pytest.mark.parametrize("training", [False, True], ids=["Gaussian", "Rényi"])
@pytest.mark.parametrize("spent", [1, 2, 3])
def test_what_is_left_is_what_still_fits(spent: int, training: bool) -> None:
    """A further plan of nearly the ε that is left is accepted by the same budget, one of a little more is refused."""
    budget = Budget(3.0, DELTA, may_repeat=False, training=training)
    releases = [plan(number) for number in range(spent)]
    account = account_of(releases, None, "heart/v2", budget)
    assert account.together == total_epsilon(releases, *PAIR, DELTA, within=budget)
    assert 0 < account.left < 3
    refuse_overspending(releases, plan(50, account.left * 0.9999), budget)
    with pytest.raises(PlanRefused, match="max_epsilon_total"):
        refuse_overspending(releases, plan(50, account.left * 1.001), budget)


def test_plan_is_added_once() -> None:
    """Before and after a plan is entered its account is the same, and epsilons of two plans do not add up to more."""
    budget = Budget(1.5, DELTA, may_repeat=False)
    before = account_of([plan(1)], plan(2), "heart", budget)
    assert account_of([plan(1), plan(2)], plan(2), "heart", budget) == before
    assert (before.sessions, before.spent, before.plan) == (1, 1.0, 1.0)
    assert before.together == pytest.approx(epsilon_of(mu_of(1.0, DELTA) * math.sqrt(2), DELTA), rel=1e-9)
    assert before.together < 1.5


def test_nothing_spent_leaves_the_limit() -> None:
    """The first plan fits by its own claim; other data sets' plans are not counted."""
    account = account_of([replace(plan(1), data_name="lungs")], None, "heart", Budget(1.5, DELTA, may_repeat=False))
    assert (account.sessions, account.together, account.left) == (0, 0.0, 1.5)


@pytest.mark.parametrize(
    ("limit", "may_repeat", "left"), [(1.5, False, 0.0), (math.inf, False, 0.0), (math.inf, True, math.inf)]
)
def test_exact_sum_leaves_nothing(limit: float, may_repeat: bool, left: float) -> None:
    """After an exact sum no finite budget has anything left, and an infinite one only where sums may repeat."""
    for releases in ([EXACT], [plan(1), EXACT]):
        account = account_of(releases, None, "heart", Budget(limit, DELTA, may_repeat=may_repeat))
        assert (account.together, account.left) == (math.inf, left)


def test_no_limit_on_noise_is_said() -> None:
    """Where the total may be infinite any plan with noise fits."""
    account = account_of([plan(1)], plan(2), "heart", Budget(math.inf, DELTA, may_repeat=False))
    assert (account.limit, account.left) == (math.inf, math.inf)


def test_overspent_budget_leaves_nothing() -> None:
    """A budget that was lowered below what is spent has nothing left, not less."""
    account = account_of([plan(1), plan(2)], None, "heart", Budget(1.0, DELTA, may_repeat=False))
    assert (account.together > 1.0, account.left) == (True, 0.0)
