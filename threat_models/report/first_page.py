"""Rows of a report's first page: the meaning and remedy of everything that was not withstood, the worst first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from threat_models.report.content import SESSION_REMEDIES, SESSION_RULES, AuditReport, GateOutcome, SessionState
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
class _PageRow:
    """One or more attacks in one state: their titles, the adversaries, the meaning with figures, and the remedy."""

    state: SessionState
    titles: tuple[str, ...]
    adversaries: tuple[str, ...]
    meaning: str
    figures: str
    remedy: str


def verdict_in_words(report: AuditReport) -> str:
    """Return the gate's verdict in words, and whether a waiver made it pass; without a gate, that none was applied."""
    if report.gate is None:
        return "no gate was applied"
    is_waived = report.gate.outcome is GateOutcome.PASS and any(each.waived for each in report.gate.waivers)
    return VERDICTS[report.gate.outcome] + (" by waiver" if is_waived else "")


def name_uncounted(report: AuditReport) -> str:
    """Return a sentence that names undecided attacks that the gate does not require; "" if there are none."""
    untold = (each for each in report.findings if report.state_of(each) is SessionState.UNTOLD)
    titles = dict.fromkeys(report.note(each.attack).title for each in untold if not report.counts(each))
    return f"The gate does not require these, which could not tell: {'; '.join(titles)}." if titles else ""


def rows_of(report: AuditReport) -> tuple[_PageRow, ...]:
    """Return rows on all that was not withstood, equal ones merged; those that the gate does not require are last."""
    rows: dict[tuple[object, ...], _PageRow] = {}
    for row in (*_of_noise(report), *_of_session(report), *_of_findings(report)):
        key = row.state, row.meaning, row.remedy, row.titles if row.figures else ()
        first = rows.setdefault(key, row)
        titles = tuple(dict.fromkeys((*first.titles, *row.titles)))
        who = tuple(dict.fromkeys((*first.adversaries, *row.adversaries)))
        rows[key] = replace(first, titles=titles, adversaries=who)
    return tuple(sorted(rows.values(), key=lambda row: (row.remedy == NOT_REQUIRED, -row.state.rank)))


def withstood(report: AuditReport) -> tuple[str, ...]:
    """Return the titles of attacks that failed for every adversary that tried them."""
    states: dict[str, set[SessionState]] = {}
    for finding in report.findings:
        if (state := report.state_of(finding)) is not None:
            states.setdefault(report.note(finding.attack).title, set()).add(state)
    return tuple(title for title, found in states.items() if found == {SessionState.WITHSTOOD})


def _of_noise(report: AuditReport) -> Iterator[_PageRow]:
    """Yield one row for all lines that show less noise than claimed, which concerns every attack."""
    lines = report.short_lines
    own = [line for line in lines if line.attack in SESSION_RULES]
    told = dict.fromkeys(line.sentence for line in own or lines)
    if lines:
        yield _PageRow(SessionState.BROKEN, (LESS_NOISE,), (), " ".join(told), "", _remedy_of_noise(report))


def _remedy_of_noise(report: AuditReport) -> str:
    """Return the remedy for less noise than claimed: the plan, the session or the simulation is at fault."""
    promise = report.promise
    if not promise.agrees or (promise.measured and promise.measured.disproves(promise.claimed)):
        return PLAN_AT_FAULT
    return SESSION_AT_FAULT if report.subject.transcripts else SIMULATION_AT_FAULT


def _of_session(report: AuditReport) -> Iterator[_PageRow]:
    """Yield rows of the gate's lines about the sum itself, and about what was not run."""
    names = {one.adversary.name: one.adversary.title for one in report.examinations}
    for line in report.session_lines:
        state = report.state_of_line(line)
        is_repeated = line.attack == "audit" and line.adversary in names  # its findings have rows of their own
        if state is not SessionState.WITHSTOOD and not is_repeated and not line.breaks_promise:
            who = (names.get(line.adversary, line.adversary),) if line.adversary else ()
            remedy = SESSION_REMEDIES.get(line.attack, SESSION_REMEDIES["audit"])
            title = SESSION_RULES.get(line.attack) or report.note(line.attack).title
            if line.attack == "promise" and state is SessionState.ALLOWED and not line.waiver:
                title = "No promise about any one record"
            yield _PageRow(state, (title,), who, line.sentence, line.waiver, remedy)


def _of_findings(report: AuditReport) -> Iterator[_PageRow]:
    for one in report.examinations:
        for finding in one.findings:
            state = report.state_of(finding)
            if state is None or state is SessionState.WITHSTOOD:
                continue
            note, figures = report.note(finding.attack), summarise(finding)
            meaning, remedy = note.meaning or finding.sentence, note.remedy
            if state is SessionState.UNTOLD and not figures:
                meaning, remedy = finding.sentence, UNTIL_TOLD
            elif state is SessionState.UNTOLD:
                meaning, remedy = f"{TOO_LITTLE}{_small(meaning)}", f"Bring more evidence. What helps: {_small(remedy)}"
            elif state is SessionState.ALLOWED:
                remedy = f"{DECIDE}{_small(remedy)}" if remedy else ""
            elif "epsilon" in remedy and report.short_lines:
                remedy = NOISE_FIRST
            remedy = remedy if report.counts(finding) else NOT_REQUIRED
            yield _PageRow(state, (note.title,), (one.adversary.title,), meaning, figures, remedy)


def _small(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"
