"""The results of a sweep as tables: one row per run for a machine, one row per series for a paper."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secagg.experiments.summary import Cell, Run, is_centralised, summarise
from secagg.experiments.workers import plain

LATEX = str.maketrans(
    {
        "ε": r"$\varepsilon$",
        "δ": r"$\delta$",
        "∞": r"$\infty$",
        "±": r"$\pm$",
        "–": "--",
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    }
)


@dataclass(frozen=True)
class Table:
    """A caption, a header and rows of the same length; the first column names the row."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def text(self) -> str:
        """The table in aligned columns, the caption below."""
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in (self.header, *self.rows)
        ]
        return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], "", self.caption])

    def markdown(self) -> str:
        """The table in Markdown."""
        rows = [[cell.replace("|", "\\|") for cell in row] for row in (self.header, *self.rows)]
        rows.insert(1, ["---", *["---:"] * (len(self.header) - 1)])
        return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", self.caption]) + "\n"

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
            r"  \label{tab:accuracy}",
            f"  \\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}",
            r"    \toprule",
            f"    {header}",
            r"    \midrule",
            *(f"    {row}" for row in rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"


def accuracy_table(dataset: str, runs: Sequence[Run]) -> Table:
    """Accuracy in per cent, a row per series and a column per ε; a dash where there is no result."""
    series = summarise(runs)
    epsilons = sorted({cell.epsilon for each in series for cell in each.cells})
    rows = []
    for each in series:
        cells = {cell.epsilon: _shown(cell) for cell in each.cells}
        rows.append((each.label, *(cells.get(epsilon, "–") for epsilon in epsilons)))
    header = ("ε", *("∞" if math.isinf(epsilon) else f"{epsilon:g}" for epsilon in epsilons))
    return Table(_caption(dataset, runs), header, tuple(rows))


def csv_of(runs: Sequence[Run]) -> str:
    """One row per run: its settings, its result, or why it was refused. Empty: not said, or by rule."""
    rows = [{**plain(run.settings), **_flat(run.result or {}), "refused": run.refusal} for run in runs]
    names = dict.fromkeys(name for row in rows for name in row if name != "refused")
    text = io.StringIO()
    writer = csv.DictWriter(text, [*names, "refused"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _shown(cell: Cell) -> str:
    low, high = (100 * bound for bound in cell.interval)
    mean = 100 * cell.accuracy
    # Cut at 0 or 1 the interval is lopsided: its longer side is the half-width.
    bounds = f"± {max(mean - low, high - mean):.2f}" if cell.seeds > 1 else f"({low:.2f}–{high:.2f})"
    return f"{mean:.2f} {bounds}" + (f" (n = {cell.seeds})" if cell.refused else "")


def _caption(dataset: str, runs: Sequence[Run]) -> str:
    results = [run.result for run in runs if run.result]
    seeds = len({run.settings["seed"] for run in runs})
    counts = {cell.seeds for series in summarise(runs) for cell in series.cells}
    kinds = []
    if max(counts) > 1:
        kinds.append(f"mean over {seeds} seeds ± half the width of its 95 % Student-t interval, for fixed test records")
    if min(counts) == 1:
        kinds.append("in brackets the 95 % Clopper–Pearson interval of a single seed")
    noisy = any(result["epsilon"] != "inf" for result in results)
    names = ("clients", "partition", *(("delta", "adjacency", "unit") if noisy else ()))
    federated = [result for result in results if not is_centralised(result)] or results
    conditions = [f"{name} {_number(value)}" for name in names if (value := _common(federated, name)) is not None]
    return f"Accuracy (%) on the held-out records of {dataset}: {'; '.join(kinds)} ({', '.join(conditions)})."


def _common(results: Sequence[Mapping[str, Any]], name: str) -> Any:
    """The one value that all results have, or None."""
    values = {result[name] for result in results if result[name] is not None}
    return values.pop() if len(values) == 1 else None


def _number(value: Any) -> str:
    return f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)


def _flat(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result without nested values."""
    flat = {name: value for name, value in result.items() if not isinstance(value, (dict, list))}
    if result:
        flat["accuracy_low"], flat["accuracy_high"] = result["accuracy_interval"]
        flat |= {f"seconds_{name}": value for name, value in result["seconds"].items()}
        flat["notes"] = "; ".join(result.get("notes", ()))
    return flat
