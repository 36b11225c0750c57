"""The server's side of one session: protocol state, transcript, uploads and deadlines.

The transcript is the server's only memory of the protocol. Every accepted frame is in it before it is acknowledged,
every decision ("closed") before it is acted on, every frame that goes out before anyone can fetch it. A restart
feeds the transcript through the same protocol and goes on where it ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.signatures import SigningKey
from secagg.errors import (
    BadInput,
    MalformedMessage,
    NotConfirmed,
    NotNow,
    OtherPlan,
    ProtocolViolation,
    SessionAborted,
)
from secagg.protection import SumToDeclare, SumToOpen
from secagg.protection.draw import Draw, Drawn
from secagg.protection.messages import (
    Abort,
    Acknowledgement,
    Confirmation,
    Decline,
    Outcome,
    Receipt,
    Return,
    Taken,
    UploadHeader,
)
from secagg.session.attachments import OPENING_FILE
from secagg.session.deadline import LOOK_SECONDS, REMIND_SECONDS, Deadline, forget_closing
from secagg.session.outcome import HEAD_FILE, SumResult, open_sum, write_result
from secagg.session.release import release_files
from secagg.session.round_setup import RoundSetup
from secagg.session.rounds import outcome_of_draw, show_return
from secagg.session.server_protocol import ServerProtocol
from secagg.session.staging import Staging, read_vector
from secagg.session.status import SessionStatus
from secagg.session.transcripts import begin_transcript
from secagg.transcript import EVERYONE, NOT_SEEN, FrameBody, Journal, chain, make_body, payload_of, peek, sign_frame
from secagg.wire import tag_of

_SHORT = 1 << 13
"""The longest frame, in bytes, that is checked on the event loop; longer ones hold many signatures."""
_NAMED = 8
"""The most awaited parties that one line of the log names."""


class ServerSession:
    """One session at the server, with the methods that answer members' calls from the network.

    `dropped_out` are clients that an earlier round left behind: the session does not wait for those that are in it.
    `disk_failures` is one list for all sessions of a process: where the disk refuses a record of one, all of them end.
    Methods that change the protocol, or read several values of it, take turns: a thread checks long messages.
    """

    def __init__(
        self,
        setup: RoundSetup,
        identity: SigningKey,
        folder: Path,
        journal: Journal,
        dropped_out: AbstractSet[int] = frozenset(),
        disk_failures: list[BadInput] | None = None,
    ) -> None:
        self._setup = setup
        self._identity = identity
        self._folder = folder
        self._journal = journal
        self._dropped_out = dropped_out
        self._staging = Staging(folder)
        self._protocol = ServerProtocol(setup)
        self._outbox = _Outbox(setup, identity, journal, self._protocol, self._write)
        self._log = _StepLog(setup, self._protocol)
        self._deadline: Deadline | None = None
        self._disk_failures = [] if disk_failures is None else disk_failures
        self._changed, self._published = asyncio.Event(), asyncio.Event()
        self._is_over = False
        self._turn = asyncio.Lock()
        self._told: set[int] = set()
        self._confirmed: set[int] = set()
        self._calls: dict[int, str] = {}
        self.steps_seconds: dict[str, float] = {}
        """Seconds that each step took since this process began, by the step's name."""
        self.doubts: tuple[str, ...] = ()
        """Traits of the sum, opened by this process, that no honest sum has, in words."""
        begin_transcript(journal, setup)
        for record in journal.records():
            if record.kind == "sent":
                self._outbox.keep(record.content)
            self._protocol.replay(record)

    @property
    def outcome(self) -> Outcome | None:
        """The server's `Outcome` message; None before it is decided."""
        return self._protocol.outcome

    @property
    def draw(self) -> Draw | None:
        """The random draw of all rounds' clients, once this session has made it; None in a session with a sum."""
        ready = self._protocol.sum_to_open
        return ready.draw if isinstance(ready, Drawn) else None

    @property
    def declined(self) -> tuple[str, ...]:
        """Names of the clients that have declined the round and sent nothing since."""
        return self._protocol.declined

    @property
    def acknowledgements(self) -> Mapping[int, bytes]:
        """Signed messages of the parties that have checked and acknowledged the outcome, by roster index."""
        return self._protocol.acknowledgements

    async def status(self) -> SessionStatus:
        """Return the present step, who is waited for, and until when; it takes its turn."""
        async with self._turn:
            return SessionStatus.of(self._folder, self._setup, self._protocol)

    def show_return(self, before: ServerSession, client: int) -> Return | None:
        """Build the message (`Return`) that lets an absent client join this session; None if it is too late for it.

        None too if too few others have signed the end of the session before, or the client is not drawn.
        `before` is the session before.
        """
        if self._outbox.frame_with(Abort, EVERYONE) is not None or not self._protocol.is_joining:
            return None
        return show_return(self._setup, before.acknowledgements, client)

    async def run(self) -> Outcome:
        """Run the session to its outcome, and wait until enough members have confirmed it.

        In the last round also until they have fetched that; in others they fetch it beside the next round.
        Raises SessionAborted, BadInput (disk), or NotConfirmed where too few have acknowledged the outcome in time.
        """
        outcome = await self.decide()
        if self._setup.is_last:
            self._log.info(
                "the sum is opened and written; up to %d s for its members to fetch the outcome "
                "(stopping is safe: started again, the server goes on with it)",
                self._protocol.seconds_to_wait,
            )
        await self._until_complete()
        if not (self._protocol.is_confirmed and self._setup.is_last):
            forget_closing(self._folder)
        if not self._protocol.is_confirmed:
            raise NotConfirmed(self._protocol.could_confirm, *self._protocol.confirmations, self._setup.number)
        return outcome

    async def decide(self) -> Outcome:
        """Run the session to its outcome, and publish that. Raises SessionAborted, or BadInput (disk)."""
        outcome = await self.find_outcome()
        await self.announce(outcome)
        return outcome

    async def announce(self, outcome: Outcome) -> None:
        """Publish the outcome, so that the members can fetch it."""
        async with self._turn:
            if self._protocol.outcome is None:
                self._protocol.conclude(outcome)
            self._publish()

    async def find_outcome(self) -> Outcome:
        """Run the session's steps to its outcome, and write its files. Raises SessionAborted, or BadInput (disk)."""
        clock, outcome = asyncio.get_running_loop().time, self._protocol.outcome
        while outcome is None:
            begun, name = clock(), self._protocol.awaits
            if self._protocol.failure is not None:
                async with self._turn:
                    self._abort(self._protocol.failure)
            elif sum_to_declare := self._protocol.sum_to_declare:
                name = "adding up"
                await self._declare(sum_to_declare)
            elif isinstance(ready := self._protocol.sum_to_open, Drawn):
                name, outcome = "drawing", outcome_of_draw(ready.members, ready.seed)
            elif ready is not None:
                name, outcome = "opening the sum", await self._open_sum(ready)
            else:
                await self._until_complete()
                async with self._turn:
                    if self._protocol.failure is None:
                        self._close_step()
            self.steps_seconds[name] = clock() - begun
        return outcome

    async def farewell(self, seconds: float) -> None:
        """Wait until every party has fetched the server's abort message, for at most `seconds`."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        while (remaining := deadline - clock()) > 0:
            async with self._turn:
                changed = self._changed
                if self._protocol.present <= self._told:
                    return
            await self._change_within(changed, remaining)

    def go_on(self) -> str:
        """End the present wait now; return who is gone on without. Raises BadInput where too few have answered."""
        deadline, protocol, absent = self._waiting(), self._protocol, self._awaited("") or "nobody"
        answered = ", ".join(protocol.answered) or "nobody"
        remedy = "wait for more of them, extend the wait or cancel the session"
        if protocol.outcome is not None and not protocol.is_confirmed:
            raise BadInput(f"too few have confirmed the outcome: {answered}", remedy="wait, or extend the wait")
        if protocol.is_short:
            raise BadInput(f"too few have answered {protocol.step_in_words} for a sum: {answered}", remedy=remedy)
        deadline.close_now()
        self._log.warning("the operator goes on without %s", absent)
        self._wake()
        return f"goes on without {absent}"

    def extend(self, seconds: int) -> str:
        """Add `seconds` to the present wait; return how long it is now. Raises BadInput for more than `MOST_ADDED`."""
        left = self._waiting().add(seconds)
        self._log.warning("the operator extends the wait by %d s: %.0f s left", seconds, left)
        return f"{left:.0f} s left"

    async def cancel(self) -> str:
        """End the session by a signed abort to everybody; return its reason. Raises BadInput once a sum is opened."""
        async with self._turn:
            if self._protocol.failure is not None or not (reason := self._protocol.cancellation):
                raise BadInput("the session cannot be cancelled any more", remedy="see secagg status")
            self._log.warning("cancelled by the operator")
            self._protocol.abort(reason)
            self._wake()
            return reason

    def _waiting(self) -> Deadline:
        if self._deadline is None:
            raise BadInput("the server waits for nobody at present", remedy="see secagg status, and try again")
        return self._deadline

    def note_call(self, member: int) -> None:
        """Record that a member is connected in this step, as it has called about a session of the plan."""
        self._calls[member] = self._protocol.awaits

    async def submit(self, member: int, frame: bytes) -> bytes:
        """Process a signed message, even if the caller hangs up; return the signed answer, or no bytes.

        A Receipt answers an Acknowledgement, Taken what the protection signs for (`Acceptance`).
        """
        return await asyncio.shield(self._submit(member, frame))

    async def _submit(self, member: int, frame: bytes) -> bytes:
        async with self._turn:
            body = self._protocol.open(member, frame)
            if self._protocol.vectors is not None and body.step == self._protocol.awaits:
                raise MalformedMessage(body.step, "this message comes with its vector")
            if self._protocol.is_wanted(member, frame, body):
                if len(frame) > _SHORT:
                    await asyncio.to_thread(self._protocol.take, member, frame, body)
                else:
                    self._protocol.take(member, frame, body)
                self._record(member, frame, body)
                self._publish()
            if body.step != tag_of(Acknowledgement):
                return self._sign_taken(member, frame)
            return self._outbox.frame_with(Receipt, member) or self._outbox.send(member, Receipt())

    def _sign_taken(self, member: int, frame: bytes) -> bytes:
        """Return the signed acceptance of a message, the same at each call; no bytes for one that was not accepted."""
        self.require_disk()
        taken = Taken(hashlib.sha256(frame).digest())
        if not self._protocol.is_acceptance(member, taken):
            return b""
        return self._outbox.frame_with(Taken, member) or self._outbox.send(member, taken)

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Store an uploaded vector, then process the message that announced it; return what `submit` does.

        Raises NotNow for a slow upload.
        """
        body = self._protocol.open(member, frame)
        if not self._protocol.is_wanted(member, frame, body):
            async with self._turn:
                return self._sign_taken(member, frame)
        name, step = self._setup.roster.name(member), self._protocol.vectors
        if step is None:
            raise MalformedMessage(body.step, "no vector goes with this message")
        header = payload_of(body, step.awaits)
        if header.length != (size := step.vector_bytes(member)):
            raise ProtocolViolation(member, f"announces {header.length} bytes, not {size}")
        async with self._staging.receive(member, name, header.length, header.digest, parts) as part:
            await asyncio.to_thread(lambda: step.inspect(member, part.read_bytes()))
            async with self._turn:  # another upload or a closed step cannot come between
                if self._protocol.is_wanted(member, frame, body):
                    self._staging.keep(member, part)
                    self._protocol.take(member, frame, body)
                    self._record(member, frame, body)
                return self._sign_taken(member, frame)

    async def fetch(self, member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
        """Return the message of `step` for `member` once there is one, or the abort; None after `patience` seconds."""
        if round_digest != self._setup.context.round_digest:
            raise OtherPlan(self._setup.plan.digest, round_digest)
        deadline = asyncio.get_running_loop().time() + patience
        while True:
            published = self._published
            if abort := self._outbox.frame_with(Abort, EVERYONE):
                self._told.add(member)
                self._wake()
                return abort
            if step in self._protocol.recipients:
                if member not in self._protocol.recipients[step]:
                    return await self._leave_out(member, step)
                if frame := self._outbox.frame_for(member, step):
                    if step == tag_of(Confirmation):
                        self._confirmed.add(member)
                        self._wake()
                    return frame
            remaining = deadline - asyncio.get_running_loop().time()
            if self._is_over or remaining <= 0 or not await self._change_within(published, remaining):
                return None

    def end_calls(self) -> None:
        """Answer all calls that wait for a message: there is none to come from this process."""
        self._is_over = True
        self._wake_callers()

    def read(self, member: int, digest: bytes) -> Path:
        """Return the path of a file that the outcome names to this member, or of the broadcast that began the round.

        Raises ProtocolViolation for anything else, NotNow for what is not kept any more.
        """
        opening, outcome = self._setup.opening, self._protocol.outcome
        files = {} if opening is None else {opening.broadcast.digest: OPENING_FILE}
        if outcome is not None and member in self._protocol.recipients.get(tag_of(Outcome), ()):
            files |= {each.digest: HEAD_FILE for each in outcome.head}
            paths = release_files(self._folder, outcome.release)
            files |= {each.digest: path.name for each, path in zip(outcome.release, paths, strict=True)}
        if digest not in files:
            raise ProtocolViolation(member, "asks for bytes that this session has not named to it")
        path = self._folder / files[digest]
        if not path.exists():
            raise NotNow(f"{path.name} of this session is not kept any more")
        return path

    async def _leave_out(self, member: int, step: str) -> bytes:
        """Return the signed abort for one client that answered too late, the same at each call."""
        name = self._setup.roster.name(member)
        if not self._protocol.is_left_out(member):
            raise ProtocolViolation(member, f"asks for the {step}, which is for others")
        async with self._turn:
            late = Abort(f"{name} answered too late for the step {step}")
            return self._outbox.frame_with(Abort, member) or self._outbox.send(member, late)

    def _record(self, member: int, frame: bytes, body: FrameBody) -> None:
        self._write("received", frame)
        name = self._setup.roster.name(member)
        if body.step == tag_of(Abort):
            self._log.warning("%s left: %r", name, payload_of(body, Abort).reason)
        elif body.step == tag_of(Decline):
            reason = payload_of(body, Decline).reason
            self._log.warning("%s declined: %s%s", name, reason or "no reason given", self._awaited("; waiting for "))
        else:
            self._log.info("%s from %s%s", body.step, name, self._awaited("; waiting for "))
        upload = self._protocol.uploads.get(member)
        if body.step == tag_of(UploadHeader) and isinstance(upload, UploadHeader) and (accused := upload.complaints):
            bad = ", ".join(self._setup.roster.name(dealer) for dealer in accused)
            self._log.warning("%s says that these dealt it bad shares: %s", name, bad)
        self._wake()

    def _close_step(self) -> None:
        step = self._protocol.awaits
        if not self._protocol.is_complete:
            self._log.info("%s: going on without %s", step, ", ".join(self._protocol.waiting_for))
        self._write("closed", step.encode())
        self._protocol.close()
        self._staging.end_all()
        self._publish()

    def _abort(self, reason: str) -> NoReturn:
        """Record the abort, and publish it to everyone. Raises SessionAborted."""
        self._write("aborted", reason.encode())
        if self._outbox.frame_with(Abort, EVERYONE) is None:
            self._outbox.send(EVERYONE, Abort(reason[:2000]))
        self._wake_callers()
        raise SessionAborted(reason, remedy=self._setup.remedy)

    async def _declare(self, ready: SumToDeclare) -> None:
        """Add up the members' vectors, and make the sum due to the party that can open it."""

        def work() -> Any:
            for member in ready.vectors:
                name, digest = self._setup.roster.name(member), self._protocol.uploads[member].digest
                ready.add(member, read_vector(self._folder, name, member, digest))
            return ready.request(self._identity)

        request = await asyncio.to_thread(work)
        async with self._turn:
            self._protocol.declare(request)
            self._publish()

    async def _open_sum(self, ready: SumToOpen) -> Outcome | None:
        """Open the sum and build the head from transcript and uploads; None, with `failure` set, if it aborts."""
        announced = self._protocol.uploads, self._protocol.upload_frames
        try:
            result = await asyncio.to_thread(open_sum, self._setup, ready, self._folder, *announced)
            self._protocol.sum_to_open = None  # it may hold a whole sum, and a plan has many rounds
        except SessionAborted as error:
            self._protocol.failure = error.reason
            return None
        self.doubts = result.doubts
        return await asyncio.to_thread(self.write, result)

    def write(self, result: SumResult) -> Outcome:
        """Write the files of an opened sum; return the Outcome that names them."""
        return write_result(self._setup, result, self._folder)

    def _publish(self) -> None:
        """Sign and record all due frames, and wake the calls that wait for them."""
        if self._protocol.due:
            self._outbox.publish()
            self._wake_callers()

    def _write(self, kind: Any, content: bytes) -> None:
        """Append to the transcript. If the disk refuses, the session ends: its memory is ahead of the transcript."""
        self.require_disk()
        try:
            self._journal.append(kind, content)
        except BadInput as error:
            self._disk_failures.append(error)
            self._wake()
            raise

    def require_disk(self) -> None:
        """Raise BadInput once the disk has refused a record: what memory holds since then was never accepted."""
        for error in self._disk_failures:
            raise BadInput(error.problem, remedy=error.remedy)  # anew, as each raising adds to an error's traceback

    async def _until_complete(self) -> None:
        """Wait until the present step is complete or its time is over.

        A step that is extended waits for too few to be enough, then for the connected members alone.
        """
        try:
            await self._wait()
        finally:
            self._deadline = None

    async def _wait(self) -> None:
        protocol = self._protocol
        async with self._turn:
            self._publish()
            clock, slack = asyncio.get_running_loop().time, self._setup.plan.step_seconds
            deadline = Deadline(self._folder, protocol.awaits, protocol.seconds_to_wait, slack, clock)
        self._deadline, shown_by, remind_at = deadline, None, clock()
        while True:
            if clock() >= remind_at:
                remind_at = clock() + REMIND_SECONDS
                if said := self._awaited("of "):
                    self._log.info("waiting for the %s %s: %.0f s left", protocol.awaits, said, deadline.left())
            async with self._turn:
                changed = self._changed
                if protocol.failure is not None:
                    return
                if protocol.is_confirmed and not self._setup.is_last:
                    return
                awaited = protocol.awaited - self._dropped_out
                if deadline.is_extended and not protocol.is_short:
                    awaited &= self._connected
                if protocol.is_complete or not awaited:
                    shown_by = shown_by or clock() + slack  # whoever fetched it in an earlier life does not come again
                    if self._is_confirmation_shown or clock() >= shown_by:
                        return
            if (left := deadline.left(self._staging.longest_wait)) <= 0:
                if self._extend(deadline):
                    continue
                return
            await self._change_within(changed, min(left, LOOK_SECONDS))
            self.require_disk()

    @property
    def _is_confirmation_shown(self) -> bool:
        """Whether all who acknowledged the outcome and have not left have its Confirmation, if there is one."""
        acknowledged = self._protocol.acknowledgements.keys() & self._protocol.present
        return acknowledged <= self._confirmed or not self._protocol.is_confirmed

    def _extend(self, deadline: Deadline) -> bool:
        """Extend a step's time once, if too few have answered it while other members of it are connected."""
        late = [name for name in self._protocol.waiting_for if self._setup.roster.index(name) in self._connected]
        if not late or not self._protocol.is_short or not deadline.extend():
            return False
        step, seconds = self._protocol.awaits, self._protocol.seconds_to_wait
        named = ", ".join(late[:_NAMED])
        self._log.warning(
            "%s: too few have answered, but these are connected: %s; extended once, by %d s", step, named, seconds
        )
        return True

    @property
    def _connected(self) -> set[int]:
        """The members that have called since the present step began."""
        return {member for member, step in self._calls.items() if step == self._protocol.awaits}

    def _awaited(self, before: str) -> str:
        """Return `before` and the first names of those that may still answer the step; empty if none may."""
        awaited = sorted(self._protocol.awaited)
        names = ", ".join(map(self._setup.roster.name, awaited[:_NAMED]))
        more = f" and {len(awaited) - _NAMED} more" if len(awaited) > _NAMED else ""
        return f"{before}{names}{more}" if names else ""

    async def _change_within(self, changed: asyncio.Event, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):  # wait_for of Python 3.11 may lose a cancellation
                await changed.wait()
        except TimeoutError:
            return False
        return True

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _wake_callers(self) -> None:
        """Wake the calls that wait for a frame: all of them at once, so only when there is one."""
        self._wake()
        self._published.set()
        self._published = asyncio.Event()


class _StepLog(logging.LoggerAdapter[logging.Logger]):
    """The server's log of one session; each line begins with plan, round and step, and has both as fields."""

    def __init__(self, setup: RoundSetup, protocol: ServerProtocol) -> None:
        super().__init__(logging.getLogger("secagg.server"))
        self._setup, self._protocol = setup, protocol

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        kwargs["extra"] = {"round": self._setup.number, "step": self._protocol.awaits}
        return f"{self._setup.label}, {self._protocol.step_in_words}: {msg}", kwargs


@dataclass
class _Outbox:
    """The frames that the server has sent. `write` appends a record to the transcript.

    `frames` holds each by step and receiver, but for long ones to one receiver: of these their place in the transcript.
    """

    setup: RoundSetup
    identity: SigningKey
    journal: Journal
    protocol: ServerProtocol
    write: Callable[[str, bytes], None]
    frames: dict[str, dict[int, bytes | int]] = field(default_factory=dict)

    def frame_with(self, message: type, receiver: int) -> bytes | None:
        return self._frame_to(receiver, tag_of(message))

    def _frame_to(self, receiver: int, step: str) -> bytes | None:
        frame = self.frames.get(step, {}).get(receiver)
        return self.journal.content_at(frame) if isinstance(frame, int) else frame

    def frame_for(self, member: int, step: str) -> bytes | None:
        """Return the frame of a step for a member, its own or the one for everyone; None if there is none."""
        return self._frame_to(member, step) or self._frame_to(EVERYONE, step)

    def publish(self) -> None:
        """Sign and record every due frame not yet recorded; one for everyone if all get the same message."""
        while self.protocol.due:
            step, messages = self.protocol.due.popitem()
            known = self.frames.get(step, {})
            same_to_all = len(messages) > 1 and len({id(message) for message in messages.values()}) == 1
            owed = {EVERYONE: next(iter(messages.values()))} if same_to_all else messages
            for receiver, message in owed.items():
                if receiver not in known:
                    self.send(receiver, message)

    def send(self, receiver: int, message: Any) -> bytes:
        seen = self.protocol.client_heads.get(receiver, NOT_SEEN)
        body = make_body(self.setup.context.round_digest, SERVER_INDEX, receiver, self.journal.head, seen, message)
        frame = sign_frame(self.identity, body)
        self.write("sent", frame)
        self.protocol.sent(chain(body.head, "sent", frame))
        self.keep(frame)
        return frame

    def keep(self, frame: bytes) -> None:
        """Store a frame that is already in the transcript."""
        body = peek(frame)
        stays = len(frame) <= _SHORT or body.receiver == EVERYONE  # one for everyone is in memory once
        self.frames.setdefault(body.step, {})[body.receiver] = frame if stays else self.journal.place_of("sent", frame)
