"""Metrics of predictions, overall and for each class, as scikit-learn defines them, each with a 95 % interval.

Fractions of records have Clopper–Pearson intervals; areas under ROC curves Newcombe's (2006, part 2, method 5), which
keep a width where no pair is in the wrong order; the other measures percentiles of a bootstrap over the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from secagg.errors import BadInput
from secagg.heads.artifact import CONFIDENCE, clopper_pearson

BINS = 15
"""Number of bins of confidence in the calibration error (Guo et al. 2017)."""
DRAWS = 1000
NEAR = 1e-12
"""Distance from 0 and 1 at which the search for an AUC's interval ends: at 0 and 1 the variance vanishes."""
SEED = 0
"""Seed of the bootstrap: the same predictions always get the same intervals."""
INTERVALS = (
    "95 %: accuracy, sensitivity and specificity Clopper–Pearson; AUC Newcombe 2006 (method 5), the mean over classes "
    f"by the means of the ends; balanced accuracy, F1 and calibration error by percentiles of {DRAWS} bootstrap draws"
)
NAMES = ("accuracy", "balanced_accuracy", "auc", "f1", "sensitivity", "specificity", "calibration_error")
"""Names of the metrics over all records; `OF_A_CLASS` names those that each class has too."""
UNEQUAL = 1.5
"""Ratio of the largest class to the smallest above which balanced accuracy and AUC stand beside accuracy in tables."""
OF_A_CLASS = ("sensitivity", "specificity", "auc", "f1")


@dataclass(frozen=True)
class ScoreInterval:
    """A metric's value from 0 to 1 with its 95 % interval."""

    value: float
    low: float
    high: float

    def to_text(self) -> str:
        """Return the value in per cent, with the interval in brackets."""
        return f"{100 * self.value:.2f} % ({100 * self.low:.2f} to {100 * self.high:.2f})"

    @classmethod
    def of_fraction(cls, part: int, total: int) -> ScoreInterval | None:
        """Return the fraction `part` / `total` with its Clopper–Pearson interval; None where `total` is 0."""
        return cls(part / total, *clopper_pearson(part, total)) if total else None


