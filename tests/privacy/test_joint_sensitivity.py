"""Joint sensitivities under replace-one: a search over integers reaches each and passes none; plans use their ε up."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

import mpmath
import numpy as np
import pytest

from methods import method_named
from methods.method import SumSpec
from methods.own_models.local_projection import shorten
from methods.own_models.projected_sums import class_sums
from methods.round import Blocks, Examples, Local
from secagg.agreement.plan import Plan
from secagg.encoding import Grid, Integers, Normalisation
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.privacy import Adjacency, BlockSensitivity, BlockwiseSensitivity, Sensitivity, Unit
from secagg.randomness import OperatingSystem
from tests.session.noise_checks import delta_by_hand
from tests.worlds.rosters import make_roster

LEVELS, CAP = 1 << 14, 50
ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
SPLITS = {
    "prototypes": ((0.1, 0.9), (0.5, 0.5), (0.9, 0.1), (0.001, 0.999)),
    "ccvr": ((0.02, 0.58, 0.40), (0.2, 0.5, 0.3), (0.1, 0.7, 0.2), (0.01, 0.9, 0.09), (0.8, 0.1, 0.1), (0.1, 0.1, 0.8)),
    "fedpcl": ((0.1, 0.9), (0.9, 0.1)),
}
"""Shares of μ² for counts, sums and, if there are any, classes' moments; the methods' own come first."""
REACHED, LOWERED = 0.999, 0.99


def sensitivity_of(name: str, adjacency: Adjacency, classes: int, dimension: int) -> Sensitivity:
    """What the project says of a small sum."""
    own = {"cap": CAP, "rounds": 1, "width": dimension} if name == "fedpcl" else {}
    (spec,) = method_named(name, own).sums(dimension, classes, LEVELS)
    return spec.sensitivity(spec.per, adjacency, 1)


def weights_of(stated: Sensitivity, shares: tuple[float, ...]) -> dict[str, float]:
    """Weights under which the blocks take these shares of one unit's μ²."""
    return {block.name: share / block.l2**2 for block, share in zip(stated.blocks, shares, strict=True)}


Pair = tuple[Integers, ...]
"""Two records (d,) each with its one-hot class (C,); or two members' counts (C,) each with sums (C, w)."""


def moved_by_records(pair: Pair, weights: tuple[float, ...]) -> float:
    """Weighted squared length of exchanging a record for another, from the definition, entry by entry."""
    squares = []
    for power in range(len(weights)):
        parts = []
        for record, own in (pair[:2], pair[2:]):
            entries = [np.ones(1), record, np.outer(record, record)[np.triu_indices(len(record))]][power]
            parts.append(np.multiply.outer(own, entries.astype(np.float64)))
        squares.append(float(((parts[0] - parts[1]) ** 2).sum()))
    return math.fsum(weight * square for weight, square in zip(weights, squares, strict=True))


def moved_by_members(pair: Pair, weights: tuple[float, ...]) -> float:
    """Weighted squared length of exchanging a member's contribution for another's."""
    differences = pair[0] - pair[2], pair[1] - pair[3]
    return math.fsum(w * float((each.astype(float) ** 2).sum()) for w, each in zip(weights, differences, strict=True))


def inside(vector: Integers, longest: int, *, signed: bool) -> Integers:
    """The integers nearest to a vector that are no longer than allowed, and of the allowed sign."""
    kept = vector if signed else np.maximum(vector, 0)
    square = sum(int(entry) ** 2 for entry in kept.ravel())
    return (
        kept if square <= longest**2 else np.trunc(kept * (longest / math.sqrt(square) * (1 - 1e-15))).astype(np.int64)
    )


