"""Federated averaging: what members send in either mode, and where it leads, against an implementation in numpy."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from methods import method_named
from methods.round import Examples, Local, OpenedTotal
from methods.training.client_update import GRADIENT, UPDATE, WEIGHT_LEVELS, ProgramUpdate, RecordGradients
from methods.training.training_round import MODEL
from secagg.errors import BadInput
from secagg.networks import TrainedModel
from secagg.privacy import Adjacency, OpenedNoise, Unit
from tests.methods.training import (
    CLASSES,
    DIMENSION,
    FINE,
    GRID,
    first_round,
    next_round,
    part,
    seeded,
    some_examples,
    square,
    stepped,
    summed,
)

MEMBERS = [some_examples(count, seed) for seed, count in enumerate((3, 8, 0, 20))]
ANY = st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True)


def inputs_of(examples: Examples) -> np.ndarray:
    """Records in units of a record's length, √d of them long, and a 1: (n, d + 1)."""
    records = examples.records * (math.sqrt(DIMENSION) / GRID.unit(DIMENSION))
    return np.column_stack([records, np.ones(len(records))])


def gradients_of(weights: np.ndarray, x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Each record's gradient of softmax regression (n, C, d + 1)."""
    scores = np.exp(x @ weights.T)
    residuals = scores / scores.sum(axis=1, keepdims=True) - np.eye(CLASSES)[labels]
    return residuals[:, :, None] * x[:, None, :]


def trained(start: np.ndarray, examples: Examples, order_from: tuple[int, int], chosen: dict[str, float]) -> np.ndarray:
    """SGD with FedProx's term from `start`, batches in the order of the member's draws."""
    x, weights, source = inputs_of(examples), start.copy(), seeded(*order_from)
    for _ in range(int(chosen.get("epochs", 1)) if len(x) else 0):
        order = np.argsort(np.frombuffer(source.bytes(8 * len(x)), "<u8"), kind="stable")
        for begin in range(0, len(x), 4):
            batch = order[begin : begin + 4]
            gradient = gradients_of(weights, x[batch], examples.labels[batch]).mean(axis=0)
            weights = weights - FINE["rate"] * (gradient + chosen.get("proximal", 0.0) * (weights - start))
    return weights


def shortened(vector: np.ndarray, clip: float) -> np.ndarray:
    """No longer than the clip."""
    return vector * min(1.0, clip / max(float(np.linalg.norm(vector)), 1e-300))


def flat(weights: np.ndarray) -> np.ndarray:
    """Weights row by row, then biases, as the program has them."""
    return np.concatenate([weights[:, :-1].ravel(), weights[:, -1]])


def server(name: str, rate: float, means: list[np.ndarray]) -> np.ndarray:
    """How far the server has moved after these mean updates."""
    moved, velocity = np.zeros_like(means[0]), np.zeros_like(means[0])
    squares = np.full_like(means[0], 1e-6)
    for mean in means:
        if name == "average":
            moved = moved + rate * mean
        elif name == "momentum":
            velocity = 0.9 * velocity + mean
            moved = moved + rate * velocity
        else:
            velocity = 0.9 * velocity + 0.1 * mean
            squares = 0.99 * squares + 0.01 * mean**2
            moved = moved + rate * velocity / (np.sqrt(squares) + 1e-3)
    return moved


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"epochs": 3},
        {"epochs": 4, "proximal": 0.5},
        {"clip": 0.3},
        {"cap": 10},
        {"cap": 10, "clip": 0.3},
        {"server": "momentum", "server_rate": 0.5},
        {"server": "adam", "server_rate": 0.05},
    ],
    ids=str,
)
def test_updates_move_the_state_as_federated_averaging_does(chosen: dict[str, float | str]) -> None:
    """Without noise every round's state is that of McMahan et al., Li et al. and Reddi et al., written down again."""
    own = {**FINE, "server": "average", "server_rate": 1.0, "cap": 0, **chosen}
    round_, weights, means = first_round(**chosen), np.zeros((CLASSES, DIMENSION + 1)), []
    for number in (1, 2):
        updates, counts = [], []
        for member, examples in enumerate(MEMBERS):
            update = trained(weights, examples, (number, member), chosen) - weights  # type: ignore[arg-type]
            counts.append(min(len(examples), own["cap"]) / own["cap"] if own["cap"] else 1.0)
            levels = math.floor(counts[-1] * WEIGHT_LEVELS) / WEIGHT_LEVELS
            updates.append(levels * shortened(update, own["clip"]))
        means.append(np.sum(updates, axis=0) / sum(math.floor(each * WEIGHT_LEVELS) / WEIGHT_LEVELS for each in counts))
        round_, weights = next_round(round_, MEMBERS), server(own["server"], own["server_rate"], means)
        size = np.abs(weights).max()
        assert size > 0.01
        assert np.abs(round_.state.groups[MODEL] - flat(weights)).max() < 1e-3 * size


