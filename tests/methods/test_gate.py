"""The class gate: what a census counts and may move, which classes it keeps, and that the others leave no trace."""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods import METHODS, method_named
from methods.closed_form.prototypes import Prototypes
from methods.closed_form.refinement import RefinementRound
from methods.gate import CENSUS_SHARE, Gated, GatedRound, KeptClasses
from methods.round import Contribution, Examples, Local, Round
from secagg.encoding import Grid, Normalisation, inputs_of, quantise
from secagg.encoding.layout import Layout
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation
from secagg.heads import LinearHead, predict
from secagg.privacy import Adjacency, CensusSensitivity, OpenedNoise, Unit
from secagg.session import RoundSetup
from secagg.wire import encode
from tests.methods.steps import artifact_of, contribute, failures_of, next_of
from tests.worlds.setups import make_setup

GRID = Grid(1.0, 1 << 10, 0.0, Normalisation.CENTRED_UNIT)
CLASSES, DIMENSION = 5, 6
LABELS = np.random.default_rng(3).permutation(np.arange(400) % CLASSES)
FEATURES = np.random.default_rng(4).normal(size=(400, DIMENSION)) + 2 * np.eye(DIMENSION)[LABELS]
RECORDS = quantise(FEATURES, GRID)
METHOD_SETTINGS = [("fedcgs", {}), ("fedcgs", {"refine": 2}), ("prototypes", {})]
SIGMAS = {"census": 1.0, "counts": 4.0, "class_sums": 2e3, "second_moment": 2e6, "gradient": 2e9}
NOISE = {name: OpenedNoise(sigma) for name, sigma in SIGMAS.items()}
DIVISIBLE = [name for name in METHODS if not method_named(name).traits.shares_one_model]
KEPT = st.sets(st.integers(0, CLASSES - 1), min_size=2).map(lambda kept: tuple(sorted(kept)))


def gated(name: str = "fedcgs", threshold: int = 3, **parameters: object) -> Gated:
    """A method behind a gate."""
    method = method_named(name, {**parameters, "gate": threshold})
    assert isinstance(method, Gated)
    return method


def after(gate: Gated, kept: tuple[int, ...]) -> GatedRound:
    """The round that follows a census in which exactly these classes pass."""
    census = np.array([gate.threshold - (j not in kept) for j in range(CLASSES)])
    following = next_of(gate, {"census": census}, GRID, None)
    assert isinstance(following, GatedRound)
    return following


