"""Text from data, measures for people, and the lines for a terminal."""

import math
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.cli.demo_summary import audit_sentence
from tests.threat_models.report import sample
from threat_models.active.probe import PROBE
from threat_models.attacks.reconstruction.inversion import REFERENCE, REIDENTIFIED
from threat_models.attacks.reconstruction.unmixing import LEAST_COSINE
from threat_models.findings import SHARE, Metric, Verdict
from threat_models.report.content import GateLine, GateOutcome, GateResult
from threat_models.report.gate import Gate
from threat_models.report.gate_evaluation import judge
from threat_models.report.summary import as_text
from threat_models.report.text import LONGEST, format_number, good_of, summarise, to_line, with_interval


@given(st.text(st.characters()))
def test_what_is_shown_is_one_printable_line(text):
    """Whatever the text: nothing that a terminal acts on, and what is printable stays."""
    assert to_line(text).isprintable()
    assert to_line(to_line(text)) == to_line(text)
    assert not text.isprintable() or to_line(text) == text


def test_long_text_is_cut():
    """A name of a million letters does not fill the page."""
    assert len(to_line("a" * 1_000_000)) == LONGEST


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.123456, "0.1235"),
        (1e-05, "1e−05"),
        (50_000, "50,000"),
        (-2.5, "−2.5"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "not supported"),
    ],
)
def test_figures_have_four_digits(value, words):
    """Numbers as people read them."""
    assert format_number(value) == words


def test_interval_is_told_where_there_is_one():
    """Without limits there is the value alone."""
    share = Metric("share", "share", SHARE)
    assert with_interval(sample.measure("m", 0.5, 0.4, 0.6)) == "0.5 (0.4 to 0.6)"
    assert with_interval(share.exact(0.5)) == "50 %"
    assert with_interval(sample.measure(share, 0.0, 0.0, 1.0, has_interval=False)) == "0 %"
    assert with_interval(sample.measure(share, 0.5, 0.4, 0.6)) == "50 % (40 to 60 %)"
    assert with_interval(sample.measure("m", math.nan, math.nan, math.nan)) == "not supported"


def test_summary_has_label_value_interval_unit_good_and_ceiling():
    """One line says what was measured, how surely, what would be good and what ε allows."""
    auc = sample.measure(sample.AUC, 0.57, 0.565, 0.576, baseline=0.5, ceiling=0.575)
    found = sample.finding("membership_release", Verdict.FAILS, measures=(auc,))
    assert summarise(found) == (
        "AUC, knowing all other records: 0.57 (0.565 to 0.576); good: 0.5, chance; a success above 0.6; "
        "epsilon allows 0.575"
    )


def test_units_are_said():
    """A share of 1 never stands as a bare 1, nor a refusal as a number."""
    rate = sample.measure(REIDENTIFIED, 0.5, 0.4, 0.6, of="class mean of sum of all", baseline=0.1)
    assert summarise(sample.finding("feature_inversion", Verdict.FAILS, measures=(rate,))).endswith(
        "sum of all: 50 % (40 to 60 %); good: no more than 10 %, by the class alone"
    )
    assert with_interval(PROBE.exact(1.0, of="a: b")) == "refused"
    assert with_interval(PROBE.exact(0.0, of="a: b")) == "not refused"


def test_what_the_view_shows_sums_up_a_finding():
    """A measure of a reference does not, wherever it stands; a finding without another has no summary."""
    reference = sample.measure(REFERENCE, 0.9, 0.8, 1.0, of="raw feature")
    seen = sample.measure(REIDENTIFIED, 0.5, 0.4, 0.6, of="N, A and B of its client")
    for measures, leading in (((reference,), None), ((reference, seen), seen)):
        found = sample.finding("feature_inversion", Verdict.FAILS, measures=measures)
        assert found.leading is leading
        assert bool(summarise(found)) == (leading is not None)


def test_good_needs_its_reference():
    """Without a baseline nothing is said of what would be good compared with it."""
    assert good_of(sample.measure(LEAST_COSINE, 0.5, 0.4, 0.6)) == ""


def test_terminal_gets_the_verdict_first():
    """The outcome, then what did not pass, then the findings."""
    report = sample.with_findings(sample.report(), sample.finding("unmixing", Verdict.SUCCEEDS, "All.\x1b[2J\nPASS"))
    lines = as_text(replace(report, gate=judge(Gate.read(), report, date(2026, 3, 1)))).splitlines()
    assert lines[0].endswith("gate FAIL")
    assert lines[1].startswith("Broken: the gate fails. 18 attacks by 1 adversary: 1 broken")
    assert lines[3] == "FAIL unmixing by curious_server: The attack succeeds: All.\\u001b[2J PASS"
    told = [line.partition(":")[0] for line in lines if line.startswith("curious_server, ")]
    named = [name for each in told for name in each.removeprefix("curious_server, ").split(", ")]
    assert sorted(named) == sorted(finding.attack for finding in report.findings)
    assert lines[-1] == report.comparisons.sentence()


def test_demo_says_which_attacks_succeed_and_whether_the_promise_allows_them():
    """One attack succeeds and two succeed, by their titles, within ε where the gate faults none of them."""
    won, open_ = (sample.finding("membership_release", verdict) for verdict in (Verdict.SUCCEEDS, Verdict.INCONCLUSIVE))
    one = replace(sample.report().examinations[0], findings=(won, replace(open_, attack="membership_head")))
    report = sample.report(examinations=(one,))
    title = report.note("membership_release").title
    claimed = f"{report.promise.claimed:g}"
    assert audit_sentence(report) == (
        f"The sum promises epsilon {claimed}: of 2 attacks that can work on it 1 succeeds ({title}, within what "
        f"epsilon = {claimed} allows) and 1 stays inconclusive."
    )
    exact = replace(report, promise=replace(report.promise, claimed=math.inf))
    assert audit_sentence(exact).endswith("--epsilon 4 adds a promise.")
    assert "--epsilon" not in audit_sentence(exact, can_promise=False)
    beaten = GateResult(
        (GateLine("membership_release", won.adversary, GateOutcome.FAIL, "Bad."),), "00" * 32, "2026-03-01"
    )
    assert f"1 succeeds ({title}) and 1 stays" in audit_sentence(replace(report, gate=beaten))


def test_terminal_is_told_that_there_was_no_gate():
    """Without a gate nothing looks like a verdict."""
    assert as_text(sample.report()).splitlines()[0].endswith("no gate was applied")


def test_control_has_a_sentence_of_its_own():
    """What is found without protection is not counted with the attacks on the session."""
    text = as_text(sample.with_control(sample.report()))
    assert "18 attacks by 1 adversary: 2 broken" in text
    assert "Without protection, for comparison, 18 attacks: 4 broken" in text
    assert "no_protection, unmixing: control: broken, as it must be." in text
