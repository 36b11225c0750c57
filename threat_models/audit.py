"""Runs the attacks that apply to each adversary, on what that adversary sees and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from threat_models.adversary import FIELDS, Adversary
from threat_models.attacks import ATTACKS
from threat_models.findings import Finding, Verdict
from threat_models.report.content import Examination
from threat_models.session import Knowledge, Session
from threat_models.views import has, view_of

Steps = Callable[[str, int, int], None]
"""Told (what is being done, steps done, steps in all)."""


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
            why = f"it does not see {', '.join(lacking)}" if lacking else f"it takes {attack.sessions} sessions"
            findings.append(Finding(name, adversary.name, Verdict.NOT_APPLICABLE, f"{attack.title}: {why}."))
            continue
        if attack.tries_records and not len(knowledge.candidates):
            why = "it takes records that took part and others, which this audit was not given"
            findings.append(Finding(name, adversary.name, Verdict.INCONCLUSIVE, f"{attack.title}: {why}."))
            continue
        title = f"{adversary.title}: {attack.title}"
        found = attack.run(views, knowledge, lambda done, total, title=title: told(title, done, total))  # type: ignore[misc]
        findings.append(replace(found, adversary=adversary.name))
    return Examination(adversary, sees, tuple(name for name in FIELDS if name not in sees), tuple(findings))
