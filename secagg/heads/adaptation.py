"""Local adaptation: a client trains the head that it received on its own records. Nothing leaves the client.

FedCGS holds its features at the global class means (Guan et al. 2025, Eq. 12), MPFT its predictions at those of the
received head (Zhang et al. 2025, Algorithm 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from secagg.encoding import Grid
from secagg.errors import BadInput
from secagg.heads.descent import WIDTH, Extra, Recipe, fresh_layers, train
from secagg.heads.linear import SHORTEST, HeadAdapter, LinearHead, WeightKind
from secagg.wire import Range, require_in_range

if TYPE_CHECKING:
    import torch

Loss = Literal["align", "distil"]
SEED = 1
"""Seed of the choice of shots: public, and the same for every data set."""
FIRST = np.float32(1e-3)
"""The factor of torch's first weights in a fresh adapter's last layer; zeros would stay, as ReLU has no slope there."""
RECIPES = {
    "align": Recipe("sgd", rate=0.01, epochs=200, batch=128, momentum=0.5, decay=5e-4),
    "distil": Recipe("adamw", rate=1e-3, epochs=10, batch=8, clip=1.0),
}


@dataclass(frozen=True)
class Adaptation:
    """Settings of local adaptation: the `loss`, how close to stay to the received head, and records used per class.

    `weight` ≥ 0 is the λ or β of the loss's second term; `shots` are records per class, 0: all.
    "align": cross-entropy + λ·mean over a batch's records and the d dimensions of (f(x) − μ_y)², with f(x) and the
    global class mean μ_y on the unit sphere. This is FedPAC's MSE: λ here is λ/d before Eq. 12's ‖f(x) − μ_y‖²; and
    records count alike, where Eq. 12, its 1/N_y put right, has classes count alike. SGD as the paper has it.
    "distil": cross-entropy + β·KL(global ‖ local) of the scores' softmax at temperature 1, summed over the C classes
    and averaged over records. MPFT's released code averages over classes too: β here is its β/C. AdamW with rate 10⁻³
    and batches of 8 as there, 10 epochs; the code makes one, at a rate that is still warming up.
    """

    loss: Loss
    weight: Annotated[float, Range(0, math.inf, below=True)]
    shots: Annotated[int, Range(0, math.inf)] = 0

    def __post_init__(self) -> None:
        if self.loss not in get_args(Loss):
            raise BadInput(f"no such adaptation: {self.loss}", remedy="give align:LAMBDA or distil:BETA:SHOTS")
        require_in_range(self)

    def __str__(self) -> str:
        """Return the text that `read` reads."""
        return f"{self.loss}:{self.weight:g}" + (f":{self.shots}" if self.shots else "")

    @classmethod
    def read(cls, text: str) -> Adaptation:
        """Read settings from a text such as "align:1.0" or "distil:10:16" (the shots are optional). Raises BadInput."""
        loss, *numbers = text.split(":")
        try:
            weight, *shots = numbers
            return cls(loss, float(weight), *map(int, shots))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            remedy = "give align:LAMBDA or distil:BETA, and :SHOTS of each class if not all"
            raise BadInput(f"cannot adapt by {text!r}", remedy=remedy) from None


def adapt(
    head: LinearHead,
    rows: NDArray[np.float64],
    labels: NDArray[np.int64],
    adaptation: Adaptation,
    means: NDArray[np.float64] | None = None,
) -> LinearHead:
    """Return `head` after training on a client's own head inputs (n, d) with `labels` (n,) in 0…C−1.

    Two runs on one machine give the same bits. Training begins at `local_start`, and moves its adapter and its linear
    layer; with the weight 0 nothing holds it, and it is plain fine-tuning. Classes that the head lacks stay so, and
    their records are left out. "align" takes `means` (C, d), see `class_means`. Raises BadInput for records that do not
    fit the head, or when there is none to train on.
    """
    _check(rows, labels, head.inputs, len(head.bias))
    used = records_used(labels, head.present, adaptation.shots)
    rows, labels = rows[used], labels[used]
    start = local_start(head, rows)
    extra = _held(start, adaptation, head.scores(rows), labels, means) if adaptation.weight else None
    return train(start, rows, labels, np.ones(len(labels)), RECIPES[adaptation.loss], extra=extra)


def local_start(head: LinearHead, rows: NDArray[np.float64]) -> LinearHead:
    """Return the head from which adaptation to records (n, d) starts, with its own or else a new residual adapter.

    One with an adapter is that itself. A linear layer, which takes features of any length, gets a residual adapter
    that changes nearly nothing but puts out length 1, and its weights are multiplied by the records' mean length: it
    then scores a record of that length as before, which a plan that normalises records makes of all of them.
    Raises BadInput for a head behind a recentring.
    """
    if isinstance(head.before, HeadAdapter):
        return LinearHead(head.weight, head.bias, head.before)
    if head.before is not None:
        raise BadInput("a head of refinement rounds cannot be adapted", remedy="use one of a plan without --refine")
    length = np.float32(np.linalg.norm(rows, axis=1).mean())
    first, (weight, bias) = fresh_layers((head.inputs, WIDTH, head.inputs), biased=False)
    return LinearHead(head.weight * length, head.bias, HeadAdapter("residual", (first, (weight * FIRST, bias))))


def class_means(head: LinearHead, weights: WeightKind, grid: Grid) -> NDArray[np.float64]:
    """Return the class means μ (C, d) of a head made on `grid`: its `means`, or its weights if these are class means.

    Raises BadInput when it has none.
    """
    if head.means is not None:
        return head.means.astype(np.float64)
    if weights == "other":
        remedy = "use distil, or a plan of fedcgs with the parameter personalise=1"
        raise BadInput("the head holds no class means to align with", remedy=remedy)
    keeps_length = weights == "means" and not grid.is_normalised
    return head.weight.astype(np.float64) + (grid.centre if keeps_length else 0.0)


def records_used(labels: NDArray[np.int64], present: NDArray[np.bool_], shots: int) -> NDArray[np.bool_]:
    """Select records to train on by booleans (n,), at most `shots` (0: all) of each `present` class.

    They are chosen by position alone. Raises BadInput when there is none.
    """
    keys = np.random.PCG64(SEED).random_raw(len(labels))
    used = present[labels]
    for label in np.unique(labels[used]) if shots else ():
        members = np.flatnonzero(labels == label)
        used[members[np.argsort(keys[members], kind="stable")[shots:]]] = False
    if not used.any():
        raise BadInput("no record to adapt to is of a class that the head knows")
    return used


def _check(rows: NDArray[np.float64], labels: NDArray[np.int64], inputs: int, classes: int) -> None:
    if rows.ndim != 2 or rows.shape[1] != inputs or labels.shape != (len(rows),):
        problem = f"{len(labels)} records of shape {rows.shape[1:]} for a head that takes {inputs} features"
        raise BadInput(problem, remedy="use the backbone and the expansion that the head was made with")
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        raise BadInput(f"labels from {labels.min()} to {labels.max()} for {classes} classes")
    if not np.isfinite(rows).all():
        raise BadInput("a record has NaN or infinite entries", remedy="mend or remove it")


def _held(
    start: LinearHead,
    adaptation: Adaptation,
    received: NDArray[np.float64],
    labels: NDArray[np.int64],
    means: NDArray[np.float64] | None,
) -> Extra:
    """Return the loss beside cross-entropy, from the received head's scores (n, C) or the class means.

    β times the divergence of the local predictions from those by the received scores; or λ times the mean square
    between what the adapter puts out and the directions of each record's class mean.
    """
    import torch

    weight = adaptation.weight
    if adaptation.loss == "distil":
        told = torch.log_softmax(torch.from_numpy(received.astype(np.float32)), dim=1)

        def divergence(own: torch.Tensor, mapped: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
            local = torch.log_softmax(found, dim=1)
            return weight * torch.nn.functional.kl_div(local, told[own], reduction="batchmean", log_target=True)

        return divergence
    if not isinstance(start.before, HeadAdapter) or start.before.kind != "residual":
        raise BadInput("a stacked adapter puts out no features to align with class means", remedy="use distil")
    if means is None or means.shape != (len(start.bias), start.inputs):
        raise BadInput("aligning takes the mean of every class", remedy="use a head that holds them")
    lengths = np.linalg.norm(means[labels], axis=1, keepdims=True)
    wanted = torch.from_numpy((means[labels] / np.maximum(lengths, SHORTEST)).astype(np.float32))

    def apart(own: torch.Tensor, mapped: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
        return weight * torch.nn.functional.mse_loss(mapped, wanted[own])

    return apart
