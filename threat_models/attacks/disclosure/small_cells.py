"""Find cells (classes or parts of one) of an exact sum with one record or one client, whose data they disclose.

A cell is a class, or what a sum divides classes into; of sums of other things than records, such as projections, what
stands there is all that a record or a client adds. The rule that no published cell may stand for too few is as old
as official statistics; here a cell of one gives not one attribute of a record but all of it. A cell in which one client
alone has records is that client's own sum, whatever hides the uploads. Exact sums of one plan differ by the records
that left a cell or moved to another: where that is one record, the difference of two sums is this record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from methods import method_of, sums_of
from secagg.agreement.plan import NoiseFrom, Plan
from secagg.encoding.layout import Integers, Kind
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.gaussian_likelihood import total
from threat_models.attacks.targets import Target, targets_in
from threat_models.findings import Control, Finding, Measure, Metric, Verdict, decide
from threat_models.session import AuditRecords, Blocks, Knowledge, by_class
from threat_models.views import View

ALONE = Metric("alone_in_cell", "records alone in a cell", "records", "0 records", leads=True, each="sum")
ONE_CLIENT = Metric("cells_of_one_client", "cells of one client", "cells", "0 cells", leads=True, each="sum")
SMALLEST = Metric("smallest_cell", "records in the smallest cell", "records", "many", each="sum")
RECOGNISED = Metric("recognised", "recognised in a cell", "records", "0 records", each="sum")
MEMBERS = replace(RECOGNISED, id="recognised.members", label="members recognised in a cell")
STRANGERS = replace(RECOGNISED, id="recognised.strangers", label="strangers recognised in a cell")
SEED = 20_020_501
CONTROL_CELLS = 8
SHOWN = 3
"""Most cells that a sentence names."""
NAMES = frozenset({"counts", "class_sums"})
UNKNOWN = (
    "How many clients have records in each cell this audit does not know, and no class gate sees to it: a cell of one "
    "client would be that client's own sum. Have the next plan made with `plan new --class-gate K` or a finite epsilon."
)


def find_single(blocks: Blocks) -> Integers:
    """Find the cells (classes or parts of one) of an exact sum with one record each: the cell's sum is this record."""
    return np.flatnonzero(np.asarray(blocks["counts"]) == 1)


def recognise(blocks: Blocks, records: AuditRecords) -> NDArray[np.bool_]:
    """Flag the records (n,) that are alone in their cell (class or part of one) of an exact sum: count 1, equal sum."""
    counts, sums = np.asarray(blocks["counts"]), np.asarray(blocks["class_sums"])
    found: NDArray[np.bool_] = np.zeros(len(records), dtype=np.bool_)
    rows = np.flatnonzero(counts[records.cells] == 1)
    found[rows] = (sums[records.cells[rows]] == records.integers[rows]).all(axis=1)
    return found


@dataclass(frozen=True, eq=False)
class _ExactSums:
    """Exact sums over disjoint records in a view: the vectors of single clients, or one sum of several."""

    name: str
    sums: tuple[Target, ...]

    @property
    def records(self) -> int:
        return sum(each.records for each in self.sums)

    @property
    def smallest(self) -> int:
        """The number of records in the smallest cell that is not empty; 0 where all cells are empty."""
        held = np.concatenate([each.counts for each in self.sums])
        return int(held[held > 0].min(initial=held.max()))

    @property
    def single(self) -> Integers:
        """The indices of the cells that hold one record, of all sums in turn."""
        return np.concatenate([find_single(each.blocks) for each in self.sums])

    @property
    def shows_records(self) -> bool:
        """Whether cells hold sums of the records themselves, and not of something computed from them."""
        return all("class_sums" in each.blocks for each in self.sums)

    def recognise(self, records: AuditRecords) -> int:
        """Count those of the given records that are alone in a cell of one of these sums."""
        return int(np.any([recognise(each.blocks, records) for each in self.sums], axis=0).sum())

    def measures(self, knowledge: Knowledge) -> Iterator[Measure]:
        """Yield the numbers of single records, records in the smallest cell and, if any, recognised candidates."""
        yield ALONE.exact(len(self.single), "count", of=self.name)
        yield SMALLEST.exact(self.smallest, "count", of=self.name)
        for metric, rows in ((MEMBERS, knowledge.is_member), (STRANGERS, ~knowledge.is_member)):
            if rows.any() and self.shows_records:
                yield metric.exact(self.recognise(knowledge.candidates.take(rows)), "count", of=self.name)


