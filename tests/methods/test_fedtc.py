"""FedTC as slot sums: sums that add up, what one record moves, the filters, the prototypes and the head of them."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from methods import METHODS, method_named
from methods.round import Examples
from methods.slots.fedtc import CENTRE_LENGTH, FedTC, SlotRound, nearest, prototypes
from methods.slots.slots import read_centres, slot_of, told_centres
from secagg.encoding import Grid, Normalisation, inputs_of, quantise
from secagg.encoding.layout import Layout
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation
from secagg.heads import head_digest, predict
from secagg.heads.linear import HeadAdapter
from secagg.privacy import Adjacency, OpenedNoise, Unit
from tests.methods.steps import artifact_of, contribute, failures_of, next_of
from tests.session.noise_checks import check_promise
from tests.worlds.setups import IN_SUMS, make_setup

GENERATOR = np.random.default_rng(21)
CLASSES, DIMENSION = 3, 6
LABELS = GENERATOR.permutation(np.arange(120) % CLASSES)
FEATURES = GENERATOR.normal(size=(120, DIMENSION)) + 3 * np.eye(DIMENSION)[LABELS] + 0.5
GRIDS = {
    "none": Grid(32.0, centre=1.5),
    "unit": Grid(1.0, centre=0.5, normalisation=Normalisation.UNIT),
    "centred-unit": Grid(1.0, normalisation=Normalisation.CENTRED_UNIT),
}
GRID = GRIDS["centred-unit"]
METHOD = FedTC(slots=4, epochs=3)
STRICT = FedTC(slots=4, epochs=3, threshold=0.6)


def examples(grid=GRID, rows=slice(None)):
    """The records on a grid."""
    return Examples.of(quantise(FEATURES[rows], grid), LABELS[rows])


def summed(method=METHOD, grid=GRID, rows=slice(None)):
    """The method's first sum over them."""
    return contribute(method, examples(grid, rows), CLASSES, grid.levels)


def second_round(method=STRICT, noise=None):
    """The round behind a threshold."""
    following = next_of(method, summed(method), GRID, noise)
    assert isinstance(following, SlotRound)
    return following


def silence(multiplier=1, counts=0.0, sums=0.0):
    """Noise of these σ on the slots' blocks."""
    return {"slot_counts": OpenedNoise(counts, multiplier), "slot_sums": OpenedNoise(sums)}


def test_method_is_its_name_and_parameters():
    """The plan's name and parameters make the method again."""
    assert METHODS["fedtc"] is FedTC
    assert METHOD.parameters == {"slots": 4, "keep": 1.0, "threshold": -1.0, "epochs": 3, "momentum": 0.9, "adapter": 1}
    assert method_named("fedtc", STRICT.parameters) == STRICT


@pytest.mark.parametrize(
    "given",
    [
        {"slots": 0},
        {"slots": 65_537},
        {"epochs": 0},
        {"epochs": 10_001},
        {"keep": 0.0},
        {"keep": 1.01},
        {"keep": math.nan},
        {"threshold": 1.0},
        {"threshold": -1.1},
        {"threshold": math.nan},
        {"momentum": 1.0},
        {"momentum": -0.1},
        {"keep": 0.9, "threshold": 0.5},
    ],
    ids=str,
)
def test_impossible_parameters_are_refused(given):
    """Each parameter has its range, and the two filters exclude each other."""
    with pytest.raises(BadInput):
        method_named("fedtc", given)


@given(st.lists(st.integers(0, 4), min_size=120, max_size=120), st.permutations(range(120)))
def test_any_partition_adds_up(owners, order):
    """However the records are divided and ordered, some clients empty, the blocks add up to the pooled ones."""
    whole, owned = summed(), np.array(owners)
    parts = [summed(rows=np.array(order)[owned == own]) for own in range(5)]
    for block, values in whole.items():
        assert values.dtype == np.int64
        assert np.array_equal(sum(part[block] for part in parts), values)


