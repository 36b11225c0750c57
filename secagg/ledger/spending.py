"""What plans spend on a data set: each one's cost, what they cost together, and whether one more fits a budget.

A member accepts a plan after it has seen what earlier ones opened, so plans compose adaptively, costs and all, and a
budget must hold as a *filter*: a test, fixed in advance, that stops before the budget is overspent.

- Gaussian costs add, and the test is Σμ² ≤ μ_B², with μ_B the μ of the budget's (ε, δ): a valid filter (Smith &
  Thakurta, "Fully adaptive composition for Gaussian differential privacy", 2022; Koskela, Tobaben & Honkela,
  "Individual privacy accounting with Gaussian differential privacy", ICLR 2023). What they lack of Gaussians, ΣT, is
  bounded in advance by `LARGEST_GAP`, and the theorem of `secagg.privacy.shares` holds with that.
- Training inside a member (`TrainingCost`) is no Gaussian release. All is then composed by Rényi at one order, fixed
  with the budget: a valid filter too (Feldman & Zrnic, "Individual privacy accounting via a Rényi filter", NeurIPS
  2021). It fits fewer Gaussian plans. Rows of ledgers before schema version 5 have curves, and are composed so too.

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

from secagg.agreement.policy import Budget, data_set
from secagg.errors import BadInput, PlanRefused
from secagg.privacy import Adjacency, GaussianCost, RdpCurve, TrainingCost, Unit
from secagg.privacy.claim import shown
from secagg.privacy.gaussian import largest
from secagg.privacy.rdp import best_order

Cost = GaussianCost | TrainingCost | RdpCurve
LARGEST_GAP = 2.0**-40
"""The most that all of a data set's plans together may lack of Gaussian releases; of one it is below 10⁻¹⁵."""


@dataclass(frozen=True)
class Spent:
    """What a whole plan costs, for one unit and adjacency. Raises BadInput where training has no cost."""

    unit: str
    adjacency: str
    cost: Cost

    def __post_init__(self) -> None:
        amplified = (Unit.RECORD, Adjacency.ADD_REMOVE)
        if isinstance(self.cost, TrainingCost) and (self.unit, self.adjacency) != amplified:
            raise BadInput(
                f"training on sampled records has no cost for {self.unit} and {self.adjacency}",
                remedy="it hides that one record was added or removed: record and add-remove",
            )


@dataclass(frozen=True)
class Release:
    """One federation over one data set: the privacy that it was promised to cost, and what it costs.

    (ε, δ) is the plan's claim for its `unit` and `adjacency`. `spent` has every (unit, adjacency) in which the plan can
    be accounted, the plan's own among them; in any other it costs infinity. A sum without noise (ε infinite) has none.
    Raises BadInput for a cost that contradicts itself.
    """

    data_name: str
    session: bytes
    plan: bytes
    unit: str
    adjacency: str
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
            raise BadInput(
                f"a release of epsilon {self.epsilon} has costs for {pairs}",
                remedy="a finite one has a cost for its own unit and adjacency, a sum without noise has none",
            )

    def cost(self, unit: str, adjacency: str) -> Cost | None:
        """What the release costs in a unit and adjacency; None is infinite."""
        found = [each.cost for each in self.spent if (each.unit, each.adjacency) == (unit, adjacency)]
        return found[0] if found else None


def settles(row: Release, whole: Release) -> bool:
    """Whether a row says what a plan came to that was charged `whole`, with less or the same for every neighbours."""
    same = ("data_name", "session", "plan", "unit", "adjacency", "delta")
    if any(getattr(row, name) != getattr(whole, name) for name in same) or not row.epsilon <= whole.epsilon < math.inf:
        return False
    pairs = [(each.unit, each.adjacency) for each in whole.spent]
    costs = [(row.cost(*pair), whole.cost(*pair)) for pair in pairs]
    gaussian = [(a, b) for a, b in costs if isinstance(a, GaussianCost) and isinstance(b, GaussianCost)]
    fits = all(a.squared_mu <= b.squared_mu and a.gap <= b.gap for a, b in gaussian)
    return row != whole and len(gaussian) == len(costs) == len(row.spent) and fits


def in_force(releases: Sequence[Release]) -> list[Release]:
    """The rows that count: of a plan that was settled the later one."""
    counted: list[Release] = []
    for release in releases:
        whole = next((place for place, each in enumerate(counted) if settles(release, each)), None)
        if whole is None:
            counted.append(release)
        else:
            counted[whole] = release
    return counted


def settled_cost(releases: Sequence[Release], whole: Release) -> Release | None:
    """What a plan that was charged `whole` was settled by; None where it was not."""
    return next((each for each in releases if settles(each, whole)), None) if whole in releases else None


