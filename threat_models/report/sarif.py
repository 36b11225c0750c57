"""The report as SARIF 2.1.0 (OASIS, 2020): a rule for each attack, a result for each attack by each adversary."""

from __future__ import annotations

from hashlib import sha256
from os import fsencode
from typing import Any
from urllib.parse import quote

from threat_models.findings import Finding, Verdict
from threat_models.report.content import CONTROL, SESSION_RULES, AuditReport, GateLine, Outcome, worst
from threat_models.report.json_report import encode, measure_content, provenance_content
from threat_models.report.text import to_line

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def as_sarif(report: AuditReport, version: str) -> str:
    """One run of the auditor in `version`.

    A finding is judged by its gate lines, without a gate by its verdict. An attack that succeeds where the gate lets it
    is informational, and so is the control without protection; what is waived is a suppressed failure. Fingerprints are
    of rule and adversary: those of one result stay the same from run to run.
    """
    rules: list[dict[str, Any]] = [
        {"id": note.name, "shortDescription": _text(note.title), "help": _text(note.paper)} for note in report.attacks
    ]
    rules += [{"id": name, "shortDescription": _text(title)} for name, title in SESSION_RULES.items()]
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "secagg audit", "version": version, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": _results(report, [rule["id"] for rule in rules]),
        "properties": {
            "headline": report.headline(),
            "promise": report.promise.sentence,
            "seed": report.seed,
            "multiplicity": report.comparisons.sentence(),
            "provenance": provenance_content(report),
        },
    }
    if report.subject.transcripts:
        run["artifacts"] = [
            {"location": {"uri": quote(fsencode(name))}, "hashes": {"sha-256": digest}}
            for name, digest in report.subject.transcripts
        ]
    if report.gate is not None:
        run["invocations"] = [{"executionSuccessful": True, "exitCode": report.gate.exit_code}]
    return encode({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _results(report: AuditReport, rules: list[str]) -> list[dict[str, Any]]:
    lines: dict[tuple[str, str], list[GateLine]] = {}
    for line in report.gate.lines if report.gate else ():
        lines.setdefault((line.attack, line.adversary), []).append(line)
    results = []
    for finding in report.findings:
        drawn = tuple(lines.pop((finding.attack, finding.adversary), ()))
        kind = _kind(finding, drawn)
        result = _result(rules, finding.attack, finding.adversary, kind, finding.sentence, drawn)
        result["properties"]["verdict"] = str(finding.verdict)
        result["properties"]["measures"] = [measure_content(measure) for measure in finding.measures]
        results.append(result)
    for (attack, adversary), rest in lines.items():
        drawn = tuple(rest)
        kind = {Outcome.FAIL: "fail", Outcome.INCONCLUSIVE: "review", Outcome.PASS: "pass"}[worst(drawn)]
        sentence = " ".join(line.sentence for line in drawn)
        results.append(_result(rules, attack, adversary, "fail" if _waivers(drawn) else kind, sentence, drawn))
    if report.subject.transcripts:
        for result in results:
            result["locations"][0]["physicalLocation"] = {"artifactLocation": {"index": 0, "uri": _first(report)}}
    return results


def _first(report: AuditReport) -> str:
    return quote(fsencode(report.subject.transcripts[0][0]))


def _kind(finding: Finding, lines: tuple[GateLine, ...]) -> str:
    """What SARIF calls a result (3.27.9): pass, fail, review, informational or notApplicable."""
    if finding.verdict is Verdict.NOT_APPLICABLE:
        return "notApplicable"
    if finding.adversary == CONTROL and worst(lines) is Outcome.PASS and not _waivers(lines):
        return "informational"
    if not lines:
        return {Verdict.SUCCEEDS: "fail", Verdict.FAILS: "pass"}.get(finding.verdict, "review")
    if _waivers(lines) or worst(lines) is Outcome.FAIL:
        return "fail"
    if worst(lines) is Outcome.INCONCLUSIVE:
        return "review"
    return "informational" if finding.verdict is Verdict.SUCCEEDS else "pass"


def _waivers(lines: tuple[GateLine, ...]) -> list[str]:
    return [line.waiver for line in lines if line.waiver]


def _result(
    rules: list[str], attack: str, adversary: str, kind: str, sentence: str, lines: tuple[GateLine, ...]
) -> dict[str, Any]:
    """One result; its level is "error" where it fails, else "none" as the standard demands (3.27.10)."""
    result: dict[str, Any] = {
        "ruleId": attack,
        "kind": kind,
        "level": "error" if kind == "fail" else "none",
        "message": _text(f"{adversary or 'The sum itself'}: {sentence}"),
        "locations": [{"logicalLocations": [{"name": to_line(adversary or "session"), "kind": "module"}]}],
        "partialFingerprints": {"secaggAudit/v1": sha256(f"{attack}\n{adversary}".encode()).hexdigest()},
        "properties": {"adversary": adversary, "gate": [line.sentence for line in lines]},
    }
    if attack in rules:
        result["ruleIndex"] = rules.index(attack)
    if (waivers := _waivers(lines)) and worst(lines) is Outcome.PASS:
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": "; ".join(waivers)}]
    return result


def _text(text: str) -> dict[str, str]:
    return {"text": to_line(text)}