def climbed(start: Pair, lengths: Mapping[int, int], moved: Callable[[Pair], float], *, signed: bool) -> float:
    """Coordinate ascent over integers: the vectors at the places in `lengths` move, each step kept if it leads up."""
    pair, best, step = list(start), moved(start), 1.0
    while step > 0.5 / max(lengths.values()):
        gained = False
        for place, longest in lengths.items():
            for entry in range(pair[place].size):
                for sign in (1, -1):
                    tried = pair[place].copy() if signed or step < 1 else 0 * pair[place]
                    tried.flat[entry] += sign * max(1, round(step * longest))
                    found = (*pair[:place], inside(tried, longest, signed=signed), *pair[place + 1 :])
                    if (value := moved(found)) > best:
                        pair, best, gained = list(found), value, True
        step = step if gained and step > 0.01 else step / 2
    return best


@functools.cache
def searched(name: str, classes: int, dimension: int, shares: tuple[float, ...]) -> float:
    """The farthest exchange that is found from random starts, in the allowed set of integers."""
    generator = np.random.default_rng(5)
    weights = tuple(weights_of(sensitivity_of(name, REPLACE, classes, dimension), shares).values())
    found = []
    for turn in range(6 if name == "fedpcl" else 12):
        if name == "fedpcl":
            held = generator.integers(0, 2, (2, classes))  # members hold some classes and not others
            counts, sums = held * CAP, held[:, :, None] * generator.integers(0, CAP * LEVELS, (2, classes, dimension))
            parts = [((own, CAP), (each, CAP * LEVELS)) for own, each in zip(counts, sums, strict=True)]
            start: Pair = tuple(inside(each, longest, signed=False) for part in parts for each, longest in part)
            lengths = dict(enumerate((CAP, CAP * LEVELS) * 2))
            found.append(climbed(start, lengths, lambda pair: moved_by_members(pair, weights), signed=False))
            continue
        rows = [inside(row, LEVELS, signed=True) for row in generator.integers(-LEVELS, LEVELS, (2, dimension))]
        own = np.eye(classes, dtype=np.int64)
        labels = 0, turn % 2 if classes > 1 else 0
        start = rows[0], own[labels[0]], rows[1], own[labels[1]]
        found.append(climbed(start, {0: LEVELS, 2: LEVELS}, lambda pair: moved_by_records(pair, weights), signed=True))
    return max(found)


CASES = [
    (name, *shape, shares)
    for name, splits in SPLITS.items()
    for shape in ((2, 2), (3, 3), (5, 2))
    for shares in (splits if shape == (2, 2) else splits[:2])
]
every_case = pytest.mark.parametrize(("name", "classes", "dimension", "shares"), CASES)


@every_case
def test_search_reaches_the_bound_and_does_not_pass_it(
    name: str, classes: int, dimension: int, shares: tuple[float, ...]
) -> None:
    """Over integers the farthest exchange is the stated one, to a part in a thousand; a bound 1 % lower is passed."""
    stated = sensitivity_of(name, REPLACE, classes, dimension)
    bound = stated.squared(weights_of(stated, shares))
    found = searched(name, classes, dimension, shares)
    assert REACHED * bound <= found <= bound * (1 + 1e-12)
    assert found > LOWERED * bound


@every_case
def test_bound_is_below_the_block_wise_one(name: str, classes: int, dimension: int, shares: tuple[float, ...]) -> None:
    """The joint case is less than four times a unit's own move, and add/remove is the same number to the bit."""
    known = sensitivity_of(name, ADD, classes, dimension)
    weights = weights_of(known, shares)
    plain = [BlockwiseSensitivity(known.unit, each, known.blocks).squared(weights) for each in (ADD, REPLACE)]
    assert known.squared(weights) == plain[0]
    assert sensitivity_of(name, REPLACE, classes, dimension).squared(weights) < 0.9999 * plain[1]


def test_one_class_of_moments_has_no_exchange_between_classes() -> None:
    """With a single class no count moves."""
    stated = sensitivity_of("ccvr", REPLACE, 1, 2)
    assert searched("ccvr", 1, 2, (0.8, 0.1, 0.1)) == pytest.approx(0.45, rel=1 - REACHED)
    assert stated.squared(weights_of(stated, (0.8, 0.1, 0.1))) == pytest.approx(0.45, rel=1e-12)


