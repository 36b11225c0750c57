"""FedPCL's local term: over prototypes of fixed groups of members, or of every member; and the authors' own loss."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from methods import method_named
from methods.declaration import check_declaration, check_steps
from methods.method import Fixed
from methods.own_models.fedpcl import Contrast, FedPCL
from methods.own_models.local_projection import prototypes_of, put_in_group
from methods.round import Contribution, Examples, Local, OpenedTotal
from secagg.encoding import Grid
from secagg.errors import BadInput, PlanRefused
from secagg.networks.programs import named_parameters
from secagg.plan_facts.explanation import explain
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.privacy import Adjacency, Unit
from secagg.session import RoundSetup
from tests.worlds.setups import make_setup

CLASSES, DIMENSION, WIDTH, GROUPS = 4, 5, 6, 3
GENERATOR = np.random.default_rng(8)
X, LABELS = GENERATOR.normal(size=(9, DIMENSION)), np.arange(9) % CLASSES
PROTOTYPES = np.abs(GENERATOR.normal(size=(1 + GROUPS, CLASSES, WIDTH))) / 4
EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": None, "adjacency": None}


def plan_of(clients: int = 6, **choices: Any) -> RoundSetup:
    """A plan of FedPCL with groups, exact unless said otherwise."""
    parameters = {"rounds": 2, "width": WIDTH, "exchange": "groups", **choices.pop("parameters", {})}
    fixed = {"colluders": 1, "dropouts": 0, **EXACT, **choices}
    return make_setup(clients, method="fedpcl", parameters=tuple(parameters.items()), **fixed)


def cosines(flat: np.ndarray) -> np.ndarray:
    """z by hand."""
    raised = np.maximum(X @ flat.reshape(WIDTH, DIMENSION).T, 0)
    return raised / np.linalg.norm(raised, axis=1, keepdims=True)


def paper(flat: np.ndarray) -> float:
    """Eq. 8 over all members' prototypes and Eq. 9 over every group's, the positive in each denominator."""

    def term(prototypes: np.ndarray) -> float:
        similar = np.exp(cosines(flat) @ prototypes.T / 0.3)
        return float(-np.log(similar[np.arange(9), LABELS] / similar.sum(axis=1)).mean())

    return term(PROTOTYPES[0]) + sum(map(term, PROTOTYPES[1:])) / GROUPS


@pytest.mark.parametrize(("make", "formula"), [(Contrast, paper)])
def test_loss_and_gradient_are_the_formulas(make: Any, formula: Any) -> None:
    """The loss is the formula's value, its gradient that of central differences, in float64."""
    program = make(DIMENSION, CLASSES, WIDTH, PROTOTYPES, 0.3)
    flat = GENERATOR.normal(size=program.size)
    leaf = torch.tensor(flat, requires_grad=True)
    loss = program.loss(named_parameters(program, leaf), torch.tensor(X), torch.tensor(LABELS))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(formula(flat), rel=1e-9)
    expected = [(formula(flat + step) - formula(flat - step)) / 2e-6 for step in 1e-6 * np.eye(program.size)]
    assert leaf.grad is not None
    assert leaf.grad.numpy() == pytest.approx(np.array(expected), rel=1e-5, abs=1e-8)


def test_a_members_sums_are_in_its_groups_places_alone() -> None:
    """Added up over members they give every group's sums, and over groups the sums of all."""
    counts = GENERATOR.integers(0, 9, size=(7, CLASSES))
    sums = GENERATOR.integers(0, 99, size=(7, CLASSES, WIDTH))
    made = [put_in_group(*each, member, GROUPS) for member, each in enumerate(zip(counts, sums, strict=True), start=1)]
    total = {name: sum(each[name] for each in made) for name in made[0]}
    for group in range(GROUPS):
        mine = [place for place in range(7) if (place + 1) % GROUPS == group]
        assert np.array_equal(total["counts"][:, group], counts[mine].sum(axis=0))
        assert np.array_equal(total["class_sums"][:, group], sums[mine].sum(axis=0))


def test_groups_lack_what_all_members_have() -> None:
    """A class of which a group has no record has all members' prototype in its set (Eq. 7); the first set is all's."""
    counts, sums = np.array([[2, 0], [1, 3]]), np.array([[[8, 6], [0, 0]], [[5, 5], [9, 30]]])
    found = prototypes_of(OpenedTotal({"counts": counts, "class_sums": sums}, Grid(1.0, 100)))
    assert found.tolist() == [[[4, 3], [3, 8]], [[4, 3], [5, 5]], [[4, 3], [3, 10]]]


@pytest.mark.parametrize(("clients", "colluders", "dropouts", "groups"), [(6, 1, 0, 2), (12, 1, 0, 4), (11, 1, 2, 2)])
def test_a_plan_has_as_many_groups_as_hide_a_member(clients: int, colluders: int, dropouts: int, groups: int) -> None:
    """Each has c + D + 2 members or more, nobody but the tolerated dropouts may be missing, and it is explained."""
    setup = plan_of(clients, colluders=colluders, dropouts=dropouts)
    assert (setup.facts.groups, setup.plan.method_parameters["groups"]) == (groups, groups)
    assert sum(setup.facts.group_sizes) == clients
    assert min(setup.facts.group_sizes) >= colluders + dropouts + 2
    assert setup.facts.fewest == clients - dropouts
    assert f"{groups} groups of {min(setup.facts.group_sizes)} clients or more" in dict(explain(setup.facts))["groups"]


def test_too_few_members_for_two_groups() -> None:
    """Below 2(c + D + 2) members there is no such exchange."""
    with pytest.raises(BadInput, match="5 members are too few for two groups of 3"):
        plan_of(5)


