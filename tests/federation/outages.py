"""A session of real processes (command line, gRPC, mutual TLS, fsync) that are killed and stopped at random.

Every process is forked from one that has imported the command line already, with the limits of the transport scaled to
seconds, so that a stop of seconds is longer than a call, a silent upload and a server's long poll may take. Each party
has a supervisor: whoever is killed is started again, and so is whoever exits with 75.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

from secagg.errors import BadInput, TranscriptInvalid
from secagg.protection import protection_named
from secagg.verification.transcript_series import verify_transcript
from tests.worlds.forks import FORKS
from tests.worlds.processes import HELPERS, Processes, make_processes, run_command
from tests.worlds.rosters import SERVER

NAMES = ("a", "b", "c", "d")
JOIN_SECONDS, STEP_SECONDS = 20, 16
LONGEST_ABSENCE = 7.0
"""Seconds that one party is away in all: whoever is away for less than a step's time comes back in time."""
PATIENCE = 10.0
BOUND = JOIN_SECONDS + 6 * STEP_SECONDS + 2 * PATIENCE + 30.0
"""Seconds after which every plan is over: all steps late, members' patience, and a slow machine."""
NOT_NOW, OVER = 75, 5


@dataclass(frozen=True)
class Outage:
    """A party is killed (and started again) or stopped, for so many seconds; None: killed for good."""

    at: float
    party: str
    is_kill: bool
    seconds: float | None


@dataclass
class Report:
    """What came of one session: in a word, and everything that must never be."""

    ending: str
    kills: int
    stops: int
    seconds: float
    faults: list[str] = field(default_factory=list)


def outages_of(generator: np.random.Generator, parties: tuple[str, ...]) -> list[Outage]:
    """Two to six outages in the first seconds of a session; in every fourth one a party goes for good."""
    found, away = [], dict.fromkeys(parties, 0.0)
    for _ in range(generator.integers(2, 7)):
        party, is_kill = str(generator.choice(parties)), bool(generator.random() < 0.5)
        seconds = float(generator.uniform(0.0, 2.0) if is_kill else generator.uniform(0.5, 6.0))
        away[party] += seconds + 1.0
        if away[party] <= LONGEST_ABSENCE:
            found.append(Outage(float(generator.uniform(0.0, 5.0)), party, is_kill, seconds))
    if generator.random() < 0.25:
        gone = str(generator.choice(parties))
        found = [each for each in found if each.party != gone]
        found.append(Outage(float(generator.uniform(0.0, 4.0)), gone, True, None))
    return sorted(found, key=lambda each: each.at)


def run_limited(words: list[str], said: Path) -> None:
    """A party's whole process, with the transport's limits in seconds."""
    from secagg.plan_facts import facts
    from secagg.session import staging
    from secagg.transport import limits

    staging.SILENT_SECONDS = 1.0
    facts.LEAST_PATIENCE = PATIENCE
    limits.CALL_SECONDS = 3.0
    limits.POLL_SECONDS = 2.0
    limits.SILENT_SECONDS = 1.0
    scaled = {"grpc.keepalive_time_ms": 1_000, "grpc.keepalive_timeout_ms": 2_000, "grpc.http2.ping_timeout_ms": 2_000}
    limits.KEEPALIVE[:] = [(name, scaled.get(name, value)) for name, value in limits.KEEPALIVE]
    run_command(words, said)


