"""A plan of several sessions with all its parties in memory: real server and clients with their folders, no sockets.

The server may be killed at a record of its transcripts, clients may leave, and a test may put its hand on the wire.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from secagg.crypto.signatures import SigningKey
from secagg.errors import NotNow, SecaggError, ServerAway
from secagg.federation import FederationClient, FederationSecond, FederationServer, session_folder
from secagg.ledger import Ledger
from secagg.parties import LocalRecords, SessionSetup
from secagg.parties.consent import policy_accepting
from secagg.policy import Policy
from secagg.protection import LocalParty
from secagg.protection.messages import Outcome
from secagg.randomness import OperatingSystem
from secagg.roster import SERVER_INDEX
from secagg.transcript import FILE_NAME, peek
from tests.parties.promised import cast, promised, some_records

T = TypeVar("T")
PATIENCE = 60.0


@dataclass(frozen=True)
class Cast:
    """A plan, and each member's folder and records."""

    folder: Path
    setup: SessionSetup
    records: Mapping[int, LocalRecords]

    @classmethod
    def of(cls, folder: Path, clients: int = 4, refine: int = 2, **choices: Any) -> Cast:
        """Members with records of the same three classes; one may vanish."""
        fixed = {"epsilon": 8.0, "dropouts": 1, "join_seconds": 1, "step_seconds": 1}
        setup = promised(clients, refine=refine, **{**fixed, **choices})
        return cls(folder, setup, {member: some_records(setup, 30, seed=member) for member in setup.roster.clients})

    @property
    def keys(self) -> tuple[SigningKey, ...]:
        """Every party's identity key."""
        return cast(len(self.records), self.setup.plan.protection)[1]

    def state(self, member: int) -> Path:
        """A party's folder."""
        path = self.folder / self.setup.roster.name(member)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def policy(self, member: int) -> Policy:
        """What a member accepts: this plan."""
        return policy_accepting(self.setup.plan, self.setup.roster.name(member))

    def transcripts(self, member: int, stages: tuple[SessionSetup, ...]) -> list[Path]:
        """A party's transcripts of some sessions."""
        return [session_folder(self.state(member), stage) / FILE_NAME for stage in stages]

    def ledger(self, member: int) -> Ledger:
        """A member's ledger."""
        return Ledger(self.state(member))


@dataclass
class Played:
    """How a plan ended for everyone: the last session and its outcome, or why not."""

    server: Any
    clients: dict[int, Any]
    seconds: dict[int, Any]
    stages: tuple[SessionSetup, ...]
    restarts: int


Tamper = Callable[[int, str, bytes], bytes]


