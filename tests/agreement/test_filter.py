"""The budget as a filter: whoever chooses plans by what earlier ones opened, ends them early and mixes their rounds.

The adversary's best chance is computed backwards, exactly but for the grid of losses: at every loss it takes the best
of all that the filter accepts then. Laws are of an accountant that shares no code with the product's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.agreement.policy import Budget
from secagg.errors import PlanRefused
from secagg.ledger.spending import Release, Spent, account_of, refuse_overspending
from secagg.privacy import GaussianCost, SampledSteps, TrainingCost
from secagg.privacy.gaussian import mu_of
from secagg.privacy.subsampled import CHANCE
from tests.agreement.test_ledger import DELTA, PROMISE, finite
from tests.privacy.sampled_losses import END, HALF, STEP, Floats, Loss

TRAININGS = (
    TrainingCost(SampledSteps(0.1, 3.95, 100)),
    TrainingCost(SampledSteps(0.05, 20.0, 100)),
    TrainingCost(SampledSteps(0.2, 2.0, 6)),
    TrainingCost(SampledSteps(0.01, 1.2, 40)),
)


@dataclass(frozen=True)
class Offer:
    """What a plan may be: a share of all μ² at all of δ (0: what the account says is left), or `count` trainings."""

    share: float = 0.0
    training: TrainingCost | None = None
    count: int = 1


@dataclass(frozen=True)
class World:
    """The budget, what is offered, and how trainings are seen: by their own losses or by the row's dominating pair."""

    budget: Budget
    offers: tuple[Offer, ...]
    by_rows: bool
    removed: bool = True


@lru_cache(maxsize=4096)
def gaussian(squared_mu: float, told: float = 0.0) -> Loss:
    """A Gaussian release, told outright with some chance."""
    return Loss(1.0, float(np.sqrt(squared_mu)), told=told)


@lru_cache(maxsize=256)
def sampled(rate: float, multiplier: float, steps: int, removed: bool) -> Loss:
    """So many steps of training."""
    return Loss(rate, 1 / multiplier, steps, removed=removed)


def row_of(number: int, squared_mu: float) -> Release:
    """A Gaussian plan of two equal sums."""
    cost = (Spent(*PROMISE, GaussianCost(squared_mu)),)
    return replace(finite(number), epsilon=GaussianCost(squared_mu).epsilon(DELTA), spent=cost)


def plans_of(world: World, offer: Offer, history: Sequence[Release]) -> tuple[list[Release], list[Loss]]:
    """The rows of an offer, and its parts that run one after the other."""
    number = len(history) + 1
    if (cost := offer.training) is not None:
        own = cost.epsilon(DELTA)
        rows = [
            replace(finite(number + each), epsilon=own, spent=(Spent(*PROMISE, cost),)) for each in range(offer.count)
        ]
        if world.by_rows:
            told = 1 - (1 - DELTA * CHANCE) ** offer.count
            return rows, [gaussian(cost.row(DELTA * CHANCE).squared_mu * offer.count, told)]
        steps = offer.count * cost.steps.steps // 2
        return rows, [sampled(cost.steps.rate, cost.steps.multiplier, steps, world.removed)] * 2
    squared_mu = offer.share * mu_of(world.budget.max_epsilon_total, DELTA) ** 2
    if not offer.share:
        left = account_of(history, None, "mine", world.budget).left
        squared_mu = (mu_of(left, DELTA) * (1 - 1e-9)) ** 2 if left > 1e-3 else 0.0
    return ([row_of(number, squared_mu)], [gaussian(squared_mu / 2)] * 2) if squared_mu else ([], [])


def accepted(history: Sequence[Release], rows: Sequence[Release], budget: Budget) -> bool:
    """Whether the filter takes the rows, one after the other."""
    together = list(history)
    for row in rows:
        try:
            refuse_overspending(together, row, budget)
        except PlanRefused:
            return False
        together.append(row)
    return bool(rows)


