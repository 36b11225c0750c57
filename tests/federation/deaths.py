"""A plan of real processes, one of which is killed by SIGKILL after every write that it makes, and started again.

A write is whatever changes what lies in a party's state folder: a file or folder that is made, synced, renamed or
removed, and a transaction of the ledger. Each life of the party may repeat what earlier lives have written, and dies
right after the first write that none of them has made. What every life says to others is noted before it leaves.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secagg.plan_facts.records import read_records
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup, SumResult, conclude, contribution_of
from secagg.session.rounds import following_setup
from secagg.transcript import peek
from tests.worlds.forks import FORKS
from tests.worlds.processes import HELPERS, Processes, run_command
from tests.worlds.rosters import SERVER

WRITES, WIRE = "writes.txt", "wire.txt"
PATIENCE = 900.0
KEY, PART = re.compile(r"session-\d+"), re.compile(r"\.[0-9a-f]+\.part")


@dataclass(frozen=True)
class Dying:
    """What one process of a party does: it notes what it says and, where it `dies`, dies after each new write.

    `of` is part of the names of the writes to die after.
    """

    home: Path
    dies: bool
    of: tuple[str, ...] = ("",)

    def run(self, words: list[str], said: Path) -> None:
        """The party's command."""
        note_what_is_said(self.home)
        if self.dies:
            watch_writes(self.home, lambda _: os.kill(os.getpid(), signal.SIGKILL), self.of)
        run_command(words, said)


def watched_writes(home: Path) -> list[str]:
    """The writes that all lives of a party have noted, in order."""
    file = home / WRITES
    return file.read_text().splitlines() if file.exists() else []


def watch_writes(
    home: Path, strike: Callable[[int], None], of: tuple[str, ...] = ("",), *, before: bool = False
) -> None:
    """Note each write that no life of this party has made, and call `strike` with its number, from 1 on.

    `of` is part of the names of the writes that count. `before`: the write is not made yet, and `strike` may refuse it.
    """
    from secagg.ledger import Ledger

    file, seen = home / WRITES, set(watched_writes(home))
    state = f"{home / 'state'}/"

    def note(operation: str, path: str) -> None:
        name = f"{operation} {_numbered(path).removeprefix(state)}"
        if not path.startswith(state) or name in seen or not any(part in name for part in of):
            return
        seen.add(name)
        with file.open("a") as writes:
            writes.write(name + "\n")
        strike(len(seen))

    def watch(module: Any, function: str, path_of: Callable[..., str]) -> None:
        action = getattr(module, function)

        def watched(*arguments: Any, **options: Any) -> Any:
            path = path_of(*arguments)
            if before:
                note(function, path)
            answer = action(*arguments, **options)
            if not before:
                note(function, path)
            return answer

        setattr(module, function, watched)

    def of_descriptor(descriptor: int) -> str:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():  # whose size, on some disks, counts every key that a failed life has left
            return f"{path} {len({_numbered(str(each)) for each in path.iterdir()})}"
        return f"{path} {os.fstat(descriptor).st_size}"

    watch(os, "fsync", of_descriptor)
    watch(os, "replace", lambda source, target, *_: str(target))
    watch(os, "unlink", str)
    watch(os, "mkdir", lambda path, *_: str(path))
    watch(Ledger, "record", lambda *_: f"{state}ledger: the release")
    watch(Ledger, "begin_upload", lambda ledger, context: f"{state}ledger: upload {context.hex()[:8]}")


