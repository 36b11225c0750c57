"""What every protection offers at the seam."""

import pytest

from secagg.errors import BadInput
from secagg.protection import PROTECTIONS, protection_named
from secagg.protection.seam import ReadyState, ServerState, WaitingState
from secagg.wire import decode, encode
from tests.protection.rehearsal import SENT, Rehearsal, context_for


def test_unknown_protections_are_refused() -> None:
    """A name that is not in the registry raises BadInput, which lists the names that are."""
    with pytest.raises(BadInput, match="masked, none"):
        protection_named("trust me")


@pytest.mark.parametrize("name", PROTECTIONS)
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


@pytest.mark.parametrize("name", PROTECTIONS)
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
