"""One cell of the matrix as real processes over gRPC and mutual TLS, with its fault, until everybody has ended."""

from __future__ import annotations

import itertools
import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from secagg.errors import BadInput, TranscriptInvalid
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.transcript import FILE_NAME, read_transcript
from tests.faults.cells import JOIN_SECONDS, STEP_SECONDS, Cell
from tests.faults.inside import Life
from tests.faults.proxy import Proxy, Trouble
from tests.federation.outages import NAMES, PATIENCE, Outage, Supervised, said_by
from tests.worlds.processes import Processes, make_processes
from tests.worlds.rosters import SERVER

BAD_INPUT = 2
UNKNOWN = 255
"""Of a process whose end the fork server has not seen; no party ends so."""
FULL = "free the disk"
"""What a party says whose disk is full."""
LONG_SECONDS = 300
"""Of a step where one party is away again and again."""
DELAY_SECONDS = 0.3
"""Each way. The limits of calls are a twentieth of the real ones, so that this is 6 s."""
HALF_OPEN_SECONDS = 4.0
CUTS, BETWEEN_CUTS = 4, 0.5
_PORTS = itertools.count(10_000 + os.getpid() % 20 * 1_000)
TRAINING = (("rounds", 3), ("rate", 0.5), ("clip", 5.0), ("gradients", 1), ("server", "momentum"))


@dataclass(frozen=True)
class Played:
    """What was left of a cell: the folders, who ended how, whether all did in time, and whether the fault happened."""

    federation: Processes
    codes: dict[str, int]
    has_ended: bool
    has_struck: bool
    seconds: float


def bound_of(cell: Cell) -> float:
    """Seconds after which a cell is over however late everybody is: every step late, then everybody's patience."""
    if cell.kind.is_patient:
        return 4.0 * LONG_SECONDS
    return JOIN_SECONDS + 6 * STEP_SECONDS * cell.rounds + cell.kind.stopped + 2 * PATIENCE + 30.0


def federation_of(folder: Path, cell: Cell) -> Processes:
    """Four members, one of whom may be missing, and a plan without noise, of one round or of three."""
    join, step = (LONG_SECONDS, LONG_SECONDS) if cell.kind.is_patient else (JOIN_SECONDS, STEP_SECONDS)
    chosen = {"dropouts": 1, "join_seconds": join, "step_seconds": step}
    if cell.rounds == 1:
        return make_processes(folder, NAMES, 20, cell.protection, **chosen)
    chosen |= {"method": "fedavg", "parameters": TRAINING, "radius": None, "epsilon": math.inf, "result": "members"}
    federation = make_processes(folder, NAMES, 6, cell.protection, **chosen, round_seconds=step)
    for name in NAMES:
        policy = replace(policy_accepting(federation.plan, name), refinement_without_noise=True)
        (folder / name / "policy.toml").write_text(policy.to_toml())
    return federation


