"""What every frozen feature map offers, and the two that need no network."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput

Features = NDArray[np.float64]


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
        """What a user should know of its features; mostly nothing."""
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


def digest_of(text: str) -> str:
    """SHA-256 (hex) of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
