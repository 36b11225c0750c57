"""Training of a network on one client's records by SGD or Adam, and gradients of single records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.heads.descent import descend
from secagg.networks.closed_forms import LAYERED, LayeredGradients
from secagg.networks.programs import Program, Shaped, named_parameters
from secagg.randomness import RandomSource
from secagg.system.threads import one_thread
from secagg.wire import Range, require_in_range

if TYPE_CHECKING:
    from torch import Tensor

Positive = Annotated[float, Range(0, math.inf, above=True, below=True)]
NotNegative = Annotated[float, Range(0, math.inf, below=True)]
Share = Annotated[float, Range(0, 1, below=True)]
"""Ranges of settings: finite numbers above 0, of 0 or more, and from 0 to below 1."""
OptimiserName = Literal["adam", "sgd"]
CHUNK = 1 << 20
"""The number of gradients' entries that are held at once: 4 MiB, which a core's cache can hold."""


@dataclass(frozen=True)
class TrainingSettings:
    """Training settings: `epochs` ≥ 1 over all records in newly shuffled batches of `batch` ≥ 1 (last may be smaller).

    The loss of a batch is the program's, plus µ/2·‖w − start‖² with µ = `proximal` (FedProx, Li et al. 2020),
    plus `decay`/2·‖w‖². Velocity v ← `momentum`·v + gradient, then w ← w − `rate`·v, as `torch.optim.SGD` has it; or
    the steps of `torch.optim.Adam` (`RowAdam`), which takes no momentum and no proximal term.
    """

    epochs: int
    rate: Positive
    batch: int
    momentum: Share = 0.0
    proximal: NotNegative = 0.0
    decay: NotNegative = 0.0
    optimiser: OptimiserName = "sgd"

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1:
            raise BadInput(f"{self.epochs} epochs in batches of {self.batch}", remedy="both are 1 or more")
        require_in_range(self)
        if self.optimiser == "adam" and (self.momentum or self.proximal):
            given = {"momentum": self.momentum, "proximal": self.proximal}
            named = " and ".join(f"{name} {value:g}" for name, value in given.items() if value)
            problem = f"adam takes no {named}"
            raise BadInput(problem, remedy="leave it at 0, or choose the optimiser sgd")

    def pull(self, velocity: Tensor, weights: Tensor, first: Tensor) -> None:
        """Add the gradients of the FedProx and weight-decay penalties to `velocity`."""
        velocity.add_(weights, alpha=self.proximal + self.decay)
        velocity.sub_(first, alpha=self.proximal)


class RowDescent:
    """An `Optimiser` for SGD on a flat vector (size,), with `leaves` (tensors by name) and learning `rates` by slice.

    Only the parts that have a rate move. Gradients are added to the velocity, and so is `pull`: of a penalty, from a
    part's velocity, its weights and those that it began at.
    """

    rates: tuple[tuple[slice, float], ...] = ()
    pull: Callable[[Tensor, Tensor, Tensor], None] | None = None

    def __init__(self, program: Shaped, start: NDArray[np.float64], momentum: float) -> None:
        import torch

        self.momentum = momentum
        self.row, self.first = (torch.tensor(start, dtype=torch.float32) for _ in range(2))
        self.velocity = torch.zeros_like(self.row)
        self.leaves = leaves_on(program, self.row, self.velocity)

    def zero_grad(self) -> None:
        """Multiply the velocity by the momentum, in the slices that have a learning rate."""
        for part, _ in self.rates:
            self.velocity[part].mul_(self.momentum) if self.momentum else self.velocity[part].zero_()

    def step(self) -> None:
        """Move the weights against the velocity, in the slices that have a learning rate."""
        for part, rate in self.rates:
            if self.pull is not None:
                self.pull(self.velocity[part], self.row[part], self.first[part])
            self.row[part].sub_(self.velocity[part], alpha=rate)


class RowAdam:
    """An `Optimiser` for `torch.optim.Adam` on a row (3·size + 1,): weights, their two moments, the number of steps.

    Kingma & Ba 2015, Algorithm 1, with torch's betas (0.9, 0.999) and ε (10⁻⁸); `decay`·w is added to the `gradient`
    (L2, not AdamW). The row, in float32, is all that a later training needs to go on with the same steps.
    """

    def __init__(self, program: Program, start: NDArray[np.float64], rate: float, decay: float) -> None:
        import torch

        self.row = torch.tensor(start, dtype=torch.float32)
        weights, first, second = self.row[:-1].view(3, program.size)
        self.gradient = torch.zeros_like(weights)
        weights.grad = self.gradient
        self.leaves = leaves_on(program, weights, self.gradient)
        self.adam = torch.optim.Adam([weights], lr=rate, weight_decay=decay)
        self.adam.state[weights] = {"step": self.row[-1], "exp_avg": first, "exp_avg_sq": second}

    def zero_grad(self) -> None:
        """Set the gradient to 0."""
        self.gradient.zero_()

    def step(self) -> None:
        """Move weights, moments and the number of steps by one step of Adam."""
        self.adam.step()


def row_size(program: Program, optimiser: OptimiserName) -> int:
    """Return the number of entries of a row: the program's parameters, and with Adam what `RowAdam` keeps of them."""
    return 3 * program.size + 1 if optimiser == "adam" else program.size


