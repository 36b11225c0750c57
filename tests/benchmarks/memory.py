"""Peak memory of a real server process that serves n clients over gRPC with mutual TLS."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from secagg.federation import session_folder
from secagg.parties import SessionSetup
from secagg.plan import write_plan
from secagg.protection.messages import Acknowledgement
from secagg.statistics import accumulate
from secagg.statistics.moments import Integers
from secagg.transcript import peek
from secagg.transport import Credentials, Link
from tests.benchmarks.scenario import CLASSES, DIMENSION, Members, client_session, enrol, say

COHORTS = (10, 50, 200)
_RECORDS = 40
_ENTRY = 1000  # √512 · 1000 is well inside the grid's 65,536 levels
_POLL_SECONDS = 0.02
_START_SECONDS = 60.0
_PATIENCE_SECONDS = 60.0


@dataclass
class Peak:
    """Peak resident memory in MiB: when the server listens, while it serves, and until the process ends.

    After serving it loads torch to write the head.
    """

    start: float = 0.0
    serving: float = 0.0
    whole: float = 0.0


def measure_peaks() -> dict[int, Peak] | None:
    """One session for each cohort; None where the system does not tell a process's peak."""
    if not Path("/proc/self/status").exists():
        say("peak memory is not measured: this system has no /proc")
        return None
    peaks = {}
    for count in COHORTS:
        say(f"server process with {count} clients over gRPC")
        with TemporaryDirectory() as folder:
            peaks[count] = asyncio.run(_serve(Path(folder), enrol(Path(folder), count)))
    return peaks


async def _serve(folder: Path, members: Members) -> Peak:
    """Start `secagg server`, let every client take part, and watch. Raises RuntimeError when the server fails."""
    write_plan(members.setup.plan, folder / "plan.json")
    state, tls = folder / "server" / "state", members.server.folder
    options = ["--plan", folder / "plan.json", "--state", state, "--tls", tls, "--listen", "127.0.0.1:0", "--quiet"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "secagg", "server", *map(str, options)),
        stdout=asyncio.subprocess.DEVNULL,
    )
    peak = Peak()
    watching = asyncio.create_task(_watch(process, peak))
    try:
        address = await _address(session_folder(state, members.setup) / "address", process)
        peak.start = peak_mib(process.pid)
        await _unless_ended(process, _everyone(members, folder, address, process.pid, peak))
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
        await watching
    return peak


async def _unless_ended(process: asyncio.subprocess.Process, work: Coroutine[Any, Any, None]) -> None:
    """Do the work. Raises RuntimeError as soon as the process has failed."""
    working, ending = asyncio.create_task(work), asyncio.create_task(process.wait())
    await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
    if process.returncode:
        working.cancel()
        raise RuntimeError(f"the server ended with exit code {process.returncode}")
    await working


class _LastToAcknowledge(Link):
    """Holds its acknowledgement back until told; the server serves until it has it."""

    def __init__(self, credentials: Credentials, address: str, everyone_else: Awaitable[None]) -> None:
        super().__init__(credentials, address, _PATIENCE_SECONDS)
        self._everyone_else = everyone_else

    async def submit(self, frame: bytes) -> bytes:
        """Send a frame; return the frame that answers it, or nothing."""
        if peek(frame).step == Acknowledgement.__name__:
            await self._everyone_else
        return await super().submit(frame)


async def _everyone(members: Members, folder: Path, address: str, server: int, peak: Peak) -> None:
    """Let every client take part; the server's peak is read when only one acknowledgement is outstanding."""

    async def take_part(credentials: Credentials, link: Link) -> None:
        session = client_session(
            setup, credentials, folder / credentials.name / "session", lambda: contribution(setup, credentials.index)
        )
        async with link:
            await session.run(link)

    async def all_but_one() -> None:
        await asyncio.gather(*(take_part(each, Link(each, address, _PATIENCE_SECONDS)) for each in others))
        peak.serving = peak_mib(server)

    setup, (last, *others) = members.setup, members.clients
    waiting = asyncio.create_task(all_but_one())
    await asyncio.gather(waiting, take_part(last, _LastToAcknowledge(last, address, waiting)))


def contribution(setup: SessionSetup, member: int) -> Integers:
    """The flat vector of a few random records of every class."""
    records = np.random.default_rng(member).integers(-_ENTRY, _ENTRY, size=(_RECORDS, DIMENSION))
    labels = np.arange(_RECORDS) % CLASSES
    return setup.layout.flatten(accumulate(records, labels, CLASSES, setup.plan.levels))


async def _address(file: Path, process: asyncio.subprocess.Process) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while not (address := _content(file)):
        if process.returncode is not None or time.monotonic() > deadline:
            raise RuntimeError("the server did not start; the lines above say why")
        await asyncio.sleep(_POLL_SECONDS)
    return address


def _content(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


async def _watch(process: asyncio.subprocess.Process, peak: Peak) -> None:
    while process.returncode is None:
        peak.whole = max(peak.whole, peak_mib(process.pid))
        await asyncio.sleep(_POLL_SECONDS)


def peak_mib(process: int) -> float:
    """VmHWM of a process; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return max((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), default=0.0)
