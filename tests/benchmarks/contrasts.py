"""The papers' eight primary contrasts: paired intervals over seeds and over test records, with Holm's correction.

Each script in `PRIMARY` states its contrast, its settings and its seeds before its first run. What it measures stands
in methods/contrasts.toml, and the verdict follows from that file alone: a claim "held" or "did not hold" where Holm's
test over the eight systems and the bootstrap over test records both exclude 0 on the same side.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

from secagg.experiments.results import student_interval
from tests.architecture.source import ROOT

SOURCE = ROOT / "methods" / "contrasts.toml"
PRIMARY: Mapping[str, str] = {
    "FedTC": "oneshot",
    "FedCGS": "oneshot",
    "MPFT": "oneshot",
    "FedPCL": "fedpcl",
    "FRAug": "fraug",
    "FedDAT": "feddat",
    "FedPop": "tune",
    "FedBiP": "fedbip",
}
"""The script of each system's contrast, a module of `tests.benchmarks`."""
LEVEL = 0.05
"""Of the family of eight (Holm 1979), and of each bootstrap."""
DRAWS = 10_000
"""Bootstrap samples of the test records."""
FEWEST = 5
"""Seeds below which nothing is told."""


@dataclass(frozen=True)
class Contrast:
    """How far one method is above another, in points of accuracy.

    `differences`: one for each seed, in the order of the seeds. `records`: 95 % interval of their mean over draws of
    the test records. `name` says which two methods, on which records; `cpu_minutes` is of the script's whole run.
    """

    name: str
    differences: tuple[float, ...]
    records: tuple[float, float]
    cpu_minutes: float = math.nan

    def __post_init__(self) -> None:
        """Raise ValueError for a number that is not finite, or ends in the wrong order."""
        if not all(map(math.isfinite, (*self.differences, *self.records))) or self.records[0] > self.records[1]:
            raise ValueError(f"{self.name}: not a contrast: {self.differences}, {self.records}")

    @property
    def p_value(self) -> float:
        """Two-sided p of Student's paired test; 1 with fewer than `FEWEST` seeds."""
        if len(self.differences) < FEWEST:
            return 1.0
        if min(self.differences) == max(self.differences):
            return 1.0 if self.differences[0] == 0 else 0.0
        return float(ttest_1samp(self.differences, 0.0).pvalue)

    def says(self) -> str:
        """Return the mean with both 95 % intervals, not corrected."""
        mean, ends = fmean(self.differences), self.records
        low, high = student_interval(self.differences)
        seeds = f"{_signed(low)} to {_signed(high)} over {len(self.differences)} seeds"
        return f"{_signed(mean)} points ({seeds}, {_signed(ends[0])} to {_signed(ends[1])} over test records)"

    def as_toml(self, system: str) -> str:
        """Return its table in methods/contrasts.toml."""
        values = ", ".join(f"{each:.3f}" for each in self.differences)
        low, high = self.records
        return (
            f'[{system}]\nname = "{self.name}"\ndifferences = [{values}]\nrecords = [{low:.3f}, {high:.3f}]\n'
            f"cpu_minutes = {self.cpu_minutes:.1f}\n"
        )


def mean_and_gap(values: Sequence[float], rival: Sequence[float] | None = None, digits: int = 2) -> str:
    """Return a mean; in brackets that of the differences to a rival, seed by seed, ± half Student's 95 % interval."""
    if rival is None or list(values) == list(rival):
        return f"{fmean(values):.{digits}f}"
    apart = [one - other for one, other in zip(values, rival, strict=True)]
    low, high = student_interval(apart)
    return f"{fmean(values):.{digits}f} ({fmean(apart):+.{digits}f} ± {(high - low) / 2:.{digits}f})"


def _signed(points: float) -> str:
    return f"{points:+.2f}".replace("-", "−")


def contrast_of(
    name: str,
    ours: Sequence[NDArray[Any]],
    theirs: Sequence[NDArray[Any]],
    labels: Sequence[NDArray[Any]],
    *,
    same_records: bool,
    cpu_minutes: float = math.nan,
) -> Contrast:
    """Return the contrast of two methods' answers.

    `ours[s]` and `theirs[s]`, shape (n_s,): what each test record of seed s adds to the accuracy (a share: they sum to
    it), the same records in the same order. `labels[s]` names each record's stratum (its class, or class and domain);
    the bootstrap draws within these: once for all seeds if `same_records`, where record i is the same one in each seed,
    and for each seed by itself where seeds hold out records of their own. Raises ValueError for shapes that differ.
    """
    if not len(ours) == len(theirs) == len(labels) or any(
        not each.shape == other.shape == strata.shape for each, other, strata in zip(ours, theirs, labels, strict=True)
    ):
        raise ValueError(f"{name}: the two methods were not asked about the same records")
    apart = [100.0 * (each.astype(float) - other) for each, other in zip(ours, theirs, strict=True)]
    differences = tuple(float(each.sum()) for each in apart)
    if same_records:
        apart, labels = [np.mean(apart, axis=0)], [labels[0]]
    draw = np.random.default_rng(0)
    drawn = np.mean([_resampled(*each, draw) for each in zip(apart, labels, strict=True)], axis=0)
    low, high = np.percentile(drawn, [100 * LEVEL / 2, 100 * (1 - LEVEL / 2)])
    return Contrast(name, differences, (float(low), float(high)), cpu_minutes)


def _resampled(apart: NDArray[Any], labels: NDArray[Any], draw: np.random.Generator) -> NDArray[np.float64]:
    """Return the sums, shape (`DRAWS`,), of as many records of each stratum, drawn with replacement."""
    sums = np.zeros(DRAWS)
    for label in np.unique(labels):
        own = apart[labels == label]
        counts = draw.multinomial(len(own), np.full(len(own), 1 / len(own)), size=DRAWS)
        sums += counts @ own
    return sums


def read_contrasts() -> dict[str, Contrast]:
    """Read methods/contrasts.toml. Raises TypeError for an unknown or missing field."""
    found = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
    return {
        system: Contrast(**(each | {key: tuple(each[key]) for key in ("differences", "records")}))
        for system, each in found.items()
    }


def adjusted(contrasts: Mapping[str, Contrast]) -> dict[str, float]:
    """Return Holm's adjusted p-values of the eight systems; a system without a contrast counts as p = 1.

    Holm, "A simple sequentially rejective multiple test procedure" (1979): with the p-values in ascending order the
    i-th (from 0) becomes the largest of (8 − j) p_j over j ≤ i, at most 1.
    """
    by_p = sorted(PRIMARY, key=lambda system: contrasts[system].p_value if system in contrasts else 1.0)
    found, largest = dict[str, float](), 0.0
    for place, system in enumerate(by_p):
        own = contrasts[system].p_value if system in contrasts else 1.0
        largest = max(largest, min(1.0, (len(by_p) - place) * own))
        found[system] = largest
    return found


def verdicts(contrasts: Mapping[str, Contrast]) -> dict[str, str]:
    """Return "held", "did not hold" or "cannot be told" for each of the eight systems."""
    unknown = Contrast("", (), (0.0, 0.0))
    p_values = adjusted(contrasts)
    return {
        system: _verdict(contrasts.get(system, unknown), is_rejected=p_values[system] <= LEVEL) for system in PRIMARY
    }


def _verdict(contrast: Contrast, *, is_rejected: bool) -> str:
    low, high = contrast.records
    if is_rejected and fmean(contrast.differences) > 0 and low > 0:
        return "held"
    if is_rejected and fmean(contrast.differences) < 0 and high < 0:
        return "did not hold"
    return "cannot be told"
