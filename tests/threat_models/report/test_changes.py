"""What changed since an earlier audit."""

import json
from dataclasses import replace
from datetime import date
from itertools import permutations

import jsonschema
import pytest

from secagg.errors import BadInput
from tests.threat_models.report import sample
from threat_models.findings import Verdict
from threat_models.report.changes import _changes, _states_in, compare
from threat_models.report.content import Change, Cover, GateLine, GateOutcome, SessionState
from threat_models.report.gate import Gate
from threat_models.report.gate_evaluation import judge
from threat_models.report.html import as_html
from threat_models.report.json_report import SCHEMA, as_content, as_json
from threat_models.report.summary import as_text

LINE = "Unmixing of second moments", "Honest but curious server"


def gated(report):
    """The report with the default gate's lines, and a cover."""
    return replace(report, gate=judge(Gate.read(), report, date(2026, 3, 1)), cover=sample.COVER)


def found(verdict, attack="unmixing"):
    """A report in which one attack came out so."""
    return gated(sample.with_findings(sample.report(), sample.finding(attack, verdict)))


def since(tmp_path, old, new, **choices):
    """What `new` says of `old`."""
    (tmp_path / "old.json").write_text(as_json(old), encoding="utf-8")
    return compare(new, tmp_path / "old.json", **choices)


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (Verdict.FAILS, Verdict.SUCCEEDS, Change.WORSE),
        (Verdict.SUCCEEDS, Verdict.FAILS, Change.BETTER),
        (Verdict.FAILS, Verdict.INCONCLUSIVE, Change.WORSE),
        (Verdict.INCONCLUSIVE, Verdict.FAILS, Change.BETTER),
        (Verdict.INCONCLUSIVE, Verdict.SUCCEEDS, Change.WORSE),
        (Verdict.SUCCEEDS, Verdict.INCONCLUSIVE, Change.LESS_KNOWN),
        (Verdict.NOT_APPLICABLE, Verdict.FAILS, Change.NEW),
        (Verdict.FAILS, Verdict.NOT_APPLICABLE, Change.GONE),
    ],
)
def test_each_change_has_its_word(tmp_path, old, new, change):
    """Better, worse, new and gone; what was broken and is not told any more is not better."""
    (made,) = since(tmp_path, found(old), found(new)).changes
    assert (made.title, made.adversary, made.change) == (*LINE, change)


def test_nothing_changed(tmp_path):
    """Against itself a report has no change, and as many things as were judged."""
    report = found(Verdict.FAILS)
    against = since(tmp_path, report, report)
    judged = sum(report.state_of(each) is not None for each in report.findings)
    assert (against.changes, against.notes, against.same >= judged) == ((), (), True)


def test_larger_epsilon_is_worse(tmp_path):
    """The promise is compared too: none where there was one is worse."""
    one, none = found(Verdict.FAILS), gated(sample.exact(sample.with_findings(sample.report())))
    words = {each.title: (each.change, each.before, each.after) for each in since(tmp_path, one, none).changes}
    assert words["Claimed epsilon"] == (Change.WORSE, "1", "∞")
    back = {each.title: each.change for each in since(tmp_path, none, one).changes}
    assert back["Claimed epsilon"] is Change.BETTER


def test_another_gate_is_noted(tmp_path):
    """What one gate allows another may not: the reader is told."""
    old = found(Verdict.FAILS)
    other = replace(old, gate=replace(old.gate, gate_sha256="11" * 32))
    assert "The gates differ" in since(tmp_path, other, old).notes[0]


OTHERS = [
    ({"sessions": ("5b" * 32,)}, "another session (7a7a7a7a7a7a7a7a)"),
    ({"plans": ("cd" * 32,)}, "another plan (abababababababab)"),
    ({"members": sample.COVER.members[:3]}, "other members (cleveland, hungarian, switzerland, va)"),
    ({"members": (*sample.COVER.members[:3], "basel")}, "other members (cleveland, hungarian, switzerland, va)"),
    ({"plans": (), "sessions": (), "members": ()}, "another session (7a7a7a7a7a7a7a7a), another plan"),
]


