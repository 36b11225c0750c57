"""Memory and CPU of the real processes that serve n clients over gRPC with mutual TLS, for every protection."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from secagg.agreement.plan import write_plan
from secagg.encoding import accumulate
from secagg.encoding.moments import Integers
from secagg.federation import session_folder
from secagg.protection.messages import Acknowledgement
from secagg.session import RoundSetup
from secagg.transcript import FILE_NAME, peek
from secagg.transport import Credentials, Link
from tests.benchmarks.protections import PROTECTIONS
from tests.benchmarks.scenario import CLASSES, Members, client_session, enrol, say

COHORTS = (10, 50, 200)
_LEVELS = 256
_MAX_RECORDS = 128  # 200 clients then need a ring of 32 bits, like 10
_RECORDS = 40
_ENTRY = 11  # √512 · 11 is just inside the grid
_POLL_SECONDS = 0.02
_START_SECONDS = 60.0
_PATIENCE_SECONDS = 60.0
ANY_PORT = "127.0.0.1:0"


@dataclass
class Usage:
    """One process: its peak resident memory in MiB when it is ready, while it serves, and until it ends.

    After serving, the server loads torch to write the head. `cpu` is CPU seconds from ready to the end of serving.
    """

    start: float = 0.0
    serving: float = 0.0
    whole: float = 0.0
    cpu: float = 0.0


Usages = dict[str, dict[int, dict[str, Usage]]]
"""Protection → number of clients → party → what it used."""


def measure_processes(cohorts: Sequence[int] = COHORTS) -> Usages | None:
    """One session for each protection and cohort; None where the system does not tell what a process uses."""
    if not Path("/proc/self/status").exists():
        say("processes are not measured: this system has no /proc")
        return None
    return {name: {count: _measure(name, count) for count in cohorts} for name in PROTECTIONS}


def _measure(protection: str, count: int) -> dict[str, Usage]:
    say(f"processes that serve {count} clients over gRPC, {protection}")
    with TemporaryDirectory() as folder:
        members = enrol(Path(folder), count, protection, levels=_LEVELS, max_records=_MAX_RECORDS)
        return asyncio.run(_serve(Path(folder), members))


class Party:
    """A party's process and what it uses, polled from its start to its end; `environment` is added to this one's."""

    def __init__(self, folder: Path, setup: RoundSetup, name: str, **environment: str) -> None:
        self.name = name
        self.usage = Usage()
        self.is_serving = True
        self._folder = folder
        self._environment = environment
        self._session = session_folder(folder / name / "state", setup)
        self.process: asyncio.subprocess.Process | None = None
        self._cpu_before = 0.0

    async def start(self, *arguments: str, log: int | None = None) -> None:
        """Start the process; it is ready when it listens, or else has begun its transcript. `log`: what takes its log.

        Without, it says nothing but errors.
        """
        home, plan = self._folder / self.name, self._folder / "plan.json"
        where = ["--plan", plan, "--state", home / "state", "--tls", home / "tls", *(() if log else ("--quiet",))]
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "secagg", *arguments, *map(str, where)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, **self._environment},
        )
        sign = self._session / ("address" if "--listen" in arguments else FILE_NAME)
        deadline = time.monotonic() + _START_SECONDS
        while not (sign.exists() and sign.stat().st_size):
            if self.process.returncode is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start; the lines above say why")
            await asyncio.sleep(_POLL_SECONDS)
        self.usage.start = peak_mib(self.process.pid)
        self._cpu_before = cpu_seconds(self.process.pid)

    @property
    def address(self) -> str:
        """Where it listens."""
        return (self._session / "address").read_text(encoding="utf-8")

    def look(self) -> None:
        """Note what it uses now."""
        process, usage = self.process, self.usage
        if process is not None and process.returncode is None:
            usage.whole = max(usage.whole, peak_mib(process.pid))
            if self.is_serving:
                usage.serving = usage.whole
                usage.cpu = max(usage.cpu, cpu_seconds(process.pid) - self._cpu_before)

    async def end(self) -> None:
        """Watch it until it ends. Raises RuntimeError when it fails."""
        while self.process is not None and self.process.returncode is None:
            self.look()
            await asyncio.sleep(_POLL_SECONDS)
        if self.process is not None and self.process.returncode:
            raise RuntimeError(f"{self.name} ended with exit code {self.process.returncode}")

    def kill(self) -> None:
        """End it if it still runs."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()


