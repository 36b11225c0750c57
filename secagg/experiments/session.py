"""Run one secure sum in memory, under any protection, with the real state machines and encoded messages.

Sockets, disks and the signed frames around messages are missing; the protection decides which message comes when.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.shared_work import once, shared_work, spared_seconds
from secagg.crypto.signatures import SigningKey
from secagg.encoding import Integers
from secagg.protection import Delivery, LocalParty, Protection, SessionContext, SumToDeclare
from secagg.protection.interface import ReadyState, ServerState, Transition, VectorState, WorkingState
from secagg.randomness import OperatingSystem, RandomSource
from secagg.session import RoundSetup, opening_noise_of
from secagg.wire import decode, encode, tag_of

MOST_HELD = 64 << 20
"""Most bytes of uploads kept in memory rather than in files, which cost more time for short vectors."""


@dataclass
class SessionCost:
    """The cost of a secure sum: each client's CPU seconds, over all steps, and the bytes that it sent.

    `server_seconds` are elapsed ones of the server and of all helpers, by what was collected or said.
    """

    client_cpu: dict[int, float] = field(default_factory=dict)
    client_bytes: dict[int, int] = field(default_factory=dict)
    server_seconds: dict[str, float] = field(default_factory=dict)

    def add(self, other: SessionCost) -> None:
        """Add the cost of another secure sum to this one."""
        for name, more in vars(other).items():
            own = getattr(self, name)
            for key, value in more.items():
                own[key] = own.get(key, 0) + value

    @contextmanager
    def client(self, member: int) -> Iterator[None]:
        """Measure the CPU time of a `with` block for this client."""
        begun = time.process_time() + spared_seconds()
        yield
        self.add(SessionCost({member: time.process_time() + spared_seconds() - begun}))

    @contextmanager
    def server(self, step: str) -> Iterator[None]:
        """Measure the elapsed time of a `with` block for the server or the helpers."""
        begun = time.perf_counter()
        yield
        self.add(SessionCost(server_seconds={step: time.perf_counter() - begun}))


@dataclass(frozen=True)
class _SessionResult:
    total: Integers
    members: tuple[int, ...]
    measured: SessionCost


@dataclass(eq=False)
class InMemorySession:
    """One secure sum with all its parties in memory, run to its end (`run`) or step by step.

    `parties` are the clients, the helpers and, where it signs, the server, by roster index. A client in
    `dropouts` vanishes at that step of its protection (`Protection.steps`). `noise` draws what one party that opens the
    sum adds. The `outbox` holds parties' messages on the way to the server, the `inbox` those on the way to parties;
    `uploads` are the bytes that they announce.
    """

    context: SessionContext
    protection: Protection
    parties: dict[int, LocalParty]
    vector_of: Callable[[int], Integers]
    dropouts: Mapping[int, str] = field(default_factory=dict)
    noise: Callable[[], Integers] | None = None

    def __post_init__(self) -> None:
        self.parties = {index: replace(me, upload=partial(self._upload, index)) for index, me in self.parties.items()}
        self.states: dict[int, Any] = {}
        self.outbox: dict[int, Any] = {}
        self.inbox: dict[int, Any] = {}
        self.uploads: dict[int, bytes] | _Uploads = {}
        self.measured = SessionCost()
        self.server: Any = None
        self._shown: tuple[Any, bytes] = (None, b"")

    def run(self) -> _SessionResult:
        """Run the protocol to its end. Raises SessionAborted if too few clients are left, or nothing may be opened.

        What is uploaded waits in files where it is much, as at a server: memory is that of a few vectors. What several
        parties compute of the same is computed once, and counts for each of them.
        """
        with ExitStack() as folder, shared_work():
            self.uploads = _Uploads(folder)
            self.begin()
            self.play()
            with self.measured.server("open"):
                total = self.open_sum()
        return _SessionResult(total, self.server.members, self.measured)

    def begin(self) -> None:
        """Start the server, and have every other party take its first step."""
        self.server = self.protection.begin_server(self.context)
        for index, me in self.parties.items():
            script = self.protection.client if self._is_client(index) else self.protection.helper
            if index != SERVER_INDEX and script is not None:
                self._act(index, partial(script.begin, self.context, me))

    def play(self) -> None:
        """Run the protocol from the current step until the sum can be opened."""
        while isinstance(self.server, ServerState):
            self.hear()
            self.close()
            self.answer()

    def hear(self, *without: int) -> None:
        """Deliver pending messages to the server; clients that drop out at this step leave first."""
        for index, message in list(self.outbox.items()):
            if self._drops_out_at(index, type(message)):
                self.leave(index)
        said, self.outbox = self.outbox, {}
        with self.measured.server(tag_of(self.server.awaits)):
            for index, message in sorted(said.items()):
                if index in self.server.expected and index not in without:
                    self.deliver(index, message)

    def deliver(self, index: int, message: Any) -> None:
        """Deliver a party's message to the server, with the upload that it announces."""
        data = encode(message)
        self._charge(index, len(data))
        self.server.accept(index, decode(self.server.awaits, data))
        if isinstance(self.server, VectorState):
            self._charge(index, self.server.vector_bytes(index))
            self.server.inspect(index, self.uploads[index])

    def close(self) -> None:
        """Close the server's step; where another party then opens the sum, also add up the uploads and sign the sum."""
        with self.measured.server(tag_of(self.server.awaits)):
            following, messages = self.server.close()
            if isinstance(following, SumToDeclare):
                for member in following.vectors:
                    following.add(member, self.uploads[member])
                following, messages = following.requested(following.request(self.parties[SERVER_INDEX].identity))
        self.server, self.inbox = following, dict(messages)

    def answer(self, *without: int) -> None:
        """Deliver the server's messages to clients, then to helpers; the helpers then stop collecting uploads."""
        shown, self.inbox = self.inbox, {}
        for index, message in sorted(shown.items()):
            state = self.states.get(index)
            awaited = getattr(state, "awaits", getattr(state, "opened_by", None))
            if type(message) is awaited and index not in without:
                self.show(index, message)

    def show(self, index: int, message: Any) -> None:
        """Deliver the server's message to a party. Raises the errors of that party's step."""
        state, me = self.states[index], self.parties[index]
        if self._shown[0] is not message:
            self._shown = message, encode(message)
        data = self._shown[1]
        if isinstance(state, WorkingState):
            self._work(index)
        else:
            message = once((state.awaits, data), lambda: decode(state.awaits, data))
            self._act(index, lambda: state.advance(self.context, me, message))

    def leave(self, member: int) -> None:
        """Remove a client that drops out."""
        for each in (self.states, self.outbox, self.inbox):
            each.pop(member, None)

    def open_sum(self) -> Integers:
        """Open the sum, adding the server's own noise where the plan asks for it."""
        ring, length = self.context.ring, self.context.length
        total = np.zeros(length, dtype=ring.word)
        for index in self.server.vectors:
            total += ring.unpack(self.uploads[index][: self.context.packed_bytes], length)
        opened: Integers = self.server.open(self.context, total)
        return opened if self.noise is None or self.context.helpers else opened + self.noise()

    def _upload(self, index: int) -> bytes:
        return self.uploads[index]

    def _is_client(self, index: int) -> bool:
        return index in self.context.identities

    def _drops_out_at(self, index: int, step: type) -> bool:
        return self.dropouts.get(index) == tag_of(step)

    def _charge(self, index: int, size: int) -> None:
        if self._is_client(index):
            self.measured.add(SessionCost(client_bytes={index: size}))

    def _act(self, index: int, action: Callable[[], Transition]) -> None:
        """Take a party's step, measure its time, and queue its message for the server.

        A client protects its vector as soon as it can, if it is not about to leave; a helper does work that waits
        for no message.
        """
        with self.measured.client(index) if self._is_client(index) else self.measured.server(f"second party {index}"):
            transition = action()
            ready = transition.state
            if isinstance(ready, ReadyState) and not self._drops_out_at(index, self.protection.client.announcement):
                vector = self.context.ring.encode(self.vector_of(index))
                transition = ready.protect(self.context, self.parties[index], vector)
        self.states[index] = transition.state
        if transition.vector is not None:
            self.uploads[index] = transition.vector
        if transition.outgoing is not None:
            parts = self.protection.deliveries(self.context)
            is_upload = self._is_client(index) and isinstance(transition.outgoing, self.protection.client.announcement)
            if not is_upload or parts[0].receiver == SERVER_INDEX:
                self.outbox[index] = transition.outgoing
            elif not all(self._hand_over(index, transition.outgoing, part) for part in parts):
                self.leave(index)
        if isinstance(transition.state, WorkingState) and transition.state.opened_by is None:
            self._work(index)

    def _work(self, index: int) -> None:
        state, me = self.states[index], self.parties[index]
        parts = {part.receiver: part for part in self.protection.deliveries(self.context)}
        self._act(
            index, lambda: state.work(self.context, me, lambda client: self._part(client, parts[index]), self.noise)
        )

    def _hand_over(self, member: int, message: Any, part: Delivery) -> bool:
        """Give a helper a client's part and the client its receipt; return False if the client then drops out."""
        me, data = self.parties[part.receiver], encode(message)
        self._charge(member, len(data) + part.size)
        with self.measured.server(tag_of(type(message))):
            taking = self.states[part.receiver]
            taking = taking.accept(self.context, me, decode(type(message), data), self._part(member, part))
            receipt = taking.receipt(self.context, me, member)
        self.states[part.receiver] = taking
        with self.measured.client(member):
            self.states[member].check_receipt(self.context, decode(type(receipt), encode(receipt)))
        return not self._drops_out_at(member, type(receipt))

    def _part(self, member: int, part: Delivery) -> bytes:
        return self.uploads[member][part.start : part.start + part.size]


