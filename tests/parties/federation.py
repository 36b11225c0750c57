"""A whole federation in memory: real parties with real folders, no sockets, and a crash where a test wants one.

`Fuse` counts the points at which a party could die and kills it at the chosen one; a killed party is rebuilt from its
folder, as a process would be that is started again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secagg.encoding import Integers
from secagg.errors import NotNow, SecaggError, ServerAway
from secagg.parties import (
    AggregatorWork,
    Hooks,
    MemberSession,
    ServerSession,
    SumResult,
    begin_transcript,
    write_result,
)
from secagg.protection import LocalParty
from secagg.protection.messages import Outcome
from secagg.randomness import OperatingSystem
from secagg.roster import SERVER_INDEX
from secagg.transcript import Journal, peek
from tests.parties.stage import Crash, Fuse, FusedJournal, Stage

PATIENCE = 60.0
CHUNK = 40


@dataclass(frozen=True)
class Ending:
    """How each party's session ended: an outcome or the exception that said why not."""

    server: Any
    clients: dict[int, Any]
    seconds: dict[int, Any]
    total: Integers | None


class Host:
    """A party that others call. Killed, it takes along every call that it is answering, and is started again."""

    def __init__(self, federation: Federation, member: int) -> None:
        self._federation = federation
        self._member = member
        self.session: Any = None
        self.is_over = False
        self.is_gone = False
        self._calls: set[asyncio.Future[Any]] = set()
        self._running: asyncio.Task[Any] | None = None
        self._revived: asyncio.Task[Any] | None = None
        self._journal: FusedJournal | None = None

    async def live(self) -> Any:
        """The party's whole session, started again whenever it was killed."""
        transcript, fuse = self._federation.stage.transcript(self._member), self._federation.fuses[self._member]
        while True:
            self.is_over = False
            try:
                self._journal = FusedJournal(transcript, fuse)
                self.session, running = self._federation.start(self._member, self._journal)
                self._running = asyncio.ensure_future(running)
                outcome = await self._running
                if not self._journal.is_dead:  # else it ended on what no record holds
                    return outcome
                self._bury()
            except (Crash, asyncio.CancelledError):
                self._bury()
                task = asyncio.current_task()
                if self._federation.is_stopped or (task is not None and task.cancelling()):
                    raise
            except Left:
                self.is_gone = True
                raise
            finally:
                self.is_over = True

    async def call(self, make: Callable[[Any], Awaitable[Any]]) -> Any:
        """Ask the party as the transport would: again when it died; a refusal ends nothing, and is not waited out."""
        while True:
            while self.session is None and not self._federation.is_stopped and not self.is_gone:
                if self.is_over:
                    self.is_over, self._revived = False, asyncio.ensure_future(self.live())
                await asyncio.sleep(0)
            if self.is_gone:
                raise ServerAway(0)
            if self.session is None:
                raise asyncio.CancelledError
            call = asyncio.ensure_future(make(self.session))
            self._calls.add(call)
            try:
                return await call
            except Crash:
                await self.kill()
            except asyncio.CancelledError:
                if not call.cancelled():
                    raise
            except NotNow as error:
                if self._member == SERVER_INDEX or self.is_over:
                    raise ServerAway(0, said=error.problem) from None
                await asyncio.sleep(0.001)  # an aggregator whose collection has not begun is asked again
            except SecaggError as error:
                raise ServerAway(0, said=str(error)) from None
            finally:
                self._calls.discard(call)

    async def kill(self) -> None:
        """The party's process is gone, with every call that it was answering."""
        self._bury()
        while self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.sleep(0)

    def _bury(self) -> None:
        self.session = None
        for call in list(self._calls):
            call.cancel()
        self.close()

    def close(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            self._journal.close()


class Federation:
    """Runs every party of a stage; a party with a fuse may die and is then started again from its folder.

    `stays`: clients wait for the outcome. Otherwise they leave where they may, and come back until there is one.
    """

    def __init__(self, stage: Stage, fuses: dict[int, Fuse] | None = None, *, stays: bool = True) -> None:
        self.stage = stage
        self.fuses: defaultdict[int, Fuse] = defaultdict(Fuse, fuses or {})
        self.stays = stays
        self.is_stopped = False
        self.totals: list[Integers] = []
        self.sent: defaultdict[tuple[int, str], set[bytes]] = defaultdict(set)
        self.uploaded: defaultdict[tuple[int, int], set[bytes]] = defaultdict(set)
        called = (SERVER_INDEX, *stage.setup.roster.with_role("aggregator"))
        self.hosts = {member: Host(self, member) for member in called}
        self._leaves: dict[int, str] = {}

    @property
    def server(self) -> ServerSession | None:
        """The server's session, while it lives."""
        session: ServerSession | None = self.hosts[SERVER_INDEX].session
        return session

    async def run(self, *, absent: tuple[int, ...] = (), leaving: dict[int, str] | None = None) -> Ending:
        """Everyone but the absent takes part; `leaving` names the frame before which a party is gone for good.

        A frame goes by its step, or by its step and its receiver: "ShareManifest to aggregator-1".
        """
        setup, self._leaves = self.stage.setup, leaving or {}
        clients = [member for member in setup.roster.clients if member not in absent]
        seconds = [member for member in setup.context.seconds if member not in absent]
        for member in set(self.hosts) & set(absent):
            self.hosts[member].is_gone = True
        parties: list[Coroutine[Any, Any, Any]] = [self.serve(), *map(self.second, seconds)]
        parties += [self.client(member, self._leaves.get(member)) for member in clients]
        try:
            async with asyncio.timeout(PATIENCE):
                server, *ends = await asyncio.gather(*map(_ending_of, parties))
        finally:
            self.is_stopped = True
            self.close()
        of_seconds, of_clients = ends[: len(seconds)], ends[len(seconds) :]
        total = self.totals[-1] if self.totals else None
        return Ending(
            server, dict(zip(clients, of_clients, strict=True)), dict(zip(seconds, of_seconds, strict=True)), total
        )

    async def run_only_until(self, member: int) -> Outcome:
        """Everyone takes part until this client's session has ended; the others are then given up."""
        parties = [self.serve(), *map(self.second, self.stage.setup.context.seconds)]
        parties += [self.client(each) for each in self.stage.setup.roster.clients if each != member]
        others = [asyncio.ensure_future(_ending_of(party)) for party in parties]
        try:
            async with asyncio.timeout(PATIENCE):
                return await self.client(member)
        finally:
            self.is_stopped = True
            for host in self.hosts.values():
                await host.kill()
            for other in others:
                other.cancel()
            await asyncio.wait(others)

    async def serve(self) -> Outcome:
        """The server."""
        outcome: Outcome = await self.hosts[SERVER_INDEX].live()
        return outcome

    def start(self, member: int, journal: Journal) -> tuple[Any, Coroutine[Any, Any, Any]]:
        """What answers the calls of a party that others call, and its session."""
        if member == SERVER_INDEX:
            server = self.new_server(journal)
            return server, server.run()
        work = self.new_work(member, journal)
        session = self.new_second(member, journal, work)
        return work, session.run(Wire(self, member, self._leaves.get(member)))

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

    def new_work(self, member: int, journal: Journal) -> AggregatorWork:
        """An aggregator's uploads, from its folder."""
        begin_transcript(journal, self.stage.setup)
        work = AggregatorWork(self.stage.setup, self.me(member), self.stage.home(member), journal)
        return _fused(work, "_staging", self.fuses[member], "keep")

    def new_second(self, member: int, journal: Journal, work: AggregatorWork | None = None) -> MemberSession:
        """The session of an aggregator or a key holder from its folder."""
        fuse = self.fuses[member]
        begin_transcript(journal, self.stage.setup)
        hooks = Hooks(fuse.burn) if work is None else Hooks(fuse.burn, work=work.work)
        return self._session(member, journal, hooks)

    async def second(self, member: int) -> Outcome:
        """An aggregator or the key holder, started again whenever it was killed."""
        if member in self.hosts:
            outcome: Outcome = await self.hosts[member].live()
            return outcome
        return await self._again(member, self.new_second, Wire(self, member, self._leaves.get(member)), {})

    async def client(self, member: int, leaves: str | None = None) -> Outcome:
        """A client, started again whenever it was killed or has left before there was an outcome."""
        others = {index: Wire(self, member, leaves, index) for index in self.hosts if index != SERVER_INDEX}
        return await self._again(member, self.new_client, Wire(self, member, leaves), others)

    async def _again(
        self, member: int, make: Callable[[int, Journal], MemberSession], wire: Wire, others: dict[int, Wire]
    ) -> Outcome:
        while True:
            with FusedJournal(self.stage.transcript(member), self.fuses[member]) as journal:
                try:
                    outcome = await make(member, journal).run(wire, others)
                    if outcome is not None:
                        return outcome
                except Crash:
                    continue
            await asyncio.sleep(0.02)

    def new_client(self, member: int, journal: Journal) -> MemberSession:
        """A client's session from its folder."""
        fuse, stage = self.fuses[member], self.stage
        begin_transcript(journal, stage.setup)

        def vector() -> Integers:
            fuse.burn("before the vector")
            return stage.vectors[member]

        return self._session(member, journal, Hooks(fuse.burn, vector, lambda: journal.append("ledger", bytes(32))))

    def me(self, member: int) -> LocalParty:
        """A party's identity."""
        return LocalParty(member, self.stage.keys[member], OperatingSystem())

    def _session(self, member: int, journal: Journal, hooks: Hooks) -> MemberSession:
        stage = self.stage
        stays = self.stays or member not in stage.setup.roster.clients
        session = MemberSession(stage.setup, self.me(member), stage.home(member), journal, hooks, stays)
        return _fused(session, "_memory", self.fuses[member], "keep", "erase")

    async def call(self, member: int, make: Callable[[ServerSession], Awaitable[Any]]) -> Any:
        """A member asks the server."""
        return await self.hosts[SERVER_INDEX].call(make)

    def close(self) -> None:
        """Close the journals of those that are called."""
        for host in self.hosts.values():
            host.close()


def _fused(owner: Any, part: str, fuse: Fuse, *names: str) -> Any:
    """The owner, whose part may die just before or just after an action."""

    def between_points(name: str, action: Callable[..., None]) -> Callable[..., None]:
        def fused(*arguments: Any) -> None:
            fuse.burn(f"before {part[1:]} {name}")
            action(*arguments)
            fuse.burn(f"after {part[1:]} {name}")

        return fused

    kept = getattr(owner, part)
    for name in names:
        setattr(kept, name, between_points(name, getattr(kept, name)))
    return owner


async def _ending_of(party: Awaitable[Outcome]) -> Any:
    try:
        return await party
    except (SecaggError, Left) as error:
        return error


class Left(Exception):
    """A party vanished for good, as the test wanted."""


class Wire:
    """One party's connection to the server or an aggregator, in memory; what goes over it the federation keeps."""

    patience = 0.05

    def __init__(
        self, federation: Federation, member: int, leaves: str | None = None, receiver: int = SERVER_INDEX
    ) -> None:
        self._federation = federation
        self._member = member
        self._leaves = leaves
        self._receiver = receiver
        self._fuse = federation.fuses[member]

    async def submit(self, frame: bytes) -> bytes:
        """Hand one frame over."""
        self._send(frame)
        reply: bytes = await self._call(lambda party: party.submit(self._member, frame))
        self._fuse.burn("after sending")
        return reply

    async def upload(self, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        """Hand over a frame and its part of the file, in small parts."""
        self._send(frame)
        content = (await asyncio.to_thread(vector.read_bytes))[start : start + size]
        self._federation.uploaded[self._member, self._receiver].add(content)
        fuses = (self._fuse, self._federation.fuses[self._receiver])
        reply: bytes = await self._call(lambda party: party.upload(self._member, frame, parts_of(content, fuses)))
        self._fuse.burn("after uploading")
        return reply

    async def fetch(self, plan: bytes, step: str, seconds: float) -> bytes:
        """Wait for the server's frame."""
        host = self._federation.hosts[SERVER_INDEX]
        while True:
            is_over = host.is_over and host.session is not None
            frame: bytes | None = await self._call(
                lambda server: server.fetch(self._member, plan, step, min(0.2, seconds))
            )
            if frame or not seconds:
                return frame or b""
            if is_over:
                raise ServerAway(0)

    async def _call(self, make: Callable[[Any], Awaitable[Any]]) -> Any:
        if self._receiver == SERVER_INDEX:
            return await self._federation.call(self._member, make)
        return await self._federation.hosts[self._receiver].call(make)

    def _send(self, frame: bytes) -> None:
        step = label = peek(frame).step
        if self._receiver != SERVER_INDEX:
            label = f"{step} to {self._federation.stage.setup.roster.name(self._receiver)}"
        if self._leaves in (step, label):
            raise Left
        self._fuse.burn(f"before sending {label}")
        self._federation.sent[self._member, label].add(frame)


async def parts_of(content: bytes, fuses: tuple[Fuse, ...] = ()) -> AsyncIterator[bytes]:
    """A vector in small parts; whoever has a fuse may die between two of them."""
    size = max(CHUNK, len(content) // 8)
    for start in range(0, len(content), size):
        for fuse in fuses:
            fuse.burn("before a part")
        yield content[start : start + size]
