"""Frozen feature extractors (backbones): the interface, plain inputs, scaled pixels, and concatenations of several."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.system.threads import one_thread

Features = NDArray[np.float64]
Progress = Callable[[int, int], None]
"""A function called with the number of items done (records, say) and the number of items in all."""


class Backbone(Protocol):
    """A frozen map from one record's input to its feature vector.

    Row i of `extract` depends on record i alone, bit for bit, whatever else is in the batch.
    """

    @property
    def name(self) -> str:
        """A short name to be displayed."""

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of everything that defines the map."""

    @property
    def dimension(self) -> int:
        """Length d of a feature vector."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the features for the user; mostly none."""

    def extract(self, inputs: NDArray[Any]) -> Features:
        """Map inputs (n, …) to features (n, d) float64."""

    def bound(self, input_bound: float | None, /) -> float | None:
        """Return a public upper bound on a feature vector's L2 norm, given its input's; None if no bound is known."""


@dataclass(frozen=True)
class PlainInputs:
    """The backbone `features`, which returns an input's values (table, feature vector) as one row, unchanged."""

    shape: tuple[int, ...]
    name: str = "features"
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the backbone's name and the number of values of one input."""
        return digest_of(f"secagg backbone v1: features {self.dimension}")

    @property
    def dimension(self) -> int:
        """Number of values of one input."""
        return math.prod(self.shape)

    def extract(self, inputs: NDArray[Any]) -> Features:
        """Return inputs (n, *shape) as (n, d) float64. Raises BadInput for other shapes."""
        if inputs.shape[1:] != self.shape:
            raise BadInput(f"the backbone takes inputs of shape {self.shape}, got {inputs.shape[1:]}")
        return inputs.reshape(len(inputs), self.dimension).astype(np.float64)

    def bound(self, input_bound: float | None, /) -> float | None:
        """Return the L2 bound of the input, which the features equal."""
        return input_bound


@dataclass(frozen=True)
class Pixels(PlainInputs):
    """The backbone `pixels`, which returns an image's values as one row, uint8 divided by 255, floats unchanged."""

    name: str = "pixels"

    @property
    def digest(self) -> str:
        return digest_of(f"secagg backbone v1: pixels {'x'.join(map(str, self.shape))}")

    def extract(self, inputs: NDArray[Any]) -> Features:
        return super().extract(inputs) / (255.0 if inputs.dtype == np.uint8 else 1.0)


def row_by_row(
    inputs: NDArray[Any], dimension: int, features_of: Callable[[NDArray[Any]], Features], progress: Progress | None
) -> Features:
    """Extract features (n, dimension) record by record on one thread: no record's features depend on other records."""
    features = np.empty((len(inputs), dimension))
    with one_thread():
        for index, record in enumerate(inputs):
            features[index] = features_of(record)
            if progress is not None:
                progress(index + 1, len(inputs))
    return features


def digest_of(text: str) -> str:
    """Return the SHA-256 (hex) of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Concatenation(Backbone):
    """The concatenated features of two or more backbones of the same inputs."""

    parts: tuple[Backbone, ...]

    @property
    def name(self) -> str:
        return "+".join(part.name for part in self.parts)

    @property
    def digest(self) -> str:
        return digest_of_parts([part.digest for part in self.parts])

    @property
    def dimension(self) -> int:
        return sum(part.dimension for part in self.parts)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(note for part in self.parts for note in part.notes))

    def extract(self, inputs: NDArray[Any]) -> Features:
        return np.hstack([part.extract(inputs) for part in self.parts])

    def bound(self, input_bound: float | None, /) -> float | None:
        """Return √Σ bound² over the public L2 bounds of the joined backbones; None if a backbone has no bound."""
        bounds = [part.bound(input_bound) for part in self.parts]
        known = [bound for bound in bounds if bound is not None]
        return math.hypot(*known) if len(known) == len(bounds) else None


def digest_of_parts(digests: Sequence[str]) -> str:
    """Return the digest of concatenated backbones from the digest of each; for a single backbone, its own digest."""
    return digests[0] if len(digests) == 1 else digest_of(f"secagg concatenation v1: {' '.join(digests)}")
