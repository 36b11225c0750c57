"""The gate: read strictly, judged on the limits of intervals."""

import math
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import BadInput
from tests.threat_models.report import sample
from tests.threat_models.report.sample import HEAD
from threat_models.attacks.membership.noise_check import NOISE
from threat_models.findings import Measure, Verdict
from threat_models.report.content import GateLine, GateOutcome, GateResult, SessionState
from threat_models.report.gate import DEFAULT, Gate
from threat_models.report.gate_evaluation import BY_VERDICT, judge

TODAY = date(2026, 3, 1)


def gate(*tables):
    """A gate of the head and some tables of TOML."""
    return Gate.parse("\n".join((HEAD, *tables)))


def outcomes(result, attack):
    """The outcomes of the lines about one attack."""
    return [line.outcome for line in result.lines if line.attack == attack]


def judged(rule, *measures, claimed=1.0, verdict=Verdict.FAILS):
    """The outcomes of one rule's lines about a finding with these measures."""
    report = sample.with_findings(sample.report(), sample.finding("unmixing", verdict, measures=measures))
    report = replace(report, promise=replace(report.promise, claimed=claimed, measured=None))
    return outcomes(judge(gate('[[rule]]\nattack = "unmixing"\nreason = "r"', rule), report, TODAY), "unmixing")


def test_default_gate_passes_a_masked_session_at_epsilon_one():
    """All lines pass, so the exit code is 0, though members are told from others as well as ε allows."""
    result = judge(Gate.read(), sample.report(), TODAY)
    assert {line.outcome for line in result.lines} == {GateOutcome.PASS}
    assert (result.outcome, result.exit_code) == (GateOutcome.PASS, 0)


def test_transcript_that_nobody_vouches_for_is_inconclusive():
    """What stands in a transcript with doubts may be found in another consortium's: exit 4, its own words say why."""
    report = sample.report()
    doubtful = replace(sample.PROVENANCE, verdict="consistent, but …", has_doubts=True)
    for signed, code in (((sample.PROVENANCE, doubtful), 4), ((sample.PROVENANCE,), 0)):
        result = judge(Gate.read(), replace(report, subject=replace(report.subject, provenance=signed)), TODAY)
        assert result.exit_code == code
        lines = [line for line in result.lines if line.attack == "transcript"]
        assert [line.outcome for line in lines] == [GateOutcome.PASS, GateOutcome.INCONCLUSIVE][: len(signed)]
        assert lines[-1].sentence == f"server.transcript: {signed[-1].verdict}; the sum is the uploads'."


def test_default_gate_fails_unprotected_uploads():
    """A plan without protection fails by that alone, whatever the attacks found."""
    report = sample.report()
    result = judge(Gate.read(), replace(report, subject=replace(report.subject, protection="none")), TODAY)
    assert result.exit_code == 1
    assert [line.attack for line in result.lines if line.outcome is GateOutcome.FAIL] == ["protection"]


def test_default_gate_passes_an_exact_sum_of_many_records():
    """Without noise a masked sum of 50,000 records of 512 dimensions passes where no attack succeeds by it."""
    report = sample.exact(sample.report())
    assert judge(Gate.read(), report, TODAY).exit_code == 1  # members are told, and no promise says how well
    hidden = sample.with_findings(report, sample.finding("membership_release", Verdict.FAILS, measures=(AUC,)))
    assert judge(Gate.read(), hidden, TODAY).exit_code == 0


@pytest.mark.parametrize(("records", "outcome"), [(5_120, GateOutcome.PASS), (5_119, GateOutcome.FAIL)])
def test_exact_sum_needs_ten_times_as_many_records_as_dimensions(records, outcome):
    """The line is drawn at ten records for each of 512 dimensions."""
    assert outcomes(judge(Gate.read(), sample.exact(sample.report(), records), TODAY), "records") == [outcome]


@pytest.mark.parametrize(
    ("factor", "records", "outcome"), [("0.3", 153, GateOutcome.FAIL), ("0.3", 154, GateOutcome.PASS)]
)
def test_a_part_of_a_record_asks_for_a_whole_one(factor, records, outcome):
    """0.3 records for each of 512 dimensions are 153.6: 153 are too few."""
    least = Gate.parse(HEAD.replace("= 10", f"= {factor}"))
    assert outcomes(judge(least, sample.exact(sample.report(), records), TODAY), "records") == [outcome]