def test_smaller_groups_are_refused_whoever_writes_the_plan() -> None:
    """A plan with more groups than hide a member is refused, and a smaller minimum of clients opens no smaller sum."""
    setup = plan_of(6)
    text = setup.plan.parameters.replace('"groups":2', '"groups":3')
    with pytest.raises(BadInput, match="a group of 2 members would be opened, fewer than 3"):
        RoundSetup.of(replace(setup.plan, parameters=text), setup.roster)
    assert RoundSetup.of(replace(setup.plan, min_clients_in_sum=4), setup.roster).facts.fewest == 6


def test_policy_counts_the_smallest_group() -> None:
    """A member that asks for larger cohorts than a group refuses the plan, though the whole cohort is large enough."""
    setup = plan_of(6)
    policy = replace(policy_accepting(setup.plan, "data"), refinement_without_noise=True)
    policy = replace(policy, max_epsilon=math.inf, max_epsilon_total=math.inf)
    setup.facts.check(policy)
    with pytest.raises(PlanRefused) as refusal:
        setup.facts.check(replace(policy, min_clients_in_sum=4))
    assert "the sum of 3 of 6 clients could be opened" in refusal.value.violations[0]


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
def test_members_own_prototypes_are_not_opened_where_vectors_are_hidden(protection: str) -> None:
    """The published exchange is for plans that hide nothing: there each member is a group."""
    with pytest.raises(BadInput, match="published under protection none alone"):
        plan_of(5, parameters={"exchange": "published"}, protection=protection)
    open_ = plan_of(5, parameters={"exchange": "published"}, protection="none")
    assert open_.facts.group_sizes == (1, 1, 1, 1, 1)
    assert "every client's own part is opened" in dict(explain(open_.facts))["groups"]


def test_a_class_gate_knows_no_groups() -> None:
    """A census over all members says nothing of who holds a class within a group."""
    with pytest.raises(BadInput, match="no class gate, or no groups"):
        plan_of(12, class_gate=1)


def test_groups_cost_a_promise_nothing() -> None:
    """A record is in one group: the same noise keeps the same ε, with groups and without."""
    promise = {"epsilon": 2.0, "delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE, "levels": 1 << 12}
    one, several = (
        plan_of(parameters={"exchange": exchange, "sampling": 0.3}, min_clients_in_sum=6, **promise).plan
        for exchange in ("none", "groups")
    )
    assert [noise.sigma for noise in one.noises[1:]] == [noise.sigma for noise in several.noises[1:]]
    with_cap = plan_of(parameters={"cap": 8}, unit=Unit.CLIENT, **promise)
    assert with_cap.facts.claim is not None


@pytest.mark.parametrize("parameters", [{}, {"cap": 5}, {"sampling": 0.5}])
def test_method_does_what_it_declares(parameters: dict[str, Any]) -> None:
    """Extreme records and clients stay within the bounds and lengths that are stated, and every round leads on."""
    method = method_named("fedpcl", {"width": 16, "rounds": 3, "exchange": "groups", "groups": 3, **parameters})
    grid = Grid(1.0, 1 << 12)
    check_declaration(method, 12, 5, grid)
    check_steps(method, 12, 5, grid)


def contribution(round_: Any, member: int) -> Contribution:
    """What a member contributes."""
    records = GENERATOR.integers(-900, 900, size=(12, DIMENSION))
    examples = Examples.of(records, np.arange(12) % CLASSES)
    contributed: Contribution = round_.contribute(Local(examples, CLASSES, Grid(1.0, 1 << 12), member))
    return contributed


def test_broadcast_holds_every_set() -> None:
    """What opens the next round is all members' prototypes and each group's, bit for bit."""
    method = FedPCL(rounds=3, width=WIDTH, exchange="groups", groups=3)
    first = method.begin(DIMENSION, CLASSES, 1 << 12)
    made = [contribution(first, member).blocks for member in range(1, 7)]
    total = {name: sum(each[name] for each in made) for name in made[0]}
    second = first.finalize(OpenedTotal(total, Grid(1.0, 1 << 12))).next_round
    assert isinstance(second, FedPCL)
    told = first.decode_broadcast(second.broadcast(), Grid(1.0, 1 << 12))
    second.require_equal(told)
    assert second.prototypes is not None
    assert second.prototypes.shape == (4, CLASSES, WIDTH)
    assert not np.array_equal(second.prototypes[1], second.prototypes[2])


@pytest.mark.parametrize(
    ("parameters", "words"),
    [({"exchange": "all"}, "exchange"), ({"groups": 2}, "with the exchange none"),
     ({"exchange": "groups", "groups": 1}, "groups"), ({"exchange": "groups", "groups": -2}, "groups")],
)  # fmt: skip
def test_what_cannot_be_is_refused(parameters: dict[str, Any], words: str) -> None:
    """Unknown words and groups of nobody."""
    with pytest.raises(BadInput, match=words):
        FedPCL(**parameters)


def test_undecided_groups_are_no_sum() -> None:
    """Without a plan that decides them there is nothing to sum."""
    fixed = Fixed(DIMENSION, CLASSES, Unit.RECORD, math.inf, stays=True, clients=8, colluders=1, dropouts=0)
    asked = FedPCL(exchange="groups")
    with pytest.raises(BadInput, match="a plan decides them"):
        asked.sums(DIMENSION, CLASSES, 100)
    assert asked.resolve(fixed) == replace(asked, groups=2)
    assert FedPCL().resolve(fixed) == FedPCL()
