"""FedProto: every client trains a classifier whose projections are held near shared prototypes (Tan et al. 2022, AAAI).

The parts that members share and keep are those of FedPCL, so that the two compare: frozen features, a projection of
unit length, and a first round in which nothing is trained. The regulariser is per record, as in the authors' code; the
paper's Eq. 6 has it per class mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from methods.own_models.local_projection import Floats, LocalProjection
from secagg.networks import Projecting, TrainedModel
from secagg.networks.projection import ByHead, Nearest, project
from secagg.wire import Range

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedProto(LocalProjection):
    """The method FedProto: clients train projection z and head by cross-entropy + `pull`·‖z − prototype c_y‖².

    c_y is the shared prototype of a record's class.
    Own models: `global` predicts the nearest of the shared prototypes (the paper's rule), `head` by the member's head.
    """

    name: ClassVar[str] = "fedproto"
    pull: Annotated[
        float, Range(0, math.inf, below=True), "Weight of a projection's squared distance to its class prototype"
    ] = 1.0

    def local_program(self, dimension: int, prototypes: Floats) -> Projecting:
        return Pull(dimension, prototypes.shape[1], self.width, prototypes[0], self.pull)

    def own_models(
        self, kept: Mapping[str, NDArray[np.float32]], shared: Floats, own: Floats
    ) -> dict[str, TrainedModel]:
        shape = kept["weight"].shape[1], len(shared), self.width
        near = {"weight": kept["weight"], "prototypes": shared.astype(np.float32)}
        return {"global": TrainedModel(Nearest(*shape), near), "head": TrainedModel(ByHead(*shape), kept)}


@dataclass(frozen=True)
class Pull(ByHead):
    """A network with a linear head on projections z; its loss pulls z to fixed class prototypes (C, width)."""

    prototypes: Floats = field(repr=False, compare=False)
    pull: float

    def loss(self, parameters: Mapping[str, Tensor], x: Tensor, labels: Tensor) -> Tensor:
        """Return the mean of cross-entropy plus `pull`·‖z − c_y‖², with c_y the prototype of a record's class."""
        from torch.nn import functional

        z = project(parameters, x)
        apart = (z - z.new_tensor(self.prototypes)[labels]).square().sum(dim=1)
        return functional.cross_entropy(self.scores(parameters, z), labels) + self.pull * apart.mean()
