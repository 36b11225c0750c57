"""A masked session of a thousand clients over gRPC with mutual TLS: the server's CPU and memory beside their floors.

The server is the command `secagg server`, by `--little-memory` with the settings of `secagg/running/server.env`. The
clients are real sessions with real connections, shared out over a few processes. Some clients leave before they upload,
without a word; once all others have uploaded, the operator goes on (`secagg control go-on`). The opened sum must be
that of the others' vectors, or the run fails.

The floor of a phase is the time that its cryptography takes by itself: signatures that the protocol has checked, one
hash and one decryption of every uploaded byte, keystreams and additions of the masks that the server takes off.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import re
import resource
import sys
import time
import timeit
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import secagg
from secagg.agreement.plan import read_plan, write_plan
from secagg.cli.control import ask
from secagg.crypto.shared_work import shared_work
from secagg.encoding import Ring, sum_digest
from secagg.errors import ServerAway
from secagg.federation import session_folder
from secagg.protection.masking.derivations import thresholds_of
from secagg.session import RoundSetup
from secagg.transcript import FILE_NAME, iterate_transcript, peek
from secagg.transport import Credentials, Link, read_credentials
from tests.benchmarks.processes import ANY_PORT, Party, contribution, cpu_seconds, peak_mib
from tests.benchmarks.report import machine
from tests.benchmarks.scenario import LENGTH, RING, client_session, enrol, say
from tests.benchmarks.streams import measure_streams
from tests.benchmarks.table import Row, table

_PATIENCE_SECONDS = 900.0
_LEVELS, _MAX_RECORDS = 256, 128
_PHASES = {
    "step 1 of 5": "join",
    "step 2 of 5": "deal",
    "step 3 of 5": "upload",
    "step 4 of 5": "endorse",
    "step 5 of 5": "open",
    "outcome": "outcome",
}
_SETTINGS = Path(secagg.__file__).parent / "running" / "server.env"
_ON_PAPER = (10_000, 1_000_000)


@dataclass
class Phase:
    """What the server used in one phase: CPU and wall seconds, and its peak of resident memory so far, in MiB."""

    cpu: float = 0.0
    wall: float = 0.0
    memory: float = 0.0


@dataclass
class Load:
    """One session: its size, the server's phases by name, and the cryptography's floors in seconds.

    `opening` is how long the server took to add up the uploads, to recover the masks and to take them off. `frames` has
    the bytes of the longest frame of each kind that the server sent.
    """

    clients: int
    leave: int
    entries: int
    degree: int
    signatures: int
    ring_bits: int
    start_memory: float
    opening: float = 0.0
    wall: float = 0.0
    players_cpu: float = 0.0
    phases: dict[str, Phase] = field(default_factory=dict)
    floors: dict[str, float] = field(default_factory=dict)
    frames: dict[str, int] = field(default_factory=dict)

    @property
    def cpu(self) -> float:
        """The server's CPU seconds until all have acknowledged the outcome."""
        return sum(phase.cpu for phase in self.phases.values())

    @property
    def memory_per_client(self) -> float:
        """KiB for each client, by the peak before the sum is opened."""
        most = max(phase.memory for name, phase in self.phases.items() if name not in ("open", "outcome"))
        return (most - self.start_memory) * 1024 / self.clients


