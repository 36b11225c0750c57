"""Estimate a sum's noise variance, relative to the planned one, from entries that hold nothing but noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LEAST_VARIANCE = 0.8**2
"""The least variance, over the planned one, of noise that counts as enough: σ is at most 20 % too small."""


@dataclass(frozen=True)
class SessionNoise:
    """Measured variance of the noise in an audited session, in units of the planned variance.

    `low` and `high` are its limits, each one-sided at a level of its own. `ratio` is nan, `low` 0, `high` inf and
    `entries` 0 where the noise is not known. `source` says from what it was measured, `sentence` what was found.
    """

    ratio: float
    low: float
    high: float
    entries: int
    source: str
    sentence: str

    @property
    def is_known(self) -> bool:
        """True if any noise was measured."""
        return self.entries > 0

    @property
    def headline(self) -> str:
        """The report's sentence about the session's noise; empty if the noise is enough."""
        short = "There is less noise in the sum than planned."
        return short if self.is_short else "" if self.is_enough else "The noise of this session is not known."

    @property
    def is_short(self) -> bool:
        """True if the upper limit of the measured variance is below the planned variance."""
        return self.high < 1

    @property
    def is_enough(self) -> bool:
        """True if the measurement excludes noise whose σ is 20 % too small.

        Not where more is in the sum than noise as planned: what else is there may hide that noise is missing.
        """
        return LEAST_VARIANCE <= self.low <= 1


SHORT_LEVEL = 0.005
"""Planned noise is reported as too small with this probability at most, over all parts of all sessions of an audit.

Of 74 zero sums (64 features, ten classes) σ × 0.7 is then found in 93 of 100 sessions, at 0.001 in 80."""
WHOLE_SHARE = 0.8
"""The share of `SHORT_LEVEL` for the test of all entries together; the rest is divided among the single parts."""
ENOUGH_LEVEL = 0.001
"""The lower limit exceeds the true variance with this probability at most, in each session."""
UNBOUND = "The noise of this session is not known well enough: "


@dataclass(frozen=True, eq=False)
class NoisePart:
    """Entries (n,) of a sum, scaled so that they are N(0, 1) if the noise is as planned; `name` says where they lie.

    `remainder` bounds the L2 norm of what is in them beside the noise. It can only lengthen them on average, so that
    it matters for the lower limit alone.
    """

    name: str
    values: NDArray[np.float64] = field(repr=False)
    remainder: float = 0.0

    def high(self, level: float) -> float:
        """Compute an upper confidence limit of the variance: the true one exceeds it with probability `level` at most.

        Σ of n squares of N(m, v) is v times a noncentral χ²(n), which is below a bound less often than χ²(n) is.
        """
        return float(np.sum(self.values**2) / stats.chi2.isf(1 - level, len(self.values)))


def measure_variance(parts: Sequence[NoisePart], source: str, caveat: str, sessions: int = 1) -> SessionNoise:
    """Measure the variance of the noise on all parts together, and find parts with less noise than planned.

    A part of its own shows noise that was left out of one block, or of one sum, alone. `sessions` share `SHORT_LEVEL`.
    """
    values = np.concatenate([part.values for part in parts])
    whole = NoisePart("all its entries", values, math.hypot(*(part.remainder for part in parts)))
    level = SHORT_LEVEL / sessions
    alone = (1 - WHOLE_SHARE) * level / len(parts)
    highs = {whole: whole.high(WHOLE_SHARE * level), **{part: part.high(alone) for part in parts}}
    part = min(highs, key=highs.__getitem__)
    least = whole if highs[whole] <= 2 * highs[part] else part
    if highs[least] < 1:
        ratio, entries = float(np.mean(least.values**2)), len(least.values)
        found = f"{figures(ratio, 0.0, highs[least])} in {least.name} ({entries} entries)"
        sentence = f"There is less noise in the sum than planned: its variance is {found}, {source}."
        return SessionNoise(ratio, 0.0, highs[least], entries, source, sentence)
    ratio = float(np.mean(values**2))
    rest = max(0.0, float(np.linalg.norm(values)) - whole.remainder)
    low = min(ratio, rest**2 / float(stats.chi2.isf(ENOUGH_LEVEL, len(values))))
    found = f"variance is {figures(ratio, low, highs[whole])} ({len(values)} entries), {source}. {caveat}"
    good = f"Where it shows, this session's noise is as large as planned: its {found}"
    noise = SessionNoise(ratio, low, highs[whole], len(values), source, good)
    more = "more is in the sum than planned, which may hide that noise is missing: " if low > 1 else ""
    return noise if noise.is_enough else replace(noise, sentence=f"{UNBOUND}{more}its {found}")


def figures(ratio: float, low: float, high: float) -> str:
    """Format a variance, as a multiple of the planned one, with its lower and upper limit."""
    return f"{ratio:.3g} × planned ({low:.3g} to {high:.3g})"
