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
TOO_LITTLE = "Too little evidence to say. If it works: "
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
    """Everything that is not withstood; what is the same of several adversaries is one row, with the first's figures.

    So are attacks that could not be told for one reason.
    """
    found = [*_of_session(report), *_of_findings(report)]
    rows: dict[tuple[State, str, tuple[str, ...]], Row] = {}
    for row in found:
        key = row.state, row.meaning, row.titles if row.figures else ()
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
        is_repeated = line.attack == "audit" and line.adversary in names  # its findings have rows of their own
        if state is not State.WITHSTOOD and not is_repeated:
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
    meaning, remedy, figures = note.meaning or finding.sentence, note.remedy, summarise(finding)
    if state is State.UNTOLD and not figures:
        meaning, remedy = finding.sentence, UNTIL_TOLD
    elif state is State.UNTOLD:
        meaning, remedy = f"{TOO_LITTLE}{_small(meaning)}", f"Bring more evidence. What helps: {_small(remedy)}"
    elif state is State.ALLOWED:
        remedy = f"{DECIDE}{_small(remedy)}" if remedy else ""
    return Row(state, (note.title,), (adversary,), meaning, figures, remedy)


def _small(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"
