"""The base of methods that train in rounds: ranges of parameters, DP-SGD inside members, the server's optimiser."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from methods.method import Traits, UsualMethod
from methods.training.client_update import sampled_steps
from methods.training.training_round import MAX_ROUNDS
from secagg.crypto.labels import digest
from secagg.encoding.updates import SERVER_STEPS, ServerStep, UpdateEncoding, blocks_of
from secagg.errors import BadInput
from secagg.heads import Artifact
from secagg.networks import AugmentedSettings, DpSgdSettings, TrainingSettings, read_model

MOST = 1_000_000
LEAST, LARGEST = 1e-30, 1e30
"""Of rates and of the clip: float32 holds these, and float64 what is divided by them."""
FEWEST_UNITS = 16
"""In a typical entry of a longest update, so that rounding moves it by a few per cent, at random."""
Ranges = Iterable[tuple[float, float, tuple[str, ...]]]
"""The least and the most of parameters, and their names."""


@dataclass(frozen=True)
class TrainedInRounds(UsualMethod, ABC):
    """`rounds` sums of what moved members' models, or parts of them, no longer than `clip`, from a public start.

    Members train at `rate` in batches of `batch`; with `sampling` above 0 by DP-SGD, `steps` in a round, each on
    records drawn with that probability, with gradients no longer than `gradient_clip`; their sum is divided by `batch`.
    The server's optimiser is `server` ("average", "momentum", "adam") at `server_rate` (Reddi et al. 2021).
    """

    name: ClassVar[str]
    libraries: ClassVar[tuple[str, ...]] = ("torch", "safetensors.numpy")
    rounds: int = 20
    rate: float = 0.1
    batch: int = 32
    clip: float = 1.0
    sampling: float = 0.0
    steps: int = 10
    gradient_clip: float = 1.0
    server: str = "average"
    server_rate: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= MAX_ROUNDS:
            raise BadInput(f"{self.rounds} rounds", remedy=f"give 1 to {MAX_ROUNDS}")
        require_within(self, [(LEAST, LARGEST, ("rate", "clip", "gradient_clip", "server_rate"))])
        self.training, self.private_training  # noqa: B018  # both refuse settings that cannot be
        if self.server not in SERVER_STEPS:
            raise BadInput(f"no server optimiser {self.server!r}", remedy=f"choose one of {', '.join(SERVER_STEPS)}")

    @property
    @abstractmethod
    def training(self) -> TrainingSettings | AugmentedSettings:
        """A member's training in a round. Raises BadInput for impossible settings."""

    @property
    def private_training(self) -> DpSgdSettings | None:
        """A member's steps where `sampling` is above 0, but for the noise, which is the plan's."""
        if not self.sampling:
            return None
        return sampled_steps(self.rate, self.steps, self.sampling, self.gradient_clip, self.batch)

    @property
    def step(self) -> ServerStep:
        """The server's optimiser, which moves the state by an opened total."""
        return SERVER_STEPS[self.server](self.server_rate)

    @property
    def traits(self) -> Traits:
        """Members step along with the one model."""
        return replace(super().traits, shares_one_model=True, shows_last_sum=True)

    def read_artifact(self, content: bytes) -> tuple[Artifact, dict[str, str]]:
        """A trained program. Raises BadInput for anything else."""
        return read_model(content)


def require_within(method: object, ranges: Ranges) -> None:
    """Raise BadInput for a parameter of the method that is out of its range, or no number."""
    for low, high, names in ranges:
        for name in names:
            if not low <= getattr(method, name) <= high:
                raise BadInput(f"{name} is {getattr(method, name)}", remedy=f"give {low} to {high}")


def encoding_of(size: int, clip: float, levels: int) -> UpdateEncoding:
    """Return the encoding of updates of so many entries, in `levels` grid units or more (`FEWEST_UNITS`)."""
    units = max(levels, _power_above(FEWEST_UNITS**2 * sum(blocks_of(size))))
    entry = 1 << (UpdateEncoding.usual_entry(size, units) - 1).bit_length()
    return UpdateEncoding(size, clip, units, min(entry, units), digest("public rotation"))


def _power_above(square: int) -> int:
    """The least power of two that is no less than √square: by integers, so the same everywhere."""
    return 1 << ((square - 1).bit_length() + 1) // 2
