"""What a report says of the sessions themselves."""

from dataclasses import replace

import pytest

from tests.threat_models.attacks.audited import rehearsed
from threat_models.report.summary_facts import measure_promise, subject_of


def records(*sessions, known=None):
    """How many records the report says that the sessions hold."""
    return subject_of(sessions, known, {}, {}).records


@pytest.mark.parametrize("known", [None, 500])
def test_records_of_a_sum_without_counts_are_those_that_the_public_was_told(known):
    """Without counts no number is made up; with them the smallest sum decides."""
    first, second = rehearsed().sessions
    assert records(replace(first, release={}), known=known) == known
    assert records(first, second, known=known) == second.release["counts"].sum() < first.release["counts"].sum()


def test_worst_promise_of_several_sessions_counts():
    """A session with a finite epsilon does not vouch for one beside it that promises nothing."""
    noisy, exact = rehearsed(epsilon=1.0).sessions[0], rehearsed().sessions[0]
    assert measure_promise((noisy,), lambda *_: None).claimed == pytest.approx(1.0, rel=1e-3)
    assert measure_promise((noisy, exact), lambda *_: None).claimed == float("inf")
