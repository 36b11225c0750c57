"""MPFT: sums of cells and slots, k-means in rounds, what opens a round, what is refused, and the gate it needs."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from methods import METHODS, method_named
from methods.gate import Gated, GatedRound, KeptClasses
from methods.round import Examples, Round
from methods.slots.mpft import MPFT, Clustering
from methods.slots.slots import Centres, slot_of
from secagg.data import open_dataset
from secagg.encoding import Grid, Normalisation, inputs_of, quantise
from secagg.encoding.layout import Integers, Layout
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.heads import predict
from secagg.heads.descent import LOGIT_SCALE
from secagg.privacy import Adjacency, OpenedNoise, Unit
from secagg.wire import decode, encode
from tests.methods.steps import artifact_of, contribute, failures_of, next_of
from tests.worlds.setups import make_setup

GRID = Grid(1.0, 1 << 10, 0.0, Normalisation.CENTRED_UNIT)
CLASSES, DOMAINS, DIMENSION = 4, 3, 6
GENERATOR = np.random.default_rng(12)
PLACES = GENERATOR.permutation(np.arange(480) % (CLASSES * DOMAINS))
LABELS, ORIGINS = np.divmod(PLACES, DOMAINS)
FEATURES = (
    GENERATOR.normal(size=(480, DIMENSION))
    + 3 * np.eye(DIMENSION)[LABELS]
    + 2 * np.eye(DIMENSION)[DIMENSION - 1 - ORIGINS]
)
EXAMPLES = Examples(quantise(FEATURES, GRID), LABELS, ORIGINS)
NAMED = "art+photo+sketch"
NOISE = {"slot_counts": OpenedNoise(2.0), "slot_sums": OpenedNoise(500.0)}


def mpft(**parameters: Any) -> MPFT:
    """The method over the three domains; few epochs unless said otherwise."""
    return MPFT(**{"domains": NAMED, "epochs": 3, **parameters})


def clustering(slots: int = 3, rounds: int = 3) -> MPFT:
    """With k-means."""
    return mpft(sampling="cluster", slots=slots, rounds=rounds)


def contributed(round_: Round, rows: Any = slice(None)) -> dict[str, Integers]:
    """The blocks over some of the records."""
    return contribute(round_, EXAMPLES.take(rows), CLASSES, GRID.levels)


def rounds_of(method: MPFT) -> list[Clustering]:
    """Every round after the first, over exact sums of all records."""
    found, round_ = [], next_of(method, contributed(method), GRID, None)
    while round_ is not None:
        assert isinstance(round_, Clustering)
        found.append(round_)
        round_ = next_of(round_, contributed(round_), GRID, None)
    return found


def test_parameters_make_the_method_again() -> None:
    """The plan's name and parameters give the method back; by default there is one domain and one slot."""
    method = clustering()
    assert METHODS["mpft"] is MPFT
    assert method_named("mpft", method.parameters) == method
    assert MPFT().parameters == {"domains": "", "sampling": "mean", "slots": 1, "rounds": 0, "epochs": 200}
    assert [block.shape for block in MPFT().sums(6, 4, 9)[0].blocks] == [(4, 1, 1), (4, 1, 1, 6)]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"sampling": "random"}, "an embedding of one record leaves the client.*mpft-random"),
        ({"sampling": "median"}, "unknown sampling 'median'.*mean or cluster"),
        ({"domains": "art+photo+art"}, "name each once"),
        ({"domains": "art++photo"}, "name each once"),
        ({"domains": "+"}, "name each once"),
        ({"slots": 0}, "0 slots"),
        ({"slots": 65_537}, "65537 slots"),
        ({"sampling": "cluster", "slots": 1, "rounds": 1}, "1 slots; give 2 to"),
        ({"sampling": "cluster", "slots": 4}, "0 rounds of cluster sampling"),
        ({"sampling": "cluster", "slots": 4, "rounds": 101}, "101 rounds of cluster sampling"),
        ({"rounds": 1}, "1 rounds of mean sampling; means take none"),
        ({"epochs": 0}, "epochs is 0; give 1 to 10000"),
        ({"epochs": 10_001}, "epochs is 10001"),
    ],
    ids=str,
)
def test_parameters_that_cannot_be_are_refused(parameters: dict[str, Any], words: str) -> None:
    """Each with what is wrong, and what to give instead."""
    with pytest.raises(BadInput, match=words):
        method_named("mpft", {"domains": NAMED, **parameters})


