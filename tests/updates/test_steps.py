"""The public state and the server's steps."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import save

from secagg.encoding.updates import State
from secagg.encoding.updates.steps import SERVER_STEPS, Adam, Average, Momentum
from secagg.errors import BadInput
from tests.vectors.files import load

VECTORS = load("updates")["steps"]
UPDATES = [np.array([float.fromhex(x) for x in update]) for update in VECTORS["updates"]]
SHAPES = {"bias": (2,), "weight": (3, 2)}
finite = st.floats(allow_nan=False, allow_infinity=False)
shapes = st.sampled_from([(), (1,), (0,), (5,), (3, 2), (2, 0, 1)])
names_of = st.sampled_from(["", "a", "b.weight", "B", "é", "group.a"])
groups_of = st.dictionaries(names_of, arrays(np.float64, shapes, elements=finite), max_size=4)


def small_state(step: int = 3) -> State:
    """Two groups and a moment."""
    groups = {"weight": np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), "bias": np.array([0.5, -1.25])}
    return State(groups, {"velocity": np.zeros(8)}, step)


def zero_state(size: int) -> State:
    """One group of zeros, no moments."""
    return State({"x": np.zeros(size)}, {}, 0)


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_steps_are_the_reference_s(case):
    """Six steps give the bits of Python's own floats, entry by entry, and torch's optimisers up to rounding."""
    rule = SERVER_STEPS[case["name"]](**case["settings"])
    state = zero_state(6)
    for update in UPDATES:
        state = rule.apply(state, update)
    assert [x.hex() for x in state.flat.tolist()] == case["exact"]
    assert np.allclose(state.flat, case["torch"], rtol=1e-12, atol=0)
    assert state.step == len(UPDATES)


@pytest.mark.parametrize("rule", [make() for make in SERVER_STEPS.values()], ids=SERVER_STEPS)
def test_a_run_goes_on_from_a_file(rule):
    """A state that was written and read after each step ends in the same state to the bit."""
    kept = read = zero_state(6)
    for update in UPDATES:
        kept, read = rule.apply(kept, update), rule.apply(read, update)
        read = State.from_bytes(read.to_bytes(), {"x": (6,)})
    assert read.digest == kept.digest


def test_averaging_with_rate_one_adds_the_mean():
    """Federated averaging moves every group by its part of the mean update, groups by sorted names, row by row."""
    moved = Average().apply(State(small_state().groups, {}, 0), np.arange(8.0))
    assert moved.groups["bias"].tolist() == [0.5, -0.25]
    assert moved.groups["weight"].tolist() == [[3.0, 5.0], [7.0, 9.0], [11.0, 13.0]]


@given(groups_of)
def test_flat_and_back(groups):
    """The flat vector put back gives the same state, and it holds each entry once."""
    state = State(groups, {}, 0)
    assert state.flat.shape == (state.size,)
    assert state.with_flat(state.flat).digest == state.digest
    assert [*state.groups] == sorted(groups)
    assert all(state.groups[name].shape == tensor.shape for name, tensor in groups.items())


@given(groups_of, st.integers(0, 2**32 - 1), st.sets(names_of, max_size=2))
def test_files_give_the_state_back(groups, step, names):
    """What is written is read again, to the bit."""
    size = sum(tensor.size for tensor in groups.values())
    state = State(groups, {name: np.arange(size) / 3.0 for name in names}, step)
    read = State.from_bytes(state.to_bytes(), {name: tensor.shape for name, tensor in groups.items()})
    assert read.digest == state.digest
    assert (read.step, set(read.moments)) == (step, names)


def test_digest_is_the_reference_s():
    """The digest is SHA-256 over the stated bytes, whatever the order in which groups are given."""
    assert small_state().digest.hex() == VECTORS["digest"]
    assert [*small_state().groups] == ["bias", "weight"]


@pytest.mark.parametrize(
    ("groups", "moments", "step"),
    [
        ({"a": np.zeros(2)}, {}, 1),
        ({"b": np.zeros(2)}, {}, 0),
        ({"a": np.array([0.0, -0.0])}, {}, 0),
        ({"a": np.zeros((2, 1))}, {}, 0),
        ({"a": np.zeros(2)}, {"m": np.zeros(2)}, 0),
        ({"a": np.zeros(1), "b": np.zeros(1)}, {}, 0),
    ],
    ids=["step", "name", "value", "shape", "moment", "group"],
)
def test_digest_tells_states_apart(groups, moments, step):
    """Another step, name, bit, shape, moment or division into groups gives another digest."""
    assert State(groups, moments, step).digest != State({"a": np.zeros(2)}, {}, 0).digest


def test_digest_tells_groups_from_moments():
    """A tensor counts as group or as moment."""
    one, two = {"a": np.zeros(0)}, {"b": np.zeros(0)}
    assert State(one | two, {}, 0).digest != State(one, two, 0).digest


def test_a_state_cannot_be_written_into():
    """Tensors of a state are read-only copies, and a step leaves the state before it as it was."""
    own = np.zeros(2)
    state = State({"x": own}, {}, 0).with_flat(own)
    own[0] = 1.0
    assert not state.flat.any()
    with pytest.raises(ValueError, match="read-only"):
        state.groups["x"][0] = 1.0
    Adam().apply(state, np.ones(2))
    assert not state.flat.any()
    assert not state.moments


@pytest.mark.parametrize("rule", [Average(), Momentum(), Adam()], ids=SERVER_STEPS)
@pytest.mark.parametrize(
    "update",
    [np.array([0.0, math.nan]), np.array([0.0, -math.inf]), np.zeros(3), np.zeros((2, 1)), np.zeros(2, np.float32)],
    ids=["nan", "infinite", "longer", "column", "float32"],
)
def test_other_mean_updates_are_refused(rule, update):
    """A mean update is finite float64 of the state's size."""
    with pytest.raises(BadInput):
        rule.apply(zero_state(2), update)


