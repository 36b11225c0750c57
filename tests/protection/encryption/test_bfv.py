"""The library behind the wall: it computes what the analysis says, and its noise stays below the proven bound."""

from dataclasses import replace

import numpy as np
import pytest
import tenseal.sealapi as seal

from secagg.errors import MalformedMessage
from secagg.protection.encryption import bfv
from secagg.protection.encryption.parameters import DATA, DEGREE, for_capacity
from secagg.protection.encryption.polynomials import add, centre, pack, scaled
from tests.protection.encryption.sessions import phase, secret_polynomial

CAPACITIES = [2**bits - 1 for bits in (19, 27, 35, 41, 43, 55)]


def key_and_values(largest, clients, seed=0):
    """Parameters, a key, and values whose sum over all clients stays below t/4, which some of them reach."""
    parameters = for_capacity(largest, clients)
    most = 2 ** (parameters.plain_bits - 2) // clients
    values = np.random.default_rng(seed).integers(-most, most, 2 * DEGREE, endpoint=True)
    values[:4] = (0, 1, most, -most)
    return parameters, bfv.generate(parameters), values


def encrypted(parameters, public, values):
    """What a client makes of values, but for its mask."""
    ciphertexts = bfv.encrypt_zero(parameters, public, parameters.ciphertexts(len(values)))
    add(ciphertexts[:, 0], scaled(parameters, values), parameters.primes)
    return ciphertexts


def opened(parameters, secret, ciphertexts):
    """The signed values."""
    return centre(parameters, bfv.decrypt(parameters, secret, ciphertexts))


def measured_budget(parameters, secret, ciphertexts):
    """The smallest noise budget of the ciphertexts, as SEAL measures it with the secret key."""
    context = bfv._context(parameters)
    key, loaded, budgets = seal.SecretKey(), seal.Ciphertext(), []
    with bfv._file() as (descriptor, path):
        bfv._load(key, context, descriptor, path, secret)
        for pair in ciphertexts:
            content = bfv._pair_bytes(context.first_parms_id(), pair, is_ntt=False)
            bfv._load(loaded, context, descriptor, path, content)
            budgets.append(seal.Decryptor(context, key).invariant_noise_budget(loaded))
    return min(budgets)


def test_the_capacities_below_cover_every_set_of_primes():
    """With twenty clients each set of primes is chosen once."""
    assert [for_capacity(largest, 20).primes for largest in CAPACITIES] == list(DATA)


@pytest.mark.parametrize("largest", CAPACITIES)
def test_sums_are_exact_and_keep_the_proven_noise_budget(largest):
    """In every set of primes sums of twenty are exact, and the measured noise budget is at least the proven one."""
    parameters, key, values = key_and_values(largest, 20)
    total = encrypted(parameters, key.public, values)
    assert measured_budget(parameters, key.secret, total) >= replace(parameters, summands=1).noise_budget
    for _ in range(19):
        add(total, encrypted(parameters, key.public, values), parameters.primes)
    assert measured_budget(parameters, key.secret, total) >= parameters.noise_budget
    assert (opened(parameters, key.secret, total) == 20 * values).all()


@pytest.mark.parametrize("largest", CAPACITIES)
def test_the_phase_of_a_sum_is_its_multiple_and_noise_within_the_proven_bound(largest):
    """C₀ + C₁·s − Δ·X, computed with Python's integers, is at most n·N/2 in every coefficient (N/2 for each zero)."""
    parameters, key, values = key_and_values(largest, 3)
    total = encrypted(parameters, key.public, values)
    add(total, encrypted(parameters, key.public, values), parameters.primes)
    secret = secret_polynomial(parameters, key.secret)
    assert set(secret) == {-1, 0, 1}
    for place, prime in enumerate(parameters.primes):
        for pair, own in zip(total[:, :, place], values.reshape(-1, DEGREE), strict=True):
            errors = (phase(pair, secret, prime) - parameters.scale * 2 * own.astype(object)) % prime
            assert max(min(int(each), prime - int(each)) for each in errors) <= 2 * DEGREE // 2