@pytest.mark.parametrize(("changes", "words"), OTHERS)
def test_audit_of_another_session_is_refused_unless_asked_for(tmp_path, changes, words):
    """Another session, plan or member set is refused, and named; asked for, the comparison says it first."""
    old = found(Verdict.FAILS)
    new = replace(old, cover=replace(old.cover, **changes))
    with pytest.raises(BadInput) as refused:
        since(tmp_path, old, new)
    assert words in refused.value.problem
    assert "--across-sessions" in refused.value.remedy
    against = since(tmp_path, old, new, across_sessions=True)
    assert (words in against.notes[0], against.changes) == (True, ())


def test_order_of_members_is_no_difference(tmp_path):
    """Transcripts may be given in any order: the same members are the same set."""
    old = found(Verdict.FAILS)
    new = replace(old, cover=replace(old.cover, members=old.cover.members[::-1], auditor="somebody else"))
    assert since(tmp_path, old, new).notes == ()


def simulated(**settings):
    """A report on a simulation with these settings, which has no session, plan or roster."""
    report = found(Verdict.FAILS)
    return replace(report, subject=replace(report.subject, settings=settings), cover=Cover(date="2026-03-01"))


def test_audit_of_another_simulation_is_refused_unless_asked_for(tmp_path):
    """A setting that differs makes another simulation; an attack that one auditor brought does not."""
    old, new = simulated(dataset="digits", epsilon="1.0"), simulated(dataset="digits", epsilon="2.0", seed="1")
    with pytest.raises(BadInput, match=r"another simulation \(epsilon 1\.0, seed not given\)"):
        since(tmp_path, old, new)
    assert "epsilon 1.0" in since(tmp_path, old, new, across_sessions=True).notes[0]
    brought = simulated(**{"dataset": "digits", "epsilon": "1.0", "attack mine": "mine.py, SHA-256 00"})
    assert since(tmp_path, old, brought).notes == ()


@pytest.mark.parametrize(
    ("states", "change"),
    [
        ((SessionState.WITHSTOOD, SessionState.UNTOLD), Change.WORSE),
        ((SessionState.WITHSTOOD, SessionState.ALLOWED), Change.WORSE),
        ((SessionState.WITHSTOOD, SessionState.BROKEN), Change.WORSE),
        ((SessionState.UNTOLD, SessionState.ALLOWED), Change.WORSE),
        ((SessionState.UNTOLD, SessionState.BROKEN), Change.WORSE),
        ((SessionState.ALLOWED, SessionState.BROKEN), Change.WORSE),
        ((SessionState.UNTOLD, SessionState.WITHSTOOD), Change.BETTER),
        ((SessionState.ALLOWED, SessionState.WITHSTOOD), Change.BETTER),
        ((SessionState.BROKEN, SessionState.WITHSTOOD), Change.BETTER),
        ((SessionState.BROKEN, SessionState.ALLOWED), Change.BETTER),
        ((SessionState.ALLOWED, SessionState.UNTOLD), Change.LESS_KNOWN),
        ((SessionState.BROKEN, SessionState.UNTOLD), Change.LESS_KNOWN),
    ],
)
def test_states_are_ordered_in_time(tmp_path, states, change):
    """What now succeeds is worse than what nobody knew; what is not told any more is never better."""
    before, after = ({"state": str(state)} for state in states)
    report = found(Verdict.FAILS)
    old, new = as_content(report), as_content(report)
    for content, state in ((old, before), (new, after)):
        (one,) = (each for each in content["adversaries"][0]["findings"] if each["attack"] == "unmixing")
        one.update(state)
    (made,) = _changes(_states_in(old), _states_in(new))
    assert (made.change, made.before, made.after) == (change, *map(str, states))