def test_failure_for_few_records_names_the_figures_of_unmixing():
    """An exact sum of 64 records fails, and the line says how well they were recovered."""
    report = sample.with_findings(sample.exact(sample.report(), 64), *sample.exposed_findings())
    result = judge(Gate.read(), report, TODAY)
    assert result.exit_code == 1
    assert "cosine of the recovered features, all 0.9991 (0.9989 to 0.9993)" in "".join(
        line.sentence for line in result.lines if line.attack == "records"
    )
    assert outcomes(result, "unmixing") == [GateOutcome.FAIL]


def test_default_gate_lets_the_control_without_protection_succeed():
    """What the adversary called no_protection finds in a masked session fails nothing."""
    assert judge(Gate.read(), sample.with_control(sample.report()), TODAY).exit_code == 0


@pytest.mark.parametrize(
    ("measure", "outcome"),
    [
        (sample.measure("auc.informed", 0.6, 0.58, 0.62, ceiling=0.575), GateOutcome.FAIL),
        (sample.measure("auc.informed", 0.57, 0.56, 0.62, ceiling=0.575), GateOutcome.PASS),
        (sample.measure("auc.informed", 0.57, 0.56, 0.62), GateOutcome.INCONCLUSIVE),
        (sample.measure("auc.informed", np.nan, np.nan, np.nan, ceiling=0.575), GateOutcome.INCONCLUSIVE),
    ],
)
def test_membership_is_held_to_the_ceiling_beyond_its_interval(measure, outcome):
    """Only an interval wholly above the ceiling fails; without a ceiling or figures a finite ε is not shown to hold."""
    found = sample.finding("membership_release", Verdict.SUCCEEDS, measures=(measure,))
    result = judge(Gate.read(), sample.with_findings(sample.report(), found), TODAY)
    assert (result.outcome, outcomes(result, "membership_release")) == (outcome, [outcome])


def test_noise_found_short_in_the_sum_fails():
    """A variance wholly below the plan's fails the default gate, though no ceiling is crossed."""
    short = Measure(NOISE, 0.5, 0.45, 0.55, "chi-square, 95 %", baseline=1.0)
    auc = sample.measure("auc.informed", 0.55, 0.54, 0.56, ceiling=0.575)
    found = sample.finding("membership_release", Verdict.SUCCEEDS, measures=(auc, short))
    result = judge(Gate.read(), sample.with_findings(sample.report(), found), TODAY)
    assert outcomes(result, "membership_release") == [GateOutcome.PASS, GateOutcome.FAIL]


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"recomputed": 1.01}, GateOutcome.FAIL),
        ({"session_noise": None}, GateOutcome.INCONCLUSIVE),
        ({"session_noise": replace(sample.report().promise.session_noise, low=0.6)}, GateOutcome.INCONCLUSIVE),
        ({"session_noise": replace(sample.report().promise.session_noise, high=0.99)}, GateOutcome.FAIL),
        ({"measured": replace(sample.report().promise.measured, lower=1.2)}, GateOutcome.FAIL),
        ({"measured": replace(sample.report().promise.measured, refuted=True)}, GateOutcome.FAIL),
        ({"measured": replace(sample.report().promise.measured, is_enough=False)}, GateOutcome.INCONCLUSIVE),
        ({"measured": replace(sample.report().promise.measured, is_enough=False, refuted=True)}, GateOutcome.FAIL),
        ({"drawn": replace(sample.report().promise.drawn, flaws=("Two shares are the same.",))}, GateOutcome.FAIL),
        ({"drawn": replace(sample.report().promise.drawn, flaws=("None.",)), "claimed": np.inf}, GateOutcome.FAIL),
    ],
)
def test_promise_must_hold(changes, outcome):
    """A claim that the auditor cannot reproduce, or that was disproved, fails; one not measured is inconclusive."""
    report = sample.report()
    assert judge(Gate.read(), replace(report, promise=replace(report.promise, **changes)), TODAY).outcome is outcome


