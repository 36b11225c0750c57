"""Rounds of own projections: sums and their bounds, the clip of a member, the shared prototypes, what is refused."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from methods import METHODS, method_named
from methods.declaration import check_declaration
from methods.own_models import projected_sums
from methods.own_models.local_projection import Kept, prototypes_of, shorten
from methods.round import Examples, Local, OpenedTotal
from methods.slots.slots import Centres
from secagg.encoding import Grid, Layout, Normalisation, quantise
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation
from secagg.heads import to_safetensors
from secagg.networks import read_model
from secagg.privacy import Adjacency, OpenedNoise, Unit
from secagg.randomness import SeededRandomness
from secagg.session import RoundSetup
from secagg.unsafe_for_tests import TOKEN
from secagg.wire import decode, encode
from tests.worlds.setups import make_setup
from threat_models.estimation.empirical_sensitivity import longest_parts

NAMES = ("fedpcl", "fedproto")
CLASSES, DIMENSION, WIDTH = 4, 6, 8
GRID = Grid(1.0, 1 << 12, normalisation=Normalisation.CENTRED_UNIT)
GENERATOR = np.random.default_rng(3)
LABELS = GENERATOR.permutation(np.arange(80) % CLASSES)
RECORDS = quantise(GENERATOR.normal(size=(80, DIMENSION)) + 2 * np.eye(DIMENSION)[LABELS], GRID)
every_method = pytest.mark.parametrize("name", NAMES)


def first(name, **parameters):
    """The first of three rounds."""
    method = method_named(name, {"rounds": 3, "width": WIDTH, "rate": 0.1, **parameters})
    return method.begin(DIMENSION, CLASSES, GRID.levels)


def contribution(round_, rows, state=b"", member=1, turn=1):
    """What a member with some of the records contributes in its turn; it draws the same each time."""
    examples = Examples.of(RECORDS[rows], LABELS[rows])
    stream = SeededRandomness(f"member {member}, turn {turn}".encode(), TOKEN)
    return round_.contribute(Local(examples, CLASSES, GRID, member, state, stream))


def play(round_, shares):
    """Every round with its opened blocks, over members who have these rows; and the members' last states."""
    states, played = [b""] * len(shares), []
    while round_ is not None:
        had = zip(shares, states, strict=True)
        made = [contribution(round_, *mine, member, len(played)) for member, mine in enumerate(had)]
        states = [each.state for each in made]
        total = {name: sum(each.blocks[name] for each in made) for name in made[0].blocks}
        played.append((round_, OpenedTotal(total, GRID, clients=len(shares))))
        step = round_.finalize(played[-1][1])
        round_ = step.next_round
    return played, states, step.artifact


THIRDS = [np.arange(80) % 3 == number for number in range(3)]


@every_method
def test_parameters_make_the_method_again(name):
    """The plan's name and parameters give an equal method, and hold nothing of a round."""
    method = first(name)
    assert not {"dimension", "number", "prototypes"} & set(method.parameters)
    assert method_named(name, method.parameters) == replace(method, dimension=0)
    assert METHODS[name] is type(method)


@every_method
@pytest.mark.parametrize(
    ("parameter", "value"),
    [("rounds", 0), ("rounds", 1001), ("epochs", 0), ("batch", 0), ("width", 0), ("width", 8193), ("cap", -1),
     ("rate", 0.0), ("rate", math.nan), ("momentum", 1.0), ("decay", -1.0)],
)  # fmt: skip
def test_what_cannot_be_is_refused(name, parameter, value):
    """A parameter out of its range is refused before anything is summed."""
    with pytest.raises(BadInput):
        first(name, **{parameter: value})


@every_method
@pytest.mark.parametrize("cap", [0, 5])
def test_method_does_what_it_declares(name, cap):
    """Extreme records and clients stay within the bounds and lengths that are stated, with a cap and without."""
    check_declaration(method_named(name, {"width": 16, "cap": cap}), 12, 5, GRID)


