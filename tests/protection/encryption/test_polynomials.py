"""Packed polynomials: one encoding, checked before anything else happens, added modulo each prime."""

import numpy as np
import pytest

from secagg.errors import MalformedMessage
from secagg.protection.encryption.parameters import DATA
from secagg.protection.encryption.polynomials import add, pack, unpack

DEGREE = 8


def drawn(primes, number=3, seed=0):
    generator = np.random.default_rng(seed)
    polynomials = np.empty((number, 2, len(primes), DEGREE), dtype=np.uint64)
    for index, prime in enumerate(primes):
        polynomials[:, :, index] = generator.integers(0, prime, (number, 2, DEGREE), dtype=np.uint64)
        polynomials[0, :, index, 0] = prime - 1
    return polynomials


def width(primes):
    return -(-max(primes).bit_length() // 8)


@pytest.mark.parametrize("primes", DATA)
def test_pack_and_unpack_are_inverse(primes):
    """Every reduced coefficient comes back, in as many bytes as the prime has."""
    polynomials = drawn(primes)
    packed = pack(polynomials, width(primes))
    assert len(packed) == polynomials.size * width(primes)
    assert (unpack(packed, 3, primes, DEGREE, width(primes)) == polynomials).all()


@pytest.mark.parametrize("primes", DATA)
def test_addition_is_modulo_each_prime(primes):
    """Sums agree with Python's integers, at the largest coefficients too."""
    total, other = drawn(primes), drawn(primes, seed=1)
    expected = (total.astype(object) + other.astype(object)) % np.array(primes, dtype=object).reshape(-1, 1)
    add(total, other, primes)
    assert (total.astype(object) == expected).all()


@pytest.mark.parametrize("primes", DATA)
def test_what_is_no_ciphertext_is_refused(primes):
    """Truncated, extended, unreduced, zero and transparent bytes are refused."""
    good = drawn(primes)
    unreduced, transparent = good.copy(), good.copy()
    unreduced[2, 1, -1, -1] = primes[-1]
    transparent[1, 1] = 0
    packed = pack(good, width(primes))
    broken = [b"", packed[:-1], packed + b"\0", bytes(len(packed)), b"\xff" * len(packed)]
    for bad in [*broken, pack(unreduced, width(primes)), pack(transparent, width(primes))]:
        with pytest.raises(MalformedMessage):
            unpack(bad, 3, primes, DEGREE, width(primes))
