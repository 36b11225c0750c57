"""Masked, shared and encrypted on the same vectors: real state machines and message bytes, without sockets.

10 of 100 clients leave when they should upload, as in the masked session that is measured in detail.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from secagg.agreement.roster import Member, Roster
from secagg.crypto.bit_proofs import WIDE_BYTES, are_bits, prove_bits, scalars_of
from secagg.crypto.shared_work import spared_seconds
from secagg.crypto.signatures import SigningKey
from secagg.encoding.moments import Integers
from secagg.experiments.session import InMemorySession, SessionCost
from secagg.protection import LocalParty
from secagg.protection.interface import SumToRelease
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from secagg.wire import decode, encode
from tests.benchmarks.metering import Balance
from tests.benchmarks.scenario import CLIENTS, DROPOUTS, LENGTH, TRIANGLE, placed, random_vectors, roles, say, setup_of

LENGTHS = (LENGTH, TRIANGLE)
PROTECTIONS = ("masked", "shared", "encrypted")


@dataclass(frozen=True)
class Sent:
    """Bytes that one client sends to one receiver: of its vector, and of its messages without their frames."""

    vector: int
    messages: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.vector + self.messages


@dataclass(frozen=True)
class ProtectionCosts:
    """What one session cost.

    `client_cpu` is CPU seconds of one client, the median of the survivors; `sent` what it sends, by receiver, each
    the median. `check_cpu` is CPU seconds that a client takes to open and check a sum from its release, of
    `release_bytes`; both are 0 where the sum alone is released. `others_cpu` is CPU seconds of the server and the
    helpers together, each as if it were alone in its process, `others_seconds` the elapsed seconds of their steps.
    """

    length: int
    client_cpu: float
    sent: Mapping[str, Sent]
    others_cpu: float
    others_seconds: Mapping[str, float]
    check_cpu: float = 0.0
    release_bytes: int = 0

    @property
    def first(self) -> Sent:
        """What goes to the receiver of the vector: the server, or the first aggregator."""
        return next(iter(self.sent.values()))

    @property
    def bytes_per_value(self) -> float:
        """All that a client sends ÷ length."""
        return sum(each.total for each in self.sent.values()) / self.length


Costs = dict[str, dict[int, ProtectionCosts]]
"""Protection → length → costs."""


@dataclass
class _SessionCost(SessionCost):
    """Also the CPU seconds of all other parties, and those `spared` by computing once what several parties compute.

    Parties are charged what they were spared: each would compute it in its own process.
    """

    others_cpu: float = 0.0
    spared: float = 0.0

    @contextmanager
    def client(self, member: int) -> Iterator[None]:
        """What runs inside costs this client CPU."""
        with super().client(member):
            yield
        self.spared = spared_seconds()

    @contextmanager
    def server(self, step: str) -> Iterator[None]:
        """What runs inside costs server or helpers CPU."""
        begun = time.process_time() + spared_seconds()
        with super().server(step):
            yield
        self.spared = spared_seconds()
        self.others_cpu += time.process_time() + self.spared - begun


class _ShownSession(InMemorySession):
    """A session whose sum is shown to the clients: one of them opens it from the release, too."""

    check_cpu = 0.0
    release_bytes = 0

    def begin(self) -> None:
        """The last client notes what the server tells it, and the server what others announce."""
        self.heard: dict[type, Any] = {}
        self.frames: dict[int, bytes] = {}
        super().begin()

    def deliver(self, index: int, message: Any) -> None:
        """Note what a party tells the server, in place of its frame."""
        super().deliver(index, message)
        self.frames[index] = index.to_bytes(4, "big") + encode(message)

    def show(self, index: int, message: Any) -> None:
        """Note what one client is told."""
        if index == max(self.context.clients):
            self.heard[type(message)] = message
        super().show(index, message)

    def play(self) -> None:
        """Release the sum once it can be opened, and have the client check it."""
        super().play()
        rules, ready = self.protection.release, self.server
        if rules is None or not isinstance(ready, SumToRelease):
            return
        with self.measured.server("release"):
            parts = ready.release(self.context, self.uploads.__getitem__, self.frames)
        if not parts:
            return
        with self.measured.client(max(self.context.clients)):
            begun = time.process_time()
            rules.open(self.context, self.heard, ready.members, parts, _announced)
            self.check_cpu = time.process_time() - begun
        self.release_bytes = sum(map(len, parts))


def _announced(frame: bytes, message: type) -> tuple[int, Any]:
    return int.from_bytes(frame[:4], "big"), decode(message, frame[4:])


def measure_census(classes: int = 100) -> tuple[float, float]:
    """CPU seconds to prove one client's entries of a census, and to check another's: each the median of three."""
    made, checked = [], []
    for run in range(3):
        blindings, binding = scalars_of(OperatingSystem().bytes(WIDE_BYTES * classes)), bytes([run])
        begun = time.process_time()
        proofs = prove_bits((place % 2 for place in range(classes)), blindings, OperatingSystem(), binding)
        made.append(time.process_time() - begun)
        begun = time.process_time()
        if not are_bits(proofs, binding):
            raise ValueError("true proofs are refused")
        checked.append(time.process_time() - begun)
    return median(made), median(checked)


def measure_protections(clients: int = CLIENTS, dropouts: int = DROPOUTS) -> Costs:
    """Every protection at every length.

    Raises ValueError when an opened sum is not the survivors' sum, or the parties' CPU is not the process's.
    """
    vectors = {member: vector for member, vector in random_vectors().items() if member <= clients}
    costs: Costs = {}
    for name in PROTECTIONS:
        for length in LENGTHS:
            say(f"{name} session of {clients} clients, {length:,} integers")
            held = {each: vectors[each][:length] for each in vectors}
            costs.setdefault(name, {})[length] = _measure(name, held, dropouts)
    return costs


def _measure(protection: str, vectors: Mapping[int, Integers], dropouts: int) -> ProtectionCosts:
    clients = len(vectors)
    names = roles(clients, protection)
    keys = {index: SigningKey.generate(OperatingSystem()) for index in range(len(names))}
    roster = Roster.of("benchmark", [Member(*each, keys[index].public) for index, each in enumerate(names.items())])
    setup = setup_of(roster, protection=protection, dropouts=dropouts)
    setup = replace(setup, context=placed(setup.context, len(vectors[1])))
    leaves = dict.fromkeys(range(1, dropouts + 1), setup.protection.client.announcement.__name__)
    parties = {index: LocalParty(index, key, OperatingSystem()) for index, key in keys.items()}
    session = _ShownSession(setup.context, setup.protection, parties, vectors.__getitem__, leaves)
    session.measured = measured = _SessionCost()
    began = time.process_time()
    opened = session.run()
    cpu = time.process_time() - began
    if len(opened.members) != clients - dropouts or not np.array_equal(
        opened.total, sum(vectors[member] for member in opened.members)
    ):
        raise ValueError(f"the opened {protection} sum is not the survivors' sum")
    Balance(sum(measured.client_cpu.values()) + measured.others_cpu - measured.spared, cpu).require()
    return ProtectionCosts(
        length=setup.context.length,
        client_cpu=median(measured.client_cpu[member] for member in opened.members),
        sent=_sent(setup, round(median(measured.client_bytes[member] for member in opened.members))),
        others_cpu=measured.others_cpu,
        others_seconds=measured.server_seconds,
        check_cpu=session.check_cpu,
        release_bytes=session.release_bytes,
    )


def _sent(setup: RoundSetup, client_bytes: int) -> dict[str, Sent]:
    """By receiver; where there are several, all get the same message with their part of the vector."""
    parts = setup.protection.deliveries(setup.context)
    messages = (client_bytes - sum(part.size for part in parts)) // len(parts)
    return {setup.roster.name(part.receiver): Sent(part.size, messages) for part in parts}
