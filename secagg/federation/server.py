"""The server's side of a plan: it runs one session for each round, behind one network endpoint."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from secagg.crypto.signatures import SigningKey
from secagg.errors import BadInput, MalformedMessage, OtherPlan, ProtocolViolation
from secagg.plan_facts.facts import may_return, patience
from secagg.protection.draw import SHOWN_DRAW
from secagg.protection.messages import Outcome, Return
from secagg.session import Rounds, RoundSetup, ServerSession
from secagg.session.attachments import drop_openings, read_opening, session_folder
from secagg.session.deadline import LOOK_SECONDS
from secagg.session.outcome import HEAD_FILE
from secagg.session.rounds import end_after, opening_after, show_end
from secagg.transcript import FILE_NAME, Journal, peek
from secagg.verification import note_plan
from secagg.wire import encode, tag_of


@dataclass(frozen=True)
class Stage:
    """One session of the plan at the server: its round, its folder, and the object that runs it."""

    setup: RoundSetup
    folder: Path
    session: ServerSession


class FederationServer:
    """The server of a plan: it runs all rounds, answers members' calls, and can be started again after a crash.

    A round's session begins before the outcome that opens it leaves, so that no client can come too early.
    """

    def __init__(self, setup: RoundSetup, identity: SigningKey, state: Path, warn: Callable[[str], None]) -> None:
        self._identity = identity
        self._state = state
        self._warn = warn
        self._open_files = ExitStack()
        self._stages: dict[bytes, Stage] = {}
        self._rounds: Rounds[Outcome] = Rounds(setup)
        self._reading: set[int] = set()
        self._done = 0
        self._disk_failures: list[BadInput] = []
        self._have_result: set[int] = set()
        self._handed = asyncio.Event()
        try:
            self._go_on()
        except BaseException:
            self.close()
            raise

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Sessions begun so far, each with its round and folder, in the order of the rounds."""
        return tuple(self._stages.values())

    @property
    def current(self) -> ServerSession:
        """The session that runs, or the last one once all have ended."""
        return self.stages[min(self._done, len(self._stages) - 1)].session

    @property
    def is_over(self) -> bool:
        """Whether the plan's last round has ended with an outcome."""
        last = self.stages[-1]
        return last.setup.is_last and last.session.outcome is not None

    @property
    def steps_seconds(self) -> Mapping[str, float]:
        """Seconds that each step took, summed over all rounds since this process began, by the step's name."""
        total: dict[str, float] = {}
        for stage in self.stages:
            for step, seconds in stage.session.steps_seconds.items():
                total[step] = total.get(step, 0.0) + seconds
        return total

    async def run(self) -> Stage:
        """Run every session until its outcome is confirmed; return the last one. Raises what `ServerSession.run` does.

        The next round does not wait until everybody has the outcome of the last one: they fetch it beside it.
        """
        await asyncio.to_thread(self.stages[0].setup.facts.load_libraries)
        while self._done < len(self._stages):
            stage = self.stages[self._done]
            if (outcome := stage.session.outcome) is None:
                outcome = await stage.session.find_outcome()
                for doubt in stage.session.doubts:
                    self._warn(f"the sum is implausible: {doubt}")
                if stage.setup.is_draw:  # reads no large file, and nothing of it goes on where this task is cancelled
                    self._end(stage, outcome)
                else:
                    await asyncio.to_thread(self._end, stage, outcome)
            await stage.session.announce(outcome)
            await stage.session.run()
            self._done += 1
        await self._hand_out()
        self.current.require_disk()
        return self.stages[-1]

    async def _hand_out(self) -> None:
        """Wait until the clients outside the last cohort, if any, have read the result, or `join_seconds` are over."""
        last = self.stages[-1].setup
        away = set(last.roster.clients) - set(last.context.clients) if last.seed else set()
        clock = asyncio.get_running_loop().time
        deadline = clock() + last.plan.join_seconds
        while not away <= self._rounds.dropped_out | self._have_result and clock() < deadline:
            self.current.require_disk()
            self._handed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._handed.wait()

    async def submit(self, member: int, frame: bytes) -> bytes:
        """Pass a member's signed message (`frame`) to the session of the round that it names."""
        self._note_call(member)
        return await self._find(peek(frame).round_digest).submit(member, frame)

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Pass a client's vector to the session of the round that the signed message `frame` names."""
        self._note_call(member)
        return await self._find(peek(frame).round_digest).upload(member, frame, parts)

    async def fetch(self, member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
        """Return the server's message of `step` for `member`; None if there is none within `patience` seconds.

        A `Return` and the draw of the cohorts are messages of such steps too; they are there at once or not at all.
        """
        self._note_call(member)
        if step == tag_of(Return):
            return self._show_return(member, round_digest)
        if step == SHOWN_DRAW:
            return self._show_draw(member, round_digest)
        frame = await self._find(round_digest).fetch(member, round_digest, step, patience)
        self._note_call(member)  # it may have waited since the step before
        return frame

    async def read(self, member: int, round_digest: bytes, digest: bytes) -> Path:
        """Return the path of a file whose digest a message has named. Raises ProtocolViolation, NotNow and others."""
        last = self.stages[-1]
        end = end_after(last.setup, last.session.outcome) if last.session.outcome is not None else None
        if end is not None and round_digest == end.round_digest and digest == end.broadcast.digest:
            self._reading.add(member)
            return last.folder / HEAD_FILE
        return self._find(round_digest).read(member, digest)

    def end_calls(self) -> None:
        """Answer all calls that wait for a message, as no other will come."""
        for stage in self.stages:
            stage.session.end_calls()

    def close(self) -> None:
        """Close the transcript files of all sessions."""
        self._open_files.close()

    async def farewell(self) -> None:
        """Wait until every party has fetched the abort message, at most as long as members repeat a failing call."""
        last = self.stages[-1]
        await last.session.farewell(patience(last.setup.plan))

    def _note_call(self, member: int) -> None:
        self.stages[-1].session.note_call(member)

    def _find(self, round_digest: bytes) -> ServerSession:
        if not round_digest:
            raise MalformedMessage("request", "it names no session")
        if round_digest not in self._stages:
            raise OtherPlan(self.stages[-1].setup.plan.digest, round_digest)
        return self._stages[round_digest].session

    def _show_return(self, member: int, round_digest: bytes) -> bytes | None:
        """Return the encoded `Return` with which a client may rejoin, or None; from now on the round waits for it."""
        first = self.stages[0].setup
        if round_digest != first.context.round_digest:
            raise OtherPlan(first.plan.digest, round_digest)
        if not may_return(first.facts) or member not in first.context.clients:
            raise ProtocolViolation(member, "asks for a way back into a plan that has none")
        self._rounds.request_rejoin(member)
        if len(self._stages) < 2:
            return None
        before, latest = self.stages[-2:]
        shown = latest.session.show_return(before.session, member)
        if shown is None and latest.session.outcome is not None:
            shown = show_end(latest.setup, latest.session.outcome, latest.session.acknowledgements, member)
            if member in self._reading:  # and asks again: it has read the result
                self._have_result.add(member)
                self._handed.set()
        return None if shown is None else encode(shown)

    def _show_draw(self, member: int, round_digest: bytes) -> bytes | None:
        """Return the encoded draw to a client that came too late for it; None before the draw."""
        stage = self.stages[0]
        if round_digest != stage.setup.context.round_digest:
            raise OtherPlan(stage.setup.plan.digest, round_digest)
        if not stage.setup.is_draw or member not in stage.setup.context.clients:
            raise ProtocolViolation(member, "asks for a draw that is none of its own")
        return None if stage.session.draw is None else encode(stage.session.draw)

    def _go_on(self) -> None:
        """Open the session that is due, and every later one that the transcripts already lead to.

        Who was not in the sum before it is told of a round only when it asks, and where it may (`may_return`).
        """
        for setup in self._rounds:
            folder = session_folder(self._state, setup)
            note_plan(self._state, setup.plan, self._identity)
            journal = self._open_files.enter_context(closing(Journal(folder / FILE_NAME)))
            session = ServerSession(
                setup, self._identity, folder, journal, self._rounds.dropped_out, self._disk_failures
            )
            drop_openings(self._state, self._rounds.done)
            stage = self._stages[setup.context.round_digest] = Stage(setup, folder, session)
            if (outcome := stage.session.outcome) is not None:
                self._note_end(stage, outcome)

    def _end(self, stage: Stage, outcome: Outcome) -> None:
        self._note_end(stage, outcome)
        self._go_on()

    def _note_end(self, stage: Stage, outcome: Outcome) -> None:
        """Mark a session as ended, so that the next round is due, begun by the bytes on the disk (`Rounds.ended`)."""
        broadcast = read_opening(self._state, opening_after(stage.setup, outcome))
        self._rounds.ended(outcome, broadcast, stage.session.draw)