@pytest.mark.parametrize("number", [0, 1, 2])
@given(st.lists(st.integers(0, 4), min_size=480, max_size=480))
@settings(max_examples=20)
def test_any_partition_adds_up(number: int, owners: list[int]) -> None:
    """However the records are divided among clients, the blocks of the first and of later rounds add up."""
    method = clustering()
    round_ = [method, *rounds_of(method)][number]
    whole = contributed(round_)
    parts = [contributed(round_, np.equal(owners, own)) for own in range(6)]
    for name, block in whole.items():
        assert block.dtype == np.int64
        assert np.array_equal(sum(part[name] for part in parts), block)


def test_sums_are_those_of_the_records() -> None:
    """Each record is in the one slot of its class and domain that its hash names, by a loop in whole numbers."""
    blocks = contributed(mpft(slots=5))
    counts, sums = np.zeros((CLASSES, DOMAINS, 5), int), np.zeros((CLASSES, DOMAINS, 5, DIMENSION), int)
    for record, label, domain in zip(EXAMPLES.records, LABELS, ORIGINS, strict=True):
        place = (label, domain, int(slot_of(record[None], 5)[0]))
        counts[place] += 1
        sums[place] += record
    assert np.array_equal(blocks["slot_counts"], counts)
    assert np.array_equal(blocks["slot_sums"], sums)
    cells = contributed(mpft())
    assert np.array_equal(cells["slot_sums"][:, :, 0], sums.sum(axis=2))


@pytest.mark.parametrize("method", [mpft(), mpft(slots=7), clustering()], ids=["mean", "slots", "cluster"])
def test_every_round_fits_its_layout(method: MPFT) -> None:
    """Blocks have the shapes that the sums state, also from a client without records, and the budgets sum to 1."""
    kinds = method.sums(DIMENSION, CLASSES, GRID.levels)
    assert math.fsum(kind.budget for kind in kinds) == pytest.approx(1)
    assert sum(kind.times for kind in kinds) == 1 + method.rounds
    layouts = [Layout(kind.blocks) for kind in kinds for _ in range(kind.times)]
    for round_, layout in zip([method, *rounds_of(method)], layouts, strict=True):
        assert layout.flatten(contributed(round_)).any()
        assert not layout.flatten(contributed(round_, slice(0))).any()


