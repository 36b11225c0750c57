"""The figures of a membership test: rates at low false positive rates, the area under the ROC curve, and the curve."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from secagg.privacy import PrivacyClaim
from threat_models.estimation.ceilings import auc_ceiling, ceiling, roc_ceiling
from threat_models.estimation.intervals import at_level, auc_interval, bonferroni, clopper_pearson, current_level
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
"""An area whose interval is wider could hide a success."""
FEWEST = 20
"""A class with fewer members, or fewer others, has no figures of its own."""
POINTS_AT = 10
"""Of so many candidates a test that points at members points at one."""
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
    """The metrics of one membership test: `name` ends their ids, `words` their labels."""

    name: str
    words: str

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All that `measure` may measure of this test."""
        return tuple(self.variant(each) for each in (AUC, *TPR.values(), *FPR.values()))

    def variant(self, metric: Metric) -> Metric:
        """The metric as this test measures it."""
        return metric.variant(self.name, self.words)


@dataclass(frozen=True, eq=False)
class Scores:
    """A membership test's score of each candidate, `values` (n,), larger for members; and whether it is one, (n,)."""

    values: Floats
    is_member: Flags

    @property
    def positive(self) -> Floats:
        """The members' scores."""
        return self.values[self.is_member]

    @property
    def negative(self) -> Floats:
        """The others' scores."""
        return self.values[~self.is_member]

    @property
    def is_judged(self) -> bool:
        """Whether there are two of either kind at least."""
        return min(len(self.positive), len(self.negative)) > 1

    def take(self, rows: Flags) -> Scores:
        """The scores of some candidates."""
        return Scores(self.values[rows], self.is_member[rows])

    def supports(self, fpr: float, level: float | None = None) -> bool:
        """Whether there are enough others to bound the threshold of this rate from above."""
        level = current_level() if level is None else level
        return float(stats.binom.ppf(level / 4, len(self.negative), fpr)) >= 1

    def threshold(self, fpr: float) -> float:
        """The score that no more than this share of the others exceeds."""
        return self._largest(int(fpr * len(self.negative) + 1e-9))

    def hits(self, fpr: float) -> int:
        """Count the members above the threshold."""
        return int((self.positive > self.threshold(fpr)).sum())

    def area(self, level: float | None = None) -> Measure:
        """The area under the ROC curve, DeLong's interval."""
        return auc_interval(self.positive, self.negative, level).measure(AUC, baseline=0.5)

    def rate(self, fpr: float, level: float | None = None) -> Measure:
        """The true positive rate at one of the false positive rates RATES.

        Half of the level bounds the threshold that has this rate by order statistics, half the members above it.
        Without enough others the interval is all of [0, 1].
        """
        level = current_level() if level is None else level
        members, others = len(self.positive), len(self.negative)
        metric, value = TPR[fpr], self.hits(fpr) / members
        if not self.supports(fpr, level):
            why = f"not supported by {others} non-members"
            return Measure(metric, value, 0.0, 1.0, why, fpr, has_interval=False)
        fewest, most = (int(stats.binom.ppf(tail, others, fpr)) for tail in (level / 4, 1 - level / 4))
        above = int((self.positive > self._largest(fewest - 1)).sum())
        reached = int((self.positive >= self._largest(most)).sum())
        low = clopper_pearson(above, members, level / 2).low
        high = clopper_pearson(reached, members, level / 2).high
        method = at_level("order statistics and Clopper-Pearson", level)
        return Measure(metric, value, low, high, method, fpr)

    def false_rate(self, fpr: float) -> Measure:
        """The false positive rate of the threshold that `rate` uses."""
        wrong = int((self.negative > self.threshold(fpr)).sum())
        return clopper_pearson(wrong, len(self.negative)).measure(FPR[fpr])

    def _largest(self, rank: int) -> float:
        """The score that `rank` of the others exceed."""
        return float(np.sort(self.negative)[::-1][min(rank, len(self.negative) - 1)])


def pool_scores(parts: Sequence[Scores]) -> Scores:
    """Put the scores of several tests together as if of one."""
    return Scores(np.concatenate([each.values for each in parts]), np.concatenate([each.is_member for each in parts]))


def match_classes(labels: NDArray[np.int64], is_member: Flags) -> Flags:
    """Choose which candidates (n,) to compare: in each class the same proportion of members to others, as many as fit.

    Else a test that knows a record's class alone would tell members by the classes that they have more often.
    """
    found = np.zeros(len(labels), dtype=np.bool_)
    classes = [labels == label for label in np.intersect1d(labels[is_member], labels[~is_member])]
    ratio = sum(int((each & is_member).sum()) for each in classes) / max(
        1, sum(int((each & ~is_member).sum()) for each in classes)
    )
    generator = np.random.default_rng(SEED)
    for each in classes:
        members, others = (generator.permutation(np.flatnonzero(each & flags)) for flags in (is_member, ~is_member))
        found[members[: math.ceil(min(len(members), ratio * len(others)))]] = True
        found[others[: math.ceil(min(len(others), len(members) / ratio))]] = True
    return found