@dataclass
class Play:
    """Runs a plan. `kill` says at which records the server dies: (session, kind, step) of the transcript."""

    cast: Cast
    leaves: Mapping[int, int] = field(default_factory=dict)
    kill: list[tuple[int, str, str]] = field(default_factory=list)
    tamper: Tamper = lambda member, step, frame: frame
    stays: bool = True
    server: FederationServer | None = None
    seconds: dict[int, FederationSecond] = field(default_factory=dict)
    is_over: bool = False
    restarts: int = 0
    _calls: set[asyncio.Future[Any]] = field(default_factory=set)
    _dies: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> Played:
        """Everyone from beginning to end."""
        members, seconds = self.cast.setup.roster.clients, tuple(self.cast.setup.context.seconds)
        parties = [*map(self._second, seconds), *map(self._client, members)]
        async with asyncio.timeout(PATIENCE):
            end, *ends = await asyncio.gather(self._serve(), *map(_ending_of, parties))
        server = self.server
        assert server is not None
        stages = tuple(stage.setup for stage in server.stages)
        server.close()
        found = dict(zip((*seconds, *members), ends, strict=True))
        of_clients, of_seconds = ({each: found[each] for each in some} for some in (members, seconds))
        return Played(end, of_clients, of_seconds, stages, self.restarts)

    async def _serve(self) -> Any:
        """The server, started again from its folder whenever it was killed."""
        while True:
            self.server = FederationServer(
                self.cast.setup, self.cast.keys[SERVER_INDEX], self.cast.state(SERVER_INDEX), lambda text: None
            )
            running = asyncio.ensure_future(self.server.run())
            death = asyncio.ensure_future(self._dies.wait())
            await asyncio.wait([running, death], return_when=asyncio.FIRST_COMPLETED)
            death.cancel()
            if not running.done():
                self._dies.clear()
                self.restarts += 1
                self.server.close()
                self.server = None
                for call in list(self._calls):
                    call.cancel()
                while not running.done():
                    running.cancel()
                    await asyncio.sleep(0)
                continue
            self.is_over = True
            return await _ending_of(running)

    def _is_due(self) -> bool:
        """Whether a record is written at which the server is to die; each kills once."""
        for point in self.kill:
            number, kind, step = point
            stages = self.server.stages if self.server is not None else ()
            if len(stages) < number:
                continue
            records = stages[number - 1].session._journal.records()
            if any(record.kind == kind and step in (_text(record), _step(record)) for record in records):
                self.kill.remove(point)
                return True
        return False

    async def _client(self, member: int) -> tuple[SessionSetup, Outcome]:
        me = LocalParty(member, self.cast.keys[member], OperatingSystem())
        client = FederationClient(
            self.cast.setup,
            me,
            self.cast.policy(member),
            self.cast.ledger(member),
            self.cast.state(member),
            self.cast.records[member],
            lambda: None,
            lambda text: None,
            self.stays,
        )
        others = {index: Wire(self, member, index) for index in self.seconds}
        while True:
            done = await client.run(Wire(self, member), others)
            if done and not done[-1][1].broadcast:
                return done[-1]
            await asyncio.sleep(0.02)

    async def _second(self, member: int) -> tuple[SessionSetup, Outcome]:
        me = LocalParty(member, self.cast.keys[member], OperatingSystem())
        second = FederationSecond(self.cast.setup, me, self.cast.state(member), lambda text: None)
        self.seconds[member] = second
        return (await second.run(Wire(self, member)))[-1]

    async def call(self, make: Callable[[FederationServer], Awaitable[T]]) -> T:
        """Ask the server as the transport would: again when it was away; a refusal ends nothing."""
        while True:
            server = self.server
            if server is None:
                await asyncio.sleep(0.001)
                continue
            call = asyncio.ensure_future(make(server))
            self._calls.add(call)
            try:
                return await call
            except asyncio.CancelledError:
                if not call.cancelled():
                    raise
            except SecaggError as error:
                raise ServerAway(0, said=str(error)) from None
            finally:
                self._calls.discard(call)
                if self._is_due():
                    self._dies.set()


class Gone(Exception):
    """A client left for good, as the test wanted."""


class Wire:
    """One party's connection to the server, or to an aggregator."""

    patience = 0.05

    def __init__(self, play: Play, member: int, receiver: int = SERVER_INDEX) -> None:
        self._play = play
        self._member = member
        self._receiver = receiver
        self._sessions: list[bytes] = []

    def _count(self, plan: bytes) -> None:
        if plan not in self._sessions:
            self._sessions.append(plan)
        if len(self._sessions) > self._play.leaves.get(self._member, 1000):
            raise Gone

    async def submit(self, frame: bytes) -> bytes:
        """Hand one frame to the server."""
        self._count(peek(frame).plan)
        return await self._play.call(lambda server: server.submit(self._member, frame))

    async def upload(self, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        """Hand over a frame and its part of the file; again while an aggregator is not ready for it."""
        self._count(peek(frame).plan)
        content = (await asyncio.to_thread(vector.read_bytes))[start : start + size]
        if self._receiver == SERVER_INDEX:
            return await self._play.call(lambda server: server.upload(self._member, frame, _parts(content)))
        while True:
            try:
                return await self._play.seconds[self._receiver].upload(self._member, frame, _parts(content))
            except NotNow:
                await asyncio.sleep(0.001)
            except SecaggError as error:
                raise ServerAway(0, said=str(error)) from None

    async def fetch(self, plan: bytes, step: str, seconds: float) -> bytes:
        """Wait for the server's frame."""
        self._count(plan)
        while True:
            frame = await self._play.call(lambda server: server.fetch(self._member, plan, step, 0.1))
            if frame:
                return self._play.tamper(self._member, step, frame)
            if self._play.is_over:
                raise ServerAway(0)
            if not seconds:
                return b""


async def _parts(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 1000):
        yield content[start : start + 1000]


async def _ending_of(party: Awaitable[Any]) -> Any:
    try:
        return await party
    except (SecaggError, Gone) as error:
        return error


def _step(record: Any) -> str:
    return peek(record.content).step if record.kind in ("sent", "received") else ""


def _text(record: Any) -> str:
    return str(record.content.decode(errors="replace"))


def opened(cast_: Cast, stage: SessionSetup) -> np.ndarray:
    """The sum that the server opened in a session."""
    with np.load(session_folder(cast_.state(SERVER_INDEX), stage) / "aggregate.npz") as blocks:
        return np.concatenate([blocks[block.name].reshape(-1) for block in stage.layout.blocks])