def _exact_sums(view: View) -> tuple[_ExactSums, ...]:
    """Return the exact sums in a view: single clients' vectors first (exact unless clients add noise), then others."""
    found = targets_in(view)
    singles = [each for each in found if len(each.owners) == 1 and each.owners <= set(view.in_clear)]
    clear = singles if view.noise is None or view.plan.noise != NoiseFrom.CLIENT else []
    sums = [each for each in found if each not in singles and view.noise is None]
    vectors = [_ExactSums("each client's own vector", tuple(clear))] if clear else []
    return (*vectors, *(_ExactSums(each.name, (each,)) for each in sums))


def _is_gated(view: View, target: Target) -> bool:
    """Return whether the class gate ensures two clients per cell besides those whose vectors the adversary knows."""
    plan, traits = view.plan, method_of(view.plan).traits
    own = len(set(view.members) - target.owners)
    counted = len(plan.classes) * traits.cells_per_class
    return len(view.cells or plan.classes) == counted and traits.class_threshold - plan.dropouts - own > 1


def _run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view = views[0]
    found, between = _exact_sums(view), records_between(view, knowledge.candidates.take(knowledge.is_member))
    if not found and not len(between):
        why = "What it sees of others' records bears noise, so that no cell is a record: see their membership instead."
        if view.noise is None:
            why = "It sees no sum of anybody's records but its own."
        return Finding(SMALL_CELLS.name, "", Verdict.NOT_APPLICABLE, why)
    # the exact sums of several clients, in a view that shows no single client's sum
    several, names = targets_in(view) if view.noise is None else (), view.cells or view.plan.classes
    several = several if all(len(each.owners) > 1 for each in several) else ()
    measures = [measure for each in found for measure in each.measures(knowledge)]
    if view.earlier:
        measures.append(ALONE.exact(len(between), "count", of="between the plan's sums"))
    lone = {}  # the cells of a sum in which exactly one client has records, by what the auditor knows of who has any
    for each in several if knowledge.held else ():
        held = [counts > 0 for name, counts in knowledge.held.items() if name in each.owners]
        lone[each.name] = np.flatnonzero(np.sum(held, axis=0) == 1)
    measures += [ONE_CLIENT.exact(len(cells), "count", of=name) for name, cells in lone.items()]
    controls = tuple(_make_control(view.plan, is_true) for is_true in (True, False))
    progress(1, 1)
    sentences = [_describe_single(each, names, knowledge) for each in found if len(each.single)][:1]
    sentences += [_describe_between(between, view.plan)] if len(between) else []
    sentences += [_describe_cells_of_one(name, cells, view) for name, cells in lone.items() if len(cells)]
    unknown = [] if knowledge.held or all(_is_gated(view, each) for each in several) else [UNKNOWN]
    of_classes = sum(kind.times for kind in sums_of(view.plan) if kind.has(Kind.CLASS_SUMS))
    if view.noise is None and (others := of_classes - 1 - len(view.earlier)) > 0:
        differ = f"What the plan's other sums ({others}) and this one differ by is not known"
        unknown.append(f"{differ}: `audit --simulate` it.")
    outcome = decide(bool(sentences), not unknown, controls)
    if not sentences:
        sentences.append(f"No record is alone in a cell of {' or '.join(each.name for each in found)}:")
        sentences.append(f"the smallest holds {min(each.smallest for each in found)}.")
        sentences += unknown
    return Finding(SMALL_CELLS.name, "", outcome, " ".join(sentences), tuple(measures), controls=controls)


def _quote_names(names: Iterable[str]) -> str:
    """Return the first few different names (`SHOWN`) in quotation marks."""
    different = list(dict.fromkeys(names))
    return ", ".join(f'"{name}"' for name in different[:SHOWN]) + (", …" if len(different) > SHOWN else "")


def _describe_between(between: AuditRecords, plan: Plan) -> str:
    named = _quote_names(plan.classes[label] for label in between.labels)
    records = "1 record is" if len(between) == 1 else f"{len(between)} records are"
    return f"Between the plan's sums {records} shown whole, by earlier sums or differences of two (of {named})."


def _describe_cells_of_one(name: str, cells: Integers, view: View) -> str:
    names, is_divided = view.cells or view.plan.classes, len(view.cells) > len(view.plan.classes)
    what = ("cell", "cells") if is_divided else ("class", "classes")
    count = f"1 {what[0]} is" if len(cells) == 1 else f"{len(cells)} {what[1]} are"
    remedy = "fewer cells, or a finite epsilon" if is_divided else "--class-gate K, or a finite epsilon"
    named = _quote_names(names[cell] for cell in cells)
    return f"In {name} {count} one client's alone, whose own sum stands there bit for bit ({named}): give {remedy}."


