"""Refinement rounds: what opens one, what a record may move in it, and what clients refuse to be told."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from methods import method_named
from methods.closed_form.refinement import (
    AUTO,
    GRADIENT_LEVELS,
    MAX_ROUNDS,
    USUAL_ROUNDS,
    RefinementBroadcast,
    RefinementRound,
    gradient_sum,
    release_noise,
)
from methods.gate import put_gate
from methods.method import Fixed
from methods.round import Examples
from secagg.encoding import Grid, Normalisation, quantise
from secagg.encoding.softmax_gradient import RESIDUAL_LEVELS, Whitening
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation
from secagg.heads import refinement as rule
from secagg.privacy import Adjacency, OpenedNoise, Unit
from secagg.wire import decode, encode
from tests.methods.steps import contribute, next_of

GRID = Grid(1.0, 1 << 10, 0.0, Normalisation.CENTRED_UNIT)
CLASSES, DIMENSION, ROUNDS = 3, 5, 4
BOUND = RESIDUAL_LEVELS * GRADIENT_LEVELS
NOISE = {"counts": 5.0, "class_sums": 2000.0, "second_moment": 2e6, "gradient": 1e9}
OPENED = {name: OpenedNoise(sigma) for name, sigma in NOISE.items()}
METHOD = method_named("fedcgs", {"refine": ROUNDS})


@functools.cache
def data() -> tuple[np.ndarray, np.ndarray]:
    """Integer records and labels of three classes that overlap."""
    generator = np.random.default_rng(1)
    labels = np.arange(300) % CLASSES
    features = generator.normal(size=(300, DIMENSION)) + 1.5 * np.eye(DIMENSION)[labels]
    return quantise(features, GRID), labels


@functools.cache
def first_round() -> RefinementRound:
    """The round after a noisy release."""
    following = next_of(METHOD, contribute(METHOD, Examples.of(*data()), CLASSES, GRID.levels), GRID, OPENED)
    assert isinstance(following, RefinementRound)
    return following


@functools.cache
def second_round() -> RefinementRound:
    """The round after that."""
    round_ = first_round()
    following = next_of(round_, contribute(round_, Examples.of(*data()), CLASSES, GRID.levels), GRID, OPENED)
    assert isinstance(following, RefinementRound)
    return following


def same(one: RefinementRound, other: RefinementRound) -> bool:
    """Whether two rounds have the same numbers, bit for bit."""
    pairs = [
        (one.weights, other.weights),
        (one.before, other.before),
        (one.place.whitening.matrix, other.place.whitening.matrix),
        (one.place.whitening.centre, other.place.whitening.centre),
    ]
    alike = (one.number, one.rounds, one.place.scale) == (other.number, other.rounds, other.place.scale)
    return alike and all(np.array_equal(*pair) for pair in pairs)


def test_broadcast_opens_the_same_round():
    """What a client reads from the broadcasts is the server's round, bit for bit, and it contributes the same."""
    one = METHOD.decode_broadcast(first_round().broadcast(), GRID)
    two = one.decode_broadcast(second_round().broadcast(), GRID)
    assert isinstance(one, RefinementRound)
    assert isinstance(two, RefinementRound)
    assert same(one, first_round())
    assert same(two, second_round())
    for told, own in ((one, first_round()), (two, second_round())):
        own.require_equal(told)
        gradients = [contribute(each, Examples.of(*data()), CLASSES, GRID.levels)["gradient"] for each in (told, own)]
        assert np.array_equal(*gradients)


def test_whitening_is_told_once():
    """The first broadcast holds the geometry, later ones only the weights."""
    first, second = (decode(RefinementBroadcast, each.broadcast()) for each in (first_round(), second_round()))
    assert (len(first.matrix), len(first.centre)) == (8 * DIMENSION**2, 8 * DIMENSION)
    assert (second.matrix, second.centre) == (b"", b"")
    assert len(first.weights) == len(second.weights) == 8 * CLASSES * (DIMENSION + 1)


