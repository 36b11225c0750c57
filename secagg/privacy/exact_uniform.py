"""A uniform real number whose bits are drawn when needed, compared exactly with e^(−γ) for rational γ ≥ 0."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from secagg.randomness import RandomSource

MORE_BITS = 32
GUARD_BITS = 64
SPARE_BITS = 32


class ExactUniform:
    """A uniform U in [0, 1), known so far to lie in [prefix, prefix + 1)/2^bits."""

    def __init__(self, prefix: int, bits: int, source: RandomSource) -> None:
        self._prefix = prefix
        self._bits = bits
        self._source = source

    def bounds(self) -> tuple[Fraction, Fraction]:
        """Return the ends of the interval in which U is known to lie."""
        return Fraction(self._prefix, 1 << self._bits), Fraction(self._prefix + 1, 1 << self._bits)

    def extend(self) -> None:
        """Draw 32 more bits of U."""
        self._prefix = self._prefix << MORE_BITS | int.from_bytes(self._source.bytes(MORE_BITS // 8), "big")
        self._bits += MORE_BITS

    def is_below(self, least: Fraction, greatest: Fraction) -> bool | None:
        """Whether U < e^(−γ), for some γ known to lie in [least, greatest]; None while the known bits cannot say."""
        precision = self._bits + GUARD_BITS
        if self._prefix + 1 << GUARD_BITS <= exponential(greatest, precision)[0]:
            return True
        if self._prefix << GUARD_BITS >= exponential(least, precision)[1]:
            return False
        return None

    def is_below_exponential(self, gamma: Fraction) -> bool:
        """Whether U < e^(−γ), decided exactly; draws more bits when needed.

        It ends with probability 1: e^(−γ) is irrational for rational γ > 0 (Lindemann), and is 1 > U for γ = 0.
        """
        if gamma == 0:
            return True
        while (below := self.is_below(gamma, gamma)) is None:
            self.extend()
        return below


def exponential(gamma: Fraction, precision: int) -> tuple[int, int]:
    """Return integers (a, b) with a ≤ 2^precision·e^(−γ) ≤ b ≤ a + 2, for rational γ ≥ 0."""
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
