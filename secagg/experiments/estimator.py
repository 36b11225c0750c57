"""A federation as a scikit-learn classifier: `fit` simulates a whole plan in this process."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from secagg.encoding import inputs_of
from secagg.errors import BadInput
from secagg.experiments.input_data import joined
from secagg.experiments.simulation import simulate
from secagg.features import Expansion
from secagg.heads import LinearHead
from secagg.protection import USUAL
from secagg.scoring.predictor import probabilities_of
from secagg.system.extras import extra

with extra("experiments", "SecureSumClassifier"):
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data

OURS = ("classes", "reference", "seed", "test_features", "test_labels")
"""Parameters of `secagg.simulate` that `fit` sets itself."""


class SecureSumClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose head is fitted to the records of several clients by one or more secure sums.

    The parameters are those of `secagg.simulate`, with its defaults; `settings` takes its further ones by name. A
    finite `epsilon` needs `delta` and `adjacency`. Fitted, it has `classes_`, `n_features_in_`, `head_`, what makes its
    inputs (`expand_`, `grid_`), and `run_`, the whole `SimulationResult`: promise, bytes, seconds, `run_.save(folder)`.
    A pickled one predicts, and has no `run_`. Labels may be anything that scikit-learn takes for classes; there is no
    `sample_weight`, as sums count each record once.

    `random_state`, as scikit-learn has it, fixes the partition, the dropouts and the draw of cohorts and, at epsilon
    inf, what clients draw to train: the same bits at each call. What is fitted under a finite ε differs from call to
    call: noise is never seeded, but for `noise_seed` among the settings, which protects nobody.
    """

    def __init__(
        self,
        method: str = "fedcgs",
        *,
        parameters: str | Mapping[str, Any] = "",
        clients: int | None = None,
        partition: str = "iid",
        protection: str = USUAL,
        epsilon: float = math.inf,
        delta: float | None = None,
        adjacency: str | None = None,
        unit: str = "record",
        refine: int | None = None,
        ridge: float | None = None,
        expand: int = 0,
        normalise: str | None = None,
        radius: float | None = None,
        dropouts: int = 0,
        colluders: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.parameters = parameters
        self.clients = clients
        self.partition = partition
        self.protection = protection
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.unit = unit
        self.refine = refine
        self.ridge = ridge
        self.expand = expand
        self.normalise = normalise
        self.radius = radius
        self.dropouts = dropouts
        self.colluders = colluders
        self.random_state = random_state
        self.settings = settings

    def fit(self, X: Any, y: Any, clients: Any = None) -> Self:
        """Fit the classifier by simulating the plan over records X (n, d) with labels y (n,).

        `clients` says who holds which record: an id for each (n,), or for each client an array of its rows; without it
        records are dealt by `clients` and `partition`. X and y may also be lists with an array for each client. Raises
        ValueError, naming the argument, for what cannot be used, and SessionAborted below a threshold.
        """
        try:
            X, y, clients = joined(X, y, clients)
            X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
            check_classification_targets(y)
            self.classes_, labels = np.unique(y, return_inverse=True)
            if len(self.classes_) < 2:
                raise BadInput("y holds one class", remedy="give records of two classes or more")
            own = self.get_params(deep=False).items()
            given = {name: value for name, value in own if name not in ("settings", "random_state")}
            given["seed"] = _seed_of(self.random_state)
            more = dict(self.settings or {})
            if self.epsilon == math.inf:
                more.setdefault("noise_seed", given["seed"])
            if wrong := sorted(set(more) & {*given, *OURS}):
                problem = f"settings hold {', '.join(wrong)}"
                raise BadInput(problem, remedy="give parameters of the estimator as its own")
            if clients is not None:
                given["clients"] = clients
            names = [str(each) for each in range(len(self.classes_))]
            run = simulate(X, labels, classes=names, reference=False, **given, **more)
            if run.federated is None or run.head is None or not run.head.predicts:
                problem = f"method {self.method} makes no secure sum that gives a head"
                raise BadInput(problem, remedy="choose another method")
            plan = run.federated.setup.plan
            self.run_, self.head_, self.grid_, self.expand_ = run, run.head, plan.grid, plan.expand
        except BadInput as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Weights of the features (C, d), or (1, d) of two classes: `decision_function` is X · coef_ᵀ + intercept_.

        Raises AttributeError where scores are not linear in X: for other heads than linear ones, with an expansion, and
        where records are normalised, as they are under a finite epsilon.
        """
        return _difference(np.asarray(self._linear.weight, dtype=np.float64))

    @property
    def intercept_(self) -> NDArray[np.float64]:
        """Biases of the classes (C,), or (1,) of two classes. Raises AttributeError as `coef_` does."""
        return _difference(np.asarray(self._linear.bias, dtype=np.float64))

    @property
    def _linear(self) -> LinearHead:
        check_is_fitted(self)
        head = self.head_
        if not isinstance(head, LinearHead) or head.before is not None or self.expand_ or self.grid_.is_normalised:
            raise AttributeError("the scores are not linear in X, so there is no coef_ and no intercept_")
        return head

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the scores (n, C) of records X (n, d), by `classes_`; of two classes the second's less the first's."""
        return np.ravel(found) if len(found := _difference(self._scores(X).T)) == 1 else found.T

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities (n, C) of records X (n, d), in the order of `classes_`."""
        return probabilities_of(self._scores(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class (n,) of each record of X (n, d)."""
        most = self._scores(X).argmax(axis=1)
        return np.asarray(self.classes_[most])

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        features = Expansion(self.expand_).expand(X) if self.expand_ else X
        return self.head_.scores(inputs_of(features, self.grid_))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the simulated run, so that a model passes on no sums."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "run_"}


def _difference(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values (C, …) of the classes as they are, or those of two classes as one difference (1, …)."""
    return rows[1:] - rows[:1] if len(rows) == 2 else rows


def _seed_of(random_state: Any) -> Any:
    """Return the seed of a simulation: a whole number as it is, else one drawn by scikit-learn's rule."""
    if isinstance(random_state, Integral):
        return random_state
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
