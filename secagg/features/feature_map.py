"""A backbone, and after it the random expansion where there is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.features.backbone import Backbone, Features, digest_of
from secagg.features.encoder import Encoder
from secagg.features.expansion import Expansion
from secagg.features.latents import Latents


@dataclass(frozen=True)
class FeatureMap:
    """Everything between a record's input and its feature vector; itself a `Backbone`."""

    backbone: Backbone
    expansion: Expansion | None = None

    @property
    def name(self) -> str:
        """The backbone's name, with the size of the expansion."""
        return self.backbone.name if self.expansion is None else f"{self.backbone.name} → {self.expansion.size}"

    @property
    def digest(self) -> str:
        """The backbone's digest; with an expansion, SHA-256 over both digests."""
        if self.expansion is None:
            return self.backbone.digest
        return digest_of(f"secagg feature map v1: {self.backbone.digest} {self.expansion.digest}")

    @property
    def dimension(self) -> int:
        """Length d of a feature vector."""
        return self.backbone.dimension if self.expansion is None else self.expansion.size

    @property
    def notes(self) -> tuple[str, ...]:
        """The backbone's."""
        return self.backbone.notes

    def extract(self, inputs: NDArray[Any]) -> Features:
        """Map inputs (n, …) to features (n, d) float64; row i depends on record i alone."""
        features = self.backbone.extract(inputs)
        return features if self.expansion is None else self.expansion.expand(features)

    @property
    def encoder(self) -> Encoder:
        """The encoder that adapters sit in. Raises BadInput for another backbone, or one that is expanded."""
        if not isinstance(self.backbone, Encoder) or self.expansion is not None:
            problem = f"the backbone {self.name} has no places for adapters"
            raise BadInput(problem, remedy="give --backbone transformers:FOLDER, without an expansion")
        return self.backbone

    @property
    def latents(self) -> Latents:
        """The autoencoder of a diffusion model. Raises BadInput for another backbone, or one that is expanded."""
        if not isinstance(self.backbone, Latents) or self.expansion is not None:
            problem = f"the backbone {self.name} gives no latents of a diffusion model"
            raise BadInput(problem, remedy="give --backbone diffusers:FOLDER, without an expansion")
        return self.backbone

    def bound(self, input_bound: float | None, /) -> float | None:
        """Public L2 bound of a feature vector; None when the backbone has none."""
        bound = self.backbone.bound(input_bound)
        if bound is None or self.expansion is None:
            return bound
        return self.expansion.bound(self.backbone.dimension, bound)
