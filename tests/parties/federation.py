"""A whole federation in memory: real parties with real folders, no sockets, and a crash where a test wants one.

`Fuse` counts the points at which a party could die and kills it at the chosen one; a killed party is rebuilt from its
folder, as a process would be that is started again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from secagg.encoding import Integers
from secagg.errors import BadInput, SecaggError, ServerAway, SessionAborted
from secagg.parties import ClientHooks, ClientSession, ServerSession, SumResult, begin_transcript, write_result
from secagg.protection import LocalParty
from secagg.protection.messages import Outcome
from secagg.randomness import OperatingSystem
from secagg.roster import SERVER_INDEX
from secagg.transcript import Journal, peek
from tests.parties.stage import Crash, Fuse, FusedJournal, Stage

T = TypeVar("T")
PATIENCE = 60.0
CHUNK = 40


@dataclass(frozen=True)
class Ending:
    """How each party's session ended: an outcome or the exception that said why not."""

    server: Any
    clients: dict[int, Any]
    total: Integers | None


class Federation:
    """Runs every party of a stage; a party with a fuse may die and is then started again from its folder."""

    def __init__(self, stage: Stage, fuses: dict[int, Fuse] | None = None) -> None:
        self.stage = stage
        self.fuses: defaultdict[int, Fuse] = defaultdict(Fuse, fuses or {})
        self.server: ServerSession | None = None
        self.is_over = False
        self.is_stopped = False
        self.totals: list[Integers] = []
        self.sent: defaultdict[tuple[int, str], set[bytes]] = defaultdict(set)
        self.uploaded: defaultdict[int, set[bytes]] = defaultdict(set)
        self._calls: set[asyncio.Future[Any]] = set()
        self._running: asyncio.Task[Outcome] | None = None
        self._journal: Journal | None = None

    async def run(self, *, absent: tuple[int, ...] = (), leaving: dict[int, str] | None = None) -> Ending:
        """Everyone but the absent takes part; `leaving` names the frame before which a client is gone for good."""
        present = [member for member in self.stage.setup.roster.clients if member not in absent]
        leaves = leaving or {}
        everyone = [self.serve(), *(self.client(member, leaves.get(member)) for member in present)]
        try:
            async with asyncio.timeout(PATIENCE):
                ends = await asyncio.gather(*map(_ending_of, everyone))
        finally:
            self.is_stopped = True
            self.close()
        total = self.totals[-1] if self.totals else None
        return Ending(ends[0], dict(zip(present, ends[1:], strict=True)), total)

    async def run_only_until(self, member: int) -> Outcome:
        """Everyone takes part until this client's session has ended; the others are then given up."""
        parties = [self.serve(), *(self.client(each) for each in self.stage.setup.roster.clients if each != member)]
        others = [asyncio.ensure_future(_ending_of(party)) for party in parties]
        try:
            async with asyncio.timeout(PATIENCE):
                return await self.client(member)
        finally:
            self.is_stopped = True
            await self.kill_server()
            for other in others:
                other.cancel()
            await asyncio.wait(others)

    async def serve(self) -> Outcome:
        """The server, started again whenever it was killed."""
        while True:
            self.is_over = False
            try:
                self._journal = FusedJournal(self.stage.transcript(SERVER_INDEX), self.fuses[SERVER_INDEX])
                self.server = self.new_server(self._journal)
                self._running = asyncio.ensure_future(self.server.run())
                return await self._running
            except (Crash, asyncio.CancelledError):
                self._bury()
                if self.is_stopped:
                    raise
            finally:
                self.is_over = True

    def new_server(self, journal: Journal) -> ServerSession:
        """A server's session from its folder."""
        home, setup, fuse = self.stage.home(SERVER_INDEX), self.stage.setup, self.fuses[SERVER_INDEX]

        def finish(result: SumResult) -> Outcome:
            fuse.burn("before the result")
            outcome = write_result(setup, result, home)
            self.totals.append(result.vector)
            fuse.burn("after the result")
            return outcome

        return ServerSession(setup, self.stage.keys[SERVER_INDEX], home, journal, finish)

    async def client(self, member: int, leaves: str | None = None) -> Outcome:
        """A client, started again whenever it was killed."""
        while True:
            with FusedJournal(self.stage.transcript(member), self.fuses[member]) as journal:
                try:
                    session = self.new_client(member, journal)
                    return await session.run(Wire(self, member, leaves))
                except Crash:
                    continue

    def new_client(self, member: int, journal: Journal) -> ClientSession:
        """A client's session from its folder."""
        fuse, stage = self.fuses[member], self.stage
        begin_transcript(journal, stage.setup)

        def vector() -> Integers:
            fuse.burn("before the vector")
            return stage.vectors[member]

        hooks = ClientHooks(vector, lambda: journal.append("ledger", bytes(32)), fuse.burn)
        me = LocalParty(member, stage.keys[member], OperatingSystem())
        session = ClientSession(stage.setup, me, stage.home(member), journal, hooks)
        memory = session._memory
        for name in ("keep", "erase"):
            setattr(memory, name, _between_points(fuse, name, getattr(memory, name)))
        return session

    async def call(self, member: int, make: Callable[[ServerSession], Awaitable[T]]) -> T:
        """Ask the server as the transport would: again when it died, and refusals end the session."""
        while True:
            while self.server is None and not self.is_stopped:
                await (self.serve() if self.is_over else asyncio.sleep(0))
            if self.server is None:
                raise asyncio.CancelledError
            call = asyncio.ensure_future(make(self.server))
            self._calls.add(call)
            try:
                return await call
            except Crash:
                await self.kill_server()
            except asyncio.CancelledError:
                if not call.cancelled():
                    raise
            except BadInput:
                raise ServerAway(0) from None
            except SecaggError as error:
                raise SessionAborted(f"the server refused: {error}") from None
            finally:
                self._calls.discard(call)

    async def kill_server(self) -> None:
        """The server's process is gone, with every call that it was answering."""
        self._bury()
        while self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.sleep(0)

    def _bury(self) -> None:
        self.server = None
        for call in list(self._calls):
            call.cancel()
        self.close()

    def close(self) -> None:
        """Close the server's journal."""
        if self._journal is not None:
            self._journal.close()


