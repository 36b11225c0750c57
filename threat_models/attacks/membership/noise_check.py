"""Check that a sum holds the planned noise, by its records if all are known, else by invariants of exact sums.

Noise that is missing from one block drowns among the entries of the others: each block is tested by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from secagg.encoding import Grid, Normalisation, full_matrix
from threat_models.attacks.gaussian_likelihood import Noise, standardise
from threat_models.estimation.intervals import at_level, bonferroni
from threat_models.findings import Measure, Metric
from threat_models.session import Blocks, Floats

NOISE = Metric("noise_variance", "noise variance over the plan's", good="1, as planned")
LEVEL = 3e-4
"""Largest probability with which noise as planned is called too small, for all blocks together."""
UNEXPLAINED = 6.0
"""Standard deviations by which a residual's mean square may exceed the noise's where all records are known."""
UNCOUNTED = 4.0
"""Standard deviations by which the noisy number of records may differ from the known one where all are known."""
LEAST_RATIO = 1e-6
"""Least ratio of measured to planned noise variance that is used."""
LEAST_BITS = 30
"""Least number of parities that are compared: so many agree by chance with a probability below 10⁻⁹."""


@dataclass(frozen=True)
class NoiseCheck:
    """Ratios of measured to planned noise variance, by name, of the blocks (named arrays) that could be tested.

    `is_complete`: in all of them, since all that was summed is known.
    """

    blocks: Mapping[str, Measure]
    is_complete: bool

    @property
    def worst(self) -> Measure | None:
        """The noise ratio with the lowest upper limit of all blocks (named arrays); None where none could be tested."""
        return min(self.blocks.values(), key=lambda found: found.high, default=None)

    @property
    def short(self) -> tuple[str, ...]:
        """Names of the blocks (named arrays) that hold less noise than planned, with confidence."""
        return tuple(name for name, found in self.blocks.items() if found.high < 1)

    def reduce(self, planned: Noise) -> Noise:
        """Return the planned noise, reduced to the measured one in blocks (named arrays) that surely hold less."""
        less = {name: math.sqrt(max(self.blocks[name].value, LEAST_RATIO)) for name in self.short}
        return {name: replace(each, sigma=each.sigma * less.get(name, 1.0)) for name, each in planned.items()}


def check_noise(release: Blocks, known: Blocks, noise: Noise, grid: Grid) -> NoiseCheck:
    """Compare the noise in a released sum with the planned noise; `known` is the exact sum of the known records.

    Where these are not all, by what holds in every exact sum, whatever its records.
    """
    scaled = standardise({name: release[name] - known[name] for name in known}, noise)
    if "second_moment" in release and parities_agree(release):
        method = at_level("parities of the diagonal", 2.0 ** -len(release["class_sums"][0]))
        measure = Measure(NOISE, 0.0, 0.0, 0.0, method, baseline=1.0)
        without = {"class_sums": measure, "second_moment": measure}
    else:
        without = _measure_variances(_zero_residuals(release, noise, grid), noise)
    blind = NoiseCheck(without, is_complete=False)
    if not is_explained(scaled):
        return blind
    complete = NoiseCheck(_measure_variances(scaled, noise), is_complete=True)
    return complete if complete.short or not blind.short else blind


def is_explained(scaled: Mapping[str, Floats]) -> bool:
    """Return whether a standardised residual is planned noise alone, so that all records in the sum are known.

    Not where no records are counted: a few more or less would hardly show.
    """
    if "counts" not in scaled or abs(float(scaled["counts"].sum())) > UNCOUNTED * math.sqrt(len(scaled["counts"])):
        return False
    return all(np.mean(each**2) <= 1 + UNEXPLAINED * math.sqrt(2 / len(each)) for each in scaled.values())


def _measure_variances(scaled: Mapping[str, Floats], noise: Noise) -> dict[str, Measure]:
    """Measure the variance of entries that are N(0, 1) under the planned noise; all intervals together hold at `LEVEL`.

    Noise is rounded to integers: before that no entry was larger by more than ½.
    """
    level = bonferroni(LEVEL, max(1, len(scaled)))
    found = {}
    for name, entries in scaled.items():
        squares = float(np.sum(entries**2))
        most = float(np.sum((np.abs(entries) + 0.5 / noise[name].sigma) ** 2))
        low = squares / float(stats.chi2.isf(level / 2, len(entries)))
        high = most / float(stats.chi2.isf(1 - level / 2, len(entries)))
        found[name] = Measure(NOISE, squares / len(entries), low, high, at_level("chi-square", level), baseline=1.0)
    return found


def _zero_residuals(release: Blocks, noise: Noise, grid: Grid) -> dict[str, Floats]:
    """Compute sums that are 0 without noise, up to rounding, over their σ under the planned noise: N(0, 1), or larger.

    Records less their own mean have entries that sum to 0: so do the rows of A, with d·σ_A², and of B, whose sums have
    the covariance σ_B²/2·(d·I + 1·1ᵀ). Other records are bound by nothing.
    """
    if grid.normalisation is not Normalisation.CENTRED_UNIT or "class_sums" not in release:
        return {}
    sums = np.asarray(release["class_sums"], dtype=np.float64)
    dimension = sums.shape[1]
    found: dict[str, Floats] = {"class_sums": sums.sum(axis=1) / (noise["class_sums"].sigma * math.sqrt(dimension))}
    if "second_moment" in release:
        rows = full_matrix(release["second_moment"], dimension).sum(axis=1)
        white = rows - (1 - math.sqrt(0.5)) * rows.mean()
        found["second_moment"] = white * math.sqrt(2 / dimension) / noise["second_moment"].sigma
    return found


def parities_agree(release: Blocks) -> bool:
    """Return whether each feature's second moment has the parity of its sum, as q² and q have in exact integer sums.

    Says something of both blocks at once, from 30 features on: noise on either makes each agree with probability ½.
    """
    sums = np.asarray(release["class_sums"])
    upper, right = np.triu_indices(sums.shape[1])
    diagonal = np.asarray(release["second_moment"])[upper == right]
    return len(diagonal) >= LEAST_BITS and bool(np.all((diagonal - sums.sum(axis=0)) % 2 == 0))
