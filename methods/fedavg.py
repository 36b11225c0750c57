"""Federated averaging (McMahan et al. 2017) as a chain of secure sums, with server optimisers and FedProx's term."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from methods.chain import MAX_ROUNDS, ChainRound, Work, require_room
from methods.local_work import MemberUpdate, PrivateTraining, RecordGradients
from methods.method import Parameters, SumSpec, UsualMethod
from methods.round import Round
from secagg.crypto.labels import digest
from secagg.errors import BadInput
from secagg.head import Artifact
from secagg.models import DpSgdSettings, Program, TrainingSettings, digest_in, program_named, read_model
from secagg.updates import SERVER_STEPS, ServerStep, UpdateEncoding, blocks_of

MOST = 1_000_000
LEAST, LARGEST = 1e-30, 1e30
"""Of rates and of the clip: float32 holds these, and float64 what is divided by them."""
GRADIENT_LEVELS = 1 << 20
"""In the longest gradient of a record, where it does not leave the member."""
FEWEST_UNITS = 16
"""In a typical entry of a longest update, so that rounding moves it by a few per cent, at random."""


@dataclass(frozen=True)
class FedAvg(UsualMethod):
    """`rounds` sums that move the program `model` ("softmax", "mlp:128", "cnn", an exported one) from a public start.

    A member trains `epochs` in batches of `batch` at `rate`, held back by `proximal`/2·‖w − start‖² (FedProx, Li et al.
    2020), and sends what that moved, no longer than `clip`: the promise is about members. All count alike, or, where
    `cap` is above 0, by min(records, cap). With `gradients` 1 it sends the sum of its records' gradients instead, each
    no longer than `clip`, and the state moves by `rate` against their mean: the promise is about records, and `epochs`,
    `batch`, `proximal` and `cap` have nothing to say. With `sampling` above 0 it trains by DP-SGD, `steps` in a round,
    each on records drawn with that probability, with gradients no longer than `gradient_clip`; their sum is divided by
    `batch`. The promise is about records too, by noise of the member's own. The server's optimiser is `server`
    ("average", "momentum", "adam") at `server_rate` (Reddi et al. 2021).
    """

    name: ClassVar[str] = "fedavg"
    model: str = "softmax"
    rounds: int = 20
    epochs: int = 1
    rate: float = 0.1
    batch: int = 32
    proximal: float = 0.0
    clip: float = 1.0
    cap: int = 0
    gradients: int = 0
    sampling: float = 0.0
    steps: int = 10
    gradient_clip: float = 1.0
    server: str = "average"
    server_rate: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= MAX_ROUNDS:
            raise BadInput(f"{self.rounds} rounds", remedy=f"give 1 to {MAX_ROUNDS}")
        for name in ("rate", "clip", "gradient_clip", "server_rate"):
            if not LEAST <= getattr(self, name) <= LARGEST:
                raise BadInput(f"{name} is {getattr(self, name)}", remedy=f"give {LEAST:g} to {LARGEST:g}")
        if not 0 <= self.proximal <= LARGEST:
            raise BadInput(f"proximal is {self.proximal}", remedy=f"give 0 to {LARGEST:g}")
        if not (1 <= self.epochs <= MOST and 1 <= self.batch <= MOST):
            raise BadInput(f"{self.epochs} epochs in batches of {self.batch}", remedy=f"give 1 to {MOST} of both")
        if self.gradients not in (0, 1) or not 0 <= self.cap <= MOST:
            problem = f"gradients is {self.gradients}, cap {self.cap}"
            raise BadInput(problem, remedy=f"gradients is 0 or 1, cap from 0 to {MOST}")
        if self.sampling:
            self.private_training  # noqa: B018  # refuses what cannot be
        if self.sampling and (self.gradients or self.cap or self.proximal):
            problem = "sampling goes with no gradients, cap or proximal"
            raise BadInput(problem, remedy="a member's steps see its records and the state alone, and no count leaves")
        if self.server not in SERVER_STEPS:
            raise BadInput(f"no server optimiser {self.server!r}", remedy=f"choose one of {', '.join(SERVER_STEPS)}")

    @property
    def parameters(self) -> Parameters:
        """All fields that can be given."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.init}

    @property
    def training(self) -> TrainingSettings:
        """What a member does in a round."""
        return TrainingSettings(self.epochs, self.rate, self.batch, proximal=self.proximal)

    @property
    def private_training(self) -> DpSgdSettings:
        """What it does where `sampling` is above 0, but for the noise, which is the plan's."""
        sampled = self.steps, self.sampling, self.gradient_clip
        return DpSgdSettings(self.rate, *sampled, GRADIENT_LEVELS, sigma=0.0, denominator=float(self.batch))

    @property
    def step(self) -> ServerStep:
        """How an opened total moves the state."""
        return SERVER_STEPS[self.server](self.server_rate)

    @property
    def needs_unit_length(self) -> bool:
        """Yes: rates and clips are for such records."""
        return True

    @property
    def trains(self) -> bool:
        """Yes."""
        return True

    @property
    def tunable(self) -> tuple[str, ...]:
        """How members train, and how far the server steps; the size of steps in what is private stays within a clip."""
        return ("batch", "epochs", "proximal", "rate", "sampling", "server_rate", "steps")

    @property
    def programs(self) -> tuple[str, ...]:
        """That of the model, where it is an exported one."""
        digest = digest_in(self.model)
        return (digest,) if digest is not None else ()

    @property
    def shows_last_sum(self) -> bool:
        """Yes: members step along."""
        return True

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """One kind of sum, `rounds` times. Raises BadInput for a program that does not fit records or messages."""
        return (self._work(program_named(self.model, dimension, classes), levels).spec(self.rounds),)

    def begin(self, dimension: int, classes: int, levels: int) -> Round:
        """The round at the program's public start."""
        program = program_named(self.model, dimension, classes)
        return ChainRound.first(program, self._work(program, levels), self.step, self.rounds)

    def read_artifact(self, content: bytes) -> tuple[Artifact, dict[str, str]]:
        """A trained program. Raises BadInput for anything else."""
        return read_model(content)

    def _work(self, program: Program, levels: int) -> Work:
        encoding = encoding_of(program.size, self.clip, levels)
        require_room(program.size, self.step)
        if self.gradients:
            return RecordGradients(program, self.rate, self.clip, encoding.levels)
        update = encoding, self.cap, program, self.training
        return PrivateTraining(*update, self.private_training) if self.sampling else MemberUpdate(*update)


def encoding_of(size: int, clip: float, levels: int) -> UpdateEncoding:
    """How updates of so many entries become integers, in `levels` grid units or more (`FEWEST_UNITS`)."""
    units = max(levels, _power_above(FEWEST_UNITS**2 * sum(blocks_of(size))))
    entry = 1 << (UpdateEncoding.usual_entry(size, units) - 1).bit_length()
    return UpdateEncoding(size, clip, units, min(entry, units), digest("public rotation"))


def _power_above(square: int) -> int:
    """The least power of two that is no less than √square: by integers, so the same everywhere."""
    return 1 << ((square - 1).bit_length() + 1) // 2
