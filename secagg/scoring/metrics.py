"""Metrics of predictions, overall and of each class, by scikit-learn's definitions, each with an interval.

Fractions of records have Clopper–Pearson intervals; areas under ROC curves Newcombe's (2006, part 2, method 5), which
keep a width where no pair is in the wrong order; the other measures percentiles of a bootstrap over the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from secagg.errors import BadInput
from secagg.heads.artifact import CONFIDENCE, clopper_pearson

BINS = 15
"""Bins of confidence of the calibration error (Guo et al. 2017)."""
DRAWS = 1000
NEAR = 1e-12
"""How far from 0 and 1 ends of intervals are looked for: at both themselves the spread vanishes."""
SEED = 0
"""Of the bootstrap, so that the same predictions always have the same intervals."""
INTERVALS = (
    "95 %: accuracy, sensitivity and specificity Clopper–Pearson; AUC Newcombe 2006 (method 5), the mean over classes "
    f"by the means of the ends; balanced accuracy, F1 and calibration error by percentiles of {DRAWS} bootstrap draws"
)
NAMES = ("accuracy", "balanced_accuracy", "auc", "f1", "sensitivity", "specificity", "calibration_error")
"""The measures of all records; those of a class are among them."""
OF_A_CLASS = ("sensitivity", "specificity", "auc", "f1")


@dataclass(frozen=True)
class Measure:
    """A value from 0 to 1 with its 95 % interval."""

    value: float
    low: float
    high: float

    def to_text(self) -> str:
        """The measure in per cent, its interval in brackets."""
        return f"{100 * self.value:.2f} % ({100 * self.low:.2f} to {100 * self.high:.2f})"

    def to_json(self) -> dict[str, float]:
        """The three numbers by name."""
        return {"value": self.value, "low": self.low, "high": self.high}

    @classmethod
    def of_fraction(cls, part: int, total: int) -> Measure | None:
        """Measure the fraction `part` of `total`; None where `total` is 0."""
        return cls(part / total, *clopper_pearson(part, total)) if total else None


@dataclass(frozen=True)
class Metrics:
    """Of n ≥ 1 predictions of C classes.

    `overall` and `by_class` hold a `Measure` under each of `NAMES` and `OF_A_CLASS`; None where the records do not say
    (a class without a record has no sensitivity). Where one of two classes is declared `positive`, the AUC, F1,
    sensitivity and specificity of all records are its own. Else AUC and F1 are means over the classes that occur, and
    there is no one sensitivity: the order of names never decides. `confusion` (C, C) counts records of the row's class
    that were said to be of the column's.
    """

    classes: tuple[str, ...]
    overall: Mapping[str, Measure | None]
    by_class: tuple[Mapping[str, Measure | None], ...]
    confusion: NDArray[np.int64]
    positive: str | None = None

    @classmethod
    def of(
        cls,
        probabilities: NDArray[np.float64],
        labels: NDArray[np.int64],
        classes: Sequence[str],
        *,
        positive: str = "",
        draws: int = DRAWS,
    ) -> Metrics:
        """Measure probabilities (n, C) against labels (n,) in 0…C−1; `positive` names one of the classes, or none.

        Raises BadInput for no record, other shapes, and a positive class that there is not.

        The predicted class is the most probable, the lower one of several.
        """
        if probabilities.shape != (len(labels), len(classes)) or not len(labels):
            raise BadInput(f"cannot score {len(labels)} labels of {len(classes)} classes by {probabilities.shape}")
        if positive and positive not in classes:
            raise BadInput(f"no class is called {positive!r}", remedy=f"name one of {', '.join(classes)}")
        count = len(classes)
        predicted = np.argmax(probabilities, axis=1)
        confusion = np.bincount(labels * count + predicted, minlength=count**2).reshape(count, count).astype(np.int64)
        f1, mean_f1, balanced = _bootstrap(confusion, draws)
        by_class = tuple(
            {**_fractions(confusion, each), "auc": _area(probabilities[:, each], labels == each), "f1": f1[each]}
            for each in range(count)
        )
        overall = {
            "accuracy": Measure.of_fraction(int(np.trace(confusion)), len(labels)),
            "balanced_accuracy": balanced,
            **(
                by_class[list(classes).index(positive)]
                if positive
                else {"auc": _mean([each["auc"] for each in by_class]), "f1": mean_f1}
            ),
            "calibration_error": _calibration_error(probabilities, predicted == labels, draws),
        }
        named = {name: overall.get(name) for name in NAMES}
        return cls(tuple(classes), named, by_class, confusion, positive or None)

    def called(self, name: str) -> str:
        """Name a measure of all records for people, with the class that it is of."""
        words = {"auc": "AUC", "f1": "F1"}.get(name, name.replace("_", " "))
        if name not in OF_A_CLASS:
            return words
        return f"{words} of {self.positive}" if self.positive is not None else f"{words}, mean over classes"

    def to_json(self) -> dict[str, Any]:
        """Plain values: of all records, of each class, the confusion matrix, and what the intervals are."""
        totals = self.confusion.sum(axis=1).tolist()
        return {
            "records": int(self.confusion.sum()),
            "positive_class": self.positive,
            **_plain(self.overall),
            "classes": [
                {"class": name, "records": total, **_plain({each: own[each] for each in OF_A_CLASS})}
                for name, total, own in zip(self.classes, totals, self.by_class, strict=True)
            ],
            "confusion": self.confusion.tolist(),
            "intervals": INTERVALS,
        }

    def rows(self) -> list[tuple[str, str, Measure]]:
        """Every measure there is: its name, its class ("" of all records), itself."""
        groups = [("", self.overall), *zip(self.classes, self.by_class, strict=True)]
        return [(name, of, measure) for of, own in groups for name, measure in own.items() if measure is not None]


def calibration_bins(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> list[tuple[int, float, float]]:
    """For each bin of confidence with records: how many, their mean confidence, and the fraction that is right."""
    confidence, right = probabilities.max(axis=1), np.argmax(probabilities, axis=1) == labels
    bins = _bins_of(confidence)
    return [
        (int(own.sum()), float(confidence[own].mean()), float(right[own].mean()))
        for own in (bins == each for each in np.unique(bins))
    ]


def _plain(measures: Mapping[str, Measure | None]) -> dict[str, Any]:
    return {name: measure.to_json() if measure is not None else None for name, measure in measures.items()}


def _fractions(confusion: NDArray[np.int64], own: int) -> dict[str, Measure | None]:
    hits, members, said = (int(each) for each in (confusion[own, own], confusion[own].sum(), confusion[:, own].sum()))
    others = int(confusion.sum()) - members
    return {
        "sensitivity": Measure.of_fraction(hits, members),
        "specificity": Measure.of_fraction(others - (said - hits), others),
    }


def _bootstrap(confusion: NDArray[np.int64], draws: int) -> tuple[list[Measure | None], Measure, Measure]:
    """F1 of each class, its mean, and the balanced accuracy, with intervals.

    Drawing n records anew is drawing the cells of the matrix. One record more is spread over all cells: without it
    a matrix without an error would have intervals without a width.
    """
    count, total = len(confusion), int(confusion.sum())
    spread = (confusion + 1 / count**2).reshape(-1) / (total + 1)
    generator = np.random.default_rng(SEED)
    drawn = [_of_matrix(generator.multinomial(total, spread).reshape(count, count)) for _ in range(draws)]
    f1, mean_f1, balanced = _of_matrix(confusion)
    ends = [_ends(np.array([each[part] for each in drawn])) for part in range(3)]
    own = [_within(value, *ends[0][:, each]) if not np.isnan(value) else None for each, value in enumerate(f1)]
    return own, _within(mean_f1, *ends[1]), _within(balanced, *ends[2])


def _of_matrix(confusion: NDArray[np.int64]) -> tuple[NDArray[np.float64], float, float]:
    """F1 of each class (NaN: it does not occur), its mean, and the mean sensitivity."""
    hits, members, said = np.diagonal(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        f1 = 2 * hits / (members + said)
        return f1, float(np.nanmean(f1)), float(np.mean((hits / members)[members > 0]))


def _ends(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Percentiles over the first axis of what is known; 0 where nothing is."""
    tail = (1 - CONFIDENCE) / 2
    known = np.where(np.isnan(values).all(axis=0), 0.0, values)
    found: NDArray[np.float64] = np.nanquantile(known, (tail, 1 - tail), axis=0)
    return found


