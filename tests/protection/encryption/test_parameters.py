"""BFV parameters: secure by the guideline, always decrypting, as small as that allows."""

from dataclasses import replace

import pytest
import tenseal.sealapi as seal
from Crypto.Util.number import isPrime
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import CapacityExceeded
from secagg.protection.encryption import parameters
from secagg.protection.encryption.parameters import DATA, DEGREE, LIMITS, SPECIAL, HeParameters, for_capacity

CHOSEN = [  # largest, clients, bytes per value, bits of plaintext, of modulus, of security
    (1, 2, 10, 2, 65, 192),
    (2**20 - 1, 100, 10, 21, 65, 192),
    (2**21 - 1, 100, 12, 22, 73, 192),
    (2**31 - 1, 100, 14, 32, 81, 128),
    (2**39 - 1, 100, 16, 40, 85, 128),
    (2**43 - 1, 100, 16, 44, 89, 128),
    (2**47 - 1, 100, 20, 48, 105, 128),
    (2**31 - 1, 4096, 16, 32, 85, 128),
    (2**58 - 1, 100, 20, 59, 105, 128),
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


@given(largest=st.integers(1, 2**58 - 1), clients=st.integers(2, 128))
def test_every_choice_is_secure_sound_and_the_smallest(largest, clients):
    """Whatever the capacity: centred sums fit, decryption is certain, security holds, no smaller set would do."""
    found = for_capacity(largest, clients)
    t, q = 2**found.plain_bits, found.modulus
    assert largest < t // 2
    assert 2 * t * clients * (DEGREE // 2 + 2) < q
    assert found.modulus_bits <= LIMITS[128]
    smaller = [primes for primes in DATA if replace(found, primes=primes).bytes_per_value < found.bytes_per_value]
    assert not any(replace(found, primes=primes).always_decrypts for primes in smaller)


def test_limits_are_those_of_the_guideline_and_stricter_than_seals():
    """Table 5.2 of Bossuat et al. 2025 (ternary secret, N = 4096; doi 10.62056/anxra69p1) against SEAL's own table."""
    assert LIMITS == {128: 106, 192: 73, 256: 56}
    levels = {128: seal.SEC_LEVEL_TYPE.TC128, 192: seal.SEC_LEVEL_TYPE.TC192, 256: seal.SEC_LEVEL_TYPE.TC256}
    assert all(limit <= seal.CoeffModulus.MaxBitCount(DEGREE, levels[level]) for level, limit in LIMITS.items())


def test_primes_are_what_they_should_be():
    """Every prime is prime, 1 modulo 2N, used once in its set; the special one exceeds the errors it divides."""
    for primes in DATA:
        for prime in (*primes, SPECIAL):
            assert isPrime(prime)
            assert prime % (2 * DEGREE) == 1
        assert len({*primes, SPECIAL}) == len(primes) + 1
        assert (max(primes) * SPECIAL).bit_length() <= LIMITS[128]
    assert SPECIAL > parameters.LARGEST_ERROR * (2 * DEGREE + 1)


def test_insecure_modulus_has_no_level():
    """The set of 55 and 54 bits that SEAL's table admits is not 128-bit secure by the guideline."""
    first, second = (each.value() for each in seal.CoeffModulus.Create(DEGREE, [55, 54]))
    assert HeParameters(DEGREE, (first,), second, 20, 2).modulus_bits == 109
    assert HeParameters(DEGREE, (first,), second, 20, 2).security == 0


@pytest.mark.parametrize(("largest", "clients", "security"), [(2**59, 2, 128), (2**55, 4096, 128), (2**40, 2, 192)])
def test_a_capacity_beyond_every_set_is_refused(largest, clients, security):
    """No parameters are bent: where no set has room, the refusal says how many bits there are."""
    with pytest.raises(CapacityExceeded) as caught:
        for_capacity(largest, clients, security)
    assert caught.value.available < caught.value.needed == largest.bit_length() + 1
    for_capacity(2 ** (caught.value.available - 1) - 1, clients, security)


def test_digest_names_every_number():
    """Two sets that differ in any number have different digests."""
    found = for_capacity(1000, 5)
    others = [
        replace(found, plain_bits=12),
        replace(found, summands=6),
        replace(found, special=3),
        for_capacity(2**25, 5),
    ]
    assert len({found.digest(), *(other.digest() for other in others)}) == 5
