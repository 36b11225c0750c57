"""Run the attacks that apply to each adversary, on what that adversary sees and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from methods import sums_of
from secagg.encoding import Kind
from threat_models.adversary import FIELDS, Adversary
from threat_models.attacks import ATTACKS, Attack
from threat_models.attacks.targets import unread_in, withhold
from threat_models.estimation.intervals import Comparisons
from threat_models.findings import Finding, Verdict
from threat_models.report.content import CONTROL, SEEN, Examination
from threat_models.report.gate import Gate, Rule
from threat_models.report.summary_facts import ONE_RUN_LEVEL, RESERVED
from threat_models.session import Knowledge, Session
from threat_models.views import View, missing_from, view_of

MOST_MEASURES = 64
"""No attack has more measures of one view."""
APART = {"messages", "uploads", "head"}
"""What is no part of a sum, nor of use against one."""
Steps = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all)."""


def plan_comparisons(gate: Gate, adversaries: Sequence[Adversary], *, one_run: bool = False) -> Comparisons:
    """Count the confidence limits on which the gate's decisions may rest; attacks that it tolerates have none.

    `one_run`: there are canaries, whose bound has a level of its own.
    """
    limits = [
        _count_limits(ATTACKS[attack], gate.rules_for(attack, adversary.name))
        for adversary in adversaries
        for attack in adversary.attacks
        if attack in ATTACKS
    ]
    return Comparisons(sum(limits), RESERVED + one_run * ONE_RUN_LEVEL)


def _count_limits(attack: Attack, rules: tuple[Rule, ...]) -> int:
    """Count the limits that these rules may judge: few measures have a ceiling, but a name may stand for many."""
    if all(rule.tolerated for rule in rules):
        return 0
    is_wide = any(
        rule.measure and rule.names_several and "ceiling" not in (rule.at_most, rule.at_least) for rule in rules
    )
    return max(attack.limits, len(rules), MOST_MEASURES if is_wide else 0)


def examine(adversary: Adversary, sessions: Sequence[Session], knowledge: Knowledge, progress: Steps) -> Examination:
    """Run an adversary's attacks on the sessions that it saw, in order. Active ones are not run here."""
    seen = sessions[: adversary.sessions]
    views = tuple(view_of(session, adversary) for session in seen)
    sees = views[0].sees
    findings = []
    blocks = tuple(dict.fromkeys(name for view in views for name in unread_in(view)))
    for attack in (ATTACKS[name] for name in adversary.attacks if name in ATTACKS):
        unread = () if attack.weighs_all else tuple(name for name in blocks if name not in attack.needs)
        nothing = _find_nothing(attack, adversary, seen[0], unread)
        if nothing is not None:
            findings.append(nothing)
            continue
        title = f"{adversary.title}: {attack.title}"
        unseen = _find_unseen(attack, adversary, seen)
        found = _explain_not_run(attack, adversary, seen, views, knowledge, unseen)
        if found is None:
            found = attack.run(views, knowledge, partial(progress, title))
        found = withhold(found, unread)
        found = _withhold_if_unseen(replace(found, adversary=adversary.name, unseen=unseen), seen[0])
        trusts = attack.trusts_owners or attack.tells_members
        findings.append(_withhold_if_doubted(found, knowledge) if trusts else found)
    return Examination(adversary, sees, tuple(name for name in FIELDS if name not in sees), tuple(findings))


def _find_unseen(attack: Attack, adversary: Adversary, seen: Sequence[Session]) -> tuple[str, ...]:
    """The fields that the adversary sees, that the attack would use, and that these sessions do not hold."""
    used = set(attack.needs) | (set() if attack.needs and set(attack.needs) <= APART else {"release", "contributions"})
    missing = {name for session in seen for name in missing_from(session, adversary)}
    return tuple(name for name in FIELDS if name in used & missing)