@pytest.mark.parametrize("clip", [50.0, 1.0])
def test_gradients_move_the_state_as_clipped_descent_does(clip: float) -> None:
    """With `gradients` each round is a step against the mean of all records' clipped gradients."""
    round_, weights = first_round(gradients=1, clip=clip), np.zeros((CLASSES, DIMENSION + 1))
    x = np.concatenate([inputs_of(own) for own in MEMBERS])
    labels = np.concatenate([own.labels for own in MEMBERS])
    for _ in (1, 2):
        gradients = [shortened(each, clip) for each in gradients_of(weights, x, labels)]
        weights = weights - FINE["rate"] * np.mean(gradients, axis=0)
        round_ = next_round(round_, MEMBERS)
        assert np.abs(round_.state.groups[MODEL] - flat(weights)).max() < 1e-4 * np.abs(weights).max()


@pytest.mark.parametrize("gradients", [0, 1])
def test_rounds_end_with_the_model_at_the_state(gradients: int) -> None:
    """As many rounds as the plan says; the last gives a model that scores records as the state does √d times them."""
    round_ = first_round(model="mlp:4", gradients=gradients)
    for _ in range(2):
        assert stepped(round_, MEMBERS).artifact is None
        round_ = next_round(round_, MEMBERS)
    blocks = summed([part(round_, own, member) for member, own in enumerate(MEMBERS)])
    opened = OpenedTotal(blocks, GRID, clients=len(MEMBERS))
    step = round_.finalize(opened)
    assert step.next_round is None
    assert isinstance(step.artifact, TrainedModel)
    last = round_.server.apply(round_.state, round_.work.mean(opened)).groups[MODEL]
    hidden, bias, output, end = np.split(last, np.cumsum([4 * DIMENSION, 4, 4 * CLASSES]))
    records = MEMBERS[3].records / GRID.unit(DIMENSION)
    inside = np.maximum(math.sqrt(DIMENSION) * records @ hidden.reshape(4, -1).T + bias, 0)
    assert np.allclose(step.artifact.scores(records), inside @ output.reshape(CLASSES, -1).T + end, atol=1e-5)


@pytest.mark.parametrize(("cap", "weight"), [(0, None), (5, 0)])
def test_a_member_without_records_sends_zeros(cap: int, weight: int | None) -> None:
    """It is never absent: its update is zero; it counts like the others, or, where weights are summed, for nothing."""
    blocks = part(first_round(cap=cap), some_examples(0)).blocks
    assert not blocks["update"].any()
    assert blocks.get("weight", [None])[0] == weight
    blocks = part(first_round(gradients=1), some_examples(0)).blocks
    assert [int(np.abs(block).sum()) for block in blocks.values()] == [0, 0]


