"""The interface of a protection: a client and a server as sans-I/O state machines over the same integers.

A client holds one state at a time: a `WaitingState` says which message it waits for and turns it into a
`Transition` (the next state, the message to send and, once, the protected vector); the `ReadyState` protects the
vector. The server holds a `ServerState` until a `SumToOpen` remains. Nothing here knows of sockets, clocks, files or
threads; deadlines reach the server as a call of `close`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.signatures import SigningKey
from secagg.encoding import Integers, Residues, Ring
from secagg.errors import ProtocolViolation
from secagg.randomness import RandomSource
from secagg.wire import tag_of


@dataclass(frozen=True)
class SessionContext:
    """The public facts of one round that every party derives from the same plan and roster.

    `round_digest` (32 bytes) is what every frame, signature and key of the round is bound to: the plan's digest in the
    first round, the hash of the plan and of all that was opened before in a later one (`RoundOpening.round_digest`),
    and of the draw's seed too where clients are sampled. `session_id` (32 bytes) is the plan's `session` in the first
    round and derived from it in later ones; `roster` is the roster's digest.
    `identities` maps each client's index (1…n) to its Ed25519 public key, `names` every party's index to its name.
    `server` is the server's public key, `helpers` maps the index of every helper (aggregators, or the key holder:
    n + 1, …) to its own; both are empty where a protection has no use for them. `largest` is the plan's capacity: the
    largest absolute value of an entry of the sum, noise included; `security` the bits that encryption must have.
    """

    round_digest: bytes
    session_id: bytes
    roster: bytes
    identities: Mapping[int, bytes]
    names: Mapping[int, str]
    ring: Ring
    length: int
    colluders: int
    dropouts: int
    min_clients_in_sum: int
    server: bytes = b""
    helpers: Mapping[int, bytes] = field(default_factory=dict)
    largest: int = 0
    security: int = 128

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients' indices in order."""
        return tuple(self.identities)

    @property
    def packed_bytes(self) -> int:
        """Size of one packed vector."""
        return self.length * self.ring.entry_bytes

    @property
    def upload_bytes(self) -> int:
        """Size of what a client uploads in all, beside the messages: its packed vector, unless protected otherwise."""
        return self.packed_bytes


@dataclass(frozen=True)
class LocalParty:
    """The party whose machine this is: its index, its identity key and its source of fresh secrets."""

    member: int
    identity: SigningKey
    randomness: RandomSource = field(repr=False)


@dataclass(frozen=True)
class Transition:
    """The next state, the message that goes out, and the bytes that go with it if it is an Announcement."""

    state: WaitingState | ReadyState | WorkingState
    outgoing: Any = None
    vector: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Delivery:
    """Where a part of a client's upload goes: `size` bytes from `start` on, to the party with index `receiver`."""

    receiver: int
    start: int
    size: int


@runtime_checkable
class WaitingState(Protocol):
    """A step of a party at which it waits for the server's next message."""

    awaits: ClassVar[type]

    def advance(self, context: SessionContext, me: LocalParty, incoming: Any) -> Transition:
        """Take the awaited message. Raises ProtocolViolation (culprit: the server) for one that breaks the protocol."""


@runtime_checkable
class ReadyState(Protocol):
    """The step of a client at which the vector is protected; nothing is awaited."""

    def protect(self, context: SessionContext, me: LocalParty, residues: Residues) -> Transition:
        """Protect the vector; the next state can no longer reveal it."""


@runtime_checkable
class ReceiptState(Protocol):
    """The step of a client that holds receipts of helpers. `evidence` shows what they did with its upload."""

    receipt: ClassVar[type]
    evidence: ClassVar[type]

    def check_receipt(self, context: Any, receipt: Any) -> None:
        """Raise ProtocolViolation unless this is a receipt for this upload."""

    def broken_by(self, context: Any, receipts: Any, evidence: Any) -> tuple[str, ...]:
        """Names of those whose receipt and evidence contradict each other. Raises ProtocolViolation for a forgery."""


@runtime_checkable
class WorkingState(Protocol):
    """A step of a helper whose own work leads on from here, once the server has said what `opened_by` names."""

    opened_by: ClassVar[type | None]

    def work(
        self, context: Any, me: LocalParty, kept: Callable[[int], bytes], noise: Callable[[], Integers] | None
    ) -> Transition:
        """Do it. `kept` gives what is kept of a client's upload; `noise` draws this party's own, if it adds any."""


@runtime_checkable
class CollectingState(WorkingState, Protocol):
    """The step of a helper that takes uploads, until its work ends it."""

    def accept(self, context: Any, me: LocalParty, announcement: Any, vector: bytes) -> CollectingState:
        """Take one client's part; the same again changes nothing. Raises ProtocolViolation (the client)."""

    def receipt(self, context: Any, me: LocalParty, client: int) -> Any:
        """The receipt for what was taken from a client; the same each time."""


