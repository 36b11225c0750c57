"""Peak memory of a real server process that serves n clients over gRPC with mutual TLS."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from secagg.cli.federation import session_folder
from secagg.parties import SessionSetup
from secagg.plan import write_plan
from secagg.statistics import accumulate
from secagg.statistics.moments import Integers
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
    """Peak resident memory in MiB: when the server listens, when the last client is done, when the process ends."""

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
        await asyncio.gather(*(_take_part(members.setup, each, folder, address) for each in members.clients))
        peak.serving = peak_mib(process.pid)
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
        await watching
    if code != 0:
        raise RuntimeError(f"the server ended with exit code {code}")
    return peak


async def _take_part(setup: SessionSetup, credentials: Credentials, folder: Path, address: str) -> None:
    home = folder / credentials.name / "session"
    session = client_session(setup, credentials, home, lambda: contribution(setup, credentials.index))
    async with Link(credentials, address, _PATIENCE_SECONDS) as link:
        await session.run(link)


def contribution(setup: SessionSetup, member: int) -> Integers:
    """The flat vector of a few random records of every class."""
    records = np.random.default_rng(member).integers(-_ENTRY, _ENTRY, size=(_RECORDS, DIMENSION))
    labels = np.arange(_RECORDS) % CLASSES
    return setup.layout.flatten(accumulate(records, labels, CLASSES, setup.plan.levels))


async def _address(file: Path, process: asyncio.subprocess.Process) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while not (file.exists() and file.stat().st_size):
        if process.returncode is not None or time.monotonic() > deadline:
            raise RuntimeError("the server did not start; the lines above say why")
        await asyncio.sleep(_POLL_SECONDS)
    return file.read_text(encoding="utf-8")


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