@every_method
def test_first_sum_is_that_of_the_public_start(name):
    """It counts the records and adds up z of the start, truncated toward zero; all members project alike."""
    made = contribution(first(name), slice(None))
    weight = Kept.of(made.state, first(name).local_program(DIMENSION, np.zeros((1, CLASSES, WIDTH))), CLASSES)
    raised = np.maximum(RECORDS @ weight.tensors["weight"].astype(np.float64).T, 0)
    expected = np.trunc(GRID.levels * raised / np.linalg.norm(raised, axis=1, keepdims=True))
    for label in range(CLASSES):
        own = expected[label == LABELS]
        assert made.blocks["counts"][label] == len(own)
        assert np.abs(made.blocks["class_sums"][label] - own.sum(axis=0)).max() <= len(own)
    others = [contribution(first(name), rows, member=number) for number, rows in enumerate(THIRDS)]
    assert np.array_equal(sum(each.blocks["class_sums"] for each in others), made.blocks["class_sums"])


@every_method
@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 79), max_size=12), st.integers(0, 2))
def test_no_record_adds_more_than_its_bound(name, rows, number):
    """In every round a count is of records, and a class sums to no more than so many unit lengths, never negative."""
    round_, _ = PLAYED[name][0][number]
    made = contribution(round_, np.array(rows, dtype=np.int64), PLAYED[name][1][0] if number else b"").blocks
    assert made["counts"].tolist() == [sum(LABELS[row] == label for row in rows) for label in range(CLASSES)]
    sums = made["class_sums"].astype(object)
    assert (sums >= 0).all()
    for row, count in zip(sums, made["counts"].tolist(), strict=True):
        assert sum(row * row) <= (count * GRID.levels) ** 2
    (spec,) = method_named(name, round_.parameters).sums(DIMENSION, CLASSES, GRID.levels)
    assert Layout(spec.blocks).flatten(made).dtype == np.int64


PLAYED = {name: play(first(name), THIRDS) for name in NAMES}


