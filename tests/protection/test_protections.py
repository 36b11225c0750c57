"""What every protection offers at the seam."""

from dataclasses import replace
from typing import Any

import pytest

from secagg.errors import BadInput
from secagg.protection import PROTECTIONS, Delivery, SessionContext, protection_named
from secagg.protection.encryption.messages import BLIND_BYTES, LARGEST_SUM
from secagg.protection.encryption.parameters import for_capacity
from secagg.protection.interface import ReadyState, ServerState, WaitingState
from secagg.wire import decode, encode
from tests.protection.rehearsal import SENT, Rehearsal, context_for
from tests.worlds.rosters import identity

ALONE = tuple(name for name, protection in PROTECTIONS.items() if not protection.helper_role)
TOGETHER = tuple(name for name in PROTECTIONS if name not in ALONE)


def together(name: str, clients: int = 5, **facts: Any) -> SessionContext:
    """The context of a session with the helpers that the protection needs."""
    session = replace(context_for(clients, **facts), largest=1000, server=identity(0).public)
    places = range(clients + 1, clients + 1 + protection_named(name).fewest_helpers)
    seconds = {index: identity(index).public for index in places}
    names = {0: "server", **session.names, **{index: f"second-{index}" for index in seconds}}
    return protection_named(name).context(replace(session, helpers=seconds, names=names))


def test_unknown_protections_are_refused() -> None:
    """A name that is not in the registry raises BadInput, which lists the names that are."""
    with pytest.raises(BadInput, match="masked, shared, encrypted, none"):
        protection_named("trust me")


@pytest.mark.parametrize("clients", range(2, 14))
@pytest.mark.parametrize("name", PROTECTIONS)
def test_a_plan_may_tolerate_most_dropouts(name: str, clients: int) -> None:
    """With as many dropouts as a protection says, the clients that are left may open a sum; the usual are no more."""
    protection = protection_named(name)
    for colluders in range(clients - 1):
        most = protection.most_dropouts(clients, colluders)
        assert 0 <= protection.usual_dropouts(clients, colluders) <= most
        assert protection.fewest(together(name, clients, colluders=colluders, dropouts=most)) <= clients - most


@pytest.mark.parametrize("clients", [3, 4, 7, 40])
@pytest.mark.parametrize("name", PROTECTIONS)
def test_nobody_but_the_dropouts_is_missing_from_a_sum(name: str, clients: int) -> None:
    """Every protection opens sums of n − D clients and more, whoever colludes, and of no fewer than the minimum."""
    protection = protection_named(name)
    most = protection.most_dropouts(clients, colluders=1)
    for dropouts in {0, most // 2, most}:
        present = clients - dropouts
        for minimum in (1, present):
            context = together(name, clients, colluders=1, dropouts=dropouts, min_clients_in_sum=minimum)
            assert protection.fewest(context) == present
            if protection.hides_vectors:
                assert f"fewer than {present} clients is never opened: all but D" in protection.explain(context)


@pytest.mark.parametrize("name", ALONE)
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


@pytest.mark.parametrize("name", ALONE)
def test_states_fit_the_seam_and_survive_a_crash(name: str) -> None:
    """Every state a client waits in is registered, comes back from its bytes equal, and goes on to the same sum."""
    states = protection_named(name).client.states
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
def test_a_sum_of_several_parties_needs_them(name: str) -> None:
    """A protection with helpers hides vectors from each, and makes no context where one of them is missing."""
    protection = protection_named(name)
    assert protection.hides_vectors
    assert protection.helper is not None
    context = together(name)
    for seconds in ({}, dict(list(context.helpers.items())[:-1])):
        with pytest.raises(BadInput, match=protection.helper_role.replace("-", " ")):
            protection.context(replace(context_for(5), helpers=seconds))


@pytest.mark.parametrize("name", TOGETHER)
def test_fewest_of_several_parties(name: str) -> None:
    """The smallest sum that several parties open has two honest clients and the minimum, and words name it."""
    protection = protection_named(name)
    assert protection.fewest(together(name, 7, colluders=2, dropouts=3)) == 4
    cohort = together(name, 7, colluders=1, dropouts=2, min_clients_in_sum=5)
    assert protection.fewest(cohort) == 5
    assert "fewer than 5 clients" in protection.explain(cohort)
    with pytest.raises(BadInput):
        protection.fewest(together(name, colluders=4, dropouts=0))


def test_a_sum_too_long_to_be_opened_is_refused_at_once() -> None:
    """An encrypted session whose sum does not fit into one message to the key holder does not begin."""
    parameters = for_capacity(1000, 5)
    fits = LARGEST_SUM // parameters.packed_bytes(parameters.degree) * parameters.degree
    assert together("encrypted", length=fits).upload_bytes <= LARGEST_SUM + BLIND_BYTES
    with pytest.raises(BadInput, match="use fewer features"):
        together("encrypted", length=fits + 1)


def test_bytes_of_a_protected_vector() -> None:
    """Ciphertexts are as their parameters say, and 32 bytes; envelopes of shares add 1,136 each, others nothing."""
    plain = context_for(5, length=5000)
    assert all(protection_named(name).context(plain).upload_bytes == plain.packed_bytes for name in ALONE)
    assert together("encrypted", length=5000).upload_bytes == for_capacity(1000, 5).packed_bytes(5000) + 32
    assert together("shared", length=5000).upload_bytes == plain.packed_bytes + 32 + 2 * 1136


def test_deliveries_cover_an_upload() -> None:
    """Every byte of an upload goes to exactly one party: the server, or each aggregator its own share."""
    for name in PROTECTIONS:
        context = context_for(5) if name in ALONE else together(name)
        parts = protection_named(name).deliveries(context)
        assert [part.start for part in parts] == [
            sum(each.size for each in parts[:place]) for place in range(len(parts))
        ]
        assert sum(part.size for part in parts) == context.upload_bytes
        assert [part.receiver for part in parts] == ([6, 7] if name == "shared" else [0])
    assert protection_named("masked").deliveries(context_for(5)) == (Delivery(0, 0, context_for(5).packed_bytes),)
