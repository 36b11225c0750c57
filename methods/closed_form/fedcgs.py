"""FedCGS: a Gaussian classifier from federated counts, class sums and second moment (Guan et al.)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from methods.closed_form.refinement import AUTO, MAX_ROUNDS, RefinementRound, gradient_sum, release_noise, rounds_for
from methods.method import Fixed, Method, SimpleMethod, SumSpec, Traits, ZeroSums
from methods.round import Contribution, Local, OpenedTotal, Round, Step
from secagg.encoding import Grid, accumulate
from secagg.encoding.layout import Block, Kind
from secagg.errors import BadInput
from secagg.heads import Artifact, parse_safetensors
from secagg.heads.discriminant import RIDGE, Covariance, discriminant, nearest_mean, noise_aware_discriminant
from secagg.heads.refinement import FIRST_SHARE, FIRST_SHARES
from secagg.privacy import Adjacency, MomentSensitivity
from secagg.wire import Range, require_in_range


@dataclass(frozen=True)
class FedCGS(SimpleMethod):
    """The method FedCGS: a Gaussian classifier from counts N (C,), class sums A (C, d) and second moment B.

    `covariance`: "within" (what the paper's classifier assumes) or "total" (what the paper computes).
    `ridge` γ ≥ 0 adds γ·tr(Σ)/d to the covariance's diagonal. Both hold for exact sums; under noise the covariance is
    the one within classes and its ridge follows from the noise (`secagg.heads.noise_aware_discriminant`).
    `refine` k ≥ 0 rounds of clipped softmax gradients follow the first sum (`refinement.py`); AUTO leaves their number
    to the plan.
    `personalise` 1: the head carries the class means μ for local adaptation, the paper's one more download. They are a
    function of the sum that is released anyway and cost no further ε, but tell members more than the head alone does.
    """

    name: ClassVar[str] = "fedcgs"
    covariance: Annotated[Covariance, "Covariance of the classifier: within classes, or of all records"] = "within"
    ridge: Annotated[
        float, Range(0, math.inf, below=True), "Share of its mean diagonal entry added to the covariance, without noise"
    ] = RIDGE
    refine: Annotated[
        int, f"Rounds of refinement after the first sum, 0 to {MAX_ROUNDS}; {AUTO}: the plan's choice"
    ] = 0
    personalise: Annotated[int, Range(0, 1), "1: the head holds the class means, by which members adapt it"] = 0

    def __post_init__(self) -> None:
        require_in_range(self)
        if self.refine != AUTO and self.refine not in range(MAX_ROUNDS + 1):
            raise BadInput(f"{self.refine} refinement rounds", remedy=f"give a whole number from 0 to {MAX_ROUNDS}")
        if self.personalise and self.refine not in (0, AUTO):
            raise BadInput("a refined head stands behind a recentring, and is not adapted", remedy="give one of both")

    def resolve(self, fixed: Fixed) -> Method:
        """Return the method with AUTO refinement rounds resolved: 0 with `personalise`, else the number that helps."""
        if self.refine != AUTO:
            return self
        return replace(self, refine=0 if self.personalise else rounds_for(fixed))

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """Return the specifications of the sums: counts, class sums and second moment; gradients if `refine` > 0.

        A record adds ≤ 1 to a count, ≤ R_q to entries of A and ≤ R_q² to B's (`MomentSensitivity`).

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
        """Requirements of refinement rounds (else none): norm-1 records, and the last opened sum for clients."""
        return replace(super().traits, needs_unit_length=self.refine > 0, shows_last_sum=self.refine > 0)

    def contribute(self, local: Local) -> Contribution:
        """Return counts N, class sums A and second moment B of a client's records (Eqs. 3 to 5), in exact integers."""
        examples = local.examples
        return Contribution(accumulate(examples.records, examples.labels, local.classes, local.grid.levels))

    def finalize(self, opened: OpenedTotal) -> Step:
        """Return the head by the paper's Eqs. 9 to 11, corrected; in their noise-aware form if the sum has noise."""
        blocks, grid, noise = opened.blocks, opened.grid, opened.noise
        if noise is None:
            head = discriminant(blocks, grid, covariance=self.covariance, ridge=self.ridge)
        else:
            head = noise_aware_discriminant(blocks, grid, release_noise(noise))
        if self.personalise:
            means = nearest_mean(blocks, grid, noise).weight
            offset = np.float32(0.0 if grid.is_normalised else grid.centre)
            head = replace(head, means=np.where(head.present[:, None], means + offset, np.float32(0)))
        return Step(head, RefinementRound.first(opened, self.refine) if self.refine else None)

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        if not self.refine:
            return super().decode_broadcast(broadcast, grid)
        return RefinementRound.read_first(broadcast, grid, self.refine)

    def read_artifact(self, content: bytes) -> tuple[Artifact, dict[str, str]]:
        """Read a head and its metadata; class means are required if `personalise`, else refused. Raises BadInput."""
        head, texts = parse_safetensors(content)
        if (head.means is not None) != bool(self.personalise):
            raise BadInput("the plan says otherwise about class means beside the head")
        return head, texts
