"""Exact noise. Every statistical test fails an exact sampler with probability 10⁻⁶ over the choice of its seed."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from secagg.errors import BadInput
from secagg.privacy import discrete_gaussian, rounded_gaussian, sampler
from secagg.privacy.sampler import ExactUniform, exponential
from secagg.randomness import OperatingSystem, SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from tests.vectors.files import load

FALSE_FAILURE = 1e-6
LAWS = {"discrete": discrete_gaussian, "rounded": rounded_gaussian}
SMALL = [0.5, 0.75, 1.0, 2.342, 3.0, 17.25, 60.0]
LARGE = [1e3, 1e6, 1e9, 1e12]


def seeded(name: str) -> SeededRandomness:
    """The stream of a test."""
    return SeededRandomness(f"privacy noise: {name}".encode(), TOKEN)


class Scripted:
    """Given bytes, in the given order; more than these may not be asked for."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)

    def bytes(self, count: int) -> bytes:
        """The next answer."""
        answer = self._answers.pop(0)
        assert len(answer) == count
        return answer


@pytest.mark.parametrize("case", load("privacy_noise")["cases"], ids=lambda case: f"{case['law']} {case['sigma']}")
def test_draws_are_those_of_the_reference(case):
    """The same bytes give what a slow reference made with 60 digits."""
    source = SeededRandomness(case["seed"].encode(), TOKEN)
    assert LAWS[case["law"]]([(Fraction(case["sigma"]), len(case["draws"]))], source).tolist() == case["draws"]


def probabilities(law: str, sigma: float, reach: int) -> np.ndarray:
    """P(x) for −reach ≤ x ≤ reach."""
    points = np.arange(-reach, reach + 1)
    if law == "discrete":
        wide = np.arange(-reach - int(40 * sigma), reach + int(40 * sigma) + 1)
        return np.exp(-(points**2) / (2 * sigma**2)) / np.exp(-(wide**2) / (2 * sigma**2)).sum()
    upper = stats.norm.sf((np.abs(points) - 0.5) / sigma) - stats.norm.sf((np.abs(points) + 0.5) / sigma)
    return np.asarray(upper)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("sigma", SMALL)
