"""Metrics of a membership test: true positive rates at low false positive rates, and the ROC curve with its area."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from secagg.privacy import Claim
from threat_models.estimation import intervals
from threat_models.estimation.ceilings import auc_ceiling, ceiling, roc_ceiling
from threat_models.findings import SHARE, Curve, Measure, Metric, Series
from threat_models.session import Floats

Flags = NDArray[np.bool_]

SEED = 19_880_901
NAMES = {0.01: "1e-2", 0.001: "1e-3"}
RATES = tuple(NAMES)
"""False positive rates at which true positives are counted (Carlini et al. 2022)."""
NOTABLE_AREA = 0.6
NOTABLE_FACTOR = 5
"""An attack succeeds when the area's lower limit is above 0.6, or the true positive rate's above five times the false
positive rate: ε = 1 and ε = 2 allow 0.575 and 2.0 %, 0.639 and 3.4 % at a false positive rate of 1 %. It fails when
both upper limits lie below; that takes some 700 members and others."""
CHANCE = 0.5
WIDEST = 0.2
"""Widest interval of an area by which a test can fail: a wider one could hide a success."""
FEWEST = 20
"""Least number of members, and of others, for which a class is measured by itself."""
POINTS_AT = 10
"""One in so many candidates, those with the highest scores, is pointed out as a member."""
POINTS = 200

AUC = Metric("auc", "AUC", good="0.5, chance; a success above 0.6", leads=True)
WORST_CLASS = Metric(
    "auc.worst_class", "AUC of the worst class", good="0.5, chance; a success above 0.6", each="worst class"
)
TPR, FPR = (
    {rate: Metric(f"{kind}_at_{name}", words.format(f"{100 * rate:g} %"), SHARE, good) for rate, name in NAMES.items()}
    for kind, words, good in (("tpr", "TPR at {} FPR", "{baseline}, chance"), ("fpr", "FPR at the threshold of {}", ""))
)


@dataclass(frozen=True)
class Figures:
    """Names for the metrics of one membership test: `name` ends the metrics' ids, `words` ends their labels."""

    name: str
    words: str

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All metrics that `measure` may return for this membership test."""
        return tuple(self.variant(each) for each in (AUC, *TPR.values(), *FPR.values()))

    def variant(self, metric: Metric) -> Metric:
        """Return the metric for this membership test: `name` is added to its id, and `words` to its label."""
        return metric.variant(self.name, self.words)


@dataclass(frozen=True, eq=False)
class Scores:
    """A membership test's scores of candidates, `values` (n,), larger for members, and the truth, `is_member` (n,)."""

    values: Floats
    is_member: Flags

    @property
    def positive(self) -> Floats:
        """The members' scores."""
        return self.values[self.is_member]

    @property
    def negative(self) -> Floats:
        """The scores of the candidates that are not members."""
        return self.values[~self.is_member]

    @property
    def is_judged(self) -> bool:
        """Whether the test can be judged: it scored at least two members and two non-members."""
        return min(len(self.positive), len(self.negative)) > 1

    def take(self, rows: Flags) -> Scores:
        """Return the scores of the candidates that `rows` flags."""
        return Scores(self.values[rows], self.is_member[rows])

    def supports(self, fpr: float, level: float | None = None) -> bool:
        """Return whether there are enough non-members to judge the test at this false positive rate."""
        level = intervals.current_level() if level is None else level
        return float(stats.binom.ppf(level / 4, len(self.negative), fpr)) >= 1

    def threshold(self, fpr: float) -> float:
        """Return the threshold for a false positive rate: the score that at most this share of non-members exceeds."""
        return self._largest(int(fpr * len(self.negative) + 1e-9))

    def hits(self, fpr: float) -> int:
        """Count the members above the threshold of this false positive rate."""
        return int((self.positive > self.threshold(fpr)).sum())

    def area(self, level: float | None = None) -> Measure:
        """Measure the area under the ROC curve, with DeLong's interval."""
        return intervals.auc_interval(self.positive, self.negative, level).measure(AUC, baseline=0.5)

    def rate(self, fpr: float, level: float | None = None) -> Measure:
        """Measure the true positive rate at `fpr`, which is one of the false positive rates `RATES`.

        Half of the level bounds the threshold that has this rate by order statistics, half the members above it.
        Without enough others the interval is all of [0, 1].
        """
        level = intervals.current_level() if level is None else level
        members, others = len(self.positive), len(self.negative)
        metric, value = TPR[fpr], self.hits(fpr) / members
        if not self.supports(fpr, level):
            why = f"not supported by {others} non-members"
            return Measure(metric, value, 0.0, 1.0, why, fpr, has_interval=False)
        fewest, most = (int(stats.binom.ppf(tail, others, fpr)) for tail in (level / 4, 1 - level / 4))
        above = int((self.positive > self._largest(fewest - 1)).sum())
        reached = int((self.positive >= self._largest(most)).sum())
        low = intervals.clopper_pearson(above, members, level / 2).low
        high = intervals.clopper_pearson(reached, members, level / 2).high
        method = intervals.at_level("order statistics and Clopper-Pearson", level)
        return Measure(metric, value, low, high, method, fpr)

    def false_rate(self, fpr: float) -> Measure:
        """Measure the actual false positive rate at the threshold that `rate` uses for the nominal rate `fpr`."""
        wrong = int((self.negative > self.threshold(fpr)).sum())
        return intervals.clopper_pearson(wrong, len(self.negative)).measure(FPR[fpr])

    def _largest(self, rank: int) -> float:
        """Return the non-members' score at place `rank` from the highest (place 0), or their lowest score."""
        return float(np.sort(self.negative)[::-1][min(rank, len(self.negative) - 1)])


