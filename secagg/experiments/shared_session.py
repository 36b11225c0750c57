"""One shared session in memory: aggregators, clients that speak once, and the server between them.

Every message goes through its bytes. A client may leave: before it has sent anything, or when the first aggregator has
its share and the others have not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from secagg.crypto.signatures import SigningKey
from secagg.encoding import Integers
from secagg.experiments.in_memory import Measured, SessionResult
from secagg.protection import LocalParty, SumToOpen
from secagg.protection.seam import ServerState, Transition, WaitingState
from secagg.protection.sharing.client import begin_client, deliveries
from secagg.protection.sharing.collecting import begin_aggregator
from secagg.protection.sharing.context import SharedContext
from secagg.protection.sharing.coordinating import GatheringKeys, GatheringSets
from secagg.randomness import RandomSource
from secagg.wire import decode, encode

BEFORE, BETWEEN = "ShareManifest", "ShareReceipt"
SHARED_STEPS = (BEFORE, BETWEEN)

Message = TypeVar("Message")


class SharedSession:
    """Drives every client, every aggregator and the server through one session.

    `identities` are those of clients and aggregators by roster index; `noise` draws what one aggregator adds.
    """

    def __init__(
        self,
        context: SharedContext,
        identities: Mapping[int, SigningKey],
        vector_of: Callable[[int], Integers],
        randomness: RandomSource,
        leaves: Mapping[int, str],
        noise: Callable[[], Integers] | None,
    ) -> None:
        self._context = context
        self._parties = {index: LocalParty(index, key, randomness) for index, key in identities.items()}
        self._vector_of = vector_of
        self._leaves = leaves
        self._noise = noise
        self._states: dict[int, Any] = {}
        self._said: dict[int, Any] = {}
        self._kept: dict[int, dict[int, bytes]] = {index: {} for index in context.seconds}
        self._sums: dict[int, bytes] = {}
        self.measured = Measured()

    def run(self) -> SessionResult:
        """Carry the session to its end. Raises SessionAborted when too few uploads reach every aggregator."""
        for index in self._kept:
            self._take(index, begin_aggregator(self._context, self._parties[index]))
        step: Any = GatheringKeys(self._context)
        while isinstance(step, ServerState):
            with self._timed(step.awaits.__name__):
                for index, message in self._said.items():
                    step.accept(index, message)
                step, answers = step.close()
            if isinstance(step, GatheringSets):
                self._collect(answers)
            else:
                self._answer(answers)
        return self._open(step)

    def _take(self, index: int, transition: Transition) -> None:
        """An aggregator's next state; what it says lies ready for the server."""
        self._states[index] = transition.state
        if transition.outgoing is not None:
            self._said[index] = _through(transition.outgoing)
        if transition.vector is not None:
            self._sums[index] = transition.vector

    def _collect(self, keys: Mapping[int, Any]) -> None:
        """The clients upload, then every aggregator fixes what it accepted."""
        for member in self._context.clients:
            if self._leaves.get(member) != BEFORE:
                self._upload(member, _through(keys[member]))
        for index, state in self._states.items():
            with self._timed("SetPledges"):
                self._take(index, state.close(self._context, self._parties[index]))

    def _upload(self, member: int, keys: Any) -> None:
        """A client draws its shares, sends one to each aggregator, and checks the receipts."""
        context, me, measured = self._context, self._parties[member], self.measured
        start = time.process_time()
        awaiting: Any = begin_client(context, me).state
        ready = awaiting.advance(context, me, keys).state
        shared = ready.protect(context, me, context.ring.encode(self._vector_of(member)))
        measured.charge(member, cpu=time.process_time() - start)
        reached = deliveries(context)[: 1 if self._leaves.get(member) == BETWEEN else None]
        for part in reached:
            sealed = shared.vector[part.start : part.start + part.size]
            measured.charge(member, sent=len(encode(shared.outgoing)) + len(sealed))
            with self._timed("ShareManifest"):
                receipt = self._accept(part.receiver, _through(shared.outgoing), sealed)
            start = time.process_time()
            shared.state.check_receipt(context, _through(receipt))
            measured.charge(member, cpu=time.process_time() - start)

    def _accept(self, index: int, manifest: Any, sealed: bytes) -> Any:
        """An aggregator takes one upload and gives its receipt."""
        context, me = self._context, self._parties[index]
        self._states[index] = self._states[index].accept(context, me, manifest, sealed)
        self._kept[index][manifest.client] = sealed
        return self._states[index].receipt(context, me, manifest.client)

    def _answer(self, answers: Mapping[int, Any]) -> None:
        """Every aggregator hears the server, and adds its shares once the set is agreed on."""
        for index, state in self._states.items():
            if index in answers:
                with self._timed(type(answers[index]).__name__):
                    me = self._parties[index]
                    self._take(index, state.advance(self._context, me, _through(answers[index])))
                    if not isinstance(self._states[index], WaitingState):
                        self._take(index, self._add_up(index))

    def _add_up(self, index: int) -> Any:
        agreed, me = self._states[index], self._parties[index]
        total = agreed.summing(self._context, me)
        for member in total.waiting:
            total.add(member, self._kept[index][member])
        return agreed.commit(self._context, me, total.packed(self._noise() if self._noise is not None else None))

    def _open(self, ready: SumToOpen) -> SessionResult:
        context = self._context
        with self._timed("open"):
            total = np.zeros(context.length, dtype=context.ring.word)
            for index in ready.vectors:
                total += context.ring.unpack(self._sums[index], context.length)
            opened = ready.open(context, total)
        return SessionResult(opened, ready.members, self.measured)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        """Add the seconds of the server and of all aggregators."""
        begun = time.perf_counter()
        yield
        seconds = self.measured.server_seconds
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begun


def _through(message: Message) -> Message:
    """A message as its receiver reads it."""
    return decode(type(message), encode(message))
