"""Waivers: what they may let pass, for how long, and where every report names them."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import jsonschema
import pytest

from secagg.errors import BadInput
from tests.threat_models.report import sample
from threat_models.attacks.membership.noise_check import NOISE
from threat_models.estimation.chi_square import SessionNoise
from threat_models.findings import Measure, Verdict
from threat_models.report.content import GateOutcome, SessionState
from threat_models.report.first_page import verdict_in_words
from threat_models.report.gate import DEFAULT, Gate
from threat_models.report.gate_evaluation import UNWAIVABLE, judge
from threat_models.report.html import as_html
from threat_models.report.json_report import SCHEMA, as_json
from threat_models.report.sarif import as_sarif
from threat_models.report.summary import as_text

TODAY = date(2026, 3, 1)
DEFAULT_TEXT = DEFAULT.read_text(encoding="utf-8")


def waiver(attack, adversary=sample.SERVER, expires="2026-03-31", reason="ticket 7", more=""):
    """A waiver in TOML."""
    named = f'attack = "{attack}"\nadversary = "{adversary}"\nreason = "{reason}"'
    return f"\n[[waiver]]\n{named}\nexpires = {expires}\n{more}\n"


UNTOLD = "inconclusive = true"


def gated(report, *waivers, base=DEFAULT_TEXT):
    """The report judged by a gate and these waivers."""
    return replace(report, gate=judge(Gate.parse("\n".join((base, *waivers)), TODAY), report, TODAY))


def first_page(report):
    """The HTML page up to its appendix."""
    text = as_html(report)
    return text[: text.index("Appendix: what is promised")]


@pytest.mark.parametrize(
    ("attack", "more"), [("promise", ""), ("noise", ""), ("inputs", ""), ("inputs", UNTOLD), ("audit", UNTOLD)]
)
def test_waivers_of_what_cannot_be_waived_are_refused(attack, more):
    """Less noise than promised, evidence that is not what it is called, and no attack at all pass for no reason."""
    with pytest.raises(BadInput, match="cannot be waived"):
        Gate.parse(DEFAULT_TEXT + waiver(attack, "", more=more), TODAY)


def test_unknown_noise_can_be_waived_and_stays_unknown():
    """Somebody may vouch for noise that was not measured: the gate passes by waiver, under "could not tell"."""
    unmeasured = replace(sample.report(), promise=replace(sample.report().promise, session_noise=None))
    assert gated(unmeasured).gate.exit_code == 4
    report = gated(unmeasured, waiver("noise", "", more=UNTOLD))
    assert (report.gate.exit_code, report.state) == (0, SessionState.UNTOLD)
    assert as_text(report).splitlines()[1].startswith("Could not tell: the gate passes by waiver.")


@pytest.mark.parametrize(("days", "is_refused"), [(366, False), (367, True), (20_000, True)])
def test_waiver_lasts_a_year_at_most(days, is_refused):
    """A last day more than a year after the audit is refused, with the latest that can be written."""
    text = DEFAULT_TEXT + waiver("unmixing", expires=(TODAY + timedelta(days=days)).isoformat())
    if not is_refused:
        assert Gate.parse(text, TODAY).waivers[0].expires == TODAY + timedelta(days=days)
        return
    with pytest.raises(BadInput, match=r"more than a year after this audit \(2026-03-01\)") as refused:
        Gate.parse(text, TODAY)
    assert "up to 2027-03-02" in refused.value.remedy


def test_waiver_is_held_against_the_day_of_the_audit(tmp_path):
    """Unless another is given the day is today's, also of a file."""
    path = tmp_path / "gate.toml"
    for days, is_refused in ((300, False), (400, True)):
        day = datetime.now(UTC).date() + timedelta(days=days)
        path.write_text(DEFAULT_TEXT + waiver("unmixing", expires=day.isoformat()), encoding="utf-8")
        if is_refused:
            with pytest.raises(BadInput, match=r"gate\.toml: waiver 1: expires is .* more than a year"):
                Gate.read(path)
        else:
            assert len(Gate.read(path).waivers) == 1


