"""Training of an adapter and a linear layer on weighted rows (prototype, class), the same bits on every run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.heads.adapter import Adapter, Layer
from secagg.heads.linear import ABSENT_BIAS, LinearHead
from secagg.system.threads import one_thread

if TYPE_CHECKING:
    import torch

SEED = 1
"""Of first weights and the order of rows: public, and the same for every data set."""
Extra = Callable[["torch.Tensor", "torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""From a batch's row numbers (m,), its rows behind the adapter (m, e) and their scores (m, C) to a loss of its own."""
RECENT = 20
"""Batch losses whose spread says whether training has settled."""


@dataclass(frozen=True)
class Recipe:
    """`epochs` ≥ 1 over all rows in batches of `batch` ≥ 1 (the last may be smaller), newly shuffled each time.

    SGD has `momentum` and weight decay; AdamW has torch's other defaults. Gradients longer than `clip` are shortened
    to it. The rate rises over `warm_up` epochs, from its part 1/`warm_up`; then it stays, or with `cosine` falls to 0.
    Training ends early once the standard deviation of the last 20 batch losses is below `settled`; 0: never.
    """

    optimizer: Literal["sgd", "adamw"]
    rate: float
    epochs: int
    batch: int
    momentum: float = 0.0
    decay: float = 0.0
    clip: float = math.inf
    warm_up: int = 0
    cosine: bool = False
    settled: float = 0.0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or not 0 <= self.warm_up <= self.epochs:
            raise BadInput(f"{self.epochs} epochs, {self.warm_up} of them warming up, in batches of {self.batch}")
        steady = 0 <= self.momentum < 1 and 0 <= self.decay < math.inf
        if not (0 < self.rate < math.inf and self.clip > 0 and steady and self.settled >= 0):
            problem = f"rate {self.rate}, clip {self.clip}, momentum {self.momentum}, settled {self.settled}"
            raise BadInput(problem, remedy="rate and clip are above 0, the momentum is from 0 to below 1")

    def rate_at(self, epoch: int) -> float:
        """The rate in an epoch, counted from 0."""
        if epoch < self.warm_up:
            return self.rate * (epoch + 1) / self.warm_up
        if not self.cosine:
            return self.rate
        return self.rate * 0.5 * (1 + math.cos(math.pi * (epoch - self.warm_up) / (self.epochs - self.warm_up)))


def has_settled(losses: Sequence[float], settled: float) -> bool:
    """Whether the standard deviation of the last 20 of the batch losses is below `settled`."""
    return len(losses) >= RECENT and float(np.std(losses[-RECENT:])) < settled


def fresh_layers(widths: Sequence[int], *, biased: bool = True) -> tuple[Layer, ...]:
    """Return layers from each width to the next with torch's first weights (uniform ±1/√inputs), always the same."""
    import torch

    generator = torch.Generator().manual_seed(SEED)

    def drawn(inputs: int, *shape: int) -> NDArray[np.float32]:
        bound = inputs**-0.5
        return torch.empty(shape).uniform_(-bound, bound, generator=generator).numpy()

    layers = []
    for inputs, outputs in pairwise(widths):
        weight = drawn(inputs, outputs, inputs)
        layers.append((weight, drawn(inputs, outputs) if biased else np.zeros(outputs, dtype=np.float32)))
    return tuple(layers)


def fresh_head(widths: Sequence[int], present: NDArray[np.bool_]) -> LinearHead:
    """Return an untrained head behind a stacked adapter of `widths` (d, …, last), for the classes `present` (C,)."""
    *layers, (weight, bias) = fresh_layers((*widths, len(present)))
    return LinearHead(
        np.where(present[:, None], weight, np.float32(0)),
        np.where(present, bias, ABSENT_BIAS),
        Adapter("stacked", tuple(layers)) if layers else None,
    )


