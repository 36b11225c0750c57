"""Records that the exact sums of one plan show together: in a sum before the last, or as the difference of two.

A sum over the records that passed a threshold, or over cells drawn anew, differs from the one before it by those that
left or moved. Where that is one record of a cell, the difference is this record.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from methods import sums_of
from secagg.agreement.plan import Plan
from secagg.encoding.layout import Integers, Kind
from threat_models.attacks.targets import targets_in
from threat_models.session import Blocks, Records, by_class
from threat_models.views import View


def records_between(view: View, known: Records) -> Records:
    """Find the records, with their classes, that a plan's sums show whole and that the last sum alone does not.

    Such a record is alone in a cell of an earlier sum or, up to sign, of the difference of two sums. A difference that
    looks like one record may be of three or more: it counts where one sum holds all of the other, where it has the
    length that all records of the plan have, or where it is one of the `known` records.
    """
    sums = [_exact_sums(each) for each in (*view.earlier, view)]
    members = {row.tobytes() for row in known.integers}
    found: dict[bytes, tuple[Integers, int]] = {}
    for same in sorted(set().union(*sums)):
        blocks = [each[same] for each in sums if same in each]
        rows = [_find_single(each, view.plan) for each in blocks[:-1]]
        rows += [_find_differing(*pair, view.plan, members) for pair in combinations(blocks, 2)]
        found |= {row.tobytes(): (row, int(label)) for each in rows for row, label in zip(*each, strict=True)}
    integers = np.array([row for row, _ in found.values()], dtype=np.int64).reshape(-1, view.plan.dimension)
    labels = np.array([label for _, label in found.values()], dtype=np.int64)
    return Records(integers, labels, integers.astype(np.float64))


def count_unseen_sums(view: View) -> int:
    """Count the sums of classes that the view's plan has beside this one and those that the view holds."""
    return max(0, count_class_sums(view.plan) - 1 - len(view.earlier))


def count_class_sums(plan: Plan) -> int:
    """Count the sums of a plan that are of the records of classes, or of slots of classes."""
    return sum(kind.times for kind in sums_of(plan) if kind.has(Kind.CLASS_SUMS))


def _exact_sums(view: View) -> dict[tuple[str, tuple[str, ...]], Blocks]:
    """The sums in a view that bear no noise, by name and owners."""
    if view.noise is not None:
        return {}
    return {(each.name, tuple(sorted(each.owners))): each.blocks for each in targets_in(view, "class_sums")}


def _find_single(blocks: Blocks, plan: Plan) -> tuple[Integers, Integers]:
    """The records (n, d) that are alone in a cell, and their classes (n,)."""
    counts = np.asarray(blocks["counts"])
    cells = np.flatnonzero(counts == 1)
    return np.asarray(blocks["class_sums"])[cells], cells // (len(counts) // len(plan.classes))


def _find_differing(first: Blocks, second: Blocks, plan: Plan, known: set[bytes]) -> tuple[Integers, Integers]:
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