@given(st.lists(st.integers(0, 400), min_size=1, max_size=6), st.integers(1, 40), st.integers(0, 2**32))
def test_clip_holds_in_integers(counts, cap, seed):
    """Whatever a member has, ‖counts‖ ≤ cap and ‖sums‖ ≤ cap·R exactly; the classes' means stay, rare ones whole."""
    levels = 50
    draw = np.random.default_rng(seed)
    sums = np.array([np.trunc(count * levels * _direction(draw)) for count in counts]).astype(np.int64)
    fewer, shorter = shorten(np.array(counts), sums, cap)
    assert min(fewer.min(), shorter.min()) >= 0
    assert sum(each**2 for each in fewer.tolist()) <= cap**2
    assert sum(each**2 for row in shorter.tolist() for each in row) <= (cap * levels) ** 2
    for row, kept in zip(shorter.tolist(), fewer.tolist(), strict=True):
        assert sum(each**2 for each in row) <= (kept * levels) ** 2
    assert (fewer <= counts).all()
    for count, kept, long, short in zip(counts, fewer.tolist(), sums.tolist(), shorter.tolist(), strict=True):
        assert all(each == (old * kept // count if count else 0) for each, old in zip(short, long, strict=True))
    most = int(fewer.max())
    assert all(kept in (count, most) for count, kept in zip(counts, fewer.tolist(), strict=True))
    if most < max(counts):
        assert sum(min(count, most + 1) ** 2 for count in counts) > cap**2


def _direction(draw):
    row = np.abs(draw.normal(size=3))
    return row / np.linalg.norm(row) * (1 - 1e-9)


@every_method
def test_short_contribution_is_not_changed(name):
    """A member within the cap sends what it would send without."""
    rows = np.arange(10)
    plain, capped = (contribution(first(name, cap=cap), rows).blocks for cap in (0, 100))
    assert all(np.array_equal(plain[block], capped[block]) for block in plain)


@every_method
def test_a_promise_is_about_members(name):
    """With a cap every block has the length that the clip keeps, for a client; a record is charged like its client.

    No entry is negative, so that two clients' parts are √2 lengths apart at most, and a record costs as much.
    """
    (spec,) = first(name, cap=7).sums(DIMENSION, CLASSES, 100)
    assert spec.per is Unit.CLIENT
    for adjacency, factor in ((Adjacency.ADD_REMOVE, 1), (Adjacency.REPLACE_ONE, 2)):
        stated = spec.sensitivity(Unit.CLIENT, adjacency, 1000)
        assert [block.l2 for block in stated.blocks] == [7.0, 700.0]
        assert stated.squared({"counts": 1.0, "class_sums": 1.0}) == factor * (7**2 + 700**2)
        of_record = spec.sensitivity(Unit.RECORD, adjacency, 1000)
        most = of_record.squared({"counts": 1.0, "class_sums": 1.0})
        assert most == pytest.approx(2 * (7**2 + 700**2), rel=1e-15)


@every_method
def test_what_could_be_negative_is_refused(name, monkeypatch):
    """A projection that keeps a sign could put parts twice their length apart: plans refuse it.

    The auditor counts such parts as √2 times as long as the cap allows.
    """
    method = method_named(name, {"width": 16, "cap": 5, "rounds": 1})
    (spec,), at_hand = method.sums(DIMENSION, CLASSES, GRID.levels), [Examples.of(RECORDS, LABELS)]
    before = longest_parts(method.begin(DIMENSION, CLASSES, GRID.levels), spec, GRID, CLASSES, 1, at_hand)
    known = projected_sums.project_records
    monkeypatch.setattr(
        projected_sums,
        "project_records",
        lambda weight, records, levels: np.sign(records[:, :1]) * known(weight, records, levels),
    )
    with pytest.raises(BadInput, match="one client adds a negative entry, declared nonnegative"):
        check_declaration(method, DIMENSION, CLASSES, GRID)
    after = longest_parts(method.begin(DIMENSION, CLASSES, GRID.levels), spec, GRID, CLASSES, 1, at_hand)
    assert after["counts"] == before["counts"]
    assert after["class_sums"] == pytest.approx(math.sqrt(2) * 5 * GRID.levels)


def test_clip_of_a_member_with_everything_does_not_overflow():
    """Sums and caps as large as they can be stay whole numbers without a sign."""
    counts = np.array([1 << 22, 1])
    fewer, shorter = shorten(counts, counts[:, None] * (1 << 26), 1 << 20)
    assert fewer.tolist() == [(1 << 20) - 1, 1]
    assert shorter[:, 0].tolist() == [((1 << 20) - 1) << 26, 1 << 26]


@every_method
def test_a_finite_epsilon_takes_a_cap(name):
    """Without one a record can move every class's sum: a plan with noise is refused, and told why."""
    promise = {"method": name, "epsilon": 4.0, "adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
    with pytest.raises(BadInput, match="one of them can move the sum of every class; with the parameter cap"):
        make_setup(parameters=(), **promise)
    assert isinstance(make_setup(parameters=(("cap", 8),), unit=Unit.CLIENT, **promise), RoundSetup)
    with pytest.raises(BadInput, match="with cap 1 a member of all 3 classes would send nothing"):
        make_setup(parameters=(("cap", 1),), unit=Unit.CLIENT, **promise)


@every_method
def test_rounds_lead_to_a_public_model_and_models_of_ones_own(name):
    """After the last the public model is a file of the plan's method, and members' own know their records better."""
    played, states, artifact = PLAYED[name]
    assert [round_.number for round_, _ in played] == [1, 2, 3]
    again, _ = first(name).read_artifact(to_safetensors(artifact, {}))
    assert again.digest == artifact.digest
    last, opened = played[-1]
    inputs = RECORDS / GRID.unit(DIMENSION)
    for state, rows in zip(states, THIRDS, strict=True):
        models = last.personal(state, opened)
        assert set(models) == {"fedpcl": {"global", "own", "padded"}, "fedproto": {"global", "head"}}[name]
        for model in models.values():
            model.require_fit(CLASSES, DIMENSION)
            assert read_model(to_safetensors(model, {}))[0].digest == model.digest
        assert models["global"].evaluate(inputs[rows], LABELS[rows]).accuracy > 2 / CLASSES


@every_method
def test_prototypes_follow_from_the_sum_in_whole_numbers(name):
    """A class mean is the sum divided by the count, truncated; nobody's class has none; a count of noise is 1."""
    sums = np.array([[7, 0], [9, 5], [0, 0]])
    opened = OpenedTotal({"counts": np.array([2, 3, 0]), "class_sums": sums}, Grid(1.0, 100))
    assert prototypes_of(opened).tolist() == [[[3, 0], [3, 1], [0, 0]]]
    noise = {"counts": OpenedNoise(1.0, 10), "class_sums": OpenedNoise(1.0)}
    noisy = OpenedTotal({"counts": np.array([-3, 20, 5]), "class_sums": np.array([[-9, 80], [90, 500], [99, 99]])},
                   Grid(1.0, 100), noise)  # fmt: skip
    (found,) = prototypes_of(noisy)
    assert found[0].tolist() == [0, 80]
    assert (np.sqrt((found**2).sum(axis=1)) <= 100).all()
    assert found[2, 0] == found[2, 1] >= 69


@every_method
def test_a_class_that_nobody_holds_is_never_predicted(name):
    """No prototype, no denominator, no prediction; training goes on with finite numbers."""
    kept = np.flatnonzero(LABELS != 2)
    played, states, artifact = play(first(name), [kept[::2], kept[1::2]])
    last, opened = played[-1]
    assert not played[-1][0].prototypes[0, 2].any()
    inputs = np.random.default_rng(0).normal(size=(200, DIMENSION))
    assert 2 not in artifact.predict(inputs)
    own = last.personal(states[0], opened)
    assert 2 not in own["global"].predict(inputs)


def test_own_prototypes_predict_no_class_that_the_member_lacks():
    """What the authors' rule cannot do, stated: a class unseen at home is never predicted by one's own prototypes."""
    alone = np.flatnonzero(LABELS < 2)
    played, states, _ = play(first("fedpcl"), [alone, np.flatnonzero(LABELS >= 2)])
    last, opened = played[-1]
    inputs = np.random.default_rng(0).normal(size=(200, DIMENSION))
    models = last.personal(states[0], opened)
    assert set(np.unique(models["own"].predict(inputs))) == {0, 1}
    assert set(np.unique(models["global"].predict(inputs))) > {0, 1}


def test_padded_prototypes_are_the_shared_ones_of_classes_that_the_member_lacks():
    """What the paper predicts by: the most similar of its own prototypes, and of the shared ones where it has none."""
    alone = np.flatnonzero(LABELS < 2)
    played, states, _ = play(first("fedpcl"), [alone, np.flatnonzero(LABELS >= 2)])
    last, opened = played[-1]
    models = last.personal(states[0], opened)
    padded, own, shared = (models[name].tensors["prototypes"] for name in ("padded", "own", "global"))
    assert np.array_equal(padded, np.concatenate([own[:2], shared[2:]]))
    assert not np.array_equal(padded[:2], shared[:2])
    assert models["padded"].program.name == f"similar:{WIDTH}"


@every_method
@pytest.mark.parametrize("rows", [[], [0], list(np.flatnonzero(LABELS == 1))], ids=["none", "one", "one class"])
def test_few_records_are_no_exception(name, rows):
    """A member with no records, one, or a single class takes part in every round; without records it adds zeros."""
    played, states, _ = play(first(name), [np.array(rows, dtype=np.int64), slice(None)])
    made = contribution(played[1][0], np.array(rows, dtype=np.int64), states[0])
    assert (made.blocks["counts"].sum(), made.blocks["class_sums"].any()) == (len(rows), bool(rows))
    assert made.state


@every_method
@pytest.mark.parametrize("wildly", [{"optimiser": "sgd", "momentum": 0.99}, {"optimiser": "adam"}], ids=str)
def test_training_that_gives_no_number_leaves_the_projection_as_it_was(name, wildly):
    """At an absurd rate a member goes on with what it had: nothing is raised, and no NaN is sent or kept."""
    wild = first(name, rate=1e30, epochs=3, **wildly)
    played, states, _ = play(wild, THIRDS)
    program = wild.local_program(DIMENSION, np.zeros((1, CLASSES, WIDTH)))
    kept = [Kept.of(state, program, CLASSES, optimiser=wild.optimiser).flat for state in states]
    assert all(np.isfinite(row).all() for row in kept)
    assert all(opened.blocks["counts"].sum() == 80 for _, opened in played)


@every_method
def test_moments_go_on_with_the_round_that_is_kept(name):
    """Adam's steps and moments are in the state, zero before any training, and a round tried again counts once."""
    round_ = first(name)
    program = round_.local_program(DIMENSION, np.zeros((1, CLASSES, WIDTH)))
    played, _, _ = PLAYED[name]
    before, steps = contribution(round_, THIRDS[0]).state, 0
    for number, (again, _) in enumerate(played[1:], start=1):
        moments = Kept.of(before, program, CLASSES).flat[program.size :]
        assert moments[-1] == steps
        assert moments.any() == (number > 1)
        lost, kept = (contribution(again, THIRDS[0], before, turn=number).state for _ in range(2))
        assert lost == kept
        before, steps = kept, steps + 1  # 27 records are one batch
    assert Kept.of(before, program, CLASSES).flat[-1] == len(played) - 1


@every_method
def test_moments_decide_where_training_goes(name):
    """A member whose state has lost its moments trains to other tensors, and one by SGD keeps none."""
    (_, _), (round_, _), _ = PLAYED[name][0]
    program = round_.local_program(DIMENSION, np.zeros((1, CLASSES, WIDTH)))
    state = contribution(round_, THIRDS[0], contribution(first(name), THIRDS[0]).state).state
    kept = Kept.of(state, program, CLASSES)
    forgotten = replace(kept, flat=np.where(np.arange(len(kept.flat)) < program.size, kept.flat, 0.0)).to_bytes()
    found = [Kept.of(contribution(round_, THIRDS[0], each).state, program, CLASSES) for each in (state, forgotten)]
    assert not np.array_equal(found[0].tensors["weight"], found[1].tensors["weight"])
    by_sgd = contribution(first(name, optimiser="sgd"), THIRDS[0]).state
    with pytest.raises(BadInput, match="the private state holds"):
        Kept.of(by_sgd, program, CLASSES)
    assert len(Kept.of(by_sgd, program, CLASSES, optimiser="sgd").flat) == program.size


@every_method
@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"momentum": 0.5}, "adam takes no momentum 0.5"), ({"optimiser": "adamw"}, "give adam or sgd"),
     ({"gradients": 1}, "method fedp.* has no parameter 'gradients'")],
)  # fmt: skip
def test_what_adam_cannot_be_is_refused(name, wrong, words):
    """Adam takes no momentum, and no sum of gradients at the broadcast state, where members would keep no moments."""
    with pytest.raises(BadInput, match=words):
        first(name, **wrong)


