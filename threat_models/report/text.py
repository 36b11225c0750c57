"""Text that came from data made safe to show, and numbers as people read them."""

from __future__ import annotations

import math

from threat_models.findings import Measure

LONGEST = 2_000
"""Characters of one text that are shown."""


def shown(text: str) -> str:
    r"""One line: what cannot be printed (controls, terminal escapes, marks that turn the writing) as \uXXXX.

    All white space becomes spaces; what is longer than LONGEST is cut, with an ellipsis.
    """
    line = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return "".join(map(_letter, line))


def _letter(letter: str) -> str:
    if letter.isprintable():
        return letter
    return " " if letter.isspace() else f"\\u{ord(letter):04x}"


def figure(value: float) -> str:
    """A number with four significant digits; "∞", and "not supported" for what is no number."""
    if math.isnan(value):
        return "not supported"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == round(value) and abs(value) < 1e15:
        return f"{round(value):,}"
    return f"{value:.4g}".replace("-", "−")


def interval(measure: Measure) -> str:
    """A measure's value and, where there are any, its limits: "0.52 (0.49 to 0.55)"."""
    value = figure(measure.value)
    return f"{value} ({figure(measure.low)} to {figure(measure.high)})" if is_bounded(measure) else value


def is_bounded(measure: Measure) -> bool:
    """Whether a measure has an interval."""
    return measure.method != "none" and not math.isnan(measure.low + measure.high)


def cell(text: str) -> str:
    """One cell of a table for a spreadsheet, which would take =, +, -, @ at its start for a formula (CWE-1236)."""
    line = shown(text)
    return f"'{line}" if line.lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠")) else line
