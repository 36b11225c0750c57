"""Checks that a method's contributions are as declared: integer arrays that add up, with bounded size and sensitivity.

Capacity proof and noise rest on what `sums` says. Here `contribute` is tried on extreme single records and on batches
of them: on all in a few dimensions and classes, on some with all of the plan's. What passes may still be wrong, what
fails is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from methods.method import Method, SumSpec, domain_count
from methods.round import Examples, Local, OpenedTotal, Round, Step
from secagg.encoding import Grid
from secagg.encoding.layout import Integers, Kind, Layout
from secagg.errors import BadInput, SecaggError
from secagg.privacy import Adjacency, BlockSensitivity, BlockwiseSensitivity, OpenedNoise, Sensitivity, Unit

MOST_DIMENSIONS = 4
MOST_CLASSES = 3
"""The most dimensions and classes of records that are tried; a plan's numbers where they are smaller."""
DIRECTIONS = 4
"""The number of random directions tried, from a fixed seed."""
MOST_ENTRIES = 1 << 19
"""The most entries of all single records' contributions at a plan's full size; beyond it only `FEWEST` are tried."""
FEWEST, MOST = 10, 256
"""The numbers of single records tried at a plan's full size: of a method that trains the fewest."""
OFTEN = 64
"""The number of times that each record is in the longest batch, where that many fit into int64."""
SLACK = 1e-9
"""Relative room for float64 rounding of lengths."""
ALONE = 1e-12
"""Weight of the other blocks when one block is checked by itself, relative to that block's weight."""
UNREAD = (Kind.OTHER, Kind.UPDATE, Kind.SCORE)
"""Kinds of blocks that do not define the entries of a sum of records."""
REMEDY = "mend contribute or finalize, or declare in sums what they do"


def check_declaration(method: Method, dimension: int, classes: int, grid: Grid) -> None:
    """Raise BadInput where `contribute` breaks what `sums` declares, naming the array, its declared and found value.

    Refused: missing or unknown blocks, another shape, entries that are not int64; an entry of one unit's part beyond
    its block's `bound`; counts, class sums or a second moment under another kind (`Kind`); a unit that moves a block,
    or all of them together, further than a sensitivity that is stated says, for records and for clients; a census that
    is none; blocks of several records that are not the sum of each one's, in any order, where they are said to be. The
    bounds' unit is a record, or in a sum per client its whole contribution. Of each kind of sum the first is tried, on
    the round that the records' own sum leads to; of the plan's first sum some records of every class, long in one place
    or in all, are tried with all its dimensions and classes, too, and nothing else of a method that trains. A method
    that reads raw inputs is not tried: there are none to try.
    """
    if method.traits.reads_inputs:
        return
    if method.traits.shares_one_model:  # a program for pictures takes no fewer features
        _check_whole(method, dimension, classes, grid)
        return
    whole = dimension, classes
    dimension, classes = min(dimension, MOST_DIMENSIONS), min(classes, MOST_CLASSES)
    domains = domain_count(method.parameters)
    local = Local(_extremes(dimension, classes, domains, grid.levels), classes, grid)
    kinds = _sums(method, dimension, classes, grid)
    round_: Round | None = method.begin(dimension, classes, grid.levels)
    for place, kind in enumerate(kinds):
        if round_ is None:
            raise _broken(
                method.name, f"it declares {len(kinds)} kinds of sums, and no round follows the first {place}"
            )
        _Trial(method.name, round_, kind, local).check()
        for _ in range(kind.times if place + 1 < len(kinds) else 0):
            if round_ is not None:
                round_ = round_.finalize(OpenedTotal(round_.contribute(local).blocks, grid)).next_round
    if whole != (dimension, classes):
        _check_whole(method, *whole, grid)


def check_steps(method: Method, dimension: int, classes: int, grid: Grid) -> None:
    """Raise BadInput unless a method's rounds turn extreme records into an artifact (head or model).

    Shares of the budget μ² must be valid, too.
    `finalize` runs on the sum of each round, without noise and with σ = 1 on every block, and must not fail; the last
    gives an artifact. Shares of μ² are positive, of the sum's blocks, and add up to 1, as the budgets of all kinds do.
    A method that reads raw inputs is not tried, as in `check_declaration`.
    """
    kinds = _sums(method, dimension, classes, grid)
    _check_shares(method.name, kinds)
    if method.traits.reads_inputs:
        return
    examples = _extremes(dimension, classes, domain_count(method.parameters), grid.levels)
    _walk(method, kinds, Local(examples, classes, grid), is_noisy=False)
    if all(kind.sensitivities for kind in kinds):
        _walk(method, kinds, Local(examples, classes, grid), is_noisy=True)


