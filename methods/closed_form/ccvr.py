"""CCVR: a head trained on virtual features, from Gaussians whose moments are secure sums (Luo et al. 2021).

The paper's clients send count, mean and covariance of each class in the clear. What the server makes of them depends on
three sums alone: of each class the number of records, the sum of their features f, and the sum of f·fᵀ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import ndtri

from methods.closed_form.fedcgs import FedCGS
from methods.closed_form.refinement import release_noise
from methods.method import SimpleMethod, SumSpec, ZeroSums
from methods.round import Blocks, Contribution, Local, OpenedTotal, Step
from secagg.crypto.labels import digest
from secagg.encoding import Block, Grid, Kind, accumulate, full_matrix
from secagg.errors import BadInput
from secagg.heads import ReleaseNoise
from secagg.heads.descent import Recipe, train
from secagg.heads.discriminant import denoise, in_feature_units, read_release, unbiased_scatter, within_scatter
from secagg.heads.linear import ABSENT_BIAS, LinearHead
from secagg.privacy import Adjacency, BlockSensitivity, BlockwiseSensitivity, MomentSensitivity
from secagg.system.reading import refuse_larger
from secagg.wire import Range, require_in_range

Floats = NDArray[np.float64]


MOST = 1_000_000
RECIPE = Recipe("sgd", rate=0.04, epochs=20, batch=512, momentum=0.9, cosine=True)
"""The rate and momentum with which Guan et al. 2025 (section 4) train one-shot heads, for batches four times theirs:
every member trains the head again, to check it."""
SHARES = {"counts": 0.02, "class_sums": 0.58, "class_moments": 0.40}
"""The blocks' shares of μ², the same as where the classes share a second moment."""
POOLED = FedCGS()
"""The method whose sums give a covariance that all classes share."""


@dataclass(frozen=True)
class _ClassMomentSensitivity(MomentSensitivity):
    """The sensitivity of counts N, class sums A and each class's moment B_j to one record q, ‖q‖₂ ≤ R_q = `levels`.

    B_j is an upper triangle with one σ: M = q·qᵀ moves it by ‖triu M‖ ≤ ‖M‖_F ≤ R_q², reached by q along an axis.
    With n, a and b as in `MomentSensitivity`, replacing a record by one of another class moves 2n + 2a + 2b at most,
    as the two share no entry; reached by any two along axes. By one of its own class it moves 2(1 + t)·a + 2(1 − t²)·b
    at most, t = −c, as where classes share B: ‖triu M‖ ≤ ‖M‖_F holds for M = q·qᵀ − q'·q'ᵀ too. It is reached, for
    any t and two dimensions or more, by q = (u, v) and q' = (−v, −u), 2uv = t: M is diagonal then.
    """

    @property
    def blocks(self) -> tuple[BlockSensitivity, ...]:
        """The blocks counts, class sums and classes' moments; a record has L2 norms ≤ 1, `levels` and `levels`²."""
        counts, sums, second = super().blocks
        return counts, sums, BlockSensitivity("class_moments", second.l2, self.classes * second.size)

    def squared(self, weights: Mapping[str, float]) -> float:
        """Return the largest Σ_b w_b·‖Δ_b‖² between neighbours: that of `MomentSensitivity` for the same weights."""
        if self.adjacency is Adjacency.ADD_REMOVE:
            return BlockwiseSensitivity(self.unit, self.adjacency, self.blocks).squared(weights)
        return super().squared({**weights, "second_moment": weights["class_moments"]})


@dataclass(frozen=True, eq=False)
class Gaussian:
    """One class's Gaussian in quantised feature units: record count, mean (d,), covariance's square root (d, d)."""

    count: float
    mean: Floats
    root: Floats


def gaussians_of(
    part: Mapping[str, NDArray[np.int64]], grid: Grid, noise: ReleaseNoise | None
) -> tuple[Gaussian | None, ...]:
    """Return each class's Gaussian from opened counts, sums and second moment; all share one within-class covariance.

    `part` holds `counts` (c,), `class_sums` (c, d) and one `second_moment` of them all (upper triangle), as opened.
    Without noise a class of no records has none, and where no class has two the covariance is 0. Under noise the
    moments are those of `noise_aware_discriminant`: counts of at least 1, the spectrum denoised with the known σ.
    """
    dimension = part["class_sums"].shape[1]
    if noise is not None:
        release, unit = read_release(part, grid, noise), grid.unit(dimension)
        values, vectors = denoise(unbiased_scatter(release), release.moment_sigma)
        root = _root(values / release.total * unit**2, vectors)
        return tuple(
            Gaussian(float(count), row / count * unit, root)
            for count, row in zip(release.counts, release.class_sums, strict=True)
        )
    counts, sums = (part[name].astype(np.float64) for name in ("counts", "class_sums"))
    held = counts > 0
    if not held.any():
        return (None,) * len(counts)
    scatter = within_scatter(full_matrix(part["second_moment"], dimension), sums[held], counts[held])
    root = _root(*eigh(scatter / max(1.0, counts[held].sum() - held.sum())))
    pairs = zip(counts, sums, strict=True)
    return tuple(Gaussian(float(count), row / count, root) if count > 0 else None for count, row in pairs)


