"""One client's session: state machine, transcript, memory and connection brought together.

The order at every step is: the server's frame is in the transcript; the next state and the frame that answers are
remembered (the protected vector before them); the answer is in the transcript; then, and only then, it leaves. A
restart therefore sends the same bytes again, and never others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from secagg.encoding import Integers
from secagg.errors import MalformedMessage, ProtocolViolation, SecaggError, ServerAway, SessionAborted
from secagg.parties.memory import Memory, write_synced
from secagg.parties.result import check_outcome
from secagg.parties.setup import SessionSetup
from secagg.protection import LocalParty
from secagg.protection.messages import Abort, Acknowledgement, Outcome, Receipt, UploadHeader
from secagg.protection.seam import ReadyState, Transition
from secagg.roster import SERVER_INDEX
from secagg.transcript import NOT_SEEN, FrameBody, Journal, chain, make_body, open_frame, payload_of, peek, sign_frame

VECTOR_FILE = "protected.bin"
_GRACE_SECONDS = 60.0


class Connection(Protocol):
    """What the session needs of a connection (`transport.Link` has it)."""

    async def submit(self, frame: bytes) -> bytes:
        """Send a frame; return the frame that answers it, or nothing."""
        ...

    async def upload(self, frame: bytes, vector: Path) -> None:
        """Send a frame and the file that it announces."""
        ...

    async def fetch(self, plan: bytes, step: str, seconds: float) -> bytes:
        """Wait for the server's frame of one step."""
        ...


@dataclass(frozen=True)
class ClientHooks:
    """What the session asks of its surroundings.

    `vector` computes the flat vector when it is needed; `before_upload` runs when its bytes are fixed and before the
    first of them leaves; `progress` is told what happens.
    """

    vector: Callable[[], Integers]
    before_upload: Callable[[], None]
    progress: Callable[[str], None]