def test_records_beyond_the_cap_weigh_no_more() -> None:
    """A weight is min(n, cap)/cap of a full one."""
    weights = [int(part(first_round(cap=8), some_examples(count)).blocks["weight"][0]) for count in (1, 4, 8, 20)]
    assert weights == [WEIGHT_LEVELS // 8, WEIGHT_LEVELS // 2, WEIGHT_LEVELS, WEIGHT_LEVELS]


@pytest.mark.parametrize(("chosen", "sent"), [({"cap": 8}, "weight"), ({"gradients": 1}, "count")])
@pytest.mark.parametrize("number", [-3000, 0, 20])
def test_noise_in_place_of_a_number_does_not_blow_the_step_up(chosen: dict[str, float], sent: str, number: int) -> None:
    """Where noise leaves a number below its σ, or below 0, the mean is taken over σ: no step is longer for it."""
    round_ = first_round(**chosen)
    blocks = {**part(round_, some_examples(20)).blocks, sent: np.array([3 * number])}
    noise = {name: OpenedNoise(60.0, 3 if name == sent else 1) for name in blocks}
    moved = round_.work.mean(OpenedTotal(blocks, GRID, noise, clients=4))
    at_sigma = round_.work.mean(OpenedTotal({**blocks, sent: np.array([60])}, GRID, noise, clients=4))
    assert np.array_equal(moved, at_sigma)
    exact = round_.work.mean(OpenedTotal({**blocks, sent: np.array([20])}, GRID, clients=4))
    assert np.allclose(exact, moved)
    assert np.isfinite(round_.work.mean(OpenedTotal({**blocks, sent: np.array([0])}, GRID, clients=4))).all()


@pytest.mark.parametrize("gradients", [0, 1])
def test_training_that_leaves_the_numbers_sends_zeros(gradients: int) -> None:
    """Where training gives NaN a member sends zeros, fails by no error, and counts as before."""
    round_ = first_round(model="mlp:4", rate=1e30, epochs=5, gradients=gradients, clip=1e30)
    if gradients:
        state = round_.state.with_flat(np.full(round_.program.size, 3e38))
        round_ = type(round_)(**{**vars(round_), "state": state})
    blocks = part(round_, some_examples(20)).blocks
    assert not blocks["gradient" if gradients else "update"].any()
    assert blocks.get("count", [20])[0] == 20
    assert next_round(round_, [some_examples(20)]).number == 2


def test_step_beyond_the_numbers_is_refused_for_all() -> None:
    """Where the public step itself leaves float32, it says so: the same for everybody."""
    round_ = first_round(rate=1e30, clip=1e30, server_rate=1e30)
    with pytest.raises(BadInput, match="leaves the numbers that a program computes with; take a lower rate"):
        stepped(round_, [some_examples(20)])


@pytest.mark.parametrize("model", ["softmax", "mlp:20"])
@pytest.mark.parametrize("clip", [1e-30, 1.0, 1e30])
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_update_is_longer_than_stated(model: str, clip: float, data: st.DataObject) -> None:
    """Whatever training gave, the integers lie within the length and the entries that are declared."""
    round_ = first_round(model=model, clip=clip)
    work = round_.work
    assert isinstance(work, ProgramUpdate)
    update = data.draw(arrays(np.float64, work.encoding.size, elements=ANY, fill=ANY))
    integers = work.encoding.encode(update, seeded(0)).integers
    (spec,) = method_named("fedavg", {**FINE, "model": model, "clip": clip}).sums(DIMENSION, CLASSES, GRID.levels)
    stated = spec.sensitivity(Unit.CLIENT, Adjacency.ADD_REMOVE, 1).squared({"update": 1.0})
    assert square({"update": integers}, "update") <= stated
    assert int(np.abs(integers).max()) <= spec.blocks[0].bound


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 12), st.integers(0, 99), st.sampled_from([1e-30, 0.1, 10.0, 1e30]), st.sampled_from([0, 1, 7]))
def test_no_member_sends_more_than_stated(count: int, seed: int, rate: float, cap: int) -> None:
    """Whatever records and rates: everything that leaves is inside the lengths of its blocks."""
    round_ = first_round(rate=rate, cap=cap, epochs=2, clip=0.5)
    blocks = part(round_, some_examples(count, seed), seed).blocks
    (spec,) = method_named("fedavg", {**FINE, "cap": cap, "clip": 0.5}).sums(DIMENSION, CLASSES, GRID.levels)
    assert [(block.name, block.size) for block in spec.blocks] == [(name, len(own)) for name, own in blocks.items()]
    moved = spec.sensitivity(Unit.CLIENT, Adjacency.ADD_REMOVE, 1)
    for block in moved.blocks:
        assert square(blocks, block.name) <= block.l2**2


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), st.integers(0, 14), st.sampled_from(["softmax", "mlp:3"]), st.data())
def test_gradients_of_records_add_up_bit_for_bit(seed: int, count: int, model: str, data: st.DataObject) -> None:
    """Divided among members in any way and any order, records give the same sum: each adds what it adds alone."""
    round_ = first_round(model=model, gradients=1, clip=0.7)
    examples = some_examples(count, seed)
    order = np.array(data.draw(st.permutations(range(count))), dtype=np.int64)
    cut = data.draw(st.integers(0, count))
    whole = part(round_, examples).blocks
    halves = summed([part(round_, examples.take(order[:cut])), part(round_, examples.take(order[cut:]))])
    singles = summed([part(round_, some_examples(0)), *(part(round_, examples.take(order[[i]])) for i in range(count))])
    for name, total in whole.items():
        assert np.array_equal(total, halves[name])
        assert np.array_equal(total, singles[name])