@dataclass(frozen=True, eq=False)
class _BatchLoss:
    """The program's loss on records (n, d), n ≥ 1, as `descend` takes it."""

    program: Program
    leaves: dict[str, Tensor]
    x: Tensor
    labels: Tensor
    tolerant: bool

    def backward(self) -> None:
        """Add the loss's gradient; if `tolerant`, only that of the records on which the program does not fail."""
        _add_batch(self.program, self.leaves, self.x, self.labels, tolerant=self.tolerant)


def train(
    program: Program,
    start: NDArray[np.float64],
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    settings: TrainingSettings,
    randomness: RandomSource,
    *,
    tolerant: bool = False,
) -> NDArray[np.float64]:
    """Return parameters (size,) after training from `start` (size,) on records (n, d) with `labels` (n,).

    With Adam both are rows of `row_size` entries, in which a fresh start has zeros behind the parameters.
    Computed in float32 on one thread; the order of records comes from `randomness` and decides the rest. No records
    give `start`. Training that leaves the finite numbers returns what it got: look before you use it. Records on which
    the program fails are refused, or with `tolerant` left out where a batch meets them. Raises BadInput for those, and
    for other shapes or labels.
    """
    require_records(program, start, x, labels, settings.optimiser)
    if len(labels) == 0:
        return start.copy()
    import torch

    with one_thread():
        descent = _optimiser(program, start, settings)
        inputs, targets = torch.empty(x.shape, dtype=torch.float32), torch.empty(len(labels), dtype=torch.int64)

        def batches() -> Iterator[tuple[Tensor, Tensor]]:
            for _ in range(settings.epochs):
                order = shuffled(len(labels), randomness)
                np.take(x, order, axis=0, out=inputs.numpy(), mode="clip")  # the other modes copy twice
                np.take(labels, order, out=targets.numpy(), mode="clip")
                yield from zip(*(torch.split(each, settings.batch) for each in (inputs, targets)), strict=True)

        descend(descent, batches(), lambda batch: [_BatchLoss(program, descent.leaves, *batch, tolerant)])
        return descent.row.numpy().astype(np.float64)


def _optimiser(program: Program, start: NDArray[np.float64], settings: TrainingSettings) -> RowAdam | RowDescent:
    if settings.optimiser == "adam":
        return RowAdam(program, start, settings.rate, settings.decay)
    descent = RowDescent(program, start, settings.momentum)
    descent.rates = ((slice(None), settings.rate),)
    if settings.proximal or settings.decay:
        descent.pull = settings.pull
    return descent


