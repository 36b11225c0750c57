"""Empirical ε: honest noise keeps its claim, faulty noise does not."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from secagg.errors import BadInput
from secagg.privacy import Adjacency, Mechanism, MomentSensitivity, discrete_gaussian, rounded_gaussian
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from tests.threat_models.estimation.claims import claimed, of_clients, several
from threat_models.estimation.rerelease import audit_release, detectable, draw_release, worst_canary

SAMPLERS = {Mechanism.GAUSSIAN: rounded_gaussian, Mechanism.DISCRETE_SHARES: discrete_gaussian}


def weaker(mechanism, factor):
    """The mechanism's sampler with `factor` times the σ that it is asked for."""

    def sampler(segments, source):
        return SAMPLERS[mechanism]([(Fraction(sigma) * Fraction(factor), count) for sigma, count in segments], source)

    return sampler


def audited(claim, sampler=None, **options):
    """An audit of the plan's noise as another sampler draws it."""
    canary = worst_canary(claim.releases, options.get("spread", 1))
    return audit_release(claim, release=draw_release(canary, sampler), **options)


@pytest.mark.parametrize(("mechanism", "least"), [(Mechanism.GAUSSIAN, 0.85), (Mechanism.DISCRETE_SHARES, 0.75)])
def test_true_epsilon_is_nearly_found_and_never_overstated(mechanism, least):
    """ε = 1, 20,000 re-releases, 20 runs: the median bound is high, and no more bounds than 2.5 % give are above 1.

    The median fails with probability below 1e-3, the number above the claim with one below 1e-6.
    """
    claim = claimed(mechanism)
    bounds = [audit_release(claim) for _ in range(20)]
    assert np.median([bound.lower for bound in bounds]) >= least
    assert sum(bound.lower > bound.claimed for bound in bounds) <= binom.isf(1e-6, 20, 0.025)
    assert sum(bound.refuted for bound in bounds) <= binom.isf(1e-6, 20, 0.05)
    assert all(bound.recomputed == pytest.approx(1.0, abs=1e-3) and not bound.repeated for bound in bounds)


@pytest.mark.parametrize(
    ("releases", "seeds"), [(500, 300), pytest.param(20_000, 1_000, marks=pytest.mark.long)], ids=str
)
def test_null_data_claim_no_epsilon(releases, seeds):
    """Releases that do not depend on the canary give ε > 0 in no more seeds than 2.5 % do (false failures: 1e-6)."""
    claim, claims = claimed(), 0
    for seed in range(seeds):
        generator = np.random.default_rng(seed)
        sigmas = worst_canary(claim.releases).sigmas
        release = lambda there, times, g=generator, s=sigmas: g.normal(0, s, (times, len(s)))  # noqa: E731
        claims += audit_release(claim, releases=releases, release=release).lower > 0
    assert claims <= binom.isf(1e-6, seeds, 0.025)


@pytest.mark.parametrize("mechanism", list(Mechanism))
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_noise_too_small_by_root_two_is_caught_every_time(mechanism, adjacency):
    """In each of ten audits of 20,000 the bound disproves the claim (missed with probability below 1e-6)."""
    claim = claimed(mechanism, adjacency)
    for _ in range(10):
        bound = audited(claim, weaker(mechanism, 1 / math.sqrt(2)))
        assert bound.refuted
        assert bound.lower > bound.claimed
        assert "This disproves the claim." in bound.sentence


@pytest.mark.parametrize("mechanism", list(Mechanism))
@pytest.mark.parametrize("parts", [several, of_clients])
def test_sums_and_clients_are_covered(mechanism, parts):
    """Several sums together, and clients: honest noise is not refuted (false failures: 1e-6), half of it is."""
    claim = claimed(mechanism, parts=parts(Adjacency.REPLACE_ONE))
    assert not audit_release(claim, level=2e-6).refuted
    assert audited(claim, weaker(mechanism, 0.5)).refuted


def test_missing_share_is_caught():
    """Two shares where three are counted on, 22 % more distance, are caught in 100,000 (missed: below 1e-6)."""
    claim = claimed(Mechanism.DISCRETE_SHARES, parties=4)
    canary = worst_canary(claim.releases)
    assert canary.shares == 3
    bound = audit_release(claim, releases=100_000, release=draw_release(replace(canary, shares=2)))
    assert bound.refuted


def test_shared_seed_is_caught():
    """Noise that is the same in every release is reported, though no guess need be right."""

    def seeded(segments, source):
        return discrete_gaussian(segments, SeededRandomness(b"the same for all", TOKEN))

    bound = audited(claimed(Mechanism.DISCRETE_SHARES), seeded)
    assert bound.repeated == 20_000
    assert bound.refuted
    assert "had been there before" in bound.sentence


def test_noise_known_to_a_colluder_is_caught():
    """Where all clients draw the same noise, one that takes its own off the sum sees the canary bare."""
    claim = claimed(Mechanism.DISCRETE_SHARES)
    canary = worst_canary(claim.releases)
    bound = audit_release(claim, release=lambda there, times: np.tile(there * canary.shifts, (times, 1)))
    assert bound.refuted
    assert bound.epsilon.value == math.inf > bound.lower > 8