def extreme(levels: int) -> Examples:
    """Records of full length, along, against and across the axes, of every cell."""
    diagonal = np.full(DIMENSION, math.isqrt(levels * levels // DIMENSION))
    directions = np.array(
        [levels * np.eye(DIMENSION, dtype=int)[0], -levels * np.eye(DIMENSION, dtype=int)[1], diagonal]
    )
    places = np.arange(CLASSES * DOMAINS)
    labels, domains = np.divmod(np.repeat(places, 3), DOMAINS)
    return Examples(np.tile(directions, (len(places), 1)), labels, domains)


@pytest.mark.parametrize("levels", [1 << 10, 1 << 24])
@pytest.mark.parametrize("number", [0, 1])
def test_no_record_moves_more_than_stated(levels: int, number: int) -> None:
    """A record adds 1 to one count and itself to one sum; nothing beyond bounds and sensitivity, which is reached."""
    method = clustering(slots=2, rounds=1)
    kind = method.sums(DIMENSION, CLASSES, levels)[number]
    size = CLASSES * DOMAINS * 2 * DIMENSION
    centres = np.random.default_rng(5).integers(-levels // 3, levels // 3, size)
    round_ = method if number == 0 else Clustering(method, 1, centres)
    records, weights = extreme(levels), {"slot_counts": 1.0, "slot_sums": 1.0}
    parts = [contribute(round_, records.take([row]), CLASSES, levels) for row in range(len(records))]
    largest = dict.fromkeys(Adjacency, 0.0)
    for one in parts:
        counts, sums = (one[name].astype(np.float64) for name in weights)
        assert (counts.sum(), np.count_nonzero(counts)) == (1, 1)
        assert all(np.abs(one[block.name]).max() <= block.bound for block in kind.blocks)
        largest[Adjacency.ADD_REMOVE] = max(largest[Adjacency.ADD_REMOVE], 1 + (sums**2).sum())
        for other in parts:
            moved = sum(((one[name] - other[name]).astype(np.float64) ** 2).sum() for name in weights)
            largest[Adjacency.REPLACE_ONE] = max(largest[Adjacency.REPLACE_ONE], moved)
    for adjacency, found in largest.items():
        assert found <= kind.sensitivity(Unit.RECORD, adjacency, 1).squared(weights)
    assert largest[Adjacency.ADD_REMOVE] == kind.sensitivity(Unit.RECORD, Adjacency.ADD_REMOVE, 1).squared(weights)
    assert largest[Adjacency.REPLACE_ONE] >= 2 * (1 + levels**2)


def test_nearest_centre_is_taken_exactly() -> None:
    """Each record goes to the centre of its cell at the least distance in whole numbers, the first of equally near."""
    levels = 1 << 24
    centres = np.random.default_rng(6).integers(-levels // 3, levels // 3, (CLASSES, DOMAINS, 3, DIMENSION))
    centres[:, :, 2] = centres[:, :, 1]  # a tie with every second centre
    records = extreme(levels)
    round_ = Clustering(clustering(), 1, centres.ravel())
    for row in range(len(records)):
        own = records.take([row])
        place = int(own.labels[0]), int(own.domains[0])
        record = own.records[0].tolist()
        distances = [
            sum((q - c) ** 2 for q, c in zip(record, centre, strict=True)) for centre in centres[place].tolist()
        ]
        counts = contribute(round_, own, CLASSES, levels)["slot_counts"]
        assert np.argwhere(counts).tolist() == [[*place, distances.index(min(distances))]]


def test_rounds_are_lloyds() -> None:
    """From the same first centres scikit-learn's k-means ends at the same means of every cell, but for rounding."""
    rounds = rounds_of(clustering(slots=3, rounds=40))
    first, last = (each.centres.reshape(CLASSES, DOMAINS, 3, DIMENSION) for each in (rounds[0], rounds[-1]))
    for label, domain in np.ndindex(CLASSES, DOMAINS):
        own = EXAMPLES.records[(label == LABELS) & (domain == ORIGINS)].astype(np.float64)
        model = KMeans(3, init=first[label, domain].astype(np.float64), n_init=1, max_iter=300, tol=0).fit(own)
        assert np.abs(model.cluster_centers_ - last[label, domain]).max() <= 2


def test_clustering_draws_prototypes_nearer() -> None:
    """Every round brings the records nearer to their centres, all rounds to well below the first partition."""
    spread = []
    for round_ in rounds_of(clustering(slots=4, rounds=6)):
        centres = round_.centres.reshape(CLASSES, DOMAINS, 4, DIMENSION)[LABELS, ORIGINS]
        spread.append(((EXAMPLES.records[:, None] - centres) ** 2).sum(axis=2).min(axis=1).sum())
    assert all(later <= earlier * 1.0001 for earlier, later in pairwise(spread))
    assert spread[-1] < 0.8 * spread[0]


def test_head_comes_after_the_last_sum() -> None:
    """A mean gives its head at once, clustering after its last round; the middle rounds give none."""
    assert artifact_of(mpft(), contributed(mpft()), GRID, None) is not None
    method = clustering()
    heads = [artifact_of(round_, contributed(round_), GRID, None) for round_ in (method, *rounds_of(method))]
    assert [head is not None for head in heads] == [False, False, False, True]


@pytest.mark.parametrize(
    "grid", [Grid(32.0), Grid(32.0, centre=1.5), GRID, Grid(1.0, 1 << 12, 0.5, Normalisation.UNIT)], ids=str
)
def test_frozen_weights_are_class_means(grid: Grid) -> None:
    """Under every normalisation the linear layer holds 100 times the directions of the class means of its inputs."""
    examples = Examples(quantise(FEATURES, grid), LABELS, ORIGINS)
    head = artifact_of(mpft(slots=3), contribute(mpft(slots=3), examples, CLASSES, grid.levels), grid, None)
    assert head is not None
    inputs = inputs_of(FEATURES, grid)
    means = np.array([inputs[label == LABELS].mean(axis=0) for label in range(CLASSES)])
    expected = LOGIT_SCALE * means / np.linalg.norm(means, axis=1, keepdims=True)
    assert head.weight == pytest.approx(expected, abs=0.05)
    assert not head.bias.any()


def test_head_learns_and_repeats() -> None:
    """The head knows its classes in every domain, and two trainings give the same bits."""
    method = mpft(slots=4, epochs=60)
    one, two = (artifact_of(method, contributed(method), GRID, None) for _ in range(2))
    assert one is not None
    assert two is not None
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one.arrays, two.arrays, strict=True))
    right = predict(one, inputs_of(FEATURES, GRID)) == LABELS
    assert all(right[domain == ORIGINS].mean() > 0.85 for domain in range(DOMAINS))


def test_class_without_records_is_absent() -> None:
    """A class that nobody has is never predicted; a sum without records gives no head, and says so."""
    kept = LABELS != 2
    head = artifact_of(mpft(), contributed(mpft(), kept), GRID, None)
    assert head is not None
    assert head.present.tolist() == [True, True, False, True]
    with pytest.raises(BadInput, match="the sum gives no prototype"):
        artifact_of(mpft(), contributed(mpft(), slice(0)), GRID, None)


def test_noise_gives_a_head_and_centres_stay() -> None:
    """Under noise every class is there; a slot whose count may be noise keeps its centre, or starts at zero."""
    method = clustering(rounds=2)
    blocks = contributed(method)
    blocks["slot_counts"][1, 2] = [6, 7, -3]  # σ is 2: below 1 + 3σ nothing is divided by
    first = next_of(method, blocks, GRID, NOISE)
    assert isinstance(first, Clustering)
    centres = first.centres.reshape(CLASSES, DOMAINS, 3, DIMENSION)
    assert centres[1, 2].any(axis=1).tolist() == [False, True, False]
    assert np.linalg.norm(centres.astype(float), axis=-1).max() <= GRID.levels + DIMENSION
    second = next_of(first, blocks, GRID, NOISE)
    assert isinstance(second, Clustering)
    assert np.array_equal(second.centres.reshape(centres.shape)[1, 2, 0], centres[1, 2, 0])
    head = artifact_of(second, {name: 0 * block for name, block in blocks.items()}, GRID, NOISE)
    assert head is not None
    assert head.present.all()


def test_multiplier_of_counts_is_taken_out() -> None:
    """Counts in finer units give the same centres."""
    method = clustering()
    blocks = contributed(method)
    finer = {**blocks, "slot_counts": 8 * blocks["slot_counts"]}
    one = next_of(method, blocks, GRID, {**NOISE, "slot_counts": OpenedNoise(2.0)})
    two = next_of(method, finer, GRID, {**NOISE, "slot_counts": OpenedNoise(16.0, 8)})
    assert isinstance(one, Clustering)
    assert isinstance(two, Clustering)
    assert np.array_equal(one.centres, two.centres)


def test_what_no_honest_sum_shows_is_said() -> None:
    """Counts below zero and sums that are too long are reported in every round; honest ones are not."""
    method = clustering(rounds=1)
    for round_ in (method, *rounds_of(method)):
        blocks = contributed(round_)
        assert failures_of(round_, blocks, GRID) == []
        blocks["slot_counts"][3, 1, 0] = -1
        assert [line.split(" has")[0].split(" sums")[0] for line in failures_of(round_, blocks, GRID)] == [
            "class 3, part 1/0,"
        ] * 2


def test_broadcasts_open_the_same_rounds() -> None:
    """What a client reads from the broadcasts contributes what the server's rounds would, bit for bit."""
    method = clustering()
    told: Round = method
    for own in rounds_of(method):
        told = told.decode_broadcast(own.broadcast(), GRID)
        own.require_equal(told)
        one, other = contributed(told), contributed(own)
        assert all(np.array_equal(one[name], other[name]) for name in one)
    with pytest.raises(ProtocolViolation, match="a round that the plan does not have"):
        told.decode_broadcast(own.broadcast(), GRID)
    with pytest.raises(ProtocolViolation, match="a round that the plan does not have"):
        mpft().decode_broadcast(own.broadcast(), GRID)
    assert method.broadcast() == b""


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content + b"\x00",
        lambda content: content + content,
        lambda content: b"\xff" * 40,
        lambda content: encode(replace(decode(Centres, content), number=3)),
        lambda content: encode(replace(decode(Centres, content), rows=decode(Centres, content).rows[:-1])),
        lambda content: encode(replace(decode(Centres, content), rows=(GRID.levels + 1).to_bytes(4, "little") * 6)),
    ],
    ids=["empty", "short", "longer", "twice", "garbage", "other number", "part of a number", "too far"],
)
@pytest.mark.parametrize("place", [0, 1])
def test_malformed_broadcast_is_refused(place: int, damage: Any) -> None:
    """Damaged bytes, another round's number, and centres beyond any record open no round."""
    method = clustering()
    first, second, _ = rounds_of(method)
    before, after = ((method, first), (first, second))[place]
    with pytest.raises(MalformedMessage):
        before.decode_broadcast(damage(after.broadcast()), GRID)


