"""Scores to probabilities, and the one number that makes them fit a member's own records."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from secagg.errors import BadInput
from secagg.heads.linear import ABSENT_BIAS

FEWEST = 10
"""Records below which no temperature is fitted."""
RANGE = (1e-2, 1e3)
"""Temperatures that are tried: records that are all classified right would ask for 0."""


def probabilities_of(scores: NDArray[np.float64], temperature: float = 1.0) -> NDArray[np.float64]:
    """The softmax (n, C) of scores (n, C), divided by the temperature first; the most probable class stays."""
    found: NDArray[np.float64] = np.exp(log_softmax(scores / temperature, axis=1))
    return found


@dataclass(frozen=True)
class Calibration:
    """A `temperature` > 0 fitted to `records`, and their mean loss −log p in nats `before` and `after`."""

    temperature: float
    records: int
    before: float
    after: float

    @classmethod
    def fit(cls, scores: NDArray[np.float64], labels: NDArray[np.int64]) -> Calibration:
        """The temperature of the least loss (Guo et al. 2017, section 4.2) of scores (n, C) with labels (n,).

        Raises BadInput for fewer than ten records, or none of a class that the head knows.
        """
        if len(labels) < FEWEST:
            problem = f"{len(labels)} labelled records are too few to calibrate by"
            raise BadInput(problem, remedy=f"give {FEWEST} or more")
        rows = np.arange(len(labels))

        def loss(exponent: float) -> float:
            # A class that the head never saw has the score −10³⁰: records of it have no say.
            own = log_softmax(scores / math.exp(exponent), axis=1)[rows, labels]
            return float(-np.mean(own[usable]))

        usable = scores[rows, labels] > ABSENT_BIAS / 2
        if not usable.any():
            raise BadInput("the head knows none of the classes of the records to calibrate by")
        found = minimize_scalar(loss, bounds=(math.log(RANGE[0]), math.log(RANGE[1])), method="bounded")
        return cls(math.exp(float(found.x)), int(usable.sum()), loss(0.0), float(found.fun))
