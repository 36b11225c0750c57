"""Confidence intervals of a stated level, for rates, ROC areas and resampled statistics; multiple testing.

All intervals are two-sided: each end alone is wrong with probability level/2. Where no level is asked for it is the
audit's, corrected for how many limits it judges (`Comparisons`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
from scipy import stats

from secagg.errors import BadInput
from threat_models.findings import Measure, Metric
from threat_models.session import Floats

BEYOND = 10
"""Number of replicates that a bootstrap wants outside its interval, both ends together."""
AT_ONCE = 1 << 20
"""Number of resampled entries that a bootstrap has in memory at once."""


@dataclass(frozen=True)
class ConfidenceInterval:
    """A confidence interval: low ≤ value ≤ high, with the name of its method and its level."""

    value: float
    low: float
    high: float
    method: str

    def through(self, grows: Callable[[float], float]) -> ConfidenceInterval:
        """Return the confidence interval of `grows(value)`, for a non-decreasing function `grows`."""
        return ConfidenceInterval(grows(self.value), grows(self.low), grows(self.high), self.method)

    def measure(
        self, metric: Metric, *, of: str = "", baseline: float | None = None, ceiling: float | None = None
    ) -> Measure:
        """Return the interval as a measurement of `metric`, for an attack's finding."""
        return Measure(metric, self.value, self.low, self.high, self.method, baseline, ceiling, of)


def at_level(method: str, level: float) -> str:
    """Name a method with its level, as "Clopper-Pearson, 95 %" for `level` = 0.05. Raises BadInput outside (0, 1)."""
    if not 0 < level < 1:
        raise BadInput(f"an interval cannot be wrong with probability {level}", remedy="give a number between 0 and 1")
    return f"{method}, {100 * (1 - level):.4g} %"


def clopper_pearson(successes: int, trials: int, level: float | None = None) -> ConfidenceInterval:
    """Compute the exact confidence interval of a probability, given `successes` of `trials` (Clopper & Pearson 1934).

    It holds too for independent trials of different probabilities, for their mean (Hoeffding 1956).
    Raises BadInput for fewer than 1 trial or impossible counts.
    """
    if not (0 <= successes <= trials and trials >= 1):
        raise BadInput(f"successes must be between 0 and the trials, 1 or more (got {successes} of {trials})")
    level = current_level() if level is None else level
    method = at_level("Clopper-Pearson", level)
    low = float(stats.beta.ppf(level / 2, successes, trials - successes + 1)) if successes else 0.0
    high = float(stats.beta.isf(level / 2, successes + 1, trials - successes)) if successes < trials else 1.0
    return ConfidenceInterval(successes / trials, low, high, method)


def auc_interval(positive: Floats, negative: Floats, level: float | None = None) -> ConfidenceInterval:
    """Compute the area under the ROC curve of scores (m,) and (n,), with DeLong's interval; ties count half.

    DeLong, DeLong & Clarke-Pearson 1988, by midranks (Sun & Xu 2014). Approximate for small samples. Where the scores
    show no variance (separated, or all tied) it is the exact interval of min(m, n) independent pairs instead.
    Raises BadInput for fewer than 2 scores of either kind.
    """
    level = current_level() if level is None else level
    m, n = len(positive), len(negative)
    if min(m, n) < 2:
        raise BadInput(f"an area needs two scores of either kind (got {m} and {n})")
    ranks = stats.rankdata(np.concatenate([positive, negative]))
    above = (ranks[:m] - stats.rankdata(positive)) / n
    below = 1 - (ranks[m:] - stats.rankdata(negative)) / m
    area = float(above.mean())
    width = math.sqrt(above.var(ddof=1) / m + below.var(ddof=1) / n)
    if width == 0:
        pairs = min(m, n)
        exact = clopper_pearson(round(area * pairs), pairs, level)
        return ConfidenceInterval(area, exact.low, exact.high, f"{exact.method}, of {pairs} pairs")
    reach = float(stats.norm.isf(level / 2)) * width
    return ConfidenceInterval(area, max(0.0, area - reach), min(1.0, area + reach), at_level("DeLong", level))