def _check_shares(method: str, kinds: Sequence[SumSpec]) -> None:
    """Raise BadInput for shares or budgets that do not add up."""
    for kind in kinds:
        if isinstance(kind.shares, str):
            continue
        names = [block.name for block in kind.blocks]
        whole = math.fsum(kind.shares.values())
        if set(kind.shares) != set(names) or min(kind.shares.values()) <= 0 or abs(whole - 1) > SLACK:
            told = f"{dict(kind.shares)}, which are not positive shares of {', '.join(names)} that add up to 1"
            raise _broken(method, f"it divides μ² as {told}")
    if abs(math.fsum(kind.budget for kind in kinds) - 1) > SLACK:
        raise _broken(
            method, f"the budgets of its sums are {[kind.budget for kind in kinds]}, which do not add up to 1"
        )


def _walk(method: Method, kinds: Sequence[SumSpec], local: Local, *, is_noisy: bool) -> None:
    """Run every round's `finalize` on the records' own sum. Raises BadInput where one fails or leads nowhere."""
    dimension = local.examples.records.shape[1]
    round_: Round | None = method.begin(dimension, local.classes, local.grid.levels)
    step = Step()
    every = [kind for kind in kinds for _ in range(kind.times)]
    for number, each in enumerate(every, start=1):
        if round_ is None:
            break
        noise = {block.name: OpenedNoise(1.0) for block in each.blocks} if is_noisy else None
        how = f"finalize of sum {number}, {'with' if is_noisy else 'without'} noise,"
        try:
            part = round_.contribute(local)
            step = round_.finalize(OpenedTotal(part.blocks, local.grid, noise))
        except Exception as error:
            problem = error.problem if isinstance(error, BadInput) else f"{type(error).__name__}: {error}"
            raise _broken(method.name, f"{how} fails: {problem}") from error
        if not isinstance(step, Step):
            raise _broken(method.name, f"{how} returns a {type(step).__name__}, not a Step")
        local, round_ = replace(local, state=part.state), step.next_round
    if step.artifact is None:
        raise _broken(method.name, f"its last round gives no artifact, {'with' if is_noisy else 'without'} noise")


def _sums(method: Method, dimension: int, classes: int, grid: Grid) -> tuple[SumSpec, ...]:
    """Return the specification of each kind of sum. Raises BadInput where the method's own code fails."""
    try:
        return method.sums(dimension, classes, grid.levels)
    except BadInput:
        raise
    except Exception as error:
        raise _broken(method.name, f"sums fails: {type(error).__name__}: {error}") from error