def pool_scores(parts: Sequence[Scores]) -> Scores:
    """Join the scores and true memberships of several tests into one."""
    return Scores(np.concatenate([each.values for each in parts]), np.concatenate([each.is_member for each in parts]))


def match_classes(labels: NDArray[np.int64], is_member: Flags) -> Flags:
    """Choose as many candidates (n,) as possible, with the same proportion of members in every class.

    Else a test that knows a record's class alone would tell members by the classes that they have more often.
    """
    found = np.zeros(len(labels), dtype=np.bool_)
    classes = [labels == label for label in np.intersect1d(labels[is_member], labels[~is_member])]
    total, outside = (sum(int((each & flags).sum()) for each in classes) for flags in (is_member, ~is_member))
    ratio = total / max(1, outside)
    generator = np.random.default_rng(SEED)
    for each in classes:
        members, others = (generator.permutation(np.flatnonzero(each & flags)) for flags in (is_member, ~is_member))
        found[members[: math.ceil(min(len(members), ratio * len(others)))]] = True
        found[others[: math.ceil(min(len(others), len(members) / ratio))]] = True
    return found


def measure(scores: Scores, figures: Figures, claim: Claim | None = None) -> tuple[Measure, ...]:
    """Measure a test's ROC area, true and false positive rates, with the upper bounds that a privacy claim implies.

    Beside a claim, the levels are corrected for comparing several numbers with it. Empty unless there are two of
    either kind at least.
    """
    if not scores.is_judged:
        return ()
    level = (
        intervals.current_level() if claim is None else intervals.bonferroni(intervals.current_level(), 1 + len(RATES))
    )
    found = [scores.area(level)]
    for fpr in RATES:
        found += [scores.rate(fpr, level), scores.false_rate(fpr)]
    limits = {} if claim is None else {AUC: auc_ceiling(claim)} | {TPR[fpr]: ceiling(claim, fpr) for fpr in RATES}
    return tuple(replace(each, metric=figures.variant(each.metric), ceiling=limits.get(each.metric)) for each in found)


def measure_worst_class(scores: Scores, labels: NDArray[np.int64], names: Sequence[str]) -> tuple[Measure, ...]:
    """Measure the largest ROC area of any class, corrected for the number of classes; empty if all are too small."""
    classes = [(scores.take(labels == label), name) for label, name in enumerate(names)]
    judged = [(each, name) for each, name in classes if min(len(each.positive), len(each.negative)) >= FEWEST]
    if not judged:
        return ()
    level = intervals.bonferroni(intervals.current_level(), len(judged))
    areas = [replace(each.area(level), metric=WORST_CLASS, of=name) for each, name in judged]
    return (max(areas, key=lambda found: found.value),)


def metric_pointed(name: str, what: str) -> Metric:
    """Make a metric for `measure_pointed`: its id ends in `name`; `what`, as "slot sums point", is in its label."""
    good = "{baseline}, the members' share of the candidates"
    return Metric(f"reidentified.{name}", f"members' among the records that {what} at", SHARE, good)


def measure_pointed(scores: Scores, metric: Metric) -> tuple[Measure, ...]:
    """Measure the proportion of members in the top tenth of candidates by score; empty for fewer than 10 candidates."""
    count = len(scores.values) // POINTS_AT
    if not count:
        return ()
    hits = scores.is_member[np.argsort(scores.values, kind="stable")[-count:]]
    return (intervals.clopper_pearson(int(hits.sum()), count).measure(metric, baseline=float(scores.is_member.mean())),)


