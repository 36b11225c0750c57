"""One session in memory: real parties with real folders, no sockets, and a crash where a test wants one.

`Fuse` counts the points at which a party could die and kills it at the chosen one; a killed party is rebuilt from its
folder, as a process would be that is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from methods.round import Examples, Local
from secagg.agreement.roster import SERVER_INDEX, Roster
from secagg.crypto.signatures import SigningKey
from secagg.encoding import Grid, Integers
from secagg.errors import MalformedMessage, ServerAway
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.protection import LocalParty
from secagg.protection.messages import Abort, Outcome
from secagg.randomness import OperatingSystem
from secagg.session import AggregatorWork, MemberSession, RoundSetup, ServerSession, SumResult, begin_transcript
from secagg.transcript import FILE_NAME, Journal, peek
from secagg.wire import tag_of
from tests.worlds.crashes import Crash, Fuse, FusedJournal
from tests.worlds.hosts import Host, Left, Life, ending_of, parts_of
from tests.worlds.rosters import fresh_identity, make_roster

PATIENCE = 60.0


@dataclass(frozen=True)
class SimulatedSession:
    """Plan, keys (index 0 is the server's) and vectors of one session under `folder`."""

    folder: Path
    setup: RoundSetup
    keys: tuple[SigningKey, ...]
    vectors: dict[int, Integers]
    choices: PlanChoices

    def home(self, member: int) -> Path:
        """A party's folder of this session."""
        path = self.folder / self.setup.roster.name(member) / self.setup.plan.session.hex()[:16]
        path.mkdir(parents=True, exist_ok=True)
        return path

    def transcript(self, member: int) -> Path:
        """A party's transcript."""
        return self.home(member) / FILE_NAME

    def total(self, members: tuple[int, ...]) -> Integers:
        """The exact sum of these members' vectors."""
        return np.sum([self.vectors[member] for member in members], axis=0)

    def again(self) -> SimulatedSession:
        """The same federation with the plan of another session."""
        return _planned(self.folder, self.setup.roster, self.keys, self.choices, self.setup.plan.classes)


def make_session(
    folder: Path,
    clients: int = 3,
    helpers: int | None = None,
    classes: tuple[str, ...] = ("no", "yes"),
    **choices: Any,
) -> SimulatedSession:
    """Draw identities, plan and records of a federation whose features are three numbers; all hold all classes.

    `helpers` is the number of aggregators where the protection has them; as few as may be by default.
    """
    roster, keys = make_roster(clients, choices.get("protection", "masked"), helpers, fresh_identity)
    fixed: dict[str, Any] = {"radius": 1.0, "levels": 1000, "max_records": 100, "step_seconds": 1, "join_seconds": 1}
    return _planned(folder, roster, keys, PlanChoices(**{**fixed, **choices}), classes)


def _planned(
    folder: Path, roster: Roster, keys: tuple[SigningKey, ...], choices: PlanChoices, classes: tuple[str, ...]
) -> SimulatedSession:
    data = PublicData("features", (3,), classes, None, None)
    setup = RoundSetup.of(make_plan(data, roster, choices, OperatingSystem()), roster)
    generator = np.random.default_rng(len(roster.clients))
    vectors = {}
    for member in roster.clients:
        examples = Examples.of(generator.integers(-400, 400, size=(20, 3)), np.arange(20) % len(classes))
        local = Local(examples, len(classes), Grid(1.0, 1000))
        vectors[member] = setup.sum.layout.flatten(setup.method.contribute(local).blocks)
    return SimulatedSession(folder, setup, keys, vectors, choices)


@dataclass(frozen=True)
class Ending:
    """How each party's session ended: an outcome or the exception that said why not."""

    server: Any
    clients: dict[int, Any]
    helpers: dict[int, Any]
    total: Integers | None


@dataclass
class Fixed:
    """A client's contributor whose vector is known beforehand."""

    flat: Integers
    burn: Callable[[str], None]
    before_upload: Callable[[], Any] = lambda: None

    def vector(self) -> Integers:
        """The vector, unless the fuse burns before it."""
        self.burn("before the vector")
        return self.flat


class SessionRun:
    """Runs every party of a session; a party with a fuse may die and is then started again from its folder.

    `stays`: clients wait for the outcome. Otherwise they leave where they may, and come back until there is one.
    """

    def __init__(self, world: SimulatedSession, fuses: dict[int, Fuse] | None = None, *, stays: bool = True) -> None:
        self.world = world
        self.fuses: defaultdict[int, Fuse] = defaultdict(Fuse, fuses or {})
        self.stays = stays
        self.totals: list[Integers] = []
        self.sent: defaultdict[tuple[int, str], set[bytes]] = defaultdict(set)
        self.uploaded: defaultdict[tuple[int, int], set[bytes]] = defaultdict(set)
        self.latest: dict[int, str] = {}
        """The step of the latest message that each party has sent, but to leave, or has heard."""
        called = (SERVER_INDEX, *world.setup.roster.with_role("aggregator"))
        self.hosts = {member: Host(member, partial(self._begin, member)) for member in called}
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
        setup, self._leaves = self.world.setup, leaving or {}
        clients = [member for member in setup.roster.clients if member not in absent]
        helpers = [member for member in setup.context.helpers if member not in absent]
        for member in set(self.hosts) & set(absent):
            self.hosts[member].is_gone = True
        parties: list[Coroutine[Any, Any, Any]] = [self.serve(), *map(self.helper, helpers)]
        parties += [self.client(member, self._leaves.get(member)) for member in clients]
        try:
            async with asyncio.timeout(PATIENCE):
                server, *ends = await asyncio.gather(*map(ending_of, parties))
        finally:
            self.close()
        of_helpers, of_clients = ends[: len(helpers)], ends[len(helpers) :]
        total = self.totals[-1] if self.totals else None
        return Ending(
            server, dict(zip(clients, of_clients, strict=True)), dict(zip(helpers, of_helpers, strict=True)), total
        )

    async def run_only_until(self, member: int) -> Outcome:
        """Everyone takes part until this client's session has ended; the others are then given up."""
        parties = [self.serve(), *map(self.helper, self.world.setup.context.helpers)]
        parties += [self.client(each) for each in self.world.setup.roster.clients if each != member]
        others = [asyncio.ensure_future(ending_of(party)) for party in parties]
        try:
            async with asyncio.timeout(PATIENCE):
                return await self.client(member)
        finally:
            self.close()
            for host in self.hosts.values():
                await host.kill()
            for other in others:
                other.cancel()
            await asyncio.wait(others)

    async def serve(self) -> Outcome:
        """The server."""
        outcome: Outcome = await self.hosts[SERVER_INDEX].live()
        return outcome

    def _begin(self, member: int) -> Life:
        """One life of a party that others call."""
        journal = FusedJournal(self.world.transcript(member), self.fuses[member])
        try:
            called, work = self.start(member, journal)
        except BaseException:  # a crash, or a session that was over before
            journal.close()
            raise
        return Life(called, work, journal.close, lambda: journal.is_dead)

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
        home, setup, fuse = self.world.home(SERVER_INDEX), self.world.setup, self.fuses[SERVER_INDEX]
        totals = self.totals

        class Fused(ServerSession):
            def write(self, result: SumResult) -> Outcome:
                fuse.burn("before the result")
                outcome = super().write(result)
                totals.append(result.vector)
                fuse.burn("after the result")
                return outcome

        return Fused(setup, self.world.keys[SERVER_INDEX], home, journal)

    def new_work(self, member: int, journal: Journal) -> AggregatorWork:
        """An aggregator's uploads, from its folder."""
        begin_transcript(journal, self.world.setup)
        work = AggregatorWork(self.world.setup, self.me(member), self.world.home(member), journal)
        return _fused(work, "_staging", self.fuses[member], "keep")

    def new_second(self, member: int, journal: Journal, work: AggregatorWork | None = None) -> MemberSession:
        """The session of an aggregator or a key holder from its folder."""
        begin_transcript(journal, self.world.setup)
        return self._session(member, journal) if work is None else self._session(member, journal, work=work.work)

    async def helper(self, member: int) -> Outcome:
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
            with FusedJournal(self.world.transcript(member), self.fuses[member]) as journal:
                try:
                    outcome = await make(member, journal).run(wire, others)
                    if outcome is not None:
                        return outcome
                except Crash:
                    continue
            await asyncio.sleep(0.02)

    def new_client(self, member: int, journal: Journal) -> MemberSession:
        """A client's session from its folder."""
        fuse, world = self.fuses[member], self.world
        begin_transcript(journal, world.setup)
        own = Fixed(world.vectors[member], fuse.burn, lambda: journal.append("ledger", bytes(32)))
        return self._session(member, journal, own)

    def me(self, member: int) -> LocalParty:
        """A party's identity."""
        return LocalParty(member, self.world.keys[member], OperatingSystem())

    def _session(self, member: int, journal: Journal, own: Fixed | None = None, **work: Any) -> MemberSession:
        world = self.world
        stays = self.stays or member not in world.setup.roster.clients
        burn = self.fuses[member].burn
        session = MemberSession(
            world.setup, self.me(member), world.home(member), journal, burn, own, stays=stays, **work
        )
        return _fused(session, "_memory", self.fuses[member], "keep", "erase")

    async def call(self, member: int, make: Callable[[ServerSession], Awaitable[Any]]) -> Any:
        """A member asks the server."""
        return await self.hosts[SERVER_INDEX].call(make)

    def close(self) -> None:
        """Nobody is started again; the journals of those that are called are closed."""
        for host in self.hosts.values():
            host.is_stopped = True
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


class Wire:
    """One party's connection to the server or an aggregator, in memory; what goes over it the federation keeps."""

    patience = 0.05

    def __init__(
        self, federation: SessionRun, member: int, leaves: str | None = None, receiver: int = SERVER_INDEX
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
        return self._heard(reply)

    async def upload(self, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        """Hand over a frame and its part of the file, in small parts."""
        self._send(frame)
        content = (await asyncio.to_thread(vector.read_bytes))[start : start + size]
        self._federation.uploaded[self._member, self._receiver].add(content)
        fuses = (self._fuse, self._federation.fuses[self._receiver])
        reply: bytes = await self._call(lambda party: party.upload(self._member, frame, parts_of(content, fuses)))
        self._fuse.burn("after uploading")
        return self._heard(reply)

    async def fetch(self, round_digest: bytes, step: str, seconds: float) -> bytes:
        """Wait for the server's frame."""
        host = self._federation.hosts[SERVER_INDEX]
        while True:
            is_over = host.is_over and host.session is not None
            frame: bytes | None = await self._call(
                lambda server: server.fetch(self._member, round_digest, step, min(0.2, seconds))
            )
            if frame or not seconds:
                return self._heard(frame or b"")
            if is_over:
                raise ServerAway(0)

    async def read(
        self, round_digest: bytes, digest: bytes, start: int, length: int, take: Callable[[bytes], None]
    ) -> None:
        """Take what the server has named, in small parts."""

        async def show(server: ServerSession) -> Path:
            return server.read(self._member, digest)

        path = await self._call(show)
        content = path.read_bytes()[start:length]
        for begin in range(0, len(content), size := max(1, len(content) // 3)):
            self._fuse.burn("before reading a part")
            take(content[begin : begin + size])

    async def _call(self, make: Callable[[Any], Awaitable[Any]]) -> Any:
        if self._receiver == SERVER_INDEX:
            return await self._federation.call(self._member, make)
        return await self._federation.hosts[self._receiver].call(make)

    def _send(self, frame: bytes) -> None:
        step = label = peek(frame).step
        if self._receiver != SERVER_INDEX:
            label = f"{step} to {self._federation.world.setup.roster.name(self._receiver)}"
        if self._leaves in (step, label):
            raise Left
        self._fuse.burn(f"before sending {label}")
        self._federation.sent[self._member, label].add(frame)
        if step != tag_of(Abort):
            self._federation.latest[self._member] = step

    def _heard(self, answer: bytes) -> bytes:
        with contextlib.suppress(MalformedMessage):
            if answer:
                self._federation.latest[self._member] = peek(answer).step
        return answer
