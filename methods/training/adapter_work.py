"""What members compute for a shared adapter: training with a head, and mostly an adapter, that never leave them.

What leaves is what moved the shared adapter, and nothing else: no head, no adapter of a member's own, no count.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from methods.method import SumSpec
from methods.round import Contribution, Local
from methods.training.chain import LARGEST, Floats
from methods.training.local_work import UPDATE, SentUpdate, as_trained, noised_in_steps
from secagg.agreement.policy import Effort
from secagg.crypto.labels import digest
from secagg.errors import BadInput
from secagg.features import Encoder
from secagg.heads import parse_tensors
from secagg.networks import (
    SHARED,
    Adapted,
    DistillingSettings,
    DpSgdSettings,
    Dual,
    OverEncoder,
    SharedAdapter,
    TrainedModel,
    Untainted,
    WithHead,
    distil,
    distilling,
    dp_sgd,
    public,
    require_untainted,
    tensors_of,
)

MODEL_SHARED, MODEL_PERSONAL = "shared", "personal"
"""A member's models: the shared adapter with its head; its own adapter beside it, too."""


@dataclass(frozen=True, eq=False)
class Kept:
    """What a member keeps between rounds: all tensors of the `program` but the shared adapter's, in one row."""

    program: Adapted
    own: Floats = field(repr=False)

    @classmethod
    def begun(cls, program: Adapted) -> Kept:
        """At the program's public start."""
        start = program.start(digest("public start", b"own " + program.name.encode()))
        return cls(program, start[_shared_size(program) :])

    @classmethod
    def of(cls, content: bytes, program: Adapted) -> Kept:
        """Undo `to_bytes`. Raises BadInput for other tensors, or for what is no number."""
        tensors, _ = parse_tensors(content)
        shapes = {name: shape for name, shape in program.shapes.items() if not _is_shared(name)}
        fit = {name: each.shape for name, each in tensors.items()} == shapes
        if not fit or not all(each.dtype == np.float32 and np.isfinite(each).all() for each in tensors.values()):
            raise BadInput(f"the private state is not of {program.name}")
        return cls(program, np.concatenate([tensors[name].reshape(-1) for name in shapes]).astype(np.float64))

    def to_bytes(self) -> bytes:
        """A safetensors file of float32."""
        from safetensors.numpy import save

        named = tensors_of(self.program, self.beside(np.zeros(_shared_size(self.program))))
        return save({name: tensor for name, tensor in named.items() if not _is_shared(name)})

    def beside(self, shared: Floats) -> Floats:
        """All of the program's parameters in one row, with this shared adapter."""
        return np.concatenate([shared, self.own])