def contributed(name: str, record: list[int], label: int) -> tuple[SumSpec, Blocks]:
    """What the method itself makes of one record of three classes."""
    method, examples = method_named(name, {}), Examples.of(np.array([record]), np.array([label]))
    (spec,) = method.sums(len(record), 3, LEVELS)
    local = Local(examples, 3, Grid(1.0, LEVELS, normalisation=Normalisation.UNIT))
    return spec, method.begin(len(record), 3, LEVELS).contribute(local).blocks


WORST = {
    ("prototypes", (0.1, 0.9)): (([LEVELS, 0], 0), ([-LEVELS, 0], 0)),
    ("prototypes", (0.6, 0.4)): (([LEVELS, 0], 0), ([-LEVELS, 0], 1)),
    ("ccvr", (0.8, 0.1, 0.1)): (([LEVELS, 0], 0), ([LEVELS, 0], 2)),
    ("ccvr", (0.02, 0.9, 0.08)): (([0, LEVELS], 1), ([0, -LEVELS], 1)),
}


@pytest.mark.parametrize(("name", "shares"), WORST)
def test_methods_own_contributions_reach_it(name: str, shares: tuple[float, ...]) -> None:
    """The bound is that of real contributions: exactly, where the worst records are whole numbers."""
    (spec, one), (_, other) = (contributed(name, *each) for each in WORST[name, shares])
    stated = spec.sensitivity(Unit.RECORD, REPLACE, 1)
    weights = weights_of(stated, shares)
    moved = math.fsum(weights[part] * float(((one[part] - other[part]).astype(float) ** 2).sum()) for part in weights)
    assert moved == pytest.approx(stated.squared(weights), rel=1e-12)


def test_two_members_reach_it() -> None:
    """One holds the cap's records of a class, another's are of the next: their parts share no entry."""
    q = np.array([[LEVELS, 0]])
    parts = []
    for label in (0, 1):
        examples = Examples.of(np.repeat(q, 3 * CAP, axis=0), np.full(3 * CAP, label))
        parts.append(shorten(*class_sums(np.eye(2), examples, 3, LEVELS), CAP))
    moved = [int(((one - other) ** 2).sum()) for one, other in zip(*parts, strict=True)]
    stated = sensitivity_of("fedpcl", REPLACE, 3, 2)
    weights = weights_of(stated, (0.3, 0.7))
    assert weights["counts"] * moved[0] + weights["class_sums"] * moved[1] == pytest.approx(stated.squared(weights))


def test_a_record_turns_its_member_s_part_into_any_other() -> None:
    """Under a client's clip a record is charged like its member replaced, whichever the relation; never less."""
    for unsigned, factor in ((False, 4), (True, 2)):
        blocks = (BlockSensitivity("counts", 9.0, 3), BlockSensitivity("sums", 900.0, 6))
        stated = tuple(BlockwiseSensitivity(Unit.CLIENT, each, blocks, unsigned) for each in Adjacency)
        spec = SumSpec((), stated, "equal", per=Unit.CLIENT)
        for adjacency in Adjacency:
            found = spec.sensitivity(Unit.RECORD, adjacency, 1).squared({"counts": 1.0, "sums": 0.25})
            assert found == pytest.approx(factor * (81 + 202_500), rel=1e-15)


