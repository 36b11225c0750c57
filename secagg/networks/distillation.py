"""Training of a shared adapter, a client's own and its head on the client's records (Chen et al. 2024, "FedDAT").

The dual-adapter teacher is the mean of the member's own adapter A_c and a frozen copy Â_s of the shared one as the
round began. It and the shared adapter A_s learn the answers, and each learns from the other (mutual distillation):

    L_s   = CE(z_s) + α·T²·KL(softmax(z_t/T) ‖ softmax(z_s/T))        the teacher's z_t detached
    L_DAT = CE(z_t) + α·T²·KL(softmax(z_s/T) ‖ softmax(z_t/T))        the student's z_s detached

The paper prints the arguments of KL the other way round and leaves out softmax and the sign of CE; its authors' code
is as here. α grows as exp(−5(1 − t/T₀)) over the whole training, or is 1 throughout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.heads.descent import descend
from secagg.networks.adapted import OWN, SHARED, Dual, OverEncoder
from secagg.networks.programs import named_parameters
from secagg.networks.training import Positive, TrainingSettings, require_records, shuffled
from secagg.randomness import RandomSource
from secagg.system.threads import one_thread

if TYPE_CHECKING:
    from torch import Tensor

TEACHER = "teacher"
"""Prefix of the names of the tensors of the frozen copy."""
BETAS, DECAY = (0.9, 0.98), 0.01
"""The authors' betas and weight decay of AdamW."""
WARM_UP = 0.1
RAMPS = ("training", "round", "off")


@dataclass(frozen=True)
class DistillingSettings(TrainingSettings):
    """AdamW settings: `rate` warms up over a tenth of a round's steps, then falls linearly to 0.

    `momentum` is unused. `ramp`: over what α grows ("off": it is 1).
    """

    temperature: Positive = 3.0
    ramp: str = "training"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ramp not in RAMPS:
            raise BadInput(f"there is no ramp {self.ramp!r}", remedy=f"choose one of {', '.join(RAMPS)}")

    def alpha(self, done: float, number: int, rounds: int) -> float:
        """Return the distillation weight α when the fraction `done` of round `number` is over."""
        if self.ramp == "off":
            return 1.0
        share = done if self.ramp == "round" else (number - 1 + done) / rounds
        return math.exp(-5 * (1 - share))

    def rate_at(self, step: int, steps: int) -> float:
        """Return the factor by which the learning rate is multiplied at step `step` (from 0) of the round's `steps`."""
        warm = max(1, math.ceil(WARM_UP * steps))
        return min((step + 1) / warm, (steps - step) / max(1, steps - warm), 1.0)