def test_contradicting_centres_are_refused() -> None:
    """A unit more in one entry does not follow from the sums; other rounds, or numbers of centres, never pass."""
    own, other, _ = rounds_of(clustering())
    for told in (
        replace(own, centres=own.centres + (np.arange(len(own.centres)) == 7)),
        replace(own, centres=own.centres[:-DIMENSION]),
        replace(own, centres=np.zeros(0, dtype=np.int64)),
    ):
        with pytest.raises(ProtocolViolation, match="the centres it broadcasts do not follow"):
            own.require_equal(told)
    for wrong in (other, mpft()):
        with pytest.raises(ProtocolViolation, match="another kind of round"):
            own.require_equal(wrong)
    with pytest.raises(BadInput, match="are no centres for 4 classes"):
        contributed(replace(own, centres=own.centres[:-DIMENSION]))


def test_too_many_centres_are_refused_with_the_plan() -> None:
    """More than a broadcast holds: the plan is refused, before anybody sends anything; means have no such limit."""
    with pytest.raises(BadInput, match="too many to be told; give fewer slots"):
        clustering(slots=1000).sums(1024, 10, 9)
    mpft(slots=1000).sums(1024, 10, 9)


def gated(**parameters: Any) -> Gated:
    """The method behind a gate of 2 clients."""
    method = method_named("mpft", {**mpft(**parameters).parameters, "gate": 2})
    assert isinstance(method, Gated)
    return method


