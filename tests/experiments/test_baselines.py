"""Baselines under the roof of `simulate`: the same report, and refusals of what they do not have."""

import json

import numpy as np
import pytest

import secagg
from methods.baselines import BASELINES
from methods.baselines.dp_sgd import DpSgd
from methods.baselines.softmax_regression import LocalOnly
from secagg.data import Dataset, Records, partition
from secagg.encoding import Grid, Normalisation, inputs_of
from secagg.encoding.grid import Origin
from secagg.errors import BadInput, BadRecord
from secagg.experiments import baselines
from secagg.experiments.outcome import FEDERATED_KEYS
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.heads.linear import predict

DRAWS = np.random.default_rng(9)
LABELS = np.arange(60) % 3
FEATURES = DRAWS.normal(size=(60, 5)) + 4 * np.eye(5)[LABELS]
PRIVATE = {"epsilon": 8.0, "delta": 1e-5, "adjacency": "add-remove"}


def pooled(features=FEATURES, labels=LABELS):
    """A data set whose held-out records are its own; labels of −1 mark bad records."""
    records = Records(features, labels, {}, Origin.of("tiny", np.arange(1, len(labels) + 1)))
    test = Records(FEATURES, LABELS, {}, Origin.of("tiny", np.arange(1, 61)))
    return Dataset("tiny", "features", records, test, ("a", "b", "c"), schema=None, bound=None, parts=None)


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Two epochs instead of fifty: nothing here is about how well it learns under noise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baselines, "DpSgd", lambda: DpSgd(epochs=2, batches=5))
        yield


def trained(dataset=None, **settings):
    """One run of the baseline."""
    return simulate_dataset(dataset or pooled(), SimulationSettings(method="dp-sgd", **settings))


@pytest.fixture(scope="module")
def private(quick):
    """One private run."""
    return trained(**PRIVATE)


def test_json_has_the_keys_of_the_contract(private):
    """The report has exactly the keys of a federated one, null where a baseline has nothing, and is plain JSON."""
    content = private.to_json()
    federated = secagg.simulate(FEATURES, LABELS, clients=3).to_json()
    assert list(content) == list(federated)
    assert all(content[key] is None for key in FEDERATED_KEYS)
    assert content["aggregate_sha256"] is None
    assert (content["method"], content["dataset"], content["protection"]) == ("dp-sgd", "tiny", "none")
    assert (content["clients"], content["survivors"]) == (1, 1)
    assert (content["epsilon"], content["delta"], content["adjacency"], content["unit"]) == (
        8.0,
        1e-5,
        "add-remove",
        "record",
    )
    assert content["accuracy_reference"] is None
    assert content["bad_records"] == 0
    assert len(content["head_sha256"]) == 64
    assert set(content["seconds"]) == {"features", "training"}
    assert json.loads(json.dumps(content, allow_nan=False)) == content


def test_promise_names_the_accountant_and_what_it_leaves_out(private):
    """The promise is the accountant's ε, no more than was asked for, and names who is trusted and what the noise is."""
    assert private.promise.startswith("epsilon ")
    assert 7.8 < float(private.promise.split()[1]) <= 8.0
    for words in ("delta 1e-05", "add-remove", "record level", "but the party that holds all records", "pseudo-random"):
        assert words in private.promise
    assert private.notes == ("centralised: somebody trusted holds all records in the clear",)


def test_without_privacy_it_learns():
    """At ε = ∞ it is softmax regression: no promise, and separable records without error."""
    run = trained()
    assert run.promise is None
    assert run.evaluation.accuracy == 1
    assert run.to_json()["epsilon"] == "inf"
    assert run.to_json()["noise"] is None
    assert trained(delta=1e-5, adjacency="add-remove").to_json()["head_sha256"] == run.to_json()["head_sha256"]


def test_seed_moves_the_run(private):
    """Another seed gives another head; that the same one repeats it is seen with the bad records below."""
    assert trained(seed=1, **PRIVATE).to_json()["head_sha256"] != private.to_json()["head_sha256"]


@pytest.mark.parametrize(
    ("settings", "normalisation"),
    [
        ({}, Normalisation.CENTRED_UNIT),
        ({"centre": 0.5}, Normalisation.UNIT),
        ({"normalise": "unit"}, Normalisation.UNIT),
    ],
    ids=["by rule", "centre", "normalise unit"],
)
def test_records_are_normalised_as_a_plan_would(monkeypatch, settings, normalisation):
    """Training sees the records of a noisy plan with the same settings, none longer than 1."""
    seen = []

    class Watched(DpSgd):
        """Notes what it trains on."""

        def fit(self, *arguments, **options):
            """Train."""
            seen.append(arguments)
            return super().fit(*arguments, **options)

    monkeypatch.setattr(baselines, "DpSgd", Watched)
    trained(**settings)
    ((records, labels, classes),) = seen
    federated = secagg.simulate(FEATURES, LABELS, clients=3, **PRIVATE, **settings).federated.setup.plan
    assert federated.normalisation == normalisation
    assert records == pytest.approx(inputs_of(FEATURES, federated.grid), abs=2e-2)
    fine = Grid(1.0, 1 << 24, settings.get("centre", 0.0), normalisation)
    assert records == pytest.approx(inputs_of(FEATURES, fine), abs=1e-3)
    assert np.linalg.norm(records, axis=1).max() <= 1
    assert (labels.tolist(), classes) == (LABELS.tolist(), 3)


