"""Class prototypes: sums that add up, the bounds of one record, the nearest-mean head, the noise they take."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import NearestCentroid

from methods import METHODS, method_named
from methods.closed_form.prototypes import Prototypes
from methods.round import Examples
from secagg.agreement.plan import NoiseFrom
from secagg.encoding import Grid, Normalisation, inputs_of, quantise
from secagg.encoding.layout import Layout
from secagg.errors import BadInput, ProtocolViolation
from secagg.heads import predict
from secagg.privacy import Adjacency, OpenedNoise, Unit
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup, contribution_of
from tests.methods.steps import artifact_of, contribute, failures_of, next_of
from tests.session.noise_checks import check_neighbours, check_noise, check_promise, delta_by_hand
from tests.worlds.setups import IN_SUMS, make_setup, some_records

METHOD = Prototypes()
GENERATOR = np.random.default_rng(11)
LABELS = GENERATOR.permutation(np.arange(120) % 4)
FEATURES = GENERATOR.normal(size=(120, 6)) + 2 * np.eye(6)[LABELS] + 0.5
GRIDS = {
    "none": Grid(32.0),
    "a centre": Grid(32.0, centre=1.5),
    "unit": Grid(1.0, centre=0.5, normalisation=Normalisation.UNIT),
    "centred-unit": Grid(1.0, normalisation=Normalisation.CENTRED_UNIT),
}
TWO_BLOCKS = {"parameters": (), "method": "prototypes"}


def summed(grid, features=FEATURES, labels=LABELS, classes=4):
    """The exact sum over records on a grid."""
    return contribute(METHOD, Examples.of(quantise(features, grid), labels), classes, grid.levels)


def silence(multiplier):
    """Noise of σ 0 on counts that were summed times a multiplier."""
    return {"counts": OpenedNoise(0.0, multiplier), "class_sums": OpenedNoise(0.0)}


def test_method_is_registered_without_parameters():
    """The plan's name and its empty parameters make the method again, and it takes no others."""
    assert METHODS["prototypes"] is Prototypes
    assert method_named("prototypes", METHOD.parameters) == METHOD
    with pytest.raises(BadInput, match="no parameter 'ridge'"):
        method_named("prototypes", {"ridge": 0.1})


@given(st.lists(st.integers(0, 4), min_size=120, max_size=120))
def test_any_partition_adds_up(owners):
    """However the records are divided among clients, some of them empty, the blocks add up to the pooled ones."""
    grid = GRIDS["none"]
    whole = summed(grid)
    parts = [summed(grid, FEATURES[np.equal(owners, own)], LABELS[np.equal(owners, own)]) for own in range(5)]
    for block, values in whole.items():
        assert values.dtype == np.int64
        assert np.array_equal(sum(part[block] for part in parts), values)


def test_sum_is_the_sum_of_the_records():
    """Every row is the sum of its class's integers, every count their number, by a loop in whole numbers."""
    grid = GRIDS["unit"]
    records = quantise(FEATURES, grid)
    for label in range(4):
        own = [row.tolist() for row, other in zip(records, LABELS, strict=True) if other == label]
        assert summed(grid)["counts"][label] == len(own)
        assert summed(grid)["class_sums"][label].tolist() == [sum(column) for column in zip(*own, strict=True)]


def test_empty_client_contributes_zeros():
    """A client without records adds nothing, in blocks of the full shape."""
    blocks = contribute(METHOD, Examples.of(np.zeros((0, 6), np.int64), np.zeros(0, np.int64)), 4, 9)
    assert [block.shape for block in blocks.values()] == [(4,), (4, 6)]
    assert not any(block.any() for block in blocks.values())


@pytest.mark.parametrize("record", [(7, 0), (0, -7), (-7, 0), (2, 6), (-6, -2), (0, 0)])
def test_extreme_records_stay_within_the_bounds(record):
    """Records of full length in any direction move no entry beyond its block's bound, and no block beyond its L2."""
    (only,) = METHOD.sums(2, 3, 7)
    one = contribute(METHOD, Examples.of(np.array([record]), np.array([2])), 3, 7)
    assert Layout(only.blocks).flatten(one).shape == (3 + 3 * 2,)
    for block, moved in zip(only.blocks, only.sensitivity(Unit.RECORD, Adjacency.ADD_REMOVE, 1).blocks, strict=True):
        assert (block.name, block.size) == (moved.name, moved.size)
        assert np.abs(one[block.name]).max() <= block.bound
        assert np.linalg.norm(one[block.name]) <= moved.l2