def _check_whole(method: Method, dimension: int, classes: int, grid: Grid) -> None:
    """Try the first sum with all dimensions and classes, on as many records as `MOST_ENTRIES` has room for."""
    kind = _sums(method, dimension, classes, grid)[0]
    size = sum(block.size for block in kind.blocks)
    most = FEWEST if method.traits.shares_one_model else MOST  # each is a training
    count = min(max(classes, dimension), most, max(FEWEST, MOST_ENTRIES // size))
    numbers = np.arange(count)
    places = numbers * dimension // count if count < dimension else numbers % dimension
    records = np.zeros((count, dimension), dtype=np.int64)
    records[numbers, places] = grid.levels * (-1) ** numbers
    if size <= MOST_ENTRIES // FEWEST:  # they reach every entry of a second moment
        even = math.isqrt(grid.levels**2 // dimension)
        records[:2] = [[even], [-even]]
    labels = numbers * classes // count if count < classes else numbers % classes
    domains = numbers % domain_count(method.parameters)
    local = Local(Examples(records, labels, domains), classes, grid)
    _Trial(method.name, method.begin(dimension, classes, grid.levels), kind, local).check(in_pairs=False)


def _extremes(dimension: int, classes: int, domains: int, levels: int) -> Examples:
    """Return extreme records of each class: zero, shortest, full length along axes and diagonals, random directions."""
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
    """A trial of one round's `contribute` on some records, compared with what its kind of sum declares."""

    method: str
    round: Round
    kind: SumSpec
    local: Local

    @cached_property
    def layout(self) -> Layout:
        """The layout of the kind's blocks."""
        return Layout(self.kind.blocks)

    def check(self, *, in_pairs: bool = True) -> None:
        """Raise BadInput where a contribution breaks the declaration; `in_pairs` tries records two by two as well."""
        every = np.arange(len(self.local.examples))
        batches = self._batches(every) if in_pairs else [every]
        singles = [self._flat(np.array([row])) for row in every]
        sums = [self._flat(rows) for rows in batches]
        parts = {Unit.RECORD: singles, Unit.CLIENT: [*singles, *sums]}
        self._check_bounds(parts[self.kind.per])
        self._check_census(parts[Unit.CLIENT])
        if self.kind.is_additive:
            self._check_additive(singles, batches, sums)
        if self.kind.is_additive and in_pairs:
            self._check_kinds(singles)
        moved = {unit: _Moved.by(parts[unit], self.layout) for unit in {each.unit for each in self.kind.sensitivities}}
        for each in self.kind.sensitivities:
            declared = [(block.name, block.size) for block in each.blocks]
            if declared != [(block.name, block.size) for block in self.kind.blocks]:
                problem = f"the sensitivity for {each.adjacency} is of {declared}, not of the sum's blocks"
                raise _broken(self.method, problem)
            unsigned = isinstance(each, BlockwiseSensitivity) and each.nonnegative
            if unsigned and min(int(part.min()) for part in parts[each.unit]) < 0:
                raise _broken(self.method, f"one {each.unit} adds a negative entry, declared nonnegative")
            squares = moved[each.unit].squares(each.blocks, each.adjacency)
            lengths = BlockwiseSensitivity(each.unit, each.adjacency, each.blocks)  # what others are derived from
            for stated in (each, lengths):
                self._check_sensitivity(stated, squares)

    def _batches(self, every: Integers) -> list[Integers]:
        """Return the records' rows in batches: none, all, all backwards, each twice and more often, and pairs."""
        room = (1 << 62) // (len(every) * max(block.bound for block in self.kind.blocks))
        more = np.repeat(every, max(1, min(OFTEN, room)))
        return [every[:0], every, every[::-1], np.repeat(every, 2), more, *map(np.array, pairwise(every))]

    def _flat(self, rows: NDArray[np.int64]) -> Integers:
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
        for block in self.kind.blocks:
            yield block.name, block.bound, self.layout.split(flat)[block.name]

    def _check_bounds(self, units: list[Integers]) -> None:
        highest, lowest = reduce(np.maximum, units), reduce(np.minimum, units)
        pairs = zip(self._by_block(highest), self._by_block(lowest), strict=True)
        for (name, bound, above), (_, _, below) in pairs:
            if (found := max(int(above.max()), -int(below.min()))) > bound:  # np.abs(-2⁶³) is negative
                told = f"{found} to an entry of {name}, declared bound {bound}"
                raise _broken(self.method, f"one {self.kind.per} adds {told}")

    def _check_census(self, clients: list[Integers]) -> None:
        """Raise BadInput unless a client's part of a census is 0 or 1, since policies do not count censuses."""
        for block in self.kind.blocks:
            parts = [self.layout.split(each)[block.name] for each in clients if block.kind is Kind.CENSUS]
            if any(part.min() < 0 or part.max() > 1 for part in parts):
                raise _broken(self.method, f"{block.name} is no census: one client adds more to it than 0 or 1")

    def _check_kinds(self, singles: list[Integers]) -> None:
        """Raise BadInput for a block with another label than its kind: audits and the class gate go by kinds."""
        parts = [self.layout.split(each) for each in singles]
        unread = [block.name for block in self.kind.blocks if block.kind in UNREAD]
        for names in (*([name] for name in unread), unread):
            entries = [np.concatenate([part[name].ravel() for name in names]) for part in parts] if names else []
            for kind, wanted in _statistics(self.local):
                if entries and _holds(np.array(entries), wanted):
                    told = f"{', '.join(names)} holds every entry of the kind {kind.name}, and has another label"
                    raise BadInput(f"method {self.method}: {told}", remedy=f"declare kind=Kind.{kind.name}")

    def _check_additive(self, singles: list[Integers], batches: list[Integers], sums: list[Integers]) -> None:
        for rows, found in zip(batches, sums, strict=True):
            expected = np.sum([singles[row] for row in rows], axis=0, dtype=np.int64) if len(rows) else 0 * singles[0]
            gap = np.abs(found - expected)
            for name, _, entries in self._by_block(gap):
                if entries.any():
                    problem = f"{name} of {len(rows)} records is not the sum of what each adds, but {entries.max()} off"
                    raise _broken(self.method, problem)

    def _check_sensitivity(self, sensitivity: Sensitivity, squares: Mapping[str, NDArray[np.float64]]) -> None:
        adjacency = sensitivity.adjacency
        lengths = {block.name: block.l2 for block in sensitivity.blocks}
        for alone in (*lengths, None):
            weights = {name: (1 if alone in (name, None) else ALONE) / l2**2 for name, l2 in lengths.items()}
            moved = [weights[name] * squares[name] for name in lengths if alone in (name, None)]
            found = float(np.sum(moved, axis=0).max())
            allowed = sensitivity.squared(weights)
            if found > allowed * (1 + SLACK):
                unit = lengths[alone] if alone is not None else 1.0
                told = f"{math.sqrt(found) * unit:.6g}, declared {math.sqrt(allowed) * unit:.6g} ({adjacency})"
                what = alone or "all blocks together, each in units of its own sensitivity,"
                raise _broken(self.method, f"one {sensitivity.unit} moves {what} by the length {told}")


@dataclass(frozen=True, eq=False)
class _Moved:
    """The contributions of single units (n, m), at the m entries that any unit reaches, and these entries by block."""

    rows: Integers
    columns: Mapping[str, tuple[slice, Integers]]

    @classmethod
    def by(cls, singles: list[Integers], layout: Layout) -> _Moved:
        """Return the contributions from the units' flat vectors."""
        reached = np.unique(np.concatenate([np.flatnonzero(flat) for flat in singles]))
        ends = np.cumsum([0, *(block.size for block in layout.blocks)])
        cuts = np.searchsorted(reached, ends)
        columns = {
            block.name: (slice(cuts[place], cuts[place + 1]), reached[cuts[place] : cuts[place + 1]] - ends[place])
            for place, block in enumerate(layout.blocks)
        }
        return cls(np.array([flat[reached] for flat in singles]), columns)

    def squares(self, blocks: tuple[BlockSensitivity, ...], adjacency: Adjacency) -> dict[str, NDArray[np.float64]]:
        """Return ‖Δ‖² of every block, for every unit added (n,) or every unit replaced by every other (n, n)."""
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


def _statistics(local: Local) -> Iterator[tuple[Kind, Integers]]:
    """Yield each kind whose entries are defined one by one, and what each of n records adds to them, (n, m)."""
    q, own = local.examples.records, np.eye(local.classes, dtype=np.int64)[local.examples.labels]
    first, second = np.triu_indices(q.shape[1])
    if q.shape[1] > 1:
        yield Kind.SECOND_MOMENT, q[:, first] * q[:, second]
    if local.classes > 1:
        yield Kind.CLASS_SUMS, (own[:, :, None] * q[:, None, :]).reshape(len(q), -1)
        yield Kind.COUNTS, own


def _holds(entries: Integers, wanted: Integers) -> bool:
    """Return whether each wanted column (n, m) is a column of `entries` (n, k), in any order and at any scale but 0."""
    directions = []
    for columns in (entries, wanted):  # of length 1; those of length 0 stay
        lengths = np.linalg.norm(columns.astype(np.float64), axis=0)
        directions.append(columns.astype(np.float64) / np.where(lengths > 0, lengths, 1.0))
    one, other = directions
    cosines = np.abs(other.T @ one)
    return bool((cosines.max(axis=1, initial=0.0) > 1 - SLACK).all())


def _broken(method: str, problem: str) -> BadInput:
    return BadInput(f"method {method} breaks its declaration: {problem}", remedy=REMEDY)
