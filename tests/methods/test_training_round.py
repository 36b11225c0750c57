"""The chain of rounds that moves a public state: the same for everybody, told in one way, and refused in any other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from methods import method_named
from methods.round import OpenedTotal
from methods.training.training_round import MAX_STATE_BYTES, MODEL, STATE_NAMES, ModelState, TrainingRound, require_room
from secagg.data import open_dataset
from secagg.encoding.updates import State
from secagg.encoding.updates.steps import SERVER_STEPS, Adam, Average
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.wire import decode, encode
from tests.methods.training import CLASSES, DIMENSION, GRID, first_round, next_round, part, some_examples, stepped

PROTECTIONS = ("none", "masked", "shared", "encrypted")
NOISE = {"epsilon": 8.0, "delta": 1e-5, "adjacency": "add-remove"}
MEMBERS = (some_examples(10, 1), some_examples(7, 2))


@cache
def rounds(**parameters: str) -> tuple[TrainingRound, TrainingRound, TrainingRound]:
    """The three rounds over two members."""
    first = first_round(**parameters)
    second = next_round(first, MEMBERS)
    return first, second, next_round(second, MEMBERS)


@pytest.fixture
def digests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The digests of all states that the server's rounds arrive at."""
    found: list[str] = []
    finalize = TrainingRound.finalize

    def noted(self: TrainingRound, opened: OpenedTotal) -> object:
        step = finalize(self, opened)
        if isinstance(step.next_round, TrainingRound):
            found.append(step.next_round.state.digest.hex())
        return step

    monkeypatch.setattr(TrainingRound, "finalize", noted)
    return found


@pytest.mark.parametrize(
    ("parameters", "given"),
    [
        ("rounds=3 rate=0.5 clip=10", {}),
        ("rounds=3 rate=0.5 clip=10 cap=200 server=adam server_rate=0.05", {}),
        ("rounds=3 rate=1 clip=4 gradients=1", {}),
        ("rounds=3 rate=0.5 clip=10", {**NOISE, "unit": "client"}),
        ("rounds=3 rate=1 clip=4 gradients=1", NOISE),
    ],
    ids=["updates", "weighted, adam", "gradients", "updates, noise", "gradients, noise"],
)
def test_state_is_the_same_under_every_protection(
    digests: list[str], parameters: str, given: dict[str, object]
) -> None:
    """After every round, and in the model: under all protections the bits are the same where members draw the same.

    With noise too under those that hide vectors: a member adds its share where it contributes. In the clear a member's
    own noise must do, so there is more of it.
    """
    ended = []
    protections = PROTECTIONS[1:] if "epsilon" in given else PROTECTIONS
    for protection in protections:
        chosen = SimulationSettings(
            method="fedavg", parameters=parameters, protection=protection, noise_seed=5, reference=False, **given
        )
        digests.clear()
        said = simulate_dataset(open_dataset("wine"), chosen).to_json()
        ended.append((*digests, said["aggregate_sha256"], said["head_sha256"]))
    assert {len(each) for each in ended} == {4}
    assert len(set(ended)) == 1


@pytest.mark.parametrize("server", SERVER_STEPS)
@pytest.mark.parametrize("gradients", [0, 1])
def test_broadcast_opens_the_same_round(server: str, gradients: int) -> None:
    """What a member reads from the broadcasts is the server's round: the same state, contribution and next state."""
    own = rounds(server=server, gradients=gradients)
    told = own[0]
    for expected in own[1:]:
        found = told.decode_broadcast(expected.broadcast(), GRID)
        assert isinstance(found, TrainingRound)
        expected.require_equal(found)
        assert found.broadcast() == expected.broadcast()
        one, other = (part(each, MEMBERS[0]).blocks for each in (found, expected))
        assert all(np.array_equal(one[name], other[name]) for name in one)
        told = found
    ends = [stepped(each, MEMBERS).artifact for each in (told, own[-1])]
    assert ends[0] is not None
    assert ends[1] is not None
    assert ends[0].digest == ends[1].digest


def told(round_: TrainingRound, number: int | None = None, **changes: object) -> bytes:
    """A round's broadcast under another number, or with another state."""
    state = replace(round_.state, **changes) if changes else round_.state
    return encode(ModelState(number or round_.number, state.to_bytes()))


def other_values(round_: TrainingRound, value: float) -> bytes:
    """A round's broadcast whose last parameter is another, NaN say, in a file that is else the same."""
    content = decode(ModelState, round_.broadcast())
    return encode(replace(content, state=content.state[:-8] + np.array([value], "<f8").tobytes()))


def resized(round_: TrainingRound, size: int) -> bytes:
    """A round's broadcast of another size."""
    return told(round_, groups={MODEL: np.zeros(size)}, moments={})


