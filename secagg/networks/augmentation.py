"""Synthetic embeddings (FRAug, Chen et al. 2023): a generator that members share, and each member's own RTNet.

The generator makes embeddings of a class out of noise, v = G(z, y); the RTNet makes a residual of them that is added to
what a member knows of its own records, û = u + strength·M(v). Two layers each, normalised over the entries of a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.networks.normalised import GAIN, SHIFT, normalise_rows
from secagg.networks.programs import glorot_bound, he_bound, linear, linear_shapes, uniform_start

if TYPE_CHECKING:
    from torch import Tensor

GENERATOR, TRANSFER = "generator", "transfer"
"""What the names of their tensors begin with."""


@dataclass(frozen=True)
class Augmentation:
    """For `classes` C and embeddings of `width` numbers: G has `hidden` units, z has `latent` numbers, as M's units."""

    classes: int
    width: int
    latent: int
    hidden: int

    def __post_init__(self) -> None:
        if min(self.width, self.latent, self.hidden) < 1:
            raise BadInput(f"a generator from {self.latent} by {self.hidden} to {self.width} numbers")

    @property
    def generator_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of G's tensors, by name."""
        return _two_layers(GENERATOR, self.latent + self.classes, self.hidden, self.width)

    @property
    def transfer_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of M's tensors, by name."""
        return _two_layers(TRANSFER, self.width, self.latent, self.width)

    def start(self, kind: str, seed: bytes) -> NDArray[np.float64]:
        """Return G's or M's parameters to begin with, the same everywhere: He's before a ReLU, Glorot's at M's end."""
        shapes = self.generator_shapes if kind == GENERATOR else self.transfer_shapes
        bounds = {name: he_bound(shape[1]) for name, shape in shapes.items() if name.endswith("weight")}
        if kind == TRANSFER:
            bounds[f"{TRANSFER}.second.weight"] = glorot_bound(self.latent, self.width)
        return uniform_start(shapes, bounds, seed)

    def generate(self, parameters: Mapping[str, Tensor], z: Tensor, labels: Tensor) -> Tensor:
        """v (n, width) of noise z (n, latent) and labels (n,)."""
        from torch import cat
        from torch.nn import functional

        wanted = functional.one_hot(labels, self.classes).to(z.dtype)
        inside = self._layer(parameters, f"{GENERATOR}.first", cat([z, wanted], dim=1)).relu()
        return self._layer(parameters, f"{GENERATOR}.second", inside).relu()

    def transfer(self, parameters: Mapping[str, Tensor], v: Tensor) -> Tensor:
        """The residuals (n, width) of v (n, width)."""
        return self._layer(parameters, f"{TRANSFER}.second", self._layer(parameters, f"{TRANSFER}.first", v).relu())

    def _layer(self, parameters: Mapping[str, Tensor], name: str, rows: Tensor) -> Tensor:
        gain, shift = parameters[f"{name}.{GAIN}"], parameters[f"{name}.{SHIFT}"]
        return normalise_rows(linear(parameters, f"{name}.", rows), gain, shift)


def size_of(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Numbers of all tensors of these shapes."""
    return sum(map(math.prod, shapes.values()))


def _two_layers(name: str, inputs: int, hidden: int, outputs: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, ends in (("first", (inputs, hidden)), ("second", (hidden, outputs))):
        shapes |= linear_shapes(f"{name}.{layer}", *ends)
        shapes |= {f"{name}.{layer}.{kind}": (ends[1],) for kind in (GAIN, SHIFT)}
    return shapes
