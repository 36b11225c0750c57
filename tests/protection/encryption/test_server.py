"""The server's steps: it begins with a key, adds what was announced, shows one sum, and takes its one opening."""

from dataclasses import replace

import numpy as np
import pytest

from secagg.errors import BadInput, ProtocolViolation, SessionAborted
from secagg.protection.encryption import derivations as bind
from secagg.protection.encryption.server import AwaitingHolder, AwaitingOpening, OpenedCiphertexts
from secagg.protection.interface import ServerState, SumToDeclare, SumToOpen, VectorState
from tests.protection.encryption import sessions
from tests.protection.encryption.sessions import HOLDER, SERVER, context_for, honest, requested_again


def test_steps_are_what_the_driver_knows():
    """Two steps collect announcements with bytes, one is a sum to declare, and the last one a sum to open."""
    session = honest()
    opening = AwaitingOpening(session.context, session.request(1, 2).declaration)
    steps = [AwaitingHolder(session.context), session.server(), session.adding(1, 2), opening, end(session)]
    kinds = [ServerState, VectorState, SumToDeclare, SumToOpen]
    known = [[isinstance(step, kind) for kind in kinds] for step in steps]
    collects, announced, declare, is_open = [1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]
    assert known == [collects, announced, declare, announced, is_open]
    assert [step.is_joining for step in (*steps[:2], opening)] == [True, True, False]


def end(session):
    """The last step of a session of everyone."""
    request = session.request(*session.context.clients)
    opening = AwaitingOpening(session.context, request.declaration)
    opening.accept(4, session.ask(request).outgoing)
    assert opening.complete
    return opening.close()[0]


def test_the_key_goes_to_every_client():
    """Once the key holder has published, each client is shown its key; the same key again changes nothing."""
    session = honest()
    server = AwaitingHolder(session.context)
    assert (server.expected, server.complete) == ({4}, False)
    for _ in range(2):
        server.accept(4, session.held.published)
    assert server.complete
    assert server.close()[1] == dict.fromkeys((1, 2, 3), session.held.published)


def test_one_key_holder_publishes_one_key():
    """A client's key and a second key are refused, and without any key nothing begins."""
    session = honest()
    server = AwaitingHolder(session.context)
    with pytest.raises(SessionAborted, match="key holder published no key"):
        server.close()
    with pytest.raises(ProtocolViolation, match="party 1: is not expected"):
        server.accept(1, session.held.published)
    server.accept(4, session.held.published)
    with pytest.raises(ProtocolViolation, match="party 4: sent a second, different PublishedKey"):
        server.accept(4, sessions.make_held(session.context).published)


def test_impossible_plans_are_refused_before_anything_begins():
    """When the plan's clients cannot make its smallest sum the server does not begin."""
    with pytest.raises(BadInput, match="cannot be reached"):
        AwaitingHolder(context_for(min_clients_in_sum=4))


def test_every_vector_is_in_the_sum_before_it_is_shown():
    """While one is missing there is no request and nothing is called the sum; the missing members are named."""
    session = honest()
    adding, request = session.adding(1, 2, 3), session.request(1, 2, 3)
    adding.add(2, session.uploads[2][1])
    for act in (lambda: adding.request(SERVER), lambda: adding.is_sum(request)):
        with pytest.raises(BadInput, match=r"lacks the ciphertexts of c1, c3$"):
            act()


def test_a_wrong_vector_is_not_added():
    """Another member's ciphertexts and none at all are refused, and the sum stays what it was."""
    session = honest()
    adding = session.adding(1, 2)
    for wrong in (session.uploads[2][1], b""):
        with pytest.raises(BadInput, match="of c1 are missing or not those"):
            adding.add(1, wrong)
    for member in (2, 1, 1, 2):
        adding.add(member, session.uploads[member][1])
    assert adding.request(SERVER) == session.request(1, 2)


def test_the_sum_is_told_from_every_other():
    """A replayed request is recognised by its uploads and its bytes; other bytes and other uploads are not the sum."""
    session = honest()
    added, request = session.added(1, 2, 3), session.request(1, 2, 3)
    assert added.is_sum(request)
    other = session.request(1, 2)
    assert not added.is_sum(other)
    assert not added.is_sum(requested_again(session, request, other.packed))
    assert not added.is_sum(requested_again(session, other, request.packed))


