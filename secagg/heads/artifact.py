"""The protocol of released results, such as a linear head: tensors, a digest, predictions and their evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from secagg.heads.evaluation import Evaluation


class Artifact(Protocol):
    """A released result: public, immutable, and the same for everybody but for rounding."""

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of its tensors, as the artifact's own docstring says."""
        ...

    @property
    def tensors(self) -> Mapping[str, NDArray[Any]]:
        """Its tensors by name, as files hold them."""
        ...

    @property
    def texts(self) -> Mapping[str, str]:
        """The texts of its files beside the tensors; none of a head."""
        ...

    @property
    def predicts(self) -> bool:
        """Whether it tells classes apart by itself, so that `predict` and `evaluate` have something to say."""
        ...

    def require_fit(self, classes: int, dimension: int) -> None:
        """Raise BadInput unless it tells so many classes apart by so many features."""
        ...

    def is_close_to(self, other: Artifact) -> bool:
        """Whether the other is of this kind and shape, and differs by no more than rounding does."""
        ...

    def among(self, rows: NDArray[np.int64], classes: int) -> Artifact:
        """Return the same for `classes` classes, its own being those at `rows`; it never predicts the others."""
        ...

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the class (n,) of features (n, d). Raises BadInput for another d."""
        ...

    def scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the classes' scores (n, C) of features (n, d), whose softmax it takes for probabilities."""
        ...

    def evaluate(self, features: NDArray[np.float64], labels: NDArray[np.int64]) -> Evaluation:
        """Return its accuracy on features (n, d) with labels (n,), n ≥ 1. Raises BadInput for none, or another d."""
        ...