def succeeds(scores: Scores) -> bool:
    """Return whether a test separates members from others, with confidence and by a margin that matters.

    In ROC area, or in the true positive rate at the first of `RATES`.
    """
    if not scores.is_judged:
        return False
    low = RATES[0]
    told_apart = scores.supports(low) and scores.rate(low).low > NOTABLE_FACTOR * low
    return told_apart or scores.area().low > NOTABLE_AREA


def describe(scores: Scores) -> str:
    """Return part of a sentence on how well a test separates members from others."""
    if not scores.is_judged:
        return "not told from others at all, as there are too few of either to say anything"
    area = scores.area()
    span = f"{area.low:.3f} to {area.high:.3f}, {intervals.at_level('interval', intervals.current_level())}"
    words = f"told from others with an area under the curve of {area.value:.3f} ({span})"
    if area.high < CHANCE:
        return f"{words}: worse than chance (0.5). Were those called members in the sum, and the others of their kind?"
    if succeeds(scores):
        return f"{words}; 0.5 is chance"
    if area.high > NOTABLE_AREA:
        chance = "better than chance (0.5), but not surely" if area.low > CHANCE else "perhaps by chance (0.5), perhaps"
        return f"{words}: {chance} by the {NOTABLE_AREA} that this audit calls success"
    rate = scores.rate(RATES[0])
    less = f"{words}: less than the {NOTABLE_AREA} that this audit calls success"
    if not scores.supports(RATES[0]):
        others = len(scores.negative)
        return f"{less}, but how many are told at {RATES[0]:.0%} false positives {others} others are too few to say"
    if rate.high > NOTABLE_FACTOR * RATES[0]:
        return f"{less}, but that {rate.high:.0%} are told at {RATES[0]:.0%} false positives is not ruled out"
    return f"{less}; 0.5 is chance"


def tells_class(worst: Iterable[Measure]) -> bool:
    """Return whether the test succeeds, with confidence, on the class with the largest ROC area, given in `worst`."""
    return any(each.low > NOTABLE_AREA for each in worst)


def describe_class(worst: Sequence[Measure]) -> str:
    """Return a sentence on the class with the largest ROC area; empty if the test does not surely succeed on it."""
    return f" The {worst[0].label}, is {worst[0].value:.3f}." if tells_class(worst) else ""


def crosses(found: Iterable[Measure]) -> bool:
    """Return whether any measure exceeds, with confidence, its ceiling, the most that the privacy claim allows."""
    return any(each.ceiling is not None and each.low > each.ceiling for each in found)


def withstands(scores: Scores) -> bool:
    """Return whether a test fails with confidence: even its upper confidence limits are below a success's thresholds.

    Where all of the area's interval lies below one half, the records are not those that they were given for; where it
    is wide, the sample says little of either. Of single classes this says nothing.
    """
    if not scores.is_judged:
        return False
    area, low = scores.area(), RATES[0]
    is_known = area.high - area.low <= WIDEST and area.high >= CHANCE
    return is_known and area.high <= NOTABLE_AREA and scores.rate(low).high <= NOTABLE_FACTOR * low


def roc(title: str, lines: Mapping[str, Scores], claim: Claim | None = None) -> Curve:
    """Return the ROC curves of tests, on logarithmic axes, with the line of chance and the privacy claim's ceiling.

    Each line has Clopper-Pearson limits at its points.
    """
    series = []
    for name, scores in lines.items():
        if scores.is_judged:
            count = len(scores.negative)
            rates = [each / count for each in np.unique(np.geomspace(1, count, POINTS).astype(int))]
            found = {rate: intervals.clopper_pearson(scores.hits(rate), len(scores.positive)) for rate in rates}
            # points without a true positive have no logarithm
            series.append(series_of(name, {rate: each for rate, each in found.items() if each.value > 0}))
    series.append(Series("chance", (1e-4, 1.0), (1e-4, 1.0)))
    if claim is not None:
        series.append(roc_ceiling(claim))
    return Curve(title, "false positive rate", "true positive rate", tuple(series), logarithmic=True)


def series_of(name: str, found: Mapping[float, intervals.ConfidenceInterval | Measure]) -> Series:
    """Return a line to plot, with confidence limits; `found` maps each x to a value with its interval."""
    values, low, high = (tuple(getattr(each, at) for each in found.values()) for at in ("value", "low", "high"))
    return Series(name, tuple(found), values, low, high)
