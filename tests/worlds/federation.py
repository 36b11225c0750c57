"""A plan of several sessions with all its parties in memory: real server and clients with their folders, no sockets.

The server may be killed at a record of its transcripts, clients may leave, and a test may put its hand on the wire.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from secagg.agreement.policy import Policy
from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.signatures import SigningKey
from secagg.errors import ServerAway
from secagg.federation import FederationClient, FederationHelper, FederationServer, session_folder
from secagg.ledger import Ledger
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.plan_facts.records import LocalRecords
from secagg.protection import LocalParty
from secagg.protection.messages import Attachment, Outcome
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from secagg.session.attachments import OPENING_FILE, SUM_FILE
from secagg.session.outcome import HEAD_FILE, OutcomeContents, unpack_sum
from secagg.transcript import FILE_NAME, peek
from secagg.verification.verification import Trust
from tests.worlds.hosts import Host, Left, Life, ending_of, parts_of
from tests.worlds.rosters import make_roster
from tests.worlds.setups import make_setup, some_records
from threat_models.active.stage import at_once

PATIENCE = 60.0


@dataclass(frozen=True)
class SimulatedFederation:
    """A plan, and each member's folder and records."""

    folder: Path
    setup: RoundSetup
    records: Mapping[int, LocalRecords]

    @classmethod
    def of(cls, folder: Path, clients: int = 4, refine: int = 2, **choices: Any) -> SimulatedFederation:
        """Members with records of the same three classes; one may vanish."""
        fixed = {"epsilon": 8.0, "dropouts": 1, "join_seconds": 1, "step_seconds": 1}
        setup = make_setup(clients, refine=refine, **{**fixed, **choices})
        return cls(folder, setup, {member: some_records(setup, 30, seed=member) for member in setup.roster.clients})

    @property
    def keys(self) -> tuple[SigningKey, ...]:
        """Every party's identity key."""
        return make_roster(len(self.records), self.setup.plan.protection)[1]

    @property
    def trust(self) -> Trust:
        """What all parties together trust who bring their own keys: the notes that each has signed."""
        return Trust(identities=tuple(key.public for key in self.keys))

    def state(self, member: int) -> Path:
        """A party's folder."""
        path = self.folder / self.setup.roster.name(member)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def policy(self, member: int) -> Policy:
        """What a member accepts: this plan."""
        return policy_accepting(self.setup.plan, self.setup.roster.name(member))

    def transcripts(self, member: int, stages: tuple[RoundSetup, ...]) -> list[Path]:
        """A party's transcripts of some sessions."""
        return [session_folder(self.state(member), stage) / FILE_NAME for stage in stages]

    def ledger(self, member: int) -> Ledger:
        """A member's ledger."""
        return Ledger(self.state(member))


@dataclass
class Ending:
    """How a plan ended for everyone: the last session and its outcome, or why not."""

    server: Any
    clients: dict[int, Any]
    helpers: dict[int, Any]
    stages: tuple[RoundSetup, ...]
    restarts: int


Finished = tuple[SimulatedFederation, Ending]
Tamper = Callable[[int, str, bytes], bytes]


async def run_federation(world: SimulatedFederation, **events: Any) -> Ending:
    """Run a plan with all its parties from beginning to end; `events` are the fields of `FederationRun`."""
    return await FederationRun(world, **events).run()


@dataclass
class FederationRun:
    """A plan that runs. A client in `leaves` is gone after so many sessions; `tamper` changes what parties fetch.

    `kill` says at which records the server dies: (session, kind, step) of the transcript.
    """

    world: SimulatedFederation
    leaves: Mapping[int, int] = field(default_factory=dict)
    kill: list[tuple[int, str, str]] = field(default_factory=list)
    tamper: Tamper = lambda member, step, frame: frame
    stays: bool = True
    hosts: dict[int, Host] = field(default_factory=dict)

    async def run(self) -> Ending:
        """Everyone from beginning to end."""
        members, helpers = self.world.setup.roster.clients, tuple(self.world.setup.context.helpers)
        self.hosts = {SERVER_INDEX: Host(SERVER_INDEX, self._begin_server)}
        self.hosts |= {member: Host(member, partial(self._begin_helper, member)) for member in helpers}
        parties = [*(host.live() for host in self.hosts.values()), *map(self._client, members)]
        async with asyncio.timeout(PATIENCE):
            ends = await asyncio.gather(*map(ending_of, parties))
        server = self.hosts[SERVER_INDEX]
        stages = tuple(stage.setup for stage in server.session.stages)
        server.close()
        found = dict(zip((SERVER_INDEX, *helpers, *members), ends, strict=True))
        of_clients, of_helpers = ({each: found[each] for each in some} for some in (members, helpers))
        return Ending(found[SERVER_INDEX], of_clients, of_helpers, stages, server.lives - 1)

    def _begin_server(self) -> Life:
        world = self.world
        server = FederationServer(world.setup, world.keys[SERVER_INDEX], world.state(SERVER_INDEX), lambda text: None)
        return Life(server, server.run(), server.close)

    def _begin_helper(self, member: int) -> Life:
        helper = FederationHelper(self.world.setup, self._me(member), self.world.state(member), lambda text: None)

        async def work() -> tuple[RoundSetup, Outcome]:
            return (await helper.run(Wire(self, member)))[-1]

        return Life(helper, work(), lambda: None)

    async def _client(self, member: int) -> tuple[RoundSetup, Outcome]:
        client = FederationClient(
            self.world.setup,
            self._me(member),
            self.world.policy(member),
            self.world.ledger(member),
            self.world.state(member),
            self.world.records[member],
            at_once,
            lambda text: None,
            self.stays,
        )
        others = {index: Wire(self, member, index) for index in self.hosts if index != SERVER_INDEX}
        while True:
            done = await client.run(Wire(self, member), others)
            if done and done[-1][1].opens is None:
                return done[-1]
            await asyncio.sleep(0.02)

    def _me(self, member: int) -> LocalParty:
        return LocalParty(member, self.world.keys[member], OperatingSystem())

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """What comes before a client's call about a session: nothing, unless a test has it wait or leave."""

    def number_of(self, plan: bytes) -> int:
        """Which session this is at the server, from 1; one more than there are for the end of a plan with cohorts."""
        known = [stage.setup.context.round_digest for stage in self.hosts[SERVER_INDEX].session.stages]
        return known.index(plan) + 1 if plan in known else len(known) + 1

    async def call(self, receiver: int, make: Callable[[Any], Awaitable[Any]]) -> Any:
        """Ask the server or an aggregator; the server may die once it has answered."""
        host = self.hosts[receiver]
        try:
            return await host.call(make)
        finally:
            if receiver == SERVER_INDEX and host.session is not None and self._is_due(host.session):
                await host.kill()

    def _is_due(self, server: FederationServer) -> bool:
        """Whether a record is written at which the server is to die; each kills once."""
        for point in self.kill:
            number, kind, step = point
            if len(server.stages) < number:
                continue
            records = server.stages[number - 1].session._journal.records()
            if any(record.kind == kind and step in (_text(record), _step(record)) for record in records):
                self.kill.remove(point)
                return True
        return False


