"""An exact sampler of its own for the discrete Gaussian, one trial after the other in long arithmetic.

Nothing of secagg is imported here. The order of bytes is that of the docstring of `secagg.privacy.sampler`: a batch of
min(2^15, 64 + 9k/4) trials reads 8-byte words for all U, then 4-byte words for all u and all w.
"""

from collections.abc import Callable
from decimal import Decimal, getcontext
from fractions import Fraction

from Crypto.Cipher import AES

getcontext().prec = 60


def discrete_noise(key: bytes, segments: list[tuple[float, int]]) -> list[int]:
    """Noise drawn from the AES-256-CTR stream of a key, for (sigma, entries); equal sigmas are drawn together."""
    cipher = AES.new(key, AES.MODE_CTR, nonce=b"", initial_value=0)
    wanted: dict[float, int] = {}
    for sigma, count in segments:
        wanted[sigma] = wanted.get(sigma, 0) + count
    read = lambda size: cipher.encrypt(bytes(size))  # noqa: E731
    drawn = {sigma: _draw(Fraction(sigma), count, read) for sigma, count in wanted.items()}
    return [drawn[sigma].pop(0) for sigma, count in segments for _ in range(count)]


def _draw(sigma: Fraction, count: int, read: Callable[[int], bytes]) -> list[int]:
    kept: list[int] = []
    while len(kept) < count:
        missing = count - len(kept)
        trials = min(1 << 15, 64 + 9 * missing // 4)
        octets = read(16 * trials)
        words = [octets[8 * trials + 4 * place :][:4] for place in range(2 * trials)]
        batch = [
            _trial(
                sigma,
                int.from_bytes(octets[8 * row : 8 * row + 8], "little"),
                int.from_bytes(words[row], "little"),
                int.from_bytes(words[trials + row], "little"),
            )
            for row in range(trials)
        ]
        kept += [value for value in batch if value is not None][:missing]
    return kept


def _trial(sigma: Fraction, large: int, u: int, w: int) -> int | None:
    """The value of one trial, or None. Raises ValueError where 32 bits do not decide (a chance of 2^-26 or so)."""
    width = int(sigma) + 1
    if large >= (1 << 64) // width * width:
        return None
    blocks = 0
    while _is_below(u, 32, Fraction(blocks + 1)):
        blocks += 1
    value = large % width + width * blocks
    square = sigma * sigma
    if not _is_below(w >> 1, 31, Fraction(value * value) / (2 * square) + square / (2 * width * width) - blocks):
        return None
    if w & 1:
        return -value if value else None
    return value


def _is_below(prefix: int, bits: int, gamma: Fraction) -> bool:
    """Whether a number with these first bits is below e^-gamma."""
    threshold = (-Decimal(gamma.numerator) / Decimal(gamma.denominator)).exp() * (1 << bits)
    if prefix + 1 <= threshold:
        return True
    if prefix < threshold:
        raise ValueError("further bits are needed")
    return False
