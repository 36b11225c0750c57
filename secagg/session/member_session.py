"""A client's or helper's session with the server: state machine, transcript, stored state and connections.

A client, an aggregator and a key holder differ in their states alone. The order at every step is: the server's frame
is in the transcript; the next state and the frames that answer are remembered (bytes that go with them before); the
answer is in the transcript; then, and only then, it leaves. A restart therefore sends the same bytes again, and never
others; and what the server said first at a step is what counts.

Only what the server signed for this session ends it, or what this party itself finds wrong in that. Anything else that
comes instead of an answer is a hiccup of whoever carried it: it is asked again, and at last NotNow, with all kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Integers
from secagg.errors import (
    COUNTS,
    BadInput,
    ImpossibleSum,
    LeftBehind,
    MalformedMessage,
    NotNow,
    ProtocolViolation,
    SecaggError,
    ServerAway,
    SessionAborted,
    Unconfirmed,
)
from secagg.protection import Delivery, LocalParty, Script
from secagg.protection.draw import Draw
from secagg.protection.interface import Acceptance, CollectingState, ReadyState, ReceiptState, Transition, WorkingState
from secagg.protection.messages import Abort, Acknowledgement, Confirmation, Outcome, Receipt, Taken
from secagg.session.attachments import SUM_FILE, keep_opening, read_attached, read_opening_of
from secagg.session.deadline import REMIND_SECONDS
from secagg.session.outcome import (
    UNCONFIRMED_HEAD_FILE,
    Files,
    check_outcome,
    pack_sum,
    release_head,
    require_lengths,
    require_possible,
    require_shape,
)
from secagg.session.receive_signed import Connection, SignedReceiver
from secagg.session.release import open_release, release_files
from secagg.session.round_setup import RoundSetup
from secagg.session.rounds import acknowledgement_of, check_confirmation, opening_after
from secagg.session.sealed_state import Memory
from secagg.system.files import write_synced
from secagg.transcript import (
    EVERYONE,
    FILE_NAME,
    NOT_SEEN,
    FrameBody,
    Journal,
    chain,
    make_body,
    open_frame,
    payload_of,
    peek,
    sign_frame,
)
from secagg.wire import decode, tag_of

T = TypeVar("T")
VECTOR_FILE = "protected.bin"
_GRACE_SECONDS = 60.0
_LEAVING_SECONDS = 10.0


class Contributor(Protocol):
    """Interface that gives a session the client's vector, and runs the client's last work before the upload."""

    def vector(self) -> Integers:
        """Return the flat vector (int64) that the client contributes to the sum, the same at each call."""

    def before_upload(self) -> None:
        """Do the client's last work before the first byte of its upload is sent, such as charging the ledger.

        The protected bytes are fixed by then.
        """


class MemberSession:
    """One client's or helper's part in one session; it may be started again after a crash at any point.

    `progress` takes lines for the operator. `contributor` gives a client's vector, `work` does what a helper does
    on its own. `stays` is False for a client that leaves once its upload has arrived, and looks for the outcome only
    when it comes back.
    """

    def __init__(
        self,
        setup: RoundSetup,
        me: LocalParty,
        folder: Path,
        journal: Journal,
        progress: Callable[[str], None],
        contributor: Contributor | None = None,
        work: Callable[[Any], Coroutine[Any, Any, Transition]] | None = None,
        stays: bool = True,
    ) -> None:
        self._setup = setup
        self._context = setup.context
        self._me = replace(me, upload=self._upload)
        self._script = _script(setup, me)
        self._folder = folder
        self._vector_file = folder / VECTOR_FILE
        self._transcript = _MemberTranscript(setup, me, journal, self._script.announcement)
        self._progress = progress
        self._contributor = contributor
        self._work = work
        self._receiver = SignedReceiver(setup, me.member, progress)
        self._stays = stays
        self._memory = Memory(folder, self._script.states, me.randomness)
        try:
            self._transcript.replay()
        except SessionAborted:
            self._forget()  # a crash may have come between the end and the erasure
            raise

    @property
    def outcome(self) -> Outcome | None:
        """The server's `Outcome` message; None until the transcript holds it."""
        return self._transcript.outcome

    @property
    def draw(self) -> Draw | None:
        """The random draw of the cohorts; None before it is made, and in the session of a round."""
        return next(iter(self._transcript.payloads(Draw)), None) if self._setup.is_draw else None

    @property
    def is_protected(self) -> bool:
        """Whether the client's vector is already protected (and fixed), so that a restart sends the same bytes."""
        _, frames = self._memory.recall() or (None, ())
        return self._transcript.has_announced or any(self._transcript.announces(peek(frame)) for frame in frames)

    async def run(self, server: Connection, others: Mapping[int, Connection] | None = None) -> Outcome | None:
        """Run the session to its outcome; `others` are the connections to helpers that receive uploads, by index.

        None: this client's part is done and there is no outcome yet. Raises SessionAborted when the session ends
        without one (for ever), NotNow when it may go on later, Unconfirmed where others have not confirmed the outcome
        yet. Only with that is the head a result, under its own name.
        """
        try:
            outcome = self._checked() or await self._steps({**(others or {}), SERVER_INDEX: server})
            if outcome is None:
                return None
            if self._is_client and self._me.member not in outcome.members:
                raise ProtocolViolation(SERVER_INDEX, "the outcome leaves this client out")
            if not self._transcript.acknowledgement:  # written down when all was there and checked
                await self._complete(server, outcome)
                self._transcript.sent(self._transcript.sign(acknowledgement_of(self._setup, outcome)))
            self._forget()
            await self._acknowledge(server)
            await self._confirm(server, outcome)
            release_head(self._folder)
            return outcome
        except (ProtocolViolation, MalformedMessage, ImpossibleSum) as error:
            self._setup.roster.name_culprit(error)
            await self._leave(server, error)
            opened = self.outcome is not None and not self._setup.is_draw
            raise SessionAborted(f"this party leaves: {error}{f'; a sum was opened: {COUNTS}' * opened}") from None
        except SessionAborted as error:
            self._end(error)
            raise

    def _checked(self) -> Outcome | None:
        """Return the outcome that the transcript already holds, checked by the state that awaited it; else None.

        The process that recorded it may have ended before the check. Raises what `advance` raises, or LeftBehind if the
        state is lost.
        """
        outcome = self.outcome
        if outcome is None or self._transcript.acknowledgement:
            return outcome
        recalled = self._recall()
        state: Any = recalled[0] if recalled is not None else self._script.begin(self._context, self._me).state
        while state.awaits is not Outcome:  # a step that sends nothing is not remembered
            (heard,) = self._transcript.payloads(state.awaits)
            state = state.advance(self._context, self._me, heard).state
        state.advance(self._context, self._me, outcome)
        return outcome

    async def _complete(self, server: Connection, outcome: Outcome) -> None:
        """Obtain and check every file that the outcome names; a file that follows from the sum is computed instead.

        Files are written before anything is said of them. Raises ProtocolViolation, MalformedMessage or
        ImpossibleSum.
        """
        setup, round_digest = self._setup, self._context.round_digest
        require_shape(setup, outcome)
        files = Files(setup, outcome, self._folder)
        if outcome.release:
            paths = release_files(self._folder, outcome.release)
            for path, attachment in zip(paths, outcome.release, strict=True):
                await read_attached(self._receiver, server, round_digest, attachment, path)
            await asyncio.to_thread(self._keep_sum, outcome)
            own = await asyncio.to_thread(lambda: files.own)
            if own is not None and setup.known_round is not None:
                require_lengths(setup, outcome, own)
        if outcome.head and not files.head:
            file = self._folder / UNCONFIRMED_HEAD_FILE
            await read_attached(self._receiver, server, round_digest, outcome.head[0], file)
        opening, state = opening_after(setup, outcome), self._folder.parent
        if opening is not None and not files.broadcast:
            await read_opening_of(self._receiver, server, opening, state)
        told = files.contents
        if told is None:
            raise BadInput(f"files are gone from {self._folder}", remedy="start again")
        await asyncio.to_thread(check_outcome, setup, told, files.own)
        require_possible(files.own)
        if told.head:
            write_synced(self._folder / UNCONFIRMED_HEAD_FILE, told.head)
        if opening is not None:
            keep_opening(state, opening, told.broadcast)

    def _keep_sum(self, outcome: Outcome) -> None:
        """Open the sum from the released files, and store it beside them."""
        heard = [record.content for record in self._transcript.journal.records() if record.kind == "received"]
        vector = open_release(self._setup, outcome, self._folder, map(peek, heard))
        if vector is not None and self._setup.protocol.release is not None:
            write_synced(self._folder / SUM_FILE, pack_sum(self._setup, vector))

    def _upload(self) -> bytes:
        return self._vector_file.read_bytes() if self._vector_file.exists() else b""

    @property
    def _is_client(self) -> bool:
        return self._me.member in self._context.identities

    async def _steps(self, connections: Mapping[int, Connection]) -> Outcome | None:
        state, frames = self._recall() or self._keep(self._script.begin(self._context, self._me))
        while True:
            self._transcript.sent(frames)
            await self._send_all(connections, state, frames)
            if isinstance(state, WorkingState):
                incoming = None
                if state.opened_by is not None:
                    await self._receive(connections[SERVER_INDEX], state.opened_by)
            else:
                try:
                    incoming = await self._receive(connections[SERVER_INDEX], state.awaits)
                except SessionAborted as error:
                    raise await self._explain(connections[SERVER_INDEX], state, error) from None
                if incoming is None:
                    return None
            transition = await self._own_step(connections[SERVER_INDEX], state, incoming)
            if self.outcome is not None:
                return self.outcome
            state, frames = self._keep(transition)

    def _recall(self) -> tuple[Any, tuple[bytes, ...]] | None:
        """Read the stored state and frames; None if nothing was sent yet. Raises LeftBehind if they are lost."""
        recalled = self._memory.recall()
        if recalled is None and self._transcript.has_sent:
            raise LeftBehind("what this party remembered of the session is lost; it has dropped out")
        return recalled

    async def _own_step(self, connection: Connection, state: Any, incoming: Any) -> Transition:
        """Advance the state by a message, or by this party's own work; tell the server if that aborts."""
        try:
            if not isinstance(state, WorkingState):
                following: Transition = state.advance(self._context, self._me, incoming)
                return following
            if self._work is None:
                raise ProtocolViolation(SERVER_INDEX, f"there is nothing to do at {type(state).__name__}")
            if not isinstance(state, CollectingState):
                return await self._work(state)
            done = await self._unless_told(connection, self._work(state), (Abort,))
        except SessionAborted as error:
            await self._leave(connection, error)
            raise
        if isinstance(done, bytes):
            self._transcript.received(done)  # raises, as it ends the session
            raise SessionAborted("the server has ended the session")
        return done

    async def _unless_told(self, server: Connection, work: Coroutine[Any, Any, T], ends: tuple[type, ...]) -> T | bytes:
        """Return the result of work with other parties, or the server's message that ends it if that comes before."""
        working, hearing = asyncio.ensure_future(work), asyncio.ensure_future(self._hear(server, ends))
        try:
            await asyncio.wait({working, hearing}, return_when=asyncio.FIRST_COMPLETED)
            return await (working if working.done() else hearing)
        finally:
            for task in (working, hearing):
                task.cancel()
            await asyncio.wait({working, hearing})

    async def _hear(self, connection: Connection, ends: tuple[type, ...]) -> bytes:
        """Return the server's signed message of a class in `ends` once there is one, however often it is away."""

        async def ask() -> bytes:
            while not (data := await connection.fetch(self._context.round_digest, tag_of(ends[0]), _GRACE_SECONDS)):
                pass
            return data

        while True:
            with contextlib.suppress(NotNow):
                return (await self._receiver.receive_signed(SERVER_INDEX, ends, ask, connection.patience))[0]
            await asyncio.sleep(_LEAVING_SECONDS)

    def _keep(self, transition: Transition) -> tuple[Any, tuple[bytes, ...]]:
        """Store the next state and its frames, and before them the protected bytes that the frames announce."""
        if isinstance(transition.state, ReadyState) and self._contributor is not None:
            self._progress("protecting the statistics")
            residues = self._context.ring.encode(self._contributor.vector())
            transition = transition.state.protect(self._context, self._me, residues)
        if transition.vector is not None:
            write_synced(self._vector_file, transition.vector)
            if self._contributor is not None:
                self._contributor.before_upload()
        if transition.outgoing is None:
            return transition.state, ()
        frames = self._transcript.sign(transition.outgoing, tuple(self._deliveries(type(transition.outgoing))))
        self._memory.keep(transition.state, frames)
        return transition.state, frames

    def _deliveries(self, message: type) -> dict[int, Delivery]:
        if self._is_client and message is self._script.announcement:
            return {each.receiver: each for each in self._setup.protocol.deliveries(self._context)}
        size = self._vector_file.stat().st_size if self._vector_file.exists() else 0
        return {SERVER_INDEX: Delivery(SERVER_INDEX, 0, size)}

    async def _send_all(self, connections: Mapping[int, Connection], state: Any, frames: tuple[bytes, ...]) -> None:
        """Send a state's frames. No helper needs to answer any more once the server has an outcome, or an abort."""

        async def send() -> None:
            for frame in frames:
                await self._send(connections, state, frame)

        if not isinstance(state, ReceiptState):
            return await send()
        try:
            await self._unless_told(connections[SERVER_INDEX], send(), (Outcome, Abort))
        except ServerAway:
            with contextlib.suppress(SecaggError):
                if await connections[SERVER_INDEX].fetch(self._context.round_digest, tag_of(Outcome), 0.0):
                    return None
            raise

    async def _send(self, connections: Mapping[int, Connection], state: Any, frame: bytes) -> None:
        body = peek(frame)
        connection = connections[body.receiver]
        if not self._transcript.announces(body):
            await self._send_to_server(frame, partial(connection.submit, frame), connection.patience)
        elif body.receiver not in self._transcript.receipts:
            self._progress(f"uploading to {self._setup.roster.name(body.receiver)}")
            if not self._vector_file.exists():
                raise LeftBehind("the protected bytes are lost and no others are ever made; it has dropped out")
            part = self._deliveries(self._script.announcement)[body.receiver]
            upload = partial(connection.upload, frame, self._vector_file, part.start, part.size)
            if body.receiver == SERVER_INDEX:
                await self._send_to_server(frame, upload, connection.patience)
            else:
                asked = self._receiver.receive_signed(body.receiver, (state.receipt,), upload, connection.patience)
                reply, answer = await asked
                state.check_receipt(self._context, payload_of(answer, state.receipt))
                self._transcript.received(reply)

    async def _send_to_server(self, frame: bytes, send: Callable[[], Awaitable[bytes]], patience: float) -> None:
        """Send a frame, and record the signed acceptance (`Taken`) where the protection has one and the server answers.

        Without it this client can show nothing, and goes on.
        """
        is_signed_for = self._is_client and self._transcript.is_signed_for(peek(frame))
        if is_signed_for and self._transcript.taken:
            return
        first = await send()
        if not is_signed_for or not first:
            return

        async def ask() -> bytes:
            nonlocal first
            answer, first = first or await send(), b""
            if not answer:
                raise _NothingYet
            return answer

        with contextlib.suppress(_NothingYet):
            answer, body = await self._receiver.receive_signed(SERVER_INDEX, (Taken,), ask, patience)
            if payload_of(body, Taken).frame != hashlib.sha256(frame).digest():
                raise ProtocolViolation(SERVER_INDEX, "signs that it has accepted what this client has not sent")
            self._transcript.received(answer)

    async def _receive(self, connection: Connection, expected: type) -> Any:
        """Return the server's message of class `expected`; None if it is an outcome that the client does not await."""
        if (heard := self._transcript.heard) is not None and heard.step == tag_of(expected):
            return payload_of(heard, expected)
        waits = self._stays or expected is not Outcome
        plan = self._setup.plan
        seconds = 2.0 * (plan.join_seconds + plan.step_seconds + plan.round_seconds) + _GRACE_SECONDS
        if not self._stays and expected in (Outcome, Confirmation):  # who comes back waits no longer than a step
            seconds = plan.step_seconds if waits else 0.0

        async def ask() -> bytes:
            data = await connection.fetch(self._context.round_digest, tag_of(expected), seconds)
            if not data:
                raise _NothingYet
            return data

        try:
            async with self._reminding(expected, waits):
                asked = self._receiver.receive_signed(SERVER_INDEX, (expected, Abort), ask, connection.patience)
                data, body = await asked
        except _NothingYet:
            if waits:
                raise NotNow(f"the server did not finish the step {tag_of(expected)} in {seconds:.0f} s") from None
            return None
        if body.step != tag_of(Abort):
            payload_of(body, expected)
        self._transcript.received(data)
        return payload_of(body, expected)

    @contextlib.asynccontextmanager
    async def _reminding(self, expected: type, waits: bool) -> AsyncIterator[None]:
        """Tell the operator each minute of the wait for the server, and how long it can last by the plan."""
        setup, plan, clock = self._setup, self._setup.plan, asyncio.get_running_loop().time
        is_joining = self._transcript.heard is None or setup.protocol.speaks_once
        closes = clock() + plan.step_seconds + setup.join_seconds * is_joining

        def say() -> None:
            left = f"up to {left:.0f} s by the plan" if (left := closes - clock()) > 0 else "longer than planned"
            self._progress(f"waiting for the server's {tag_of(expected)} ({setup.label}): {left}")

        async def remind() -> None:
            while True:
                await asyncio.sleep(REMIND_SECONDS)
                say()

        if not waits:
            self._progress("asking for the outcome")
            yield
            return
        say()
        reminding = asyncio.ensure_future(remind())
        try:
            yield
        finally:
            reminding.cancel()

    async def _explain(self, connection: Connection, state: Any, error: SessionAborted) -> SessionAborted:
        """Return the abort error, naming aggregators that signed a receipt for this client's upload but left it out."""
        if not isinstance(state, ReceiptState):
            return error
        with contextlib.suppress(SecaggError):
            data = await connection.fetch(self._context.round_digest, tag_of(state.evidence), 0.0)
            evidence = payload_of(self._transcript.open_servers(data), state.evidence)
            self._transcript.received(data)
            if liars := state.broken_by(self._context, self._transcript.payloads(state.receipt), evidence):
                lie = f"{', '.join(liars)} signed a receipt for this upload and left it out"
                return SessionAborted(f"{lie}; the transcript is the proof")
        return error

    async def _acknowledge(self, connection: Connection) -> None:
        """Countersign the server's transcript, and receive the server's signature on this one."""
        transcript = self._transcript
        if transcript.is_countersigned:
            return
        expected_head = chain(peek(transcript.acknowledgement).head, "sent", transcript.acknowledgement)
        try:
            ask = partial(connection.submit, transcript.acknowledgement)
            receipt, body = await self._receiver.receive_signed(SERVER_INDEX, (Receipt,), ask, connection.patience)
        except ServerAway as error:
            if not transcript.confirmations:
                raise Unconfirmed(error.problem, f"{self._folder.name}/{FILE_NAME}") from None
            self._progress(f"the outcome is confirmed, but the server has not countersigned it: {error.problem}")
            return
        payload_of(body, Receipt)
        if body.seen != expected_head:
            raise ProtocolViolation(SERVER_INDEX, "countersigned another transcript than this one")
        transcript.received(receipt)

    async def _confirm(self, connection: Connection, outcome: Outcome) -> None:
        """Wait until enough others hold the same outcome too. Raises Unconfirmed when nobody shows that in time.

        Only then is the outcome a result, and the next round begins: before, another client may hold another outcome.
        """
        shown = self._transcript.confirmations
        try:
            confirmation = shown[0] if shown else await self._receive(connection, Confirmation)
        except NotNow as error:
            raise Unconfirmed(error.problem, f"{self._folder.name}/{FILE_NAME}") from None
        check_confirmation(self._setup, outcome, confirmation)

    async def _leave(self, connection: Connection, error: SecaggError) -> None:
        """End this party's session for good, and send the server the reason if it still answers."""
        self._end(error)
        with contextlib.suppress(SecaggError, TimeoutError):
            (frame,) = self._transcript.sign(Abort(str(error)[:2000]))
            self._transcript.sent((frame,))
            async with asyncio.timeout(_LEAVING_SECONDS):
                await connection.submit(frame)

    def _end(self, error: SecaggError) -> None:
        reason = error.reason if isinstance(error, SessionAborted) else str(error)
        self._transcript.ended(reason)
        self._forget()

    def _forget(self) -> None:
        self._vector_file.unlink(missing_ok=True)
        self._memory.erase()