@pytest.mark.parametrize("adjacency", Adjacency)
def test_no_neighbours_lie_further_apart_than_the_sensitivity(adjacency):
    """Over records of full length in every direction and class, no step is longer than stated, and one is as long."""
    (only,) = METHOD.sums(2, 2, 1000)
    assert only.sensitivity(Unit.RECORD, adjacency, 1).unit is Unit.RECORD
    stated = only.sensitivity(Unit.RECORD, adjacency, 1).squared({"counts": 1.0, "class_sums": 1e-6})
    angles = np.linspace(0, 2 * np.pi, 73)
    records = np.trunc(1000 * np.stack([np.cos(angles), np.sin(angles)], axis=1)).astype(np.int64)
    steps = []
    for label in range(2):
        for record in records:
            one = contribute(METHOD, Examples.of(record[None], np.array([label])), 2, 1000)
            other = {"counts": np.zeros(2), "class_sums": np.zeros((2, 2))}
            if adjacency is Adjacency.REPLACE_ONE:
                other = contribute(METHOD, Examples.of(records[:1], np.array([0])), 2, 1000)
            moved = {name: (one[name] - other[name]).astype(float) for name in one}
            steps.append((moved["counts"] ** 2).sum() + 1e-6 * (moved["class_sums"] ** 2).sum())
    assert 0.999 * stated < max(steps) <= stated
    assert stated == {Adjacency.ADD_REMOVE: 2.0, Adjacency.REPLACE_ONE: 4.0}[adjacency]


@pytest.mark.parametrize("name", GRIDS)
def test_head_is_nearest_centroid(name):
    """On every grid the head predicts as scikit-learn's NearestCentroid does on the records it takes."""
    grid = GRIDS[name]
    fresh = np.random.default_rng(12).normal(size=(1000, 6)) + 0.5
    reference = NearestCentroid().fit(inputs_of(FEATURES, grid), LABELS)
    head = artifact_of(METHOD, summed(grid), grid, None)
    inputs = inputs_of(fresh, grid)
    found, expected = predict(head, inputs), reference.predict(inputs)
    apart = np.sort(np.linalg.norm(inputs[:, None] - reference.centroids_, axis=2), axis=1)
    clear = apart[:, 1] - apart[:, 0] > 1e-2 * apart[:, 0]  # the grid may decide between means as good as equal
    assert clear.mean() > 0.9
    assert np.array_equal(found[clear], expected[clear])


def test_mean_is_the_mean():
    """The weights are the class means on the grid in feature units, and the bias is −½‖μ‖², to float32."""
    grid = GRIDS["none"]
    head = artifact_of(METHOD, summed(grid), grid, None)
    means = np.stack([quantise(FEATURES[label == LABELS], grid).mean(axis=0) * grid.step for label in range(4)])
    assert head.weight == pytest.approx(means, rel=1e-6)
    assert head.bias == pytest.approx(-0.5 * (means**2).sum(axis=1), rel=1e-6)


@pytest.mark.parametrize("name", GRIDS)
def test_absent_class_is_never_predicted(name):
    """A class without records has no weights, is marked as absent and is predicted for no record, however far."""
    grid = GRIDS[name]
    kept = LABELS != 2
    head = artifact_of(METHOD, summed(grid, FEATURES[kept], LABELS[kept]), grid, None)
    assert head.present.tolist() == [True, True, False, True]
    assert not head.weight[2].any()
    assert 2 not in predict(head, 1e6 * np.random.default_rng(13).normal(size=(500, 6)))


def test_single_class_is_a_head_and_no_class_is_none():
    """One class suffices; an empty sum is refused."""
    grid, kept = GRIDS["none"], LABELS == 1
    head = artifact_of(METHOD, summed(grid, FEATURES[kept], LABELS[kept]), grid, None)
    assert set(predict(head, FEATURES)) == {1}
    with pytest.raises(BadInput, match="holds no record"):
        artifact_of(METHOD, summed(grid, FEATURES[:0], LABELS[:0]), grid, None)


@pytest.mark.parametrize("multiplier", [1, 300])
def test_multiplier_is_taken_out_of_the_counts(multiplier):
    """Counts that were summed times a multiplier give the very same means."""
    grid = GRIDS["centred-unit"]
    aggregate = summed(grid)
    scaled = {**aggregate, "counts": multiplier * aggregate["counts"]}
    exact, noisy = artifact_of(METHOD, aggregate, grid, None), artifact_of(METHOD, scaled, grid, silence(multiplier))
    assert np.array_equal(exact.weight, noisy.weight)
    assert np.array_equal(exact.bias, noisy.bias)


