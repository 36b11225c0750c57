"""A whole encrypted session: the opened sum is exact, for every set that may be summed and up to the capacity."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection.encryption import bfv
from secagg.protection.encryption.client import CiphertextUploaded
from secagg.protection.encryption.masks import apply_mask, centre, widen
from secagg.protection.encryption.parameters import for_capacity
from secagg.protection.messages import Outcome
from secagg.wire import encode
from tests.protection.encryption import sessions
from tests.protection.encryption.sessions import (
    LARGEST,
    LENGTH,
    context_for,
    honest,
    opened,
    play,
    requested_again,
)

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


@given(bits=st.integers(2, 59), data=st.data())
def test_centring_undoes_the_reduction_up_to_half_of_t(bits, data):
    """Every integer −t/2 ≤ v < t/2 comes back from its residue, also from a ring of more bits."""
    parameters = for_capacity(2 ** (bits - 1) - 1, 2)
    half = 2 ** (bits - 1)
    edges = [0, 1, -1, half - 1, -half]
    values = np.array([*edges, *data.draw(st.lists(st.integers(-half, half - 1), max_size=20))], dtype=np.int64)
    wide = widen(parameters, values.view(np.uint64))
    assert wide.size == parameters.degree
    assert int(wide.max()) < 2**bits
    assert (centre(parameters, wide, len(values)) == values).all()


def uniform(values, bits):
    """Chi-square test of 64 equal bins against uniform; its p value."""
    counts = np.bincount((values >> np.uint64(bits - 6)).astype(np.int64), minlength=64)
    return stats.chisquare(counts).pvalue


@pytest.mark.parametrize("bits", [6, 17, 32, 45, 59])
def test_masks_are_uniform_modulo_t(bits):
    """The mask of a constant vector is uniform over Z_t in its top six bits (false failure: 10⁻⁹ for each t)."""
    parameters = for_capacity(2 ** (bits - 1) - 1, 2)
    values = np.zeros(1 << 16, dtype=np.uint64)
    apply_mask(parameters, values, b"k" * 32, 1)
    assert int(values.max()) < 2**bits
    assert uniform(values, bits) > RARE
    apply_mask(parameters, values, b"k" * 32, -1)
    assert not values.any()


@pytest.mark.parametrize("passed_off", [1, 2, 3])
def test_one_clients_ciphertext_passed_off_as_the_sum_is_noise(passed_off):
    """Declared as all three's sum, one upload opens to uniform noise that no one gets (false failure 10⁻⁹ each)."""
    session = honest()
    request = requested_again(session, session.request(1, 2, 3), session.uploads[passed_off][1])
    with pytest.raises(SessionAborted, match="outside the plan's capacity"):
        session.ask(request)
    parameters = session.context.parameters
    values = bfv.decrypt(parameters, session.held.secret, session.context.polynomials(request.packed))
    for key in session.mask_keys(1, 2, 3):
        apply_mask(parameters, values, key, -1)
    assert uniform(values, parameters.plain_bits) > RARE
    vector = session.vectors[passed_off]
    assert stats.pearsonr(centre(parameters, values, LENGTH), vector).pvalue > RARE


@pytest.mark.parametrize("pair", list(itertools.combinations((1, 2, 3), 2)))
def test_a_declared_set_that_is_not_the_summed_one_opens_to_nothing(pair):
    """The sum of three declared as that of two, or of two declared as that of three, is refused."""
    session = honest()
    two, three = session.request(*pair), session.request(1, 2, 3)
    for told, sent in ((two, three), (three, two)):
        with pytest.raises(SessionAborted, match="outside the plan's capacity"):
            session.ask(requested_again(session, told, sent.packed))


def test_what_leaves_a_client_has_one_size():
    """Upload and ciphertexts are as long for zeros as for the largest entries."""
    session = honest()
    zeros = sessions.upload_of(session.context, session.held.published, 1, np.zeros(LENGTH, dtype=np.int64))
    sizes = {(len(encode(upload)), len(packed)) for upload, packed in [zeros, *session.uploads.values()]}
    assert len(sizes) == 1
    assert zeros[0].length == session.context.parameters.packed_bytes(LENGTH)


def test_a_client_refuses_an_outcome_without_it_or_of_too_few():
    """The last state takes an outcome that holds the client and enough others, and no other."""
    session = honest()
    state = CiphertextUploaded(bytes(32))

    def told(*members):
        return Outcome(members, bytes(32), bytes(32), b"")

    assert state.advance(session.context, sessions.party(1), told(1, 3)).state == state
    for members in ((2, 3), (1,)):
        with pytest.raises(ProtocolViolation, match="server"):
            state.advance(session.context, sessions.party(1), told(*members))