def test_rounds_end():
    """There are as many rounds as the plan says, and none before or after."""
    round_, numbers = first_round(), []
    gradient = {"gradient": np.zeros((CLASSES, DIMENSION + 1), dtype=np.int64)}
    while round_ is not None:
        numbers.append(round_.number)
        round_ = next_of(round_, gradient, GRID, OPENED)
    assert numbers == [1, 2, 3, 4]
    assert (
        next_of(method_named("fedcgs"), contribute(METHOD, Examples.of(*data()), CLASSES, GRID.levels), GRID, None)
        is None
    )
    with pytest.raises(ProtocolViolation, match="party 0: announces a round that the plan does not have"):
        method_named("fedcgs").decode_broadcast(first_round().broadcast(), GRID)


def told(round_: RefinementRound, **changes: object) -> bytes:
    """A round's broadcast with some fields replaced."""
    return encode(replace(decode(RefinementBroadcast, round_.broadcast()), **changes))


def integers(*shape: int) -> bytes:
    """Zeros of a shape."""
    return np.zeros(shape, dtype="<i8").tobytes()


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 2},
        {"weights": integers(1)},
        {"weights": integers(CLASSES, DIMENSION + 1)[:-1]},
        {"weights": integers(CLASSES, DIMENSION + 1)[:-8]},
        {"centre": integers(DIMENSION - 1)},
        {"centre": b""},
        {"centre": integers(DIMENSION) + b"\x00"},
        {"matrix": b""},
        {"matrix": integers(DIMENSION, DIMENSION - 1)},
        {"matrix": integers(DIMENSION + 1, DIMENSION)},
        {"matrix": integers(DIMENSION, DIMENSION)[:-3]},
        {"matrix": np.full((DIMENSION, DIMENSION), 1 << 60, dtype="<i8").tobytes()},
        {"centre": np.full(DIMENSION, 1 << 60, dtype="<i8").tobytes()},
    ],
    ids=lambda changes: ",".join(
        f"{name}:{len(value) if isinstance(value, bytes) else value}" for name, value in changes.items()
    ),
)
def test_malformed_opening_is_refused(changes):
    """Wrong numbers, shapes, lengths, and a whitening that would not be exact do not open the first round."""
    with pytest.raises(MalformedMessage, match="RefinementBroadcast"):
        METHOD.decode_broadcast(told(first_round(), **changes), GRID)


@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: content + b"\x00",
        lambda content: content + content,
        lambda content: b"\xff" * 100,
        lambda content: bytes([content[0] ^ 1]) + content[1:],
    ],
    ids=["empty", "one byte short", "half", "one byte more", "twice", "garbage", "other tag"],
)
def test_damaged_broadcast_is_refused(place, damage):
    """Truncated, lengthened and made-up bytes are no broadcast, in any round."""
    before, after = {1: (METHOD, first_round()), 2: (first_round(), second_round())}[place]
    with pytest.raises(MalformedMessage):
        before.decode_broadcast(damage(after.broadcast()), GRID)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("weights", bytes((16 << 20) + 8)),
        ("matrix", bytes((40 << 20) + 8)),
        ("centre", bytes((1 << 20) + 8)),
        ("weights", b""),
        ("number", MAX_ROUNDS + 1),
        ("number", 0),
        ("scale", math.nan),
        ("scale", 1e-7),
        ("scale", 1e16),
    ],
)
def test_broadcast_out_of_bounds_is_refused(field, value):
    """Fields beyond their bounds are not even encoded, and so not decoded."""
    with pytest.raises(MalformedMessage):
        told(first_round(), **{field: value})


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 1},
        {"number": 3},
        {"number": ROUNDS + 1},
        {"matrix": integers(DIMENSION, DIMENSION)},
        {"centre": integers(DIMENSION)},
        {"weights": integers(CLASSES + 1, DIMENSION + 1)},
        {"weights": integers(CLASSES - 1, DIMENSION + 1)},
        {"scale": 301.0},
    ],
    ids=str,
)
def test_later_round_changes_only_weights(changes):
    """After the first round the server may announce neither another number, geometry, shape nor scale."""
    with pytest.raises(ProtocolViolation, match="party 0: "):
        first_round().decode_broadcast(told(second_round(), **changes), GRID)