@pytest.mark.parametrize("count", [-500, 0, 150, 299])
def test_noisy_count_below_one_lengthens_no_mean(count):
    """Under noise a count of less than one record is taken as one: finite weights, no longer than the sum."""
    grid = GRIDS["centred-unit"]
    aggregate = summed(grid)
    counts = 300 * aggregate["counts"]
    counts[3] = count
    head = artifact_of(METHOD, {**aggregate, "counts": counts}, grid, silence(300))
    assert head.present.all()
    assert head.weight[3] == pytest.approx(aggregate["class_sums"][3] / grid.unit(6), rel=1e-6)


def test_nothing_is_implausible_about_honest_sums():
    """Honest sums raise no doubt, on any grid and with classes absent."""
    for grid in GRIDS.values():
        assert failures_of(METHOD, summed(grid), grid) == []
        assert failures_of(METHOD, summed(grid, FEATURES[:3], LABELS[:3]), grid) == []


def test_false_sums_are_named():
    """A count below 0 and a sum that its records cannot reach are each said with the class, and only those."""
    grid = GRIDS["none"]
    aggregate = summed(grid)
    aggregate["counts"][1] = -1
    aggregate["class_sums"][1] = 0
    aggregate["class_sums"][3] = 0
    aggregate["class_sums"][3, 0] = (aggregate["counts"][3] + 1) * grid.levels
    said = failures_of(METHOD, aggregate, grid)
    assert len(said) == 2
    assert said[0] == "class 1 has -1 records"
    assert said[1].startswith("class 3 sums to length")


def test_there_is_one_round():
    """Nothing follows the sum, nothing is broadcast, and an announced or told round is the server's breach."""
    grid = GRIDS["none"]
    assert next_of(METHOD, summed(grid), grid, None) is None
    assert METHOD.broadcast() == b""
    with pytest.raises(ProtocolViolation, match="party 0: "):
        METHOD.decode_broadcast(b"\x01", grid)
    with pytest.raises(ProtocolViolation, match="party 0: "):
        METHOD.require_equal(METHOD)


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("noise", IN_SUMS)
def test_plan_keeps_its_promise(adjacency, unit, noise):
    """A plan of prototypes at finite ε is accepted by members who recompute ε, and its noise is the least to 0.1 %."""
    setup = make_setup(adjacency=adjacency, unit=unit, noise=noise, **TWO_BLOCKS)
    check_promise(setup.plan, setup.roster)
    assert [each.block for each in setup.plan.noises] == ["counts", "class_sums"]


@pytest.mark.parametrize("factor", [1, 2])
@pytest.mark.parametrize("noise", IN_SUMS)
def test_claim_by_hand(factor, noise):
    """μ² = Σ l2²/v, v = σ² or that of the honest shares less 3, gives ε in 40 digits; 4·R²/v for replace-one.

    Nine tenths of a record's μ² are its vector's, so that its opposite is farther off than a record of another class.
    """
    adjacency = tuple(Adjacency)[factor - 1]
    setup = make_setup(adjacency=adjacency, noise=noise, **TWO_BLOCKS)
    counts, sums = setup.plan.noises
    shares, lost = (4 - 1, 3) if noise is NoiseFrom.CLIENT else (1, 0)  # of five one may be missing and one collude
    moved = [counts.multiplier, setup.plan.levels]
    terms = [
        mpmath.mpf(step) ** 2 / (shares * mpmath.mpf(each.sigma) ** 2 - lost)
        for step, each in zip(moved, (counts, sums), strict=True)
    ]
    assert float(terms[0] / (terms[0] + terms[1])) == pytest.approx(0.1, abs=2e-3)
    mu = mpmath.sqrt(terms[0] + terms[1] if factor == 1 else 4 * terms[1])
    assert delta_by_hand(mu, 1.0) <= 1e-5 <= delta_by_hand(mu, 0.999)


@pytest.mark.parametrize("noise", IN_SUMS)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_worst_neighbours_use_the_promise_up(adjacency, noise):
    """No two data sets that differ by a record are told apart better than the plan says, and some as well."""
    check_neighbours(make_setup(adjacency=adjacency, noise=noise, **TWO_BLOCKS))


def test_noise_is_that_of_the_plan():
    """Five members' noise on both blocks has the planned variance (χ², false failures 10⁻⁹)."""
    setup: RoundSetup = make_setup(dimension=128, epsilon=4.0, **TWO_BLOCKS)
    noise = np.zeros(setup.sum.layout.length, dtype=np.int64)
    for number in range(5):
        records = some_records(setup, 5 + number, seed=number)
        tensors = contribute(METHOD, Examples.of(records.integers, records.labels), 3, setup.plan.levels)
        noise += contribution_of(setup, records, OperatingSystem())[0] - setup.sum.layout.flatten(tensors)
    check_noise(setup, noise, 5)
