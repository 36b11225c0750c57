"""The report as one HTML page that needs nothing else: no script, no request, no style but its own."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from threat_models.findings import Finding, Picture, Verdict
from threat_models.report.content import DISCLAIMER, AuditReport, Outcome
from threat_models.report.json_report import as_json
from threat_models.report.png import png
from threat_models.report.svg import curve_svg, interval_svg
from threat_models.report.text import figure, interval, is_bounded, shown

FOLDER = Path(__file__).parent
BADGES: dict[Verdict | Outcome, tuple[str, str]] = {
    Verdict.SUCCEEDS: ("bad", "✕ attack succeeds"),
    Verdict.FAILS: ("good", "✓ attack fails"),
    Verdict.INCONCLUSIVE: ("unclear", "? inconclusive"),
    Verdict.NOT_APPLICABLE: ("none", "– not applicable"),
    Outcome.PASS: ("good", "✓ pass"),
    Outcome.FAIL: ("bad", "✕ fail"),
    Outcome.INCONCLUSIVE: ("unclear", "? inconclusive"),
}
"""Class and words of every verdict; the words alone must do on a grey print."""


def as_html(report: AuditReport) -> str:
    """The page. Everything in it that came from data is escaped, and what cannot be printed is spelt out."""
    allowed = _allowed(report)
    style = (FOLDER / "page.css").read_text(encoding="utf-8")
    return (
        _environment()
        .get_template("page.html")
        .render(
            report=report,
            style=Markup(style),  # noqa: S704 (our own file)
            style_sha256=b64encode(sha256(style.encode()).digest()).decode(),
            attacks=_in_order(report, report.findings),
            compared=_in_order(report, [finding for level in report.levels for finding in level.findings]),
            allowed=allowed,
            let_pass=[finding for finding in report.findings if allowed(finding)],
            levels=[(level.name, {finding.attack: finding for finding in level.findings}) for level in report.levels],
            side_by_side=_side_by_side(report),
            disclaimer=DISCLAIMER,
            json_sha256=sha256(as_json(report).encode()).hexdigest(),
        )
    )


def _environment() -> Environment:
    """Escapes by itself, fails on a name that is not there, and cleans every text that the template prints."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"curve": curve_svg, "whisker": interval_svg, "interval": interval, "figure": figure, "image": _image}
    environment.filters.update(filters)
    environment.tests["bounded"] = is_bounded
    environment.globals["badges"] = BADGES
    return environment


def _clean(value: object) -> object:
    return value if isinstance(value, Markup) else shown(str(value))


def _image(picture: NDArray[np.uint8]) -> Markup:
    return Markup("data:image/png;base64,{}").format(b64encode(png(picture)).decode())


def _allowed(report: AuditReport) -> Callable[[Finding], bool]:
    """Tells of a finding whether its attack succeeds and the gate lets it, by a rule or a waiver."""
    lines = report.gate.lines if report.gate else ()
    stopped = {(line.attack, line.adversary) for line in lines if line.outcome is not Outcome.PASS}

    def allowed(finding: Finding) -> bool:
        is_stopped = (finding.attack, finding.adversary) in stopped
        return finding.verdict is Verdict.SUCCEEDS and bool(lines) and not is_stopped

    return allowed


def _in_order(report: AuditReport, findings: Iterable[Finding]) -> list[str]:
    """The attacks of some findings, in the report's order."""
    names = {finding.attack for finding in findings}
    return [note.name for note in report.attacks if note.name in names]


def _side_by_side(report: AuditReport) -> list[tuple[str, list[tuple[str, Picture]]]]:
    """Of each attack that made pictures of the levels of protection, those pictures by level."""
    findings = [finding for level in report.levels for finding in level.findings if finding.pictures]
    return [
        (
            report.note(attack).title,
            [
                (level.name, picture)
                for level in report.levels
                for finding in level.findings
                if finding.attack == attack
                for picture in finding.pictures
            ],
        )
        for attack in _in_order(report, findings)
    ]