def test_no_round_after_the_last():
    """The last round announces nothing further."""
    last = replace(second_round(), number=ROUNDS)
    with pytest.raises(ProtocolViolation, match="announces round 5 after round 4"):
        last.decode_broadcast(told(second_round(), number=ROUNDS + 1), GRID)


def moved(round_: RefinementRound, what: str, by: int) -> RefinementRound:
    """The round with one number of its weights, whitening or centre moved."""
    if what == "weights":
        weights = round_.weights.copy()
        weights[1, 2] += by
        return replace(round_, weights=weights)
    whitening = round_.place.whitening
    changed = getattr(whitening, what).copy()
    changed.reshape(-1)[1] += by
    return replace(round_, place=replace(round_.place, whitening=replace(whitening, **{what: changed})))


def largest(round_: RefinementRound, what: str) -> int:
    """The largest number of its weights, whitening or centre."""
    array = round_.weights if what == "weights" else getattr(round_.place.whitening, what)
    return int(np.abs(array).max())


@pytest.mark.parametrize("what", ["weights", "matrix", "centre"])
@pytest.mark.parametrize("sign", [1, -1])
def test_rounding_is_accepted_and_nothing_beyond(what, sign):
    """One unit of difference, as processors have, is accepted; two parts in a thousand of the largest are not."""
    own = first_round()
    own.require_equal(moved(own, what, sign))
    far = max(4, round(2e-3 * largest(own, what)))
    with pytest.raises(ProtocolViolation, match=r"party 0: the .* do not follow from the released sums"):
        own.require_equal(moved(own, what, sign * far))


def test_other_scale_is_refused():
    """The step's scale that the server tells must be the sums' own, to one part in a thousand."""
    own = first_round()
    own.require_equal(replace(own, place=replace(own.place, scale=own.place.scale * (1 + 1e-9))))
    with pytest.raises(ProtocolViolation, match="party 0: the scale"):
        own.require_equal(replace(own, place=replace(own.place, scale=own.place.scale * 1.01)))


def test_other_kind_of_round_is_refused():
    """Another round's number, another shape and the first round itself are not what a client expects."""
    with pytest.raises(ProtocolViolation, match="another kind of round"):
        first_round().require_equal(second_round())
    with pytest.raises(ProtocolViolation, match="another kind of round"):
        first_round().require_equal(METHOD)
    with pytest.raises(ProtocolViolation, match="weights"):
        first_round().require_equal(replace(first_round(), weights=first_round().weights[:2]))
    with pytest.raises(ProtocolViolation, match="the plan opens"):
        METHOD.require_equal(first_round())