def test_small_sigma_has_the_right_probabilities(law, sigma):
    """Chi-square over all values, the tails joined where fewer than 20 draws are expected."""
    count = 300_000
    drawn = LAWS[law]([(sigma, count)], seeded(f"chi-square {law} {sigma}"))
    reach = math.ceil(8 * sigma)
    expected = count * probabilities(law, sigma, reach)
    inner = expected >= 20
    observed = np.bincount(np.clip(drawn, -reach, reach) + reach, minlength=2 * reach + 1)[inner]
    observed, expected = np.append(observed, count - observed.sum()), np.append(expected[inner], 0)
    expected[-1] = count - expected.sum()
    if expected[-1] < 5:
        observed, expected = observed[:-1], expected[:-1] * observed[:-1].sum() / expected[:-1].sum()
    assert stats.chisquare(observed, expected).pvalue > FALSE_FAILURE


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("sigma", LARGE)
def test_large_sigma_has_the_right_probabilities(law, sigma):
    """Chi-square over 64 equally likely bins of the normal law, and over the remainders modulo 16."""
    drawn = LAWS[law]([(sigma, 200_000)], seeded(f"bins {law} {sigma}"))
    uniform = stats.norm.cdf((drawn + np.random.default_rng(0).uniform(-0.5, 0.5, len(drawn))) / sigma)
    bins = np.bincount((uniform * 64).astype(np.int64), minlength=64)
    assert stats.chisquare(bins).pvalue > FALSE_FAILURE / 2
    assert stats.chisquare(np.bincount(drawn % 16, minlength=16)).pvalue > FALSE_FAILURE / 2


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("sigma", [*SMALL, *LARGE])
def test_moments(law, sigma):
    """Mean, variance and neighbouring products of 200 000 draws lie within 5 standard errors."""
    count = 200_000
    drawn = LAWS[law]([(sigma, count)], seeded(f"moments {law} {sigma}")).astype(np.float64)
    reach = math.ceil(12 * min(sigma, 1e4))
    points, weight = np.arange(-reach, reach + 1), probabilities(law, min(sigma, 1e4), reach)
    scale = max(sigma / 1e4, 1.0)
    variance = float((points.astype(np.float64) ** 2 * weight).sum()) * scale**2
    fourth = float((points.astype(np.float64) ** 4 * weight).sum()) * scale**4
    assert abs(drawn.mean()) <= 5 * math.sqrt(variance / count)
    assert abs((drawn**2).mean() - variance) <= 5 * math.sqrt((fourth - variance**2) / count) + variance * 1e-6
    assert abs((drawn[:-1] * drawn[1:]).mean()) <= 5 * variance / math.sqrt(count)
    assert np.abs(drawn).max() <= 10 * sigma


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("sigma", [0.5, 3.0, Fraction(10, 3), 1e3, 1e6, 1e12])
def test_filter_changes_no_draw(law, sigma):
    """With every comparison made in exact arithmetic the same bytes give the same draws."""
    segments = [(sigma, 300)]
    exact = sampler._segments(segments, seeded("exact"), rounded=law == "rounded", margin=math.inf)
    assert exact.tolist() == LAWS[law](segments, seeded("exact")).tolist()


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("sigma", [Fraction(1, 2), Fraction(10, 3), Fraction(1000), Fraction(10**12)])
def test_filter_is_right_next_to_the_threshold(rounded, sigma):
    """For w within a few hundred units of e^(−γ) the filter is right or silent, and silent only close by."""
    law = sampler._Law(sigma, rounded, sampler.MARGIN[rounded])
    generator = np.random.default_rng(1)
    for _ in range(40):
        blocks, within = int(generator.integers(0, 6)), int(generator.integers(0, law.width))
        position = within + law.width * blocks
        half = int(generator.integers(0, 2**32))
        exact = law.gamma(position + (Fraction(2 * half + 1, 2**33) if rounded else 0), blocks)
        threshold = exponential(exact, sampler.BITS)[0]
        offsets = np.array([-900, -3, -2, -1, 0, 1, 2, 3, 900])
        prefixes = threshold + offsets[(threshold + offsets >= 0) & (threshold + offsets < 2**31)]
        words = np.array([[0] * len(prefixes), prefixes * 2, [half] * len(prefixes)], dtype=np.uint32)
        ones = np.ones(len(prefixes), dtype=np.int64)
        accepted, silent = sampler._accept(law, position * ones, blocks * ones, words)
        truly = prefixes < threshold
        assert (accepted == truly)[~silent].all()
        assert not silent[np.abs(prefixes - threshold) == 900].any()
        assert silent[prefixes == threshold].all()


def test_almost_nothing_needs_exact_arithmetic():
    """Of a million trials at most a handful are left open by the filter."""
    law = sampler._Law(Fraction(1000), False, sampler.MARGIN[False])
    octets = np.frombuffer(seeded("open").bytes(8_000_000), dtype="<u4").reshape(2, -1)
    blocks, unsure = sampler._geometric(octets[0])
    accepted, silent = sampler._accept(law, law.width * blocks + 500, blocks, octets)
    assert 0 < accepted.mean() < 1
    assert (unsure | silent).sum() <= 5


def trial(long: int, *words: int) -> bytes:
    """The bytes of one trial."""
    return long.to_bytes(8, "little") + b"".join(word.to_bytes(4, "little") for word in words)


def test_far_tail_is_drawn_exactly():
    """A first uniform below 2⁻³² takes further bits; the value is the one that they say, far beyond the filter."""
    law = sampler._Law(Fraction(10**12), False, sampler.MARGIN[False])
    deep = exponential(Fraction(30), 64)[0]
    assert deep < 2**32
    more = (deep - 1).to_bytes(4, "big")
    found = sampler._trials(law, 1, Scripted(trial(7, 0, 1), more, *[bytes(4)] * 40))
    assert found.tolist() == [-(7 + 30 * (10**12 + 1))]