class Struck(Supervised):
    """The processes of one cell; its fault comes once the party has some records in the middle session."""

    def __init__(self, cell: Cell, federation: Processes, proxy: Proxy | None) -> None:
        super().__init__(federation, [], bound_of(cell))
        self.cell, self.proxy = cell, proxy
        self.refusals = 0
        self.has_struck = cell.kind.trouble is Trouble.DELAY
        self._then: list[tuple[float, Callable[[], None]]] = []
        self._leads: dict[str, str] = {}
        federation.address = _free_address()
        aggregators = federation.roster.with_role("aggregator")
        federation.aggregators = {federation.roster.name(each): _free_address() for each in aggregators}

    def life_of(self, party: str) -> Callable[[list[str], Path], None]:
        inside = self.cell.kind.inside if party == self.cell.party else None
        return Life(self.federation.folder / party, inside).run

    def command_of(self, party: str) -> list[str]:
        """The command line; addresses of others lead through the proxy where the faulty party is at either end."""
        words = super().command_of(party)
        if self.proxy is None or party == SERVER:
            return words
        is_faulty = party == self.cell.party
        if is_faulty or self.cell.party == SERVER:
            place = words.index("--server") + 1
            words[place] = self._through(words[place])
        for place, word in enumerate(words):
            name, _, address = word.partition("=")
            if words[place - 1] == "--aggregator" and (is_faulty or name == self.cell.party):
                words[place] = f"{name}={self._through(address)}"
        return words

    def _through(self, address: str) -> str:
        assert self.proxy is not None
        if address not in self._leads:
            self._leads[address] = self.proxy.listen(address)
        return self._leads[address]

    def note_end(self, party: str, code: int, now: float) -> None:
        """Start again whom the fault has ended; a disk that was full has room again before."""
        kind, is_faulty = self.cell.kind, party == self.cell.party
        if is_faulty and code in (-signal.SIGKILL, UNKNOWN) and kind.kills:
            self._starts[party] = now
        elif is_faulty and self._has_refused(party, code) and (kind.disk or kind.inside is not None):
            self.refusals += 1
            self.has_struck = True
            if kind.disk:
                self._make_room()
            self._starts[party] = now
        else:
            super().note_end(party, code, now)

    def _has_refused(self, party: str, code: int) -> bool:
        """Whether a party has ended with a refusal; of an unknown end its last line says it."""
        if code != UNKNOWN:
            return code == BAD_INPUT
        return said_by(self.federation, (party,)).rstrip().rpartition("\n")[2].startswith("secagg: ")

    def _make_room(self) -> None:
        _mount(self.federation.folder / self.cell.party / "state", 1 << 14, "remount")

    def _look_after(self, now: float) -> None:
        super()._look_after(now)
        kind = self.cell.kind
        if kind.disk and not self.has_struck and FULL in said_by(self.federation, (self.cell.party,)):
            self.has_struck = True  # a party that goes on with a full disk asks its operator for room
            self._make_room()
        if not self.has_struck and (kind.trouble or kind.stopped) and self._is_in_the_middle():
            self.has_struck = True
            self._begin(now)
        while self._then and now > self._then[0][0]:
            self._then.pop(0)[1]()

    def _begin(self, now: float) -> None:
        kind, proxy = self.cell.kind, self.proxy
        if kind.stopped:
            self._strike(Outage(0.0, self.cell.party, is_kill=False, seconds=kind.stopped), now)
        if proxy is None or kind.trouble is None:
            return
        proxy.begin(trouble := kind.trouble)
        if trouble is Trouble.CUT:
            self._then = [(now + BETWEEN_CUTS * each, lambda: proxy.begin(trouble)) for each in range(1, CUTS)]
        elif trouble is not Trouble.DROP:
            self._then = [(now + HALF_OPEN_SECONDS, proxy.heal)]

    def _is_in_the_middle(self) -> bool:
        """Whether the party has said or heard something in the only session, or in the second of three."""
        found = list((self.federation.folder / self.cell.party / "state").glob(f"*/{FILE_NAME}"))
        if len(found) < (1 if self.cell.rounds == 1 else 2):
            return False
        newest = max(found, key=lambda path: path.parent.stat().st_ctime_ns)
        try:
            return any(each.kind == "sent" for each in read_transcript(newest, torn_tail_allowed=True))
        except (TranscriptInvalid, BadInput):
            return False


def _free_address() -> str:
    """An address that nobody listens at; the system gives none of these ports to connections by itself."""
    while True:
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port := next(_PORTS)))
            return f"127.0.0.1:{port}"


@contextmanager
def play(folder: Path, cell: Cell) -> Iterator[Played]:
    """Run one cell to its end, or to its bound; what it left is there until the context ends."""
    federation, begun = federation_of(folder, cell), time.monotonic()
    home = folder / cell.party
    delay = DELAY_SECONDS if cell.kind.trouble is Trouble.DELAY else 0.0
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(delay)) if cell.kind.trouble else None
        if cell.kind.disk:
            stack.enter_context(_small_disk(home / "state", cell.kind.disk))
        supervised = Struck(cell, federation, proxy)
        try:
            has_ended = supervised.run()
        finally:
            supervised.end()
        yield Played(federation, supervised.codes, has_ended, _has_struck(supervised, home), time.monotonic() - begun)


def _has_struck(supervised: Struck, home: Path) -> bool:
    inside = supervised.cell.kind.inside
    return supervised.has_struck if inside is None else inside.has_struck(home)


@contextmanager
def _small_disk(folder: Path, size: int) -> Iterator[None]:
    """A folder with a disk of its own, of so many KiB."""
    folder.mkdir()
    _mount(folder, size)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def _mount(folder: Path, size: int, *more: str) -> None:
    options = ",".join((*more, f"size={size}k", "mode=0700"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
