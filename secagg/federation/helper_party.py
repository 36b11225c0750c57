"""A helper of a plan (an aggregator or the key holder): one session after another, each with folder and transcript."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from secagg.errors import NotNow, ProtocolViolation, SessionAborted
from secagg.plan_facts.facts import may_return
from secagg.protection import LocalParty
from secagg.protection.draw import Draw
from secagg.protection.messages import Outcome, Return
from secagg.session import AggregatorWork, Connection, MemberSession, Rounds, RoundSetup, begin_transcript
from secagg.session.attachments import drop_openings, read_opening, session_folder
from secagg.session.rounds import opening_after
from secagg.transcript import FILE_NAME, Journal, peek
from secagg.verification import note_plan
from secagg.wire import tag_of


async def nobody_waits() -> None:
    """Return at once: the caller has made sure that the server is there."""


@dataclass
class FederationHelper:
    """Run one helper's part in a plan; for an aggregator, also its endpoint. Start again after a crash.

    `greet` is awaited before a session that still needs the server. Clients of a round that has not begun here are
    asked to try again. Raises BadInput on a machine that lacks what the plan's protection needs.
    """

    setup: RoundSetup
    me: LocalParty
    state: Path
    progress: Callable[[str], None]
    greet: Callable[[], Awaitable[object]] = nobody_waits
    _uploads: dict[bytes, AggregatorWork] = field(default_factory=dict)
    _rounds: Rounds[Outcome] = field(init=False)

    def __post_init__(self) -> None:
        self._rounds = Rounds(self.setup)
        self.setup.protection.check_machine()

    async def run(self, server: Connection) -> list[tuple[RoundSetup, Outcome]]:
        """Carry every session to its outcome; return them in order. Raises what a session raises."""
        await asyncio.to_thread(self.setup.facts.load_libraries)
        for setup in self._rounds:
            try:
                outcome, draw = await self._session(setup, server, self._rounds.dropped_out)
            except SessionAborted as error:
                raise SessionAborted(error.reason, remedy=setup.remedy) from None
            self._rounds.ended(outcome, read_opening(self.state, opening_after(setup, outcome)), draw)
            drop_openings(self.state, self._rounds.done)
        return self._rounds.done

    async def _session(
        self, setup: RoundSetup, server: Connection, dropped_out: AbstractSet[int]
    ) -> tuple[Outcome, Draw | None]:
        """One session's outcome, and what was drawn in it, if that is what it is."""
        folder = session_folder(self.state, setup)
        note_plan(self.state, setup.plan)
        with closing(Journal(folder / FILE_NAME)) as journal:
            begin_transcript(journal, setup)
            session = MemberSession(setup, self.me, folder, journal, self.progress)
            if self.me.member in setup.protocol.receivers(setup.context):
                uploads = AggregatorWork(setup, self.me, folder, journal, dropped_out)
                self._uploads[setup.context.round_digest] = uploads
                session = MemberSession(setup, self.me, folder, journal, self.progress, work=uploads.work)
            if session.outcome is None:
                await self.greet()
            outcome = await session.run(server)
            if outcome is None:
                raise SessionAborted("the session has no outcome")
            return outcome, session.draw

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Hand a client's share to the session that its frame names."""
        round_digest = peek(frame).round_digest
        if round_digest not in self._uploads:
            raise NotNow("this aggregator does not take uploads of this session yet")
        return await self._uploads[round_digest].upload(member, frame, parts)

    async def submit(self, member: int, frame: bytes) -> bytes:
        """An aggregator takes uploads alone. Raises ProtocolViolation."""
        raise ProtocolViolation(member, "speaks to an aggregator as if it were the server")

    async def read(self, member: int, round_digest: bytes, digest: bytes) -> Path:
        """An aggregator has nothing to read. Raises ProtocolViolation."""
        raise ProtocolViolation(member, "speaks to an aggregator as if it were the server")

    async def fetch(self, member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
        """An aggregator tells nothing but receipts, and waits for who knocks. Raises ProtocolViolation."""
        if step == tag_of(Return) and may_return(self.setup.facts) and member in self.setup.context.clients:
            self._rounds.request_rejoin(member)
            return None
        raise ProtocolViolation(member, "speaks to an aggregator as if it were the server")
