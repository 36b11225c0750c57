"""Curves and intervals as inline SVG, without script, style or library."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

from threat_models.findings import SHARE, Curve, Measure, Series
from threat_models.report.text import format_number, to_line, with_interval

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM, LEGEND = 560, 300, 64, 12, 16, 46, 20
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07a00", "#4a9cc7")
"""Okabe & Ito's colours (2008), which colour-blind readers can tell apart; the light ones darkened for white paper."""
DASHES = ("none", "8 3", "3 2", "10 3 2 3", "5 5", "1 3")
INK, FAINT, GREY = "#222222", "#e3e3e3", "#555555"
MARKED = 12
"""Number of points up to which a line's points are marked."""


def curve_svg(curve: Curve) -> Markup:
    """Draw a curve with bands for limits, legend below; ceilings dashed black, chance dotted grey. Log axes omit 0."""
    height = HEIGHT + LEGEND * len(curve.series)
    svg = _element("svg", viewBox=f"0 0 {WIDTH} {height}", width=WIDTH, height=height, role="img")
    SubElement(svg, "title").text = to_line(curve.title)
    places = [x for line in curve.series for x in line.x]
    values = [y for line in curve.series for y in (*line.y, *line.low, *line.high)]
    across = Axis.over(places, curve.logarithmic, LEFT, float(WIDTH - LEFT - RIGHT))
    upright = Axis.over(values, curve.logarithmic, HEIGHT - BOTTOM, -float(HEIGHT - TOP - BOTTOM))
    _frame(svg, curve, across, upright)
    for number, line in enumerate(curve.series):
        colour, dash = _look(line.name, number)
        stroke = {"stroke": colour, "stroke_width": "2", "stroke_dasharray": dash}
        _band(svg, line, colour, across, upright)
        points = list(_points(line, line.y, across, upright))
        path = " ".join(f"{x},{y}" for x, y in points)
        svg.append(_element("polyline", points=path, fill="none", **stroke))
        if len(points) <= MARKED:
            svg.extend(_element("circle", cx=x, cy=y, r=3, fill=colour) for x, y in points)
        y = HEIGHT + LEGEND * number + 4
        svg.append(_element("line", x1=LEFT, x2=LEFT + 34, y1=y, y2=y, **stroke))
        svg.append(_label(to_line(line.name), LEFT + 42, y + 4, "start"))
    return _markup(svg)


def interval_svg(measure: Measure) -> Markup:
    """Draw a measure between 0 and 1 with its limits, baseline (grey) and ceiling (black); "" for other measures."""
    marks = [measure.value, measure.low, measure.high]
    if not all(0 <= mark <= 1 for mark in marks):
        return Markup()
    axis = Axis(0.0, 1.0, False, 5.0, 150.0)
    svg = _element("svg", viewBox="0 0 160 18", width=160, height=18, role="img")
    scale = "0 to 100 %" if measure.metric.unit == SHARE else "0 to 1"
    SubElement(svg, "title").text = to_line(f"{measure.label}: {with_interval(measure)}, on a scale from {scale}")
    svg.append(_element("line", x1=5, x2=155, y1=9, y2=9, stroke=FAINT, stroke_width=2))
    value, low, high = (axis.place(mark) for mark in marks)
    svg.append(_element("line", x1=low, x2=high, y1=9, y2=9, stroke=COLOURS[0], stroke_width=4))
    for reference, colour in ((measure.baseline, "#999999"), (measure.ceiling, INK)):
        if reference is not None and not math.isnan(reference):
            at = axis.place(reference)
            svg.append(_element("line", x1=at, x2=at, y1=1, y2=17, stroke=colour, stroke_width=2))
    svg.append(_element("circle", cx=value, cy=9, r=4, fill=COLOURS[0], stroke="#ffffff"))
    return _markup(svg)


def _look(name: str, number: int) -> tuple[str, str]:
    """Return colour and dashes of a line."""
    lower = name.lower()
    if "ceiling" in lower:
        return INK, "7 4"
    if "chance" in lower or "baseline" in lower:
        return GREY, "2 3"
    return COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]


