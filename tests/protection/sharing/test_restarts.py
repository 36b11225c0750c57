"""Killed at any point, an aggregator goes on where its disk says; it never says two things."""

from typing import Any

import pytest

from secagg.protection.interface import ReadyState, ServerState, VectorState, WaitingState, WorkingState
from secagg.protection.messages import Outcome
from secagg.protection.sharing.aggregator import (
    AGGREGATOR_STATES,
    Collecting,
    SetAgreed,
    SetCommitted,
    SetRevealed,
    SumCommitted,
    SumRevealed,
)
from secagg.protection.sharing.client import CLIENT_STATES
from secagg.protection.sharing.derivations import Equivocated
from secagg.protection.sharing.messages import SetLists, SetPledges, SumPledges
from secagg.wire import decode, encode
from tests.protection.sharing.rehearsal import STEPS, Shared, shared_context

ORDER = (Collecting, SetCommitted, SetRevealed, SetAgreed, SumCommitted, SumRevealed)
AWAITED = {SetCommitted: SetPledges, SetRevealed: SetLists, SumCommitted: SumPledges, SumRevealed: Outcome}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("number", [1, 2])
def test_an_aggregator_goes_on_after_a_crash_at_every_state(step: str, number: int) -> None:
    """Killed at any state and started from its disk, an aggregator says the same again and the sum is the same."""
    session = Shared(shared_context(2, 3)).until(step)
    state, said = session.states[number], session.said[number]
    session.restart(number)
    assert (session.states[number], session.said[number]) == (state, said)
    assert session.finish(step) == session.expected((1, 2, 3))


@pytest.mark.parametrize("m", [2, 3, 5])
def test_everyone_may_crash_after_every_step(m: int) -> None:
    """With every aggregator killed after every step the sum is the same."""
    session = Shared(shared_context(m, 4), crashing=True).until("open")
    assert session.open() == session.expected((1, 2, 3, 4))


@pytest.mark.parametrize("step", ["reveal set", "agree", "commit sum", "reveal sum"])
def test_a_step_that_was_not_kept_is_taken_again(step: str) -> None:
    """An aggregator killed between what it heard and what it kept hears the same again; the session goes on."""
    session = Shared(shared_context(2, 3)).until(step)
    before = {1: session.states[1], 2: session.states[2]}
    if step == "commit sum":
        lost = session.worked(1)
    else:
        session.gather()
        lost = before[1].advance(session.context, session.parties[1], session.shown[4])
    assert type(lost.state) is ORDER[ORDER.index(type(before[1])) + 1]
    session.restart(1)
    assert session.states == before
    if step != "commit sum":
        session.relay()
        step = STEPS[STEPS.index(step) + 1]
    assert session.finish(step) == session.expected((1, 2, 3))


def test_states_fit_the_seam() -> None:
    """Waiting states await one message of the server, working states none, and the server's steps take turns."""
    session = Shared(shared_context(2, 3))
    assert isinstance(session.server, ServerState)
    joining = []
    for step, here in zip(STEPS, ORDER, strict=True):
        session = Shared(shared_context(2, 3)).until(step)
        state = session.states[1]
        assert type(state) is here
        assert isinstance(state, WaitingState) == (here in AWAITED)
        assert isinstance(state, WorkingState) == (here not in AWAITED)
        assert not isinstance(state, ReadyState)
        assert getattr(state, "awaits", None) == AWAITED.get(here)
        assert isinstance(session.server, VectorState) == (step == "open")
        assert session.server.expected == {4, 5}
        joining.append(session.server.is_joining)
    assert joining == [True, True, False, False, False, False]


def test_every_remembered_state_comes_back_from_its_bytes() -> None:
    """Every state with which something leaves is registered, and equals what its bytes give; the others are not."""
    seen: set[type] = set()
    for step in STEPS:
        for state in Shared(shared_context(2, 3)).until(step).states.values():
            if not isinstance(state, SetAgreed):
                assert decode(type(state), encode(state)) == state
                seen.add(type(state))
    assert seen == set(AGGREGATOR_STATES)
    session = Shared(shared_context(2, 3)).upload(1)
    assert {type(session.sent(1))} == set(CLIENT_STATES)


def test_receipts_given_before_a_crash_are_honoured() -> None:
    """Uploads acknowledged before and after a restart are all in the sum; the repeated one is counted once."""
    session = Shared(shared_context(2, 4)).upload(1, 2)
    session.restart(1)
    session.upload(2, 3)
    assert session.finish("commit set") == session.expected((1, 2, 3))


def test_a_rolled_back_aggregator_cannot_speak_twice_unseen() -> None:
    """An aggregator whose disk was set back commits to another set; its own pledge in the bundle gives it away."""
    session = Shared(shared_context(2, 4)).upload(1, 2, 3)
    kept: dict[Any, Any] = dict(session.disk[1])
    session.commit_sets()
    shown = session.gather().shown[session.context.index_of(1)]
    session.disk[1] = kept
    session.restart(1)
    again = session.states[1].close(session.context, session.parties[1])
    with pytest.raises(Equivocated, match="party 5: signed two different"):
        again.state.advance(session.context, session.parties[1], shown)