@pytest.mark.parametrize(
    ("sigma", "blocks", "position", "above"),
    [(1000007, 1, 1016262, 2112581720), (1000007, 0, 833748, 920107068), (1000008, 1, 1108182, 1916065591)],
)
def test_float_that_rounds_up_to_an_integer_decides_nothing(sigma, blocks, position, above):
    """Where 2³¹·e^(−γ) is below an integer and float64 says that integer, a w just below it is refused, as it must."""
    law = sampler._Law(Fraction(sigma), False, sampler.MARGIN[False])
    exact = law.gamma(Fraction(position), blocks)
    assert exponential(exact, 90)[1] < above << (90 - sampler.BITS)
    assert np.exp(-float(exact)) * 2.0**sampler.BITS > above - 1e-3
    first = trial(position - law.width * blocks, 2**30 if blocks else 2**32 - 1, 2 * (above - 1))
    assert sampler._trials(law, 1, Scripted(first, *[b"\xff" * 4] * 4)).tolist() == []
    assert sampler._trials(law, 1, Scripted(first, *[bytes(4)] * 4)).tolist() == [position]


@pytest.mark.parametrize(("half", "above"), [(1124616869, 1652304318), (3973259598, 342216863)])
def test_bits_of_the_fraction_that_are_not_drawn_yet_may_decide(half, above):
    """The rounded law at σ = ½: where all further bits of F are ones, e^(−γ) falls below a w that zeros would keep."""
    law = sampler._Law(Fraction(1, 2), True, sampler.MARGIN[True])
    low, high = (exponential(law.gamma(Fraction(half + end, 2**32), 0), 90) for end in (Fraction(2**30 - 1, 2**30), 0))
    assert low[1] < above << (90 - sampler.BITS) < high[0]
    first = trial(0, 2**32 - 1, 2 * (above - 1), half)
    assert sampler._trials(law, 1, Scripted(first, *[b"\xff" * 4] * 8)).tolist() == []
    assert sampler._trials(law, 1, Scripted(first, *[bytes(4)] * 8)).tolist() == [half >> 31]


def test_zero_is_counted_once_and_refused_words_are_refused():
    """−0 is thrown away by the discrete law only, and a word at the last multiple of t gives no draw."""
    whole = 2**32 - 1
    discrete, rounded = (sampler._Law(Fraction(3), flag, sampler.MARGIN[flag]) for flag in (False, True))
    assert sampler._trials(discrete, 1, Scripted(trial(4, whole, 0))).tolist() == [0]
    assert sampler._trials(discrete, 1, Scripted(trial(4, whole, 1))).tolist() == []
    assert sampler._trials(rounded, 1, Scripted(trial(4, whole, 1, 5))).tolist() == [0]
    assert sampler._trials(rounded, 1, Scripted(trial(4, whole, 1, 2**31))).tolist() == [-1]
    law = sampler._Law(Fraction(2), False, sampler.MARGIN[False])
    assert law.width == 3
    assert sampler._trials(law, 1, Scripted(trial(2**64 - 2, whole, 0))).tolist() == [2]
    assert sampler._trials(law, 1, Scripted(trial(2**64 - 1, whole, 0))).tolist() == []
    assert sampler._trials(law, 1, Scripted(trial(2**64 - 1, 0, 0))).tolist() == []


def test_segments_are_drawn_apart_and_in_order():
    """Segments of equal σ continue one stream of draws; each σ has its own."""
    segments = [(5.0, 3), (1e6, 2), (5.0, 4), (7.5, 0), (1e6, 1)]
    drawn = discrete_gaussian(segments, seeded("order"))
    source = seeded("order")
    small, large = discrete_gaussian([(5.0, 7)], source), discrete_gaussian([(1e6, 3)], source)
    assert drawn.tolist() == [*small[:3], *large[:2], *small[3:], *large[2:]]
    assert drawn.dtype == np.int64
    assert discrete_gaussian([], seeded("none")).shape == (0,)


