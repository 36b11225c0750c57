"""Plans that train inside a member, in the ledger: kept to the bit, and rows of the same filter as all other plans."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from secagg.agreement.policy import Budget
from secagg.errors import BadInput, PlanRefused
from secagg.ledger import Ledger
from secagg.ledger.spending import Release, Spent, account_of, refuse_overspending, settles, total_cost, total_epsilon
from secagg.privacy import GaussianCost, SampledSteps, TrainingCost, multiplier_for
from secagg.privacy.gaussian import mu_of
from secagg.privacy.subsampled import CHANCE, TRAININGS
from tests.agreement.test_ledger import ANYTHING, DELTA, PROMISE, allowed, finite, rows, unlocked

COST = TrainingCost(SampledSteps(0.05, 8.0, 500), 0.02, 1e-15)
CLAIM = COST.epsilon(DELTA)
ONE = TrainingCost(SampledSteps(0.1, multiplier_for(0.1, 100, epsilon=1.0, delta=DELTA), 100))
"""Ten rounds of ten steps, ε = 1."""
SMALL = TrainingCost(SampledSteps(0.05, 20.0, 100))


def training(number: int = 1, cost: TrainingCost = COST, **changes: object) -> Release:
    """A plan that trains, sharply claimed."""
    promise = {"epsilon": CLAIM if cost == COST else cost.epsilon(DELTA), "spent": (Spent(*PROMISE, cost),), **changes}
    return replace(finite(number), **promise)  # type: ignore[arg-type]


def trainings(count: int, cost: TrainingCost = ONE) -> list[Release]:
    """As many plans that train equally."""
    return [training(number, cost) for number in range(1, count + 1)]


def test_rows_come_back_to_the_bit(tmp_path: Path) -> None:
    """Rate, multiplier, steps, μ² and gap are read as they were written, so that they can be fitted again."""
    odd = TrainingCost(SampledSteps(1 / 3, math.pi, 10**7), 0.0, 3e-16)
    releases = [training(1), finite(2), training(3, odd, epsilon=99.0)]
    for release in releases:
        Ledger(tmp_path).record(release, ANYTHING)
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
    Ledger(tmp_path).record(training(), ANYTHING)
    unlocked(tmp_path, statement)
    with pytest.raises(BadInput, match=r"row 1 of the ledger .* was changed or is missing"):
        Ledger(tmp_path).entries()


@pytest.mark.parametrize("pair", [("record", "replace-one"), ("client", "add-remove")])
def test_sampling_is_accounted_for_one_record_more_or_less_alone(pair: tuple[str, str]) -> None:
    """A cost of training for replaced records, or for whole clients, cannot be stated."""
    with pytest.raises(BadInput, match="no cost for"):
        Spent(*pair, COST)


@pytest.mark.parametrize(("count", "epsilon"), [(1, 1.0), (2, 1.4711), (4, 2.1653), (8, 3.2073)])
def test_trainings_of_epsilon_one_cost_hardly_more_than_if_fixed_in_advance(count: int, epsilon: float) -> None:
    """Two are shown as 1.47, not 2.15; two, four and eight are within 4 % of what no filter could reach."""
    shown = total_epsilon(trainings(count), *PROMISE, DELTA)
    together = TrainingCost(replace(ONE.steps, steps=100 * count)).epsilon(DELTA)
    assert together <= shown < 1.04 * together
    assert shown == pytest.approx(epsilon, abs=2e-4)


def test_mixture_is_one_gaussian_release_but_for_the_failures() -> None:
    """Rows add in μ², each training fitted at δ/128 of the δ that is asked about; then their failures are taken off."""
    row = ONE.row(DELTA * CHANCE)
    cost = total_cost([finite(3, 0.1), *trainings(2)], *PROMISE, DELTA)
    assert cost is not None
    assert cost.squared_mu == pytest.approx(2 * row.squared_mu + 0.01, rel=1e-12)
    assert total_cost([finite(3, 0.1), training(2)], "record", "replace-one", DELTA) is None
    total = total_epsilon([finite(3, 0.1), *trainings(2)], *PROMISE, DELTA)
    assert total == pytest.approx(GaussianCost(cost.squared_mu).epsilon(DELTA * 126 / 128), rel=1e-9)
    assert total > GaussianCost(cost.squared_mu).epsilon(DELTA * 126.5 / 128)
    kept = total_epsilon([finite(3, 0.1), *trainings(2)], *PROMISE, DELTA, kept=TRAININGS)
    assert kept == pytest.approx(GaussianCost(cost.squared_mu).epsilon(DELTA * 7 / 8), rel=1e-9)


@pytest.mark.parametrize(("budget", "fit"), [(2.0, 3), (4.0, 11)])
def test_as_many_trainings_fit_as_gaussian_plans(tmp_path: Path, budget: float, fit: int) -> None:
    """Eleven trainings of ε = 1 fit a budget of 4, as many as Gaussian plans; the next one is refused with figures."""
    ledger = Ledger(tmp_path)
    for release in trainings(fit):
        ledger.record(release, allowed(budget))
    with pytest.raises(PlanRefused, match=rf"max_epsilon_total: mine has spent epsilon .* more than {budget}"):
        ledger.record(training(fit + 1, ONE), allowed(budget))
    assert int(mu_of(budget, DELTA * 7 / 8) ** 2 / mu_of(1.0, DELTA) ** 2) == fit


def test_seventeenth_training_is_refused_in_words(tmp_path: Path) -> None:
    """However little it costs; Gaussian plans and trainings on all records, which cannot fail, still fit."""
    ledger = Ledger(tmp_path)
    for release in trainings(TRAININGS, SMALL):
        ledger.record(release, allowed(8.0))
    for attempt in (ledger.check, ledger.record):
        with pytest.raises(PlanRefused, match=r"16 sampled trainings about mine before this plan.* for only 16"):
            attempt(training(17, SMALL), allowed(8.0))
    assert rows(tmp_path) == TRAININGS
    ledger.record(training(16, SMALL), allowed(8.0))
    ledger.record(finite(18, 0.1), allowed(8.0))
    ledger.record(training(19, TrainingCost(SampledSteps(1.0, 100.0, 10))), allowed(8.0))
    ledger.record(training(20, SMALL, data_name="other"), allowed(8.0))
    assert total_epsilon([entry.release for entry in ledger.entries()][:17], *PROMISE, DELTA) < 8
    assert total_epsilon(trainings(17, SMALL), *PROMISE, DELTA) == math.inf


def test_failures_are_of_the_budgets_delta_not_of_a_plans(tmp_path: Path) -> None:
    """A plan that claims at a larger δ of its own is fitted at the budget's δ/128, and costs as much as any other."""
    own = training(1, ONE, delta=0.4, epsilon=0.01)
    assert total_cost([own], *PROMISE, DELTA) == total_cost([training(1, ONE)], *PROMISE, DELTA)
    assert total_epsilon([own], *PROMISE, DELTA) > 1
    with pytest.raises(PlanRefused, match="max_epsilon_total"):
        Ledger(tmp_path).record(own, allowed(0.9))
    assert total_epsilon([own, finite(2, 0.01)], *PROMISE, 1e-9) > total_epsilon([own, finite(2, 0.01)], *PROMISE, 1e-5)


