"""Judge a report by a pass/fail gate: one line for each thing that is judged, with the figures that decided."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date

from threat_models.adversary import adversary_named
from threat_models.attacks.membership.noise_check import NOISE
from threat_models.findings import Finding, Measure, Verdict
from threat_models.report.content import CONTROL, AuditReport, GateLine, GateOutcome, GateResult, WaiverInForce
from threat_models.report.gate import Gate, Rule, Waiver
from threat_models.report.text import format_number, format_quantity, summarise, with_interval

BY_VERDICT = {
    Verdict.SUCCEEDS: GateOutcome.FAIL,
    Verdict.FAILS: GateOutcome.PASS,
    Verdict.INCONCLUSIVE: GateOutcome.INCONCLUSIVE,
    Verdict.NOT_APPLICABLE: GateOutcome.PASS,
}
UNWAIVABLE = "The waiver for this has no effect: less noise than promised cannot be waived."


def judge(gate: Gate, report: AuditReport, today: date) -> GateResult:
    """Judge everything in a report by a pass/fail gate; waivers count up to and including their last day.

    An expired waiver is a line that fails. What was declared but not run is inconclusive, and so are an adversary of
    whom no attack tells anything and a report without any finding. No waiver lets less noise than promised pass.
    """
    lines = [GateLine("inputs", "", GateOutcome.INCONCLUSIVE, doubt) for doubt in report.subject.doubts]
    lines += _judge_session(gate, report)
    lines += _judge_records(gate, report)
    lines += _judge_promise(gate, report)
    lines += _judge_unread(report)
    lines += _judge_adversaries(gate, report)
    if not report.findings:
        lines.append(GateLine("audit", "", GateOutcome.INCONCLUSIVE, "No attack was run."))
    # A claim or noise that does not hold shows less noise than promised, as does more than ε allows.
    fails, broken = GateOutcome.FAIL, ("promise", "noise")
    lines = [
        replace(each, breaks_promise=each.outcome is fails and (each.breaks_promise or each.attack in broken))
        for each in lines
    ]
    waived = [_waive(gate, line, today) for line in lines]
    in_force = tuple(_count_waived(waiver, lines) for waiver in gate.waivers if today <= waiver.expires)
    for each in gate.waivers:
        if today > each.expires:
            sentence = f"The waiver for this ({each.reason}) expired on {each.expires.isoformat()}."
            waived.append(GateLine(each.attack, each.adversary, GateOutcome.FAIL, sentence))
    return GateResult(tuple(waived), gate.sha256, today.isoformat(), in_force)


def _judge_session(gate: Gate, report: AuditReport) -> Iterator[GateLine]:
    """Judge the uploads' protection, and whether anybody vouches that the transcripts are the consortium's."""
    found = report.subject.protection
    if found in gate.protections:
        yield GateLine("protection", "", GateOutcome.PASS, f"Uploads are protected ({found}).")
    else:
        sentence = f'The protection is "{found}"; the gate allows {", ".join(gate.protections)}.'
        yield GateLine("protection", "", GateOutcome.FAIL, sentence)
    for each in report.subject.provenance:
        outcome = GateOutcome.INCONCLUSIVE if each.has_doubts else GateOutcome.PASS
        yield GateLine("transcript", "", outcome, f"{each.transcript}: {each.verdict}; {each.proves}.")


def _judge_records(gate: Gate, report: AuditReport) -> Iterator[GateLine]:
    """Judge the size of a sum without noise: with few records per dimension B shows much of each record."""
    if math.isfinite(report.promise.claimed):
        return
    records, dimension = report.subject.records, report.subject.dimension
    if records is None:
        why = "How many records the exact sum holds is neither in it nor given (--records)."
        yield GateLine("records", "", GateOutcome.INCONCLUSIVE, why)
        return
    least = math.ceil(gate.records_per_dimension * dimension)
    facts = f"The exact sum holds {records:,} records of {dimension:,} dimensions; the gate asks for {least:,}."
    if records >= least:
        yield GateLine("records", "", GateOutcome.PASS, facts)
        return
    figures = [
        f"{adversary_named(finding.adversary).title}: "
        + ", ".join(f"{measure.label} {with_interval(measure)}" for measure in finding.measures)
        for finding in report.findings
        if finding.attack == "unmixing" and finding.measures
    ]
    unmixed = f" Unmixing by {'; by '.join(figures)}." if figures else ""
    yield GateLine("records", "", GateOutcome.FAIL, facts + unmixed)


def _judge_promise(gate: Gate, report: AuditReport) -> Iterator[GateLine]:
    """Judge the claimed ε by the auditor's own computation and by the measured lower bounds."""
    promise = report.promise
    if (drawn := promise.drawn) is not None:
        yield from (GateLine("promise", "", GateOutcome.FAIL, flaw) for flaw in drawn.flaws)
        yield GateLine("promise", "", GateOutcome.FAIL if drawn.flaws else GateOutcome.PASS, drawn.sentence)
    if math.isinf(promise.claimed):
        sentence = "No finite epsilon is claimed: nothing is promised of a record."
        yield GateLine("promise", "", GateOutcome.PASS, sentence)
        return
    outcome = GateOutcome.PASS if promise.agrees else GateOutcome.FAIL
    claims = f"Claimed epsilon {format_number(promise.claimed)}, recomputed {format_number(promise.recomputed)}."
    yield GateLine("promise", "", outcome, claims)
    if promise.measured is None and gate.measured:
        yield GateLine("promise", "", GateOutcome.INCONCLUSIVE, "The accounting was not checked on re-releases.")
    noise = promise.session_noise
    if noise is not None and noise.is_short:
        yield GateLine("noise", "", GateOutcome.FAIL, noise.sentence)
    elif gate.measured:
        sentence = noise.sentence if noise is not None else "The noise of this session is not known."
        is_enough = noise is not None and noise.is_enough
        yield GateLine("noise", "", GateOutcome.PASS if is_enough else GateOutcome.INCONCLUSIVE, sentence)
    for bound in filter(None, (promise.measured, promise.one_run)):
        outcome = GateOutcome.PASS if bound.is_enough else GateOutcome.INCONCLUSIVE
        outcome = GateOutcome.FAIL if bound.disproves(promise.claimed) else outcome
        yield GateLine("promise", "", outcome, bound.sentence)