@pytest.mark.parametrize(
    ("low", "high", "entries", "measured", "outcome"),
    [
        (0.95, 1.1, 74, True, GateOutcome.PASS),
        (0.6, 1.1, 74, True, GateOutcome.INCONCLUSIVE),
        (0.0, np.inf, 0, True, GateOutcome.INCONCLUSIVE),
        (0.0, 0.99, 74, True, GateOutcome.FAIL),
        (0.0, 0.99, 74, False, GateOutcome.FAIL),
        (0.0, np.inf, 0, False, GateOutcome.PASS),
    ],
)
def test_noise_of_the_session_is_judged_by_its_limits(low, high, entries, measured, outcome):
    """Too little fails under any gate; what is not known, or not well enough, is inconclusive where it is asked for."""
    report = sample.report()
    noise = replace(sample.SESSION_NOISE, low=low, high=high, entries=entries)
    gate = replace(Gate.read(), measured=measured)
    result = judge(gate, replace(report, promise=replace(report.promise, session_noise=noise)), TODAY)
    assert result.outcome is outcome
    assert [line.outcome for line in result.lines if line.attack == "noise"] == [outcome] * (measured or high < 1)


def test_noise_of_which_nobody_speaks_is_inconclusive():
    """A report with a finite ε and no noise of the session does not pass the default gate."""
    report = sample.report()
    result = judge(Gate.read(), replace(report, promise=replace(report.promise, session_noise=None)), TODAY)
    assert result.outcome is GateOutcome.INCONCLUSIVE


@pytest.mark.parametrize("controls", [(), sample.CONTROLS[:1], sample.CONTROLS[1:], sample.BROKEN])
def test_controls_must_be_there_and_hold(controls):
    """An attack without both controls, or with one that did not behave, is inconclusive: exit code 4."""
    found = sample.finding("unmixing", Verdict.FAILS, controls=controls)
    assert judge(Gate.read(), sample.with_findings(sample.report(), found), TODAY).exit_code == 4


def test_exact_blocks_that_no_attack_reads_are_inconclusive():
    """Without noise, what nothing here can read keeps a sum from passing; under a finite epsilon it does not."""
    report = sample.report()
    unread = replace(report, subject=replace(report.subject, unread=("gradient",)))
    assert judge(Gate.read(), unread, TODAY).exit_code == 0
    lines = judge(Gate.read(), sample.exact(unread), TODAY).lines
    assert [line.outcome for line in lines if "gradient" in line.sentence] == [GateOutcome.INCONCLUSIVE]


def test_exact_updates_of_which_attacks_read_a_part_are_inconclusive():
    """That some attacks on updates fail does not let an exact sum of them pass: they are not all that there are."""
    report = sample.exact(sample.report())
    half = replace(report, subject=replace(report.subject, half_read=("update",)))
    lines = judge(Gate.read(), half, TODAY).lines
    assert [line.outcome for line in lines if "What else they tell" in line.sentence] == [GateOutcome.INCONCLUSIVE]


def test_attack_that_was_not_run_is_inconclusive():
    """What the adversary declares and nobody ran is never a pass, nor is a report without any finding."""
    report = sample.report()
    server = report.examinations[0]
    fewer = replace(report, examinations=(replace(server, findings=server.findings[:-1]),))
    assert outcomes(judge(Gate.read(), fewer, TODAY), "masked_uploads") == [GateOutcome.INCONCLUSIVE]
    assert judge(Gate.read(), replace(report, examinations=()), TODAY).exit_code == 4


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        (Verdict.SUCCEEDS, GateOutcome.FAIL),
        (Verdict.FAILS, GateOutcome.PASS),
        (Verdict.INCONCLUSIVE, GateOutcome.INCONCLUSIVE),
        (Verdict.NOT_APPLICABLE, GateOutcome.PASS),
    ],
)
def test_attack_without_a_rule_must_not_succeed(verdict, outcome):
    """Where the gate says nothing of an attack its verdict decides."""
    report = sample.with_findings(sample.report(), sample.finding("label_counts", verdict))
    assert outcomes(judge(Gate.read(), report, TODAY), "label_counts") == [outcome]


