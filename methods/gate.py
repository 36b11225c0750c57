"""The class gate: a first secure sum counts each class's clients; later sums leave out classes that too few hold.

Where a method tells parts of a class apart (`Traits.cells_per_class`: domains, mostly), what is counted and left out is
a *cell*: a class in one of the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from methods.method import Fixed, Method, OwnRound, Parameters, SimpleMethod, SumSpec, Traits
from methods.round import Blocks, Contribution, Examples, Local, OpenedTotal, Round, SimpleRound, Step
from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Grid
from secagg.encoding.layout import Block, Integers, Kind
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation
from secagg.heads import Artifact
from secagg.privacy import Adjacency, CensusSensitivity, Unit
from secagg.wire import Items, Range, decode, encode, message

GATE = "gate"
"""Name of the threshold among a plan's parameters."""
CENSUS_SHARE = 0.02
"""The census's share of μ²; the method's sums divide the rest as they would divide all of it."""
FEWEST_CLASSES = 2
"""The fewest classes that may be kept, since a head tells classes apart."""
MOST_CELLS = 10_000


@message("KeptClasses")
@dataclass(frozen=True)
class KeptClasses:
    """Broadcast of a class gate: indices of classes that pass, or class·D + part for classes of D parts (domains)."""

    classes: Annotated[
        tuple[int, ...], Items(FEWEST_CLASSES, MOST_CELLS, each=Range(0, MOST_CELLS - 1), ascending=True)
    ]


