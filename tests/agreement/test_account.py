"""What a budget says is what it then does: the plan that is left fits, one of a little more does not; settled plans."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from secagg.agreement.policy import Budget
from secagg.errors import BadInput, PlanRefused
from secagg.ledger import Ledger
from secagg.ledger.spending import Release, Spent, account_of, counted_rows, refuse_overspending, settles, total_epsilon
from secagg.privacy import GaussianCost
from secagg.privacy.gaussian import epsilon_of, mu_of
from secagg.privacy.subsampled import TRAININGS

DELTA = 1e-5
PAIR = ("record", "add-remove")
EXACT = Release("heart", bytes([99]) * 32, bytes([9]) * 32, "record", "", math.inf, 0.0, ())


def plan(session: int, epsilon: float = 1.0) -> Release:
    """A Gaussian plan about heart that costs ε at δ."""
    cost = Spent(*PAIR, GaussianCost(mu_of(epsilon, DELTA) ** 2, 1e-20))
    return Release("heart", bytes([session]) * 32, bytes([9]) * 32, *PAIR, epsilon, DELTA, (cost,))


@pytest.mark.parametrize("spent", [1, 2, 3])
def test_what_is_left_is_what_still_fits(spent: int) -> None:
    """A further plan of nearly the ε that is left is accepted by the same budget, one of a little more is refused."""
    budget = Budget(3.0, DELTA, may_repeat=False)
    releases = [plan(number) for number in range(spent)]
    account = account_of(releases, None, "heart/v2", budget)
    assert account.together == total_epsilon(releases, *PAIR, DELTA, kept=TRAININGS)
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
    assert before.together == pytest.approx(epsilon_of(mu_of(1.0, DELTA) * math.sqrt(2), DELTA * 7 / 8), rel=1e-9)
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


OTHER = ("record", "replace-one")


def costing(session: int, pair: tuple[str, str], add_remove: float, replace_one: float) -> Release:
    """A plan about heart that promises one pair and is accounted in both, by the ε that it costs in each."""
    costs = {PAIR: add_remove, OTHER: replace_one}
    spent = tuple(Spent(*each, GaussianCost(mu_of(epsilon, DELTA) ** 2)) for each, epsilon in costs.items())
    return Release("heart", bytes([session]) * 32, bytes([9]) * 32, *pair, costs[pair], DELTA, spent)


@pytest.mark.parametrize("larger", [PAIR, OTHER])
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("asked", [None, 0, 1])
def test_what_is_left_is_of_the_promise_of_which_most_is_spent(
    larger: tuple[str, str], order: int, asked: int | None
) -> None:
    """Of two promises the one nearer to the budget says what is left, in whatever order plans came; that much fits."""
    budget = Budget(3.0, DELTA, may_repeat=False)
    turn = 1 if larger == OTHER else -1  # the second plan decides: with the first alone it is the other promise
    releases = [costing(1, PAIR, *(1.0, 0.9)[::turn]), costing(2, OTHER, *(0.1, 1.0)[::turn])][::order]
    account = account_of(releases, None if asked is None else releases[asked], "heart", budget)
    assert (account.unit, account.adjacency) == larger
    assert account.together == total_epsilon(releases, *larger, DELTA, kept=TRAININGS)
    assert account.together > min(total_epsilon(releases, *each, DELTA, kept=TRAININGS) for each in (PAIR, OTHER))
    refuse_overspending(releases, costing(3, larger, *[account.left * 0.9999] * 2), budget)
    with pytest.raises(PlanRefused, match="max_epsilon_total"):
        refuse_overspending(releases, costing(3, larger, *[account.left * 1.001] * 2), budget)


def settlement(whole: Release, share: float, **changes: object) -> Release:
    """What a plan came to of which so much of μ² was spent."""
    (spent,) = whole.spent
    assert isinstance(spent.cost, GaussianCost)
    cost = replace(spent, cost=GaussianCost(spent.cost.squared_mu * share, spent.cost.gap))
    return replace(whole, epsilon=whole.epsilon * share, spent=(cost,), **changes)


def test_settled_plan_costs_what_it_settlement(tmp_path: Path) -> None:
    """A plan that the whole one would have kept out fits once that is settled; the settled one can do no more."""
    budget, ledger = Budget(1.2, DELTA, may_repeat=False), Ledger(tmp_path)
    whole, next_one = plan(1), plan(2)
    ledger.record(whole, budget)
    with pytest.raises(PlanRefused, match="max_epsilon_total"):
        ledger.check(next_one, budget)
    settled = ledger.settle(whole, settlement(whole, 0.1))
    assert ledger.settle(whole, settlement(whole, 0.1)) == settled
    assert counted_rows([entry.release for entry in ledger.entries()]) == [settled.release]
    ledger.check(whole, budget)
    with pytest.raises(BadInput, match="nothing more of it can leave"):
        ledger.record(whole, budget)
    assert ledger.account(whole, "heart", budget).together == pytest.approx(settled.release.epsilon)
    assert ledger.record(next_one, budget).number == 3
    assert ledger.account(None, "heart", budget).together < 1.2


@pytest.mark.parametrize(
    "wrong",
    [
        settlement(plan(1), 2.0),
        settlement(plan(1), 0.5, session=bytes([7]) * 32),
        settlement(plan(1), 0.5, plan=bytes([7]) * 32),
        settlement(plan(1), 0.5, data_name="Heart"),
        replace(settlement(plan(1), 0.5), epsilon=1.5),
        settlement(plan(3), 0.5),
        plan(1),
    ],
    ids=["more", "another session", "another plan", "another name", "a larger claim", "never charged", "the same"],
)
def test_nothing_else_settles_a_plan(tmp_path: Path, wrong: Release) -> None:
    """Only a row of the same plan that costs no more takes the place of one; what else is asked writes nothing."""
    ledger = Ledger(tmp_path)
    ledger.record(plan(1), Budget(9.0, DELTA, may_repeat=False))
    whole = plan(3) if wrong.session == plan(3).session else plan(1)
    with pytest.raises(BadInput, match="no such plan to settle"):
        ledger.settle(whole, wrong)
    assert len(ledger.entries()) == 1
    assert not settles(EXACT, replace(EXACT, data_name="x"))