def test_sum_is_that_of_a_loop():
    """Every record is in the slot of its class that the public hash names, and nowhere else."""
    own = examples()
    slots = slot_of(own.records, 4)
    blocks = summed()
    assert Counter(zip(LABELS.tolist(), slots.tolist(), strict=True)) == {
        (j, s): count for (j, s), count in np.ndenumerate(blocks["slot_counts"]) if count
    }
    for label in range(CLASSES):
        for slot in range(4):
            held = own.records[(label == LABELS) & (slots == slot)]
            assert np.array_equal(blocks["slot_sums"][label, slot], held.sum(axis=0))


@given(st.integers(0, 119))
def test_record_touches_one_slot(row):
    """Adding any record moves one count by 1 and one row of the sums by that record, whoever else is there."""
    with_it, without = summed(), summed(rows=np.delete(np.arange(120), row))
    moved = {name: with_it[name] - without[name] for name in with_it}
    assert np.argwhere(moved["slot_counts"]).tolist() == [[LABELS[row], slot_of(examples().records, 4)[row]]]
    assert moved["slot_counts"].sum() == 1
    assert np.array_equal(moved["slot_sums"].sum(axis=(0, 1)), examples().records[row])
    assert np.count_nonzero(moved["slot_sums"].any(axis=2)) == 1


@pytest.mark.parametrize("method", [METHOD, STRICT], ids=["plain", "threshold"])
@pytest.mark.parametrize("record", [(7, 0), (0, -7), (-7, 0), (2, 6), (0, 0)])
def test_extreme_records_stay_within_the_bounds(method, record):
    """Records of full length move no entry beyond its block's bound and no block beyond its L2, in every sum."""
    one = Examples.of(np.array([record]), np.array([2]))
    kinds = method.sums(2, CLASSES, 7)
    rounds = [method] if len(kinds) == 1 else [method, SlotRound(4, 1, 0.0, 0.6, np.zeros(6, dtype=np.int64))]
    for kind, round_ in zip(kinds, rounds, strict=True):
        moved = contribute(round_, one, CLASSES, 7)
        assert Layout(kind.blocks).flatten(moved).any()
        for block, stated in zip(
            kind.blocks, kind.sensitivity(Unit.RECORD, Adjacency.ADD_REMOVE, 1).blocks, strict=True
        ):
            assert (block.name, block.size) == (stated.name, stated.size)
            assert np.abs(moved[block.name]).max() <= block.bound
            assert np.linalg.norm(moved[block.name]) <= stated.l2


@pytest.mark.parametrize("method", [METHOD, STRICT], ids=["plain", "threshold"])
def test_first_axis_is_the_class(method):
    """Every block has a row for each class, so that the class gate can leave some out."""
    for kind in method.sums(DIMENSION, 5, 100):
        assert [block.shape[0] for block in kind.blocks] == [5, 5]


def test_threshold_divides_the_budget():
    """The rounds share all of μ²."""
    first, second = STRICT.sums(DIMENSION, CLASSES, 100)
    assert first.budget + second.budget == pytest.approx(1.0)
    assert first.times == second.times == 1


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("noise", IN_SUMS)
@pytest.mark.parametrize("method", [METHOD, STRICT], ids=["plain", "threshold"])
def test_plan_keeps_its_promise(adjacency, unit, noise, method):
    """A plan of slot sums at finite ε is accepted by members who recompute ε over all of its sums."""
    given = tuple(method.parameters.items())
    setup = make_setup(adjacency=adjacency, unit=unit, noise=noise, method="fedtc", parameters=given)
    check_promise(setup.plan, setup.roster)


def test_ranked_filter_has_no_finite_epsilon():
    """A plan with `keep` below 1 is refused at finite ε, and the refusal says why."""
    given = tuple({**METHOD.parameters, "keep": 0.99}.items())
    with pytest.raises(BadInput, match=r"no finite epsilon: keep ranks a client's records"):
        make_setup(method="fedtc", parameters=given)
    exact = {"epsilon": math.inf, "delta": 0.0, "adjacency": None, "radius": 32.0}
    assert make_setup(method="fedtc", parameters=given, class_gate=2, **exact).facts.claim is None


