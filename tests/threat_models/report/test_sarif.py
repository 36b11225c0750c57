"""The SARIF report."""

import json
from dataclasses import replace
from datetime import date

import pytest

from tests.threat_models.report import sample
from threat_models.findings import Verdict
from threat_models.report.gate import DEFAULT, Gate
from threat_models.report.gate_evaluation import judge
from threat_models.report.sarif import as_sarif

WAIVER = '[[waiver]]\nattack = "unmixing"\nadversary = "curious_server"\nreason = "ticket 7"\nexpires = 2026-03-01\n'


def gated(report, more=""):
    """The report with the lines of the default gate and more."""
    text = f"{DEFAULT.read_text(encoding='utf-8')}\n{more}"
    return replace(report, gate=judge(Gate.parse(text), report, date(2026, 3, 1)))


def run_of(report):
    """The one run."""
    log = json.loads(as_sarif(report, "0.1.0"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    return run


def result_of(report, attack="unmixing"):
    """The result of one attack."""
    (found,) = (result for result in run_of(report)["results"] if result["ruleId"] == attack)
    return found


@pytest.mark.parametrize(
    ("verdict", "kind", "level"),
    [
        (Verdict.SUCCEEDS, "fail", "error"),
        (Verdict.FAILS, "pass", "none"),
        (Verdict.INCONCLUSIVE, "fail", "warning"),
        (Verdict.NOT_APPLICABLE, "notApplicable", "none"),
    ],
)
@pytest.mark.parametrize("is_gated", [True, False])
def test_kind_follows_the_verdict(verdict, kind, level, is_gated):
    """With the default gate, which has no rule for it, and without a gate; viewers show failures and what is untold."""
    report = sample.with_findings(sample.report(), sample.finding("unmixing", verdict))
    result = result_of(gated(report) if is_gated else report)
    assert (result["kind"], result["level"]) == (kind, level)
    assert ("Could not tell" in result["message"]["text"]) == (level == "warning")


def test_what_the_gate_leaves_open_by_rule_is_for_review():
    """An inconclusive attack that the gate passes all the same raises no alert, and is no pass."""
    found = sample.finding("property_inference", Verdict.INCONCLUSIVE)
    result = result_of(gated(sample.with_findings(sample.report(), found)), "property_inference")
    assert (result["kind"], result["level"]) == ("review", "none")


def test_place_outside_the_project_is_absolute():
    """A transcript beside the folder that was worked in is named by an absolute URI: code hosts refuse ".." there."""
    subject = replace(sample.report().subject, transcripts=(("../fed/server.transcript", "00" * 32),))
    uri = run_of(sample.report(subject=subject))["artifacts"][0]["location"]["uri"]
    assert uri.startswith("file:///")
    assert uri.endswith("/fed/server.transcript")


def test_rules_say_what_to_do():
    """A rule's help is its remedy, not its reference alone."""
    rules = {rule["id"]: rule for rule in run_of(sample.report())["tool"]["driver"]["rules"]}
    assert "Put in many more records." in rules["unmixing"]["help"]["text"]
    assert "--plan" in rules["transcript"]["help"]["text"]


def test_success_that_the_gate_allows_is_informational():
    """An attack may succeed without being a failure, but that is no pass."""
    assert result_of(gated(sample.report()), "property_inference")["kind"] == "informational"


def test_waived_failure_is_suppressed_with_its_reason():
    """It stays a failure, with the justification that the file gives."""
    report = sample.with_findings(sample.report(), sample.finding("unmixing", Verdict.SUCCEEDS))
    result = result_of(gated(report, WAIVER))
    assert result["kind"] == "fail"
    assert result["suppressions"] == [
        {"kind": "external", "status": "accepted", "justification": "ticket 7 (until 2026-03-01)"}
    ]


def test_lines_about_the_sum_are_results_too():
    """Too few records in an exact sum are a failure of their own."""
    report = gated(sample.exact(sample.report(), 64))
    assert result_of(report, "records")["kind"] == "fail"
    assert result_of(report, "protection")["kind"] == "pass"


def test_every_result_names_a_rule_and_a_place():
    """Indices point at the rule of that name, and at the transcript, whose digest is there."""
    run = run_of(gated(sample.report()))
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        (place,) = result["locations"]
        assert place["physicalLocation"]["artifactLocation"] == {
            "index": 0,
            "uri": "server.transcript",
            "uriBaseId": "%SRCROOT%",
        }
    assert run["artifacts"][0]["hashes"]["sha-256"] == "3f" * 32
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 0}]


def test_fingerprints_are_stable_and_distinct():
    """Another seed, transcript or sentence leaves them as they are; no two results share one."""

    def prints(report):
        return [result["partialFingerprints"]["secaggAudit/v1"] for result in run_of(gated(report))["results"]]

    subject = replace(sample.report().subject, transcripts=(("other", "00" * 32),))
    found = sample.finding("unmixing", Verdict.FAILS, "In other words.")
    reworded = sample.with_findings(sample.report(seed=5, subject=subject), found)
    assert prints(reworded) == prints(sample.report())
    assert len(set(prints(sample.report()))) == len(prints(sample.report()))


def test_figures_are_in_the_properties():
    """Every measure is there with its limits and method."""
    (measure,) = result_of(sample.report())["properties"]["measures"]
    assert measure == {
        "id": "cosine",
        "of": "all",
        "label": "cosine of the recovered features, all",
        "unit": "",
        "good": "no more than 0.83, by class means",
        "method": sample.CP,
        "value": 0.62,
        "low": 0.60,
        "high": 0.64,
        "baseline": 0.83,
        "ceiling": None,
    }


def test_simulation_has_no_artifact():
    """Without a transcript there is only the adversary to name."""
    report = sample.report(subject=replace(sample.report().subject, transcripts=()))
    run = run_of(report)
    assert "artifacts" not in run
    assert set(run["results"][0]["locations"][0]) == {"logicalLocations"}


def test_control_without_protection_is_neither_pass_nor_failure():
    """Whatever it finds is for comparison: informational, as the gate tolerates it."""
    (run,) = json.loads(as_sarif(gated(sample.with_control(sample.report())), "0"))["runs"]
    found = [each for each in run["results"] if each["properties"].get("adversary", "") == "no_protection"]
    assert {each["kind"] for each in found} == {"informational", "notApplicable"}
