"""The papers' own noise: its law, the ε it amounts to, its names."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mpf

from secagg.errors import BadInput
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from tests.privacy.vectors import gaussian_delta
from tests.reproduction.paper_noise import FedTCNoise, MPFTNoise, paper_noise

DELTA = 1e-5
DISTRIBUTIONS = ("laplace", "gaussian", "exponential")
DRAWN = 400_000


def drawn(noise, seed=None):
    """Noise on zeros, which no shrinkage changes, from the operating system or a seed."""
    return noise.apply(np.zeros((100, DRAWN // 100)), seed and SeededRandomness(seed, TOKEN)).ravel()


def test_published_gaussian_noise_is_about_epsilon_56():
    """FedTC with s = 0.05, p = 0.1 on means of 5 records of length ≤ 1, replace-one 2R/B: μ = 7.2 and ε = 55.84.

    Compared with Balle & Wang's formula in 60 digits: ε is not below the exact one, and less than 10⁻⁶ above it.
    """
    epsilon = FedTCNoise("gaussian", 0.05, 0.1).epsilon(sensitivity=2 / 5, dimension=256, delta=DELTA)
    assert epsilon == pytest.approx(55.84, abs=0.01)
    mu = mpf("7.2")
    assert gaussian_delta(mu, mpf(epsilon)) <= mpf("1e-5") < gaussian_delta(mu, mpf(epsilon) - mpf("1e-6"))


def test_shrinking_the_signal_lowers_epsilon():
    """(1 − p) scales what one unit moves: p = 0.5 amounts to what p = 0 does at half the sensitivity."""
    for distribution in ("gaussian", "laplace"):
        shrunk = FedTCNoise(distribution, 0.05, 0.5).epsilon(sensitivity=0.4, dimension=9, delta=DELTA)
        assert shrunk == FedTCNoise(distribution, 0.05, 0.0).epsilon(sensitivity=0.2, dimension=9, delta=DELTA)


def test_mpft_noise_is_gaussian_with_the_product():
    """MPFT's q = 0.2, s = 0.05 amounts to what FedTC's gaussian noise of scale 0.01 does without shrinkage."""
    assert MPFTNoise(0.2, 0.05).epsilon(sensitivity=0.02, dimension=512, delta=DELTA) == pytest.approx(
        FedTCNoise("gaussian", 0.01, 0.0).epsilon(sensitivity=0.02, dimension=512, delta=DELTA), rel=1e-12
    )


def test_laplace_is_pure_and_pays_for_the_dimension():
    """Laplace gives √d·Δ·(1 − p)/scale at every δ: 28.8 for Δ = 0.4 in 16 dimensions, rounded up."""
    noise = FedTCNoise("laplace", 0.05, 0.1)
    for delta in (1e-9, 0.1):
        epsilon = noise.epsilon(sensitivity=0.4, dimension=16, delta=delta)
        assert 28.8 <= epsilon <= 28.8 * (1 + 1e-12)


@given(st.integers(1, 30), st.integers(0, 10**6))
def test_laplace_epsilon_bounds_every_privacy_loss(dimension, seed):
    """Σ(|x + a| − |x|)/scale stays within ε for any outcome x and any shift a of the given L2 length."""
    draws = np.random.default_rng(seed)
    shift = draws.normal(size=dimension)
    shift *= 0.4 / np.linalg.norm(shift)
    outcome = draws.laplace(size=dimension)
    loss = (np.abs(outcome + shift) - np.abs(outcome)).sum() / 0.05
    assert abs(loss) <= FedTCNoise("laplace", 0.05, 0.0).epsilon(sensitivity=0.4, dimension=dimension, delta=DELTA)


@pytest.mark.parametrize("noise", [*map(FedTCNoise, DISTRIBUTIONS), MPFTNoise()])
def test_nothing_clipped_is_no_privacy(noise):
    """Without a bound on the records ε is infinite for every noise."""
    assert noise.epsilon(sensitivity=None, dimension=4, delta=DELTA) == math.inf


def test_one_sided_noise_is_no_privacy():
    """Exponential noise has ε = ∞ however it is clipped: no outcome lies below its prototype."""
    noise = FedTCNoise("exponential")
    assert noise.epsilon(sensitivity=1e-3, dimension=1, delta=DELTA) == math.inf
    assert drawn(noise).min() > 0


def test_almost_no_noise_has_no_finite_epsilon():
    """A noise a million times smaller than what it should hide is reported as ε = ∞."""
    assert MPFTNoise(1e-4, 1e-4).epsilon(sensitivity=1.0, dimension=4, delta=DELTA) == math.inf


@pytest.mark.parametrize(
    ("noise", "mean", "deviation", "kurtosis"),
    [
        (FedTCNoise("laplace", 0.05), 0, math.sqrt(2) * 0.05, 6),
        (FedTCNoise("gaussian", 0.05), 0, 0.05, 3),
        (FedTCNoise("exponential", 0.05), 0.05, 0.05, 9),
        (MPFTNoise(0.5, 0.1), 0, 0.05, 3),
    ],
)
def test_moments(noise, mean, deviation, kurtosis):
    """Mean and standard deviation of 400,000 draws are those of the law, `scale` being its parameter.

    6 standard errors for each of the two, unseeded: false failures below 10⁻⁸ per case.
    """
    values = drawn(noise)
    assert abs(values.mean() - mean) < 6 * deviation / math.sqrt(DRAWN)
    relative_error = math.sqrt((kurtosis - 1) / (4 * DRAWN))
    assert values.std() == pytest.approx(deviation, rel=6 * relative_error)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_distribution_function(distribution):
    """The share of draws below each of nine points is that of the distribution function (6 standard errors).

    Unseeded: false failures below 2·10⁻⁸ per case.
    """
    points = np.linspace(-0.2, 0.2, 9)
    below = {
        "laplace": np.where(points < 0, np.exp(-np.abs(points) / 0.05) / 2, 1 - np.exp(-np.abs(points) / 0.05) / 2),
        "gaussian": np.array([0.5 * math.erfc(-point / (0.05 * math.sqrt(2))) for point in points]),
        "exponential": np.where(points < 0, 0, 1 - np.exp(-points.clip(0) / 0.05)),
    }[distribution]
    values = drawn(FedTCNoise(distribution))
    shares = np.array([(values < point).mean() for point in points])
    assert (np.abs(shares - below) <= 6 * np.sqrt(below * (1 - below) / DRAWN)).all()


def test_prototypes_are_shrunk_by_fedtc_alone():
    """The mean over much noise is (1 − p) times the prototype for FedTC and the prototype itself for MPFT.

    40,000 draws of σ = 0.05, tolerance 0.002 = 8 standard errors: false failures below 10⁻¹⁴.
    """
    prototypes = np.tile([[0.5, -2.0]], (40_000, 1))
    for noise, expected in ((FedTCNoise("gaussian", 0.05, 0.2), [0.4, -1.6]), (MPFTNoise(0.5, 0.1), [0.5, -2.0])):
        noisy = noise.apply(prototypes)
        assert noisy.shape == prototypes.shape
        assert noisy.dtype == np.float64
        assert noisy.mean(axis=0) == pytest.approx(expected, abs=0.002)
    assert (prototypes == [0.5, -2.0]).all()


def test_noise_is_fresh_unless_seeded():
    """Two applications differ; with the same seeded source they agree."""
    for noise in (*map(FedTCNoise, DISTRIBUTIONS), MPFTNoise()):
        assert (drawn(noise) != drawn(noise)).mean() > 0.99
        assert (drawn(noise, b"seed") == drawn(noise, b"seed")).all()


def test_no_word_gives_an_infinite_draw():
    """The extreme 64-bit words give finite noise of every kind."""

    class Extreme:
        def bytes(self, count):
            return bytes(count // 2) + b"\xff" * (count // 2)

    for noise in (*map(FedTCNoise, DISTRIBUTIONS), MPFTNoise()):
        assert np.isfinite(noise.apply(np.zeros((2, 4)), Extreme())).all()


@pytest.mark.parametrize(
    ("text", "noise"),
    [
        ("fedtc:gaussian:0.05:0.1", FedTCNoise("gaussian", 0.05, 0.1)),
        ("fedpcl:laplace:0.2:0.05", FedTCNoise("laplace", 0.2, 0.05)),
        ("fedtc:exponential:0.2", FedTCNoise("exponential", 0.2, 0.1)),
        ("fedtc:gaussian", FedTCNoise("gaussian", 0.05, 0.1)),
        ("mpft:0.2:0.5", MPFTNoise(0.2, 0.5)),
        ("mpft:0.2", MPFTNoise(0.2, 0.05)),
        ("mpft", MPFTNoise(0.1, 0.05)),
    ],
)
def test_names(text, noise):
    """A text names the paper and its numbers; those left out are the published defaults."""
    assert paper_noise(text) == noise


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "unknown noise ''"),
        ("dbe:0.1:0.05", "unknown noise 'dbe:0.1:0.05'"),
        ("fedtc", "unknown noise 'fedtc'"),
        ("fedtc:gaussian:1:0.1:3", "unknown noise"),
        ("mpft:1:2:3", "unknown noise"),
        ("fedtc:uniform", "unknown noise distribution 'uniform'; give laplace, gaussian, exponential"),
        ("fedtc:gaussian:much", "'fedtc:gaussian:much' has something else than a number"),
        ("mpft:", "'mpft:' has something else than a number"),
        ("fedtc:gaussian:0", "scale is 0"),
        ("fedtc:gaussian:nan", "scale is nan"),
        ("fedtc:gaussian:inf", "scale is inf"),
        ("fedtc:gaussian:0.05:1", "p is 1"),
        ("fedtc:gaussian:0.05:-0.1", "p is -0.1"),
        ("mpft:-1:0.05", "q is -1"),
        ("mpft:0.1:0", "s is 0"),
    ],
)
def test_bad_names_are_refused(text, problem):
    """Whatever is wrong with a text is named, with what would be right."""
    with pytest.raises(BadInput, match=problem):
        paper_noise(text)


@pytest.mark.parametrize("noise", [FedTCNoise("gaussian"), FedTCNoise("exponential"), MPFTNoise()])
@pytest.mark.parametrize(
    "changes",
    [{"sensitivity": 0.0}, {"sensitivity": math.nan}, {"delta": 0.0}, {"delta": 1.0}, {"dimension": 0}],
)
def test_bad_questions_are_refused(noise, changes):
    """No ε is given for a sensitivity, δ or dimension out of range."""
    with pytest.raises(BadInput):
        noise.epsilon(**({"sensitivity": 0.4, "dimension": 4, "delta": DELTA} | changes))


@pytest.mark.parametrize(
    "prototypes", [np.zeros(3), np.zeros((1, 2, 3)), np.array([[math.nan]]), np.array([[math.inf]])]
)
def test_bad_prototypes_are_refused(prototypes):
    """Prototypes are finite and (k, d)."""
    for noise in (FedTCNoise("gaussian"), MPFTNoise()):
        with pytest.raises(BadInput, match="prototypes of shape"):
            noise.apply(prototypes)


def test_no_prototypes_stay_none():
    """A client without prototypes sends none."""
    assert FedTCNoise("laplace").apply(np.zeros((0, 5))).shape == (0, 5)


def test_sentences():
    """One line says which noise it is and what it amounts to, ε rounded up, or why it gives no privacy."""
    fedtc = FedTCNoise("gaussian").sentence(56.00001, 1e-5)
    assert fedtc == (
        "FedTC's and FedPCL's gaussian noise of scale 0.05 on prototypes times 0.9 amounts to epsilon 56.0001 "
        "at delta 1e-05; it reproduces a paper and protects nothing."
    )
    mpft = MPFTNoise().sentence(math.inf, 1e-5)
    assert mpft.endswith("gives no differential privacy: records are not clipped (epsilon inf).")
    assert "its noise is never negative" in FedTCNoise("exponential").sentence(math.inf, 1e-5)