def _judge_unread(report: AuditReport) -> Iterator[GateLine]:
    """Judge blocks of an exact sum that no attack reads, or reads only in part; a finite ε covers them."""
    if math.isfinite(report.promise.claimed):
        return
    if unread := ", ".join(report.subject.unread).replace("_", " "):
        why = f"No attack here reads these blocks of the exact sum: {unread}. What they tell is not known."
        yield GateLine("audit", "", GateOutcome.INCONCLUSIVE, why)
    if half := ", ".join(report.subject.half_read).replace("_", " "):
        told = report.subject.tells
        why = f"Of these blocks of the exact sum attacks read {told}: {half}. What else they tell is not known."
        yield GateLine("audit", "", GateOutcome.INCONCLUSIVE, why)


def _judge_adversaries(gate: Gate, report: AuditReport) -> Iterator[GateLine]:
    """Judge all findings; add lines for attacks not run, adversaries not asked, and those without a conclusive one."""
    for one in report.examinations:
        who, ran = one.adversary.name, {finding.attack for finding in one.findings}
        for finding in one.findings:
            yield from _judge_finding(gate, report, finding)
        missing = [attack for attack in one.adversary.attacks if attack not in ran]
        yield from (GateLine(attack, who, GateOutcome.INCONCLUSIVE, "It was not run.") for attack in missing)
        tried = [finding for finding in one.findings if finding.verdict is not Verdict.NOT_APPLICABLE]
        rules = [(each, gate.rules_for(each.attack, each.adversary)) for each in tried]
        judged = [each for each, its in rules if not any(rule.tolerated for rule in its)] or tried
        if who != CONTROL and judged and all(each.verdict is Verdict.INCONCLUSIVE for each in judged):
            yield GateLine("audit", who, GateOutcome.INCONCLUSIVE, "No attack of this adversary tells anything.")
    asked = {one.adversary.name for one in report.examinations}
    for name in gate.adversaries:
        if name not in asked:
            why = f"The gate asks what the {adversary_named(name).title} learns: --threat-model {name} was not given."
            yield GateLine("audit", name, GateOutcome.INCONCLUSIVE, why)


