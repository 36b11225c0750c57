"""Differences of sums: with and without noise, of one client and of several."""

from dataclasses import replace

import numpy as np
import pytest

from tests.threat_models.attacks.audited import attacked, measured, rehearsed
from threat_models.adversary import adversary_named
from threat_models.attacks.disclosure.subtraction import COLLUSION_SUBTRACTION, DIFFERENCING, measure_signals, subtract
from threat_models.attacks.gaussian_likelihood import draw_noise, total
from threat_models.findings import Verdict
from threat_models.views import view_of


def test_difference_of_exact_sums_is_the_client():
    """Two exact sums that differ by one client differ by exactly its vector, and its records are told."""
    rehearsal = rehearsed()
    first, second = rehearsal.sessions
    rest = subtract(first.release, [second.release])
    for name, block in first.contributions[first.members[-1]].items():
        assert np.array_equal(rest[name], block)
    finding = attacked(DIFFERENCING, "rerunning_server", rehearsal)
    assert finding.verdict is Verdict.SUCCEEDS
    assert all(control.holds for control in finding.controls)
    assert first.members[-1] in finding.sentence


@pytest.mark.parametrize(("epsilon", "succeeds"), [(8.0, True), (1.0, False)])
def test_noise_hides_the_difference(epsilon, succeeds):
    """A client of 180 records stands out at ε = 8, not at ε = 1 (rate 10⁻⁴); the ε of both sums is stated.

    That it is hidden is said only where every block's signal is surely below its noise.
    """
    finding = attacked(DIFFERENCING, "rerunning_server", rehearsed("digits", epsilon))
    assert (finding.verdict is Verdict.SUCCEEDS) == succeeds
    highest = max(each.high for each in finding.measures if each.metric.id == "signal_to_noise")
    assert (finding.verdict is Verdict.FAILS) == (highest <= 1)
    both = measured(finding, "epsilon_of_both")
    assert both.value > both.baseline == epsilon


def test_sums_over_the_same_clients_tell_nothing():
    """Without a client of difference there is nothing to learn from two exact sums."""
    rehearsal = rehearsed()
    finding = attacked(DIFFERENCING, "rerunning_server", rehearsal, rehearsal.sessions[0], rehearsal.sessions[0])
    assert finding.verdict is Verdict.FAILS


def test_sums_over_the_same_clients_that_differ_tell_the_difference():
    """Two exact sums over the same clients, of which the second lacks one record, give that record; noise hides it."""
    rehearsal = rehearsed("digits")
    first, known = rehearsal.sessions[0], rehearsal.knowledge
    one = total(known.candidates.take([0]), 10, frozenset(first.release))
    assert known.is_member[0]
    second = replace(first, release=subtract(first.release, [one]))
    finding = attacked(DIFFERENCING, "rerunning_server", rehearsal, first, second)
    assert finding.verdict is Verdict.SUCCEEDS
    assert "the same clients. They differ by exactly what was added to the data or taken" in finding.sentence
    rehearsal = rehearsed("digits", 1.0)
    twice = rehearsal.sessions[0]
    drawn_again = replace(twice, release=draw_noise(twice.release, twice.noise, 1))
    assert attacked(DIFFERENCING, "rerunning_server", rehearsal, twice, drawn_again).verdict is not Verdict.SUCCEEDS


@pytest.mark.parametrize("change", ["lacks one", "of other shape"])
def test_sums_of_different_kinds_have_no_difference(change):
    """Two sums whose blocks are not alike, as of two rounds of one plan, are compared to no verdict."""
    rehearsal = rehearsed()
    first = rehearsal.sessions[0]
    release = dict(first.release)
    if change == "lacks one":
        del release["second_moment"]
    else:
        release["counts"] = np.zeros(7, dtype=np.int64)
    finding = attacked(DIFFERENCING, "rerunning_server", rehearsal, first, replace(first, release=release))
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "different blocks" in finding.sentence


def test_one_honest_client_is_left_bare():
    """All clients but one subtract their parts: the last one's vector is left."""
    finding = attacked(COLLUSION_SUBTRACTION, "colluding_clients", rehearsed())
    assert finding.verdict is Verdict.SUCCEEDS
    assert measured(finding, "honest_left").value == 1


def test_epsilon_against_colluders_is_beyond_a_claim_for_fewer():
    """A plan calibrated for one colluder keeps no promise against all but one, and the finding says which ε is left."""
    finding = attacked(COLLUSION_SUBTRACTION, "colluding_clients", rehearsed(epsilon=1.0))
    left = measured(finding, "epsilon_against_colluders")
    assert left.value > left.ceiling == 1.0
    assert finding.verdict is Verdict.SUCCEEDS


def test_several_honest_clients_hide_each_other():
    """Two colluders of eight leave the exact sum of six: no single vector."""
    rehearsal = rehearsed()
    view = view_of(rehearsal.sessions[0], replace(adversary_named("colluding_clients"), colluders=2))
    finding = COLLUSION_SUBTRACTION.run((view,), rehearsal.knowledge, lambda *_: None)
    assert finding.verdict is Verdict.FAILS
    assert measured(finding, "honest_left").value == 6


def test_signal_of_nothing_but_noise_covers_zero():
    """Noise alone has no signal: of 3 blocks in 100 draws at most 25 intervals miss 0 (rate below 10⁻⁶)."""
    session = rehearsed(epsilon=1.0).sessions[0]
    missed = sum(
        each.low > 0
        for seed in range(100)
        for each in measure_signals(draw_noise(session.release, session.noise, seed), session.noise)
    )
    assert missed <= 25