def passing(gate: Gated, census: list[list[int]]) -> GatedRound:
    """The round after this census, classes in rows, domains in columns."""
    following = next_of(gate, {"census": np.array(census)}, GRID, None)
    assert isinstance(following, GatedRound)
    return following


CENSUS = [[2, 5, 3], [2, 1, 0], [1, 1, 1], [9, 0, 2]]
KEPT_CELLS = [(0, 0), (0, 1), (0, 2), (1, 0), (3, 0), (3, 2)]


def test_census_counts_clients_in_every_cell() -> None:
    """A client adds 1 for each class and domain that it has, and one record moves one cell."""
    gate = gated()
    rows = np.flatnonzero((LABELS == 1) & (ORIGINS == 2))
    assert np.argwhere(contributed(gate, rows)["census"]).tolist() == [[1, 2]]
    assert contributed(gate)["census"].tolist() == [[1] * DOMAINS] * CLASSES
    assert not contributed(gate, slice(0))["census"].any()
    census = gate.sums(DIMENSION, CLASSES, GRID.levels)[0]
    assert census.blocks[0].shape == (CLASSES, DOMAINS)
    assert census.sensitivity(Unit.RECORD, Adjacency.ADD_REMOVE, 1).squared({"census": 1.0}) == 1
    assert census.sensitivity(Unit.RECORD, Adjacency.REPLACE_ONE, 1).squared({"census": 1.0}) == 2
    assert (
        failures_of(gate, {"census": np.array([[0, -1, 2]] * 2)}, GRID)[1] == "class 1, part 1, is held by -1 clients"
    )