def _describe_single(shown: _ExactSums, names: Sequence[str], knowledge: Knowledge) -> str:
    cells, members = shown.single, knowledge.candidates.take(knowledge.is_member)
    named = _quote_names(names[cell] for cell in np.unique(cells))
    one = "records is" if len(cells) == 1 else "records are"
    whole = "shown whole" if shown.shows_records else "shown with all that was made of it"
    said = f"In {shown.name} {len(cells)} of {shown.records} {one} alone in a cell and {whole} ({named})."
    if len(members) and shown.shows_records:
        said += f" Of {len(members)} members tried, {shown.recognise(members)} are recognised there bit for bit."
    return said


def _make_control(plan: Plan, is_true: bool) -> Control:
    """Run the attack on records with a cell each, where it must find all, or two to a cell, where it must find none."""
    generator = np.random.default_rng(SEED)
    shape = (2 * CONTROL_CELLS, plan.dimension)
    integers = generator.integers(-plan.levels, plan.levels, shape, endpoint=True)
    cells = np.arange(2 * CONTROL_CELLS) // (1 if is_true else 2)
    records = AuditRecords(integers, cells, integers.astype(np.float64))
    blocks = total(records, 2 * CONTROL_CELLS, NAMES)
    found = recognise(blocks, records)
    if is_true:
        return Control(f"{len(records)} records with a cell each", True, bool(found.all()))
    succeeded = bool(found.any() or len(find_single(blocks)))
    return Control(f"{len(records)} records of which two share a cell", False, succeeded)


SMALL_CELLS = Attack(
    "small_cells",
    "Records alone in a cell: a class, or a slot of one",
    "Sweeney 2002 (k-anonymity); Hundepool et al. 2012 (disclosure control of small cells)",
    ("counts",),
    _run,
    (ALONE, ONE_CLIENT, SMALLEST, MEMBERS, STRANGERS),
    tries_records=False,
    meaning="A class, or a slot of one, holds so few records or clients that its sum is theirs alone.",
    remedy="Plan with --class-gate K and fewer slots, or with more records of rare classes.",
)


def records_between(view: View, known: AuditRecords) -> AuditRecords:
    """Find records, with their classes, that a plan's exact sums reveal together but the last sum alone does not.

    Such a record is alone in a cell of an earlier sum or, up to sign, of the difference of two sums. A difference that
    looks like one record may be of three or more: it counts where one sum holds all of the other, where it has the
    length that all records of the plan have, or where it is one of the `known` records.
    """
    sums: dict[tuple[str, tuple[str, ...]], list[Blocks]] = {}  # without noise, by name and owners
    for shown in (*view.earlier, view):
        for each in targets_in(shown, "class_sums") if shown.noise is None else ():
            sums.setdefault((each.name, tuple(sorted(each.owners))), []).append(each.blocks)
    members = {row.tobytes() for row in known.integers}
    found: dict[bytes, tuple[Integers, int]] = {}
    for same in sorted(sums):
        rows = []
        for blocks in sums[same][:-1]:
            alone = find_single(blocks)
            labels = alone // (len(blocks["counts"]) // len(view.plan.classes))
            rows.append((np.asarray(blocks["class_sums"])[alone], labels))
        rows += [_find_differing(*pair, view.plan, members) for pair in combinations(sums[same], 2)]
        found |= {row.tobytes(): (row, int(label)) for each in rows for row, label in zip(*each, strict=True)}
    integers = np.array([row for row, _ in found.values()], dtype=np.int64).reshape(-1, view.plan.dimension)
    classes = np.array([label for _, label in found.values()], dtype=np.int64)
    return AuditRecords(integers, classes, integers.astype(np.float64))


def _find_differing(first: Blocks, second: Blocks, plan: Plan, known: set[bytes]) -> tuple[Integers, Integers]:
    """Return the records, with classes, by which two sums differ in a cell (or a class) whose count differs by 1."""
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
    """Return which of the rows (n, d) have the one length of all records in a normalising plan, up to rounding.

    Rounding by ½ at most changes a length |q| by ½Σ|qᵢ|/|q| at most: of other rows of such a length a few in 10⁴ pass.
    """
    if not plan.grid.is_normalised:
        return np.zeros(len(rows), dtype=np.bool_)
    lengths = np.maximum(np.linalg.norm(rows.astype(np.float64), axis=1), 1.0)
    rounding = np.abs(rows).sum(axis=1) / (2 * lengths) + 1
    return np.asarray(np.abs(lengths - plan.grid.unit(plan.dimension)) <= rounding)
