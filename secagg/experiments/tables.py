"""Tables of runs' results: a row per run for machines (CSV), a row per series or method for papers."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any

from secagg.experiments.figures import write_curves
from secagg.experiments.results import (
    Group,
    Interval,
    ResultRow,
    Run,
    RunResult,
    has_known_noise,
    is_baseline,
    listed,
    measure_of,
    results_of,
    rounds_under_noise,
    student_interval,
    summarise,
)
from secagg.experiments.seeding import REPRODUCIBLE
from secagg.privacy.claim import OUTRIGHT
from secagg.scoring.metrics import UNEQUAL, are_unequal
from secagg.system.extras import extra
from secagg.system.printable import escaped
from secagg.wire import plain, plain_fields

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
SHOWN = {"balanced_accuracy": "balanced accuracy", "auc": "AUC", "f1": "F1", "calibration_error": "calibration error"}
"""The headings of measures that exist for any number of classes, by their names."""
BESIDE = ("balanced_accuracy", "auc")
"""The measures that a table of accuracies has too where classes are unequal."""
INTERVALS = "± is as for accuracy; brackets hold a single seed's own 95 % interval."


@dataclass(frozen=True)
class ResultTable:
    """A table: caption, header, rows of equal length that begin with a name, and notes; `name` is for LaTeX labels."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    name: str = "accuracy"

    def text(self) -> str:
        """Return the table in aligned columns, with the caption and the notes below."""
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        rows = (self.header, *self.rows)
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
        return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], "", self.caption, *self.notes])

    def html(self) -> str:
        """Return the table in HTML, for notebooks."""
        return html_of(self.header, self.rows, self.caption, self.notes)

    def markdown(self) -> str:
        """Return the table in Markdown."""
        rows = [[cell.replace("|", "\\|") for cell in row] for row in (self.header, *self.rows)]
        rows.insert(1, ["---", *["---:"] * (len(self.header) - 1)])
        below = "\n\n".join([self.caption, *self.notes])
        return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", below]) + "\n"

    def latex(self) -> str:
        """Return the table in LaTeX, for documents that use booktabs."""
        texts = [[cell.translate(LATEX) for cell in row] for row in (self.header, *self.rows)]
        header, *rows = [" & ".join(row) + r" \\" for row in texts]
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


def digest_of(content: Any) -> str:
    """Return the SHA-256 (hex) of plain values, as JSON writes them."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


class Marks:
    """The numbered notes of a table; equal notes share one number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, *texts: str) -> str:
        """Return the superscript numbers of the given notes, in ascending order; a new note gets the next number."""
        numbers = [self._numbers.setdefault(text, len(self._numbers) + 1) for text in texts]
        return " ".join("".join(SUPERSCRIPTS[int(digit)] for digit in str(number)) for number in sorted(set(numbers)))

    def of_cell(self, cell: Group, *reasons: str) -> str:
        """Return the superscripts of a cell's notes: given `reasons`, why runs were refused, diverged training."""
        refused = (f"Refused: {reason}." for reason in cell.refusals)
        return self.of(*reasons, *refused, *([DIVERGED] if cell.diverged else []))

    @property
    def notes(self) -> tuple[str, ...]:
        """The texts of the notes, each preceded by its number."""
        return tuple(f"{self.of(text)} {text}" for text in self._numbers)