@every_method
def test_training_changes_what_is_sent(name):
    """From the second round on members project by what they trained, each by its own."""
    played, states, _ = PLAYED[name]
    assert not np.array_equal(played[0][1].blocks["class_sums"], played[1][1].blocks["class_sums"])
    assert len(set(states)) == 3


@every_method
def test_state_of_another_member_or_plan_is_refused(name):
    """Private bytes that hold other tensors, or no numbers, are refused; so is damage."""
    _, states, _ = PLAYED[name]
    program = first(name).local_program(DIMENSION, np.zeros((1, CLASSES, WIDTH)))
    kept = Kept.of(states[0], program, CLASSES)
    broken = replace(kept, prototypes=kept.prototypes * np.nan).to_bytes()
    for content in (states[0][:-1], b"x", broken):
        with pytest.raises(BadInput):
            Kept.of(content, program, CLASSES)
    with pytest.raises(BadInput, match="the private state holds"):
        Kept.of(states[0], program, CLASSES + 1)
    other = first("fedproto" if name == "fedpcl" else "fedpcl").local_program(DIMENSION, np.zeros((1, CLASSES, WIDTH)))
    with pytest.raises(BadInput, match="the private state holds"):
        Kept.of(states[0], other, CLASSES)


@every_method
def test_broadcast_opens_the_next_round(name):
    """What the server tells is what follows from the sum, bit for bit."""
    played, _, _ = PLAYED[name]
    for (before, _), (after, _) in pairwise(played):
        told = before.decode_broadcast(after.broadcast(), GRID)
        after.require_equal(told)
        assert np.array_equal(told.prototypes, after.prototypes)
    assert played[0][0].broadcast() == b""


