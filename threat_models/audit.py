"""Runs the attacks that apply to each adversary, on what that adversary sees and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from threat_models.adversary import FIELDS, Adversary
from threat_models.attacks import ATTACKS, Attack
from threat_models.comparisons import Comparisons
from threat_models.findings import Finding, Verdict
from threat_models.report.content import SEEN, Examination
from threat_models.report.gate import Gate, Rule
from threat_models.session import Knowledge, Session
from threat_models.statement import ONE_RUN_LEVEL, RESERVED
from threat_models.views import has, missing_from, view_of

MOST_MEASURES = 64
"""No attack has more measures of one view."""
Steps = Callable[[str, int, int], None]
"""Told (what is being done, steps done, steps in all)."""


def planned(gate: Gate, adversaries: Sequence[Adversary], *, one_run: bool = False) -> Comparisons:
    """On how many confidence limits the gate's decisions rest at most; what it tolerates is none of them.

    `one_run`: there are canaries, whose bound has a level of its own.
    """
    judged = [
        _limits(ATTACKS[attack], gate.rules_for(attack, adversary.name))
        for adversary in adversaries
        for attack in adversary.attacks
        if attack in ATTACKS
    ]
    return Comparisons(sum(judged), RESERVED + one_run * ONE_RUN_LEVEL)


def _limits(attack: Attack, rules: tuple[Rule, ...]) -> int:
    """How many limits these rules may judge; few measures have a ceiling, but a pattern may fit all that there are."""
    if all(rule.tolerated for rule in rules):
        return 0
    is_wide = any("*" in rule.measure and "ceiling" not in (rule.at_most, rule.at_least) for rule in rules)
    return max(attack.limits, len(rules), MOST_MEASURES if is_wide else 0)


def examine(adversary: Adversary, sessions: Sequence[Session], knowledge: Knowledge, told: Steps) -> Examination:
    """Run an adversary's attacks on the sessions that it saw, in order. Active ones are not run here."""
    views = tuple(view_of(session, adversary) for session in sessions[: adversary.sessions])
    sees = tuple(name for name in FIELDS if hasattr(views[0], name))
    findings = []
    for name in adversary.attacks:
        attack = ATTACKS.get(name)
        if attack is None:
            continue
        lacking = [need for need in attack.needs if not has(views[0], (need,))]
        if lacking or len(views) < attack.sessions:
            unseen = [SEEN[need] for need in lacking if need in SEEN] or ["a sum that holds " + " and ".join(lacking)]
            why = f"It does not see {', '.join(unseen)}." if lacking else f"It takes {attack.sessions} sessions."
            finding = Finding(name, adversary.name, Verdict.NOT_APPLICABLE, why)
            findings.append(_told_apart(finding, sessions[0], adversary))
            continue
        if attack.tries_records and not len(knowledge.candidates):
            why = "It takes records that took part and others, which this audit was not given."
            findings.append(Finding(name, adversary.name, Verdict.INCONCLUSIVE, why))
            continue
        title = f"{adversary.title}: {attack.title}"
        found = attack.run(views, knowledge, lambda done, total, title=title: told(title, done, total))  # type: ignore[misc]
        findings.append(_told_apart(replace(found, adversary=adversary.name), sessions[0], adversary))
    return Examination(adversary, sees, tuple(name for name in FIELDS if name not in sees), tuple(findings))


def _told_apart(finding: Finding, session: Session, adversary: Adversary) -> Finding:
    """What is not applicable only because this transcript does not hold what the adversary sees is not known."""
    missing = [SEEN[name] for name in missing_from(session, adversary) if name in ("release", "contributions")]
    if finding.verdict is not Verdict.NOT_APPLICABLE or not missing:
        return finding
    held = f"This transcript does not hold {' and '.join(missing)}, which {adversary.name} sees."
    return replace(finding, verdict=Verdict.INCONCLUSIVE, sentence=f"{finding.sentence} {held}")