@pytest.mark.parametrize(
    ("rule", "low", "high", "outcome"),
    [
        ("at_most = 0.5", 0.4, 0.5, GateOutcome.PASS),
        ("at_most = 0.5", 0.4, 0.6, GateOutcome.INCONCLUSIVE),
        ('at_most = 0.5\nunclear = "pass"', 0.4, 0.6, GateOutcome.PASS),
        ('at_most = 0.5\nunclear = "fail"', 0.4, 0.6, GateOutcome.FAIL),
        ("at_most = 0.5", 0.51, 0.6, GateOutcome.FAIL),
        ("at_most = 0.5\nmargin = 0.1", 0.51, 0.6, GateOutcome.PASS),
        ("at_least = 0.5", 0.5, 0.6, GateOutcome.PASS),
        ("at_least = 0.5", 0.4, 0.6, GateOutcome.INCONCLUSIVE),
        ("at_least = 0.5", 0.4, 0.49, GateOutcome.FAIL),
        ("at_least = 0.5\nmargin = 0.1", 0.4, 0.49, GateOutcome.PASS),
        ('at_most = "baseline"', 0.1, 0.2, GateOutcome.PASS),
        ('at_most = "baseline"', 0.21, 0.3, GateOutcome.FAIL),
        ("at_most = 0.5", np.nan, np.nan, GateOutcome.INCONCLUSIVE),
        ('at_most = "ceiling"', 0.1, 0.2, GateOutcome.INCONCLUSIVE),
    ],
)
def test_measures_are_judged_by_their_limits(rule, low, high, outcome):
    """The whole interval on one side decides; where the threshold is inside it the gate says what that means."""
    found = judged(
        f'measure = "least_cosine"\n{rule}',
        sample.measure("least_cosine", (low + high) / 2, low, high, baseline=0.2),
    )
    assert found == [outcome]


@pytest.mark.parametrize(
    ("verdict", "outcome"), [(Verdict.FAILS, GateOutcome.PASS), (Verdict.SUCCEEDS, GateOutcome.FAIL)]
)
def test_rule_that_judges_nothing_takes_the_place_of_none(verdict, outcome):
    """Where optional rules find no measure the attack must not succeed, as without them."""
    rule = '[[rule]]\nattack = "unmixing"\nreason = "r"\nmeasure = "least_cosine"\nat_most = 0\noptional = true'
    report = sample.with_findings(sample.report(), sample.finding("unmixing", verdict))
    assert outcomes(judge(gate(rule), report, TODAY), "unmixing") == [outcome]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("auc.lira_online", [GateOutcome.FAIL]),
        ("auc", [GateOutcome.FAIL, GateOutcome.PASS]),
        ("*", [GateOutcome.FAIL, GateOutcome.PASS, GateOutcome.PASS]),
    ],
)
def test_rule_judges_what_its_name_stands_for(name, expected):
    """An id stands for one metric, the part before its dot for all that begin so, and * for everything."""
    found = (("auc.lira_online", 0.9), ("auc.worst_class", 0.1), ("blind_auc", 0.1))
    measures = [sample.measure(each, value, value, value) for each, value in found]
    rule = f'[[rule]]\nattack = "membership_head"\nreason = "r"\nmeasure = "{name}"\nat_most = 0.5'
    found = sample.finding("membership_head", Verdict.FAILS, measures=tuple(measures))
    result = judge(gate(rule), sample.with_findings(sample.report(), found), TODAY)
    assert outcomes(result, "membership_head") == expected


@pytest.mark.parametrize(
    ("attack", "words", "id_"),
    [
        ("membership_release", "noise variance over the plan's", "noise_variance"),
        ("membership_head", "AUC, LiRA online", "auc.lira_online"),
        ("feature_inversion", "SSIM, *", "ssim"),
    ],
)
def test_gate_that_names_a_measure_in_words_is_told_its_id(attack, words, id_):
    """Gates of earlier versions named measures as reports call them: each is refused with the id to write instead."""
    with pytest.raises(BadInput, match="by their ids") as refused:
        gate(f'[[rule]]\nattack = "{attack}"\nreason = "r"\nmeasure = "{words}"\nat_most = 1')
    assert f"did you mean '{id_}'" in refused.value.remedy


def test_ceiling_binds_only_where_something_is_promised():
    """Without a ceiling the verdict is judged at ε = ∞, and nothing at a finite ε."""
    rule, measure = 'measure = "*"\nat_most = "ceiling"', sample.measure("auc.informed", 1.0, 0.99, 1.0)
    for verdict, outcome in BY_VERDICT.items():
        assert judged(rule, measure, claimed=np.inf, verdict=verdict) == [outcome]
    assert judged(rule, measure) == [GateOutcome.INCONCLUSIVE]
    assert GateOutcome.INCONCLUSIVE in judged(rule, claimed=np.inf)  # nothing was measured


