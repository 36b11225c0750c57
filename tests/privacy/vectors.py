"""Writes tests/vectors/v1/privacy_*.json with mpmath and hashlib: `python -m tests.privacy.vectors`.

Nothing of the package is used. Privacy figures come from the papers' formulas in their plainest form with 60 digits;
draws from the trial as `secagg/privacy/sampler.py` describes it, one at a time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from mpmath import mp, mpf

FOLDER = Path(__file__).parents[1] / "vectors" / "v1"
GENERATOR = "python -m tests.privacy.vectors (mpmath, hashlib)"
DELTA = "1e-5"
mp.dps = 60


def gaussian_delta(mu: mpf, epsilon: mpf) -> mpf:
    """Balle & Wang 2018, Theorem 8, as printed."""
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


def root(rising: Callable[[mpf], mpf], low: mpf, high: mpf) -> mpf:
    """Where a rising function crosses 0, by bisection to 45 digits."""
    for _ in range(160):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return low


def gaussian_mu(epsilon: mpf, delta: mpf) -> mpf:
    """The largest μ with (ε, δ)."""
    return root(lambda mu: gaussian_delta(mu, epsilon) - delta, mpf("1e-9"), mpf(100))


def gaussian_epsilon(mu: mpf, delta: mpf) -> mpf:
    """The least ε with δ."""
    return root(lambda epsilon: delta - gaussian_delta(mu, epsilon), mpf(0), mpf(2000))


def accounting() -> dict[str, Any]:
    """One release, several releases, lost shares, budgets split the wrong way."""
    delta = mpf(DELTA)
    one = gaussian_mu(mpf(1), delta)
    single = []
    for epsilon in ("0.5", "1", "2", "4", "8"):
        mu = gaussian_mu(mpf(epsilon), delta)
        single.append({"epsilon": epsilon, "mu": mp.nstr(mu, 25), "noise_multiplier": mp.nstr(1 / mu, 25)})
    grid = [(mu, d) for mu in ("0.001", "0.03", "0.5", "3", "40") for d in ("0.3", "1e-3", "1e-9", "1e-40")]
    wide = [{"mu": mu, "delta": d, "epsilon": mp.nstr(gaussian_epsilon(mpf(mu), mpf(d)), 25)} for mu, d in grid]
    factors = {
        "two_sessions": mp.sqrt(2),
        "four_sessions": mpf(2),
        "ten_sessions": mp.sqrt(10),
        "replace_one_at_equal_noise": mp.sqrt(2),
        "one_share_of_ten_missing": mp.sqrt(mpf(10) / 9),
        "one_honest_share_of_ten": mp.sqrt(10),
        "group_of_five": mpf(5),
        "halved_noise": mpf(2),
    }
    scaled = []
    for name, factor in factors.items():
        scaled.append({"name": name, "factor": mp.nstr(factor, 25)})
        scaled[-1]["epsilon"] = mp.nstr(gaussian_epsilon(factor * one, delta), 25)
    third = gaussian_mu(mpf(1) / 3, delta / 3)
    split = {
        "noise_multiplier_per_block": mp.nstr(1 / third, 25),
        "noise_multiplier_jointly": mp.nstr(mp.sqrt(3) / one, 25),
        "epsilon_spent": mp.nstr(gaussian_epsilon(mp.sqrt(3) * third, delta), 25),
    }
    source = "Balle & Wang 2018, Theorem 8; Canonne, Kamath & Steinke 2020, Proposition 12"
    return {"source": source, "delta": DELTA, "single": single, "wide": wide, "scaled": scaled, "split": split}


class Stream:
    """SHAKE-256(seed ‖ counter), one counter value per request."""

    def __init__(self, seed: str) -> None:
        self._seed, self._counter = seed.encode(), 0

    def bytes(self, count: int) -> bytes:
        """The bytes of the next request."""
        self._counter += 1
        return hashlib.shake_256(self._seed + self._counter.to_bytes(8, "big")).digest(count)


def decided(prefix: int, bits: int, threshold: mpf, slack: float | mpf = 0.0) -> bool:
    """Whether a uniform with these first bits is below a threshold; the cases written here never need more bits."""
    below, above = mpf(prefix + 1) / 2**bits <= threshold - slack, mpf(prefix) / 2**bits >= threshold + slack
    if below == above:
        raise ValueError("this case needs more bits: choose another seed")
    return below


def trials(sigma: Fraction, count: int, stream: Stream, rounded: bool) -> Iterator[int]:
    """The kept values of one batch."""
    width, square = sigma.__floor__() + 1, mpf(sigma.numerator) ** 2 / mpf(sigma.denominator) ** 2
    octets = stream.bytes((20 if rounded else 16) * count)
    long = [int.from_bytes(octets[8 * i : 8 * i + 8], "little") for i in range(count)]
    rest = [int.from_bytes(octets[at : at + 4], "little") for at in range(8 * count, len(octets), 4)]
    for i in range(count):
        if long[i] >= 2**64 // width * width:
            continue
        blocks = 0
        while decided(rest[i], 32, mp.exp(-blocks - 1)):
            blocks += 1
        position, slack = mpf(long[i] % width + width * blocks), mpf(0)
        if rounded:
            position += (rest[2 * count + i] + mpf(1) / 2) / 2**32
            slack = mpf(2) ** -24
        gamma = position**2 / (2 * square) + square / (2 * mpf(width) ** 2) - blocks
        negative = rest[count + i] % 2
        if decided(rest[count + i] // 2, 31, mp.exp(-gamma), slack) and (rounded or position or not negative):
            value = int(mp.floor(position + mpf(1) / 2))
            yield -value if negative else value


def draws(sigma: Fraction, count: int, stream: Stream, rounded: bool) -> list[int]:
    """`count` draws for one σ."""
    found: list[int] = []
    while len(found) < count:
        missing = count - len(found)
        found += list(trials(sigma, min(2**15, 64 + 9 * missing // 4), stream, rounded))[:missing]
    return found


def noise() -> dict[str, Any]:
    """Draws of both laws from seeded bytes."""
    cases = []
    for rounded in (False, True):
        for text in ("1/2", "1", "3", "10/3", "17825/1024", "1000", "1000000", "1000000000", "1000000000000"):
            seed = f"secagg privacy v1: {text} {rounded}"
            found = draws(Fraction(text), 60, Stream(seed), rounded)
            cases.append({"law": "rounded" if rounded else "discrete", "sigma": text, "seed": seed, "draws": found})
    return {"source": "Canonne, Kamath & Steinke 2020, Algorithms 2 and 3, as joined in the sampler", "cases": cases}


def main() -> None:
    """Write both files."""
    for name, content in (("privacy_accounting", accounting()), ("privacy_noise", noise())):
        ordered = {"source": content.pop("source"), "generator": GENERATOR, **content}
        (FOLDER / f"{name}.json").write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
