"""The interface of a round: the contribution of a client's local data, and the result of the opened sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Grid
from secagg.encoding.layout import Integers
from secagg.errors import ProtocolViolation
from secagg.heads import Artifact
from secagg.privacy import OpenedNoise
from secagg.randomness import OperatingSystem, RandomSource

if TYPE_CHECKING:
    from secagg.features import FeatureMap

T = TypeVar("T")
Noise = Mapping[str, OpenedNoise]
"""The noise on every opened block, by the block's name."""
Blocks = Mapping[str, Integers]
"""The blocks of one contribution or of one total, by name."""
Total = Mapping[str, NDArray[Any]]
"""The blocks of an opened total by name; float64 where an audit makes one up, in units of one record's integers."""


@dataclass(frozen=True, eq=False)
class Examples:
    """One client's records that take part: integers (n, d), labels (n,) in 0…C−1, domains (n,), 0 without domains."""

    records: Integers = field(repr=False)
    labels: Integers = field(repr=False)
    domains: Integers = field(repr=False)
    _made: list[Any] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def of(cls, records: Integers, labels: Integers) -> Examples:
        """Return the examples of a client whose records are all of one domain."""
        return cls(records, labels, np.zeros(len(labels), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def once(self, rule: Callable[[Integers], T]) -> T:
        """Return `rule(records)`, which is cached for later rounds; `rule` is a public function."""
        if not self._made or self._made[0] != rule:
            self._made[:] = rule, rule(self.records)
        return self._made[1]  # type: ignore[no-any-return]  # it came from this rule

    def take(self, rows: NDArray[np.bool_] | Integers) -> Examples:
        """Return the examples that `rows` selects, by their indices or by boolean flags."""
        return Examples(self.records[rows], self.labels[rows], self.domains[rows])


@dataclass(frozen=True, eq=False)
class Local:
    """The data and settings that a client has in a round; nothing but its contribution leaves the client.

    `examples` are on the plan's `grid` and of its `classes`. `member` is its index in the roster, 0 where there is
    none (pooled records). `state` is what its contribution to the round before kept, empty in the first. A method that
    says `reads_inputs` also has the raw `inputs` (n, …) of the examples, row by row, and the frozen `feature_map` that
    made these of them; None for another. `sigma` is the noise of each step of its own training, in grid units of a
    gradient (`SampledTraining`), 0 for none, and `further` that of what it computes of its records beside, by block.
    `has_noise`: the sum is noised, so that a record on which a program fails is left out, not refused. `watch` sees the
    settings, noise and noisy sum of each step of its own training in an audit's simulation; a real client has none.
    """

    examples: Examples
    classes: int
    grid: Grid
    member: int = 0
    state: bytes = field(default=b"", repr=False)
    randomness: RandomSource = field(default_factory=OperatingSystem, repr=False)
    inputs: NDArray[Any] | None = field(default=None, repr=False)
    feature_map: FeatureMap | None = None
    sigma: float = 0.0
    further: Mapping[str, float] = field(default_factory=dict)
    has_noise: bool = False
    watch: Callable[[Any, Integers, Integers], None] | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Contribution:
    """A client's integer arrays (int64) for a round's sum, and the private state that it keeps for later rounds."""

    blocks: Blocks = field(repr=False)
    state: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, eq=False)
class OpenedTotal:
    """An opened sum and all public facts about it; its arrays are still scaled by integers (see `multiplier`).

    `noise` is None for an exact sum. `clients` is how many contributed, `members` are their indices where they have
    any, `seed` (32 bytes) is public randomness that the plan and everything opened so far decide: whoever draws from it
    draws the same.
    """

    blocks: Total = field(repr=False)
    grid: Grid
    noise: Noise | None = None
    clients: int = 1
    seed: bytes = bytes(32)
    members: tuple[int, ...] = ()

    def multiplier(self, block: str) -> int:
        """Return the integer by which this array of the sum is scaled; 1 in an exact sum."""
        return self.noise[block].multiplier if self.noise is not None else 1


@dataclass(frozen=True, eq=False)
class Step:
    """The result of an opened sum: an artifact (head or model), the next round, or both."""

    artifact: Artifact | None = None
    next_round: Round | None = None


class Round(Protocol):
    """A method's round: one secure sum, and what follows from it. Immutable; everything in it is public."""

    def contribute(self, local: Local) -> Contribution:
        """Return one client's contribution from n ≥ 0 examples, with the arrays that the round's `SumSpec` declares."""
        raise NotImplementedError(f"{type(self).__name__} has no contribute")

    def cells(self, examples: Examples, classes: int) -> Integers:
        """Return in which part of its class, such as a domain, each example is summed: (n,), from 0; −1 for none.

        0 where a class is not divided. What `contribute` sums by, told to audits.
        """

    def sanity_failures(self, blocks: Blocks, grid: Grid) -> list[str]:
        """Return messages about values that an exact sum cannot have, empty if there are none; no client is blamed."""

    def finalize(self, opened: OpenedTotal) -> Step:
        """Return the artifact or next round that follows from the opened sum, by public arithmetic that clients repeat.

        Every last round gives an artifact. Raises BadInput when this total fails to.
        """
        raise NotImplementedError(f"{type(self).__name__} has no finalize")

    @property
    def is_exact(self) -> bool:
        """Whether an artifact of `finalize` has the same bits on every machine: clients then accept no others.

        Integers have, and what + − × ÷ √ of float64 makes, one operation at a time, each of which IEEE 754 rounds
        correctly; products of matrices, their decompositions and training have not.
        """

    def personal(self, state: bytes, opened: OpenedTotal) -> Mapping[str, Artifact]:
        """Return a client's own models after this round, by name; empty for most methods.

        From the `state` that its contribution to this round left to it, and what the round opened. They stay with the
        member. Raises BadInput for a state that is none.
        """

    def broadcast(self) -> bytes:
        """Return the bytes broadcast to clients to begin this round; empty for the first, which the plan begins."""

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        """Read the round after this one from its `broadcast`. Raises MalformedMessage or ProtocolViolation."""

    @property
    def is_self_contained(self) -> bool:
        """Whether a client can join any round by its `broadcast` alone, so that an absent client may return."""

    def from_broadcast(self, number: int, broadcast: bytes, grid: Grid) -> Round:
        """Return round `number`, counted from 1, from its `broadcast` alone; only if `is_self_contained`.

        Raises MalformedMessage or ProtocolViolation.
        """

    def require_equal(self, told: Round) -> None:
        """Raise ProtocolViolation unless `told`, the server's round, equals this one.

        In every bit, unless the arithmetic that leads to it rounds otherwise on other machines (see `is_exact`).
        """


class SimpleRound(Round):
    """The base of most rounds, which have no parts of classes, checks of impossible sums, own models or broadcast."""

    def cells(self, examples: Examples, classes: int) -> Integers:
        return np.zeros(len(examples), dtype=np.int64)

    def sanity_failures(self, blocks: Blocks, grid: Grid) -> list[str]:
        return []

    @property
    def is_exact(self) -> bool:
        return False

    def personal(self, state: bytes, opened: OpenedTotal) -> Mapping[str, Artifact]:
        return {}

    def broadcast(self) -> bytes:
        return b""

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        raise ProtocolViolation(SERVER_INDEX, "announces a round that the plan does not have")

    @property
    def is_self_contained(self) -> bool:
        return False

    def from_broadcast(self, number: int, broadcast: bytes, grid: Grid) -> Round:
        raise ProtocolViolation(SERVER_INDEX, f"round {number} does not follow from its broadcast alone")

    def require_equal(self, told: Round) -> None:
        raise ProtocolViolation(SERVER_INDEX, "announces the first round, which the plan opens")
