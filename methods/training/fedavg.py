"""Federated averaging (McMahan et al. 2017) as a chain of secure sums, with server optimisers and FedProx's term."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from methods.method import SumSpec, Traits
from methods.round import Round
from methods.training.chain import ChainRound, Work, require_room
from methods.training.local_work import MemberUpdate, PrivateTraining, RecordGradients
from methods.training.trained_in_rounds import LARGEST, MOST, TrainedInRounds, encoding_of, require_within
from secagg.errors import BadInput
from secagg.networks import Program, TrainingSettings, digest_in, program_named


@dataclass(frozen=True)
class FedAvg(TrainedInRounds):
    """`rounds` sums that move the program `model` ("softmax", "mlp:128", "cnn", an exported one) from a public start.

    A member trains `epochs` in batches of `batch` at `rate`, held back by `proximal`/2·‖w − start‖² (FedProx, Li et al.
    2020), and sends what that moved, no longer than `clip`: the promise is about members. All count alike, or, where
    `cap` is above 0, by min(records, cap). With `gradients` 1 it sends the sum of its records' gradients instead, each
    no longer than `clip`, and the state moves by `rate` against their mean: the promise is about records, and `epochs`,
    `batch`, `proximal` and `cap` have nothing to say. With `sampling` above 0 the promise is about records too, by
    noise of the member's own.
    """

    name: ClassVar[str] = "fedavg"
    model: str = "softmax"
    epochs: int = 1
    proximal: float = 0.0
    cap: int = 0
    gradients: int = 0

    def __post_init__(self) -> None:
        require_within(self, [(0, LARGEST, ("proximal",))])
        super().__post_init__()
        require_within(self, [(1, MOST, ("epochs", "batch"))])
        if self.gradients not in (0, 1) or not 0 <= self.cap <= MOST:
            problem = f"gradients is {self.gradients}, cap {self.cap}"
            raise BadInput(problem, remedy=f"gradients is 0 or 1, cap from 0 to {MOST}")
        if self.sampling and (self.gradients or self.cap or self.proximal):
            problem = "sampling goes with no gradients, cap or proximal"
            raise BadInput(problem, remedy="a member's steps see its records and the state alone, and no count leaves")

    @property
    def training(self) -> TrainingSettings:
        """What a member does in a round."""
        return TrainingSettings(self.epochs, self.rate, self.batch, proximal=self.proximal)

    @property
    def traits(self) -> Traits:
        """Rates and clips are for records of length 1. What members may tune stays within a clip."""
        digest = digest_in(self.model)
        tuned = ("batch", "epochs", "proximal", "rate", "sampling", "server_rate", "steps")
        programs = (digest,) if digest is not None else ()
        return replace(super().traits, needs_unit_length=True, hyperparameters=tuned, programs=programs)

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """One kind of sum, `rounds` times. Raises BadInput for a program that does not fit records or messages."""
        return (self._work(program_named(self.model, dimension, classes), levels).spec(self.rounds),)

    def begin(self, dimension: int, classes: int, levels: int) -> Round:
        """The round at the program's public start."""
        program = program_named(self.model, dimension, classes)
        return ChainRound.first(program, self._work(program, levels), self.step, self.rounds)

    def _work(self, program: Program, levels: int) -> Work:
        encoding = encoding_of(program.size, self.clip, levels)
        require_room(program.size, self.step)
        if self.gradients:
            return RecordGradients(program, self.rate, self.clip, encoding.levels)
        update = encoding, self.cap, program, self.training
        return PrivateTraining(*update, self.private_training) if self.sampling else MemberUpdate(*update)