class _Server(Party):
    """The process of `secagg server`, its log, and what it has used at the end of each phase.

    Its environment has these further settings.
    """

    def __init__(self, folder: Path, setup: RoundSetup, **settings: str) -> None:
        super().__init__(folder, setup, "server", **settings)
        self.home = folder / "server"
        self.phases: dict[str, Phase] = {}
        self.uploads = 0
        self.uploaded = asyncio.Event()
        self._phase, self._before, self._last = "join", Phase(), Phase()

    async def begin(self, enough: int) -> None:
        """Start it and wait until it listens; `uploaded` is set when `enough` clients have uploaded."""
        self._enough = enough
        words = ("server", "--listen", ANY_PORT, "--json", str(self.home / "result.json"))
        await self.start(*words, log=asyncio.subprocess.PIPE)
        self.look()
        self._before, self.start_memory = self._last, self._last.memory
        self.reading = asyncio.create_task(self._read())

    async def end(self) -> None:
        """Watch it until it ends. Raises RuntimeError when it fails."""
        await super().end()
        await self.reading
        self._end_phase("")

    def look(self) -> None:
        """Note what it uses now; a process that has ended does not tell any more."""
        assert self.process is not None
        cpu, memory = cpu_seconds(self.process.pid), peak_mib(self.process.pid)
        if cpu and memory:
            self._last = Phase(cpu, asyncio.get_running_loop().time(), memory)

    async def _read(self) -> None:
        assert self.process is not None
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            text = line.decode()
            if "UploadHeader from" in text:
                self.uploads += 1
                if self.uploads == self._enough:
                    self.uploaded.set()
            elif not re.search(r" (KeyAdvertisement|Dealing|Endorsement|Opening|Acknowledgement) from ", text):
                sys.stderr.write(text)
            found = re.search(r"(step \d of 5|outcome): ", text)
            if found and _PHASES[found[1]] != self._phase:
                self._end_phase(_PHASES[found[1]])

    def _end_phase(self, following: str) -> None:
        last, before = self._last, self._before
        self.phases[self._phase] = Phase(last.cpu - before.cpu, last.wall - before.wall, last.memory)
        self._phase, self._before = following, last
        say(f"{following}: the server has used {last.cpu:.1f} CPU s and at most {last.memory:.0f} MiB")


def _floors(load: Load) -> dict[str, float]:
    """Seconds of one thread for the cryptography of each phase, every primitive measured now and by its own library."""
    signature, hashed, decrypted = _primitives()
    streams = measure_streams(3)
    word, packed = Ring(load.ring_bits).word.itemsize, Ring(load.ring_bits).entry_bytes
    a_stream = (streams.keystream + streams.addition) * load.entries * word / (LENGTH * RING.word.itemsize)
    addition = streams.addition * load.entries * word / (LENGTH * RING.word.itemsize)
    n, stay, a_vector = load.clients, load.clients - load.leave, load.entries * packed
    unmasking = (stay + load.leave * load.degree) * a_stream
    return {
        "join": 2 * n * signature,
        "deal": (load.degree + 2) * n * signature,
        "upload": stay * (signature + a_vector * (hashed + decrypted)),
        "endorse": (stay + load.signatures) * signature,
        "open": 2 * stay * signature + unmasking + stay * (a_vector * hashed + addition),
        "outcome": stay * signature,
        "opening": unmasking + stay * (a_vector * hashed + addition),
        "one signature": signature,
        "one mask": a_stream,
    }


def _primitives() -> tuple[float, float, float]:
    """Seconds of one Ed25519 verification, and of one byte by SHA-256 and by AES-256-GCM decryption (TLS)."""
    key, message = Ed25519PrivateKey.generate(), bytes(200)
    public, signed, data = key.public_key(), key.sign(message), bytes(1 << 14)
    cipher = AESGCM(bytes(32))
    sealed = cipher.encrypt(bytes(12), data, None)
    return (
        _seconds(lambda: public.verify(signed, message)),
        _seconds(lambda: hashlib.sha256(data).digest()) / len(data),
        _seconds(lambda: cipher.decrypt(bytes(12), sealed, None)) / len(data),
    )


def _seconds(action: Callable[[], object], times: int = 2000) -> float:
    """CPU seconds of one call, in the fastest of five series."""
    return min(timeit.repeat(action, timer=time.thread_time, repeat=5, number=times)) / times


