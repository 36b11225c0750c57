"""What server and client refuse: every malformed, forged, replayed or misplaced message, with its sender named."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from secagg.crypto.agreement import AgreementKey
from secagg.errors import CapacityExceeded, ProtocolViolation, SessionAborted
from secagg.protection.encryption import bfv
from secagg.protection.encryption import binding as bind
from secagg.protection.encryption.client import AwaitingKey
from secagg.protection.encryption.messages import OpenedSum
from secagg.protection.encryption.polynomials import add, pack, unpack
from secagg.protection.encryption.server import AwaitingCiphertexts
from secagg.unsafe_for_tests import SeededRandomness
from tests.protection.encryption import sessions
from tests.protection.encryption.sessions import HOLDER, LENGTH, SERVER, context_for, honest, identity, signed_again


def coefficients(session, packed):
    parameters = session.context.parameters
    return unpack(packed, parameters.ciphertexts(LENGTH), parameters.primes, parameters.degree, parameters.entry_bytes)


def unreduced(packed):
    return b"\xff" * 8 + packed[8:]


def transparent(session, packed):
    polynomials = coefficients(session, packed)
    polynomials[1, 1] = 0
    return pack(polynomials, session.context.parameters.entry_bytes)


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
    server = session.server()
    with pytest.raises(ProtocolViolation) as caught:
        server.accept(2, signed_again(session.context, upload, bad), bad)
    assert caught.value.culprit == "c2"
    server.accept(1, *session.uploads[1])
    server.accept(3, *session.uploads[3])
    assert server.close(SERVER).packed == session.declare(1, 3).packed


@pytest.mark.parametrize("position", [0, 1000, -1])
def test_a_flipped_bit_is_not_what_the_client_signed(position):
    """Ciphertexts that changed on the way are refused."""
    session = honest()
    upload, packed = session.uploads[1]
    flipped = bytearray(packed)
    flipped[position] ^= 1
    with pytest.raises(ProtocolViolation, match="other bytes"):
        session.server().accept(1, upload, bytes(flipped))


@pytest.mark.parametrize("field", ["digest", "key", "ephemeral", "sealed_seed", "signature"])
def test_every_field_of_an_upload_is_signed(field):
    """An upload with one byte changed is refused."""
    session = honest()
    upload, packed = session.uploads[1]
    value = getattr(upload, field)
    changed = replace(upload, **{field: bytes([value[0] ^ 1]) + value[1:]})
    with pytest.raises(ProtocolViolation, match="not signed"):
        session.server().accept(1, changed, packed)


def test_an_upload_is_its_senders_own():
    """One client's upload sent by another, or by a stranger, is refused."""
    session = honest()
    with pytest.raises(ProtocolViolation, match="c2: the upload is not signed"):
        session.server().accept(2, *session.uploads[1])
    with pytest.raises(ProtocolViolation, match="not expected"):
        session.server().accept(9, *session.uploads[1])


def test_an_upload_counts_once():
    """The same upload again changes nothing; a second, different one is refused."""
    session = honest()
    server = session.server()
    for _ in range(3):
        server.accept(1, *session.uploads[1])
    other = sessions.upload_of(session.context, session.held.published, 1, -session.vectors[1])
    with pytest.raises(ProtocolViolation, match="second, different"):
        server.accept(1, *other)
    assert not server.complete
    server.accept(2, *session.uploads[2])
    server.accept(3, *session.uploads[3])
    assert server.complete
    assert server.close(SERVER).packed == session.declare(1, 2, 3).packed


def test_replays_into_another_session_are_refused():
    """Key, upload, declaration and opening of one session mean nothing in the next, of the same plan or not."""
    session, elsewhere = honest(), context_for(plan=b"another plan")
    again = replace(session.context, session=bytes(32))
    held = sessions.make_held(elsewhere)
    with pytest.raises(ProtocolViolation, match="key holder: the published key is not signed"):
        AwaitingKey().advance(elsewhere, sessions.party(1), session.held.published)
    with pytest.raises(ProtocolViolation, match="key holder: the published key is not signed"):
        AwaitingCiphertexts(again, session.held.published)
    with pytest.raises(ProtocolViolation, match="c1: the upload is not signed"):
        AwaitingCiphertexts(elsewhere, held.published).accept(1, *session.uploads[1])
    declared = session.declare(1, 2, 3)
    with pytest.raises(ProtocolViolation, match="server: the declaration is not signed"):
        held.begin(elsewhere, declared.declaration, declared.packed)
    opened = session.held.begin(session.context, declared.declaration, declared.packed).opening
    with pytest.raises(ProtocolViolation, match="key holder: the opened sum is not signed"):
        declared.opened(again, opened.open(session.context, HOLDER, None))


def test_an_upload_under_another_key_is_refused():
    """Ciphertexts for a second key of the same session, honestly signed, are refused."""
    session = honest()
    second = sessions.make_held(session.context)
    upload = sessions.upload_of(session.context, second.published, 1, session.vectors[1])
    with pytest.raises(ProtocolViolation, match="c1: the upload is for another published key"):
        session.server().accept(1, *upload)


def test_an_upload_with_a_key_of_small_order_is_refused():
    """An ephemeral key whose agreement is all zero is refused on arrival."""
    session = honest()
    upload, packed = session.uploads[1]
    with pytest.raises(ProtocolViolation, match="small order"):
        session.server().accept(1, signed_again(session.context, upload, packed, ephemeral=bytes(32)), packed)