def _judge_finding(gate: Gate, report: AuditReport, finding: Finding) -> Iterator[GateLine]:
    if finding.verdict is Verdict.NOT_APPLICABLE:
        yield GateLine(finding.attack, finding.adversary, GateOutcome.PASS, f"Not applicable: {finding.sentence}")
        return
    rules = gate.rules_for(finding.attack, finding.adversary)
    is_silent = finding.verdict is Verdict.INCONCLUSIVE and not (finding.measures or finding.controls)
    if gate.controls and not is_silent and (finding.controls or not all(rule.tolerated for rule in rules)):
        yield from _judge_controls(finding)
    measured = [line for rule in rules if rule.measure for line in _judge_measures(rule, report, finding)]
    plain = tuple(rule for rule in rules if not rule.measure)
    is_required = bool(finding.unseen) or any(rule.required for rule in rules)
    is_open = finding.verdict is Verdict.INCONCLUSIVE and is_required
    is_unbound = any(_is_void(rule, report) for rule in rules)
    if not plain and (is_open or is_unbound or not measured):  # rules that judged nothing, or not all, replace none
        plain = (Rule(finding.attack, ""),)
    lines = (*measured, *(_judge_verdict(rule, finding) for rule in plain))
    is_short = any(each.metric.id == NOISE.id and each.high < 1 for each in finding.measures)
    yield from (replace(line, breaks_promise=True) if is_short else line for line in lines)


def _judge_verdict(rule: Rule, finding: Finding) -> GateLine:
    is_let = rule.tolerated or (finding.verdict is Verdict.INCONCLUSIVE and not rule.required)
    outcome = GateOutcome.PASS if is_let else BY_VERDICT[finding.verdict]
    tolerated = f" (tolerated: {rule.reason})" if rule.tolerated else ""
    figures = f" ({summary})" if outcome is GateOutcome.FAIL and (summary := summarise(finding)) else ""
    did = "is inconclusive" if finding.verdict is Verdict.INCONCLUSIVE else str(finding.verdict)
    sentence = f"The attack {did}{tolerated}: {finding.sentence}{figures}"
    return GateLine(finding.attack, finding.adversary, outcome, sentence)


def _judge_controls(finding: Finding) -> Iterator[GateLine]:
    """Judge a finding's controls: a line for each kind that is missing, and for each that did not behave."""
    kinds = {control.expected for control in finding.controls}
    for expected, word in ((True, "positive"), (False, "negative")):
        if expected not in kinds:
            yield GateLine(finding.attack, finding.adversary, GateOutcome.INCONCLUSIVE, f"It has no {word} control.")
    for control in finding.controls:
        if not control.holds:
            did = "succeeded and must not" if control.succeeded else "did not succeed and must"
            sentence = f"The control {control.name!r} {did}."
            yield GateLine(finding.attack, finding.adversary, GateOutcome.INCONCLUSIVE, sentence)


