"""Networks that project a record to z, of unit length and with no negative entry, and classify by z.

z = h/‖h‖ with h = ReLU(W·x) in `width` dimensions (Tan et al. 2022, "Federated Learning from Pre-Trained Models"), 0
where h is. A class whose prototype is all zeros has none, and is never predicted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from secagg.errors import BadInput
from secagg.heads.linear import ABSENT_BIAS
from secagg.networks.programs import BuiltIn, glorot_bound, he_bound

if TYPE_CHECKING:
    from torch import Tensor

WEIGHT, PROTOTYPES, HEAD, HEAD_BIAS = "weight", "prototypes", "head.weight", "head.bias"


@dataclass(frozen=True)
class Projecting(BuiltIn):
    """A network that projects records by `weight` W (width, d), its first tensor, and scores the projections z."""

    form: ClassVar[str]
    """The program's name, with {} for the number of dimensions that it projects to."""

    width: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width < 1:
            raise BadInput(f"a projection to {self.width} dimensions")

    @property
    def name(self) -> str:
        """Name of the network, for example similar:256."""
        return self.form.format(self.width)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {WEIGHT: (self.width, self.dimension)}

    @property
    def bounds(self) -> Mapping[str, float]:
        return {WEIGHT: he_bound(self.dimension)}

    def logits(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return self.scores(parameters, project(parameters, x))

    @abstractmethod
    def scores(self, parameters: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """Return scores (n, C) of projected records z (n, width)."""


@dataclass(frozen=True)
class _WithPrototypes(Projecting):
    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {**super().shapes, PROTOTYPES: (self.classes, self.width)}

    @property
    def bounds(self) -> Mapping[str, float]:
        return {**super().bounds, PROTOTYPES: glorot_bound(self.width, self.classes)}


@dataclass(frozen=True)
class MostSimilar(_WithPrototypes):
    """A network that predicts the class whose prototype c_j has the largest inner product with the projection z."""

    form = "similar:{}"

    def scores(self, parameters: Mapping[str, Tensor], z: Tensor) -> Tensor:
        return similarities(z, parameters[PROTOTYPES])


@dataclass(frozen=True)
class Nearest(_WithPrototypes):
    """A network that predicts the class whose prototype c_j is nearest to the projection z, by ‖z − c_j‖."""

    form = "nearest:{}"

    def scores(self, parameters: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """Return 2·z·c_j − ‖c_j‖² for class prototypes c_j: the part of −‖z − c_j‖² that differs between classes."""
        prototypes = parameters[PROTOTYPES]
        return 2 * similarities(z, prototypes) - prototypes.square().sum(dim=1)


@dataclass(frozen=True)
class ByHead(Projecting):
    """A network with a linear head on the projections z of records."""

    form = "projected:{}"

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {**super().shapes, HEAD: (self.classes, self.width), HEAD_BIAS: (self.classes,)}

    @property
    def bounds(self) -> Mapping[str, float]:
        return {**super().bounds, HEAD: glorot_bound(self.width, self.classes)}

    def scores(self, parameters: Mapping[str, Tensor], z: Tensor) -> Tensor:
        from torch.nn import functional

        return functional.linear(z, parameters[HEAD], parameters[HEAD_BIAS])


def project(parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return the projections z (n, width) of records (n, d), ReLU outputs normalised to L2 norm 1."""
    from torch.nn import functional

    return functional.normalize(functional.linear(x, parameters[WEIGHT]).relu())


def similarities(z: Tensor, prototypes: Tensor) -> Tensor:
    """Return the inner products z·c_j (n, C) with class prototypes c_j; a class without prototype scores lowest."""
    return (z @ prototypes.T).masked_fill((prototypes == 0).all(dim=1), float(ABSENT_BIAS))
