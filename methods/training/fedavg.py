"""Federated averaging (McMahan et al. 2017) as a chain of secure sums, with server optimisers and FedProx's term."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from methods.method import SumSpec, Traits
from methods.round import Round
from methods.training.client_update import KeptTensors, ProgramUpdate, RecordGradients
from methods.training.trained_in_rounds import LARGEST, MOST, Amount, Count, TrainedInRounds, encoding_of
from methods.training.training_round import ClientWork, TrainingRound, require_room
from secagg.errors import BadInput
from secagg.networks import Program, TrainingSettings, program_named
from secagg.networks.exported import digest_in
from secagg.wire import Range


@dataclass(frozen=True)
class FedAvg(TrainedInRounds):
    """The method FedAvg: `rounds` sums that train the network `model` ("softmax", "mlp:128", "cnn" or exported).

    A member trains `epochs` in batches of `batch` at `rate`, held back by `proximal`/2·‖w − start‖² (FedProx, Li et al.
    2020), and sends what that moved, no longer than `clip`: the promise is about members. All count alike, or, where
    `cap` is above 0, by min(records, cap). With `gradients` 1 it sends the sum of its records' gradients instead, each
    no longer than `clip`, and the state moves by `rate` against their mean: the promise is about records, and `epochs`,
    `batch`, `proximal` and `cap` have nothing to say. With `sampling` above 0 the promise is about records too, by
    noise of the member's own.
    """

    name: ClassVar[str] = "fedavg"
    model: Annotated[str, "Network: softmax, mlp:H of H hidden units, cnn, or an exported FILE.pt2"] = "softmax"
    epochs: Count = 1
    proximal: Annotated[float, Range(0, LARGEST)] = 0.0
    cap: Annotated[int, Range(0, MOST)] = 0
    gradients: Annotated[
        int,
        Range(0, 1),
        "1: members send the sum of their records' gradients, each at most clip long; 0: their updates",
    ] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampling and (self.gradients or self.cap or self.proximal):
            problem = "sampling goes with no gradients, cap or proximal"
            raise BadInput(problem, remedy="a member's steps see its records and the state alone, and no count leaves")

    @property
    def training(self) -> TrainingSettings:
        return TrainingSettings(self.epochs, self.rate, self.batch, proximal=self.proximal)

    @property
    def traits(self) -> Traits:
        """Requirements (records of norm 1, for learning rates and clips) and tunable settings, which change no clip."""
        digest = digest_in(self.model)
        tuned = ("batch", "epochs", "proximal", "rate", "sampling", "server_rate", "steps")
        programs = (digest,) if digest is not None else ()
        return replace(super().traits, needs_unit_length=True, hyperparameters=tuned, programs=programs)

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        return (self._work(program_named(self.model, dimension, classes), levels).spec(self.rounds),)

    def begin(self, dimension: int, classes: int, levels: int) -> Round:
        program = program_named(self.model, dimension, classes)
        return TrainingRound.first(program, self._work(program, levels), self.step, self.rounds)

    def _work(self, program: Program, levels: int) -> ClientWork:
        encoding = encoding_of(program.size, self.clip, levels)
        require_room(program.size, self.step)
        if self.gradients:
            return RecordGradients(program, self.rate, self.clip, encoding.levels)
        how = encoding, self.cap, KeptTensors(program.shapes), self.private_training
        return ProgramUpdate(*how, program, self.training)


@dataclass(frozen=True)
class FedAvgOneShot(FedAvg):
    """`FedAvg` with one round of 50 epochs in batches of 128, as Guan et al. 2025 (section 4) compare it.

    A rate of 0.1 without momentum goes as far as theirs of 0.01 with 0.9. Members weigh by their records, up to `cap`.
    Everything else, and every promise, is `FedAvg`'s.
    """

    name: ClassVar[str] = "fedavg-one-shot"
    rounds: int = field(default=1, init=False)
    epochs: Count = 50
    batch: Count = 128
    clip: Amount = 20.0
    cap: Annotated[int, Range(0, MOST)] = 1024
