"""Training of a classifier with augmented embeddings on one client's records (FRAug, Algorithm 1, ClientUpdate)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from secagg.heads.descent import descend
from secagg.networks.augmented import Augmented, Cells, OneRecord, Weights, size_of
from secagg.networks.private_training import DpSgdSettings, StepWatch, dp_sgd
from secagg.networks.taint import Untainted
from secagg.networks.training import NotNegative, Positive, RowDescent, Share, require_records, shuffled
from secagg.randomness import RandomSource
from secagg.system.threads import one_thread
from secagg.wire import Range, require_in_range

if TYPE_CHECKING:
    from torch import Tensor

DRAWS = 8
"""The number of noises z that every record of a private step is combined with."""
Floats = NDArray[np.float64]
Count = Annotated[int, Range(1, math.inf)]


@dataclass(frozen=True)
class AugmentedSettings:
    """Settings of FRAug's training: `steps` ≥ 1, `batch` ≥ 1, learning rates of classifier (`rate`), generator, RTNet.

    Momentum and FedProx's `proximal` are those of `TrainingSettings`. `synthetic` rows stand for all known classes
    together, their prototypes moving by `ema` toward each batch's means.
    """

    steps: Count
    batch: Count
    rate: Positive
    momentum: Share
    proximal: NotNegative
    generator_rate: Positive
    transfer_rate: Positive
    synthetic: Count
    ema: Annotated[float, Range(0, 1, above=True)]

    def __post_init__(self) -> None:
        require_in_range(self)


def train_augmented(
    whole: Augmented,
    start: Floats,
    prototypes: Floats,
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    settings: AugmentedSettings,
    weights: Weights,
    randomness: RandomSource,
) -> tuple[Floats, Floats]:
    """Return all networks' parameters (size,) and class prototypes (C, width) after training on records (n, d), n ≥ 0.

    A row of zeros is no prototype. Computed in float32 on one thread, all draws from `randomness`. No records change
    nothing. Training that leaves the finite numbers returns what it got: look before you use it. Raises BadInput for
    other shapes or labels.
    """
    theta = _parts(whole)[1]
    require_records(whole.classifier, start[theta], x, labels)
    if len(labels) == 0:
        return start.copy(), prototypes.copy()
    import torch

    with one_thread():
        run = _Run(whole, settings, weights, start, prototypes)
        noise = draws_of(randomness)
        inputs, targets = torch.from_numpy(x), torch.from_numpy(labels)
        rows = batches(len(labels), settings.batch, settings.steps, randomness)
        descend(run.descent, rows, lambda some: run.losses(inputs[some], targets[some], noise))
        return run.descent.row.numpy().astype(np.float64), run.prototypes.numpy().astype(np.float64)


def train_privately(
    whole: Augmented,
    start: Untainted[Floats],
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    settings: AugmentedSettings,
    weights: Weights,
    private: DpSgdSettings,
    randomness: RandomSource,
    watch: StepWatch | None = None,
) -> Untainted[Floats]:
    """Return all networks' parameters (size,) after DP-SGD from `start`, with their gradients clipped as one vector.

    Every step has noises z of its own, which no record decides. `watch` and errors are as in `dp_sgd`.
    """
    noise, latent = draws_of(randomness), whole.augmentation.latent if whole.augmentation else 1
    rates = settings.generator_rate / settings.rate, settings.transfer_rate / settings.rate
    for each in [replace(private, steps=1)] * private.steps:
        z = noise.standard_normal((DRAWS if whole.augmentation else 1, latent), dtype=np.float32)
        program = Untainted(OneRecord(whole, weights, *rates, z))  # no record decides z
        start = dp_sgd(program, start, x, labels, each, randomness, watch)
    return start


def batches(count: int, batch: int, steps: int, randomness: RandomSource) -> list[NDArray[np.int64]]:
    """Return the record indices of `steps` batches of min(batch, count) each, from one random order after another."""
    size = min(batch, count)
    orders = [shuffled(count, randomness) for _ in range(-(-steps * size // count))]
    return np.split(np.concatenate(orders)[: steps * size], steps)


def draws_of(randomness: RandomSource) -> np.random.Generator:
    """Return the random generator of a training's noise vectors z, seeded by 16 bytes of `randomness`."""
    return np.random.Generator(np.random.Philox(key=int.from_bytes(randomness.bytes(16), "little")))


def _parts(whole: Augmented) -> tuple[slice, slice, slice]:
    """Return where the generator's, the classifier's and the RTNet's parameters are in a row."""
    first, end = size_of(whole.generator_shapes), whole.size - size_of(whole.transfer_shapes)
    return slice(0, first), slice(first, end), slice(end, whole.size)


class _Run:
    """A training in progress: all weights in the row of `descent`, the member's `prototypes`."""

    def __init__(
        self, whole: Augmented, settings: AugmentedSettings, weights: Weights, start: Floats, prototypes: Floats
    ) -> None:
        import torch

        self.whole, self.settings, self.scales = whole, settings, weights
        self.descent = RowDescent(whole, start, settings.momentum)
        self.prototypes = torch.tensor(prototypes, dtype=torch.float32)

    def losses(self, x: Tensor, labels: Tensor, noise: np.random.Generator) -> Iterator[Tensor]:
        """Yield the classifier's loss, then, at the moved classifier, the loss of the generator and the RTNet."""
        generator, theta, transfer = _parts(self.whole)
        whole, leaves = self.whole, self.descent.leaves
        u = whole.classifier.learn(leaves, x)
        z, cells = None, None
        if whole.augmentation is not None:
            for label in sorted(set(labels.tolist())):  # toward the batch's means; a first mean is taken whole (Eq. 4)
                mean, old = u.detach()[labels == label].mean(dim=0), self.prototypes[label]
                self.prototypes[label] = old.lerp(mean, self.settings.ema) if old.any() else mean
            z = u.new_tensor(noise.standard_normal((len(labels), whole.augmentation.latent), dtype=np.float32))
            cells = self._cells(noise)
        self.descent.rates = ((theta, self.settings.rate),)
        self.descent.pull = self._hold if self.settings.proximal else None
        yield whole.classifier_loss(leaves, u, labels, z, cells, self.scales)  # type: ignore[arg-type]
        if z is not None:
            rest = u.detach(), labels, z, cells, self.scales
            self.descent.rates = (generator, self.settings.generator_rate), (transfer, self.settings.transfer_rate)
            self.descent.pull = None
            yield whole.generator_loss(leaves, *rest) + whole.transfer_loss(leaves, *rest)

    def _hold(self, velocity: Tensor, weights: Tensor, first: Tensor) -> None:
        velocity.add_(weights - first, alpha=self.settings.proximal)

    def _cells(self, noise: np.random.Generator) -> Cells | None:
        """Return prototypes and noise to augment, as many rows for each known class."""
        import torch

        known = self.prototypes.any(dim=1).nonzero()[:, 0]
        if not len(known) or self.whole.augmentation is None:
            return None
        labels = known.repeat_interleave(-(-self.settings.synthetic // len(known)))
        z = torch.from_numpy(noise.standard_normal((len(labels), self.whole.augmentation.latent), dtype=np.float32))
        prototypes = self.prototypes.clone()
        return Cells(prototypes[labels], z, labels, len(known), prototypes)
