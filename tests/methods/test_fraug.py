"""Rounds of FRAug: what is sent and what stays, the state's groups, models of one's own, what is refused."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

from methods import METHODS, method_named
from methods.declaration import check_declaration
from methods.round import Examples, Local, OpenedTotal
from methods.training.fraug import AugmentedUpdate, FRAug
from methods.training.training_round import MODEL, TrainingRound
from secagg.agreement.plan import NoiseFrom
from secagg.errors import BadInput
from secagg.heads import to_safetensors
from secagg.networks import read_model
from secagg.networks.augmented import GENERATOR
from secagg.privacy import Adjacency, Unit
from secagg.session import RoundSetup
from tests.methods.training import CLASSES, DIMENSION, GRID, seeded, some_examples, summed
from tests.worlds.setups import make_setup

SMALL: dict[str, Any] = {"model": "mlp:8", "rounds": 3, "steps": 10, "batch": 8, "rate": 0.1, "latent": 4, "hidden": 6}
SMALL |= {"synthetic": 6, "clip": 50.0}
SQUARES = {"generator_distance": "l2", "transfer_distance": "l2"}
PRIVATE = {**SQUARES, "sampling": 0.5, "momentum": 0.0}
MEMBERS = [some_examples(20, seed) for seed in range(3)]
ONE_CLASS = some_examples(30).take(some_examples(30).labels == 1)
KINDS: dict[str, dict[str, Any]] = {
    "own": {},
    "shared": {"norm": "shared", **SQUARES},
    "batch": {"norm": "batch", "cap": 15},
    "plain": {"augment": 0},
    "private": PRIVATE,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def first(**parameters: Any) -> TrainingRound:
    """The first of three rounds."""
    round_ = method_named("fraug", {**SMALL, **parameters}).begin(DIMENSION, CLASSES, GRID.levels)
    assert isinstance(round_, TrainingRound)
    return round_


def contribution(round_: TrainingRound, examples: Examples, state: bytes = b"", member: int = 0) -> Any:
    """What a member sends and keeps; it draws the same each time."""
    drawn = seeded(round_.number, member)
    return round_.contribute(Local(examples, CLASSES, GRID, member, state, drawn, sigma=0.0))


def play(round_: Any, members: list[Examples]) -> tuple[list[Any], list[bytes], Any]:
    """Every round with what it opened, the members' last states, and the artifact."""
    states, played = [b""] * len(members), []
    while round_ is not None:
        made = [contribution(round_, *each, member) for member, each in enumerate(zip(members, states, strict=True))]
        states = [each.state for each in made]
        played.append((round_, OpenedTotal(summed(made), GRID, clients=len(members))))
        step = round_.finalize(played[-1][1])
        round_ = step.next_round
    return played, states, step.artifact


@functools.cache
def played_once(kind: str) -> tuple[list[Any], list[bytes], Any]:
    """What `play` says of three members, made by the first test that asks."""
    return play(first(**KINDS[kind]), MEMBERS)


@every_kind
def test_parameters_make_the_method_again(kind: str) -> None:
    """The plan's name and parameters give an equal method."""
    method = method_named("fraug", {**SMALL, **KINDS[kind]})
    assert method_named("fraug", method.parameters) == method
    assert METHODS["fraug"] is FRAug


@every_kind
def test_method_does_what_it_declares(kind: str) -> None:
    """Extreme records stay within the bounds and lengths that are stated."""
    check_declaration(method_named("fraug", {**SMALL, **KINDS[kind]}), DIMENSION, CLASSES, GRID)


@every_kind
def test_state_has_a_group_for_each_network(kind: str) -> None:
    """Generator and classifier move; the normalisation that members keep stays in the state as it started."""
    played, _, _ = played_once(kind)
    begun, last = played[0][0], played[-1][0]
    assert set(last.state.groups) == ({MODEL} if kind == "plain" else {MODEL, GENERATOR})
    for name, tensor in last.state.groups.items():
        assert not np.array_equal(tensor, begun.state.groups[name])
    own = ~last.work.sent[-last.program.size :]
    assert own.any() is np.bool_(kind != "shared")
    assert np.array_equal(last.state.groups[MODEL][own], begun.state.groups[MODEL][own])


@every_kind
def test_next_round_is_told_by_its_broadcast(kind: str) -> None:
    """What opens a round makes the same round of both groups, bit for bit."""
    (begun, _), (second, _), _ = played_once(kind)[0]
    told = begun.decode_broadcast(second.broadcast(), GRID)
    told.require_equal(second)
    assert told.state.digest == second.state.digest