def test_a_float_is_exactly_its_value():
    """0.1 + 3 is the rational number that the float holds."""
    sigma = 0.1 + 3
    same = discrete_gaussian([(Fraction(sigma), 50)], seeded("float"))
    assert discrete_gaussian([(sigma, 50)], seeded("float")).tolist() == same.tolist()


def test_operating_system_never_repeats():
    """Two draws of a client, or of two clients, have nothing in common (false failures: 10⁻⁹)."""
    one, other = (discrete_gaussian([(1e12, 1000)], OperatingSystem()) for _ in range(2))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.2
    assert not np.intersect1d(one[:40], other[:40]).size


@pytest.mark.parametrize("sigma", [0.49, 1.1e12, math.nan, math.inf, -1.0])
@pytest.mark.parametrize("law", LAWS.values())
def test_sigma_out_of_range_is_refused(law, sigma):
    """Below ½ and above 10¹² grid units nothing is drawn."""
    with pytest.raises(BadInput):
        law([(sigma, 1)], seeded("refused"))


def test_negative_count_is_refused():
    """A count below zero is a mistake, even where others make up for it."""
    with pytest.raises(BadInput):
        discrete_gaussian([(3.0, 5), (3.0, -1)], seeded("refused"))


@given(st.fractions(0, 60, max_denominator=10**6), st.integers(1, 200))
def test_exponential_is_bracketed(gamma, precision):
    """The integers enclose 2^p·e^(−γ), closely."""
    mpmath = pytest.importorskip("mpmath")
    low, high = exponential(gamma, precision)
    with mpmath.workprec(precision + 100):
        true = mpmath.exp(-mpmath.mpf(gamma.numerator) / gamma.denominator) * mpmath.mpf(2) ** precision
        assert low <= true <= high <= low + 2


@given(st.fractions(0, 60, max_denominator=10**6), st.integers(16, 80))
def test_working_precision_is_bracketed(gamma, working):
    """Before the spare bits are cut off, the ends enclose the value too: they hide no error."""
    mpmath = pytest.importorskip("mpmath")
    low, high = sampler._bracket(gamma, working)
    with mpmath.workprec(working + 100):
        assert low <= mpmath.exp(-mpmath.mpf(gamma.numerator) / gamma.denominator) * mpmath.mpf(2) ** working <= high


def test_series_is_bracketed():
    """Both ends hold for every argument of a small scale, the largest included."""
    for scaled in range(257):
        low, high = sampler._taylor(scaled, 8)
        assert low <= 256 * math.exp(-scaled / 256) <= high


def test_thresholds_are_the_floors():
    """Every 32-bit prefix but the threshold itself decides V."""
    for k, threshold in enumerate(reversed(sampler.THRESHOLDS.tolist()), start=1):
        low, high = exponential(Fraction(k), 32)
        assert threshold == low == high - 1
    assert sampler.THRESHOLDS[:2].tolist() == [0, 1]
    near = np.concatenate([sampler.THRESHOLDS, sampler.THRESHOLDS[1:] - 1, sampler.THRESHOLDS + 1])
    blocks, unsure = sampler._geometric(near)
    exactly = [max(k for k in range(60) if math.exp(-k) * 2**32 > word) for word in near.tolist()]
    assert unsure.tolist() == np.isin(near, sampler.THRESHOLDS).tolist()
    assert blocks[~unsure].tolist() == np.array(exactly)[~unsure].tolist()


def test_uniform_is_decided_by_as_many_bits_as_it_takes():
    """A prefix equal to the threshold's is extended until it differs; γ = 0 is always above."""
    gamma = Fraction(1, 3)
    deep = exponential(gamma, 160)[0]
    words = [(deep >> shift) % 2**32 for shift in (128, 96, 64, 32, 0)]
    for last, below in [(words[4] - 5, True), (words[4] + 5, False)]:
        script = [word.to_bytes(4, "big") for word in (*words[1:4], last)]
        uniform = ExactUniform(words[0], 32, Scripted(*script))
        assert uniform.is_below_exponential(gamma) is below
    assert ExactUniform(2**32 - 1, 32, Scripted()).is_below_exponential(Fraction(0)) is True