def _judge_measures(rule: Rule, report: AuditReport, finding: Finding) -> Iterator[GateLine]:
    """Judge each measure that the rule names; where none can be judged, yield one line that says so.

    A name of several metrics passes over measures that have no such threshold or no interval; an id does not. A ceiling
    that nobody promised draws no line where there is something that it would have bounded, or where the verdict says
    that there is not.
    """
    named = [measure for measure in finding.measures if rule.judges(measure.metric)]
    is_told = finding.verdict is Verdict.INCONCLUSIVE or any(not math.isnan(each.low + each.high) for each in named)
    if _is_void(rule, report) and is_told:
        return
    judged = [(measure, threshold) for measure in named if (threshold := _threshold(rule, measure)) is not None]
    if any(measure.metric.id != rule.measure for measure in named):
        judged = [pair for pair in judged if not math.isnan(pair[0].low + pair[0].high)]
    for measure, threshold in judged:
        yield _judge_measure(rule, finding, measure, threshold)
    if not judged and not rule.optional:
        what = "measure" if rule.names_several else repr(rule.measure)
        against = f"its {rule.limit}" if isinstance(rule.limit, str) else f"{rule.limit:g}"
        sentence = f"There is no {what} to hold against {against}. {finding.sentence}".strip()
        yield GateLine(finding.attack, finding.adversary, GateOutcome.INCONCLUSIVE, sentence)


def _threshold(rule: Rule, measure: Measure) -> float | None:
    limit = rule.limit
    base = {"baseline": measure.baseline, "ceiling": measure.ceiling}[limit] if isinstance(limit, str) else limit
    return None if base is None else base + (rule.margin if rule.at_most is not None else -rule.margin)


def _judge_measure(rule: Rule, finding: Finding, measure: Measure, threshold: float) -> GateLine:
    sign = 1 if rule.at_most is not None else -1
    low, high = sorted((sign * measure.low, sign * measure.high))
    if math.isnan(low + high):
        outcome, word = GateOutcome.INCONCLUSIVE, "cannot be told against"
    elif high <= sign * threshold:
        outcome, word = GateOutcome.PASS, "keeps"
    elif low > sign * threshold:
        outcome, word = GateOutcome.FAIL, "breaks"
    else:
        outcome, word = rule.unclear, "is not shown to break or keep"
    asked = f"{'at most' if sign == 1 else 'at least'} {format_quantity(threshold, measure.metric.unit)}"
    asked += f" ({rule.limit})" if rule.limit != threshold else ""
    sentence = f"{measure.label}: {with_interval(measure)}, {word} {asked}."
    return GateLine(finding.attack, finding.adversary, outcome, sentence, breaks_promise=rule.limit == "ceiling")


def _is_void(rule: Rule, report: AuditReport) -> bool:
    """Return whether a rule names a ceiling although no ε is claimed; the attack is then judged by its verdict."""
    return rule.limit == "ceiling" and math.isinf(report.promise.claimed)


def _is_of(waiver: Waiver, line: GateLine) -> bool:
    """Return whether a waiver is for this line: its attack, adversary and outcome."""
    outcome = GateOutcome.INCONCLUSIVE if waiver.inconclusive else GateOutcome.FAIL
    return (waiver.attack, waiver.adversary, outcome) == (line.attack, line.adversary, line.outcome)


def _waive(gate: Gate, line: GateLine, today: date) -> GateLine:
    for waiver in gate.waivers:
        if _is_of(waiver, line) and today <= waiver.expires:
            if line.breaks_promise:
                return replace(line, sentence=f"{line.sentence} {UNWAIVABLE}")
            reason = f"{waiver.reason} (until {waiver.expires.isoformat()})"
            return replace(line, outcome=GateOutcome.PASS, waiver=reason, is_untold=waiver.inconclusive)
    return line


def _count_waived(waiver: Waiver, lines: Sequence[GateLine]) -> WaiverInForce:
    own = [line for line in lines if _is_of(waiver, line)]
    void = sum(line.breaks_promise for line in own)
    stated = {**vars(waiver), "expires": waiver.expires.isoformat()}
    return WaiverInForce(**stated, waived=len(own) - void, void=void)
