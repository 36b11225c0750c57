"""The JSON report."""

import json
import math
from dataclasses import replace
from datetime import date

import jsonschema
import numpy as np
import pytest

from secagg.errors import BadInput
from tests.threat_models.report import sample
from threat_models.findings import Verdict
from threat_models.report.content import AttackNote
from threat_models.report.gate import Gate
from threat_models.report.gate_evaluation import judge
from threat_models.report.json_report import SCHEMA, as_json

VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))


def gated():
    """The sample with its gate's lines."""
    report = sample.report()
    return replace(report, gate=judge(Gate.read(), report, date(2026, 3, 1)))


def test_schema_is_a_schema():
    """The file beside the code is valid itself."""
    jsonschema.Draft202012Validator.check_schema(VALIDATOR.schema)


@pytest.mark.parametrize(
    "report", [sample.report(), sample.exact(sample.report(), 64), sample.exact(sample.report(), None), gated()]
)
def test_report_meets_its_schema(report):
    """With and without a gate, with a finite and an infinite ε, and where nobody knows how many records there are."""
    VALIDATOR.validate(json.loads(as_json(report)))


def test_schema_refuses_what_is_not_a_report():
    """Every key is needed, and none other allowed, at the top and inside."""
    good = json.loads(as_json(gated()))
    for key in good:
        assert not VALIDATOR.is_valid({name: value for name, value in good.items() if name != key})
    assert not VALIDATOR.is_valid(good | {"more": 1})
    assert not VALIDATOR.is_valid(good | {"format": "secagg-audit/2"})
    assert not VALIDATOR.is_valid(good | {"gate": good["gate"] | {"exit_code": 2}})
    assert not VALIDATOR.is_valid(good | {"promise": good["promise"] | {"claimed": "much"}})


def test_equal_reports_give_equal_bytes():
    """Made twice from the same values, the text is the same; another seed shows."""
    assert as_json(sample.report()) == as_json(sample.report())
    assert as_json(sample.report()) != as_json(sample.report(seed=1))


def test_numbers_that_json_lacks_are_words():
    """Infinity is "inf", what the data do not support null."""
    content = json.loads(as_json(sample.exact(sample.report())))
    assert content["promise"]["claimed"] == "inf"
    measures = content["adversaries"][0]["findings"][4]["measures"]
    assert measures[1]["value"] is None
    assert measures[1]["ceiling"] == 0.0024


def test_text_is_printable_ascii_and_comes_back():
    """No name can move a terminal's cursor, and none is lost."""
    title = "naïve \x1b[31m \x7f \u202e =1+1 </script> 病院"
    text = as_json(sample.report(title=title))
    assert all(letter == "\n" or " " <= letter <= "~" for letter in text)
    assert json.loads(text)["title"] == title


def test_pictures_are_there_by_digest():
    """One changed pixel changes the digest, and nothing else."""
    report = sample.report(levels=())
    picture = sample.picture()
    image = picture.rows[0][0].copy()
    image[0, 0, 0] ^= 1
    changed = replace(picture, rows=((image, *picture.rows[0][1:]), *picture.rows[1:]))
    found = [sample.finding("feature_inversion", Verdict.FAILS, pictures=(one,)) for one in (picture, changed)]
    texts = [as_json(sample.with_findings(report, one)).splitlines() for one in found]
    assert sum(one != other for one, other in zip(*texts, strict=True)) == 1


def test_finding_without_a_reference_is_refused():
    """Every attack says where it comes from."""
    notes = tuple(note for note in sample.NOTES if note.name != "unmixing")
    for known in (notes, (*notes, AttackNote("unmixing", "Unmixing", ""))):
        with pytest.raises(BadInput, match="'unmixing' has no title and no reference"):
            sample.report(attacks=known)


def test_finding_under_another_adversary_is_refused():
    """A finding stands with the adversary that made it."""
    with pytest.raises(BadInput, match="findings of somebody"):
        sample.with_findings(sample.report(), replace(sample.finding("unmixing", Verdict.FAILS), adversary="somebody"))


def test_headline_counts_every_finding():
    """The sentence says how many attacks break the protection, are withstood or allowed, tell or can do nothing."""
    assert gated().headline().endswith(": 2 allowed by the gate, 6 withstood, 10 have nothing to work on.")
    assert sample.report().headline() == (
        "18 attacks by 1 adversary: 2 broken, 6 withstood, 10 have nothing to work on."
    )
    unpromised = sample.report(promise=replace(sample.report().promise, claimed=math.inf)).headline()
    assert unpromised.startswith("Nothing is promised about any one record. 18 attacks")
    assert sample.report(examinations=()).headline() == "0 attacks by 0 adversaries: none was run."
    one = replace(sample.report().examinations[0], findings=(sample.finding("unmixing", Verdict.INCONCLUSIVE),))
    assert sample.report(examinations=(one,)).headline() == "1 attack by 1 adversary: 1 could not tell."


def test_numbers_of_numpy_are_numbers():
    """Measures that hold numpy's own floats are written like any other."""
    measure = sample.measure(sample.AUC, np.float64(0.5), np.float64(0.4), np.float64(0.6))
    as_json(sample.with_findings(sample.report(), sample.finding("unmixing", Verdict.FAILS, measures=(measure,))))
