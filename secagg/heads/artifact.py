"""The interface of released results, for example linear heads, and their accuracy on held-out records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from secagg.errors import BadInput

CONFIDENCE = 0.95
CLOSE = 1e-3
"""The difference allowed between two machines' artifacts, relative to each tensor's largest entry."""


@dataclass(frozen=True)
class Evaluation:
    """Result of an evaluation: `correct` of `total` records, `accuracy`, and its 95 % Clopper–Pearson `interval`."""

    correct: int
    total: int
    accuracy: float
    interval: tuple[float, float]

    @classmethod
    def of(cls, predicted: NDArray[np.int64], labels: NDArray[np.int64]) -> Evaluation:
        """Compare predictions (n,) with labels (n,), n ≥ 1. Raises BadInput when there is nothing to evaluate."""
        if len(labels) == 0 or len(labels) != len(predicted):
            raise BadInput(f"cannot evaluate {len(predicted)} records with {len(labels)} labels")
        return cls.counted(int((predicted == labels).sum()), len(labels))

    @classmethod
    def counted(cls, correct: int, total: int) -> Evaluation:
        """Return the evaluation of `correct` right predictions out of `total` ≥ 1."""
        return cls(correct, total, correct / total, clopper_pearson(correct, total))


def clopper_pearson(successes: float, trials: float) -> tuple[float, float]:
    """Return the exact 95 % interval of a binomial proportion (Clopper & Pearson 1934), by beta quantiles.

    Of weighted trials, as many as they are worth, an approximation (Korn & Graubard 1998).
    """
    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, tail))
    high = 1.0 if successes == trials else float(betaincinv(successes + 1, trials - successes, 1 - tail))
    return low, high


class Artifact(Protocol):
    """A released result: public, immutable, and the same for all parties up to rounding."""

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the tensors, as the artifact's own docstring defines it."""

    @property
    def tensors(self) -> Mapping[str, NDArray[Any]]:
        """The artifact's arrays (tensors) by name, as its file stores them."""

    @property
    def texts(self) -> Mapping[str, str]:
        """Metadata, text by name, that the artifact's file holds in addition to its tensors; a head has none."""

    @property
    def predicts(self) -> bool:
        """Whether the artifact can classify by itself, as `predict` and `evaluate` need."""
        return True

    def require_fit(self, classes: int, dimension: int) -> None:
        """Raise BadInput unless the artifact has this number of classes and of features."""

    def is_close_to(self, other: Artifact) -> bool:
        """Return whether the other artifact has the same kind and shape, and differs by rounding at most (`CLOSE`)."""
        own, its = self.tensors, other.tensors
        return {name: each.shape for name, each in own.items()} == {
            name: each.shape for name, each in its.items()
        } and all(
            np.allclose(its[name], each, rtol=CLOSE, atol=CLOSE * float(np.abs(each).max(initial=0)))
            for name, each in own.items()
        )

    def among(self, rows: NDArray[np.int64], classes: int) -> Artifact:
        """Return a copy with `classes` classes: class i gets the index rows[i], and new ones are never predicted."""

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the class (n,) with the largest score for features (n, d). Raises BadInput for another d."""
        predicted: NDArray[np.int64] = np.argmax(self.scores(features), axis=1).astype(np.int64)
        return predicted

    def scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the classes' scores (n, C) of features (n, d), whose softmax stands for probabilities."""

    def evaluate(self, features: NDArray[np.float64], labels: NDArray[np.int64]) -> Evaluation:
        """Return the accuracy on features (n, d) with labels (n,), n ≥ 1. Raises BadInput for none, or another d."""
        return Evaluation.of(self.predict(features), labels)
