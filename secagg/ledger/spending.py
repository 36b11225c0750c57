"""Compute the privacy cost of one or several plans on a data set, and whether one more fits a budget.

A member accepts a plan after it has seen what earlier ones opened, so plans compose adaptively, costs and all, and a
budget must hold as a *filter*: a test, fixed in advance, that stops before the budget is overspent. There is one, over
rows (μ², δ₀): a plan whose sums have noise is a Gaussian release, δ₀ = 0; training inside a member is no more than one
but for an outright failure of probability δ₀ (`TrainingCost.row`), and δ₀ is a part of the budget's δ, never a plan's
word (`CHANCE`, for `TRAININGS` trainings). Together Σμ² ≤ μ_B² and Σδ₀ ≤ Δ₀, with δ_Gauss(μ_B, ε) + Δ₀ ≤ δ for the
budget's (ε, δ). The statement and its proof are in `secagg/privacy/README.md`, *Plans that follow one another*. What
noise lacks of Gaussians, ΣT, is bounded in advance by `LARGEST_GAP`.

**The first plan** of a data set is chosen before anything is seen, so two things may depend on it. One that fits only
with Δ₀ = 0 makes Δ₀ = 0: then the filter is that of Gaussian releases at all of δ, and no training fits it. And one
that fits by its own claim alone, a training that fills the budget for one, is accepted, stays charged whole, and is the
last. Were it settled, what it opened would choose which of two tests holds, each good for δ alone. ("Gaussian until
the first training" is such a choice, too, and composed trade-off curves are no filter: "f-differential privacy filters:
validity and approximate solutions", arXiv 2602.06756.) Who changes the budget after sums were opened, or the program
that tests it, has the δ of both.

**Plans may overlap.** A training goes on for rounds, and other plans may open sums between them: the proof covers that.

A plan is charged whole before anything of it leaves. One of Gaussian sums is *settled* where it ends early for good: a
further row says what the sums cost for which a vector may have left, and nothing of the plan can leave after it. Each
sum is a Gaussian release by itself, and a filter charges what runs, when it runs. A training stays charged whole:
its steps are no such releases one by one, so that who stops it would choose by what was opened.
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
from secagg.privacy.gaussian import check_delta, largest
from secagg.privacy.subsampled import CHANCE, TRAININGS

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


def total_cost(releases: Sequence[Release], unit: Unit, adjacency: Neighbours, delta: float) -> GaussianCost | None:
    """Compose the rows of releases into one, trainings' failures left out; None if a cost is infinite."""
    costs = [release.cost(unit, adjacency) for release in releases]
    rows = [cost.row(delta * CHANCE) if isinstance(cost, TrainingCost) else cost for cost in costs if cost is not None]
    return functools.reduce(operator.add, rows) if len(rows) == len(costs) else None


def total_epsilon(
    releases: Sequence[Release], unit: Unit, adjacency: Neighbours, delta: float, *, kept: int = 0
) -> float:
    """Return the joint ε of all releases at δ, rounded up; math.inf when one is infinite, or trainings are too many.

    The failures of `kept` trainings count, or of all where those are more. A single release costs no more than its own
    claim. Raises BadInput for a δ out of range.
    """
    total = _composed(releases, (unit, adjacency), delta, kept) if releases else 0.0
    if len(releases) == 1:
        (only,) = releases
        if (only.unit, only.adjacency) == (unit, adjacency) and delta >= only.delta:
            return min(total, only.epsilon)
    return total


def _composed(releases: Sequence[Release], pair: Pair, delta: float, kept: int) -> float:
    """Return what the filter says of releases: their joint ε, rounded up, whatever a single one claims."""
    check_delta(delta)
    cost, kept = total_cost(releases, *pair, delta), max(kept, len(_trainings(releases)))
    if cost is None or cost.gap > LARGEST_GAP or kept > TRAININGS:
        return math.inf
    # The gap's e^T is a factor of Δ₀, too.
    left = delta * (1 - kept * CHANCE) * (1 - 4 * LARGEST_GAP) if kept else delta
    return GaussianCost(cost.squared_mu, LARGEST_GAP).epsilon(left)


def _trainings(releases: Sequence[Release]) -> list[Release]:
    """Return the releases that may fail outright: those that train on sampled records."""
    costs = ((each, spent.cost) for each in releases for spent in each.spent)
    return [each for each, cost in costs if isinstance(cost, TrainingCost) and cost.steps.rate < 1]