def best(world: World, history: list[Release], waiting: tuple[tuple[int, Loss], ...], moves: int) -> Floats:
    """The adversary's best chance at every loss, with so many moves: a plan, a further part of one, an early end."""
    value = END
    if not moves:
        return value
    for offer in world.offers:
        rows, parts = plans_of(world, offer, history)
        if accepted(history, rows, world.budget):
            after = [*history, *rows]
            later = (*waiting, *((len(history), part) for part in parts[1:]))
            value = np.maximum(value, parts[0].before(best(world, after, later, moves - 1)))
    for place, (index, part) in enumerate(waiting):
        others = waiting[:place] + waiting[place + 1 :]
        value = np.maximum(value, part.before(best(world, history, others, moves - 1)))
        (spent,) = history[index].spent
        if isinstance(spent.cost, GaussianCost):
            half = (replace(spent, cost=GaussianCost(spent.cost.squared_mu / 2)),)
            ended = replace(history[index], epsilon=history[index].epsilon / 2, spent=half)
            value = np.maximum(value, best(world, [*history, ended], others, moves - 1))
    return value


def chance(world: World, moves: int = 3) -> float:
    """The adversary's best chance at the budget's ε."""
    return float(best(world, [], (), moves)[HALF + round(world.budget.max_epsilon_total / STEP)])


offers = st.one_of(
    st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.75, 0.97, 1 - 1e-9]).map(Offer),
    st.builds(Offer, training=st.sampled_from(TRAININGS), count=st.sampled_from([1, 2, 7, 8, 16])),
)
REST = Offer()


@settings(max_examples=12, deadline=None)
@given(st.sampled_from([1.0, 2.0, 4.0]), st.lists(offers, min_size=1, max_size=2, unique=True), st.booleans())
def test_no_adaptive_choice_overspends(epsilon: float, some: list[Offer], by_rows: bool) -> None:
    """Whatever is offered, δ at the budget's ε stays below the budget's; 0.1 % are allowed for the grid of losses."""
    world = World(Budget(epsilon, DELTA, may_repeat=False), (*dict.fromkeys((*some, REST)),), by_rows)
    assert chance(world) <= DELTA * 1.001


@pytest.mark.parametrize(("by_rows", "removed"), [(True, True), (False, True), (False, False)])
@pytest.mark.parametrize("first", [0.3, 0.97, 1 - 1e-9])
def test_what_was_opened_does_not_choose_between_tests(first: float, by_rows: bool, removed: bool) -> None:
    """After a Gaussian plan, settled or not, filling up with Gaussian plans or with trainings is held by one test."""
    offered = (Offer(first), REST, Offer(training=TRAININGS[1], count=16), Offer(training=TRAININGS[1], count=8))
    world = World(Budget(1.0, DELTA, may_repeat=False), offered, by_rows, removed)
    assert chance(world, 4) <= DELTA * 1.001


def test_the_filter_is_nearly_filled() -> None:
    """Rows that fill a budget with sixteen trainings and Gaussian plans have nearly all of δ: the adversary counts."""
    world = World(Budget(2.0, DELTA, may_repeat=False), (Offer(training=TRAININGS[1], count=16), REST), by_rows=True)
    assert 0.99 * DELTA < chance(world, 3) <= DELTA * 1.001
    alone = World(Budget(1.0, DELTA, may_repeat=False), (Offer(1 - 1e-9),), by_rows=True)
    assert 0.99 * DELTA < chance(alone, 2) <= DELTA * 1.001


def test_a_choice_between_two_tests_would_be_seen() -> None:
    """Were Δ₀ taken off from the first training on alone, what is opened would choose, and the adversary gain by it."""
    offered = (Offer(0.3), REST, Offer(training=TRAININGS[1], count=16))
    world = World(Budget(1.0, DELTA, may_repeat=False), offered, by_rows=True)
    first = gaussian(0.3 * mu_of(1.0, DELTA) ** 2)
    filled = gaussian(0.7 * mu_of(1.0, DELTA) ** 2 * (1 - 1e-9)).before(END)
    row = TRAININGS[1].row(DELTA * CHANCE).squared_mu * 16
    rest = mu_of(1.0, DELTA * 7 / 8) ** 2 - 0.3 * mu_of(1.0, DELTA) ** 2
    trained = gaussian(row, 1 - (1 - DELTA * CHANCE) ** 16).before(gaussian(rest - row).before(END))
    two_tests = first.before(np.maximum(filled, trained))[HALF + round(1 / STEP)]
    assert two_tests > DELTA * 1.02
    assert chance(world) <= DELTA * 1.001
