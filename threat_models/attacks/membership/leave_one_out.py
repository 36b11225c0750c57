"""Margins under heads with one record more or less, exactly, by rank-one updates of the discriminant.

With scatter S = Σ (q − μ_y)(q − μ_y)ᵀ within classes, or about the mean m for covariance "total", and f degrees of
freedom, `secagg.heads.discriminant` scores class j by (q − (μ_j + m)/2)ᵀ P (μ_j − m) + log(N_j/n), where
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

from secagg.heads.discriminant import Covariance
from threat_models.session import Records

Floats = NDArray[np.float64]

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
        rows, labels, step = self._centre(records), records.labels, steps.astype(np.float64)
        means = self.means - self.counts @ self.means / self.total
        own, total = self.counts[labels] + step, self.total + step
        is_within = self.covariance == "within"
        away, among = (
            (rows - means[labels], self.counts[labels]) if is_within else (rows, np.full(len(rows), self.total))
        )
        factor = np.where(among + step > 0, step * among / np.maximum(among + step, 1), 0.0)
        freedom = total - (self._classes(labels, own) if is_within else 1)
        trace = self.values.sum() + factor * np.einsum("nd,nd->n", away, away)
        inverse = 1 / (self.values + (self.ridge * trace / len(self.values))[:, None])
        moved = means[labels] + (rows - means[labels]) * (step / np.maximum(own, 1))[:, None]
        scores = _quadratic(rows, means, moved, labels, rows * (step / total)[:, None], inverse, away, factor)
        counts = np.tile(self.counts, (len(rows), 1))
        counts[np.arange(len(rows)), labels] = own
        with np.errstate(divide="ignore"):
            return margins(freedom[:, None] * scores + np.log(counts / total[:, None]), labels)

    def _centre(self, records: Records) -> Floats:
        """Records in the eigenbasis, less the mean of all that the head is over: nothing large is ever subtracted."""
        rows: Floats = records.integers.astype(np.float64) @ self.vectors
        return rows - self.counts @ self.means / self.total

    def _classes(self, labels: NDArray[np.int64], own: Floats) -> Floats:
        """The number of classes with records, for each change of one's own class to `own` of them."""
        present = self.counts > 0
        found: Floats = present.sum() - present[labels] + (own > 0)
        return found


def _quadratic(
    rows: Floats,
    means: Floats,
    moved: Floats,
    labels: NDArray[np.int64],
    centre: Floats,
    inverse: Floats,
    away: Floats,
    factor: Floats,
) -> Floats:
    """(q − (μ_j + m)/2)ᵀ (Λ + ρI + k·u·uᵀ)⁻¹ (μ_j − m), (n, C), μ_y being `moved`; all but `means` (C, d) by record.

    `inverse` is 1/(Λ + ρ), `away` u and `factor` k.
    """
    weighted = inverse * away
    own = np.arange(len(rows))
    plain = (inverse * rows) @ means.T - inverse @ (means * means).T / 2
    plain[own, labels] = (inverse * (rows - moved / 2) * moved).sum(axis=1)
    plain -= (inverse * (rows - centre / 2) * centre).sum(axis=1)[:, None]
    along = weighted @ means.T
    along[own, labels] = (weighted * moved).sum(axis=1)
    left = (weighted * (rows - centre / 2)).sum(axis=1)[:, None] - along / 2
    right = along - (weighted * centre).sum(axis=1)[:, None]
    update = factor / (1 + factor * (weighted * away).sum(axis=1))
    return np.asarray(plain - update[:, None] * left * right)
