"""FRAug: clients with different feature distributions train one classifier with synthetic embeddings (Chen 2023).

One sum a round moves the classifier θ and the generator ω; each member keeps its RTNet, its class prototypes and its
normalisation. What the paper prints otherwise: sums over classes are means here, what the generator maximises is
bounded, and the ramp of the prototypes has its square.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from methods.method import SumSpec, Traits
from methods.round import Local, OpenedTotal, Round
from methods.training.client_update import ClientUpdate, KeptTensors, program_inputs
from methods.training.trained_in_rounds import LARGEST, MOST, Amount, Count, TrainedInRounds, encoding_of
from methods.training.training_round import MAX_ROUNDS, MODEL, Floats, TrainingRound, for_unit_length, require_room
from secagg.agreement.policy import Effort
from secagg.crypto.labels import digest
from secagg.encoding.updates import State
from secagg.errors import BadInput
from secagg.networks import DpSgdSettings, TrainedModel, Untainted, program_named
from secagg.networks.augmented import GENERATOR, TRANSFER, Augmentation, Augmented, Distance, Weights, size_of
from secagg.networks.augmented_training import AugmentedSettings, train_augmented, train_privately
from secagg.networks.normalised import Normalised
from secagg.networks.training import Share
from secagg.wire import Range

OWN, SHARED, BATCH, PROTOTYPES = "own", "shared", "batch", "prototypes"
RAMP = 5.0
"""The ramp's strength in exp(−5(1 − t)²), t from 0 to 1 (Laine & Aila 2017; the paper prints it without the square)."""


@dataclass(frozen=True)
class _Ramps:
    """Schedules over rounds r of R: residuals weigh exp(−`strength`·(R − r)), prototypes ramp up over `ema`·R."""

    rounds: int
    strength: float
    ema: float

    def weights(self, at: Weights, number: int) -> Weights:
        """Return the losses' weights in a round, counted from 1."""
        return replace(at, strength=math.exp(self.strength * (number - self.rounds)))

    def settings(self, at: AugmentedSettings, number: int) -> AugmentedSettings:
        left = max(0.0, 1.0 - number / (self.ema * self.rounds)) if self.ema else 0.0
        return replace(at, ema=at.ema * math.exp(-RAMP * left**2))


def kept_of(whole: Augmented, *, keeps_normalisation: bool, has_prototypes: bool) -> KeptTensors:
    """Return the layout of the tensors a client keeps: transfer network φ, normalisation if asked, and prototypes."""
    prototypes = {PROTOTYPES: (whole.classifier.classes, whole.classifier.width)} if has_prototypes else {}
    own = {*whole.transfer_shapes, *prototypes, *(whole.classifier.normalisation if keeps_normalisation else ())}
    return KeptTensors({**whole.shapes, **prototypes}, frozenset(own))


@dataclass(frozen=True, eq=False)
class AugmentedUpdate(ClientUpdate):
    """Client work: train classifier θ, generator ω, transfer network φ; send θ and `generator_scale`·ω, clipped.

    φ, the prototypes and, where it is kept, θ's normalisation stay: a member goes on with its own, and the public state
    has those of the start. By DP-SGD there are no prototypes, and all three parts are trained in one clipped gradient
    of each record, by its own features alone (`OneRecord`).
    """

    whole: Augmented
    settings: AugmentedSettings
    weights: Weights
    ramps: _Ramps
    generator_scale: float

    @property
    def effort(self) -> Effort:
        """The effort of a round: a step reads at most all records, so that each step counts as an epoch."""
        return Effort(epochs=self.settings.steps, parameters=self.whole.size)

    @property
    def unsent(self) -> Floats:
        """The public initial values of the transfer network φ, then zeros, which stand for missing prototypes."""
        prototypes = np.zeros(len(self.kept.entries) - self.whole.size)
        if self.whole.augmentation is None:
            return prototypes
        return np.concatenate(
            [self.whole.augmentation.start(TRANSFER, digest("public start", TRANSFER.encode())), prototypes]
        )

    @property
    def sent(self) -> NDArray[np.bool_]:
        """Flags of the entries that clients send: the generator ω, and those of the classifier θ that are not kept."""
        return ~self.kept.entries[: self._generator + self.whole.classifier.size]

    def train(self, begun: Floats, local: Local, number: int) -> Floats:
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
        inputs, labels = program_inputs(local, self.whole.classifier), local.examples.labels
        weights = self.ramps.weights(self.weights, number)
        learnt = self.whole, begun, inputs, labels, self.settings, weights
        return train_privately(*learnt, settings, local.randomness, local.watch)

    def pack(self, moved: Floats) -> Floats:
        scaled = moved.copy()
        scaled[: self._generator] *= self.generator_scale
        return super().pack(scaled)

    def mean(self, opened: OpenedTotal) -> Floats:
        move = super().mean(opened)
        move[: self._generator] /= self.generator_scale
        return move

    def own_models(self, state: Floats, kept: bytes) -> dict[str, TrainedModel]:
        """Return the model `own`, the shared classifier with the client's own normalisation; empty if all is shared."""
        program = self.whole.classifier
        if self.sent.all():
            return {}
        whole = self.kept.restore(np.concatenate([state, self.unsent]), kept)
        return {OWN: TrainedModel.of(program, for_unit_length(program, whole[self._generator : state.size]))}

    @property
    def _generator(self) -> int:
        return size_of(self.whole.generator_shapes)


