"""The key holder opens one sum per session: for the plan's server, above the minimum, of uploads that it checks."""

from dataclasses import replace

import pytest

from secagg.crypto.envelopes import seal_envelope
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation, SessionAborted
from secagg.protection.encryption import derivations as bind
from secagg.protection.encryption.key_holder import HOLDER_STATES, HeldKey, SpentKey, begin_holder
from secagg.protection.encryption.messages import PublishedKey, SumRequest
from secagg.protection.interface import LocalParty, WaitingState
from secagg.protection.messages import Outcome
from secagg.randomness import SeededRandomness
from secagg.transcript.frames import make_body, payload_of
from secagg.unsafe_for_tests import TOKEN
from secagg.wire import decode, encode
from tests.protection.encryption import sessions
from tests.protection.encryption.sessions import (
    HOLDER,
    SERVER,
    context_for,
    holder_of,
    honest,
    identity,
    requested_again,
    signed_again,
)


def outcome_of(session, *members):
    """The honest outcome of these members' sum."""
    total = sum(session.vectors[member] for member in members)
    return Outcome(members, sessions.sha256(total.astype("<i8").tobytes()), bytes(32))


def test_states_fit_the_driver_of_a_client():
    """Every state of the key holder waits for the server's next message, and is remembered."""
    session = honest()
    states = (session.held, session.ask(session.request(1, 2)).state)
    assert all(isinstance(state, WaitingState) for state in states)
    assert tuple(map(type, states)) == HOLDER_STATES


def test_the_key_opens_once():
    """Whoever has opened a sum waits for its outcome and takes no other message: no second request above all."""
    session = honest()
    request = session.request(1, 2, 3)
    spent = session.ask(request).state
    for asked in (request, session.request(1, 2)):
        body = make_body(session.context.round_digest, 0, 4, bytes(32), bytes(32), asked)
        assert payload_of(body, type(session.held).awaits) == asked
        with pytest.raises(MalformedMessage, match="Outcome is awaited"):
            payload_of(body, spent.awaits)


def test_an_outcome_before_the_request_is_out_of_order():
    """Who holds the key takes nothing but a request."""
    body = make_body(honest().context.round_digest, 0, 4, bytes(32), bytes(32), outcome_of(honest(), 1, 2, 3))
    with pytest.raises(MalformedMessage, match="SumRequest is awaited"):
        payload_of(body, HeldKey.awaits)


def test_what_is_durable_after_a_request_holds_no_key():
    """The spent state consists of the members and the sum's digest and nothing else."""
    session = honest()
    state = session.ask(session.request(1, 2, 3)).state
    outcome = outcome_of(session, 1, 2, 3)
    assert state == SpentKey(outcome.members, outcome.aggregate_sha256)
    assert len(encode(state)) == 39


def test_a_restarted_key_holder_opens_to_the_same_bytes():
    """The same request, again or after the key was written and read back, gives the same frame and the same sum."""
    session = honest()
    request = session.request(1, 2, 3)
    restarted = replace(session, held=decode(HeldKey, encode(session.held)))
    assert session.ask(request) == session.ask(request) == restarted.ask(request)


def test_the_outcome_must_be_that_of_the_opened_sum():
    """Other members than declared, and another sum than opened, are laid at the server's door."""
    session, me = honest(), holder_of(honest().context)
    state = session.ask(session.request(1, 2)).state
    outcome = outcome_of(session, 1, 2)
    for spent in (state, decode(SpentKey, encode(state))):
        assert spent.advance(session.context, me, outcome).state == spent
        for members in ((1, 3), (1, 2, 3)):
            with pytest.raises(ProtocolViolation, match="party 0: the outcome has other members"):
                spent.advance(session.context, me, replace(outcome, members=members))
        with pytest.raises(ProtocolViolation, match="party 0: the outcome names another sum"):
            spent.advance(session.context, me, replace(outcome, aggregate_sha256=bytes(32)))


def test_a_refused_request_spends_nothing():
    """After requests that fail a check the honest one is still answered."""
    session = honest()
    request = session.request(1, 2, 3)
    with pytest.raises(ProtocolViolation):
        session.ask(replace(request, packed=request.packed[:-1]))
    assert session.ask(request).state.members == (1, 2, 3)


@pytest.mark.parametrize("signer", ["holder", "c1"])
def test_only_the_server_declares(signer):
    """A declaration that the plan's server did not sign is refused."""
    session = honest()
    request = session.request(1, 2, 3)
    forged = bind.sign_declaration(session.context, identity(signer), request.declaration)
    with pytest.raises(ProtocolViolation, match="party 0: the declaration is not signed"):
        session.ask(replace(request, declaration=forged))


def test_no_sum_below_the_minimum_cohort():
    """One client's sum is refused, whatever the server declares."""
    session = honest()
    upload, packed = session.uploads[1]
    alone = requested_again(session, session.request(1, 2), packed, uploads=(upload,))
    with pytest.raises(ProtocolViolation, match="party 0: declares 1 clients; at least 2"):
        session.ask(alone)


