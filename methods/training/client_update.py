"""A client's part of a round of training: the clipped update of its model, or the sum of its records' gradients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from methods.method import SampledTraining, SumSpec, clipped
from methods.round import Contribution, Local, OpenedTotal
from methods.training.training_round import LARGEST, ClientWork, Floats
from secagg.agreement.policy import Effort
from secagg.encoding import Block, Integers, Kind
from secagg.encoding.updates import UpdateEncoding, sum_of_records
from secagg.errors import BadInput
from secagg.heads import parse_tensors
from secagg.networks import (
    DpSgdSettings,
    Program,
    TrainingSettings,
    Untainted,
    dp_sgd,
    record_gradients,
    require_untainted,
    train,
)
from secagg.networks.programs import tensors_of
from secagg.networks.taint import public
from secagg.privacy import Adjacency, BlockSensitivity, BlockwiseSensitivity, Unit

UPDATE, WEIGHT, GRADIENT, COUNT = "update", "weight", "gradient", "count"
WEIGHT_LEVELS = 1 << 10
"""A full weight in integers."""
COUNT_SHARE = 0.01
"""The share of μ² that the number of records takes."""
GRADIENT_LEVELS = 1 << 20
"""The levels of a record's longest gradient, where it does not leave the member."""


@dataclass(frozen=True)
class Scaled:
    """A conversion of integer records (n, d) to a network's float32 inputs: divided by `unit`, times `scale`."""

    unit: float
    scale: float

    def __call__(self, records: Integers) -> NDArray[np.float32]:
        return (records * (self.scale / self.unit)).astype(np.float32)


def program_inputs(local: Local, program: Program) -> NDArray[np.float32]:
    """Return a client's records as inputs (n, d) of the network `program`; they are cached."""
    return local.examples.once(Scaled(local.grid.unit(local.examples.records.shape[1]), program.scale))


@dataclass(frozen=True)
class KeptTensors:
    """The tensors that a client keeps between rounds, as a safetensors file of float32.

    `shapes` are those of all that it trains, in the order in which a row holds them; `names` are kept.
    """

    shapes: Mapping[str, tuple[int, ...]]
    names: frozenset[str] = frozenset()
    owner: str = ""

    @cached_property
    def kept_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the kept tensors by name."""
        return {name: shape for name, shape in self.shapes.items() if name in self.names}

    @cached_property
    def entries(self) -> NDArray[np.bool_]:
        """Flags (size,) of the entries to keep, in the vector of all tensors that the client trains."""
        return np.concatenate([np.full(math.prod(shape), name in self.names) for name, shape in self.shapes.items()])

    def to_bytes(self, row: Floats) -> bytes:
        """Return a file of the tensors to keep, cut from the vector of all (size,); empty if nothing is kept."""
        from safetensors.numpy import save

        if not self.kept_shapes:
            return b""
        return save({name: tensor for name, tensor in tensors_of(self, row).items() if name in self.kept_shapes})

    def read(self, content: bytes) -> dict[str, NDArray[np.float32]]:
        """Read a file's tensors by name. Raises BadInput for other names, shapes or types, NaN and infinity."""
        tensors, _ = parse_tensors(content)
        found = {name: tensor.shape for name, tensor in tensors.items()}
        if found != self.kept_shapes or not all(
            tensor.dtype == np.float32 and np.isfinite(tensor).all() for tensor in tensors.values()
        ):
            whose = f"is not of {self.owner}: it " if self.owner else ""
            raise BadInput(f"the private state {whose}holds {found} and not {dict(self.kept_shapes)}")
        return tensors

    def restore(self, row: Floats, content: bytes) -> Floats:
        """Return the vector `row` of all tensors with the kept ones replaced by a file's, if any. Raises BadInput."""
        if not content:
            return row
        restored = row.copy()
        restored[self.entries] = self.row(content)
        return restored

    def row(self, content: bytes) -> Floats:
        """Read a file's kept tensors as one vector, in the order of `shapes`. Raises BadInput as `read`."""
        tensors = self.read(content)
        return np.concatenate([tensors[name].ravel() for name in self.kept_shapes]).astype(np.float64)


