"""The results of a sweep as tables: one row per run for a machine, one row per series for a paper."""

from __future__ import annotations

import csv
import io
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secagg.experiments.frames import flat, frame_of, html_of
from secagg.experiments.seeding import REPRODUCIBLE
from secagg.experiments.summary import (
    Cell,
    Run,
    cell_of,
    has_known_noise,
    is_baseline,
    labelled_groups,
    not_private,
    notes_of,
    rounds_under_noise,
    summarise,
)
from secagg.privacy.claim import OUTRIGHT
from secagg.wire import plain

DASH = "–"
DIVERGED = "Training diverged."
SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
LATEX = str.maketrans(
    {
        "ε": r"$\varepsilon$",
        "δ": r"$\delta$",
        "∞": r"$\infty$",
        "±": r"$\pm$",
        "–": "--",
        "−": "$-$",
        **{mark: f"$^{{{digit}}}$" for digit, mark in enumerate(SUPERSCRIPTS)},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    }
)


@dataclass(frozen=True)
class Table:
    """A caption, a header and rows of the same length; the first column names the row. `notes` stand below.

    `name` is its label in LaTeX.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    name: str = "accuracy"

    def text(self) -> str:
        """The table in aligned columns, the caption and the notes below."""
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in (self.header, *self.rows)
        ]
        return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], "", self.caption, *self.notes])

    def html(self) -> str:
        """The table in HTML, for notebooks."""
        return html_of(self.header, self.rows, self.caption, self.notes)

    def markdown(self) -> str:
        """The table in Markdown."""
        rows = [[cell.replace("|", "\\|") for cell in row] for row in (self.header, *self.rows)]
        rows.insert(1, ["---", *["---:"] * (len(self.header) - 1)])
        below = "\n\n".join([self.caption, *self.notes])
        return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", below]) + "\n"

    def latex(self) -> str:
        """The table in LaTeX, for a document that uses booktabs."""
        header, *rows = [
            " & ".join(cell.translate(LATEX) for cell in row) + r" \\" for row in (self.header, *self.rows)
        ]
        lines = [
            "% needs \\usepackage{booktabs}",
            r"\begin{table}",
            r"  \centering",
            f"  \\caption{{{self.caption.translate(LATEX)}}}",
            f"  \\label{{tab:{self.name}}}",
            f"  \\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}",
            r"    \toprule",
            f"    {header}",
            r"    \midrule",
            *(f"    {row}" for row in rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            *(rf"  \par\footnotesize {note.translate(LATEX)}" for note in self.notes),
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"


class Marks:
    """Numbers of the notes under a table; the same text has the same number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, *texts: str) -> str:
        """The marks of some notes, in order."""
        numbers = [self._numbers.setdefault(text, len(self._numbers) + 1) for text in texts]
        return " ".join("".join(SUPERSCRIPTS[int(digit)] for digit in str(number)) for number in sorted(set(numbers)))

    @property
    def notes(self) -> tuple[str, ...]:
        """The texts, each behind its number."""
        return tuple(f"{self.of(text)} {text}" for text in self._numbers)


class Tabled(ABC):
    """Runs that tables show."""

    runs: tuple[Run, ...]

    @property
    @abstractmethod
    def tables(self) -> tuple[Table, ...]:
        """That of accuracies, and below it the others, where there are any."""

    def summary(self) -> str:
        """The tables in aligned columns."""
        return "\n\n".join(table.text() for table in self.tables)

    def to_frame(self) -> Any:
        """A `pandas.DataFrame` with a row for each run: settings, result, or why it was refused."""
        return frame_of(rows_of(self.runs))

    def _repr_html_(self) -> str:
        return "".join(table.html() for table in self.tables)


def write_tables(tables: Sequence[Table], out: Path) -> None:
    """Write the first as table.md and table.tex into a folder, the others by their names."""
    for stem, table in zip(("table", *(other.name for other in tables[1:])), tables, strict=True):
        (out / f"{stem}.md").write_text(table.markdown(), encoding="utf-8")
        (out / f"{stem}.tex").write_text(table.latex(), encoding="utf-8")


def accuracy_table(dataset: str, runs: Sequence[Run]) -> Table:
    """Accuracy in per cent, a row per series and a column per ε; a dash and its reason where a run was refused."""
    groups = labelled_groups(runs, refused=True)
    epsilons = sorted({float(run.settings["epsilon"]) for run in runs})
    marks = Marks()
    rows = [(label, *(_cell_text(group, epsilon, marks) for epsilon in epsilons)) for label, group in groups]
    header = ("ε", *("∞" if math.isinf(epsilon) else f"{epsilon:g}" for epsilon in epsilons))
    return Table(_caption(dataset, runs), header, tuple(rows), (*marks.notes, *pipeline_notes(runs), *footnotes(runs)))


def _cell_text(group: Sequence[Run], epsilon: float, marks: Marks) -> str:
    """The runs of a series at one ε: their accuracy, and marks for what was refused or diverged."""
    own = [run for run in group if float(run.settings["epsilon"]) == epsilon]
    told = marks.of(
        *refusals_of(own), *([DIVERGED] if any(run.result and run.result["diverged"] for run in own) else [])
    )
    return (_show(cell_of(own)) if any(run.result for run in own) else DASH) + told


