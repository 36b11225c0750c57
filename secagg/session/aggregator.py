"""An aggregator's part in one round: it collects clients' uploads, then computes its messages from them.

An upload is on the disk before it is in the transcript, and in the transcript before its receipt leaves. A restart
feeds the transcript's uploads through the same state again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import BadInput, NotNow, ProtocolViolation, SessionAborted
from secagg.protection import LocalParty
from secagg.protection.interface import CollectingState, Transition, WorkingState
from secagg.protection.messages import Decline
from secagg.session.deadline import LOOK_SECONDS, REMIND_SECONDS, Deadline
from secagg.session.round_setup import RoundSetup, opening_noise_of
from secagg.session.staging import Staging, read_vector
from secagg.transcript import NOT_SEEN, FrameBody, Journal, chain, make_body, open_frame, payload_of, peek, sign_frame
from secagg.wire import tag_of

_log = logging.getLogger("secagg.aggregator")


class AggregatorWork:
    """An aggregator's work in one round: it collects clients' uploads and computes its next message from them.

    It does not wait for clients that are among the `dropped_out`. Raises BadInput where the plan's protection has no
    aggregators.
    """

    def __init__(
        self,
        setup: RoundSetup,
        me: LocalParty,
        folder: Path,
        journal: Journal,
        dropped_out: AbstractSet[int] = frozenset(),
    ) -> None:
        parts = {part.receiver: part for part in setup.protection.deliveries(setup.context)}
        if setup.protection.handover is None or me.member not in parts:
            raise BadInput(f"a {setup.plan.protection} sum has no aggregators", remedy="stop this aggregator")
        self._setup = setup
        self._context = setup.context
        self._handover = setup.protection.handover
        self._size = parts[me.member].size
        self._me = me
        self._folder = folder
        self._journal = journal
        self._dropped_out = dropped_out
        self._declined: set[int] = set()
        self._deadline: Deadline | None = None
        self._staging = Staging(folder)
        self._collecting: CollectingState | None = None
        self._is_closed = False
        self._digests: dict[int, bytes] = {}
        self._receipts: dict[int, bytes] = {}
        self._complete = asyncio.Event()
        self._turn = asyncio.Lock()
        for body, upload, _ in self._uploads():
            self._digests[body.sender] = self._digest(upload, body.sender)
        for record in journal.records():
            if record.kind != "sent":
                continue
            body = peek(record.content)
            self._is_closed |= body.step == tag_of(self._handover.closed_by)
            if body.step == tag_of(self._handover.receipt):
                self._receipts[body.receiver] = record.content

    async def work(self, state: Any) -> Transition:
        """Collect uploads or compute the next message, as `state` asks. Raises SessionAborted for too few uploads."""
        if isinstance(state, CollectingState):
            return await self._collect(state)
        if isinstance(state, WorkingState):
            self._is_closed = True
            return await asyncio.to_thread(self._end, state)
        raise ProtocolViolation(SERVER_INDEX, f"there is nothing to do at {type(state).__name__}")

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Receive this aggregator's part of a client's upload; return the signed receipt, the same for a repetition.

        Raises ProtocolViolation or MalformedMessage for a bad upload, NotNow for one that is too slow or while uploads
        have not begun, SessionAborted once they are closed.
        """
        body = open_frame(frame, self._setup.roster, self._context.round_digest, member, self._me.member)
        upload = payload_of(body, self._handover.upload)
        name, head = self._setup.roster.name(member), chain(body.head, "sent", frame)
        if (known := self._receipts.get(member)) and peek(known).seen == head:
            return known  # even after the close: whoever lost its receipt is in the set all the same
        self._open_for_uploads()
        digest = self._digest(upload, member)
        async with self._staging.receive(member, name, self._size, digest, parts) as part:
            content = await asyncio.to_thread(part.read_bytes)
            async with self._turn:  # another upload or the close cannot come between
                taking = self._open_for_uploads()
                following = await asyncio.to_thread(taking.accept, self._context, self._me, upload, content)
                if member not in self._receipts:
                    self._staging.keep(member, part)
                    self._digests[member] = digest
                    self._declined.discard(member)
                    self._journal.append("received", frame)
                    receipt = following.receipt(self._context, self._me, member)
                    self._receipts[member] = self._answer(member, frame, receipt)
                    _log.info("an upload from %s", name)
                self._collecting = following
                self._look()
        return self._receipts[member]

    async def submit(self, member: int, frame: bytes) -> bytes:
        """Take a client's `Decline`, so that it is not waited for, in memory alone; return no bytes.

        An upload that comes after it withdraws it. Raises ProtocolViolation or MalformedMessage for any other message,
        and for one after the client's upload.
        """
        body = open_frame(frame, self._setup.roster, self._context.round_digest, member, self._me.member)
        payload_of(body, Decline)
        if member not in self._context.identities or (body.head, body.seen) != (NOT_SEEN, NOT_SEEN):
            raise ProtocolViolation(member, "declines in a frame that is none of a client of this round")
        if member in self._digests:
            raise ProtocolViolation(member, "declines after its upload")
        self._declined.add(member)
        _log.warning("%s: %s declined", self._setup.label, self._setup.roster.name(member))
        self._look()
        return b""

    def go_on(self) -> str:
        """Close the collection now; return who is gone on without. Raises BadInput where too few have uploaded."""
        deadline, absent = self._waiting(), ", ".join(self._absent) or "nobody"
        if len(self._receipts) < (needed := self._setup.protection.fewest(self._context)):
            problem = f"{len(self._receipts)} clients have uploaded; at least {needed} are needed"
            raise BadInput(problem, remedy="wait for more of them, extend the wait or cancel the session at the server")
        deadline.close_now()  # for the next life, if this one ends here
        _log.warning("%s: the operator goes on without %s", self._setup.label, absent)
        self._complete.set()
        return f"goes on without {absent}"

    def extend(self, seconds: int) -> str:
        """Add `seconds` to the collection's time; return how long it is now. Raises BadInput for `MOST_ADDED` or more.

        The server's own wait for this aggregator goes on as it was.
        """
        left = self._waiting().add(seconds)
        _log.warning("%s: the operator extends the wait by %d s: %.0f s left", self._setup.label, seconds, left)
        return f"{left:.0f} s left"

    async def cancel(self) -> str:
        """Raise BadInput, as the server's operator alone cancels a session."""
        raise BadInput("an aggregator cancels no session", remedy="cancel it at the server")

    def _waiting(self) -> Deadline:
        if self._deadline is None:
            raise BadInput("this aggregator waits for no upload at present", remedy="try again later")
        return self._deadline

    @property
    def _absent(self) -> list[str]:
        return [self._setup.roster.name(each) for each in self._context.clients if each not in self._receipts]

    def _open_for_uploads(self) -> CollectingState:
        if self._is_closed:
            raise SessionAborted("this aggregator has closed its collection: the upload comes too late")
        if self._collecting is None:
            raise NotNow("this aggregator does not take uploads of this session yet")
        return self._collecting

    def _answer(self, member: int, frame: bytes, receipt: Any) -> bytes:
        seen = chain(peek(frame).head, "sent", frame)
        body = make_body(self._context.round_digest, self._me.member, member, self._journal.head, seen, receipt)
        answer = sign_frame(self._me.identity, body)
        self._journal.append("sent", answer)
        return answer

    async def _collect(self, state: CollectingState) -> Transition:
        for body, upload, frame in list(self._uploads()):
            state = state.accept(self._context, self._me, upload, self._read_kept(body.sender))
            if body.sender not in self._receipts:  # an earlier life has taken it in, and has not answered
                receipt = state.receipt(self._context, self._me, body.sender)
                self._receipts[body.sender] = self._answer(body.sender, frame, receipt)
        self._collecting = state
        self._look()
        slack = self._setup.plan.step_seconds / 2  # the server waits for the step's time longer than clients may take
        clock = asyncio.get_running_loop().time
        self._deadline = Deadline(self._folder, tag_of(type(state)), self._setup.join_seconds, slack, clock)
        try:
            await self._until_complete(self._deadline, clock)
        finally:  # also where the server has ended the session meanwhile
            async with self._turn:
                closing, self._collecting, self._is_closed, self._deadline = self._collecting, None, True, None
            self._staging.end_all()
        return self._end(closing)

    async def _until_complete(self, deadline: Deadline, clock: Callable[[], float]) -> None:
        remind_at = clock()
        while not self._complete.is_set() and (left := deadline.left(self._staging.longest_wait)) > 0:
            if clock() >= remind_at:
                remind_at = clock() + REMIND_SECONDS
                _log.info("%s: no upload yet from %s: %.0f s left", self._setup.label, ", ".join(self._absent), left)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK_SECONDS)):
                    await self._complete.wait()

    def _look(self) -> None:
        """End the collection once every client has uploaded that has not dropped out or declined, or too few can."""
        here = set(self._context.clients) - self._declined
        is_short = len(here) < self._setup.protection.fewest(self._context)
        if self._collecting is not None and (is_short or here <= set(self._receipts) | self._dropped_out):
            self._complete.set()

    def _end(self, state: WorkingState) -> Transition:
        """Compute the aggregator's next step from the stored uploads, with its own noise if the plan prescribes it."""
        return state.work(self._context, self._me, self._read_kept, opening_noise_of(self._setup, self._me.randomness))

    def _digest(self, upload: Any, client: int) -> bytes:
        """Return the SHA-256 of this party's part of a client's upload. Raises ProtocolViolation if it is unsigned."""
        digest = self._handover.kept(self._context, upload, client, self._me.member)
        if digest is None:
            raise ProtocolViolation(client, "uploads what it did not sign as its own for this session's aggregators")
        return digest

    def _read_kept(self, client: int) -> bytes:
        """Read a client's part from this party's folder. Raises BadInput if it is missing or not as it was signed."""
        return read_vector(self._folder, self._setup.roster.name(client), client, self._digests[client])

    def _uploads(self) -> Iterator[tuple[FrameBody, Any, bytes]]:
        for record in self._journal.records():
            if record.kind == "received" and (body := peek(record.content)).step == tag_of(self._handover.upload):
                yield body, payload_of(body, self._handover.upload), record.content
