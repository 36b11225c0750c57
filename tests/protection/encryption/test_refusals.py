"""What server and client refuse: every malformed, forged, replayed or misplaced message, with its sender named."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from secagg.crypto.envelopes import EnvelopeKey
from secagg.errors import BadInput, CapacityExceeded, ProtocolViolation, SessionAborted
from secagg.protection.encryption import bfv
from secagg.protection.encryption import derivations as bind
from secagg.protection.encryption.client import AwaitingKey
from secagg.protection.encryption.messages import BLIND_BYTES
from secagg.protection.encryption.polynomials import add, pack
from secagg.protection.encryption.server import AwaitingCiphertexts, AwaitingHolder, AwaitingOpening
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from tests.protection.encryption import sessions
from tests.protection.encryption.sessions import (
    HOLDER,
    SERVER,
    context_for,
    holder_of,
    honest,
    identity,
    phase,
    secret_polynomial,
    signed_again,
)


def offered_key(context, published):
    """A server that is offered this key."""
    server = AwaitingHolder(context)
    server.accept(context.holder_index, published)
    return server


def unreduced(packed):
    return b"\xff" * 8 + packed[8:]


def transparent(session, packed):
    polynomials = session.context.uploaded(packed)
    polynomials[1, 1] = 0
    return pack(polynomials, session.context.parameters.entry_bytes) + packed[-BLIND_BYTES:]


def three_polynomials(session, packed):
    return packed + packed[: len(packed) // 2]


HOSTILE = {
    "empty": lambda session, packed: b"\0",
    "truncated": lambda session, packed: packed[:-1],
    "extended": lambda session, packed: packed + b"\0",
    "unreduced": lambda session, packed: unreduced(packed),
    "zero": lambda session, packed: bytes(len(packed)),
    "transparent": transparent,
    "of three polynomials": three_polynomials,
    "fewer values": lambda session, packed: packed[: len(packed) // 2],
    "all ones": lambda session, packed: b"\xff" * len(packed),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_ciphertexts_are_refused_by_name_and_leave_the_sum_alone(name):
    """Bytes that are no ciphertexts are refused though their client signed them; the others' sum is untouched."""
    session = honest()
    upload, packed = session.uploads[2]
    bad = HOSTILE[name](session, packed)
    server, signed = session.server(), signed_again(session.context, upload, bad)
    with pytest.raises(ProtocolViolation) as caught:
        server.inspect(2, bad)
    assert caught.value.culprit == 2
    if len(bad) != server.vector_bytes(2):
        with pytest.raises(ProtocolViolation, match="party 2: announces"):
            server.accept(2, signed)
        return
    for member in (1, 3):
        server.accept(member, session.uploads[member][0])
    server.accept(2, signed)
    adding, _ = server.close()
    adding.add(1, session.uploads[1][1])
    with pytest.raises(ProtocolViolation, match="party 2: uploads what is no ciphertext"):
        adding.add(2, bad)
    adding.add(3, session.uploads[3][1])
    with pytest.raises(BadInput, match=r"lacks the ciphertexts of c2$"):
        adding.request(SERVER)


@pytest.mark.parametrize("position", [0, 1000, -1])
def test_a_flipped_bit_is_not_what_the_client_signed(position):
    """Ciphertexts that changed while they waited are not added."""
    session = honest()
    flipped = bytearray(session.uploads[1][1])
    flipped[position] ^= 1
    adding = session.adding(1, 2)
    with pytest.raises(BadInput, match="of c1 are missing or not those"):
        adding.add(1, bytes(flipped))
    adding.add(1, session.uploads[1][1])
    adding.add(2, session.uploads[2][1])
    assert adding.request(SERVER) == session.request(1, 2)


@pytest.mark.parametrize("field", ["digest", "key", "sealed_seed", "signature"])
def test_every_field_of_an_upload_is_signed(field):
    """An upload with one byte changed is refused."""
    session = honest()
    upload, _ = session.uploads[1]
    value = getattr(upload, field)
    changed = replace(upload, **{field: bytes([value[0] ^ 1]) + value[1:]})
    with pytest.raises(ProtocolViolation, match="not signed"):
        session.server().accept(1, changed)