@pytest.mark.parametrize("reason", ["", "  ", "\\t"])
def test_waiver_without_a_reason_is_refused(reason):
    """A reason is for people: white space is none."""
    with pytest.raises(BadInput, match="reason is no text"):
        Gate.parse(DEFAULT_TEXT + waiver("unmixing", reason=reason), TODAY)


SHORT = Measure(NOISE, 0.5, 0.45, 0.55, "chi-square, 95 %", baseline=1.0)
ENOUGH = replace(SHORT, value=1.0, low=0.95, high=1.05)
ABOVE = sample.measure("auc.informed", 0.99, 0.98, 1.0, ceiling=0.575)
WITHIN = sample.measure("auc.informed", 0.55, 0.54, 0.56, ceiling=0.575)
PLAIN = sample.HEAD
STRICT = sample.HEAD + (
    '[[rule]]\nattack = "membership_release"\nmeasure = "auc"\nat_most = 0.5\nreason = "r"\n'
    '[[rule]]\nattack = "property_inference"\ntolerated = true\nreason = "r"\n'
)


def told(verdict, *measures):
    """A report in which membership came out so."""
    return sample.with_findings(sample.report(), sample.finding("membership_release", verdict, measures=measures))


@pytest.mark.parametrize(
    ("measures", "base"),
    [((WITHIN, SHORT), DEFAULT_TEXT), ((ABOVE, ENOUGH), DEFAULT_TEXT), ((ABOVE,), DEFAULT_TEXT),
     ((WITHIN, SHORT), PLAIN), ((WITHIN, SHORT), STRICT)],
)  # fmt: skip
def test_less_noise_than_promised_is_not_waived(measures, base):
    """Noise that is too small, or members told beyond what epsilon allows, fail under any waiver, which says so."""
    report = gated(told(Verdict.SUCCEEDS, *measures), waiver("membership_release"), base=base)
    failed = [line for line in report.gate.lines if line.attack == "membership_release" and line.outcome == "fail"]
    assert (report.gate.exit_code, bool(failed)) == (1, True)
    assert all(line.breaks_promise and not line.waiver and UNWAIVABLE in line.sentence for line in failed)
    (in_force,) = report.gate.waivers
    assert (in_force.void, in_force.waived) == (len(failed), 0)
    assert "has no effect on less noise than promised" in first_page(report)


def test_a_failure_within_the_promise_is_waived():
    """A limit of the gate's own, stricter than epsilon's, is waived as it always was."""
    report = gated(told(Verdict.SUCCEEDS, WITHIN, ENOUGH), waiver("membership_release"), base=STRICT)
    assert [line.waiver for line in report.gate.lines if line.waiver] == ["ticket 7 (until 2026-03-31)"]
    assert report.gate.exit_code == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"recomputed": 1.01},
        {"measured": replace(sample.report().promise.measured, lower=1.2)},
        {"one_run": replace(sample.report().promise.measured, refuted=True)},
        {"drawn": replace(sample.report().promise.drawn, flaws=("Two shares are the same.",))},
        {"session_noise": SessionNoise(0.5, 0.4, 0.6, 100, "measured", "There is less noise than planned.")},
    ],
)
def test_every_line_against_the_promise_says_so(changes):
    """A claim that is not reproduced, a bound above it and flawed noise are all less noise than promised."""
    report = sample.report()
    lines = gated(replace(report, promise=replace(report.promise, **changes))).gate.lines
    failed = [line for line in lines if line.outcome is GateOutcome.FAIL]
    assert failed
    assert all(line.breaks_promise for line in failed)
    assert not any(line.breaks_promise for line in lines if line.outcome is not GateOutcome.FAIL)