@settings(max_examples=40, deadline=None)
@given(
    arrays(np.int64, (2, DIMENSION), elements=st.integers(-GRID.levels, GRID.levels)),
    st.sampled_from([1e-30, 1e-3, 1.0, 1e30]),
    st.sampled_from([0.0, 1e-38, 1.0, 1e20, 3e38]),
)
def test_no_record_moves_the_gradients_further_than_stated(records: np.ndarray, clip: float, scale: float) -> None:
    """Whatever record, state and clip: a gradient's integers are no longer than the units, and its number is 1."""
    round_ = first_round(model="mlp:3", gradients=1, clip=clip)
    start = np.random.default_rng(1).uniform(-scale, scale, round_.program.size)
    round_ = type(round_)(**{**vars(round_), "state": round_.state.with_flat(start)})
    work = round_.work
    assert isinstance(work, RecordGradients)
    for row in (0, 1):
        blocks = part(round_, Examples.of(records[[row]], np.array([row]))).blocks
        assert square(blocks, "gradient") <= work.units**2
        assert blocks["count"].tolist() == [1]


class Failing:
    """A program that cannot compute the loss of a record of nothing but zeros."""

    def __init__(self, program: Any) -> None:
        self.program = program

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def loss(self, leaves: Any, x: Any, labels: Any) -> Any:
        """That of the program."""
        if bool((x == 0).all(axis=1).any()):
            raise RuntimeError
        return self.program.loss(leaves, x, labels)


@pytest.mark.parametrize("gradients", [0, 1])
def test_member_with_a_record_that_fails_takes_part_under_noise(gradients: int) -> None:
    """Under noise what it sends is that of its other records, and their number in full; an exact sum refuses it."""
    round_ = first_round(gradients=gradients, clip=5.0)
    work = replace(round_.work, program=Failing(round_.work.program))
    start, some = round_.state.groups[MODEL], some_examples(4)
    bad = Examples.of(np.zeros((1, DIMENSION), dtype=np.int64), np.array([0]))

    def sent(examples: Examples, *, has_noise: bool) -> Any:
        local = Local(examples, CLASSES, GRID, randomness=seeded(0), has_noise=has_noise)
        return work.contribute(start, local).blocks[GRADIENT if gradients else UPDATE]

    labels = np.concatenate([some.labels, bad.labels])
    both = Examples.of(np.concatenate([some.records, bad.records]), labels)
    assert sent(some, has_noise=True).any()
    assert sent(both, has_noise=True).any()
    assert gradients == 0 or np.array_equal(sent(both, has_noise=True), sent(some, has_noise=True))
    with pytest.raises(BadInput, match="fails on a record"):
        sent(both, has_noise=False)