@every_kind
def test_what_stays_with_a_member_is_its_own(kind: str) -> None:
    """Members keep different tensors: RTNet, normalisation, prototypes where there are some; and no other."""
    played, states, _ = played_once(kind)
    work = played[-1][0].work
    shapes = work.kept.kept_shapes
    tensors = [work.kept.read(state) if state else {} for state in states]
    for name in shapes:
        assert not np.array_equal(tensors[0][name], tensors[1][name])
    assert any(name.startswith("transfer") for name in shapes) is (kind != "plain")
    assert ("prototypes" in shapes) is (kind not in ("plain", "private"))
    assert ("hidden.gain" in shapes) is (kind != "shared")
    assert ("hidden.mean" in shapes) is (kind == "batch")


@every_kind
def test_the_sum_is_the_mean_of_what_members_moved(kind: str) -> None:
    """Decoded, the mean of ω's and θ's updates is that of the members' trainings, weights or not."""
    round_ = played_once(kind)[0][0][0]
    work, total, weight = round_.work, 0.0, 0.0
    for member, examples in enumerate(MEMBERS):
        local = Local(examples, CLASSES, GRID, member, b"", seeded(1, member))
        moved, _ = work.update(round_.state.flat.astype(np.float32).astype(np.float64), local, 1)
        counts = min(20, 15) / 15 if kind == "batch" else 1.0
        total, weight = total + moved * counts, weight + counts
    found = work.mean(played_once(kind)[0][0][1])
    assert np.abs(found[work.sent] - total / weight).max() < 1e-3 * np.abs(total).max()
    assert not found[~work.sent].any()


def test_groups_have_public_scales() -> None:
    """A larger scale changes what of the clip the generator gets, and not in which units the decoded mean is."""
    lengths = {}
    for scale in (0.1, 1.0, 10.0):
        round_ = first(generator_scale=scale, clip=0.05)
        made = contribution(round_, MEMBERS[0])
        move = round_.work.mean(OpenedTotal(made.blocks, GRID))
        of_both = round_.state.with_flat(move).groups
        lengths[scale] = np.linalg.norm(of_both[GENERATOR]) / np.linalg.norm(of_both[MODEL])
        scaled = math.hypot(scale * np.linalg.norm(of_both[GENERATOR]), np.linalg.norm(of_both[MODEL]))
        assert scaled == pytest.approx(0.05, rel=0.02)
    assert max(lengths.values()) < 1.1 * min(lengths.values())


@every_kind
def test_members_end_with_a_classifier_of_their_own(kind: str) -> None:
    """The public state with one's own normalisation, as a file; nothing where all is shared."""
    played, states, artifact = played_once(kind)
    last, opened = played[-1]
    assert read_model(to_safetensors(artifact, {}))[0].digest == artifact.digest
    found = [last.personal(state, opened) for state in states]
    if kind == "shared":
        assert found == [{}] * 3
        return
    digests = {each["own"].digest for each in found}
    assert len(digests) == 3
    for each, examples in zip(found, MEMBERS, strict=True):
        model = each["own"]
        model.require_fit(CLASSES, DIMENSION)
        assert read_model(to_safetensors(model, {}))[0].digest == model.digest
        records = examples.records / GRID.unit(DIMENSION)
        assert kind == "private" or model.evaluate(records, examples.labels).accuracy > 0.5


@pytest.mark.parametrize("kind", ["own", "batch", "plain", "private"])
@pytest.mark.parametrize("examples", [some_examples(0), some_examples(1), ONE_CLASS], ids=["none", "one", "one class"])
def test_any_member_takes_part(kind: str, examples: Examples) -> None:
    """Without records, with one, with one class alone: it sends an update, keeps a state, and goes on next round."""
    (begun, _), (second, _), _ = played_once(kind)[0]
    made = contribution(begun, examples)
    assert made.blocks["update"].any() is np.bool_(len(examples) > 0) or kind == "private"
    again = contribution(second, examples, made.state)
    assert np.isfinite(second.work.mean(OpenedTotal(again.blocks, GRID))).all()


@pytest.mark.parametrize("kind", ["own", "batch", "plain"])
def test_training_that_leaves_the_numbers_sends_zeros(kind: str) -> None:
    """A member that gets NaN sends zeros, keeps what it had, fails by no error, and counts as before."""
    chosen = {**KINDS[kind], "rate": 1e30, "steps": 6, "clip": 1e30, "cap": 10}
    round_ = first(**chosen)
    made = contribution(round_, MEMBERS[0])
    assert not made.blocks["update"].any()
    assert made.blocks["weight"][0] > 0
    start = round_.work.kept.read(made.state)
    assert all(np.isfinite(each).all() for each in start.values())
    assert round_.finalize(OpenedTotal(made.blocks, GRID)).next_round is not None