BAD_KEYS = {
    "has other parameters": {"parameters": bytes(32)},
    "small order": {"sealing_key": bytes(32)},
    "public key that is none": {"public_key": b"\1"},
    "not reduced": {"public_key": b"\xff" * (2 * 2 * 4096 * 5)},
    "transparent": {"public_key": bytes(2 * 2 * 4096 * 5)},
}


@pytest.mark.parametrize("match", BAD_KEYS)
def test_a_published_key_that_is_none_is_refused(match):
    """Client and server refuse what a key holder signed but is no key of this plan."""
    session = honest()
    bad = bind.sign_key(session.context, HOLDER, replace(session.held.published, **BAD_KEYS[match]))
    with pytest.raises(ProtocolViolation, match=f"key holder: .*{match}"):
        AwaitingKey().advance(session.context, sessions.party(1), bad)
    with pytest.raises(ProtocolViolation, match=f"key holder: .*{match}"):
        AwaitingCiphertexts(session.context, bad)


@pytest.mark.parametrize("signer", ["server", "c1"])
def test_only_the_plans_key_holder_publishes(signer):
    """A key signed by anyone else, the server above all, is refused by clients."""
    session = honest()
    forged = bind.sign_key(session.context, identity(signer), session.held.published)
    with pytest.raises(ProtocolViolation, match="not signed"):
        AwaitingKey().advance(session.context, sessions.party(1), forged)


def test_too_few_uploads_abort():
    """The server declares no set below the minimum."""
    session = honest()
    with pytest.raises(SessionAborted, match="only 1 clients uploaded; at least 2"):
        session.declare(1)


def test_the_server_takes_only_the_key_holders_opening_of_its_sum():
    """An opening that is forged, of another declaration, or of another length is refused."""
    session = honest()
    declared, other = session.declare(1, 2, 3), session.declare(1, 2)
    opened = session.held.begin(session.context, declared.declaration, declared.packed).opening.open(
        session.context, HOLDER, None
    )
    with pytest.raises(ProtocolViolation, match="not signed"):
        declared.opened(session.context, replace(opened, values=bytes(len(opened.values))))
    with pytest.raises(ProtocolViolation, match="not signed"):
        declared.opened(session.context, bind.sign_opened(session.context, SERVER, opened))
    with pytest.raises(ProtocolViolation, match="another sum"):
        other.opened(session.context, opened)
    short = bind.sign_opened(session.context, HOLDER, OpenedSum(opened.declaration, bytes(8), bytes(64)))
    with pytest.raises(ProtocolViolation, match="opened 8 bytes"):
        declared.opened(session.context, short)


def test_a_capacity_beyond_the_ring_is_refused():
    """Residues of a ring smaller than the plaintexts are never encrypted."""
    with pytest.raises(CapacityExceeded, match="ring"):
        _ = replace(context_for(), largest=2**40).parameters


def opening_with_the_key_in_it(multiple):
    """The opening of a sum to which client 2 added `multiple` · s, s the secret key's polynomial."""
    session = honest()
    parameters = session.context.parameters
    upload, packed = session.uploads[2]
    polynomials = coefficients(session, packed)
    shift = np.zeros_like(polynomials)
    shift[0, 1, 0, 0] = multiple * parameters.modulus >> parameters.plain_bits
    add(polynomials, shift, parameters.primes)
    crafted = pack(polynomials, parameters.entry_bytes)
    server = session.server()
    for member in (1, 3):
        server.accept(member, *session.uploads[member])
    server.accept(2, signed_again(session.context, upload, crafted), crafted)
    declared = server.close(SERVER)
    return session, declared, session.held.begin(session.context, declared.declaration, declared.packed).opening


def test_a_ciphertext_that_adds_the_secret_key_cannot_be_told():
    """What checks cannot give: a crafted upload brings the ternary secret key into the sum, unrecognised."""
    session, declared, opening = opening_with_the_key_in_it(1)
    values = declared.opened(session.context, opening.open(session.context, HOLDER, None))
    leaked = (values - sum(session.vectors.values()))[: session.context.parameters.degree]
    assert set(leaked) == {-1, 0, 1}


def test_with_the_secret_key_an_upload_is_still_uniform():
    """What the mask gives: whoever has the BFV key reads uniform values in a stored upload (false failure 10⁻⁹)."""
    session = honest()
    parameters = session.context.parameters
    stored = coefficients(session, session.uploads[1][1])
    values = bfv.decrypt(parameters, session.held.secret, stored) >> np.uint64(parameters.plain_bits - 6)
    assert stats.chisquare(np.bincount(values.astype(np.int64), minlength=64)).pvalue > 1e-9


def test_a_key_dependent_sum_beyond_the_capacity_is_refused_whole():
    """Where the key's polynomial drives entries out of the capacity nothing is released."""
    session, _, opening = opening_with_the_key_in_it(1 << (honest().context.parameters.plain_bits - 1))
    with pytest.raises(SessionAborted, match="outside the plan's capacity"):
        opening.open(session.context, HOLDER, None)


def test_no_repr_shows_a_secret():
    """States, messages and openings print neither key, seed, mask nor ciphertext."""
    session = honest()
    declared = session.declare(1, 2, 3)
    commitment = session.held.begin(session.context, declared.declaration, declared.packed)
    secrets = [session.held.secret, session.held.sealing_secret, *commitment.opening.mask_keys, declared.packed]
    for shown in (session.held, commitment, declared):
        assert not any(repr(secret)[2:20] in repr(shown) for secret in secrets)
    key = AgreementKey.generate(SeededRandomness(b"x"))
    assert "private" not in repr(key)
    assert "secret" not in repr(bfv.generate(session.context.parameters))
