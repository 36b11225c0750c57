"""One session of state machines, a step at a time, so that a test can put its hand between any two of them.

Every message passes through its bytes, as between processes. A `Rehearsal` is honest by itself: tests replace what
a party says before it is delivered.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from secagg.crypto.signatures import SigningKey
from secagg.encoding import Ring
from secagg.protection import LocalParty, SessionContext, protection_named
from secagg.protection.seam import ReadyState, ServerState
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from secagg.wire import decode, encode

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
    minimum_cohort: int = 1,
) -> SessionContext:
    """The public facts of a session of clients 1…n, called c1…cn."""
    members = range(1, clients + 1)
    return SessionContext(
        plan=plan.ljust(32, b"."),
        session=(b"session of " + plan).ljust(32, b"."),
        roster=b"roster".ljust(32, b"."),
        identities={member: identity(member).public for member in members},
        names={member: f"c{member}" for member in members},
        ring=Ring(bits),
        length=length,
        colluders=colluders,
        dropouts=dropouts,
        minimum_cohort=minimum_cohort,
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


@dataclass
class Rehearsal:
    """The parties of one session and what lies between them."""

    context: SessionContext
    protection: str = "masked"
    seed: bytes = b""
    states: dict[int, Any] = field(default_factory=dict)
    outbox: dict[int, Any] = field(default_factory=dict)  # what each client has said and the server has not yet heard
    inbox: dict[int, Any] = field(default_factory=dict)  # what the server has said and the client has not yet heard
    uploads: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.vectors = vectors_for(self.context)
        self.parties = {member: party(member, self.seed) for member in self.context.clients}
        chosen = protection_named(self.protection)
        self.server: Any = chosen.begin_server(self.context)
        for member, me in self.parties.items():
            self._take(member, chosen.client.begin(self.context, me))

    def _take(self, member: int, transition: Any) -> None:
        if isinstance(transition.state, ReadyState):
            residues = self.context.ring.encode(self.vectors[member])
            transition = transition.state.protect(self.context, self.parties[member], residues)
        self.states[member] = transition.state
        if transition.vector is not None:
            self.uploads[member] = transition.vector
        if transition.outgoing is not None:
            self.outbox[member] = transition.outgoing

    def deliver(self, member: int, message: Any) -> None:
        """A client's message reaches the server."""
        self.server.accept(member, decode(self.server.awaits, encode(message)))

    def show(self, member: int, message: Any) -> None:
        """The server's message reaches a client, whose answer goes to the outbox."""
        state = self.states[member]
        self._take(member, state.advance(self.context, self.parties[member], decode(state.awaits, encode(message))))

    def hear(self, *without: int) -> None:
        """The server takes everything in the outbox from those that it expects."""
        said, self.outbox = self.outbox, {}
        for member, message in sorted(said.items()):
            if member in self.server.expected and member not in without:
                self.deliver(member, message)

    def close(self) -> None:
        """The server ends its step; its messages lie in the inbox."""
        self.server, messages = self.server.close()
        self.inbox = dict(messages)

    def answer(self, *without: int) -> None:
        """Every client takes what is in its inbox."""
        shown, self.inbox = self.inbox, {}
        for member, message in sorted(shown.items()):
            if member in self.states and member not in without:
                self.show(member, message)

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

    def leave(self, member: int) -> None:
        """A client vanishes."""
        self.states.pop(member, None)
        self.outbox.pop(member, None)
        self.inbox.pop(member, None)

    def finish(self, leaves: Mapping[int, str] | None = None) -> tuple[tuple[int, ...], list[int]]:
        """Play on to the end; return the members of the sum and the sum."""
        leaves = leaves or {}
        while isinstance(self.server, ServerState):
            for member, step in leaves.items():
                if self.server.awaits.__name__ == step:
                    self.leave(member)
            self.hear()
            self.close()
            self.answer()
        return self.server.members, self.opened()

    def opened(self) -> list[int]:
        """The unmasked sum of the uploads that the server holds of the members."""
        ring, length = self.context.ring, self.context.length
        total = np.zeros(length, dtype=ring.word)
        for member in self.server.members:
            total += ring.unpack(self.uploads[member], length)
        opened: list[int] = self.server.open(self.context, total).tolist()
        return opened

    def expected(self, members: tuple[int, ...]) -> list[int]:
        """The sum of the members' vectors in Python integers."""
        return [sum(column) for column in zip(*(self.vectors[member].tolist() for member in members), strict=True)]
