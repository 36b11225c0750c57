"""FedDAT: clients share one adapter of a frozen encoder, distilled from each client's own (Chen et al. 2024).

A chain of secure sums like federated averaging's, whose state is the shared adapter A_s and nothing else. The member's
adapter A_c, its head and its answers stay with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from methods.method import SumSpec, Traits
from methods.round import Local, Round
from methods.training.client_update import ClientUpdate, KeptTensors
from methods.training.trained_in_rounds import Amount, Count, TrainedInRounds, encoding_of
from methods.training.training_round import Floats, TrainingRound, require_room
from secagg.agreement.policy import Effort
from secagg.crypto.labels import digest
from secagg.errors import BadInput
from secagg.features import BOTTLENECK, KINDS, Encoder
from secagg.networks import Adapted, DpSgdSettings, OverEncoder, TrainedModel, Untainted, dp_sgd
from secagg.networks.adapted import LARGEST_RANK, SHARED, Dual, EncoderAdapter, SharedAdapter, WithHead
from secagg.networks.distillation import RAMPS, DistillingSettings, distil, distilling
from secagg.networks.training import Positive
from secagg.wire import Range

VARIANTS = ("", "averaged")
MODEL_SHARED, MODEL_PERSONAL = "shared", "personal"
"""Names of a member's models: the shared adapter with its head, and the same with its own adapter beside it."""


def kept_of(program: Adapted) -> KeptTensors:
    """Return the layout of the tensors that a client keeps: all but the shared adapter, whose tensors come first."""
    shapes = program.shapes
    return KeptTensors(shapes, frozenset(name for name in shapes if not name.startswith(f"{SHARED}.")), program.name)


def public_start(program: Adapted) -> Floats:
    """Return public initial values (size,) of a client's own tensors; the shared ones are the first round's state."""
    return program.start(digest("public start", b"own " + program.name.encode()))


@dataclass(frozen=True, eq=False)
class AdapterUpdate(ClientUpdate):
    """Client work that trains the shared adapter by distillation from a teacher (`distil`) and sends its change.

    `adapted` is what is trained: `Dual`, or without a teacher `WithHead`. By DP-SGD both losses of a record are in one
    clipped gradient (`Distilling`), as the teacher's adapter and the head are in that of the shared one.
    """

    adapted: Adapted
    settings: DistillingSettings
    rounds: int

    @property
    def effort(self) -> Effort:
        return Effort(epochs=self.settings.epochs, parameters=self.adapted.size)

    @property
    def unsent(self) -> Floats:
        return public_start(self.adapted)[self.kept.entries]

    def spec(self, rounds: int) -> SumSpec:
        """Return the sum's specification: an update of padded length; clients keep a state between rounds."""
        return replace(super().spec(rounds), keeps_state=True)

    def train(self, begun: Floats, local: Local, number: int) -> Floats:
        place = number, self.rounds
        program, inputs = self._program(begun, local, self.settings.alpha(0.0, *place)), _inputs(local)
        return distil(program, begun, inputs, local.examples.labels, self.settings, place, local.randomness)

    def train_privately(
        self, begun: Untainted[Floats], local: Local, number: int, settings: DpSgdSettings
    ) -> Untainted[Floats]:
        """Return the tensors after DP-SGD, in which the teacher stays as it was at the round's start.

        The teacher's weight α is that of mid-round.
        """
        program = begun.then(lambda row: self._program(row, local, self.settings.alpha(0.5, number, self.rounds)))
        records = _inputs(local), local.examples.labels
        return dp_sgd(program, begun, *records, settings, local.randomness, local.watch)

    def own_models(self, state: Floats, kept: bytes) -> dict[str, TrainedModel]:
        whole = self.kept.restore(np.concatenate([state, self.unsent]), kept)
        head = WithHead(self.adapted.dimension, self.adapted.classes, self.adapted.adapter)
        size = head.size - len(state)
        models = {MODEL_SHARED: TrainedModel.of(head, np.concatenate([state, whole[-size:]]))}
        return models | ({MODEL_PERSONAL: TrainedModel.of(self.adapted, whole)} if self._has_teacher else {})

    @property
    def _has_teacher(self) -> bool:
        return isinstance(self.adapted, Dual)

    def _program(self, begun: Floats, local: Local, alpha: float) -> OverEncoder:
        """Return the trained program in the member's encoder. Raises BadInput for another encoder than the plan's."""
        program = self.adapted.over(_encoder_of(local))
        if not self._has_teacher:
            return program
        return distilling(program, begun[: self.encoding.size], self.settings, alpha * self.settings.temperature**2)


