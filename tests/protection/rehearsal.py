"""One session of state machines, a step at a time, so that a test can put its hand between any two of them.

A `Rehearsal` is honest by itself: tests replace what a party says before it is delivered.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.signatures import SigningKey
from secagg.encoding import Ring
from secagg.experiments.session import InMemorySession
from secagg.protection import LocalParty, SessionContext, protection_named
from secagg.protection.interface import RemovableNoise
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN

SENT = ("KeyAdvertisement", "Dealing", "UploadHeader", "Endorsement", "Opening")
SHOWN = ("Directory", "Inbox", "Survivors", "Quorum")
LENGTH = 6


@functools.cache
def identity(member: int) -> SigningKey:
    """The identity key of a member, the same in every session."""
    return SigningKey.generate(SeededRandomness(b"identity %d" % member, TOKEN))


def context_for(
    clients: int = 5,
    *,
    colluders: int = 0,
    dropouts: int = 1,
    bits: int = 32,
    length: int = LENGTH,
    plan: bytes = b"plan",
    min_clients_in_sum: int = 1,
    proves_bits: bool = False,
    noise_levels: tuple[int, ...] = (),
) -> SessionContext:
    """The public facts of a session of clients 1…n, called c1…cn; each noise level has a sigma of its own."""
    members = range(1, clients + 1)
    return SessionContext(
        round_digest=plan.ljust(32, b"."),
        session_id=(b"session of " + plan).ljust(32, b"."),
        roster=b"roster".ljust(32, b"."),
        identities={member: identity(member).public for member in members},
        names={member: f"c{member}" for member in members},
        ring=Ring(bits),
        length=length,
        colluders=colluders,
        dropouts=dropouts,
        min_clients_in_sum=min_clients_in_sum,
        proves_bits=proves_bits,
        removable=tuple(
            RemovableNoise(missing, ((10.0 + 5 * place, length),)) for place, missing in enumerate(noise_levels)
        ),
    )


def party(member: int, seed: bytes = b"") -> LocalParty:
    """A client with its own reproducible secrets."""
    return LocalParty(member, identity(member), SeededRandomness(b"party %d " % member + seed, TOKEN))


def vectors_for(context: SessionContext, seed: int = 0) -> dict[int, np.ndarray]:
    """Signed vectors whose sum fits the ring; the first entries go to its ends."""
    n = len(context.clients)
    most = (2 ** (context.ring.bits - 1) - 1) // n
    generator = np.random.default_rng(seed)
    vectors = {}
    for member in context.clients:
        vector = generator.integers(-most, most, context.length, dtype=np.int64, endpoint=True)
        vector[:2] = (most, -most)[: context.length]
        vectors[member] = vector
    return vectors


class Rehearsal(InMemorySession):
    """A session of clients with reproducible secrets and vectors, in which everybody has taken the first step."""

    def __init__(self, context: SessionContext, protection: str = "masked", seed: bytes = b"") -> None:
        self.vectors = vectors_for(context)
        parties = {member: party(member, seed) for member in (SERVER_INDEX, *context.clients)}
        super().__init__(context, protection_named(protection), parties, self.vectors.__getitem__)
        self.begin()

    def until_said(self, name: str) -> "Rehearsal":
        """Play honestly until the clients' messages of this class lie in the outbox."""
        while not (self.outbox and type(next(iter(self.outbox.values()))).__name__ == name):
            self.hear()
            self.close()
            self.answer()
        return self

    def until_shown(self, name: str) -> "Rehearsal":
        """Play honestly until the server's messages of this class lie in the inbox."""
        self.until_said(SENT[SHOWN.index(name)])
        self.hear()
        self.close()
        return self

    def finish(self, leaves: Mapping[int, str] | None = None) -> tuple[tuple[int, ...], list[int]]:
        """Play on to the end; return the members of the sum and the sum."""
        self.dropouts = dict(leaves or {})
        self.play()
        return self.server.members, self.open_sum().tolist()

    def expected(self, members: tuple[int, ...]) -> list[int]:
        """The sum of the members' vectors in Python integers."""
        return [sum(column) for column in zip(*(self.vectors[member].tolist() for member in members), strict=True)]


def octets(value: Any) -> Iterator[bytes]:
    """Every byte string inside a value."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from octets(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from octets(getattr(value, field.name))