def test_an_upload_is_its_senders_own():
    """One client's upload sent by another, or by a stranger, is refused."""
    session = honest()
    with pytest.raises(ProtocolViolation, match="party 2: the upload is not signed"):
        session.server().accept(2, session.uploads[1][0])
    with pytest.raises(ProtocolViolation, match="not expected"):
        session.server().accept(9, session.uploads[1][0])


def test_an_upload_counts_once():
    """The same upload again changes nothing; a second, different one is refused."""
    session = honest()
    server = session.server()
    for _ in range(3):
        server.accept(1, session.uploads[1][0])
    other, _ = sessions.upload_of(session.context, session.held.published, 1, -session.vectors[1])
    with pytest.raises(ProtocolViolation, match="second, different"):
        server.accept(1, other)
    assert not server.complete
    server.accept(2, session.uploads[2][0])
    server.accept(3, session.uploads[3][0])
    assert server.complete
    assert server.close()[0].vectors == (1, 2, 3)


def test_replays_into_another_session_are_refused():
    """Key, upload, declaration and opening of one session mean nothing in the next, of the same plan or not."""
    session, elsewhere = honest(), context_for(plan=b"another plan")
    again = replace(session.context, session_id=bytes(32))
    held = sessions.make_held(elsewhere)
    with pytest.raises(ProtocolViolation, match=r"party 0: .* that its holder did not sign"):
        AwaitingKey().advance(elsewhere, sessions.party(1), session.held.published)
    with pytest.raises(ProtocolViolation, match=r"party 4: .* that its holder did not sign"):
        offered_key(again, session.held.published)
    with pytest.raises(ProtocolViolation, match="party 1: the upload is not signed"):
        AwaitingCiphertexts(elsewhere, held.published).accept(1, session.uploads[1][0])
    request = session.request(1, 2, 3)
    with pytest.raises(ProtocolViolation, match="party 0: the declaration is not signed"):
        held.advance(elsewhere, holder_of(elsewhere), request)
    with pytest.raises(ProtocolViolation, match="party 4: the opened sum is not signed"):
        AwaitingOpening(again, request.declaration).accept(4, session.ask(request).outgoing)


def test_an_upload_under_another_key_is_refused():
    """Ciphertexts for a second key of the same session, honestly signed, are refused."""
    session = honest()
    second = sessions.make_held(session.context)
    upload, _ = sessions.upload_of(session.context, second.published, 1, session.vectors[1])
    with pytest.raises(ProtocolViolation, match="party 1: the upload is for another published key"):
        session.server().accept(1, upload)


SEALING = EnvelopeKey.from_bytes(bytes(32)).public
BAD_KEYS = {
    "has other parameters": {"parameters": bytes(32)},
    "small order": {"sealing_key": SEALING[:-32] + bytes(32)},
    "of small order, or none": {"sealing_key": b"\xff" * 1184 + SEALING[-32:]},
    "public key that is none": {"public_key": b"\1"},
    "not reduced": {"public_key": b"\xff" * (2 * 2 * 4096 * 5)},
    "transparent": {"public_key": bytes(2 * 2 * 4096 * 5)},
}


@pytest.mark.parametrize("match", BAD_KEYS)
def test_a_published_key_that_is_none_is_refused(match):
    """Client and server refuse what a key holder signed but is no key of this plan."""
    session = honest()
    bad = bind.sign_key(session.context, HOLDER, replace(session.held.published, **BAD_KEYS[match]))
    with pytest.raises(ProtocolViolation, match=f"party 4: .*{match}"):
        AwaitingKey().advance(session.context, sessions.party(1), bad)
    with pytest.raises(ProtocolViolation, match=f"party 4: .*{match}"):
        offered_key(session.context, bad)


@pytest.mark.parametrize("signer", ["server", "c1"])
def test_only_the_plans_key_holder_publishes(signer):
    """A key signed by anyone else, the server above all, is refused by clients and server."""
    session = honest()
    forged = bind.sign_key(session.context, identity(signer), session.held.published)
    with pytest.raises(ProtocolViolation, match="party 0: shows a published key that its holder did not sign"):
        AwaitingKey().advance(session.context, sessions.party(1), forged)
    with pytest.raises(ProtocolViolation, match="party 4: shows a published key that its holder did not sign"):
        offered_key(session.context, forged)