async def _serve(folder: Path, members: Members) -> dict[str, Usage]:
    """Start every party but the clients, let every client take part, and watch. Raises when a process fails."""
    write_plan(members.setup.plan, folder / "plan.json")
    server, *seconds = parties = [
        Party(folder, members.setup, each.name) for each in (members.server, *members.seconds)
    ]
    try:
        await server.start("server", "--listen", ANY_PORT)
        for party in seconds:
            listens = () if members.setup.protection.encrypts else ("--listen", ANY_PORT)
            await party.start(members.setup.protection.helper_role, "--server", server.address, *listens)
        addresses = (
            {}
            if members.setup.protection.encrypts
            else {each.index: party.address for each, party in zip(members.seconds, seconds, strict=True)}
        )
        async with asyncio.TaskGroup() as group:
            for party in parties:
                group.create_task(party.end())
            group.create_task(_everyone(members, folder, server, addresses))
    finally:
        for party in parties:
            party.kill()
    return {party.name: party.usage for party in parties}


class _Link(Link):
    """Says when it has acknowledged; the last one holds that back until the others have, as long as the server serves.

    Nobody ends before the last has acknowledged: a result is one that enough of them have.
    """

    def __init__(self, credentials: Credentials, address: str, others: Awaitable[None] | None = None) -> None:
        super().__init__(credentials, address, _PATIENCE_SECONDS)
        self._others = others
        self.has_acknowledged = asyncio.Event()

    async def submit(self, frame: bytes) -> bytes:
        """Send a frame; return the frame that answers it, or nothing."""
        is_last = peek(frame).step == Acknowledgement.__name__
        if is_last and self._others is not None:
            await self._others
        answer = await super().submit(frame)
        if is_last:
            self.has_acknowledged.set()
        return answer


async def _everyone(members: Members, folder: Path, server: Party, aggregators: Mapping[int, str]) -> None:
    """Let every client take part; the server has served when only one acknowledgement is outstanding."""

    async def take_part(credentials: Credentials, link: Link) -> None:
        home = folder / credentials.name / "session"
        async with AsyncExitStack() as stack:
            session = stack.enter_context(
                client_session(setup, credentials, home, lambda: contribution(setup, credentials.index))
            )
            await stack.enter_async_context(link)
            others = {
                index: await stack.enter_async_context(Link(credentials, address, _PATIENCE_SECONDS, index))
                for index, address in aggregators.items()
            }
            await session.run(link, others)

    async def all_but_one() -> None:
        for link in links:
            await link.has_acknowledged.wait()
        server.look()
        server.is_serving = False

    setup, (last, *others) = members.setup, members.clients
    links = [_Link(each, server.address) for each in others]
    waiting = asyncio.create_task(all_but_one())
    playing = [take_part(each, link) for each, link in zip(others, links, strict=True)]
    await asyncio.gather(waiting, *playing, take_part(last, _Link(last, server.address, waiting)))


def contribution(setup: RoundSetup, member: int) -> Integers:
    """The flat vector of a few random records of every class."""
    records = np.random.default_rng(member).integers(-_ENTRY, _ENTRY, size=(_RECORDS, setup.plan.dimension))
    labels = np.arange(_RECORDS) % CLASSES
    return setup.sum.layout.flatten(accumulate(records, labels, CLASSES, setup.plan.levels))


def peak_mib(process: int) -> float:
    """VmHWM of a process; 0 when it is gone."""
    lines = _proc(process, "status").splitlines()
    return max((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), default=0.0)


def cpu_seconds(process: int) -> float:
    """What all threads of a process have used of the processors so far; 0 when it is gone."""
    fields = _proc(process, "stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _proc(process: int, name: str) -> str:
    try:
        return Path(f"/proc/{process}/{name}").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return ""