def calibrate(gaussians: Sequence[Gaussian | None], grid: Grid, each: int, recipe: Recipe) -> LinearHead:
    """Return a head trained on samples of the classes' Gaussians, `each` samples from every class.

    A draw weighs as many records as its class has for one draw. Draws are moved to mean 0 and brought to entries of
    about 1 before the training, and the head undoes that: so one rate fits features of any length. Raises BadInput
    where there is no class, or where the training leaves the finite numbers.
    """
    present = np.array([gaussian is not None for gaussian in gaussians])
    known = [(label, own) for label, own in enumerate(gaussians) if own is not None]
    if not known:
        raise BadInput("the sum holds no record", remedy="the head needs one class at least")
    draws = (standard_normal(label, each, len(own.mean)) for label, own in known)
    rows = np.concatenate([own.mean + drawn @ own.root for (_, own), drawn in zip(known, draws, strict=True)])
    weights = np.repeat([own.count for _, own in known], each)
    centre = np.average(rows, axis=0, weights=weights)
    rows -= centre
    spread = float(np.sqrt(np.mean(rows * rows))) or 1.0
    rows /= spread
    zero = np.zeros((len(present), rows.shape[1]), dtype=np.float32)
    start = LinearHead(zero, np.where(present, np.float32(0), ABSENT_BIAS).astype(np.float32))
    trained = train(start, rows, np.repeat(np.flatnonzero(present), each), weights, recipe)
    weight = trained.weight[present] / np.float64(spread)
    return in_feature_units(weight, trained.bias[present] - weight @ centre, present, grid)


def standard_normal(label: int, count: int, dimension: int) -> Floats:
    """Return a class's reproducible standard normal samples (count, d), made from SHAKE-256 of the class's number.

    They are equal on all machines but for the last bits of Φ⁻¹.
    Each takes 8 bytes, a little-endian word w, and is Φ⁻¹((⌊w/2¹²⌋ + ½)/2⁵²).
    """
    stream = hashlib.shake_256(digest("virtual features", label.to_bytes(4, "big"))).digest(8 * count * dimension)
    words = np.frombuffer(stream, dtype="<u8")
    drawn: Floats = ndtri(((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)
    return drawn.reshape(count, dimension)


def _root(values: Floats, vectors: Floats) -> Floats:
    """Return Σ^½ from Σ's eigenvalues and eigenvectors: of all roots of Σ the one that rounding in Σ moves little."""
    root: Floats = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return root


@dataclass(frozen=True)
class CCVR(SimpleMethod):
    """The method CCVR: a softmax head trained on `virtual` samples from each class's fitted Gaussian N(μ_j, Σ_j).

    `moments`: "class", the paper's, sums C·d(d+1)/2 numbers; with "pooled", Σ within all classes, one triangle. The
    paper calibrates the last layer of a model that FedAvg has trained; here features are frozen, and a head is trained
    from zero.
    """

    name: ClassVar[str] = "ccvr"
    libraries: ClassVar[tuple[str, ...]] = ("torch",)
    moments: Annotated[Literal["class", "pooled"], "Second moments to sum: of each class, or of all classes in one"] = (
        "class"
    )
    virtual: Annotated[int, Range(1, MOST), "Virtual features that are drawn for each class"] = 2000

    def __post_init__(self) -> None:
        require_in_range(self)

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """Return the specification of the secure sum: counts, class sums and each class's second moment.

        A record q, ‖q‖₂ ≤ R_q, adds 1 to a count, q to a class sum and q·qᵀ to its class's moment; ‖q·qᵀ‖_F ≤ R_q².

        Raises BadInput for draws that take more room than `data_limit`.
        """
        refuse_larger(f"{self.virtual} virtual features of {classes} classes", 8 * self.virtual * classes * dimension)
        if self.moments == "pooled":
            return POOLED.sums(dimension, classes, levels)
        triangle = dimension * (dimension + 1) // 2
        blocks = (
            Block("counts", (classes,), bound=1, kind=Kind.COUNTS),
            Block("class_sums", (classes, dimension), bound=levels, kind=Kind.CLASS_SUMS),
            Block("class_moments", (classes, triangle), bound=levels**2, kind=Kind.OTHER),
        )
        zero_sums = (ZeroSums("class_sums", -1, dimension / 2), ZeroSums("class_moments", None, levels * dimension / 2))
        moved = tuple(_ClassMomentSensitivity(each, classes, dimension, levels) for each in Adjacency)
        return (SumSpec(blocks, moved, SHARES, zero_sums=zero_sums),)

    def contribute(self, local: Local) -> Contribution:
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
        """Return a message for each class whose second moment has a trace below 0 or above count × `grid.levels`²."""
        if "class_moments" not in blocks:
            return []
        dimension = blocks["class_sums"].shape[1]
        diagonal = np.cumsum([0, *range(dimension, 1, -1)])
        traces = blocks["class_moments"][:, diagonal].sum(axis=1)
        wrong = (traces < 0) | (traces > blocks["counts"] * grid.levels**2)
        return [f"the second moment of class {label} is none of its records" for label in np.flatnonzero(wrong)]

    def finalize(self, opened: OpenedTotal) -> Step:
        gaussians = [each for part, noise in self._parts(opened) for each in gaussians_of(part, opened.grid, noise)]
        return Step(calibrate(gaussians, opened.grid, self.virtual, RECIPE))

    def _parts(self, opened: OpenedTotal) -> Iterator[tuple[Blocks, ReleaseNoise | None]]:
        """Yield the blocks of classes that have one covariance together, and the noise on their moments."""
        blocks, noise = opened.blocks, opened.noise
        if self.moments == "pooled":
            yield blocks, release_noise(noise) if noise is not None else None
            return
        known = None
        if noise is not None:  # a triangle here has the same noise off the diagonal as on it, which √2 stands for
            counts, sigma = noise["counts"], noise["class_moments"].sigma * 2**0.5
            known = ReleaseNoise(counts.sigma, noise["class_sums"].sigma, sigma, counts.multiplier)
        for label, moment in enumerate(blocks["class_moments"]):
            rows = slice(label, label + 1)
            own = {name: blocks[name][rows] for name in ("counts", "class_sums")}
            yield {**own, "second_moment": moment}, known