def test_results_that_are_not_finite_are_refused():
    """A step that overflows raises, it does not give a state with infinite entries."""
    for rule in (Average(10.0), Momentum(10.0), Adam()):
        with pytest.raises(BadInput):
            rule.apply(zero_state(2), np.array([1e308, 1e308]))


@pytest.mark.parametrize("rule", [Average(), Adam()])
def test_moments_of_another_step_are_refused(rule):
    """A state goes on with the rule whose moments it has."""
    state = Momentum().apply(zero_state(2), np.ones(2))
    with pytest.raises(BadInput, match="velocity"):
        rule.apply(state, np.ones(2))


@pytest.mark.parametrize(
    "make",
    [lambda: Average(0.0), lambda: Average(math.nan), lambda: Momentum(beta=1.0), lambda: Momentum(beta=-0.1),
     lambda: Momentum(math.inf), lambda: Adam(tau=0.0), lambda: Adam(beta1=1.0), lambda: Adam(beta2=math.nan)],
)  # fmt: skip
def test_impossible_steps_are_refused(make):
    """Rates and tau are positive, betas below one."""
    with pytest.raises(BadInput):
        make()


@pytest.mark.parametrize(
    ("groups", "moments", "step"),
    [
        ({"a": np.zeros(2, np.float32)}, {}, 0),
        ({"a": np.array([math.nan])}, {}, 0),
        ({"a": np.zeros(2)}, {"m": np.array([0.0, math.inf])}, 0),
        ({"a": np.zeros(2)}, {"m": np.zeros((2, 1))}, 0),
        ({"a": np.zeros(2)}, {"m": np.zeros(3)}, 0),
        ({"a": np.zeros(2)}, {}, -1),
        ({"a": np.zeros(2)}, {}, 2**32),
    ],
)
def test_impossible_states_are_refused(groups, moments, step):
    """A state is finite float64, with moments of its own size and a step of 32 bits."""
    with pytest.raises(BadInput):
        State(groups, moments, step)


GOOD = {"group.bias": np.zeros(2), "group.weight": np.zeros((3, 2))}
META = {"step": "3"}


def test_a_good_file_is_read():
    """What the failing files below are made from is read."""
    assert State.from_bytes(save(GOOD, META), SHAPES).step == 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 40,
        save(GOOD, META)[:-1],
        save(GOOD, META) + b"\0",
        save(GOOD),
        save(GOOD, {}),
        save(GOOD, {"step": "03"}),
        save(GOOD, {"step": "-1"}),
        save(GOOD, {"step": "three"}),
        save(GOOD, {"step": str(2**32)}),
        save(GOOD, {"step": "3", "more": ""}),
        save({"group.bias": np.zeros(2)}, META),
        save(GOOD | {"group.more": np.zeros(2)}, META),
        save(GOOD | {"more": np.zeros(2)}, META),
        save(GOOD | {"group.weight": np.zeros((2, 3))}, META),
        save(GOOD | {"group.bias": np.zeros(2, np.float32)}, META),
        save(GOOD | {"group.bias": np.array([0.0, math.nan])}, META),
        save(GOOD | {"moment.m": np.zeros(7)}, META),
    ],
    ids=["empty", "zeros", "cut", "longer", "no_metadata", "no_step", "leading_zero", "negative", "word", "large_step",
         "more_metadata", "missing", "more", "no_prefix", "transposed", "float32", "nan", "short_moment"],
)  # fmt: skip
def test_other_files_are_refused(content):
    """Another file than a state of these groups raises BadInput."""
    with pytest.raises(BadInput):
        State.from_bytes(content, SHAPES)