def gradient(round_: RefinementRound, records: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The gradient of some records."""
    found = contribute(round_, Examples.of(records, labels), CLASSES, GRID.levels)["gradient"]
    assert found.dtype == np.int64
    return found


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_gradient_is_the_sum_of_its_records_alone(seed, count):
    """A record adds the same integers alone, in any order and beside any others."""
    records, labels = data()
    chosen = np.random.default_rng(seed).choice(len(labels), size=count, replace=False)
    for round_ in (first_round(), second_round()):
        alone = [gradient(round_, records[[index]], labels[[index]]) for index in chosen]
        assert np.array_equal(gradient(round_, records[chosen], labels[chosen]), np.sum(alone, axis=0))


def test_nothing_adds_nothing():
    """No records, and records that do not count, have the gradient zero."""
    assert not gradient(first_round(), np.zeros((0, DIMENSION), np.int64), np.zeros(0, np.int64)).any()
    assert not gradient(first_round(), np.zeros((2, DIMENSION), np.int64), np.zeros(2, np.int64)).any()


def squares(array: np.ndarray) -> int:
    """Σ of squares in Python integers."""
    return sum(int(entry) ** 2 for entry in array.reshape(-1))


@settings(max_examples=60)
@given(
    st.lists(st.floats(-1e3, 1e3), min_size=2 * DIMENSION, max_size=2 * DIMENSION),
    st.tuples(st.integers(0, CLASSES - 1), st.integers(0, CLASSES - 1)),
    st.sampled_from([0.0, 1.0, 30.0, 1000.0]),
)
def test_no_record_moves_more_than_the_bound(values, labels, scale):
    """Whatever records, labels and weights: one record adds at most 2¹²·R_x, and exchanging it moves twice that."""
    weights = rule.integer_weights(first_round().weights / 2.0**16 * scale)
    round_ = replace(first_round(), weights=weights)
    records = quantise(np.array(values).reshape(2, DIMENSION), GRID)
    one, other = (gradient(round_, records[[row]], np.array([labels[row]])) for row in (0, 1))
    assert squares(one) <= BOUND**2
    assert squares(other) <= BOUND**2
    assert squares(one - other) <= (2 * BOUND) ** 2


def test_bound_is_reached():
    """A misjudged record comes within 0.2 % of 2¹²·R_x; two of opposite residuals, exchanged, within 0.2 % of twice."""
    sums = gradient_sum(DIMENSION, 2, ROUNDS)
    round_ = replace(first_round(), weights=np.zeros((2, DIMENSION + 1), dtype=np.int64))
    record = data()[0][:1]
    one, other = (
        contribute(round_, Examples.of(record, np.array([label])), 2, GRID.levels)["gradient"] for label in (0, 1)
    )
    for adjacency, found in ((Adjacency.ADD_REMOVE, one), (Adjacency.REPLACE_ONE, one - other)):
        sensitivity = sums.sensitivity(Unit.RECORD, adjacency, 1)
        bound = math.sqrt(sensitivity.squared({"gradient": 1.0}))
        assert (sensitivity.unit, sensitivity.adjacency) == (Unit.RECORD, adjacency)
        assert 0.998 * bound <= math.sqrt(squares(found)) <= bound
    assert sums.blocks[0].bound >= np.abs(one).max()


def test_the_rounds_share_what_the_release_leaves():
    """The sums of the plan have the budgets of release and rounds, 1 together, and the rounds' number."""
    release, rounds = METHOD.sums(DIMENSION, CLASSES, GRID.levels)
    assert (release.times, rounds.times) == (1, ROUNDS)
    assert release.budget + rounds.budget == 1
    assert [block.name for block in rounds.blocks] == ["gradient"]
    assert rounds.blocks[0].shape == (CLASSES, DIMENSION + 1)


@pytest.mark.parametrize("refine", [-2, MAX_ROUNDS + 1, 0.5])
def test_impossible_number_of_rounds_is_refused(refine):
    """Rounds are counted from 0 to 100, or left to the plan (-1)."""
    with pytest.raises(BadInput, match="refine"):
        method_named("fedcgs", {"refine": refine})


def test_too_many_features_to_broadcast_are_refused():
    """Beyond 1024 features the whitening would be too large a message, beyond 8 MiB the weights."""
    assert gradient_sum(1024, 1000, 1).blocks[0].shape == (1000, 1025)
    for dimension, classes in ((1025, 2), (1024, 1100)):
        with pytest.raises(BadInput, match=f"too many for d = {dimension} and C = {classes}"):
            method_named("fedcgs", {"refine": 1}).sums(dimension, classes, 1 << 16)


def test_noise_of_the_counts_keeps_its_multiplier():
    """σ of multiplied counts is told in multiplied counts."""
    noise = release_noise({**OPENED, "counts": OpenedNoise(6.0, 3)})
    assert (noise.counts, noise.count_multiplier) == (6.0, 3)


@pytest.mark.parametrize("records", [20, 40, 60])
def test_records_that_do_not_fill_their_features_are_refused(records: int) -> None:
    """Exact sums of fewer records than features, from which no weights follow, are refused with what to do instead."""
    labels = np.arange(records) % CLASSES
    features = np.random.default_rng(1).normal(size=(records, 64)) + 2 * np.eye(64)[labels]
    grid = replace(GRID, levels=1 << 16)
    sums = contribute(METHOD, Examples.of(quantise(features, grid), labels), CLASSES, grid.levels)
    with pytest.raises(BadInput, match=r"do not fill their features.*use refine 0.*or more records, or fewer features"):
        next_of(METHOD, sums, grid, None)


@pytest.mark.parametrize("noise", [None, OPENED])
def test_step_lowers_the_loss(noise):
    """From weights of zero, a round's step fits the records better, with and without noise known."""
    following = next_of(METHOD, contribute(METHOD, Examples.of(*data()), CLASSES, GRID.levels), GRID, noise)
    assert isinstance(following, RefinementRound)
    following = replace(following, weights=np.zeros_like(following.weights))
    records, labels = data()

    def loss(round_: RefinementRound) -> float:
        mapped = round_.place.whitening.apply(records) / GRADIENT_LEVELS
        scores = mapped @ (round_.weights / 2.0**16).T
        return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(labels)), labels]))

    after = next_of(following, {"gradient": gradient(following, records, labels)}, GRID, noise)
    assert isinstance(after, RefinementRound)
    assert loss(after) < loss(following)


