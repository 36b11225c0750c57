"""A whole encrypted session: the opened sum is exact, for every set that may be summed and up to the capacity."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from secagg.errors import CapacityExceeded, ProtocolViolation, SessionAborted
from secagg.protection.encryption.client import CiphertextUploaded
from secagg.protection.encryption.messages import BLIND_BYTES
from secagg.protection.encryption.parameters import DATA, DEGREE, for_capacity
from secagg.protection.encryption.polynomials import centre, mask_of, pack, scaled
from secagg.protection.messages import Outcome
from secagg.wire import encode
from tests.protection.encryption import sessions
from tests.protection.encryption.sessions import (
    LARGEST,
    LENGTH,
    context_for,
    honest,
    opened,
    phase,
    play,
    requested_again,
    secret_polynomial,
)
from tests.vectors.independent import keystream

RARE = 1e-9  # false-failure rate of each statistical test; with fixed seeds a test that passes keeps passing


@pytest.mark.parametrize("members", [(1, 2, 3), (1, 2), (1, 3), (2, 3)])
def test_the_sum_of_every_allowed_set_is_exact(members):
    """Whoever of the tolerated clients vanishes, the rest's sum is opened exactly."""
    session = honest()
    expected = sum(session.vectors[member] for member in members)
    assert (opened(session, session.request(*members)) == expected).all()


@settings(max_examples=12)
@given(data=st.data(), clients=st.integers(2, 4), bits=st.integers(2, 55))
def test_sums_are_exact_in_every_ring_up_to_the_capacity(data, clients, bits):
    """Whatever the bits of the ring and the vectors, sums up to ±capacity come back exactly."""
    largest = max(clients, 2**bits - 1)
    context = context_for(clients, length=5, largest=largest)
    session = play(context, data.draw(st.integers(0, 2**32)))
    expected = sum(session.vectors.values())
    assert (opened(session, session.request(*context.clients)) == expected).all()


