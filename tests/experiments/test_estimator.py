"""The scikit-learn estimator, and clients as Python's users say them."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import secagg
from secagg import SecureSumClassifier
from secagg.errors import BadInput
from secagg.experiments.input_data import ids_of

X, Y = load_iris(return_X_y=True)


@parametrize_with_checks([SecureSumClassifier(clients=2, protection="none")])
def test_scikit_learns_own_checks(estimator: SecureSumClassifier, check) -> None:
    """Every check of scikit-learn passes, without an exception for any."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_head_is_that_of_the_records_in_one_place() -> None:
    """However the records are dealt, and under every protection, the sum, hence the head, has the same bits."""
    digests = {
        SecureSumClassifier(radius=12.0, **how).fit(X, Y).head_.digest
        for how in ({"clients": 1, "protection": "none"}, {"clients": 4}, {"clients": 3, "partition": "dirichlet:0.1"})
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    "clients",
    [np.arange(150) % 3, np.array(["b", "a", "c"])[np.arange(150) % 3], [np.arange(k, 150, 3) for k in range(3)]],
)
def test_clients_are_ids_or_rows(clients: object) -> None:
    """Numbers, names, or an array of rows for each client: the same three clients, hence the same sum."""
    found = SecureSumClassifier().fit(X, Y, clients=clients)
    assert found.run_.clients == 3
    assert secagg.simulate(X, Y, clients=clients).clients == 3
    assert found.head_.digest == SecureSumClassifier(clients=3).fit(X, Y).head_.digest


def test_records_may_come_client_by_client() -> None:
    """Lists with an array for each client are those clients."""
    cuts = [slice(0, 40), slice(40, 100), slice(100, 150)]
    found = SecureSumClassifier().fit([X[cut] for cut in cuts], [Y[cut] for cut in cuts])
    assert found.run_.clients == 3
    assert found.score(X, Y) > 0.9


def test_ten_clients_stand_in_the_order_of_their_numbers() -> None:
    """The tenth client is not the second, as it would be by the alphabet."""
    ids = np.arange(12)
    assert np.argsort(ids_of(ids, 12)).tolist() == ids.tolist()


def test_names_of_classes_come_back() -> None:
    """Labels of text are what `predict` gives, in the order of `classes_`."""
    names = np.array(["setosa", "versicolor", "virginica"])
    found = SecureSumClassifier(clients=3, protection="none").fit(X, names[Y])
    assert found.classes_.tolist() == names.tolist()
    assert set(found.predict(X)) == set(names)
    assert np.allclose(found.predict_proba(X).sum(axis=1), 1)


def test_works_in_pipelines_and_searches() -> None:
    """Parameters are found by name, folds are fitted apart, and an expansion of features is part of the prediction."""
    chained = make_pipeline(StandardScaler(), SecureSumClassifier(clients=2, protection="none"))
    assert cross_val_score(chained, X, Y, cv=3).min() > 0.9
    searched = GridSearchCV(SecureSumClassifier(clients=2, protection="none"), {"expand": [0, 32]}, cv=2).fit(X, Y)
    assert set(searched.cv_results_["param_expand"]) == {0, 32}
    assert SecureSumClassifier(clients=2, protection="none", expand=32).fit(X, Y).score(X, Y) > 0.9


def test_noise_is_the_plans() -> None:
    """A finite ε has a promise, and further settings reach the simulation."""
    found = SecureSumClassifier(epsilon=8.0, delta=1e-5, adjacency="add-remove", settings={"at_least": 100}).fit(X, Y)
    assert "epsilon 8" in found.run_.promise
    assert found.run_.settings.at_least == 100


def test_pickled_estimator_predicts_the_same() -> None:
    """What the run was made of stays in its process."""
    found = SecureSumClassifier(clients=2, protection="none").fit(X, Y)
    again = pickle.loads(pickle.dumps(found))  # noqa: S301 (made in the line itself)
    assert np.array_equal(again.predict_proba(X), found.predict_proba(X))
    assert not hasattr(again, "run_")


@pytest.mark.parametrize(
    ("parameters", "fitted", "said"),
    [
        ({"epsilon": "1"}, {}, "epsilon cannot be '1'"),
        ({"clients": 2.5}, {}, "clients cannot be 2.5"),
        ({"method": "fedfoo"}, {}, "fedfoo"),
        ({"method": "centralised", "protection": "none"}, {}, "centralised makes no secure sum"),
        ({"settings": {"epsilon": 1}}, {}, "settings hold epsilon"),
        ({"settings": {"rabbits": 1}}, {}, "rabbits"),
        ({}, {"clients": np.arange(5)}, r"clients has shape \(5,\) for 150 records"),
        ({}, {"clients": [np.arange(100)]}, "clients hold 100 rows for 150 records"),
        ({}, {"clients": [np.arange(150), np.arange(3)]}, "clients hold 153 rows"),
        ({"partition": "dirichlet:1"}, {"clients": np.arange(150) % 3}, "leave out partition"),
    ],
)
def test_errors_name_the_argument(parameters: dict, fitted: dict, said: str) -> None:
    """A wrong argument is a ValueError that says which one it is."""
    with pytest.raises(ValueError, match=said):
        SecureSumClassifier(**parameters).fit(X, Y, **fitted)


@pytest.mark.parametrize(
    ("features", "labels", "clients", "said"),
    [
        ([X[:50], X[50:]], [Y[:50], Y[50:60]], None, "labels do not fit features"),
        ([X[:50], X[50:]], Y, None, "labels do not fit features"),
        ([X[:50], X[50:, :2]], [Y[:50], Y[50:]], None, r"features have \[2, 4\] columns"),
        ([X[:50], X[50:]], [Y[:50], Y[50:]], 2, "one array for each client already"),
        (np.where(X > 7, np.nan, X), Y, None, "NaN"),
    ],
)
def test_records_that_do_not_fit_are_refused(features: object, labels: object, clients: object, said: str) -> None:
    """Client by client as in one array."""
    with pytest.raises(BadInput, match=said):
        secagg.simulate(features, labels, clients=clients)


@pytest.mark.parametrize(
    ("wrong", "said"), [(np.full((2, 4), np.nan), "NaN"), (X[:, :2], "2 features"), (X[:0], "0 sample")]
)
def test_what_cannot_be_predicted_is_refused(wrong: np.ndarray, said: str) -> None:
    """NaN, other columns and no record."""
    found = SecureSumClassifier(clients=2, protection="none").fit(X, Y)
    with pytest.raises(ValueError, match=said):
        found.predict_proba(wrong)