@dataclass(frozen=True)
class Distilling(OverEncoder):
    """A network whose loss adds a student's and a teacher's: cross-entropy plus `pull` (α·T²) times a KL divergence.

    The loss is for gradients of records.

    What is detached is so in both, and the frozen copy `reference` is what the round began at: so the gradient of A_s
    is L_s's, that of A_c is L_DAT's, the head's is of both, and clipping sees them as one vector.
    """

    reference: Mapping[str, Tensor] = field(repr=False, default_factory=dict)
    temperature: float = 3.0
    pull: float = 9.0

    def student(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Return the student's scores z_s (n, C), by the shared adapter alone."""
        return self.by(parameters, x, {SHARED: 1.0})

    def teacher(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Return the teacher's scores z_t (n, C): the mean of the frozen shared copy and the client's own adapter."""
        return self.by({**parameters, **self.reference}, x, {TEACHER: 0.5, OWN: 0.5})

    def loss(self, parameters: Mapping[str, Tensor], x: Tensor, labels: Tensor) -> Tensor:
        from torch.nn import functional

        z_s, z_t = self.student(parameters, x), self.teacher(parameters, x)
        both = functional.cross_entropy(z_s, labels) + functional.cross_entropy(z_t, labels)
        return both + self.pull * (self.divergence(z_t.detach(), z_s) + self.divergence(z_s.detach(), z_t))

    def divergence(self, teaching: Tensor, learning: Tensor) -> Tensor:
        """Return the mean over records of KL(softmax(teaching/T) ‖ softmax(learning/T)), T being the temperature."""
        from torch.nn import functional

        learnt, taught = (functional.log_softmax(z / self.temperature, dim=1) for z in (learning, teaching))
        return functional.kl_div(learnt, taught, reduction="batchmean", log_target=True)


def distilling(dual: OverEncoder, shared: NDArray[np.float64], settings: DistillingSettings, pull: float) -> Distilling:
    """Return a `Dual` network with student and teacher loss; its teacher holds the frozen adapter `shared` (size,)."""
    import torch

    if not isinstance(dual.adapted, Dual):
        raise BadInput(f"{dual.name} has no adapter of a member's own")
    row = torch.tensor(shared, dtype=torch.float32)
    names = dual.adapted.adapter.shapes(TEACHER)
    parts = torch.split(row, [math.prod(shape) for shape in names.values()])
    reference = {name: part.view(shape) for (name, shape), part in zip(names.items(), parts, strict=True)}
    base = dual.dimension, dual.classes, dual.adapted, dual.encoder
    return Distilling(*base, reference, settings.temperature, pull)


def distil(
    program: OverEncoder,
    start: NDArray[np.float64],
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    settings: DistillingSettings,
    place: tuple[int, int],
    randomness: RandomSource,
) -> NDArray[np.float64]:
    """Return parameters (size,) after one round of FedDAT training from `start` on prepared records (n, d), n ≥ 0.

    `program` is a `Distilling`, where there is a teacher, or the shared adapter with its head. For each batch, in the
    paper's order: the shared adapter and the head against the teacher as it is, then the teacher's own adapter and the
    head against the shared one as it was. `place`: the round's number, and how many there are. Raises BadInput.
    """
    require_records(program, start, x, labels)
    if len(labels) == 0:
        return start.copy()
    import torch

    with one_thread():
        weights = torch.tensor(start, dtype=torch.float32)
        leaves = {name: part.clone().requires_grad_() for name, part in named_parameters(program, weights).items()}
        optimiser = torch.optim.AdamW(
            list(leaves.values()), lr=settings.rate, betas=BETAS, eps=1e-8, weight_decay=DECAY
        )
        steps = settings.epochs * -(-len(labels) // settings.batch)

        def batches() -> Iterator[tuple[Tensor, Tensor, float]]:
            step = 0
            for _ in range(settings.epochs):
                order = shuffled(len(labels), randomness)
                for rows in np.split(order, range(settings.batch, len(order), settings.batch)):
                    optimiser.param_groups[0]["lr"] = settings.rate * settings.rate_at(step, steps)
                    alpha = settings.alpha(step / steps, *place)
                    yield torch.from_numpy(x[rows]), torch.from_numpy(labels[rows]), alpha
                    step += 1

        descend(optimiser, batches(), lambda batch: losses_of(program, leaves, settings, *batch))
        return torch.cat([leaf.detach().reshape(-1) for leaf in leaves.values()]).numpy().astype(np.float64)


def losses_of(
    program: OverEncoder,
    leaves: Mapping[str, Tensor],
    settings: DistillingSettings,
    x: Tensor,
    labels: Tensor,
    alpha: float,
) -> Iterator[Tensor]:
    """Yield the student's, then the teacher's loss on a batch; without a teacher, the cross-entropy alone."""
    import torch
    from torch.nn.functional import cross_entropy

    if not isinstance(program, Distilling):
        yield cross_entropy(program.logits(leaves, x), labels)
        return
    pull = alpha * settings.temperature**2
    with torch.no_grad():
        taught = program.teacher(leaves, x)
    z = program.student(leaves, x)
    yield cross_entropy(z, labels) + pull * program.divergence(taught, z)
    learnt, z = z.detach(), program.teacher(leaves, x)
    yield cross_entropy(z, labels) + pull * program.divergence(learnt, z)
