"""One whole session of 100 clients and 10 dropouts in this process: real parties, frames, transcripts and disks.

Only gRPC and TLS are missing. All parties share one event loop, which charges each one's work to its own account and
leaves out the waits for those who left. That the accounts add up to what the process used is checked.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import numpy as np

from methods.method import Parameters, SimpleMethod, SumSpec
from methods.round import Contribution, Local, OpenedTotal, Step
from secagg.encoding import Block, Kind
from secagg.encoding.moments import Integers
from secagg.errors import ServerAway
from secagg.heads import LinearHead
from secagg.protection.masking.messages import Opening
from secagg.protection.messages import Outcome, UploadHeader
from secagg.session import RoundSetup, ServerSession, SumResult
from secagg.transcript import FILE_NAME, Journal, peek
from secagg.transport import Credentials
from secagg.transport.limits import CHUNK_BYTES
from secagg.wire import rpc
from tests.benchmarks.metering import (
    ACCOUNT,
    Account,
    Balance,
    Meter,
    MeteredLoop,
    metered_disk,
    on_account,
    queue_seconds,
)
from tests.benchmarks.scenario import (
    CLASSES,
    CLIENTS,
    DROPOUTS,
    LENGTH,
    STEP_SECONDS,
    Members,
    client_session,
    enrol,
    random_vectors,
    resized,
    say,
)

_UPLOAD = UploadHeader.__name__
_OPENING = Opening.__name__
VECTOR = "vector"
FETCHES = "requests for the server's messages"
_MOST_LEFT_OUT = 3.0 * STEP_SECONDS
"""Seconds: one step waits for those who left, and at most twice its time."""


@dataclass
class SessionCosts:
    """What one session cost: client figures are means over the survivors.

    `client_cpu` is CPU seconds for each message that a client sends, `client_bytes` the bytes of the requests that
    carry it. `share_checks` is the server's CPU for taking all openings, `after_last_opening` its other CPU from the
    last of them to the opened integers (recovery, adding up, unmasking). `transcript_wait` is how long the server
    waited for its disk to have the openings, one by one. `left_out` is for how many
    seconds everybody would have waited for those who left.
    """

    client_cpu: dict[str, float]
    client_bytes: dict[str, float]
    share_checks: float
    after_last_opening: float
    transcript_wait: float
    left_out: float
    balance: Balance

    @property
    def cpu(self) -> float:
        """CPU seconds of one client."""
        return sum(self.client_cpu.values())

    @property
    def opening(self) -> float:
        """CPU seconds from the openings to the opened integers."""
        return self.share_checks + self.after_last_opening


@dataclass
class _Stage:
    """What the parties of one session share: the server and everybody's account.

    The server has one account for the openings and one for all else, `before_opening` is the CPU on the latter when
    the last opening was sent.
    """

    server: ServerSession
    setup: RoundSetup
    clients: dict[int, Account] = field(default_factory=dict)
    sent: dict[int, defaultdict[str, float]] = field(default_factory=dict)
    serving: Account = field(default_factory=Account)
    openings: Account = field(default_factory=Account)
    before_opening: float = 0.0

    @property
    def accounts(self) -> list[Account]:
        """Those of all parties."""
        return [*self.clients.values(), self.serving, self.openings]


class _Wire:
    """One client's connection: charges what it used to what it sends, and counts the bytes."""

    patience = 0.0

    def __init__(self, stage: _Stage, meter: Meter, member: int) -> None:
        self._stage, self._meter, self._member = stage, meter, member
        self._account = stage.clients.setdefault(member, Account())
        self._sent = stage.sent.setdefault(member, defaultdict(float))
        ACCOUNT.set(self._account)

    def charge(self, step: str | None = None) -> None:
        """Charge what the client has used since it last sent something to the step (None: the one before)."""
        self._meter.lap()
        self._account.charge(step)

    async def submit(self, frame: bytes) -> bytes:
        """A frame in one request."""
        self.charge(step := peek(frame).step)
        self._sent[step] += rpc.SubmitRequest(frame=frame).ByteSize()
        stage = self._stage
        account = stage.openings if step == _OPENING else stage.serving
        if step == _OPENING:
            stage.before_opening = stage.serving.total
        return await on_account(account, stage.server.submit(self._member, frame))

    async def upload(self, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        """A frame and the vector, in the parts in which `transport.Link` sends them."""
        self.charge(_UPLOAD)
        if self._member <= self._stage.setup.plan.dropouts:  # the first clients leave when they should upload
            raise ServerAway(0.0)
        self._sent[_UPLOAD] += rpc.UploadPart(frame=frame).ByteSize()
        stage = self._stage
        return await on_account(stage.serving, stage.server.upload(self._member, frame, self._parts(vector)))

    async def fetch(self, round_digest: bytes, step: str, seconds: float) -> bytes:
        """Wait for the server's frame."""
        self.charge()
        frame, stage = None, self._stage
        while frame is None:
            self._sent[FETCHES] += rpc.FetchRequest(round_digest=round_digest, step=step).ByteSize()
            frame = await on_account(stage.serving, stage.server.fetch(self._member, round_digest, step, 2 * seconds))
        return frame

    async def read(
        self, round_digest: bytes, digest: bytes, start: int, length: int, take: Callable[[bytes], None]
    ) -> None:
        """Nothing is named beside this session's outcome."""
        raise NotImplementedError

    async def _parts(self, vector: Path) -> AsyncIterator[bytes]:
        for part in _upload_parts(vector):
            self._sent[VECTOR] += part.ByteSize()
            yield part.data


def _upload_parts(vector: Path) -> Iterator[rpc.UploadPart]:
    with vector.open("rb") as file:
        while data := file.read(CHUNK_BYTES):
            yield rpc.UploadPart(data=data)


def measure_sessions(repeats: int, clients: int = CLIENTS, dropouts: int = DROPOUTS) -> list[SessionCosts]:
    """Run the session several times.

    Raises ValueError when the opened sum is not the survivors' sum, or the costs do not add up.
    """
    costs = []
    for turn in range(1, repeats + 1):
        say(f"session of {clients} clients, {dropouts} dropouts, run {turn} of {repeats}")
        costs.append(found := measure_session(clients, dropouts, Meter()))
        found.balance.require()
    return costs


def measure_session(clients: int, dropouts: int, meter: Meter) -> SessionCosts:
    """Run one session. Raises ValueError when the opened sum is not the survivors' sum."""
    with TemporaryDirectory() as place, metered_disk():
        members = enrol(Path(place), clients, dropouts=dropouts, result="server")
        with asyncio.Runner(loop_factory=lambda: MeteredLoop(meter, _MOST_LEFT_OUT)) as runner:
            return runner.run(_run(Path(place), members, random_vectors(), meter))


class _OneBlock(SimpleMethod):
    """A method that only notes when the sum is open and what it is; its head says nothing."""

    name = "one-block"
    parameters: ClassVar[Parameters] = {}

    def __init__(self, note: Callable[[], None]) -> None:
        self._note = note
        self.total = np.zeros(0, dtype=np.int64)

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """The measured vector, without noise."""
        return (SumSpec((Block("vector", (LENGTH,), 1, Kind.OTHER),), sensitivities=(), shares="equal"),)

    def contribute(self, local: Local) -> Contribution:
        """Not asked for: the clients have their vectors."""
        raise NotImplementedError

    def finalize(self, opened: OpenedTotal) -> Step:
        """The first thing that is made of an opened sum; one zero for each class."""
        self._note()
        self.total = opened.blocks["vector"]
        return Step(LinearHead(np.zeros((CLASSES, 1), dtype=np.float32), np.zeros(CLASSES, dtype=np.float32)))


async def _run(folder: Path, members: Members, vectors: Mapping[int, Integers], meter: Meter) -> SessionCosts:
    opened: list[float] = []

    def note() -> None:
        meter.lap()
        opened.append(stage.serving.total)

    method = _OneBlock(note)
    setup = resized(members.setup, method)
    home = folder / "server" / "session"
    home.mkdir(parents=True)

    class WithoutFiles(ServerSession):
        def write(self, result: SumResult) -> Outcome:
            return Outcome(result.members, result.aggregate_sha256, result.artifact_sha256)

    loop = asyncio.get_running_loop()
    assert isinstance(loop, MeteredLoop)
    began, cpu, queue = time.perf_counter(), time.process_time(), queue_seconds()
    with closing(Journal(home / FILE_NAME)) as journal:
        stage = _Stage(WithoutFiles(setup, members.server.identity, home, journal), setup)
        serving = asyncio.create_task(on_account(stage.serving, stage.server.run()))
        homes = ((each, folder / each.name / "session") for each in members.clients)
        await asyncio.gather(serving, *(_take_part(stage, meter, each, at, vectors[each.index]) for each, at in homes))
    balance = Balance(
        charged=sum(each.total for each in stage.accounts),
        process=time.process_time() - cpu,
        wall=time.perf_counter() - began,
        disk=sum(each.disk for each in stage.accounts),
        queue=queue_seconds() - queue,
    )
    summed = serving.result().members
    if len(summed) != len(members.clients) - setup.plan.dropouts or not np.array_equal(
        method.total, sum(vectors[each] for each in summed)
    ):
        raise ValueError("the opened sum is not the survivors' sum")
    return SessionCosts(
        client_cpu=_means({member: each.cpu for member, each in stage.clients.items()}, summed),
        client_bytes=_means(stage.sent, summed),
        share_checks=stage.openings.total,
        after_last_opening=opened[0] - stage.before_opening,
        transcript_wait=stage.openings.disk,
        left_out=loop.clock.left_out,
        balance=balance,
    )


async def _take_part(stage: _Stage, meter: Meter, credentials: Credentials, folder: Path, vector: Integers) -> None:
    wire = _Wire(stage, meter, credentials.index)
    with client_session(stage.setup, credentials, folder, lambda: vector) as session, suppress(ServerAway):
        await session.run(wire)
        wire.charge()


def _means(spent: Mapping[int, Mapping[str, float]], members: tuple[int, ...]) -> dict[str, float]:
    return {name: sum(spent[member][name] for member in members) / len(members) for name in spent[members[0]]}