@dataclass(frozen=True)
class Gated(SimpleMethod):
    """A method preceded by a census: a secure sum of how many clients have a record of each cell (class or part of it).

    Classes whose opened count is below `threshold` are left out of the sums of `method`, and of its head: a class sum
    over one client would be that client's own prototype. The threshold counts clients that may vanish after the census
    and clients that tell the server what they hold, beside the honest ones that must be left. With parts this holds
    for each cell by itself, an empty one too: who missed the census may hold it alone. A class goes when all its cells
    do.

    Under noise a class that m clients hold passes with the probability that the census's noise, whose σ stands in the
    plan, is at least `threshold` − m: about Φ((m − threshold)/σ), one half at the threshold. The gate then bounds no
    single sum; it is ε that hides a client. Without noise clients prove that their entries are 0 or 1, and that the
    opened census is their sum (`SessionContext.proves_bits`), so that a colluder counts as one client at most.
    """

    method: OwnRound
    threshold: int

    def __post_init__(self) -> None:
        if self.threshold < 1:
            raise BadInput(f"the class gate is {self.threshold}", remedy="give 1 client or more")

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def parameters(self) -> Parameters:
        return {**self.method.parameters, GATE: self.threshold}

    @property
    def traits(self) -> Traits:
        return replace(self.method.traits, class_threshold=self.threshold)

    @property
    def parts(self) -> int:
        """The number D of parts, such as domains, into which the method divides each class."""
        return self.method.traits.cells_per_class

    def cell_of(self, examples: Examples) -> Integers:
        return self.method.cell_of(examples)

    @property
    def per_class(self) -> frozenset[str]:
        """The names of the summed arrays with a row per class: those whose shape depends on the number of classes."""
        two, three = (
            [block for kind in self.method.sums(1, classes, 2) for block in kind.blocks] for classes in (2, 3)
        )
        return frozenset(one.name for one, other in zip(two, three, strict=True) if one.shape != other.shape)

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """Return the specifications of the census and of the method's own sums.

        The method's sums get the rest of the budget μ².
        A record of a cell that is left out adds nothing to these, so that their sensitivities hold.
        Raises BadInput for too many cells.
        """
        cells = classes * self.parts
        if cells > MOST_CELLS:
            raise BadInput(f"a census of {cells} parts of classes", remedy=f"{MOST_CELLS} are the most")
        census = SumSpec(
            blocks=(Block("census", self._shape(classes), bound=1, kind=Kind.CENSUS),),
            sensitivities=tuple(CensusSensitivity(unit, each, cells) for unit in Unit for each in Adjacency),
            shares="equal",
            per=Unit.CLIENT,
            budget=CENSUS_SHARE,
            is_additive=False,
        )
        others = self.method.sums(dimension, classes, levels)
        if any(kind.groups > 1 for kind in others):
            raise BadInput(
                "a class gate counts who holds a class among all members, and here groups of them are opened",
                remedy="choose no class gate, or no groups",
            )
        return (census, *(replace(each, budget=each.budget * (1 - CENSUS_SHARE)) for each in others))

    def resolve(self, fixed: Fixed) -> Method:
        return put_gate(self.method.resolve(fixed), self.threshold)

    def read_artifact(self, content: bytes) -> tuple[Artifact, dict[str, str]]:
        return self.method.read_artifact(content)

    def begin(self, dimension: int, classes: int, levels: int) -> Round:
        return replace(self, method=self.method.begin(dimension, classes, levels))  # type: ignore[arg-type]

    def contribute(self, local: Local) -> Contribution:
        """Return this client's census entries: 1 for each cell (class or part of it) of which it has a record."""
        parts, examples = self.parts, local.examples
        held = np.bincount(examples.labels * parts + self.cell_of(examples), minlength=local.classes * parts)
        return Contribution({"census": np.minimum(held, 1).astype(np.int64).reshape(self._shape(local.classes))})

    def finalize(self, opened: OpenedTotal) -> Step:
        """Return the first round over classes (parts) that pass the gate. Raises BadInput for fewer than 2 classes."""
        census = opened.blocks["census"]
        least = self.threshold * opened.multiplier("census")
        kept = np.flatnonzero(census >= least)
        found = len(np.unique(kept // self.parts))
        if found < FEWEST_CLASSES:
            raise BadInput(
                f"{found} of {len(census)} classes are held by {self.threshold} clients or more",
                remedy="a head takes two: lower the class gate",
            )
        return Step(next_round=self._over(tuple(kept.tolist())))

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        kept = decode(KeptClasses, broadcast).classes
        if len({cell // self.parts for cell in kept}) < FEWEST_CLASSES:
            raise MalformedMessage("KeptClasses", "the cells are all of one class")
        return self._over(kept)

    def _shape(self, classes: int) -> tuple[int, ...]:
        return (classes, self.parts) if self.parts > 1 else (classes,)

    def _over(self, kept: tuple[int, ...]) -> GatedRound:
        whole: set[str] = set()
        if self.parts > 1:  # what is no sum over records, or has fewer entries than there are cells, is not divided
            every = [block for spec in self.method.sums(1, FEWEST_CLASSES, 2) for block in spec.blocks]
            cells = FEWEST_CLASSES * self.parts
            whole = {each.name for each in every if each.kind is Kind.UPDATE or each.size < cells}
        return GatedRound(self.method, kept, self.per_class, self.parts, self.cell_of, self.per_class & whole)


def put_gate(method: Method, threshold: int) -> Method:
    """Wrap a method in a gate that drops classes held by fewer than `threshold` clients; return it unchanged for 0.

    Raises BadInput below, and for a method that trains one model of all classes.
    """
    if not threshold:
        return method
    if method.traits.shares_one_model:
        raise BadInput(f"no class can be left out of the model that {method.name} trains", remedy="use no class gate")
    return Gated(method, threshold)  # type: ignore[arg-type]  # what does not train is its own first round


def without_gate(method: Method) -> Method:
    """Return the method inside a class gate (`Gated`); any other method unchanged."""
    return method.method if isinstance(method, Gated) else method


@dataclass(frozen=True)
class GatedRound(SimpleRound):
    """A round behind a class gate, in which only records of `kept` cells (classes or parts of them) contribute.

    Records of the other cells add nothing, and their entries in the `per_class` blocks are zero. Where there are
    several `parts` these blocks have the shape (C, D, …), but for those `by_class`, whose rows are of whole classes.
    """

    round: Round
    kept: tuple[int, ...]
    per_class: frozenset[str]
    parts: int = 1
    cell_of: Callable[[Examples], Integers] = field(default=attrgetter("domains"), compare=False, repr=False)
    by_class: frozenset[str] = frozenset()

    def contribute(self, local: Local) -> Contribution:
        """Return the method's contribution from kept classes (or parts), with zeros in the rows of left-out ones."""
        rows = self._rows(local.classes)
        examples, is_kept = self._keep(local.examples, rows)
        inputs = None if local.inputs is None else local.inputs[is_kept]
        made = self.round.contribute(replace(local, examples=examples, classes=len(rows), inputs=inputs))
        widened = dict(made.blocks)
        for name in self.per_class & set(widened):
            kept = widened[name]
            widened[name] = np.zeros((local.classes, *kept.shape[1:]), dtype=kept.dtype)
            widened[name][rows] = kept
        return Contribution(widened, made.state)

    def cells(self, examples: Examples, classes: int) -> Integers:
        rows = self._rows(classes)
        own, is_kept = self._keep(examples, rows)
        cells = np.full(len(examples), -1, dtype=np.int64)
        cells[is_kept] = self.round.cells(own, len(rows))
        return cells

    def sanity_failures(self, blocks: Blocks, grid: Grid) -> list[str]:
        """Return messages about impossible sums, the method's and one per left-out class (or part) with a sum not 0."""
        others = self._others(self._classes(blocks)).tolist()
        by_cell = [self._by_cell(blocks[name]) for name in (self.per_class - self.by_class) & set(blocks)]
        part = " in part {}" if self.parts > 1 else ""
        left_out = [
            f"class {cell // self.parts}{part.format(cell % self.parts)} was left out, but its sum is not 0"
            for cell in others
            if any(block[cell].any() for block in by_cell)
        ]
        return [*self.round.sanity_failures(self._narrow(blocks), grid), *left_out]

    @property
    def is_exact(self) -> bool:
        return self.round.is_exact

    def finalize(self, opened: OpenedTotal) -> Step:
        """Return what the method's round makes of the opened sum: its head never predicts a class that is left out."""
        step = self.round.finalize(replace(opened, blocks=self._narrow(opened.blocks)))
        following = replace(self, round=step.next_round) if step.next_round is not None else None
        if step.artifact is None:
            return Step(None, following)
        classes = self._classes(opened.blocks)
        return Step(step.artifact.among(self._rows(classes), classes), following)

    def personal(self, state: bytes, opened: OpenedTotal) -> Mapping[str, Artifact]:
        own = self.round.personal(state, replace(opened, blocks=self._narrow(opened.blocks)))
        classes = self._classes(opened.blocks)
        return {name: model.among(self._rows(classes), classes) for name, model in own.items()}

    def broadcast(self) -> bytes:
        """Return the broadcast: indices of kept classes (or parts) for the first round, later the method's bytes."""
        return self.round.broadcast() or encode(KeptClasses(self.kept))

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        return replace(self, round=self.round.decode_broadcast(broadcast, grid))

    def require_equal(self, told: Round) -> None:
        """Raise ProtocolViolation unless `told`, the server's round, is gated and keeps the same classes (or parts)."""
        if not isinstance(told, GatedRound) or told.kept != self.kept:
            raise ProtocolViolation(SERVER_INDEX, "the classes that it keeps do not follow from the census")
        if self.round.broadcast():
            self.round.require_equal(told.round)

    def left_out(self, classes: int) -> tuple[tuple[int, int], ...]:
        """Return the (class, part) pairs that did not pass the class gate; parts of a class are mostly domains."""
        return tuple(divmod(int(cell), self.parts) for cell in self._others(classes))

    def _keep(self, examples: Examples, rows: Integers) -> tuple[Examples, NDArray[np.bool_]]:
        """Return the records in kept cells, their classes counted among the kept (`rows`), and the records' mask."""
        cells = examples.labels * self.parts + self.cell_of(examples)
        is_kept: NDArray[np.bool_] = np.isin(cells, self.kept)
        counted = examples.take(is_kept)
        return replace(counted, labels=np.searchsorted(rows, counted.labels)), is_kept

    def _others(self, classes: int) -> Integers:
        return np.setdiff1d(np.arange(classes * self.parts), self.kept)

    def _rows(self, classes: int) -> Integers:
        """Return the kept classes. Raises BadInput for one that the plan does not have."""
        rows = np.unique(np.array(self.kept, dtype=np.int64) // self.parts)
        if rows[-1] >= classes:
            raise BadInput(f"the gate keeps class {rows[-1]} of {classes}")
        return rows

    def _classes(self, aggregate: Blocks) -> int:
        """Return the plan's number of classes, from any block with a row for each."""
        return next(len(block) for name, block in aggregate.items() if name in self.per_class)

    def _by_cell(self, block: Integers) -> Integers:
        return block.reshape(len(block) * self.parts, -1)

    def _narrow(self, aggregate: Blocks) -> Blocks:
        """Return the sum with the kept classes alone, as the method knows it; cells left out hold zeros."""
        rows = self._rows(self._classes(aggregate))
        narrow = dict(aggregate)
        for name in self.by_class & set(aggregate):
            narrow[name] = aggregate[name][rows]
        for name in (self.per_class - self.by_class) & set(aggregate):
            block = np.zeros_like(self._by_cell(aggregate[name]))
            block[list(self.kept)] = self._by_cell(aggregate[name])[list(self.kept)]
            narrow[name] = block.reshape(aggregate[name].shape)[rows]
        return narrow
