"""A client's part of FedDAT: train the shared adapter with a head, and mostly an adapter, that never leave the client.

What leaves is what moved the shared adapter, and nothing else: no head, no adapter of a client's own, no count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from methods.method import SumSpec
from methods.round import Local
from methods.training.client_update import ClientUpdate, KeptTensors
from methods.training.training_round import Floats
from secagg.agreement.policy import Effort
from secagg.crypto.labels import digest
from secagg.errors import BadInput
from secagg.features import Encoder
from secagg.networks import (
    SHARED,
    Adapted,
    DistillingSettings,
    DpSgdSettings,
    Dual,
    OverEncoder,
    TrainedModel,
    Untainted,
    WithHead,
    distil,
    distilling,
    dp_sgd,
)

MODEL_SHARED, MODEL_PERSONAL = "shared", "personal"
"""A member's models: the shared adapter with its head; its own adapter beside it, too."""


def kept_of(program: Adapted) -> KeptTensors:
    """Return what a client keeps of a program: all but the shared adapter, which comes first."""
    shapes = program.shapes
    return KeptTensors(shapes, frozenset(name for name in shapes if not name.startswith(f"{SHARED}.")), program.name)


def public_start(program: Adapted) -> Floats:
    """Return the program's public start (size,), of which the shared adapter is another: a round's state."""
    return program.start(digest("public start", b"own " + program.name.encode()))


@dataclass(frozen=True, eq=False)
class AdapterUpdate(ClientUpdate):
    """Train the shared adapter against its teacher (`distil`), and send what moved it.

    `adapted` is what is trained: `Dual`, or without a teacher `WithHead`. By DP-SGD both losses of a record are in one
    clipped gradient (`Distilling`), as the teacher's adapter and the head are in that of the shared one.
    """

    adapted: Adapted
    settings: DistillingSettings
    rounds: int

    @property
    def effort(self) -> Effort:
        """The epochs."""
        return Effort(epochs=self.settings.epochs, parameters=self.adapted.size)

    @property
    def unsent(self) -> Floats:
        """A client's own adapter, and its head."""
        return public_start(self.adapted)[self.kept.entries]

    def spec(self, rounds: int) -> SumSpec:
        """An update of padded length; what members keep is in it."""
        return replace(super().spec(rounds), keeps_state=True)

    def train(self, begun: Floats, local: Local, number: int) -> Floats:
        """Return the parameters after some epochs of distillation."""
        place = number, self.rounds
        program, inputs = self._program(begun, local, self.settings.alpha(0.0, *place)), _inputs(local)
        return distil(program, begun, inputs, local.examples.labels, self.settings, place, local.randomness)

    def train_privately(
        self, begun: Untainted[Floats], local: Local, number: int, settings: DpSgdSettings
    ) -> Untainted[Floats]:
        """Return the parameters after steps against the teacher of the round's begin, at α of the round's middle."""
        program = begun.then(lambda row: self._program(row, local, self.settings.alpha(0.5, number, self.rounds)))
        return dp_sgd(program, begun, _inputs(local), local.examples.labels, settings, local.randomness)

    def own_models(self, state: Floats, kept: bytes) -> dict[str, TrainedModel]:
        """The shared adapter with the member's head, and with its own adapter. Raises BadInput."""
        whole = self.kept.restore(np.concatenate([state, self.unsent]), kept)
        head = WithHead(self.adapted.dimension, self.adapted.classes, self.adapted.adapter)
        size = head.size - len(state)
        models = {MODEL_SHARED: TrainedModel.of(head, np.concatenate([state, whole[-size:]]))}
        return models | ({MODEL_PERSONAL: TrainedModel.of(self.adapted, whole)} if self._has_teacher else {})

    @property
    def _has_teacher(self) -> bool:
        return isinstance(self.adapted, Dual)

    def _program(self, begun: Floats, local: Local, alpha: float) -> OverEncoder:
        """What is trained, in the member's encoder. Raises BadInput for an encoder that the plan does not mean."""
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
