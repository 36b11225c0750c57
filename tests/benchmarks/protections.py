"""Masked, shared and encrypted on the same vectors: real state machines and message bytes, without sockets.

10 of 100 clients leave when they should upload, as in the masked session that is measured in detail.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from secagg.crypto.signatures import SigningKey
from secagg.experiments.session import run_session
from secagg.parties import SessionSetup
from secagg.randomness import OperatingSystem
from secagg.roster import Member, Roster
from secagg.statistics.moments import Integers
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
    the median. `others_cpu` is CPU seconds of the server and the second parties together, `others_seconds` the elapsed
    seconds of their steps.
    """

    length: int
    client_cpu: float
    sent: Mapping[str, Sent]
    others_cpu: float
    others_seconds: Mapping[str, float]

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


def measure_protections() -> Costs:
    """Every protection at every length. Raises ValueError when an opened sum is not the survivors' sum."""
    vectors = random_vectors()
    costs: Costs = {}
    for name in PROTECTIONS:
        for length in LENGTHS:
            say(f"{name} session of {CLIENTS} clients, {length:,} integers")
            costs.setdefault(name, {})[length] = _measure(name, {each: vectors[each][:length] for each in vectors})
    return costs


def _measure(protection: str, vectors: Mapping[int, Integers]) -> ProtectionCosts:
    names = roles(CLIENTS, protection)
    keys = {index: SigningKey.generate(OperatingSystem()) for index in range(len(names))}
    roster = Roster.of("benchmark", [Member(*each, keys[index].public) for index, each in enumerate(names.items())])
    setup = setup_of(roster, protection=protection, dropouts=DROPOUTS)
    setup = replace(setup, context=placed(setup.context, len(vectors[1])))
    began = time.process_time()
    leaves = dict.fromkeys(range(1, DROPOUTS + 1), setup.protection.client.announcement.__name__)
    opened = run_session(setup, keys, vectors.__getitem__, leaves)
    cpu = time.process_time() - began
    if len(opened.members) != CLIENTS - DROPOUTS or not np.array_equal(
        opened.total, sum(vectors[member] for member in opened.members)
    ):
        raise ValueError(f"the opened {protection} sum is not the survivors' sum")
    measured = opened.measured
    return ProtectionCosts(
        length=setup.context.length,
        client_cpu=median(measured.client_cpu[member] for member in opened.members),
        sent=_sent(setup, round(median(measured.client_bytes[member] for member in opened.members))),
        others_cpu=cpu - sum(measured.client_cpu.values()),
        others_seconds=measured.server_seconds,
    )


def _sent(setup: SessionSetup, client_bytes: int) -> dict[str, Sent]:
    """By receiver; where there are several, all get the same message with their part of the vector."""
    parts = setup.protection.deliveries(setup.context)
    messages = (client_bytes - sum(part.size for part in parts)) // len(parts)
    return {setup.roster.name(part.receiver): Sent(part.size, messages) for part in parts}
