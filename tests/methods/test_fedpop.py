"""FedPop: what members send, what is judged, where the sums lead, what they may cost, and what is refused."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from methods import method_named, parameters_of
from methods.declaration import check_declaration, check_steps
from methods.round import Local, OpenedTotal
from methods.search.fedpop import SCORE_SHARE
from methods.search.round import LOSS, LOSS_LEVELS, SCORED, Chosen, PopulationRound
from methods.training.client_update import UPDATE, ProgramUpdate
from methods.training.training_round import MODEL, ModelState
from secagg.encoding.updates import State
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation
from secagg.heads import to_safetensors
from secagg.networks.trained_model import TunedModel
from secagg.privacy import Adjacency, OpenedNoise, Unit
from secagg.wire import decode, encode
from tests.methods.populations import MEMBERS, SMALL, first_round, next_round, part, spec_of, stepped
from tests.methods.training import CLASSES, DIMENSION, GRID, seeded, some_examples, square, summed

GRADIENTS = {"fixed": "gradients=1;clip=2", "space": "rate=log:0.1:1;server_rate=log:0.5:2"}
PRIVATE = {"fixed": "clip=5", "space": "rate=log:0.1:1;sampling=0.1:0.5;steps=1:3;batch=5|10"}
BESIDE = {"population": 1, "local": 3}
WITHIN = {"search": "evolution-in-halving", "local": 2}


def settings_of(round_: PopulationRound, member: int) -> dict[str, Any]:
    """What the member with this index trains with."""
    arm = round_.population.arm_of(member)
    config, variant = divmod(arm, round_.search.variants)
    return round_.search.space.at(tuple(round_.population.tried[config, variant].tolist()))


def losses_of(flat: np.ndarray, round_: PopulationRound, examples: Any) -> np.ndarray:
    """Cross-entropies of softmax regression in numpy."""
    weights, biases = flat[: CLASSES * DIMENSION].reshape(CLASSES, DIMENSION), flat[CLASSES * DIMENSION :]
    scores = examples.records * (round_.program.scale / GRID.unit(DIMENSION)) @ weights.T + biases
    return np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(scores)), examples.labels]


@pytest.mark.parametrize("given_", [{}, GRADIENTS, BESIDE], ids=["updates", "gradients", "beside"])
def test_a_member_fills_the_row_of_its_cohort(given_: dict[str, Any]) -> None:
    """It sends what the method sends for its cohort's settings over the records to be trained on; all else is 0."""
    round_ = next_round(first_round(**given_))
    for member, examples in enumerate(MEMBERS, start=1):
        arm = round_.population.arm_of(member)
        config = arm // round_.search.variants
        blocks = dict(part(round_, examples, member).blocks)
        trained, judging = round_.chosen(examples.records)
        inner = round_.training.at(settings_of(round_, member))
        local = Local(examples.take(trained), CLASSES, GRID, randomness=seeded(round_.number, member))
        sent = inner.work.contribute(round_.state.groups[MODEL][config], local).blocks
        assert blocks[SCORED][arm] == len(judging)
        for name, block in blocks.items():
            rows = {config} if name in sent else {arm}
            assert set(np.flatnonzero(block.reshape(len(block), -1).any(axis=1))) <= rows
        for name, block in sent.items():
            assert np.array_equal(blocks[name][config], block)


@pytest.mark.parametrize("given_", [{}, GRADIENTS, BESIDE], ids=["updates", "gradients", "beside"])
def test_scores_are_sums_of_clipped_losses(given_: dict[str, Any]) -> None:
    """Σ min(loss, L) at the model that was broadcast; beside each other, at that model moved by what is sent."""
    largest, clipped = 1.0, []
    round_ = next_round(first_round(largest_loss=largest, **given_))
    for member, examples in enumerate(MEMBERS, start=1):
        blocks = part(round_, examples, member).blocks
        arm = round_.population.arm_of(member)
        config = arm // round_.search.variants
        model = round_.state.groups[MODEL][config].copy()
        if given_ is BESIDE:
            assert isinstance(round_.work, ProgramUpdate)
            model += round_.work.encoding.decode(blocks[UPDATE][config])
        judged = examples.take(round_.chosen(examples.records)[1])
        found = np.minimum(losses_of(model, round_, judged), largest)
        assert blocks[LOSS][arm] == pytest.approx(found.sum() * LOSS_LEVELS / largest, abs=len(judged) + 1)
        clipped += (found == largest).tolist()
    assert 0 < sum(clipped) < len(clipped)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(0, 999), st.floats(0.05, 0.95), st.integers(1, 12))
