"""Holds an aggregator's one state: kept before anything leaves, never taken twice, given up for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection.messages import Abort
from secagg.protection.sharing.agreeing import SetAgreed, SetCommitted, SetRevealed
from secagg.protection.sharing.collecting import Collecting
from secagg.protection.sharing.pledges import Equivocated
from secagg.protection.sharing.summing import SumCommitted, SumOpened, SumRevealed

State = Collecting | SetCommitted | SetRevealed | SetAgreed | SumCommitted | SumRevealed | SumOpened | Abort
STATES = (Collecting, SetCommitted, SetRevealed, SetAgreed, SumCommitted, SumRevealed, SumOpened, Abort)
"""What `wire.encode` writes and `wire.decode` reads again after a crash."""

Here = TypeVar("Here", Collecting, SetCommitted, SetRevealed, SetAgreed, SumCommitted, SumRevealed, SumOpened)
Next = TypeVar("Next", bound=State)


class Keeper:
    """An aggregator goes from state to state only through `move`, so that it signs and opens one thing for each step.

    `keep` writes a state and returns when it is safe on the disk. It must not bring back an older one: nothing here
    can see that a disk was set back.
    """

    def __init__(self, state: State, keep: Callable[[State], None]) -> None:
        self._keep = keep
        self._state = state
        keep(state)

    @property
    def state(self) -> State:
        """Where the aggregator stands: what this announces has been kept."""
        return self._state

    def move(self, here: type[Here], step: Callable[[Here], Next], culprit: str) -> Next:
        """Take the step if the aggregator stands at `here`: keep what follows, then return it.

        Raises ProtocolViolation (`culprit`: who asked) at any other state, SessionAborted after an abort. What the step
        raises changes nothing, except that SessionAborted and Equivocated end the session for good.
        """
        if isinstance(self._state, Abort):
            raise SessionAborted(self._state.reason)
        if not isinstance(self._state, here):
            raise ProtocolViolation(culprit, f"asks for {here.__name__} when it is {type(self._state).__name__}'s turn")
        try:
            following = step(self._state)
        except (SessionAborted, Equivocated) as error:
            self.abort(error.reason if isinstance(error, SessionAborted) else str(error))
            raise
        self._replace(following)
        return following

    def abort(self, reason: str) -> None:
        """Leave the session for good and forget the session key. An opened sum stays opened."""
        if not isinstance(self._state, SumOpened | Abort):
            self._replace(Abort(reason[:2000]))

    def _replace(self, state: State) -> None:
        self._keep(state)
        self._state = state
