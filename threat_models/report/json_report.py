"""The report as JSON: `audit.schema.json` says what is where; equal reports give equal bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from threat_models.findings import Curve, Finding, Measure, Picture
from threat_models.multiplicity import FAMILY, Comparisons
from threat_models.report.content import (
    Against,
    AuditReport,
    Cover,
    DrawnNoise,
    Examination,
    GateResult,
    Input,
    LowerBound,
    Promise,
    State,
)
from threat_models.report.session_noise import SessionNoise
from threat_models.report.text import good_of

FORMAT = "secagg-audit/3"
SCHEMA = Path(__file__).parent / "audit.schema.json"


def as_json(report: AuditReport) -> str:
    """The whole report but for the pixels of its pictures, which are there as size and digest.

    Infinite numbers are "inf" and "-inf", those that the data do not support null. Nothing but printable ASCII.
    """
    return encode(as_content(report))


def as_content(report: AuditReport) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "format": FORMAT,
        "title": report.title,
        "headline": report.headline(),
        "subject": {
            "protection": report.subject.protection,
            "records": report.subject.records,
            "is_noisy": report.subject.is_noisy,
            "inputs": [_input(each) for each in report.subject.inputs],
            "doubts": list(report.subject.doubts),
            "dimension": report.subject.dimension,
            "transcripts": [{"name": name, "sha256": digest} for name, digest in report.subject.transcripts],
            "provenance": provenance_content(report),
            "settings": dict(report.subject.settings),
        },
        "promise": _promise(report.promise),
        "state": str(report.state),
        "cover": _cover(report.cover),
        "against": report.against and _against(report.against),
        "attacks": [asdict(note) for note in report.notes],
        "adversaries": [_examination(report, one) for one in report.examinations],
        "levels": [
            {"name": level.name, "findings": [_finding(finding) for finding in level.findings]}
            for level in report.levels
        ],
        "power": list(report.power),
        "multiplicity": _comparisons(report.comparisons),
        "limits": list(report.limits),
        "environment": dict(report.environment),
        "seed": report.seed,
        "gate": None if report.gate is None else _gate(report, report.gate),
    }


def provenance_content(report: AuditReport) -> list[dict[str, Any]]:
    """What verification said of each transcript: verdict, what it proves, roster, signers and their identity keys."""
    return [
        {
            "transcript": each.transcript,
            "verdict": each.verdict,
            "proves": each.proves,
            "roster_sha256": each.roster_sha256,
            "vouched_by": each.vouched_by or None,
            "signers": dict(each.signers),
        }
        for each in report.subject.provenance
    ]


def waivers_content(report: AuditReport) -> list[dict[str, Any]]:
    """The gate's waivers that have not expired, and what each does in this audit."""
    return [asdict(each) | {"effect": each.effect} for each in report.gate.waivers] if report.gate else []


def encode(content: Mapping[str, Any]) -> str:
    """Write canonical JSON: sorted keys, one space of indent, printable ASCII, a line break at the end."""
    text = json.dumps(content, sort_keys=True, indent=1, ensure_ascii=True, allow_nan=False)
    return text.replace("\x7f", "\\u007f") + "\n"


def number(value: float | None) -> float | str | None:
    """A number as JSON can say it: "inf" and "-inf" as words, None for what is not a number."""
    if value is None or math.isnan(value):
        return None
    return float(value) if math.isfinite(value) else str(float(value))


def measure_content(measure: Measure) -> dict[str, Any]:
    """One measure: the id of its metric, what it is of, label, unit, limits, method, and what would be good."""
    return {
        "id": measure.metric.id,
        "of": measure.of,
        "label": measure.label,
        "unit": measure.metric.unit,
        "good": good_of(measure),
        "method": measure.method,
        "value": number(measure.value),
        "low": number(measure.low),
        "high": number(measure.high),
        "baseline": number(measure.baseline),
        "ceiling": number(measure.ceiling),
    }


def _input(brought: Input) -> dict[str, Any]:
    return {
        "role": brought.role,
        "name": brought.name,
        "sha256": brought.sha256 or None,
        "records": brought.records,
    }


def _comparisons(comparisons: Comparisons) -> dict[str, Any]:
    return {
        "method": "Bonferroni",
        "comparisons": comparisons.count,
        "family_level": FAMILY,
        "level": comparisons.level,
        "sentence": comparisons.sentence(),
    }