def measure(clients: int, leave: int, dimension: int, processes: int, **settings: str) -> Load:
    """Play one session whose clients are shared out over some processes; `settings` are the server's."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        begun = time.perf_counter()
        members = enrol(folder, clients, dimension=dimension, levels=_LEVELS, max_records=_MAX_RECORDS, dropouts=leave)
        write_plan(members.setup.plan, folder / "plan.json")
        say(f"{clients} clients enrolled in {time.perf_counter() - begun:.0f} s")
        return asyncio.run(_play(folder, members.setup, leave, processes, **settings))


async def _play(folder: Path, setup: RoundSetup, leave: int, processes: int, **settings: str) -> Load:
    server, clients = _Server(folder, setup, **settings), setup.context.clients
    await server.begin(len(clients) - leave)
    shares = [clients[place::processes] for place in range(processes)]
    try:
        begun = time.perf_counter()
        ending = asyncio.create_task(server.end())
        players = [await _start_player(folder, server.address, leave, share) for share in shares]
        await server.uploaded.wait()
        await asyncio.to_thread(ask, server.home / "state", command="go-on")
        codes = [await player.wait() for player in players]
        await ending
    finally:
        server.kill()
    if any(codes):
        raise RuntimeError(f"the clients' processes ended with {codes}")
    result = json.loads((server.home / "result.json").read_text(encoding="utf-8"))
    _require_right_sum(result["aggregate_sha256"], setup, leave)
    facts = thresholds_of(setup.context)
    ring, length = setup.context.ring, setup.context.length
    load = Load(len(clients), leave, length, facts.degree, facts.signatures, ring.bits, server.start_memory)
    load.phases, load.wall = server.phases, time.perf_counter() - begun
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    load.players_cpu = used.ru_utime + used.ru_stime - load.cpu
    load.opening = result["seconds"]["adding up"] + result["seconds"]["opening the sum"]
    for record in iterate_transcript(session_folder(server.home / "state", setup) / FILE_NAME):
        if record.kind == "sent":
            step = peek(record.content).step
            load.frames[step] = max(load.frames.get(step, 0), len(record.content))
    load.floors = _floors(load)
    return load


async def _start_player(folder: Path, address: str, leave: int, clients: Sequence[int]) -> asyncio.subprocess.Process:
    words = [folder, address, leave, *clients]
    return await asyncio.create_subprocess_exec(sys.executable, "-m", __spec__.name, "--play", *map(str, words))


def _require_right_sum(opened: str, setup: RoundSetup, leave: int) -> None:
    """Raise ValueError unless this is the digest of the sum of the vectors of all clients that stayed."""
    total = sum(contribution(setup, client) for client in setup.context.clients[leave:])
    if opened != sum_digest(np.asarray(total)).hex():
        raise ValueError(f"the server opened the sum {opened}, which is not that of the clients that stayed")


class _LeavingLink(Link):
    """A connection of a client that is gone when it should upload."""

    async def upload(self, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        """Raise ServerAway, as a client ends whose network is gone."""
        raise ServerAway(0.0)


def _be_clients(folder: Path, address: str, leave: int, indices: Sequence[int]) -> None:
    """Play these clients to the end of their sessions; the first `leave` of all leave before they upload."""
    plan = read_plan(folder / "plan.json")
    everyone = [read_credentials(folder / f"client-{index:03}" / "tls") for index in indices]
    setup = RoundSetup.of(plan, everyone[0].roster)

    async def play(credentials: Credentials) -> None:
        leaves = credentials.index in setup.context.clients[:leave]
        link = (_LeavingLink if leaves else Link)(credentials, address, _PATIENCE_SECONDS)
        home = folder / credentials.name / "session"
        vector = partial(contribution, setup, credentials.index)
        with client_session(setup, credentials, home, vector) as session, suppress(ServerAway):
            async with link:
                await session.run(link, {})

    async def play_all() -> None:
        await asyncio.gather(*map(play, everyone))

    with shared_work():  # else every client of a process would check the signatures of all others by itself
        asyncio.run(play_all())


def rows(load: Load) -> list[Row]:
    """The table's lines."""
    phases = [
        Row(
            f"server, {name}",
            f"{phase.cpu:.2f} CPU s",
            f"floor {(floor := load.floors[name]):.2f}",
            f"× {phase.cpu / floor:.1f}",
        )
        for name, phase in load.phases.items()
    ]
    floor, opening = sum(load.floors[name] for name in load.phases), load.floors["opening"]
    return [
        *phases,
        Row("server, all", f"{load.cpu:.1f} CPU s", f"floor {floor:.1f}", f"× {load.cpu / floor:.1f}"),
        Row("  of it the sum", f"{load.opening:.2f} s", f"floor {opening:.2f}", f"× {load.opening / opening:.1f}"),
        Row("server, memory at the start", f"{load.start_memory:.0f} MiB"),
        Row("server, memory for each client", f"{load.memory_per_client:.0f} KiB"),
        Row("server, peak as it writes the head", f"{load.phases['outcome'].memory:.0f} MiB"),
        Row("clients' processes", f"{load.players_cpu:.0f} CPU s"),
        Row("whole session", f"{load.wall:.0f} s"),
    ]


