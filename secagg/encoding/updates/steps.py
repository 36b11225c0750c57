"""The public model state, and the server's rules that update it by public arithmetic, bit for bit reproducible.

Steps are written with + − × ÷ √ of float64 alone, one operation at a time, each of which IEEE 754 rounds correctly.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from secagg.crypto.labels import digest, number
from secagg.errors import BadInput
from secagg.system.reading import parse_json

Floats = NDArray[np.float64]
Tensors = Mapping[str, Floats]

GROUP, MOMENT = "group.", "moment."
"""Prefixes of the names of tensors in a file."""
MOST_STEPS = 1 << 32


@dataclass(frozen=True, eq=False)
class State:
    """The public model state after `step` rounds: tensors that updates change (`groups`), and optimiser `moments`.

    All finite float64, copied, read-only and by sorted names. Moments have as many entries as all groups together,
    (size,). Raises BadInput for other types, shapes, values or steps outside 0 … 2³² − 1.
    """

    groups: Tensors
    moments: Tensors
    step: int

    def __post_init__(self) -> None:
        if not 0 <= self.step < MOST_STEPS:
            raise BadInput(f"a state after {self.step} steps", remedy=f"it counts from 0 to {MOST_STEPS - 1}")
        object.__setattr__(self, "groups", _freeze(self.groups))
        object.__setattr__(self, "moments", _freeze(self.moments))
        if any(moment.shape != (self.size,) for moment in self.moments.values()):
            raise BadInput(f"a moment of a state of {self.size} entries has another shape than ({self.size},)")

    def __reduce__(self) -> tuple[type[State], tuple[dict[str, Floats], dict[str, Floats], int]]:
        """Pickle the state by its tensors, of which the copy makes read-only ones again."""
        return State, (dict(self.groups), dict(self.moments), self.step)

    @property
    def size(self) -> int:
        """Total number of entries of the tensors in `groups`."""
        return sum(tensor.size for tensor in self.groups.values())

    @property
    def flat(self) -> Floats:
        """All tensors of `groups` as one vector (size,), by sorted names, each row by row."""
        return np.concatenate([np.empty(0), *(tensor.reshape(-1) for tensor in self.groups.values())])

    def with_flat(self, flat: Floats) -> State:
        """Return the state with the entries of `groups` replaced by a float64 vector (size,); moments and step stay."""
        _check_vector("the flat state", flat, self.size)
        groups: dict[str, Floats] = {}
        start = 0
        for name, tensor in self.groups.items():
            groups[name] = flat[start : start + tensor.size].reshape(tensor.shape)
            start += tensor.size
        return replace(self, groups=groups)

    @property
    def digest(self) -> bytes:
        """The SHA-256, 32 bytes, of step, number of groups, and each tensor's name, shape and SHA-256 of its values.

        Values are little-endian float64, row by row; numbers 4 bytes big-endian; all joined as `crypto.labels` does.
        """
        parts = [number(self.step), number(len(self.groups))]
        for name, tensor in (*self.groups.items(), *self.moments.items()):
            values = hashlib.sha256(tensor.astype("<f8").tobytes()).digest()
            parts += [name.encode(), b"".join(map(number, tensor.shape)), values]
        return digest("state", *parts)

    def to_bytes(self) -> bytes:
        """Return the state as a safetensors file: `group.NAME` and `moment.NAME`, and the step in its metadata."""
        from safetensors.numpy import save

        groups = {GROUP + name: tensor for name, tensor in self.groups.items()}
        moments = {MOMENT + name: tensor for name, tensor in self.moments.items()}
        return save(groups | moments, metadata={"step": str(self.step)})

    @classmethod
    def from_bytes(cls, content: bytes, shapes: Mapping[str, tuple[int, ...]]) -> State:
        """Read a state from a file by `to_bytes`. Raises BadInput unless its groups have these names and shapes.

        Any moments of the right size are read; a server's step refuses those that are not its own.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            tensors = load(content)
            metadata = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__")
            step = int(metadata["step"])
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise BadInput(f"not the file of a state ({error})") from error
        if metadata != {"step": str(step)}:  # as Python writes an integer
            raise BadInput(f"the metadata of a state is its step alone, not {metadata}")
        parts: dict[str, dict[str, Floats]] = {GROUP: {}, MOMENT: {}}
        for name, tensor in tensors.items():
            prefix = next((prefix for prefix in parts if name.startswith(prefix)), None)
            if prefix is None:
                raise BadInput(f"a state holds no tensor {name!r}")
            parts[prefix][name.removeprefix(prefix)] = tensor
        found = {name: tensor.shape for name, tensor in parts[GROUP].items()}
        if found != dict(shapes):
            raise BadInput(f"the state has the groups {found}, expected {dict(shapes)}")
        return cls(parts[GROUP], parts[MOMENT], step)