def test_gate_holds_for_every_cell() -> None:
    """Cells that too few hold are left out, also where nobody does; a class goes when all of its cells do."""
    round_ = passing(gated(), CENSUS)
    assert [divmod(cell, DOMAINS) for cell in round_.kept] == KEPT_CELLS
    assert round_.left_out(CLASSES) == tuple(place for place in np.ndindex(CLASSES, DOMAINS) if place not in KEPT_CELLS)
    counts = contributed(round_)["slot_counts"]
    assert [tuple(place[:2]) for place in np.argwhere(counts)] == KEPT_CELLS
    head = artifact_of(round_, contributed(round_), GRID, None)
    assert head is not None
    assert head.present.tolist() == [True, True, False, True]
    with pytest.raises(BadInput, match="1 of 4 classes are held by 2 clients or more"):
        next_of(gated(), {"census": np.array([[2, 2, 2], [1, 1, 1], [0, 0, 0], [1, 0, 1]])}, GRID, None)


@pytest.mark.parametrize("parameters", [{}, {"sampling": "cluster", "slots": 2, "rounds": 2}], ids=["mean", "cluster"])
def test_gated_rounds_are_those_without_the_cells_left_out(parameters: dict[str, Any]) -> None:
    """Sums, broadcasts and heads are those of the method over the kept cells' records, and noise there is dropped."""
    kept = [(label, domain) in KEPT_CELLS for label, domain in zip(LABELS, ORIGINS, strict=True)]
    round_, plain = passing(gated(**parameters), CENSUS), mpft(**parameters)
    told: Round = gated(**parameters).decode_broadcast(round_.broadcast(), GRID)
    alone: Round | None = plain
    while alone is not None:
        round_.require_equal(told)
        blocks, same = contributed(told), contributed(alone, np.array(kept))
        assert all(np.array_equal(blocks[name], same[name]) for name in same)
        blocks["slot_counts"][2] += 50  # noise where nobody adds anything
        blocks["slot_sums"][1, 1] += 999
        assert [line for line in failures_of(round_, blocks, GRID) if "left out" in line] == [
            "class 1 in part 1 was left out, but its sum is not 0",
            *(f"class 2 in part {domain} was left out, but its sum is not 0" for domain in range(DOMAINS)),
        ]
        one, two = artifact_of(round_, blocks, GRID, None), artifact_of(alone, same, GRID, None)
        assert (one is None) == (two is None)
        assert (
            one is None or two is None or all(np.array_equal(a, b) for a, b in zip(one.arrays, two.arrays, strict=True))
        )
        round_, alone = next_of(round_, blocks, GRID, None), next_of(alone, same, GRID, None)
        told = told.decode_broadcast(round_.broadcast(), GRID) if round_ is not None else told
    assert round_ is None


