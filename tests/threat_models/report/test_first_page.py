"""The first page: what the gate requires, and the cause and remedy of what is not withstood."""

import json
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.threat_models.report import sample
from threat_models.attacks.membership.noise_check import NOISE
from threat_models.audit import attack_notes
from threat_models.estimation.chi_square import SessionNoise
from threat_models.findings import Measure, Verdict
from threat_models.report.content import SESSION_REMEDIES, SESSION_RULES, SessionState
from threat_models.report.first_page import (
    LESS_NOISE,
    NOISE_FIRST,
    NOT_REQUIRED,
    PLAN_AT_FAULT,
    SESSION_AT_FAULT,
    SIMULATION_AT_FAULT,
    rows_of,
    verdict_in_words,
)
from threat_models.report.gate import DEFAULT, Gate
from threat_models.report.gate_evaluation import judge
from threat_models.report.html import as_html
from threat_models.report.json_report import as_json
from threat_models.report.sarif import as_sarif
from threat_models.report.summary import as_text

TODAY = date(2026, 3, 1)
DEFAULT_TEXT = DEFAULT.read_text(encoding="utf-8")
AUC = sample.measure(sample.AUC, 0.55, 0.45, 0.65, baseline=0.5, ceiling=0.575)
OPEN = sample.finding("membership_release", Verdict.INCONCLUSIVE, measures=(AUC,))
OPEN_HEAD = replace(OPEN, attack="membership_head")


def gated(report, text=DEFAULT_TEXT):
    """The report judged by a gate."""
    return replace(report, gate=judge(Gate.parse(text, TODAY), report, TODAY))


def found(*findings):
    """The sample report with these findings in place of its own."""
    return sample.with_findings(sample.report(), *findings)


def row_of(report, title):
    """The first page's row of this title."""
    (row,) = (row for row in rows_of(report) if title in row.titles)
    return row


def test_what_is_not_required_is_named_and_decides_nothing():
    """Membership that could not tell under a promise leaves exit code, state and headline as they are without it."""
    report = gated(found(OPEN, OPEN_HEAD))
    assert (report.gate.exit_code, report.state) == (0, SessionState.ALLOWED)
    assert as_text(report).splitlines()[1].startswith("Allowed by the gate: the gate passes. 18 attacks")
    said = "The gate does not require these, which could not tell: Membership, from the sum; Membership, from the head."
    page = as_html(report)
    assert said in page[: page.index("Appendix")]
    assert said in as_text(report)
    assert "◆ Allowed by the gate: the gate passes" in page
    row = row_of(report, "Membership, from the sum")
    assert (row.state, row.remedy) == (SessionState.UNTOLD, NOT_REQUIRED)
    assert [each.remedy == NOT_REQUIRED for each in rows_of(report)] == [False, True, True]
    findings = json.loads(as_json(report))["adversaries"][0]["findings"]
    assert {each["attack"] for each in findings if each["state"] and not each["counts"]} == {
        OPEN.attack,
        OPEN_HEAD.attack,
    }


@pytest.mark.parametrize(
    ("keys", "code"),
    [("", 4), ("required = true", 4), ('unclear = "pass"', 4), ('unclear = "pass"\nrequired = true', 4),
     ("required = false", 4), ('unclear = "pass"\nrequired = false', 0)],
)  # fmt: skip
def test_what_is_required_and_could_not_tell_is_inconclusive(keys, code):
    """Whatever a rule says of a measure that is unclear: an attack that is required and could not tell exits with 4."""
    rule = f'[[rule]]\nattack = "membership_release"\nmeasure = "auc"\nat_most = "ceiling"\nreason = "r"\n{keys}\n'
    let = '[[rule]]\nattack = "property_inference"\ntolerated = true\nreason = "r"'
    report = gated(found(OPEN), sample.HEAD + rule + let)
    assert (report.gate.exit_code, report.state is SessionState.UNTOLD) == (code, code == 4)
    assert (row_of(report, "Membership, from the sum").remedy == NOT_REQUIRED) == (code == 0)


