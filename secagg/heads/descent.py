"""Training of an adapter and a linear layer on weighted labelled rows, with the same bits on every run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.heads.linear import ABSENT_BIAS, HeadAdapter, Layer, LinearHead
from secagg.system.threads import one_thread
from secagg.wire import Range, require_in_range

if TYPE_CHECKING:
    import torch

Batch = TypeVar("Batch")
SEED = 1
"""Seed of first weights and of the order of rows: public, and the same for every data set."""
Extra = Callable[["torch.Tensor", "torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""A further loss from a batch's row numbers (m,), its rows behind the adapter (m, e) and their scores (m, C)."""
RECENT = 20
"""The number of last batch losses whose spread decides if training has settled."""


@dataclass(frozen=True)
class Recipe:
    """Training settings: `epochs` ≥ 1 over all rows in newly shuffled batches of `batch` ≥ 1 (the last may be smaller).

    SGD has `momentum` and weight decay; AdamW has torch's other defaults. Gradients longer than `clip` are shortened
    to it. The rate rises over `warm_up` epochs, from its part 1/`warm_up`; then it stays, or with `cosine` falls to 0.
    Training ends early once the standard deviation of the last 20 batch losses is below `settled`; 0: never.
    """

    optimizer: Literal["sgd", "adamw"]
    rate: Annotated[float, Range(0, math.inf, above=True, below=True)]
    epochs: Annotated[int, Range(1, math.inf)]
    batch: Annotated[int, Range(1, math.inf)]
    momentum: Annotated[float, Range(0, 1, below=True)] = 0.0
    decay: Annotated[float, Range(0, math.inf, below=True)] = 0.0
    clip: Annotated[float, Range(0, math.inf, above=True)] = math.inf
    warm_up: Annotated[int, Range(0, math.inf)] = 0
    cosine: bool = False
    settled: Annotated[float, Range(0, math.inf)] = 0.0

    def __post_init__(self) -> None:
        require_in_range(self)
        if self.warm_up > self.epochs:
            raise BadInput(f"{self.warm_up} epochs of warm-up", remedy=f"give 0 to {self.epochs}, all epochs")

    def rate_at(self, epoch: int) -> float:
        """Return the learning rate in an epoch, counted from 0."""
        if epoch < self.warm_up:
            return self.rate * (epoch + 1) / self.warm_up
        if not self.cosine:
            return self.rate
        return self.rate * 0.5 * (1 + math.cos(math.pi * (epoch - self.warm_up) / (self.epochs - self.warm_up)))


class Optimiser(Protocol):
    """An interface of gradient-descent optimisers such as torch's."""

    def zero_grad(self) -> None:
        """Reset the gradients of the previous step, except what momentum keeps of them."""

    def step(self) -> object:
        """Update the parameters by one step of gradient descent."""


class Loss(Protocol):
    """An interface of scalar losses with gradients, such as torch's scalars."""

    def backward(self) -> object:
        """Add the loss's gradients to the parameters' gradients."""


def descend(optimiser: Optimiser, batches: Iterable[Batch], losses: Callable[[Batch], Iterable[Loss]]) -> None:
    """Take one optimiser step for each loss of each batch in turn: the loop of all trainings.

    A loss is asked for after the step against the one before, and a batch after the last step of the batch before, so
    that either may depend on what these moved, and set the optimiser's rates.
    """
    for batch in batches:
        for loss in losses(batch):
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def has_settled(losses: Sequence[float], settled: float) -> bool:
    """Return whether there are 20 batch losses, and the standard deviation of the last 20 is below `settled`."""
    return len(losses) >= RECENT and float(np.std(losses[-RECENT:])) < settled


def fresh_layers(widths: Sequence[int], *, biased: bool = True) -> tuple[Layer, ...]:
    """Return linear layers between `widths`, with torch's first weights (uniform ±1/√inputs), always the same."""
    import torch

    generator = torch.Generator().manual_seed(SEED)

    def draw(inputs: int, *shape: int) -> NDArray[np.float32]:
        bound = inputs**-0.5
        return torch.empty(shape).uniform_(-bound, bound, generator=generator).numpy()

    layers = []
    for inputs, outputs in pairwise(widths):
        weight = draw(inputs, outputs, inputs)
        layers.append((weight, draw(inputs, outputs) if biased else np.zeros(outputs, dtype=np.float32)))
    return tuple(layers)