def test_a_record_moves_no_other(count: int, seed: int, share: float, most: int) -> None:
    """One record more changes the lot of one other at most, for which there is no place left; none has both uses."""
    records = some_examples(count, seed).records
    chosen = Chosen(share, most)
    trained, judging = chosen(records)
    fewer, others = chosen(records[:-1])
    assert np.array_equal(trained[:-1], fewer)
    assert not trained[judging].any()
    assert len(judging) <= most
    assert len(set(others) - set(judging)) <= 1
    assert len(judging) - len(others) in (0, 1)


@pytest.mark.parametrize("given_", [{}, GRADIENTS], ids=["updates", "gradients"])
def test_every_configuration_takes_its_own_step(given_: dict[str, Any]) -> None:
    """Its model is the method's own after a round of its cohort's members alone, with its settings."""
    round_ = first_round(**given_)
    indices = tuple(range(1, len(MEMBERS) + 1))
    total = summed([part(round_, own, index) for index, own in zip(indices, MEMBERS, strict=True)])
    opened = OpenedTotal(total, GRID, clients=len(MEMBERS), members=indices)
    following = round_.finalize(opened).next_round
    assert isinstance(following, PopulationRound)
    for config in range(3):
        own = [member for member in indices if round_.population.arm_of(member) == config]
        inner = round_.training.at(settings_of(round_, own[0]))
        parts = []
        for member in own:
            examples = MEMBERS[member - 1]
            local = Local(
                examples.take(round_.chosen(examples.records)[0]), CLASSES, GRID, randomness=seeded(1, member)
            )
            parts.append(inner.contribute(local))
        alone = inner.finalize(OpenedTotal(summed(parts), GRID, clients=len(own))).next_round
        assert np.array_equal(alone.state.groups[MODEL], following.state.groups[MODEL][config])  # type: ignore[union-attr]


@pytest.mark.parametrize("search", ["evolution", "evolution-in-halving"])
def test_velocities_go_with_their_models(search: str) -> None:
    """A configuration that is replaced goes on with the model and the moments of the one that it takes after."""
    round_ = first_round(fixed="clip=5;server=momentum", interval=1, search=search)
    following = next_round(round_)
    moved = [
        not np.array_equal(*pair) for pair in zip(round_.population.places, following.population.places, strict=True)
    ]
    assert sum(moved) == 1
    for name in (MODEL, "velocity"):
        rows = following.state.groups[name]
        assert len({row.tobytes() for row in rows}) == 2
        assert any(np.array_equal(rows[moved.index(True)], rows[k]) for k in range(3) if not moved[k])
    assert next_round(following).number == 3


def test_the_best_is_what_comes_out() -> None:
    """After the last round the model with the lowest score, its settings and its score in its file, and no other's."""
    round_ = first_round(rounds=2)
    step = stepped(next_round(round_))
    assert step.next_round is None
    assert isinstance(step.artifact, TunedModel)
    method = method_named("fedpop", {**SMALL, "rounds": 2})
    told, _ = method.read_artifact(to_safetensors(step.artifact, {}))
    assert isinstance(told, TunedModel)
    assert told.digest == step.artifact.digest
    assert told.is_close_to(step.artifact)
    assert not replace(told, score=told.score + 1e-9).is_close_to(step.artifact)
    assert not replace(told, settings="epochs=1").is_close_to(step.artifact)
    read = dict(word.split("=") for word in told.settings.split())
    assert set(read) == {"batch", "epochs", "rate", "server_rate"}
    method_named("fedavg", {"rate": float(read["rate"]), "epochs": int(read["epochs"])})