def test_one_rule_that_requires_an_attack_is_enough():
    """An attack is not required only where all its rules say so."""
    rules = '[[rule]]\nattack = "membership_release"\nmeasure = "{}"\nat_most = 0.9\nreason = "r"\nrequired = {}\n'
    let = '[[rule]]\nattack = "property_inference"\ntolerated = true\nreason = "r"\n'
    codes = [
        gated(found(OPEN), sample.HEAD + let + rules.format("auc", one) + rules.format("*", other)).gate.exit_code
        for one, other in (("false", "false"), ("false", "true"), ("true", "false"))
    ]
    assert codes == [0, 4, 4]


def test_an_attack_without_a_measure_need_not_tell_either():
    """A rule without a measure lets what could not tell pass with required = false, and no success."""
    rule = '[[rule]]\nattack = "unmixing"\nreason = "r"\nrequired = false'
    for verdict, code in ((Verdict.INCONCLUSIVE, 0), (Verdict.SUCCEEDS, 1)):
        assert gated(found(sample.finding("unmixing", verdict)), f"{DEFAULT_TEXT}\n{rule}").gate.exit_code == code


@pytest.mark.parametrize(
    "untried",
    [
        sample.finding("membership_release", Verdict.INCONCLUSIVE, "It takes records."),
        replace(OPEN, unseen=("release",)),
        replace(OPEN, controls=sample.BROKEN),
    ],
)
def test_what_is_not_required_must_have_been_tried(untried):
    """Without a measure, without what its adversary sees, or with a broken control it is inconclusive all the same."""
    report = gated(found(untried))
    assert (report.gate.exit_code, report.state) == (4, SessionState.UNTOLD)


def test_without_a_promise_membership_is_required():
    """An exact sum whose membership could not be told is inconclusive, and never better than under noise."""
    report = gated(sample.exact(found(OPEN)))
    assert (report.gate.exit_code, report.state) == (4, SessionState.UNTOLD)
    assert row_of(report, "Membership, from the sum").remedy != NOT_REQUIRED


NUMBERS = st.one_of(st.lists(st.floats(0, 1), min_size=2, max_size=2).map(sorted), st.just((np.nan, np.nan)))
JUDGED = ("unmixing", "membership_release", "membership_head", "property_inference", "small_cells")


@st.composite
def any_finding(draw, name):
    """A finding with any verdict, measures, controls, and parts of the view that were not there."""
    pairs = draw(st.lists(NUMBERS, max_size=2))
    measures = tuple(
        sample.measure(each, low, low, high, ceiling=draw(st.floats(0, 1)))
        for each, (low, high) in zip(("auc.one", "tpr_at_1e-2.one"), pairs, strict=False)
    )
    controls = draw(st.sampled_from([sample.CONTROLS, sample.BROKEN, ()]))
    unseen = draw(st.sampled_from([(), ("head",)]))
    verdict = draw(st.sampled_from(list(Verdict)))
    return sample.finding(name, verdict, measures=measures, controls=controls, unseen=unseen)


@given(st.tuples(*map(any_finding, JUDGED)), st.booleans())
def test_exit_code_and_headline_agree(findings, is_exact):
    """Whatever was found: exit 0 goes with a good or allowed state, under a headline that says "passes"."""
    report = sample.with_findings(sample.report(), *findings)
    report = gated(sample.exact(report) if is_exact else report)
    passes = report.gate.exit_code == 0
    assert passes == (report.state in (SessionState.WITHSTOOD, SessionState.ALLOWED))
    assert passes == ("passes" in verdict_in_words(report))
    assert (report.gate.exit_code != 1) or report.state is SessionState.BROKEN


def test_state_is_no_better_than_a_gate_that_fails_by_the_control():
    """A gate without a rule for the control fails by it: the page does not stay green."""
    report = gated(sample.with_control(sample.report()), sample.HEAD)
    assert (report.gate.exit_code, report.state) == (1, SessionState.BROKEN)


def test_state_is_no_better_than_a_gate_that_could_not_tell_of_the_control():
    """A control without protection that did not behave leaves exit code 4, and the page says so."""
    report = sample.with_control(sample.report())
    control, *others = report.examinations
    findings = tuple(replace(each, controls=sample.BROKEN) for each in control.findings)
    report = gated(replace(report, examinations=(replace(control, findings=findings), *others)))
    assert (report.gate.exit_code, report.state) == (4, SessionState.UNTOLD)


