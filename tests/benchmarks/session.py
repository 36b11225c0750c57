"""One whole session of 100 clients and 10 dropouts in this process: real parties, frames, transcripts and disks.

Only gRPC and TLS are missing. The clients work one after the other and wait for each other before the server takes
what they send, so that what is charged to a party is its own work.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import numpy as np

from methods.method import Parameters, SimpleMethod, SumSpec
from methods.round import Contribution, Local, Opened, Step
from secagg.encoding import Block, Kind
from secagg.errors import ServerAway
from secagg.head import LinearHead
from secagg.parties import ServerSession, SessionSetup, SumResult
from secagg.protection.masking.messages import Opening
from secagg.protection.messages import Outcome, UploadHeader
from secagg.statistics.moments import Integers
from secagg.transcript import FILE_NAME, Journal, peek
from secagg.transport import Credentials
from secagg.transport.limits import CHUNK_BYTES
from secagg.wire import rpc
from tests.benchmarks.scenario import (
    CLASSES,
    CLIENTS,
    DROPOUTS,
    LENGTH,
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


class _AdjustableLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be moved on, so that nobody sits out a deadline."""

    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped


@dataclass
class SessionCosts:
    """What one session cost: client figures are means over the survivors.

    `client_cpu` is CPU seconds for each message that a client sends, `client_bytes` the bytes of the requests that
    carry it. `share_checks` is the server's CPU for all openings, `after_last_opening` wall seconds from then to the
    opened integers (recovery, adding up, unmasking). `transcript_wait` is how long the server waited for its disk to
    have the openings, one by one.
    """

    client_cpu: dict[str, float]
    client_bytes: dict[str, float]
    share_checks: float
    after_last_opening: float
    transcript_wait: float

    @property
    def cpu(self) -> float:
        """CPU seconds of one client."""
        return sum(self.client_cpu.values())

    @property
    def opening(self) -> float:
        """Seconds from the openings to the opened integers, without the disk's time to store each opening."""
        return self.share_checks + self.after_last_opening


@dataclass
class _Stage:
    """What the clients of one session share: the server, who is still there, and the clock."""

    server: ServerSession
    setup: SessionSetup
    cpu: dict[int, defaultdict[str, float]] = field(default_factory=dict)
    sent: dict[int, defaultdict[str, float]] = field(default_factory=dict)
    checks_seconds: float = 0.0
    checks_cpu: float = 0.0
    last_opening: float = 0.0
    _arrived: Counter[str] = field(default_factory=Counter)
    _gates: dict[str, asyncio.Event] = field(default_factory=dict)

    async def everyone(self, step: str, present: int) -> None:
        """Wait until all who are still there have come to this step."""
        self._arrived[step] += 1
        gate = self._gates.setdefault(step, asyncio.Event())
        if self._arrived[step] == present:
            gate.set()
        await gate.wait()

    def taken_opening(self, seconds: float, cpu: float) -> None:
        """The server has checked an opening and written it down."""
        self.checks_seconds += seconds
        self.checks_cpu += cpu
        self.last_opening = time.perf_counter()

    def is_last(self, step: str) -> bool:
        """Whether the server has now taken the step's last message; counts down."""
        self._arrived[step] -= 1
        return self._arrived[step] == 0