class Wire:
    """One party's connection to the server, or to an aggregator."""

    patience = 0.05

    def __init__(self, run: FederationRun, member: int, receiver: int = SERVER_INDEX) -> None:
        self._run = run
        self._member = member
        self._receiver = receiver
        self._sessions: list[bytes] = []

    def _count(self, plan: bytes) -> None:
        if plan not in self._sessions:
            self._sessions.append(plan)
        if len(self._sessions) > self._run.leaves.get(self._member, 1000):
            raise Left

    async def _begin(self, frame: bytes) -> None:
        body = peek(frame)
        self._count(body.round_digest)
        await self._run.pause(self._member, body.round_digest, body.step)

    async def submit(self, frame: bytes) -> bytes:
        """Hand one frame over."""
        await self._begin(frame)
        reply: bytes = await self._run.call(self._receiver, lambda party: party.submit(self._member, frame))
        return reply

    async def upload(self, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        """Hand over a frame and its part of the file."""
        await self._begin(frame)
        content = (await asyncio.to_thread(vector.read_bytes))[start : start + size]
        reply: bytes = await self._run.call(
            self._receiver, lambda party: party.upload(self._member, frame, parts_of(content))
        )
        return reply

    async def fetch(self, round_digest: bytes, step: str, seconds: float) -> bytes:
        """Wait for the server's frame."""
        self._count(round_digest)
        await self._run.pause(self._member, round_digest, step)
        host = self._run.hosts[self._receiver]
        while True:
            is_over = host.is_over and host.session is not None
            frame = await self._run.call(
                self._receiver, lambda party: party.fetch(self._member, round_digest, step, 0.1)
            )
            if frame:
                return self._run.tamper(self._member, step, frame)
            if is_over:
                raise ServerAway(0)
            if not seconds:
                return b""

    async def read(
        self, round_digest: bytes, digest: bytes, start: int, length: int, take: Callable[[bytes], None]
    ) -> None:
        """Take what the server has named, in small parts, or what a test has put in its place."""
        self._count(round_digest)
        await self._run.pause(self._member, round_digest, "Read")
        path = lie_file(self._run.world, digest)
        if not path.exists():
            path = await self._run.call(self._receiver, lambda party: party.read(self._member, round_digest, digest))
        read_parts(path, start, length, take)


def read_parts(path: Path, start: int, length: int, take: Callable[[bytes], None]) -> None:
    """Have a file's bytes taken in eight parts."""
    content = path.read_bytes()[start:length]
    size = max(1, len(content) // 8)
    for begin in range(0, len(content), size):
        take(content[begin : begin + size])


def lie_file(world: SimulatedFederation, digest: bytes) -> Path:
    """Where a test puts what a lying server shows under this digest."""
    return world.folder / "lies" / digest.hex()


def lie(world: SimulatedFederation, told: OutcomeContents, true: Outcome) -> Outcome:
    """An outcome whose bytes are shown to whoever asks for them; a sum is released in the files of the `true` one."""
    for content in (told.head, told.broadcast):
        path = lie_file(world, Attachment.of(content).digest)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return replace(told.message, release=true.release if told.release else ())


def told_of(world: SimulatedFederation, outcome: Outcome) -> OutcomeContents:
    """What the server has told with an outcome, by the files that it keeps."""
    state = world.state(SERVER_INDEX)
    files = [path for name in (HEAD_FILE, OPENING_FILE, "release-0.bin", SUM_FILE) for path in state.glob(f"*/{name}")]
    kept = {hashlib.sha256(path.read_bytes()).digest(): path for path in files}
    head, broadcast, release = (kept[named[0].digest] if named else None for named in outcome.attached)
    release = release and release.parent / SUM_FILE  # which is the release, or what the release opens to
    parts = (path.read_bytes() if path else b"" for path in (head, broadcast, release))
    return OutcomeContents(outcome.members, outcome.aggregate_sha256, outcome.head_sha256, *parts)


def _step(record: Any) -> str:
    return peek(record.content).step if record.kind in ("sent", "received") else ""


def _text(record: Any) -> str:
    return str(record.content.decode(errors="replace"))


def opened(world: SimulatedFederation, stage: RoundSetup) -> np.ndarray:
    """The sum that the server opened in a session."""
    return unpack_sum(stage, (session_folder(world.state(SERVER_INDEX), stage) / SUM_FILE).read_bytes())
