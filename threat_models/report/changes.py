"""Compare an audit with an earlier one's JSON report."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from secagg.errors import BadInput
from secagg.system.reading import parse_json
from threat_models.report.content import SESSION_RULES, Against, AuditReport, Change, Changed, SessionState
from threat_models.report.json_report import FORMAT, Content, as_content
from threat_models.report.text import format_number, format_quantity

ORDER = (SessionState.WITHSTOOD, SessionState.UNTOLD, SessionState.ALLOWED, SessionState.BROKEN)
"""States from good to bad when audits are compared: a new success is worse than an attack that could not be judged.

Within one report the worst of several lines is the worst by `SessionState.rank`, as on its page.
"""
BROUGHT = "attack "
"""Prefix of the settings that name an auditor's own attacks, which are no part of the simulated session."""
WRITTEN = "give the file that `secagg audit --json` wrote"
AGAIN = "audit the old transcripts again with this version, and compare with that"
States = dict[tuple[str, str], tuple[str, str, SessionState, str]]
"""The titles of attack and adversary, the state and the leading figure, by the names of attack and adversary."""


def compare(report: AuditReport, path: Path, *, across_sessions: bool = False) -> Against:
    """Compare a report, judged by the gate, with an earlier JSON report; `across_sessions` allows another session's.

    Raises BadInput where the file cannot be read, is no report, is one of another format, or of another session, plan,
    member set or simulation: what changed would be the session, not what is known of it.
    """
    old, digest = _read(path)
    new = as_content(report)
    try:
        others = ", ".join(_other_subject(old, new))
        if others and not across_sessions:
            remedy = "compare audits of one session, or give --across-sessions"
            raise BadInput(f"{path} is an audit of {others}", remedy=remedy)
        before, after = _states_in(old), _states_in(new)
        changes = [*_promise(old, new), *_changes(before, after)]
        notes = ((f"The earlier audit is of {others}.",) if others else ()) + tuple(_notes(old, new))
        date = str(old["cover"]["date"])
    except (AttributeError, KeyError, TypeError, ValueError, IndexError):
        raise BadInput(f"{path} is no whole audit report", remedy=WRITTEN) from None
    same = sum(before[key][2] is after[key][2] for key in set(before) & set(after))
    changes.sort(key=lambda changed: list(Change).index(changed.change))
    return Against(path.name, digest, date, tuple(changes), same, notes)


def _read(path: Path) -> tuple[Content, str]:
    try:
        text = path.read_bytes()
        content = parse_json(text)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}", remedy="give a report that can be read") from None
    except ValueError:
        raise BadInput(f"{path} is no JSON", remedy=WRITTEN) from None
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        what = f"has the format {found!r}" if isinstance(found, str) else "is no audit report"
        raise BadInput(f"{path} {what}; only {FORMAT} can be compared", remedy=AGAIN)
    return content, sha256(text).hexdigest()


def _other_subject(old: Content, new: Content) -> Iterator[str]:
    """Yield how sessions, plans, members or settings differ. Raises KeyError, TypeError for incomplete reports."""
    one, other = old["cover"], new["cover"]
    for name, words in (("sessions", "another session"), ("plans", "another plan")):
        if set(one[name]) != set(other[name]):
            yield f"{words} ({', '.join(str(each)[:16] for each in one[name]) or 'a simulation'})"
    if set(one["members"]) != set(other["members"]):
        yield f"other members ({', '.join(map(str, one['members'])) or 'none recorded'})"
    if not one["plans"] and not other["plans"]:
        before, after = (
            {name: value for name, value in each["subject"]["settings"].items() if not name.startswith(BROUGHT)}
            for each in (old, new)
        )
        changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        if said := [f"{name} {before.get(name, 'not given')}" for name in changed]:
            yield f"another simulation ({', '.join(said)})"