def refusals_of(runs: Sequence[Run]) -> list[str]:
    """Why runs were refused, each reason once, as a note below a table."""
    return list(dict.fromkeys(f"Refused: {run.refusal}." for run in runs if run.refusal is not None))


def pipeline_notes(runs: Sequence[Run]) -> tuple[str, ...]:
    """That what ran at ε = ∞ is another pipeline than under noise, by its rounds or its normalisation, where it is."""
    said = []
    if rounds := rounds_under_noise(summarise(runs)):
        many = " or ".join(map(str, rounds))
        said.append(
            f"By refine auto there are {many} rounds under noise, and none at ε = ∞: it is the head of one sum."
        )
    federated = [run for run in runs if run.result and not is_baseline(run.result)]
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for run in federated:
        if run.settings.get("normalise") is None and run.result:
            found[math.isinf(run.settings["epsilon"])].add(run.result["normalisation"])
    noisy, exact = (" or ".join(sorted(found[each])) for each in (False, True))
    if noisy and exact and noisy != exact:
        said.append(f"Records are normalised under noise ({noisy}) and at ε = ∞ not so ({exact}).")
    remedy = "ε = ∞ is then no limit of the others: --pipeline under-noise makes it one, or see accuracy_reference."
    return (" ".join([*said, remedy]),) if said else ()


def footnotes(runs: Sequence[Run]) -> tuple[str, ...]:
    """What a table of accuracies must say below itself where an epsilon is finite."""
    weak = tuple(f"{note.capitalize()}." for note in notes_of(runs) if note.endswith(OUTRIGHT))
    if has_known_noise(runs):
        return (f"{REPRODUCIBLE.capitalize()}, whatever ε says; accuracies are counted without noise.", *weak)
    if not not_private(runs):
        return ()
    return ("Not private: accuracies are counted on held-out records without noise, which no ε covers.", *weak)


def rows_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One row per run: its settings, its result, or why it was refused. None or absent: not said, or by rule."""
    return [{**plain(run.settings), **flat(run.result or {}), **_reason(run), "refused": run.refusal} for run in runs]


def csv_of(runs: Sequence[Run]) -> str:
    """`rows_of` as text."""
    rows = rows_of(runs)
    names = dict.fromkeys(name for row in rows for name in row if name != "refused")
    text = io.StringIO()
    writer = csv.DictWriter(text, [*names, "refused"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def shown_accuracy(accuracy: float, interval: tuple[float, float] | None, seeds: int, refused: int) -> str:
    """A mean over seeds with half the width of its interval, a single seed's with its bounds, in per cent.

    Where no seed moved anything there is no half-width: 0.00 would read as certainty.
    """
    mean = 100 * accuracy
    text = f"{mean:.2f}"
    if interval is not None:
        low, high = (100 * bound for bound in interval)
        if seeds == 1:
            text += f" ({low:.2f}–{high:.2f})"
        elif low < high:
            # Cut at 0 or 1 the interval is lopsided: its longer side is the half-width.
            text += f" ± {max(mean - low, high - mean):.2f}"
    return text + (f" (n = {seeds})" if refused else "")


def _reason(run: Run) -> dict[str, str]:
    """Why a run was without the protection asked for, where that was so."""
    return {"unprotected_because": run.unprotected} if run.unprotected is not None else {}


def _show(cell: Cell) -> str:
    return shown_accuracy(cell.accuracy, cell.interval, cell.seeds, cell.refused)


def _caption(dataset: str, runs: Sequence[Run]) -> str:
    return caption(dataset, runs, {cell.seeds for series in summarise(runs) for cell in series.cells})


def caption(dataset: str, runs: Sequence[Run], counts: Collection[int]) -> str:
    """What a table of accuracies shows, the kinds of intervals for these numbers of seeds, and what all runs share."""
    results = [run.result for run in runs if run.result]
    several = {count for count in counts if count > 1}
    kinds = []
    if several:
        seeds = f"{'up to ' if len(several) > 1 else ''}{max(several)} seeds"
        kinds.append(
            f"mean over {seeds} ± half the width of its 95 % Student-t interval, for fixed test records "
            "(no ±: the same for every seed)"
        )
    if 1 in counts:
        kinds.append("in brackets the 95 % Clopper–Pearson interval of a single seed")
    noisy = any(result["epsilon"] != "inf" for result in results)
    names = ("clients", "partition", "leave_out", "expand", *(("delta", "adjacency", "unit") if noisy else ()))
    federated = [result for result in results if not is_baseline(result)] or results
    shared = {name: value for name in names if (value := _common(federated, name))}
    conditions = [f"{name.replace('_', ' ')} {_number(value)}" for name, value in shared.items()]
    tested = " or ".join(_tested(share, dataset) for share in sorted({result["validate"] for result in results}))
    return f"Accuracy (%) on {tested}: {'; '.join(kinds)} ({', '.join(conditions)})."


def _tested(share: float, dataset: str) -> str:
    """The records that accuracy is measured on, where this share of the training records is for validation."""
    validated = f"{100 * share:g} % of the training records of {dataset}, held out"
    return validated if share else f"the held-out records of {dataset}"


def _common(results: Sequence[Mapping[str, Any]], name: str) -> Any:
    """The one value that all results have, or None."""
    values = {result[name] for result in results if result[name] is not None}
    return values.pop() if len(values) == 1 else None


def _number(value: Any) -> str:
    return f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)
