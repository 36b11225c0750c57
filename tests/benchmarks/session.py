"""One whole session of 100 clients and 10 dropouts in this process: real parties, frames, transcripts and disks.

Only gRPC and TLS are missing. The clients work one after the other and wait for each other before the server takes
what they send, so that what is charged to a party is its own work.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from secagg.errors import ServerAway
from secagg.parties import ServerSession, SessionSetup
from secagg.parties.server import UPLOADS
from secagg.protection.masking.messages import Opening
from secagg.protection.messages import Outcome, UploadHeader
from secagg.statistics.moments import Integers
from secagg.transcript import FILE_NAME, Journal, peek
from secagg.transport import Credentials
from secagg.transport.limits import CHUNK_BYTES
from secagg.wire import rpc
from tests.benchmarks.scenario import CLIENTS, DROPOUTS, LENGTH, RING, Members, client_session, enrol, resized, say

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
    carry it; `server_open` is wall seconds of the parts of the opening.
    """

    client_cpu: dict[str, float]
    client_bytes: dict[str, float]
    server_open: dict[str, float]

    @property
    def cpu(self) -> float:
        """CPU seconds of one client."""
        return sum(self.client_cpu.values())

    @property
    def opening(self) -> float:
        """Wall seconds from the openings, all at hand, to the opened integers."""
        return sum(self.server_open.values())


@dataclass
class _Stage:
    """What the clients of one session share: the server, who is still there, and the clock."""

    server: ServerSession
    setup: SessionSetup
    cpu: dict[int, Counter[str]] = field(default_factory=dict)
    sent: dict[int, Counter[str]] = field(default_factory=dict)
    moments: dict[str, float] = field(default_factory=dict)
    _arrived: Counter[str] = field(default_factory=Counter)
    _gates: dict[str, asyncio.Event] = field(default_factory=dict)

    def is_leaving(self, member: int, step: str) -> bool:
        """The first clients leave when they should upload."""
        return step == _UPLOAD and member <= DROPOUTS

    async def everyone(self, step: str, present: int) -> None:
        """Wait until all who are still there have come to this step."""
        self._arrived[step] += 1
        gate = self._gates.setdefault(step, asyncio.Event())
        if self._arrived[step] == present:
            gate.set()
        await gate.wait()

    def is_last(self, step: str) -> bool:
        """Whether the server has now taken the step's last message; counts down."""
        self._arrived[step] -= 1
        return self._arrived[step] == 0


class _Wire:
    """One client's connection: stops its clock while others work, and counts what it sends."""

    def __init__(self, stage: _Stage, member: int) -> None:
        self._stage, self._member = stage, member
        self._step = ""
        self._cpu: Counter[str] = stage.cpu.setdefault(member, Counter())
        self._sent: Counter[str] = stage.sent.setdefault(member, Counter())
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
        self._stage.moments.setdefault(f"first {step}", time.perf_counter())
        reply = await self._stage.server.submit(self._member, frame)
        self._stage.moments[f"last {step}"] = time.perf_counter()
        self._began = time.process_time()
        return reply

    async def upload(self, frame: bytes, vector: Path) -> None:
        """A frame and the vector, in the parts in which `transport.Link` sends them."""
        self.stop(_UPLOAD)
        if self._stage.is_leaving(self._member, _UPLOAD):
            raise ServerAway(0.0)
        await self._stage.everyone(_UPLOAD, CLIENTS - DROPOUTS)
        self._sent[_UPLOAD] += rpc.UploadPart(frame=frame).ByteSize()
        await self._stage.server.upload(self._member, frame, self._parts(vector))
        if self._stage.is_last(_UPLOAD):
            loop = asyncio.get_running_loop()
            assert isinstance(loop, _AdjustableLoop)
            loop.skipped += self._stage.setup.plan.step_seconds
        self._began = time.process_time()

    async def fetch(self, plan: bytes, step: str, seconds: float) -> bytes:
        """Wait for the server's frame."""
        self.stop()
        frame = None
        while frame is None:
            self._sent[FETCHES] += rpc.FetchRequest(plan=plan, step=step).ByteSize()
            frame = await self._stage.server.fetch(self._member, plan, step, 2 * seconds)
        self._began = time.process_time()
        return frame

    @property
    def _is_after_upload(self) -> bool:
        return _UPLOAD in self._sent

    async def _parts(self, vector: Path) -> AsyncIterator[bytes]:
        data = vector.read_bytes()
        for start in range(0, len(data), CHUNK_BYTES):
            part = rpc.UploadPart(data=data[start : start + CHUNK_BYTES])
            self._sent[VECTOR] += part.ByteSize()
            yield part.data


def measure_sessions(repeats: int) -> list[SessionCosts]:
    """Run the session several times. Raises ValueError when the opened sum is not the survivors' sum."""
    generator = np.random.default_rng(0)
    half = 2 ** (RING.bits - 1) // (CLIENTS + 1)
    vectors = {member: generator.integers(-half, half, size=LENGTH) for member in range(1, CLIENTS + 1)}
    costs = []
    for turn in range(1, repeats + 1):
        say(f"session of {CLIENTS} clients, {DROPOUTS} dropouts, run {turn} of {repeats}")
        with TemporaryDirectory() as place, asyncio.Runner(loop_factory=_AdjustableLoop) as runner:
            members = enrol(Path(place), CLIENTS, DROPOUTS)
            gc.disable()  # a pass would charge one client for the objects of all parties
            costs.append(runner.run(_run(Path(place), members, vectors)))
            gc.enable()
    return costs


async def _run(folder: Path, members: Members, vectors: Mapping[int, Integers]) -> SessionCosts:
    setup = resized(members.setup)
    home = folder / "server" / "session"
    (home / UPLOADS).mkdir(parents=True)
    opened: list[tuple[tuple[int, ...], Integers]] = []

    def finish(summed: tuple[int, ...], total: Integers) -> Outcome:
        stage.moments["opened"] = time.perf_counter()
        opened.append((summed, total))
        digest = hashlib.sha256(total.tobytes()).digest()
        return Outcome(summed, digest, digest, b"")

    server = ServerSession(setup, members.server.identity, home, Journal(home / FILE_NAME), finish)
    stage = _Stage(server, setup)
    clients = (_take_part(stage, each, folder / each.name / "session", vectors[each.index]) for each in members.clients)
    await asyncio.gather(server.run(), *clients)
    (summed, total), *_ = opened
    if len(summed) != CLIENTS - DROPOUTS or not np.array_equal(total, sum(vectors[member] for member in summed)):
        raise ValueError("the opened sum is not the survivors' sum")
    return _costs(stage, server, summed)


async def _take_part(stage: _Stage, credentials: Credentials, folder: Path, vector: Integers) -> None:
    wire = _Wire(stage, credentials.index)
    session = client_session(stage.setup, credentials, folder, lambda: vector)
    try:
        await session.run(wire)
    except ServerAway:
        return
    wire.stop()


def _costs(stage: _Stage, server: ServerSession, summed: tuple[int, ...]) -> SessionCosts:
    moments = stage.moments
    unmasking = moments["opened"] - moments[f"last {_OPENING}"]
    return SessionCosts(
        _means(stage.cpu, summed),
        _means(stage.sent, summed),
        {
            "share checks, transcript": moments[f"last {_OPENING}"] - moments[f"first {_OPENING}"],
            "recovery, sum, unmasking": unmasking,
        },
    )


def _means(counts: Mapping[int, Counter[str]], members: tuple[int, ...]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for member in members:
        total.update(counts[member])
    return {name: value / len(members) for name, value in total.items()}
