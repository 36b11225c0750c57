"""MPFT's samples in the clear: what is sent, how much of it, that it repeats, and what is refused."""

import numpy as np
import pytest

from methods.baselines.baseline import ClientData
from secagg.data import open_dataset
from secagg.errors import BadInput
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from tests.reproduction import mpft_samples
from tests.reproduction.mpft_samples import MPFTCluster, MPFTRandom

DRAWS = np.random.default_rng(21)
LABELS = np.arange(243) % 3
FEATURES = np.abs(DRAWS.normal(size=(243, 6))) + 5 * np.eye(6)[LABELS]
CLIENTS = [ClientData.of(FEATURES[rows], LABELS[rows]) for rows in (slice(0, 90), slice(90, 90), slice(90, 243))]
KINDS = [MPFTRandom, MPFTCluster]


@pytest.mark.parametrize("kind", KINDS)
def test_rate_says_how_many(kind):
    """Of n records of a class the ceiling of rate times n rows are sent, with their class; all of them cost bytes."""
    rows, labels = kind(rate=0.1).prototypes(CLIENTS[2], np.random.default_rng(0))
    assert rows.shape == (18, 6)  # 51 of each class
    assert np.bincount(labels).tolist() == [6, 6, 6]
    assert kind(rate=0.1, epochs=1).fit(CLIENTS, 3, 0).bytes_per_client == 18 * 4 * 7


def test_random_sampling_sends_records_themselves():
    """Every row is one of the client's own records of its class, none twice: this is why no protection can help."""
    client = CLIENTS[0]
    rows, labels = MPFTRandom(rate=0.3).prototypes(client, np.random.default_rng(1))
    held = {(*row, label) for row, label in zip(client.features.tolist(), client.labels.tolist(), strict=True)}
    sent = [(*row, label) for row, label in zip(rows.tolist(), labels.tolist(), strict=True)]
    assert set(sent) <= held
    assert len(set(sent)) == len(sent)


def test_clusters_are_means_and_some_are_records():
    """At a rate of 1 k-means sends every record as it is; with one centre, the class's mean."""
    client = CLIENTS[0].take(CLIENTS[0].labels == 1)
    rows, _ = MPFTCluster(rate=1.0).prototypes(client, np.random.default_rng(1))
    assert np.sort(rows, axis=0) == pytest.approx(np.sort(client.features, axis=0))
    rows, labels = MPFTCluster(rate=1e-9).prototypes(client, np.random.default_rng(1))
    assert rows == pytest.approx(client.features.mean(axis=0, keepdims=True))
    assert labels.tolist() == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_head_learns_and_repeats(kind):
    """One seed gives the same bits twice, another seed other samples, and clusters that are apart are learnt."""
    one, two = (kind(epochs=40).fit(CLIENTS, 3, seed=5).predictors[0] for _ in range(2))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one.head.arrays, two.head.arrays, strict=True))
    sent, other = (kind().prototypes(CLIENTS[2], np.random.default_rng(seed))[0] for seed in (5, 6))
    assert not np.array_equal(sent, other)
    assert (one.predict(FEATURES) == LABELS).mean() > 0.97


def test_equal_records_cluster():
    """A class whose records are all alike has centres all the same."""
    client = ClientData.of(np.ones((40, 3)), np.zeros(40, dtype=np.int64))
    assert MPFTCluster().prototypes(client, np.random.default_rng(0))[0] == pytest.approx(np.ones((4, 3)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [{"rate": 0.0}, {"rate": 1.1}, {"rate": float("nan")}, {"epochs": 0}], ids=str)
def test_parameters_that_cannot_be_are_refused(kind, given):
    """A rate is a share, and there is an epoch."""
    with pytest.raises(BadInput, match="the rate is above 0 and at most 1"):
        kind(**given)


@pytest.mark.parametrize("kind", KINDS)
def test_no_record_at_all_is_refused(kind):
    """Without any record there is nothing to train."""
    with pytest.raises(BadInput, match="no client holds a record"):
        kind().fit(CLIENTS[1:2], 3, seed=0)


def test_no_protection_takes_single_embeddings():
    """Random sampling runs in the clear alone, and says why."""
    settings = SimulationSettings(method=f"{mpft_samples.__file__}:MPFTRandom", protection="masked", clients=3)
    with pytest.raises(BadInput, match="an embedding of one record leaves the client"):
        simulate_dataset(open_dataset("digits"), settings)
