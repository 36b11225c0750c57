"""FedTC's own form: the filter, the batches of a class, and what the set weighs."""

import re

import numpy as np
import pytest

from methods.baselines import BASELINES
from methods.baselines.baseline import ClientData
from methods.baselines.fedtc_set import FedTCSet
from secagg.errors import BadInput
from secagg.heads import head_digest
from secagg.privacy.gaussian import epsilon_of

GENERATOR = np.random.default_rng(41)
LABELS = np.repeat([0, 1, 2], [23, 4, 10])
FEATURES = GENERATOR.normal(size=(37, 6)) + 4 * np.eye(6)[LABELS]
CLIENT = ClientData.of(FEATURES, LABELS)
ALL = FedTCSet(keep=1.0, epochs=5)


def test_baseline_is_registered():
    """Its name makes it, with the paper's α and B."""
    assert BASELINES["fedtc-set"] is FedTCSet
    assert (FedTCSet().keep, FedTCSet().batch, FedTCSet().epochs) == (0.99, 5, 200)


def test_prototypes_are_means_of_batches_without_replacement():
    """Every prototype is the mean of B records of its class, none of which is in another; a rest is dropped."""
    whole = ClientData.of(np.eye(37), LABELS)
    means, labels = ALL.prototypes(whole, np.random.default_rng(0))
    assert labels.tolist() == [0] * 4 + [1] + [2] * 2
    sizes = (means > 0).sum(axis=1)
    assert sizes.tolist() == [5, 5, 5, 5, 4, 5, 5]
    assert means.sum(axis=1) == pytest.approx(1.0)
    assert (means > 0).sum(axis=0).max() == 1
    for mean, label in zip(means, labels, strict=True):
        assert set(LABELS[mean > 0]) == {label}
        assert set(mean[mean > 0]) == {1 / (mean > 0).sum()}


def test_class_of_few_records_is_one_short_batch():
    """A client with one record of a class sends its mean, where Eq. 4 would drop the class."""
    means, labels = ALL.prototypes(CLIENT.take(np.array([0])), np.random.default_rng(0))
    assert labels.tolist() == [0]
    assert np.array_equal(means, FEATURES[:1])


def test_filter_leaves_out_the_outliers():
    """The records of smallest cosine to their class's mean are in no batch."""
    outlying = FEATURES.copy()
    outlying[3] = -10 * outlying[LABELS == 0].mean(axis=0)
    client = ClientData.of(outlying, LABELS)
    means, labels = FedTCSet(keep=0.9, batch=1).prototypes(client, np.random.default_rng(0))
    assert len(means) == sum(int(np.ceil(0.9 * n)) for n in (23, 4, 10))
    assert not (means == outlying[3]).all(axis=1).any()
    assert (labels == 0).sum() == 21


def test_batches_are_random():
    """Another seed makes other batches; the same seed the same head, bit for bit."""
    one, again, other = (ALL.fit([CLIENT], 3, seed) for seed in (0, 0, 1))
    digests = [head_digest(fitted.predictors[0].head) for fitted in (one, again, other)]
    assert digests[0] == digests[1] != digests[2]


def test_set_of_all_clients_trains_one_head():
    """Prototypes of several clients, some empty, teach the classes; the bytes are those of the largest set."""
    clients = [CLIENT, CLIENT.take(LABELS == 2), CLIENT.take(np.zeros(37, dtype=np.bool_))]
    fitted = FedTCSet(keep=1.0, epochs=40).fit(clients, 4, 0)
    assert len(fitted.predictors) == 1
    assert fitted.bytes_per_client == 4 * 7 * (4 + 1 + 2)
    assert (fitted.predictors[0].predict(FEATURES) == LABELS).mean() > 0.9
    assert not fitted.predictors[0].head.present[3]


UNIT = FEATURES / np.linalg.norm(FEATURES, axis=1, keepdims=True)


def test_noise_of_the_paper_moves_the_head_and_is_priced():
    """Noise t·(1 − p) + N(0, s²) changes the head; the note has the ε of a record in the smallest batch (4)."""
    quiet, noisy = FedTCSet(keep=1.0, epochs=5), FedTCSet(keep=1.0, epochs=5, noise="fedtc:gaussian:0.05:0.1")
    client = ClientData.of(UNIT, LABELS)
    (silent, loud) = (each.fit([client], 3, 0) for each in (quiet, noisy))
    assert head_digest(silent.predictors[0].head) != head_digest(loud.predictors[0].head)
    assert silent.note == ""
    epsilon = epsilon_of(2 * 0.9 / 4 / 0.05, 1e-5)  # the class of four records is one batch
    stated = float(re.search(r"epsilon ([\d.]+)", loud.note)[1])
    assert epsilon <= stated <= epsilon * 1.001


@pytest.mark.parametrize(("given", "features"), [({"keep": 0.99}, UNIT), ({"keep": 1.0}, FEATURES)])
def test_no_epsilon_without_a_bound(given, features):
    """A filter that ranks records, and records of any length, leave no ε."""
    fitted = FedTCSet(**given, epochs=1, noise="fedtc:gaussian").fit([ClientData.of(features, LABELS)], 3, 0)
    assert "no differential privacy" in fitted.note


@pytest.mark.parametrize(
    "given", [{"noise": "magic"}, {"keep": 0.0}, {"keep": 1.1}, {"batch": 0}, {"epochs": 0}, {"momentum": 1.0}], ids=str
)
def test_impossible_parameters_are_refused(given):
    """Each parameter has its range."""
    with pytest.raises(BadInput):
        FedTCSet(**given)


def test_no_records_are_refused():
    """A federation without a record trains nothing."""
    with pytest.raises(BadInput, match="no client holds a record"):
        ALL.fit([CLIENT.take(np.zeros(37, dtype=np.bool_))], 3, 0)
