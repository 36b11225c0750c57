"""Canaries: records that a fair coin adds to a sum or leaves out, and scores of how likely each is in the sum.

The score is the log-likelihood ratio of one canary q with label y under Gaussian approximations,

    Λ = s·(⟨q, A_y⟩ − e_A)/v_A + s²·(qᵀBq − e_B)/v_B,    s = ‖q‖²,

where e is what all others let one expect, half of every canary included, and v the variance of the noise, of the other
canaries' coins, and of the records that the auditor does not know. Of these it knows the number, by the opened counts,
and from public records of the same kind what one of them adds on average, and how much that varies. A canary that many
records resemble is hardly seen; one in a direction in which records do not vary stands out without knowing any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from secagg.agreement.plan import Plan
from secagg.encoding import Normalisation, full_matrix
from secagg.encoding.layout import Integers
from secagg.errors import BadInput
from secagg.privacy import OpenedNoise
from secagg.randomness import OperatingSystem, RandomSource
from threat_models.session import AuditRecords, Floats, Session, by_class

ROWS = 8192
LEAST = 1e-3
"""Standard deviation that is always added to a score's own, as a share of the canary's signal."""


@dataclass(frozen=True, eq=False)
class Canaries:
    """Canary records: integers (m, d) on the plan's grid, labels (m,), and coins (m,): True if the record is put in."""

    integers: Integers = field(repr=False)
    labels: Integers = field(repr=False)
    included: NDArray[np.bool_] = field(repr=False)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class _CanaryScores:
    """The log-likelihood ratio Λ of each canary, `values` (m,): above 0 the canary is likelier in the sum than out.

    Λ is N(±μ²/2, μ²) as far as the approximation goes. `mu` is μ (m,), how many deviations the two cases are apart;
    `bare` is μ were there no noise.
    """

    values: Floats = field(repr=False)
    mu: Floats = field(repr=False)
    bare: Floats = field(repr=False)


