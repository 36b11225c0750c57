"""What the first page says: of everything that is not withstood, what it means and what to do, the worst first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from threat_models.findings import Finding
from threat_models.report.content import (
    CONTROL,
    SESSION_REMEDIES,
    SESSION_RULES,
    AuditReport,
    GateLine,
    State,
)
from threat_models.report.text import summarise

UNTIL_TOLD = "Bring what is lacking and audit again; until then, take it for broken."
DECIDE = "Decide whether this may stay allowed; if not: "


@dataclass(frozen=True)
class Row:
    """One or more attacks in one state: their titles, by whom, what that means with its figures, and what to do."""

    state: State
    titles: tuple[str, ...]
    adversaries: tuple[str, ...]
    meaning: str
    figures: str
    remedy: str


def rows_of(report: AuditReport) -> tuple[Row, ...]:
    """Everything that is not withstood; what could not be told for one reason is one row."""
    found = [*_of_session(report), *_of_findings(report)]
    rows: dict[tuple[State, str, tuple[str, ...]], Row] = {}
    for row in found:
        key = row.state, row.meaning, () if row.state is State.UNTOLD else row.titles
        before = rows.get(key)
        rows[key] = row if before is None else _join(before, row)
    return tuple(sorted(rows.values(), key=lambda row: -row.state.rank))


def withstood(report: AuditReport) -> tuple[str, ...]:
    """The titles of attacks that every adversary who was asked about tried in vain."""
    states: dict[str, set[State]] = {}
    for finding in report.findings:
        if (state := report.state_of(finding)) is not None:
            states.setdefault(report.note(finding.attack).title, set()).add(state)
    return tuple(title for title, found in states.items() if found == {State.WITHSTOOD})


def count_idle(report: AuditReport) -> int:
    """How many findings are of attacks that had nothing to work on."""
    return sum(report.state_of(finding) is None and finding.adversary != CONTROL for finding in report.findings)


def _join(one: Row, other: Row) -> Row:
    return replace(
        one,
        titles=tuple(dict.fromkeys((*one.titles, *other.titles))),
        adversaries=tuple(dict.fromkeys((*one.adversaries, *other.adversaries))),
    )


def _of_session(report: AuditReport) -> Iterator[Row]:
    """Rows of the gate's lines about the sum itself, and about what was not run."""
    names = {one.adversary.name: one.adversary.title for one in report.examinations}
    for line in report.session_lines:
        state = report.state_of_line(line)
        if state is not State.WITHSTOOD:
            who = (names.get(line.adversary, line.adversary),) if line.adversary else ()
            yield Row(state, (_title_of(report, line),), who, line.sentence, line.waiver, _remedy_of(line))


def _title_of(report: AuditReport, line: GateLine) -> str:
    if line.attack == "promise" and report.state_of_line(line) is State.ALLOWED and not line.waiver:
        return "No promise about any one record"
    return SESSION_RULES.get(line.attack) or report.note(line.attack).title


def _remedy_of(line: GateLine) -> str:
    return SESSION_REMEDIES.get(line.attack, SESSION_REMEDIES["audit"])


def _of_findings(report: AuditReport) -> Iterator[Row]:
    for one in report.examinations:
        for finding in one.findings:
            state = report.state_of(finding)
            if state is not None and state is not State.WITHSTOOD:
                yield _row(report, finding, state, one.adversary.title)


def _row(report: AuditReport, finding: Finding, state: State, adversary: str) -> Row:
    note = report.note(finding.attack)
    if state is State.UNTOLD:
        return Row(state, (note.title,), (adversary,), _first_sentence(finding.sentence), "", UNTIL_TOLD)
    remedy = note.remedy if state is State.BROKEN else f"{DECIDE}{note.remedy[:1].lower()}{note.remedy[1:]}"
    meaning = note.meaning or finding.sentence
    return Row(state, (note.title,), (adversary,), meaning, summarise(finding), remedy)


def _first_sentence(text: str) -> str:
    first, stop, _ = text.partition(". ")
    return f"{first}." if stop else first