def _between_points(fuse: Fuse, name: str, action: Callable[..., None]) -> Callable[..., None]:
    def fused(*arguments: Any) -> None:
        fuse.burn(f"before memory {name}")
        action(*arguments)
        fuse.burn(f"after memory {name}")

    return fused


async def _ending_of(party: Awaitable[Outcome]) -> Any:
    try:
        return await party
    except (SecaggError, Left) as error:
        return error


class Left(Exception):
    """A client vanished for good, as the test wanted."""


class Wire:
    """One client's connection, in memory; what goes over it is kept by the federation."""

    def __init__(self, federation: Federation, member: int, leaves: str | None = None) -> None:
        self._federation = federation
        self._member = member
        self._leaves = leaves
        self._fuse = federation.fuses[member]

    async def submit(self, frame: bytes) -> bytes:
        """Hand one frame to the server."""
        self._send(frame)
        reply = await self._federation.call(self._member, lambda server: server.submit(self._member, frame))
        self._fuse.burn("after sending")
        return reply

    async def upload(self, frame: bytes, vector: Path) -> None:
        """Hand a frame and its vector to the server, in small parts."""
        self._send(frame)
        content = await asyncio.to_thread(vector.read_bytes)
        self._federation.uploaded[self._member].add(content)
        fuses = (self._fuse, self._federation.fuses[SERVER_INDEX])
        await self._federation.call(
            self._member, lambda server: server.upload(self._member, frame, parts_of(content, fuses))
        )
        self._fuse.burn("after uploading")

    async def fetch(self, plan: bytes, step: str, seconds: float) -> bytes:
        """Wait for the server's frame."""
        while True:
            frame = await self._federation.call(
                self._member, lambda server: server.fetch(self._member, plan, step, 0.2)
            )
            if frame:
                return frame
            if self._federation.is_over and self._federation.server is not None:
                raise ServerAway(0)

    def _send(self, frame: bytes) -> None:
        step = peek(frame).step
        if step == self._leaves:
            raise Left
        self._fuse.burn(f"before sending {step}")
        self._federation.sent[self._member, step].add(frame)


async def parts_of(content: bytes, fuses: tuple[Fuse, ...] = ()) -> AsyncIterator[bytes]:
    """A vector in small parts; whoever has a fuse may die between two of them."""
    for start in range(0, len(content), CHUNK):
        for fuse in fuses:
            fuse.burn("before a part")
        yield content[start : start + CHUNK]
