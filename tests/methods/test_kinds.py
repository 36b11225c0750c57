"""The kind of a block is what it holds: statistics that have a kind of their own are refused under another label."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from methods.declaration import check_declaration
from methods.method import SimpleMethod, SumSpec
from methods.round import Contribution, Local
from secagg.encoding import Block, Grid, Integers, Kind, Normalisation
from secagg.errors import BadInput
from secagg.privacy import Adjacency, BlockSensitivity, BlockwiseSensitivity, Unit
from tests.methods.readme import readme_method

GRIDS = (Grid(1.0, 1024, normalisation=Normalisation.CENTRED_UNIT), Grid(8.0))
ROOT = Path(__file__).parents[2]
Statistic = Callable[[Integers, Integers, int], Integers]


@dataclass(frozen=True)
class Labelled(SimpleMethod):
    """Sums of a statistic (n, m) of records (n, d) and labels (n,) of so many classes, under a label of some kind."""

    statistics: tuple[Statistic, ...]
    kind: Kind = Kind.OTHER
    name: ClassVar[str] = "labelled"

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """Lengths are not declared: exact sums alone."""
        nobody = np.zeros((1, dimension), dtype=np.int64), np.zeros(1, dtype=np.int64)
        sizes = [each(*nobody, classes).shape[1] for each in self.statistics]
        blocks = (Block(f"mine{place}", (size,), 9 * levels**2, self.kind) for place, size in enumerate(sizes))
        return (SumSpec(tuple(blocks), (), "equal", refusal="no length is known"),)

    def contribute(self, local: Local) -> Contribution:
        """The statistics' sums."""
        given = local.examples.records, local.examples.labels, local.classes
        return Contribution({f"mine{at}": each(*given).sum(axis=0) for at, each in enumerate(self.statistics)})

    def finalize(self, opened: Any) -> Any:
        """Nothing comes of it."""
        raise NotImplementedError


def triangle(q: Integers, y: Integers, classes: int) -> Integers:
    """The upper triangle of q·qᵀ, row by row."""
    first, second = np.triu_indices(q.shape[1])
    return q[:, first] * q[:, second]


def whole(q: Integers, y: Integers, classes: int) -> Integers:
    """All of q·qᵀ."""
    return (q[:, :, None] * q[:, None, :]).reshape(len(q), q.shape[1] ** 2)


def diagonal(q: Integers, y: Integers, classes: int) -> Integers:
    """The squares of q."""
    return q * q


def sums(q: Integers, y: Integers, classes: int) -> Integers:
    """e_y ⊗ q."""
    return (counts(q, y, classes)[:, :, None] * q[:, None, :]).reshape(len(q), classes * q.shape[1])


def counts(q: Integers, y: Integers, classes: int) -> Integers:
    """e_y."""
    return np.eye(classes, dtype=np.int64)[y]


def by_class(q: Integers, y: Integers, classes: int) -> Integers:
    """e_y ⊗ the triangle: each class's second moment."""
    moments = counts(q, y, classes)[:, :, None] * triangle(q, y, classes)[:, None, :]
    return moments.reshape(len(q), classes * moments.shape[2])


def half(statistic: Statistic, start: int) -> Statistic:
    """Every second entry."""
    return lambda *given: statistic(*given)[:, start::2]


def changed(statistic: Statistic, factor: int, step: int = 1) -> Statistic:
    """The statistic times a factor, with the signs of every second entry changed, in another order."""

    def made(*given: Any) -> Integers:
        entries = factor * statistic(*given)
        entries[:, ::2] *= -1
        return entries[:, ::step]

    return made


REFUSED = {
    "triangle": ((triangle,), Kind.SECOND_MOMENT),
    "transposed, three times": ((changed(triangle, 3, -1),), Kind.SECOND_MOMENT),
    "all of it": ((whole,), Kind.SECOND_MOMENT),
    "in two blocks": ((half(triangle, 0), half(triangle, 1)), Kind.SECOND_MOMENT),
    "beside others": ((diagonal, triangle), Kind.SECOND_MOMENT),
    "sums": ((sums,), Kind.CLASS_SUMS),
    "sums, transposed, three times": ((changed(sums, 3, -1),), Kind.CLASS_SUMS),
    "counts": ((counts,), Kind.COUNTS),
}


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{grid.levels} levels")
@pytest.mark.parametrize("kind", [Kind.OTHER, Kind.UPDATE, Kind.SCORE])
@pytest.mark.parametrize(("statistics", "own"), REFUSED.values(), ids=REFUSED)
def test_statistic_under_another_label_is_refused_with_its_kind(
    statistics: tuple[Statistic, ...], own: Kind, kind: Kind, grid: Grid
) -> None:
    """Second moments, class sums and counts are recognised in any order, at any scale and in any number of blocks."""
    with pytest.raises(BadInput, match=f"mine.* holds every entry of the kind {own.name}") as refused:
        check_declaration(Labelled(statistics, kind), 48, 4, grid)
    assert refused.value.remedy == f"declare kind=Kind.{own.name}"


def test_block_is_named_by_itself() -> None:
    """Beside another block of unknown kind the one that holds the second moment is named alone."""
    with pytest.raises(BadInput, match="method labelled: mine1 holds every entry"):
        check_declaration(Labelled((diagonal, triangle)), 48, 4, GRIDS[0])


@pytest.mark.parametrize("statistic", [diagonal, by_class, half(triangle, 0), half(sums, 1)])
@pytest.mark.parametrize("dimension", [2, 48])
def test_statistic_without_a_kind_of_its_own_passes(statistic: Statistic, dimension: int) -> None:
    """Squares, moments of single classes and parts of a moment or of class sums have no other label than OTHER."""
    check_declaration(Labelled((statistic,)), dimension, 4, GRIDS[0])


def test_the_guides_naive_bayes_passes() -> None:
    """The diagonal of the second moment, which the guide's example sums, is no SECOND_MOMENT."""
    check_declaration(readme_method("naive-bayes")(), 48, 4, GRIDS[0])


@dataclass(frozen=True)
class Short(Labelled):
    """A second moment whose length is declared as R_q in place of R_q², after a block that is declared right."""

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """Counts, and the triangle."""
        size = dimension * (dimension + 1) // 2
        blocks = (Block("mine0", (classes,), 1, Kind.COUNTS), Block("mine1", (size,), levels**2, Kind.SECOND_MOMENT))
        moved = BlockSensitivity("mine0", 1.0, classes), BlockSensitivity("mine1", float(levels), size)
        stated = tuple(BlockwiseSensitivity(Unit.RECORD, each, moved) for each in Adjacency)
        return (SumSpec(blocks, stated, "equal"),)


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{grid.levels} levels")
def test_wrong_length_is_that_of_its_own_block(grid: Grid) -> None:
    """However far beyond its declaration a block moves, it is named, and not the right one before it."""
    with pytest.raises(BadInput, match=f"moves mine1 by the length .*, declared {grid.levels} "):
        check_declaration(Short((counts, triangle)), 48, 4, grid)


@pytest.mark.parametrize("guide", ["secagg/PLUGINS.md", "methods/ADDING.md"])
def test_guides_list_all_kinds(guide: str) -> None:
    """Who writes a method finds every kind, and no other, in the guide's table of kinds."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| \S.* \|$", (ROOT / guide).read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [kind.name for kind in Kind]