class ClientSession:
    """Drives one client through one session; safe to run again after a crash at any point."""

    def __init__(self, setup: SessionSetup, me: LocalParty, folder: Path, journal: Journal, hooks: ClientHooks) -> None:
        self._setup = setup
        self._context = setup.context
        self._me = me
        self._vector_file = folder / VECTOR_FILE
        self._journal = journal
        self._hooks = hooks
        self._memory = Memory(folder, setup.protection.client_states, me.randomness)
        self._server_head = NOT_SEEN
        self._outcome: Outcome | None = None
        self._acknowledgement = b""
        self._is_received = False
        self._has_sent = False
        for record in journal.records():
            self._relive(record.kind, record.content)

    @property
    def outcome(self) -> Outcome | None:
        """The outcome, once the transcript holds it."""
        return self._outcome

    async def run(self, connection: Connection) -> Outcome:
        """Carry the session to its outcome.

        Raises SessionAborted when it ends without one (for ever), ServerAway when it may go on later.
        """
        try:
            outcome = self._outcome or await self._steps(connection)
            if self._me.member not in outcome.members:
                raise ProtocolViolation("server", "the outcome leaves this client out")
            check_outcome(self._setup, outcome)
            self._forget()
            await self._acknowledge(connection, outcome)
            return outcome
        except ServerAway:
            raise
        except (ProtocolViolation, MalformedMessage) as error:
            await self._leave(connection, error)
            raise SessionAborted(f"this client leaves: {error}") from None
        except SessionAborted as error:
            self._end(error)
            raise

    async def _steps(self, connection: Connection) -> Outcome:
        recalled = self._memory.recall()
        if recalled is None and self._has_sent:
            raise SessionAborted("what this client remembered of the session is lost; it has dropped out")
        state, frame = recalled or self._keep(self._setup.protection.begin_client(self._context, self._me))
        while True:
            if frame:
                self._journal.append("sent", frame)
                await self._send(connection, frame)
            incoming = await self._receive(connection, state.awaits)
            transition = state.advance(self._context, self._me, incoming)
            if self._outcome is not None:
                return self._outcome
            state, frame = self._keep(transition)

    def _keep(self, transition: Transition) -> tuple[Any, bytes]:
        """Remember the next state and the frame that leaves from it; the protected vector first."""
        if isinstance(transition.state, ReadyState):
            self._hooks.progress("protecting the statistics")
            residues = self._context.ring.encode(self._hooks.vector())
            transition = transition.state.protect(self._context, self._me, residues)
        if transition.vector is not None:
            write_synced(self._vector_file, transition.vector)
            self._hooks.before_upload()
        frame = self._sign(transition.outgoing) if transition.outgoing is not None else b""
        self._memory.keep(transition.state, frame)
        return transition.state, frame

    def _sign(self, payload: Any) -> bytes:
        heads = (self._journal.head, self._server_head)
        return sign_frame(
            self._me.identity, make_body(self._context.plan, self._me.member, SERVER_INDEX, *heads, payload)
        )

    async def _send(self, connection: Connection, frame: bytes) -> None:
        if peek(frame).step != UploadHeader.__name__:
            await connection.submit(frame)
            return
        self._hooks.progress("uploading")
        if not self._vector_file.exists():
            raise SessionAborted("the protected vector is lost and no other is ever made; this client has dropped out")
        await connection.upload(frame, self._vector_file)

    async def _receive(self, connection: Connection, expected: type) -> Any:
        plan = self._setup.plan
        self._hooks.progress(f"waiting for the server's {expected.__name__}")
        seconds = plan.join_seconds + 2 * plan.step_seconds + _GRACE_SECONDS
        data = await connection.fetch(self._context.plan, expected.__name__, seconds)
        body = self._open_servers(data)
        if body.step != Abort.__name__:
            payload_of(body, expected)
        self._journal.append("received", data)
        self._relive("received", data)
        return payload_of(body, expected)

    def _relive(self, kind: str, content: bytes) -> None:
        """Take in what the transcript holds. Raises SessionAborted when it holds the session's end."""
        if kind == "aborted":
            raise SessionAborted(content.decode(errors="replace"))
        if kind == "sent":
            self._has_sent = True
            if self._open_own(content).step == Acknowledgement.__name__:
                self._acknowledgement = content
        if kind == "received":
            body = self._open_servers(content)
            self._server_head = chain(body.head, "sent", content)
            if body.step == Outcome.__name__:
                self._outcome = payload_of(body, Outcome)
            if body.step == Receipt.__name__:
                self._is_received = True
            if body.step == Abort.__name__:
                raise SessionAborted(payload_of(body, Abort).reason)

    async def _acknowledge(self, connection: Connection, outcome: Outcome) -> None:
        """Countersign the server's transcript and have one's own countersigned."""
        if self._is_received:
            return
        if not self._acknowledgement:
            self._acknowledgement = self._sign(Acknowledgement(outcome.aggregate_sha256))
            self._journal.append("sent", self._acknowledgement)
        expected_head = self._journal.head
        try:
            receipt = await connection.submit(self._acknowledgement)
        except SessionAborted as error:
            self._hooks.progress(f"the outcome is complete, but the server has not countersigned it: {error.reason}")
            return
        body = self._open_servers(receipt)
        payload_of(body, Receipt)
        if body.seen != expected_head:
            raise ProtocolViolation(
                self._setup.roster.name(SERVER_INDEX), "countersigned another transcript than this one"
            )
        self._journal.append("received", receipt)
        self._is_received = True

    async def _leave(self, connection: Connection, error: SecaggError) -> None:
        """Say why, if the server still listens, and never come back to this session."""
        self._end(error)
        with contextlib.suppress(SecaggError):
            frame = self._sign(Abort(str(error)[:2000]))
            self._journal.append("sent", frame)
            await connection.submit(frame)

    def _end(self, error: SecaggError) -> None:
        self._journal.append("aborted", str(error).encode())
        self._forget()

    def _forget(self) -> None:
        self._memory.erase()
        self._vector_file.unlink(missing_ok=True)

    def _open_servers(self, data: bytes) -> FrameBody:
        return open_frame(data, self._setup.roster, self._context.plan, SERVER_INDEX, self._me.member)

    def _open_own(self, frame: bytes) -> FrameBody:
        return open_frame(frame, self._setup.roster, self._context.plan, self._me.member, SERVER_INDEX)
