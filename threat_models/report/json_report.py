"""The report as JSON: `audit.schema.json` describes every field; equal reports give equal bytes."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.wire import plain, plain_fields
from threat_models.estimation.intervals import FAMILY
from threat_models.findings import Finding, Measure
from threat_models.report.content import AuditReport, Examination, GateResult
from threat_models.report.text import good_of

FORMAT = "secagg-audit/3"
Content = dict[str, Any]
"""A report, or a part of it, as plain values that JSON can hold."""
SCHEMA = Path(__file__).parent / "audit.schema.json"


def as_json(report: AuditReport) -> str:
    """Return the report as ASCII JSON: pictures as size and digest, infinity as "inf", unsupported numbers as null."""
    return encode(as_content(report))


def as_content(report: AuditReport) -> Content:
    """Return the content of the JSON report as plain Python values."""
    subject = report.subject
    content = plain_fields(report.promise, "agrees", "disproved")
    if (noise := report.promise.session_noise) is not None:
        content["session_noise"] = plain_fields(noise, "is_short", "is_enough", noise_variance="ratio")
    if (drawn := report.promise.drawn) is not None:
        names = ("name", "noise_variance", "entries")
        content["drawn"]["places"] = [dict(zip(names, place, strict=True)) for place in plain(drawn.places)]
    return {
        "format": FORMAT,
        "title": report.title,
        "headline": report.headline(),
        "subject": plain_fields(subject, without=("unread", "half_read", "tells"))
        | {
            "inputs": [plain_fields(each) | {"sha256": each.sha256 or None} for each in subject.inputs],
            "transcripts": [{"name": name, "sha256": digest} for name, digest in subject.transcripts],
            "provenance": provenance_content(report),
        },
        "promise": content,
        "state": report.state.value,
        "cover": plain(report.cover),
        "against": plain(report.against),
        "attacks": plain(report.notes),
        "adversaries": [_examination(report, one) for one in report.examinations],
        "levels": [
            {"name": level.name, "findings": [_finding(finding) for finding in level.findings]}
            for level in report.levels
        ],
        "power": list(report.power),
        "multiplicity": {
            "method": "Bonferroni",
            "comparisons": report.comparisons.count,
            "family_level": FAMILY,
            "level": report.comparisons.level,
            "sentence": report.comparisons.sentence(),
        },
        "limits": list(report.limits),
        "environment": dict(report.environment),
        "seed": report.seed,
        "gate": None if report.gate is None else _gate(report, report.gate),
    }


def provenance_content(report: AuditReport) -> list[Content]:
    """Return each transcript's verification: verdict, what it proves, roster, signers and their identity keys."""
    return [
        plain_fields(each, without=("has_doubts", "consortium", "clients")) | {"vouched_by": each.vouched_by or None}
        for each in report.subject.provenance
    ]


def waivers_content(report: AuditReport) -> list[Content]:
    """Return the pass/fail gate's waivers that have not expired, and what each does in this audit."""
    return [plain_fields(each, "effect") for each in report.gate.waivers] if report.gate else []


def encode(content: Content) -> str:
    """Write canonical JSON: sorted keys, one space of indent, printable ASCII, a line break at the end."""
    text = json.dumps(content, sort_keys=True, indent=1, ensure_ascii=True, allow_nan=False)
    return text.replace("\x7f", "\\u007f") + "\n"


def measure_content(measure: Measure) -> Content:
    """Return a measure as plain values: metric, object, label, unit, value, limits, method, value without a leak."""
    beside = {"id": measure.metric.id, "unit": measure.metric.unit, "good": good_of(measure)}
    return plain_fields(measure, "label", without=("metric", "has_interval")) | beside


def _examination(report: AuditReport, one: Examination) -> Content:
    hidden = ("opens", "colluders", "is_member", "sessions", "attacks")
    return plain_fields(one.adversary, without=hidden) | {
        "sees": list(one.sees),
        "lacks": list(one.lacks),
        "findings": [
            _finding(finding) | {"state": plain(report.state_of(finding)), "counts": report.counts(finding)}
            for finding in one.findings
        ],
    }


def _finding(finding: Finding) -> Content:
    return plain_fields(finding, without=("unseen", "measures", "pictures", "controls")) | {
        "headline": None if finding.leading is None else finding.measures.index(finding.leading),
        "measures": [measure_content(measure) for measure in finding.measures],
        "pictures": [
            {"title": each.title, "columns": list(each.columns), "rows": [list(map(_image, row)) for row in each.rows]}
            for each in finding.pictures
        ],
        "controls": [plain_fields(control, "holds") for control in finding.controls],
    }


def _image(pixels: NDArray[np.uint8]) -> Content:
    return {"shape": list(pixels.shape), "sha256": sha256(pixels.tobytes()).hexdigest()}


def _gate(report: AuditReport, gate: GateResult) -> Content:
    own = report.session_lines
    return plain_fields(gate, "outcome", "exit_code", sha256="gate_sha256") | {
        "waivers": waivers_content(report),
        "lines": [
            plain_fields(line, without=("is_untold",))
            | {"state": report.state_of_line(line).value if line in own else None}
            for line in gate.lines
        ],
    }