def test_an_early_end_refunds_nothing(tmp_path: Path) -> None:
    """No row takes the place of a training's, neither of fewer steps nor of Gaussian sums alone."""
    ledger, whole = Ledger(tmp_path), training(1, ONE)
    ledger.record(whole, allowed(1.5))
    fewer = TrainingCost(replace(ONE.steps, steps=10))
    for cost in (fewer, GaussianCost(1e-6), TrainingCost(SampledSteps(1.0, 1e3, 1))):
        part = replace(whole, epsilon=0.1, spent=(Spent(*PROMISE, cost),))
        assert not settles(part, whole)
        with pytest.raises(BadInput, match="no such plan to settle"):
            ledger.settle(whole, part)
    with pytest.raises(PlanRefused):
        ledger.record(training(3, ONE), allowed(1.4))
    ledger.record(training(2, ONE), allowed(1.5))
    with pytest.raises(PlanRefused):
        ledger.record(training(3, ONE), allowed(1.5))


def test_another_plan_between_rounds_is_charged_as_if_it_came_after(tmp_path: Path) -> None:
    """A training's row stands whole from its first upload on: what starts between its rounds fits beside all of it."""
    ledger = Ledger(tmp_path)
    ledger.record(training(1, ONE), allowed(1.5))
    ledger.begin_upload(bytes([1]) * 32)
    with pytest.raises(PlanRefused):
        ledger.record(finite(2, mu_of(1.2, DELTA)), allowed(1.5))
    ledger.record(finite(2, mu_of(0.9, DELTA)), allowed(1.5))
    ledger.begin_upload(bytes([2]) * 32)
    ledger.record(training(1, ONE), allowed(1.5))
    assert rows(tmp_path) == 2


