"""The four states of the first page, and what stands on it."""

from dataclasses import replace
from datetime import date
from itertools import product

import pytest

from tests.threat_models.report import sample
from threat_models.attacks import ATTACKS
from threat_models.audit import ACTIVE
from threat_models.findings import Verdict
from threat_models.report.content import GateLine, GateOutcome, GateResult, SessionState
from threat_models.report.first_page import UNTIL_TOLD, rows_of, withstood
from threat_models.report.gate import DEFAULT, Gate
from threat_models.report.gate_evaluation import judge

JUDGED = [verdict for verdict in Verdict if verdict is not Verdict.NOT_APPLICABLE]
WAIVER = '[[waiver]]\nattack = "unmixing"\nadversary = "curious_server"\nreason = "ticket 7"\nexpires = 2026-03-01\n'


def gated(report, text=""):
    """The report with the lines of the default gate and more."""
    gate = Gate.parse(f"{DEFAULT.read_text(encoding='utf-8')}\n{text}")
    return replace(report, gate=judge(gate, report, date(2026, 3, 1)))


def with_line(verdict, outcome):
    """A report of one attack with this verdict, and one line of the gate about it."""
    found = sample.finding("unmixing", verdict)
    only = replace(sample.report().examinations[0], findings=(found,))
    gate = GateResult((GateLine("unmixing", sample.SERVER, outcome, "So."),), "00" * 32, "2026-03-01")
    return sample.report(examinations=(only,), gate=gate)


@pytest.mark.parametrize(("verdict", "outcome"), list(product(JUDGED, GateOutcome)))
def test_less_evidence_never_looks_better(verdict, outcome):
    """An inconclusive verdict or line is never better than "could not tell"; a success is allowed by a pass alone."""
    report = with_line(verdict, outcome)
    state = report.state_of(report.findings[0])
    if Verdict.INCONCLUSIVE is verdict or outcome is GateOutcome.INCONCLUSIVE:
        assert state.rank >= SessionState.UNTOLD.rank
    if verdict is Verdict.SUCCEEDS:
        assert state is (SessionState.ALLOWED if outcome is GateOutcome.PASS else SessionState.BROKEN)
    assert (state is SessionState.WITHSTOOD) == ((verdict, outcome) == (Verdict.FAILS, GateOutcome.PASS))
    assert report.state is state


def test_waived_failure_is_allowed():
    """What a waiver lets pass is allowed by the gate, and never called withstood."""
    report = sample.with_findings(sample.report(), sample.finding("unmixing", Verdict.SUCCEEDS))
    states = [
        {each.attack: made.state_of(each) for each in made.findings} for made in (gated(report), gated(report, WAIVER))
    ]
    assert [each["unmixing"] for each in states] == [SessionState.BROKEN, SessionState.ALLOWED]


def test_exact_sum_is_never_all_green():
    """Where nothing is promised about a record the page's state is no better than allowed, whatever else holds."""
    only = replace(sample.report().examinations[0], findings=(sample.finding("unmixing", Verdict.FAILS),))
    passed = GateResult((GateLine("promise", "", GateOutcome.PASS, "None."),), "00" * 32, "2026-03-01")
    report = sample.exact(sample.report(examinations=(only,), gate=passed))
    assert report.state is SessionState.ALLOWED
    assert [row.titles for row in rows_of(report)] == [("No promise about any one record",)]


def test_control_has_no_state():
    """What is found without protection says nothing of the session."""
    report = sample.with_control(sample.report())
    assert {report.state_of(each) for each in report.findings if each.adversary == "no_protection"} == {None}


def test_nothing_judged_tells_nothing():
    """A report without findings and lines is no good one."""
    assert sample.report(examinations=()).state is SessionState.UNTOLD


def test_first_page_says_what_to_do_worst_first():
    """Everything that is not withstood is there, in order, with its remedy; what is untold for one reason is a row."""
    why = "It takes records that took part (--known) and others (--public), which this audit was not given."
    untold = [sample.finding(name, Verdict.INCONCLUSIVE, why) for name in ("membership_head", "feature_inversion")]
    report = gated(sample.with_findings(sample.report(), sample.finding("unmixing", Verdict.SUCCEEDS), *untold))
    rows = rows_of(report)
    assert [row.state.rank for row in rows] == sorted((row.state.rank for row in rows), reverse=True)
    assert (rows[0].titles, rows[0].remedy) == (("Unmixing of second moments",), "Put in many more records.")
    assert rows[0].adversaries == ("Honest but curious server",)
    (told,) = (row for row in rows if row.state is SessionState.UNTOLD)
    assert (told.titles, told.meaning, told.remedy) == (
        ("Pictures from features", "Membership, from the head"),
        why,
        UNTIL_TOLD,
    )
    assert not set(withstood(report)) & {title for row in rows for title in row.titles}


@pytest.mark.parametrize("attack", [*ATTACKS.values(), ACTIVE], ids=lambda attack: attack.name)
def test_attacks_say_what_they_mean_and_what_helps(attack):
    """Every attack has a sentence for somebody who knows none of its words, and one that says what to do."""
    for sentence in (attack.meaning, attack.remedy):
        assert sentence.endswith(".")
        assert sentence[0].isupper()


def test_gate_names_whom_to_ask():
    """An adversary that the gate names and that was not asked about makes an audit inconclusive, with the option."""
    asked = gated(sample.report()).gate
    named = 'adversaries = ["curious_server"'
    text = DEFAULT.read_text(encoding="utf-8").replace(named, f'{named}, "malicious_server"')
    gate = judge(Gate.parse(text), sample.report(), date(2026, 3, 1))
    assert (asked.outcome, gate.outcome) == (GateOutcome.PASS, GateOutcome.INCONCLUSIVE)
    (line,) = (line for line in gate.lines if line.adversary == "malicious_server")
    assert "--threat-model malicious_server" in line.sentence