def _frame(svg: Element, curve: Curve, across: Axis, upright: Axis) -> None:
    """Draw the grid, the ticks and the names of the axes."""
    left, right, bottom, top = LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, TOP
    for tick in across.ticks():
        x = across.place(tick)
        svg.append(_element("line", x1=x, x2=x, y1=top, y2=bottom, stroke=FAINT))
        svg.append(_label(_tick(tick), x, bottom + 16))
    for tick in upright.ticks():
        y = upright.place(tick) or 0.0
        svg.append(_element("line", x1=left, x2=right, y1=y, y2=y, stroke=FAINT))
        svg.append(_label(_tick(tick), left - 6, y + 4, "end"))
    svg.append(_element("path", d=f"M{left} {top}V{bottom}H{right}", fill="none", stroke=INK))
    svg.append(_label(to_line(curve.x_label), (left + right) / 2, bottom + 36))
    middle = (top + bottom) / 2
    svg.append(_label(to_line(curve.y_label), 14, middle, transform=f"rotate(-90 14 {middle})"))


def _tick(value: float) -> str:
    return f"{value:.0e}".replace("e-0", "e−") if 0 < value < 1e-3 else format_number(value)


def _points(series: Series, values: tuple[float, ...], across: Axis, upright: Axis) -> Iterator[tuple[float, float]]:
    for x, y in zip(series.x, values, strict=True):
        place = across.place(x), upright.place(y)
        if place[0] is not None and place[1] is not None:
            yield place[0], place[1]


def _band(svg: Element, series: Series, colour: str, across: Axis, upright: Axis) -> None:
    """Draw the area between the limits; on a logarithmic axis a lower limit of 0 is at the bottom."""
    if not series.low or not series.high:
        return
    low = tuple(max(value, upright.low) for value in series.low)
    edge = [*_points(series, series.high, across, upright), *reversed(list(_points(series, low, across, upright)))]
    path = " ".join(f"{x},{y}" for x, y in edge)
    svg.append(_element("polygon", points=path, fill=colour, fill_opacity=0.15))


def _label(text: str, x: float | None, y: float, anchor: str = "middle", **more: str) -> Element:
    label = _element("text", x=x, y=y, text_anchor=anchor, fill=INK, font_size=12, **more)
    label.text = text
    return label


def _element(kind: str, **attributes: object) -> Element:
    return Element(kind, {name.replace("_", "-"): str(value) for name, value in attributes.items()})


def _markup(svg: Element) -> Markup:
    """Mark an element as safe for the page: the serialiser has escaped all text in it."""
    return Markup(tostring(svg, encoding="unicode"))  # noqa: S704


STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
MOST_TICKS = 6


@dataclass(frozen=True)
class Axis:
    """A plot's axis for values from `low` to `high`, drawn from `start` over `length` pixels (negative: upwards)."""

    low: float
    high: float
    logarithmic: bool
    start: float
    length: float

    @classmethod
    def over(cls, values: Iterable[float], logarithmic: bool, start: float, length: float) -> Axis:
        """Make the axis that fits these values: from 0 to 1 for shares, whole decades on a logarithmic axis."""
        found = [value for value in values if math.isfinite(value) and (value > 0 or not logarithmic)]
        low, high = min(found, default=0.1), max(found, default=1.0)
        if logarithmic:
            low, high = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))
            return cls(low, high if high > low else 10 * low, True, start, length)
        if low >= 0 and high <= 1:
            return cls(0.0, 1.0, False, start, length)
        step = _step(high - low or abs(high) or 1.0)
        low, high = math.floor(low / step) * step, math.ceil(high / step) * step
        return cls(low, high if high > low else low + step, False, start, length)

    def place(self, value: float) -> float | None:
        """Return a value's pixel position, clamped to the axis; None for NaN, and for ≤ 0 on a logarithmic axis."""
        if math.isnan(value) or (self.logarithmic and value <= 0):
            return None
        held = min(max(value, self.low), self.high)
        share = (held - self.low) / (self.high - self.low)
        if self.logarithmic:
            share = math.log(held / self.low) / math.log(self.high / self.low)
        return round(self.start + share * self.length, 2)

    def ticks(self) -> list[float]:
        """Return the values to mark on the axis: about MOST_TICKS round ones at most, powers of ten if logarithmic."""
        if self.logarithmic:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            every = math.ceil((last - first) / MOST_TICKS)
            return [10.0**power for power in range(first, last + 1, every)]
        step = _step(self.high - self.low)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(number * step, 12) for number in range(first, last + 1)]


def _step(span: float) -> float:
    """Return the smallest round step that gives at most MOST_TICKS − 1 intervals."""
    least = span / (MOST_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in STEPS if step * power >= least * (1 - 1e-9))
