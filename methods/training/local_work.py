"""What members do in a round of training: train and send the update, or send the sum of their records' gradients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from methods.method import SampledTraining, SumSpec, clipped
from methods.round import Contribution, Local, Opened
from methods.training.chain import Floats
from secagg.agreement.policy import Effort
from secagg.encoding import Block, Integers, Kind
from secagg.encoding.updates import UpdateEncoding, sum_of_records
from secagg.networks import (
    DpSgdSettings,
    Program,
    TrainingSettings,
    Untainted,
    dp_sgd,
    public,
    record_gradients,
    require_untainted,
    train,
)
from secagg.privacy import Adjacency, BlockSensitivity, BlockwiseSensitivity, Unit

UPDATE, WEIGHT, GRADIENT, COUNT = "update", "weight", "gradient", "count"
WEIGHT_LEVELS = 1 << 10
"""A full weight in integers."""
COUNT_SHARE = 0.01
"""Of μ²: what the number of records takes."""
GRADIENT_LEVELS = 1 << 20
"""In the longest gradient of a record, where it does not leave the member."""


@dataclass(frozen=True)
class Scaled:
    """Records on a grid (n, d) as a program takes them: in units of a record's length, times `scale`; float32."""

    unit: float
    scale: float

    def __call__(self, records: Integers) -> NDArray[np.float32]:
        return (records * (self.scale / self.unit)).astype(np.float32)


def program_inputs(local: Local, program: Program) -> NDArray[np.float32]:
    """Return a member's records as a program takes them (n, d), made once."""
    return local.examples.once(Scaled(local.grid.unit(local.examples.records.shape[1]), program.scale))


@dataclass(frozen=True, eq=False)
class SentUpdate(ABC):
    """Train, and send what that moved, no longer than the clip of `encoding`, whatever a member has.

    The promise is about a member: all that it sends is inside the blocks' lengths, which are checked on the integers
    (McMahan et al. 2018; `updates`). What the training gives that is no number sends zeros. Where `cap` is above
    0, an update counts min(records, cap)/cap, which is sent in a block of its own; else all count alike.
    """

    encoding: UpdateEncoding
    cap: int

    @property
    @abstractmethod
    def effort(self) -> Effort:
        """What a round's training takes."""

    @abstractmethod
    def moved(self, start: Floats, local: Local) -> tuple[Floats, bytes]:
        """Train on the member's records from `start`; return what that moved, and what it keeps for the next round."""

    def spec(self, rounds: int) -> SumSpec:
        """An update of padded length, and the weight."""
        blocks = [Block(UPDATE, (self.encoding.padded,), bound=self.encoding.entry, kind=Kind.UPDATE)]
        lengths, shares = {UPDATE: self.encoding.length}, {UPDATE: 1.0}
        if self.cap:
            blocks.append(Block(WEIGHT, (1,), bound=WEIGHT_LEVELS, kind=Kind.OTHER))
            lengths[WEIGHT], shares = float(WEIGHT_LEVELS), {UPDATE: 1 - COUNT_SHARE, WEIGHT: COUNT_SHARE}
        moved = clipped(tuple(blocks), lengths)
        return SumSpec(
            tuple(blocks), moved, shares, per=Unit.CLIENT, times=rounds, is_additive=False, effort=self.effort
        )

    def contribute(self, state: Floats, local: Local) -> Contribution:
        """w·update, rotated and rounded at random."""
        update, kept = self.moved(as_trained(state), local)
        count = len(local.examples)
        weight = WEIGHT_LEVELS if not self.cap else WEIGHT_LEVELS * min(count, self.cap) // self.cap
        encoded = self.encoding.encode(self._shortened(update) * (weight / WEIGHT_LEVELS), local.randomness)
        blocks = {UPDATE: encoded.integers}
        return Contribution(blocks | ({WEIGHT: np.array([weight])} if self.cap else {}), kept)

    def _shortened(self, update: Floats) -> Floats:
        """No longer than the clip: the weight comes after."""
        length = math.sqrt(float(update @ update))
        return update * (self.encoding.clip / length) if length > self.encoding.clip else update

    def mean(self, opened: Opened) -> Floats:
        """The weighted mean of the updates; all members' full weight where no weights are sent."""
        total = self.encoding.decode(opened.blocks[UPDATE]) / opened.multiplier(UPDATE)
        if not self.cap:
            return total / opened.clients
        return total / (_number(opened, WEIGHT) / WEIGHT_LEVELS)


@dataclass(frozen=True, eq=False)
class MemberUpdate(SentUpdate):
    """Train the `program` as `settings` say; nothing is kept."""

    program: Program
    settings: TrainingSettings

    @property
    def effort(self) -> Effort:
        """The epochs."""
        return Effort(epochs=self.settings.epochs, parameters=self.program.size)

    def moved(self, start: Floats, local: Local) -> tuple[Floats, bytes]:
        """Trained − start."""
        inputs, labels = program_inputs(local, self.program), local.examples.labels
        how = self.settings, local.randomness
        return train(self.program, start, inputs, labels, *how, tolerant=local.has_noise) - start, b""


