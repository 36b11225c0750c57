"""What is promised."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import BadInput
from secagg.privacy import Adjacency, Mechanism, MomentSensitivity, PrivacyClaim, Releases, Unit
from secagg.privacy.calibration import Part, calibrate_releases
from secagg.privacy.claim import format_epsilon
from secagg.privacy.gaussian import epsilon_of, mu_of

DELTA = 1e-5


def calibrated(mechanism=Mechanism.DISCRETE_SHARES, parties=10, fewest=9, adjacency=Adjacency.ADD_REMOVE) -> Releases:
    """Noise for ε = 1."""
    sensitivity = MomentSensitivity(adjacency, 10, 16, 1 << 10)
    parts = [Part(sensitivity, "moments")]
    return calibrate_releases(parts, epsilon=1.0, delta=DELTA, mechanism=mechanism, parties=parties, fewest=fewest)


def test_claim_is_recomputed_from_the_noise():
    """The strongest claim is the recomputed ε; claiming the target that was asked for is fine too."""
    claim = PrivacyClaim.of(calibrated(), delta=DELTA)
    assert 0.999 < claim.epsilon <= 1.0
    assert (claim.unit, claim.adjacency) == (Unit.RECORD, Adjacency.ADD_REMOVE)
    assert PrivacyClaim(calibrated(), 1.0, DELTA).epsilon == 1.0


def test_epsilon_rounded_down_cannot_be_claimed():
    """One unit in the last place below what the noise gives is refused; so is a claim without a bound."""
    least = PrivacyClaim.of(calibrated(), delta=DELTA).epsilon
    for understated in (math.nextafter(least, 0), 0.5, math.nan, math.inf):
        with pytest.raises(BadInput, match="is claimed, but the noise gives"):
            PrivacyClaim(calibrated(), understated, DELTA)


def test_sessions_are_charged():
    """Two sessions cannot be claimed at the price of one."""
    twice = Releases.of(calibrated().first, 2)
    two = PrivacyClaim.of(twice, delta=DELTA)
    assert two.epsilon > 1.4
    with pytest.raises(BadInput):
        PrivacyClaim(twice, 1.0, DELTA)


def test_what_if_shares_are_lost():
    """Losses down to the calibrated minimum keep the promise; beyond it ε grows, to infinity without a share."""
    claim = PrivacyClaim.of(calibrated(), delta=DELTA)
    assert claim.what_if() < claim.what_if(dropped=1) == claim.what_if(colluding=1) == claim.epsilon
    assert claim.epsilon < claim.what_if(dropped=1, colluding=1) < claim.what_if(colluding=5)
    lonely = epsilon_of(3 * mu_of(1.0, DELTA), DELTA)
    assert claim.what_if(dropped=1, colluding=8) == pytest.approx(lonely, rel=1e-3)
    assert claim.what_if(colluding=10) == math.inf
    for wrong in ({"dropped": -1}, {"colluding": 11}, {"dropped": 6, "colluding": 5}):
        with pytest.raises(BadInput):
            claim.what_if(**wrong)


def test_one_honest_noiser_is_enough():
    """Where each party adds all the noise, losses matter only when nobody is left."""
    claim = PrivacyClaim.of(calibrated(Mechanism.GAUSSIAN, 2, 1), delta=DELTA)
    assert claim.what_if() == claim.what_if(colluding=1) == claim.epsilon
    assert claim.what_if(dropped=1, colluding=1) == math.inf


@pytest.mark.parametrize(("adjacency", "words"), [
    (Adjacency.ADD_REMOVE, "was among the data or not"), (Adjacency.REPLACE_ONE, "any other in its place"),
])  # fmt: skip
def test_sentence_says_who_how_much_and_what_breaks_it(adjacency, words):
    """Unit, adjacency, ε, δ, the honest set and the price of one share fewer stand in one paragraph."""
    sentence = PrivacyClaim.of(calibrated(adjacency=adjacency), delta=DELTA).sentence()
    for part in (words, "one record", "record level", adjacency, "epsilon 1,", "1e-05", "at least 9 of 10 clients"):
        assert part in sentence
    assert "with one fewer, epsilon would be 1.06" in sentence
    thrice = Releases.of(calibrated(Mechanism.GAUSSIAN, 2, 1).first, 3)
    exact = PrivacyClaim.of(thrice, delta=DELTA).sentence()
    assert "over all 3 sums" in exact
    assert "at least one of 2 parties" in exact
    assert "one fewer" not in PrivacyClaim.of(calibrated(fewest=1), delta=DELTA).sentence()


@given(st.floats(0, 1e4))
def test_shown_epsilon_is_never_below(epsilon):
    """Four decimals, rounded up."""
    assert epsilon * (1 - 1e-15) <= float(format_epsilon(epsilon)) <= epsilon + 1.001e-4