def with_noise(blocks: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Gaussian noise of the σ in SIGMAS on every entry."""
    generator = np.random.default_rng(seed)
    return {
        name: block + np.rint(generator.normal(0, SIGMAS[name], block.shape)).astype(np.int64)
        for name, block in blocks.items()
    }


def play(round_: Round, seed: int | None) -> list[LinearHead]:
    """The head after every sum over all records; with noise where there is a seed."""
    heads, following, noise = [], round_, None if seed is None else NOISE
    while following is not None:
        blocks = contribute(following, Examples.of(RECORDS, LABELS), CLASSES, GRID.levels)
        aggregate = blocks if seed is None else with_noise(blocks, seed)
        heads.append(artifact_of(following, aggregate, GRID, noise))
        following = next_of(following, aggregate, GRID, noise)
    return heads


@pytest.mark.parametrize("name", DIVISIBLE)
def test_parameters_make_the_gated_method_again(name: str) -> None:
    """A gate is one more parameter of any method; without one, or with 0, nothing is added to the plan's words."""
    method, plain = gated(name), method_named(name)
    assert method.parameters == {**plain.parameters, "gate": 3}
    assert method_named(method.name, method.parameters) == method
    assert method.method == plain == method_named(name, {"gate": 0}) == method_named(name, plain.parameters)
    assert "gate" not in plain.parameters


@pytest.mark.parametrize("name", sorted(set(METHODS) - set(DIVISIBLE)))
def test_what_trains_one_model_takes_no_gate(name: str) -> None:
    """A model of all classes is the same with fewer records: a gate would leave no class out of it."""
    assert method_named(name, {"gate": 0}) == method_named(name)
    with pytest.raises(BadInput, match=f"no class can be left out of the model that {name} trains; use no class gate"):
        method_named(name, {"gate": 2})


@pytest.mark.parametrize("threshold", [-1, True, False, 2.0, 0.0, "2", None])
def test_what_is_no_threshold_is_refused(threshold: object) -> None:
    """A threshold is a whole number of clients."""
    with pytest.raises(BadInput, match="the class gate is"):
        method_named("fedcgs", {"gate": threshold})


@given(st.lists(st.lists(st.integers(0, CLASSES - 1)), max_size=5))
def test_census_counts_clients_not_records(clients: list[list[int]]) -> None:
    """Over any clients, some of them empty, the sum is the number of those with a record of the class."""
    parts = [
        contribute(gated(), Examples.of(np.ones((len(own), 2), np.int64), np.array(own, np.int64)), CLASSES, 4)
        for own in clients
    ]
    assert all(part["census"].dtype == np.int64 and part["census"].shape == (CLASSES,) for part in parts)
    counted = [sum(part["census"][j] for part in parts) for j in range(CLASSES)]
    assert counted == [sum(j in own for own in clients) for j in range(CLASSES)]


@given(st.lists(st.integers(0, CLASSES - 1)), st.integers(0, CLASSES - 1), st.integers(0, CLASSES - 1))
def test_no_record_moves_the_census_further_than_stated(others: list[int], one: int, other: int) -> None:
    """Whatever a client holds beside it, a record moves one entry by 1; replacing it moves two."""
    without, with_one, with_other = (_census([*others, *more]) for more in ([], [one], [other]))
    assert ((with_one - without) ** 2).sum() <= _bound(Unit.RECORD, Adjacency.ADD_REMOVE) == 1
    assert ((with_one - with_other) ** 2).sum() <= _bound(Unit.RECORD, Adjacency.REPLACE_ONE) == 2


@given(st.lists(st.integers(0, CLASSES - 1)), st.lists(st.integers(0, CLASSES - 1)))
def test_no_client_moves_the_census_further_than_stated(one: list[int], other: list[int]) -> None:
    """Whatever a client holds, its records move each entry by at most 1, when they go or others come."""
    for adjacency in Adjacency:
        assert ((_census(one) - _census(other)) ** 2).sum() <= _bound(Unit.CLIENT, adjacency) == CLASSES


def test_stated_bounds_are_reached() -> None:
    """Less would be too little: a lone record, a lone record of another class, and a client that holds everything."""
    empty, zero, one, every = (_census(own) for own in ([], [0], [1], list(range(CLASSES))))
    assert [((a - b) ** 2).sum() for a, b in ((zero, empty), (zero, one), (every, empty))] == [1, 2, CLASSES]


def _census(labels: list[int]) -> np.ndarray:
    records = np.ones((len(labels), 2), np.int64)
    return contribute(gated(), Examples.of(records, np.array(labels, np.int64)), CLASSES, 4)["census"]


def _bound(unit: Unit, adjacency: Adjacency) -> float:
    """The squared sensitivity of the method's census."""
    return gated().sums(DIMENSION, CLASSES, 64)[0].sensitivity(unit, adjacency, 1000).squared({"census": 1.0})


def test_client_is_bounded_whatever_its_records() -> None:
    """A client with a million records moves the census as far as one with as many as there are classes."""
    census = gated().sums(DIMENSION, 9, 64)[0]
    for records in (1, 1_000_000):
        client = census.sensitivity(Unit.CLIENT, Adjacency.ADD_REMOVE, records)
        assert client == CensusSensitivity(Unit.CLIENT, Adjacency.ADD_REMOVE, 9)
        assert [block.l2 for block in client.blocks] == [3.0]


@pytest.mark.parametrize(("name", "parameters"), METHOD_SETTINGS)
def test_method_shares_what_the_census_leaves(name: str, parameters: dict[str, int]) -> None:
    """The census comes first and has 2 % of μ²; the method's sums keep their order, blocks and proportions."""
    census, *others = gated(name, **parameters).sums(DIMENSION, CLASSES, 64)
    plain = method_named(name, parameters).sums(DIMENSION, CLASSES, 64)
    assert (census.budget, census.times, [block.shape for block in census.blocks]) == (CENSUS_SHARE, 1, [(CLASSES,)])
    assert math.fsum([census.budget, *(each.budget for each in others)]) == pytest.approx(1)
    assert [replace(each, budget=own.budget) for each, own in zip(others, plain, strict=True)] == list(plain)
    assert all(each.budget == pytest.approx(0.98 * own.budget) for each, own in zip(others, plain, strict=True))


def test_rows_of_classes_are_known() -> None:
    """The blocks with a row for each class are found, though a triangle may happen to be as long (3 = 2·3/2)."""
    assert gated(refine=1).per_class == {"counts", "class_sums", "gradient"}
    assert gated("prototypes").per_class == {"counts", "class_sums"}
    records, labels = np.array([[3, 1], [2, 2], [5, 0]]), np.array([0, 1, 2])
    blocks = contribute(
        GatedRound(method_named("fedcgs"), (0, 2), gated().per_class), Examples.of(records, labels), 3, 8
    )
    assert blocks["second_moment"].tolist() == [9 + 25, 3, 1]
    assert blocks["counts"].tolist() == [1, 0, 1]


def test_gated_blocks_keep_their_type() -> None:
    """A block of another type than the plan's stays of that type, so that whoever lays it out refuses it."""

    class Halves(Prototypes):
        def contribute(self, local: Local) -> Contribution:
            made = super().contribute(local)
            return replace(made, blocks={name: block * np.nan for name, block in made.blocks.items()})

    local = Local(Examples.of(RECORDS[:3], np.array([0, 1, 2])), CLASSES, GRID)
    made = GatedRound(Halves(), (0, 2), gated("prototypes").per_class).contribute(local)
    assert {block.dtype for block in made.blocks.values()} == {np.dtype(np.float64)}
    assert np.isnan(made.blocks["counts"][[0, 2]]).all()


@pytest.mark.parametrize("name", DIVISIBLE)
@given(KEPT, st.lists(st.integers(0, CLASSES - 1), max_size=30))
def test_gated_sum_is_the_sum_without_the_records_left_out(name: str, kept: tuple[int, ...], labels: list[int]) -> None:
    """Whatever is kept, the gated blocks are those of the method over the kept classes' records."""
    records, own = RECORDS[: len(labels)], np.array(labels, dtype=np.int64)
    counted = np.isin(own, kept)
    whole = {"slots": 1} if name == "fedbip" else {}  # whose gate counts slots, not classes
    plain = contribute(method_named(name, whole), Examples.of(records[counted], own[counted]), CLASSES, GRID.levels)
    found = contribute(after(gated(name, **whole), kept), Examples.of(records, own), CLASSES, GRID.levels)
    assert found.keys() == plain.keys()
    assert all(np.array_equal(found[block], plain[block]) for block in plain)


@given(KEPT)
def test_blocks_of_every_round_fit_the_plans_layout(kept: tuple[int, ...]) -> None:
    """In refinement too every block has all the plan's classes, the rows of those left out being zero."""
    gate = gated(refine=2)
    layouts = [Layout(kind.blocks) for kind in gate.sums(DIMENSION, CLASSES, GRID.levels)]
    round_, left_out = after(gate, kept), [j for j in range(CLASSES) if j not in kept]
    assert round_.left_out(CLASSES) == tuple((j, 0) for j in left_out)
    for layout in layouts[1:]:
        blocks = contribute(round_, Examples.of(RECORDS, LABELS), CLASSES, GRID.levels)
        layout.flatten(blocks)
        assert not any(blocks[name][left_out].any() for name in gate.per_class & set(blocks))
        assert failures_of(round_, blocks, GRID) == []
        round_ = next_of(round_, blocks, GRID, None)


@pytest.mark.parametrize("seed", [None, 1], ids=["exact", "noise"])
@pytest.mark.parametrize(("name", "parameters"), METHOD_SETTINGS)
def test_class_left_out_is_never_predicted(name: str, parameters: dict[str, int], seed: int | None) -> None:
    """The head after every sum knows the kept classes only, however its noise fell and whatever it is shown."""
    kept = (0, 1, 4)
    for head in play(after(gated(name, **parameters), kept), seed):
        assert np.flatnonzero(head.present).tolist() == list(kept)
        assert not head.weight[[2, 3]].any()
        shown = inputs_of(np.vstack([FEATURES, -1e6 * FEATURES]), GRID)
        assert set(predict(head, shown).tolist()) <= set(kept)


@pytest.mark.parametrize("seed", [None, 2], ids=["exact", "noise"])
@pytest.mark.parametrize(("name", "parameters"), METHOD_SETTINGS)
def test_head_is_that_of_a_plan_of_the_kept_classes(name: str, parameters: dict[str, int], seed: int | None) -> None:
    """After every round weights and biases are those of the method alone over the kept classes, bit for bit."""
    kept, noise = (1, 3, 4), None if seed is None else NOISE
    counted = np.isin(LABELS, kept)
    own, records, round_ = (
        np.searchsorted(kept, LABELS[counted]),
        RECORDS[counted],
        after(gated(name, **parameters), kept),
    )
    plain: Round | None = method_named(name, parameters)
    while plain is not None:
        blocks = contribute(round_, Examples.of(RECORDS, LABELS), CLASSES, GRID.levels)
        wide = blocks if seed is None else with_noise(blocks, seed)
        narrow = {each: block[list(kept)] if each in round_.per_class else block for each, block in wide.items()}
        head, alone = artifact_of(round_, wide, GRID, noise), artifact_of(plain, narrow, GRID, noise)
        assert np.array_equal(head.weight[list(kept)], alone.weight)
        assert np.array_equal(head.bias[list(kept)], alone.bias)
        same = contribute(plain, Examples.of(records, own), len(kept), GRID.levels)
        assert all(np.array_equal(blocks[each][list(kept)], same[each]) for each in round_.per_class & set(blocks))
        round_, plain = next_of(round_, wide, GRID, noise), next_of(plain, narrow, GRID, noise)
    assert round_ is None


@given(st.lists(st.integers(-5, 30), min_size=CLASSES, max_size=CLASSES), st.integers(1, 9), st.integers(1, 4))
def test_gate_keeps_what_reaches_the_threshold(census: list[int], threshold: int, multiplier: int) -> None:
    """A class passes from `threshold` clients on, whatever the census's multiplier; fewer than two classes end it."""
    expected = tuple(j for j, count in enumerate(census) if count >= threshold * multiplier)
    noise, opened = {"census": OpenedNoise(1.0, multiplier)}, {"census": np.array(census)}
    gate = gated(threshold=threshold)
    if len(expected) < 2:
        with pytest.raises(BadInput, match=f"{len(expected)} of 5 classes are held by {threshold} clients or more"):
            next_of(gate, opened, GRID, noise)
        return
    following = next_of(gate, opened, GRID, noise)
    assert isinstance(following, GatedRound)
    assert following.kept == expected


def test_census_gives_no_head() -> None:
    """After the census there is nothing to predict with."""
    assert artifact_of(gated(), {"census": np.full(CLASSES, 9)}, GRID, None) is None


@cache
def refining() -> tuple[Gated, tuple[GatedRound, ...]]:
    """A gated method with two rounds of refinement, and its rounds after the census."""
    gate = gated(refine=2)
    rounds, following = [], after(gate, (0, 2, 3))
    while following is not None:
        rounds.append(following)
        blocks = contribute(following, Examples.of(RECORDS, LABELS), CLASSES, GRID.levels)
        following = next_of(following, blocks, GRID, None)
    return gate, tuple(rounds)


def test_broadcasts_open_the_same_rounds() -> None:
    """What a client reads from the broadcasts contributes what the server's rounds would, bit for bit."""
    gate, rounds = refining()
    assert len(rounds) == 3
    told: Round = gate
    for own in rounds:
        told = told.decode_broadcast(own.broadcast(), GRID)
        own.require_equal(told)
        assert isinstance(told, GatedRound)
        assert told.kept == own.kept
        one, other = (contribute(each, Examples.of(RECORDS, LABELS), CLASSES, GRID.levels) for each in (told, own))
        assert all(
            np.array_equal(one[name], other[name])
            for name in contribute(own, Examples.of(RECORDS, LABELS), CLASSES, 1024)
        )
    assert rounds[0].broadcast() == encode(KeptClasses((0, 2, 3)))
    assert isinstance(rounds[1].round, RefinementRound)


@pytest.mark.parametrize("kept", [(0, 2), (0, 1, 2, 3), (0, 2, 4), (1, 4), (0, 2, 3, 9_999)], ids=str)
def test_other_classes_than_the_census_gives_are_refused(kept: tuple[int, ...]) -> None:
    """A broadcast that leaves out a class that passes, or keeps one that does not, is the server's breach."""
    gate, (first, *_) = refining()
    with pytest.raises(ProtocolViolation, match="party 0: the classes that it keeps do not follow from the census"):
        first.require_equal(gate.decode_broadcast(encode(KeptClasses(kept)), GRID))


@pytest.mark.parametrize(
    "broadcast",
    [
        b"",
        encode(KeptClasses((0, 2, 3)))[:-1],
        encode(KeptClasses((0, 2, 3))) + b"\x00",
        b"\x0a\x01\x02",
        b"\x0a\x03\x00\x03\x02",
        b"\x0a\x03\x00\x02\x02",
        b"\x0a\x04\x00\x02\x90\x4e",
        b"\xff",
    ],
    ids=["empty", "truncated", "longer", "one class", "unsorted", "repeated", "class 10000", "no message"],
)
def test_malformed_broadcast_is_refused(broadcast: bytes) -> None:
    """What is not the canonical list of two or more classes in order is no opening."""
    with pytest.raises(MalformedMessage):
        gated().decode_broadcast(broadcast, GRID)


def test_rounds_cannot_be_exchanged() -> None:
    """The classes do not open a refinement round, nor weights the first sum, and no round opens a census."""
    gate, (first, second, third) = refining()
    with pytest.raises(MalformedMessage):
        first.decode_broadcast(first.broadcast(), GRID)
    with pytest.raises(MalformedMessage):
        gate.decode_broadcast(second.broadcast(), GRID)
    with pytest.raises(ProtocolViolation, match="party 0: "):
        second.require_equal(third)
    with pytest.raises(ProtocolViolation, match="party 0: "):
        first.require_equal(gate)
    with pytest.raises(ProtocolViolation, match="party 0: announces the first round"):
        gate.require_equal(first)
    assert gate.broadcast() == b""
    with pytest.raises(ProtocolViolation, match="a round that the plan does not have"):
        after(gated(), (0, 1)).decode_broadcast(b"more", GRID)


def test_classes_beyond_the_plans_give_no_sum() -> None:
    """A kept class that the plan does not have is refused wherever it would be used, though it was never checked."""
    told = gated().decode_broadcast(encode(KeptClasses((0, 1, CLASSES))), GRID)
    blocks = contribute(method_named("fedcgs"), Examples.of(RECORDS, LABELS), CLASSES, GRID.levels)
    for use in (
        lambda: contribute(told, Examples.of(RECORDS, LABELS), CLASSES, GRID.levels),
        lambda: artifact_of(told, blocks, GRID, None),
        lambda: next_of(told, blocks, GRID, None),
        lambda: failures_of(told, blocks, GRID),
    ):
        with pytest.raises(BadInput, match=f"the gate keeps class {CLASSES} of {CLASSES}"):
            use()


def test_what_no_honest_sum_shows_is_said() -> None:
    """A census below zero, and a sum with records of a class left out, are reported; honest ones are not."""
    gate, (first, second, _) = refining()
    assert failures_of(gate, {"census": np.array([0, 1, 2, 3, 4])}, GRID) == []
    assert failures_of(gate, {"census": np.array([0, -1, 2, 3, -4])}, GRID) == [
        "class 1 is held by -1 clients",
        "class 4 is held by -4 clients",
    ]
    ungated = contribute(method_named("fedcgs"), Examples.of(RECORDS, LABELS), CLASSES, GRID.levels)
    said = failures_of(first, ungated, GRID)
    assert [line for line in said if "left out" in line] == [
        f"class {j} was left out, but its sum is not 0" for j in (1, 4)
    ]
    assert failures_of(second, {"gradient": np.eye(CLASSES, DIMENSION + 1, dtype=np.int64)}, GRID) == [
        f"class {j} was left out, but its sum is not 0" for j in (1, 4)
    ]


@pytest.mark.parametrize("protection", ["shared", "masked", "encrypted", "none"])
def test_smaller_minimum_cohort_does_not_undercut_the_gate(protection: str) -> None:
    """Nobody but the dropouts that the gate counts on is missing from a sum, whatever minimum the plan names."""
    exact: dict[str, Any] = {"epsilon": math.inf, "delta": None, "adjacency": None}
    gated = make_setup(10, class_gate=2, protection=protection, dropouts=1, colluders=1, radius=1.0, **exact)
    for minimum in (1, 8, 9):
        assert RoundSetup.of(replace(gated.plan, min_clients_in_sum=minimum), gated.roster).facts.fewest == 9
