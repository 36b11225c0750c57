"""Make text that came from data safe to show, and format measures for people to read."""

from __future__ import annotations

import math

from threat_models.findings import REFUSED, SHARE, Finding, Measure

LONGEST = 2_000
"""Most characters of one text that are shown."""


def to_line(text: str) -> str:
    r"""Make one line of a text; unprintable characters (controls, escapes, direction marks) become \uXXXX.

    All white space becomes spaces; what is longer than LONGEST is cut, with an ellipsis.
    """
    line = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return "".join(each if each.isprintable() else " " if each.isspace() else f"\\u{ord(each):04x}" for each in line)


def format_number(value: float) -> str:
    """Write a number with four significant digits; "∞", and "not supported" for NaN."""
    if math.isnan(value):
        return "not supported"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == round(value) and abs(value) < 1e15:
        return f"{round(value):,}"
    return f"{value:.4g}".replace("-", "−")


def format_quantity(value: float, unit: str) -> str:
    """Write a number in a unit: shares as "98.2 %", a refused or accepted cheat (1 or 0) in words."""
    if math.isnan(value):
        return format_number(value)
    if unit == REFUSED:
        return "refused" if value == 1 else "not refused"
    if unit == SHARE:
        return f"{format_number(float(f'{100 * value:.3g}'))} %"
    return f"{format_number(value)} {unit}".rstrip()


def with_interval(measure: Measure) -> str:
    """Write a measure's value in its unit and, where there are any, its limits: "0.52 (0.49 to 0.55)"."""
    value = format_quantity(measure.value, measure.metric.unit)
    return f"{value} ({limits(measure)})" if is_bounded(measure) else value


def limits(measure: Measure) -> str:
    """Write the limits of a measure, with the unit once: "98.2 to 100 %"."""
    unit = measure.metric.unit
    low, high = format_quantity(measure.low, unit), format_quantity(measure.high, unit)
    return f"{low.removesuffix(unit).rstrip() if unit else low} to {high}"


def is_bounded(measure: Measure) -> bool:
    """Return whether a measure has an interval: it has none if it is exact, or if the data do not support one."""
    return measure.has_interval and not math.isnan(measure.low + measure.high)


def good_of(measure: Measure) -> str:
    """Return, as text, the value that a measure would have if nothing leaked; "" where that is not known."""
    unit = measure.metric.unit
    beside = {"baseline": measure.baseline, "ceiling": measure.ceiling}
    known = {name: format_quantity(value, unit) for name, value in beside.items() if value is not None}
    try:
        return measure.metric.good.format(**known)
    except KeyError:
        return ""


def summarise(finding: Finding) -> str:
    """Return a finding's main measure as text: label, value, interval, value without a leak, and bound by ε; or ""."""
    measure = finding.leading
    if measure is None:
        return ""
    summary = f"{measure.label}: {with_interval(measure)}"
    if good := good_of(measure):
        summary += f"; good: {good}"
    if measure.ceiling is not None and "{ceiling}" not in measure.metric.good:
        summary += f"; epsilon allows {format_quantity(measure.ceiling, measure.metric.unit)}"
    return summary