def _within(value: float, low: float, high: float) -> Measure:
    """The value in an interval that holds it: percentiles of few records need not."""
    return Measure(float(value), float(min(low, value)), float(max(high, value)))


def _area(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> Measure | None:
    """The area under the ROC curve: of pairs of a positive record and another, how many are in the right order."""
    inside, outside = int(positive.sum()), int((~positive).sum())
    if not inside or not outside:
        return None
    _, places, ties = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(ties) - (ties - 1) / 2  # equal scores share the mean of theirs
    area = float((ranks[places][positive].sum() - inside * (inside + 1) / 2) / (inside * outside))
    return Measure(area, *_newcombe(area, inside, outside))


def _newcombe(area: float, inside: int, outside: int) -> tuple[float, float]:
    """Those areas that lie no more than z of *their* standard deviations (Hanley & McNeil 1982) from the found one."""
    z, mean = NormalDist().inv_cdf((1 + CONFIDENCE) / 2), (inside + outside) / 2 - 1

    def beyond(true: float) -> float:
        spread = true * (1 - true) * (1 + mean * (1 - true) / (2 - true) + mean * true / (1 + true))
        return (area - true) ** 2 - z * z * spread / (inside * outside)

    low = 0.0 if area == 0 else float(brentq(beyond, 0.0, min(area, 1 - NEAR)))
    high = 1.0 if area == 1 else float(brentq(beyond, max(area, NEAR), 1.0))
    return low, high


def _mean(measures: Sequence[Measure | None]) -> Measure | None:
    """The mean of those there are, and of their ends: wide enough, as a mean spreads no more than its parts do."""
    known = [each for each in measures if each is not None]
    if not known:
        return None
    ends = zip(*((each.value, each.low, each.high) for each in known), strict=True)
    return Measure(*(float(np.mean(each)) for each in ends))


def _bins_of(confidence: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)


def _calibration_error(probabilities: NDArray[np.float64], right: NDArray[np.bool_], draws: int) -> Measure:
    """The mean over the records of |confidence − fraction right| of their bin."""
    confidence = probabilities.max(axis=1)
    gaps, bins, total = confidence - right, _bins_of(confidence), len(right)
    generator = np.random.default_rng(SEED)

    def error(rows: NDArray[np.int64]) -> float:
        return float(np.abs(np.bincount(bins[rows], weights=gaps[rows])).sum() / total)

    drawn = np.array([error(generator.integers(total, size=total)) for _ in range(draws)])
    return _within(error(np.arange(total)), *_ends(drawn))
