"""A training round, for every training method: one secure sum of a chain, each of which updates a public model.

A member's part of a round is its `ClientWork` at the public state. All who see the opened sum make the next state
of it by the same float64 additions, multiplications, divisions and roots, so that all have the same bits; who was away
gets the state whole, with what opens the round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Protocol

import numpy as np
from numpy.typing import NDArray

from methods.method import SumSpec
from methods.round import Contribution, Local, OpenedTotal, Round, SimpleRound, Step
from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.labels import digest
from secagg.encoding import Grid
from secagg.encoding.updates import ServerStep, State
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation
from secagg.networks import Program, TrainedModel
from secagg.wire import Length, Range, decode, encode, message

MAX_ROUNDS = 10_000
MAX_STATE_BYTES = 1 << 30
"""134 million parameters without moments. The step from a sum to the next state holds about a dozen arrays of that
length at once, 13 GB: what a machine that trains such a model has."""
STATE_NAMES = 1 << 10
"""Room for the names and shapes of a state's tensors."""
LARGEST = float(np.finfo(np.float32).max)
"""The largest parameter: programs compute in float32."""
MODEL = "model"
"""Name of the state's group that every chain has: the program's parameters in one row, in the program's order."""
Floats = NDArray[np.float64]


class ClientWork(Protocol):
    """The interface of client work: a client's contribution at a public model state, and the sum's change of the state.

    Vectors are the state's groups in one row, (size,): `State.flat`.
    """

    def spec(self, rounds: int) -> SumSpec:
        """Return the specification of the sum that is taken in each of `rounds` rounds."""

    def contribute(self, state: Floats, local: Local, number: int = 1) -> Contribution:
        """Return one client's contribution to round `number`; a client without records contributes, too."""

    def mean(self, opened: OpenedTotal) -> Floats:
        """Return the mean change of the model state from an opened sum, by public arithmetic."""

    def own_models(self, state: Floats, kept: bytes) -> Mapping[str, TrainedModel]:
        """Return a client's own models by name, from a public state and the client's kept tensors. Raises BadInput."""
        return {}


@message("ModelState")
@dataclass(frozen=True)
class ModelState:
    """The broadcast of a later round: its number and the model state that it begins with (`State.to_bytes`)."""

    number: Annotated[int, Range(2, MAX_ROUNDS)]
    state: Annotated[bytes, Length(8, MAX_STATE_BYTES)]


@dataclass(frozen=True, eq=False)
class TrainingRound(SimpleRound):
    """Training round `number` of `rounds`: clients do `work` from a public `state`, which the `server` step updates.

    The last round releases the trained `program`.
    """

    program: Program
    work: ClientWork
    server: ServerStep
    rounds: int
    state: State = field(repr=False)
    number: int = 1

    @classmethod
    def first(cls, program: Program, work: ClientWork, server: ServerStep, rounds: int) -> TrainingRound:
        """Return the first round, which begins at the network's public initial parameters."""
        start = program.start(digest("public start", program.name.encode()))
        return cls(program, work, server, rounds, State({MODEL: start}, {}, 0))

    @property
    def model(self) -> TrainedModel:
        """The network as it is when this round begins. Raises BadInput where float32 cannot hold it."""
        return TrainedModel.of(self.program, for_unit_length(self.program, self.state.groups[MODEL]))

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes by name of the tensors in a broadcast state: those of this round's state."""
        return {name: tensor.shape for name, tensor in self.state.groups.items()}

    @property
    def moments(self) -> tuple[str, ...]:
        """The names of the server optimiser's moments in a broadcast state."""
        return self.server.moments

    def contribute(self, local: Local) -> Contribution:
        return self.work.contribute(self.state.flat, local, self.number)

    @property
    def is_exact(self) -> bool:
        return True

    def personal(self, state: bytes, opened: OpenedTotal) -> Mapping[str, TrainedModel]:
        return self.work.own_models(self.server.apply(self.state, self.work.mean(opened)).flat, state) if state else {}

    def finalize(self, opened: OpenedTotal) -> Step:
        """Return the next round, or the model after the last one. Raises BadInput where the update exceeds float32."""
        state = self.server.apply(self.state, self.work.mean(opened))
        require_float32(state)
        following = replace(self, number=self.number + 1, state=state)
        return Step(next_round=following) if self.number < self.rounds else Step(following.model)

    def broadcast(self) -> bytes:
        return encode(ModelState(self.number, self.state.to_bytes()))

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        told = decode(ModelState, broadcast)
        if told.number != self.number + 1 or told.number > self.rounds:
            raise ProtocolViolation(SERVER_INDEX, f"announces round {told.number} after round {self.number}")
        try:
            state = State.from_bytes(told.state, self.shapes)
            require_float32(state)
        except BadInput as error:
            raise MalformedMessage("ModelState", error.problem) from None
        if (state.step, tuple(state.moments)) != (self.number, self.moments):
            told_of = f"{state.step} steps with the moments {', '.join(state.moments) or 'none'}"
            raise ProtocolViolation(SERVER_INDEX, f"announces a state after {told_of} after round {self.number}")
        return replace(self, number=told.number, state=state)

    @property
    def is_self_contained(self) -> bool:
        return True

    def from_broadcast(self, number: int, broadcast: bytes, grid: Grid) -> Round:
        return replace(self, number=number - 1).decode_broadcast(broadcast, grid)

    def require_equal(self, told: Round) -> None:
        """Raise ProtocolViolation unless `told`, the server's round, has bit for bit the state that all compute."""
        if not isinstance(told, TrainingRound) or (told.number, told.state.digest) != (self.number, self.state.digest):
            raise ProtocolViolation(SERVER_INDEX, "the state it broadcasts does not follow from the released sums")


def require_room(size: int, server: ServerStep) -> None:
    """Raise BadInput if a model of `size` parameters, with the server's moments, takes more than `MAX_STATE_BYTES`."""
    needed = 8 * size * (1 + len(server.moments)) + STATE_NAMES
    if needed > MAX_STATE_BYTES:
        problem = f"the state of {size} parameters takes {needed} bytes"
        raise BadInput(problem, remedy=f"choose a smaller model: a state has {MAX_STATE_BYTES} bytes at the most")


def require_float32(state: State) -> None:
    """Raise BadInput where a parameter of the state is beyond float32, in which networks compute."""
    if np.abs(state.flat).max() > LARGEST:
        raise BadInput("the state leaves the numbers that a program computes with", remedy="take a lower rate")


def for_unit_length(program: Program, parameters: Floats) -> Floats:
    """Fold a network's input scale into its parameters (size,), so that inputs x need no scaling."""
    scaled = parameters.copy()
    scaled[: math.prod(next(iter(program.shapes.values())))] *= program.scale
    return scaled
