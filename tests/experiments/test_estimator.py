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


def test_decisions_are_linear_in_the_features() -> None:
    """`coef_` and `intercept_` make the decisions, in the shapes of scikit-learn for two classes and for more."""
    for labels, rows in ((Y, 3), (Y % 2, 1)):
        found = SecureSumClassifier(clients=3, protection="none").fit(X, labels)
        decided = found.decision_function(X)
        assert (found.coef_.shape, found.intercept_.shape) == ((rows, 4), (rows,))
        assert np.allclose(X @ found.coef_.T + found.intercept_, decided.reshape(len(X), rows))
        most = decided.argmax(axis=1) if rows > 1 else (decided > 0).astype(int)
        assert np.array_equal(found.predict(X), found.classes_[most])


@pytest.mark.parametrize(
    "how", [{"normalise": "unit"}, {"expand": 8}, {"method": "fedavg", "parameters": "model=mlp:4", "clients": 5}]
)
def test_decisions_that_are_not_linear_have_no_coefficients(how: dict) -> None:
    """Where scores are not linear in the features there is no `coef_` that would claim it, but decisions there are."""
    found = SecureSumClassifier(**{"clients": 3, "protection": "none", **how}).fit(X, Y)
    assert not hasattr(found, "coef_")
    assert not hasattr(found, "intercept_")
    assert found.decision_function(X).shape == (150, 3)


def test_random_state_repeats_what_is_trained() -> None:
    """At epsilon inf one number gives the same bits of a trained head, another gives others; None draws afresh."""
    how = {"method": "fedavg", "parameters": "rounds=2 rate=0.5", "clients": 5, "protection": "none"}
    states = (3, 3, np.random.RandomState(7), np.random.RandomState(7), 4, None, None)
    digests = [SecureSumClassifier(**how, random_state=state).fit(X, Y).head_.digest for state in states]
    assert digests[0] == digests[1]
    assert digests[2] == digests[3]
    assert len(set(digests)) == 5


def test_random_state_seeds_no_noise() -> None:
    """Under a finite epsilon the same number gives other noise: a model that protects is never repeated.

    Two draws of the noise coincide with a probability far below 10⁻⁹.
    """
    how = {"epsilon": 2.0, "delta": 1e-5, "adjacency": "add-remove", "clients": 3, "random_state": 3}
    first, second = (SecureSumClassifier(**how).fit(X, Y) for _ in range(2))
    assert first.head_.digest != second.head_.digest
    assert first.run_.settings.noise_seed is None


@pytest.mark.parametrize(
    ("parameters", "fitted", "said"),
    [
        ({"random_state": "x"}, {}, "cannot be used to seed"),
        ({"random_state": -1}, {}, "seed"),
        ({"settings": {"seed": 1}}, {}, "settings hold seed"),
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
