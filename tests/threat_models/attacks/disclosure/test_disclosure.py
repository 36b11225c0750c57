"""Counts, class shares and group means that a vector tells."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.threat_models.attacks.audited import attacked, measured, rehearsed
from threat_models.attacks.disclosure.label_counts import (
    LABEL_COUNTS,
    NAMES,
    class_means,
    class_shares,
    counts_from_sums,
)
from threat_models.attacks.disclosure.property_inference import PROPERTY_INFERENCE, _errors, _measure
from threat_models.attacks.gaussian_likelihood import total
from threat_models.findings import Verdict
from threat_models.report.text import good_of
from threat_models.session import SOMEBODY, AuditRecords


def test_counts_follow_from_sums_of_class_means():
    """Where every record is its class's mean, the counts are found exactly."""
    means = np.random.default_rng(0).normal(size=(3, 5))
    counts = np.array([4, 0, 11])
    assert counts_from_sums(counts[:, None] * means, means) == pytest.approx(counts)


def test_class_means_and_shares():
    """Golden: means of two classes, none of a third; shares of counts, of which noise may make one negative."""
    integers = np.array([[2, 0], [4, 0], [0, 6]])
    records = AuditRecords(integers, np.array([0, 0, 1]), integers.astype(float))
    assert class_means(records, 3).tolist() == [[3.0, 0.0], [0.0, 6.0], [0.0, 0.0]]
    assert class_shares(np.array([3.0, -1.0, 1.0])).tolist() == [0.75, 0.0, 0.25]
    assert class_shares(np.zeros(4)).tolist() == [0.25] * 4


@pytest.mark.parametrize("dataset", ["breast-cancer", "digits"])
def test_counts_in_clear_are_disclosed(dataset):
    """Without protection every client's counts are read off, and class sums alone give them nearly as well."""
    finding = attacked(LABEL_COUNTS, "no_protection", rehearsed(dataset, partition="dirichlet:0.3"))
    assert finding.verdict is Verdict.SUCCEEDS
    assert all(control.holds for control in finding.controls)
    error = measured(finding, "counts_error")
    assert error.high < error.baseline


def test_counts_under_noise_are_not():
    """At ε = 1 a client's own share of the noise hides counts that are much alike, or makes it hard to tell."""
    finding = attacked(LABEL_COUNTS, "no_protection", rehearsed("digits", 1.0))
    assert finding.verdict is not Verdict.SUCCEEDS
    assert measured(finding, "sigma").value > 5


def test_properties_of_a_client_are_told_by_its_vector():
    """Without protection class shares and class means of each client are told better than by public records."""
    finding = attacked(PROPERTY_INFERENCE, "no_protection", rehearsed(partition="dirichlet:0.3"))
    assert finding.verdict is Verdict.SUCCEEDS
    assert all(control.holds for control in finding.controls)
    assert measured(finding, "class_shares").value == pytest.approx(0, abs=1e-12)


def test_the_sum_tells_of_all_together():
    """The server of a masked sum learns properties of the cohort, which is no client's; of single ones it says nothing.

    Whether a class is one client's alone is for small cells.
    """
    finding = attacked(PROPERTY_INFERENCE, "curious_server", rehearsed(partition="dirichlet:0.3"))
    assert finding.verdict is Verdict.FAILS
    assert "of all members together" in finding.sentence
    assert "nothing of any one member's" in finding.sentence


@pytest.mark.parametrize("adversary", ["curious_server", "no_protection"])
@pytest.mark.parametrize("dataset", ["breast-cancer", "digits"])
@pytest.mark.parametrize("epsilon", [math.inf, 1.0])
def test_words_of_properties_are_those_of_the_numbers(adversary, dataset, epsilon):
    """Two classes have an interval as ten have, and nothing is said of a number that is the contrary of it."""
    finding = attacked(PROPERTY_INFERENCE, adversary, rehearsed(dataset, epsilon))
    assert all("%" in each.method for each in finding.measures)
    shares, means = (measured(finding, name) for name in ("class_shares", "class_means"))
    for clause in finding.sentence.split(". ")[0].split(", and "):
        for name, error in (("class shares", shares), ("class means", means)):
            if name in clause and "not surely" not in clause:
                assert (error.value >= error.baseline) == ("no better than" in clause)


def test_sum_of_two_classes_that_says_all_is_not_said_to_say_nothing():
    """An exact sum of unlike records tells their shares better than public records do, and the sentence says so."""
    rehearsal = rehearsed()
    known = rehearsal.knowledge
    alike = np.flatnonzero(known.public.labels == 0)
    other = replace(known, public=known.public.take(alike), candidates=known.candidates.take(known.is_member))
    other = replace(other, owners=tuple(owner for owner in known.owners if owner))
    finding = attacked(PROPERTY_INFERENCE, "curious_server", replace(rehearsal, knowledge=other))
    share = measured(finding, "class_shares.sum")
    assert (share.value, share.baseline > 0.25) == (0.0, True)
    assert good_of(share).startswith("any value, as a sum")  # no bar that the tolerated number would miss
    assert share.high < share.baseline
    assert "class shares and class means better than public records do" in finding.sentence


def test_few_errors_are_judged_by_the_records_behind_them():
    """Two errors have an interval that covers what other records of the kind give (false failures below 10⁻⁶)."""
    known = rehearsed().knowledge
    members, public = known.candidates.take(known.is_member), known.public
    half = members.take(slice(0, 200))
    ((share, _), (gain, _)) = _measure([(total(half, 2, NAMES), members)], public)
    assert share.low <= share.value <= share.high
    assert "resamples of the records" in share.method
    errors = [float(_errors([(total(half, 2, NAMES), half)], public)[place].mean()) for place in (0, 1)]
    exact, gains = _measure([(total(half, 2, NAMES), half)], public)
    assert (exact[0].value, exact[0].baseline) == (errors[0], errors[1]) == (0.0, errors[1])
    assert gains[0].value == pytest.approx(errors[1])
    assert gain.value == pytest.approx(share.baseline - share.value)


def test_records_of_an_unknown_client_are_compared_with_none():
    """Of records of which nobody says whose they are it does not say that there are none."""
    rehearsal = rehearsed(partition="dirichlet:0.3")
    known = rehearsal.knowledge
    unknown = replace(known, owners=tuple(SOMEBODY if owner else "" for owner in known.owners))
    finding = attacked(PROPERTY_INFERENCE, "no_protection", replace(rehearsal, knowledge=unknown))
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert finding.sentence.startswith("Of the known records it is not known which client had them")
