"""Small networks between a frozen backbone's features and a linear layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput

Kind = Literal["stacked", "residual"]
Layer = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Weight (out, in) and bias (out,)."""
KINDS: tuple[Kind, ...] = ("stacked", "residual")
SHORTEST = 1e-12
"""Lengths below this count as it, as in torch's `normalize`."""


@dataclass(frozen=True, eq=False)
class Adapter:
    """`layers` of finite float32, the first of which takes a record's d numbers.

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
        """Numbers of one record before it."""
        return int(self.layers[0][0].shape[-1])

    @property
    def outputs(self) -> int:
        """Numbers of one record behind it."""
        return len(self.layers[-1][1])

    @property
    def arrays(self) -> tuple[NDArray[np.float32], ...]:
        """Weight and bias of each layer, in order."""
        return tuple(array for layer in self.layers for array in layer)

    def apply(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map records (n, inputs) to (n, outputs) of length 1, or 0 where nothing is positive."""
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
