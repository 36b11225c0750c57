"""Exact samplers that use fair random bytes: the discrete Gaussian, and the Gaussian rounded to integers.

What is drawn is *exactly* distributed, however large or small σ: floating point only ever answers questions whose
answer it can prove.

One trial (Canonne, Kamath & Steinke 2020, Algorithms 2 and 3, with their Bernoulli steps joined into one). σ is
rational, t = ⌊σ⌋ + 1.

1. V is geometric: V = max{k : u < e^(−k)} for a uniform u, so that P(V ≥ k) = e^(−k).
2. U is uniform in {0, …, t − 1}, and Y = U + tV. Hence P(Y = y) = (1 − e^(−1))·e^(−⌊y/t⌋)/t.
3. Keep Y when w < e^(−γ) for a uniform w, with γ = Y²/(2σ²) + σ²/(2t²) − V. Because V ≤ Y/t,
   γ ≥ (Y − σ²/t)²/(2σ²) ≥ 0, so this is a probability, and P(Y = y and kept) is a constant times e^(−y²/(2σ²)).
4. A fair sign; −0 is thrown away, so that 0 is not counted twice.

Trials are independent; the kept values, in order, are independent draws of N_Z(0, σ²). For the rounded Gaussian
X = Y + F with F uniform in [0, 1) takes the place of Y in γ: V ≤ X/t again, kept X have the density of |N(0, σ²)|, and
±⌊X + ½⌋ is N(0, σ²) rounded to the nearest integer.

The filter. u, w and F are infinitely long; 32, 31 and 32 of their bits are drawn at first. u is compared with integers
T_k = ⌊2³²·e^(−k)⌋ computed exactly: only the 32-bit prefix u = T_k leaves V open. For w, γ is computed in float64.
Where V ≤ 22, Y < 23t < 2⁵³ is exact, z = Y/σ < 23(1 + 1/σ) ≤ 69, and γ = z²/2 + c − V has an absolute error below
2400·2⁻⁴⁹ < 2⁻³⁷ from at most twelve roundings of relative size 2⁻⁵³ (σ, 1/σ, product, square, c, two sums). numpy's
exp is good to 4 units in the last place (2⁻⁵⁰). The margin 2⁻³² covers this 30 times over. For the
rounded Gaussian the bits of F not yet drawn move γ by at most |dγ/dX|·2⁻³³ = z/σ·2⁻³³ < 2⁻²⁵, within the margin 2⁻²⁴.
A comparison inside its margin is undecided, and is made by `ExactUniform` in integer arithmetic, drawing further bits
as needed. The filter never changes an outcome: with every comparison sent to the exact path the same bytes give the
same draws (a test does so).

Bytes: with k draws still missing, a batch of min(2¹⁵, 64 + ⌊9k/4⌋) trials reads 8-byte words for all U (refused at and
above the largest multiple of t), then 4-byte words for all u, all w (lowest bit: the sign) and, for the rounded
Gaussian, all F, little-endian. Further bits come 4 big-endian bytes at a time, trial by trial. What a batch keeps
beyond k is lost.

The number of bytes and the time taken vary with the draws, not with any data; draw the noise before touching the data
(Jin et al. 2022).

A uniform real number whose bits are drawn when needed, compared exactly with e^(−γ) for rational γ ≥ 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.randomness import RandomSource

MORE_BITS = 32
GUARD_BITS = 64
SPARE_BITS = 32


class ExactUniform:
    """A uniform random number in [0, 1) whose bits are drawn as needed: so far in [prefix, prefix + 1)/2^bits."""

    def __init__(self, prefix: int, bits: int, source: RandomSource) -> None:
        self._prefix = prefix
        self._bits = bits
        self._source = source

    def bounds(self) -> tuple[Fraction, Fraction]:
        """Return the ends of the interval in which the uniform number is known to lie."""
        return Fraction(self._prefix, 1 << self._bits), Fraction(self._prefix + 1, 1 << self._bits)

    def extend(self) -> None:
        """Draw 32 more bits of the uniform number."""
        self._prefix = self._prefix << MORE_BITS | int.from_bytes(self._source.bytes(MORE_BITS // 8), "big")
        self._bits += MORE_BITS

    def is_below(self, least: Fraction, greatest: Fraction) -> bool | None:
        """Return whether U < e^(−γ), with γ somewhere in [least, greatest]; None if the drawn bits cannot decide."""
        precision = self._bits + GUARD_BITS
        if self._prefix + 1 << GUARD_BITS <= exponential(greatest, precision)[0]:
            return True
        if self._prefix << GUARD_BITS >= exponential(least, precision)[1]:
            return False
        return None

    def is_below_exponential(self, gamma: Fraction) -> bool:
        """Decide exactly whether the uniform number U is below e^(−γ), drawing more bits when needed.

        It ends with probability 1: e^(−γ) is irrational for rational γ > 0 (Lindemann), and is 1 > U for γ = 0.
        """
        if gamma == 0:
            return True
        while (below := self.is_below(gamma, gamma)) is None:
            self.extend()
        return below


def exponential(gamma: Fraction, precision: int) -> tuple[int, int]:
    """Bracket e^(−γ) by integers (a, b): a ≤ 2^precision·e^(−γ) ≤ b ≤ a + 2, for rational γ ≥ 0."""
    low, high = _bracket(gamma, precision + SPARE_BITS)
    return low >> SPARE_BITS, (high >> SPARE_BITS) + 1


def _bracket(gamma: Fraction, working: int) -> tuple[int, int]:
    """Bracket 2^w·e^(−γ), γ = n + f with 0 ≤ f < 1, by the brackets of 2^w·e^(−f) and of 2^w·e^(−n).

    f is bracketed by integers over 2^w too; products of lower ends are rounded down and of upper ends up.
    """
    whole = int(gamma)
    scaled = int((gamma - whole) * (1 << working))
    low, high = _taylor(scaled + 1, working)[0], _taylor(scaled, working)[1]
    power_low, power_high = _power(whole, working)
    return low * power_low >> working, (high * power_high >> working) + 1


def _taylor(scaled: int, working: int) -> tuple[int, int]:
    """Bracket 2^w·e^(−x) for x = scaled/2^w in [0, 1].

    Σ (−x)^k/k! with each term ≤ 2 too small from rounding down (an error e becomes at most e/(k + 1) + 1). The sum ends
    at the first term that rounds to 0, which is < 3, and an alternating series with falling terms is off by less than
    the first term left out.
    """
    term, total, steps = 1 << working, 0, 0
    while term:
        total += -term if steps % 2 else term
        steps += 1
        term = term * scaled // (steps << working)
    slack = 2 * steps + 3
    return max(0, total - slack), min(1 << working, total + slack)


@lru_cache(maxsize=1024)
def _power(whole: int, working: int) -> tuple[int, int]:
    """Bracket 2^w·e^(−n) by squaring and multiplying the bracket of 2^w·e^(−1)."""
    low, high = 1 << working, 1 << working
    base_low, base_high = _taylor(1 << working, working)
    while whole:
        if whole & 1:
            low, high = low * base_low >> working, (high * base_high >> working) + 1
        base_low, base_high = base_low * base_low >> working, (base_high * base_high >> working) + 1
        whole >>= 1
    return low, high


Integers = NDArray[np.int64]
Words = NDArray[np.uint32]
Flags = NDArray[np.bool_]

SMALLEST_SIGMA = 0.5
LARGEST_SIGMA = 1e12
"""The largest σ: 23·(σ + 1) < 2⁵³, so that every Y that the filter decides is a float64."""
DECIDED = 22
"""The largest V that the 32-bit prefix of u decides: e^(−22)·2³² ≥ 1 > e^(−23)·2³²."""
THRESHOLDS: Words = np.array([exponential(Fraction(k), 32)[0] for k in range(DECIDED + 1, 0, -1)], dtype=np.uint32)
"""The numbers ⌊2³²·e^(−k)⌋, ascending, from 0 (k = 23)."""
TRIALS = 1 << 15
"""The number of trials at a time: the arrays of one batch stay in a core's cache."""
BITS = 31
"""The number of bits of w; the 32nd bit is the sign."""
MARGIN = {False: 2.0**-32, True: 2.0**-24}
"""Relative margin of e^(−γ) in the filter: for the discrete and for the rounded Gaussian."""
ABSOLUTE = 2.0**-10
"""Absolute margin in units of 2⁻³¹, so that an underflow of e^(−γ) to 0 leaves w = 0 undecided."""