class Results(ABC):
    """The runs of a sweep or comparison, with their tables, their figure and their files."""

    dataset: str
    runs: tuple[Run, ...]
    notes: tuple[str, ...]
    provenance: Mapping[str, Any]

    @property
    @abstractmethod
    def tables(self) -> tuple[ResultTable, ...]:
        """The table of accuracies, then further tables if there are any."""

    @abstractmethod
    def plot(self, paths: Sequence[Path]) -> None:
        """Plot the accuracies into files whose suffixes decide the format."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file, version 1."""

    def runs_to_json(self) -> dict[str, Any]:
        """Return the runs, a digest that shows whether they were changed since, and their origin, as JSON values."""
        runs = [plain_fields(run, refused="refusal", unprotected_because="unprotected") for run in self.runs]
        return {"runs": runs, "runs_sha256": digest_of(runs), "provenance": dict(self.provenance)}

    def summary(self) -> str:
        """Return all tables as text in aligned columns."""
        return "\n\n".join(table.text() for table in self.tables)

    def to_frame(self) -> Any:
        """Return a `pandas.DataFrame` with a row for each run: its settings, and its result or refusal."""
        return frame_of(rows_of(self.runs))

    def _repr_html_(self) -> str:
        return "".join(table.html() for table in self.tables)

    def write(self, out: Path) -> None:
        """Write results.csv, results.json, table.md, table.tex, accuracy.png and accuracy.svg into a folder.

        Beside them a .md and .tex for each further table (measures, where more than accuracy was measured, and the
        paired differences of a comparison), and curves.csv, curves.png and curves.svg where any plan has several
        rounds. Where every run was refused there is no table and no figure.
        """
        (out / "results.csv").write_text(csv_of(self.runs), encoding="utf-8")
        content = json.dumps(self.to_json(), indent=2, allow_nan=False)
        (out / "results.json").write_text(content + "\n", encoding="utf-8")
        if not results_of(self.runs):
            return
        for stem, table in zip(("table", *(other.name for other in self.tables[1:])), self.tables, strict=True):
            (out / f"{stem}.md").write_text(table.markdown(), encoding="utf-8")
            (out / f"{stem}.tex").write_text(table.latex(), encoding="utf-8")
        self.plot([out / "accuracy.png", out / "accuracy.svg"])
        write_curves(self.runs, out)


def accuracy_table(dataset: str, runs: Sequence[Run]) -> ResultTable:
    """Return a table of accuracies (%), by series (rows) and ε (columns); refused runs are dashes with notes."""
    series = summarise(runs, refused=True)
    epsilons = sorted({float(run.settings["epsilon"]) for run in runs})
    marks = Marks()
    rows = []
    for row in series:
        cells = {cell.epsilon: format_cell(cell) + marks.of_cell(cell) for cell in row.cells}
        rows.append((row.label, *(cells.get(epsilon, DASH) for epsilon in epsilons)))
        for name in beside_accuracy(runs):
            cells = {cell.epsilon: format_cell(Group.of(cell.runs, measure_of(name))) for cell in row.cells}
            rows.append((f"{row.label}, {SHOWN[name]}", *(cells.get(epsilon, DASH) for epsilon in epsilons)))
    text, header = caption(dataset, runs, series), ("ε", *map(_epsilon, epsilons))
    return ResultTable(text, header, tuple(rows), (*marks.notes, *pipeline_notes(runs), *footnotes(runs)))


