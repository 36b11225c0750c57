"""FRAug, a classifier trained on augmented embeddings (Chen et al. 2023): the losses of its three networks.

θ, the classifier, learns from real embeddings and, in its last layer alone, from synthetic ones (Eqs. 1 and 2). ω, the
generator (G in the paper), makes embeddings that the classifier knows and that lie far from the member's own (Eq. 5).
φ, the transfer network (the paper's RTNet, M; `transfer` here), makes of them residuals that the classifier finds hard,
without leaving the member's own embeddings (Eq. 6). Sums over classes are means here, so that no weight depends on how
many there are, and what ω maximises is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.networks.normalised import GAIN, SHIFT, Normalised, normalise_rows
from secagg.networks.programs import Program, glorot_bound, he_bound, linear, linear_shapes, uniform_start

if TYPE_CHECKING:
    from torch import Tensor

    Tensors = Mapping[str, Tensor]


KERNELS = 5
"""The number of Gaussian kernels, each twice as wide as the one before."""
NARROWEST = 0.25
"""The first kernel's width, as a part of the mean squared distance between different rows of both sets."""
SMALL = 1e-12
GENERATOR, TRANSFER = "generator", "transfer"
"""Prefixes of the names of the generator's and of the RTNet's tensors."""


@dataclass(frozen=True)
class Augmentation:
    """Sizes of FRAug's generator G (`hidden` units) and RTNet M (`latent` units); C `classes`, embeddings' `width`."""

    classes: int
    width: int
    latent: int
    hidden: int

    def __post_init__(self) -> None:
        if min(self.width, self.latent, self.hidden) < 1:
            raise BadInput(f"a generator from {self.latent} by {self.hidden} to {self.width} numbers")

    @property
    def generator_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the generator's tensors by name."""
        return _two_layers(GENERATOR, self.latent + self.classes, self.hidden, self.width)

    @property
    def transfer_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the transfer network's (RTNet's) tensors by name."""
        return _two_layers(TRANSFER, self.width, self.latent, self.width)

    def start(self, kind: str, seed: bytes) -> NDArray[np.float64]:
        """Return initial parameters of generator or RTNet from a seed: He's bounds, Glorot's for RTNet's last layer."""
        shapes = self.generator_shapes if kind == GENERATOR else self.transfer_shapes
        bounds = {name: he_bound(shape[1]) for name, shape in shapes.items() if name.endswith("weight")}
        if kind == TRANSFER:
            bounds[f"{TRANSFER}.second.weight"] = glorot_bound(self.latent, self.width)
        return uniform_start(shapes, bounds, seed)

    def generate(self, parameters: Mapping[str, Tensor], z: Tensor, labels: Tensor) -> Tensor:
        """Return synthetic embeddings v (n, width) from noise z (n, latent) and labels (n,)."""
        from torch import cat
        from torch.nn import functional

        wanted = functional.one_hot(labels, self.classes).to(z.dtype)
        inside = self._layer(parameters, f"{GENERATOR}.first", cat([z, wanted], dim=1)).relu()
        return self._layer(parameters, f"{GENERATOR}.second", inside).relu()

    def transfer(self, parameters: Mapping[str, Tensor], v: Tensor) -> Tensor:
        """Return the residuals (n, width) that the transfer network (RTNet) makes of embeddings v (n, width)."""
        return self._layer(parameters, f"{TRANSFER}.second", self._layer(parameters, f"{TRANSFER}.first", v).relu())

    def _layer(self, parameters: Mapping[str, Tensor], name: str, rows: Tensor) -> Tensor:
        gain, shift = parameters[f"{name}.{GAIN}"], parameters[f"{name}.{SHIFT}"]
        return normalise_rows(linear(parameters, f"{name}.", rows), gain, shift)


