"""The class gate: a census of who holds which class opens a plan, and classes that too few hold are left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

import numpy as np
from numpy.typing import NDArray

from methods.method import Examples, Method, Noise, OneShot, Parameters, Round, Sum
from secagg.encoding.layout import Block, Integers
from secagg.errors import BadInput, ProtocolViolation
from secagg.head import LinearHead
from secagg.head.linear import ABSENT_BIAS
from secagg.privacy import Adjacency, CensusSensitivity, Unit
from secagg.statistics import Grid
from secagg.wire import Items, Range, decode, encode, message

Number = TypeVar("Number", np.int64, np.float32)

GATE = "gate"
"""Name of the threshold among a plan's parameters."""
CENSUS_SHARE = 0.02
"""The census's share of μ²; the method's sums divide the rest as they would divide all of it."""
FEWEST_CLASSES = 2
"""A head tells classes apart."""


@message("KeptClasses")
@dataclass(frozen=True)
class KeptClasses:
    """The classes that pass, by their place in the plan."""

    classes: Annotated[tuple[int, ...], Items(FEWEST_CLASSES, 10_000, each=Range(0, 9_999), ascending=True)]


@dataclass(frozen=True)
class Gated(OneShot):
    """A method after a census: for each class, how many clients have a record of it (C,).

    Classes whose opened count is below `threshold` are left out of the sums of `method`, and of its head: a class sum
    over one client would be that client's own prototype. The threshold counts clients that may vanish after the census
    and clients that tell the server what they hold, beside the honest ones that must be left.

    Under noise a class that m clients hold passes with the probability that the census's noise, whose σ stands in the
    plan, is at least `threshold` − m: about Φ((m − threshold)/σ), one half at the threshold. The gate then bounds no
    single sum; it is ε that hides a client. A client that lies in the census moves the gate: nothing checks a vector.
    """

    method: Method
    threshold: int

    def __post_init__(self) -> None:
        if self.threshold < 1:
            raise BadInput(f"the class gate is {self.threshold}", remedy="give 1 client or more")

    @property
    def name(self) -> str:
        """The gated method's."""
        return self.method.name

    @property
    def parameters(self) -> Parameters:
        """The gated method's, and the threshold."""
        return {**self.method.parameters, GATE: self.threshold}

    @property
    def per_class(self) -> frozenset[str]:
        """The blocks with a row for each class: those whose shape depends on how many there are."""
        two, three = (
            [block for kind in self.method.sums(1, classes, 2) for block in kind.blocks] for classes in (2, 3)
        )
        return frozenset(one.name for one, other in zip(two, three, strict=True) if one.shape != other.shape)

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[Sum, ...]:
        """The census (`CensusSensitivity`), then the method's sums, which share what the census leaves of μ².

        A record of a class that is left out adds nothing to these, so that their sensitivities hold.
        """
        census = Sum(
            blocks=(Block("census", (classes,), bound=1),),
            sensitivity={each: CensusSensitivity(Unit.RECORD, each, classes) for each in Adjacency},
            shares="equal",
            budget=CENSUS_SHARE,
        )
        others = self.method.sums(dimension, classes, levels)
        return (census, *(replace(each, budget=each.budget * (1 - CENSUS_SHARE)) for each in others))

    def contribute(self, examples: Examples, classes: int, levels: int) -> dict[str, Integers]:
        """1 for each class of which this client has a record: additive over clients, not over records."""
        return {"census": np.minimum(np.bincount(examples.labels, minlength=classes), 1).astype(np.int64)}

    def implausibilities(self, aggregate: Mapping[str, Integers], grid: Grid) -> list[str]:
        """Numbers of clients below 0."""
        census = aggregate["census"]
        return [f"class {j} is held by {census[j]} clients" for j in np.flatnonzero(census < 0)]

    def head(self, aggregate: Mapping[str, Integers], grid: Grid, noise: Noise | None) -> None:
        """None: a census gives no head."""

    def following(self, aggregate: Mapping[str, Integers], grid: Grid, noise: Noise | None) -> Round:
        """The method's first round over the classes that pass. Raises BadInput when fewer than two do."""
        census = aggregate["census"]
        least = self.threshold * (noise["census"].multiplier if noise is not None else 1)
        kept = tuple(np.flatnonzero(census >= least).tolist())
        if len(kept) < FEWEST_CLASSES:
            raise BadInput(
                f"{len(kept)} of {len(census)} classes are held by {self.threshold} clients or more",
                remedy="a head takes two: lower the class gate",
            )
        return GatedRound(self.method, kept, self.per_class)

    def announced(self, broadcast: bytes, grid: Grid) -> Round:
        """The method's first round over the classes that the server names. Raises MalformedMessage."""
        return GatedRound(self.method, decode(KeptClasses, broadcast).classes, self.per_class)


