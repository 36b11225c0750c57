"""What a demo says at its end: one screen of what was built, what the server saw, and what an audit says of that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from secagg.cli.console import percent, two_columns
from secagg.cli.processes import Stage
from secagg.encoding import Kind
from secagg.experiments.outcome import in_the_sum
from secagg.experiments.reference import is_pooled
from secagg.heads import Evaluation
from secagg.session import RoundSetup
from secagg.session.staging import vector_path

if TYPE_CHECKING:
    from threat_models.findings import Finding
    from threat_models.report.content import AuditReport


def audit_sentence(report: AuditReport, *, can_promise: bool = True) -> str:
    """What the audit comes to, and what was to be expected; `can_promise`: a demo of this plan takes a finite ε."""
    from threat_models.findings import Verdict

    found = {verdict: [each for each in report.findings if each.verdict is verdict] for verdict in Verdict}
    won, open_ = found[Verdict.SUCCEEDS], len(found[Verdict.INCONCLUSIVE])
    titles = dict.fromkeys(report.note(each.attack).title for each in won)
    named = f" ({'; '.join(titles)}{_within(report, won)})" if won else ""
    worked = len(report.findings) - len(found[Verdict.NOT_APPLICABLE])
    tried = f"of {worked} attacks that can work on it {len(won)} succeed{'s' if len(won) == 1 else ''}{named}"
    tried += f" and {open_} stay{'s' if open_ == 1 else ''} inconclusive"
    if math.isinf(report.promise.claimed):
        unsure = open_ or report.subject.unread or report.subject.half_read
        none = "and these attacks cannot tell" if unsure else "though these attacks find no use for it"
        expected = "as expected" if won else none
        advice = " --epsilon 4 adds a promise." if can_promise else ""
        return f"An exact sum promises nothing about a record, {expected}: {tried}.{advice}"
    verdict = f"; the default gate says: {report.gate.outcome}" if report.gate is not None else ""
    return f"The sum promises epsilon {report.promise.claimed:g}: {tried}{verdict}."


def _within(report: AuditReport, won: Sequence[Finding]) -> str:
    """That successes are no more than the promise allows, where there is one and the gate faults none of them."""
    lines = report.gate.lines if report.gate is not None else ()
    faulted = {(line.attack, line.adversary) for line in lines if line.outcome == "fail"}
    if math.isinf(report.promise.claimed) or any((each.attack, each.adversary) in faulted for each in won):
        return ""
    return f", within what epsilon = {report.promise.claimed:g} allows"


def summary(
    stage: Stage,
    content: dict[str, Any],
    federated: Evaluation,
    pooled: Evaluation,
    first: list[int],
    verified: dict[str, Any],
) -> list[str]:
    """One screen: what was built, what the server saw, what an audit says of that, and where everything lies."""
    setup = RoundSetup.of(stage.plan, stage.roster)
    learned = f"{setup.rounds} sums, the last" if setup.rounds > 1 else "the sum"
    has_counts = setup.sum.layout.blocks[0].kind is Kind.COUNTS
    seen = [
        *([(f"{stage.members[0]}'s counts begin", ", ".join(map(str, first)))] if has_counts else []),
        *([] if stage.plan.cohort else [_received(stage, setup)]),
        ("the server learned", f"{learned} of {content['survivors']} vectors, SHA-256 {content['aggregate_sha256']}"),
        ("its transcript", f"{verified['verdict']}; countersigned by {len(verified['countersigned_by'])} members"),
        ("it proves", verified["proves"]),
    ]
    files = [
        ("the model" if setup.method.traits.shares_one_model else "the head", content["head"]),
        ("the server's transcript", content["transcript"]),
        ("the plan", str(stage.folder / "plan.json")),
        ("the audit's page", content["audit"]),
        ("this and more", str(stage.folder / "report.json")),
    ]
    return [
        "\n" + two_columns("What was built", _built(stage, content, federated, pooled)),
        "\n" + two_columns("What the server saw", seen),
        f"\nAn audit of what it saw\n  {content['audit_says']}",
        "\n" + two_columns("Files", files),
    ]


def _built(stage: Stage, content: dict[str, Any], federated: Evaluation, pooled: Evaluation) -> list[tuple[str, str]]:
    """The head's accuracy, what it cost, and what is promised."""
    setup = RoundSetup.of(stage.plan, stage.roster)
    claim, cohort = setup.facts.claim, stage.plan.cohort
    more = f"{setup.rounds - 1} round{'s' if setup.rounds > 2 else ''} more"
    rounds = f", and {more}" if setup.rounds > 1 else ""
    promised = "infinite: no noise, the exact sum is opened"
    if claim is not None:
        promised = f"{claim.epsilon:g} (delta {claim.delta:g}, {claim.unit}, {claim.adjacency})"
    size = f"{setup.sum.layout.length} integers of {setup.context.ring.bits} bits{rounds}"
    return [
        ("accuracy on held-out data", percent(federated)),
        (f"accuracy {'on pooled data' if is_pooled(setup) else 'in one place'}", f"{percent(pooled)}, without noise"),
        ("clients in the sum", in_the_sum(content["survivors"], content["clients"], cohort)),
        ("bytes per client", f"{content['upload_bytes_per_client']} ({size})"),
        ("epsilon", promised),
    ]


def _received(stage: Stage, setup: RoundSetup) -> tuple[str, str]:
    """What stands in the same place of what the first member uploaded, and who got it."""
    receiver = setup.protection.deliveries(setup.context)[0].receiver
    name = stage.roster.name(receiver)
    vector = vector_path(stage.session(name), 1).read_bytes()
    if setup.protection.speaks_once:
        return f"{name} received", f"{vector[:24].hex()}… ({len(vector)} bytes, encrypted)"
    ring = setup.context.ring
    shown = ring.decode(ring.unpack(vector, setup.sum.layout.length)[:4])
    return f"{name} received", ", ".join(str(int(value)) for value in shown)