def beside_accuracy(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return `BESIDE` where the classes of the held-out records are unequal, else ()."""
    classes = ([own["records"] for own in metrics["classes"]] for metrics in _metrics(runs))
    return BESIDE if any(map(are_unequal, classes)) else ()


def measures_table(
    dataset: str, second: str, groups: Sequence[tuple[str, str, Sequence[Run]]], notes: Sequence[str] = ()
) -> ResultTable | None:
    """Return a table of metrics other than accuracy; `groups` holds the first two cells and the runs of each row.

    A mean over the runs, one for each seed, as in the table of accuracies; `second` heads the second column and
    `notes` stand below. None where nothing but accuracy was measured.
    """
    measured = [metrics for _, _, runs in groups for metrics in _metrics(runs)]
    if not measured:
        return None
    rows = tuple((first, value, *(_measure(runs, name) for name in SHOWN)) for first, value, runs in groups)
    of = _of_which(measured)
    text = f"In per cent, on the same records: AUC and F1 are {of}; a lower calibration error is better. {INTERVALS}"
    header = ("method", second, *SHOWN.values())
    return ResultTable(f"Further measures on {dataset}. {text}", header, rows, tuple(notes), name="measures")


def by_epsilon(label: str, runs: Sequence[Run]) -> list[tuple[str, str, list[Run]]]:
    """Group a series' runs by ascending ε; return (label, ε as text, runs) for each row of `measures_table`."""
    epsilons = sorted({float(run.settings["epsilon"]) for run in runs if run.result})
    return [
        (label, _epsilon(each), [run for run in runs if float(run.settings["epsilon"]) == each]) for each in epsilons
    ]


def pipeline_notes(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return a note if runs without noise differ from noisy runs in rounds or normalisation, else ()."""
    said = []
    if rounds := rounds_under_noise(summarise(runs)):
        many = f"{' or '.join(map(str, rounds))} rounds"
        said.append(f"By refine auto there are {many} under noise, and none at ε = ∞: it is the head of one sum.")
    federated = [run for run in runs if run.result and not is_baseline(run.result)]
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for run in federated:
        if run.settings.get("normalise") is None and run.result:
            found[math.isinf(run.settings["epsilon"])].add(str(run.result["normalisation"]))
    noisy, exact = (" or ".join(sorted(found[each])) for each in (False, True))
    if noisy and exact and noisy != exact:
        said.append(f"Records are normalised under noise ({noisy}) and at ε = ∞ not so ({exact}).")
    remedy = "ε = ∞ is then no limit of the others: --pipeline under-noise makes it one, or see accuracy_reference."
    return (" ".join([*said, remedy]),) if said else ()


def footnotes(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the notes below a table of accuracies: on unequal classes, and where ε is finite on what it leaves out."""
    if not beside_accuracy(runs):
        return _of_noise(runs)
    largest = f"the largest class has more than {UNEQUAL:g} times the records of the smallest"
    means = f"balanced accuracy is the mean of the classes' sensitivities, AUC is {_of_which(_metrics(runs))}"
    return (f"Classes are unequal ({largest}): {means}. {INTERVALS}", *_of_noise(runs))


def _of_noise(runs: Sequence[Run]) -> tuple[str, ...]:
    weak = tuple(f"{note.capitalize()}." for note in listed(runs, "notes") if note.endswith(OUTRIGHT))
    if has_known_noise(runs):
        return (f"{REPRODUCIBLE.capitalize()}, whatever ε says; accuracies are counted without noise.", *weak)
    if not listed(runs, "not_private"):
        return ()
    return ("Not private: accuracies are counted on held-out records without noise, which no ε covers.", *weak)


def caption(dataset: str, runs: Sequence[Run], rows: Sequence[ResultRow]) -> str:
    """Return the caption of a table of accuracies: what its intervals are, and what all runs share."""
    results = results_of(runs)
    counts = {cell.seeds for row in rows for cell in row.cells if cell.seeds}
    several = {count for count in counts if count > 1}
    kinds = []
    if several:
        seeds = f"{'up to ' if len(several) > 1 else ''}{max(several)} seeds"
        half = "half the width of its 95 % Student-t interval, for fixed test records (no ±: the same for every seed)"
        kinds.append(f"mean over {seeds} ± {half}")
    if 1 in counts:
        kinds.append("in brackets the 95 % Clopper–Pearson interval of a single seed")
    noisy = any(result["epsilon"] != "inf" for result in results)
    names = ("clients", "partition", "leave_out", "expand", *(("delta", "adjacency", "unit") if noisy else ()))
    federated: list[Any] = [result for result in results if not is_baseline(result)] or results
    conditions = []
    for name in names:
        values = {result[name] for result in federated if result[name] is not None}
        if len(values) == 1 and (value := values.pop()):
            number = f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else value
            conditions.append(f"{name.replace('_', ' ')} {number}")
    shares = sorted({result["validate"] for result in results})
    held_out = f"of the training records of {dataset}, held out"
    tested = [f"{100 * share:g} % {held_out}" if share else f"the held-out records of {dataset}" for share in shares]
    return f"Accuracy (%) on {' or '.join(tested)}: {'; '.join(kinds)} ({', '.join(conditions)})."


def format_cell(cell: Group) -> str:
    """Return a group's mean accuracy with its interval as text for a table; a dash if there is none."""
    return DASH if cell.accuracy is None else shown_accuracy(cell.accuracy, cell.interval, cell.seeds, cell.refused)


def shown_accuracy(accuracy: float, interval: Interval | None, seeds: int, refused: int) -> str:
    """Format an accuracy in per cent with its interval: ± half the width for several seeds, the bounds for one.

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


def rows_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return a row for each run: its settings, and its result or refusal; None for what has no value."""
    rows = []
    for run in runs:
        why = {"unprotected_because": run.unprotected} if run.unprotected is not None else {}
        rows.append({**plain(run.settings), **(flat(run.result) if run.result else {}), **why, "refused": run.refusal})
    return rows


def csv_of(runs: Sequence[Run]) -> str:
    """Return each run's settings and result (`rows_of`) as CSV text."""
    rows = rows_of(runs)
    names = dict.fromkeys(name for row in rows for name in row if name != "refused")
    text = io.StringIO()
    writer = csv.DictWriter(text, [*names, "refused"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def flat(result: RunResult) -> dict[str, Any]:
    """Flatten a result into the columns of one table row, leaving out the metrics of single classes."""
    values = {name: value for name, value in result.items() if not isinstance(value, (dict, list))}
    values["accuracy_low"], values["accuracy_high"] = result["accuracy_interval"] or (None, None)
    for name, found in (result["metrics"] or {}).items():
        if isinstance(found, dict) and name != "accuracy":  # which has columns of its own
            values |= {name: found["value"], f"{name}_low": found["low"], f"{name}_high": found["high"]}
    for domain, own in (result["by_domain"]["domains"] if result["by_domain"] else {}).items():
        values[f"accuracy_on_{domain}"] = own["accuracy"]
    values |= {f"seconds_{name}": value for name, value in result["seconds"].items()}
    return {**values, "not_private": " ".join(result["not_private"]), "notes": "; ".join(result["notes"])}


def frame_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return a `pandas.DataFrame` with a row for each mapping. Raises BadInput if pandas is not installed."""
    with extra("frames", "to_frame", ", or use to_json()"):
        import pandas

    return pandas.DataFrame(list(rows))


def html_of(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str, notes: Sequence[str] = ()) -> str:
    """Return a table as HTML for notebooks, with all texts escaped; the first column names the row."""
    head = "".join(f'<th scope="col">{_text(each)}</th>' for each in header)
    cells = ["".join(f"<td>{_text(cell)}</td>" for cell in row[1:]) for row in rows]
    body = "".join(f'<tr><th scope="row">{_text(row[0])}</th>{own}</tr>' for row, own in zip(rows, cells, strict=True))
    below = "".join(f"<p>{_text(each)}</p>" for each in notes)
    top = f"<thead><tr>{head}</tr></thead>" if header else ""
    return f"<table><caption>{_text(caption)}</caption>{top}<tbody>{body}</tbody></table>{below}"


def _text(value: str) -> str:
    return escape(escaped(value))


def _of_which(measured: Sequence[Mapping[str, Any]]) -> str:
    """Return of which class the AUC and the F1 are: the positive one, or all as a mean."""
    positive = {each["positive_class"] for each in measured}
    return f"of class {positive.pop()}" if positive != {None} else "means over the classes"


def _metrics(runs: Sequence[Run]) -> list[dict[str, Any]]:
    return [metrics for result in results_of(runs) if (metrics := result["metrics"])]


def _measure(runs: Sequence[Run], name: str) -> str:
    """Return a measure's mean over the runs with its interval, as text; a dash where no run has the measure."""
    found = [each[name] for each in _metrics(runs) if each[name]]
    if not found:
        return DASH
    values = [each["value"] for each in found]
    low, high = student_interval(values) if len(values) > 1 else (found[0]["low"], found[0]["high"])
    return shown_accuracy(fmean(values), (max(0.0, low), min(1.0, high)), len(values), len(runs) - len(values))


def _epsilon(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:g}"
