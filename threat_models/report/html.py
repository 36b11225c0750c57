"""The report as one HTML page that needs no other file: no script, no request, no style but its own."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from secagg.errors import BadInput
from threat_models.findings import REFUSED, SHARE, Finding, Measure, Picture, Verdict
from threat_models.report.content import CONTROL, SEEN, AuditReport, Change, GateLine, GateOutcome, SessionState
from threat_models.report.first_page import name_uncounted, rows_of, verdict_in_words, withstood
from threat_models.report.json_report import as_json
from threat_models.report.summary import verdict_of
from threat_models.report.svg import curve_svg, interval_svg
from threat_models.report.text import format_number, format_quantity, good_of, is_bounded, limits, summarise, to_line

FOLDER = Path(__file__).parent
BADGES: dict[SessionState | GateOutcome | None, tuple[str, str]] = {
    SessionState.WITHSTOOD: ("good", f"✓ {SessionState.WITHSTOOD}"),
    SessionState.ALLOWED: ("allowed", f"◆ {SessionState.ALLOWED}"),
    SessionState.UNTOLD: ("unclear", f"? {SessionState.UNTOLD}"),
    SessionState.BROKEN: ("bad", f"✕ {SessionState.BROKEN}"),
    None: ("none", "– nothing to work on"),
    GateOutcome.PASS: ("good", "✓ pass"),
    GateOutcome.FAIL: ("bad", "✕ fail"),
    GateOutcome.INCONCLUSIVE: ("unclear", "? inconclusive"),
}
"""Style class and words of every state and outcome; sign and words must be enough on a grey print."""
CHANGES = {
    Change.WORSE: ("bad", "▼ worse"),
    Change.LESS_KNOWN: ("unclear", "? less is known"),
    Change.NEW: ("none", "+ new"),
    Change.GONE: ("none", "− gone"),
    Change.BETTER: ("good", "▲ better"),
}
DISCLAIMER = "A lower bound above the claim disproves it. A lower bound below proves nothing."
GRIDS = ("feature_inversion",)
"""Attacks shown as a grid: the same measures at every level of knowledge."""


def as_html(report: AuditReport) -> str:
    """Make the report's HTML page. Everything that came from data is escaped; unprintable characters are spelt out."""
    style = (FOLDER / "page.css").read_text(encoding="utf-8")
    template = _environment().get_template("page.html")
    return template.render(
        report=report,
        style=Markup(style),  # noqa: S704 (our own file)
        style_sha256=b64encode(sha256(style.encode()).digest()).decode(),
        attacks=_in_order(report, report.findings),
        compared=_in_order(report, [finding for level in report.levels for finding in level.findings]),
        rows=rows_of(report),
        withstood=withstood(report),
        verdict=verdict_in_words(report),
        uncounted=name_uncounted(report),
        idle=sum(report.state_of(each) is None and each.adversary != CONTROL for each in report.findings),
        badge=partial(_badge, report),
        level_badge=partial(_badge, replace(report, gate=None)),
        line_badge=_line_badge,
        called={one.adversary.name: one.adversary.title for one in report.examinations},
        levels=[(level.name, {finding.attack: finding for finding in level.findings}) for level in report.levels],
        side_by_side=_side_by_side(report),
        disclaimer=DISCLAIMER,
        json_sha256=sha256(as_json(report).encode()).hexdigest(),
    )


def _environment() -> Environment:
    """Make the template engine: it escapes, fails on unknown names, and cleans every text that the template prints."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else to_line(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "curve": curve_svg,
        "figure": format_number,
        "image": lambda picture: Markup("data:image/png;base64,{}").format(b64encode(png(picture)).decode()),
        "capitalize_first": _capitalise,
        "summed_up": summarise,
    }
    environment.tests["a_number"] = lambda measure: measure.metric.unit != REFUSED
    environment.globals.update({"badges": BADGES, "changed": CHANGES, "row": _row, "grid": _grid, "seen": SEEN})
    return environment


def _capitalise(words: str) -> str:
    """Make the first letter after a leading sign large: "✓ withstood" becomes "✓ Withstood"."""
    sign, _, rest = words.partition(" ")
    return f"{sign} {rest[:1].upper()}{rest[1:]}"


def _row(measure: Measure) -> dict[str, object]:
    """Return a measure's cells in a table, in its unit."""
    unit = measure.metric.unit

    def write(value: float | None) -> str:
        return "–" if value is None else format_quantity(value, unit)

    beside = [value for value in (measure.baseline, measure.ceiling) if value is not None]
    is_drawable = unit in ("", SHARE) and all(0 <= value <= 1 for value in beside)
    return {
        "value": write(measure.value),
        "limits": limits(measure) if is_bounded(measure) else "–",
        "baseline": write(measure.baseline),
        "ceiling": write(measure.ceiling),
        "good": good_of(measure),
        "plot": interval_svg(measure) if is_drawable and is_bounded(measure) else "",
    }


def _grid(finding: Finding) -> dict[str, Any] | None:
    """Return the measures of an attack in GRIDS as a table with a row for each level; None for other attacks."""
    if finding.attack not in GRIDS or not finding.measures:
        return None
    named = {(each.metric.label, each.of): each for each in finding.measures if each.of}
    columns = list(dict.fromkeys(what for what, _ in named))
    return {
        "columns": [(what, next(good_of(named[key]) for key in named if key[0] == what)) for what in columns],
        "rows": [
            (level, [_row(found) if (found := named.get((what, level))) else None for what in columns])
            for level in dict.fromkeys(level for _, level in named)
        ],
        "methods": list(dict.fromkeys(each.method for each in finding.measures)),
    }


def _badge(report: AuditReport, finding: Finding) -> tuple[str, str]:
    """Return style class and words of a finding; those of the control without protection are neutral."""
    if finding.adversary == CONTROL and finding.verdict is not Verdict.NOT_APPLICABLE:
        return "none", verdict_of(finding)
    return BADGES[report.state_of(finding)]


def _line_badge(line: GateLine) -> tuple[str, str]:
    """Return style class and words of a line of the gate."""
    if line.waiver:
        return "allowed", "⚑ waived"
    is_control = line.adversary == CONTROL and line.outcome is GateOutcome.PASS
    return ("none", "– control") if is_control else BADGES[line.outcome]


def _in_order(report: AuditReport, findings: Iterable[Finding]) -> list[str]:
    """Return the attacks of some findings, in the report's order."""
    names = {finding.attack for finding in findings}
    return [note.name for note in report.attacks if note.name in names]


def _side_by_side(report: AuditReport) -> list[tuple[str, list[tuple[str, Picture]]]]:
    """Return, for each attack that made pictures at several levels of protection, its title and those pictures."""
    found: dict[str, list[tuple[str, Picture]]] = {note.name: [] for note in report.attacks}
    for level in report.levels:
        for finding in level.findings:
            found[finding.attack] += [(level.name, picture) for picture in finding.pictures]
    return [(report.note(attack).title, pictures) for attack, pictures in found.items() if pictures]


SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOUR_TYPES = {1: 0, 3: 2}
"""PNG's colour types by number of channels: grey and RGB."""


def png(image: NDArray[np.uint8]) -> bytes:
    """Encode a grey (h, w) or (h, w, 1) or RGB (h, w, 3) uint8 image as PNG (W3C 2025, §5 and §11). Raises BadInput."""
    pixels = image[..., None] if image.ndim == 2 else image
    if image.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in COLOUR_TYPES or not image.size:
        raise BadInput(f"a picture of shape {image.shape} and type {image.dtype} is no 8-bit image")
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, COLOUR_TYPES[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