def _promise(promise: Promise) -> dict[str, Any]:
    return {
        "sentence": promise.sentence,
        "claimed": number(promise.claimed),
        "recomputed": number(promise.recomputed),
        "recomputed_by": promise.recomputed_by,
        "agrees": promise.agrees,
        "disproved": promise.disproved,
        "delta": promise.delta,
        "unit": promise.unit,
        "adjacency": promise.adjacency,
        "measured": promise.measured and _bound(promise.measured),
        "one_run": promise.one_run and _bound(promise.one_run),
        "drawn": promise.drawn and _drawn(promise.drawn),
        "session_noise": promise.session_noise and _session_noise(promise.session_noise),
    }


def _session_noise(noise: SessionNoise) -> dict[str, Any]:
    return {
        "noise_variance": number(noise.ratio),
        "low": number(noise.low),
        "high": number(noise.high),
        "entries": noise.entries,
        "source": noise.source,
        "sentence": noise.sentence,
        "is_short": noise.is_short,
        "is_enough": noise.is_enough,
    }


def _drawn(drawn: DrawnNoise) -> dict[str, Any]:
    return {
        "sentence": drawn.sentence,
        "power": drawn.power,
        "flaws": list(drawn.flaws),
        "places": [
            {"name": name, "noise_variance": number(ratio), "entries": entries} for name, ratio, entries in drawn.places
        ],
    }


def _bound(bound: LowerBound) -> dict[str, Any]:
    return {
        "lower": number(bound.lower),
        "method": bound.method,
        "sentence": bound.sentence,
        "power": bound.power,
        "refuted": bound.refuted,
        "curve": bound.curve and _curve(bound.curve),
    }


def _cover(cover: Cover) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(cover).items()}


def _against(against: Against) -> dict[str, Any]:
    return {
        "name": against.name,
        "sha256": against.sha256,
        "date": against.date,
        "same": against.same,
        "notes": list(against.notes),
        "changes": [asdict(each) | {"change": str(each.change)} for each in against.changes],
    }


def _examination(report: AuditReport, one: Examination) -> dict[str, Any]:
    adversary = one.adversary
    return {
        "name": adversary.name,
        "title": adversary.title,
        "who": adversary.who,
        "sees": list(one.sees),
        "lacks": list(one.lacks),
        "knows": list(adversary.knows),
        "powers": list(adversary.powers),
        "out_of_scope": list(adversary.out_of_scope),
        "residual_risk": adversary.residual_risk,
        "findings": [
            _finding(finding) | {"state": _word(report.state_of(finding)), "counts": report.counts(finding)}
            for finding in one.findings
        ],
    }


def _word(state: State | None) -> str | None:
    return None if state is None else str(state)


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "attack": finding.attack,
        "adversary": finding.adversary,
        "verdict": str(finding.verdict),
        "sentence": finding.sentence,
        "headline": None if finding.leading is None else finding.measures.index(finding.leading),
        "measures": [measure_content(measure) for measure in finding.measures],
        "curves": [_curve(curve) for curve in finding.curves],
        "pictures": [_picture(picture) for picture in finding.pictures],
        "controls": [
            {"name": c.name, "expected": c.expected, "succeeded": c.succeeded, "holds": c.holds}
            for c in finding.controls
        ],
    }


def _curve(curve: Curve) -> dict[str, Any]:
    def line(values: tuple[float, ...]) -> list[float | str | None]:
        return [number(value) for value in values]

    return {
        "title": curve.title,
        "x_label": curve.x_label,
        "y_label": curve.y_label,
        "logarithmic": curve.logarithmic,
        "series": [
            {"name": s.name, "x": line(s.x), "y": line(s.y), "low": line(s.low), "high": line(s.high)}
            for s in curve.series
        ],
    }


def _picture(picture: Picture) -> dict[str, Any]:
    rows = [
        [{"shape": list(image.shape), "sha256": sha256(image.tobytes()).hexdigest()} for image in row]
        for row in picture.rows
    ]
    return {"title": picture.title, "columns": list(picture.columns), "rows": rows}


def _gate(report: AuditReport, gate: GateResult) -> dict[str, Any]:
    return {
        "outcome": str(gate.outcome),
        "exit_code": gate.exit_code,
        "sha256": gate.gate_sha256,
        "today": gate.today,
        "waivers": waivers_content(report),
        "lines": [
            {
                "attack": line.attack,
                "adversary": line.adversary,
                "outcome": str(line.outcome),
                "sentence": line.sentence,
                "waiver": line.waiver,
                "breaks_promise": line.breaks_promise,
                "state": str(report.state_of_line(line)) if line in report.session_lines else None,
            }
            for line in gate.lines
        ],
    }
