"""Whether a method does what it declares: additive integer blocks within their bounds and sensitivities.

Capacity proof and noise rest on what `sums` says. Here `contribute` is tried on extreme single records and on batches
of them, in a few dimensions, which takes milliseconds: what passes may still be wrong, what fails is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from methods.method import Method, SumSpec, domains_of
from methods.round import Examples, Local, Opened, Round
from secagg.encoding.layout import Integers, Layout
from secagg.errors import BadInput, SecaggError
from secagg.privacy import Adjacency, BlockSensitivity, Sensitivity, Unit
from secagg.statistics import Grid

MOST_DIMENSIONS = 4
MOST_CLASSES = 3
"""Of the records that are tried; a plan's numbers where they are smaller."""
DIRECTIONS = 4
"""Random ones, from a fixed seed."""
SLACK = 1e-9
"""Relative room for float64 rounding of lengths."""
ALONE = 1e-12
"""Weight of the other blocks where one is looked at by itself, relative to its own."""
REMEDY = "mend contribute, or declare in sums what it does"


def check_declaration(method: Method, dimension: int, classes: int, grid: Grid) -> None:
    """Raise BadInput, naming the block, what is declared and what was found, where `contribute` breaks `sums`.

    Refused: missing or unknown blocks, another shape, entries that are not int64; an entry of one unit's part beyond
    its block's `bound`; a unit that moves a block, or all of them together, further than a sensitivity that is stated
    says; blocks of several records that are not the sum of each one's, in any order, where they are said to be. The
    unit is a record, or in a sum per client its whole contribution. Of each kind of sum the first is tried, on the
    round that the records' own sum leads to. A method that reads raw inputs is not tried: there are none to try.
    """
    if method.reads_inputs:
        return
    dimension, classes = min(dimension, MOST_DIMENSIONS), min(classes, MOST_CLASSES)
    domains = len(domains_of(method.parameters)) or 1
    local = Local(_extremes(dimension, classes, domains, grid.levels), classes, grid)
    kinds = method.sums(dimension, classes, grid.levels)
    round_: Round | None = method
    for place, kind in enumerate(kinds):
        if round_ is None:
            raise _broken(
                method.name, f"it declares {len(kinds)} kinds of sums, and no round follows the first {place}"
            )
        _Trial(method.name, round_, kind, local).check()
        for _ in range(kind.times if place + 1 < len(kinds) else 0):
            if round_ is not None:
                round_ = round_.finalize(Opened(round_.contribute(local).blocks, grid)).next_round


