"""A classifier with augmented embeddings (FRAug, Chen et al. 2023): the losses of its three parts, in one row.

θ, the classifier, learns from real embeddings and, in its last layer alone, from synthetic ones (Eqs. 1 and 2). ω, the
generator, makes embeddings that the classifier knows and that lie far from the member's own (Eq. 5). φ, the RTNet,
makes of them residuals that the classifier finds hard, without leaving the member's own embeddings (Eq. 6). Sums over
classes are means here, so that no weight depends on how many there are, and what ω maximises is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secagg.networks.augmentation import Augmentation
from secagg.networks.discrepancy import bounded_square, mean_discrepancy, mean_square
from secagg.networks.normalised import Normalised

if TYPE_CHECKING:
    from torch import Tensor

    Tensors = Mapping[str, Tensor]


class Distance(StrEnum):
    """Between synthetic embeddings and a member's own."""

    MMD = "mmd"
    L2 = "l2"


@dataclass(frozen=True)
class Weights:
    """What a round's losses weigh: `alpha` and `beta` the distances of G and M, `strength` a residual."""

    alpha: float
    beta: float
    generator_distance: Distance
    transfer_distance: Distance
    strength: float


@dataclass(frozen=True, eq=False)
class Cells:
    """Class prototypes to augment: `anchors` and `z` (k·m, …), m rows for each of k known classes, of these `labels`.

    `prototypes` (C, width) are all of them.
    """

    anchors: Tensor
    z: Tensor
    labels: Tensor
    known: int
    prototypes: Tensor


@dataclass(frozen=True)
class Augmented:
    """G's tensors, then the classifier's, then M's, in one row; the classifier's alone where nothing is augmented."""

    classifier: Normalised
    augmentation: Augmentation | None

    @property
    def generator_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """G's."""
        return self.augmentation.generator_shapes if self.augmentation else {}

    @property
    def transfer_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """M's."""
        return self.augmentation.transfer_shapes if self.augmentation else {}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of all tensors."""
        return {**self.generator_shapes, **self.classifier.shapes, **self.transfer_shapes}

    @property
    def size(self) -> int:
        """Numbers of all tensors."""
        return sum(map(math.prod, self.shapes.values()))

    @property
    def _networks(self) -> Augmentation:
        if self.augmentation is None:
            raise ValueError("nothing is augmented")
        return self.augmentation

    def classifier_loss(
        self, parameters: Tensors, u: Tensor, labels: Tensor, z: Tensor, cells: Cells | None, weights: Weights
    ) -> Tensor:
        """θ's loss for embeddings (n, width) of its own; synthetic ones teach the last layer alone (Eqs. 1 to 3)."""
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
        """û (n, width) = anchor + strength·M(G(z, y)), the gradient going to M alone (Eq. 3)."""
        v = self._networks.generate(parameters, z, labels).detach()
        return anchors + strength * self._networks.transfer(parameters, v)

    def generator_loss(
        self, parameters: Tensors, u: Tensor, labels: Tensor, z: Tensor, cells: Cells | None, weights: Weights
    ) -> Tensor:
        """ω's loss, at fixed θ and embeddings (Eq. 5)."""
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
        """φ's loss, at fixed θ, ω and embeddings (Eq. 6)."""
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
class OneRecord:
    """The three losses as one of a single record, each for its own part: a `Program`, for DP-SGD.

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
        """The classifier's, augmented."""
        return f"augmented {self.whole.classifier.name}"

    @property
    def dimension(self) -> int:
        """The classifier's."""
        return self.whole.classifier.dimension

    @property
    def classes(self) -> int:
        """The classifier's."""
        return self.whole.classifier.classes

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of all three parts."""
        return self.whole.shapes

    @property
    def size(self) -> int:
        """Of all three parts."""
        return self.whole.size

    @property
    def scale(self) -> float:
        """The classifier's."""
        return self.whole.classifier.scale

    def start(self, seed: bytes) -> NDArray[np.float64]:
        """There is none: it goes on from what a round says."""
        raise NotImplementedError

    def logits(self, parameters: Tensors, x: Tensor) -> Tensor:
        """The classifier's scores."""
        return self.whole.classifier.logits(parameters, x)

    def loss(self, parameters: Tensors, x: Tensor, labels: Tensor) -> Tensor:
        """The mean over records, each with every z."""
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
    """What a row is compared with: its class's prototype, or where there is none the record's own embedding."""
    return cells.prototypes[labels] if cells else u


def _mean_entropy(scores: Tensor) -> Tensor:
    """The mean entropy of the predictions (n, C)."""
    logarithms = scores.log_softmax(dim=1)
    return -(logarithms.exp() * logarithms).sum(dim=1).mean()
