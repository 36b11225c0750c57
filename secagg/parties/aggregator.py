"""What an aggregator does on its own: it takes the clients' shares at its endpoint, and adds those of the agreed set.

An upload is on the disk before it is in the transcript, and in the transcript before its receipt leaves. A restart
feeds the transcript's uploads through the same state again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from secagg.errors import BadInput, NotNow, ProtocolViolation, SessionAborted
from secagg.parties.contribution import opening_noise_of
from secagg.parties.deadline import LOOK_SECONDS, Deadline
from secagg.parties.setup import SessionSetup
from secagg.parties.staging import Staging, read_vector
from secagg.protection import LocalParty
from secagg.protection.interface import Transition
from secagg.protection.sharing.collection import Collecting
from secagg.protection.sharing.context import SharedContext, sealed_bytes
from secagg.protection.sharing.messages import SetPledges, ShareManifest, ShareReceipt
from secagg.protection.sharing.set_agreement import SetAgreed
from secagg.roster import SERVER_INDEX
from secagg.transcript import Journal, chain, make_body, open_frame, payload_of, peek, sign_frame

_log = logging.getLogger("secagg.aggregator")
_SAID = (ShareReceipt.__name__, SetPledges.__name__)


class AggregatorWork:
    """One session's uploads at one aggregator, and the sum of its shares. `gone` clients are not waited for."""

    def __init__(
        self, setup: SessionSetup, me: LocalParty, folder: Path, journal: Journal, gone: frozenset[int] = frozenset()
    ) -> None:
        if not isinstance(setup.context, SharedContext):
            raise BadInput(f"a {setup.plan.protection} sum has no aggregators", remedy="stop this aggregator")
        self._setup = setup
        self._context = setup.context
        self._number = setup.context.number_of(me.member)
        self._me = me
        self._folder = folder
        self._journal = journal
        self._gone = gone
        self._staging = Staging(folder)
        self._collecting: Collecting | None = None
        self._is_closed = False
        self._receipts: dict[int, bytes] = {}
        self._complete = asyncio.Event()
        for record in journal.records():
            if record.kind == "sent" and (body := peek(record.content)).step in _SAID:
                self._is_closed |= body.step == SetPledges.__name__
                self._receipts[body.receiver] = record.content

    async def work(self, state: Any) -> Transition:
        """Do what the state waits for. Raises SessionAborted when too few clients have uploaded."""
        if isinstance(state, Collecting):
            return await self._collect(state)
        if isinstance(state, SetAgreed):
            self._is_closed = True
            return await asyncio.to_thread(self._add_up, state)
        raise ProtocolViolation(SERVER_INDEX, f"there is nothing to do at {type(state).__name__}")

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Take a client's share; return the frame with its receipt, the same each time.

        Raises ProtocolViolation or MalformedMessage for a bad upload, NotNow for one that is too slow or while uploads
        have not begun, SessionAborted once they are closed.
        """
        body = open_frame(frame, self._setup.roster, self._context.plan, member, self._me.member)
        manifest: ShareManifest = payload_of(body, ShareManifest)
        name, head = self._setup.roster.name(member), chain(body.head, "sent", frame)
        if (known := self._receipts.get(member)) and peek(known).seen == head:
            return known  # even after the close: whoever lost its receipt is in the set all the same
        if manifest.client != member or len(manifest.digests) != len(self._context.numbers):
            raise ProtocolViolation(member, "uploads a share that is not its own, or not one for each aggregator")
        size, digest = sealed_bytes(self._context, self._number), manifest.digests[self._number - 1]
        self._open_for_uploads()
        async with self._staging.receive(member, name, size, digest, parts) as part:
            sealed = await asyncio.to_thread(part.read_bytes)
            # Nothing is awaited from here on: another upload or the close cannot come between.
            following = self._open_for_uploads().accept(self._context, self._me, manifest, sealed)
            if member not in self._receipts:
                self._staging.keep(member, part)
                self._journal.append("received", frame)
                receipt = following.receipt(self._context, self._me, member)
                self._receipts[member] = self._answer(member, frame, receipt)
                _log.info("a share from %s", name)
            self._collecting = following
            self._look()
        return self._receipts[member]

    def _open_for_uploads(self) -> Collecting:
        if self._is_closed:
            raise SessionAborted("this aggregator has closed its collection: the upload comes too late")
        if self._collecting is None:
            raise NotNow("this aggregator does not take uploads of this session yet")
        return self._collecting

    def _answer(self, member: int, frame: bytes, receipt: ShareReceipt) -> bytes:
        seen = chain(peek(frame).head, "sent", frame)
        body = make_body(self._context.plan, self._me.member, member, self._journal.head, seen, receipt)
        answer = sign_frame(self._me.identity, body)
        self._journal.append("sent", answer)
        return answer

    async def _collect(self, state: Collecting) -> Transition:
        """Wait for all clients, or until the plan's time is over."""
        state = self._relive(state)
        self._collecting = state
        self._look()
        slack = self._setup.plan.step_seconds / 2  # the server waits for the step's time longer than clients may take
        deadline = Deadline(self._folder, Collecting.__name__, self._setup.join_seconds, slack)
        while not self._complete.is_set():
            left = deadline.left(self._staging.longest_wait)
            if left <= 0:
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._complete.wait(), min(left, LOOK_SECONDS))
        closing, self._collecting, self._is_closed = self._collecting, None, True
        self._staging.end_all()
        return closing.close(self._context, self._me)

    def _relive(self, state: Collecting) -> Collecting:
        """Take in the uploads that the transcript holds; one whose receipt it lacks is given it now."""
        for record in list(self._journal.records()):
            if record.kind != "received" or (body := peek(record.content)).step != ShareManifest.__name__:
                continue
            manifest: ShareManifest = payload_of(body, ShareManifest)
            name, digest = self._setup.roster.name(body.sender), manifest.digests[self._number - 1]
            sealed = read_vector(self._folder, name, body.sender, digest)
            state = state.accept(self._context, self._me, manifest, sealed)
            if body.sender not in self._receipts:
                receipt = state.receipt(self._context, self._me, body.sender)
                self._receipts[body.sender] = self._answer(body.sender, record.content, receipt)
        return state

    def _look(self) -> None:
        """Whether everybody who may still come has come."""
        if self._collecting is not None and set(self._context.clients) <= set(self._receipts) | self._gone:
            self._complete.set()

    def _add_up(self, state: SetAgreed) -> Transition:
        """Add the shares of the agreed set, and this aggregator's own noise where the plan says so."""
        digests = {manifest.client: manifest.digests[self._number - 1] for manifest in state.manifests}

        def kept(client: int) -> bytes:
            return read_vector(self._folder, self._setup.roster.name(client), client, digests[client])

        return state.work(self._context, self._me, kept, opening_noise_of(self._setup, self._me.randomness))