@pytest.mark.parametrize("kept", ["another", "the artifact"])
def test_another_state_is_refused(kept: str) -> None:
    """What a member kept of something else is no state of this plan."""
    state = to_safetensors(played_once("own")[2], {}) if kept == "the artifact" else kept.encode()
    with pytest.raises(BadInput):
        contribution(played_once("own")[0][1][0], MEMBERS[0], state)


def test_ramps_are_the_formulas() -> None:
    """exp(−γ(R − r)) of the residual, exp(−5(1 − r/r₀)²) of the prototypes' step."""
    round_ = first(ramp=0.01, ema=0.3, ema_ramp=0.05, rounds=100)
    work = round_.work
    assert work.ramps.weights(work.weights, 100).strength == 1.0  # type: ignore[attr-defined]
    assert work.ramps.weights(work.weights, 40).strength == pytest.approx(math.exp(-0.6))  # type: ignore[attr-defined]
    assert work.ramps.settings(work.settings, 5).ema == pytest.approx(0.3)  # type: ignore[attr-defined]
    assert work.ramps.settings(work.settings, 2).ema == pytest.approx(0.3 * math.exp(-5 * 0.6**2))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ({"norm": "batch"}, "depend on its batch"),
        ({"generator_distance": "mmd"}, "discrepancy of sets"),
        ({"transfer_distance": "mmd"}, "discrepancy of sets"),
        ({"momentum": 0.5}, "records and the state alone"),
        ({"proximal": 0.1}, "records and the state alone"),
        ({"cap": 10}, "no count leaves"),
    ],
)
def test_record_level_takes_its_form_alone(chosen: dict[str, Any], reason: str) -> None:
    """Batch normalisation, a discrepancy of sets, momentum and counts are refused with DP-SGD, and told why."""
    with pytest.raises(BadInput, match=reason):
        method_named("fraug", {**PRIVATE, **chosen})


def test_record_level_has_no_prototypes_and_one_gradient() -> None:
    """The steps' noise has an entry for every number of ω, θ and φ; what is summed states no release of its own."""
    work = first(**PRIVATE).work
    assert isinstance(work, AugmentedUpdate)
    spec = work.spec(3)
    assert spec.training is not None
    assert spec.training.size == work.whole.size
    with pytest.raises(BadInput, match="in the members' training"):
        spec.sensitivity(Unit.RECORD, Adjacency.ADD_REMOVE, 10)


def test_promises_make_plans() -> None:
    """Exact, about members, and about records by noise of their own; a promise about members holds for both groups."""
    parameters = tuple({**SMALL, "rounds": 2}.items())
    promise: dict[str, Any] = {"method": "fraug", "epsilon": 8.0, "adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
    assert isinstance(make_setup(parameters=parameters, unit=Unit.CLIENT, **promise), RoundSetup)
    private = tuple({**SMALL, **PRIVATE, "rounds": 2}.items())
    assert isinstance(make_setup(parameters=private, noise=NoiseFrom.MEMBER, **promise), RoundSetup)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("rounds", 0), ("steps", 0), ("batch", 0), ("latent", 0), ("hidden", 0), ("synthetic", 0), ("augment", 2),
     ("synthetic", 10**9),
     ("rate", 0.0), ("generator_rate", math.nan), ("alpha", -1.0), ("beta", math.inf), ("ema", 0.0), ("ema_ramp", 2.0),
     ("generator_scale", 0.0), ("cap", -1), ("norm", "layer"), ("generator_distance", "l1"),
     ("transfer_distance", ""), ("server", "sgd"), ("sampling", 2.0)],
)  # fmt: skip
def test_what_cannot_be_is_refused(parameter: str, value: float | str) -> None:
    """A parameter out of its range is refused before anything is summed."""
    with pytest.raises(BadInput):
        method_named("fraug", {**SMALL, parameter: value})


@pytest.mark.parametrize(
    ("model", "dimension"), [("cnn", 100 * 2), ("cnn", 49), ("softmax", 64), ("mlp", 64), ("similar:8", 64)]
)
def test_pictures_that_do_not_fit_are_refused(model: str, dimension: int) -> None:
    """Before anything is summed: no square picture, one too small, a program without an embedding."""
    with pytest.raises(BadInput):
        method_named("fraug", {**SMALL, "model": model}).sums(dimension, CLASSES, GRID.levels)