@pytest.mark.parametrize(
    "damage",
    [
        lambda round_: b"",
        lambda round_: round_.broadcast()[:-1],
        lambda round_: round_.broadcast()[: len(round_.broadcast()) // 2],
        lambda round_: round_.broadcast() + b"\x00",
        lambda round_: round_.broadcast() * 2,
        lambda round_: b"\xff" * 100,
        lambda round_: encode(ModelState(round_.number, round_.state.to_bytes()[:-1])),
        lambda round_: encode(ModelState(round_.number, round_.state.to_bytes() + b"\x00")),
        lambda round_: encode(ModelState(round_.number, bytes(64))),
        lambda round_: other_values(round_, math.nan),
        lambda round_: other_values(round_, -math.inf),
        lambda round_: other_values(round_, 1e39),
        lambda round_: resized(round_, round_.program.size - 1),
        lambda round_: resized(round_, round_.program.size + 1),
        lambda round_: told(round_, groups={MODEL: np.zeros((round_.program.size, 1))}),
        lambda round_: told(round_, groups={"other": np.zeros(round_.program.size)}),
        lambda round_: told(round_, groups={MODEL: np.zeros(round_.program.size), "more": np.zeros(1)}, moments={}),
    ],
    ids=[
        "empty",
        "one byte short",
        "half",
        "one byte more",
        "twice",
        "garbage",
        "short state",
        "long state",
        "no state",
        "NaN",
        "infinite",
        "beyond float32",
        "smaller",
        "larger",
        "another shape",
        "another name",
        "one group more",
    ],
)
def test_malformed_state_is_refused(damage: Callable[[TrainingRound], bytes]) -> None:
    """What is not a finite state of the program's size, in one message, opens no round."""
    first, second, _ = rounds()
    with pytest.raises(MalformedMessage):
        first.decode_broadcast(damage(second), GRID)


@pytest.mark.parametrize("server", ["average", "adam"])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda _, third: third.broadcast(), "announces round 3 after round 1"),
        (lambda second, _: told(second, 9_999), "announces round 9999 after round 1"),
        (lambda second, _: told(second, step=0), "announces a state after 0 steps"),
        (lambda second, _: told(second, step=2), "announces a state after 2 steps"),
        (lambda _, third: told(third, 2), "announces a state after 2 steps"),
        (lambda second, _: told(second, moments={"velocity": np.zeros(second.program.size)}), "moments velocity"),
        (lambda second, _: told(second, moments={"mean": np.zeros(second.program.size)}), "moments mean"),
    ],
    ids=["later", "far", "step back", "step ahead", "later state", "other moments", "missing moment"],
)
def test_state_of_another_round_or_server_is_refused(server: str, make: Callable[..., bytes], words: str) -> None:
    """Number, step and moments are those that the plan has after so many rounds."""
    first, second, third = rounds(server=server)
    with pytest.raises(ProtocolViolation, match=f"party 0: .*{words}"):
        first.decode_broadcast(make(second, third), GRID)


def test_rounds_end() -> None:
    """The last round opens no other, and the first is not told."""
    first, _, third = rounds()
    with pytest.raises(ProtocolViolation, match="announces round 4 after round 3"):
        third.decode_broadcast(told(third, 4, step=3), GRID)
    with pytest.raises(MalformedMessage):
        encode(ModelState(first.number, first.state.to_bytes()))


@pytest.mark.parametrize("server", ["average", "adam"])
def test_other_bits_do_not_follow(server: str) -> None:
    """A state that differs in the last bit of one entry, parameter or moment, is the server's breach."""
    first, second, third = rounds(server=server)
    assert second.state.digest != third.state.digest
    flat = second.state.flat
    flat[3] = np.nextafter(flat[3], 1.0)
    lies = [told(second, groups={MODEL: flat})]
    for name, moment in second.state.moments.items():
        moved = moment.copy()
        moved[0] = np.nextafter(moved[0], 1.0)
        lies.append(told(second, moments={**second.state.moments, name: moved}))
    assert len(lies) == 1 + len(second.server.moments)
    for lie in lies:
        with pytest.raises(ProtocolViolation, match="party 0: the state it broadcasts does not follow"):
            second.require_equal(first.decode_broadcast(lie, GRID))
    for one, other in pairwise((first, second, third)):
        with pytest.raises(ProtocolViolation, match="does not follow"):
            one.require_equal(other)


def test_another_method_is_no_state() -> None:
    """A round of another method is not this one."""
    with pytest.raises(ProtocolViolation, match="does not follow"):
        rounds()[1].require_equal(method_named("fedcgs").begin(DIMENSION, CLASSES, GRID.levels))


def test_start_is_public_and_of_the_program() -> None:
    """Whoever begins a plan begins at the same bits; other programs begin elsewhere."""
    starts = [first_round(model=model).state.digest for model in ("softmax", "mlp:4", "mlp:4", "mlp:5")]
    assert starts[1] == starts[2]
    assert len(set(starts)) == 3


@pytest.mark.parametrize("server", [Average(), Adam()])
def test_state_of_a_gibibyte_is_the_largest(server: Average | Adam) -> None:
    """As many parameters as 1 GiB holds with the server's moments make a plan; one more does not."""
    most = (MAX_STATE_BYTES - STATE_NAMES) // (8 * (1 + len(server.moments)))
    assert most > (44_000_000 if server.moments else 134_000_000)
    require_room(most, server)
    with pytest.raises(BadInput, match=f"a state has {1 << 30} bytes at the most"):
        require_room(most + 1, server)


@pytest.mark.parametrize("server", [Average(), Adam()])
def test_names_and_shapes_of_a_state_have_room(server: Average | Adam) -> None:
    """What a state's file holds beside its numbers is less than the room that is left for it."""
    state = State({MODEL: np.zeros(1000)}, {name: np.zeros(1000) for name in server.moments}, 9999)
    beside = len(encode(ModelState(10_000, state.to_bytes()))) - 8000 * (1 + len(server.moments))
    assert beside < STATE_NAMES