def _find_nothing(attack: Attack, adversary: Adversary, session: Session, unread: tuple[str, ...]) -> Finding | None:
    """Find that an attack has nothing to work on by the plan, or by what the adversary sees; None where it may have.

    That kinds of sums are missing is no reason where blocks of unknown kind are seen.
    """
    if adversary.name == CONTROL:
        return None
    opened = session.plan.protection in adversary.opens or adversary.colluders
    closed = {name for name in FIELDS if name not in adversary.sees or (name == "contributions" and not opened)}
    hidden = [SEEN[need] for need in attack.needs if need in closed]
    if why := attack.unsuited(session) or (f"It does not see {', '.join(hidden)}." if hidden else ""):
        return Finding(attack.name, adversary.name, Verdict.NOT_APPLICABLE, why)
    if why := attack.lacks(session):
        return withhold(Finding(attack.name, adversary.name, Verdict.NOT_APPLICABLE, why), unread)
    return None


def _explain_not_run(
    attack: Attack,
    adversary: Adversary,
    seen: Sequence[Session],
    views: Sequence[View],
    knowledge: Knowledge,
    unseen: tuple[str, ...],
) -> Finding | None:
    """The finding of an attack that has nothing to work on, which says why; None where it can be run.

    The control without protection is one only where it sees every vector.
    """
    if adversary.name == CONTROL and unseen:
        return Finding(attack.name, "", Verdict.NOT_APPLICABLE, "")
    if (not attack.needs or {"class_sums", "counts"} & set(attack.needs)) and _is_elsewhere(seen[0]):
        why = "The plan's sum of classes is in the transcript of another of its rounds: give those of all rounds."
        return Finding(attack.name, "", Verdict.INCONCLUSIVE, why)
    weighed = unread_in(views[0]) if attack.weighs_all else ()
    lacking = [need for need in attack.needs if not views[0].has(need) and (need in FIELDS or not weighed)]
    if lacking == ["uploads"] and "uploads" in adversary.sees and not seen[0].role:
        why = "A simulation keeps no uploads: audit a server's transcript for them."
        return Finding(attack.name, "", Verdict.NOT_APPLICABLE, why)
    if lacking:
        names = [SEEN[need] for need in lacking if need in SEEN] or ["a sum that holds " + " and ".join(lacking)]
        why = "" if unseen else f"It does not see {', '.join(names)}."
        return Finding(attack.name, "", Verdict.NOT_APPLICABLE, why)
    if len(views) < attack.sessions:
        why = f"It takes {attack.sessions} sessions, of which this audit was given {len(views)}."
        return Finding(attack.name, "", Verdict.INCONCLUSIVE, why)
    lacks_a_kind = attack.tells_members and len(set(knowledge.is_member.tolist())) < 2
    if lacks_a_kind or (attack.tries_records and not len(knowledge.candidates)):
        why = "It takes records that took part (--known) and others (--public), which this audit was not given."
        return Finding(attack.name, "", Verdict.INCONCLUSIVE, why)
    return None


def _is_elsewhere(session: Session) -> bool:
    """Whether this is the transcript of another round than that of the sum of classes, which its adversary saw too."""
    is_other = bool(session.role and session.release) and "class_sums" not in session.release
    return is_other and any(kind.has(Kind.CLASS_SUMS) and not kind.keeps_state for kind in sums_of(session.plan))


def _withhold_if_unseen(finding: Finding, session: Session) -> Finding:
    """Make a finding inconclusive where the attack, which did not succeed, had not all that its adversary sees.

    The control without protection is nobody's view here: where it has not all, it has nothing to say.
    """
    if finding.verdict is Verdict.SUCCEEDS or not finding.unseen:
        return finding
    what = "transcript" if session.role else "simulation"
    held = f"This {what} does not hold {' and '.join(map(SEEN.__getitem__, finding.unseen))}, which"
    sentence = f"{finding.sentence} {held} {finding.adversary} sees.".strip()
    verdict = Verdict.NOT_APPLICABLE if finding.adversary == CONTROL else Verdict.INCONCLUSIVE
    return replace(finding, verdict=verdict, sentence=sentence)


def _withhold_if_doubted(finding: Finding, knowledge: Knowledge) -> Finding:
    """Make a finding inconclusive, without ceilings, where it is in doubt which records took part."""
    if not knowledge.doubts or finding.verdict is Verdict.NOT_APPLICABLE:
        return finding
    measures = tuple(replace(measure, ceiling=None) for measure in finding.measures)
    sentence = f"{finding.sentence} {knowledge.doubts[0]}"
    return replace(finding, verdict=Verdict.INCONCLUSIVE, sentence=sentence, measures=measures)