@pytest.mark.parametrize("beyond", [0, 1])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_capacity_is_the_edge(beyond, sign):
    """A sum of exactly ±capacity is opened; one more is refused, and nothing of the sum is released."""
    context = context_for(2, length=5)
    session = play(context)
    entry = np.array([0, 0, 0, 0, sign * (LARGEST // 2)])
    vectors = {1: entry, 2: entry + sign * np.array([0, 0, 0, 0, beyond])}
    uploads = {
        member: sessions.upload_of(context, session.held.published, member, vector)
        for member, vector in vectors.items()
    }
    request = replace(session, uploads=uploads).request(1, 2)
    if beyond == 0:
        assert opened(session, request)[4] == sign * LARGEST
    else:
        with pytest.raises(SessionAborted, match="outside the plan's capacity"):
            session.ask(request)


@given(bits=st.integers(3, 59), data=st.data())
def test_centring_undoes_the_reduction_up_to_half_of_t(bits, data):
    """Every integer −t/2 ≤ v < t/2 comes back from its residue modulo t."""
    parameters, half = for_capacity(2 ** (bits - 2) - 1, 2), 2 ** (bits - 1)
    edges = [0, 1, -1, half - 1, -half]
    values = np.array([*edges, *data.draw(st.lists(st.integers(-half, half - 1), max_size=20))], dtype=np.int64)
    residues = values.view(np.uint64) & np.uint64(2**bits - 1)
    assert (centre(parameters, residues) == values).all()


@given(bits=st.integers(3, 59), data=st.data())
def test_integers_are_scaled_exactly(bits, data):
    """Δ·x modulo each prime is that of Python's integers, for every x that a plan allows, negative ones too."""
    parameters, most = for_capacity(2 ** (bits - 2) - 1, 2), 2 ** (bits - 2) - 1
    edges = [0, most, -most]
    integers = np.array([*edges, *data.draw(st.lists(st.integers(-most, most), max_size=50))], dtype=np.int64)
    found = scaled(parameters, integers)
    assert found.shape == (1, len(parameters.primes), DEGREE)
    assert not found[:, :, len(integers) :].any()
    for place, prime in enumerate(parameters.primes):
        expected = parameters.modulus // 2**bits * integers.astype(object) % prime
        assert (found[0, place, : len(integers)].astype(object) == expected).all()


def uniform(values, below):
    """Chi-square test of 64 equal bins against uniform below a bound; its p value."""
    shares = [64 * value // below for value in values.reshape(-1).tolist()]
    return stats.chisquare(np.bincount(shares, minlength=64)).pvalue


@pytest.mark.parametrize("primes", DATA)
def test_masks_are_uniform_modulo_each_prime(primes):
    """Every residue of a mask lies below its prime, and 64 equal parts hold as many (false failure: 10⁻⁹ each)."""
    parameters = replace(for_capacity(1000, 2), primes=primes)
    mask = mask_of(parameters, 16, [bytes([place]) * 32 for place in range(len(primes))])
    for place, prime in enumerate(primes):
        assert int(mask[:, place].max()) < prime
        assert uniform(mask[:, place], prime) > RARE


@settings(max_examples=20)
@given(count=st.integers(1, 4), prime=st.sampled_from([prime for primes in DATA for prime in primes]))
def test_a_mask_is_the_keystream_without_the_words_that_would_bias_it(count, prime):
    """Residues are those of the stream's 64-bit words below the largest multiple of the prime, in order."""
    parameters = replace(for_capacity(1000, 2), primes=(prime,))
    words = keystream(b"k" * 32, 8, (count + 1) * DEGREE)
    kept = [word % prime for word in words if word < 2**64 // prime * prime]
    assert mask_of(parameters, count, [b"k" * 32]).reshape(-1).tolist() == kept[: count * DEGREE]


@pytest.mark.parametrize("passed_off", [1, 2, 3])
def test_one_clients_ciphertext_passed_off_as_the_sum_is_noise(passed_off):
    """Declared as all three's sum, one upload has a uniform phase, and no one gets it (false failure 10⁻⁹ each)."""
    session = honest()
    context, parameters = session.context, session.context.parameters
    ciphertexts = context.uploaded(session.uploads[passed_off][1])
    request = requested_again(session, session.request(1, 2, 3), pack(ciphertexts, parameters.entry_bytes))
    with pytest.raises(SessionAborted, match="more noise than a sum of honest ciphertexts"):
        session.ask(request)
    rest, secret = session.unmasked(ciphertexts, 1, 2, 3), secret_polynomial(parameters, session.held.secret)
    (prime,) = parameters.primes
    phases = np.concatenate([phase(pair[:, 0], secret, prime) for pair in rest])
    assert uniform(phases, prime) > RARE
    assert stats.pearsonr(phases[:LENGTH].astype(np.float64), session.vectors[passed_off]).pvalue > RARE


@pytest.mark.parametrize("length", [5, DEGREE])
def test_where_any_noise_is_honest_the_spare_bit_still_finds_a_wrong_sum(length):
    """With the most clients that a set has room for, a wrong opening is told by its entries or its padding."""
    context = replace(context_for(127, length=length, largest=2**19 - 1), dropouts=125)
    assert context.parameters.noise_budget == 0
    held = sessions.make_held(context)
    vectors = {member: np.full(length, member) for member in (1, 2)}
    uploads = {
        member: sessions.upload_of(context, held.published, member, vector) for member, vector in vectors.items()
    }
    session = sessions.Session(context, held, vectors, uploads)
    request = session.request(1, 2)
    assert (opened(session, request) == 3).all()
    alone = pack(context.uploaded(uploads[1][1]), context.parameters.entry_bytes)
    with pytest.raises(SessionAborted, match="outside the plan's capacity"):
        session.ask(requested_again(session, request, alone))


def test_what_stands_in_the_padding_is_refused():
    """An entry behind the last of the sum, within the capacity, ends the session."""
    session = honest()
    context, parameters = session.context, session.context.parameters
    total = context.summed(session.request(1, 2, 3).packed)
    total[-1, 0, 0, -1] = (int(total[-1, 0, 0, -1]) + parameters.scale) % parameters.primes[0]
    request = requested_again(session, session.request(1, 2, 3), pack(total, parameters.entry_bytes))
    with pytest.raises(SessionAborted, match="outside the plan's capacity"):
        session.ask(request)


@pytest.mark.parametrize("pair", list(itertools.combinations((1, 2, 3), 2)))
def test_a_declared_set_that_is_not_the_summed_one_opens_to_nothing(pair):
    """The sum of three declared as that of two, or of two declared as that of three, is refused."""
    session = honest()
    two, three = session.request(*pair), session.request(1, 2, 3)
    for told, sent in ((two, three), (three, two)):
        with pytest.raises(SessionAborted, match="more noise than a sum of honest ciphertexts"):
            session.ask(requested_again(session, told, sent.packed))


def test_a_vector_beyond_the_capacity_is_never_encrypted():
    """An entry that no sum may hold is refused before anything leaves."""
    session = honest()
    vector = np.zeros(LENGTH, dtype=np.int64)
    vector[7] = -LARGEST - 1
    with pytest.raises(CapacityExceeded, match="an entry of the vector"):
        sessions.upload_of(session.context, session.held.published, 1, vector)


def test_what_leaves_a_client_has_one_size():
    """Upload and ciphertexts are as long for zeros as for the largest entries."""
    session = honest()
    zeros = sessions.upload_of(session.context, session.held.published, 1, np.zeros(LENGTH, dtype=np.int64))
    sizes = {(len(encode(upload)), len(packed)) for upload, packed in [zeros, *session.uploads.values()]}
    assert len(sizes) == 1
    assert zeros[0].length == session.context.parameters.packed_bytes(LENGTH) + BLIND_BYTES


def test_a_client_refuses_an_outcome_without_it_or_of_too_few():
    """The last state takes an outcome that holds the client and enough others, and no other."""
    session = honest()
    state = CiphertextUploaded(bytes(32))

    def told(*members):
        return Outcome(members, bytes(32), bytes(32))

    assert state.advance(session.context, sessions.party(1), told(1, 3)).state == state
    for members in ((2, 3), (1,)):
        with pytest.raises(ProtocolViolation, match="party 0: "):
            state.advance(session.context, sessions.party(1), told(*members))
