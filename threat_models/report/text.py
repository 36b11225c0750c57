"""Text that came from data made safe to show, and numbers as people read them."""

from __future__ import annotations

import math

from threat_models.findings import Measure

LONGEST = 2_000
"""Characters of one text that are shown."""
UNBOUNDED = ("none", "not supported")
"""How the methods of numbers without an interval begin."""


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


def quantity(value: float, unit: str) -> str:
    """A number in a unit: shares as "98.2 %", what was refused or not (1 or 0) in words."""
    if math.isnan(value):
        return figure(value)
    if unit == "refused":
        return "refused" if value == 1 else "not refused"
    return f"{figure(float(f'{100 * value:.3g}'))} %" if unit == "%" else f"{figure(value)} {unit}".rstrip()


def interval(measure: Measure, unit: str = "") -> str:
    """A measure's value and, where there are any, its limits: "0.52 (0.49 to 0.55)"."""
    value = quantity(measure.value, unit)
    if not is_bounded(measure):
        return value
    return f"{value} ({limits(measure, unit)})"


def limits(measure: Measure, unit: str = "") -> str:
    """The limits of a measure, the unit once: "98.2 to 100 %"."""
    low, high = quantity(measure.low, unit), quantity(measure.high, unit)
    return f"{low.removesuffix(unit).rstrip() if unit else low} to {high}"


def is_bounded(measure: Measure) -> bool:
    """Whether a measure has an interval: not where it is exact, or where the data do not support one."""
    if measure.method.startswith(UNBOUNDED) or math.isnan(measure.low + measure.high):
        return False
    return measure.low < measure.high or "%" in measure.method


def cell(text: str) -> str:
    """One cell of a table for a spreadsheet, which would take =, +, -, @ at its start for a formula (CWE-1236)."""
    line = shown(text)
    return f"'{line}" if line.lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠")) else line
