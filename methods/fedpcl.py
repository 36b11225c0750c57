"""FedPCL: projections of one's own over frozen features, pulled to shared prototypes (Tan et al. 2022).

The loss is the paper's global term, Eq. 8, as the cross-entropy over all classes that it is meant to be: printed, its
denominator lacks the positive, and nothing bounds it below. There is no local term, Eq. 9: it hands every member's own
prototypes to every other. The authors' code trains by the local term alone, in another form; this is not that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from methods.own_projection import Floats, OwnProjection
from secagg.errors import BadInput
from secagg.models import MostSimilar, Nearest, Projecting, TrainedModel, similarities

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedPCL(OwnProjection):
    """Trains −log softmax_j(z·c_j/τ) at the label, c_j the shared means, τ the `temperature`.

    The means are not normalised: the paper's are not. Own models: `global` predicts the most similar of the shared
    prototypes, `own` the nearest of the member's own (as the authors' code does), so no class that it has no record of.
    """

    name: ClassVar[str] = "fedpcl"
    temperature: float = 0.07

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.temperature < math.inf:
            raise BadInput(f"the temperature is {self.temperature}", remedy="give a finite number above 0")

    def local_program(self, dimension: int, prototypes: Floats) -> Projecting:
        """The projection alone is trained."""
        return Contrast(dimension, len(prototypes), self.width, prototypes, self.temperature)

    def own_models(
        self, kept: Mapping[str, NDArray[np.float32]], shared: Floats, own: Floats
    ) -> dict[str, TrainedModel]:
        """`global` and `own`."""
        shape = kept["weight"].shape[1], len(shared), self.width
        return {
            "global": TrainedModel(MostSimilar(*shape), {**kept, "prototypes": shared.astype(np.float32)}),
            "own": TrainedModel(Nearest(*shape), {**kept, "prototypes": own.astype(np.float32)}),
        }


@dataclass(frozen=True)
class Contrast(Projecting):
    """Scores z·c_j/τ over fixed prototypes (C, width); a class without one is in no denominator."""

    prototypes: Floats = field(repr=False, compare=False)
    temperature: float

    @property
    def name(self) -> str:
        """Such as contrast:256. No file holds it."""
        return f"contrast:{self.width}"

    def scores(self, parameters: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """z·c_j/τ."""
        return similarities(z, z.new_tensor(self.prototypes)) / self.temperature