@runtime_checkable
class ServerState(Protocol):
    """One step of the server: it collects `awaits` from `expected`, then is closed.

    `is_joining`: parties may come in their own time, until the plan's `join_seconds` are over.
    """

    awaits: ClassVar[type]
    is_joining: ClassVar[bool]

    @property
    def expected(self) -> frozenset[int]:
        """The parties that may answer."""

    def accept(self, member: int, incoming: Any) -> None:
        """Take one client's message. Raises ProtocolViolation; the same message twice changes nothing."""

    @property
    def complete(self) -> bool:
        """Whether nothing more can usefully arrive."""

    @property
    def is_short(self) -> bool:
        """Whether too few have answered: closing the step now would end the session."""

    def close(self) -> tuple[ServerState | SumToDeclare | SumToOpen, Mapping[int, Any]]:
        """End the step: what follows, and the message for each receiver. Raises SessionAborted when too few answered.

        May raise ProtocolViolation or Equivocated when the messages together prove that someone lied.
        """


@runtime_checkable
class VectorState(ServerState, Protocol):
    """A step that collects announcements, each with its bytes."""

    @property
    def vector_bytes(self) -> int:
        """The number of bytes that each of them announces."""

    def inspect(self, member: int, vector: bytes) -> None:
        """Look at bytes that are what their sender announced. Raises ProtocolViolation for what cannot be used."""


@runtime_checkable
class SumToDeclare(Protocol):
    """The clients' vectors are in: their sum is to be made and shown to the party that can open it.

    `requests` is the message that shows it.
    """

    requests: ClassVar[type]

    @property
    def vectors(self) -> tuple[int, ...]:
        """The parties whose vectors to add."""

    def add(self, member: int, vector: bytes) -> None:
        """Add one; memory is that of one sum."""

    def request(self, identity: SigningKey) -> Any:
        """The message that shows the complete sum, signed by the server."""

    def is_sum(self, request: Any) -> bool:
        """Whether a request shows the complete sum of what was added, as `request` would."""

    def requested(self, request: Any) -> tuple[ServerState, Mapping[int, Any]]:
        """The next step after a request by anybody, and the message for each receiver."""


@runtime_checkable
class SumToOpen(Protocol):
    """The end of the collection: whose vectors to add, and how to open their sum."""

    @property
    def members(self) -> tuple[int, ...]:
        """The clients whose vectors are in the sum."""

    @property
    def vectors(self) -> tuple[int, ...]:
        """The parties whose uploaded ring vectors add up to `total`: the members, or those who opened for them."""

    def open(self, context: SessionContext, total: Residues) -> Integers:
        """The signed integers of the sum, from the ring sum of the vectors (which is overwritten)."""


@dataclass(frozen=True)
class VectorSum:
    """A sum without masks: the `vectors` of these parties add up to the sum of the `members`' vectors."""

    members: tuple[int, ...]
    vectors: tuple[int, ...]

    def open(self, context: SessionContext, total: Residues) -> Integers:
        """The signed integers of the sum."""
        return context.ring.decode(total)


class CollectingStep(ABC):
    """A step of the server that takes one message of each that it expects; complete when all have answered.

    `enough` is how many must answer for the session to go on: all, unless a subclass sets another number.
    """

    is_joining: ClassVar[bool] = False

    def __init__(self, expected: Iterable[int]) -> None:
        self.expected = frozenset(expected)
        self.messages: dict[int, Any] = {}
        self.enough = len(self.expected)

    @abstractmethod
    def check(self, member: int, incoming: Any) -> None:
        """Raise ProtocolViolation for a message that does not belong here."""

    def accept(self, member: int, incoming: Any) -> None:
        """Take one message that `check` lets pass; an exact repetition changes nothing.

        Raises ProtocolViolation, for a stranger or a second, different message too.
        """
        if member not in self.expected:
            raise ProtocolViolation(member, "is not expected at this step")
        known = self.messages.get(member)
        if known is None:
            self.check(member, incoming)
            self.messages[member] = incoming
        elif known != incoming:
            raise ProtocolViolation(member, f"sent a second, different {type(incoming).__name__}")

    @property
    def members(self) -> tuple[int, ...]:
        """The members that have answered, in order."""
        return tuple(sorted(self.messages))

    @property
    def complete(self) -> bool:
        """Whether everybody has answered."""
        return len(self.messages) == len(self.expected)

    @property
    def is_short(self) -> bool:
        """Whether fewer than `enough` have answered."""
        return len(self.messages) < self.enough


class PackedVectors:
    """Of a step that collects announcements: the bytes that go with them are vectors packed in the session's ring."""

    _context: Any  # a SessionContext, or a protection's own

    @property
    def vector_bytes(self) -> int:
        """Size of one packed vector."""
        size: int = self._context.packed_bytes
        return size

    def inspect(self, member: int, vector: bytes) -> None:
        """Every vector of the right size is one of the ring."""


