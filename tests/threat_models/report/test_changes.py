"""What changed since an earlier audit."""

import json
from dataclasses import replace
from datetime import date

import jsonschema
import pytest

from secagg.errors import BadInput
from tests.threat_models.report import sample
from threat_models.findings import Verdict
from threat_models.report.changes import compare
from threat_models.report.content import Change
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


def since(tmp_path, old, new):
    """What `new` says of `old`."""
    (tmp_path / "old.json").write_text(as_json(old), encoding="utf-8")
    return compare(new, tmp_path / "old.json")


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


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content | {"format": "secagg-audit/2"},
        lambda content: {"findings": []},
        lambda content: [],
        lambda content: {name: value for name, value in content.items() if name != "adversaries"},
        lambda content: content | {"cover": 7},
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
