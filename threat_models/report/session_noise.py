"""The noise that an audited session itself holds, as a report states it."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_VARIANCE = 0.8**2
"""The least variance, over the planned one, of noise that counts as enough: σ is at most 20 % too small."""


@dataclass(frozen=True)
class SessionNoise:
    """The variance of the noise that the audited session itself holds, in units of the planned variance.

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
        """Whether anything was measured."""
        return self.entries > 0

    @property
    def headline(self) -> str:
        """The report's first sentence on it; "" where there is enough."""
        short = "There is less noise in the sum than planned."
        return short if self.is_short else "" if self.is_enough else "The noise of this session is not known."

    @property
    def is_short(self) -> bool:
        """Whether the measure shows less noise than planned."""
        return self.high < 1

    @property
    def is_enough(self) -> bool:
        """Whether noise is excluded that is 20 % too small in σ.

        Not where more is in the sum than noise as planned: what else is there may hide that noise is missing.
        """
        return LEAST_VARIANCE <= self.low <= 1