def size_of(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return the total number of entries of tensors of these shapes."""
    return sum(map(math.prod, shapes.values()))


def _two_layers(name: str, inputs: int, hidden: int, outputs: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, ends in (("first", (inputs, hidden)), ("second", (hidden, outputs))):
        shapes |= linear_shapes(f"{name}.{layer}", *ends)
        shapes |= {f"{name}.{layer}.{kind}": (ends[1],) for kind in (GAIN, SHIFT)}
    return shapes


def mean_discrepancy(a: Tensor, b: Tensor) -> Tensor:
    """Return MMD² (Gretton et al. 2012) of rows (g, m, d) against rows (g, n, d), averaged over the g pairs of sets.

    The biased statistic, summed over `KERNELS` kernels whose widths are constants to the gradient: from 0 to 10.
    """
    from torch import cat, cdist, stack

    both = cat([a, b], dim=1)
    squares = cdist(both, both, compute_mode="donot_use_mm_for_euclid_dist").square()
    first, rows = a.shape[1], both.shape[1]
    width = squares.detach().sum(dim=(1, 2), keepdim=True) / max(1, rows * (rows - 1)) * NARROWEST + SMALL
    kernels = stack([(-squares / (width * 2**place)).exp() for place in range(KERNELS)]).sum(dim=0)
    within = kernels[:, :first, :first].mean(dim=(1, 2)) + kernels[:, first:, first:].mean(dim=(1, 2))
    return (within - 2 * kernels[:, :first, first:].mean(dim=(1, 2))).mean()


def mean_square(a: Tensor, b: Tensor) -> Tensor:
    """Return the mean squared difference of paired rows (…, d)."""
    return (a - b).square().mean()


def bounded_square(a: Tensor, b: Tensor) -> Tensor:
    """Return the mean of s/(1 + s), below 1 so that it can be maximised; s is the mean squared difference of a pair."""
    squares = (a - b).square().mean(dim=-1)
    return (squares / (1 + squares)).mean()


class Distance(StrEnum):
    """A kind of distance between synthetic embeddings and a client's own."""

    MMD = "mmd"
    L2 = "l2"


@dataclass(frozen=True)
class Weights:
    """Weights of FRAug's losses (`alpha`: generator's distance, `beta`: RTNet's), and the residuals' `strength`."""

    alpha: float
    beta: float
    generator_distance: Distance
    transfer_distance: Distance
    strength: float


@dataclass(frozen=True, eq=False)
class Cells:
    """Prototypes to augment: `anchors`, with noise `z` and `labels`, as k·m rows: m for each of k known classes.

    `prototypes` (C, width) are all of them.
    """

    anchors: Tensor
    z: Tensor
    labels: Tensor
    known: int
    prototypes: Tensor


@dataclass(frozen=True)
class Augmented:
    """Generator, classifier and RTNet, all tensors in one flat vector; without augmentation the classifier alone."""

    classifier: Normalised
    augmentation: Augmentation | None

    @property
    def generator_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the generator's tensors by name."""
        return self.augmentation.generator_shapes if self.augmentation else {}

    @property
    def transfer_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the transfer network's (RTNet's) tensors by name."""
        return self.augmentation.transfer_shapes if self.augmentation else {}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of all networks' tensors by name."""
        return {**self.generator_shapes, **self.classifier.shapes, **self.transfer_shapes}

    @property
    def size(self) -> int:
        """The number of entries of all networks' tensors."""
        return size_of(self.shapes)

    @property
    def _networks(self) -> Augmentation:
        if self.augmentation is None:
            raise ValueError("nothing is augmented")
        return self.augmentation

    def classifier_loss(
        self, parameters: Tensors, u: Tensor, labels: Tensor, z: Tensor, cells: Cells | None, weights: Weights
    ) -> Tensor:
        """Return the loss on real embeddings `u`, plus the last layer's loss on synthetic embeddings (Eqs. 1 to 3)."""
        import torch
        from torch.nn import functional

        def entropy(embeddings: Tensor, wanted: Tensor) -> Tensor:
            return functional.cross_entropy(self.classifier.classify(parameters, embeddings), wanted)

        real = entropy(u, labels)
        if self.augmentation is None:
            return real
        made = [(u, z, labels)] + ([(cells.anchors, cells.z, cells.labels)] if cells else [])
        with torch.no_grad():
            synthetic = [self.synthesise(parameters, *each, weights.strength) for each in made]
        losses = torch.stack([entropy(rows, each[2]) for rows, each in zip(synthetic, made, strict=True)])
        return real + losses.sum()

    def synthesise(self, parameters: Tensors, anchors: Tensor, z: Tensor, labels: Tensor, strength: float) -> Tensor:
        """Return embeddings û (n, width) = anchor + strength·M(G(z, y)), with a gradient to RTNet M alone (Eq. 3)."""
        v = self._networks.generate(parameters, z, labels).detach()
        return anchors + strength * self._networks.transfer(parameters, v)

    def generator_loss(
        self, parameters: Tensors, u: Tensor, labels: Tensor, z: Tensor, cells: Cells | None, weights: Weights
    ) -> Tensor:
        """Return the generator's loss, with the classifier and the real embeddings held fixed (Eq. 5)."""
        from torch.nn import functional

        v = self._networks.generate(parameters, z, labels)
        known = functional.cross_entropy(self.classifier.classify(_fixed(parameters), v), labels)
        if weights.generator_distance is Distance.MMD:
            far = mean_discrepancy(v[None], u[None])
        else:
            far = bounded_square(v, _own(u, labels, cells))
        return known - weights.alpha * far

    def transfer_loss(
        self, parameters: Tensors, u: Tensor, labels: Tensor, z: Tensor, cells: Cells | None, weights: Weights
    ) -> Tensor:
        """Return the RTNet's loss, with the classifier, the generator and the real embeddings held fixed (Eq. 6)."""
        fixed = _fixed(parameters)
        own = self.synthesise(parameters, u, z, labels, weights.strength)
        loss = -_mean_entropy(self.classifier.classify(fixed, own))
        if weights.transfer_distance is Distance.MMD:
            loss = loss + weights.beta * mean_discrepancy(own[None], u[None])
        else:
            loss = loss + weights.beta * mean_square(own, _own(u, labels, cells))
        if cells is None:
            return loss
        of_cells = self.synthesise(parameters, cells.anchors, cells.z, cells.labels, weights.strength)
        loss = loss - _mean_entropy(self.classifier.classify(fixed, of_cells))
        if weights.transfer_distance is Distance.MMD:
            rows, anchors = (each.view(cells.known, -1, each.shape[1]) for each in (of_cells, cells.anchors))
            return loss + weights.beta * mean_discrepancy(rows, anchors[:, :1])
        return loss + weights.beta * mean_square(of_cells, cells.anchors)