def bootstrap(
    statistic: Callable[..., Floats],
    samples: Sequence[Floats],
    generator: np.random.Generator,
    *,
    level: float | None = None,
    replicates: int = 2_000,
) -> ConfidenceInterval:
    """Compute the bootstrap interval of a statistic of samples (n, …), each resampled by rows (Efron 1979).

    The percentile interval; the samples are resampled independently. `statistic` gives those (m,) of m samples at once:
    it takes (m, n, …) of each. Approximate. To resample rows that belong together, give them as one array. There are at
    least BEYOND / level replicates, so that each end of the interval rests on several. Raises BadInput for an empty
    sample.
    """
    level = current_level() if level is None else level
    at_level("", level)
    if not samples or min(len(sample) for sample in samples) < 1 or replicates < 1:
        raise BadInput("a bootstrap needs samples with one entry or more, and one replicate or more")
    replicates = max(replicates, math.ceil(BEYOND / level))
    (value,) = statistic(*(sample[None] for sample in samples)).tolist()
    most = max(1, AT_ONCE // max(sample.size for sample in samples))
    drawn = []
    for start in range(0, replicates, most):
        count = min(most, replicates - start)
        places = (generator.integers(len(each), size=(count, len(each))) for each in samples)
        drawn.append(statistic(*(each[rows] for each, rows in zip(samples, places, strict=True))))
    low, high = (float(each) for each in np.quantile(np.concatenate(drawn), [level / 2, 1 - level / 2]))
    method = at_level(f"bootstrap of {replicates}", level)
    return ConfidenceInterval(value, min(low, value), max(high, value), method)


def bonferroni(level: float, tests: int) -> float:
    """Return the level for each of `tests` ≥ 1 intervals with which the chance that any is wrong is ≤ `level`."""
    if tests < 1:
        raise BadInput(f"tests must be 1 or more (got {tests})")
    return level / tests


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return Holm's adjusted p-values, in the order given; rejecting those ≤ α has familywise error α (Holm 1979)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = highest
    return tuple(adjusted)


FAMILY = 0.05
"""The probability, at most, that any of the limits judged in one audit is wrong."""
_LEVEL: ContextVar[float] = ContextVar("level of one interval", default=FAMILY)


@dataclass(frozen=True)
class Comparisons:
    """Bonferroni's correction for the `count` confidence limits that an audit's pass/fail rules may judge.

    `reserved` is the part of `FAMILY` that is left to other limits.

    Among many intervals of 95 % some miss. Bonferroni's correction divides what may go wrong in all among the limits
    that are planned; their number follows from the adversaries and the gate's rules, before anything is measured. It
    needs no assumption on how the attacks depend on each other.
    """

    count: int
    reserved: float = 0.0

    @property
    def level(self) -> float:
        """Probability with which each corrected interval may miss the true value."""
        return (FAMILY - self.reserved) / max(1, self.count)

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Make `level` the default for all intervals that are computed inside the context."""
        token = _LEVEL.set(self.level)
        try:
            yield
        finally:
            _LEVEL.reset(token)

    def sentence(self) -> str:
        """Return the report's sentences on the Bonferroni correction for the number of its confidence limits."""
        if not self.count:
            return "No decision of the gate rests on an attack's confidence limit: nothing was corrected for."
        return (
            f"The gate's decisions rest on up to {self.count} confidence limits, counted from adversaries and rules "
            f"before anything was measured. Each interval is at {100 * (1 - self.level):.4g} %, so that all of them "
            f"hold together with {100 * (1 - FAMILY):g} % (Bonferroni)."
        )


def current_level() -> float:
    """Return the default probability that an interval may miss: `FAMILY`, unless `Comparisons.apply` sets another."""
    return _LEVEL.get()
