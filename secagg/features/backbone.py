"""The interface of frozen feature maps, the two that need no network, and several side by side."""

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
"""Called with (done, in all), of records say."""


class Backbone(Protocol):
    """A frozen map from one input to one feature vector.

    Row i of `extract` depends on record i alone, bit for bit, whatever else is in the batch.
    """

    @property
    def name(self) -> str:
        """Short name for people."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of everything that defines the map."""
        ...

    @property
    def dimension(self) -> int:
        """Length d of a feature vector."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on its features for the user; mostly none."""
        ...

    def extract(self, inputs: NDArray[Any]) -> Features:
        """Map inputs (n, …) to features (n, d) float64."""
        ...

    def bound(self, input_bound: float | None, /) -> float | None:
        """Public L2 bound of a feature vector whose input has the given bound; None when there is none."""
        ...


@dataclass(frozen=True)
class Identity:
    """Features and tables as they stand."""

    dimension: int
    name: str = "features"
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of the name and the dimension."""
        return digest_of(f"secagg backbone v1: features {self.dimension}")

    def extract(self, inputs: NDArray[Any]) -> Features:
        """Return inputs (n, d) as float64."""
        return flatten(inputs, (self.dimension,)).astype(np.float64)

    def bound(self, input_bound: float | None, /) -> float | None:
        """The input's own bound."""
        return input_bound


@dataclass(frozen=True)
class Pixels:
    """Images as one row of numbers: uint8 divided by 255, floats as they stand."""

    shape: tuple[int, ...]
    name: str = "pixels"
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of the name and the input's shape."""
        return digest_of(f"secagg backbone v1: pixels {'x'.join(map(str, self.shape))}")

    @property
    def dimension(self) -> int:
        """Number of values of one image."""
        return math.prod(self.shape)

    def extract(self, inputs: NDArray[Any]) -> Features:
        """Return images (n, *shape) as (n, d) float64."""
        flat = flatten(inputs, self.shape).astype(np.float64)
        return flat / 255.0 if inputs.dtype == np.uint8 else flat

    def bound(self, input_bound: float | None, /) -> float | None:
        """The input's own bound."""
        return input_bound


def flatten(inputs: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return inputs (n, *shape) as (n, d). Raises BadInput for another shape."""
    if inputs.shape[1:] != shape:
        raise BadInput(f"the backbone takes inputs of shape {shape}, got {inputs.shape[1:]}")
    return inputs.reshape(len(inputs), math.prod(shape))


def row_by_row(
    inputs: NDArray[Any], dimension: int, features_of: Callable[[NDArray[Any]], Features], progress: Progress | None
) -> Features:
    """Extract features (n, dimension) one record at a time on one thread, so that no record depends on its batch."""
    features = np.empty((len(inputs), dimension))
    with one_thread():
        for index, record in enumerate(inputs):
            features[index] = features_of(record)
            if progress is not None:
                progress(index + 1, len(inputs))
    return features


def digest_of(text: str) -> str:
    """SHA-256 (hex) of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Concatenation:
    """The features of two or more backbones of the same inputs, one after the other."""

    parts: tuple[Backbone, ...]

    @property
    def name(self) -> str:
        """The parts' names, joined by +."""
        return "+".join(part.name for part in self.parts)

    @property
    def digest(self) -> str:
        """SHA-256 over the parts' digests in order."""
        return digest_of_parts([part.digest for part in self.parts])

    @property
    def dimension(self) -> int:
        """The sum of the parts' dimensions."""
        return sum(part.dimension for part in self.parts)

    @property
    def notes(self) -> tuple[str, ...]:
        """The parts', each once."""
        return tuple(dict.fromkeys(note for part in self.parts for note in part.notes))

    def extract(self, inputs: NDArray[Any]) -> Features:
        """Map inputs (n, …) to features (n, d) float64; row i depends on record i alone."""
        return np.hstack([part.extract(inputs) for part in self.parts])

    def bound(self, input_bound: float | None, /) -> float | None:
        """Public L2 bound √Σ bound²; None when a part has none."""
        bounds = [part.bound(input_bound) for part in self.parts]
        known = [bound for bound in bounds if bound is not None]
        return math.hypot(*known) if len(known) == len(bounds) else None


def digest_of_parts(digests: Sequence[str]) -> str:
    """The digest of a concatenation, without opening any part; of a single part its own."""
    return digests[0] if len(digests) == 1 else digest_of(f"secagg concatenation v1: {' '.join(digests)}")
