"""Training of a classifier with augmented embeddings on one member's records (FRAug, Algorithm 1, ClientUpdate)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.networks.augmentation import Augmentation, size_of
from secagg.networks.augmented import Augmented, Cells, OneRecord, Weights
from secagg.networks.private_training import DpSgdSettings, dp_sgd
from secagg.networks.taint import Untainted
from secagg.networks.training import leaves_on, require_records, shuffled
from secagg.randomness import RandomSource
from secagg.system.threads import one_thread

if TYPE_CHECKING:
    from torch import Tensor

DRAWS = 8
"""Noises z that every record of a private step sees."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AugmentedSettings:
    """`steps` ≥ 1 on `batch` ≥ 1 records each, θ at `rate`, ω at `generator_rate`, φ at `transfer_rate`.

    Momentum and FedProx's `proximal` are those of `TrainingSettings`. `synthetic` rows stand for all known classes
    together, their prototypes moving by `ema` toward each batch's means.
    """

    steps: int
    batch: int
    rate: float
    momentum: float
    proximal: float
    generator_rate: float
    transfer_rate: float
    synthetic: int
    ema: float

    def __post_init__(self) -> None:
        if min(self.steps, self.batch, self.synthetic) < 1:
            problem = f"{self.steps} steps in batches of {self.batch} and {self.synthetic}"
            raise BadInput(problem, remedy="give 1 or more of each")
        for name in ("rate", "generator_rate", "transfer_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise BadInput(f"{name} is {getattr(self, name)}", remedy="give a finite number above 0")
        if not (0 <= self.momentum < 1 and 0 <= self.proximal < math.inf and 0 < self.ema <= 1):
            problem = f"momentum is {self.momentum}, proximal {self.proximal}, ema {self.ema}"
            raise BadInput(problem, remedy="momentum from 0 to below 1, proximal 0 or more, ema from above 0 to 1")


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
    """Return all parameters (size,) and the prototypes (C, width) after training on records (n, d), n ≥ 0.

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
        for rows in batches(len(labels), settings.batch, settings.steps, randomness):
            run.step(inputs[rows], targets[rows], noise)
        return run.weights.numpy().astype(np.float64), run.prototypes.numpy().astype(np.float64)


def train_privately(
    whole: Augmented,
    start: Untainted[Floats],
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    settings: AugmentedSettings,
    weights: Weights,
    private: DpSgdSettings,
    randomness: RandomSource,
) -> Untainted[Floats]:
    """Return all parameters (size,) after DP-SGD from `start`, all three parts in one clipped gradient (`dp_sgd`).

    Every step has noises z of its own, which no record decides. Raises as `dp_sgd`.
    """
    noise, latent = draws_of(randomness), whole.augmentation.latent if whole.augmentation else 1
    rates = settings.generator_rate / settings.rate, settings.transfer_rate / settings.rate
    for each in _single_steps(private):
        z = noise.standard_normal((DRAWS if whole.augmentation else 1, latent), dtype=np.float32)
        program = Untainted(OneRecord(whole, weights, *rates, z))  # no record decides z
        start = dp_sgd(program, start, x, labels, each, randomness)
    return start


def _single_steps(private: DpSgdSettings) -> list[DpSgdSettings]:
    return [replace(private, steps=1)] * private.steps


def batches(count: int, batch: int, steps: int, randomness: RandomSource) -> list[NDArray[np.int64]]:
    """Return the rows of so many steps: those of one random order after another, no batch larger than all records."""
    size = min(batch, count)
    orders = [shuffled(count, randomness) for _ in range(-(-steps * size // count))]
    return np.split(np.concatenate(orders)[: steps * size], steps)


def draws_of(randomness: RandomSource) -> np.random.Generator:
    """The stream of a training's noises z, from 16 bytes."""
    return np.random.Generator(np.random.Philox(key=int.from_bytes(randomness.bytes(16), "little")))


def _parts(whole: Augmented) -> tuple[slice, slice, slice]:
    """Where the generator's, the classifier's and the RTNet's parameters are."""
    first, end = size_of(whole.generator_shapes), whole.size - size_of(whole.transfer_shapes)
    return slice(0, first), slice(first, end), slice(end, whole.size)


class _Run:
    """A training as it goes: all `weights` in one row, the gradients' `velocity`, the member's `prototypes`."""

    def __init__(
        self, whole: Augmented, settings: AugmentedSettings, weights: Weights, start: Floats, prototypes: Floats
    ) -> None:
        import torch

        self.whole, self.settings, self.scales = whole, settings, weights
        self.weights, self.first = (torch.tensor(start, dtype=torch.float32) for _ in range(2))
        self.velocity = torch.zeros_like(self.weights)
        self.leaves = leaves_on(whole, self.weights, self.velocity)
        self.prototypes = torch.tensor(prototypes, dtype=torch.float32)

    def step(self, x: Tensor, labels: Tensor, noise: np.random.Generator) -> None:
        """The classifier by its loss, then, at the new classifier, the generator and the RTNet by theirs."""
        generator, theta, transfer = _parts(self.whole)
        u = self.whole.classifier.learn(self.leaves, x)
        z, cells = None, None
        if self.whole.augmentation is not None:
            self._remember(u.detach(), labels)
            z = u.new_tensor(_draw(noise, len(labels), self.whole.augmentation))
            cells = self._cells(noise)
        loss = self.whole.classifier_loss(self.leaves, u, labels, z, cells, self.scales)  # type: ignore[arg-type]
        self._descend(loss, (theta, self.settings.rate))
        if z is not None:
            rest = u.detach(), labels, z, cells, self.scales
            loss = self.whole.generator_loss(self.leaves, *rest) + self.whole.transfer_loss(self.leaves, *rest)
            self._descend(loss, (generator, self.settings.generator_rate), (transfer, self.settings.transfer_rate))

    def _descend(self, loss: Tensor, *parts: tuple[slice, float]) -> None:
        """Velocity ← momentum·velocity + gradient, weights ← weights − rate·velocity, in these parts."""
        for part, _ in parts:
            self.velocity[part].mul_(self.settings.momentum)
        loss.backward()  # type: ignore[no-untyped-call]
        for part, rate in parts:
            if self.settings.proximal and part == _parts(self.whole)[1]:
                self.velocity[part].add_(self.weights[part] - self.first[part], alpha=self.settings.proximal)
            self.weights[part].sub_(self.velocity[part], alpha=rate)

    def _remember(self, u: Tensor, labels: Tensor) -> None:
        """Move the prototypes of the batch's classes toward its means; a first mean is taken whole (Eq. 4)."""
        for label in sorted(set(labels.tolist())):
            mean, old = u[labels == label].mean(dim=0), self.prototypes[label]
            self.prototypes[label] = old.lerp(mean, self.settings.ema) if old.any() else mean

    def _cells(self, noise: np.random.Generator) -> Cells | None:
        """As many rows for each known class."""
        import torch

        known = self.prototypes.any(dim=1).nonzero()[:, 0]
        if not len(known) or self.whole.augmentation is None:
            return None
        labels = known.repeat_interleave(-(-self.settings.synthetic // len(known)))
        z = torch.from_numpy(_draw(noise, len(labels), self.whole.augmentation))
        prototypes = self.prototypes.clone()
        return Cells(prototypes[labels], z, labels, len(known), prototypes)


def _draw(noise: np.random.Generator, rows: int, networks: Augmentation) -> NDArray[np.float32]:
    """The next noises z (rows, latent) of a stream."""
    return noise.standard_normal((rows, networks.latent), dtype=np.float32)
