"""Small cells: a record that is alone in a cell of an exact sum stands there in clear, and so does a client.

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
"""Cells that are named."""
NAMES = frozenset({"counts", "class_sums"})
UNKNOWN = (
    "How many clients have records in each cell this audit does not know, and no class gate sees to it: a cell of one "
    "client would be that client's own sum. Have the next plan made with `plan new --class-gate K` or a finite epsilon."
)


def find_single(blocks: Blocks) -> Integers:
    """The cells of an exact sum that hold one record each: their sums are these records."""
    return np.flatnonzero(np.asarray(blocks["counts"]) == 1)


def recognise(blocks: Blocks, records: AuditRecords) -> NDArray[np.bool_]:
    """Find which records (n,) are alone in their cell of an exact sum: the cell's sum is the record, entry by entry."""
    counts, sums = np.asarray(blocks["counts"]), np.asarray(blocks["class_sums"])
    found: NDArray[np.bool_] = np.zeros(len(records), dtype=np.bool_)
    rows = np.flatnonzero(counts[records.cells] == 1)
    found[rows] = (sums[records.cells[rows]] == records.integers[rows]).all(axis=1)
    return found


@dataclass(frozen=True, eq=False)
class ExactSums:
    """Exact sums of one kind in a view, of disjoint records: the vectors of single clients, or one sum of several."""

    name: str
    sums: tuple[Target, ...]

    @property
    def records(self) -> int:
        """The number of records in them."""
        return sum(each.records for each in self.sums)

    @property
    def smallest(self) -> int:
        """Records in the smallest cell that has any; 0 where there is none."""
        held = np.concatenate([each.counts for each in self.sums])
        return int(held[held > 0].min(initial=held.max()))

    @property
    def single(self) -> Integers:
        """The cells, of each sum, that hold one record."""
        return np.concatenate([find_single(each.blocks) for each in self.sums])

    @property
    def shows_records(self) -> bool:
        """Whether what a cell holds are sums of records as they are."""
        return all("class_sums" in each.blocks for each in self.sums)

    def recognise(self, records: AuditRecords) -> int:
        """Count the records that are alone in a cell of one of these sums."""
        return int(np.any([recognise(each.blocks, records) for each in self.sums], axis=0).sum())

    def measures(self, knowledge: Knowledge) -> Iterator[Measure]:
        """Counts; those of known members and of strangers only where there are any."""
        yield ALONE.exact(len(self.single), "count", of=self.name)
        yield SMALLEST.exact(self.smallest, "count", of=self.name)
        for metric, rows in ((MEMBERS, knowledge.is_member), (STRANGERS, ~knowledge.is_member)):
            if rows.any() and self.shows_records:
                yield metric.exact(self.recognise(knowledge.candidates.take(rows)), "count", of=self.name)


def _exact_sums(view: View) -> tuple[ExactSums, ...]:
    """The exact sums in a view: first single clients' vectors (exact unless clients add noise), then others."""
    found = targets_in(view)
    singles = [each for each in found if len(each.owners) == 1 and each.owners <= set(view.in_clear)]
    clear = singles if view.noise is None or view.plan.noise != NoiseFrom.CLIENT else []
    sums = [each for each in found if each not in singles and view.noise is None]
    vectors = [ExactSums("each client's own vector", tuple(clear))] if clear else []
    return (*vectors, *(ExactSums(each.name, (each,)) for each in sums))


def _find_sums_of_several(view: View) -> tuple[Target, ...]:
    """The exact sums of several clients, in a view that shows no single client's sum."""
    found = targets_in(view) if view.noise is None else ()
    several = tuple(each for each in found if len(each.owners) > 1)
    return several if len(several) == len(found) else ()


def _cells_of_one_client(target: Target, knowledge: Knowledge) -> Integers:
    """The cells of a sum in which exactly one client has records, by what the auditor knows of who has any."""
    held = [counts > 0 for name, counts in knowledge.held.items() if name in target.owners]
    return np.flatnonzero(np.sum(held, axis=0) == 1)


def _is_gated(view: View, target: Target) -> bool:
    """Whether the class gate leaves in each cell two clients or more whose vectors the adversary does not know."""
    plan, method = view.plan, method_of(view.plan)
    threshold = method.traits.class_threshold
    own = len(set(view.members) - target.owners)
    counted = len(plan.classes) * method.traits.cells_per_class
    return len(view.cells or plan.classes) == counted and threshold - plan.dropouts - own > 1


def _run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view = views[0]
    found, between = _exact_sums(view), records_between(view, knowledge.candidates.take(knowledge.is_member))
    if not found and not len(between):
        why = "What it sees of others' records bears noise, so that no cell is a record: see their membership instead."
        if view.noise is None:
            why = "It sees no sum of anybody's records but its own."
        return Finding(SMALL_CELLS.name, "", Verdict.NOT_APPLICABLE, why)
    several, names = _find_sums_of_several(view), view.cells or view.plan.classes
    measures = [measure for each in found for measure in each.measures(knowledge)]
    if view.earlier:
        measures.append(ALONE.exact(len(between), "count", of="between the plan's sums"))
    lone = {each.name: _cells_of_one_client(each, knowledge) for each in several if knowledge.held}
    measures += [ONE_CLIENT.exact(len(cells), "count", of=name) for name, cells in lone.items()]
    controls = tuple(_make_control(view.plan, is_true) for is_true in (True, False))
    progress(1, 1)
    sentences = [_describe_single(each, names, knowledge) for each in found if len(each.single)][:1]
    sentences += _describe_between(between, view.plan)
    sentences += [_describe_cells_of_one(name, cells, view) for name, cells in lone.items() if len(cells)]
    unknown = [] if knowledge.held or all(_is_gated(view, each) for each in several) else [UNKNOWN]
    if view.noise is None and (others := count_unseen_sums(view)):
        unknown.append(
            f"What the plan's other sums ({others}) and this one differ by is not known: `audit --simulate` it."
        )
    outcome = decide(bool(sentences), not unknown, controls)
    if not sentences:
        sentences.append(f"No record is alone in a cell of {' or '.join(each.name for each in found)}:")
        sentences.append(f"the smallest holds {min(each.smallest for each in found)}.")
        sentences += unknown
    return Finding(SMALL_CELLS.name, "", outcome, " ".join(sentences), tuple(measures), controls=controls)