def test_first_page_of_every_report_names_the_waivers_in_force():
    """Attack, adversary, reason, last day (it may be today) and effect of each in force, needed or not, on page 1."""
    found = sample.finding("unmixing", Verdict.SUCCEEDS)
    report = gated(
        sample.with_findings(sample.report(), found),
        waiver("unmixing", reason="no <b>records</b>"),
        waiver("small_cells", expires=TODAY.isoformat(), reason="not needed"),
        waiver("masked_uploads", expires="2026-02-28", reason="over"),
    )
    page, text = first_page(report), as_text(report)
    who = "</b> by Honest but curious server, until"
    for line in (
        f"<b>⚑ unmixing{who} 2026-03-31: “no &lt;b&gt;records&lt;/b&gt;”. It lets a failure pass.",
        f"<b>⚑ small cells{who} 2026-03-01: “not needed”. It has nothing to let pass.",
    ):
        assert line in page
    assert (
        "waiver in force until 2026-03-31 for unmixing by curious_server: no <b>records</b>; it lets a failure pass"
        in text
    )
    content, (run,) = json.loads(as_json(report)), json.loads(as_sarif(report, "0"))["runs"]
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(content)
    assert run["properties"]["waivers"] == content["gate"]["waivers"]
    assert [(each["attack"], each["adversary"], each["reason"], each["expires"], each["waived"], each["void"])
            for each in content["gate"]["waivers"]] == [
        ("unmixing", "curious_server", "no <b>records</b>", "2026-03-31", 1, 0),
        ("small_cells", "curious_server", "not needed", "2026-03-01", 0, 0),
    ]  # fmt: skip


def test_only_a_gate_that_needs_a_waiver_passes_by_it():
    """A waiver that is not needed, or does not save a gate that fails, is no part of the verdict."""
    failed = [sample.finding(name, Verdict.SUCCEEDS) for name in ("unmixing", "small_cells")]
    given = waiver("unmixing")
    for findings, words in (
        ([], "the gate passes"),
        (failed[:1], "the gate passes by waiver"),
        (failed, "the gate fails"),
    ):
        assert verdict_in_words(gated(sample.with_findings(sample.report(), *findings), given)) == words


def test_a_gate_without_waivers_names_none():
    """Nothing stands where there is nothing."""
    report = gated(sample.report())
    assert "Waivers in force" not in as_html(report)
    assert "waiver" not in as_text(report)
    assert json.loads(as_json(report))["gate"]["waivers"] == []


UNCLEAR = [
    sample.finding("unmixing", Verdict.INCONCLUSIVE),
    sample.finding("unmixing", Verdict.FAILS, controls=sample.BROKEN),
    sample.finding("unmixing", Verdict.FAILS, controls=()),
]


@pytest.mark.parametrize("found", UNCLEAR)
def test_what_could_not_be_told_stays_so_under_a_waiver(found):
    """Whatever was inconclusive, attack or control: waived it still could not be told, in every report."""
    report = gated(sample.with_findings(sample.report(), found), waiver("unmixing", more=UNTOLD))
    (one,) = (each for each in report.findings if each.attack == "unmixing")
    assert (report.gate.exit_code, report.state_of(one), report.state) == (0, SessionState.UNTOLD, SessionState.UNTOLD)
    waived = [line for line in report.gate.lines if line.waiver]
    assert waived
    assert all(line.is_untold for line in waived)
    assert "? Could not tell: the gate passes by waiver" in as_html(report)
    content = json.loads(as_json(report))
    (said,) = (each for each in content["adversaries"][0]["findings"] if each["attack"] == "unmixing")
    assert (content["state"], said["state"], said["counts"]) == ("could not tell", "could not tell", True)
    (run,) = json.loads(as_sarif(report, "0"))["runs"]
    (result,) = (each for each in run["results"] if each["ruleId"] == "unmixing")
    assert (result["level"], result["message"]["text"].split(": ")[1]) == ("warning", "Could not tell")


def test_a_line_about_the_sum_stays_untold_under_a_waiver():
    """So does an adversary of whom nothing is told: its line has a state of its own."""
    head = replace(
        sample.finding("membership_head", Verdict.INCONCLUSIVE, "Too few."), adversary="released_head_white_box"
    )
    report = sample.report()
    only = replace(report.examinations[0].adversary, name="released_head_white_box", attacks=("membership_head",))
    report = replace(
        report, examinations=(*report.examinations, replace(report.examinations[0], adversary=only, findings=(head,)))
    )
    waivers = [waiver(each, "released_head_white_box", more=UNTOLD) for each in ("membership_head", "audit")]
    made = gated(report, *waivers)
    (line,) = (each for each in made.session_lines if each.attack == "audit")
    assert (made.gate.exit_code, made.state_of_line(line), made.state) == (0, SessionState.UNTOLD, SessionState.UNTOLD)