class ServerStep(Protocol):
    """A server's rule for changing the public model state by the mean of the clients' updates."""

    @property
    def moments(self) -> tuple[str, ...]:
        """Names of the optimiser moments, such as a velocity, that this rule keeps in the state."""

    def apply(self, state: State, mean_update: Floats) -> State:
        """Return the next state, given the float64 mean update (size,): the mean of clients' tensors minus the state's.

        A state without moments begins them. Raises BadInput for another shape or type, NaN or infinite entries (also in
        what comes out), or moments that are not this rule's.
        """


@dataclass(frozen=True)
class Average(ServerStep):
    """Federated averaging (McMahan et al. 2017, where rate is 1): x ← x + rate·Δ, with the mean update Δ."""

    moments: ClassVar[tuple[str, ...]] = ()
    rate: float = 1.0

    def __post_init__(self) -> None:
        _check_rate(self.rate)

    def apply(self, state: State, mean_update: Floats) -> State:
        _moments(state, mean_update, {})
        with np.errstate(over="ignore"):
            return _advance(state, self.rate * mean_update, {})


@dataclass(frozen=True)
class Momentum(ServerStep):
    """Server momentum (Hsu, Qi & Brown 2019): m ← β·m + Δ from m = 0, x ← x + rate·m, with the mean update Δ."""

    moments: ClassVar[tuple[str, ...]] = ("velocity",)
    rate: float = 1.0
    beta: float = 0.9

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        _check_decay(self.beta)

    def apply(self, state: State, mean_update: Floats) -> State:
        velocity = _moments(state, mean_update, {"velocity": 0.0})["velocity"]
        with np.errstate(over="ignore"):
            velocity = self.beta * velocity + mean_update
            return _advance(state, self.rate * velocity, {"velocity": velocity})


@dataclass(frozen=True)
class Adam(ServerStep):
    """FedAdam without bias correction: Algorithm 2 of Reddi et al. 2021, "Adaptive Federated Optimization".

    m ← β₁·m + (1 − β₁)·Δ from m = 0, v ← β₂·v + (1 − β₂)·Δ² from v = τ², x ← x + rate·m/(√v + τ).
    """

    moments: ClassVar[tuple[str, ...]] = ("mean", "square")
    rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        for value in (self.rate, self.tau):
            _check_rate(value)
        for value in (self.beta1, self.beta2):
            _check_decay(value)

    def apply(self, state: State, mean_update: Floats) -> State:
        moments = _moments(state, mean_update, {"mean": 0.0, "square": self.tau * self.tau})
        with np.errstate(over="ignore"):
            mean = self.beta1 * moments["mean"] + (1.0 - self.beta1) * mean_update
            square = self.beta2 * moments["square"] + (1.0 - self.beta2) * (mean_update * mean_update)
            change = self.rate * mean / (np.sqrt(square) + self.tau)
            return _advance(state, change, {"mean": mean, "square": square})


SERVER_STEPS: Mapping[str, type[Average | Momentum | Adam]] = MappingProxyType(
    {"average": Average, "momentum": Momentum, "adam": Adam}
)
"""The server's steps by their names in plans."""


def _moments(state: State, mean_update: Floats, first: Mapping[str, float]) -> Tensors:
    """Return the state's moments, or `first` in every entry where it has none; checks both and the update."""
    _check_vector("the mean update", mean_update, state.size)
    if not np.isfinite(mean_update).all():
        raise BadInput("the mean update has NaN or infinite entries")
    if not state.moments:
        return {name: np.full(state.size, value) for name, value in first.items()}
    if set(state.moments) != set(first):
        raise BadInput(f"the state has the moments {sorted(state.moments)}, this step's are {sorted(first)}")
    return state.moments


def _advance(state: State, change: Floats, moments: Tensors) -> State:
    """Return the state one step on, its entries moved by `change` (size,)."""
    return replace(state.with_flat(state.flat + change), moments=moments, step=state.step + 1)


def _freeze(tensors: Tensors) -> Tensors:
    """Return read-only copies by sorted names. Raises BadInput for a tensor that is not float64 or not finite."""
    kept: dict[str, Floats] = {}
    for name, tensor in sorted(tensors.items()):
        if tensor.dtype != np.float64 or not np.isfinite(tensor).all():
            raise BadInput(f"{name} of a state is not finite float64 ({tensor.dtype})")
        kept[name] = tensor.copy(order="C")
        kept[name].flags.writeable = False
    return MappingProxyType(kept)


def _check_vector(what: str, vector: Floats, size: int) -> None:
    if vector.dtype != np.float64 or vector.shape != (size,):
        raise BadInput(f"{what} has {size} float64 entries, got {vector.dtype} of {vector.shape}")


def _check_rate(value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise BadInput(f"a step with rate or tau {value}", remedy="give a finite number above 0")


def _check_decay(value: float) -> None:
    if not 0 <= value < 1:
        raise BadInput(f"a step with beta {value}", remedy="give a number from 0 up to, but not including, 1")
