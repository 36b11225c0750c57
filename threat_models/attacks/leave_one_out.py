"""Heads with one record more or less, exactly, without making them: rank-one updates of the discriminant.

With scatter S = Σ (q − μ_y)(q − μ_y)ᵀ within classes, or about the mean m for covariance "total", and f degrees of
freedom, `secagg.head.discriminant` scores class j by (q − (μ_j + m)/2)ᵀ P (μ_j − m) + log(N_j/n), where
P = f·(S + ρI)⁻¹ and ρ = γ·tr(S)/d. Adding (s = 1) or removing (s = −1) a record (q, y) gives S' = S + k·u·uᵀ with
u = q − μ_y and k = s·N_y/(N_y + s) within, u = q − m and k = s·n/(n + s) in total, so that in the eigenbasis of S the
changed ridge is diagonal and what is left is the update of Sherman & Morrison 1950.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import logsumexp

from secagg.head.discriminant import Covariance
from threat_models.session import Records

Floats = NDArray[np.float64]

CHUNK = 1 << 22
"""Entries of an array of records × classes × features that are worked on at once."""
FARTHEST = 100.0
"""Margins are cut there: a class without records has none."""


def margins(scores: Floats, labels: NDArray[np.int64]) -> Floats:
    """The logarithm of the odds of each record's own class (n,), from scores (n, C); between −100 and 100."""
    rows = np.arange(len(labels))
    others = scores.copy()
    others[rows, labels] = -np.inf
    cut: Floats = np.clip(scores[rows, labels] - logsumexp(others, axis=1), -FARTHEST, FARTHEST)
    return cut


@dataclass(frozen=True, eq=False)
class Discriminant:
    """The statistics behind one head, in the eigenbasis `vectors` (d, d) of its scatter, whose eigenvalues are (d,)."""

    counts: Floats
    means: Floats = field(repr=False)
    values: Floats = field(repr=False)
    vectors: Floats = field(repr=False)
    covariance: Covariance
    ridge: float

    @classmethod
    def of(cls, records: Records, classes: int, covariance: Covariance, ridge: float) -> Discriminant:
        """The head of these records (n, d); γ = `ridge`."""
        rows, labels = records.integers.astype(np.float64), records.labels
        counts = np.bincount(labels, minlength=classes).astype(np.float64)
        members = (labels == np.arange(classes)[:, None]).astype(np.float64)
        means = members @ rows / np.maximum(counts, 1)[:, None]
        centred = rows - (means[labels] if covariance == "within" else rows.mean(axis=0))
        values, vectors = eigh(centred.T @ centred)
        return cls(counts, means @ vectors, np.maximum(values, 0), vectors, covariance, ridge)

    @property
    def total(self) -> float:
        """The number of records n."""
        return float(self.counts.sum())

    def margins(self, records: Records, steps: NDArray[np.int64]) -> Floats:
        """Each record's margin (n,) under the head with it added (step 1), removed (−1), or as it is (0)."""
        rows = records.integers.astype(np.float64) @ self.vectors
        size = max(1, CHUNK // self.means.size)
        parts = [slice(start, start + size) for start in range(0, len(rows), size)]
        return np.concatenate([self._margins(rows[at], records.labels[at], steps[at].astype(float)) for at in parts])

    def _margins(self, rows: Floats, labels: NDArray[np.int64], steps: Floats) -> Floats:
        own = np.arange(len(rows))
        counts = np.tile(self.counts, (len(rows), 1))
        counts[own, labels] += steps
        total = self.total + steps
        centre = (self.counts @ self.means / self.total) + 0 * rows
        is_within = self.covariance == "within"
        away = rows - (self.means[labels] if is_within else centre)
        among = self.counts[labels] if is_within else np.full(len(rows), self.total)
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(among + steps > 0, steps * among / (among + steps), 0.0)
            moved = self.means[labels] + (rows - self.means[labels]) * (steps / counts[own, labels])[:, None]
        means = np.tile(self.means, (len(rows), 1, 1))
        means[own, labels] = np.where(counts[own, labels, None] > 0, moved, 0.0)
        centre += (rows - centre) * (steps / total)[:, None]
        freedom = total - ((counts > 0).sum(axis=1) if is_within else 1)
        trace = self.values.sum() + factor * np.einsum("nd,nd->n", away, away)
        inverse = 1 / (self.values + (self.ridge * trace / len(self.values))[:, None])
        left, right = rows[:, None] - (means + centre[:, None]) / 2, means - centre[:, None]
        weighted = inverse * away
        update = factor / (1 + factor * np.einsum("nd,nd->n", weighted, away))
        quadratic = np.einsum("ncd,nd,ncd->nc", left, inverse, right)
        quadratic -= update[:, None] * (left @ weighted[:, :, None])[..., 0] * (right @ weighted[:, :, None])[..., 0]
        with np.errstate(divide="ignore"):
            return margins(freedom[:, None] * quadratic + np.log(counts / total[:, None]), labels)