@dataclass(frozen=True)
class Script:
    """A party's part: its first step, the states that survive a crash, and its message that announces bytes.

    `proves` is what the transcript of such a party proves, for people.
    """

    begin: Callable[[Any, LocalParty], Transition]
    states: tuple[type, ...]
    announcement: type
    proves: str


@dataclass(frozen=True)
class Handover:
    """The way clients hand parts of their uploads to helpers, past the server, against signed receipts.

    Once a helper has said `closed_by` to the server, it takes no further uploads.
    `kept` returns the SHA-256 of the bytes that the party `receiver` keeps of an upload by `sender`, `is_receipt` says
    whether `sender` signed this receipt for the client `receiver`; both take (context, message, sender, receiver).
    `kept` returns None for an upload that its sender did not sign for these parties.
    """

    upload: type
    receipt: type
    closed_by: type
    kept: Callable[[Any, Any, int, int], bytes | None]
    is_receipt: Callable[[Any, Any, int, int], bool]


@dataclass(frozen=True)
class Protection:
    """Everything that plans and parties need to know of a protection: its state machines, its facts and its words."""

    name: str
    """Its name in plans and policies."""
    fewest: Callable[[Any], int]
    """The smallest number of clients whose sum can be opened. Raises BadInput where the plan's clients, colluders and
    dropouts do not go together."""
    explain: Callable[[Any], str]
    """Why `fewest` is what it is, for people."""

    # The state machines.
    client: Script
    """A client's part."""
    begin_server: Callable[[Any], ServerState]
    """The server's first step."""
    steps: tuple[type, ...]
    """Messages a client may vanish before, first to last. A receipt stands for the upload's other parts, once the
    receiver of the first has given one."""
    reveals: type
    """From the first message of this class on somebody may know the sum, published or not."""
    revealed: str
    """Why somebody may know it, for people."""

    # For people.
    proves: str
    """What a server's transcript proves of the published sum, and on whose word the rest stands."""
    trust: str
    """What must hold for a vector to stay secret."""
    sum_trust: str
    """Who beside the clients can add to an opened sum unseen: a class gate rests on their word."""
    visits: str
    """When a client has to be there."""
    absence: str
    """What becomes of a client that leaves."""
    details: Callable[[Any], list[tuple[str, str]]] = lambda context: []
    """Further rows about a plan: (heading, text)."""

    # The helpers, where it has any, and the bytes that they get.
    helper_role: str = ""
    """The role of its helpers in the roster; empty without any."""
    fewest_helpers: int = 0
    """How many helpers it needs at least."""
    helper: Script | None = None
    """A helper's part."""
    deliveries: Callable[[Any], tuple[Delivery, ...]] = lambda context: (
        Delivery(SERVER_INDEX, 0, context.upload_bytes),
    )
    """Which bytes of an upload go to whom."""
    handover: Handover | None = None
    """How bytes of an upload go to a helper, past the server."""

    # Its facts.
    context: Callable[[SessionContext], SessionContext] = lambda context: context
    """Adds what the protection itself derives from the session's facts."""
    most_dropouts: Callable[[int, int], int] = lambda clients, colluders: max(0, clients - colluders - 2)
    """How many of so many clients, with so many colluders, may vanish: all but two honest ones, unless set."""
    check_machine: Callable[[], None] = lambda: None
    """Raises BadInput, with the remedy, on a machine that lacks what a member's part needs."""
    hides_vectors: bool = True
    """Nobody sees one client's vector alone, so that the noise shares of all clients in a sum protect each of them."""
    speaks_once: bool = False
    """A client uploads and may leave; whether it comes back for the outcome is its own affair."""
    encrypts: bool = False
    """A key holder decrypts the exact sum, so that aggregators cannot add the noise."""
    grows_with_clients: bool = False
    """A client's work grows with the number of clients."""

    @property
    def helper_roles(self) -> dict[str, str]:
        """Name → role of the fewest helpers, for simulations and demos."""
        return {f"{self.helper_role}-{place}": self.helper_role for place in range(1, self.fewest_helpers + 1)}

    @property
    def leaving(self) -> tuple[str, ...]:
        """The names of `steps`."""
        return tuple(tag_of(step) for step in self.steps)

    def usual_dropouts(self, clients: int, colluders: int) -> int:
        """The dropouts to tolerate where a plan states none: a tenth, ⌈n/10⌉, or `most_dropouts` where that is less.

        Noise is calibrated for the clients that are left. To tolerate all that can vanish, nearly half, would cost √2
        in σ, and leave masks no neighbour graph.
        """
        return min(math.ceil(clients / 10), self.most_dropouts(clients, colluders))

    def receivers(self, context: SessionContext) -> frozenset[int]:
        """The parties that get a part of every client's upload."""
        return frozenset(part.receiver for part in self.deliveries(context))


OF_CLIENT = "what this client was told and what it gave, each frame signed; of the sum it has the server's word alone"
"""What a client's transcript proves under every protection so far."""