@given(st.floats(-1, 2), st.floats(-1, 2), st.floats(-1, 2))
def test_gate_never_passes_an_interval_beyond_the_threshold(one, other, threshold):
    """Whatever the numbers: pass means all of the interval within, fail all of it beyond."""
    low, high = sorted((one, other))
    found = judged(f'measure = "least_cosine"\nat_most = {threshold!r}', sample.measure("least_cosine", low, low, high))
    assert found == [
        GateOutcome.PASS if high <= threshold else GateOutcome.FAIL if low > threshold else GateOutcome.INCONCLUSIVE
    ]


def test_narrowest_rule_counts():
    """A rule for one adversary takes the place of one for all."""
    broad = '[[rule]]\nattack = "unmixing"\ntolerated = true\nreason = "r"'
    narrow = '[[rule]]\nattack = "unmixing"\nadversary = "curious_server"\nreason = "r"'
    report = sample.with_findings(sample.report(), sample.finding("unmixing", Verdict.SUCCEEDS))
    assert outcomes(judge(gate(broad), report, TODAY), "unmixing") == [GateOutcome.PASS]
    assert outcomes(judge(gate(broad, narrow), report, TODAY), "unmixing") == [GateOutcome.FAIL]


WAIVER = """
[[waiver]]
attack = "unmixing"
adversary = "curious_server"
reason = "ticket 7"
expires = {}
"""


@pytest.mark.parametrize(
    ("expires", "outcome"), [("2026-03-01", [GateOutcome.PASS]), ("2026-02-28", [GateOutcome.FAIL, GateOutcome.FAIL])]
)
def test_waiver_counts_up_to_its_day(expires, outcome):
    """On its last day it lets the failure pass and its reason is told; a day later it is a failure itself."""
    report = sample.with_findings(sample.report(), sample.finding("unmixing", Verdict.SUCCEEDS))
    result = judge(gate(WAIVER.format(expires)), report, TODAY)
    assert outcomes(result, "unmixing") == outcome
    assert [line.waiver for line in result.lines if line.waiver] == (
        ["ticket 7 (until 2026-03-01)"] if outcome == [GateOutcome.PASS] else []
    )


def test_expired_waiver_fails_though_the_attack_does_not_succeed():
    """A waiver that nobody needs any more must be taken out of the file."""
    result = judge(gate(WAIVER.format("2026-02-28")), sample.report(), TODAY)
    assert outcomes(result, "unmixing") == [GateOutcome.PASS, GateOutcome.FAIL]


def test_waiver_lets_nothing_else_pass():
    """It is for one attack by one adversary."""
    report = sample.with_findings(sample.report(), sample.finding("feature_inversion", Verdict.SUCCEEDS))
    assert judge(gate(WAIVER.format("2026-03-01")), report, TODAY).exit_code == 1


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ((), 0),
        ((GateOutcome.PASS,), 0),
        ((GateOutcome.PASS, GateOutcome.INCONCLUSIVE), 4),
        ((GateOutcome.INCONCLUSIVE, GateOutcome.FAIL), 1),
    ],
)
def test_exit_code_is_that_of_the_worst_line(found, code):
    """One failure outweighs everything, what is inconclusive every pass."""
    lines = tuple(GateLine("unmixing", "curious_server", outcome, "") for outcome in found)
    assert GateResult(lines, "", "2026-03-01").exit_code == code


def test_waiver_lets_nothing_unknown_pass():
    """A control that did not behave stays inconclusive under a waiver: nobody knows what it would let pass."""
    found = sample.finding("unmixing", Verdict.FAILS, controls=sample.BROKEN)
    result = judge(gate(WAIVER.format("2026-03-01")), sample.with_findings(sample.report(), found), TODAY)
    assert GateOutcome.INCONCLUSIVE in outcomes(result, "unmixing")
    assert not [line.waiver for line in result.lines if line.waiver]


UNTOLD = WAIVER.format("2026-03-01") + "inconclusive = true\n"


