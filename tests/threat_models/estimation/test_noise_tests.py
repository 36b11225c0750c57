"""Shares of noise as planned pass at the stated rate; too little, too much, repeated and related ones do not."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from secagg.privacy import discrete_gaussian, rounded_gaussian
from secagg.randomness import OperatingSystem
from threat_models.estimation import noise_tests
from threat_models.estimation.noise_tests import Share, Variance, chance_of_multiples, examine_shares

SMALLEST = 3.0
"""σ of the smallest shares that plans have: the grid shows most there."""


def shares(count=5, entries=400, draw=discrete_gaussian, variance=SMALLEST**2):
    """Shares as parties draw them, in units of the planned σ."""
    drawn = (draw([(Fraction(SMALLEST), entries)], OperatingSystem()) for _ in range(count))
    return [Share(f"client-{place}", noise / math.sqrt(variance)) for place, noise in enumerate(drawn)]


def place_of(parts):
    """All their entries as one place."""
    together = np.concatenate([share.scaled for share in parts])
    return Variance("sums", float(np.mean(together**2)), len(together))


def test_rate_of_false_alarms(monkeypatch):
    """At a rate of 20 % in all, 400 sets of shares as planned give no more alarms than chance has (to 10⁻⁶)."""
    monkeypatch.setattr(noise_tests, "LEVEL", 0.2)
    alarms = 0
    for _ in range(200):
        for parts in (shares(entries=40), shares(entries=40, draw=rounded_gaussian, variance=SMALLEST**2 + 1 / 12)):
            alarms += bool(examine_shares([place_of(parts)], parts).flaws)
    assert 20 <= alarms <= 128  # 80 expected of independent tests; 10⁻⁶ of Bin(400, 0.2) lie above 120 or so


@pytest.mark.parametrize("factor", [0.0, math.sqrt(0.5), math.sqrt(2)])
def test_noise_of_another_strength_is_found(factor):
    """None, half or twice the variance is found on the place."""
    parts = [Share(share.name, factor * share.scaled) for share in shares(entries=800)]
    assert any("sums" in flaw for flaw in examine_shares([place_of(parts)], parts).flaws)


def test_one_weak_share_is_found_by_name():
    """One party that adds a third of its noise is named, though the others hide it in the sum."""
    first, *others = shares()
    weak = Share(first.name, first.scaled / math.sqrt(3))
    flaws = examine_shares([], [weak, *others]).flaws
    assert [flaw for flaw in flaws if "client-0" in flaw]
    assert not [flaw for flaw in flaws if "client-1" in flaw]


@pytest.mark.parametrize("sign", [1, -1])
def test_equal_and_opposite_shares_are_found(sign):
    """Two shares that are the same, or cancel, in two sums of other lengths too."""
    first, second, third = shares(3)
    again = Share("client-0 in sum 2", sign * first.scaled[:250])
    flaws = examine_shares([], [first, second, third, again]).flaws
    assert flaws == ("The noise shares on client-0 in sum 2 and client-0 are the same.",)


def test_shares_that_have_some_noise_in_common_are_found():
    """Half of the variance in common is a correlation of ½, found in 400 entries; of nobody else anything."""
    first, second, common = shares(3)
    parts = [Share(each.name, (each.scaled + common.scaled) / math.sqrt(2)) for each in (first, second)]
    (flaw,) = examine_shares([], parts).flaws
    assert "correlate (0." in flaw


def test_power_is_what_is_found():
    """Noise short by the stated fraction is found in 95 of 100 sets: no fewer than 85 (10⁻⁴)."""
    tested = examine_shares([place_of(shares(5, 400))], [])
    short = 1 - tested.places[0].detectable(tested.level)
    found = 0
    for _ in range(100):
        parts = [Share(share.name, short * share.scaled) for share in shares(5, 400)]
        found += bool(examine_shares([place_of(parts)], []).flaws)
    assert found >= 85
    assert "sums" in tested.power


@pytest.mark.parametrize(("sigma", "multiplier", "entries"), [(3.0, 4, 1), (5.0, 7, 3), (3.0, 20, 2), (4.0, 1, 9)])
def test_chance_of_whole_multiples(sigma, multiplier, entries):
    """The chance is that of the summed density at the multiples, for each entry."""
    at = np.arange(-400, 401)
    density = np.exp(-(at**2) / (2 * sigma**2))
    exact = density[at % multiplier == 0].sum() / density.sum()
    assert chance_of_multiples(sigma, multiplier, entries) == pytest.approx(exact**entries, rel=1e-6)
