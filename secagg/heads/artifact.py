"""What a plan may end with: something with tensors, a digest and an evaluation; a linear head is one."""

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
        """What its files say of it beside the tensors; nothing of a head."""
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

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the class (n,) of features (n, d). Raises BadInput for another d."""
        ...

    def scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the classes' scores (n, C) of features (n, d), whose softmax it takes for probabilities."""
        ...

    def evaluate(self, features: NDArray[np.float64], labels: NDArray[np.int64]) -> Evaluation:
        """Return its accuracy on features (n, d) with labels (n,), n ≥ 1. Raises BadInput for none, or another d."""
        ...