@dataclass(frozen=True)
class OneRecord(Program):
    """A network whose loss is the sum of FRAug's three losses on a single record, for DP-SGD.

    It reads that record, the parameters, and noise `z` (k, latent), which no record decides: no prototypes, no
    distance of sets, no batch. With squares, Σ_i ‖G(z, y_i) − f(x_i)‖² has the gradient of n·‖G − mean‖². Gradients of
    G's and M's parts are multiplied by `generator_rate` and `transfer_rate`, in units of the classifier's rate.
    """

    whole: Augmented
    weights: Weights
    generator_rate: float
    transfer_rate: float
    z: NDArray[np.float32] = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        return f"augmented {self.whole.classifier.name}"

    @property
    def dimension(self) -> int:
        return self.whole.classifier.dimension

    @property
    def classes(self) -> int:
        return self.whole.classifier.classes

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self.whole.shapes

    @property
    def size(self) -> int:
        return self.whole.size

    @property
    def scale(self) -> float:
        return self.whole.classifier.scale

    def start(self, seed: bytes) -> NDArray[np.float64]:
        raise NotImplementedError  # it goes on from what a round says

    def logits(self, parameters: Tensors, x: Tensor) -> Tensor:
        return self.whole.classifier.logits(parameters, x)

    def loss(self, parameters: Tensors, x: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss over records, each combined with every noise vector z."""
        draws = len(self.z)
        u = self.whole.classifier.learn(parameters, x).repeat_interleave(draws, dim=0)
        wanted, z = labels.repeat_interleave(draws), u.new_tensor(self.z).repeat(len(labels), 1)
        total = self.whole.classifier_loss(parameters, u, wanted, z, None, self.weights)
        if self.whole.augmentation is None:
            return total
        rest = u.detach(), wanted, z, None, self.weights
        total = total + self.generator_rate * self.whole.generator_loss(parameters, *rest)
        return total + self.transfer_rate * self.whole.transfer_loss(parameters, *rest)


def _fixed(parameters: Tensors) -> dict[str, Tensor]:
    return {name: each.detach() for name, each in parameters.items()}


def _own(u: Tensor, labels: Tensor, cells: Cells | None) -> Tensor:
    """Return each row's target: the prototype of its class, or the record's own embedding where there is none."""
    return cells.prototypes[labels] if cells else u


def _mean_entropy(scores: Tensor) -> Tensor:
    logarithms = scores.log_softmax(dim=1)
    return -(logarithms.exp() * logarithms).sum(dim=1).mean()
