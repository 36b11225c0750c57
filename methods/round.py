"""A round: what a member contributes from what is local to it, and the step that the opened total gives."""

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
"""What is known of the noise on every opened block, by its name."""
Blocks = Mapping[str, Integers]
"""The blocks of one contribution or of one total, by name."""
Total = Mapping[str, NDArray[Any]]
"""The same of an opened total; float64 where an audit makes one up, in units of one record's integers."""


@dataclass(frozen=True, eq=False)
class Examples:
    """One client's records that count: q (n, d), their labels (n,) in 0…C−1 and domains (n,), all 0 without any."""

    records: Integers = field(repr=False)
    labels: Integers = field(repr=False)
    domains: Integers = field(repr=False)
    _made: list[Any] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def of(cls, records: Integers, labels: Integers) -> Examples:
        """Examples of one domain."""
        return cls(records, labels, np.zeros(len(labels), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def once(self, rule: Callable[[Integers], T]) -> T:
        """Apply a public rule to the records, once however many rounds ask, while the rule is the same object."""
        if not self._made or self._made[0] != rule:
            self._made[:] = rule, rule(self.records)
        return self._made[1]  # type: ignore[no-any-return]  # it came from this rule

    def take(self, rows: NDArray[np.bool_] | Integers) -> Examples:
        """Those where `rows` holds, or at `rows`."""
        return Examples(self.records[rows], self.labels[rows], self.domains[rows])


@dataclass(frozen=True, eq=False)
class Local:
    """A member's data in a round, of which its contribution alone leaves.

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
    """One member's blocks in a round (int64), and its private `state` for the next, which stays with it."""

    blocks: Blocks = field(repr=False)
    state: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, eq=False)
class Opened:
    """An opened total, multipliers still in it, and all that is public about it.

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
    """The step after an opened total: an artifact that may be used, or none; the next round, or none."""

    artifact: Artifact | None = None
    next_round: Round | None = None


class Round(Protocol):
    """One secure sum of a method, and what comes of it. Immutable, and public in all that it holds."""

    def contribute(self, local: Local) -> Contribution:
        """Return one client's blocks for n ≥ 0 examples, as the round's `SumSpec` declares them."""

    def cells(self, examples: Examples, classes: int) -> Integers:
        """Return in which cell of its class (n,), from 0, the sum holds each of one client's examples; −1: in none.

        0 where a class is not divided. What `contribute` sums by, told to audits.
        """

    def sanity_failures(self, blocks: Blocks, grid: Grid) -> list[str]:
        """Return what no honest sum without noise would show (no culprit); empty when there is nothing."""

    def finalize(self, opened: Opened) -> Step:
        """Return what follows from the opened total, by public arithmetic that clients repeat.

        Every last round gives an artifact. Raises BadInput when this total fails to.
        """

    def personal(self, state: bytes, opened: Opened) -> Mapping[str, Artifact]:
        """Return the models, by name, that a member has for itself after this round; mostly none.

        From the `state` that its contribution to this round left to it, and what the round opened. They stay with the
        member. Raises BadInput for a state that is none.
        """

    def broadcast(self) -> bytes:
        """Return what opens this round: all that the server tells of it. Empty for the first, which the plan opens."""

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        """Return the round after this one as `broadcast` opens it. Raises MalformedMessage or ProtocolViolation."""

    @property
    def is_self_contained(self) -> bool:
        """Whether `broadcast` tells all of a round: only then may who was away return (`from_broadcast`)."""

    def from_broadcast(self, number: int, broadcast: bytes, grid: Grid) -> Round:
        """Return the round of this number, counted from 1, as `broadcast` alone opens it, where it `is_self_contained`.

        Raises MalformedMessage or ProtocolViolation.
        """

    def require_equal(self, told: Round) -> None:
        """Raise ProtocolViolation unless `told` is this round but for rounding: machines differ in the last bits."""


class SimpleRound:
    """A round as most are: classes are not divided, nothing is implausible, the plan opens this round and no other."""

    def cells(self, examples: Examples, classes: int) -> Integers:
        """0: classes are not divided, and every record counts."""
        return np.zeros(len(examples), dtype=np.int64)

    def sanity_failures(self, blocks: Blocks, grid: Grid) -> list[str]:
        """None: nothing is known of the sum."""
        return []

    def personal(self, state: bytes, opened: Opened) -> Mapping[str, Artifact]:
        """None: the artifact is for everybody."""
        return {}

    def broadcast(self) -> bytes:
        """Nothing: the plan opens the first round."""
        return b""

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        """Refuse any other round. Raises ProtocolViolation."""
        raise ProtocolViolation(SERVER_INDEX, "announces a round that the plan does not have")

    @property
    def is_self_contained(self) -> bool:
        """No: what a round sums follows from those before it."""
        return False

    def from_broadcast(self, number: int, broadcast: bytes, grid: Grid) -> Round:
        """Nobody can tell without the rounds between. Raises ProtocolViolation."""
        raise ProtocolViolation(SERVER_INDEX, f"round {number} does not follow from its broadcast alone")

    def require_equal(self, told: Round) -> None:
        """The first round is not told. Raises ProtocolViolation."""
        raise ProtocolViolation(SERVER_INDEX, "announces the first round, which the plan opens")