def test_declared_promises_are_of_members_or_of_records() -> None:
    """Updates promise something of a member, twice as much moves where it is exchanged; gradients of a record."""
    (update,), (gradient,) = (
        method_named("fedavg", {**FINE, "cap": 5, "gradients": mode}).sums(DIMENSION, CLASSES, GRID.levels)
        for mode in (0, 1)
    )
    assert (update.per, update.is_additive, update.times) == (Unit.CLIENT, False, 3)
    assert (gradient.per, gradient.is_additive, gradient.times) == (Unit.RECORD, True, 3)
    gone, other = (update.sensitivity(Unit.CLIENT, each, 1) for each in Adjacency)
    assert [block.l2 for block in gone.blocks][1] == WEIGHT_LEVELS
    for name in ("update", "weight"):
        weights = dict.fromkeys(("update", "weight"), 1e-30) | {name: 1.0}
        assert other.squared(weights) == pytest.approx(4 * gone.squared(weights))
    record = gradient.sensitivity(Unit.RECORD, Adjacency.ADD_REMOVE, 1)
    assert [block.l2 for block in record.blocks] == [gradient.blocks[0].bound, 1.0]
    one = update.sensitivity(Unit.RECORD, Adjacency.ADD_REMOVE, 1)
    assert one.squared({"update": 1.0, "weight": 1e-30}) == pytest.approx(
        other.squared({"update": 1.0, "weight": 1e-30})
    )


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"rounds": 0}, "rounds is 0; give 1 to 10000"),
        ({"rounds": 10_001}, "rounds is 10001; give 1 to 10000"),
        ({"epochs": 0}, "0 epochs"),
        ({"batch": 0}, "batches of 0"),
        ({"batch": 1 << 70}, "give 1 to 1000000"),
        ({"rate": 0.0}, "rate is 0.0"),
        ({"rate": math.nan}, "rate is nan"),
        ({"rate": 1e300}, "rate is 1e[+]300; give 1e-30 to 1e[+]30"),
        ({"clip": 0.0}, "clip is 0.0"),
        ({"clip": math.inf}, "clip is inf"),
        ({"clip": 1e-320}, "clip is 1e-320"),
        ({"clip": math.nan}, "clip is nan"),
        ({"server_rate": -1.0}, "server_rate is -1.0"),
        ({"proximal": -1.0}, "proximal is -1.0"),
        ({"proximal": 1e300}, "proximal is 1e[+]300"),
        ({"proximal": math.nan}, "proximal is nan"),
        ({"cap": -1}, "cap is -1"),
        ({"cap": 1_000_001}, "cap is 1000001"),
        ({"gradients": 2}, "gradients is 2"),
        ({"gradients": True}, "gradients"),
        ({"server": "sgd"}, "give average or momentum or adam"),
        ({"rounds": 1.5}, "its default is 20"),
        ({"speed": 5}, "no parameter 'speed'"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(parameters: dict[str, float | str], words: str) -> None:
    """A parameter outside its bounds is refused before any plan, named."""
    with pytest.raises(BadInput, match=words):
        method_named("fedavg", parameters)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"model": "mlp"}, "no program 'mlp'"),
        ({"model": "mlp:0"}, "no program"),
        ({"model": "cnn"}, "6 numbers are none"),
    ],
    ids=str,
)
def test_a_model_that_does_not_fit_is_refused(parameters: dict[str, float | str], words: str) -> None:
    """A program that there is not, or that takes other records, gives no plan."""
    method = method_named("fedavg", parameters)
    with pytest.raises(BadInput, match=words):
        method.sums(DIMENSION, CLASSES, GRID.levels)


@pytest.mark.parametrize(("units", "server"), [(200_000, "average"), (70_000, "adam")])
def test_a_state_that_is_too_large_is_refused(units: int, server: str) -> None:
    """The parameters and the server's moments together have a bound."""
    method = method_named("fedavg", {"model": f"mlp:{units}", "server": server})
    with pytest.raises(BadInput, match="bytes; choose a smaller model"):
        method.sums(1000, CLASSES, GRID.levels)


def test_parameters_make_the_method_again() -> None:
    """The plan's words say everything."""
    method = method_named("fedavg", {**FINE, "model": "mlp:5", "cap": 3, "server": "adam"})
    assert method_named("fedavg", method.parameters) == method
