"""FedCGS: a Gaussian classifier from federated counts, class sums and second moment (Guan et al.)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from methods.closed_form.prototypes import nearest_mean
from methods.closed_form.refinement import AUTO, MAX_ROUNDS, RefinementRound, gradient_sum, release_noise, rounds_for
from methods.method import Fixed, Method, SimpleMethod, SumSpec, Traits, ZeroSums
from methods.round import Blocks, Contribution, Local, Noise, Opened, Round, Step
from secagg.encoding import Grid, accumulate
from secagg.encoding.layout import Block, Kind
from secagg.errors import BadInput
from secagg.heads import Artifact, LinearHead, discriminant, noise_aware_discriminant, parse_safetensors
from secagg.heads.discriminant import RIDGE, Covariance
from secagg.heads.refinement import FIRST_SHARE, FIRST_SHARES
from secagg.privacy import Adjacency, MomentSensitivity


@dataclass(frozen=True)
class FedCGS(SimpleMethod):
    """Counts N (C,), class sums A (C, d), upper triangle of the second moment B: C + C·d + d(d+1)/2 numbers.

    `covariance`: "within" (what the paper's classifier assumes) or "total" (what the paper computes).
    `ridge` γ ≥ 0 adds γ·tr(Σ)/d to the covariance's diagonal. Both hold for exact sums; under noise the covariance is
    the one within classes and its ridge follows from the noise (`secagg.heads.noise_aware_discriminant`).
    `refine` k ≥ 0 rounds of clipped softmax gradients follow the first sum (`refinement.py`); AUTO leaves their number
    to the plan.
    `personalise` 1: the head carries the class means μ for local adaptation, the paper's one more download. They are a
    function of the sum that is released anyway and cost no further ε, but tell members more than the head alone does.
    """

    name: ClassVar[str] = "fedcgs"
    covariance: Covariance = "within"
    ridge: float = RIDGE
    refine: int = 0
    personalise: int = 0

    def __post_init__(self) -> None:
        if self.covariance not in ("within", "total"):
            raise BadInput(f"unknown covariance {self.covariance!r}", remedy="give within or total")
        if not (math.isfinite(self.ridge) and self.ridge >= 0):
            raise BadInput(f"the ridge is {self.ridge}", remedy="give a number of 0 or more")
        if self.refine != AUTO and self.refine not in range(MAX_ROUNDS + 1):
            raise BadInput(f"{self.refine} refinement rounds", remedy=f"give a whole number from 0 to {MAX_ROUNDS}")
        if self.personalise not in (0, 1):
            raise BadInput(f"personalise is {self.personalise}", remedy="give 0 or 1")
        if self.personalise and self.refine not in (0, AUTO):
            raise BadInput("a refined head stands behind a recentring, and is not adapted", remedy="give one of both")

    def settle(self, fixed: Fixed) -> Method:
        """With the rounds that pay where their number was left to the plan; none where the head is to be adapted."""
        if self.refine != AUTO:
            return self
        return replace(self, refine=0 if self.personalise else rounds_for(fixed))

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """One record adds ≤ 1 to a count, ≤ R_q to an entry of A and ≤ R_q² to one of B (`MomentSensitivity`).

        Raises BadInput while the number of rounds is left open.
        """
        if self.refine == AUTO:
            raise BadInput("the number of refinement rounds is left open", remedy="have the plan written by plan new")
        triangle = dimension * (dimension + 1) // 2
        moments = SumSpec(
            blocks=(
                Block("counts", (classes,), bound=1, kind=Kind.COUNTS),
                Block("class_sums", (classes, dimension), bound=levels, kind=Kind.CLASS_SUMS),
                Block("second_moment", (triangle,), bound=levels * levels, kind=Kind.SECOND_MOMENT),
            ),
            sensitivities=tuple(MomentSensitivity(each, classes, dimension, levels) for each in Adjacency),
            shares="moments",
            zero_sums=(
                ZeroSums("class_sums", -1, dimension / 2),
                ZeroSums("second_moment", None, levels * dimension / 2),
            ),
        )
        if not self.refine:
            return (moments,)
        first = replace(moments, shares=FIRST_SHARES, budget=FIRST_SHARE)
        return (first, gradient_sum(dimension, classes, self.refine))

    @property
    def traits(self) -> Traits:
        """Where it refines, gradients are clipped by the length that all records have, and members step along."""
        return replace(super().traits, needs_unit_length=self.refine > 0, shows_last_sum=self.refine > 0)

    def contribute(self, local: Local) -> Contribution:
        """Paper Eq. 3–5, in exact integers (`secagg.encoding.accumulate`)."""
        examples = local.examples
        return Contribution(accumulate(examples.records, examples.labels, local.classes, local.grid.levels))

    def finalize(self, opened: Opened) -> Step:
        """The head, and the first refinement round if there is to be any."""
        head = self._head(opened.blocks, opened.grid, opened.noise)
        return Step(head, RefinementRound.first(opened, self.refine) if self.refine else None)

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        """The first refinement round."""
        if not self.refine:
            return super().decode_broadcast(broadcast, grid)
        return RefinementRound.read_first(broadcast, grid, self.refine)

    def read_artifact(self, content: bytes) -> tuple[Artifact, dict[str, str]]:
        """A head, with class means if and only if it is to be personalised. Raises BadInput."""
        head, texts = parse_safetensors(content)
        if (head.means is not None) != bool(self.personalise):
            raise BadInput("the plan says otherwise about class means beside the head")
        return head, texts

    def _head(self, blocks: Blocks, grid: Grid, noise: Noise | None) -> LinearHead:
        """Paper Eq. 9–11 with their errata (`secagg.heads.discriminant`), or its noise-aware form."""
        if noise is None:
            head = discriminant(blocks, grid, covariance=self.covariance, ridge=self.ridge)
        else:
            head = noise_aware_discriminant(blocks, grid, release_noise(noise))
        if not self.personalise:
            return head
        means = nearest_mean(blocks, grid, noise).weight
        offset = np.float32(0.0 if grid.is_normalised else grid.centre)
        return replace(head, means=np.where(head.present[:, None], means + offset, np.float32(0)))
