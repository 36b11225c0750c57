"""One shared session in memory: two aggregators, clients that speak once, every message through its bytes.

A client may leave: before it has sent anything, or when one aggregator has its share and the other has not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from secagg.crypto.signatures import SigningKey
from secagg.encoding import Integers
from secagg.experiments.in_memory import Measured, SessionResult
from secagg.protection import LocalParty, SessionContext
from secagg.protection.sharing.client import share
from secagg.protection.sharing.collecting import begin
from secagg.protection.sharing.context import SharedContext
from secagg.randomness import RandomSource
from secagg.wire import decode, encode

BEFORE, BETWEEN = "ShareManifest", "ShareReceipt"
SHARED_STEPS = (BEFORE, BETWEEN)
AGGREGATORS = (1, 2)

Message = TypeVar("Message")


class SharedSession:
    """Drives every client and both aggregators through one session; `noise` draws what an aggregator adds."""

    def __init__(
        self,
        session: SessionContext,
        identities: Mapping[int, SigningKey],
        vector_of: Callable[[int], Integers],
        randomness: RandomSource,
        leaves: Mapping[int, str],
        noise: Callable[[], Integers] | None,
    ) -> None:
        self._clients = {member: LocalParty(member, key, randomness) for member, key in identities.items()}
        self._aggregators = {
            number: LocalParty(number, SigningKey.generate(randomness), randomness) for number in AGGREGATORS
        }
        keys = {number: me.identity.public for number, me in self._aggregators.items()}
        self._context = SharedContext(session, keys, {number: f"aggregator {number}" for number in AGGREGATORS})
        self._vector_of = vector_of
        self._leaves = leaves
        self._noise = noise
        self._states: dict[int, Any] = {}
        self._kept: dict[int, dict[int, bytes]] = {number: {} for number in AGGREGATORS}
        self.measured = Measured()

    def run(self) -> SessionResult:
        """Carry the session to its end. Raises SessionAborted when too few uploads reach both aggregators."""
        context = self._context
        self._states = {number: begin(context, me) for number, me in self._aggregators.items()}
        for member in self._clients:
            if self._leaves.get(member) != BEFORE:
                self._upload(member)
        self._step("AcceptedUploads", lambda at, me, _: at.close(context, me), announced=False)
        self._step("AcceptedUploads", lambda at, me, others: at.reveal(context, me, others))
        self._step("AcceptedUploads", lambda at, me, others: at.agree(context, me, others))
        packed: dict[int, bytes] = {}

        def add_up(at: Any, me: LocalParty, _: list[Any]) -> Any:
            packed[me.member] = self._add_up(at, me)
            return at.commit(context, me, packed[me.member])

        self._step("SumShare", add_up, announced=False)
        self._step("SumShare", lambda at, me, others: at.reveal(context, me, others))
        return self._open(packed)

    def _upload(self, member: int) -> None:
        """A client draws its shares, sends one to each aggregator, and checks the receipts."""
        context, me, measured = self._context, self._clients[member], self.measured
        pledges = list(self._said().values())
        start = time.process_time()
        state, sealed = share(context, me, pledges, context.session.ring.encode(self._vector_of(member)))
        measured.charge(member, cpu=time.process_time() - start)
        reached = AGGREGATORS[:1] if self._leaves.get(member) == BETWEEN else AGGREGATORS
        for number in reached:
            measured.charge(member, sent=len(encode(state.announcement)) + len(sealed[number - 1]))
            manifest, aggregator = _through(state.announcement), self._aggregators[number]
            begun = time.perf_counter()
            self._states[number] = self._states[number].accept(context, aggregator, manifest, sealed[number - 1])
            receipt = self._states[number].receipt(context, aggregator, member)
            self._took("ShareManifest", begun)
            self._kept[number][member] = sealed[number - 1]
            start = time.process_time()
            state = state.acknowledged(context, _through(receipt))
            measured.charge(member, cpu=time.process_time() - start)

    def _said(self) -> dict[int, Any]:
        """What each aggregator's state announces, as the others read it."""
        return {
            number: _through(state.announcement(self._context, self._aggregators[number]))
            for number, state in self._states.items()
        }

    def _step(self, name: str, action: Callable[[Any, LocalParty, list[Any]], Any], announced: bool = True) -> None:
        """Every aggregator takes a step, given what the others have announced if the step waits for that."""
        begun = time.perf_counter()
        said = self._said() if announced else {}
        for number, me in self._aggregators.items():
            others = [message for other, message in said.items() if other != number]
            self._states[number] = action(self._states[number], me, others)
        self._took(name, begun)

    def _add_up(self, at: Any, me: LocalParty) -> bytes:
        total = at.summing(self._context, me)
        for member in total.waiting:
            total.add(member, self._kept[me.member][member])
        summed: bytes = total.packed(self._noise() if self._noise is not None else None)
        return summed

    def _open(self, packed: Mapping[int, bytes]) -> SessionResult:
        """What the first aggregator opens; the second one opens the same."""
        begun = time.perf_counter()
        _, *others = self._said().values()
        opening = self._states[1].opening(self._context, self._aggregators[1], others)
        for number in AGGREGATORS:
            opening.add(number, packed[number])
        total = opening.integers()
        self._took("open", begun)
        return SessionResult(total, opening.members, self.measured)

    def _took(self, name: str, begun: float) -> None:
        """Both aggregators' seconds, added."""
        seconds = self.measured.server_seconds
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begun


def _through(message: Message) -> Message:
    """A message as its receiver reads it."""
    return decode(type(message), encode(message))
