"""A member's part of FRAug: train with augmented embeddings, send what moved of θ and ω, keep the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from methods.round import Local, Opened
from methods.training.client_update import ClientUpdate, KeptTensors, program_inputs
from methods.training.training_round import Floats, for_unit_length
from secagg.agreement.policy import Effort
from secagg.crypto.labels import digest
from secagg.networks import (
    TRANSFER,
    Augmented,
    AugmentedSettings,
    DpSgdSettings,
    TrainedModel,
    Untainted,
    Weights,
    size_of,
    train_augmented,
    train_privately,
)

OWN, PROTOTYPES = "own", "prototypes"
RAMP = 5.0
"""exp(−5(1 − t)²), t from 0 to 1 (Laine & Aila 2017; the paper prints it without the square)."""


@dataclass(frozen=True)
class Ramps:
    """What changes with the round r of R: residuals have exp(−`strength`·(R − r)), prototypes ramp up over `ema`·R."""

    rounds: int
    strength: float
    ema: float

    def weights(self, at: Weights, number: int) -> Weights:
        """The losses' weights in a round, counted from 1."""
        return replace(at, strength=math.exp(self.strength * (number - self.rounds)))

    def settings(self, at: AugmentedSettings, number: int) -> AugmentedSettings:
        """The training's."""
        left = max(0.0, 1.0 - number / (self.ema * self.rounds)) if self.ema else 0.0
        return replace(at, ema=at.ema * math.exp(-RAMP * left**2))


def kept_of(whole: Augmented, *, keeps_normalisation: bool, has_prototypes: bool) -> KeptTensors:
    """Return what a client keeps of all networks: φ, θ's normalisation or nothing of θ, and prototypes behind them."""
    prototypes = {PROTOTYPES: (whole.classifier.classes, whole.classifier.width)} if has_prototypes else {}
    own = {*whole.transfer_shapes, *prototypes, *(whole.classifier.normalisation if keeps_normalisation else ())}
    return KeptTensors({**whole.shapes, **prototypes}, frozenset(own))


@dataclass(frozen=True, eq=False)
class AugmentedUpdate(ClientUpdate):
    """Train θ, ω and φ; send the update of ω, times `generator_scale`, and of θ, as one clipped vector.

    φ, the prototypes and, where it is kept, θ's normalisation stay: a member goes on with its own, and the public state
    has those of the start. By DP-SGD there are no prototypes, and all three parts are trained in one clipped gradient
    of each record, by its own features alone (`OneRecord`).
    """

    whole: Augmented
    settings: AugmentedSettings
    weights: Weights
    ramps: Ramps
    generator_scale: float

    @property
    def effort(self) -> Effort:
        """A step reads no more than all records, so that steps are passes at the most."""
        return Effort(epochs=self.settings.steps, parameters=self.whole.size)

    @property
    def unsent(self) -> Floats:
        """φ at its public start; prototypes of zeros are none."""
        prototypes = np.zeros(len(self.kept.entries) - self.whole.size)
        if self.whole.augmentation is None:
            return prototypes
        return np.concatenate(
            [self.whole.augmentation.start(TRANSFER, digest("public start", TRANSFER.encode())), prototypes]
        )

    @property
    def sent(self) -> NDArray[np.bool_]:
        """All of ω, and of θ what is not kept."""
        return ~self.kept.entries[: self._generator + self.whole.classifier.size]

    def train(self, begun: Floats, local: Local, number: int) -> Floats:
        """Return the parameters and the prototypes after some steps."""
        classifier, size = self.whole.classifier, self.whole.size
        prototypes = begun[size:] if len(begun) > size else np.zeros(classifier.classes * classifier.width)
        trained, seen = train_augmented(
            self.whole,
            begun[:size],
            prototypes.reshape(classifier.classes, classifier.width),
            program_inputs(local, classifier),
            local.examples.labels,
            self.ramps.settings(self.settings, number),
            self.ramps.weights(self.weights, number),
            local.randomness,
        )
        return np.concatenate([trained, seen.ravel()])[: len(begun)]

    def train_privately(
        self, begun: Untainted[Floats], local: Local, number: int, settings: DpSgdSettings
    ) -> Untainted[Floats]:
        """Return the parameters after the steps."""
        inputs, labels = program_inputs(local, self.whole.classifier), local.examples.labels
        weights = self.ramps.weights(self.weights, number)
        return train_privately(self.whole, begun, inputs, labels, self.settings, weights, settings, local.randomness)

    def pack(self, moved: Floats) -> Floats:
        """Return what is sent of a move of all that is trained."""
        scaled = moved.copy()
        scaled[: self._generator] *= self.generator_scale
        return super().pack(scaled)

    def mean(self, opened: Opened) -> Floats:
        """Return the mean of the updates; nothing for what stays with the members."""
        move = super().mean(opened)
        move[: self._generator] /= self.generator_scale
        return move

    def own_models(self, state: Floats, kept: bytes) -> dict[str, TrainedModel]:
        """`own`: the classifier of a state with the member's own normalisation; none where all is shared."""
        program = self.whole.classifier
        if self.sent.all():
            return {}
        whole = self.kept.restore(np.concatenate([state, self.unsent]), kept)
        return {OWN: TrainedModel.of(program, for_unit_length(program, whole[self._generator : state.size]))}

    @property
    def _generator(self) -> int:
        return size_of(self.whole.generator_shapes)
