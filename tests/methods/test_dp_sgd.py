"""DP-SGD through opacus: what it learns, what it spends, how much noise it adds, what it refuses."""

import math
from itertools import pairwise

import numpy as np
import pytest

from methods.baselines import DpSgd
from secagg.data import open_dataset
from secagg.errors import BadInput
from secagg.heads import head_digest
from secagg.privacy import Adjacency
from tests.architecture.test_imports import loaded_by

DELTA = 1e-5
QUICK = DpSgd(epochs=6, batches=5)


def clusters(n=600, classes=3, dimension=8):
    """Records of length 1 around one axis per class, and their labels."""
    draws = np.random.default_rng(5)
    labels = np.arange(n) % classes
    records = np.eye(dimension)[labels] + 0.1 * draws.normal(size=(n, dimension))
    return records / np.linalg.norm(records, axis=1, keepdims=True), labels


def trained(baseline=QUICK, data=None, classes=3, adjacency=Adjacency.ADD_REMOVE, **changes):
    """`fit` on the clusters at ε = 1 with a fixed seed, but for what is given."""
    records, labels = clusters() if data is None else data
    given = {"epsilon": 1.0, "delta": DELTA, "seed": 1} | changes
    return baseline.fit(records, labels, classes, adjacency=adjacency, **given)


def prv_epsilon(baseline, n, multiplier, eps_error):
    """ε of the whole training by opacus' accountant, asked directly."""
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(multiplier, 1 / baseline.batches_of(n), baseline.epochs * baseline.batches_of(n))]
    return accountant.get_epsilon(DELTA, eps_error=eps_error)


def test_separable_records_are_learnt():
    """Well separated clusters are classified without error at ε = 8 and without privacy."""
    records, labels = clusters()
    for epsilon in (8.0, math.inf):
        head, _ = trained(epsilon=epsilon)
        assert head.evaluate(records, labels).accuracy == 1


@pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha")
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_spent_epsilon_is_the_accountants(epsilon):
    """What is reported is what opacus' accountant gives for the steps taken: at most the target, and within 2 %."""
    _, spent = trained(epsilon=epsilon)
    multiplier = QUICK.noise_multiplier(600, epsilon=epsilon, delta=DELTA)
    assert spent == prv_epsilon(QUICK, 600, multiplier, min(0.01, epsilon / 50))
    assert 0.98 * epsilon <= spent <= epsilon


@pytest.mark.filterwarnings("ignore")  # those of the optional library
@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 1e-5), (1.0, 1e-5), (8.0, 1e-5), (1.0, 1e-10)])
def test_another_accountant_agrees(epsilon, delta):
    """Google's PLD accountant finds no more than the target for the noise, and at least 95 % of it."""
    pld = pytest.importorskip("dp_accounting.pld")
    from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent

    baseline, n = DpSgd(), 50_000
    multiplier = baseline.noise_multiplier(n, epsilon=epsilon, delta=delta)
    accountant = pld.PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    step = PoissonSampledDpEvent(1 / baseline.batches_of(n), GaussianDpEvent(multiplier))
    accountant.compose(step, baseline.epochs * baseline.batches_of(n))
    assert 0.95 * epsilon <= accountant.get_epsilon(delta) <= epsilon


def test_smaller_epsilon_takes_more_noise_and_smaller_steps():
    """The noise multiplier falls and the rate rises with ε, up to the largest rate."""
    epsilons = (0.1, 0.5, 2.0, 10.0)
    noise = [QUICK.noise_multiplier(600, epsilon=epsilon, delta=DELTA) for epsilon in epsilons]
    rates = [QUICK.learning_rate(600, epsilon=epsilon, delta=DELTA) for epsilon in epsilons]
    assert all(more > less for more, less in pairwise(noise))
    assert all(less < more for less, more in pairwise(rates))
    assert QUICK.learning_rate(10**9, epsilon=10.0, delta=DELTA) == QUICK.largest_rate


def test_noise_has_the_stated_size():
    """Records of zeros leave pure noise in the weights, with the standard deviation that the parameters give.

    1,200 weights, unseeded: 12 % off is 5.9 standard errors; false failures below 10⁻⁷.
    """
    data = (np.zeros((100, 400)), np.arange(100) % 3)
    head, _ = trained(data=data, seed=None)
    budget = {"epsilon": 1.0, "delta": DELTA}
    momentum, steps = QUICK.momentum, QUICK.epochs * QUICK.batches
    travel = [(1 - momentum**left) / (1 - momentum) for left in range(1, steps + 1)]
    one_step = QUICK.learning_rate(100, **budget) * QUICK.noise_multiplier(100, **budget) * QUICK.clip / 20
    assert head.weight.std() == pytest.approx(one_step * math.sqrt(math.fsum(part**2 for part in travel)), rel=0.12)


def test_one_record_is_clipped():
    """One record among zeros moves the weights by no more than clip times all rates, whatever its label.

    Its own bound: each step adds at most rate·clip/(q·n), gathered by the momentum. Same seed, so the same noise.
    """
    zeros, labels = np.zeros((100, 4)), np.arange(100) % 3
    one = zeros.copy()
    one[7, 2] = 1
    weights = [trained(data=(records, labels))[0].weight.astype(np.float64) for records in (zeros, one)]
    moved = float(np.linalg.norm(weights[1] - weights[0]))
    rate = QUICK.learning_rate(100, epsilon=1.0, delta=DELTA)
    most = rate * QUICK.clip / 20 * QUICK.epochs * QUICK.batches / (1 - QUICK.momentum)
    assert 0 < moved < most


