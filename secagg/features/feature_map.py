"""Feature maps: a backbone, its random expansion if there is one, and the public bound R on the features' L2 norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.encoding.grid import round_up
from secagg.errors import BadInput
from secagg.features.backbone import Backbone, Features, digest_of
from secagg.features.encoder import Encoder
from secagg.features.expansion import Expansion
from secagg.features.latents import Latents


@dataclass(frozen=True)
class FeatureMap(Backbone):
    """A map from records' inputs to feature vectors: a backbone, then an expansion if there is one."""

    backbone: Backbone
    expansion: Expansion | None = None

    @property
    def name(self) -> str:
        return self.backbone.name if self.expansion is None else f"{self.backbone.name} → {self.expansion.size}"

    @property
    def digest(self) -> str:
        """The backbone's digest or, with an expansion, SHA-256 over the digests of backbone and expansion."""
        if self.expansion is None:
            return self.backbone.digest
        return digest_of(f"secagg feature map v1: {self.backbone.digest} {self.expansion.digest}")

    @property
    def dimension(self) -> int:
        return self.backbone.dimension if self.expansion is None else self.expansion.size

    @property
    def notes(self) -> tuple[str, ...]:
        return self.backbone.notes

    def extract(self, inputs: NDArray[Any]) -> Features:
        features = self.backbone.extract(inputs)
        return features if self.expansion is None else self.expansion.expand(features)

    @property
    def encoder(self) -> Encoder:
        """The backbone as an encoder that can hold adapters.

        Raises BadInput if the backbone is of another kind, or an expansion follows it.
        """
        if not isinstance(self.backbone, Encoder) or self.expansion is not None:
            problem = f"the backbone {self.name} has no places for adapters"
            raise BadInput(problem, remedy="give --backbone transformers:FOLDER, without an expansion")
        return self.backbone

    @property
    def latents(self) -> Latents:
        """The backbone as a diffusion model's autoencoder.

        Raises BadInput if the backbone is of another kind, or an expansion follows it.
        """
        if not isinstance(self.backbone, Latents) or self.expansion is not None:
            problem = f"the backbone {self.name} gives no latents of a diffusion model"
            raise BadInput(problem, remedy="give --backbone diffusers:FOLDER, without an expansion")
        return self.backbone

    def bound(self, input_bound: float | None, /) -> float | None:
        bound = self.backbone.bound(input_bound)
        if bound is None or self.expansion is None:
            return bound
        return self.expansion.bound(self.backbone.dimension, bound)


LONGEST = 2.0**100
"""Greatest radius, and inverse of the least: a head's float32 weights are as small as features are large."""


def radius_of(features: Features, centre: float = 0.0) -> float:
    """Return the radius of features (n, d), the largest ‖f − c‖₂ (c: the centre), rounded up to 8 significant bits.

    For simulation: it looks at every record. Rounding hides how the maximum's last bits were summed, so
    the order of the records does not matter. Raises BadInput when no record has a finite positive norm, and for one
    beyond what a head's float32 weights can undo.
    """
    norms = lengths_of(features, centre)
    finite = norms[np.isfinite(norms)]
    largest = float(finite.max()) if len(finite) else 0.0
    if largest <= 0.0:
        raise BadInput("every feature vector is zero (or none is finite)", remedy="check the backbone and the data")
    if not 1 / LONGEST <= largest <= LONGEST:
        remedy = f"scale the features to lengths from {1 / LONGEST:.0e} to {LONGEST:.0e}, or normalise them"
        raise BadInput(f"the longest feature vector has the length {largest:.3g}", remedy=remedy)
    return round_up(largest)


def lengths_of(features: Features, centre: float = 0.0) -> Features:
    """Return the L2 distances ‖f − c‖₂ (n,) of features (n, d) from the centre c; NaN or infinite if not computable.

    Rows are scaled by a power of two, which is exact, so that no square overflows.
    """
    rows = np.ascontiguousarray(features) - centre
    with np.errstate(over="ignore", invalid="ignore"):
        exponent = np.frexp(np.abs(rows).max(axis=1, initial=0.0))[1]
        return np.asarray(np.ldexp(np.linalg.norm(np.ldexp(rows, -exponent[:, None]), axis=1), exponent))
