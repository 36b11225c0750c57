"""The base of methods that train in rounds: parameter ranges, settings of clients' DP-SGD, the server's optimiser."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from methods.method import Traits, UsualMethod
from methods.training.client_update import sampled_steps
from methods.training.training_round import MAX_ROUNDS
from secagg.crypto.labels import digest
from secagg.encoding.updates import ServerStep, UpdateEncoding
from secagg.encoding.updates.encoding import blocks_of
from secagg.encoding.updates.steps import SERVER_STEPS
from secagg.heads import Artifact
from secagg.networks import DpSgdSettings, TrainingSettings, read_model
from secagg.networks.augmented_training import AugmentedSettings
from secagg.wire import Range, require_in_range

MOST = 1_000_000
LEAST, LARGEST = 1e-30, 1e30
"""Bounds of rates and of the clip: float32 holds these, and float64 what is divided by them."""
FEWEST_UNITS = 16
"""Grid units of a typical entry of a longest update, so that random rounding moves it by a few per cent."""
Count = Annotated[int, Range(1, MOST)]
Amount = Annotated[float, Range(LEAST, LARGEST)]
Sampling = Annotated[float, Range(0, 1)]


@dataclass(frozen=True)
class TrainedInRounds(UsualMethod, ABC):
    """The base of methods that train a model in `rounds` sums of clients' updates, each of L2 norm ≤ `clip`.

    Members train at `rate` in batches of `batch`; with `sampling` above 0 by DP-SGD, `steps` in a round, each on
    records drawn with that probability, with gradients no longer than `gradient_clip`; their sum is divided by `batch`.
    The server's optimiser is `server` ("average", "momentum", "adam") at `server_rate` (Reddi et al. 2021).
    """

    name: ClassVar[str]
    libraries: ClassVar[tuple[str, ...]] = ("torch", "safetensors.numpy")
    rounds: Annotated[int, Range(1, MAX_ROUNDS)] = 20
    rate: Amount = 0.1
    batch: Count = 32
    clip: Amount = 1.0
    sampling: Sampling = 0.0
    steps: Annotated[int, Range(1, math.inf)] = 10
    gradient_clip: Amount = 1.0
    server: Annotated[Literal["average", "momentum", "adam"], "Optimiser by which the server moves the model"] = (
        "average"
    )
    server_rate: Annotated[Amount, "Learning rate of the server's optimiser"] = 1.0

    def __post_init__(self) -> None:
        self.training, self.private_training  # noqa: B018  # both refuse settings that cannot be
        require_in_range(self)

    @property
    @abstractmethod
    def training(self) -> TrainingSettings | AugmentedSettings:
        """Settings of a client's local training in a round. Raises BadInput for impossible settings."""

    @property
    def private_training(self) -> DpSgdSettings | None:
        """Settings of a client's DP-SGD, None where `sampling` is 0; the plan sets the noise."""
        if not self.sampling:
            return None
        return sampled_steps(self.rate, self.steps, self.sampling, self.gradient_clip, self.batch)

    @property
    def step(self) -> ServerStep:
        """The server's optimiser, which updates the model by an opened sum."""
        return SERVER_STEPS[self.server](self.server_rate)

    @property
    def traits(self) -> Traits:
        return replace(super().traits, shares_one_model=True, shows_last_sum=True)

    def read_artifact(self, content: bytes) -> tuple[Artifact, dict[str, str]]:
        return read_model(content)


def encoding_of(size: int, clip: float, levels: int) -> UpdateEncoding:
    """Return the encoding of updates (`size` entries, L2 ≤ `clip`), with `levels` grid units to the clip, or more.

    More units are taken where a typical entry would have fewer than `FEWEST_UNITS`.
    """
    square = FEWEST_UNITS**2 * sum(blocks_of(size))
    above_root = 1 << ((square - 1).bit_length() + 1) // 2  # the least power of two ≥ √square, the same everywhere
    units = max(levels, above_root)
    entry = 1 << (UpdateEncoding.usual_entry(size, units) - 1).bit_length()
    return UpdateEncoding(size, clip, units, min(entry, units), digest("public rotation"))