def measure(scores: Scores, figures: Figures, claim: PrivacyClaim | None = None) -> tuple[Measure, ...]:
    """Measure area, true positive rates and the false positive rates behind them, with what a claim allows.

    Beside a claim, the levels are corrected for comparing several numbers with it. Empty unless there are two of
    either kind at least.
    """
    if not scores.is_judged:
        return ()
    level = current_level() if claim is None else bonferroni(current_level(), 1 + len(RATES))
    found = [scores.area(level)]
    for fpr in RATES:
        found += [scores.rate(fpr, level), scores.false_rate(fpr)]
    limits = {}
    if claim is not None:
        limits = {AUC: auc_ceiling(claim), **{TPR[fpr]: ceiling(claim, fpr) for fpr in RATES}}
    return tuple(replace(each, metric=figures.variant(each.metric), ceiling=limits.get(each.metric)) for each in found)


def measure_worst_class(scores: Scores, labels: NDArray[np.int64], names: Sequence[str]) -> tuple[Measure, ...]:
    """Measure the area of the class in which members stand out most, corrected for all classes; or nothing."""
    judged = [
        (scores.take(labels == label), name)
        for label, name in enumerate(names)
        if min((labels[scores.is_member] == label).sum(), (labels[~scores.is_member] == label).sum()) >= FEWEST
    ]
    if not judged:
        return ()
    level = bonferroni(current_level(), len(judged))
    areas = [replace(each.area(level), metric=WORST_CLASS, of=name) for each, name in judged]
    return (max(areas, key=lambda found: found.value),)


def measure_pointed(scores: Scores, metric: Metric) -> tuple[Measure, ...]:
    """Measure the share of members in the tenth of candidates with the highest scores; nothing with too few of them."""
    count = len(scores.values) // POINTS_AT
    if not count:
        return ()
    hits = scores.is_member[np.argsort(scores.values, kind="stable")[-count:]]
    return (clopper_pearson(int(hits.sum()), count).measure(metric, baseline=float(scores.is_member.mean())),)


def succeeds(scores: Scores) -> bool:
    """Whether a test tells members by more than chance and its interval, by a margin that matters."""
    if not scores.is_judged:
        return False
    low = RATES[0]
    told_apart = scores.supports(low) and scores.rate(low).low > NOTABLE_FACTOR * low
    return told_apart or scores.area().low > NOTABLE_AREA


def describe(scores: Scores) -> str:
    """Describe how well a test separates members from others, as part of a sentence."""
    if not scores.is_judged:
        return "not told from others at all, as there are too few of either to say anything"
    area = scores.area()
    words = f"told from others with an area under the curve of {area.value:.3f} ({area.low:.3f} to {area.high:.3f})"
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
    """Whether the test separates the members of the worst class by the margin of a success, beyond the interval."""
    return any(each.low > NOTABLE_AREA for each in worst)


def describe_class(worst: Sequence[Measure]) -> str:
    """Describe the worst class in a sentence; empty where its members do not stand out."""
    return f" The {worst[0].label}, is {worst[0].value:.3f}." if tells_class(worst) else ""


def crosses(found: Iterable[Measure]) -> bool:
    """Whether a measure lies above what the claim allows, beyond its interval."""
    return any(each.ceiling is not None and each.low > each.ceiling for each in found)


def withstands(scores: Scores) -> bool:
    """Whether a test surely fails: the upper limits of what would be a success, area and rate, are below its bars.

    Where all of the area's interval lies below one half, the records are not those that they were given for; where it
    is wide, the sample says little of either. Of single classes this says nothing.
    """
    if not scores.is_judged:
        return False
    area, low = scores.area(), RATES[0]
    is_known = area.high - area.low <= WIDEST and area.high >= CHANCE
    return is_known and area.high <= NOTABLE_AREA and scores.rate(low).high <= NOTABLE_FACTOR * low


def roc(title: str, lines: Mapping[str, Scores], claim: PrivacyClaim | None = None) -> Curve:
    """True over false positive rates, both logarithmic, with the claim's ceiling and the line of chance."""
    series = [_line(name, scores) for name, scores in lines.items() if scores.is_judged]
    series.append(Series("chance", (1e-4, 1.0), (1e-4, 1.0)))
    if claim is not None:
        series.append(roc_ceiling(claim))
    return Curve(title, "false positive rate", "true positive rate", tuple(series), logarithmic=True)


def _line(name: str, scores: Scores) -> Series:
    """One ROC curve, with Clopper-Pearson limits at each point; points without a true positive have no logarithm."""
    count = len(scores.negative)
    allowed = np.unique(np.geomspace(1, count, POINTS).astype(int))
    rates = [each / count for each in allowed]
    found = [clopper_pearson(scores.hits(rate), len(scores.positive)) for rate in rates]
    kept = [(rate, each) for rate, each in zip(rates, found, strict=True) if each.value > 0]
    return Series(
        name,
        tuple(rate for rate, _ in kept),
        tuple(each.value for _, each in kept),
        tuple(each.low for _, each in kept),
        tuple(each.high for _, each in kept),
    )