@dataclass(frozen=True)
class _Filter:
    """The filter of one data set: the charges in force, and the number of trainings whose Δ₀ the budget keeps."""

    budget: Budget
    charges: list[Release]
    kept: int

    @classmethod
    def of(cls, releases: Sequence[Release], release: Release | None, budget: Budget) -> _Filter:
        """Return the filter that the first of a data set's `releases` decides; if there is none, `release`."""
        charges = counted_rows(releases)
        first = releases[0] if releases else release
        if first is None:
            return cls(budget, charges, TRAININGS)
        pair, most = (first.unit, first.adjacency), budget.max_epsilon_total
        kept = TRAININGS if _composed([first], pair, budget.delta, TRAININGS) <= most else 0
        if charges and not kept and not _composed([first], pair, budget.delta, 0) <= most:
            charges[0] = first
        return cls(budget, charges, kept)

    def total(self, some: Sequence[Release], pair: Pair) -> float:
        """Return what some of the plans cost together; beyond the trainings that the budget keeps Δ₀ for, infinity."""
        if len(some) > 1 and len(_trainings(some)) > self.kept:
            return math.inf
        return total_epsilon(some, *pair, self.budget.delta, kept=self.kept)


def same_data(releases: Sequence[Release], data_name: str) -> list[Release]:
    """Return the privacy costs charged to one data set, with those that name no data set, which count for every one."""
    return [release for release in releases if data_set(release.data_name) in (data_set(data_name), "")]


def refuse_overspending(releases: Sequence[Release], release: Release, budget: Budget) -> None:
    """Raise PlanRefused unless a plan's cost (`release`) and the others on its data set together fit the budget.

    That is tested for each unit and adjacency among them. A settled one adds nothing. Raises BadInput when its session
    is among `releases` with another plan, name or cost.
    """
    found = _Filter.of(same_data(releases, release.data_name), release, budget)
    together = [*found.charges]
    known = [each for each in together if each.session == release.session]
    if known and known != [release] and known != [settled_by(releases, release)]:
        raise BadInput("this session was already entered into the ledger under another plan, name or cost")
    others = [each for each in together if each.session != release.session]
    if not known:
        together.append(release)
    for pair in dict.fromkeys((each.unit, each.adjacency) for each in (release, *others)):
        total = found.total(together, pair)
        if not total <= budget.max_epsilon_total:
            raise PlanRefused((f"max_epsilon_total: {_sum(release, others, pair, total, found)}",))
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
    found = _Filter.of(same_data(releases, data_name), release, budget)
    others = [each for each in found.charges if release is None or each.session != release.session]
    own = [each for each in found.charges if each not in others] or ([] if release is None else [release])
    together = [*others, *own]
    pairs = [(each.unit, each.adjacency) for each in reversed(together)]
    noisy = [pair for pair in dict.fromkeys(pairs) if pair[1]]
    none: list[Pair] = [(Unit.RECORD, "")]
    pair = max(noisy or pairs or none, key=lambda each: found.total(together, each))
    alone, spent, total = (found.total(each, pair) for each in (own, others, together))
    left = _left(together, pair, found)
    return Account(*pair, budget.delta, len(others), spent, alone, total, budget.max_epsilon_total, left)


def _left(together: Sequence[Release], pair: Pair, found: _Filter) -> float:
    """Return the largest ε, at the budget's δ, of a further Gaussian plan that still fits the budget; 0 for none.

    With nothing spent a plan fits by its own claim, so that it is the limit.
    """
    budget, most = found.budget, found.budget.max_epsilon_total
    if not together:
        return most
    if math.isinf(most):
        exact = any(math.isinf(each.epsilon) for each in together)
        return 0.0 if exact and not budget.may_repeat else most

    def fits(squared_mu: float) -> bool:
        further = Release("", b"", b"", *pair, most, budget.delta, (Spent(*pair, GaussianCost(squared_mu)),))
        return found.total([*together, further], pair) <= most

    smallest = 2.0**-40
    if not fits(smallest):
        return 0.0
    return GaussianCost(max(smallest, largest(fits))).epsilon(budget.delta)


def _exact_before(others: Sequence[Release]) -> str:
    """Return a phrase for refusals after an exact sum, with which no plan fits a finite budget; "" without one."""
    return "; no noise takes an exact sum back" if any(math.isinf(each.epsilon) for each in others) else ""


def _sum(release: Release, others: Sequence[Release], pair: Pair, total: float, found: _Filter) -> str:
    """Return the reason of a refusal with ε before, added and in all, rounded up."""
    budget = found.budget
    name, most, sessions = data_set(release.data_name), budget.max_epsilon_total, f"{len(others)} other session(s)"
    if math.isinf(release.epsilon):
        return f"this plan opens an exact sum about {name} (epsilon inf), more than {most}; {sessions} before it"
    trained = len(_trainings(others))
    if others and trained + len(_trainings([release])) > found.kept:
        many = f"{trained} sampled trainings about {name} before this plan" if trained else "this plan trains"
        room = f"only {found.kept}" if found.kept else "none, as the first plan about the data needs all of its delta"
        return f"{many}, and the budget keeps a part of its delta for {room}"
    before, added = (format_epsilon(found.total(each, pair)) for each in (others, [release]))
    unit, adjacency = pair
    return (
        f"{name} has spent epsilon {before} in {sessions}, this plan adds {added}, together {format_epsilon(total)}, "
        f"more than {most} (delta {budget.delta:g}, {adjacency}, {unit} level){_exact_before(others)}"
    )
