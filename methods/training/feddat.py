"""FedDAT: one adapter shared by secure sums, taught by each member's own (Chen et al. 2024), for any frozen encoder.

A chain of secure sums like federated averaging's, whose state is the shared adapter A_s and nothing else. The member's
adapter A_c, its head and its answers stay with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from methods.method import SumSpec, Traits
from methods.round import Contribution, Local, Opened, Round
from methods.training.adapter_work import AdapterUpdate, PrivateAdapterUpdate
from methods.training.chain import MODEL, ChainRound, require_room
from methods.training.trained_in_rounds import MOST, TrainedInRounds, encoding_of, require_within
from secagg.errors import BadInput
from secagg.features import BOTTLENECK
from secagg.networks import Adapter, DistillingSettings, Dual, SharedAdapter, TrainedModel, WithHead

VARIANTS = ("", "averaged")


@dataclass(frozen=True)
class FedDAT(TrainedInRounds):
    """`rounds` sums that move one adapter (`kind`, `rank`) at the encoder's `places`, such as 12x768.

    A member trains `epochs` in batches of `batch` by AdamW at `rate`, at the distillation's `temperature`, its weight
    growing over `ramp` ("training", "round", "off"), and sends what moved the shared adapter, no longer than `clip`:
    the promise is about members. With `sampling` above 0 it trains by DP-SGD on both losses of a record at once: the
    promise is about records.
    `variant`: "" as the paper means it, "averaged" without a teacher, which is federated averaging of adapters.
    A plan's classes are numbers: the answers they stand for are a member's own.
    """

    name: ClassVar[str] = "feddat"
    places: str = "12x768"
    kind: str = BOTTLENECK
    rank: int = 48
    epochs: int = 1
    rate: float = 1e-4
    batch: int = 64
    temperature: float = 3.0
    ramp: str = "training"
    variant: str = ""

    def __post_init__(self) -> None:
        self.adapter  # noqa: B018  # refuses what cannot be
        super().__post_init__()
        require_within(self, [(1, MOST, ("epochs", "batch"))])
        if self.variant not in VARIANTS:
            raise BadInput(f"there is no variant {self.variant!r}", remedy="choose averaged, or none")

    @property
    def adapter(self) -> Adapter:
        """What is shared."""
        return Adapter(self.kind, self.rank, self.places)

    @property
    def training(self) -> DistillingSettings:
        """What a member does in a round."""
        how = self.epochs, self.rate, self.batch
        return DistillingSettings(*how, temperature=self.temperature, ramp=self.ramp)

    @property
    def traits(self) -> Traits:
        """Adapters sit inside the encoder; a member's head tells answers apart."""
        return replace(super().traits, reads_inputs=True, needs_two_classes=True)

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """One kind of sum, `rounds` times. Raises BadInput for an adapter that does not fit messages."""
        return (self._work(dimension, classes, levels).spec(self.rounds),)

    def begin(self, dimension: int, classes: int, levels: int) -> Round:
        """The round at the adapter's public start."""
        program = SharedAdapter(dimension, classes, self.adapter)
        return AdapterRound.first(program, self._work(dimension, classes, levels), self.step, self.rounds)

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
