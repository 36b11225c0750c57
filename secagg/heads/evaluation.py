"""Accuracy on held-out records, with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from secagg.errors import BadInput

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Evaluation:
    """`correct` of `total` records, the fraction `accuracy`, and its 95 % Clopper–Pearson `interval`."""

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
        """So many right ones of `total` ≥ 1."""
        return cls(correct, total, correct / total, clopper_pearson(correct, total))


def clopper_pearson(successes: float, trials: float) -> tuple[float, float]:
    """Exact 95 % interval of a binomial proportion (Clopper & Pearson 1934), by beta quantiles.

    Of weighted trials, as many as they are worth, an approximation (Korn & Graubard 1998).
    """
    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, tail))
    high = 1.0 if successes == trials else float(betaincinv(successes + 1, trials - successes, 1 - tail))
    return low, high
