"""A classifier head: an optional map of its inputs, then a linear layer, with digest and predictions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.heads.artifact import Artifact

Kind = Literal["stacked", "residual"]
Layer = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Weight (out, in) and bias (out,)."""
KINDS: tuple[Kind, ...] = ("stacked", "residual")
SHORTEST = 1e-12
"""The least divisor: shorter lengths count as this, as in torch's `normalize`."""


@dataclass(frozen=True, eq=False)
class HeadAdapter:
    """An adapter before a linear layer: `layers` of finite float32, the first of which takes a record's d numbers.

    "stacked": layer after layer x ← normalise(ReLU(W x + b)) (FedTC, Table 5).
    "residual": y ← ReLU(W y + b) layer after layer, from y = x, then normalise(x + y), d numbers again (MPFT).
    """

    kind: Kind
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        if self.kind not in KINDS or not self.layers:
            raise BadInput(f"an adapter of kind {self.kind!r} with {len(self.layers)} layers")
        width = (*self.layers[0][0].shape, 0, 0)[1]
        for weight, bias in self.layers:
            shaped = weight.ndim == 2 and bias.shape == weight.shape[:1] and weight.shape[1] == width > 0
            if not shaped or not (weight.dtype == bias.dtype == np.float32):
                raise BadInput(
                    f"an adapter's layer is float32 (out, {width}) and (out,), got {weight.shape}, {bias.shape}"
                )
            if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
                raise BadInput("the adapter has NaN or infinite entries")
            width = len(bias)
        if self.kind == "residual" and width != self.inputs:
            raise BadInput(f"a residual adapter puts out {width} numbers for {self.inputs}")

    @property
    def inputs(self) -> int:
        """Number of features that the adapter takes."""
        return int(self.layers[0][0].shape[-1])

    @property
    def outputs(self) -> int:
        """Number of features that the adapter puts out."""
        return len(self.layers[-1][1])

    @property
    def arrays(self) -> tuple[NDArray[np.float32], ...]:
        """The weight and bias of each layer, in order."""
        return tuple(array for layer in self.layers for array in layer)

    def apply(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map records (n, inputs) to vectors (n, outputs) of norm 1; what is zero before normalisation stays zero."""
        found = features
        for weight, bias in self.layers:
            found = np.maximum(found @ weight.T.astype(np.float64) + bias, 0.0)
            if self.kind == "stacked":
                found = _normalise(found)
        return found if self.kind == "stacked" else _normalise(features + found)


def _normalise(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    shortened: NDArray[np.float64] = rows / np.maximum(lengths, SHORTEST)
    return shortened


WeightKind = Literal["means", "directions", "other"]
"""The meaning of a head's weights: class means less the grid's centre, these times a constant, or something other."""
ABSENT_BIAS = np.float32(-1e30)
"""Bias of a class without records: finite, so that the head can be exported, and never the largest score."""
RECENTRING = ("recentring_matrix", "recentring_centre")
MEANS = "means"
"""Names of tensors in files: of a recentring, and of class means."""
ROWS = 8192


@dataclass(frozen=True, eq=False)
class Recentring:
    """A recentring of records g (d,): √(d/(d+1))·z/‖z‖₂ with z = g·`matrix` − `centre`, float32 (d, d) and (d,)."""

    matrix: NDArray[np.float32]
    centre: NDArray[np.float32]

    def __post_init__(self) -> None:
        shaped = self.centre.ndim == 1 and self.matrix.shape == 2 * self.centre.shape
        if not shaped or not (self.matrix.dtype == self.centre.dtype == np.float32):
            raise BadInput(f"a recentring is float32 (d, d) and (d,), got {self.matrix.shape}, {self.centre.shape}")
        if not (np.isfinite(self.matrix).all() and np.isfinite(self.centre).all()):
            raise BadInput("the recentring has NaN or infinite entries")

    @property
    def inputs(self) -> int:
        """Number of features that the map takes."""
        return len(self.centre)

    @property
    def outputs(self) -> int:
        """Number of features that the map puts out, the same as it takes."""
        return len(self.centre)

    @property
    def arrays(self) -> tuple[NDArray[np.float32], ...]:
        """The matrix and the centre."""
        return (self.matrix, self.centre)

    def apply(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map records (n, d) to recentred vectors of norm √(d/(d+1)), or to 0 where record·matrix equals the centre."""
        moved = features @ self.matrix.astype(np.float64) - self.centre
        lengths = np.sqrt(np.einsum("ij,ij->i", moved, moved))[:, None]
        dimension = len(self.centre)
        mapped: NDArray[np.float64] = moved / np.where(lengths > 0, lengths, 1.0) * np.sqrt(dimension / (dimension + 1))
        return mapped


@dataclass(frozen=True, eq=False)
class LinearHead(Artifact):
    """A linear classifier of features: `weight` (C, d), `bias` (C,), finite float32; score = weight · feature + bias.

    A class that had no records has zero weights and the bias −10³⁰. A head with something `before` takes features that
    went through that. `means` (C, inputs), of the classes' records and zero for an absent class, predict nothing: they
    are for local adaptation (FedCGS Eq. 12).
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    before: Recentring | HeadAdapter | None = None
    means: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        good = self.weight.ndim == 2 and self.weight.size and self.bias.shape == self.weight.shape[:1]
        if not good or self.weight.dtype != np.float32 or self.bias.dtype != np.float32:
            raise BadInput(f"a head is float32 (C, d) and (C,), got {self.weight.shape} and {self.bias.shape}")
        if not (np.isfinite(self.weight).all() and np.isfinite(self.bias).all()):
            raise BadInput("the head has NaN or infinite entries", remedy="raise the ridge")
        if self.before is not None and self.before.outputs != self.weight.shape[1]:
            raise BadInput("the head and what stands before it are for different features")
        if self.means is not None:
            if self.means.shape != (len(self.bias), self.inputs) or self.means.dtype != np.float32:
                raise BadInput(f"class means are float32 (C, d), got {self.means.shape}")
            if not np.isfinite(self.means).all():
                raise BadInput("the class means have NaN or infinite entries")

    @property
    def inputs(self) -> int:
        """Number of features that the head takes."""
        return self.before.inputs if self.before is not None else int(self.weight.shape[1])

    @property
    def arrays(self) -> tuple[NDArray[np.float32], ...]:
        """The head's arrays: weights, biases, those of an adapter or a recentring before them, then the class means."""
        before = self.before.arrays if self.before is not None else ()
        return (self.weight, self.bias, *before, *(() if self.means is None else (self.means,)))

    @property
    def digest(self) -> str:
        return head_digest(self)

    @property
    def texts(self) -> Mapping[str, str]:
        return {}

    @property
    def tensors(self) -> Mapping[str, NDArray[Any]]:
        """The tensors by name: `weight`, `bias`, an adapter's or recentring's (such as "stacked.0.weight"), `means`."""
        names = ["weight", "bias"]
        if isinstance(self.before, Recentring):
            names += RECENTRING
        elif self.before is not None:
            layers = range(len(self.before.layers))
            names += [f"{self.before.kind}.{layer}.{part}" for layer in layers for part in ("weight", "bias")]
        names += [MEANS] if self.means is not None else []
        return dict(zip(names, self.arrays, strict=True))

    def require_fit(self, classes: int, dimension: int) -> None:
        if (len(self.bias), self.inputs) != (classes, dimension):
            raise BadInput(f"the head is for {len(self.bias)} classes and {self.inputs} features")

    def among(self, rows: NDArray[np.int64], classes: int) -> LinearHead:
        def widen(own: NDArray[np.float32], absent: np.float32) -> NDArray[np.float32]:
            wide = np.full((classes, *own.shape[1:]), absent, dtype=np.float32)
            wide[rows] = own
            return wide

        means = None if self.means is None else widen(self.means, np.float32(0))
        return LinearHead(widen(self.weight, np.float32(0)), widen(self.bias, ABSENT_BIAS), self.before, means)

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        return predict(self, features)  # in blocks: not all scores at once

    def scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate(list(_blocks(self, features)))

    @property
    def present(self) -> NDArray[np.bool_]:
        """Mask (C,) of the classes that had records."""
        return self.bias > ABSENT_BIAS


def head_digest(head: LinearHead) -> str:
    """Return the SHA-256 (hex) of a head's weights (row by row), then biases, as little-endian float32, no header.

    Those of an adapter's layers follow, then class means if it carries any; a recentring is no part of it.
    """
    adapter = head.before.arrays if isinstance(head.before, HeadAdapter) else ()
    arrays = (head.weight, head.bias, *adapter, *(() if head.means is None else (head.means,)))
    return hashlib.sha256(b"".join(array.astype("<f4").tobytes() for array in arrays)).hexdigest()


def predict(head: LinearHead, features: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the class (n,) with the largest score for features (n, d); ties go to the lower class.

    Raises BadInput for another d.
    """
    return np.concatenate([np.argmax(block, axis=1) for block in _blocks(head, features)]).astype(np.int64)


def _blocks(head: LinearHead, features: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Yield the scores of some rows after the others; at least one block, which may be empty."""
    if features.ndim != 2 or features.shape[1] != head.inputs:
        problem = f"the head takes {head.inputs} features, got records of shape {features.shape[1:]}"
        raise BadInput(problem, remedy="use the backbone and the expansion that the head was made with")
    weight, bias = head.weight.T.astype(np.float64), head.bias.astype(np.float64)
    prepared = head.before.apply if head.before is not None else np.asarray
    for start in range(0, max(1, len(features)), ROWS):
        yield prepared(features[start : start + ROWS]) @ weight + bias