@dataclass(frozen=True, eq=False)
class ClientUpdate(ClientWork, ABC):
    """The base of client work that trains, sends the shared model's change clipped by `encoding`, and keeps the rest.

    The promise is about a client: all that it sends is inside the blocks' lengths, which are checked on the integers
    (McMahan et al. 2018; `secagg.encoding.updates`). Training that leaves the numbers sends zeros and keeps the state.
    Where `cap` is above 0, an update counts min(records, cap)/cap, which is sent in a block of its own; else all count
    alike.

    With `private` settings the client trains by DP-SGD with noise of its own. The promise is then about a record,
    against everybody, under the rule of taint: a step's loss of a record depends on that record, on the state and on
    what is kept alone; these come from the broadcast and from steps before, which were noised and paid for. So what is
    sent and kept, and all that is computed of it, is post-processing of the steps; no weight or count leaves.
    """

    encoding: UpdateEncoding
    cap: int
    kept: KeptTensors
    private: DpSgdSettings | None

    @property
    @abstractmethod
    def effort(self) -> Effort:
        """The work of a round's training without noise (such as epochs), and the number of parameters trained."""

    @abstractmethod
    def train(self, begun: Floats, local: Local, number: int) -> Floats:
        """Train in round `number` from the vector `begun`; return all trained tensors in one vector."""

    @abstractmethod
    def train_privately(
        self, begun: Untainted[Floats], local: Local, number: int, settings: DpSgdSettings
    ) -> Untainted[Floats]:
        """Train by DP-SGD in round `number` from the vector `begun`; return all trained tensors in one vector."""

    @property
    def unsent(self) -> Floats:
        """The public initial values of trained tensors that are not shared; in vectors they follow the shared ones."""
        return np.empty(0)

    @property
    def sent(self) -> NDArray[np.bool_]:
        """Flags (size,) of the entries of the shared model whose changes are sent."""
        return np.ones(self.encoding.size, dtype=np.bool_)

    def spec(self, rounds: int) -> SumSpec:
        blocks = [Block(UPDATE, (self.encoding.padded,), bound=self.encoding.entry, kind=Kind.UPDATE)]
        lengths, shares = {UPDATE: self.encoding.length}, {UPDATE: 1.0}
        if self.cap:
            blocks.append(Block(WEIGHT, (1,), bound=WEIGHT_LEVELS, kind=Kind.OTHER))
            lengths[WEIGHT], shares = float(WEIGHT_LEVELS), {UPDATE: 1 - COUNT_SHARE, WEIGHT: COUNT_SHARE}
        moved = clipped(tuple(blocks), lengths)
        spec = SumSpec(
            tuple(blocks), moved, shares, per=Unit.CLIENT, times=rounds, is_additive=False, effort=self.effort
        )
        if self.private is None:
            return spec
        # What members make by DP-SGD is no release of its own.
        private, size = self.private, self.effort.parameters
        taken = SampledTraining(private.sampling_rate, private.steps, private.levels, size, rounds)
        effort = Effort(epochs=math.ceil(taken.rate * taken.steps), steps=taken.steps, parameters=size)
        refusal, known = "the noise is in the members' training", spec.unit_lengths
        return replace(spec, sensitivities=(), training=taken, refusal=refusal, effort=effort, lengths=known)

    def contribute(self, state: Floats, local: Local, number: int = 1) -> Contribution:
        """Return the weighted update, rotated and rounded at random to integers, and the file of the kept tensors."""
        update, kept = self.update(as_trained(state), local, number)
        length, clip = math.sqrt(float(update @ update)), self.encoding.clip
        shortened = update * (clip / length) if length > clip else update
        count = len(local.examples)
        weight = WEIGHT_LEVELS if not self.cap else WEIGHT_LEVELS * min(count, self.cap) // self.cap
        encoded = self.encoding.encode(shortened * (weight / WEIGHT_LEVELS), local.randomness)
        blocks = {UPDATE: encoded.integers}
        return Contribution(blocks | ({WEIGHT: np.array([weight])} if self.cap else {}), kept)

    def update(self, state: Floats, local: Local, number: int) -> tuple[Floats, bytes]:
        """Return the change of the sent entries by training, and the file of the kept tensors.

        Raises TypeError where private steps gave what could be tainted.
        """
        begun = self.kept.restore(np.concatenate([state, self.unsent]), local.state)
        if self.private is None:
            return self._leaving(self.train(begun, local, number), begun)
        # What was kept of the round before is of nothing but that round's `Untainted` outcome.
        start = Untainted(begun) if local.state else public(begun)
        trained = self.train_privately(start, local, number, replace(self.private, sigma=local.sigma))
        return self._leaving(require_untainted(trained), begun)

    def _leaving(self, trained: Floats, begun: Floats) -> tuple[Floats, bytes]:
        """Return the move of the sent entries, and the file of the kept ones, which float32 has to hold."""
        if not np.abs(trained).max() <= (LARGEST if self.kept.names else np.finfo(np.float64).max):
            trained = begun
        return self.pack(trained - begun), self.kept.to_bytes(trained)

    def pack(self, moved: Floats) -> Floats:
        """Return the sent entries of `moved`, the change of all trained tensors."""
        sent = self.sent
        return moved[: sent.size][sent]

    def mean(self, opened: OpenedTotal) -> Floats:
        """Return the weighted mean of the clients' updates; all count alike where no weights are sent.

        Nothing moves what stays with the clients.
        """
        total = self.encoding.decode(opened.blocks[UPDATE]) / opened.multiplier(UPDATE)
        sent = self.sent
        move = np.zeros(sent.size)
        move[sent] = total / (_number(opened, WEIGHT) / WEIGHT_LEVELS if self.cap else opened.clients)
        return move


