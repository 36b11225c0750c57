"""Plans that train inside a member, in the ledger: kept to the bit, refused where unforeseen, held by one filter."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from secagg.agreement.policy import Budget
from secagg.errors import BadInput, PlanRefused
from secagg.ledger import Ledger
from secagg.ledger.spending import Release, Spent, total_cost, total_epsilon
from secagg.privacy import GaussianCost, SampledSteps, TrainingCost
from secagg.privacy.gaussian import epsilon_of, mu_of
from secagg.privacy.rdp import RdpCurve, best_order
from tests.agreement.test_ledger import DELTA, PROMISE, finite, rows, unlocked

COST = TrainingCost(SampledSteps(0.05, 8.0, 500), 0.02, 1e-15)
CLAIM = COST.epsilon(DELTA)
FREE = Budget(math.inf, DELTA, may_repeat=True, training=True)


def training(number: int = 1, cost: TrainingCost = COST, **changes: object) -> Release:
    """A plan that trains, sharply claimed."""
    promise = {"epsilon": CLAIM if cost == COST else cost.epsilon(DELTA), "spent": (Spent(*PROMISE, cost),), **changes}
    return replace(finite(number), **promise)  # type: ignore[arg-type]


def budget_of(total: float, *, trains: bool = True) -> Budget:
    """A finite budget."""
    return Budget(total, DELTA, may_repeat=False, training=trains)


def test_rows_come_back_to_the_bit(tmp_path: Path) -> None:
    """Rate, multiplier, steps, μ² and gap are read as they were written, among Gaussian rows."""
    odd = TrainingCost(SampledSteps(1 / 3, math.pi, 10**7), 0.0, 3e-16)
    releases = [training(1), finite(2), training(3, odd, epsilon=99.0)]
    for release in releases:
        Ledger(tmp_path).record(release, FREE)
    assert [entry.release for entry in Ledger(tmp_path).entries()] == releases


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE costs SET content = zeroblob(40)",
        "UPDATE costs SET content = substr(content, 1, 39)",
        "UPDATE costs SET content = CAST(content || x'00' AS BLOB)",
        "UPDATE costs SET content = CAST(substr(content, 1, 8) || x'0000000000002440' || substr(content, 17) AS BLOB)",
        "UPDATE costs SET kind = 'gaussian'",
        "UPDATE costs SET kind = 'gaussian', content = substr(content, 25)",
        "UPDATE costs SET adjacency = 'replace-one'",
    ],
)
def test_edited_row_is_found(tmp_path: Path, statement: str) -> None:
    """Parameters without a meaning, more noise than was written, or another kind: the ledger says which row it is."""
    Ledger(tmp_path).record(training(), FREE)
    unlocked(tmp_path, statement)
    with pytest.raises(BadInput, match=r"row 1 of the ledger .* was changed or is missing"):
        Ledger(tmp_path).entries()


@pytest.mark.parametrize("pair", [("record", "replace-one"), ("client", "add-remove")])
def test_sampling_is_accounted_for_one_record_more_or_less_alone(pair: tuple[str, str]) -> None:
    """A cost of training for replaced records, or for whole clients, cannot be stated."""
    with pytest.raises(BadInput, match="no cost for"):
        Spent(*pair, COST)


def test_training_needs_the_policys_word(tmp_path: Path) -> None:
    """Without it a plan that trains is refused, whatever is left of the budget, as the first plan or as a later one."""
    ledger = Ledger(tmp_path)
    for unforeseen in (budget_of(50.0, trains=False), Budget(math.inf, DELTA, may_repeat=True)):
        for attempt in (ledger.check, ledger.record):
            with pytest.raises(PlanRefused, match="training: the plan trains on records of mine"):
                attempt(training(), unforeseen)
        ledger.record(finite(9, 0.01), unforeseen)
    assert rows(tmp_path) == 1
    ledger.record(training(), budget_of(50.0))
    ledger.record(training(), budget_of(50.0, trains=False))  # the same session again is no new plan
    assert rows(tmp_path) == 2


def test_gaussian_plans_are_filtered_as_ever_without_training(tmp_path: Path) -> None:
    """Where no plan may train, Gaussian plans fill the budget's own μ² to the brim."""
    half = mu_of(1.0, DELTA) / math.sqrt(2) * (1 - 1e-9)
    for number in (1, 2):
        Ledger(tmp_path).record(finite(number, half), budget_of(1.0, trains=False))
    assert rows(tmp_path) == 2


def test_one_filter_holds_on_every_path(tmp_path: Path) -> None:
    """Where plans may train, Gaussian ones that come first are tested by Rényi at the budget's order already.

    Otherwise what they open could choose which of two tests the rest is held by, each good for δ alone.
    """
    ledger, budget = Ledger(tmp_path), budget_of(1.0)
    half = mu_of(1.0, DELTA) / math.sqrt(2)
    ledger.record(finite(1, half), budget)
    with pytest.raises(PlanRefused, match="max_epsilon_total"):
        ledger.record(finite(2, half * (1 - 1e-9)), budget)
    both = GaussianCost(half**2).curve() + COST.curve()
    place = best_order(1.0, DELTA)
    assert total_epsilon([finite(1, half), training(2)], *PROMISE, DELTA, within=budget) == both.epsilon(DELTA, place)
    fits = both.epsilon(DELTA, place) <= 1.0
    assert not fits
    with pytest.raises(PlanRefused, match="max_epsilon_total"):
        ledger.record(training(2), budget)
    small = TrainingCost(SampledSteps(0.05, 20.0, 100))
    ledger.record(training(3, small), budget)
    together = [entry.release for entry in ledger.entries()]
    assert total_epsilon(together, *PROMISE, DELTA, within=budget) <= 1.0


def test_mixture_is_a_curve() -> None:
    """Training and Gaussian sums add as Rényi curves, in any order, and never below the sum of their losses."""
    cost = total_cost([finite(1, 0.1), training(2)], *PROMISE)
    assert isinstance(cost, RdpCurve)
    assert cost.values == pytest.approx((COST.curve() + GaussianCost(0.01, 1e-20).curve()).values)
    assert cost.epsilon(DELTA) >= TrainingCost(COST.steps, COST.squared_mu + 0.01).epsilon(DELTA)
    assert total_cost([finite(1, 0.1), training(2)], "record", "replace-one") is None


def test_first_plan_fits_by_its_own_claim_and_is_then_the_last(tmp_path: Path) -> None:
    """Chosen before anything was opened, it may fill the budget by its exact ε; by the filter nothing fits after it."""
    ledger = Ledger(tmp_path)
    assert COST.curve().epsilon(DELTA, best_order(CLAIM, DELTA)) > CLAIM
    ledger.record(training(), budget_of(CLAIM))
    for later in (finite(2, 1e-3), training(3, TrainingCost(SampledSteps(0.01, 5.0, 1)))):
        with pytest.raises(PlanRefused, match="max_epsilon_total"):
            ledger.record(later, budget_of(CLAIM))
    assert epsilon_of(1e-3, DELTA) < 1e-2