def test_waiver_of_the_inconclusive_lets_that_pass_and_no_failure():
    """The gate passes with the reason told, and the page goes on saying that nobody could tell."""
    unclear = sample.with_findings(sample.report(), sample.finding("unmixing", Verdict.INCONCLUSIVE))
    result = judge(gate(UNTOLD), unclear, TODAY)
    assert outcomes(result, "unmixing") == [GateOutcome.PASS]
    assert [line.waiver for line in result.lines if line.waiver] == ["ticket 7 (until 2026-03-01)"]
    judged = replace(unclear, gate=result)
    (found,) = [each for each in judged.findings if (each.attack, each.adversary) == ("unmixing", "curious_server")]
    assert judged.state_of(found) is SessionState.UNTOLD
    failed = sample.with_findings(sample.report(), sample.finding("unmixing", Verdict.SUCCEEDS))
    assert GateOutcome.FAIL in outcomes(judge(gate(UNTOLD), failed, TODAY), "unmixing")


def test_an_adversary_of_whom_nothing_is_told_can_be_waived():
    """Its line is called audit; without inconclusive = true no waiver has that name."""
    text = UNTOLD.replace('"unmixing"', '"audit"').replace("curious_server", "released_head_white_box")
    assert gate(text).waivers[0].inconclusive
    with pytest.raises(BadInput, match="has no attack 'audit'"):
        gate(text.replace("inconclusive = true", ""))


def alone(*findings, claimed=1.0):
    """A report on findings of the curious server that declares no other attack."""
    report = sample.report()
    names = tuple(each.attack for each in findings)
    server = replace(report.examinations[0], findings=findings)
    server = replace(server, adversary=replace(server.adversary, attacks=names))
    promise = replace(report.promise, claimed=claimed)
    return replace(report, examinations=(server,), promise=promise)


AUC = sample.measure("auc.loss", 0.5, 0.4, 0.6, ceiling=0.93)


@pytest.mark.parametrize(
    ("beside", "claimed", "code"),
    [
        ((), 1.0, 4),
        ((sample.finding("small_cells", Verdict.NOT_APPLICABLE),), 1.0, 4),
        ((sample.finding("property_inference", Verdict.FAILS),), 1.0, 4),
        ((sample.finding("small_cells", Verdict.FAILS),), 1.0, 0),
        ((), np.inf, 4),
        ((sample.finding("small_cells", Verdict.FAILS),), np.inf, 4),
    ],
)
def test_adversary_of_whom_nothing_is_known_is_inconclusive(beside, claimed, code):
    """Limits that an inconclusive attack keeps pass only beside one that tells something; tolerated ones do not.

    Where no ε is promised there are no limits, and what is inconclusive is.
    """
    unclear = sample.finding("membership_head", Verdict.INCONCLUSIVE, measures=(AUC,))
    report = alone(unclear, *beside, claimed=claimed)
    assert judge(Gate.read(), report, TODAY).exit_code == code


def test_tolerated_attacks_that_tell_nothing_are_inconclusive():
    """An adversary of whom all that ran is inconclusive does not pass because the gate would have let it succeed."""
    found = [sample.finding(name, Verdict.INCONCLUSIVE) for name in ("loss_entropy_gaps", "property_inference")]
    notes = (*sample.NOTES, replace(sample.NOTES[0], name="loss_entropy_gaps"))
    assert judge(Gate.read(), replace(alone(found[1]), attacks=notes), TODAY).exit_code == 4
    told = sample.finding("property_inference", Verdict.FAILS)
    assert judge(Gate.read(), alone(told), TODAY).exit_code == 0


LIMITS = st.lists(st.floats(0, 1), min_size=2, max_size=2).map(sorted)
NUMBERS = st.one_of(LIMITS, st.just((math.nan, math.nan)))
JUDGED = ("unmixing", "membership_release", "membership_head", "property_inference", "small_cells")


@st.composite
def exact_and_promised(draw):
    """One finding without a promise, and the same under one: with ceilings on its measures, which a success breaks."""
    name = draw(st.sampled_from(JUDGED))
    limits = draw(st.lists(NUMBERS, max_size=3))
    names = ("auc.one", "auc.other", "tpr_at_1e-2.one")
    exact = [sample.measure(each, low, low, high) for each, (low, high) in zip(names, limits, strict=False)]
    promised = [replace(each, ceiling=draw(st.floats(0, 1))) for each in exact]
    crossed = any(each.low > each.ceiling for each in promised)
    verdict = Verdict.SUCCEEDS if crossed else draw(st.sampled_from(list(Verdict)))
    controls = draw(st.sampled_from([sample.CONTROLS, sample.BROKEN, ()]))
    rest = {"controls": controls, "unseen": draw(st.sampled_from([(), ("head",)]))}
    return tuple(sample.finding(name, verdict, measures=tuple(each), **rest) for each in (exact, promised))