@pytest.mark.parametrize("keep", [0.3, 0.5, 0.99])
def test_ranked_filter_keeps_the_nearest(keep):
    """Of every class ⌈α·n⌉ are kept, and no kept record is further from its class's mean than one that is not."""
    kept = nearest(FEATURES, LABELS, keep)
    for label in range(CLASSES):
        own = FEATURES[label == LABELS]
        cosines = own @ own.mean(axis=0) / np.linalg.norm(own, axis=1)
        inside = np.isin(np.flatnonzero(label == LABELS), kept)
        assert inside.sum() == math.ceil(keep * len(own))
        assert inside.all() or cosines[inside].min() >= cosines[~inside].max()
    blocks = summed(replace(METHOD, keep=keep))
    assert blocks["slot_counts"].sum() == len(kept)
    assert np.array_equal(blocks["slot_sums"].sum(axis=(0, 1)), examples().records[nearest_here(keep)].sum(axis=0))


def nearest_here(keep):
    """The filter on integers."""
    return nearest(examples().records.astype(float), LABELS, keep)


def test_ranked_filter_spares_the_only_record():
    """A class of one record keeps it; no records keep none; a record without a direction is no fault."""
    assert nearest(FEATURES[:1], LABELS[:1], 0.01).tolist() == [0]
    assert len(nearest(FEATURES[:0], LABELS[:0], 0.5)) == 0
    assert nearest(np.array([[0.0, 0], [1, 1], [1, 0]]), np.zeros(3, dtype=np.int64), 0.5).tolist() == [1, 2]


@settings(max_examples=30)
@given(st.floats(-0.99, 0.99))
def test_threshold_looks_at_one_record_alone(threshold):
    """A record counts as the cosine to its class's told centre says, whoever else is in the batch."""
    round_ = second_round(replace(STRICT, threshold=threshold))
    centres = round_.centres.reshape(CLASSES, DIMENSION)[LABELS].astype(float)
    records = examples().records.astype(float)
    cosines = (records * centres).sum(axis=1) / np.linalg.norm(records, axis=1) / np.linalg.norm(centres, axis=1)
    blocks = contribute(round_, examples(), CLASSES, GRID.levels)
    clear = np.abs(cosines - threshold) > 1e-9
    assert clear.all()
    assert blocks["slot_counts"].sum() == (cosines >= threshold).sum()
    alone = sum(contribute(round_, examples(rows=[row]), CLASSES, GRID.levels)["slot_sums"] for row in range(120))
    assert np.array_equal(alone, blocks["slot_sums"])


def test_centres_are_the_directions_of_the_opened_sums():
    """The centres are the class sums at one length, to half a unit, and a class without a sum filters nothing."""
    opened = summed(STRICT)
    opened["class_sums"][1] = 0
    round_ = next_of(STRICT, opened, GRID, None)
    assert isinstance(round_, SlotRound)
    lengths = np.linalg.norm(opened["class_sums"].astype(float), axis=1)
    expected = opened["class_sums"] * (CENTRE_LENGTH / np.maximum(lengths, 1))[:, None]
    assert np.abs(round_.centres - expected).max() <= 0.5
    assert contribute(round_, examples(), CLASSES, GRID.levels)["slot_counts"][1].sum() == (LABELS == 1).sum()


def test_broadcast_opens_the_same_round():
    """What a client reads from the broadcast is the server's round: the same sum, the same check."""
    own = second_round()
    told = STRICT.decode_broadcast(own.broadcast(), GRID)
    own.require_equal(told)
    mine, its = (contribute(each, examples(), CLASSES, GRID.levels) for each in (own, told))
    assert all(np.array_equal(mine[name], its[name]) for name in mine)
    assert next_of(own, mine, GRID, None) is None
    with pytest.raises(ProtocolViolation, match="party 0: "):
        own.decode_broadcast(own.broadcast(), GRID)


@pytest.mark.parametrize(
    "broadcast",
    [b"", b"\x01", told_centres(2, np.ones(18, dtype=np.int64)), told_centres(1, np.array([CENTRE_LENGTH + 1] * 18))],
    ids=["nothing", "no message", "another round", "too long"],
)
def test_malformed_broadcast_is_refused(broadcast):
    """What is no message, opens another round or has a centre beyond its length opens no round."""
    with pytest.raises(MalformedMessage):
        STRICT.decode_broadcast(broadcast, GRID)


