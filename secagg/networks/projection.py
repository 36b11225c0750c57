"""Programs that project a record to z, of unit length and with no negative entry, and tell classes apart by z.

z = h/‖h‖ with h = ReLU(W·x) in `width` dimensions (Tan et al. 2022, "Federated Learning from Pre-Trained Models"), 0
where h is. A class whose prototype is all zeros has none, and is never predicted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from secagg.errors import BadInput
from secagg.heads.linear import ABSENT_BIAS
from secagg.networks.programs import BuiltIn, glorot_bound, he_bound

if TYPE_CHECKING:
    from torch import Tensor

WEIGHT, PROTOTYPES, HEAD, HEAD_BIAS = "weight", "prototypes", "head.weight", "head.bias"


@dataclass(frozen=True)
class Projecting(BuiltIn):
    """`weight` W (width, d) comes first; what is done with z is the program's own."""

    width: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width < 1:
            raise BadInput(f"a projection to {self.width} dimensions")

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is, and to how many dimensions it projects."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The projection alone."""
        return {WEIGHT: (self.width, self.dimension)}

    @property
    def bounds(self) -> Mapping[str, float]:
        """He's before the ReLU."""
        return {WEIGHT: he_bound(self.dimension)}

    def logits(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Scores (n, C) of records (n, d)."""
        return self.scores(parameters, project(parameters, x))

    @abstractmethod
    def scores(self, parameters: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """Return scores (n, C) of projected records z (n, width)."""


@dataclass(frozen=True)
class _WithPrototypes(Projecting):
    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The projection, and `prototypes` (C, width)."""
        return {**super().shapes, PROTOTYPES: (self.classes, self.width)}

    @property
    def bounds(self) -> Mapping[str, float]:
        """He's, and Glorot's for the prototypes."""
        return {**super().bounds, PROTOTYPES: glorot_bound(self.width, self.classes)}


@dataclass(frozen=True)
class MostSimilar(_WithPrototypes):
    """The class j of the largest z·c_j."""

    @property
    def name(self) -> str:
        """Such as similar:256."""
        return f"similar:{self.width}"

    def scores(self, parameters: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """z·c_j."""
        return similarities(z, parameters[PROTOTYPES])


@dataclass(frozen=True)
class Nearest(_WithPrototypes):
    """The class j of the smallest ‖z − c_j‖."""

    @property
    def name(self) -> str:
        """Such as nearest:256."""
        return f"nearest:{self.width}"

    def scores(self, parameters: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """2·z·c_j − ‖c_j‖²: what tells the classes apart in −‖z − c_j‖²."""
        prototypes = parameters[PROTOTYPES]
        return 2 * similarities(z, prototypes) - prototypes.square().sum(dim=1)


@dataclass(frozen=True)
class ByHead(Projecting):
    """A linear head on z."""

    @property
    def name(self) -> str:
        """Such as projected:256."""
        return f"projected:{self.width}"

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The projection, `head.weight` (C, width) and `head.bias` (C,)."""
        return {**super().shapes, HEAD: (self.classes, self.width), HEAD_BIAS: (self.classes,)}

    @property
    def bounds(self) -> Mapping[str, float]:
        """He's, and Glorot's for the head."""
        return {**super().bounds, HEAD: glorot_bound(self.width, self.classes)}

    def scores(self, parameters: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """The head's."""
        from torch.nn import functional

        return functional.linear(z, parameters[HEAD], parameters[HEAD_BIAS])


def project(parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return z (n, width) of records (n, d)."""
    from torch.nn import functional

    return functional.normalize(functional.linear(x, parameters[WEIGHT]).relu())


def similarities(z: Tensor, prototypes: Tensor) -> Tensor:
    """Return z·c_j (n, C); a class without a prototype is as far away as can be."""
    return (z @ prototypes.T).masked_fill((prototypes == 0).all(dim=1), float(ABSENT_BIAS))
