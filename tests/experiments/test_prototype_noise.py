"""The papers' noise in simulation: what it does to the sums, and the ε that it is said to be worth."""

import math
import re
from collections import Counter

import mpmath
import numpy as np
import pytest
from scipy import stats

import secagg
from secagg.data import open_dataset, partition
from secagg.errors import BadInput
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from tests.experiments.test_simulation import FEATURES as SMALL
from tests.experiments.test_simulation import LABELS as SMALL_LABELS
from tests.session.noise_checks import delta_by_hand

FALSE_FAILURE = 1e-9
"""Probability with which one statistical check reports noise that is as it should be."""
ROUNDING = 1e-4
"""By how much the grid's rounding may lengthen a record of five features, with room for the slope of ε."""
CLIENTS, CLASSES, DIMENSION = 3, 4, 300
LABELS = np.arange(600) % CLASSES
FEATURES = np.random.default_rng(3).normal(size=(600, DIMENSION)) + 3 * np.eye(DIMENSION)[LABELS]


def simulated(features=FEATURES, labels=LABELS, **settings):
    """Prototypes with a paper's noise, in a ring with room for it."""
    usual = {"method": "prototypes", "clients": CLIENTS, "max_records": 1 << 20}
    return secagg.simulate(features, labels, **{**usual, **settings})


def counts_of_clients(seed=0):
    """How many records of every class each client has (clients, C)."""
    rows = partition(LABELS, {}, "iid", CLIENTS, seed)
    return np.stack([np.bincount(LABELS[own], minlength=CLASSES) for own in rows])


def sums(run):
    """Opened class sums in feature units (C, d)."""
    plan = run.federated.setup.plan
    return run.federated.result.blocks["class_sums"] / plan.grid.unit(plan.dimension) * plan.radius


def exact_sums(**settings):
    """The same without noise."""
    return sums(simulated(**settings))


def has_variance_of_one(normal):
    """Whether the squares of normal values are as large as χ² has them (false failures: half of the rate)."""
    law, total = stats.chi2(normal.size), (normal**2).sum()
    return min(law.cdf(total), law.sf(total)) > FALSE_FAILURE / 4


@pytest.mark.parametrize(
    ("noise", "kept", "deviation"),
    [
        ("fedtc:gaussian:0.5:0.1", 0.9, 0.5),
        ("fedpcl:laplace:0.5:0.25", 0.75, 0.5 * math.sqrt(2)),
        ("fedtc:laplace:0.5:0", 1.0, 0.5 * math.sqrt(2)),
        ("mpft:2:0.25", 1.0, 0.5),
    ],
)
@pytest.mark.parametrize("normalise", ["none", "centred-unit"])
def test_sums_bear_the_papers_noise(noise, kept, deviation, normalise):
    """Class sums are those of t·N·p̄ plus N·noise per client: mean and variance per class (false failures 10⁻⁹)."""
    noisy, exact = sums(simulated(noise=noise, normalise=normalise)), exact_sums(normalise=normalise)
    deviations = deviation * np.sqrt((counts_of_clients() ** 2).sum(axis=0))[:, None]
    standard = (noisy - kept * exact) / deviations
    count = standard.size
    # One entry's noise has an excess kurtosis of at most 3 (laplace): the mean square deviates by √((2 + 3)/n).
    limit = stats.norm.isf(FALSE_FAILURE / 4)
    assert abs(standard.mean()) * math.sqrt(count) < limit
    assert abs((standard**2).mean() - 1) < limit * math.sqrt(5 / count)


def test_exponential_noise_is_one_sided():
    """Exponential noise never lowers an entry, and lifts it by N·scale on average (false failures 10⁻⁹)."""
    noisy, exact = sums(simulated(noise="fedtc:exponential:0.5:0")), exact_sums()
    counts = counts_of_clients()
    lifted = noisy - exact
    assert (lifted > -1e-2).all()  # two roundings per entry
    mean, deviation = 0.5 * counts.sum(axis=0), 0.5 * np.sqrt((counts**2).sum(axis=0) / DIMENSION)
    assert (np.abs(lifted.mean(axis=1) - mean) < stats.norm.isf(FALSE_FAILURE / 8) * deviation * 1.5).all()


def test_shrinkage_is_visible():
    """With hardly any noise the means, weights of the head among them, are 1 − p times the exact ones."""
    noisy, exact = simulated(noise="fedtc:gaussian:1e-9:0.4"), simulated()
    assert sums(noisy) == pytest.approx(0.6 * sums(exact), abs=1e-2)
    assert noisy.head.weight == pytest.approx(0.6 * exact.head.weight, abs=1e-4)


