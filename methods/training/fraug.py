"""FRAug: members whose records look different train one classifier with synthetic embeddings (Chen et al. 2023).

One sum a round moves the classifier θ and the generator ω; each member keeps its RTNet, its class prototypes and its
normalisation. What the paper prints otherwise: sums over classes are means here, what the generator maximises is
bounded, and the ramp of the prototypes has its square.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from methods.method import SumSpec, Traits
from methods.round import Round
from methods.training.augmented_work import AugmentedPrivately, AugmentedRound, AugmentedUpdate, Ramps, own_entries
from methods.training.chain import MODEL, require_room
from methods.training.trained_in_rounds import (
    LARGEST,
    LEAST,
    MOST,
    Ranges,
    TrainedInRounds,
    encoding_of,
    require_within,
)
from secagg.crypto.labels import digest
from secagg.encoding.updates import State
from secagg.errors import BadInput
from secagg.networks import (
    GENERATOR,
    Augmentation,
    Augmented,
    AugmentedSettings,
    Distance,
    Normalised,
    Weights,
    program_named,
    size_of,
)

OWN, SHARED, BATCH = "own", "shared", "batch"
MOST_SYNTHETIC = 1 << 14
"""Rows of synthetic embeddings in a step: memory that no member's policy bounds."""
RANGES: Ranges = (
    (LEAST, LARGEST, ("generator_rate", "transfer_rate", "generator_scale")),
    (0, LARGEST, ("alpha", "beta", "proximal", "ramp")),
    (0, 1, ("ema_ramp",)),
    (1, MOST, ("latent", "hidden", "steps", "batch")),
    (1, MOST_SYNTHETIC, ("synthetic",)),
    (0, MOST, ("cap",)),
    (0, 1, ("augment",)),
)
CHOICES = {
    "norm": (OWN, SHARED, BATCH),
    "generator_distance": tuple(Distance),
    "transfer_distance": tuple(Distance),
}


@dataclass(frozen=True)
class FRAug(TrainedInRounds):
    """`rounds` sums that move θ, `model` ("mlp:128", "cnn") with normalised layers, and ω from public starts.

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
    model: str = "mlp:128"
    norm: str = OWN
    rounds: int = 100
    rate: float = 0.01
    momentum: float = 0.5
    proximal: float = 0.0
    augment: int = 1
    latent: int = 32
    hidden: int = 128
    synthetic: int = 32
    generator_rate: float = 0.05
    transfer_rate: float = 0.05
    alpha: float = 1.0
    beta: float = 1.0
    generator_distance: str = Distance.MMD.value
    transfer_distance: str = Distance.MMD.value
    ramp: float = 0.01
    ema: float = 0.3
    ema_ramp: float = 0.05
    clip: float = 10.0
    cap: int = 0
    generator_scale: float = 1.0

    def __post_init__(self) -> None:
        require_within(self, RANGES)
        super().__post_init__()
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise BadInput(f"no {name} {getattr(self, name)!r}", remedy=f"choose one of {', '.join(known)}")
        if self.sampling:
            self._refuse_taint()

    def _refuse_taint(self) -> None:
        """Raise BadInput where a record's gradient would depend on other records, or what is sent on their number."""
        if self.norm == BATCH:
            raise _tainted("batch normalisation makes a record's gradient depend on its batch", f"norm={OWN}")
        if self.augment and Distance.MMD in (self.generator_distance, self.transfer_distance):
            told = "a discrepancy of sets has no gradient of one record"
            raise _tainted(told, "generator_distance=l2 transfer_distance=l2, to the record's own embedding")
        if self.momentum or self.proximal or self.cap:
            told = "steps see records and the state alone, and no count leaves"
            raise _tainted(told, "momentum=0, no cap and no proximal")

    @property
    def training(self) -> AugmentedSettings:
        """What a member does in a round."""
        rates = self.generator_rate, self.transfer_rate
        steps = self.steps, self.batch, self.rate, self.momentum, self.proximal
        return AugmentedSettings(*steps, *rates, self.synthetic, self.ema)

    @property
    def traits(self) -> Traits:
        """Rates and clips are for records of length 1; normalisation and residuals tell classes apart."""
        return replace(super().traits, needs_unit_length=True, needs_two_classes=True)

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """One kind of sum, `rounds` times. Raises BadInput for a program that does not fit records or messages."""
        return (self._work(self._networks(dimension, classes), levels).spec(self.rounds),)

    def begin(self, dimension: int, classes: int, levels: int) -> Round:
        """The round at the public starts."""
        whole = self._networks(dimension, classes)
        groups = {MODEL: whole.classifier.start(digest("public start", whole.classifier.name.encode()))}
        if whole.augmentation is not None:
            groups[GENERATOR] = whole.augmentation.start(GENERATOR, digest("public start", GENERATOR.encode()))
        work, state = self._work(whole, levels), State(groups, {}, 0)
        return AugmentedRound(whole.classifier, work, self.step, self.rounds, state)

    def _networks(self, dimension: int, classes: int) -> Augmented:
        kind, *size = self.model.split(":", 1)
        name = ":".join([f"{kind}-{'batch' if self.norm == BATCH else 'group'}", *size])
        classifier = program_named(name, dimension, classes)
        if not isinstance(classifier, Normalised):
            raise BadInput(f"no model {self.model!r} for {self.name}", remedy="choose cnn or mlp:H")
        shape = classes, classifier.width, self.latent, self.hidden
        return Augmented(classifier, Augmentation(*shape) if self.augment else None)

    def _work(self, whole: Augmented, levels: int) -> AugmentedUpdate:
        keeps = self.norm != SHARED
        kept = int(own_entries(whole, keeps_normalisation=keeps).sum())
        shared = size_of(whole.generator_shapes) + whole.classifier.size
        encoding = encoding_of(shared - kept, self.clip, levels)
        require_room(shared, self.step)
        distances = Distance(self.generator_distance), Distance(self.transfer_distance)
        weights = Weights(self.alpha, self.beta, *distances, strength=1.0)
        ramps = Ramps(self.rounds, self.ramp, self.ema_ramp)
        sent = encoding, self.cap, whole, self.training, weights, ramps, keeps, self.generator_scale
        return AugmentedPrivately(*sent, private=self.private_training) if self.sampling else AugmentedUpdate(*sent)


def _tainted(reason: str, remedy: str) -> BadInput:
    return BadInput(f"with sampling the promise is about records, and {reason}", remedy=remedy)