@dataclass(frozen=True, eq=False)
class AdapterUpdate(SentUpdate):
    """Train the shared adapter against its teacher (`distil`), and send what moved it.

    The promise is about a member, whatever it trains and keeps. `adapted` is what it trains: `Dual`, or without a
    teacher `WithHead`. `place`: the round's number, and how many there are.
    """

    program: SharedAdapter
    settings: DistillingSettings
    adapted: Adapted
    place: tuple[int, int]

    def at(self, number: int, rounds: int) -> AdapterUpdate:
        """The work of that round."""
        return replace(self, place=(number, rounds))

    @property
    def effort(self) -> Effort:
        """The epochs."""
        return Effort(epochs=self.settings.epochs, parameters=self.adapted.size)

    def spec(self, rounds: int) -> SumSpec:
        """An update of padded length; what members keep is in it."""
        return replace(super().spec(rounds), keeps_state=True)

    def moved(self, start: Floats, local: Local) -> tuple[Floats, bytes]:
        """Trained − state of the shared adapter alone; what is no number moves nothing."""
        kept = self._kept(local)
        program, inputs = self._program(start, local, self.settings.alpha(0.0, *self.place)), self._inputs(local)
        labels, drawing = local.examples.labels, local.randomness
        after = distil(program, kept.beside(start), inputs, labels, self.settings, self.place, drawing)
        if not np.isfinite(after).all():
            after = kept.beside(start)
        return after[: len(start)] - start, Kept(self.adapted, after[len(start) :]).to_bytes()

    def own_models(self, shared: Floats, state: bytes) -> dict[str, TrainedModel]:
        """A member's models with this shared adapter, of what its last contribution kept. Raises BadInput."""
        kept = Kept.of(state, self.adapted)
        models = {}
        if isinstance(self.adapted, Dual):
            models[MODEL_PERSONAL] = TrainedModel.of(self.adapted, kept.beside(shared))
        head = WithHead(self.adapted.dimension, self.adapted.classes, self.adapted.adapter)
        size = head.size - len(shared)
        return {MODEL_SHARED: TrainedModel.of(head, np.concatenate([shared, kept.own[-size:]])), **models}

    def _kept(self, local: Local) -> Kept:
        return Kept.of(local.state, self.adapted) if local.state else Kept.begun(self.adapted)

    def _program(self, start: Floats, local: Local, alpha: float) -> OverEncoder:
        """What is trained, in the member's encoder. Raises BadInput for an encoder that the plan does not mean."""
        program = self.adapted.over(_encoder_of(local))
        if not isinstance(self.adapted, Dual):
            return program
        return distilling(program, start, self.settings, alpha * self.settings.temperature**2)

    @staticmethod
    def _inputs(local: Local) -> NDArray[np.float32]:
        if local.inputs is None:
            raise BadInput("adapters are trained on pictures and texts, and there are features alone")
        return _encoder_of(local).prepare(local.inputs)


def _encoder_of(local: Local) -> Encoder:
    if local.feature_map is None:
        raise BadInput("adapters sit in an encoder, and there is none", remedy="give --backbone transformers:FOLDER")
    return local.feature_map.encoder


@dataclass(frozen=True, eq=False)
class PrivateAdapterUpdate(AdapterUpdate):
    """The same by DP-SGD inside the member: the promise is about a record, under the rule of taint.

    The teacher's adapter and the head are in the gradient of the shared one, so they are trained in the same clipped
    gradient of each record (both losses at once, `Distilling`), and all of them come from noised steps alone: what a
    member keeps is untainted, and may feed the next round's steps. Steps that leave float32's numbers move nothing.
    """

    private: DpSgdSettings

    def spec(self, rounds: int) -> SumSpec:
        """An update of padded length: no release of its own, as the noise is in the steps."""
        return noised_in_steps(super().spec(rounds), self.private, self.adapted.size)

    def contribute(self, state: Floats, local: Local) -> Contribution:
        """What DP-SGD moves of the shared adapter, with the plan's noise."""
        start, settings = public(as_trained(state)), replace(self.private, sigma=local.sigma)
        program = self._program(start.value, local, self.settings.alpha(0.5, *self.place))
        begun = self._noised(local).then(lambda kept: kept.beside(start.value))
        trained = dp_sgd(public(program), begun, self._inputs(local), local.examples.labels, settings, local.randomness)
        size = len(start.value)
        finite = trained.then(lambda weights: weights if np.abs(weights).max() <= LARGEST else begun.value)
        moved = finite.then(lambda weights: weights[:size] - start.value)
        kept = finite.then(lambda weights: Kept(self.adapted, weights[size:]).to_bytes())
        sent = self.encoding.encode(self._shortened(require_untainted(moved)), local.randomness)
        return Contribution({UPDATE: sent.integers}, require_untainted(kept))

    def _noised(self, local: Local) -> Untainted[Kept]:
        """What the round before sealed, or the public start: this class seals nothing but what noised steps gave."""
        return Untainted(self._kept(local))


def _is_shared(name: str) -> bool:
    return name.startswith(f"{SHARED}.")


def _shared_size(program: Adapted) -> int:
    return sum(int(np.prod(shape)) for name, shape in program.shapes.items() if _is_shared(name))
