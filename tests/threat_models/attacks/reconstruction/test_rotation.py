"""Single records out of counts, class sums and second moment."""

import numpy as np
import pytest

from secagg.encoding import Normalisation
from secagg.errors import BadInput
from tests.threat_models.attacks.sums import noisy_sum_of, plan_of, records_of
from threat_models.attacks.reconstruction.rotation import as_features, recover, root_of
from threat_models.attacks.reconstruction.similarity import match_cosines
from threat_models.attacks.reconstruction.unmixing import sum_of


def sparse(count, dimension=64, zeros=0.5, seed=0):
    """Non-negative features with exact zeros around a mean that they share, and labels of 3 classes."""
    generator = np.random.default_rng(seed)
    features = np.maximum(generator.standard_normal((count, dimension)) + np.sqrt(2) * (0.5 - zeros), 0)
    return features / 20, generator.integers(0, 3, count)


KINDS = [
    pytest.param({"centre": 0.0}, id="as they are"),
    pytest.param({"centre": 0.02}, id="centred by a constant"),
    pytest.param({"normalisation": Normalisation.UNIT, "centre": 0.02}, id="unit"),
    pytest.param({"normalisation": Normalisation.CENTRED_UNIT}, id="centred-unit"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_every_feature_comes_back(kind, count):
    """Features of few records come out of their sums, whatever the normalisation, up to their order."""
    plan = plan_of(64, 3, **kind)
    records = records_of(plan, *sparse(count))
    found = recover(sum_of(records, plan), plan)
    assert match_cosines(found.features, records.features).min() > 0.999
    assert np.array_equal(found.labels, np.sort(records.labels))


def test_recovered_records_have_the_sums():
    """What is recovered has the class sums and second moment that it was recovered from, and lies on the floor."""
    plan = plan_of(64, 3)
    records = records_of(plan, *sparse(10))
    found = recover(sum_of(records, plan), plan)
    exact = records.integers / plan.levels
    assert np.allclose(found.records.T @ found.records, exact.T @ exact, atol=1e-6)
    for label in range(3):
        ours = found.records[found.labels == label].sum(axis=0)
        assert np.allclose(ours, exact[records.labels == label].sum(axis=0), atol=1e-6)
    assert found.violation < 1e-8
    assert np.allclose(found.features, found.records, atol=1e-3)  # radius 1, centre 0


def test_repeated_and_dependent_records_come_back():
    """A second moment of less rank than records does not stop the recovery of those that are there."""
    plan = plan_of(64, 3)
    features, labels = sparse(6)
    records = records_of(plan, np.concatenate([features, features[:2]]), np.concatenate([labels, labels[:2]]))
    found = recover(sum_of(records, plan), plan)
    assert match_cosines(found.features, records.features).min() > 0.99


def test_a_class_of_one_is_its_class_sum():
    """Where every class has one record nothing is left to search: the class sums are the records."""
    plan = plan_of(64, 3)
    records = records_of(plan, sparse(3)[0], [2, 0, 1])
    found = recover(sum_of(records, plan), plan, iterations=0)
    assert np.allclose(found.records, (records.integers / plan.levels)[[1, 2, 0]], atol=1e-9)


def test_dense_features_do_not_come_apart():
    """Negative control: without zeros the rotation stays open, and what is found is no better than class means."""
    plan = plan_of(64, 3, radius=2.0)
    features, labels = sparse(30)
    records = records_of(plan, features + 0.1, labels)
    found = recover(sum_of(records, plan), plan)
    means = np.stack([records.features[labels == label].mean(axis=0) for label in found.labels])
    reached = match_cosines(found.features, records.features).mean()
    assert reached < match_cosines(means, records.features).mean() + 0.01 < 0.99


@pytest.mark.parametrize("count", [0, 64, 70])
def test_only_fewer_records_than_dimensions(count):
    """A sum of no record, or of as many as dimensions, is refused with the numbers."""
    plan = plan_of(64, 3)
    records = records_of(plan, *sparse(count))
    with pytest.raises(BadInput, match=f"{count} records in 64 dimensions"):
        recover(sum_of(records, plan), plan)


def test_recovery_is_reproducible():
    """The same blocks and seed give the same features, bit for bit."""
    plan = plan_of(64, 3)
    blocks = sum_of(records_of(plan, *sparse(8)), plan)
    first, second = (recover(blocks, plan, seed=3, iterations=50) for _ in range(2))
    assert np.array_equal(first.features, second.features)


def test_root_is_a_root_of_the_second_moment():
    """SᵀS is B in units of R_q², and eigenvalues that are rounding are left out."""
    plan = plan_of(64, 3)
    records = records_of(plan, *sparse(5))
    root = root_of(sum_of(records, plan), plan, 9)
    exact = records.integers / plan.levels
    assert np.allclose(root.T @ root, exact.T @ exact, atol=1e-9)
    assert np.count_nonzero(root.any(axis=1)) == 5


def test_features_from_records():
    """Records that keep their length are features again by radius and centre; normalised ones start at 0."""
    plan = plan_of(64, 3, radius=2.0, centre=0.5)
    assert np.allclose(as_features(np.array([[0.25, -0.25]]), plan), [[1.0, 0.0]])
    normalised = plan_of(64, 3, normalisation=Normalisation.CENTRED_UNIT)
    assert np.allclose(as_features(np.array([[0.6, -0.8]]), normalised), [[1.4, 0.0]])


def cosine_curve(pool, plan, sizes, clients=1, sigma=0.0, iterations=2000):
    """Mean cosines of a client's n features with what is recovered of the sum of `clients` such clients, by n.

    Ends where the sum has d records or the pool is used up.
    """
    generator, found = np.random.default_rng(0), {}
    for size in sizes:
        if size * clients >= min(plan.dimension, len(pool) + 1):
            break
        rows = generator.permutation(len(pool))[: size * clients]
        blocks = noisy_sum_of(pool.take(rows), plan, sigma, size)
        recovered = recover(blocks, plan, iterations=iterations)
        found[size] = match_cosines(recovered.features, pool.features[rows[:size]]).mean()
    return found


def test_curve_falls_with_records_noise_and_clients():
    """More records, more clients in the sum and more noise each make recovery worse, and a full sum ends the curve."""
    plan = plan_of(64, 3)
    pool = records_of(plan, *sparse(200))
    alone = cosine_curve(pool, plan, sizes=(2, 8, 63, 64), iterations=400)
    noisy = cosine_curve(pool, plan, sizes=(2, 8), sigma=0.05, iterations=400)
    summed = cosine_curve(pool, plan, sizes=(2, 8, 16), clients=4, iterations=400)
    assert set(alone) == {2, 8, 63}
    assert min(alone[2], alone[8]) > 0.999 > alone[63]
    assert max(noisy.values()) < min(alone[2], alone[8])
    assert set(summed) == {2, 8}
    assert summed[8] < alone[8]


@pytest.mark.parametrize(("count", "least"), [(2, 0.9999), (8, 0.999), (16, 0.999), (32, 0.999), (64, 0.98)])
def test_real_features_come_back(data_folder, count, least):
    """Features of CIFAR-10 with 11 % zeros: at least the prototype's 0.999 up to 16, 0.97 at 32 and 0.86 at 64."""
    with np.load(data_folder / "cifar10_resnet18_layer3_features.npz") as content:
        features = content["train_features"][:2000] * content["scale"].astype(np.float64)
        labels = content["train_labels"][:2000].astype(np.int64)
    plan = plan_of(256, 10, radius=20.0)
    found = cosine_curve(records_of(plan, features, labels), plan, sizes=(count,))
    assert found[count] > least