def fresh_head(widths: Sequence[int], present: NDArray[np.bool_]) -> LinearHead:
    """Return an untrained head for the classes in `present` (C,), on an adapter with layer `widths` (d, …, last)."""
    *layers, (weight, bias) = fresh_layers((*widths, len(present)))
    return LinearHead(
        np.where(present[:, None], weight, np.float32(0)),
        np.where(present, bias, ABSENT_BIAS),
        HeadAdapter("stacked", tuple(layers)) if layers else None,
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
    """Return `start` trained on rows (n, d) with `labels` (n,) by cross-entropy, each row's loss times its weight.

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
        found: list[float] = []

        def batches() -> Iterator[torch.Tensor]:
            for epoch in range(recipe.epochs):
                optimizer.param_groups[0]["lr"] = recipe.rate_at(epoch)
                yield from torch.split(torch.randperm(len(rows), generator=generator), recipe.batch)
                if has_settled(found, recipe.settled):
                    return

        def losses(own: torch.Tensor) -> Iterator[torch.Tensor]:
            mapped = network.adapted(inputs[own])
            scores = network.scores(mapped)
            each = torch.nn.functional.cross_entropy(scores, targets[own], reduction="none")
            loss = (each * shares[own]).mean()
            if extra is not None:
                loss = loss + extra(own, mapped, scores)
            found.append(float(loss.detach()))
            yield loss

        descend(optimizer, batches(), losses)
        return network.head()


class _Network:
    """A head as tensors: it does what `HeadAdapter.apply` and the linear layer do, in float32 and with gradients."""

    def __init__(self, start: LinearHead, frozen: bool) -> None:
        import torch

        self.start = start
        self.layers = [
            (torch.from_numpy(weight.copy()), torch.from_numpy(bias.copy()))
            for weight, bias in (start.before.layers if isinstance(start.before, HeadAdapter) else ())
        ]
        self.weight, self.bias = torch.from_numpy(start.weight.copy()), torch.from_numpy(start.bias.copy())
        self.residual = isinstance(start.before, HeadAdapter) and start.before.kind == "residual"
        trained = [tensor for layer in self.layers for tensor in (layer[:1] if self.residual else layer)]
        self.trained = [*trained, *(() if frozen else (self.weight, self.bias))]
        for tensor in self.trained:
            tensor.requires_grad_()

    def adapted(self, rows: torch.Tensor) -> torch.Tensor:
        import torch

        normalise = torch.nn.functional.normalize
        found = rows
        for weight, bias in self.layers:
            found = torch.relu(torch.nn.functional.linear(found, weight, bias))
            found = found if self.residual else normalise(found)
        return normalise(rows + found) if self.residual else found

    def scores(self, mapped: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.nn.functional.linear(mapped, self.weight, self.bias)

    def head(self) -> LinearHead:
        """Return the head with the present weights; absent classes are as they were."""
        before = self.start.before
        if isinstance(before, HeadAdapter):
            layers = tuple((weight.detach().numpy(), bias.detach().numpy()) for weight, bias in self.layers)
            before = HeadAdapter(before.kind, layers)
        present = self.start.present
        weight = np.where(present[:, None], self.weight.detach().numpy(), self.start.weight)
        return LinearHead(weight, np.where(present, self.bias.detach().numpy(), self.start.bias), before)


def _optimizer(tensors: list[torch.Tensor], recipe: Recipe) -> torch.optim.Optimizer:
    import torch

    optimizer: torch.optim.Optimizer
    if recipe.optimizer == "sgd":
        optimizer = torch.optim.SGD(tensors, lr=recipe.rate, momentum=recipe.momentum, weight_decay=recipe.decay)
    else:
        optimizer = torch.optim.AdamW(tensors, lr=recipe.rate)

    def shorten(*_: object) -> None:
        torch.nn.utils.clip_grad_norm_(tensors, recipe.clip)

    if math.isfinite(recipe.clip):
        optimizer.register_step_pre_hook(shorten)
    return optimizer


def _check(
    start: LinearHead, rows: NDArray[np.float64], labels: NDArray[np.int64], weights: NDArray[np.float64]
) -> None:
    if rows.ndim != 2 or rows.shape[1] != start.inputs or not len(rows) == len(labels) == len(weights) > 0:
        raise BadInput(f"rows {rows.shape} with {len(labels)} labels and {len(weights)} weights for {start.inputs}")
    if not (np.isfinite(rows).all() and np.isfinite(weights).all() and (weights > 0).all()):
        raise BadInput("rows to train on are finite, and their weights finite and above 0")
    if not start.present[labels].all():
        raise BadInput("a row to train on is of an absent class")


WIDTH = 128
"""Width of the adapter's middle layer."""
LOGIT_SCALE = 100.0
"""The factor of CLIP's cosines (the limit of its learnt exp(logit_scale)), whose text head the paper freezes."""
BATCH = 10
MOST_BATCHES = 100
"""The most batches of an epoch: above 1,000 prototypes batches grow."""


def adapted_head(
    prototypes: NDArray[np.float64],
    labels: NDArray[np.int64],
    counts: NDArray[np.float64],
    classes: int,
    epochs: int = 200,
) -> LinearHead:
    """Return a head with an adapter trained on prototypes (k, d) with `labels` (k,), each of `counts` (k,) records.

    Scores are 100 times the cosine of x + adapter(x) with the classes' means; the adapter, d-128-d without biases, is
    trained as the paper's code does it: AdamW with rate 10⁻³, 10 epochs of warm-up, a cosine to `epochs`, gradients
    clipped at 1, batches of 10 prototypes that count alike, and the end once the standard deviation (the paper says
    variance) of the last 20 batch losses is below 0.001. Other than there, batches are drawn anew in each epoch and
    none is left out. The paper's head comes from CLIP's text encoder; no backbone here has one, and so the counted
    means of the prototypes stand in. Classes without prototypes are absent. Raises BadInput when all are.
    """
    if not len(prototypes):
        raise BadInput("the sum gives no prototype", remedy="use fewer slots, or a larger epsilon")
    sums = np.zeros((classes, prototypes.shape[1]))
    np.add.at(sums, labels, prototypes * counts[:, None])
    present = np.bincount(labels, minlength=classes) > 0
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    start = LinearHead(
        (LOGIT_SCALE * sums / np.where(lengths > 0, lengths, 1.0)).astype(np.float32),
        np.where(present, np.float32(0), ABSENT_BIAS),
        HeadAdapter("residual", fresh_layers((prototypes.shape[1], WIDTH, prototypes.shape[1]), biased=False)),
    )
    recipe = Recipe(
        "adamw",
        rate=1e-3,
        epochs=epochs,
        batch=max(BATCH, math.ceil(len(prototypes) / MOST_BATCHES)),
        clip=1.0,
        warm_up=min(10, epochs),
        cosine=True,
        settled=1e-3,
    )
    return train(start, prototypes, labels, np.ones(len(labels)), recipe, frozen=True)
