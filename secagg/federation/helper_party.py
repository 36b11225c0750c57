"""A helper's side of a plan (an aggregator's or the key holder's): it runs one session for each round."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from secagg.errors import BadInput, NotNow, ProtocolViolation, SessionAborted
from secagg.plan_facts.facts import may_return
from secagg.protection import LocalParty
from secagg.protection.draw import Draw
from secagg.protection.messages import Decline, Outcome, Return
from secagg.session import AggregatorWork, Connection, MemberSession, Rounds, RoundSetup, begin_transcript
from secagg.session.attachments import drop_openings, read_opening, session_folder
from secagg.session.rounds import opening_after
from secagg.transcript import FILE_NAME, Journal, peek
from secagg.verification import note_plan
from secagg.wire import tag_of


async def nobody_waits() -> None:
    """Do nothing, in place of `greet` (the wait for the server), for callers that know that the server is up."""


@dataclass
class FederationHelper:
    """A helper that runs a plan's rounds (an aggregator receives uploads too); it can be started again after a crash.

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

    @property
    def current(self) -> AggregatorWork:
        """An aggregator's work in the latest round that it has begun. Raises BadInput where there is none."""
        if not self._uploads:
            raise BadInput("no uploads are awaited here", remedy="control the server, or wait until a round begins")
        return list(self._uploads.values())[-1]

    async def run(self, server: Connection) -> list[tuple[RoundSetup, Outcome]]:
        """Run the plan's sessions, one for each round, in order; return each session with its outcome.

        Raises what a session raises.
        """
        await asyncio.to_thread(self.setup.facts.load_libraries)
        for setup in self._rounds:
            try:
                outcome, draw = await self._session(setup, server)
            except SessionAborted as error:
                raise SessionAborted(error.reason, remedy=setup.remedy) from None
            self._rounds.ended(outcome, read_opening(self.state, opening_after(setup, outcome)), draw)
            drop_openings(self.state, self._rounds.done)
        return self._rounds.done

    async def _session(self, setup: RoundSetup, server: Connection) -> tuple[Outcome, Draw | None]:
        """Run one session; return its outcome, and the draw if the session is the draw of the cohorts."""
        folder = session_folder(self.state, setup)
        note_plan(self.state, setup.plan, self.me.identity)
        with closing(Journal(folder / FILE_NAME)) as journal:
            begin_transcript(journal, setup)
            session = MemberSession(setup, self.me, folder, journal, self.progress)
            if self.me.member in setup.protocol.receivers(setup.context):
                uploads = AggregatorWork(setup, self.me, folder, journal, self._rounds.dropped_out)
                self._uploads[setup.context.round_digest] = uploads
                session = MemberSession(setup, self.me, folder, journal, self.progress, work=uploads.work)
            if session.outcome is None:
                await self.greet()
            outcome = await session.run(server)
            if outcome is None:
                raise SessionAborted("the session has no outcome")
            return outcome, session.draw

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Pass a client's upload to the session of the round that the signed message `frame` names."""
        round_digest = peek(frame).round_digest
        if round_digest not in self._uploads:
            raise NotNow("this aggregator does not take uploads of this session yet")
        return await self._uploads[round_digest].upload(member, frame, parts)

    async def submit(self, member: int, frame: bytes) -> bytes:
        """Pass a client's `Decline` to the session of its round. Raises ProtocolViolation for every other message."""
        if (body := peek(frame)).step != tag_of(Decline):
            raise ProtocolViolation(member, "speaks to an aggregator as if it were the server")
        if body.round_digest not in self._uploads:
            raise NotNow("this aggregator does not take uploads of this session yet")
        return await self._uploads[body.round_digest].submit(member, frame)

    async def read(self, member: int, round_digest: bytes, digest: bytes) -> Path:
        """Refuse every request for a file: an aggregator has none to give. Raises ProtocolViolation."""
        raise ProtocolViolation(member, "speaks to an aggregator as if it were the server")

    async def fetch(self, member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
        """Record a client's request to rejoin, and return None. Raises ProtocolViolation for every other request."""
        if step == tag_of(Return) and may_return(self.setup.facts) and member in self.setup.context.clients:
            self._rounds.request_rejoin(member)
            return None
        raise ProtocolViolation(member, "speaks to an aggregator as if it were the server")