def _inputs(local: Local) -> NDArray[np.float32]:
    if local.inputs is None:
        raise BadInput("adapters are trained on pictures and texts, and there are features alone")
    return _encoder_of(local).prepare(local.inputs)


def _encoder_of(local: Local) -> Encoder:
    if local.feature_map is None:
        raise BadInput("adapters sit in an encoder, and there is none", remedy="give --backbone transformers:FOLDER")
    return local.feature_map.encoder


@dataclass(frozen=True)
class FedDAT(TrainedInRounds):
    """The method FedDAT: `rounds` sums train one adapter (`kind`, `rank`) in encoder layers (`places`, such as 12x768).

    A member trains `epochs` in batches of `batch` by AdamW at `rate`, at the distillation's `temperature`, its weight
    growing over `ramp` ("training", "round", "off"), and sends what moved the shared adapter, no longer than `clip`:
    the promise is about members. With `sampling` above 0 it trains by DP-SGD on both losses of a record at once: the
    promise is about records.
    `variant`: "" as the paper means it, "averaged" without a teacher, which is federated averaging of adapters.
    A plan's classes are numbers: the answers they stand for are a member's own.
    """

    name: ClassVar[str] = "feddat"
    places: Annotated[str, "Widths of the encoder's modules that have adapters, such as 6x512 for six of width 512"] = (
        "12x768"
    )
    kind: Annotated[str, f"Form of an adapter: {' or '.join(KINDS)}"] = BOTTLENECK
    rank: Annotated[int, Range(1, LARGEST_RANK), "Units of a bottleneck, or the rank of a LoRA"] = 48
    epochs: Count = 1
    rate: Amount = 1e-4
    batch: Count = 64
    temperature: Annotated[Positive, "Number by which distillation divides scores"] = 3.0
    ramp: Annotated[str, f"Time in which the teacher's weight grows to 1: {', '.join(RAMPS)}"] = "training"
    variant: Annotated[str, "averaged: without a teacher, so that members' adapters are averaged; empty: with one"] = ""

    def __post_init__(self) -> None:
        self.adapter  # noqa: B018  # refuses what cannot be
        super().__post_init__()
        if self.variant not in VARIANTS:
            raise BadInput(f"there is no variant {self.variant!r}", remedy="choose averaged, or none")

    @property
    def adapter(self) -> EncoderAdapter:
        """The architecture of the shared adapter."""
        return EncoderAdapter(self.kind, self.rank, self.places)

    @property
    def training(self) -> DistillingSettings:
        how = self.epochs, self.rate, self.batch
        return DistillingSettings(*how, temperature=self.temperature, ramp=self.ramp)

    @property
    def traits(self) -> Traits:
        """Requirements: raw inputs to train on (adapters sit in the encoder), and two classes or more (for heads)."""
        return replace(super().traits, reads_inputs=True, needs_two_classes=True)

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        return (self._work(dimension, classes, levels).spec(self.rounds),)

    def begin(self, dimension: int, classes: int, levels: int) -> Round:
        program = SharedAdapter(dimension, classes, self.adapter)
        return TrainingRound.first(program, self._work(dimension, classes, levels), self.step, self.rounds)

    def _work(self, dimension: int, classes: int, levels: int) -> AdapterUpdate:
        shared = SharedAdapter(dimension, classes, self.adapter)
        adapted = (WithHead if self.variant == "averaged" else Dual)(dimension, classes, self.adapter)
        require_room(shared.size, self.step)
        how = encoding_of(shared.size, self.clip, levels), 0, kept_of(adapted), self.private_training
        return AdapterUpdate(*how, adapted, self.training, self.rounds)