def test_the_first_population_is_drawn_from_this_text() -> None:
    """The space's text, class names included, is protocol: its digest draws the first population on every machine."""
    assert repr(first_round().search.space) == (
        "Space(settings=(Values(name='batch', values=(4, 8, 16)), Values(name='epochs', values=(1, 2, 3)), "
        "Interval(name='rate', low=Decimal('0.01'), high=Decimal('1'), is_log=True), "
        "Interval(name='server_rate', low=Decimal('0.5'), high=Decimal('2'), is_log=True)))"
    )


def test_settings_follow_from_the_state_alone() -> None:
    """Whoever has state and sum draws the same next population; another sum gives another."""
    round_ = first_round(interval=1)
    told = decode(ModelState, next_round(round_).broadcast())
    again = round_.decode_broadcast(encode(told), GRID)
    again.require_equal(next_round(round_))
    one, other = next_round(next_round(round_)), next_round(again)  # type: ignore[arg-type]
    assert one.state.digest == other.state.digest
    changed = next_round(round_, [*MEMBERS[:-1], some_examples(11, 77)])
    assert (
        changed.population.order.tolist() != one.population.order.tolist() or changed.state.digest != one.state.digest
    )
    with pytest.raises(ProtocolViolation, match="does not follow"):
        again.require_equal(changed)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [("places", (0, 2), 1.5), ("places", (0, 0), 0.5), ("tried", (0, 0, 3), -0.1), ("order", (0,), 3.0),
     ("order", (1,), 0.5), ("alive", (0,), 2.0), ("alive", (0,), 0.0), ("tried", (0, 0, 1), 7.0)],
)  # fmt: skip
def test_settings_outside_the_plan_are_refused(name: str, place: tuple[int, ...], value: float) -> None:
    """A state whose settings the plan's space does not have opens no round, even for who cannot recompute it."""
    round_ = first_round()
    state = next_round(round_).state
    group = state.groups[name].copy()
    group[place] = value
    forged = State({**state.groups, name: group}, {}, state.step)
    with pytest.raises(MalformedMessage, match="its population is none"):
        round_.decode_broadcast(encode(ModelState(2, forged.to_bytes())), GRID)


def test_noise_in_place_of_numbers_makes_no_extremes() -> None:
    """Scores stay between 0 and the largest loss whatever noise leaves of them; where nobody judged they are that."""
    round_ = first_round()
    spec = spec_of()
    for lost, count in ((10**6, -5), (-(10**6), 3), (10**6, 0), (500, 2)):
        blocks = {block.name: np.zeros(block.shape, dtype=np.int64) for block in spec.blocks}
        blocks |= {LOSS: np.full(3, lost), SCORED: np.full(3, count)}
        noise = {name: OpenedNoise(4.0) for name in blocks}
        following = round_.finalize(OpenedTotal(blocks, GRID, noise, clients=6, members=(1, 2, 3, 4, 5, 6))).next_round
        assert isinstance(following, PopulationRound)
        expected = min(max(lost / 4 * 3.0 / LOSS_LEVELS, 0.0), 3.0)
        assert following.population.scores.tolist() == pytest.approx([expected] * 3)
    blocks[SCORED][:] = 0
    following = round_.finalize(OpenedTotal(blocks, GRID, clients=6, members=(1, 2, 3, 4, 5, 6))).next_round
    assert following.population.scores.tolist() == [3.0] * 3  # type: ignore[union-attr]


