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
from threat_models.report.gate import Gate
from threat_models.report.summary_facts import ONE_RUN_LEVEL, RESERVED
from threat_models.session import Knowledge, Session
from threat_models.views import View, missing_from, view_of

MOST_MEASURES = 64
"""The most measures that an attack may have of one view."""
APART = {"messages", "uploads", "head"}
"""Fields of a session that are no part of a sum, and of no use in an attack on one."""
SUMS = frozenset({"release", "contributions"})
Steps = Callable[[str, int, int], None]
"""Called with (the running step's name, steps done, steps in all)."""


def plan_comparisons(gate: Gate, adversaries: Sequence[Adversary], *, one_run: bool = False) -> Comparisons:
    """Count the confidence limits that pass/fail rules may judge, except those of tolerated attacks.

    `one_run`: with canaries.
    """
    limits = 0
    for adversary in adversaries:
        for attack in (ATTACKS[name] for name in adversary.attacks if name in ATTACKS):
            rules = gate.rules_for(attack.name, adversary.name)
            # Few measures have a ceiling, but a name may stand for many.
            is_wide = any(rule.measure and rule.names_several and rule.limit != "ceiling" for rule in rules)
            if not all(rule.tolerated for rule in rules):
                limits += max(attack.limits, len(rules), MOST_MEASURES if is_wide else 0)
    return Comparisons(limits, RESERVED + one_run * ONE_RUN_LEVEL)


def examine(adversary: Adversary, sessions: Sequence[Session], knowledge: Knowledge, progress: Steps) -> Examination:
    """Run an adversary's attacks on the sessions that it saw, in order, except for attacks on live parties."""
    seen = sessions[: adversary.sessions]
    views = tuple(view_of(session, adversary) for session in seen)
    sees = views[0].sees
    missing = {name for session in seen for name in missing_from(session, adversary)}
    findings = []
    blocks = tuple(dict.fromkeys(name for view in views for name in unread_in(view)))
    for attack in (ATTACKS[name] for name in adversary.attacks if name in ATTACKS):
        unread = () if attack.weighs_all else tuple(name for name in blocks if name not in attack.needs)
        nothing = _find_nothing(attack, adversary, seen[0], unread)
        if nothing is not None:
            findings.append(nothing)
            continue
        title = f"{adversary.title}: {attack.title}"
        used = set(attack.needs) if attack.needs and set(attack.needs) <= APART else SUMS.union(attack.needs)
        unseen = tuple(name for name in FIELDS if name in used & missing)
        found = _explain_not_run(attack, adversary, seen, views, knowledge, unseen)
        if found is None:
            found = attack.run(views, knowledge, partial(progress, title))
        found = withhold(found, unread)
        found = _withhold_if_unseen(replace(found, adversary=adversary.name, unseen=unseen), seen[0])
        is_in_doubt = bool(knowledge.doubts) and (attack.trusts_owners or attack.tells_members)
        if is_in_doubt and found.verdict is not Verdict.NOT_APPLICABLE:  # inconclusive, and no ceiling holds
            measures = tuple(replace(measure, ceiling=None) for measure in found.measures)
            sentence = f"{found.sentence} {knowledge.doubts[0]}"
            found = replace(found, verdict=Verdict.INCONCLUSIVE, sentence=sentence, measures=measures)
        findings.append(found)
    return Examination(adversary, sees, tuple(name for name in FIELDS if name not in sees), tuple(findings))


def _find_nothing(attack: Attack, adversary: Adversary, session: Session, unread: tuple[str, ...]) -> Finding | None:
    """Return the finding of an attack that the plan, or the adversary's view, gives nothing to work on; else None.

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
    """Return a finding that says why an attack has nothing to work on; None where the attack can be run."""
    if adversary.name == CONTROL and unseen:  # a control is one only where it sees every vector
        return Finding(attack.name, "", Verdict.NOT_APPLICABLE, "")
    is_other = bool(seen[0].role and seen[0].release) and "class_sums" not in seen[0].release
    is_of_classes = not attack.needs or bool({"class_sums", "counts"} & set(attack.needs))
    kinds = sums_of(seen[0].plan) if is_other and is_of_classes else ()
    if any(kind.has(Kind.CLASS_SUMS) and not kind.keeps_state for kind in kinds):
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


def _withhold_if_unseen(finding: Finding, session: Session) -> Finding:
    """Make a finding inconclusive where its attack failed without some of the fields that its adversary sees.

    The control without protection is nobody's view here: where it has not all, it has nothing to say.
    """
    if finding.verdict is Verdict.SUCCEEDS or not finding.unseen:
        return finding
    what = "transcript" if session.role else "simulation"
    held = f"This {what} does not hold {' and '.join(map(SEEN.__getitem__, finding.unseen))}, which"
    sentence = f"{finding.sentence} {held} {finding.adversary} sees.".strip()
    # The control without protection is nobody's view here: where it has not all, it has nothing to say.
    verdict = Verdict.NOT_APPLICABLE if finding.adversary == CONTROL else Verdict.INCONCLUSIVE
    return replace(finding, verdict=verdict, sentence=sentence)