def test_counts_stay_exact():
    """The papers hide no counts: they are those without noise."""
    noisy = simulated(noise="mpft:1:1").federated.result.blocks["counts"]
    assert noisy.tolist() == np.bincount(LABELS).tolist()


def test_noise_is_fresh_and_the_reference_has_none():
    """Two runs with one seed differ, as noise is never seeded; the pooled reference is the same without noise."""
    runs = [simulated(noise="mpft", test_features=FEATURES, test_labels=LABELS, seed=5) for _ in range(2)]
    assert len({run.federated.result.aggregate_sha256 for run in runs}) == 2
    exact = simulated(test_features=FEATURES, test_labels=LABELS)
    assert {run.reference for run in runs} == {exact.evaluation}


def test_class_that_a_client_lacks_bears_no_noise_of_it():
    """A client sends nothing for classes it does not hold: with one class each, a class has one client's noise."""
    noisy = simulated(noise="mpft:1:0.5", partition="shards:1", clients=CLASSES)
    standard = (sums(noisy) - exact_sums()) / (0.5 * np.bincount(LABELS)[:, None])
    assert has_variance_of_one(standard)


def test_absent_class_stays_absent():
    """A class that nobody holds has neither a sum nor a place in the head."""
    kept = LABELS != 1
    run = simulated(FEATURES[kept], LABELS[kept], classes=("a", "b", "c", "d"), noise="mpft:1:1")
    assert not run.federated.result.blocks["class_sums"][1].any()
    assert run.head.present.tolist() == [True, False, True, True]


def test_noise_beyond_the_ring_is_refused():
    """Noise that would wrap around the ring is refused with the remedy, and more room takes it."""
    settings = {"noise": "mpft:1:1000", "normalise": "centred-unit"}
    with pytest.raises(BadInput, match="does not fit into the ring") as refusal:
        simulated(**settings, max_records=256)
    assert "max_records" in refusal.value.remedy
    assert simulated(**settings).federated is not None


def uneven():
    """90 records, of which class 2 has the fewest with one of three clients, and that number."""
    rows = partition(SMALL_LABELS, {}, "iid", CLIENTS, 0)
    return min(min(Counter(SMALL_LABELS[own].tolist()).values()) for own in rows)


def stated(**settings):
    """The promise over the small data set."""
    return simulated(SMALL, SMALL_LABELS, **settings).promise


@pytest.mark.parametrize("noise", ["fedtc:gaussian", "fedpcl:laplace:0.1", "mpft", "fedtc:exponential"])
def test_without_clipping_no_epsilon_holds(noise):
    """As published, without normalisation, ε is infinite and the promise says why."""
    said = stated(noise=noise)
    assert "no differential privacy" in said
    assert "(epsilon inf)" in said
    assert ("never negative" if noise.endswith("exponential") else "records are not clipped") in said


def test_the_statement_word_by_word():
    """The whole sentence for FedTC's defaults, without normalisation."""
    assert stated(noise="fedtc:gaussian") == (
        "FedTC's and FedPCL's gaussian noise of scale 0.05 on prototypes times 0.9 gives no differential privacy: "
        "records are not clipped (epsilon inf). (another record of the same label; counts are public and exact)"
    )


def test_one_sided_noise_gives_no_epsilon_even_when_clipped():
    """Exponential noise has no ε for records of length 1 either."""
    said = stated(noise="fedtc:exponential", normalise="centred-unit")
    assert "never negative (epsilon inf)" in said


def epsilon_in(said):
    """The ε that a promise states."""
    found = re.search(r"amounts to epsilon ([\d.]+) at delta (\S+);", said)
    assert found is not None
    return float(found[1]), float(found[2])


@pytest.mark.parametrize(
    ("noise", "kept", "deviation"),
    [("fedtc:gaussian:0.3:0.1", 0.9, 0.3), ("fedpcl:gaussian:1:0", 1, 1), ("mpft:0.5:0.4", 1, 0.2)],
)
@pytest.mark.parametrize(("delta", "at"), [(None, 1e-5), (1e-3, 1e-3)])
def test_gaussian_epsilon_by_hand(noise, kept, deviation, delta, at):
    """ε is that of one Gaussian release with μ = t·(2/N)/σ for the smallest N, rounded up in the fourth decimal."""
    epsilon, told = epsilon_in(stated(noise=noise, normalise="centred-unit", delta=delta))
    mu = mpmath.mpf(kept) * 2 / uneven() / mpmath.mpf(deviation)
    assert told == at
    assert delta_by_hand(mu, epsilon) <= at <= delta_by_hand(mu, epsilon * (1 - ROUNDING) - 2e-4)