def shifted(parameters, ciphertext, amount):
    """The ciphertext with `amount` added to its phase in every coefficient."""
    moved, shift = ciphertext.copy(), np.zeros_like(ciphertext)
    shift[:, 0] = amount % parameters.modulus
    add(moved, shift, parameters.primes)
    return moved


@pytest.mark.parametrize("sign", [1, -1])
def test_the_worst_noise_that_the_rule_allows_decrypts_and_more_does_not(sign):
    """With the most clients for its primes, noise of the proven size in every coefficient is harmless; q/2t is not."""
    parameters, key, _ = key_and_values(2**19 - 1, 127)
    assert parameters.primes != for_capacity(2**19 - 1, 128).primes
    values = np.full(DEGREE, sign * (2 ** (parameters.plain_bits - 2) - 1))
    ciphertext = encrypted(parameters, key.public, values)
    own = DEGREE // 2
    worst = shifted(parameters, ciphertext, -sign * (126 * own))
    assert (opened(parameters, key.secret, worst) == values).all()
    beyond = shifted(parameters, ciphertext, -sign * ((parameters.modulus >> (parameters.plain_bits + 1)) + own))
    assert (opened(parameters, key.secret, beyond) != values).all()


def test_excess_noise_is_refused_though_it_would_decrypt():
    """A ciphertext with more noise than honest sums have is refused before it is decrypted."""
    parameters, key, values = key_and_values(1000, 3)
    ciphertexts = encrypted(parameters, key.public, values)
    shift = np.zeros_like(ciphertexts)
    shift[1, 0, 0, 7] = parameters.modulus >> (parameters.plain_bits + 3)
    add(ciphertexts, shift, parameters.primes)
    with pytest.raises(bfv.NoisyCiphertext):
        bfv.decrypt(parameters, key.secret, ciphertexts)


def test_encryption_is_fresh_each_time():
    """Two encryptions of zero are unrelated, and two keys have nothing in common."""
    parameters, key, _ = key_and_values(1000, 3)
    first, second = (bfv.encrypt_zero(parameters, key.public, 2) for _ in range(2))
    assert (first == second).mean() < 0.001
    assert bfv.generate(parameters).public != key.public


def test_another_key_does_not_decrypt():
    """Under another key a ciphertext is noise, and is refused as such."""
    parameters, key, values = key_and_values(1000, 3)
    with pytest.raises(bfv.NoisyCiphertext):
        bfv.decrypt(parameters, bfv.generate(parameters).secret, encrypted(parameters, key.public, values))


def test_the_secret_key_does_not_print():
    """A key pair's repr shows nothing of the secret."""
    assert "secret" not in repr(bfv.generate(for_capacity(1000, 3)))


def test_a_public_key_is_checked_before_the_library_sees_it():
    """Wrong sizes and unreduced coefficients are refused."""
    parameters, key, _ = key_and_values(1000, 3)
    assert len(key.public) == 2 * 2 * DEGREE * parameters.entry_bytes  # data prime and special prime
    for bad in (key.public[:-1], bytes(len(key.public)), b"\xff" * len(key.public)):
        with pytest.raises(MalformedMessage):
            bfv.encrypt_zero(parameters, bad, 1)


def test_hostile_ciphertexts_do_not_crash_the_library():
    """Every array of reduced coefficients is either decrypted or refused: random ones are refused."""
    parameters, key, _ = key_and_values(1000, 3)
    generator = np.random.default_rng(3)
    for _ in range(20):
        drawn = generator.integers(0, min(parameters.primes), (1, 2, 1, DEGREE), dtype=np.uint64)
        assert len(pack(drawn, parameters.entry_bytes)) == parameters.packed_bytes(1)
        with pytest.raises(bfv.NoisyCiphertext):
            bfv.decrypt(parameters, key.secret, drawn)