def _states_in(content: Content) -> States:
    """Return the states in a report: of every attack that had something to work on, and of the sum itself."""
    titles = {each["name"]: str(each["title"]) for each in content["attacks"]}
    found: States = {}
    for one in content["adversaries"]:
        for finding in one["findings"]:
            if finding["state"] is not None:
                key = str(finding["attack"]), str(one["name"])
                found[key] = (titles[key[0]], str(one["title"]), SessionState(finding["state"]), _figure(finding))
    who = {one["name"]: str(one["title"]) for one in content["adversaries"]}
    for line in content["gate"]["lines"] if content["gate"] else ():
        key = str(line["attack"]), str(line["adversary"])
        if line["state"] is not None:
            title, state = SESSION_RULES.get(key[0], titles.get(key[0], key[0])), SessionState(line["state"])
            worst = max(state, found[key][2], key=lambda each: each.rank) if key in found else state
            found[key] = (title, who.get(key[1], key[1]), worst, "")
    return found


def _figure(finding: Content) -> str:
    """Write the value that sums a finding up, and its limits; "" for a finding without one."""
    if finding["headline"] is None:
        return ""
    measure = finding["measures"][finding["headline"]]
    numbers = [float("nan") if measure[name] is None else float(measure[name]) for name in ("value", "low", "high")]
    value, low, high = (format_quantity(number, str(measure["unit"])) for number in numbers)
    return value if numbers[1] == numbers[2] else f"{value}, {low} to {high}"


def _changes(before: States, after: States) -> Iterator[Changed]:
    for key in dict.fromkeys((*after, *before)):
        old, new = before.get(key), after.get(key)
        title, who, *_ = new or before[key]
        if old is None or new is None:
            kind = Change.NEW if old is None else Change.GONE
            yield Changed(kind, title, who, _words(old), _words(new))
        elif old[2] is not new[2]:
            yield Changed(_kind(old[2], new[2]), title, who, _words(old), _words(new))


def _kind(old: SessionState, new: SessionState) -> Change:
    if new is SessionState.UNTOLD and old is not SessionState.WITHSTOOD:
        return Change.LESS_KNOWN
    return Change.WORSE if ORDER.index(new) > ORDER.index(old) else Change.BETTER


def _words(told: tuple[str, str, SessionState, str] | None) -> str:
    if told is None:
        return "–"
    return f"{told[2]} ({told[3]})" if told[3] else str(told[2])


def _promise(old: Content, new: Content) -> Iterator[Changed]:
    """Yield how the claimed ε changed; of a claim with another unit, adjacency or δ the old is gone, the new is new."""
    title, (before, after) = "Claimed epsilon", (float(each["promise"]["claimed"]) for each in (old, new))
    if _other_promise(old, new):
        yield Changed(Change.GONE, title, "", _promise_in_words(old), "–")
        yield Changed(Change.NEW, title, "", "–", _promise_in_words(new))
    elif before != after:
        change = Change.WORSE if after > before else Change.BETTER
        yield Changed(change, title, "", format_number(before), format_number(after))


def _other_promise(old: Content, new: Content) -> bool:
    """Return whether both reports hold a finite claim, but of another unit, adjacency or δ."""
    promises = [[each["promise"][name] for name in ("unit", "adjacency", "delta")] for each in (old, new)]
    return promises[0] != promises[1] and "inf" not in (old["promise"]["claimed"], new["promise"]["claimed"])


def _promise_in_words(content: Content) -> str:
    promise = content["promise"]
    epsilon, delta = (format_number(float(promise[name])) for name in ("claimed", "delta"))
    return f"{epsilon} at delta {delta}, {promise['adjacency']}, {promise['unit']} level"


def _notes(old: Content, new: Content) -> Iterator[str]:
    """Yield what makes two reports hard to compare."""
    gates = [each["gate"] and each["gate"]["sha256"] for each in (old, new)]
    if gates[0] != gates[1]:
        yield "The gates differ: what one allows, the other may not."
    if _other_promise(old, new):
        yield "The promises are of another unit, adjacency or delta: their epsilons cannot be compared."
    brought = [[(each["role"], each["sha256"]) for each in content["subject"]["inputs"]] for content in (old, new)]
    if brought[0] != brought[1]:
        yield "The auditors brought other records."
