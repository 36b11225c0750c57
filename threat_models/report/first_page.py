"""Rows of the first page: for everything that is not withstood its meaning and remedy, the worst first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from threat_models.findings import Finding
from threat_models.report.content import (
    SESSION_REMEDIES,
    SESSION_RULES,
    AuditReport,
    GateLine,
    GateOutcome,
    SessionState,
)
from threat_models.report.text import summarise

VERDICTS = {
    GateOutcome.PASS: "the gate passes",
    GateOutcome.FAIL: "the gate fails",
    GateOutcome.INCONCLUSIVE: "the gate could not tell",
}
LESS_NOISE = "Less noise than promised"
PLAN_AT_FAULT = (
    "The plan's own noise does not keep its promise: do not use this head, sign no such plan, and make a new one with "
    "an unchanged build."
)
SESSION_AT_FAULT = (
    "A member or aggregator left its noise out, or its code was changed: do not use this head, ask each of them which "
    "build it ran, and make a new plan."
)
SIMULATION_AT_FAULT = (
    "The code that ran is at fault: hold no session with this build, and report it as SECURITY.md says."
)
NOISE_FIRST = f"Do what stands at “{LESS_NOISE}”: with the promised noise this attack is another."
NOT_REQUIRED = "The gate does not require this. To know it, bring more evidence."

UNTIL_TOLD = "Bring what is lacking and audit again; until then, take it for broken."
TOO_LITTLE = "Too little evidence to say. If it works: "
DECIDE = "Decide whether this may stay allowed; if not: "


@dataclass(frozen=True)
class PageRow:
    """One or more attacks in one state: their titles, by whom, what that means with its figures, and what to do."""

    state: SessionState
    titles: tuple[str, ...]
    adversaries: tuple[str, ...]
    meaning: str
    figures: str
    remedy: str


def verdict_in_words(report: AuditReport) -> str:
    """The gate's verdict, and whether it passes by a waiver; without a gate, that none was applied."""
    if report.gate is None:
        return "no gate was applied"
    is_waived = report.gate.outcome is GateOutcome.PASS and any(each.waived for each in report.gate.waivers)
    return VERDICTS[report.gate.outcome] + (" by waiver" if is_waived else "")


def name_uncounted(report: AuditReport) -> str:
    """Name the attacks that could not tell and that the gate does not require; "" where there are none."""
    found = [
        each for each in report.findings if report.state_of(each) is SessionState.UNTOLD and not report.counts(each)
    ]
    titles = dict.fromkeys(report.note(each.attack).title for each in found)
    return f"The gate does not require these, which could not tell: {'; '.join(titles)}." if titles else ""


def rows_of(report: AuditReport) -> tuple[PageRow, ...]:
    """Everything that is not withstood; what is the same of several adversaries is one row, with the first's figures.

    So are attacks that could not be told for one reason. What the gate does not require comes last.
    """
    found = [*_of_noise(report), *_of_session(report), *_of_findings(report)]
    rows: dict[tuple[object, ...], PageRow] = {}
    for row in found:
        key = row.state, row.meaning, row.remedy, row.titles if row.figures else ()
        before = rows.get(key)
        if before is None:
            rows[key] = row
            continue
        titles = tuple(dict.fromkeys((*before.titles, *row.titles)))
        who = tuple(dict.fromkeys((*before.adversaries, *row.adversaries)))
        rows[key] = replace(before, titles=titles, adversaries=who)
    return tuple(sorted(rows.values(), key=lambda row: (row.remedy == NOT_REQUIRED, -row.state.rank)))


def withstood(report: AuditReport) -> tuple[str, ...]:
    """The titles of attacks that every adversary who was asked about tried in vain."""
    states: dict[str, set[SessionState]] = {}
    for finding in report.findings:
        if (state := report.state_of(finding)) is not None:
            states.setdefault(report.note(finding.attack).title, set()).add(state)
    return tuple(title for title, found in states.items() if found == {SessionState.WITHSTOOD})


def _short_lines(report: AuditReport) -> list[GateLine]:
    """The gate's lines that show less noise than promised."""
    return [line for line in report.gate.lines if line.breaks_promise] if report.gate else []


def _of_noise(report: AuditReport) -> Iterator[PageRow]:
    """One row of all lines that show less noise than promised, which concerns every attack."""
    lines = _short_lines(report)
    own = [line for line in lines if line.attack in SESSION_RULES]
    told = dict.fromkeys(line.sentence for line in own or lines)
    if lines:
        yield PageRow(SessionState.BROKEN, (LESS_NOISE,), (), " ".join(told), "", _remedy_of_noise(report))


def _remedy_of_noise(report: AuditReport) -> str:
    """The remedy for less noise than promised, by whose fault it is."""
    promise = report.promise
    if not promise.agrees or (promise.measured and promise.measured.disproves(promise.claimed)):
        return PLAN_AT_FAULT
    return SESSION_AT_FAULT if report.subject.transcripts else SIMULATION_AT_FAULT


def _of_session(report: AuditReport) -> Iterator[PageRow]:
    """Rows of the gate's lines about the sum itself, and about what was not run."""
    names = {one.adversary.name: one.adversary.title for one in report.examinations}
    for line in report.session_lines:
        state = report.state_of_line(line)
        is_repeated = line.attack == "audit" and line.adversary in names  # its findings have rows of their own
        if state is not SessionState.WITHSTOOD and not is_repeated and not line.breaks_promise:
            who = (names.get(line.adversary, line.adversary),) if line.adversary else ()
            remedy = SESSION_REMEDIES.get(line.attack, SESSION_REMEDIES["audit"])
            yield PageRow(state, (_title_of(report, line),), who, line.sentence, line.waiver, remedy)


def _title_of(report: AuditReport, line: GateLine) -> str:
    if line.attack == "promise" and report.state_of_line(line) is SessionState.ALLOWED and not line.waiver:
        return "No promise about any one record"
    return SESSION_RULES.get(line.attack) or report.note(line.attack).title


def _of_findings(report: AuditReport) -> Iterator[PageRow]:
    for one in report.examinations:
        for finding in one.findings:
            state = report.state_of(finding)
            if state is not None and state is not SessionState.WITHSTOOD:
                row = _row(report, finding, state, one.adversary.title)
                yield row if report.counts(finding) else replace(row, remedy=NOT_REQUIRED)


def _row(report: AuditReport, finding: Finding, state: SessionState, adversary: str) -> PageRow:
    note = report.note(finding.attack)
    meaning, remedy, figures = note.meaning or finding.sentence, note.remedy, summarise(finding)
    if state is SessionState.UNTOLD and not figures:
        meaning, remedy = finding.sentence, UNTIL_TOLD
    elif state is SessionState.UNTOLD:
        meaning, remedy = f"{TOO_LITTLE}{_small(meaning)}", f"Bring more evidence. What helps: {_small(remedy)}"
    elif state is SessionState.ALLOWED:
        remedy = f"{DECIDE}{_small(remedy)}" if remedy else ""
    elif "epsilon" in remedy and _short_lines(report):
        remedy = NOISE_FIRST
    return PageRow(state, (note.title,), (adversary,), meaning, figures, remedy)


def _small(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"
