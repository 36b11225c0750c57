"""Killed at any point, an aggregator goes on or the session ends; it never says two things."""

from typing import Any

import pytest

from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection.messages import Abort
from secagg.protection.sharing.agreeing import SetAgreed, SetCommitted, SetRevealed
from secagg.protection.sharing.collecting import Collecting
from secagg.protection.sharing.keeper import STATES, Keeper
from secagg.protection.sharing.summing import SumCommitted, SumOpened, SumRevealed
from secagg.wire import decode, encode
from tests.protection.sharing.rehearsal import STEPS, Shared, shared_context

ORDER = (Collecting, SetCommitted, SetRevealed, SetAgreed, SumCommitted, SumRevealed)


def finish(session: Shared, step: str) -> list[int]:
    """Play on from a step to the end."""
    actions = (session.commit_sets, session.reveal_sets, session.agree, session.commit_sums, session.reveal_sums)
    for action in actions[STEPS.index(step) :]:
        action()
    return session.open()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("number", [1, 2])
def test_an_aggregator_goes_on_after_a_crash_at_every_state(step: str, number: int) -> None:
    """Killed at any state and started from its disk, an aggregator says the same again and the sum is the same."""
    session = Shared(shared_context(2, 3)).until(step)
    said = session.said() if step != "commit sum" else None
    session.restart(number)
    if said is not None:
        assert session.said() == said
    assert finish(session, step) == session.expected((1, 2, 3))


def test_everyone_may_crash_after_every_step() -> None:
    """With every aggregator killed after every step the sum is the same, and the session stays answered."""
    session = Shared(shared_context(3, 4), crashing=True).until("open")
    assert session.open() == session.expected((1, 2, 3, 4))
    session.restart(1)
    assert isinstance(session.keepers[1].state, SumOpened)


@pytest.mark.parametrize("here", ORDER, ids=lambda here: here.__name__)
def test_a_crash_before_a_state_is_kept_says_nothing(here: type) -> None:
    """If the disk fails while a step's state is kept, the aggregator stays where it was, and has announced nothing."""
    session = Shared(shared_context(2, 3)).until(STEPS[ORDER.index(here)])
    keeper = session.keepers[1]
    before = keeper.state

    def full(state: Any) -> None:
        raise OSError("disk full")

    keeper._keep = full
    following: Any = SumOpened((1, 2, 3), bytes(32))
    with pytest.raises(OSError, match="disk full"):
        keeper.move(here, lambda _: following, "a1")
    assert keeper.state is before
    session.restart(1)
    assert finish(session, STEPS[ORDER.index(here)]) == session.expected((1, 2, 3))


@pytest.mark.parametrize("step", STEPS)
def test_no_step_is_taken_twice_or_out_of_order(step: str) -> None:
    """At every state, before and after a restart, the steps of all other states are refused and change nothing."""
    session = Shared(shared_context(2, 3)).until(step)
    for restart in (False, True):
        if restart:
            session.restart(1)
        keeper = session.keepers[1]
        before = keeper.state
        for here in (*ORDER, SumOpened):
            if here is not type(before):
                with pytest.raises(ProtocolViolation, match=f"someone: asks for {here.__name__}"):
                    keeper.move(here, lambda _: pytest.fail("the step was taken"), "someone")
        assert keeper.state is before


def test_nothing_follows_an_opened_sum() -> None:
    """An opened session opens nothing again, after a restart neither, and cannot be aborted any more."""
    session = Shared(shared_context(2, 3)).until("open")
    session.open()
    for restart in (False, True):
        if restart:
            session.restart(1)
        keeper = session.keepers[1]
        for here in ORDER:
            with pytest.raises(ProtocolViolation):
                keeper.move(here, lambda _: pytest.fail("the step was taken"), "a1")
        keeper.abort("too late")
        assert isinstance(keeper.state, SumOpened)


@pytest.mark.parametrize("step", STEPS)
def test_an_abort_is_for_good(step: str) -> None:
    """Aborted at any state, an aggregator refuses every step with the reason, after a restart too."""
    session = Shared(shared_context(2, 3)).until(step)
    session.keepers[1].abort("the deadline passed")
    session.restart(1)
    session.keepers[1].abort("another reason")
    for here in (*ORDER, SumOpened):
        with pytest.raises(SessionAborted, match="the deadline passed"):
            session.keepers[1].move(here, lambda _: pytest.fail("the step was taken"), "a1")
    assert session.disk[1]["state"] == (Abort, encode(Abort("the deadline passed")))


def test_every_state_comes_back_from_its_bytes() -> None:
    """All states of an aggregator are registered, and each equals what its bytes give."""
    seen: set[type] = {Abort}
    for step in STEPS:
        session = Shared(shared_context(2, 3)).until(step)
        if step == "open":
            session.open()
        for keeper in session.keepers.values():
            seen.add(type(keeper.state))
            assert decode(type(keeper.state), encode(keeper.state)) == keeper.state
    seen.add(type(Shared(shared_context(2, 3)).until("open").keepers[1].state))
    assert seen == set(STATES)


def test_the_first_state_is_kept_before_the_key_is_published() -> None:
    """A new aggregator's session key is on the disk before anyone can see it."""
    kept: list[Any] = []
    session = Shared(shared_context(2, 3))
    Keeper(session.keepers[1].state, kept.append)
    assert kept == [session.keepers[1].state]


def test_receipts_given_before_a_crash_are_honoured() -> None:
    """Uploads acknowledged before and after a restart are all in the sum; the repeated one is counted once."""
    session = Shared(shared_context(2, 4)).upload(1, 2)
    session.restart(1)
    session.upload(2, 3)
    assert finish(session, "commit set") == session.expected((1, 2, 3))
