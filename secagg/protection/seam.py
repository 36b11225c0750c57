"""What a protection must offer: a client and a server as sans-I/O state machines over the same integers.

A client holds one state at a time: a `WaitingState` says which message it waits for and turns it into a
`Transition` (the next state, the message to send and, once, the protected vector); the `ReadyState` protects the
vector. The server holds a `ServerState` until a `SumToOpen` remains. Nothing here knows of sockets, clocks, files or
threads; deadlines reach the server as a call of `close`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from secagg.crypto.signatures import SigningKey
from secagg.encoding import Integers, Residues, Ring
from secagg.errors import ProtocolViolation
from secagg.randomness import RandomSource


@dataclass(frozen=True)
class SessionContext:
    """The public facts of one session that every party derives from the same plan and roster.

    `identities` maps each client's index (1…n) to its Ed25519 public key, `names` to its name.
    """

    plan: bytes
    session: bytes
    roster: bytes
    identities: Mapping[int, bytes]
    names: Mapping[int, str]
    ring: Ring
    length: int
    colluders: int
    dropouts: int
    minimum_cohort: int

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients' indices in order."""
        return tuple(self.identities)

    @property
    def packed_bytes(self) -> int:
        """Size of one packed vector."""
        return self.length * self.ring.entry_bytes


@dataclass(frozen=True)
class LocalParty:
    """The client whose machine this is: its index, its identity key and its source of fresh secrets."""

    member: int
    identity: SigningKey
    randomness: RandomSource = field(repr=False)


@dataclass(frozen=True)
class Transition:
    """The next state, the message that goes out, and the packed vector that goes with an UploadHeader."""

    state: WaitingState | ReadyState
    outgoing: Any = None
    vector: bytes | None = field(default=None, repr=False)


@runtime_checkable
class WaitingState(Protocol):
    """A step of a client at which it waits for the server's next message."""

    awaits: ClassVar[type]

    def advance(self, context: SessionContext, me: LocalParty, incoming: Any) -> Transition:
        """Take the awaited message. Raises ProtocolViolation (culprit: the server) for one that breaks the protocol."""
        ...


@runtime_checkable
class ReadyState(Protocol):
    """The step of a client at which the vector is protected; nothing is awaited."""

    def protect(self, context: SessionContext, me: LocalParty, residues: Residues) -> Transition:
        """Protect the vector; the next state can no longer reveal it."""
        ...


@runtime_checkable
class ServerState(Protocol):
    """One step of the server: it collects `awaits` from `expected`, then is closed."""

    awaits: ClassVar[type]

    @property
    def expected(self) -> frozenset[int]:
        """Who may answer."""
        ...

    def accept(self, member: int, incoming: Any) -> None:
        """Take one client's message. Raises ProtocolViolation; the same message twice changes nothing."""
        ...

    @property
    def complete(self) -> bool:
        """Whether nothing more can usefully arrive."""
        ...

    def close(self) -> tuple[ServerState | SumToOpen, Mapping[int, Any]]:
        """End the step: what follows, and the message for each client. Raises SessionAborted when too few answered."""
        ...


class SumToOpen(Protocol):
    """The end of the collection: whose vectors to add, and how to take the masks off their sum."""

    @property
    def members(self) -> tuple[int, ...]:
        """Whose vectors are in the sum."""
        ...

    def open(self, context: SessionContext, total: Residues) -> Integers:
        """The signed integers of the sum, from the ring sum of the members' vectors (which is overwritten)."""
        ...


class Collected:
    """The messages of one step, one for each expected member."""

    def __init__(self, context: SessionContext, expected: Iterable[int]) -> None:
        self._names = context.names
        self.expected = frozenset(expected)
        self.messages: dict[int, Any] = {}

    def is_new(self, member: int, incoming: Any) -> bool:
        """False for an exact repetition. Raises ProtocolViolation for a stranger or a second, different message."""
        if member not in self.expected:
            raise ProtocolViolation(self._names.get(member, f"member {member}"), "is not expected at this step")
        known = self.messages.get(member)
        if known is not None and known != incoming:
            raise ProtocolViolation(self._names[member], f"sent a second, different {type(incoming).__name__}")
        return known is None

    def put(self, member: int, incoming: Any) -> None:
        """Record a message that `is_new` and has been checked."""
        self.messages[member] = incoming

    @property
    def members(self) -> tuple[int, ...]:
        """Who has answered, in order."""
        return tuple(sorted(self.messages))