@dataclass(frozen=True)
class _Law:
    """The law of noise with one σ, exactly and in float64: the rounded Gaussian if `rounded`, else the discrete one."""

    sigma: Fraction
    rounded: bool
    margin: float

    @property
    def width(self) -> int:
        """The width t of the proposals, ⌊σ⌋ + 1."""
        return int(self.sigma) + 1

    def gamma(self, position: Fraction, blocks: int) -> Fraction:
        """Return γ at Y or X = `position`, V = `blocks`."""
        square = self.sigma * self.sigma
        return position * position / (2 * square) + square / (2 * self.width * self.width) - blocks


def discrete_gaussian(segments: Sequence[tuple[float | Fraction, int]], source: RandomSource) -> Integers:
    """Draw discrete Gaussians N_Z(0, σ²), independently, as int64: `count` of them for each segment (σ, count).

    P(x) ∝ e^(−x²/(2σ²)).
    σ from 0.5 to 10¹² grid units; a float stands for exactly its value. Draws for equal σ are made together, in the
    order in which each σ first appears. Raises BadInput for σ out of range or a negative count.
    """
    return _segments(segments, source, rounded=False)


def rounded_gaussian(segments: Sequence[tuple[float | Fraction, int]], source: RandomSource) -> Integers:
    """Draw independent normals N(0, σ²), rounded to the nearest integer, for segments as in `discrete_gaussian`.

    Added by one party to integers s this is ⌊s + N(0, σ²)⌉, post-processing of the Gaussian mechanism, so that its
    exact (ε, δ) holds (`secagg.privacy.gaussian`). Sums of several such draws are not covered by the accounting of
    discrete shares.
    """
    return _segments(segments, source, rounded=True)