def test_a_configuration_that_leaves_the_numbers_begins_again() -> None:
    """One whose step no program can hold ends no plan: its model is the public start again."""
    round_ = first_round(fixed="clip=1e30", space="server_rate=1:1e30", rounds=3)
    places = np.array([[0.0], [1.0], [1.0]])
    population = replace(round_.population, places=places, tried=places[:, None])
    round_ = replace(round_, state=State({**round_.state.groups, **population.groups}, {}, 0))
    blocks = {
        block.name: np.full(block.shape, block.bound // 64)
        for block in spec_of(fixed="clip=1e30", space="server_rate=1:1e30").blocks
    }
    following = round_.finalize(OpenedTotal(blocks, GRID, clients=6, members=(1, 2, 3, 4, 5, 6))).next_round
    assert isinstance(following, PopulationRound)
    assert [bool(row.any()) for row in following.state.groups[MODEL]] == [True, False, False]


@pytest.mark.parametrize(
    "given_", [{}, GRADIENTS, BESIDE, PRIVATE, WITHIN], ids=["updates", "gradients", "beside", "private", "within"]
)
def test_declared_as_it_is(given_: dict[str, Any]) -> None:
    """What single records and whole members add is within what is declared, and all rounds lead to a model."""
    method = method_named("fedpop", {**SMALL, **given_})
    check_declaration(method, DIMENSION, CLASSES, GRID)
    check_steps(method, DIMENSION, CLASSES, GRID)


@pytest.mark.parametrize("given_", [{}, GRADIENTS, PRIVATE], ids=["updates", "gradients", "private"])
def test_every_search_sums_the_same(given_: dict[str, Any]) -> None:
    """The search decides on what was opened: the sums, their bounds and what they cost are the same for all."""
    searches = ("evolution", "random", "halving", "evolution-in-halving")
    assert len({repr(spec_of(**given_, search=each)) for each in searches}) == 1


@pytest.mark.parametrize(
    ("given_", "unit"), [({}, Unit.CLIENT), (GRADIENTS, Unit.RECORD)], ids=["updates", "gradients"]
)
def test_populations_take_no_more_noise_than_their_scores(given_: dict[str, Any], unit: Unit) -> None:
    """A unit moves the rows of all configurations no further than the method's one, and the scores beside that."""
    small, large = (
        spec_of(**{**given_, "population": count}).sensitivity(unit, Adjacency.ADD_REMOVE, 1) for count in (1, 6)
    )
    assert [block.l2 for block in small.blocks] == [block.l2 for block in large.blocks]
    assert [6 * block.size for block in small.blocks] == [block.size for block in large.blocks]
    assert math.isclose(sum(spec_of(**given_).shares.values()), 1)  # type: ignore[union-attr]
    assert {name: spec_of(**given_).shares[name] for name in SCORE_SHARE} == SCORE_SHARE  # type: ignore[index]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 40), st.integers(0, 99), st.integers(1, 9))
def test_no_member_sends_more_than_stated(count: int, seed: int, cap: int) -> None:
    """Whatever its records: each block of a member is within its length, the scores' too."""
    examples = some_examples(count, seed)
    blocks = part(first_round(score_cap=cap), examples, 1 + seed % 6).blocks
    moved = spec_of(score_cap=cap).sensitivity(Unit.CLIENT, Adjacency.ADD_REMOVE, 1)
    for block in moved.blocks:
        assert square(dict(blocks), block.name) <= block.l2**2


def test_the_costliest_settings_are_charged() -> None:
    """Accounted are the largest sampling rate and the most steps of the space; the policy sees the most epochs."""
    training = spec_of(**PRIVATE).training
    assert training is not None
    assert (training.rate, training.steps) == (0.5, 3)
    assert [block.name for block in training.further] == [LOSS, SCORED]
    assert spec_of(**PRIVATE).effort.steps == 3
    assert spec_of().effort.epochs == 3
    assert spec_of().times == 6


@pytest.mark.parametrize("order", ["0.05|0.9|0.06", "0.9|0.05|0.06", "0.05|0.06|0.9"])
def test_a_costly_setting_is_charged_wherever_it_is_listed(order: str) -> None:
    """Values come in any order: the largest in the middle is paid for, and seen by policies, like one at an end."""
    spec = spec_of(fixed="clip=5;batch=8", space=f"sampling={order};steps=5|40|6;epochs=1|50|2")
    assert spec.training is not None
    assert (spec.training.rate, spec.training.steps) == (0.9, 40)
    assert (spec.effort.steps, spec.effort.epochs) == (40, 36)
    assert spec_of(space="epochs=1|50|2").effort.epochs == 50
    with pytest.raises(BadInput, match="a sampling rate is above 0 everywhere"):
        spec_of(fixed="clip=5", space="sampling=0.1|0|0.2")


def test_noise_of_its_own_is_on_its_own_numbers_alone() -> None:
    """Where members add their own noise, it is in their cohort's two numbers, drawn as told, and cut to the bound."""
    round_ = first_round(**PRIVATE)
    (lost, scored) = (next(b for b in spec_of(**PRIVATE).blocks if b.name == name) for name in (LOSS, SCORED))
    found = []
    for draw in range(300):
        local = Local(
            some_examples(20), CLASSES, GRID, 2, randomness=seeded(draw), further={LOSS: 5000.0, SCORED: 40.0}
        )
        blocks = round_.contribute(local).blocks
        arm = round_.population.arm_of(2)
        assert [np.flatnonzero(blocks[name]).tolist() in ([arm], []) for name in (LOSS, SCORED)] == [True, True]
        found.append((int(blocks[LOSS][arm]), int(blocks[SCORED][arm])))
    losses, counts = np.array(found, dtype=float).T
    assert 4000 < losses.std() < 6000
    assert 32 < counts.std() < 48
    local = replace(local, further={LOSS: 1e12, SCORED: 1e9})
    blocks = round_.contribute(local).blocks
    assert np.abs(blocks[LOSS]).max() == lost.bound
    assert np.abs(blocks[SCORED]).max() == scored.bound


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"method": "fedcgs"}, "no settings of fedcgs can be tried"),
        ({"method": "fedpop"}, "no settings of fedpop can be tried"),
        ({"space": "clip=1:10"}, "clip is no setting that may be tried"),
        ({"space": "gradient_clip=1:10"}, "gradient_clip is no setting that may be tried"),
        ({"fixed": "rate=0.1;clip=5"}, "rate is no setting that may be tried"),
        ({"fixed": "clip=5;depth=3"}, "method fedavg cannot take"),
        ({**GRADIENTS, "local": 2}, "settings beside a configuration's"),
        ({"search": "halving", "local": 2}, "settings beside a configuration's"),
        ({"search": "grid"}, "search is 'grid'"),
        ({"validation": 1.0}, "validation is 1.0"),
        ({"largest_loss": 0.0}, "largest_loss is 0.0"),
        ({"largest_loss": 1e-310}, "largest_loss is 1e-310"),
        ({"population": 0}, "population is 0"),
    ],
)
def test_what_cannot_be_searched_is_refused(given_: dict[str, Any], words: str) -> None:
    """Methods without such settings, clips, settings that are fixed, and searches that there are not."""
    with pytest.raises(BadInput, match=words):
        method_named("fedpop", {**SMALL, **given_})


def test_settings_that_change_the_sum_are_refused() -> None:
    """Training with and without sampling are two promises: one vector cannot keep both."""
    with pytest.raises(BadInput, match="would change what fedavg sums"):
        spec_of(fixed="clip=5", space="sampling=0:0.5;rate=0.1:1")


def test_a_plan_opens_no_file_by_its_path(tmp_path: Path) -> None:
    """What stays fixed names a program by its digest: a path in a plan is no program, and its file is not read."""
    file = tmp_path / "net.pt2"
    file.write_bytes(b"code")
    name = f"pt2:{hashlib.sha256(b'code').hexdigest()}"
    typed = parameters_of("fedpop", {}, f"fixed=model={file};clip=5")
    assert typed == {"fixed": f"model={name};clip=5"}
    assert method_named("fedpop", {**SMALL, **typed}).traits.programs == (name.removeprefix("pt2:"),)
    told = method_named("fedpop", {**SMALL, "fixed": f"model={tmp_path / 'absent.pt2'};clip=5"})
    with pytest.raises(BadInput, match="there is no program"):
        told.sums(DIMENSION, CLASSES, GRID.levels)
