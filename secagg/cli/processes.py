"""The processes of a demo: every party one of its own, on this machine."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secagg.agreement.plan import Plan
from secagg.agreement.roster import Roster
from secagg.cli.console import Speaker
from secagg.data import Records
from secagg.errors import SessionAborted
from secagg.protection import protection_named

SERVER = "coordinator"
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Stage:
    """The folders and the plan of one demo."""

    folder: Path
    members: tuple[str, ...]
    seconds: tuple[str, ...]
    roster: Roster
    plan: Plan
    test: Records
    model: str | None = None
    """The file of the program that the plan trains, if it trains one."""

    def data(self, name: str) -> str:
        """A member's records."""
        return str(self.folder / name / "records.npz")

    def session(self, name: str) -> Path:
        """A party's folder of the plan's first session."""
        return self.folder / name / "state" / self.plan.digest.hex()[:16]


async def run_processes(stage: Stage, speaker: Speaker) -> dict[str, dict[str, Any]]:
    """Start every process, show what they say, and collect their results. Raises SessionAborted when one fails.

    Where clients speak once, each is gone before the next one starts, unless cohorts are drawn by all that are there;
    later all come back for the outcome.
    """
    play = _Play(stage, speaker)
    try:
        await play.start(SERVER, ["server", "--listen", "127.0.0.1:0"])
        server = ["--server", await play.address(SERVER)]
        protection, options = protection_named(stage.plan.protection), list(server)
        listen = ["--listen", "127.0.0.1:0"] if protection.handover is not None else []
        for name in stage.seconds:
            await play.start(name, [protection.helper_role, *listen, *server])
            if listen:
                options += ["--aggregator", f"{name}={await play.address(name)}"]
        if protection.speaks_once and not stage.plan.cohort:
            for name in stage.members:
                await play.start_client(name, options)
                await play.finished([name])
        if protection.speaks_once:
            options.append("--stay")
        for name in stage.members:
            await play.start_client(name, options)
        await play.finished([SERVER, *stage.seconds, *stage.members])
    finally:
        await play.end()
    names = (SERVER, *stage.seconds, *stage.members)
    return {name: json.loads((stage.folder / name / "result.json").read_text()) for name in names}


class _Play:
    """The processes that run, and what they say."""

    def __init__(self, stage: Stage, speaker: Speaker) -> None:
        self._stage = stage
        self._speaker = speaker
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._talking: list[asyncio.Task[None]] = []
        names = sorted((SERVER, *stage.seconds, *stage.members), reverse=True)  # clinic-12 before clinic-1
        self._names = re.compile("|".join(map(re.escape, names)))
        self._said: set[str] = set()

    async def start(self, name: str, arguments: Iterable[str]) -> None:
        """Start a party's process."""
        home = self._stage.folder / name
        common = ["--plan", str(self._stage.folder / "plan.json")]
        common += ["--state", str(home / "state"), "--tls", str(home / "tls"), "--json", str(home / "result.json")]
        common += ["--model", self._stage.model] if self._stage.model is not None else []
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "secagg", *arguments, *common),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        self._running[name] = process
        self._talking.append(asyncio.create_task(self._relay(name, process)))

    async def start_client(self, name: str, options: Iterable[str]) -> None:
        """Start a client with its records and its policy."""
        policy = str(self._stage.folder / name / "policy.toml")
        await self.start(name, ["client", *options, "--data", self._stage.data(name), "--policy", policy])

    async def address(self, name: str) -> str:
        """Where a party listens, once it does."""
        file = self._stage.session(name) / "address"
        deadline = time.monotonic() + _START_SECONDS
        while not file.exists():
            if self._running[name].returncode is not None or time.monotonic() > deadline:
                raise SessionAborted(f"{name} did not start; the lines above say why")
            await asyncio.sleep(0.05)
        return file.read_text(encoding="utf-8")

    async def finished(self, names: Iterable[str]) -> None:
        """Wait for processes to end. Raises SessionAborted when one has failed."""
        codes = {name: await self._running[name].wait() for name in names}
        if failed := [name for name, code in codes.items() if code != 0]:
            raise SessionAborted(f"{', '.join(failed)} failed; the lines above say why")

    async def end(self) -> None:
        """Kill what still runs, and hear everybody out."""
        for process in self._running.values():
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*self._talking)

    async def _relay(self, name: str, process: asyncio.subprocess.Process) -> None:
        if process.stderr is None:
            return
        async for line in process.stderr:
            said = line.decode(errors="replace").rstrip()
            if self._is_new(said):
                self._speaker.say(f"{name} (process {process.pid}): {said}")

    def _is_new(self, said: str) -> bool:
        """Whether a line is the first of its kind: what all parties do is printed once for each step."""
        alike = self._names.sub("", said)
        is_new = alike not in self._said
        self._said.add(alike)
        return is_new