LESS = SessionNoise(0.56, 0.44, 0.73, 100, "measured", "There is less noise in the session than planned.")
SHORT = Measure(NOISE, 0.5, 0.45, 0.55, "chi-square, 95 %", baseline=1.0)
ABOVE = sample.measure("auc.informed", 0.99, 0.98, 1.0, ceiling=0.575)
BEYOND = sample.finding("membership_release", Verdict.SUCCEEDS, "There is less noise.", measures=(ABOVE, SHORT))


def real(report):
    """The report with every attack's own words, and a remedy about epsilon for the sample's."""
    notes = attack_notes()
    return replace(report, attacks=tuple(notes.get(note.name, note) for note in report.attacks))


def test_less_noise_is_the_first_row_with_its_own_remedy():
    """The cause stands first; attacks that epsilon would stop refer to it; the page does not say to plan with one."""
    report = gated(real(found(BEYOND, replace(BEYOND, attack="unmixing", measures=()))))
    first, *others = rows_of(report)
    assert (first.state, first.titles, first.remedy) == (SessionState.BROKEN, (LESS_NOISE,), SESSION_AT_FAULT)
    assert "0.5 (0.45 to 0.55)" in first.meaning
    broken = [row for row in others if row.state is SessionState.BROKEN]
    assert len(broken) == 2
    assert {row.remedy for row in broken} == {NOISE_FIRST}
    assert "finite epsilon" not in as_html(report)


@pytest.mark.parametrize(
    ("changes", "is_simulated", "remedy"),
    [
        ({"recomputed": 1.01}, False, PLAN_AT_FAULT),
        ({"measured": replace(sample.report().promise.measured, refuted=True)}, False, PLAN_AT_FAULT),
        ({"one_run": replace(sample.report().promise.measured, refuted=True)}, False, SESSION_AT_FAULT),
        ({"session_noise": LESS}, False, SESSION_AT_FAULT),
        ({"drawn": replace(sample.report().promise.drawn, flaws=("None.",))}, False, SESSION_AT_FAULT),
        ({"drawn": replace(sample.report().promise.drawn, flaws=("None.",))}, True, SIMULATION_AT_FAULT),
    ],
)
def test_remedy_is_for_whoever_is_at_fault(changes, is_simulated, remedy):
    """A plan that claims too much, a session that lacks its noise, a build that draws too little: each has its own."""
    report = sample.report()
    subject = replace(report.subject, transcripts=()) if is_simulated else report.subject
    made = gated(replace(report, promise=replace(report.promise, **changes), subject=subject))
    assert [row.remedy for row in rows_of(made) if row.titles == (LESS_NOISE,)] == [remedy]


def test_unknown_noise_is_a_row_of_its_own():
    """Where nobody knows of the noise the records of all members help, and another plan does not."""
    report = sample.report()
    row = row_of(gated(replace(report, promise=replace(report.promise, session_noise=None))), SESSION_RULES["noise"])
    assert (row.state, row.remedy) == (SessionState.UNTOLD, SESSION_REMEDIES["noise"])


@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize("promised", [{}, {"session_noise": None}, {"session_noise": LESS}, {"recomputed": 1.5}])
def test_no_page_of_a_finite_epsilon_advises_one(verdict, promised):
    """Whatever each attack found: "a finite epsilon" stands on no page, terminal or findings of a plan that has one."""
    report = real(sample.report())
    report = replace(report, promise=replace(report.promise, **promised))
    report = sample.with_findings(report, *(replace(each, verdict=verdict) for each in report.findings))
    report = gated(report)
    for text in (as_html(report), as_text(report), as_json(report), as_sarif(report, "0")):
        assert "finite epsilon" not in text


def test_page_of_an_exact_sum_advises_a_finite_epsilon():
    """Where there is none it helps, and is said."""
    report = gated(real(sample.exact(found(replace(OPEN, verdict=Verdict.SUCCEEDS)))))
    assert "plan with a finite epsilon" in row_of(report, "No promise about any one record").remedy
    assert "finite epsilon" in row_of(report, attack_notes()["membership_release"].title).remedy