BAD_ROWS = np.vstack([np.zeros(5), np.full(5, np.nan), np.full(5, 3.0)])


def test_bad_records_are_left_out_and_counted(private):
    """Unlabelled, NaN and constant records change not one bit of the private head, and are counted."""
    features, labels = np.vstack([FEATURES[:30], BAD_ROWS, FEATURES[30:]]), np.insert(LABELS, 30, [-1, 0, 1])
    clean, dirty = private.to_json(), trained(pooled(features, labels), **PRIVATE).to_json()
    assert (clean["bad_records"], dirty["bad_records"]) == (0, 3)
    assert clean["head_sha256"] == dirty["head_sha256"]


@pytest.mark.parametrize(("row", "label"), [(0, -1), (1, 0), (2, 1)], ids=["unlabelled", "NaN", "constant"])
def test_bad_records_without_noise_are_refused(row, label):
    """At epsilon inf each of them is refused by its row, as by a plan without noise."""
    features, labels = np.vstack([FEATURES[:30], BAD_ROWS[row], FEATURES[30:]]), np.insert(LABELS, 30, label)
    with pytest.raises(BadRecord, match="row 31"):
        trained(pooled(features, labels))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({**PRIVATE, "adjacency": "replace-one"}, "replace-one"),
        ({"adjacency": "replace-one"}, "replace-one"),
        ({**PRIVATE, "unit": "client"}, "records in one place"),
        ({"unit": "client"}, "records in one place"),
        ({**PRIVATE, "refine": 1}, "records in one place"),
        ({"dropouts": 1}, "records in one place"),
        ({**PRIVATE, "epsilon": 1000.0}, "epsilon cannot be"),
        ({**PRIVATE, "epsilon": 0.001}, "epsilon cannot be"),
        ({**PRIVATE, "delta": 0.0}, "delta cannot be"),
        ({**PRIVATE, "delta": None}, "without its delta and adjacency"),
        ({**PRIVATE, "adjacency": None}, "without its delta and adjacency"),
    ],
)
def test_what_a_baseline_does_not_have_is_refused(monkeypatch, settings, words):
    """Another adjacency, unit, refinement, dropouts and budgets it cannot account for are refused before training."""
    monkeypatch.setattr(DpSgd, "_train", None)
    monkeypatch.setattr("methods.baselines.dp_sgd.by_lbfgs", None)
    with pytest.raises(BadInput, match=words):
        trained(**settings)


def test_too_few_records_are_refused():
    """One usable record is no training set."""
    labels = np.full(60, -1)
    labels[0] = 0
    with pytest.raises(BadInput, match="records of shape"):
        trained(pooled(FEATURES, labels), **PRIVATE)


UNPROTECTED = ("centralised", "local-only", "ensemble", "fedpft")


def compared(method, dataset=None, **settings):
    """One run of another baseline, without protection unless another is given."""
    settings = {"protection": "none", "clients": 3, **settings}
    return simulate_dataset(dataset or pooled(), SimulationSettings(method=method, **settings))


@pytest.mark.parametrize("method", UNPROTECTED)
def test_every_baseline_reports_as_a_federation_does(method):
    """The same keys; protection none, no promise, a note of what leaves, and the bytes of what a client sends."""
    run = compared(method)
    content = run.to_json()
    assert list(content) == list(secagg.simulate(FEATURES, LABELS, clients=3).to_json())
    assert (content["method"], content["protection"], content["clients"], content["survivors"]) == (
        *(method, "none"),
        *(3, 3),
    )
    sent = content.pop("upload_bytes_per_client")
    assert sent == 0 if method == "local-only" else sent > 0
    assert {content[key] for key in FEDERATED_KEYS if key in content} == {None}
    assert (content["promise"], content["epsilon"]) == (None, "inf")
    assert content["notes"] == [f"no protection: with {method}, what leaves a client is: {BASELINES[method].leaves}"]
    assert (content["head_sha256"] is None) == (method in ("local-only", "ensemble"))
    assert content["accuracy"] > 0.9
    assert content["accuracy_interval"][0] <= content["accuracy"] <= content["accuracy_interval"][1]
    assert json.loads(json.dumps(content, allow_nan=False)) == content


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
@pytest.mark.parametrize("method", sorted(BASELINES))
def test_protections_are_refused_with_the_reason(method, protection):
    """A baseline runs under no protection, and the refusal says why and what to give instead."""
    with pytest.raises(BadInput) as refusal:
        compared(method, protection=protection)
    assert refusal.value.problem == f"{method} cannot run {protection}: {BASELINES[method].protections}"
    assert "--protection none" in refusal.value.remedy