@pytest.mark.parametrize("change", ["moved", "fewer", "more", "none", "another kind"])
def test_contradicting_centres_are_the_servers_breach(change):
    """Centres that do not follow from the released sum, by a unit in one entry, are refused by every client."""
    own = second_round()
    close = own.centres.ravel()
    own.require_equal(replace(own, centres=close))
    entries = close.copy()
    entries[7] += 1
    told = {
        "moved": replace(own, centres=entries),
        "fewer": replace(own, centres=close[:-1]),
        "more": replace(own, centres=np.append(close, 0)),
        "none": replace(own, centres=None),
        "another kind": METHOD,
    }[change]
    with pytest.raises(ProtocolViolation, match="party 0: the centres"):
        own.require_equal(told)


def test_centres_of_another_shape_are_summed_with_by_nobody():
    """A client whose records have another dimension than the told centres blames the server."""
    with pytest.raises(ProtocolViolation, match="party 0: broadcasts centres of 17"):
        contribute(replace(second_round(), centres=np.ones(17, dtype=np.int64)), examples(), CLASSES, GRID.levels)


def test_without_threshold_there_is_one_round():
    """Nothing follows, nothing is broadcast, and what the server announces is its breach."""
    assert next_of(METHOD, summed(), GRID, None) is None
    assert METHOD.broadcast() == b""
    with pytest.raises(ProtocolViolation, match="party 0: "):
        METHOD.decode_broadcast(told_centres(1, np.ones(18, dtype=np.int64)), GRID)
    with pytest.raises(ProtocolViolation, match="party 0: "):
        METHOD.require_equal(METHOD)


def test_before_a_threshold_there_is_no_head():
    """The first of two sums gives centres and no head; their broadcast holds what the opened noise left of them."""
    assert artifact_of(STRICT, summed(STRICT), GRID, None) is None
    assert len(read_centres(second_round().broadcast(), 1, CENTRE_LENGTH)) == CLASSES * DIMENSION


@pytest.mark.parametrize("name", GRIDS)
def test_prototypes_are_the_slots_means(name):
    """On every grid the rows are means of the head inputs of a slot's records, with their number as weight."""
    grid = GRIDS[name]
    rows, labels, weights = prototypes(summed(grid=grid), grid, None)
    inputs, slots = inputs_of(FEATURES, grid), slot_of(examples(grid).records, 4)
    expected = [
        (inputs[own].mean(axis=0), label, own.sum())
        for label in range(CLASSES)
        for slot in range(4)
        if (own := (label == LABELS) & (slots == slot)).any()
    ]
    assert rows == pytest.approx(np.array([row for row, _, _ in expected]), abs=2 * grid.step + 1e-4)
    assert labels.tolist() == [label for _, label, _ in expected]
    assert weights.tolist() == [count for _, _, count in expected]