def test_laplace_epsilon_by_hand():
    """Pure ε of Laplace noise is t·√d·(2/N)/scale, rounded up in the fourth decimal."""
    epsilon, _ = epsilon_in(stated(noise="fedtc:laplace:0.5:0.1", normalise="unit"))
    by_hand = 0.9 * math.sqrt(5) * 2 / uneven() / 0.5
    assert by_hand <= epsilon <= by_hand * (1 + ROUNDING) + 2e-4


def test_fewest_records_of_any_client_decide():
    """Clients with fewer records of a class have the larger ε: the one with one record has that of N = 1."""
    labels = np.append(SMALL_LABELS, [3])
    features = np.vstack([SMALL, SMALL[:1] + 1])
    said = simulated(features, labels, noise="mpft:1:3", normalise="unit").promise
    epsilon, _ = epsilon_in(said)
    mu = mpmath.mpf(2) / 3
    assert delta_by_hand(mu, epsilon) <= 1e-5 <= delta_by_hand(mu, epsilon * (1 - ROUNDING) - 2e-4)


def test_promise_says_what_it_is_for():
    """The promise names the neighbours and that the noise protects nothing."""
    said = stated(noise="mpft:1:1", normalise="unit")
    assert said.endswith("(another record of the same label; counts are public and exact)")
    assert "it reproduces a paper and protects nothing" in said
    assert said.startswith("MPFT's noise 1·N(0, 1²) on prototypes")


def test_mpft_bears_its_own_noise(tmp_path):
    """With a client for each domain every prototype is p + q·N(0, s²): mean and variance (false failures 10⁻⁹)."""
    arrays = {f"{name}_{part}": values[rows] for name, rows in DOMAINS.items() for part, values in PARTS.items()}
    np.savez(tmp_path / "domains.npz", **arrays)
    data = open_dataset(str(tmp_path / "domains.npz"))
    given = {"method": "mpft", "parameters": "epochs=1", "partition": "column:domain", "protection": "none"}
    runs = [
        simulate_dataset(data, SimulationSettings(**given, noise=noise, normalise="unit", max_records=1 << 20))
        for noise in ("mpft:2:0.25", "client")
    ]
    blocks = [run.federated.result.blocks for run in runs]
    plan = runs[0].federated.setup.plan
    assert np.array_equal(blocks[0]["slot_counts"], blocks[1]["slot_counts"])
    counts = blocks[0]["slot_counts"][..., None] * plan.grid.unit(plan.dimension)
    standard = (blocks[0]["slot_sums"] - blocks[1]["slot_sums"]) / counts / 0.5
    assert abs(standard.mean()) * math.sqrt(standard.size) < stats.norm.isf(FALSE_FAILURE / 4)
    assert has_variance_of_one(standard)
    assert runs[0].promise.endswith("(another record of the same label and domain; counts are public and exact)")


DOMAINS = {"art": slice(0, 300), "photo": slice(300, 600)}
PARTS = {"features": FEATURES, "labels": LABELS}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "fedcgs"}, "belongs to prototypes"),
        ({"method": "dp-sgd"}, "belongs to prototypes"),
        ({"method": "mpft", "parameters": "slots=2"}, "mpft with one slot"),
        ({"epsilon": 1.0, "delta": 1e-5, "adjacency": "add-remove"}, "keeps no epsilon"),
        ({"noise": "fedtc"}, "unknown noise 'fedtc'"),
        ({"noise": "fedtc:uniform"}, "unknown noise distribution 'uniform'"),
        ({"noise": "fedtc:gaussian:0"}, "scale is 0"),
        ({"noise": "fedtc:gaussian:nan"}, "scale is nan"),
        ({"noise": "fedtc:gaussian:0.1:1"}, "p is 1"),
        ({"noise": "mpft:x"}, "something else than a number"),
        ({"noise": "mpft:1:2:3"}, "unknown noise"),
        ({"noise": ""}, "unknown noise ''"),
        ({"noise": "Client"}, "unknown noise 'Client'"),
    ],
)
def test_noise_that_cannot_be_is_refused(settings, words):
    """Other methods, a finite ε and noise that no paper has are refused before anything runs."""
    with pytest.raises(BadInput, match=words):
        simulated(**{"noise": "fedtc:gaussian", **settings})


def test_json_states_no_epsilon():
    """A run with a paper's noise has ε "inf" in its JSON, the paper's ε in its promise, and nothing saved."""
    settings = {"noise": "mpft:1:1", "normalise": "unit"}
    content = simulated(SMALL, SMALL_LABELS, **settings).to_json()
    assert content["epsilon"] == "inf"
    assert "amounts to epsilon" in content["promise"]
    assert content["bytes_saved_by_grid"] == 0
    assert content["normalisation"] == "unit"
