"""The report for a terminal and for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from threat_models.findings import Finding
from threat_models.report.content import AuditReport, GateLine, Outcome
from threat_models.report.json_report import number
from threat_models.report.text import cell, interval, shown

COLUMNS = (
    *("level", "adversary", "attack", "verdict", "measure"),
    *("value", "low", "high", "method", "baseline", "ceiling"),
)


def as_text(report: AuditReport) -> str:
    """Verdict first, then what did not pass, then a line for each finding; nothing that a terminal would act on."""
    return "".join(f"{shown(line)}\n" for line in _lines(report))


def _lines(report: AuditReport) -> Iterator[str]:
    gate = report.gate
    yield f"{report.title}: {f'gate {gate.outcome.upper()}' if gate else 'no gate was applied'}"
    yield report.headline()
    yield report.promise.sentence
    for line in gate.lines if gate else ():
        if line.outcome is not Outcome.PASS:
            yield f"{line.outcome.upper()} {_what(line)}: {line.sentence}"
        elif line.waiver:
            yield f"WAIVED {_what(line)}: {line.sentence} {line.waiver}"
    for finding in report.findings:
        first = f" [{finding.measures[0].name} {interval(finding.measures[0])}]" if finding.measures else ""
        yield f"{finding.adversary}, {finding.attack}: {finding.verdict}{first}"


def _what(line: GateLine) -> str:
    return f"{line.attack} by {line.adversary}" if line.adversary else line.attack


def as_csv(report: AuditReport) -> str:
    """One line for each measure of each finding, those of other levels of protection after the subject's own.

    Text that a spreadsheet would compute starts with an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for finding in report.findings:
        writer.writerows(_rows("", finding))
    for level in report.levels:
        for finding in level.findings:
            writer.writerows(_rows(level.name, finding))
    return text.getvalue()


def _rows(level: str, finding: Finding) -> Iterator[list[object]]:
    head = [cell(part) for part in (level, finding.adversary, finding.attack, finding.verdict)]
    for measure in finding.measures:
        value, low, high, baseline, ceiling = (
            number(part) for part in (measure.value, measure.low, measure.high, measure.baseline, measure.ceiling)
        )
        yield [*head, cell(measure.name), value, low, high, cell(measure.method), baseline, ceiling]