@pytest.mark.parametrize("multiplier", [1, 250])
def test_multiplier_is_taken_out_of_the_counts(multiplier):
    """Counts that were summed times a multiplier give the same prototypes."""
    exact = summed()
    noisy = prototypes({**exact, "slot_counts": multiplier * exact["slot_counts"]}, GRID, silence(multiplier))
    for one, other in zip(prototypes(exact, GRID, None), noisy, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(("counts", "sums"), [(2.1, 0.0), (0.0, 3.0)])
def test_small_slots_are_left_out_by_the_noise_alone(counts, sums):
    """A slot counts from 1 + 3σ of its count and σ'√d/R of its sum on; what the records are plays no part."""
    opened = summed()
    opened["slot_counts"] = np.array([[30, 8, 7, 6], [8, 30, 7, 7], [7, 8, 30, 0]])
    noise = silence(counts=counts, sums=sums * GRID.unit(DIMENSION))
    least = max(1 + 3 * counts, sums * math.sqrt(DIMENSION))
    assert 7 <= least < 8
    _, labels, weights = prototypes(opened, GRID, noise)
    assert weights.tolist() == [count for count in opened["slot_counts"].ravel().tolist() if count >= least]
    assert labels.tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(("row", "weight"), [((3, 2, -1, 4), 8.0), ((-9, 2, 3, 1), 1.0), ((0, 0, 0, 0), 1.0)])
def test_class_of_small_slots_keeps_its_mean(row, weight):
    """Under noise a class whose slots are all too small is one prototype, its count at least 1: none is absent."""
    opened = summed()
    opened["slot_counts"] = np.array([[30, 30, 30, 30], row, [30, 30, 30, 30]])
    rows, labels, weights = prototypes(opened, GRID, silence(counts=5.0))
    assert labels.tolist() == [0] * 4 + [2] * 4 + [1]
    assert weights[-1] == weight
    assert rows[-1] == pytest.approx(opened["slot_sums"][1].sum(axis=0) / GRID.unit(DIMENSION) / weight)
    assert artifact_of(METHOD, opened, GRID, silence(counts=5.0)).present.all()


def test_adapter_comes_first():
    """The head is a linear layer of C classes behind two stacked layers of Table 5's widths on the features."""
    head = artifact_of(METHOD, summed(), GRID, None)
    assert isinstance(head.before, HeadAdapter)
    assert head.before.kind == "stacked"
    assert [weight.shape for weight, _ in head.before.layers] == [(1024, DIMENSION), (512, 1024)]
    assert head.weight.shape == (CLASSES, 512)


@pytest.mark.parametrize("threshold", [-1, 0.6])
def test_adapter_can_be_left_out(threshold):
    """With adapter=0 the same sums, with or without a threshold, give a linear head on the features that learns."""
    method = FedTC(slots=4, epochs=20, threshold=threshold, adapter=0)
    assert method.sums(DIMENSION, CLASSES, 9) == replace(method, adapter=1).sums(DIMENSION, CLASSES, 9)
    last = method if threshold == -1 else second_round(method)
    head = artifact_of(last, contribute(last, examples(), CLASSES, GRID.levels), GRID, None)
    assert head.before is None
    assert head.weight.shape == (CLASSES, DIMENSION)
    assert (predict(head, inputs_of(FEATURES, GRID)) == LABELS).mean() > 0.85


def test_head_learns_and_repeats():
    """Three epochs tell the classes of the training records apart, and two runs give the same bits."""
    one, other = (artifact_of(FedTC(slots=4, epochs=20), summed(), GRID, None) for _ in range(2))
    assert head_digest(one) == head_digest(other)
    assert (predict(one, inputs_of(FEATURES, GRID)) == LABELS).mean() > 0.85


def test_absent_class_is_never_predicted():
    """A class without records is marked absent; an empty sum gives no head."""
    kept = np.flatnonzero(LABELS != 1)
    head = artifact_of(METHOD, summed(rows=kept), GRID, None)
    assert head.present.tolist() == [True, False, True]
    assert 1 not in predict(head, GENERATOR.normal(size=(500, DIMENSION)))
    with pytest.raises(BadInput, match="holds no record"):
        artifact_of(METHOD, summed(rows=slice(0, 0)), GRID, None)


@pytest.mark.parametrize("method", [METHOD, STRICT], ids=["plain", "threshold"])
def test_honest_sums_raise_no_doubt(method):
    """Honest sums are plausible on every grid, also with classes absent."""
    for grid in GRIDS.values():
        assert failures_of(method, summed(method, grid), grid) == []
        assert failures_of(method, summed(method, grid, slice(0, 3)), grid) == []


def test_false_sums_are_named():
    """A negative count and a sum that its records cannot reach are said with class and slot, and only those."""
    aggregate = summed()
    aggregate["slot_counts"][1, 2] = -1
    aggregate["slot_sums"][1, 2] = 0
    aggregate["slot_sums"][2, 3] = 0
    aggregate["slot_sums"][2, 3, 0] = (aggregate["slot_counts"][2, 3] + 1) * GRID.levels
    said = failures_of(METHOD, aggregate, GRID)
    assert said[0] == "class 1, part 2, has -1 records"
    assert said[1].startswith("class 2, part 3, sums to length")
    assert len(said) == 2
