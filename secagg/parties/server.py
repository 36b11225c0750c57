"""The server's session: protocol, transcript, uploads and deadlines brought together.

The transcript is the server's only memory of the protocol. Every accepted frame is in it before it is acknowledged,
every decision ("closed") before it is acted on, every frame that goes out before anyone can fetch it. A restart
feeds the transcript through the same protocol and goes on where it ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from secagg.crypto.signatures import SigningKey
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation, SessionAborted
from secagg.parties.protocol import ServerProtocol
from secagg.parties.result import SumResult, open_sum
from secagg.parties.setup import SessionSetup
from secagg.parties.staging import Staging, read_vector
from secagg.parties.transcripts import begin_transcript
from secagg.protection import SumToDeclare, SumToOpen
from secagg.protection.messages import Abort, Acknowledgement, Outcome, Receipt, UploadHeader
from secagg.roster import SERVER_INDEX
from secagg.transcript import (
    EVERYONE,
    NOT_SEEN,
    FrameBody,
    Journal,
    Record,
    chain,
    make_body,
    payload_of,
    peek,
    sign_frame,
)

_log = logging.getLogger("secagg.server")
Finish = Callable[[SumResult], Outcome]


class ServerSession:
    """One session, as the endpoint's coordinator. `finish` turns the opened sum into files and the outcome.

    `gone` are the names of clients that an earlier round left behind: they are not waited for.
    """

    def __init__(
        self,
        setup: SessionSetup,
        identity: SigningKey,
        folder: Path,
        journal: Journal,
        finish: Finish,
        gone: frozenset[str] = frozenset(),
    ) -> None:
        self._setup = setup
        self._identity = identity
        self._folder = folder
        self._journal = journal
        self._finish = finish
        self._gone = gone
        self._staging = Staging(folder)
        self._protocol = ServerProtocol(setup)
        self._outbox: dict[str, dict[int, bytes]] = {}
        self._disk_failure: BadInput | None = None
        self._changed = asyncio.Event()
        self._steps_seconds: dict[str, float] = {}
        begin_transcript(journal, setup)
        for record in journal.records():
            self._relive(record)

    @property
    def outcome(self) -> Outcome | None:
        """The outcome, once it is decided."""
        return self._protocol.outcome

    @property
    def steps_seconds(self) -> Mapping[str, float]:
        """How long each step took, in seconds, since this process began."""
        return self._steps_seconds

    async def run(self) -> Outcome:
        """Carry the session to its outcome and wait for the members to have it. Raises what `decide` raises."""
        outcome = await self.decide()
        _log.info(
            "the sum is opened; its members have at most %d s to fetch the outcome", self._protocol.seconds_to_wait
        )
        await self._until_complete()
        return outcome

    async def decide(self) -> Outcome:
        """Carry the session to its outcome.

        Raises SessionAborted, or BadInput when the disk fails (start again to go on).
        """
        clock = asyncio.get_running_loop().time
        while self._protocol.outcome is None:
            begun, name = clock(), self._protocol.awaits
            if self._protocol.failure is not None:
                self._abort(self._protocol.failure)
            elif sum_to_declare := self._protocol.sum_to_declare:
                name = "adding up"
                await self._declare(sum_to_declare)
            elif ready := self._protocol.sum_to_open:
                name = "opening the sum"
                await self._open_sum(ready)
            else:
                await self._until_complete()
                self._close_step()
            self._steps_seconds[name] = clock() - begun
        self._publish()
        return self._protocol.outcome

    async def submit(self, member: int, frame: bytes) -> bytes:
        """Take one frame; an Acknowledgement is answered with a receipt."""
        body = self._protocol.open(member, frame)
        if self._protocol.vectors is not None and body.step == self._protocol.awaits:
            raise MalformedMessage(body.step, "this message comes with its vector")
        self._take(member, frame, body)
        return self._receipt(member) if body.step == Acknowledgement.__name__ else b""

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Stage a vector, then take the frame that announced it; nothing answers it."""
        body = self._protocol.open(member, frame)
        if not self._protocol.is_wanted(member, frame, body):
            return b""
        name, step = self._setup.roster.name(member), self._protocol.vectors
        if step is None:
            raise MalformedMessage(body.step, "no vector goes with this message")
        header = payload_of(body, step.awaits)
        if header.length != step.vector_bytes:
            raise ProtocolViolation(name, f"announces {header.length} bytes, not {step.vector_bytes}")
        async with self._staging.receive(member, name, header.length, header.digest, parts) as part:
            # Nothing is awaited from here on: another upload or a closed step cannot come between.
            if self._protocol.is_wanted(member, frame, body):
                step.inspect(member, part.read_bytes())
                self._staging.keep(member, part)
                self._take(member, frame, body)
        return b""

    async def fetch(self, member: int, plan: bytes, step: str, patience: float) -> bytes | None:
        """The frame of `step` for `member`, as soon as it is due."""
        if plan != self._setup.context.plan:
            raise ProtocolViolation(self._setup.roster.name(member), "asks about another session or plan")
        deadline = asyncio.get_running_loop().time() + patience
        while True:
            if Abort.__name__ in self._outbox:
                return self._outbox[Abort.__name__][EVERYONE]
            if step in self._protocol.recipients:
                if member not in self._protocol.recipients[step]:
                    raise SessionAborted(f"{self._setup.roster.name(member)} answered too late for the step {step}")
                frames = self._outbox.get(step, {})
                if frame := frames.get(member) or frames.get(EVERYONE):
                    return frame
            remaining = deadline - asyncio.get_running_loop().time()
            if remaining <= 0 or not await self._change_within(remaining):
                return None

    def _take(self, member: int, frame: bytes, body: FrameBody) -> None:
        if not self._protocol.is_wanted(member, frame, body):
            return
        self._protocol.take(member, frame, body)
        self._write("received", frame)
        name = self._setup.roster.name(member)
        if body.step == Abort.__name__:
            _log.warning("%s left: %r", name, payload_of(body, Abort).reason)
        else:
            _log.info("%s from %s", body.step, name)
        upload = self._protocol.uploads.get(member)
        if body.step == UploadHeader.__name__ and isinstance(upload, UploadHeader) and (accused := upload.complaints):
            bad = ", ".join(self._setup.roster.name(dealer) for dealer in accused)
            _log.warning("%s says that these dealt it bad shares: %s", name, bad)
        self._wake()

    def _close_step(self) -> None:
        """Decide that the present step is over, and publish what follows from it."""
        step = self._protocol.awaits
        if not self._protocol.is_complete:
            _log.info("%s: going on without %s", step, ", ".join(self._protocol.waiting_for))
        self._write("closed", step.encode())
        self._protocol.close()
        self._publish()

    def _abort(self, reason: str) -> NoReturn:
        """Tell everyone that the session is over; after a restart, again."""
        self._write("aborted", reason.encode())
        if Abort.__name__ not in self._outbox:
            self._send(EVERYONE, Abort(reason[:2000]))
        self._wake()
        raise SessionAborted(reason)

    async def _declare(self, ready: SumToDeclare) -> None:
        """Add up what the members uploaded, and show the sum to the party that can open it."""

        def work() -> Any:
            for member in ready.vectors:
                name, digest = self._setup.roster.name(member), self._protocol.uploads[member].digest
                ready.add(member, read_vector(self._folder, name, member, digest))
            return ready.request(self._identity)

        self._protocol.declare(await asyncio.to_thread(work))
        self._publish()

    async def _open_sum(self, ready: SumToOpen) -> None:
        """Add up, unmask, build the head; everything here is derived from the transcript and the uploads."""

        def work() -> Outcome:
            return self._finish(open_sum(self._setup, ready, self._folder, self._protocol.uploads))

        try:
            self._protocol.conclude(await asyncio.to_thread(work))
        except SessionAborted as error:
            self._protocol.failure = error.reason
        self._publish()

    def _publish(self) -> None:
        """Sign and record every due frame that is not recorded yet: one to everyone when all say the same."""
        while self._protocol.due:
            step, messages = self._protocol.due.popitem()
            known = self._outbox.get(step, {})
            same_to_all = len(messages) > 1 and len({id(message) for message in messages.values()}) == 1
            owed = {EVERYONE: next(iter(messages.values()))} if same_to_all else messages
            for receiver, message in owed.items():
                if receiver not in known:
                    self._send(receiver, message)
        self._wake()

    def _send(self, receiver: int, message: Any) -> bytes:
        seen = self._protocol.client_heads.get(receiver, NOT_SEEN)
        body = make_body(self._setup.context.plan, SERVER_INDEX, receiver, self._journal.head, seen, message)
        frame = sign_frame(self._identity, body)
        self._write("sent", frame)
        self._keep_sent(body, frame)
        return frame

    def _keep_sent(self, body: FrameBody, frame: bytes) -> None:
        self._outbox.setdefault(body.step, {})[body.receiver] = frame
        self._protocol.sent(chain(body.head, "sent", frame))

    def _receipt(self, member: int) -> bytes:
        known = self._outbox.get(Receipt.__name__, {}).get(member)
        return known or self._send(member, Receipt())

    def _write(self, kind: Any, content: bytes) -> None:
        """Append to the transcript; when the disk refuses, this process ends: what is in memory is then ahead of it."""
        try:
            self._journal.append(kind, content)
        except BadInput as error:
            self._disk_failure = error
            self._wake()
            raise

    def _relive(self, record: Record) -> None:
        """Take in one record of the transcript."""
        if record.kind == "received":
            sender = peek(record.content).sender
            self._protocol.take(sender, record.content, self._protocol.open(sender, record.content))
        elif record.kind == "closed":
            self._protocol.close()
        elif record.kind == "aborted":
            self._protocol.failure = record.content.decode(errors="replace")
        elif record.kind == "sent":
            body = peek(record.content)
            self._keep_sent(body, record.content)
            if body.step == Outcome.__name__:
                self._protocol.conclude(payload_of(body, Outcome))
            elif (ready := self._protocol.sum_to_declare) and body.step == ready.requests.__name__:
                self._protocol.declare(payload_of(body, ready.requests))

    async def _until_complete(self) -> None:
        """Wait until the present step is complete or its time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._protocol.seconds_to_wait
        self._publish()
        while not self._protocol.is_complete and set(self._protocol.waiting_for) - self._gone:
            remaining = deadline - loop.time()
            if remaining <= 0:
                return
            await self._change_within(remaining)
            if self._disk_failure is not None:
                raise self._disk_failure

    async def _change_within(self, seconds: float) -> bool:
        event = self._changed
        try:
            await asyncio.wait_for(event.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