@given(st.lists(exact_and_promised(), max_size=5, unique_by=lambda pair: pair[0].attack), st.integers(1, 10**6))
def test_less_protection_never_looks_better(pairs, records):
    """Whatever was found: without a promise outcome and state are never better than under one that holds."""
    order = [GateOutcome.PASS, GateOutcome.INCONCLUSIVE, GateOutcome.FAIL]
    exact, promised = (alone(*(pair[side] for pair in pairs)) for side in (0, 1))
    found = [replace(each, gate=judge(Gate.read(), each, TODAY)) for each in (sample.exact(exact, records), promised)]
    assert order.index(found[0].gate.outcome) >= order.index(found[1].gate.outcome)
    assert found[0].state.rank >= found[1].state.rank


def test_doubt_about_what_was_brought_is_inconclusive():
    """Records that may not be what they are called keep any audit from passing, under a name that waivers know."""
    report = sample.report()
    doubted = replace(report, subject=replace(report.subject, doubts=("Those of --public took part.",)))
    result = judge(Gate.read(), doubted, TODAY)
    assert (outcomes(result, "inputs"), result.exit_code) == ([GateOutcome.INCONCLUSIVE], 4)


def test_measures_of_a_part_do_not_pass():
    """Limits kept by an attack that had not all its adversary sees are inconclusive, whatever other attacks tell."""
    partial = sample.finding("membership_head", Verdict.INCONCLUSIVE, measures=(AUC,), unseen=("head",))
    result = judge(Gate.read(), sample.with_findings(sample.report(), partial), TODAY)
    assert GateOutcome.INCONCLUSIVE in outcomes(result, "membership_head")


def test_unknown_number_of_records_is_inconclusive():
    """An exact sum without counts has no figure to fail by."""
    report = sample.with_findings(sample.report(), sample.finding("membership_release", Verdict.FAILS, measures=(AUC,)))
    result = judge(Gate.read(), sample.exact(report, None), TODAY)
    assert (outcomes(result, "records"), result.exit_code) == ([GateOutcome.INCONCLUSIVE], 4)


def test_control_that_was_not_run_judges_nothing():
    """Where a transcript has no vectors in clear the control of the audit is missing, and the session passes still."""
    report = sample.with_control(sample.report())
    control = report.examinations[0]
    left = {"verdict": Verdict.INCONCLUSIVE, "measures": (), "controls": (), "unseen": ("contributions",)}
    control = replace(control, findings=tuple(replace(each, **left) for each in control.findings))
    assert judge(Gate.read(), replace(report, examinations=(control, *report.examinations[1:])), TODAY).exit_code == 0