def run_session(
    setup: RoundSetup,
    identities: Mapping[int, SigningKey],
    vector_of: Callable[[int], Integers],
    dropouts: Mapping[int, str],
    noise: RandomSource | None = None,
) -> _SessionResult:
    """Run a secure sum; `dropouts` maps each client that drops out to the step at which it leaves.

    The party that opens the sum draws its noise from `noise`, by default the operating system; so do clients their keys
    and seeds where part of their noise follows from seeds. `identities` are those of all parties by their index in the
    roster. Raises SessionAborted when too few are left.
    """
    context = setup.context
    source = noise if noise is not None and context.removable else OperatingSystem()
    indices = (SERVER_INDEX, *context.clients, *context.helpers)
    parties = {index: LocalParty(index, identities[index], source) for index in indices}
    opening = opening_noise_of(setup, noise or source)
    return InMemorySession(context, setup.protection, parties, vector_of, dropouts, opening).run()


class _Uploads:
    """Storage of uploads by party: `MOST_HELD` bytes in memory, the others in files that `closing` deletes."""

    def __init__(self, closing: ExitStack) -> None:
        self._closing = closing
        self._held: dict[int, bytes] = {}
        self._room = MOST_HELD

    def __setitem__(self, index: int, content: bytes) -> None:
        self._room += len(self._held.pop(index, b"")) - len(content)
        if self._room >= 0:
            self._held[index] = content
            return
        self._room += len(content)
        (self._folder / str(index)).write_bytes(content)

    def __getitem__(self, index: int) -> bytes:
        return self._held[index] if index in self._held else (self._folder / str(index)).read_bytes()

    @cached_property
    def _folder(self) -> Path:
        return Path(self._closing.enter_context(TemporaryDirectory()))