def test_forgotten_factor_for_replacing_is_caught(monkeypatch):
    """Noise for added records, promised for replaced ones, is caught: the canary is two real records."""
    right = MomentSensitivity.squared
    with monkeypatch.context() as patch:
        patch.setattr(
            MomentSensitivity, "squared", lambda self, w: right(replace(self, adjacency=Adjacency.ADD_REMOVE), w)
        )
        claim = claimed(adjacency=Adjacency.REPLACE_ONE)
        bound = audit_release(claim)
    assert bound.refuted
    assert bound.recomputed > 1.4


def test_noise_off_the_diagonal_is_seen_by_a_spread_canary():
    """Half the noise off the diagonal is caught by a record of five features, and not seen by one of a single one."""
    claim = claimed(shares={"counts": 0.1, "class_sums": 0.1, "second_moment": 0.8})
    off_diagonal = claim.releases.first.blocks[2].off_diagonal

    def faulty(segments, source):
        return rounded_gaussian([(sigma / 2 if sigma == off_diagonal else sigma, n) for sigma, n in segments], source)

    assert audited(claim, faulty, spread=5).refuted
    assert not audited(claim, faulty, level=2e-6).refuted


@pytest.mark.parametrize("factor", [0.25, 0.0])
@pytest.mark.parametrize("block", ["counts", "class_sums", "second_moment"])
def test_noise_missing_from_one_block_is_caught(block, factor):
    """Each block's noise is tested by itself: no guess need be right (missed with probability below 1e-9)."""
    claim = claimed(shares="moments")
    canary = worst_canary(claim.releases)
    weaker_there = np.array([factor if move.block == block else 1.0 for move in canary.moves])
    generator = np.random.default_rng(1)

    def release(there, times):
        noise = generator.normal(0, canary.sigmas, (times, len(canary.moves)))
        return np.rint(noise * weaker_there) + there * canary.shifts

    bound = audit_release(claim, level=1e-6, release=release)
    assert bound.short == (block,)
    assert bound.refuted
    assert "less than the plan says" in bound.sentence or "disproves" in bound.sentence


def test_power_is_as_stated():
    """Noise too small by just what was detectable is caught in about 95 % of 200 audits (false failures: 1e-6)."""
    claim = claimed()
    stated = audit_release(claim)
    assert 0.13 < stated.detectable < 0.16
    assert "noise >= 14." in stated.power or "noise >= 15" in stated.power
    caught, releases = 0, 2_000
    fraction = detectable(worst_canary(claim.releases).mu, stated.planned, 2 * releases)
    canary = worst_canary(claim.releases)
    generator = np.random.default_rng(0)

    def release(there, times):
        return generator.normal(there * canary.shifts, (1 - fraction) * canary.sigmas, (times, len(canary.moves)))

    for _ in range(200):
        caught += audit_release(claim, releases=releases, release=release).refuted
    assert binom.ppf(5e-7, 200, 0.95) <= caught <= binom.isf(5e-7, 200, 0.9501)


def test_power_grows_with_releases_and_is_none_where_nothing_can_be_found():
    """A thousand times the releases find much less; ten releases, or certain guesses, find nothing."""
    assert detectable(0.268, 0.268, 40_000_000) < 0.01 < detectable(0.268, 0.268, 40_000)
    assert detectable(40.0, 40.0, 40_000) is None
    assert detectable(0.268, 0.268, 4) is None
    assert "would have shown no lack" in audit_release(claimed(), releases=2).power


def test_curve_stays_below_the_ceiling():
    """No point of the curve is above the ceiling beyond its interval at 1 − 1e-6, and it has points at small rates."""
    curve = audit_release(claimed(), level=1e-6).curve
    measured, top, _ = curve.series
    assert all(low <= np.interp(x, top.x, top.y) * 1.5 + 1e-3 for x, low in zip(measured.x, measured.low, strict=True))
    assert min(measured.x) < 1e-3
    assert curve.logarithmic


def test_measures_and_words():
    """The measures carry intervals, methods and ceilings; the sentence says what a low bound means."""
    steps = []
    bound = audit_release(
        claimed(), releases=12_000, level=1e-9, progress=lambda done, whole: steps.append((done, whole))
    )
    assert bound.epsilon.low == bound.lower <= bound.epsilon.value <= bound.epsilon.high
    assert (bound.claimed, bound.epsilon.method) == (1.0, "Clopper-Pearson, 100 %")
    assert "A bound below the claim proves nothing." in bound.sentence
    assert steps == [(5_000, 12_000), (10_000, 12_000), (12_000, 12_000)]


@pytest.mark.parametrize("options", [{"releases": 1}, {"level": 1.0}, {"spread": 0},
                                     {"release": lambda there, times: np.zeros((times, 2))}])  # fmt: skip
def test_bad_options_are_refused(options):
    """Too few releases, no level, no canary, or releases of other entries are bad input."""
    with pytest.raises(BadInput):
        audit_release(claimed(), **options)
