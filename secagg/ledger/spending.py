"""Compute the privacy cost of one or several plans on a data set, and whether one more fits a budget.

A member accepts a plan after it has seen what earlier ones opened, so plans compose adaptively, costs and all, and a
budget must hold as a *filter*: a test, fixed in advance, that stops before the budget is overspent.

- Gaussian costs add, and the test is Σμ² ≤ μ_B², with μ_B the μ of the budget's (ε, δ): a valid filter (Smith &
  Thakurta, "Fully adaptive composition for Gaussian differential privacy", 2022; Koskela, Tobaben & Honkela,
  "Individual privacy accounting with Gaussian differential privacy", ICLR 2023). What they lack of Gaussians, ΣT, is
  bounded in advance by `LARGEST_GAP`, and the theorem of `secagg.privacy.shares` holds with that.
- Training inside a member (`TrainingCost`) is no Gaussian release. All is then composed by Rényi at one order, fixed
  with the budget: a valid filter too (Feldman & Zrnic, "Individual privacy accounting via a Rényi filter", NeurIPS
  2021). It fits fewer Gaussian plans.

Which test applies must be known before any plan is. "Gaussian until the first training" would let what was opened
choose it: one test holds on the paths that stay Gaussian, the other on those that do not, and together they promise
2δ alone (either kind of path belongs to an interaction that its own test stops: P(E, kind) ≤ e^ε·Q(E, kind) + δ; add).
What seems natural need not be a filter: that of composed trade-off curves is none ("f-differential privacy filters:
validity and approximate solutions", arXiv 2602.06756). So the policy says which: `Budget.training`. Without it no plan
may train, and the test is Gaussian's; with it all plans, Gaussian ones and those before the first training too, are
tested by Rényi: one filter on every path. Who changes it after sums were opened has the 2δ.

A plan is charged whole before anything of it leaves, and *settled* where it ends early for good: a further row says
what the sums cost for which a vector may have left, and nothing of the plan can leave after it. A filter charges what
runs, when it runs; what never ran costs nothing, whatever ended the plan: the sequence is chosen adaptively anyway.

The first plan of a data set is chosen before anything is seen, and fits also by its own claim: if by the filter it
costs more than the budget, no other is accepted after it.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from secagg.agreement.policy import Budget, data_set
from secagg.errors import BadInput, PlanRefused
from secagg.privacy import Adjacency, GaussianCost, TrainingCost, Unit
from secagg.privacy.claim import format_epsilon
from secagg.privacy.gaussian import largest
from secagg.privacy.rdp import RdpCurve, best_order

Neighbours = Adjacency | Literal[""]
"""The adjacency of data sets that ε is for; "" in a plan without noise."""
Pair = tuple[Unit, Neighbours]
Cost = GaussianCost | TrainingCost
LARGEST_GAP = 2.0**-40
"""Largest sum of the gaps T of a data set's plans to true Gaussian releases; one plan's is below 10⁻¹⁵."""


@dataclass(frozen=True)
class Spent:
    """A plan's privacy cost, for one privacy unit (record or client) and one adjacency (add-remove or replace-one).

    Raises BadInput for a cost of training (DP-SGD) unless they are record and add-remove.
    """

    unit: Unit
    adjacency: Neighbours
    cost: Cost

    def __post_init__(self) -> None:
        amplified = (Unit.RECORD, Adjacency.ADD_REMOVE)
        if isinstance(self.cost, TrainingCost) and (self.unit, self.adjacency) != amplified:
            problem = f"training on sampled records has no cost for {self.unit} and {self.adjacency}"
            raise BadInput(problem, remedy="it hides that one record was added or removed: record and add-remove")


@dataclass(frozen=True)
class Release:
    """The privacy cost of one federation for one data set: its claimed (ε, δ), and the costs used in composition.

    (ε, δ) is the plan's claim for its `unit` and `adjacency`. `spent` has every (unit, adjacency) in which the plan can
    be accounted, the plan's own among them; in any other it costs infinity. A sum without noise (ε infinite) has none.
    Raises BadInput for a cost that contradicts itself.
    """

    data_name: str
    session: bytes
    plan: bytes
    unit: Unit
    adjacency: Neighbours
    epsilon: float
    delta: float
    spent: tuple[Spent, ...]

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and 0 <= self.delta < 1):
            raise BadInput(f"a release cannot cost epsilon {self.epsilon} at delta {self.delta}")
        pairs = [(each.unit, each.adjacency) for each in self.spent]
        if len(set(pairs)) != len(pairs):
            raise BadInput("a release has two costs for the same unit and adjacency")
        if (self.epsilon < math.inf) != ((self.unit, self.adjacency) in pairs) or (self.epsilon == math.inf and pairs):
            remedy = "a finite one has a cost for its own unit and adjacency, a sum without noise has none"
            raise BadInput(f"a release of epsilon {self.epsilon} has costs for {pairs}", remedy=remedy)

    def cost(self, unit: Unit, adjacency: Neighbours) -> Cost | None:
        """Return the cost for this privacy unit (record or client) and adjacency; None if it is infinite."""
        found = [each.cost for each in self.spent if (each.unit, each.adjacency) == (unit, adjacency)]
        return found[0] if found else None


def settles(row: Release, whole: Release) -> bool:
    """Return whether `row` is a valid lower charge that replaces the charge `whole` of the same plan."""
    same = ("data_name", "session", "plan", "unit", "adjacency", "delta")
    if any(getattr(row, name) != getattr(whole, name) for name in same) or not row.epsilon <= whole.epsilon < math.inf:
        return False
    pairs = [(each.unit, each.adjacency) for each in whole.spent]
    costs = [(row.cost(*pair), whole.cost(*pair)) for pair in pairs]
    gaussian = [(a, b) for a, b in costs if isinstance(a, GaussianCost) and isinstance(b, GaussianCost)]
    fits = all(a.squared_mu <= b.squared_mu and a.gap <= b.gap for a, b in gaussian)
    return row != whole and len(gaussian) == len(costs) == len(row.spent) and fits


def counted_rows(releases: Sequence[Release]) -> list[Release]:
    """Return the charges in force: the lowered one for each plan that ended early, the original one for any other."""
    counted: list[Release] = []
    for release in releases:
        whole = next((place for place, each in enumerate(counted) if settles(release, each)), None)
        if whole is None:
            counted.append(release)
        else:
            counted[whole] = release
    return counted


def settled_by(releases: Sequence[Release], whole: Release) -> Release | None:
    """Return the row that lowered the charge `whole` of a plan; None if no row did."""
    return next((each for each in releases if settles(each, whole)), None) if whole in releases else None


def total_cost(
    releases: Sequence[Release], unit: Unit, adjacency: Neighbours, *, gaussian: bool = True
) -> GaussianCost | RdpCurve | None:
    """Compose the costs of releases into one: Gaussian if all are, else a Rényi curve; None if one is infinite.

    `gaussian` False: always a Rényi curve.
    """
    costs = [release.cost(unit, adjacency) for release in releases]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return None
    all_gaussian = [cost for cost in known if isinstance(cost, GaussianCost)]
    if gaussian and len(all_gaussian) == len(known):
        return functools.reduce(operator.add, all_gaussian)
    return functools.reduce(operator.add, (cost.curve() for cost in known))


def total_epsilon(
    releases: Sequence[Release], unit: Unit, adjacency: Neighbours, delta: float, *, within: Budget | None = None
) -> float:
    """Return the joint ε of all releases at δ, rounded up; math.inf when one of them is infinite.

    `within` a budget it is what its filter says: by Rényi where training is allowed, curves at the order that is best
    for the budget; else curves are taken at their own best. A single release costs no more than its own claim. Raises
    BadInput for a δ out of range.
    """
    if not releases:
        return 0.0
    cost = total_cost(releases, unit, adjacency, gaussian=within is None or not within.training)
    if cost is None or (isinstance(cost, GaussianCost) and cost.gap > LARGEST_GAP):
        return math.inf
    if isinstance(cost, GaussianCost):
        total = GaussianCost(cost.squared_mu, LARGEST_GAP).epsilon(delta)
    elif within is not None and math.isfinite(within.max_epsilon_total):
        total = cost.epsilon(delta, best_order(within.max_epsilon_total, delta))
    else:
        total = cost.epsilon(delta)
    if len(releases) == 1:
        (only,) = releases
        if (only.unit, only.adjacency) == (unit, adjacency) and delta >= only.delta:
            return min(total, only.epsilon)
    return total


def same_data(releases: Sequence[Release], data_name: str) -> list[Release]:
    """Return the privacy costs charged to one data set, with those that name no data set, which count for every one."""
    return [release for release in releases if data_set(release.data_name) in (data_set(data_name), "")]


def refuse_overspending(releases: Sequence[Release], release: Release, budget: Budget) -> None:
    """Raise PlanRefused unless a plan's cost (`release`) and the others on its data set together fit the budget.

    That is tested for each unit and adjacency among them. A settled one adds nothing. Raises BadInput when its session
    is among `releases` with another plan, name or cost.
    """
    together = counted_rows(same_data(releases, release.data_name))
    known = [each for each in together if each.session == release.session]
    if known and known != [release] and known != [settled_by(releases, release)]:
        raise BadInput("this session was already entered into the ledger under another plan, name or cost")
    if not known:
        if any(isinstance(spent.cost, TrainingCost) for spent in release.spent) and not budget.training:
            raise PlanRefused((f"training: the plan trains on records of {data_set(release.data_name)}",))
        together.append(release)
    others = [each for each in together if each.session != release.session]
    for pair in dict.fromkeys((each.unit, each.adjacency) for each in (release, *others)):
        total = total_epsilon(together, *pair, budget.delta, within=budget)
        if not total <= budget.max_epsilon_total:
            raise PlanRefused((f"max_epsilon_total: {_sum(release, others, pair, total, budget)}",))
        if math.isinf(total) and others and not budget.may_repeat:
            had = f"{data_set(release.data_name)} was in {len(others)} other session(s)"
            raise PlanRefused((f"repeat_sessions: {had} and the total is infinite{_exact_before(others)}",))


@dataclass(frozen=True)
class Account:
    """The state of one data set's budget: ε spent, planned, allowed and left, all at one `delta`, unit and adjacency.

    `spent` before the plan, in so many other `sessions`; `plan` alone (0 where none is asked about); `together`;
    `limit`; and `left`, the most that a further plan may cost. ε of several plans do not add up: `together` is mostly
    less than the sum, and `left` more than the difference.
    """

    unit: Unit
    adjacency: Neighbours
    delta: float
    sessions: int
    spent: float
    plan: float
    together: float
    limit: float
    left: float


def account_of(releases: Sequence[Release], release: Release | None, data_name: str, budget: Budget) -> Account:
    """Return the state of a data set's budget: ε spent so far, ε of a plan (`release`), their joint ε, and ε left.

    Where plans differ in unit or adjacency, it is for the pair with the largest ε. Raises BadInput for a δ out of
    range.
    """
    counted = counted_rows(same_data(releases, data_name))
    others = [each for each in counted if release is None or each.session != release.session]
    if release is not None:
        release = settled_by(releases, release) or release
    together = others if release is None else [*others, release]
    pairs = [(each.unit, each.adjacency) for each in reversed(together)]
    noisy = [pair for pair in dict.fromkeys(pairs) if pair[1]]

    def total(some: Sequence[Release], pair: Pair) -> float:
        return total_epsilon(some, *pair, budget.delta, within=budget)

    none: list[Pair] = [(Unit.RECORD, "")]
    pair = max(noisy or pairs or none, key=lambda each: total(together, each))
    alone = total([release], pair) if release is not None else 0.0
    spent, most, left = total(others, pair), budget.max_epsilon_total, _left(together, pair, budget)
    return Account(*pair, budget.delta, len(others), spent, alone, total(together, pair), most, left)


def _left(together: Sequence[Release], pair: Pair, budget: Budget) -> float:
    """Return the largest ε, at the budget's δ, of a further Gaussian plan that still fits the budget; 0 for none.

    With nothing spent a plan fits by its own claim, so that it is the limit.
    """
    most = budget.max_epsilon_total
    if not together:
        return most
    if math.isinf(most):
        exact = any(math.isinf(each.epsilon) for each in together)
        return 0.0 if exact and not budget.may_repeat else most

    def fits(squared_mu: float) -> bool:
        further = Release("", b"", b"", *pair, most, budget.delta, (Spent(*pair, GaussianCost(squared_mu)),))
        return total_epsilon([*together, further], *pair, budget.delta, within=budget) <= most

    smallest = 2.0**-40
    if not fits(smallest):
        return 0.0
    return GaussianCost(max(smallest, largest(fits))).epsilon(budget.delta)


def _exact_before(others: Sequence[Release]) -> str:
    """Return a phrase for refusals after an exact sum, with which no plan fits a finite budget; "" without one."""
    return "; no noise takes an exact sum back" if any(math.isinf(each.epsilon) for each in others) else ""


def _sum(release: Release, others: Sequence[Release], pair: Pair, total: float, budget: Budget) -> str:
    """Return the reason of a refusal with ε before, added and in all, rounded up."""
    name, most, sessions = data_set(release.data_name), budget.max_epsilon_total, f"{len(others)} other session(s)"
    if math.isinf(release.epsilon):
        return f"this plan opens an exact sum about {name} (epsilon inf), more than {most}; {sessions} before it"
    before, added = (format_epsilon(total_epsilon(each, *pair, budget.delta)) for each in (others, [release]))
    unit, adjacency = pair
    return (
        f"{name} has spent epsilon {before} in {sessions}, this plan adds {added}, together {format_epsilon(total)}, "
        f"more than {most} (delta {budget.delta:g}, {adjacency}, {unit} level){_exact_before(others)}"
    )
