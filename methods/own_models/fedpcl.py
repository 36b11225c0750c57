"""FedPCL: every client trains a projection of frozen features, pulled to shared prototypes (Tan et al. 2022).

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
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from methods.method import Fixed, Method
from methods.own_models.local_projection import Floats, LocalProjection
from secagg.errors import BadInput
from secagg.networks import Projecting, TrainedModel
from secagg.networks.projection import MostSimilar, Nearest, project, similarities
from secagg.wire import Range

if TYPE_CHECKING:
    from torch import Tensor

MOST_GROUPS = 1000


@dataclass(frozen=True)
class FedPCL(LocalProjection):
    """The method FedPCL: clients train projections z by a contrastive loss −log softmax_j(z·c_j/τ) to shared means c_j.

    The means are not normalised: the paper's are not. Own models: `global` predicts the most similar of the shared
    prototypes, `padded` the most similar of the member's own, with the shared one of a class that it has no record of
    (the paper's rule, section 4), `own` the nearest of its own alone (the authors' code), so no class that it lacks.
    A plan has as many `groups` as its members, colluders and dropouts allow (`resolve`), if asked for any.
    """

    name: ClassVar[str] = "fedpcl"
    temperature: Annotated[
        float, Range(0, math.inf, above=True, below=True), "Number by which the loss divides similarities"
    ] = 0.07
    exchange: Annotated[
        Literal["none", "groups", "published"], "Further prototypes that members get: none, of groups, of every member"
    ] = "none"
    groups: Annotated[int, f"Groups of members, 2 to {MOST_GROUPS}; 0: none, or with an exchange the plan's choice"] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups not in range(MOST_GROUPS + 1) or self.groups == 1 or (self.exchange == "none" and self.groups):
            problem = f"{self.groups} groups with the exchange {self.exchange}"
            raise BadInput(problem, remedy=f"leave them to the plan, or give 2 to {MOST_GROUPS} with an exchange")

    @property
    def cohorts(self) -> int:
        if self.exchange != "none" and not self.groups:
            raise BadInput(f"the exchange {self.exchange} takes groups", remedy="a plan decides them; or give groups")
        return self.groups or 1

    def resolve(self, fixed: Fixed) -> Method:
        """Return the method with the number of client `groups` decided from the plan. Raises BadInput.

        With the exchange "published" one group per client; else as many groups as hold two honest members each.
        """
        if self.exchange == "none" or self.groups:
            return self
        if self.exchange == "published":
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
        return Contrast(dimension, prototypes.shape[1], self.width, prototypes, self.temperature)

    def own_models(
        self, kept: Mapping[str, NDArray[np.float32]], shared: Floats, own: Floats
    ) -> dict[str, TrainedModel]:
        shape = kept["weight"].shape[1], len(shared), self.width
        padded = np.where(own.any(axis=1, keepdims=True), own, shared)
        rules = {"global": (MostSimilar, shared), "own": (Nearest, own), "padded": (MostSimilar, padded)}
        return {
            name: TrainedModel(rule(*shape), {**kept, "prototypes": prototypes.astype(np.float32)})
            for name, (rule, prototypes) in rules.items()
        }


@dataclass(frozen=True)
class Contrast(Projecting):
    """A network that scores a projection z by z·c_j/τ for fixed prototypes c_j of classes, in S sets (S, C, width).

    Absent classes are left out.
    The first set is all members', the others groups': the loss is the first's cross-entropy and the others' mean.
    """

    form = "contrast:{}"  # no file holds it
    prototypes: Floats = field(repr=False, compare=False)
    temperature: float

    def scores(self, parameters: Mapping[str, Tensor], z: Tensor) -> Tensor:
        return similarities(z, z.new_tensor(self.prototypes[0])) / self.temperature

    def loss(self, parameters: Mapping[str, Tensor], x: Tensor, labels: Tensor) -> Tensor:
        """Return the contrastive loss (Eq. 10) to the shared prototypes and, if there are groups, to the groups'."""
        from torch.nn import functional

        z = project(parameters, x)
        every, *others = (similarities(z, each) / self.temperature for each in z.new_tensor(self.prototypes))
        found = functional.cross_entropy(every, labels)
        for each in others:
            found = found + functional.cross_entropy(each, labels) / len(others)
        return found
