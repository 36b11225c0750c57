"""What every baseline keeps to: it repeats, it stands on its clients' records, and it says what leaves them."""

import numpy as np
import pytest

from methods.baselines import BASELINES
from methods.baselines.baseline import ClientData, holders, pooled
from methods.baselines.softmax_regression import Centralised
from secagg.errors import BadInput
from tests.architecture.test_imports import loaded_by

DRAWS = np.random.default_rng(11)
LABELS = np.arange(240) % 3
DOMAINS = np.arange(240) % 2
FEATURES = DRAWS.normal(size=(240, 6)) + 5 * np.eye(6)[LABELS]
OWN = ("centralised", "local-only", "ensemble", "fedpft")


def divided(rows):
    """Clients with these rows of the clusters, in the clear."""
    everything = ClientData(FEATURES, LABELS, DOMAINS)
    return [everything.take(np.asarray(own, dtype=np.int64)) for own in rows]


CLIENTS = divided(np.array_split(DRAWS.permutation(240), 4))


@pytest.mark.parametrize("name", OWN)
def test_same_seed_same_bits(name):
    """Two runs with one seed predict the same everywhere, up to the last bit where there is a head."""
    one, two = (BASELINES[name]().fit(CLIENTS, 3, seed=5) for _ in range(2))
    probes = DRAWS.normal(size=(500, 6)) * 3
    for first, second in zip(one.predictors, two.predictors, strict=True):
        assert (first.predict(probes) == second.predict(probes)).all()
        if hasattr(first, "head"):
            assert first.head.weight.tobytes() == second.head.weight.tobytes()
            assert first.head.bias.tobytes() == second.head.bias.tobytes()
    assert one.bytes_per_client == two.bytes_per_client


@pytest.mark.parametrize("name", OWN)
def test_separable_clusters_are_learnt(name):
    """Where every client has records of every class, each baseline classifies the clusters all but without error."""
    fitted = BASELINES[name]().fit(CLIENTS, 3, seed=0)
    assert all((each.predict(FEATURES) == LABELS).mean() > 0.97 for each in fitted.predictors)


@pytest.mark.parametrize("name", OWN)
def test_empty_clients_change_nothing_but_draws(name):
    """A client without records neither fails nor has a predictor of its own."""
    fitted = BASELINES[name]().fit([*CLIENTS[:2], *divided([[]]), *CLIENTS[2:]], 3, seed=0)
    assert len(fitted.predictors) == (4 if name == "local-only" else 1)
    assert all((each.predict(FEATURES) == LABELS).mean() > 0.97 for each in fitted.predictors)


@pytest.mark.parametrize("name", OWN)
def test_no_record_at_all_is_refused(name):
    """Without any record there is nothing to train."""
    with pytest.raises(BadInput, match="no client holds a record"):
        BASELINES[name]().fit(divided([[], []]), 3, seed=0)


@pytest.mark.parametrize("name", OWN)
def test_absent_class_is_never_predicted_wrongly_often(name):
    """A class that no client has does no harm to the others."""
    clients = [client.take(client.labels != 1) for client in CLIENTS]
    kept = LABELS != 1
    fitted = BASELINES[name]().fit(clients, 3, seed=0)
    assert all((each.predict(FEATURES[kept]) == LABELS[kept]).mean() > 0.97 for each in fitted.predictors)


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("centralised", 60 * 4 * 7),  # 60 records of 6 numbers and a label
        ("local-only", 0),
        ("ensemble", 4 * 3 * 7),
        ("fedpft", 3 * (2 * 10 * 13 + 8)),  # 3 classes of 10 components (2d + 1) in float16, a class and a count
    ],
)
def test_bytes_are_those_of_what_is_sent(name, sent):
    """Bytes of one client, counted by hand: 60 records of 3 classes in 6 dimensions."""
    assert BASELINES[name]().fit(CLIENTS, 3, seed=0).bytes_per_client == sent


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_each_says_what_leaves_and_what_protects(name):
    """The registry's names are the baselines' own, and each says in words what leaves and which protection it has."""
    kind = BASELINES[name]
    assert kind.name == name
    assert kind.leaves
    assert "sum" in kind.protections


def test_pooling_forgets_who_held_what():
    """Pooled records are the same bits for any division and any order of clients."""
    one = pooled(divided([np.arange(240)]))
    two = pooled(divided([np.arange(100, 240)[::-1], [], np.arange(100)]))
    for part in ("features", "labels", "domains"):
        assert getattr(one, part).tobytes() == getattr(two, part).tobytes()
    order = np.lexsort((*FEATURES.T, LABELS))
    again = np.lexsort((*one.features.T, one.labels))
    assert (FEATURES[order] == one.features[again]).all()
    assert (LABELS[order] == one.labels[again]).all()
    assert (DOMAINS[order] == one.domains[again]).all()


def test_centralised_does_not_move_with_the_partition():
    """The pooled head is the same bits for any partition and seed."""
    heads = [
        Centralised().fit(clients, 3, seed).predictors[0].head
        for seed, clients in enumerate([CLIENTS, divided([np.arange(240)])])
    ]
    assert heads[0].weight.tobytes() == heads[1].weight.tobytes()
    assert heads[0].bias.tobytes() == heads[1].bias.tobytes()


def test_holders_are_the_clients_with_records():
    """Empty clients are left out, the others keep their order."""
    clients = divided([[1, 2], [], [3]])
    assert holders(clients) == (clients[0], clients[2])


def test_records_stay_out_of_the_representation():
    """What a client holds does not show where the object is printed."""
    assert repr(ClientData.of(np.full((1, 2), 0.125), np.zeros(1, dtype=np.int64))) == "ClientData()"


def test_import_is_light():
    """Importing the baselines loads neither torch nor scikit-learn."""
    assert loaded_by("import methods.baselines") & {"torch", "sklearn", "threadpoolctl"} == set()
