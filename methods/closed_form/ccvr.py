"""CCVR: a head trained on virtual features, from Gaussians whose moments are secure sums (Luo et al. 2021).

The paper's clients send count, mean and covariance of each class in the clear. What the server makes of them depends on
three sums alone: of each class the number of records, the sum of their features f, and the sum of f·fᵀ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from methods.closed_form.fedcgs import FedCGS
from methods.closed_form.refinement import release_noise
from methods.method import SimpleMethod, SumSpec, ZeroSums
from methods.round import Blocks, Contribution, Local, Noise, Opened, Step
from secagg.encoding import Block, Grid, Kind, accumulate
from secagg.errors import BadInput
from secagg.heads import ReleaseNoise
from secagg.heads.training import Recipe
from secagg.heads.virtual import calibrate, gaussians_of
from secagg.privacy import Adjacency, BlockSensitivity, BlockwiseSensitivity, Unit
from secagg.system.reading import refuse_larger

MOST = 1_000_000
RECIPE = Recipe("sgd", rate=0.04, epochs=20, batch=512, momentum=0.9, cosine=True)
"""The rate and momentum by which Guan et al. 2025 (section 4) train heads of one shot, for batches four times theirs:
every member trains the head again, to check it."""
SHARES = {"counts": 0.02, "class_sums": 0.58, "class_moments": 0.40}
"""Of μ², as where the classes share a second moment."""
POOLED = FedCGS()
"""The sums of a shared covariance."""


@dataclass(frozen=True)
class CCVR(SimpleMethod):
    """A softmax head trained on `virtual` draws of each class, N(μ_j, Σ_j), each class weighing as many as it has.

    `moments`: "class", the paper's, sums C·d(d+1)/2 numbers; with "pooled", Σ within all classes, one triangle. The
    paper calibrates the last layer of a model that FedAvg has trained; here features are frozen, and a head is trained
    from zero.
    """

    name: ClassVar[str] = "ccvr"
    libraries: ClassVar[tuple[str, ...]] = ("torch",)
    moments: Literal["class", "pooled"] = "class"
    virtual: int = 2000

    def __post_init__(self) -> None:
        if self.moments not in ("class", "pooled"):
            raise BadInput(f"no such moments: {self.moments!r}", remedy="give class or pooled")
        if not 1 <= self.virtual <= MOST:
            raise BadInput(f"{self.virtual} virtual features of a class", remedy=f"give 1 to {MOST}")

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """A record q adds 1 to a count, q to a class sum and q·qᵀ to its class's moment: ‖q·qᵀ‖_F ≤ R_q².

        Raises BadInput for draws that take more room than `data_limit`.
        """
        refuse_larger(f"{self.virtual} virtual features of {classes} classes", 8 * self.virtual * classes * dimension)
        if self.moments == "pooled":
            return POOLED.sums(dimension, classes, levels)
        triangle = dimension * (dimension + 1) // 2
        moved = (
            BlockSensitivity("counts", 1.0, classes, scalable=True),
            BlockSensitivity("class_sums", float(levels), classes * dimension),
            BlockSensitivity("class_moments", float(levels**2), classes * triangle),
        )
        return (
            SumSpec(
                blocks=(
                    Block("counts", (classes,), bound=1, kind=Kind.COUNTS),
                    Block("class_sums", (classes, dimension), bound=levels, kind=Kind.CLASS_SUMS),
                    Block("class_moments", (classes, triangle), bound=levels**2, kind=Kind.OTHER),
                ),
                sensitivities=tuple(BlockwiseSensitivity(Unit.RECORD, each, moved) for each in Adjacency),
                shares=SHARES,
                zero_sums=(
                    ZeroSums("class_sums", -1, dimension / 2),
                    ZeroSums("class_moments", None, levels * dimension / 2),
                ),
            ),
        )

    def contribute(self, local: Local) -> Contribution:
        """Exact integer sums (`secagg.encoding.accumulate`), of all records or of each class's."""
        examples, levels = local.examples, local.grid.levels
        if self.moments == "pooled":
            return POOLED.contribute(local)
        own = [examples.take(examples.labels == label) for label in range(local.classes)]
        parts = [accumulate(each.records, np.zeros(len(each), dtype=np.int64), 1, levels) for each in own]
        return Contribution(
            {
                "counts": np.concatenate([part["counts"] for part in parts]),
                "class_sums": np.concatenate([part["class_sums"] for part in parts]),
                "class_moments": np.stack([part["second_moment"] for part in parts]),
            }
        )

    def sanity_failures(self, blocks: Blocks, grid: Grid) -> list[str]:
        """Σ q·qᵀ of a class has a trace from 0 to N_j·R_q²; what a shared one has is known of its kind."""
        if "class_moments" not in blocks:
            return []
        dimension = blocks["class_sums"].shape[1]
        diagonal = np.cumsum([0, *range(dimension, 1, -1)])
        traces = blocks["class_moments"][:, diagonal].sum(axis=1)
        wrong = (traces < 0) | (traces > blocks["counts"] * grid.levels**2)
        return [f"the second moment of class {label} is none of its records" for label in np.flatnonzero(wrong)]

    def finalize(self, opened: Opened) -> Step:
        """The calibrated head. Raises BadInput without records."""
        gaussians = [each for part, noise in self._parts(opened) for each in gaussians_of(part, opened.grid, noise)]
        return Step(calibrate(gaussians, opened.grid, self.virtual, RECIPE))

    def _parts(self, opened: Opened) -> Iterator[tuple[Blocks, ReleaseNoise | None]]:
        """Classes with one covariance, and the noise on their moments."""
        blocks, noise = opened.blocks, opened.noise
        if self.moments == "pooled":
            yield blocks, release_noise(noise) if noise is not None else None
            return
        known = _noise_of_class(noise) if noise is not None else None
        for label, moment in enumerate(blocks["class_moments"]):
            rows = slice(label, label + 1)
            counts, sums = blocks["counts"][rows], blocks["class_sums"][rows]
            yield {"counts": counts, "class_sums": sums, "second_moment": moment}, known


def _noise_of_class(noise: Noise) -> ReleaseNoise:
    """That of one class's moments: its triangle has the same noise off the diagonal as on it, which √2 stands for."""
    sigma = noise["class_moments"].sigma * 2**0.5
    return ReleaseNoise(noise["counts"].sigma, noise["class_sums"].sigma, sigma, noise["counts"].multiplier)
