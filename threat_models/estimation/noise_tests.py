"""Tests of whether noise is as planned, and fresh each time, with one false-alarm rate for all of them.

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
from scipy.special import chdtr, chdtrc, fdtrc

from threat_models.session import Floats

LEVEL = 1e-4
"""Planned noise is found at fault with this probability at most, over all tests of one audit."""
POWER = 0.95
COMPARED = 20_000
"""Number of entries of a share, from its first, that are compared with those of other shares."""
LEAST_COMPARED = 4
"""Least number of entries of a share that is compared with others."""


@dataclass(frozen=True)
class Variance:
    """Mean square of `entries` standardised noise values, 1 if the noise is as planned; `name` says where they lie."""

    name: str
    mean_square: float
    entries: int

    @property
    def chance(self) -> float:
        """The p-value: the probability that planned noise gives a mean square at least as far from 1."""
        total = self.mean_square * self.entries
        return float(min(1.0, 2 * min(chdtr(self.entries, total), chdtrc(self.entries, total))))

    def detectable(self, level: float) -> float:
        """Return the least shortfall of σ, as a fraction, found with probability 95 % at `level`; 1 if none is."""
        least = stats.chi2.ppf(level / 2, self.entries)
        return float(1 - math.sqrt(least / stats.chi2.ppf(POWER, self.entries)))


@dataclass(frozen=True, eq=False)
class Share:
    """One party's noise share in one sum: its entries (n,), in units of the plan's σ and in the sum's order."""

    name: str
    scaled: Floats = field(repr=False)

    @property
    def variance(self) -> Variance:
        """The mean square of all entries of this noise share."""
        return Variance(self.name, float(np.mean(self.scaled**2)), len(self.scaled))


@dataclass(frozen=True)
class SharesTested:
    """Results of the noise tests: variance in each part of the sum, number of tests, a sentence on each deviation."""

    places: tuple[Variance, ...]
    tests: int
    flaws: tuple[str, ...]

    @property
    def level(self) -> float:
        """Significance level of each single test, after Bonferroni's correction."""
        return LEVEL / max(1, self.tests)

    @property
    def power(self) -> str:
        """A text that names the smallest shortfall of σ that the tests find in each part of the sum."""
        words = [f"{place.name} {100 * place.detectable(self.level):.2g} %" for place in self.places]
        return f"Noise too small by so much would have been found with probability 95 %: {', '.join(words)}."


def examine_shares(places: Sequence[Variance], shares: Sequence[Share], steps: Sequence[Variance] = ()) -> SharesTested:
    """Test noise variances by part of the sum and by noise share, and shares' correlations, Bonferroni-corrected.

    `steps` are variances of single steps of members' training, which are tested too.
    """
    found = [(each.chance, _in_words(each)) for each in (*places, *steps)]
    found += [(each.variance.chance, _in_words(each.variance)) for each in shares]
    found += list(_correlations(shares))
    level = LEVEL / max(1, len(found))
    flaws = tuple(words for chance, words in found if chance < level)
    return SharesTested(tuple(places), len(found), flaws)


def _in_words(found: Variance) -> str:
    return f"The noise on {found.name} has {found.mean_square:.3g} of the planned variance ({found.entries} entries)."


def _correlations(shares: Sequence[Share]) -> Iterator[tuple[float, str]]:
    """Yield, for every two shares, the chance that independent ones correlate so much on the entries both have."""
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
            rest = 1 - cosine * cosine
            chance = 0.0 if rest <= 0 else float(fdtrc(1, one - 1, cosine * cosine * (one - 1) / rest))
            pair = f"{first[row].name} and {second[column].name}"
            same = "are the same" if math.isclose(abs(cosine), 1.0, rel_tol=1e-6) else f"correlate ({cosine:.3g})"
            yield chance, f"The noise shares on {pair} {same}."


def chance_of_multiples(sigma: float, multiplier: int, entries: int) -> float:
    """Compute the chance that `entries` Gaussian integers are all multiples of `multiplier` (Poisson summation)."""
    waves = 2 * sum(math.exp(-2 * (math.pi * sigma * wave / multiplier) ** 2) for wave in range(1, 4 * multiplier + 1))
    return float(min(1.0, (1 + waves) / multiplier) ** entries)