@dataclass(frozen=True, eq=False)
class PrivateTraining(MemberUpdate):
    """Train by DP-SGD with noise of the member's own, and send what that moved (`secagg.networks.dp_sgd`).

    The promise is about a record, against everybody, under the rule of taint: a step's loss of a record depends on that
    record and on the state alone; the state comes from the broadcast and from steps before, which were noised and paid
    for. So what is sent, and all that is computed of it, is post-processing of the steps; no weight or count leaves.
    """

    private: DpSgdSettings

    def spec(self, rounds: int) -> SumSpec:
        """An update of padded length: no release of its own."""
        return noised_in_steps(super().spec(rounds), self.private, self.program.size)

    def contribute(self, state: Floats, local: Local) -> Contribution:
        """What DP-SGD moves, with the plan's noise, rotated and rounded at random."""
        inputs, labels = program_inputs(local, self.program), local.examples.labels
        start, settings = public(as_trained(state)), replace(self.private, sigma=local.sigma)
        trained = dp_sgd(public(self.program), start, inputs, labels, settings, local.randomness)
        return Contribution({UPDATE: self._encode(trained.then(lambda weights: weights - start.value), local)})

    def _encode(self, update: Untainted[Floats], local: Local) -> Integers:
        """What leaves. Raises TypeError for what could be tainted."""
        return self.encoding.encode(self._shortened(require_untainted(update)), local.randomness).integers


@dataclass(frozen=True, eq=False)
class RecordGradients:
    """Send the sum of the records' gradients: each clipped, truncated to integers and checked by itself, then added.

    The promise is about a record: it adds one gradient no longer than `units`, computed from the record and the public
    state alone, and 1 to the count, whatever the other records are. Gradients are added exactly, so that nothing of the
    order or of the other records changes what it adds (rounding a *sum* at random would).
    """

    program: Program
    rate: float
    clip: float
    units: int

    def spec(self, rounds: int) -> SumSpec:
        """A gradient and the number of records."""
        size = self.program.size
        blocks = (Block(GRADIENT, (size,), bound=self.units, kind=Kind.UPDATE), Block(COUNT, (1,), 1, Kind.OTHER))
        moved = (BlockSensitivity(GRADIENT, float(self.units), size), BlockSensitivity(COUNT, 1.0, 1, scalable=True))
        of_record = tuple(BlockwiseSensitivity(Unit.RECORD, each, moved) for each in Adjacency)
        shares, effort = {GRADIENT: 1 - COUNT_SHARE, COUNT: COUNT_SHARE}, Effort(epochs=1, parameters=size)
        return SumSpec(blocks, of_record, shares, times=rounds, effort=effort)

    def contribute(self, state: Floats, local: Local) -> Contribution:
        """Σ trunc(clip(∇)), in integers."""
        examples = local.examples
        inputs = program_inputs(local, self.program)
        total = np.zeros(self.program.size, dtype=np.int64)
        for gradients in record_gradients(self.program, state, inputs, examples.labels, tolerant=local.has_noise):
            total += sum_of_records(gradients.astype(np.float64), self.clip, self.units)
        return Contribution({GRADIENT: total, COUNT: np.array([len(examples)])})

    def mean(self, opened: Opened) -> Floats:
        """−rate times the mean gradient."""
        total = opened.blocks[GRADIENT] * (self.clip / self.units) / opened.multiplier(GRADIENT)
        return total * (-self.rate / _number(opened, COUNT))


def sampled_steps(rate: float, steps: int, sampling: float, clip: float, batch: int) -> DpSgdSettings:
    """DP-SGD as the parameters of a plan have it, but for the plan's noise, which a member is told (`Local.sigma`)."""
    return DpSgdSettings(rate, steps, sampling, clip, GRADIENT_LEVELS, sigma=0.0, denominator=float(batch))


def noised_in_steps(update: SumSpec, private: DpSgdSettings, size: int) -> SumSpec:
    """The sum of updates that members make by DP-SGD of `size` parameters: no release of its own."""
    taken = SampledTraining(private.sampling_rate, private.steps, private.levels, size, update.times)
    effort = Effort(epochs=math.ceil(taken.rate * taken.steps), steps=taken.steps, parameters=size)
    refusal, lengths = "the noise is in the members' training", update.unit_lengths
    return replace(update, sensitivities=(), training=taken, refusal=refusal, effort=effort, lengths=lengths)


def as_trained(state: Floats) -> Floats:
    """The state as training takes it: of float32's numbers."""
    return state.astype(np.float32).astype(np.float64)


def _number(opened: Opened, block: str) -> float:
    """A block's one number, which a mean is divided by: at least 1, and σ, below which there is nothing but noise."""
    sigma = opened.noise[block].of_record.sigma if opened.noise else 0.0
    return max(float(opened.blocks[block][0]) / opened.multiplier(block), sigma, 1.0)