@pytest.mark.parametrize("outcomes", list(permutations((GateOutcome.PASS, GateOutcome.INCONCLUSIVE, GateOutcome.FAIL))))
def test_worst_of_several_lines_counts(tmp_path, outcomes):
    """Of several lines of one attack the worst is compared, in whatever order the gate wrote them."""
    fine = found(Verdict.FAILS)
    lines = tuple(GateLine("masked_uploads", "no_protection", each, "So.") for each in outcomes)
    for some, state in ((lines, "broken"), ([each for each in lines if each.outcome != "fail"], "could not tell")):
        spoilt = replace(fine, gate=replace(fine.gate, lines=(*fine.gate.lines, *some)))
        (made,) = since(tmp_path, fine, spoilt).changes
        assert (made.change, made.after) == (Change.NEW, state)


def test_an_unknown_line_outweighs_an_allowed_one(tmp_path):
    """As on the page itself: beside a line that a waiver lets pass, one that nobody could tell is the worse."""
    fine = found(Verdict.FAILS)
    waived = GateLine("masked_uploads", "no_protection", GateOutcome.PASS, "So.", waiver="ticket 7")
    lines = (replace(waived, outcome=GateOutcome.INCONCLUSIVE, waiver=""), waived)
    for some in (lines, lines[::-1]):
        spoilt = replace(fine, gate=replace(fine.gate, lines=(*fine.gate.lines, *some)))
        assert [each.after for each in since(tmp_path, fine, spoilt).changes] == ["could not tell"]


@pytest.mark.parametrize("other", [{"delta": 1e-6}, {"unit": "silo"}, {"adjacency": "replace-one"}])
def test_another_promise_is_no_better_epsilon(tmp_path, other):
    """A smaller epsilon at another delta, unit or adjacency is another promise, with both of them in words."""
    old = found(Verdict.FAILS)
    new = replace(old, promise=replace(old.promise, claimed=0.5, **other))
    against = since(tmp_path, old, new)
    words = {each.change: (each.before, each.after) for each in against.changes if each.title == "Claimed epsilon"}
    assert set(words) == {Change.GONE, Change.NEW}
    assert words[Change.GONE][0] == "1 at delta 1e−05, add-remove, record level"
    assert str(next(iter(other.values()))).replace("1e-06", "1e−06") in words[Change.NEW][1]
    assert any("cannot be compared" in note for note in against.notes)


def test_the_same_promise_is_not_noted(tmp_path):
    """An epsilon of the same delta, unit and adjacency is compared as a number, without a note."""
    old = found(Verdict.FAILS)
    new = replace(old, promise=replace(old.promise, claimed=0.5))
    against = since(tmp_path, old, new)
    assert [(each.change, each.after) for each in against.changes] == [(Change.BETTER, "0.5")]
    assert against.notes == ()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content | {"format": "secagg-audit/2"},
        lambda content: {"findings": []},
        lambda content: [],
        lambda content: {name: value for name, value in content.items() if name != "adversaries"},
        lambda content: content | {"cover": 7},
        lambda content: content | {"subject": content["subject"] | {"settings": 7}, "cover": {"plans": []}},
        lambda content: content | {"gate": {"lines": [{"state": "fine"}]}},
    ],
)
def test_another_schema_is_refused(tmp_path, spoil):
    """A report of another format, or none at all, is not compared."""
    path = tmp_path / "old.json"
    path.write_text(json.dumps(spoil(as_content(found(Verdict.FAILS)))), encoding="utf-8")
    with pytest.raises(BadInput, match=r"old\.json"):
        compare(found(Verdict.FAILS), path)


def test_no_json_is_refused(tmp_path):
    """Neither a page nor a missing file."""
    (tmp_path / "page.html").write_text("<html>", encoding="utf-8")
    for name in ("page.html", "nothing.json"):
        with pytest.raises(BadInput, match=name):
            compare(found(Verdict.FAILS), tmp_path / name)


def test_changes_stand_in_every_report(tmp_path):
    """Page, terminal and JSON say them, and the JSON meets its schema."""
    new = found(Verdict.SUCCEEDS)
    new = replace(new, against=since(tmp_path, found(Verdict.FAILS), new))
    assert "▼ worse" in as_html(new)
    assert "worse: Unmixing of second moments by Honest but curious server: withstood → broken" in as_text(new)
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(json.loads(as_json(new)))
    assert as_content(new)["against"]["changes"][0]["change"] == "worse"
