"""What every protection offers at the seam."""

import pytest

from secagg.errors import BadInput
from secagg.protection import PROTECTIONS, LocalParty, protection_named
from secagg.protection.encryption.binding import LONGEST_SUM, EncryptedContext
from secagg.protection.encryption.parameters import for_capacity
from secagg.protection.seam import ReadyState, ServerState, WaitingState
from secagg.unsafe_for_tests import SeededRandomness
from secagg.wire import decode, encode
from tests.protection.rehearsal import SENT, Rehearsal, context_for, identity

SERVED = tuple(name for name, protection in PROTECTIONS.items() if protection.one_server)
TOGETHER = tuple(name for name in PROTECTIONS if name not in SERVED)


def test_unknown_protections_are_refused() -> None:
    """A name that is not in the registry raises BadInput, which lists the names that are."""
    with pytest.raises(BadInput, match="masked, none, shared, encrypted"):
        protection_named("trust me")


@pytest.mark.parametrize("name", SERVED)
def test_fewest_is_the_border_of_a_session(name: str) -> None:
    """A session with `fewest` uploads ends in a sum, and its explanation names that number."""
    protection = protection_named(name)
    context = context_for(7, colluders=1, dropouts=2)
    fewest = protection.fewest(context)
    session = Rehearsal(context, name)
    leaving = context.clients[: len(context.clients) - fewest]
    members, total = session.finish(dict.fromkeys(leaving, "UploadHeader"))
    assert len(members) == fewest
    assert total == session.expected(members)
    assert str(fewest) in protection.explain(context)


@pytest.mark.parametrize("name", SERVED)
def test_states_fit_the_seam_and_survive_a_crash(name: str) -> None:
    """Every state a client waits in is registered, comes back from its bytes equal, and goes on to the same sum."""
    states = protection_named(name).client_states
    session = Rehearsal(context_for(4), name)
    seen = set()
    for said in SENT if name == "masked" else ("UploadHeader",):
        session.until_said(said)
        assert isinstance(session.server, ServerState)
        for member, state in session.states.items():
            assert isinstance(state, WaitingState)
            assert not isinstance(state, ReadyState)
            assert type(state) in states
            session.states[member] = decode(type(state), encode(state))
            assert session.states[member] == state
            seen.add(type(state))
    members, total = session.finish()
    assert total == session.expected(members)
    assert seen == set(states)
    assert not isinstance(session.server, ServerState)


@pytest.mark.parametrize(("colluders", "dropouts"), [(0, 3), (2, 2), (4, 0), (9, 0)])
def test_impossible_plans_are_refused_before_anything_begins(colluders: int, dropouts: int) -> None:
    """When n, c and D do not go together, neither party begins."""
    context = context_for(5, colluders=colluders, dropouts=dropouts)
    with pytest.raises(BadInput):
        protection_named("masked").fewest(context)
    with pytest.raises(BadInput):
        protection_named("masked").begin_server(context)


@pytest.mark.parametrize("name", TOGETHER)
def test_what_two_parties_open_has_no_single_server(name: str) -> None:
    """A protection with two openers hides vectors from each, and offers one server nothing to begin with."""
    protection, context = protection_named(name), context_for(5)
    assert (len(protection.openers), protection.hides_vectors) == (2, True)
    me = LocalParty(1, identity(1), SeededRandomness(b"me"))
    begins = (
        protection.served,
        lambda: protection.client_states,
        lambda: protection.begin_server(context),
        lambda: protection.begin_client(context, me),
    )
    for begin in begins:
        with pytest.raises(BadInput, match="in a later version"):
            begin()


@pytest.mark.parametrize("name", TOGETHER)
def test_fewest_of_two_openers(name: str) -> None:
    """The smallest sum that two parties open has two honest clients and the minimum cohort, and is named in words."""
    protection = protection_named(name)
    assert protection.fewest(context_for(7, colluders=2, dropouts=3)) == 4
    cohort = context_for(7, colluders=1, dropouts=2, minimum_cohort=5)
    assert protection.fewest(cohort) == 5
    assert "fewer than 5 clients" in protection.explain(cohort)
    with pytest.raises(BadInput):
        protection.fewest(context_for(5, colluders=4, dropouts=0))


def test_a_sum_too_long_to_be_opened_is_refused_at_once() -> None:
    """An encrypted session longer than one message of the key holder does not begin."""
    for length in (LONGEST_SUM, LONGEST_SUM + 1):
        session = context_for(5, length=length)
        if length == LONGEST_SUM:
            EncryptedContext.of(session, bytes(32), bytes(32), 1000)
        else:
            with pytest.raises(BadInput, match="use fewer features"):
                EncryptedContext.of(session, bytes(32), bytes(32), 1000)


def test_bytes_of_a_protected_vector() -> None:
    """Ciphertexts are as long as their parameters say, any other protected vector as long as the vector."""
    context, largest = context_for(5, length=5000), 1000
    for name, protection in PROTECTIONS.items():
        expected = for_capacity(largest, 5).packed_bytes(5000) if name == "encrypted" else context.packed_bytes
        assert protection.upload_bytes(context, largest) == expected
