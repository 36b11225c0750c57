"""Shamir's secret sharing (1979) of 32-byte secrets over the prime field of 2²⁵⁶ + 297 elements.

The prime is the smallest above 2²⁵⁶, so that every 32-byte string is a field element. Shares are canonical:
33 bytes, big-endian, below the prime. Holders' points are their member indices (≥ 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from secagg.randomness import RandomSource

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33
_DRAW_BYTES = 49  # 136 bits more than the prime: the bias of `mod PRIME` is below 2⁻¹³⁵ (as in RFC 9380, section 5)


class SharesInconsistent(ValueError):
    """Raised for shares that do not combine to a 32-byte secret."""


def share(secret: bytes, threshold: int, holders: Sequence[int], randomness: RandomSource) -> dict[int, bytes]:
    """Deal one 33-byte share to each holder; any `threshold` of them determine the secret, fewer reveal nothing.

    Raises ValueError unless the secret has 32 bytes, 1 ≤ threshold ≤ number of holders, and the holders are
    distinct and positive.
    """
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes")
    if not 1 <= threshold <= len(holders) or len(set(holders)) != len(holders) or min(holders) < 1:
        raise ValueError(f"cannot share {threshold}-of-{len(holders)}")
    drawn = randomness.bytes(_DRAW_BYTES * (threshold - 1))
    coefficients = [
        int.from_bytes(drawn[start : start + _DRAW_BYTES], "big") % PRIME for start in range(0, len(drawn), _DRAW_BYTES)
    ]
    constant = int.from_bytes(secret, "big")
    shares = {}
    for holder in holders:
        value = 0
        for coefficient in coefficients:
            value = (value + coefficient) * holder % PRIME
        shares[holder] = ((value + constant) % PRIME).to_bytes(SHARE_BYTES, "big")
    return shares


def is_canonical(value: bytes) -> bool:
    """Return whether `value` is the one valid encoding of a share: 33 bytes, big-endian, below the prime."""
    return len(value) == SHARE_BYTES and int.from_bytes(value, "big") < PRIME


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Recover the 32-byte secret from exactly `threshold` shares, by Lagrange interpolation at zero.

    Raises SharesInconsistent when there is none, one is not canonical, or the value at zero is no 32-byte string.
    """
    if not shares or not all(is_canonical(value) for value in shares.values()):
        raise SharesInconsistent("there are no shares, or one is not canonical")
    holders = tuple(sorted(shares))
    weights = _lagrange_at_zero(holders)
    secret = sum(w * int.from_bytes(shares[x], "big") for x, w in zip(holders, weights, strict=True)) % PRIME
    if secret >= 2**256:
        raise SharesInconsistent("the shares do not belong to a 32-byte secret")
    return secret.to_bytes(SECRET_BYTES, "big")


@lru_cache(maxsize=256)
def _lagrange_at_zero(points: tuple[int, ...]) -> tuple[int, ...]:
    """Return the Lagrange coefficients λ_i = Π_{j≠i} x_j / (x_j − x_i) at zero, cached for each set of holders."""
    weights = []
    for point in points:
        numerator = denominator = 1
        for other in points:
            if other != point:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - point) % PRIME
        weights.append(numerator * pow(denominator, -1, PRIME) % PRIME)
    return tuple(weights)