@every_method
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda told: replace(told, number=3), "open round"),
        (lambda told: replace(told, rows=told.rows[:-4]), "no prototypes"),
        (lambda told: replace(told, rows=told.rows[:-1]), "bytes open"),
        (lambda told: replace(told, rows=(GRID.levels + 1).to_bytes(4, "little") + told.rows[4:]), "beyond"),
    ],
)
def test_malformed_broadcast_is_refused(name, change, words):
    """Another round's, half a number, half a prototype, or one longer than any projection."""
    (one, _), (two, _), _ = PLAYED[name][0]
    with pytest.raises(MalformedMessage, match=words):
        one.decode_broadcast(encode(change(decode(Centres, two.broadcast()))), GRID)


@every_method
def test_tampered_prototypes_are_refused(name):
    """A unit more in one entry, or prototypes of fewer classes, do not follow from the sum, and open no round."""
    (one, _), (two, _), (three, _) = PLAYED[name][0]
    changed = two.prototypes.copy()
    changed[0, 0, 0] ^= 1
    for told in (replace(two, prototypes=changed), replace(two, prototypes=changed[:, :-1]), three, one):
        with pytest.raises(ProtocolViolation):
            two.require_equal(told)
    with pytest.raises(ProtocolViolation, match="3 prototypes for 4 classes"):
        contribution(replace(two, prototypes=two.prototypes[:, :-1]), slice(None))
    with pytest.raises(ProtocolViolation, match="does not have"):
        three.decode_broadcast(two.broadcast(), GRID)


