"""One shared session, a step at a time; every message and every kept state passes through its bytes."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from secagg.crypto.signatures import SigningKey
from secagg.protection import LocalParty
from secagg.protection.sharing.agreeing import SetAgreed, SetCommitted, SetRevealed
from secagg.protection.sharing.client import SharesSent, share
from secagg.protection.sharing.collecting import Collecting, begin
from secagg.protection.sharing.context import SharedContext
from secagg.protection.sharing.keeper import Keeper
from secagg.protection.sharing.summing import SumCommitted, SumRevealed
from secagg.unsafe_for_tests import SeededRandomness
from secagg.wire import decode, encode
from tests.protection.rehearsal import context_for, party, vectors_for

STEPS = ("commit set", "reveal set", "agree", "commit sum", "reveal sum", "open")


@functools.cache
def identity(number: int) -> SigningKey:
    """The identity key of an aggregator, the same in every session."""
    return SigningKey.generate(SeededRandomness(b"aggregator %d" % number))


def aggregator(number: int, seed: bytes = b"") -> LocalParty:
    """An aggregator with its own reproducible secrets."""
    return LocalParty(number, identity(number), SeededRandomness(b"secrets of aggregator %d " % number + seed))


def shared_context(m: int = 2, clients: int = 5, **facts: Any) -> SharedContext:
    """A session of clients c1…cn and aggregators a1…am."""
    numbers = range(1, m + 1)
    identities = {number: identity(number).public for number in numbers}
    return SharedContext(context_for(clients, **facts), identities, {number: f"a{number}" for number in numbers})


def through(message: Any) -> Any:
    """A message as its receiver reads it."""
    return decode(type(message), encode(message))


@dataclass
class Shared:
    """The parties of one session. `disk` holds what each aggregator has kept: state bytes, shares, sum share."""

    context: SharedContext
    seed: bytes = b""
    crashing: bool = False  # every aggregator is killed after each step and goes on from its disk
    parties: dict[int, LocalParty] = field(default_factory=dict)
    keepers: dict[int, Keeper] = field(default_factory=dict)
    disk: dict[int, dict[Any, Any]] = field(default_factory=dict)
    sent: dict[int, SharesSent] = field(default_factory=dict)
    sealed: dict[int, tuple[bytes, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.vectors = vectors_for(self.context.session)
        for number in self.context.numbers:
            self.parties[number] = aggregator(number, self.seed)
            self.disk[number] = {}
            state = begin(self.context, self.parties[number])
            self.keepers[number] = Keeper(state, self.writer(number))
        self._maybe_crash()

    def writer(self, number: int) -> Callable[[Any], None]:
        """Where an aggregator keeps its state."""

        def keep(state: Any) -> None:
            self.disk[number]["state"] = (type(state), encode(state))

        return keep

    def restart(self, number: int) -> None:
        """Kill an aggregator; it goes on from its disk with other randomness."""
        cls, content = self.disk[number]["state"]
        self.parties[number] = aggregator(number, self.seed + b" restarted")
        self.keepers[number] = Keeper(decode(cls, content), self.writer(number))

    def _maybe_crash(self) -> None:
        for number in self.context.numbers:
            if self.crashing:
                self.restart(number)

    def said(self) -> dict[int, Any]:
        """What each aggregator's state announces."""
        return {
            number: through(keeper.state.announcement(self.context, self.parties[number]))
            for number, keeper in self.keepers.items()
        }

    def prepare(self, client: int) -> None:
        """A client draws its shares from everyone's session keys."""
        residues = self.context.session.ring.encode(self.vectors[client])
        me = party(client, self.seed)
        self.sent[client], self.sealed[client] = share(self.context, me, self.said().values(), residues)

    def submit(self, number: int, client: int, manifest: Any = None, sealed: bytes | None = None) -> None:
        """One upload reaches one aggregator, whose receipt reaches the client."""
        manifest = through(manifest or self.sent[client].announcement)
        sealed = self.sealed[client][number - 1] if sealed is None else sealed
        me = self.parties[number]
        state = self.keepers[number].move(Collecting, lambda at: at.accept(self.context, me, manifest, sealed), "c")
        self.disk[number][manifest.client] = sealed
        receipt = through(state.receipt(self.context, me, manifest.client))
        self.sent[client] = through(self.sent[client].acknowledged(self.context, receipt))

    def upload(self, *clients: int, to: Iterable[int] = ()) -> "Shared":
        """Whole uploads, to all aggregators or to some."""
        for client in clients:
            if client not in self.sent:
                self.prepare(client)
            for number in tuple(to) or self.context.numbers:
                self.submit(number, client)
        self._maybe_crash()
        return self

    def step(self, here: type, action: Callable[[Any, LocalParty, list[Any]], Any]) -> "Shared":
        """Every aggregator takes a step, given its state and what the others have said."""
        said = self.said() if here in (SetCommitted, SetRevealed, SumCommitted) else {}
        for number in self.context.numbers:
            others = [message for other, message in said.items() if other != number]
            self.take(number, here, action, others)
        self._maybe_crash()
        return self

    def take(self, number: int, here: type, action: Callable[..., Any], others: list[Any]) -> None:
        """One aggregator takes a step."""
        me = self.parties[number]
        self.keepers[number].move(here, lambda at: action(at, me, others), f"a{number}")

    def commit_sets(self) -> "Shared":
        """The deadline passes."""
        return self.step(Collecting, lambda at, me, _: at.close(self.context, me))

    def reveal_sets(self) -> "Shared":
        """All have committed to what they accepted."""
        return self.step(SetCommitted, lambda at, me, others: at.reveal(self.context, me, others))

    def agree(self) -> "Shared":
        """All have shown what they accepted."""
        return self.step(SetRevealed, lambda at, me, others: at.agree(self.context, me, others))

    def add_up(self, number: int, noise: np.ndarray | None = None) -> bytes:
        """The packed sum share of one aggregator, from its disk."""
        total = self.keepers[number].state.summing(self.context, self.parties[number])
        for client in total.waiting:
            total.add(client, self.disk[number][client])
        return total.packed(noise)

    def commit_sums(self, noises: dict[int, np.ndarray] | None = None) -> "Shared":
        """Each adds its shares and its noise."""
        for number in self.context.numbers:
            self.disk[number]["sum"] = self.add_up(number, (noises or {}).get(number))
        return self.step(SetAgreed, lambda at, me, _: at.commit(self.context, me, self.disk[me.member]["sum"]))

    def reveal_sums(self) -> "Shared":
        """All have committed to their sum shares."""
        return self.step(SumCommitted, lambda at, me, others: at.reveal(self.context, me, others))

    def open_at(self, number: int, others: Iterable[Any]) -> list[int]:
        """What one aggregator opens from the sum shares that the others announce."""
        found: list[int] = []

        def opened(at: SumRevealed, me: LocalParty, said: list[Any]) -> Any:
            opening = at.opening(self.context, me, said)
            for other in self.context.numbers:
                opening.add(other, self.disk[other]["sum"])
            found.extend(opening.integers().tolist())
            return opening.opened()

        self.take(number, SumRevealed, opened, list(others))
        return found

    def open(self) -> list[int]:
        """The integers that all aggregators open alike."""
        said = self.said()
        found = {
            tuple(self.open_at(number, [message for other, message in said.items() if other != number]))
            for number in self.context.numbers
        }
        assert len(found) == 1
        return list(found.pop())

    def until(self, step: str) -> "Shared":
        """Play honestly, everyone uploading, up to the named step, which is not yet taken."""
        self.upload(*self.context.session.clients)
        actions = (self.commit_sets, self.reveal_sets, self.agree, self.commit_sums, self.reveal_sums)
        for action in actions[: STEPS.index(step)]:
            action()
        return self

    def expected(self, members: Iterable[int]) -> list[int]:
        """The sum of the members' vectors in Python integers."""
        return [sum(column) for column in zip(*(self.vectors[member].tolist() for member in members), strict=True)]