def test_a_replayed_request_needs_no_vectors_and_leads_to_the_same_step():
    """From the request in a transcript the server goes on, and shows it to the key holder alone."""
    session = honest()
    request = session.request(1, 2, 3)
    opening, messages = session.adding(1, 2, 3).requested(request)
    assert messages == {4: request}
    assert opening.expected == {4}
    opening.accept(4, session.ask(request).outgoing)
    assert opening.complete


def test_another_declaration_at_replay_is_refused():
    """A request of other uploads, of no server, or with other bytes than it declares does not go on."""
    session = honest()
    request, other = session.request(1, 2, 3), session.request(1, 2)
    adding = session.adding(1, 2, 3)
    first, second, third = request.declaration.uploads
    changed = sessions.signed_again(session.context, third, session.uploads[1][1])
    for uploads in (other.declaration.uploads, (first, second, changed)):
        with pytest.raises(ProtocolViolation, match="party 0: declares other uploads"):
            adding.requested(requested_again(session, request, uploads=uploads))
    with pytest.raises(ProtocolViolation, match="party 0: sends another sum than the declared"):
        adding.requested(replace(request, packed=other.packed))
    forged = bind.sign_declaration(session.context, HOLDER, request.declaration)
    with pytest.raises(ProtocolViolation, match="party 0: the declaration is not signed"):
        adding.requested(replace(request, declaration=forged))


@pytest.mark.parametrize("field", ["declaration", "digest", "signature"])
def test_every_field_of_an_opening_is_signed(field):
    """An opening with one byte changed is refused."""
    session = honest()
    request = session.request(1, 2, 3)
    sent = session.ask(request).outgoing
    value = getattr(sent, field)
    with pytest.raises(ProtocolViolation, match="party 4: the opened sum is not signed"):
        AwaitingOpening(session.context, request.declaration).accept(
            4, replace(sent, **{field: bytes([value[0] ^ 1]) + value[1:]})
        )


def test_the_server_takes_only_the_key_holders_opening_of_its_sum():
    """An opening that is forged, of another declaration, of another length, a second or a client's is refused."""
    session = honest()
    request, other = session.request(1, 2, 3), session.request(1, 2)
    sent = session.ask(request).outgoing
    opening = AwaitingOpening(session.context, request.declaration)
    short = replace(sent, length=sent.length - 1)
    refused = {
        "not signed": (short, bind.sign_opened(session.context, SERVER, sent)),
        "another sum": (session.ask(other).outgoing,),
        "opened 12599 bytes, not 12600": (bind.sign_opened(session.context, HOLDER, short),),
    }
    for match, messages in refused.items():
        for message in messages:
            with pytest.raises(ProtocolViolation, match=f"party 4: .*{match}"):
                opening.accept(4, message)
    with pytest.raises(ProtocolViolation, match="party 1: is not expected"):
        opening.accept(1, sent)
    for _ in range(2):
        opening.accept(4, sent)
    with pytest.raises(ProtocolViolation, match="second, different"):
        opening.accept(4, session.ask(other).outgoing)


@pytest.mark.parametrize("sign", [1, -1])
def test_opened_bytes_must_be_a_sum_of_the_plan(sign):
    """Bytes of another length, and integers beyond the capacity, are refused; the capacity itself is not."""
    session = honest()
    context, request = session.context, session.request(1, 2, 3)
    opening, vector = AwaitingOpening(context, request.declaration), session.ask(request).vector
    opening.inspect(4, vector)
    for wrong in (b"", vector[:-1], vector + b"\0"):
        with pytest.raises(ProtocolViolation, match="party 4: opened what is no sum"):
            opening.inspect(4, wrong)
    entries = np.zeros(context.length, dtype=np.int64)
    entries[-1] = sign * context.largest
    opening.inspect(4, context.ring.pack(context.ring.encode(entries)))
    entries[-1] += sign
    with pytest.raises(ProtocolViolation, match="party 4: opened an entry outside the plan's capacity"):
        opening.inspect(4, context.ring.pack(context.ring.encode(entries)))


def test_a_key_holder_that_stays_away_ends_the_session():
    """Without an opening there is no sum; with one it is the key holder's vector alone."""
    session = honest()
    with pytest.raises(SessionAborted, match="key holder did not open the sum"):
        AwaitingOpening(session.context, session.request(1, 2).declaration).close()
    assert end(session) == OpenedCiphertexts((1, 2, 3), (4,))
