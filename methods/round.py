"""The interface of a round: a member's contribution from its local data, and the step that the opened total gives."""

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
    """The records of one client that count: q (n, d), labels (n,) in 0…C−1 and domains (n,), all 0 without domains."""

    records: Integers = field(repr=False)
    labels: Integers = field(repr=False)
    domains: Integers = field(repr=False)
    _made: list[Any] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def of(cls, records: Integers, labels: Integers) -> Examples:
        """Return examples of one domain."""
        return cls(records, labels, np.zeros(len(labels), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def once(self, rule: Callable[[Integers], T]) -> T:
        """Return the value of `rule`, a public function, for the records; it is kept for later rounds."""
        if not self._made or self._made[0] != rule:
            self._made[:] = rule, rule(self.records)
        return self._made[1]  # type: ignore[no-any-return]  # it came from this rule

    def take(self, rows: NDArray[np.bool_] | Integers) -> Examples:
        """Return the examples at `rows`, which are indices or a mask."""
        return Examples(self.records[rows], self.labels[rows], self.domains[rows])


@dataclass(frozen=True, eq=False)
class Local:
    """A member's data in a round; nothing but its contribution leaves the member.

    `examples` are on the plan's `grid` and of its `classes`. `member` is its index in the roster, 0 where there is
    none (pooled records). `state` is what its contribution to the round before kept, empty in the first. A method that
    says `reads_inputs` also has the raw `inputs` (n, …) of the examples, row by row, and the frozen `feature_map` that
    made these of them; None for another. `sigma` is the noise of each step of its own training, in grid units of a
    gradient (`SampledTraining`), 0 for none, and `further` that of what it computes of its records beside, by block.
    `has_noise`: the sum is noised, so that a record on which a program fails is left out, not refused.
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


@dataclass(frozen=True, eq=False)
class Contribution:
    """One member's blocks in a round (int64), and the private `state` that it keeps for the next round."""

    blocks: Blocks = field(repr=False)
    state: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, eq=False)
class OpenedTotal:
    """An opened total, its blocks still multiplied by their multipliers, and all public facts about it.

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
        """Return the integer that a block is multiplied by; 1 in an exact sum."""
        return self.noise[block].multiplier if self.noise is not None else 1


@dataclass(frozen=True, eq=False)
class Step:
    """The result of an opened total: an artifact, the next round, or both."""

    artifact: Artifact | None = None
    next_round: Round | None = None


class Round(Protocol):
    """One secure sum of a method, and what follows from it. Immutable; all that it holds is public."""

    def contribute(self, local: Local) -> Contribution:
        """Return one client's blocks for n ≥ 0 examples, as the round's `SumSpec` declares them."""
        raise NotImplementedError(f"{type(self).__name__} has no contribute")

    def cells(self, examples: Examples, classes: int) -> Integers:
        """Return each example's cell within its class (n,), from 0; −1 for none.

        0 where a class is not divided. What `contribute` sums by, told to audits.
        """

    def sanity_failures(self, blocks: Blocks, grid: Grid) -> list[str]:
        """Return complaints about sums that are impossible without noise, empty if none; no culprit is named."""

    def finalize(self, opened: OpenedTotal) -> Step:
        """Return the step that follows from the opened total, by public arithmetic that clients repeat.

        Every last round gives an artifact. Raises BadInput when this total fails to.
        """
        raise NotImplementedError(f"{type(self).__name__} has no finalize")

    def personal(self, state: bytes, opened: OpenedTotal) -> Mapping[str, Artifact]:
        """Return a member's own models after this round, by name; empty for most methods.

        From the `state` that its contribution to this round left to it, and what the round opened. They stay with the
        member. Raises BadInput for a state that is none.
        """

    def broadcast(self) -> bytes:
        """Return the bytes from which members begin this round; empty for the first, which the plan alone decides."""

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        """Return the next round from its `broadcast`. Raises MalformedMessage or ProtocolViolation."""

    @property
    def is_self_contained(self) -> bool:
        """Whether a round follows from its `broadcast` alone, so that an absent client may return."""

    def from_broadcast(self, number: int, broadcast: bytes, grid: Grid) -> Round:
        """Return round `number`, counted from 1, from its `broadcast` alone; only if `is_self_contained`.

        Raises MalformedMessage or ProtocolViolation.
        """

    def require_equal(self, told: Round) -> None:
        """Raise ProtocolViolation unless the server's round `told` equals this one, but for rounding."""


class SimpleRound(Round):
    """The base of most rounds: one cell per class, no complaints, and no broadcast."""

    def cells(self, examples: Examples, classes: int) -> Integers:
        return np.zeros(len(examples), dtype=np.int64)

    def sanity_failures(self, blocks: Blocks, grid: Grid) -> list[str]:
        return []

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
