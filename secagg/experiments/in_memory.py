"""One session with one server in memory: the same state machines and bytes as over gRPC, without sockets.

A client may leave at a named step: it then answers nothing from that step on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from secagg.crypto.signatures import SigningKey
from secagg.encoding import Integers
from secagg.protection import LocalParty, Protection, SessionContext, SumToOpen
from secagg.protection.messages import UploadHeader
from secagg.protection.seam import ReadyState, ServerState, Transition
from secagg.randomness import RandomSource
from secagg.wire import decode, encode


@dataclass
class Measured:
    """What a session cost. CPU seconds per client are summed over its steps; bytes are what it sent."""

    client_cpu: dict[int, float] = field(default_factory=dict)
    client_bytes: dict[int, int] = field(default_factory=dict)
    server_seconds: dict[str, float] = field(default_factory=dict)

    def charge(self, member: int, *, cpu: float = 0.0, sent: int = 0) -> None:
        """Add CPU seconds and bytes sent to a client's cost."""
        self.client_cpu[member] = self.client_cpu.get(member, 0.0) + cpu
        self.client_bytes[member] = self.client_bytes.get(member, 0) + sent

    def add(self, other: Measured) -> None:
        """Add the cost of another session."""
        for member in other.client_cpu:
            self.charge(member, cpu=other.client_cpu[member], sent=other.client_bytes[member])
        for step, seconds in other.server_seconds.items():
            self.server_seconds[step] = self.server_seconds.get(step, 0.0) + seconds


@dataclass(frozen=True)
class SessionResult:
    """The opened sum, the clients in it, and the cost."""

    total: Integers
    members: tuple[int, ...]
    measured: Measured


class InMemorySession:
    """Drives every client and the server through one session."""

    def __init__(
        self,
        context: SessionContext,
        protection: Protection,
        identities: Mapping[int, SigningKey],
        vector_of: Callable[[int], Integers],
        randomness: RandomSource,
        leaves: Mapping[int, str] | None = None,
    ) -> None:
        self._context = context
        self._protection = protection
        self._parties = {member: LocalParty(member, key, randomness) for member, key in identities.items()}
        self._vector_of = vector_of
        self._leaves = dict(leaves or {})
        self._states: dict[int, Any] = {}
        self._outbox: dict[int, Transition] = {}
        self._total = np.zeros(context.length, dtype=context.ring.word)
        self.measured = Measured()

    def run(self) -> SessionResult:
        """Carry the session to its end. Raises SessionAborted below a threshold."""
        for member, me in self._parties.items():
            self._work(member, partial(self._protection.client.begin, self._context, me))
        step: Any = self._protection.begin_server(self._context)
        while isinstance(step, ServerState):
            step = self._collect(step)
        return self._open(step)

    def _work(self, member: int, action: Callable[[], Transition]) -> None:
        start = time.process_time()
        transition = action()
        if isinstance(transition.state, ReadyState):
            residues = self._context.ring.encode(self._vector_of(member))
            transition = transition.state.protect(self._context, self._parties[member], residues)
        self.measured.charge(member, cpu=time.process_time() - start)
        self._states[member] = transition.state
        self._outbox[member] = transition

    def _collect(self, step: Any) -> Any:
        name = step.awaits.__name__
        start = time.perf_counter()
        for member in sorted(self._outbox):
            if self._leaves.get(member) == name:
                del self._states[member]
        for member, transition in sorted(self._outbox.items()):
            if member in self._states and member in step.expected:
                self._deliver(step, member, transition)
        following, messages = step.close()
        self.measured.server_seconds[name] = time.perf_counter() - start
        self._outbox = {}
        for member, message in messages.items():
            if member in self._states:
                self._answer(member, encode(message))
        return following

    def _deliver(self, step: Any, member: int, transition: Transition) -> None:
        data = encode(transition.outgoing)
        self.measured.charge(member, sent=len(data) + len(transition.vector or b""))
        step.accept(member, decode(step.awaits, data))
        if isinstance(transition.outgoing, UploadHeader) and transition.vector is not None:
            self._total += self._context.ring.unpack(transition.vector, self._context.length)

    def _answer(self, member: int, data: bytes) -> None:
        state = self._states[member]
        me = self._parties[member]
        self._work(member, lambda: state.advance(self._context, me, decode(state.awaits, data)))

    def _open(self, ready: SumToOpen) -> SessionResult:
        start = time.perf_counter()
        total = ready.open(self._context, self._total)
        self.measured.server_seconds["open"] = time.perf_counter() - start
        return SessionResult(total, ready.members, self.measured)