class Supervised:
    """The processes of one session, and whoever looks after them."""

    def __init__(self, federation: Processes, outages: list[Outage], bound: float = BOUND) -> None:
        self.federation = federation
        self.bound = bound
        self.parties = tuple(member.name for member in federation.roster.members)
        self.codes: dict[str, int] = {}
        self.gone: set[str] = set()
        self._outages = outages
        self._running: dict[str, BaseProcess] = {}
        self._starts: dict[str, float] = {}
        self._wakes: dict[str, float] = {}

    def run(self) -> bool:
        """Carry the session to its end; return whether everybody had ended in time."""
        begun, outages = time.monotonic(), list(self._outages)
        for party in self._in_order():
            self._start(party)
        begun_all = time.monotonic()
        while not set(self.parties) <= set(self.codes) | self.gone:
            now = time.monotonic()
            if now > begun + self.bound:
                return False
            while outages and now > begun_all + outages[0].at:
                self._strike(outages.pop(0), now)
            self._look_after(now)
            time.sleep(0.01)
        return True

    def end(self) -> None:
        """Nobody is left."""
        for process in self._running.values():
            process.kill()
            process.join()

    def _in_order(self) -> Iterator[str]:
        """Those whose addresses others need come first."""
        yield SERVER
        yield from (name for name in self.parties if name in HELPERS["aggregator"])
        yield from (name for name in self.parties if name not in (SERVER, *HELPERS["aggregator"]))

    def life_of(self, party: str) -> Callable[[list[str], Path], None]:
        """What a process of the party does with its command line and the file of what it says."""
        return run_limited

    def command_of(self, party: str) -> list[str]:
        """The words of a party's command line."""
        return self.federation.command(party, *(("--stay",) if party in NAMES else ()))

    def note_end(self, party: str, code: int, now: float) -> None:
        """Start the party again, as somebody who gave it this exit code would, or take note of its end."""
        if code == NOT_NOW and SERVER not in self.gone | set(self.codes):
            self._starts[party] = now + 0.2
        else:
            self.codes[party] = code

    def _start(self, party: str) -> None:
        words = self.command_of(party)
        if "--wait" in words:
            words[words.index("--wait") + 1] = str(PATIENCE)
        said = self.federation.folder / party / "said.txt"
        process = FORKS.Process(target=self.life_of(party), args=(words, said), daemon=True)
        process.start()
        self._running[party] = process
        if party == SERVER and self.federation.address.endswith(":0"):
            self.federation.address = self.federation.listens(party)
        if party in HELPERS["aggregator"] and party not in self.federation.aggregators:
            self.federation.aggregators[party] = self.federation.listens(party)

    def _strike(self, outage: Outage, now: float) -> None:
        """Kill or stop a party, if it runs."""
        process = self._running.get(outage.party)
        if outage.seconds is None:
            self.gone.add(outage.party)
            self._starts.pop(outage.party, None)
            self.codes.pop(outage.party, None)
        if process is None or process.pid is None or not process.is_alive():
            return
        if not outage.is_kill:
            os.kill(process.pid, signal.SIGSTOP)
            self._wakes[outage.party] = max(self._wakes.get(outage.party, 0.0), now + (outage.seconds or 0.0))
            return
        process.kill()
        process.join()
        del self._running[outage.party]
        self._wakes.pop(outage.party, None)
        if outage.seconds is not None:
            self._starts[outage.party] = now + outage.seconds

    def _look_after(self, now: float) -> None:
        """Let the stopped go on, start the killed again, and take note of who has ended."""
        for party in [each for each, at in self._wakes.items() if now > at]:
            del self._wakes[party]
            process = self._running.get(party)
            if process is not None and process.pid is not None:
                os.kill(process.pid, signal.SIGCONT)
        for party in [each for each, at in self._starts.items() if now > at]:
            del self._starts[party]
            self._start(party)
        for party, process in list(self._running.items()):
            if (code := process.exitcode) is None:
                continue
            del self._running[party]
            self.note_end(party, code, now)


def run_session(folder: Path, protection: str, generator: np.random.Generator) -> Report:
    """One session with its outages, and everything that is wrong with its end."""
    federation = make_processes(
        folder, NAMES, 1000, protection, dropouts=1, join_seconds=JOIN_SECONDS, step_seconds=STEP_SECONDS
    )
    parties = tuple(member.name for member in federation.roster.members)
    outages, begun = outages_of(generator, parties), time.monotonic()
    supervised = Supervised(federation, outages)
    try:
        ended = supervised.run()
    finally:
        supervised.end()
    kills = sum(each.is_kill for each in outages)
    report = Report("", kills, len(outages) - kills, time.monotonic() - begun)
    if not ended:
        waited_for = set(parties) - set(supervised.codes) - supervised.gone
        report.faults.append(f"hang: {', '.join(sorted(waited_for))}")
    judge(supervised, protection, report)
    if report.faults:
        report.faults += [str(outages), str(supervised.codes), said_by(federation, parties)]
    return report


def said_by(federation: Processes, parties: tuple[str, ...]) -> str:
    """What everybody said."""
    files = {name: federation.folder / name / "said.txt" for name in parties}
    return "\n".join(f"{name}: {file.read_text()}" for name, file in files.items() if file.exists())


def judge(supervised: Supervised, protection: str, report: Report) -> None:
    """How the session ended, and what is wrong with that: a wrong sum, a member lost, an unclean end, a transcript."""
    federation, codes, gone = supervised.federation, supervised.codes, supervised.gone
    present = [name for name in NAMES if name not in gone]
    needed = {SERVER, *HELPERS.get(protection_named(protection).helper_role, ())}
    members = _members(federation)
    if members is not None:
        if not np.array_equal(federation.opened(), federation.expected(members)):
            report.faults.append("wrong sum")
        if lost := [name for name in present if name not in members]:
            report.faults.append(f"lost: {', '.join(lost)}")
        report.ending = "sum of all" if len(members) == len(NAMES) else "sum without the one that went"
        if not gone & needed and (failed := [name for name in present if codes.get(name) != 0]):
            report.faults.append(f"no outcome at {', '.join(failed)}")
    elif not gone & needed:
        report.ending = "no sum"
        report.faults.append("no sum although everybody who is needed came back")
    else:
        report.ending = "server gone: not now" if SERVER in gone else "aborted: a helper went"
    if unclean := {name: code for name, code in codes.items() if code not in (0, OVER, NOT_NOW)}:
        report.faults.append(f"unclean: {unclean}")
    report.faults += list(_false_transcripts(supervised))
    if "Traceback" in said_by(federation, supervised.parties):
        report.faults.append("a traceback")


def _members(federation: Processes) -> list[str] | None:
    """Who is in the opened sum by the server's transcript; None without an outcome."""
    try:
        found = verify_transcript(federation.transcript(SERVER))
    except (TranscriptInvalid, BadInput):
        return None
    return found.get("members")


def _false_transcripts(supervised: Supervised) -> Iterator[str]:
    """Transcripts that do not verify, of those who came to an end."""
    for name in [name for name, code in supervised.codes.items() if code in (0, OVER)]:
        try:
            verify_transcript(supervised.federation.transcript(name))
        except TranscriptInvalid as error:
            yield f"transcript of {name}: {error}"