CLAIMED = {
    "ccvr": ("ccvr", {}, Unit.RECORD, REPLACE, 1.0, 0.753),
    "fedpcl, a client": ("fedpcl", {"rounds": 5, "cap": 50, "width": 32}, Unit.CLIENT, REPLACE, 1.0, 0.685),
    "fedpcl, a client at 8": ("fedpcl", {"rounds": 5, "cap": 50, "width": 32}, Unit.CLIENT, REPLACE, 8.0, 0.663),
    "fedproto, a client": ("fedproto", {"rounds": 3, "cap": 50, "width": 32}, Unit.CLIENT, REPLACE, 4.0, 0.674),
    "fedpcl, a record replaced": ("fedpcl", {"rounds": 5, "cap": 50, "width": 32}, Unit.RECORD, REPLACE, 1.0, 0.685),
    "fedproto, a record added": ("fedproto", {"rounds": 3, "cap": 50, "width": 32}, Unit.RECORD, ADD, 1.0, 0.685),
    "prototypes": ("prototypes", {}, Unit.RECORD, REPLACE, 1.0, 0.944),
    "fedtc": ("fedtc", {"slots": 16, "threshold": 0.1}, Unit.RECORD, REPLACE, 1.0, 0.995),
}
"""The plans that were wasteful, and the part of the claimed ε that a block-wise bound would use."""
DELTA, CLIENTS = 1e-5, 10


def planned(name: str) -> Plan:
    """A plan for ten clients, one of whom knows its share."""
    method, parameters, unit, adjacency, epsilon, _ = CLAIMED[name]
    about = {"unit": unit, "adjacency": adjacency, "max_records": 64, "colluders": 1, "dropouts": 0}
    choices = PlanChoices(method=method, parameters=tuple(parameters.items()), epsilon=epsilon, delta=DELTA, **about)  # type: ignore[arg-type]
    data = PublicData("features", (64,), tuple("abcdefghij"), None, None)
    return make_plan(data, make_roster(CLIENTS)[0], choices, OperatingSystem())


def squared_mu(plan: Plan, block_wise: bool) -> mpmath.mpf:
    """μ² of all sums from the plan's σ alone, by the joint cases; or by the triangle inequality in every block."""
    cap, levels = mpmath.mpf(plan.method_parameters.get("cap", 1)), mpmath.mpf(plan.levels)
    length = {"counts": cap, "slot_counts": cap, "class_sums": cap * levels, "slot_sums": cap * levels}
    parts = {}
    for noise in plan.noises:
        variance = (CLIENTS - 1) * mpmath.mpf(noise.sigma) ** 2 - 3
        parts[noise.block] = (noise.multiplier * length.get(noise.block, levels**2)) ** 2 / variance
    if plan.method in ("fedpcl", "fedproto"):
        return plan.method_parameters["rounds"] * (4 if block_wise else 2) * sum(parts.values())
    total = mpmath.mpf(0)
    for counts, sums in (("counts", "class_sums"), ("slot_counts", "slot_sums")):
        if counts in parts:
            n, a, b = parts[counts], parts[sums], parts.get("class_moments", mpmath.mpf(0))
            turned = (mpmath.mpf(each) / 1000 for each in range(1001))
            joint = max(2 * (n + a + b), *(2 * (1 + t) * a + 2 * (1 - t * t) * b for t in turned))
            total += 4 * (n + a + b) if block_wise and counts == "counts" else joint
    return total


@pytest.mark.parametrize("name", CLAIMED)
def test_claimed_epsilon_is_true_and_used_up(name: str) -> None:
    """A plan's noise keeps its ε by mpmath's Gaussian, and 99.9 % of that ε is really spent."""
    plan, part = planned(name), CLAIMED[name][-1]
    with mpmath.workdps(40):
        mu, loose = (mpmath.sqrt(squared_mu(plan, block_wise)) for block_wise in (False, True))
        delta = mpmath.mpf(DELTA)
        assert delta_by_hand(mu, plan.epsilon) <= delta < delta_by_hand(mu, 0.999 * plan.epsilon)
        # With noise for the block-wise bound the truth would be this part of the claim.
        shrunk = mu * mu / loose
        scale = _mu_at(plan.epsilon, delta) / mu
        assert delta_by_hand(shrunk * scale, part * plan.epsilon) <= delta
        assert delta_by_hand(shrunk * scale, (part - 0.005) * plan.epsilon) > delta


def _mu_at(epsilon: float, delta: mpmath.mpf) -> mpmath.mpf:
    low, high = mpmath.mpf(0), mpmath.mpf(10)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_by_hand(middle, epsilon) > delta else (middle, high)
    return high
