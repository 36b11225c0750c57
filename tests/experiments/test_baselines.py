"""DP-SGD under the roof of `simulate`: the same report, and refusals of what one place with all records has not."""

import json
import math

import numpy as np
import pytest

import secagg
from methods.baselines.dp_sgd import DpSgd
from secagg.data import Dataset, Origin, Records
from secagg.errors import BadInput
from secagg.experiments import baselines
from secagg.experiments.outcome import FEDERATED_KEYS
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.statistics import Grid, Normalisation, inputs_of

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


@pytest.mark.parametrize("epsilon", [math.inf, 8.0])
def test_bad_records_are_left_out_and_counted(private, epsilon):
    """Unlabelled, NaN and constant records change not one bit of the head, and are counted."""
    bad = np.vstack([np.zeros(5), np.full(5, np.nan), np.full(5, 3.0)])
    features, labels = np.vstack([FEATURES[:30], bad, FEATURES[30:]]), np.insert(LABELS, 30, [-1, 0, 1])
    settings = {**PRIVATE, "epsilon": epsilon}
    clean = private.to_json() if epsilon == 8.0 else trained(**settings).to_json()
    dirty = trained(pooled(features, labels), **settings).to_json()
    assert (clean["bad_records"], dirty["bad_records"]) == (0, 3)
    assert clean["head_sha256"] == dirty["head_sha256"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({**PRIVATE, "adjacency": "replace-one"}, "replace-one"),
        ({"adjacency": "replace-one"}, "replace-one"),
        ({**PRIVATE, "unit": "silo"}, "records in one place"),
        ({"unit": "silo"}, "records in one place"),
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
    monkeypatch.setattr("methods.baselines.dp_sgd._converged", None)
    with pytest.raises(BadInput, match=words):
        trained(**settings)


def test_too_few_records_are_refused():
    """One usable record is no training set."""
    labels = np.full(60, -1)
    labels[0] = 0
    with pytest.raises(BadInput, match="records of shape"):
        trained(pooled(FEATURES, labels))