@dataclass(frozen=True)
class GatedRound:
    """A round of the gated method over the `kept` classes alone, as if the plan had no others.

    Records of the other classes add nothing, and the rows of these classes in the `per_class` blocks are zero.
    """

    round: Round
    kept: tuple[int, ...]
    per_class: frozenset[str]

    def contribute(self, examples: Examples, classes: int, levels: int) -> dict[str, Integers]:
        """The method's blocks over the kept classes, each row in its class's place."""
        rows = self._rows(classes)
        counted = examples.take(np.isin(examples.labels, rows))
        own = replace(counted, labels=np.searchsorted(rows, counted.labels))
        blocks = self.round.contribute(own, len(rows), levels)
        return {
            name: self._widened(block, classes) if name in self.per_class else block for name, block in blocks.items()
        }

    def head(self, aggregate: Mapping[str, Integers], grid: Grid, noise: Noise | None) -> LinearHead | None:
        """The head that the kept classes give; it never predicts another one (`LinearHead`), with noise or without."""
        narrow = self.round.head(self._narrowed(aggregate), grid, noise)
        if narrow is None:
            return None
        classes = self._classes(aggregate)
        bias = np.full(classes, ABSENT_BIAS, dtype=np.float32)
        bias[self._rows(classes)] = narrow.bias
        return LinearHead(self._widened(narrow.weight, classes), bias, narrow.before)

    def implausibilities(self, aggregate: Mapping[str, Integers], grid: Grid) -> list[str]:
        """The method's for the kept classes (whose numbers count these alone), and sums of records left out."""
        others = np.setdiff1d(np.arange(self._classes(aggregate)), self.kept)
        held = [j for j in others if any(aggregate[name][j].any() for name in self.per_class & set(aggregate))]
        left_out = [f"class {j} was left out, but its sum is not 0" for j in held]
        return [*self.round.implausibilities(self._narrowed(aggregate), grid), *left_out]

    def following(self, aggregate: Mapping[str, Integers], grid: Grid, noise: Noise | None) -> Round | None:
        """The method's next round, over the same classes."""
        following = self.round.following(self._narrowed(aggregate), grid, noise)
        return replace(self, round=following) if following is not None else None

    def broadcast(self) -> bytes:
        """The kept classes before the method's first round, which needs no other word; then what the method tells."""
        return self.round.broadcast() or encode(KeptClasses(self.kept))

    def announced(self, broadcast: bytes, grid: Grid) -> Round:
        """The method's next round as the server announces it, over the same classes."""
        return replace(self, round=self.round.announced(broadcast, grid))

    def check(self, told: Round) -> None:
        """The census decides exactly which classes are kept; further rounds are the method's to check."""
        if not isinstance(told, GatedRound) or told.kept != self.kept:
            raise ProtocolViolation("server", "the classes that it keeps do not follow from the census")
        if self.round.broadcast():
            self.round.check(told.round)

    def left_out(self, classes: int) -> tuple[int, ...]:
        """The classes that did not pass, of so many."""
        return tuple(sorted(set(range(classes)) - set(self.kept)))

    def _rows(self, classes: int) -> Integers:
        """The kept classes. Raises BadInput for one that the plan does not have."""
        if self.kept[-1] >= classes:
            raise BadInput(f"the gate keeps class {self.kept[-1]} of {classes}")
        return np.array(self.kept, dtype=np.int64)

    def _classes(self, aggregate: Mapping[str, Integers]) -> int:
        """How many classes the plan has: any block with a row for each says so."""
        return next(len(block) for name, block in aggregate.items() if name in self.per_class)

    def _narrowed(self, aggregate: Mapping[str, Integers]) -> dict[str, Integers]:
        """The sum as the method knows it: of the kept classes alone."""
        rows = self._rows(self._classes(aggregate))
        return {name: block[rows] if name in self.per_class else block for name, block in aggregate.items()}

    def _widened(self, rows: NDArray[Number], classes: int) -> NDArray[Number]:
        """The kept classes' rows in their places among all classes, the others zero."""
        wide = np.zeros((classes, *rows.shape[1:]), dtype=rows.dtype)
        wide[self._rows(classes)] = rows
        return wide