def note_what_is_said(home: Path) -> None:
    """Note the frames and vectors that this process sends by session, step and receiver, with their SHA-256."""
    from secagg.federation import FederationHelper, FederationServer
    from secagg.transport import Link

    file = home / WIRE

    def note(frame: bytes, receiver: int, vector: bytes = b"") -> None:
        body = peek(frame)
        digest = hashlib.sha256(frame + vector).hexdigest()
        with file.open("a") as wire:
            wire.write(f"{body.round_digest.hex()[:8]} {body.step} to {receiver}: {digest}\n")

    submit, upload = Link.submit, Link.upload
    fetch, receive = FederationServer.fetch, FederationHelper.upload

    async def submitting(link: Link, frame: bytes) -> bytes:
        note(frame, peek(frame).receiver)
        return await submit(link, frame)

    async def uploading(link: Link, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        content = await asyncio.to_thread(vector.read_bytes)
        note(frame, peek(frame).receiver, content[start : start + size])
        return await upload(link, frame, vector, start, size)

    async def telling(server: FederationServer, member: int, plan: bytes, step: str, patience: float) -> bytes | None:
        frame = await fetch(server, member, plan, step, patience)
        if frame and step != "Return":
            note(frame, member)
        return frame

    async def receiving(second: FederationHelper, member: int, frame: bytes, parts: Any) -> bytes:
        receipt = await receive(second, member, frame, parts)
        note(receipt, member)
        return receipt

    Link.submit, Link.upload = submitting, uploading  # type: ignore[method-assign]
    FederationServer.fetch, FederationHelper.upload = telling, receiving  # type: ignore[method-assign]


def _numbered(path: str) -> str:
    """The path without what is another number in every life: a key goes by the version that it comes after."""
    path = PART.sub(".part", path)
    folder, _, name = path.rpartition("/")
    if not (is_key := KEY.match(name)):
        return path
    state = Path(folder) / "session.state"
    version = int.from_bytes(state.read_bytes()[:8], "big") if state.exists() else 0
    return f"{folder}/session-{version}+{name[is_key.end() :]}"


@dataclass
class Deaths:
    """A plan whose parties all run until they have ended well; `mortal` dies after each new write of those named."""

    federation: Processes
    mortal: str
    of: tuple[str, ...] = ("",)
    lives: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def run(self) -> None:
        """Carry the plan to its end, starting again whoever was killed; fail with what everybody said."""
        federation, deadline = self.federation, time.monotonic() + PATIENCE
        parties = [member.name for member in federation.roster.members]
        order = sorted(parties, key=lambda name: (name != SERVER, name not in HELPERS["aggregator"]))
        running = {name: self._start(name) for name in order}
        try:
            while running:
                for name, process in list(running.items()):
                    code = process.exitcode
                    if code == 0:
                        del running[name]
                    elif code == -signal.SIGKILL:
                        running[name] = self._start(name)
                    elif code is not None:
                        raise AssertionError(f"{name} ended with {code}\n{self.said()}")
                assert time.monotonic() < deadline, f"{', '.join(running)} did not end\n{self.said()}"
                time.sleep(0.005)
        finally:
            for process in running.values():
                process.kill()
                process.join()

    def said(self) -> str:
        """What all processes said last."""
        files = {member.name: self.federation.folder / member.name for member in self.federation.roster.members}
        return "\n".join(f"{name}: {(home / 'said.txt').read_text()[-3000:]}" for name, home in files.items())

    def _start(self, name: str) -> Any:
        federation, home = self.federation, self.federation.folder / name
        self.lives[name] += 1
        life = Dying(home, name == self.mortal, self.of)
        more = ("--stay",) if name in federation.names else ()
        process = FORKS.Process(target=life.run, args=(federation.command(name, *more), home / "said.txt"), daemon=True)
        process.start()
        if name == SERVER and federation.address.endswith(":0"):
            federation.address = self._address(name, process)
        if name in HELPERS["aggregator"] and name not in federation.aggregators:
            federation.aggregators[name] = self._address(name, process)
        return process

    def _address(self, name: str, process: Any) -> str:
        """Where a party listens; one that dies before it does is started again."""
        deadline = time.monotonic() + PATIENCE
        while not (found := list((self.federation.folder / name / "state").glob("*/address"))):
            assert time.monotonic() < deadline, f"{name} never listens\n{self.said()}"
            if process.exitcode is not None:
                process = self._start_again(name)
            time.sleep(0.005)
        return found[0].read_text()

    def _start_again(self, name: str) -> Any:
        self.lives[name] += 1
        home = self.federation.folder / name
        process = FORKS.Process(
            target=Dying(home, name == self.mortal, self.of).run,
            args=(self.federation.command(name), home / "said.txt"),
            daemon=True,
        )
        process.start()
        return process


def writes_of(federation: Processes, name: str) -> list[str]:
    """The writes that a party was killed after, in order."""
    return watched_writes(federation.folder / name)


def said_twice(federation: Processes) -> dict[str, set[str]]:
    """What parties said in several ways: by party, session, step and receiver."""
    said: defaultdict[str, set[str]] = defaultdict(set)
    for member in federation.roster.members:
        file = federation.folder / member.name / WIRE
        for line in file.read_text().splitlines() if file.exists() else ():
            what, _, digest = line.rpartition(": ")
            said[f"{member.name}: {what}"].add(digest)
    return {what: digests for what, digests in said.items() if len(digests) > 1}


def expected_results(federation: Processes, in_sums: Sequence[Collection[str]] = ()) -> list[SumResult]:
    """What every round comes to by the exact sums of members' contributions, in one process without any party.

    `in_sums` are the members in the sum of each round, as far as there is one; all members in all rounds by default.
    """
    setup: RoundSetup | None = RoundSetup.of(federation.plan, federation.roster)
    assert setup is not None
    plan, results = setup.plan, list[SumResult]()
    records = {name: read_records(plan, str(federation.folder / name / "records.npz")) for name in federation.names}
    while setup is not None and (not in_sums or len(results) < len(in_sums)):
        names = [name for name in federation.names if not in_sums or name in in_sums[len(results)]]
        vectors = [contribution_of(setup, records[name], OperatingSystem())[0] for name in names]
        members = tuple(federation.roster.index(name) for name in names)
        results.append(conclude(setup, members, sum(vectors[1:], vectors[0])))
        setup = following_setup(setup, results[-1], results[-1].broadcast)
    return results