def train(
    start: LinearHead,
    rows: NDArray[np.float64],
    labels: NDArray[np.int64],
    weights: NDArray[np.float64],
    recipe: Recipe,
    *,
    frozen: bool = False,
    extra: Extra | None = None,
) -> LinearHead:
    """Return `start` after training on rows (n, d) with `labels` (n,) by cross-entropy, each row's times its weight.

    `weights` (n,) > 0 are taken relative to their mean. `frozen`: the adapter alone is trained. `extra` is added to
    the loss of every batch. Biases of a residual adapter stay as they are, and so do absent classes, which may have no
    rows. Raises BadInput, also when training leaves the finite numbers.
    """
    _check(start, rows, labels, weights)
    import torch

    with one_thread():
        network = _Network(start, frozen)
        generator = torch.Generator().manual_seed(SEED)
        inputs, targets = torch.from_numpy(rows.astype(np.float32)), torch.from_numpy(labels.astype(np.int64))
        shares = torch.from_numpy((weights / weights.mean()).astype(np.float32))
        optimizer = _optimizer(network.trained, recipe)
        losses: list[float] = []
        for epoch in range(recipe.epochs):
            optimizer.param_groups[0]["lr"] = recipe.rate_at(epoch)
            for own in torch.split(torch.randperm(len(rows), generator=generator), recipe.batch):
                mapped = network.adapted(inputs[own])
                scores = network.scores(mapped)
                each = torch.nn.functional.cross_entropy(scores, targets[own], reduction="none")
                loss = (each * shares[own]).mean()
                if extra is not None:
                    loss = loss + extra(own, mapped, scores)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                if math.isfinite(recipe.clip):
                    torch.nn.utils.clip_grad_norm_(network.trained, recipe.clip)
                optimizer.step()
                losses.append(float(loss.detach()))
            if has_settled(losses, recipe.settled):
                break
        return network.head()


class _Network:
    """A head as tensors: what `Adapter.apply` and the linear layer do, in float32 and with gradients."""

    def __init__(self, start: LinearHead, frozen: bool) -> None:
        import torch

        self.start = start
        self.layers = [
            (torch.from_numpy(weight.copy()), torch.from_numpy(bias.copy()))
            for weight, bias in (start.before.layers if isinstance(start.before, Adapter) else ())
        ]
        self.weight, self.bias = torch.from_numpy(start.weight.copy()), torch.from_numpy(start.bias.copy())
        self.residual = isinstance(start.before, Adapter) and start.before.kind == "residual"
        trained = [tensor for layer in self.layers for tensor in (layer[:1] if self.residual else layer)]
        self.trained = [*trained, *(() if frozen else (self.weight, self.bias))]
        for tensor in self.trained:
            tensor.requires_grad_()

    def adapted(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows (n, inputs) behind the adapter."""
        import torch

        normalise = torch.nn.functional.normalize
        found = rows
        for weight, bias in self.layers:
            found = torch.relu(torch.nn.functional.linear(found, weight, bias))
            found = found if self.residual else normalise(found)
        return normalise(rows + found) if self.residual else found

    def scores(self, mapped: torch.Tensor) -> torch.Tensor:
        """Scores (n, C) of what the adapter gave."""
        import torch

        return torch.nn.functional.linear(mapped, self.weight, self.bias)

    def head(self) -> LinearHead:
        """The head as it is now, the absent classes as they were."""
        before = self.start.before
        if isinstance(before, Adapter):
            layers = tuple((weight.detach().numpy(), bias.detach().numpy()) for weight, bias in self.layers)
            before = Adapter(before.kind, layers)
        present = self.start.present
        weight = np.where(present[:, None], self.weight.detach().numpy(), self.start.weight)
        return LinearHead(weight, np.where(present, self.bias.detach().numpy(), self.start.bias), before)


def _optimizer(tensors: list[torch.Tensor], recipe: Recipe) -> torch.optim.Optimizer:
    import torch

    if recipe.optimizer == "sgd":
        return torch.optim.SGD(tensors, lr=recipe.rate, momentum=recipe.momentum, weight_decay=recipe.decay)
    return torch.optim.AdamW(tensors, lr=recipe.rate)


def _check(
    start: LinearHead, rows: NDArray[np.float64], labels: NDArray[np.int64], weights: NDArray[np.float64]
) -> None:
    if rows.ndim != 2 or rows.shape[1] != start.inputs or not len(rows) == len(labels) == len(weights) > 0:
        raise BadInput(f"rows {rows.shape} with {len(labels)} labels and {len(weights)} weights for {start.inputs}")
    if not (np.isfinite(rows).all() and np.isfinite(weights).all() and (weights > 0).all()):
        raise BadInput("rows to train on are finite, and their weights finite and above 0")
    if not start.present[labels].all():
        raise BadInput("a row to train on is of an absent class")