RULE = '[[rule]]\nattack = "unmixing"\nreason = "r"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("format = ", "no valid TOML"),
        (HEAD.replace("gate/1", "gate/2"), "format"),
        (HEAD.replace('format = "secagg-gate/1"', ""), "format"),
        (HEAD.replace("controls = true", ""), "lacks controls"),
        (f"{HEAD}\nstrict = true", "has no key strict"),
        (HEAD.replace("controls = true", "controls = 1"), "controls is neither true nor false"),
        (HEAD.replace("= 10", "= true"), "records_per_dimension is no number"),
        (HEAD.replace("= 10", "= -1"), "records_per_dimension is no number"),
        (HEAD.replace("= 10", "= inf"), "records_per_dimension is no number"),
        (HEAD.replace('["masked"]', "[]"), "protections is no list of names"),
        (HEAD.replace('["masked"]', "[1]"), "protections is no list of names"),
        (f"{HEAD}\nrule = 1", "lists of tables"),
        (f"{HEAD}\n[rule]\nattack = 'a'", "lists of tables"),
        (f'{HEAD}\n[[rule]]\nattack = "a"', "rule 1 lacks reason"),
        (f'{HEAD}\n[[rule]]\nattack = ""\nreason = "r"', "attack is no text"),
        (f"{HEAD}\n{RULE}measures = 1", "rule 1 has no key measures"),
        (f'{HEAD}\n{RULE}measure = "m"', "one of at_most and at_least"),
        (f'{HEAD}\n{RULE}measure = "m"\nat_most = 1\nat_least = 1', "one of at_most and at_least"),
        (f"{HEAD}\n{RULE}at_most = 1", "one of at_most and at_least"),
        (f'{HEAD}\n{RULE}measure = "m"\nat_most = "chance"', "at_most is neither"),
        (f'{HEAD}\n{RULE}measure = "m"\nat_most = nan', "at_most is neither"),
        (f'{HEAD}\n{RULE}measure = "m"\nat_most = true', "at_most is neither"),
        (f'{HEAD}\n{RULE}measure = "m"\nat_most = 1\nmargin = -1', "margin is no number"),
        (f'{HEAD}\n{RULE}measure = "m"\nat_most = 1\nunclear = "maybe"', "unclear is none of"),
        (f'{HEAD}\n{RULE}measure = "m"\nat_most = 1\ntolerated = true', "tolerated goes without"),
        (f"{HEAD}\n{RULE}".replace("unmixing", "unmixin"), "did you mean 'unmixing'"),
        (f'{HEAD}\n{RULE}adversary = "server"', "did you mean 'curious_server'"),
        (f'{HEAD}\n{RULE}measure = "members found by the range of B"\nat_most = 1', "did you mean 'members_found'"),
        (f'{HEAD}\n{RULE}measure = "AUC*"\nat_most = 1', "unmixing has no measure"),
        (HEAD + WAIVER.format("2026-03-01").replace("curious_server", "curious"), "did you mean 'curious_server'"),
        (HEAD + WAIVER.format("2026-03-01").replace("unmixing", "mixing"), "did you mean 'unmixing'"),
        (
            HEAD + WAIVER.format("2026-03-01").replace("curious_server", ""),
            "without an adversary there is no 'unmixing'",
        ),
        (f'{HEAD}\n{RULE}adversary = "network_observer"', "network_observer has no attack 'unmixing'"),
        (f'{HEAD}\n{RULE}measure = "least_cosine*"\nat_most = 0', "did you mean 'least_cosine'"),
        (
            HEAD + WAIVER.format("2026-03-01").replace("curious_server", "network_observer"),
            "network_observer has no attack 'unmixing'",
        ),
        (HEAD + WAIVER.format("2026-03-01").replace('"curious_server"', "[]"), "adversary is no text"),
        (HEAD + WAIVER.format("2026-03-01").replace('"curious_server"', "0"), "adversary is no text"),
        (HEAD.replace('["masked"]', '["maskd"]'), "did you mean 'masked'"),
        (f"{HEAD}\n{RULE}margin = 1", "go with a measure"),
        (HEAD + WAIVER.format('"2026-03-01"'), "expires is not a date"),
        (HEAD + WAIVER.format("2026-03-01T00:00:00"), "expires is not a date"),
        (HEAD + WAIVER.format("2026-03-01").replace("ticket 7", " "), "reason is no text"),
        (HEAD + WAIVER.format("2026-03-01").replace('reason = "ticket 7"', ""), "waiver 1 lacks reason"),
    ],
)
def test_gate_that_is_not_exact_is_refused(text, problem):
    """Missing, unknown and ill-typed keys are named, as are rules that say nothing."""
    with pytest.raises(BadInput, match=problem):
        Gate.parse(text)


def test_file_at_fault_is_named(tmp_path):
    """What is wrong with a file, or that it is not there, is said with its name."""
    path = tmp_path / "my.toml"
    with pytest.raises(BadInput, match=r"my\.toml: No such file"):
        Gate.read(path)
    path.write_text("format = 1")
    with pytest.raises(BadInput, match=r"my\.toml: the format"):
        Gate.read(path)
    path.write_bytes(b"\xff")
    with pytest.raises(BadInput, match=r"my\.toml: not UTF-8"):
        Gate.read(path)


def test_gate_bears_the_digest_of_its_file(tmp_path):
    """Two gates that differ by one byte differ in their digest."""
    path = tmp_path / "gate.toml"
    path.write_text(f"{DEFAULT.read_text(encoding='utf-8')}\n", encoding="utf-8")
    assert Gate.read(path).sha256 != Gate.read().sha256
