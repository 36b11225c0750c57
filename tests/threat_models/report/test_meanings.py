"""Units, what would be good, and the measure that sums a finding up."""

import math

import pytest

from tests.threat_models.report import sample
from threat_models.attacks import ATTACKS
from threat_models.findings import Measure, Verdict
from threat_models.report.meanings import MEANINGS, good_of, in_units, is_known, leading, meaning_of, summed_up


def inversion(*names):
    """A finding of feature inversion with measures of these names."""
    measures = tuple(sample.measure(name, 0.5, 0.4, 0.6, baseline=0.1) for name in names)
    return sample.finding("feature_inversion", Verdict.FAILS, measures=measures)


def test_every_attack_has_its_meanings():
    """The table knows all attacks and nothing else, and each has a measure that may sum it up."""
    assert set(MEANINGS) == {*ATTACKS, "malicious_server"}
    assert all(any(each.leads for each in found) for found in MEANINGS.values())


def test_summary_has_name_value_interval_unit_good_and_ceiling():
    """One line says what was measured, how surely, what would be good and what ε allows."""
    measure = sample.measure("TPR at 1 % FPR, x", 0.019, 0.017, 0.022, baseline=0.01, ceiling=0.0198)
    auc = sample.measure("AUC, x", 0.57, 0.565, 0.576, baseline=0.5, ceiling=0.575)
    found = sample.finding("membership_release", Verdict.FAILS, measures=(measure, auc))
    assert (
        summed_up(found)
        == "AUC, x: 0.57 (0.565 to 0.576); good: 0.5, chance; a success above 0.6; epsilon allows 0.575"
    )


def test_shares_are_said_in_per_cent():
    """A share of 1 never stands as a bare 1."""
    found = inversion("re-identified, class mean of sum of all")
    assert summed_up(found).endswith("sum of all: 50 % (40 to 60 %); good: no more than 10 %, by the class alone")
    assert in_units("malicious_server", Measure("a: b", 1, 1, 1, "none"), 1.0) == "refused"
    assert in_units("unmixing", Measure("strangers taken for members", 0, 0, 0, "none"), math.nan) == "not supported"


def test_what_the_view_shows_sums_up_an_inversion():
    """Neither the control on raw features nor a baseline does, wherever they stand; the smallest sum comes first."""
    others = ("re-identified, raw feature", "re-identified, class mean of public records", "re-identified, mean image")
    assert leading(inversion(*others)) is None
    assert summed_up(inversion(*others)) == ""
    names = (*others, "re-identified, class mean of sum of all", "re-identified, N, A and B of its client")
    assert leading(inversion(*names)).name == "re-identified, N, A and B of its client"


def test_unknown_measures_are_plain_numbers():
    """A measure that the table lacks is shown, without a unit or a judgement."""
    measure = sample.measure("something new", 0.5, 0.4, 0.6)
    assert meaning_of("unmixing", "something new").unit == ""
    assert (in_units("unmixing", measure, 0.5), good_of("unmixing", measure)) == ("0.5", "")


def test_good_needs_its_reference():
    """Without a baseline nothing is said of what would be good compared with it."""
    assert good_of("unmixing", sample.measure("least cosine, x", 0.5, 0.4, 0.6)) == ""


@pytest.mark.parametrize(
    ("attack", "measure", "known"),
    [
        ("membership_release", "*", True),
        ("membership_release", "AUC*", True),
        ("membership_release", "AUC, from the release alone", True),
        ("membership_release", "AUC of the worst class (7)", True),
        ("membership_release", "auroc", False),
        ("unmixing", "AUC*", False),
        ("*", "AUC*", True),
        ("nothing", "*", False),
    ],
)
def test_rules_can_name_what_attacks_measure(attack, measure, known):
    """Names and patterns that fit a measure of the attack are known, others are not."""
    assert is_known(attack, measure) is known