def record_gradients(
    program: Program,
    parameters: NDArray[np.float64],
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    *,
    tolerant: bool = False,
) -> Iterator[NDArray[np.float32]]:
    """Yield the gradients of single records' losses at `parameters` (size,), in chunks of rows (…, size).

    Each record is computed alone, at the same place in memory: its gradient depends on it and on the parameters, bit
    for bit, and not on who else is there. `torch.func.vmap` would take less time, but its products round by how many
    records they get: with one more record all others' gradients, hence their integers, could change. Networks that
    have a closed form (`LAYERED`) are computed by it. A record on which the program fails is refused, or with
    `tolerant` has a zero gradient. Raises BadInput for it, and for other shapes or labels.
    """
    require_records(program, parameters, x, labels)
    import torch

    rows = max(1, CHUNK // program.size)
    with one_thread():
        weights = torch.tensor(parameters, dtype=torch.float32)
        way: LayeredGradients | _Backward
        way = LayeredGradients(program, weights) if type(program) in LAYERED else _Backward(program, weights, tolerant)
        for begin in range(0, len(labels), rows):
            chunk = np.empty((min(rows, len(labels) - begin), program.size), dtype=np.float32)
            way.fill(chunk, x[begin : begin + rows], labels[begin : begin + rows])
            yield chunk


class _Backward:
    """Gradients of single records' losses by torch's backward pass, one record after another at the same place."""

    def __init__(self, program: Program, weights: Tensor, tolerant: bool) -> None:
        import torch

        self.program, self.tolerant = program, tolerant
        self.gradient = torch.zeros_like(weights)
        self.leaves = leaves_on(program, weights, self.gradient)
        self.record, self.label = (
            torch.empty((1, program.dimension), dtype=torch.float32),
            torch.empty(1, dtype=torch.int64),
        )

    def fill(self, rows: NDArray[np.float32], x: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Write the gradients of records (n, d) into `rows` (n, size)."""
        for row in range(len(rows)):
            self.record.numpy()[0], self.label.numpy()[0] = x[row], labels[row]
            self.gradient.zero_()
            try:
                _add_gradient(self.program, self.leaves, self.record, self.label)
            except Exception as error:  # noqa: BLE001  # of a program that somebody brought
                _refuse_unless(self.program, error, tolerant=self.tolerant)
                self.gradient.zero_()
            rows[row] = self.gradient.numpy()


def record_losses(
    program: Program,
    parameters: NDArray[np.float64],
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    *,
    tolerant: bool = False,
) -> NDArray[np.float32]:
    """Return the losses (n,) of records (n, d) at `parameters` (size,), each computed alone as in `record_gradients`.

    A record on which the program fails is refused, or with `tolerant` has an infinite loss. Raises BadInput for it, and
    for other shapes or labels.
    """
    require_records(program, parameters, x, labels)
    import torch

    losses = np.empty(len(labels), dtype=np.float32)
    with one_thread(), torch.inference_mode():
        leaves = named_parameters(program, torch.tensor(parameters, dtype=torch.float32))
        one, its_label = torch.empty((1, x.shape[1])), torch.empty(1, dtype=torch.int64)
        for row in range(len(labels)):
            one.numpy()[0], its_label.numpy()[0] = x[row], labels[row]
            try:
                losses[row] = program.loss(leaves, one, its_label)
            except Exception as error:  # noqa: BLE001  # of a program that somebody brought
                _refuse_unless(program, error, tolerant=tolerant)
                losses[row] = np.inf
    return losses


def shuffled(count: int, randomness: RandomSource) -> NDArray[np.int64]:
    """Return a random permutation of 0 … count − 1, by sorting as many random words of 8 bytes.

    Two of them are equal with probability below count²/2⁶⁵; so far is it from uniform.
    """
    words = np.frombuffer(randomness.bytes(8 * count), dtype="<u8")
    return np.argsort(words, kind="stable").astype(np.int64)


def require_records(
    program: Program,
    parameters: NDArray[np.float64],
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    optimiser: OptimiserName = "sgd",
) -> None:
    """Raise BadInput unless the network takes this row of parameters, float32 records (n, d) and labels (n,)."""
    if parameters.shape != (size := row_size(program, optimiser),) or parameters.dtype != np.float64:
        raise BadInput(
            f"{program.name} has {size} parameters by {optimiser}, got {parameters.shape} of {parameters.dtype}"
        )
    if x.ndim != 2 or x.shape != (len(labels), program.dimension) or x.dtype != np.float32:
        problem = f"{program.name} takes float32 records (n, {program.dimension}), got {x.shape} of {x.dtype}"
        raise BadInput(f"{problem} with {len(labels)} labels")
    if labels.ndim != 1 or labels.dtype != np.int64 or not ((labels >= 0) & (labels < program.classes)).all():
        raise BadInput(f"labels are int64 from 0 to {program.classes - 1}")


def leaves_on(program: Shaped, weights: Tensor, gradient: Tensor) -> dict[str, Tensor]:
    """Return the parameters by name as views of `weights` (size,), whose gradients accumulate in `gradient` (size,)."""
    leaves = {name: part.detach().requires_grad_() for name, part in named_parameters(program, weights).items()}
    for name, place in named_parameters(program, gradient).items():
        leaves[name].grad = place
    return leaves


def _add_batch(program: Program, leaves: dict[str, Tensor], x: Tensor, labels: Tensor, *, tolerant: bool) -> None:
    """Add the gradient of a batch; where the program fails on the batch, only that of the records which have a loss.

    A batch whose records all have one, and which fails all the same, adds nothing.
    """
    import torch

    before = {name: leaf.grad.clone() for name, leaf in leaves.items() if tolerant and leaf.grad is not None}
    try:
        _add_gradient(program, leaves, x, labels)
    except Exception as error:  # noqa: BLE001  # of a program that somebody brought
        _refuse_unless(program, error, tolerant=tolerant)
        for name, grad in before.items():
            leaves[name].grad.copy_(grad)  # type: ignore[union-attr]
        with torch.no_grad():
            works = [_works(program, leaves, x[row : row + 1], labels[row : row + 1]) for row in range(len(labels))]
        kept = torch.tensor(works)
        if 0 < int(kept.sum()) < len(works):
            _add_batch(program, leaves, x[kept], labels[kept], tolerant=tolerant)


def _works(program: Program, leaves: dict[str, Tensor], x: Tensor, labels: Tensor) -> bool:
    try:
        program.loss(leaves, x, labels)
    except Exception:  # noqa: BLE001  # of a program that somebody brought
        return False
    return True


def _refuse_unless(program: Program, error: Exception, *, tolerant: bool) -> None:
    """Raise BadInput for a failing program unless `tolerant`; what it says could quote a record, so its kind alone."""
    if not tolerant:
        problem = f"{program.name} fails on a record ({type(error).__name__})"
        raise BadInput(problem, remedy="mend or remove the record, or mend the model") from error


def _add_gradient(program: Program, leaves: dict[str, Tensor], x: Tensor, labels: Tensor) -> None:
    """Add the gradient of the program's loss on records (n, d), n ≥ 1, to the leaves' gradients."""
    program.loss(leaves, x, labels).backward()  # type: ignore[no-untyped-call]
