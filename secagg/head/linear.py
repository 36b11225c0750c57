"""A linear classifier head: float32 weights and biases, its digest and its predictions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput

ABSENT_BIAS = np.float32(-1e30)
"""Bias of a class without records: finite, so that the head can be exported, and never the largest score."""
ROWS = 8192


@dataclass(frozen=True, eq=False)
class Recentring:
    """Takes a record g (d,) to √(d/(d+1))·z/‖z‖₂ with z = g·`matrix` − `centre`, float32 (d, d) and (d,)."""

    matrix: NDArray[np.float32]
    centre: NDArray[np.float32]

    def __post_init__(self) -> None:
        if self.matrix.shape != 2 * self.centre.shape or not (self.matrix.dtype == self.centre.dtype == np.float32):
            raise BadInput(f"a recentring is float32 (d, d) and (d,), got {self.matrix.shape}, {self.centre.shape}")
        if not (np.isfinite(self.matrix).all() and np.isfinite(self.centre).all()):
            raise BadInput("the recentring has NaN or infinite entries")

    def apply(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map records (n, d); one that meets the centre stays there."""
        moved = features @ self.matrix.astype(np.float64) - self.centre
        lengths = np.sqrt(np.einsum("ij,ij->i", moved, moved))[:, None]
        dimension = len(self.centre)
        mapped: NDArray[np.float64] = moved / np.where(lengths > 0, lengths, 1.0) * np.sqrt(dimension / (dimension + 1))
        return mapped


@dataclass(frozen=True, eq=False)
class LinearHead:
    """`weight` (C, d) and `bias` (C,), finite float32; score = weight · feature + bias in feature units.

    A class that had no records has zero weights and the bias −10³⁰. A head with a `recentring` takes features that
    went through it.
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    recentring: Recentring | None = None

    def __post_init__(self) -> None:
        good = self.weight.ndim == 2 and self.bias.shape == self.weight.shape[:1]
        if not good or self.weight.dtype != np.float32 or self.bias.dtype != np.float32:
            raise BadInput(f"a head is float32 (C, d) and (C,), got {self.weight.shape} and {self.bias.shape}")
        if not (np.isfinite(self.weight).all() and np.isfinite(self.bias).all()):
            raise BadInput("the head has NaN or infinite entries", remedy="raise the ridge")
        if self.recentring is not None and len(self.recentring.centre) != self.weight.shape[1]:
            raise BadInput("the head and its recentring are for different features")

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which classes had records, (C,)."""
        return self.bias > ABSENT_BIAS


def head_digest(head: LinearHead) -> str:
    """SHA-256 (hex) of the weights (row by row), then the biases, as little-endian float32, nothing else."""
    return hashlib.sha256(head.weight.astype("<f4").tobytes() + head.bias.astype("<f4").tobytes()).hexdigest()


def predict(head: LinearHead, features: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the class (n,) with the largest score for features (n, d); ties go to the lower class.

    Raises BadInput for another d.
    """
    if features.ndim != 2 or features.shape[1] != head.weight.shape[1]:
        problem = f"the head takes {head.weight.shape[1]} features, got records of shape {features.shape[1:]}"
        raise BadInput(problem, remedy="use the backbone and the expansion that the head was made with")
    weight, bias = head.weight.T.astype(np.float64), head.bias.astype(np.float64)
    recentred = head.recentring.apply if head.recentring is not None else np.asarray
    blocks = [recentred(features[start : start + ROWS]) @ weight + bias for start in range(0, len(features), ROWS)]
    return np.concatenate([np.argmax(block, axis=1) for block in blocks] or [np.zeros(0)]).astype(np.int64)
