"""Between the exact sums of one plan: what a sum before the last shows, and differences of two that are one record.

A sum over the records that passed a threshold, or over cells drawn anew, differs from the one before it by those that
left or moved. Where that is one record of a cell, the difference is this record.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from methods import sums_of
from secagg.encoding.layout import Integers
from secagg.plan import Plan
from threat_models.attacks.targets import targets
from threat_models.session import Blocks, Records, by_class

CLASS_SUMS = ("class_sums", "slot_sums")
"""What methods call the sums of records of a class, or of a slot of one."""


def shown_between(view: Any, known: Records) -> Records:
    """The records, of which class, that a plan's sums show whole beside what the last of them shows by itself.

    They are alone in a cell of an earlier sum or, up to sign, of a difference of two. A difference may also be of three
    records or more: it counts where one sum holds all of the other, where it has the one length that records of the
    plan have, or where it is a `known` one.
    """
    sums = [_exact(each) for each in (*getattr(view, "earlier", ()), view)]
    members = {row.tobytes() for row in known.integers}
    found: dict[bytes, tuple[Integers, int]] = {}
    for same in sorted(set().union(*sums)):
        blocks = [each[same] for each in sums if same in each]
        rows = [_alone(each, view.plan) for each in blocks[:-1]]
        rows += [_apart(*pair, view.plan, members) for pair in combinations(blocks, 2)]
        found |= {row.tobytes(): (row, int(label)) for each in rows for row, label in zip(*each, strict=True)}
    integers = np.array([row for row, _ in found.values()], dtype=np.int64).reshape(-1, view.plan.dimension)
    labels = np.array([label for _, label in found.values()], dtype=np.int64)
    return Records(integers, labels, integers.astype(np.float64))


def others_of_plan(view: Any) -> int:
    """How many sums of class sums the view's plan has beside this one and those that the view holds."""
    return sums_of_classes(view.plan) - 1 - len(getattr(view, "earlier", ()))


def sums_of_classes(plan: Plan) -> int:
    """How many of a plan's sums are of the records of classes, or of their slots."""
    return sum(kind.times for kind in sums_of(plan) if any(block.name in CLASS_SUMS for block in kind.blocks))


def _exact(view: Any) -> dict[tuple[str, tuple[str, ...]], Blocks]:
    """The sums of a view without noise, by their names and whose they are."""
    if view.noise is not None:
        return {}
    return {(each.name, tuple(sorted(each.owners))): each.blocks for each in targets(view, "class_sums")}


def _alone(blocks: Blocks, plan: Plan) -> tuple[Integers, Integers]:
    """The records (n, d) that are alone in a cell, and their classes (n,)."""
    counts = np.asarray(blocks["counts"])
    cells = np.flatnonzero(counts == 1)
    return np.asarray(blocks["class_sums"])[cells], cells // (len(counts) // len(plan.classes))


def _apart(first: Blocks, second: Blocks, plan: Plan, known: set[bytes]) -> tuple[Integers, Integers]:
    """The records by which two sums differ where that is one in a cell, or in a class if they divide it differently."""
    if len(first["counts"]) != len(second["counts"]):
        first, second = (by_class(each, len(plan.classes)) for each in (first, second))
    apart = np.asarray(second["counts"]) - np.asarray(first["counts"])
    cells = np.flatnonzero(np.abs(apart) == 1)
    signs = apart[cells, None]
    rows = signs * (np.asarray(second["class_sums"])[cells] - np.asarray(first["class_sums"])[cells])
    kept = np.full(len(rows), not (apart.min() < 0 < apart.max()))
    kept |= _has_length(rows, plan) | np.array([row.tobytes() in known for row in rows], dtype=np.bool_)
    return rows[kept], cells[kept] // (len(apart) // len(plan.classes))


def _has_length(rows: Integers, plan: Plan) -> NDArray[np.bool_]:
    """Whether rows (n, d) are as long as all records of a plan that normalises them, but for rounding.

    Rounding by ½ at most changes a length |q| by ½Σ|qᵢ|/|q| at most: of other rows of such a length a few in 10⁴ pass.
    """
    if not plan.grid.is_normalised:
        return np.zeros(len(rows), dtype=np.bool_)
    lengths = np.maximum(np.linalg.norm(rows.astype(np.float64), axis=1), 1.0)
    rounding = np.abs(rows).sum(axis=1) / (2 * lengths) + 1
    long: NDArray[np.bool_] = np.abs(lengths - plan.grid.unit(plan.dimension)) <= rounding
    return long
