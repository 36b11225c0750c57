"""The audit report as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from threat_models.findings import Finding, Verdict
from threat_models.report.content import CONTROL, AuditReport, GateOutcome, GateResult
from threat_models.report.first_page import name_uncounted, verdict_in_words
from threat_models.report.text import summarise, to_line

CONTROL_WORDS = {
    Verdict.SUCCEEDS: "control: broken, as it must be",
    Verdict.FAILS: "control: withstood even unprotected",
    Verdict.INCONCLUSIVE: "control: could not tell",
}
"""Verdicts of the control without protection in words; an attack that it withstands is no merit of a protection."""


def as_text(report: AuditReport) -> str:
    """Return the report as text without control characters: verdict, what did not pass, findings, and who signed."""
    return "".join(f"{to_line(line)}\n" for line in _lines(report))


def _lines(report: AuditReport) -> Iterator[str]:
    gate = report.gate
    yield f"{report.title}: {f'gate {gate.outcome.upper()}' if gate else 'no gate was applied'}"
    verdict = f"{str(report.state).capitalize()}: {verdict_in_words(report)}."
    yield f"{verdict} {report.headline()} {name_uncounted(report)}".strip()
    yield report.promise.sentence
    if (one_run := report.promise.one_run) is not None:
        yield f"{one_run.sentence} {one_run.power}"
    yield from _gate_lines(gate) if gate else ()
    if (noise := report.promise.session_noise) is not None:
        yield noise.sentence
    if (drawn := report.promise.drawn) is not None:
        yield f"{drawn.sentence} {drawn.power}"
    if (against := report.against) is not None:
        yield f"Since the audit of {against.date}: {len(against.changes)} changed, {against.same} as they were."
        for change in against.changes:
            who = f" by {change.adversary}" if change.adversary else ""
            yield f"  {change.change}: {change.title}{who}: {change.before} → {change.after}"
        yield from (f"  {note}" for note in against.notes)
    for each in report.subject.inputs:
        digest = f", SHA-256 {each.sha256}" if each.sha256 else ""
        yield f"{each.role} {each.name}: {each.records} records{digest}"
    found = [finding for finding in report.findings if finding.adversary == CONTROL]
    is_idle = all(each.verdict is Verdict.NOT_APPLICABLE for each in found)
    if found and is_idle:  # one stands for all
        yield f"{CONTROL}: {verdict_of(found[0])}. {found[0].sentence}"
    told = [finding for finding in report.findings if not (is_idle and finding.adversary == CONTROL)]
    for finding, names in _grouped(told):
        state = report.state_of(finding) or verdict_of(finding)
        yield f"{finding.adversary}, {', '.join(names)}: {state}. {finding.sentence}"
        if summary := summarise(finding):
            yield f"  {summary}"
    known: object = None
    for proved in report.subject.provenance:
        signers = proved.roster_sha256, dict(proved.signers)
        named = "signed by the same" if signers == known else f"roster SHA-256 {proved.roster_sha256}, signed by:"
        yield f"{proved.transcript}: {proved.verdict}; {proved.proves}; {named}"
        yield from (f"  {name}  {identity}" for name, identity in proved.signers.items() if signers != known)
        known = signers
    yield report.comparisons.sentence()


def _gate_lines(gate: GateResult) -> Iterator[str]:
    """Yield lines that did not pass, and those waived; attacks of one adversary with the same sentence share a line."""
    said: dict[tuple[str, str, str], list[str]] = {}
    for line in gate.lines:
        if line.outcome is not GateOutcome.PASS:
            said.setdefault((line.outcome.upper(), line.adversary, line.sentence), []).append(line.attack)
        elif line.waiver:
            said.setdefault(("WAIVED", line.adversary, f"{line.sentence} {line.waiver}"), []).append(line.attack)
    for (word, adversary, sentence), attacks in said.items():
        yield f"{word} {', '.join(attacks)}{f' by {adversary}' if adversary else ''}: {sentence}"
    for each in gate.waivers:
        who = f" by {each.adversary}" if each.adversary else ""
        yield f"waiver in force until {each.expires} for {each.attack}{who}: {each.reason}; it {each.effect}"


def _grouped(findings: Sequence[Finding]) -> Iterator[tuple[Finding, list[str]]]:
    """Yield findings; those without figures and with the same sentence by one adversary come once, with all attacks."""
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        own = finding.attack if finding.measures else ""
        alike.setdefault((finding.adversary, finding.verdict, finding.sentence, own), []).append(finding)
    for group in alike.values():
        yield group[0], [finding.attack for finding in group]


def verdict_of(finding: Finding) -> str:
    """Return the verdict in words on an attack that does not apply, or else on the unprotected control."""
    return "nothing to work on" if finding.verdict is Verdict.NOT_APPLICABLE else CONTROL_WORDS[finding.verdict]
