"""A member's part of FRAug: train with augmented embeddings, send what moved of θ and ω, keep the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from methods.method import SumSpec
from methods.own_models.private_projection import read_kept
from methods.round import Contribution, Local, Opened
from methods.training.chain import LARGEST, ChainRound, Floats, for_unit_length
from methods.training.local_work import SentUpdate, noised_in_steps, program_inputs
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
    public,
    require_untainted,
    size_of,
    tensors_of,
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


@dataclass(frozen=True, eq=False)
class AugmentedUpdate(SentUpdate):
    """Train θ, ω and φ; send the update of ω, times `generator_scale`, and of θ, as one clipped vector.

    φ, the prototypes and, where `keeps_normalisation`, the tensors of θ's normalisation stay: a member goes on with its
    own, and the public state has those of the start. What the training gives that is no number sends zeros, and leaves
    the member what it had.
    """

    whole: Augmented
    settings: AugmentedSettings
    weights: Weights
    ramps: Ramps
    keeps_normalisation: bool
    generator_scale: float
    number: int = 1

    @property
    def effort(self) -> Effort:
        """A step reads no more than all records, so that steps are passes at the most."""
        return Effort(epochs=self.settings.steps, parameters=self.whole.size)

    def moved(self, start: Floats, local: Local) -> tuple[Floats, bytes]:
        """What training moved of what is shared, and what is kept."""
        begun, prototypes = self._begin(start, local)
        inputs, labels = program_inputs(local, self.whole.classifier), local.examples.labels
        settings = self.ramps.settings(self.settings, self.number)
        weights = self.ramps.weights(self.weights, self.number)
        trained, seen = train_augmented(
            self.whole, begun, prototypes, inputs, labels, settings, weights, local.randomness
        )
        if not (np.isfinite(trained).all() and np.isfinite(seen).all()):
            trained, seen = begun, prototypes
        return self._packed((trained - begun)[: start.size]), self._kept(trained, seen)

    def mean(self, opened: Opened) -> Floats:
        """The mean of the updates; nothing for what stays with the members."""
        update, sent = super().mean(opened), self._sent
        move = np.zeros(sent.size)
        move[sent] = update
        move[: self._generator] /= self.generator_scale
        return move

    def own_model(self, state: Floats, kept: bytes) -> TrainedModel | None:
        """The classifier of a state with the member's own normalisation; None where all is shared."""
        if not self.keeps_normalisation:
            return None
        program = self.whole.classifier
        flat = state[self._generator :].copy()
        flat[self._is_own] = self._own_of(kept)
        return TrainedModel.of(program, for_unit_length(program, flat))

    def _begin(self, start: Floats, local: Local) -> tuple[Floats, Floats]:
        """All parameters and the prototypes that a member begins a round with."""
        begun = np.concatenate([start, self._transfer_start()])
        prototypes = np.zeros((self.whole.classifier.classes, self.whole.classifier.width))
        if local.state:
            kept = read_kept(local.state, self._kept_shapes())
            begun[self._generator : start.size][self._is_own] = self._own_of(local.state)
            begun[start.size :] = np.concatenate(
                [np.empty(0), *(kept[name].ravel() for name in self.whole.transfer_shapes)]
            )
            prototypes = kept.get(PROTOTYPES, prototypes).astype(np.float64)
        return begun, prototypes

    def _transfer_start(self) -> Floats:
        if self.whole.augmentation is None:
            return np.empty(0)
        return self.whole.augmentation.start(TRANSFER, digest("public start", TRANSFER.encode()))

    def _kept(self, trained: Floats, prototypes: Floats) -> bytes:
        """A safetensors file of float32."""
        from safetensors.numpy import save

        tensors = tensors_of(self.whole, trained)
        kept = {name: tensors[name] for name in self._kept_shapes() if name in tensors}
        if PROTOTYPES in self._kept_shapes():
            kept[PROTOTYPES] = prototypes.astype(np.float32)
        return save(kept) if kept else b""

    def _kept_shapes(self) -> Mapping[str, tuple[int, ...]]:
        classifier = self.whole.classifier
        shapes = dict(classifier.normalisation) if self.keeps_normalisation else {}
        shapes |= self.whole.transfer_shapes
        if self.whole.augmentation is not None and self._has_prototypes:
            shapes[PROTOTYPES] = (classifier.classes, classifier.width)
        return shapes

    @property
    def _has_prototypes(self) -> bool:
        return True

    def _own_of(self, kept: bytes) -> Floats:
        """The kept tensors of the normalisation, as they lie in θ's row."""
        tensors = read_kept(kept, self._kept_shapes())
        own = self.whole.classifier.normalisation if self.keeps_normalisation else {}
        rows = [tensors[name].ravel() for name in self.whole.classifier.shapes if name in own]
        return np.concatenate([np.empty(0), *rows]).astype(np.float64)

    def _packed(self, moved: Floats) -> Floats:
        """What is sent of a move of the state."""
        scaled = moved.copy()
        scaled[: self._generator] *= self.generator_scale
        return scaled[self._sent]

    @property
    def _generator(self) -> int:
        return size_of(self.whole.generator_shapes)

    @property
    def _is_own(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which entries of θ stay."""
        return own_entries(self.whole, keeps_normalisation=self.keeps_normalisation)

    @property
    def _sent(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which entries of the state are sent."""
        return np.concatenate([np.ones(self._generator, dtype=np.bool_), ~self._is_own])


@dataclass(frozen=True, eq=False)
class AugmentedPrivately(AugmentedUpdate):
    """The same by DP-SGD with noise of the member's own: a promise about a record, under the rule of taint.

    θ, ω and φ are trained in one clipped gradient of each record, by its own features alone (`OneRecord`); what is kept
    of them is as free of taint as what is sent.
    """

    private: DpSgdSettings = field(kw_only=True)

    def spec(self, rounds: int) -> SumSpec:
        """An update of padded length: no release of its own."""
        return noised_in_steps(super().spec(rounds), self.private, self.whole.size)

    def moved(self, start: Floats, local: Local) -> tuple[Floats, bytes]:
        """What DP-SGD moved, with the plan's noise."""
        begun, prototypes = self._begin(start, local)
        # What was kept of the round before is of nothing but that round's `Untainted` outcome.
        beginning = Untainted(begun) if local.state else public(begun)
        trained = train_privately(
            self.whole,
            beginning,
            program_inputs(local, self.whole.classifier),
            local.examples.labels,
            self.settings,
            self.ramps.weights(self.weights, self.number),
            replace(self.private, sigma=local.sigma),
            local.randomness,
        )
        finite = trained.then(lambda flat: flat if np.abs(flat).max() <= LARGEST else begun)
        update = finite.then(lambda flat: self._packed((flat - begun)[: start.size]))
        return require_untainted(update), require_untainted(finite.then(lambda flat: self._kept(flat, prototypes)))

    @property
    def _has_prototypes(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class AugmentedRound(ChainRound):
    """A round that also leaves a member a model of its own."""

    def contribute(self, local: Local) -> Contribution:
        """The work of this round at the state."""
        return replace(self.augmented, number=self.number).contribute(self.state.flat, local)

    def personal(self, state: bytes, opened: Opened) -> Mapping[str, TrainedModel]:
        """`own`: the classifier that the round leads to with the member's normalisation. Raises BadInput."""
        following = self.server.apply(self.state, self.work.mean(opened))
        own = self.augmented.own_model(following.flat, state)
        return {OWN: own} if own is not None else {}

    @property
    def augmented(self) -> AugmentedUpdate:
        """Its work."""
        if not isinstance(self.work, AugmentedUpdate):
            raise TypeError(f"{type(self.work).__name__} is no work of this round")
        return self.work


def own_entries(whole: Augmented, *, keeps_normalisation: bool) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which entries of θ (size,) stay with a member."""
    own = whole.classifier.normalisation if keeps_normalisation else {}
    return np.concatenate([np.full(math.prod(shape), name in own) for name, shape in whole.classifier.shapes.items()])