@dataclass(frozen=True, eq=False)
class ProgramUpdate(ClientUpdate):
    """Client work that trains the network `program` by `settings`; the client keeps nothing."""

    program: Program
    settings: TrainingSettings

    @property
    def effort(self) -> Effort:
        return Effort(epochs=self.settings.epochs, parameters=self.program.size)

    def train(self, begun: Floats, local: Local, number: int) -> Floats:
        inputs, labels = program_inputs(local, self.program), local.examples.labels
        how = self.settings, local.randomness
        return train(self.program, begun, inputs, labels, *how, tolerant=local.has_noise)

    def train_privately(
        self, begun: Untainted[Floats], local: Local, number: int, settings: DpSgdSettings
    ) -> Untainted[Floats]:
        inputs, labels = program_inputs(local, self.program), local.examples.labels
        return dp_sgd(public(self.program), begun, inputs, labels, settings, local.randomness, local.watch)


@dataclass(frozen=True, eq=False)
class RecordGradients(ClientWork):
    """Client work that sends the sum of records' gradients, each clipped, truncated to integers and checked first.

    The promise is about a record: it adds one gradient no longer than `units`, computed from the record and the public
    state alone, and 1 to the count, whatever the other records are. Gradients are added exactly, so that nothing of the
    order or of the other records changes what it adds (rounding a *sum* at random would).
    """

    program: Program
    rate: float
    clip: float
    units: int

    def spec(self, rounds: int) -> SumSpec:
        size = self.program.size
        blocks = (Block(GRADIENT, (size,), bound=self.units, kind=Kind.UPDATE), Block(COUNT, (1,), 1, Kind.OTHER))
        moved = (BlockSensitivity(GRADIENT, float(self.units), size), BlockSensitivity(COUNT, 1.0, 1, scalable=True))
        of_record = tuple(BlockwiseSensitivity(Unit.RECORD, each, moved) for each in Adjacency)
        shares, effort = {GRADIENT: 1 - COUNT_SHARE, COUNT: COUNT_SHARE}, Effort(epochs=1, parameters=size)
        return SumSpec(blocks, of_record, shares, times=rounds, effort=effort)

    def contribute(self, state: Floats, local: Local, number: int = 1) -> Contribution:
        """Return the integer sum of the records' clipped and truncated gradients, and the number of records."""
        examples = local.examples
        inputs = program_inputs(local, self.program)
        total = np.zeros(self.program.size, dtype=np.int64)
        for gradients in record_gradients(self.program, state, inputs, examples.labels, tolerant=local.has_noise):
            total += sum_of_records(gradients, self.clip, self.units)
        return Contribution({GRADIENT: total, COUNT: np.array([len(examples)])})

    def mean(self, opened: OpenedTotal) -> Floats:
        """Return the gradient step of the model from the opened sum: −rate times the mean gradient."""
        total = opened.blocks[GRADIENT] * (self.clip / self.units) / opened.multiplier(GRADIENT)
        return total * (-self.rate / _number(opened, COUNT))


def sampled_steps(rate: float, steps: int, sampling: float, clip: float, batch: int) -> DpSgdSettings:
    """Return DP-SGD settings from a plan's parameters; each round sets the noise later (`Local.sigma`)."""
    return DpSgdSettings(rate, steps, sampling, clip, GRADIENT_LEVELS, sigma=0.0, denominator=float(batch))


def as_trained(state: Floats) -> Floats:
    """Return the model's parameters rounded to float32, as training takes them."""
    return state.astype(np.float32).astype(np.float64)


def _number(opened: OpenedTotal, block: str) -> float:
    """Return the one number of a block as a divisor: at least 1 and at least σ, below which there is only noise."""
    sigma = opened.noise[block].of_record.sigma if opened.noise else 0.0
    return max(float(opened.blocks[block][0]) / opened.multiplier(block), sigma, 1.0)