def _segments(
    segments: Sequence[tuple[float | Fraction, int]],
    source: RandomSource,
    *,
    rounded: bool,
    margin: float | None = None,
) -> Integers:
    wanted: dict[float | Fraction, int] = {}  # equal numbers of both types are one key
    for sigma, count in segments:
        if not (SMALLEST_SIGMA <= sigma <= LARGEST_SIGMA and count >= 0):
            raise BadInput(f"{count} draws with sigma {sigma}", remedy="sigma lies between 0.5 and 1e12")
        wanted[sigma] = wanted.get(sigma, 0) + count
    used_margin = MARGIN[rounded] if margin is None else margin
    laws = {sigma: _Law(Fraction(sigma), rounded, used_margin) for sigma in wanted}
    streams = {sigma: _draw(laws[sigma], count, source) for sigma, count in wanted.items()}
    drawn = np.empty(sum(wanted.values()), dtype=np.int64)
    used = dict.fromkeys(wanted, 0)
    start = 0
    for sigma, count in segments:
        at = used[sigma]
        drawn[start : start + count] = streams[sigma][at : at + count]
        used[sigma] = at + count
        start += count
    return drawn


def _draw(law: _Law, count: int, source: RandomSource) -> Integers:
    drawn = np.empty(count, dtype=np.int64)
    done = 0
    while done < count:
        kept = _trials(law, min(TRIALS, 64 + 9 * (count - done) // 4), source)[: count - done]
        drawn[done : done + len(kept)] = kept
        done += len(kept)
    return drawn


def _trials(law: _Law, count: int, source: RandomSource) -> Integers:
    """Return the kept values of `count` trials, in order."""
    octets = source.bytes((20 if law.rounded else 16) * count)
    drawn = np.frombuffer(octets, "<u8", count)
    within = (drawn % np.uint64(law.width)).astype(np.int64)
    kept = drawn <= np.uint64((1 << 64) // law.width * law.width - 1)  # below a multiple of t, where U is uniform
    words = np.frombuffer(octets, "<u4", offset=8 * count).reshape(-1, count)
    blocks, undecided = _geometric(words[0])
    positions = within + law.width * blocks
    accepted, open_acceptance = _accept(law, positions, blocks, words)
    undecided |= open_acceptance
    undecided &= kept
    kept &= accepted
    values = positions + (words[2] >> 31) if law.rounded else positions
    for row in np.flatnonzero(undecided):
        value = _exactly(law, int(within[row]), [int(word) for word in words[:, row]], source)
        kept[row] = value is not None
        values[row] = value or 0
    negative = (words[1] & 1).astype(np.bool_)
    if not law.rounded:
        kept &= ~negative | (values != 0)
    signed: Integers = np.where(negative, -values, values)[kept]
    return signed


def _geometric(words: Words) -> tuple[Integers, Flags]:
    """Return V from the first 32 bits of u, and whether further bits could change it."""
    above = np.searchsorted(THRESHOLDS, words, side="right")
    return DECIDED + 1 - above, THRESHOLDS[above - 1] == words


def _accept(law: _Law, positions: Integers, blocks: Integers, words: Words) -> tuple[Flags, Flags]:
    """Return whether w < e^(−γ) as float64 computes it, and whether float64 cannot decide it."""
    sigma = float(law.sigma)
    scaled = positions.astype(np.float64)
    if law.rounded:
        scaled += (words[2] + 0.5) * 2.0**-32
    scaled *= 1 / sigma
    gamma = 0.5 * scaled * scaled + (0.5 * (sigma / law.width) ** 2 - blocks)
    threshold = np.exp(-gamma) * 2.0**BITS
    prefix = (words[1] >> 1).astype(np.float64)
    accepted = prefix + 1 <= threshold * (1 - law.margin)
    refused = prefix >= threshold * (1 + law.margin) + ABSOLUTE
    return accepted, ~(accepted | refused)


def _exactly(law: _Law, within: int, words: list[int], source: RandomSource) -> int | None:
    """Return the value of one trial, without its sign, in rational arithmetic; None where it is rejected."""
    geometric = ExactUniform(words[0], 32, source)
    blocks = 0
    while geometric.is_below_exponential(Fraction(blocks + 1)):
        blocks += 1
    position = within + law.width * blocks
    acceptance = ExactUniform(words[1] >> 1, BITS, source)
    if not law.rounded:
        return position if acceptance.is_below_exponential(law.gamma(Fraction(position), blocks)) else None
    fraction = ExactUniform(words[2], 32, source)
    while True:
        low, high = (law.gamma(position + end, blocks) for end in fraction.bounds())
        accepted = acceptance.is_below(low, high)
        if accepted is not None:
            return position + (words[2] >> 31) if accepted else None
        fraction.extend()
        acceptance.extend()