def fair_coins(count: int, randomness: RandomSource | None = None) -> NDArray[np.bool_]:
    """Throw `count` independent fair coins with `randomness`, by default the operating system's."""
    drawn = (randomness or OperatingSystem()).bytes(-(-count // 8))
    return np.unpackbits(np.frombuffer(drawn, dtype=np.uint8))[:count].astype(np.bool_)


def draw_canaries(plan: Plan, count: int, generator: np.random.Generator, like: AuditRecords | None = None) -> Canaries:
    """Make `count` canaries: orthogonal records of nearly the plan's largest length, each with a fair coin.

    Those in which the records `like` are shortest, where there are some, else random ones; the classes take turns.
    Raises BadInput for more canaries than there are directions.
    """
    dimension = plan.dimension
    basis = np.eye(dimension)
    if plan.grid.normalisation is Normalisation.CENTRED_UNIT:  # entries of such records sum to 0
        others = generator.normal(size=(dimension, dimension - 1))
        basis = np.linalg.qr(np.column_stack([np.ones(dimension), others]))[0][:, 1:]
    if not 1 <= count <= (most := basis.shape[1]):
        problem = f"orthogonal canaries must be between 1 and {most} (got {count})"
        raise BadInput(problem, remedy=f"plant no more than {most}")
    if like is not None and len(like):
        rows = like.integers.astype(np.float64) @ basis
        directions = basis @ eigh(rows.T @ rows)[1][:, :count]
    else:
        directions = basis @ np.linalg.qr(generator.normal(size=(basis.shape[1], count)))[0]
    integers = np.rint(directions.T * (plan.levels - np.sqrt(dimension) / 2)).astype(np.int64)
    return Canaries(integers, np.arange(count) % len(plan.classes), fair_coins(count))


@dataclass(frozen=True, eq=False)
class _Projection:
    """Sums over records of what each adds to a canary's ⟨q, A_y⟩ and qᵀBq, and of the squares, (m,); counts (C,)."""

    counts: Floats
    sums: Floats
    sums_squared: Floats
    moments: Floats
    moments_squared: Floats

    @classmethod
    def of(cls, records: AuditRecords | None, canaries: Canaries, classes: int) -> _Projection:
        found = np.zeros((4, len(canaries)))
        if records is None:
            return cls(np.zeros(classes), *found)
        rows = canaries.integers.astype(np.float64).T
        for start in range(0, len(records), ROWS):
            chunk = slice(start, start + ROWS)
            along = records.integers[chunk].astype(np.float64) @ rows
            own = along * (records.labels[chunk, None] == canaries.labels)
            found += [own.sum(axis=0), (own**2).sum(axis=0), (along**2).sum(axis=0), (along**4).sum(axis=0)]
        return cls(np.bincount(records.labels, minlength=classes).astype(np.float64), *found)


def canary_scores(
    session: Session, canaries: Canaries, known: AuditRecords | None = None, public: AuditRecords | None = None
) -> _CanaryScores:
    """Score each canary by how likely the session's opened sum contains it, without looking at the coins.

    Where classes are divided, their cells are added up. `known` took part beside the canaries; `public` are of the same
    kind as those that the auditor does not know, and where there are none `known` are. Raises BadInput for a sum in
    which no canary shows, or without either.
    """
    release, noise, labels = session.release, session.noise or {}, canaries.labels
    classes = len(session.plan.classes)
    if not {"counts", "class_sums"} <= set(release):
        raise BadInput(
            f"no canary shows in a sum of {', '.join(release) or 'nothing'}",
            remedy="audit the session that opened counts and class sums, from its server's transcript",
        )
    if known is None and public is None:
        raise BadInput(
            "canaries cannot be told from records of which nothing is known",
            remedy="give --public records of their kind, or --known ones that took part (without the canaries)",
        )
    added = len(release["counts"]) // classes  # cells of a class, each with noise of its own
    release, rows = by_class(release, classes), canaries.integers.astype(np.float64)
    taken, like = (_Projection.of(each, canaries, classes) for each in (known, public or known))
    planted = np.bincount(labels, minlength=classes) / 2
    unknown = np.maximum(np.asarray(release["counts"], dtype=np.float64) - taken.counts - planted, 0.0)
    gram = rows @ rows.T
    length = np.diag(gram)
    same = gram * (labels[:, None] == labels)
    per_class = np.maximum(like.counts[labels], 1e-300)
    mean, spread = like.sums / per_class, like.sums_squared / per_class
    expected, varies = _expect_unknown(unknown[labels], like.counts[labels], mean, spread)
    value = np.einsum("id,id->i", rows, np.asarray(release["class_sums"], dtype=np.float64)[labels])
    value = value - taken.sums - same.sum(axis=1) / 2 - expected
    coins = ((same**2).sum(axis=1) - length**2) / 4
    parts = [(length, value, varies + coins, added * _sigma(noise, "class_sums") ** 2 * length)]
    if "second_moment" in release:
        total = max(float(like.counts.sum()), 1e-300)
        mean, spread = like.moments / total, like.moments_squared / total
        everyone = np.full(len(rows), unknown.sum())
        expected, varies = _expect_unknown(everyone, np.full(len(rows), like.counts.sum()), mean, spread)
        value = np.einsum("id,id->i", rows @ full_matrix(release["second_moment"], rows.shape[1]), rows)
        value = value - taken.moments - (gram**2).sum(axis=1) / 2 - expected
        coins = ((gram**4).sum(axis=1) - length**4) / 4
        parts.append((length**2, value, varies + coins, (_sigma(noise, "second_moment") * length) ** 2))
    return _combine(parts)


def _expect_unknown(count: Floats, public: Floats, mean: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """Compute mean and variance of what `count` unknown records add, by those of `public` ones; 0 without any."""
    variance = count * np.maximum(spread - mean**2, 0.0) * (1 + count / np.maximum(public, 1))
    return np.where(public > 0, count * mean, 0.0), np.where(public > 0, variance, 0.0)


def _sigma(noise: Mapping[str, OpenedNoise], name: str) -> float:
    return noise[name].sigma if name in noise else 0.0


def _combine(parts: list[tuple[Floats, Floats, Floats, Floats]]) -> _CanaryScores:
    """Add up scores of blocks, each given as (signal, deviation from the expected, its variance, noise variance)."""
    scores, squares, bare = (np.zeros(len(parts[0][0])) for _ in range(3))
    for signal, value, varies, noise in parts:
        least = (LEAST * np.maximum(signal, 1.0)) ** 2
        scores += signal * value / (varies + noise + least)
        squares += signal**2 / (varies + noise + least)
        bare += signal**2 / (varies + least)
    return _CanaryScores(scores, np.sqrt(squares), np.sqrt(bare))