def test_cells_of_one_class_open_nothing() -> None:
    """A broadcast that names cells of one class alone is no opening; another choice of cells is the server's breach."""
    gate, round_ = gated(), passing(gated(), CENSUS)
    with pytest.raises(MalformedMessage, match="all of one class"):
        gate.decode_broadcast(encode(KeptClasses((3, 4, 5))), GRID)
    with pytest.raises(ProtocolViolation, match="do not follow from the census"):
        round_.require_equal(passing(gate, [[2, 2, 2]] * CLASSES))


def test_domains_need_a_gate() -> None:
    """A plan that tells domains apart has a class gate, unless it protects nothing; one domain needs none."""
    exact = {"epsilon": math.inf, "delta": None, "adjacency": None, "method": "mpft", "radius": 1.0}
    parts = (("domains", "art+photo"),)
    with pytest.raises(BadInput, match=r"can be a single client's own.*give a class gate of 2"):
        make_setup(parameters=parts, **exact)
    assert make_setup(parameters=parts, class_gate=2, **exact).rounds == 2
    assert make_setup(parameters=parts, protection="none", **exact).rounds == 1
    assert make_setup(parameters=(), **exact).rounds == 1


def two_domains(path: Path) -> Path:
    """A data set of two domains and three classes, as an archive."""
    own = [np.flatnonzero((domain == ORIGINS) & (LABELS < 3)) for domain in range(2)]
    arrays = {
        f"{name}_{part}": array[rows] for name, rows in zip("ab", own, strict=True) for part, array in PARTS.items()
    }
    np.savez(path / "domains.npz", **arrays)
    return path / "domains.npz"


PARTS = {"features": FEATURES, "labels": LABELS}


@pytest.mark.parametrize("parameters", ["slots=2 epochs=20", "sampling=cluster slots=2 rounds=2 epochs=20"])
def test_every_protection_opens_the_same_bits(tmp_path: Path, parameters: str) -> None:
    """With three clients a domain all protections give one sum and one head, that of the records in one place."""
    data = open_dataset(str(two_domains(tmp_path)))
    given = {"method": "mpft", "parameters": parameters, "partition": "column:domain:3"}
    runs = [
        simulate_dataset(data, SimulationSettings(**given, protection=protection, colluders=0, class_gate=gate))
        for protection, gate in (("masked", 3), ("shared", 3), ("encrypted", 3), ("none", 0))
    ]
    found = [run.to_json() for run in runs]
    assert len({each["aggregate_sha256"] for each in found}) == 1
    assert len({each["head_sha256"] for each in found}) == 1
    assert found[0]["clients"] == 6
    assert found[0]["accuracy"] == found[0]["accuracy_reference"] > 0.8
    assert found[0]["classes_left_out"] == []


def test_cells_left_out_are_named(tmp_path: Path) -> None:
    """A class that one client of a domain has alone is left out there, and the result says where."""
    data = open_dataset(str(two_domains(tmp_path)))
    train = data.train
    alone = (train.columns["domain"] == "b") & (train.labels == 2)
    parts = [
        np.flatnonzero(part)
        for part in (~alone & (np.arange(len(train)) % 2 == 0), ~alone & (np.arange(len(train)) % 2 == 1))
    ]
    parts[0] = np.sort(np.concatenate([parts[0], np.flatnonzero(alone)]))
    divided = replace(data, parts=tuple((f"client {number}", part) for number, part in enumerate(parts)))
    run = simulate_dataset(divided, SimulationSettings(method="mpft", parameters="epochs=5", class_gate=2))
    assert run.to_json()["classes_left_out"] == ["2 in b"]