class _NothingYet(Exception):
    """Raised when the server has no frame of the step yet."""


def _script(setup: RoundSetup, me: LocalParty) -> Script:
    """Return this party's states under the round's protocol. Raises SessionAborted if it has no part in it."""
    protection = setup.protocol
    if me.member in setup.context.identities:
        return protection.client
    if me.member in setup.context.helpers and protection.helper is not None:
        return protection.helper
    raise SessionAborted(f"member {me.member} has no part in a {setup.plan.protection} sum")


@dataclass
class _MemberTranscript:
    """One session's journal, and the facts that follow from its records, equal before and after a restart.

    `heard` is the server's last frame, `receipts` are the helpers that have signed for their part of an upload,
    `acknowledgement` is the frame that countersigns the outcome, `announcement` the message that bytes go with.
    `taken` is the server's signed acceptance of this client's upload, or nonce, by its rules; None without one.
    """

    setup: RoundSetup
    me: LocalParty
    journal: Journal
    announcement: type
    server_head: bytes = NOT_SEEN
    heard: FrameBody | None = None
    receipts: set[int] = field(default_factory=set)
    outcome: Outcome | None = None
    acknowledgement: bytes = b""
    is_countersigned: bool = False
    has_sent: bool = False
    has_announced: bool = False
    taken: Acceptance | None = None

    def replay(self) -> None:
        """Process the records written before a restart. Raises SessionAborted if they end the session."""
        for record in self.journal.records():
            self._take(record.kind, record.content)

    def sent(self, frames: Iterable[bytes]) -> None:
        """Record frames that are about to be sent; frames already recorded are not written again."""
        for frame in frames:
            self.journal.append("sent", frame)
            self._take("sent", frame)

    def received(self, frame: bytes) -> None:
        """Record a checked frame. Raises SessionAborted if the frame ends the session."""
        self.journal.append("received", frame)
        self._take("received", frame)

    def ended(self, reason: str) -> None:
        self.journal.append("aborted", reason.encode())

    def payloads(self, expected: type) -> list[Any]:
        frames = [peek(record.content) for record in self.journal.records() if record.kind == "received"]
        return [payload_of(each, expected) for each in frames if each.step == tag_of(expected)]

    @property
    def confirmations(self) -> list[Confirmation]:
        """Confirmations of the outcome: from the server, or gathered from other parties' transcripts."""
        gathered = [record.content for record in self.journal.records() if record.kind == "confirmed"]
        return [*self.payloads(Confirmation), *(decode(Confirmation, each) for each in gathered)]

    def sign(self, payload: Any, receivers: tuple[int, ...] = (SERVER_INDEX,)) -> tuple[bytes, ...]:
        """Sign one frame for each receiver, chained in the order in which the journal will record them."""
        frames, head = [], self.journal.head
        for receiver in receivers:
            seen = self.server_head if receiver == SERVER_INDEX else NOT_SEEN
            body = make_body(self.setup.context.round_digest, self.me.member, receiver, head, seen, payload)
            frames.append(sign_frame(self.me.identity, body))
            head = chain(head, "sent", frames[-1])
        return tuple(frames)

    def announces(self, body: FrameBody) -> bool:
        return body.step == tag_of(self.announcement)

    def is_signed_for(self, body: FrameBody) -> bool:
        """Return whether the server signs the acceptance of this message (`Taken`)."""
        acceptance = self.setup.protocol.acceptance
        return acceptance is not None and body.step == tag_of(acceptance.message)

    def open_servers(self, frame: bytes) -> FrameBody:
        """Decode and check a frame from the server. Raises MalformedMessage or ProtocolViolation."""
        return open_frame(frame, self.setup.roster, self.setup.context.round_digest, SERVER_INDEX, self.me.member)

    def _take(self, kind: str, content: bytes) -> None:
        if kind == "aborted":
            raise SessionAborted(content.decode(errors="replace"))
        if kind == "sent":
            self.has_sent = True
            self.has_announced |= self.announces(peek(content))
            if peek(content).step == tag_of(Acknowledgement):
                self.acknowledgement = content
        elif kind == "received" and (sender := peek(content).sender) != SERVER_INDEX:
            self.receipts.add(sender)
        elif kind == "received":
            self._take_servers(self.open_servers(content), content)

    def _take_servers(self, body: FrameBody, frame: bytes) -> None:
        self.server_head = chain(body.head, "sent", frame)
        if body.step == tag_of(Taken):  # an answer, which may come after the step's message: that still counts
            self.taken = self.setup.protocol.acceptance
            return
        self.heard = body
        if body.step == tag_of(Outcome):
            self.outcome = payload_of(body, Outcome)
        elif body.step == tag_of(Receipt):
            self.is_countersigned = True
        elif body.step == tag_of(Abort):
            reason, is_personal = payload_of(body, Abort).reason, body.receiver != EVERYONE
            name = self.setup.roster.name
            if self.taken and self.taken.is_broken_by(reason, name(self.me.member), is_personal=is_personal):
                counts = "" if self.setup.is_draw else f"; {COUNTS}"
                raise SessionAborted(f"{name(SERVER_INDEX)}: {self.taken.broken} ({reason}){counts}")
            raise LeftBehind(reason) if is_personal else SessionAborted(reason)