@pytest.mark.parametrize("method", sorted(BASELINES))
def test_finite_epsilon_is_refused_with_the_reason(method):
    """No baseline but DP-SGD keeps an ε, and the refusal says why and names that one."""
    with pytest.raises(BadInput) as refusal:
        compared(method, **PRIVATE)
    assert refusal.value.problem == f"{method} cannot keep an epsilon: {BASELINES[method].protections}"
    assert "dp-sgd" in refusal.value.remedy


@pytest.mark.parametrize(
    "settings",
    [
        {"dropouts": 1, "clients": 6},
        {"refine": 1},
        {"class_gate": 1},
        {"covariance": "total"},
        {"ridge": 0.1},
        {"radius": 9.0},
    ],
    ids=lambda settings: next(iter(settings)),
)
@pytest.mark.parametrize("method", ["dp-sgd", "fedpft"])
def test_settings_of_secure_sums_are_refused(method, settings):
    """What has no meaning without a secure sum is refused rather than overlooked."""
    with pytest.raises(BadInput, match=f"and no {next(iter(settings))}"):
        compared(method, **settings)


def test_clients_hold_the_records_of_the_partition(monkeypatch):
    """Every client gets the records that a federation with the same partition and seed gives it, as head inputs."""
    seen = []

    class Watched(LocalOnly):
        """Notes what it gets."""

        def fit(self, clients, classes, seed):
            """Train."""
            seen.extend(clients)
            return super().fit(clients, classes, seed)

    monkeypatch.setitem(BASELINES, "local-only", Watched)
    compared("local-only", partition="dirichlet:0.3", seed=4)
    expected = partition(LABELS, {}, "dirichlet:0.3", 3, 4)
    assert [client.features.tolist() for client in seen] == [FEATURES[rows].tolist() for rows in expected]
    assert [client.labels.tolist() for client in seen] == [LABELS[rows].tolist() for rows in expected]
    seen.clear()
    compared("local-only", normalise="centred-unit")
    grid = Grid(1.0, 1 << 16, 0.0, Normalisation.CENTRED_UNIT)
    (rows, *_) = partition(LABELS, {}, "iid", 3, 0)
    assert seen[0].features.tolist() == inputs_of(FEATURES[rows], grid).tolist()


def test_accuracy_of_several_is_their_mean():
    """Two predictors, right on 2 and on 3 of 4 records, have the accuracy 5/8 over 4 records."""

    class Fixed:
        """Says what it was told to."""

        def __init__(self, *labels):
            self.labels = np.array(labels)

        def predict(self, features):
            """The same, whatever the features."""
            return self.labels

    measured = baselines.mean_accuracy([Fixed(0, 0, 1, 1), Fixed(0, 1, 1, 1)], np.zeros((4, 2)), np.array([0, 1, 1, 0]))
    assert (measured.accuracy, measured.total) == (5 / 8, 4)
    assert measured.interval[0] < 5 / 8 < measured.interval[1]


def test_parameters_reach_the_baseline():
    """`--parameters` are the fields, of the default's type; others are refused with those that there are."""
    usual, other = (compared("fedpft", parameters=text).to_json() for text in ("", "components=1"))
    assert usual["upload_bytes_per_client"] > other["upload_bytes_per_client"]
    with pytest.raises(BadInput, match="cannot take 'slots=3'"):
        compared("fedpft", parameters="slots=3")
    with pytest.raises(BadInput, match="no client has 100 records"):
        compared("fedpft", parameters="fewest=100")


def test_faulty_records_are_refused():
    """A record without a label, with NaN entries or without a direction is refused, as by a plan without noise."""
    with pytest.raises(BadRecord, match="row 61: it cannot be used"):
        compared("centralised", pooled(np.vstack([FEATURES, np.full(5, 9.0)]), np.append(LABELS, -1)))
    faulty = pooled(np.vstack([FEATURES, np.full(5, np.nan)]), np.append(LABELS, 0))
    with pytest.raises(BadRecord, match="row 61"):
        compared("ensemble", faulty)
    constant = pooled(np.vstack([FEATURES, np.full(5, 2.0)]), np.append(LABELS, 0))
    with pytest.raises(BadRecord, match="row 61"):
        compared("ensemble", constant, normalise="centred-unit")


def test_clients_without_records_are_told_of():
    """With more clients than records the run says how many hold none."""
    run = compared("fedpft", clients=100)
    assert run.notes[1] == "40 of 100 clients hold no record"


@pytest.mark.parametrize("method", UNPROTECTED)
def test_runs_repeat(method):
    """The same settings give the same accuracy, bytes and head."""
    one, two = (compared(method, partition="dirichlet:0.2", seed=3).to_json() for _ in range(2))
    for key in ("accuracy", "head_sha256", "upload_bytes_per_client"):
        assert one[key] == two[key]


def test_nearest_class_mean_is_the_method_prototypes():
    """The head of `prototypes`, on exact sums, gives each record the class whose mean is nearest."""
    features = np.abs(FEATURES)
    run = secagg.simulate(features, LABELS, method="prototypes", clients=3)
    means = np.stack([features[label == LABELS].mean(axis=0) for label in range(3)])
    probes = np.abs(DRAWS.normal(size=(300, 5))) * 3
    nearest = ((probes[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (predict(run.head, probes) == nearest).mean() > 0.99  # the grid may turn a tie
