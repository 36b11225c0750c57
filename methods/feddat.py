"""FedDAT: one adapter shared by secure sums, taught by each member's own (Chen et al. 2024), for any frozen encoder.

A chain of secure sums like federated averaging's, whose state is the shared adapter A_s and nothing else. The member's
adapter A_c, its head and its answers stay with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

from methods.adapter_work import AdapterUpdate, PrivateAdapterUpdate
from methods.chain import MAX_ROUNDS, MODEL, ChainRound, require_room
from methods.fedavg import GRADIENT_LEVELS, LARGEST, LEAST, MOST, encoding_of
from methods.method import Parameters, SumSpec, UsualMethod
from methods.round import Contribution, Local, Opened, Round
from secagg.errors import BadInput
from secagg.features import BOTTLENECK
from secagg.head import Artifact
from secagg.models import (
    Adapter,
    DistillingSettings,
    DpSgdSettings,
    Dual,
    SharedAdapter,
    TrainedModel,
    WithHead,
    read_model,
)
from secagg.updates import SERVER_STEPS, ServerStep

VARIANTS = ("", "as-released", "averaged")


@dataclass(frozen=True)
class FedDAT(UsualMethod):
    """`rounds` sums that move one adapter (`kind`, `rank`) at the encoder's `places`, such as 12x768.

    A member trains `epochs` in batches of `batch` by AdamW at `rate`, at the distillation's `temperature`, its weight
    growing over `ramp` ("training", "round", "off"), and sends what moved the shared adapter, no longer than `clip`:
    the promise is about members. With `sampling` above 0 it trains by DP-SGD on both losses of a record at once,
    `steps` in a round, at `rate`, with gradients no longer than `gradient_clip`: the promise is about records.
    `variant`: "" as the paper means it, "as-released" as its authors' code, "averaged" without a teacher, which is
    federated averaging of adapters. A plan's classes are numbers: the answers they stand for are a member's own.
    """

    name: ClassVar[str] = "feddat"
    places: str = "12x768"
    kind: str = BOTTLENECK
    rank: int = 48
    rounds: int = 20
    epochs: int = 1
    rate: float = 1e-4
    batch: int = 64
    temperature: float = 3.0
    ramp: str = "training"
    variant: str = ""
    clip: float = 1.0
    sampling: float = 0.0
    steps: int = 10
    gradient_clip: float = 1.0
    server: str = "average"
    server_rate: float = 1.0

    def __post_init__(self) -> None:
        self.adapter, self.training  # noqa: B018  # refuse what cannot be
        if not 1 <= self.rounds <= MAX_ROUNDS:
            raise BadInput(f"{self.rounds} rounds", remedy=f"give 1 to {MAX_ROUNDS}")
        for name in ("rate", "clip", "gradient_clip", "server_rate"):
            if not LEAST <= getattr(self, name) <= LARGEST:
                raise BadInput(f"{name} is {getattr(self, name)}", remedy=f"give {LEAST:g} to {LARGEST:g}")
        if not (1 <= self.epochs <= MOST and 1 <= self.batch <= MOST):
            raise BadInput(f"{self.epochs} epochs in batches of {self.batch}", remedy=f"give 1 to {MOST} of both")
        if self.variant not in VARIANTS:
            known = ", ".join(filter(None, VARIANTS))
            raise BadInput(f"there is no variant {self.variant!r}", remedy=f"choose one of {known}, or none")
        if self.sampling:
            self.private_training  # noqa: B018
        if self.sampling and self.variant == "as-released":
            problem = "the released code trains the shared adapter against a teacher of other steps"
            remedy = "a record's promise takes all that its gradient passes through in one clipped gradient: no variant"
            raise BadInput(problem, remedy=remedy)
        if self.server not in SERVER_STEPS:
            raise BadInput(f"no server optimiser {self.server!r}", remedy=f"choose one of {', '.join(SERVER_STEPS)}")

    @property
    def parameters(self) -> Parameters:
        """All fields."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def adapter(self) -> Adapter:
        """What is shared."""
        return Adapter(self.kind, self.rank, self.places)

    @property
    def training(self) -> DistillingSettings:
        """What a member does in a round."""
        distils, released = self.variant != "averaged", self.variant == "as-released"
        how = {"temperature": self.temperature, "ramp": self.ramp, "distils": distils, "as_released": released}
        return DistillingSettings(self.epochs, self.rate, self.batch, **how)  # type: ignore[arg-type]

    @property
    def private_training(self) -> DpSgdSettings:
        """What it does where `sampling` is above 0, but for the noise, which is the plan's."""
        sampled = self.steps, self.sampling, self.gradient_clip
        return DpSgdSettings(self.rate, *sampled, GRADIENT_LEVELS, sigma=0.0, denominator=float(self.batch))

    @property
    def step(self) -> ServerStep:
        """How an opened total moves the shared adapter."""
        return SERVER_STEPS[self.server](self.server_rate)

    @property
    def reads_inputs(self) -> bool:
        """Yes: adapters sit inside the encoder."""
        return True

    @property
    def trains(self) -> bool:
        """Yes."""
        return True

    @property
    def needs_two_classes(self) -> bool:
        """Yes: its head tells answers apart."""
        return True

    @property
    def shows_last_sum(self) -> bool:
        """Yes: members step along, and make their own models of it."""
        return True

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """One kind of sum, `rounds` times. Raises BadInput for an adapter that does not fit messages."""
        return (self._work(dimension, classes, levels).spec(self.rounds),)

    def begin(self, dimension: int, classes: int, levels: int) -> Round:
        """The round at the adapter's public start."""
        program = SharedAdapter(dimension, classes, self.adapter)
        return AdapterRound.first(program, self._work(dimension, classes, levels), self.step, self.rounds)

    def read_artifact(self, content: bytes) -> tuple[Artifact, dict[str, str]]:
        """A shared adapter. Raises BadInput for anything else."""
        return read_model(content)

    def _work(self, dimension: int, classes: int, levels: int) -> AdapterUpdate:
        shared = SharedAdapter(dimension, classes, self.adapter)
        adapted = (WithHead if self.variant == "averaged" else Dual)(dimension, classes, self.adapter)
        require_room(shared.size, self.step)
        encoding = encoding_of(shared.size, self.clip, levels)
        work = encoding, 0, shared, self.training, adapted, (1, self.rounds)
        return PrivateAdapterUpdate(*work, self.private_training) if self.sampling else AdapterUpdate(*work)


@dataclass(frozen=True, eq=False)
class AdapterRound(ChainRound):
    """A round at a shared adapter, which leaves a member models of its own."""

    work: AdapterUpdate

    def contribute(self, local: Local) -> Contribution:
        """The work of this round at the state."""
        return self.work.at(self.number, self.rounds).contribute(self.state.groups[MODEL], local)

    def personal(self, state: bytes, opened: Opened) -> Mapping[str, TrainedModel]:
        """The next shared adapter with the member's head, and with its own adapter. Raises BadInput."""
        following = self.server.apply(self.state, self.work.mean(opened))
        return self.work.own_models(following.groups[MODEL], state)