def on_paper(load: Load, clients: int) -> list[Row]:
    """What so many clients would need, from the figures of a load: nothing here was run.

    The degree is taken to stay, the share of clients that leave too. Every client gets everybody's keys (Directory) and
    a signature of more than half of all (Quorum), checks both, and takes the masks off the released sum itself.
    """
    times, gone = clients / load.clients, load.leave / load.clients
    received = sum(load.frames[step] for step in ("Directory", "Quorum")) * times
    checks = (1 + 0.5) * clients * load.floors["one signature"]
    opens = clients * (1 - gone + gone * load.degree) * load.floors["one mask"]
    return [
        Row("server, CPU s in proportion to the clients", f"{load.cpu * times:,.0f}"),
        Row("server, GiB of memory", f"{load.memory_per_client * clients / 2**20:,.1f}"),
        Row("server, GiB of keys and signatures that it sends", f"{received * clients / 2**30:,.0f}"),
        Row("a client, MiB of keys and signatures", f"{received / 2**20:,.1f}"),
        Row("a client, CPU s to check them", f"{checks:,.1f}"),
        Row("a client, CPU s to open the sum itself", f"{opens:,.1f}"),
    ]


def main() -> None:
    """Measure, print the table, and write the figures where asked."""
    if sys.argv[1:2] == ["--play"]:
        folder, address, leave, *indices = sys.argv[2:]
        _be_clients(Path(folder), address, int(leave), [int(each) for each in indices])
        return
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.load", description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--leave", type=int, help="clients that leave before they upload; default: 5 per cent")
    parser.add_argument("--dimension", type=int, default=512, help="features: 512 make 136,458 integers, 136 9,966")
    parser.add_argument("--processes", type=int, default=4, help="processes that play the clients")
    parser.add_argument("--little-memory", action="store_true", help=f"with the settings of {_SETTINGS.name}")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    asked = parser.parse_args()
    leave = asked.clients // 20 if asked.leave is None else asked.leave
    busy = os.getloadavg()[0]
    lines = re.findall(r"(MALLOC\w+)=(\w+)", _SETTINGS.read_text(encoding="utf-8")) if asked.little_memory else []
    load = measure(asked.clients, leave, asked.dimension, asked.processes, **dict(lines))
    print(f"{load.clients} clients, {load.leave} leave, {load.entries:,} integers of {load.ring_bits} bits", end="; ")
    print(f"{load.degree} neighbours, load before {busy:.1f}", *machine().values(), sep=", ")
    print(table(rows(load)))
    for clients in _ON_PAPER:
        print(f"\n{clients:,} clients, on paper", table(on_paper(load, clients)), sep="\n")
    if asked.out:
        asked.out.write_text(json.dumps(asdict(load), indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