class _Wire:
    """One client's connection: stops its clock while others work, and counts what it sends."""

    patience = 0.0

    def __init__(self, stage: _Stage, member: int) -> None:
        self._stage, self._member = stage, member
        self._step = ""
        self._cpu = stage.cpu.setdefault(member, defaultdict(float))
        self._sent = stage.sent.setdefault(member, defaultdict(float))
        self._began = time.process_time()

    def stop(self, step: str | None = None) -> None:
        """Charge the CPU time since the clock began to the step (None: the one before)."""
        spent = time.process_time() - self._began
        self._step = step or self._step
        self._cpu[self._step] += spent

    async def submit(self, frame: bytes) -> bytes:
        """A frame in one request."""
        self.stop(step := peek(frame).step)
        await self._stage.everyone(step, CLIENTS - (DROPOUTS if self._is_after_upload else 0))
        self._sent[step] += rpc.SubmitRequest(frame=frame).ByteSize()
        began, cpu = time.perf_counter(), time.process_time()
        reply = await self._stage.server.submit(self._member, frame)
        if step == _OPENING:
            self._stage.taken_opening(time.perf_counter() - began, time.process_time() - cpu)
        self._began = time.process_time()
        return reply

    async def upload(self, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        """A frame and the vector, in the parts in which `transport.Link` sends them."""
        self.stop(_UPLOAD)
        if self._member <= DROPOUTS:  # the first clients leave when they should upload
            raise ServerAway(0.0)
        await self._stage.everyone(_UPLOAD, CLIENTS - DROPOUTS)
        self._sent[_UPLOAD] += rpc.UploadPart(frame=frame).ByteSize()
        reply = await self._stage.server.upload(self._member, frame, self._parts(vector))
        if self._stage.is_last(_UPLOAD):
            loop = asyncio.get_running_loop()
            assert isinstance(loop, _AdjustableLoop)
            loop.skipped += self._stage.setup.plan.step_seconds
        self._began = time.process_time()
        return reply

    async def fetch(self, plan: bytes, step: str, seconds: float) -> bytes:
        """Wait for the server's frame."""
        self.stop()
        frame = None
        while frame is None:
            self._sent[FETCHES] += rpc.FetchRequest(plan=plan, step=step).ByteSize()
            frame = await self._stage.server.fetch(self._member, plan, step, 2 * seconds)
        self._began = time.process_time()
        return frame

    async def read(self, plan: bytes, digest: bytes, start: int, length: int, take: Callable[[bytes], None]) -> None:
        """Nothing is named beside this session's outcome."""
        raise NotImplementedError

    @property
    def _is_after_upload(self) -> bool:
        return _UPLOAD in self._sent

    async def _parts(self, vector: Path) -> AsyncIterator[bytes]:
        for part in _upload_parts(vector):
            self._sent[VECTOR] += part.ByteSize()
            yield part.data


def _upload_parts(vector: Path) -> Iterator[rpc.UploadPart]:
    with vector.open("rb") as file:
        while data := file.read(CHUNK_BYTES):
            yield rpc.UploadPart(data=data)


def measure_sessions(repeats: int) -> list[SessionCosts]:
    """Run the session several times. Raises ValueError when the opened sum is not the survivors' sum."""
    vectors = random_vectors()
    costs = []
    for turn in range(1, repeats + 1):
        say(f"session of {CLIENTS} clients, {DROPOUTS} dropouts, run {turn} of {repeats}")
        with TemporaryDirectory() as place, asyncio.Runner(loop_factory=_AdjustableLoop) as runner:
            members = enrol(Path(place), CLIENTS, dropouts=DROPOUTS, result="server")
            costs.append(runner.run(_run(Path(place), members, vectors)))
    return costs


class _OneBlock(SimpleMethod):
    """A method that only notes when the sum is open and what it is; its head says nothing."""

    name = "one-block"
    parameters: ClassVar[Parameters] = {}

    def __init__(self) -> None:
        self.opened = 0.0
        self.total = np.zeros(0, dtype=np.int64)

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """The measured vector, without noise."""
        return (SumSpec((Block("vector", (LENGTH,), 1, Kind.OTHER),), sensitivities=(), shares="equal"),)

    def contribute(self, local: Local) -> Contribution:
        """Not asked for: the clients have their vectors."""
        raise NotImplementedError

    def finalize(self, opened: Opened) -> Step:
        """The first thing that is made of an opened sum; one zero for each class."""
        self.opened = time.perf_counter()
        self.total = opened.blocks["vector"]
        return Step(LinearHead(np.zeros((CLASSES, 1), dtype=np.float32), np.zeros(CLASSES, dtype=np.float32)))


async def _run(folder: Path, members: Members, vectors: Mapping[int, Integers]) -> SessionCosts:
    method = _OneBlock()
    setup = resized(members.setup, method)
    home = folder / "server" / "session"
    home.mkdir(parents=True)

    def finish(result: SumResult) -> Outcome:
        return Outcome(result.members, result.aggregate_sha256, result.artifact_sha256)

    server = ServerSession(setup, members.server.identity, home, Journal(home / FILE_NAME), finish)
    stage = _Stage(server, setup)
    clients = (_take_part(stage, each, folder / each.name / "session", vectors[each.index]) for each in members.clients)
    serving = asyncio.create_task(server.run())
    await asyncio.gather(serving, *clients)
    summed = serving.result().members
    if len(summed) != CLIENTS - DROPOUTS or not np.array_equal(method.total, sum(vectors[each] for each in summed)):
        raise ValueError("the opened sum is not the survivors' sum")
    return SessionCosts(
        client_cpu=_means(stage.cpu, summed),
        client_bytes=_means(stage.sent, summed),
        share_checks=stage.checks_cpu,
        after_last_opening=method.opened - stage.last_opening,
        transcript_wait=stage.checks_seconds - stage.checks_cpu,
    )


async def _take_part(stage: _Stage, credentials: Credentials, folder: Path, vector: Integers) -> None:
    wire = _Wire(stage, credentials.index)
    session = client_session(stage.setup, credentials, folder, lambda: vector)
    try:
        await session.run(wire)
    except ServerAway:
        return
    wire.stop()


def _means(spent: Mapping[int, Mapping[str, float]], members: tuple[int, ...]) -> dict[str, float]:
    return {name: sum(spent[member][name] for member in members) / len(members) for name in spent[members[0]]}