@pytest.mark.parametrize(
    ("colluders", "dropouts", "min_clients_in_sum", "fewest"), [(0, 1, 1, 4), (0, 4, 1, 2), (2, 4, 1, 4), (0, 4, 5, 5)]
)
def test_the_minimum_leaves_two_honest_clients(colluders, dropouts, min_clients_in_sum, fewest):
    """The smallest sum holds all but the tolerated dropouts, two more than the colluders, and the minimum."""
    context = replace(context_for(5), colluders=colluders, dropouts=dropouts, min_clients_in_sum=min_clients_in_sum)
    assert context.fewest == fewest
    with pytest.raises(BadInput, match="cannot be reached"):
        _ = replace(context, min_clients_in_sum=6).fewest


def test_every_declared_upload_must_be_its_clients():
    """A set with an upload that its member did not sign, or made for another key, is refused."""
    session = honest()
    request = session.request(1, 2, 3)
    first, second, third = request.declaration.uploads
    forged = bind.sign_upload(session.context, SERVER, third)
    with pytest.raises(ProtocolViolation, match="party 0: declares an upload that member 3 did not sign"):
        session.ask(requested_again(session, request, uploads=(first, second, forged)))
    elsewhere = signed_again(session.context, third, session.uploads[3][1], key=bytes(32))
    with pytest.raises(ProtocolViolation, match="party 0: declares an upload of member 3 for another key"):
        session.ask(requested_again(session, request, uploads=(first, second, elsewhere)))


def test_a_member_is_declared_once():
    """The same upload twice in one declaration has no encoding, and is refused where it is made up in memory."""
    session = honest()
    request = session.request(1, 2, 3)
    first = request.declaration.uploads[0]
    doubled = requested_again(session, request, uploads=(first, first))
    with pytest.raises(MalformedMessage, match="ascending"):
        encode(doubled)
    with pytest.raises(MalformedMessage, match="ascending"):
        session.held.advance(session.context, holder_of(session.context), doubled)


def test_a_sum_that_is_not_the_declared_one_or_none_is_refused():
    """Other bytes than declared, and declared bytes that are no ciphertexts, are refused and spend nothing."""
    session = honest()
    request, other = session.request(1, 2, 3), session.request(1, 2)
    with pytest.raises(ProtocolViolation, match="party 0: sends another sum than the declared"):
        session.ask(replace(request, packed=other.packed))
    size = len(request.packed)
    for bad in (b"\0", request.packed[:-1], bytes(size), b"\xff" * size):
        with pytest.raises(ProtocolViolation, match="party 0: the sum is no ciphertext"):
            session.ask(requested_again(session, request, bad))


def test_a_seed_that_was_not_sealed_names_its_client():
    """Garbage, a seed sealed by or for another, and one sealed in another session are laid at the client's door."""
    session = honest()
    request = session.request(1, 2, 3)
    first, second, third = request.declaration.uploads
    address = bind.seed_address(session.context, 2)
    changes = [{"binding": bytes(32)}, {"step": "Dealing"}, {"sender": 1}, {"receiver": 0}]
    addressed = [resealed(session, replace(address, **changed)) for changed in changes]
    to_another = seal_envelope(sessions.make_held(context_for(plan=b"other")).published.sealing_key, bytes(32), address)
    for bad in (bytes(1168), first.sealed_seed, to_another, second.sealed_seed[:-1] + b"\0", *addressed):
        signed = bind.sign_upload(session.context, identity("c2"), replace(second, sealed_seed=bad))
        with pytest.raises(ProtocolViolation, match="party 2: sealed no mask seed"):
            session.ask(requested_again(session, request, uploads=(first, signed, third)))


def test_a_wrong_seed_spoils_the_sum_and_nothing_is_released():
    """A client that seals another seed than that of its mask makes the opening refuse, without a culprit."""
    session = honest()
    request = session.request(1, 2, 3)
    first, second, third = request.declaration.uploads
    other = resealed(session, bind.seed_address(session.context, 2))
    lie = signed_again(session.context, second, session.uploads[2][1], sealed_seed=other)
    with pytest.raises(SessionAborted, match="more noise than a sum of honest ciphertexts"):
        session.ask(requested_again(session, request, uploads=(first, lie, third)))


def resealed(session, address):
    """Another seed, sealed to the key holder."""
    return seal_envelope(session.held.published.sealing_key, b"another seed".ljust(32), address)


def test_every_session_has_its_own_key():
    """Two keys share nothing, and what goes out first is the published half."""
    context = context_for()
    begun = [begin_holder(context, LocalParty(4, HOLDER, SeededRandomness(seed, TOKEN))) for seed in (b"a", b"b")]
    first, second = (each.state for each in begun)
    assert [each.outgoing for each in begun] == [first.published, second.published]
    assert first.secret != second.secret
    assert first.published.public_key != second.published.public_key
    assert first.published.sealing_key != second.published.sealing_key
    assert decode(PublishedKey, encode(first.published)) == first.published


@pytest.mark.parametrize(("index", "key"), [(4, SERVER), (0, SERVER), (1, identity("c1")), (1, HOLDER)])
def test_only_the_plans_key_holder_makes_a_key(index, key):
    """The server, a client, and the key holder under another index are refused."""
    with pytest.raises(BadInput, match="not the plan's key holder"):
        begin_holder(context_for(), LocalParty(index, key, SeededRandomness(b"a", TOKEN)))


def test_a_request_survives_its_bytes():
    """What the server signs is what the key holder reads."""
    request = honest().request(1, 2, 3)
    assert decode(SumRequest, encode(request)) == request
    assert request.declaration.members == (1, 2, 3)