def total_cost(
    releases: Sequence[Release], unit: str, adjacency: str, *, gaussian: bool = True
) -> GaussianCost | RdpCurve | None:
    """Return the cost of one release or more together; None when one of them is infinite.

    Gaussian if all are and it may be `gaussian`, else a curve.
    """
    costs = [release.cost(unit, adjacency) for release in releases]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return None
    all_gaussian = [cost for cost in known if isinstance(cost, GaussianCost)]
    if gaussian and len(all_gaussian) == len(known):
        return functools.reduce(operator.add, all_gaussian)
    curves = (cost if isinstance(cost, RdpCurve) else cost.curve() for cost in known)
    return functools.reduce(operator.add, curves)


def total_epsilon(
    releases: Sequence[Release], unit: str, adjacency: str, delta: float, *, within: Budget | None = None
) -> float:
    """Return ε of all releases together at δ, rounded up; math.inf when one of them is infinite.

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
    """Those about one data set; a row of an older ledger whose name names none counts for every one."""
    return [release for release in releases if data_set(release.data_name) in (data_set(data_name), "")]


def refuse_overspending(releases: Sequence[Release], release: Release, budget: Budget) -> None:
    """Raise PlanRefused unless every promise about the release's data set, before and with it, fits into the budget.

    One that was settled adds nothing. Raises BadInput when its session is among `releases` with another plan, name or
    cost.
    """
    together = in_force(same_data(releases, release.data_name))
    known = [each for each in together if each.session == release.session]
    if known and known != [release] and known != [settled_cost(releases, release)]:
        raise BadInput("this session was already entered into the ledger under another plan, name or cost")
    if not known:
        _refuse_training(release, budget)
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
    """What a budget says of one data set: every figure an ε at `delta`, for one unit and adjacency, math.inf for none.

    `spent` before the plan, in so many other `sessions`; `plan` alone (0 where none is asked about); `together`;
    `limit`; and `left`, the most that a further plan may cost. ε of several plans do not add up: `together` is mostly
    less than the sum, and `left` more than the difference.
    """

    unit: str
    adjacency: str
    delta: float
    sessions: int
    spent: float
    plan: float
    together: float
    limit: float
    left: float


def account_of(releases: Sequence[Release], release: Release | None, data_name: str, budget: Budget) -> Account:
    """What was spent on a data set, what a plan adds or has added, and what is left.

    Where plans promise different things, it is about the promise of which most is spent. Raises BadInput for a δ out of
    range.
    """
    counted = in_force(same_data(releases, data_name))
    others = [each for each in counted if release is None or each.session != release.session]
    if release is not None:
        release = settled_cost(releases, release) or release
    together = others if release is None else [*others, release]
    pairs = [(each.unit, each.adjacency) for each in reversed(together)]
    noisy = [pair for pair in dict.fromkeys(pairs) if pair[1]]

    def total(some: Sequence[Release], pair: tuple[str, str]) -> float:
        return total_epsilon(some, *pair, budget.delta, within=budget)

    pair = max(noisy or pairs or [(Unit.RECORD, "")], key=lambda each: total(together, each))
    return Account(
        *pair,
        budget.delta,
        len(others),
        total(others, pair),
        total([release], pair) if release is not None else 0.0,
        total(together, pair),
        budget.max_epsilon_total,
        _left(together, pair, budget),
    )


def _left(together: Sequence[Release], pair: tuple[str, str], budget: Budget) -> float:
    """The largest ε of a Gaussian plan at the budget's δ that the filter takes after these; 0 for none.

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


def _refuse_training(release: Release, budget: Budget) -> None:
    if any(isinstance(spent.cost, TrainingCost) for spent in release.spent) and not budget.training:
        raise PlanRefused((f"training: the plan trains on records of {data_set(release.data_name)}",))


def _exact_before(others: Sequence[Release]) -> str:
    """What to add where an exact sum has been opened: no later plan can fit into a finite budget."""
    return "; no noise takes an exact sum back" if any(math.isinf(each.epsilon) for each in others) else ""


def _sum(release: Release, others: Sequence[Release], pair: tuple[str, str], total: float, budget: Budget) -> str:
    """The refused addition, in numbers that are rounded up."""
    name, most, sessions = data_set(release.data_name), budget.max_epsilon_total, f"{len(others)} other session(s)"
    if math.isinf(release.epsilon):
        return f"this plan opens an exact sum about {name} (epsilon inf), more than {most}; {sessions} before it"
    before, added = (shown(total_epsilon(each, *pair, budget.delta)) for each in (others, [release]))
    unit, adjacency = pair
    return (
        f"{name} has spent epsilon {before} in {sessions}, this plan adds {added}, together {shown(total)}, "
        f"more than {most} (delta {budget.delta:g}, {adjacency}, {unit} level){_exact_before(others)}"
    )
