"""FedPCL: projections of one's own over frozen features, pulled to shared prototypes (Tan et al. 2022).

The loss is the paper's global term, Eq. 8, as the cross-entropy over all classes that it is meant to be: printed, its
denominator lacks the positive, and nothing bounds it below. The local term, Eq. 9 mended alike, contrasts a record with
every member's own prototypes, which hands these to all. So `exchange` says whose they are: of nobody (`none`); of fixed
groups of members, each large enough to hide a member (`groups`); or of every member (`published`), as the paper has it,
which only a plan that hides no vectors anyway may do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from methods.method import Fixed, Method
from methods.own_models.own_projection import Floats, OwnProjection
from secagg.errors import BadInput
from secagg.networks import MostSimilar, Nearest, Projecting, TrainedModel, project, similarities

if TYPE_CHECKING:
    from torch import Tensor

EXCHANGES = NONE, GROUPS, PUBLISHED = "none", "groups", "published"
MOST_GROUPS = 1000


@dataclass(frozen=True)
class FedPCL(OwnProjection):
    """Trains −log softmax_j(z·c_j/τ) at the label, c_j the shared means, τ the `temperature`; and the same by groups.

    The means are not normalised: the paper's are not. Own models: `global` predicts the most similar of the shared
    prototypes, `own` the nearest of the member's own (as the authors' code does), so no class that it has no record of.
    A plan has as many `groups` as its members, colluders and dropouts allow (`settle`), if asked for any.
    """

    name: ClassVar[str] = "fedpcl"
    temperature: float = 0.07
    exchange: str = NONE
    groups: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.temperature < math.inf:
            raise BadInput(f"the temperature is {self.temperature}", remedy="give a finite number above 0")
        if self.exchange not in EXCHANGES:
            raise BadInput(f"exchange is {self.exchange!r}", remedy=f"choose one of {', '.join(EXCHANGES)}")
        if self.groups not in range(MOST_GROUPS + 1) or self.groups == 1 or (self.exchange == NONE and self.groups):
            problem = f"{self.groups} groups with the exchange {self.exchange}"
            raise BadInput(problem, remedy=f"leave them to the plan, or give 2 to {MOST_GROUPS} with an exchange")

    @property
    def cohorts(self) -> int:
        """`groups`."""
        if self.exchange != NONE and not self.groups:
            raise BadInput(f"the exchange {self.exchange} takes groups", remedy="a plan decides them; or give groups")
        return self.groups or 1

    def settle(self, fixed: Fixed) -> Method:
        """As many groups as leave each two honest members at least, or one for each member. Raises BadInput."""
        if self.exchange == NONE or self.groups:
            return self
        if self.exchange == PUBLISHED:
            return replace(self, groups=fixed.clients)
        least = fixed.colluders + fixed.dropouts + 2
        if fixed.clients < 2 * least:
            raise BadInput(
                f"{fixed.clients} members are too few for two groups of {least}: {fixed.colluders} that may collude, "
                f"{fixed.dropouts} that may vanish, and two more",
                remedy="choose the exchange none, or have more members",
            )
        return replace(self, groups=min(fixed.clients // least, MOST_GROUPS))

    def local_program(self, dimension: int, prototypes: Floats) -> Projecting:
        """The projection alone is trained."""
        return Contrast(dimension, prototypes.shape[1], self.width, prototypes, self.temperature)

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
    """Scores z·c_j/τ over sets of fixed prototypes (S, C, width); a class without one is in no denominator.

    The first set is all members', the others groups': the loss is the first's cross-entropy and the others' mean.
    """

    prototypes: Floats = field(repr=False, compare=False)
    temperature: float

    @property
    def name(self) -> str:
        """Such as contrast:256. No file holds it."""
        return f"contrast:{self.width}"

    def scores(self, parameters: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """z·c_j/τ, by all members' prototypes."""
        return similarities(z, z.new_tensor(self.prototypes[0])) / self.temperature

    def loss(self, parameters: Mapping[str, Tensor], x: Tensor, labels: Tensor) -> Tensor:
        """L_g + L_p (Eq. 10); L_g alone where there are no groups."""
        from torch.nn import functional

        z = project(parameters, x)
        every, *others = (similarities(z, each) / self.temperature for each in z.new_tensor(self.prototypes))
        found = functional.cross_entropy(every, labels)
        for each in others:
            found = found + functional.cross_entropy(each, labels) / len(others)
        return found