def test_seed_repeats_the_run_and_no_seed_does_not():
    """The same seed gives the same head, another seed or none at all another one each time."""
    digests = [head_digest(trained(seed=seed)[0]) for seed in (1, 1, 2, None, None)]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4


@pytest.mark.parametrize("n", [2, 11])
def test_few_records_and_empty_batches(n):
    """With a handful of records, where many batches are empty, the head is finite and the budget is kept."""
    records, labels = clusters(n)
    head, spent = trained(DpSgd(epochs=6), data=(records, labels), epsilon=1.0)
    assert head.weight.shape == (3, 8)
    assert spent <= 1


@pytest.mark.parametrize(
    ("n", "batches", "expected"), [(50_000, 10, 10), (100, 10, 10), (95, 10, 10), (31, 10, 8), (3, 10, 3), (2, 2, 2)]
)
def test_batches_are_those_that_opacus_makes(n, batches, expected):
    """Batches per epoch, whose inverse is the sampling rate, for many and for few records."""
    assert DpSgd(batches=batches).batches_of(n) == expected


def test_every_number_of_batches_survives_opacus():
    """1/(1/b), rounded down as opacus does, gives back every b that is allowed."""
    assert all(int(1 / (1 / batches)) == batches for batches in range(2, 41))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"epsilon": 0.0}, "epsilon cannot be 0"),
        ({"epsilon": 0.01}, "epsilon cannot be 0.01"),
        ({"epsilon": -1.0}, "epsilon cannot be -1"),
        ({"epsilon": math.nan}, "epsilon cannot be nan"),
        ({"epsilon": 1e4}, "epsilon cannot be 10000"),
        ({"delta": 0.0}, "delta cannot be 0"),
        ({"delta": 1e-12}, "delta cannot be 1e-12"),
        ({"delta": 1.0}, "delta cannot be 1"),
        ({"adjacency": Adjacency.REPLACE_ONE}, "does not give replace-one"),
        ({"adjacency": Adjacency.REPLACE_ONE, "epsilon": math.inf}, "does not give replace-one"),
        ({"seed": -1}, "the seed is -1"),
        ({"seed": 2**32}, "the seed is 4294967296"),
        ({"classes": 2}, "labels from 0 to 2 for 2 classes"),
        ({"classes": 1}, "for 1 classes"),
        ({"data": (np.full((4, 2), np.nan), np.array([0, 1, 0, 1]))}, "NaN or infinite"),
        ({"data": (np.full((4, 2), np.inf), np.array([0, 1, 0, 1]))}, "NaN or infinite"),
        ({"data": (np.full((4, 2), 0.8), np.array([0, 1, 0, 1]))}, "longer than 1"),
        ({"data": (np.zeros((4, 2)), np.array([0, -1, 0, 1]))}, "labels from -1"),
        ({"data": (np.zeros((4, 2)), np.array([0.0, 1, 0, 1]))}, "labels from 0"),
        ({"data": (np.zeros((4, 2)), np.array([0, 1]))}, "labels of shape"),
        ({"data": (np.zeros(4), np.array([0, 1, 0, 1]))}, "records of shape"),
        ({"data": (np.zeros((1, 2)), np.array([0]))}, "records of shape"),
        ({"data": (np.zeros((0, 2)), np.zeros(0, dtype=np.int64))}, "records of shape"),
    ],
)
def test_bad_input_is_refused(changes, problem):
    """Records, labels, budgets, seeds and adjacencies that cannot be used are named."""
    with pytest.raises(BadInput, match=problem):
        trained(**changes)


@pytest.mark.parametrize(
    "fields",
    [
        {"epochs": 0},
        {"batches": 1},
        {"batches": 41},
        {"momentum": 1.0},
        {"momentum": -0.1},
        {"clip": 0.0},
        {"spread": math.inf},
        {"largest_rate": math.nan},
    ],
)
def test_bad_settings_are_refused(fields):
    """A setting out of its range makes no baseline."""
    with pytest.raises(BadInput):
        DpSgd(**fields)


def test_import_is_light():
    """Importing the baselines loads neither torch nor opacus."""
    assert loaded_by("import methods.baselines") & {"torch", "opacus"} == set()


@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "tuned"), [(0.25, 64.4), (1.0, 68.5), (8.0, 71.0), (math.inf, 71.1)])
def test_baseline_is_a_strong_one(data_folder, epsilon, tuned):
    """CIFAR-10 features, centred and of length 1: within 0.7 points of full-batch DP descent tuned for each ε."""
    data = open_dataset(str(data_folder / "cifar10_resnet18_layer3_features.npz"))
    centred = [part.inputs - part.inputs.mean(axis=1, keepdims=True) for part in (data.train, data.test)]
    train, test = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in centred)
    head, _ = trained(DpSgd(), data=(train, data.train.labels), classes=10, epsilon=epsilon)
    assert 100 * head.evaluate(test, data.test.labels).accuracy >= tuned - 0.7