def _extremes(dimension: int, classes: int, domains: int, levels: int) -> Examples:
    """For each class: the zero record, the shortest, full length along every axis and diagonal, random directions."""
    directions = np.random.default_rng(0).normal(size=(DIRECTIONS, dimension))
    directions *= (1 - 1e-9) * levels / np.linalg.norm(directions, axis=1, keepdims=True)
    axes = levels * np.eye(dimension, dtype=np.int64)
    diagonal = np.full((1, dimension), math.isqrt(levels**2 // dimension), dtype=np.int64)
    short = np.eye(1, dimension, dtype=np.int64)
    rows = np.concatenate([0 * short, short, axes, -axes, diagonal, -diagonal, np.trunc(directions).astype(np.int64)])
    records, labels = np.tile(rows, (classes, 1)), np.repeat(np.arange(classes), len(rows))
    return Examples(records, labels, np.arange(len(labels)) % domains)


@dataclass(frozen=True, eq=False)
class _Trial:
    """One round's `contribute` on some records, held against what its kind of sum declares."""

    method: str
    round: Round
    kind: SumSpec
    local: Local
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", Layout(self.kind.blocks))

    def check(self) -> None:
        """Raise BadInput for whatever is broken."""
        singles = [self._flat(np.array([row])) for row in range(len(self.local.examples))]
        units = [*singles, *map(self._flat, self._batches())] if self.kind.per is Unit.SILO else singles
        self._check_bounds(units)
        if self.kind.is_additive:
            self._check_additive(singles)
        moved = _Moved.by(units, self.layout)
        for each in self.kind.sensitivities:
            if each.unit is self.kind.per:
                self._check_sensitivity(each, moved)

    def _batches(self) -> list[Integers]:
        """Nobody's records, all, all backwards, each twice, and pairs."""
        every = np.arange(len(self.local.examples))
        return [every[:0], every, every[::-1], np.repeat(every, 2), *map(np.array, pairwise(every))]

    def _flat(self, rows: NDArray[np.int64]) -> Integers:
        """The flat vector of the records at `rows`."""
        local = replace(self.local, examples=self.local.examples.take(rows))
        try:
            return self.layout.flatten(self.round.contribute(local).blocks)
        except BadInput as error:
            raise _broken(self.method, error.problem) from error
        except SecaggError:
            raise
        except Exception as error:
            problem = f"contribute fails on {len(rows)} records with {type(error).__name__}: {error}"
            raise _broken(self.method, problem) from error

    def _by_block(self, flat: Integers) -> Iterator[tuple[str, int, Integers]]:
        """Name, bound and entries of every block."""
        for block in self.kind.blocks:
            yield block.name, block.bound, self.layout.split(flat)[block.name]

    def _check_bounds(self, units: list[Integers]) -> None:
        largest = reduce(np.maximum, map(np.abs, units))
        for name, bound, entries in self._by_block(largest):
            if (found := int(entries.max())) > bound:
                told = f"{found} to an entry of {name}, declared bound {bound}"
                raise _broken(self.method, f"one {self.kind.per} adds {told}")

    def _check_additive(self, singles: list[Integers]) -> None:
        for rows in self._batches():
            expected = np.sum([singles[row] for row in rows], axis=0, dtype=np.int64) if len(rows) else 0 * singles[0]
            gap = np.abs(self._flat(rows) - expected)
            for name, _, entries in self._by_block(gap):
                if entries.any():
                    problem = f"{name} of {len(rows)} records is not the sum of what each adds, but {entries.max()} off"
                    raise _broken(self.method, problem)

    def _check_sensitivity(self, sensitivity: Sensitivity, moved: _Moved) -> None:
        adjacency = sensitivity.adjacency
        declared = [(block.name, block.size) for block in sensitivity.blocks]
        if declared != [(block.name, block.size) for block in self.kind.blocks]:
            raise _broken(self.method, f"the sensitivity for {adjacency} is of {declared}, not of the sum's blocks")
        squares = moved.squares(sensitivity.blocks, adjacency)
        lengths = {block.name: block.l2 for block in sensitivity.blocks}
        for alone in (*lengths, None):
            weights = {name: (1 if alone in (name, None) else ALONE) / l2**2 for name, l2 in lengths.items()}
            found = float(np.sum([weights[name] * squares[name] for name in lengths], axis=0).max())
            allowed = sensitivity.squared(weights)
            if found > allowed * (1 + SLACK):
                unit = lengths[alone] if alone is not None else 1.0
                told = f"{math.sqrt(found) * unit:.6g}, declared {math.sqrt(allowed) * unit:.6g} ({adjacency})"
                what = alone or "all blocks together, each in units of its own sensitivity,"
                raise _broken(self.method, f"one {self.kind.per} moves {what} by the length {told}")


@dataclass(frozen=True, eq=False)
class _Moved:
    """What single units add, (n, m), to the m entries that any of them reaches, and which entries of which block."""

    rows: Integers
    columns: Mapping[str, tuple[slice, Integers]]

    @classmethod
    def by(cls, singles: list[Integers], layout: Layout) -> _Moved:
        """Of flat vectors."""
        reached = np.unique(np.concatenate([np.flatnonzero(flat) for flat in singles]))
        ends = np.cumsum([0, *(block.size for block in layout.blocks)])
        cuts = np.searchsorted(reached, ends)
        columns = {
            block.name: (slice(cuts[place], cuts[place + 1]), reached[cuts[place] : cuts[place + 1]] - ends[place])
            for place, block in enumerate(layout.blocks)
        }
        return cls(np.array([flat[reached] for flat in singles]), columns)

    def squares(self, blocks: tuple[BlockSensitivity, ...], adjacency: Adjacency) -> dict[str, NDArray[np.float64]]:
        """‖Δ‖² of every block, for every unit added (n,) or every one replaced by every other (n, n)."""
        return {block.name: self._square(block, adjacency) for block in blocks}

    def _square(self, block: BlockSensitivity, adjacency: Adjacency) -> NDArray[np.float64]:
        where, entries = self.columns[block.name]
        rows = self.rows[:, where].astype(np.float64)
        if block.triangle:
            first, second = np.triu_indices(block.dimension)
            rows *= np.where(first == second, 1.0, math.sqrt(2.0))[entries]
        if adjacency is Adjacency.ADD_REMOVE:
            return np.asarray((rows**2).sum(axis=1))
        return np.array([((rows - row) ** 2).sum(axis=1) for row in rows])


def _broken(method: str, problem: str) -> BadInput:
    return BadInput(f"method {method} breaks its declaration: {problem}", remedy=REMEDY)
