"""BFV parameters: secure by the guideline, always decrypting, as small as that allows."""

from dataclasses import replace

import pytest
import tenseal.sealapi as seal
from Crypto.Util.number import isPrime
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import CapacityExceeded
from secagg.protection.encryption import parameters
from secagg.protection.encryption.parameters import (
    DATA,
    DEGREE,
    LIMITS,
    MOST_PLAIN_BITS,
    SPECIAL,
    HeParameters,
    for_capacity,
)

CHOSEN = [  # largest, clients, bytes per value, bits of plaintext, of modulus, of security
    (1, 2, 10, 3, 65, 192),
    (2**19 - 1, 100, 10, 21, 65, 192),
    (2**20 - 1, 100, 12, 22, 73, 192),
    (2**27 - 1, 100, 12, 29, 73, 192),
    (2**31 - 1, 100, 14, 33, 81, 128),
    (2**39 - 1, 100, 16, 41, 85, 128),
    (2**42 - 1, 100, 16, 44, 89, 128),
    (2**43 - 1, 43, 16, 45, 89, 128),
    (2**47 - 1, 100, 20, 49, 105, 128),
    (2**31 - 1, 4096, 16, 33, 85, 128),
    (2**57 - 1, 100, 20, 59, 105, 128),
]


@pytest.mark.parametrize(("largest", "clients", "size", "plain", "modulus", "security"), CHOSEN)
def test_the_rule_gives_the_known_sets(largest, clients, size, plain, modulus, security):
    """For these capacities the chosen set is known, and each fits into 20 bytes per value."""
    found = for_capacity(largest, clients)
    assert (found.bytes_per_value, found.plain_bits, found.modulus_bits, found.security) == (
        size,
        plain,
        modulus,
        security,
    )
    assert f"{size} bytes per value" in found.explain()
    assert "failure probability 0" in found.explain()


@given(bits=st.integers(1, 57), below=st.integers(0, 2**56), clients=st.integers(2, 128))
def test_every_choice_is_secure_sound_and_the_smallest(bits, below, clients):
    """Whatever the capacity: a bit is spare, decryption is certain, security holds, no smaller set would do."""
    largest = 2**bits - 1 - below % 2 ** (bits - 1)
    found = for_capacity(largest, clients)
    t, q = 2**found.plain_bits, found.modulus
    assert 4 * largest < t <= 8 * largest
    assert 2 * (t * clients * (DEGREE // 2) + (q % t) * largest) < q
    assert found.modulus_bits <= LIMITS[128]
    smaller = [primes for primes in DATA if replace(found, primes=primes).bytes_per_value < found.bytes_per_value]
    assert not any(replace(found, primes=primes).always_decrypts for primes in smaller)


def test_limits_are_those_of_the_guideline_and_stricter_than_seals():
    """Table 5.2 of Bossuat et al. 2025 (ternary secret, N = 4096; doi 10.62056/anxra69p1) against SEAL's own table."""
    assert LIMITS == {128: 106, 192: 73, 256: 56}
    levels = {128: seal.SEC_LEVEL_TYPE.TC128, 192: seal.SEC_LEVEL_TYPE.TC192, 256: seal.SEC_LEVEL_TYPE.TC256}
    assert all(limit <= seal.CoeffModulus.MaxBitCount(DEGREE, levels[level]) for level, limit in LIMITS.items())


def test_primes_are_what_they_should_be():
    """Every prime is prime, 1 modulo 2N, used once in its set; the special one exceeds twice the errors it divides."""
    for primes in DATA:
        for prime in (*primes, SPECIAL):
            assert isPrime(prime)
            assert prime % (2 * DEGREE) == 1
        assert len({*primes, SPECIAL}) == len(primes) + 1
        assert (max(primes) * SPECIAL).bit_length() <= LIMITS[128]
    assert SPECIAL > 2 * parameters.LARGEST_ERROR * (2 * DEGREE + 1)
    assert [max(primes).bit_length() for primes in DATA] == [40, 48, 56, 60, 32, 40]
    assert [HeParameters(DEGREE, primes, SPECIAL, 3, 2).security for primes in DATA] == [192, 192, 128, 128, 128, 128]


@pytest.mark.parametrize("bits", [40, 48, 56, 60])
def test_single_primes_are_the_largest_that_are_one_modulo_every_plaintext_size(bits):
    """The prime of k bits is 1 modulo 2^(k−14), and no larger one of k bits is."""
    (prime,) = next(primes for primes in DATA if len(primes) == 1 and primes[0].bit_length() == bits)
    step = 2 ** (bits - 14)
    assert prime % step == 1
    assert not any(isPrime(larger) for larger in range(prime + step, 2**bits, step))


@pytest.mark.parametrize("primes", DATA)
def test_the_remainder_is_small_for_every_plaintext_size_in_use(primes):
    """For every t that a set is chosen with, q mod t is 1 or below 2^19, and leaves room for |X| < t/4 and noise."""
    found = [HeParameters(DEGREE, primes, SPECIAL, bits, 2) for bits in range(3, MOST_PLAIN_BITS + 1)]
    used = [each for each in found if each.always_decrypts]
    assert used == found[: len(used)]
    for each in used:
        t, q = 2**each.plain_bits, each.modulus
        assert each.scale * t + each.remainder == q
        assert 0 < each.remainder < min(t, 2 if len(primes) == 1 else 2**19)
        assert 2 * (each.remainder * (t // 4 - 1) + t * 2 * DEGREE // 2) < q * (1 - 2**-50)
    most = {(1, 40): 26, (1, 48): 34, (1, 56): 42, (1, 60): 46, (2, 32): 46, (2, 40): 59}
    assert used[-1].plain_bits == most[len(primes), max(primes).bit_length()]


def test_a_modulus_with_a_large_remainder_is_not_used():
    """Among pairs of primes of one size only the remainder decides whether large sums decrypt."""
    ordinary = (4294729729, 4294828033)  # the largest two of 32 bits
    assert HeParameters(DEGREE, ordinary, SPECIAL, 36, 20).always_decrypts is False
    assert HeParameters(DEGREE, DATA[4], SPECIAL, 36, 20).always_decrypts is True


def test_insecure_modulus_has_no_level():
    """The set of 55 and 54 bits that SEAL's table admits is not 128-bit secure by the guideline."""
    first, second = (each.value() for each in seal.CoeffModulus.Create(DEGREE, [55, 54]))
    assert HeParameters(DEGREE, (first,), second, 20, 2).modulus_bits == 109
    assert HeParameters(DEGREE, (first,), second, 20, 2).security == 0


@pytest.mark.parametrize(("largest", "clients", "security"), [(2**58, 2, 128), (2**55, 4096, 128), (2**40, 2, 192)])
def test_a_capacity_beyond_every_set_is_refused(largest, clients, security):
    """No parameters are bent: where no set has room, the refusal says how many bits there are, and what to do."""
    with pytest.raises(CapacityExceeded) as caught:
        for_capacity(largest, clients, security)
    assert caught.value.available < caught.value.needed == largest.bit_length() + 2
    assert caught.value.remedy == "lower max_records, clients or levels"
    for_capacity(2 ** (caught.value.available - 2) - 1, clients, security)


def test_digest_names_every_number():
    """Two sets that differ in any number have different digests."""
    found = for_capacity(1000, 5)
    others = [
        replace(found, plain_bits=13),
        replace(found, summands=6),
        replace(found, special=3),
        for_capacity(2**25, 5),
    ]
    assert len({found.digest(), *(other.digest() for other in others)}) == 5