@dataclass(frozen=True)
class Metrics:
    """The metrics of n ≥ 1 predictions of C classes.

    `overall` and `by_class` hold a `ScoreInterval` under each of `NAMES` and `OF_A_CLASS`; None where the records do
    not say (a class without a record has no sensitivity). Where one of two classes is declared `positive`, the AUC, F1,
    sensitivity and specificity of all records are its own. Else AUC and F1 are means over the classes that occur, and
    there is no one sensitivity: the order of names never decides. `confusion` (C, C) counts records of the row's class
    that were said to be of the column's.
    """

    classes: tuple[str, ...]
    overall: Mapping[str, ScoreInterval | None]
    by_class: tuple[Mapping[str, ScoreInterval | None], ...]
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
        """Compute the metrics of probabilities (n, C) for labels (n,) in 0…C−1; `positive` is the positive class or "".

        The predicted class is the most probable, the lower one of several. Raises BadInput for no record, other shapes,
        and a positive class that there is not.
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
        means = {"auc": _mean([each["auc"] for each in by_class]), "f1": mean_f1}
        overall = {
            "accuracy": ScoreInterval.of_fraction(int(np.trace(confusion)), len(labels)),
            "balanced_accuracy": balanced,
            **(by_class[list(classes).index(positive)] if positive else means),
            "calibration_error": _calibration_error(probabilities, predicted == labels, draws),
        }
        named = {name: overall.get(name) for name in NAMES}
        return cls(tuple(classes), named, by_class, confusion, positive or None)

    def called(self, name: str) -> str:
        """Return a metric's display name and, for a class's metric, the positive class or "mean over classes"."""
        words = {"auc": "AUC", "f1": "F1"}.get(name, name.replace("_", " "))
        if name not in OF_A_CLASS:
            return words
        return f"{words} of {self.positive}" if self.positive is not None else f"{words}, mean over classes"

    def to_json(self) -> dict[str, Any]:
        """Return JSON values: metrics of all records and of each class, confusion matrix, kinds of intervals."""
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

    def rows(self) -> list[tuple[str, str, ScoreInterval]]:
        """Return (name, class, value) of every metric that has a value; the class is "" for all records."""
        groups = [("", self.overall), *zip(self.classes, self.by_class, strict=True)]
        return [(name, of, measure) for of, own in groups for name, measure in own.items() if measure is not None]


def are_unequal(records: Sequence[int]) -> bool:
    """Return whether the largest class has more than `UNEQUAL` times the records of the smallest, which may have none.

    `records` (C,) are those of each class, C ≥ 1. Where classes are so unequal, naming the largest alone looks good.
    """
    return max(records) > UNEQUAL * min(records)


def calibration_bins(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> list[tuple[int, float, float]]:
    """Return, for each non-empty confidence bin, its number of records, mean confidence and fraction correct."""
    confidence, right = probabilities.max(axis=1), np.argmax(probabilities, axis=1) == labels
    bins = _bins_of(confidence)
    return [
        (int(own.sum()), float(confidence[own].mean()), float(right[own].mean()))
        for own in (bins == each for each in np.unique(bins))
    ]


def _plain(measures: Mapping[str, ScoreInterval | None]) -> dict[str, Any]:
    return {name: asdict(measure) if measure is not None else None for name, measure in measures.items()}


def _fractions(confusion: NDArray[np.int64], own: int) -> dict[str, ScoreInterval | None]:
    hits, members, said = (int(each) for each in (confusion[own, own], confusion[own].sum(), confusion[:, own].sum()))
    others = int(confusion.sum()) - members
    return {
        "sensitivity": ScoreInterval.of_fraction(hits, members),
        "specificity": ScoreInterval.of_fraction(others - (said - hits), others),
    }


def _bootstrap(
    confusion: NDArray[np.int64], draws: int
) -> tuple[list[ScoreInterval | None], ScoreInterval, ScoreInterval]:
    """Return each class's F1 (None: it does not occur), their mean and the balanced accuracy, with bootstrap intervals.

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
    """Return each class's F1 (NaN: it does not occur), their mean, and the mean sensitivity of a confusion matrix."""
    hits, members, said = np.diagonal(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        f1 = 2 * hits / (members + said)
        return f1, float(np.nanmean(f1)), float(np.mean((hits / members)[members > 0]))


def _ends(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the 2.5 % and 97.5 % percentiles over the first axis, without NaN; 0 where all values are NaN."""
    tail = (1 - CONFIDENCE) / 2
    known = np.where(np.isnan(values).all(axis=0), 0.0, values)
    found: NDArray[np.float64] = np.nanquantile(known, (tail, 1 - tail), axis=0)
    return found


def _within(value: float, low: float, high: float) -> ScoreInterval:
    """Return the value with its interval, widened to hold it: bootstrap percentiles of few records may not."""
    return ScoreInterval(float(value), float(min(low, value)), float(max(high, value)))


def _area(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> ScoreInterval | None:
    """Return the area under the ROC curve: the fraction of (positive, other) pairs with scores in the right order."""
    inside, outside = int(positive.sum()), int((~positive).sum())
    if not inside or not outside:
        return None
    _, places, ties = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(ties) - (ties - 1) / 2  # equal scores share the mean of theirs
    area = float((ranks[places][positive].sum() - inside * (inside + 1) / 2) / (inside * outside))
    # The interval: areas no more than z of *their* standard deviations (Hanley & McNeil 1982) from the found one.
    z, mean = NormalDist().inv_cdf((1 + CONFIDENCE) / 2), (inside + outside) / 2 - 1

    def beyond(true: float) -> float:
        spread = true * (1 - true) * (1 + mean * (1 - true) / (2 - true) + mean * true / (1 + true))
        return (area - true) ** 2 - z * z * spread / (inside * outside)

    low = 0.0 if area == 0 else float(brentq(beyond, 0.0, min(area, 1 - NEAR)))
    high = 1.0 if area == 1 else float(brentq(beyond, max(area, NEAR), 1.0))
    return ScoreInterval(area, low, high)


def _mean(measures: Sequence[ScoreInterval | None]) -> ScoreInterval | None:
    """Return the mean of values and of their intervals' ends: wide enough, as a mean spreads no more than its parts."""
    known = [each for each in measures if each is not None]
    if not known:
        return None
    ends = zip(*((each.value, each.low, each.high) for each in known), strict=True)
    return ScoreInterval(*(float(np.mean(each)) for each in ends))


def _bins_of(confidence: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)


def _calibration_error(probabilities: NDArray[np.float64], right: NDArray[np.bool_], draws: int) -> ScoreInterval:
    """Return the expected calibration error: the mean over records of |confidence − fraction right| in their bin."""
    confidence = probabilities.max(axis=1)
    gaps, bins, total = confidence - right, _bins_of(confidence), len(right)
    generator = np.random.default_rng(SEED)

    def error(rows: NDArray[np.int64]) -> float:
        return float(np.abs(np.bincount(bins[rows], weights=gaps[rows])).sum() / total)

    drawn = np.array([error(generator.integers(total, size=total)) for _ in range(draws)])
    return _within(error(np.arange(total)), *_ends(drawn))
