"""A federation as a scikit-learn classifier: `fit` simulates a whole plan in this process."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from secagg.encoding import inputs_of
from secagg.errors import BadInput
from secagg.experiments.input_data import joined
from secagg.experiments.simulation import simulate
from secagg.features import Expansion
from secagg.protection import USUAL
from secagg.scoring.predictor import probabilities_of
from secagg.system.extras import extra

with extra("experiments", "SecureSumClassifier"):
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data

OURS = ("classes", "reference", "test_features", "test_labels")
"""Parameters of `secagg.simulate` that `fit` sets itself."""


class SecureSumClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose head is fitted to the records of several clients by one or more secure sums.

    The parameters are those of `secagg.simulate`, with its defaults; `settings` takes its further ones by name. A
    finite `epsilon` needs `delta` and `adjacency`. Fitted, it has `classes_`, `n_features_in_`, `head_`, what makes its
    inputs (`expand_`, `grid_`), and `run_`, the whole `SimulationResult`: promise, bytes, seconds, `run_.save(folder)`.
    A pickled one predicts, and has no `run_`. Labels may be anything that scikit-learn takes for classes. What is
    fitted under a finite ε differs from call to call: noise is never seeded, but for `noise_seed` among the settings,
    which protects nobody.
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
        seed: int = 0,
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
        self.seed = seed
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
            given = {name: value for name, value in self.get_params(deep=False).items() if name != "settings"}
            more = dict(self.settings or {})
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

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities (n, C) of records X (n, d), in the order of `classes_`."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        features = Expansion(self.expand_).expand(X) if self.expand_ else X
        return probabilities_of(self.head_.scores(inputs_of(features, self.grid_)))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class (n,) of each record of X (n, d)."""
        found: NDArray[Any] = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[found])

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the simulated run, whose plan and state machines belong to this process."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "run_"}
