"""The report for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from threat_models.findings import Finding, Verdict
from threat_models.report.content import CONTROL, AuditReport, GateLine, Outcome
from threat_models.report.text import summarise, to_line

CONTROL_WORDS = {
    Verdict.SUCCEEDS: "control: succeeds, as it must",
    Verdict.FAILS: "control: fails even unprotected",
    Verdict.INCONCLUSIVE: "control: inconclusive",
}
"""What the control without protection did. Where it fails, so does the attack on what is protected: not its merit."""


def as_text(report: AuditReport) -> str:
    """Verdict first, then what did not pass, each finding, and who signed; nothing that a terminal would act on."""
    return "".join(f"{to_line(line)}\n" for line in _lines(report))


def _lines(report: AuditReport) -> Iterator[str]:
    gate = report.gate
    yield f"{report.title}: {f'gate {gate.outcome.upper()}' if gate else 'no gate was applied'}"
    yield f"{report.headline()} {report.allowance()}".strip()
    yield report.promise.sentence
    if (one_run := report.promise.one_run) is not None:
        yield f"{one_run.sentence} {one_run.power}"
    for line in gate.lines if gate else ():
        if line.outcome is not Outcome.PASS:
            yield f"{line.outcome.upper()} {_name_line(line)}: {line.sentence}"
        elif line.waiver:
            yield f"WAIVED {_name_line(line)}: {line.sentence} {line.waiver}"
    if (drawn := report.promise.drawn) is not None:
        yield f"{drawn.sentence} {drawn.power}"
    for each in report.subject.inputs:
        digest = f", SHA-256 {each.sha256}" if each.sha256 else ""
        yield f"{each.role} {each.name}: {each.records} records{digest}"
    if idle := _idle_control(report):
        yield f"{CONTROL}: {verdict_of(idle)}. {idle.sentence}"
    for finding in report.findings:
        if idle and finding.adversary == CONTROL:
            continue
        yield f"{finding.adversary}, {finding.attack}: {verdict_of(finding)}. {finding.sentence}"
        if summary := summarise(finding):
            yield f"  {summary}"
    for proved in report.subject.provenance:
        roster = f"roster SHA-256 {proved.roster_sha256}, signed by:"
        yield f"{proved.transcript}: {proved.verdict}; {proved.proves}; {roster}"
        yield from (f"  {name}  {identity}" for name, identity in proved.signers.items())
    yield report.comparisons.sentence()


def _idle_control(report: AuditReport) -> Finding | None:
    """One finding of the control that stands for all, where none of its attacks had anything to work on."""
    found = [finding for finding in report.findings if finding.adversary == CONTROL]
    is_idle = found and all(each.verdict is Verdict.NOT_APPLICABLE for each in found)
    return found[0] if is_idle else None


def verdict_of(finding: Finding) -> str:
    """What came of an attack, in words; the control without protection has words of its own."""
    if finding.verdict is Verdict.NOT_APPLICABLE:
        return "not applicable"
    if finding.adversary == CONTROL:
        return CONTROL_WORDS[finding.verdict]
    return "inconclusive" if finding.verdict is Verdict.INCONCLUSIVE else f"attack {finding.verdict}"


def _name_line(line: GateLine) -> str:
    return f"{line.attack} by {line.adversary}" if line.adversary else line.attack
