"""Whether noise is what the plan says, and new each time: tests with one false-alarm rate in all.

The noise that parties really drew is gathered by `threat_models.evidence.simulation`.
Shares are in units of the plan's σ, so that the entries of a share as planned are N(0, 1) up to the grid, independent
of each other and of every other share. Tested are: the variance on each place of a sum (a block; of a triangle its
diagonal and the rest), of all parties together, by χ², too little and too much; the variance of each share, of all its
places together; and the correlation of every two shares, of two parties or of two sums. x·y/(|x||y|) of n independent
normal entries has the distribution of r with r²(n − 1)/(1 − r²) ~ F(1, n − 1): exact for any n.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

import numpy as np
from scipy import stats

from threat_models.session import Floats

LEVEL = 1e-4
"""Noise that is as planned is found at fault with this probability at most, all tests of one audit together."""
POWER = 0.95
COMPARED = 20_000
"""Entries of a share, from its first, that are compared with those of others."""
LEAST_COMPARED = 4
"""Two shares of fewer entries are not compared."""


@dataclass(frozen=True)
class Variance:
    """Mean square of `entries` ≥ 0 standardised entries of noise, 1 as planned; `name` says on what they lie."""

    name: str
    mean_square: float
    entries: int

    @property
    def chance(self) -> float:
        """The probability that noise as planned varies so much less, or so much more, or further."""
        total = self.mean_square * self.entries
        return float(min(1.0, 2 * min(stats.chi2.cdf(total, self.entries), stats.chi2.sf(total, self.entries))))

    def detectable(self, level: float) -> float:
        """The fraction by which σ can be too small and be found with probability 95 % at this level; 1: only none."""
        least = stats.chi2.ppf(level / 2, self.entries)
        return float(1 - math.sqrt(least / stats.chi2.ppf(POWER, self.entries)))


@dataclass(frozen=True, eq=False)
class Share:
    """The noise that one party added to one sum: `scaled` (n,) in units of the plan's σ, in the sum's order."""

    name: str
    scaled: Floats = field(repr=False)

    @property
    def variance(self) -> Variance:
        """Of all its entries."""
        return Variance(self.name, float(np.mean(self.scaled**2)), len(self.scaled))


@dataclass(frozen=True)
class SharesTested:
    """Results of the tests: variance by place, how many tests there were, and what is not as planned, in words."""

    places: tuple[Variance, ...]
    tests: int
    flaws: tuple[str, ...]

    @property
    def level(self) -> float:
        """Of one test."""
        return LEVEL / max(1, self.tests)

    @property
    def power(self) -> str:
        """The smallest fault that the tests find, for each place."""
        words = [f"{place.name} {100 * place.detectable(self.level):.2g} %" for place in self.places]
        return f"Noise too small by so much would have been found with probability 95 %: {', '.join(words)}."


def examine_shares(places: Sequence[Variance], shares: Sequence[Share]) -> SharesTested:
    """Test variances by place, those of single shares, and every pair of shares. Bonferroni over all of them."""
    found = [(each.chance, _in_words(each)) for each in places]
    found += [(each.variance.chance, _in_words(each.variance)) for each in shares]
    found += list(_correlations(shares))
    level = LEVEL / max(1, len(found))
    flaws = tuple(words for chance, words in found if chance < level)
    return SharesTested(tuple(places), len(found), flaws)


def _in_words(found: Variance) -> str:
    return f"The noise on {found.name} has {found.mean_square:.3g} of the planned variance ({found.entries} entries)."


def _correlations(shares: Sequence[Share]) -> Iterator[tuple[float, str]]:
    """The chance of what every two shares have in common, over the entries that both have."""
    compared = [share for share in shares if len(share.scaled) >= LEAST_COMPARED]
    sizes = sorted({min(len(share.scaled), COMPARED) for share in compared})
    for one, other in combinations_with_replacement(sizes, 2):
        first, second = ([s for s in compared if min(len(s.scaled), COMPARED) == size] for size in (one, other))
        left, right = (
            np.array([share.scaled[:one] / (np.linalg.norm(share.scaled[:one]) or 1.0) for share in part])
            for part in (first, second)
        )
        cosines = np.clip(left @ right.T, -1.0, 1.0)
        for row, column in np.argwhere(np.triu(np.ones(cosines.shape), 1) if one == other else np.ones(cosines.shape)):
            cosine = float(cosines[row, column])
            pair = f"{first[row].name} and {second[column].name}"
            same = "are the same" if math.isclose(abs(cosine), 1.0, rel_tol=1e-6) else f"correlate ({cosine:.3g})"
            yield _chance_of(cosine, one), f"The noise shares on {pair} {same}."


def _chance_of(cosine: float, entries: int) -> float:
    """The probability that two independent shares have a cosine so far from 0."""
    rest = 1 - cosine * cosine
    return 0.0 if rest <= 0 else float(stats.f.sf(cosine * cosine * (entries - 1) / rest, 1, entries - 1))


def chance_of_multiples(sigma: float, multiplier: int, entries: int) -> float:
    """The probability that Gaussian noise of σ leaves so many integers multiples of a number (Poisson summation)."""
    waves = 2 * sum(math.exp(-2 * (math.pi * sigma * wave / multiplier) ** 2) for wave in range(1, 4 * multiplier + 1))
    return float(min(1.0, (1 + waves) / multiplier) ** entries)
