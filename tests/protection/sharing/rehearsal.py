"""One shared session, a step at a time; every message and every kept state passes through its bytes."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from secagg.crypto.signatures import SigningKey
from secagg.protection import LocalParty
from secagg.protection.interface import Transition
from secagg.protection.sharing.aggregator import begin_aggregator
from secagg.protection.sharing.client import SharesSent, begin_client, deliveries
from secagg.protection.sharing.context import SharedContext
from secagg.protection.sharing.server import GatheringKeys
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from secagg.wire import decode, encode
from tests.protection.rehearsal import context_for, party, vectors_for

STEPS = ("commit set", "reveal set", "agree", "commit sum", "reveal sum", "open")


@functools.cache
def identity(number: int) -> SigningKey:
    """The identity key of an aggregator, the same in every session."""
    return SigningKey.generate(SeededRandomness(b"aggregator %d" % number, TOKEN))


def aggregator(context: SharedContext, number: int, seed: bytes = b"") -> LocalParty:
    """An aggregator with its own reproducible secrets."""
    source = SeededRandomness(b"secrets of aggregator %d " % number + seed, TOKEN)
    return LocalParty(len(context.clients) + number, identity(number), source)


def shared_context(m: int = 2, clients: int = 5, **facts: Any) -> SharedContext:
    """A session of clients c1…cn and aggregators a1…am."""
    session, places = context_for(clients, **facts), range(1, m + 1)
    names = {0: "server", **session.names, **{clients + number: f"a{number}" for number in places}}
    seconds = {clients + number: identity(number).public for number in places}
    return SharedContext.of(replace(session, names=names, helpers=seconds))


def through(message: Any) -> Any:
    """A message as its receiver reads it."""
    return decode(type(message), encode(message))


@dataclass
class Shared:
    """The parties of one session; aggregators go by their numbers.

    `said` is what each aggregator has sent to the server, `shown` what the server has sent to each party. `disk` holds
    what each aggregator has kept: its state and frame, what it heard since, shares, sum share.
    """

    context: SharedContext
    seed: bytes = b""
    crashing: bool = False  # every aggregator is killed after each step and goes on from its disk
    parties: dict[int, LocalParty] = field(default_factory=dict)
    states: dict[int, Any] = field(default_factory=dict)
    said: dict[int, Any] = field(default_factory=dict)
    shown: dict[int, Any] = field(default_factory=dict)
    disk: dict[int, dict[Any, Any]] = field(default_factory=dict)
    keys: Any = None
    transitions: dict[int, Transition] = field(default_factory=dict)
    receipts: dict[int, dict[int, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.vectors = vectors_for(self.context)
        self.server: Any = GatheringKeys(self.context)
        for number in self.context.numbers:
            self.parties[number] = aggregator(self.context, number, self.seed)
            self.disk[number] = {}
            self.take(number, begin_aggregator(self.context, self.parties[number]))
        self._maybe_crash()

    def take(self, number: int, transition: Transition) -> None:
        """An aggregator keeps what its driver would keep, and speaks."""
        disk, said = self.disk[number], transition.outgoing
        if transition.vector is not None:
            disk["sum"] = transition.vector
        if said is not None:
            disk["state"], disk["frame"] = ((type(each), encode(each)) for each in (transition.state, said))
            disk["heard"] = None
            self.said[number] = through(said)
        self.states[number] = transition.state

    def hear(self, number: int, message: Any) -> None:
        """The server's message reaches an aggregator."""
        state, me = self.states[number], self.parties[number]
        transition = state.advance(self.context, me, through(message))
        if transition.outgoing is None:
            self.disk[number]["heard"] = message
        self.take(number, transition)

    def restart(self, number: int) -> None:
        """Kill an aggregator; it goes on from its disk with other randomness."""
        disk = self.disk[number]
        self.parties[number] = aggregator(self.context, number, self.seed + b" restarted")
        self.states[number], self.said[number] = decode(*disk["state"]), decode(*disk["frame"])
        if disk["heard"] is not None:
            self.hear(number, disk["heard"])

    def _maybe_crash(self) -> None:
        for number in self.context.numbers if self.crashing else ():
            self.restart(number)

    def accept(self, number: int, message: Any) -> None:
        """An aggregator's message reaches the server."""
        self.server.accept(self.context.index_of(number), through(message))

    def gather(self) -> "Shared":
        """The server takes what every aggregator has said, and answers."""
        for number, message in self.said.items():
            self.accept(number, message)
        self.server, answers = self.server.close()
        self.shown = {index: through(message) for index, message in answers.items()}
        return self

    def relay(self) -> "Shared":
        """The server's answers reach every aggregator."""
        for number in self.context.numbers:
            self.hear(number, self.shown[self.context.index_of(number)])
        self._maybe_crash()
        return self

    def publish(self) -> "Shared":
        """The session keys reach the clients."""
        if self.keys is None:
            self.keys = self.gather().shown[1]
        return self

    def protect(self, client: int, me: LocalParty | None = None) -> Transition:
        """A client draws its shares from everyone's session keys."""
        me = me or party(client, self.seed)
        waiting: Any = begin_client(self.context, me).state
        ready: Any = waiting.advance(self.context, me, self.publish().keys).state
        transition: Transition = ready.protect(self.context, me, self.context.ring.encode(self.vectors[client]))
        return transition

    def prepare(self, client: int) -> None:
        """A client fixes its upload."""
        self.transitions[client] = self.protect(client)
        self.receipts[client] = {}

    def sent(self, client: int) -> SharesSent:
        """What a client remembers."""
        state = self.transitions[client].state
        assert isinstance(state, SharesSent)
        return through(state)

    def sealed(self, client: int) -> tuple[bytes, ...]:
        """The shares that a client delivers, in the order of the aggregators."""
        vector = self.transitions[client].vector or b""
        return tuple(vector[part.start : part.start + part.size] for part in deliveries(self.context))

    def submit(self, number: int, client: int, manifest: Any = None, sealed: bytes | None = None) -> None:
        """One upload reaches one aggregator, whose receipt reaches the client."""
        manifest = through(manifest or self.transitions[client].outgoing)
        sealed = self.sealed(client)[number - 1] if sealed is None else sealed
        me = self.parties[number]
        state = self.states[number].accept(self.context, me, manifest, sealed)
        self.disk[number] |= {manifest.client: sealed, "state": (type(state), encode(state))}
        self.states[number] = state
        receipt = through(state.receipt(self.context, me, manifest.client))
        self.sent(client).check_receipt(self.context, receipt)
        self.receipts[client][number] = receipt

    def upload(self, *clients: int, to: Iterable[int] = ()) -> "Shared":
        """Whole uploads, to all aggregators or to some."""
        for client in clients:
            if client not in self.transitions:
                self.prepare(client)
            for number in tuple(to) or self.context.numbers:
                self.submit(number, client)
        self._maybe_crash()
        return self

    def worked(self, number: int, noise: np.ndarray | None = None) -> Transition:
        """What one aggregator's own work leads to, from its disk."""
        kept, draw = self.disk[number].__getitem__, None if noise is None else lambda: noise
        transition: Transition = self.states[number].work(self.context, self.parties[number], kept, draw)
        return transition

    def work(self, noises: Mapping[int, np.ndarray] | None = None) -> "Shared":
        """Every aggregator does what its state is for, with its noise."""
        for number in self.context.numbers:
            self.take(number, self.worked(number, (noises or {}).get(number)))
        self._maybe_crash()
        return self

    def commit_sets(self) -> "Shared":
        """The deadline passes."""
        return self.publish().work()

    def reveal_sets(self) -> "Shared":
        """All have committed to what they accepted."""
        return self.gather().relay()

    def agree(self) -> "Shared":
        """All have shown what they accepted."""
        return self.gather().relay()

    def commit_sums(self, noises: Mapping[int, np.ndarray] | None = None) -> "Shared":
        """Each adds its shares and its noise."""
        return self.work(noises)

    def reveal_sums(self) -> "Shared":
        """All have committed to their sum shares."""
        return self.gather().relay()

    def open(self) -> list[int]:
        """The integers that the server opens."""
        self.gather()
        total = np.zeros(self.context.length, dtype=self.context.ring.word)
        for index in self.server.vectors:
            packed = self.disk[self.context.number_of(index)]["sum"]
            total += self.context.ring.unpack(packed, self.context.length)
        return self.server.open(self.context, total).tolist()

    def until(self, step: str) -> "Shared":
        """Play honestly, everyone uploading, up to the named step, which is not yet taken."""
        self.upload(*self.context.clients)
        return self.play("commit set", step)

    def play(self, start: str, step: str) -> "Shared":
        """Play honestly from one step up to another."""
        actions = (self.commit_sets, self.reveal_sets, self.agree, self.commit_sums, self.reveal_sums)
        for action in actions[STEPS.index(start) : STEPS.index(step)]:
            action()
        return self

    def finish(self, start: str) -> list[int]:
        """Play honestly from a step to the end."""
        return self.play(start, "open").open()

    def expected(self, members: Iterable[int]) -> list[int]:
        """The sum of the members' vectors in Python integers."""
        return [sum(column) for column in zip(*(self.vectors[member].tolist() for member in members), strict=True)]