def _quote_names(names: Iterable[str]) -> str:
    """The first few names, in quotation marks."""
    different = list(dict.fromkeys(names))
    return ", ".join(f'"{name}"' for name in different[:SHOWN]) + (", …" if len(different) > SHOWN else "")


def _describe_between(between: AuditRecords, plan: Plan) -> list[str]:
    if not len(between):
        return []
    named = _quote_names(plan.classes[label] for label in between.labels)
    records = "1 record is" if len(between) == 1 else f"{len(between)} records are"
    return [f"Between the plan's sums {records} shown whole, by earlier sums or differences of two (of {named})."]


def _describe_cells_of_one(name: str, cells: Integers, view: View) -> str:
    names, is_divided = view.cells or view.plan.classes, len(view.cells) > len(view.plan.classes)
    what = ("cell", "cells") if is_divided else ("class", "classes")
    count = f"1 {what[0]} is" if len(cells) == 1 else f"{len(cells)} {what[1]} are"
    remedy = "fewer cells, or a finite epsilon" if is_divided else "--class-gate K, or a finite epsilon"
    named = _quote_names(names[cell] for cell in cells)
    return f"In {name} {count} one client's alone, whose own sum stands there bit for bit ({named}): give {remedy}."


def _describe_single(shown: ExactSums, names: Sequence[str], knowledge: Knowledge) -> str:
    cells = shown.single
    named = _quote_names(names[cell] for cell in np.unique(cells))
    one = "records is" if len(cells) == 1 else "records are"
    whole = "shown whole" if shown.shows_records else "shown with all that was made of it"
    said = f"In {shown.name} {len(cells)} of {shown.records} {one} alone in a cell and {whole} ({named})."
    members = int(knowledge.is_member.sum())
    if members and shown.shows_records:
        found = shown.recognise(knowledge.candidates.take(knowledge.is_member))
        said += f" Of {members} members tried, {found} are recognised there bit for bit."
    return said


def _make_control(plan: Plan, is_true: bool) -> Control:
    """Try records with a cell each, of which all must be found, or records of which two share a cell: none must."""
    generator = np.random.default_rng(SEED)
    shape = (2 * CONTROL_CELLS, plan.dimension)
    integers = generator.integers(-plan.levels, plan.levels, shape, endpoint=True)
    cells = np.arange(2 * CONTROL_CELLS) // (1 if is_true else 2)
    records = AuditRecords(integers, cells, integers.astype(np.float64))
    blocks = total(records, 2 * CONTROL_CELLS, NAMES)
    found = recognise(blocks, records)
    name = "records with a cell each" if is_true else "records of which two share a cell"
    return Control(
        f"{len(records)} {name}", is_true, bool(found.all() if is_true else found.any() or len(find_single(blocks)))
    )


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
    """Find the records, with their classes, that a plan's sums show whole and that the last sum alone does not.

    Such a record is alone in a cell of an earlier sum or, up to sign, of the difference of two sums. A difference that
    looks like one record may be of three or more: it counts where one sum holds all of the other, where it has the
    length that all records of the plan have, or where it is one of the `known` records.
    """
    sums = [_sums_without_noise(each) for each in (*view.earlier, view)]
    members = {row.tobytes() for row in known.integers}
    found: dict[bytes, tuple[Integers, int]] = {}
    for same in sorted(set().union(*sums)):
        blocks = [each[same] for each in sums if same in each]
        rows = [_find_lone(each, view.plan) for each in blocks[:-1]]
        rows += [_find_differing(*pair, view.plan, members) for pair in combinations(blocks, 2)]
        found |= {row.tobytes(): (row, int(label)) for each in rows for row, label in zip(*each, strict=True)}
    integers = np.array([row for row, _ in found.values()], dtype=np.int64).reshape(-1, view.plan.dimension)
    labels = np.array([label for _, label in found.values()], dtype=np.int64)
    return AuditRecords(integers, labels, integers.astype(np.float64))


def count_unseen_sums(view: View) -> int:
    """Count the sums of classes that the view's plan has beside this one and those that the view holds."""
    of_classes = sum(kind.times for kind in sums_of(view.plan) if kind.has(Kind.CLASS_SUMS))
    return max(0, of_classes - 1 - len(view.earlier))


def _sums_without_noise(view: View) -> dict[tuple[str, tuple[str, ...]], Blocks]:
    """The sums in a view that bear no noise, by name and owners."""
    if view.noise is not None:
        return {}
    return {(each.name, tuple(sorted(each.owners))): each.blocks for each in targets_in(view, "class_sums")}


def _find_lone(blocks: Blocks, plan: Plan) -> tuple[Integers, Integers]:
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