FIXED = Fixed(64, 10, Unit.RECORD, epsilon=1.0, stays=True, clients=10, colluders=1, dropouts=0)


@pytest.mark.parametrize(
    ("changes", "rounds"),
    [
        ({}, USUAL_ROUNDS),
        ({"epsilon": 1000.0}, USUAL_ROUNDS),
        ({"dimension": 1024}, USUAL_ROUNDS),
        ({"epsilon": math.inf}, 0),
        ({"unit": Unit.CLIENT}, 0),
        ({"stays": False}, 0),
        ({"dimension": 1025}, 0),
        ({"dimension": 1024, "classes": 1100}, 0),
    ],
    ids=str,
)
def test_rounds_are_left_to_the_plan(changes, rounds):
    """Left open, there are rounds under noise about records where members stay and the broadcast fits, else none."""
    assert method_named("fedcgs", {"refine": AUTO}).resolve(replace(FIXED, **changes)).parameters["refine"] == rounds


def test_what_is_decided_stays():
    """A number that was given is kept, a head to be adapted has no rounds, and other methods have none to decide."""
    assert METHOD.resolve(FIXED) == METHOD
    gated = put_gate(method_named("fedcgs", {"refine": AUTO}), 2).resolve(FIXED)
    assert (gated.parameters["refine"], gated.traits.class_threshold) == (USUAL_ROUNDS, 2)
    assert method_named("fedcgs", {"refine": AUTO, "personalise": 1}).resolve(FIXED).parameters["refine"] == 0
    assert method_named("prototypes").resolve(FIXED) == method_named("prototypes")


def test_open_number_of_rounds_is_no_plan():
    """A method whose rounds are left open sums nothing: no plan can leave it open."""
    with pytest.raises(BadInput, match="left open"):
        method_named("fedcgs", {"refine": AUTO}).sums(DIMENSION, CLASSES, GRID.levels)


def test_records_are_whitened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rounds over the same examples whiten them once, with the sums of rounds that whiten by themselves."""
    whitened, apply = [], Whitening.apply
    monkeypatch.setattr(Whitening, "apply", lambda self, records: whitened.append(1) or apply(self, records))
    examples = Examples.of(*data())
    stages = [first_round(), second_round()]
    whitened.clear()
    kept = [contribute(stage, examples, CLASSES, GRID.levels)["gradient"] for stage in stages]
    assert len(whitened) == 1
    fresh = [contribute(stage, Examples.of(*data()), CLASSES, GRID.levels)["gradient"] for stage in stages]
    assert len(whitened) == 3
    assert all((one == other).all() for one, other in zip(kept, fresh, strict=True))
    moved = replace(first_round().place.whitening, centre=first_round().place.whitening.centre + 1)
    assert (examples.once(moved.map).values == moved.map(examples.records).values).all()