def test_too_few_uploads_abort():
    """The server adds no set below the minimum."""
    with pytest.raises(SessionAborted, match="only 1 clients uploaded; at least 2"):
        honest().adding(1)


def test_a_capacity_beyond_the_ring_is_refused():
    """Residues of a ring smaller than the plaintexts are never encrypted."""
    with pytest.raises(CapacityExceeded, match="ring"):
        _ = replace(context_for(), largest=2**40).parameters


def request_with(polynomial, amount):
    """The request for a sum to whose first ciphertext client 2 added a constant, in one of its two polynomials."""
    session = honest()
    parameters = session.context.parameters
    upload, packed = session.uploads[2]
    polynomials = session.context.uploaded(packed)
    shift = np.zeros_like(polynomials)
    shift[0, polynomial, 0, 0] = amount
    add(polynomials, shift, parameters.primes)
    crafted = pack(polynomials, parameters.entry_bytes) + packed[-BLIND_BYTES:]
    uploads = session.uploads | {2: (signed_again(session.context, upload, crafted), crafted)}
    return replace(session, uploads=uploads).request(1, 2, 3)


def request_with_the_key_in_it(multiple):
    """The request for a sum to which client 2 added `multiple` · s, s the secret key's polynomial."""
    parameters = honest().context.parameters
    return request_with(1, multiple * parameters.modulus >> parameters.plain_bits)


def test_a_sum_with_more_noise_than_honest_ones_is_refused_whole():
    """One coefficient that still decrypts but has too much noise ends the session, and nothing is released."""
    parameters = honest().context.parameters
    with pytest.raises(SessionAborted, match="more noise than a sum of honest ciphertexts"):
        honest().ask(request_with(0, parameters.modulus >> (parameters.plain_bits + 3)))


def test_a_ciphertext_that_adds_the_secret_key_cannot_be_told():
    """What checks cannot give: a crafted upload brings the ternary secret key into the sum, unrecognised."""
    session = honest()
    values = sessions.opened(session, request_with_the_key_in_it(1))
    leaked = (values - sum(session.vectors.values()))[: session.context.parameters.degree]
    assert set(leaked) == {-1, 0, 1}


def test_with_the_secret_key_an_upload_is_still_uniform():
    """What the mask gives: whoever has the BFV key finds a uniform phase in a stored upload (false failure 10⁻⁹)."""
    session = honest()
    parameters = session.context.parameters
    stored = session.context.uploaded(session.uploads[1][1])
    with pytest.raises(bfv.NoisyCiphertext):
        bfv.decrypt(parameters, session.held.secret, stored)
    (prime,) = parameters.primes
    values = [phase(pair[:, 0], secret_polynomial(parameters, session.held.secret), prime) for pair in stored]
    counts = np.bincount([64 * value // prime for value in np.concatenate(values).tolist()], minlength=64)
    assert stats.chisquare(counts).pvalue > 1e-9


def test_a_key_dependent_sum_beyond_the_capacity_is_refused_whole():
    """Where the key's polynomial drives entries out of the capacity nothing is released."""
    session = honest()
    with pytest.raises(SessionAborted, match="outside the plan's capacity"):
        session.ask(request_with_the_key_in_it(1 << (session.context.parameters.plain_bits - 1)))


def test_no_repr_shows_a_secret():
    """States, messages and transitions print neither key, seed, mask, ciphertext nor sum."""
    session = honest()
    request = session.request(1, 2, 3)
    opened = session.ask(request)
    secrets = [session.held.secret, session.held.sealing_secret, *session.mask_keys(1), *session.mask_keys(2)]
    for shown in (session.held, request, opened):
        assert not any(repr(secret)[2:20] in repr(shown) for secret in (*secrets, request.packed, opened.vector))
    key = EnvelopeKey.generate(SeededRandomness(b"x", TOKEN))
    assert "private" not in repr(key)
    assert "secret" not in repr(bfv.generate(session.context.parameters))