MOST_SYNTHETIC = 1 << 14
"""The most rows of synthetic embeddings in a step: memory that no member's policy bounds."""
Weight = Annotated[float, Range(0, LARGEST)]


@dataclass(frozen=True)
class FRAug(TrainedInRounds):
    """The method FRAug: `rounds` sums that train a classifier θ (`model`, normalised) and a generator ω of embeddings.

    A member takes `steps` of `batch` records, with `momentum` and FedProx's `proximal`; θ at `rate`, ω at
    `generator_rate`, φ at `transfer_rate`, `synthetic` embeddings a step standing for class prototypes. `alpha` weighs
    how far ω's embeddings are from the member's, `beta` how near φ's: by `generator_distance` and `transfer_distance`,
    "mmd" or "l2" to the class prototype. Residuals ramp up by `ramp` (0: whole at once), prototypes move by `ema`,
    after the share `ema_ramp` of the rounds. z has `latent` numbers, G `hidden` units. `augment` 0 leaves all that out:
    federated averaging, with FedBN's own normalisation unless that is shared.

    `norm`: "own", by groups of channels, its tensors staying with the member; "shared", the same, averaged; "batch",
    batch normalisation that stays.

    What leaves, ω's part times `generator_scale` and θ's, is no longer than `clip`: the promise is about members, who
    count alike, or by min(records, `cap`). With `sampling` above 0 members train all three parts by DP-SGD, in one
    gradient; the promise is about records.
    """

    name: ClassVar[str] = "fraug"
    model: Annotated[str, "Network: mlp:H of H hidden units, or cnn"] = "mlp:128"
    norm: Annotated[
        Literal["own", "shared", "batch"],
        "Normalisation: in groups of channels, a member's own or averaged; or over the batch, a member's own",
    ] = "own"
    rounds: Annotated[int, Range(1, MAX_ROUNDS)] = 100
    rate: Amount = 0.01
    steps: Annotated[Count, "Training steps of a member in a round"] = 10
    momentum: Share = 0.5
    proximal: Weight = 0.0
    augment: Annotated[int, Range(0, 1), "1: members train on synthetic embeddings too; 0: on their records alone"] = 1
    latent: Annotated[Count, "Random numbers that the generator starts from, and hidden units of RTNet"] = 32
    hidden: Annotated[Count, "Hidden units of the generator"] = 128
    synthetic: Annotated[int, Range(1, MOST_SYNTHETIC), "Synthetic embeddings in a step, of all classes together"] = 32
    generator_rate: Annotated[Amount, "Learning rate of the generator"] = 0.05
    transfer_rate: Annotated[Amount, "Learning rate of RTNet, the network that adapts embeddings to a member"] = 0.05
    alpha: Annotated[Weight, "Weight of the distance in the generator's loss"] = 1.0
    beta: Annotated[Weight, "Weight of the distance in RTNet's loss"] = 1.0
    generator_distance: Annotated[
        Literal["mmd", "l2"], "Distance that the generator enlarges: of sets of embeddings, or to the class prototype"
    ] = "mmd"
    transfer_distance: Annotated[
        Literal["mmd", "l2"], "Distance that RTNet reduces: of sets of embeddings, or to the class prototype"
    ] = "mmd"
    ramp: Annotated[Weight, "Residuals weigh exp(-ramp * rounds left); 0: they are whole at once"] = 0.01
    ema: Annotated[float, Range(0, 1, above=True), "Share by which a batch's means move the class prototypes"] = 0.3
    ema_ramp: Annotated[float, Range(0, 1), "Share of the rounds in which ema grows to its value"] = 0.05
    clip: Amount = 10.0
    cap: Annotated[int, Range(0, MOST)] = 0
    generator_scale: Annotated[Amount, "Factor on the generator's part of an update before the clip"] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sampling:
            return
        # A record's gradient may not depend on other records, nor what is sent on their number.
        if self.norm == BATCH:
            raise _tainted("batch normalisation makes a record's gradient depend on its batch", f"norm={OWN}")
        if self.augment and "mmd" in (self.generator_distance, self.transfer_distance):
            told = "a discrepancy of sets has no gradient of one record"
            raise _tainted(told, "generator_distance=l2 transfer_distance=l2, to the record's own embedding")
        if self.momentum or self.proximal or self.cap:
            told = "steps see records and the state alone, and no count leaves"
            raise _tainted(told, "momentum=0, no cap and no proximal")

    @property
    def training(self) -> AugmentedSettings:
        rates = self.generator_rate, self.transfer_rate
        steps = self.steps, self.batch, self.rate, self.momentum, self.proximal
        return AugmentedSettings(*steps, *rates, self.synthetic, self.ema)

    @property
    def traits(self) -> Traits:
        """Requirements: records of norm 1, for learning rates and clips, and two classes or more, for normalisation."""
        return replace(super().traits, needs_unit_length=True, needs_two_classes=True)

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        return (self._work(self._networks(dimension, classes), levels).spec(self.rounds),)

    def begin(self, dimension: int, classes: int, levels: int) -> Round:
        whole = self._networks(dimension, classes)
        groups = {MODEL: whole.classifier.start(digest("public start", whole.classifier.name.encode()))}
        if whole.augmentation is not None:
            groups[GENERATOR] = whole.augmentation.start(GENERATOR, digest("public start", GENERATOR.encode()))
        work, state = self._work(whole, levels), State(groups, {}, 0)
        return TrainingRound(whole.classifier, work, self.step, self.rounds, state)

    def _networks(self, dimension: int, classes: int) -> Augmented:
        kind, *size = self.model.split(":", 1)
        name = ":".join([f"{kind}-{'batch' if self.norm == BATCH else 'group'}", *size])
        classifier = program_named(name, dimension, classes)
        if not isinstance(classifier, Normalised):
            raise BadInput(f"no model {self.model!r} for {self.name}", remedy="choose cnn or mlp:H")
        shape = classes, classifier.width, self.latent, self.hidden
        return Augmented(classifier, Augmentation(*shape) if self.augment else None)

    def _work(self, whole: Augmented, levels: int) -> AugmentedUpdate:
        has_prototypes = whole.augmentation is not None and not self.sampling
        kept = kept_of(whole, keeps_normalisation=self.norm != SHARED, has_prototypes=has_prototypes)
        shared = size_of(whole.generator_shapes) + whole.classifier.size
        encoding = encoding_of(int((~kept.entries[:shared]).sum()), self.clip, levels)
        require_room(shared, self.step)
        distances = Distance(self.generator_distance), Distance(self.transfer_distance)
        weights = Weights(self.alpha, self.beta, *distances, strength=1.0)
        ramps = _Ramps(self.rounds, self.ramp, self.ema_ramp)
        sent = encoding, self.cap, kept, self.private_training
        return AugmentedUpdate(*sent, whole, self.training, weights, ramps, self.generator_scale)


def _tainted(reason: str, remedy: str) -> BadInput:
    return BadInput(f"with sampling the promise is about records, and {reason}", remedy=remedy)
