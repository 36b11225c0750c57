"""Counts, class shares and group means that a vector tells."""

from dataclasses import replace

import numpy as np
import pytest

from tests.threat_models.attacks.audited import attacked, measured, rehearsed
from threat_models.attacks.disclosure import (
    LABEL_COUNTS,
    PROPERTY_INFERENCE,
    class_means,
    class_shares,
    counts_from_sums,
)
from threat_models.findings import Verdict
from threat_models.session import SOMEBODY, Records


def test_counts_follow_from_sums_of_class_means():
    """Where every record is its class's mean, the counts are found exactly."""
    means = np.random.default_rng(0).normal(size=(3, 5))
    counts = np.array([4, 0, 11])
    assert counts_from_sums(counts[:, None] * means, means) == pytest.approx(counts)


def test_class_means_and_shares():
    """Golden: means of two classes, none of a third; shares of counts, of which noise may make one negative."""
    integers = np.array([[2, 0], [4, 0], [0, 6]])
    records = Records(integers, np.array([0, 0, 1]), integers.astype(float))
    assert class_means(records, 3).tolist() == [[3.0, 0.0], [0.0, 6.0], [0.0, 0.0]]
    assert class_shares(np.array([3.0, -1.0, 1.0])).tolist() == [0.75, 0.0, 0.25]
    assert class_shares(np.zeros(4)).tolist() == [0.25] * 4


@pytest.mark.parametrize("dataset", ["breast-cancer", "digits"])
def test_counts_in_clear_are_disclosed(dataset):
    """Without protection every client's counts are read off, and class sums alone give them nearly as well."""
    finding = attacked(LABEL_COUNTS, "no_protection", rehearsed(dataset, partition="dirichlet:0.3"))
    assert finding.verdict is Verdict.SUCCEEDS
    assert all(control.holds for control in finding.controls)
    error = measured(finding, "error of counts from class sums")
    assert error.high < error.baseline


def test_counts_under_noise_are_not():
    """At ε = 1 a client's own share of the noise hides counts that are much alike, or makes it hard to tell."""
    finding = attacked(LABEL_COUNTS, "no_protection", rehearsed("digits", 1.0))
    assert finding.verdict is not Verdict.SUCCEEDS
    assert measured(finding, "sigma of a count").value > 5


def test_properties_of_a_client_are_told_by_its_vector():
    """Without protection class shares and class means of each client are told better than by public records."""
    finding = attacked(PROPERTY_INFERENCE, "no_protection", rehearsed(partition="dirichlet:0.3"))
    assert finding.verdict is Verdict.SUCCEEDS
    assert all(control.holds for control in finding.controls)
    assert measured(finding, "error of a class share").value == pytest.approx(0, abs=1e-12)


def test_the_sum_tells_of_all_together():
    """The server of a masked sum learns properties of the cohort, which is no client's; of single ones it says nothing.

    Whether a class is one client's alone is for small cells.
    """
    finding = attacked(PROPERTY_INFERENCE, "curious_server", rehearsed(partition="dirichlet:0.3"))
    assert finding.verdict is Verdict.FAILS
    assert "of all members together" in finding.sentence
    assert "client" not in finding.sentence


def test_records_of_an_unknown_client_are_compared_with_none():
    """Of records of which nobody says whose they are it does not say that there are none."""
    rehearsal = rehearsed(partition="dirichlet:0.3")
    known = rehearsal.knowledge
    unknown = replace(known, owners=tuple(SOMEBODY if owner else "" for owner in known.owners))
    finding = attacked(PROPERTY_INFERENCE, "no_protection", replace(rehearsal, knowledge=unknown))
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert finding.sentence.startswith("Of the known records it is not known which client had them")
