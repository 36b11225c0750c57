"""The report as SARIF 2.1.0 (OASIS, 2020): a rule for each attack, a result for each attack by each adversary."""

from __future__ import annotations

from hashlib import sha256
from os import fsencode
from pathlib import Path
from urllib.parse import quote

from threat_models.adversary import adversary_named
from threat_models.findings import Finding, Verdict
from threat_models.report.content import (
    CONTROL,
    SESSION_REMEDIES,
    SESSION_RULES,
    AuditReport,
    GateLine,
    GateOutcome,
    worst,
)
from threat_models.report.json_report import Content, encode, measure_content, provenance_content, waivers_content
from threat_models.report.text import to_line

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

UNTOLD = "untold"
"""The kind of results that the gate or the verdict leaves open; written as a failure of level "warning"."""


def as_sarif(report: AuditReport, version: str) -> str:
    """Return the report as one SARIF run of the audit tool in the given `version`.

    What could not be told is a failure of level "warning", as viewers pass over what fails nothing; its message begins
    with that. A finding is judged by its gate lines, without a gate by its verdict. An attack that succeeds where the
    gate lets it is informational, and so is the control without protection; what is waived is a suppressed failure.
    Fingerprints are of rule and adversary: those of one result stay the same from run to run.
    """
    rules: list[Content] = [
        {
            "id": note.name,
            "shortDescription": _text(note.title),
            "fullDescription": _text(note.meaning or note.title),
            "help": _text(" ".join(filter(None, (note.meaning, note.remedy, f"After {note.paper}.")))),
        }
        for note in report.notes
    ]
    rules += [
        {"id": name, "shortDescription": _text(title), "help": _text(report.advise(SESSION_REMEDIES[name]))}
        for name, title in SESSION_RULES.items()
    ]
    run: Content = {
        "tool": {"driver": {"name": "secagg audit", "version": version, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": _results(report, [rule["id"] for rule in rules]),
        "properties": {
            "headline": report.headline(),
            "promise": report.promise.sentence,
            "seed": report.seed,
            "multiplicity": report.comparisons.sentence(),
            "provenance": provenance_content(report),
            "waivers": waivers_content(report),
        },
    }
    if report.subject.transcripts:
        named = report.subject.transcripts
        run["artifacts"] = [{"location": _location(name), "hashes": {"sha-256": digest}} for name, digest in named]
    if report.gate is not None:
        run["invocations"] = [{"executionSuccessful": True, "exitCode": report.gate.exit_code}]
    return encode({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _results(report: AuditReport, rules: list[str]) -> list[Content]:
    results = []
    for finding in report.findings:
        drawn = report.lines_of(finding)
        result = _result(rules, finding.attack, finding.adversary, _kind(finding, drawn), finding.sentence, drawn)
        result["properties"]["state"] = report.state_of(finding)
        result["properties"]["verdict"] = str(finding.verdict)
        result["properties"]["measures"] = [measure_content(measure) for measure in finding.measures]
        results.append(result)
    for attack, adversary in dict.fromkeys((line.attack, line.adversary) for line in report.session_lines):
        drawn = tuple(each for each in report.session_lines if (each.attack, each.adversary) == (attack, adversary))
        kind = {GateOutcome.FAIL: "fail", GateOutcome.INCONCLUSIVE: UNTOLD, GateOutcome.PASS: "pass"}[worst(drawn)]
        sentence = " ".join(line.sentence for line in drawn)
        results.append(_result(rules, attack, adversary, _waived_kind(drawn) or kind, sentence, drawn))
    if report.subject.transcripts:
        for result in results:
            first = _location(report.subject.transcripts[0][0])
            result["locations"][0]["physicalLocation"] = {"artifactLocation": {"index": 0, **first}}
    return results


def _location(name: str) -> dict[str, str]:
    """Return a transcript's URI: relative if it is below the working folder, which viewers take for the project's."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        return {"uri": path.resolve().as_uri()}
    return {"uri": quote(fsencode(path.as_posix())), "uriBaseId": "%SRCROOT%"}


def _kind(finding: Finding, lines: tuple[GateLine, ...]) -> str:
    """Return SARIF's kind of a result (3.27.9), or UNTOLD; an inconclusive one that the gate passes is "review"."""
    if finding.verdict is Verdict.NOT_APPLICABLE:
        return "notApplicable"
    if finding.adversary == CONTROL and worst(lines) is GateOutcome.PASS and not _waived_kind(lines):
        return "informational"
    if not lines:
        return {Verdict.SUCCEEDS: "fail", Verdict.FAILS: "pass"}.get(finding.verdict, UNTOLD)
    if worst(lines) is GateOutcome.FAIL:
        return "fail"
    if waived := _waived_kind(lines):
        return waived
    if worst(lines) is GateOutcome.INCONCLUSIVE:
        return UNTOLD
    return {Verdict.SUCCEEDS: "informational", Verdict.INCONCLUSIVE: "review"}.get(finding.verdict, "pass")


def _waived_kind(lines: tuple[GateLine, ...]) -> str:
    """Return the kind of a waived result: "fail", or UNTOLD; "" without a waiver."""
    waived = [line for line in lines if line.waiver]
    return "" if not waived else UNTOLD if all(line.is_untold for line in waived) else "fail"


def _result(
    rules: list[str], attack: str, adversary: str, kind: str, sentence: str, lines: tuple[GateLine, ...]
) -> Content:
    """Make one result; one that fails nothing has the level "none", as the standard demands (3.27.10)."""
    levels = {"fail": "error", UNTOLD: "warning"}
    said = f"Could not tell: {sentence}" if kind == UNTOLD else sentence
    who = adversary_named(adversary).title if adversary else "The sum itself"
    result: Content = {
        "ruleId": attack,
        "kind": "fail" if kind in levels else kind,
        "level": levels.get(kind, "none"),
        "message": _text(f"{who}: {said}"),
        "locations": [{"logicalLocations": [{"name": to_line(adversary or "session"), "kind": "module"}]}],
        "partialFingerprints": {"secaggAudit/v1": sha256(f"{attack}\n{adversary}".encode()).hexdigest()},
        "properties": {"adversary": adversary, "gate": [line.sentence for line in lines]},
    }
    if attack in rules:
        result["ruleIndex"] = rules.index(attack)
    if (waivers := [line.waiver for line in lines if line.waiver]) and worst(lines) is GateOutcome.PASS:
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": "; ".join(waivers)}]
    return result


def _text(text: str) -> dict[str, str]:
    return {"text": to_line(text)}