def test_first_plan_fits_by_its_own_claim_and_is_then_the_last(tmp_path: Path) -> None:
    """Chosen before anything was opened, it may fill the budget by its exact ε; by the filter nothing fits after it."""
    ledger = Ledger(tmp_path)
    assert COST.row(DELTA * CHANCE).epsilon(DELTA * 7 / 8) > CLAIM
    ledger.record(training(), allowed(CLAIM))
    for later in (finite(2, 1e-3), training(3, TrainingCost(SampledSteps(0.01, 50.0, 1)))):
        with pytest.raises(PlanRefused):
            ledger.record(later, allowed(CLAIM))
    assert ledger.account(None, "mine", allowed(CLAIM)).left == 0


def settled(whole: Release, share: float) -> Release:
    """What a Gaussian plan came to."""
    costs = tuple(
        replace(each, cost=GaussianCost(each.cost.squared_mu * share, each.cost.gap))
        for each in whole.spent
        if isinstance(each.cost, GaussianCost)
    )
    return replace(whole, epsilon=whole.epsilon * share, spent=costs)


def test_first_gaussian_plan_that_takes_all_of_delta_leaves_none_for_training() -> None:
    """Settled, it leaves room for Gaussian plans by the filter at all of δ; for trainings Δ₀ is 0, whatever is left."""
    budget, whole = Budget(1.0, DELTA, may_repeat=False), finite(1, mu_of(1.0, DELTA) * (1 - 1e-9))
    part = [whole, settled(whole, 0.25)]
    left = account_of(part, None, "mine", budget).left
    exact = mu_of(1.0, DELTA) * math.sqrt(0.75)
    assert left == pytest.approx(GaussianCost(exact**2).epsilon(DELTA), rel=1e-6)
    refuse_overspending(part, finite(2, exact * (1 - 1e-6)), budget)
    with pytest.raises(PlanRefused, match="none, as the first plan about the data needs all of its delta"):
        refuse_overspending(part, training(2, SMALL), budget)


def test_first_plan_that_fits_by_its_claim_alone_stays_charged_whole() -> None:
    """Else a server that ends it early, having seen what it opened, would choose between two tests, each good for δ."""
    budget, whole = Budget(0.9, DELTA, may_repeat=False), replace(finite(1, mu_of(1.0, DELTA)), epsilon=0.9)
    part = [whole, settled(whole, 0.25)]
    refuse_overspending([], whole, budget)
    for later in (finite(2, 1e-3), training(2, SMALL)):
        with pytest.raises(PlanRefused, match="max_epsilon_total"):
            refuse_overspending(part, later, budget)
    account = account_of(part, whole, "mine", budget)
    assert (account.plan, account.together, account.left) == (0.9, 0.9, 0.0)
    refuse_overspending(part, whole, budget)


def test_small_first_plan_keeps_a_part_of_delta_for_trainings(tmp_path: Path) -> None:
    """A Gaussian first plan with room to spare leaves Δ₀ for trainings, and Gaussian plans do without it."""
    ledger, budget = Ledger(tmp_path), allowed(1.5)
    ledger.record(finite(1, mu_of(1.0, DELTA)), budget)
    ledger.record(training(2, SMALL), budget)
    account = ledger.account(None, "mine", budget)
    used = mu_of(1.0, DELTA) ** 2 + SMALL.row(DELTA * CHANCE).squared_mu
    most = mu_of(1.5, DELTA * 7 / 8) ** 2 - used
    assert account.left == pytest.approx(GaussianCost(most).epsilon(DELTA), rel=1e-6)
