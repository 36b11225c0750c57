"""What a method must say; clipping, noise, encoding, protection, transport and audit are given to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from secagg.encoding.layout import Block, Integers
from secagg.errors import ProtocolViolation
from secagg.head import LinearHead
from secagg.privacy import Adjacency, OpenedNoise, Sensitivity
from secagg.roster import SERVER_INDEX
from secagg.statistics import Grid

DOMAINS = "domains"
"""Name of the parameter that lists the domains of a method which tells them apart, joined by "+"."""
Parameters = dict[str, str | float]
Noise = Mapping[str, OpenedNoise]
"""What is known of the noise on every opened block, by its name."""


def domains_of(parameters: Mapping[str, str | float]) -> tuple[str, ...]:
    """The domains that a method with these parameters tells apart, in order; none where it tells none apart."""
    return tuple(name for name in str(parameters.get(DOMAINS, "")).split("+") if name)


@dataclass(frozen=True, eq=False)
class Examples:
    """One client's records that count: q (n, d), their labels (n,) in 0…C−1 and domains (n,), all 0 without any."""

    records: Integers = field(repr=False)
    labels: Integers = field(repr=False)
    domains: Integers = field(repr=False)

    @classmethod
    def of(cls, records: Integers, labels: Integers) -> Examples:
        """Examples of one domain."""
        return cls(records, labels, np.zeros(len(labels), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: NDArray[np.bool_] | Integers) -> Examples:
        """Those where `rows` holds, or at `rows`."""
        return Examples(self.records[rows], self.labels[rows], self.domains[rows])


@dataclass(frozen=True)
class Sum:
    """One kind of secure sum: its blocks in layout order, what one record can move, and how it spends.

    `sensitivity` is that of one record, for each adjacency. `shares` says how μ² is divided among the blocks (a rule
    of `secagg.privacy.SHARE_RULES`, or "equal"), `times` how many sums of the kind there are, and `budget` the share
    of the plan's μ² of all of them together. A sum without sensitivities cannot be noised, for the reason `refusal`.
    `counts_clients`: no entry tells more of a client than whether it holds something, as in a census; a policy counts
    all other sums as sums about its records.
    """

    blocks: tuple[Block, ...]
    sensitivity: Mapping[Adjacency, Sensitivity]
    shares: str | Mapping[str, float]
    times: int = 1
    budget: float = 1.0
    refusal: str = ""
    counts_clients: bool = False


class Round(Protocol):
    """One secure sum of a method, and what comes of it. Immutable."""

    def contribute(self, examples: Examples, classes: int, levels: int) -> dict[str, Integers]:
        """Return one client's blocks for n ≥ 0 examples; additive over them."""
        ...

    def places(self, examples: Examples, classes: int) -> Integers:
        """Return in which cell of its class (n,), from 0, the sum holds each of one client's examples; −1: in none.

        0 where a class is not divided. What `contribute` sums by, told to audits.
        """
        ...

    def implausibilities(self, aggregate: Mapping[str, Integers], grid: Grid) -> list[str]:
        """Return what no honest sum without noise would show (no culprit); empty when plausible."""
        ...

    def head(self, aggregate: Mapping[str, Integers], grid: Grid, noise: Noise | None) -> LinearHead | None:
        """Return the head after this sum, for `secagg.statistics.inputs_of`; `noise` None: the sum is exact.

        None where this kind of sum gives none; every last sum gives one. Raises BadInput when this sum fails to.
        """
        ...

    def following(self, aggregate: Mapping[str, Integers], grid: Grid, noise: Noise | None) -> Round | None:
        """Return the next round, None after the last; a function of released numbers, which clients recompute."""
        ...

    def broadcast(self) -> bytes:
        """Return what opens this round: all that the server tells of it. Empty for the first, which the plan opens."""
        ...

    def announced(self, broadcast: bytes, grid: Grid) -> Round:
        """Return the round after this one as `broadcast` opens it. Raises MalformedMessage or ProtocolViolation."""
        ...

    def check(self, told: Round) -> None:
        """Raise ProtocolViolation unless `told` is this round but for rounding: machines differ in the last bits."""
        ...


class Method(Round, Protocol):
    """A method is its own first round; a one-shot method has no other. The plan holds its name and parameters."""

    @property
    def name(self) -> str:
        """Name on the command line and in the plan."""
        ...

    @property
    def parameters(self) -> Parameters:
        """Everything that `method_named` needs beside the name to make this method again."""
        ...

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[Sum, ...]:
        """Return the kinds of sums for records q in Z^d with ‖q‖₂ ≤ `levels`: the first round's, then the others'."""
        ...


class OneShot:
    """What a method of a single sum says of further rounds, there being none, and of cells within a class, of one."""

    def places(self, examples: Examples, classes: int) -> Integers:
        """0: classes are not divided, and every record counts."""
        return np.zeros(len(examples), dtype=np.int64)

    def following(self, aggregate: Mapping[str, Integers], grid: Grid, noise: Noise | None) -> Round | None:
        """None: one sum."""
        return None

    def broadcast(self) -> bytes:
        """Nothing: the plan opens the first round."""
        return b""

    def announced(self, broadcast: bytes, grid: Grid) -> Round:
        """There is no other round. Raises ProtocolViolation."""
        raise ProtocolViolation(SERVER_INDEX, "announces a round that the plan does not have")

    def check(self, told: Round) -> None:
        """The first round is not told. Raises ProtocolViolation."""
        raise ProtocolViolation(SERVER_INDEX, "announces the first round, which the plan opens")