@every_method
def test_a_sum_of_nothing_leads_nowhere(name):
    """Without any record there is no prototype, and no next round."""
    empty = contribution(first(name), slice(0, 0)).blocks
    with pytest.raises(BadInput, match="no class has a prototype"):
        first(name).finalize(OpenedTotal(empty, GRID))


@every_method
def test_behind_a_gate_a_class_left_out_is_in_no_model(name):
    """After a census members keep projections as before, without a trace of what one of them alone holds."""
    mine = np.flatnonzero(LABELS == 2)
    shares = [np.setdiff1d(np.flatnonzero(rows), mine) for rows in THIRDS]
    plain, states, _ = play(first(name), shares)
    gated = method_named(name, {**first(name).parameters, "gate": 2}).begin(DIMENSION, CLASSES, GRID.levels)
    played, kept, artifact = play(gated, [np.concatenate([shares[0], mine]), *shares[1:]])
    assert len(played) == len(plain) + 1
    last, opened = played[-1]
    artifact.require_fit(CLASSES, DIMENSION)
    inputs = np.random.default_rng(0).normal(size=(200, DIMENSION))
    assert set(np.unique(artifact.predict(inputs))) == {0, 1, 3}
    for state in kept:
        for model in last.personal(state, opened).values():
            model.require_fit(CLASSES, DIMENSION)
            assert set(np.unique(model.predict(inputs))) == {0, 1, 3}
    first_sums = [round_[1].blocks["class_sums"] for round_ in (plain[0], played[1])]
    assert np.array_equal(*first_sums)
    assert len(states) == len(kept)
