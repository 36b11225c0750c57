"""The interface that every protection implements: state machines without I/O that sum the same integer vectors.

A client holds one state at a time: a `WaitingState` says which message it waits for and turns it into a
`Transition` (the next state, the message to send and, once, the protected vector); the `ReadyState` protects the
vector. The server holds a `ServerState` until a `SumToOpen` remains. Nothing here knows of sockets, clocks, files or
threads; deadlines reach the server as a call of `close`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, runtime_checkable

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.bit_proofs import CHECK_SECONDS, PROOF_BYTES, SCALAR_BYTES
from secagg.crypto.signatures import SIGNATURE_BYTES, SigningKey
from secagg.encoding import Integers, Residues, Ring
from secagg.errors import ProtocolViolation
from secagg.protection.messages import Attachment
from secagg.randomness import RandomSource
from secagg.wire import tag_of

M = TypeVar("M")
Outgoing = Mapping[int, object]
"""Messages by their receivers' indices."""


@dataclass(frozen=True)
class RemovableNoise:
    """A part of every client's noise that is removed from a sum which at most `missing` clients are not in.

    `segments`: (σ in integers, number of consecutive entries) in the vector's order.
    """

    missing: int
    segments: tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class SessionContext:
    """The public facts of one round, which every party derives from the same plan and roster.

    `round_digest` (32 bytes) is what every frame, signature and key of the round is bound to: the plan's digest in the
    first round, the hash of the plan and of all that was opened before in a later one (`RoundOpening.round_digest`),
    and of the draw's seed too where clients are sampled. `session_id` (32 bytes) is the plan's `session` in the first
    round and derived from it in later ones; `roster` is the roster's digest.
    `identities` maps each client's index (1…n) to its Ed25519 public key, `names` every party's index to its name.
    `server` is the server's public key, `helpers` maps the index of every helper (aggregators, or the key holder:
    n + 1, …) to its own; both are empty where a protection has no use for them. `largest` is the plan's capacity: the
    largest absolute value of an entry of the sum, noise included; `security` the bits that encryption must have.
    `proves_bits`: every entry of a client's vector is 0 or 1, and proven to be (`secagg.protection.proven_bits`).
    `removable`: parts of the noise that clients add beside that in their vectors, by ascending `missing`.
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
    proves_bits: bool = False
    removable: tuple[RemovableNoise, ...] = ()

    @classmethod
    def of(cls, session: SessionContext) -> Self:
        """Convert a context to this class, or return it as it is if it has this class already. Raises BadInput."""
        if isinstance(session, cls):
            return session
        return cls(**{each.name: getattr(session, each.name) for each in fields(session)})

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients' indices in the roster, in order."""
        return tuple(self.identities)

    @property
    def packed_bytes(self) -> int:
        """Size in bytes of one vector, packed in the ring."""
        return self.length * self.ring.entry_bytes

    @property
    def upload_bytes(self) -> int:
        """Size in bytes of a client's upload, without messages: one packed vector, unless a protection changes it."""
        return self.packed_bytes + self.proof_bytes

    @property
    def proof_bytes(self) -> int:
        """Size in bytes of the signed proofs that follow a client's vector; 0 in a sum without proofs."""
        return (SIGNATURE_BYTES + self.length * PROOF_BYTES) * self.proves_bits

    @property
    def proof_seconds(self) -> int:
        """Seconds to check the proofs of all clients on a slow machine; 0 in a sum without proofs."""
        return math.ceil(len(self.identities) * self.length * CHECK_SECONDS) * self.proves_bits

    @property
    def blinding_bytes(self) -> int:
        """Size in bytes of packed blindings, of one client or of a sum of them; 0 in a sum without proofs."""
        return self.length * SCALAR_BYTES * self.proves_bits


def quorum_of(context: SessionContext) -> int:
    """Return the least t with 2t > n + c for the round's n clients and c colluders.

    Any two sets of t clients then share an honest one (Bonawitz et al. 2017, section 6.2).
    """
    return (len(context.identities) + context.colluders) // 2 + 1


@dataclass(frozen=True)
class LocalParty:
    """The party on this machine: its roster index, its identity key and its source of randomness.

    `upload` reads the protected bytes that this party has announced in the session; empty where there are none.
    """

    member: int
    identity: SigningKey
    randomness: RandomSource = field(repr=False)
    upload: Callable[[], bytes] = field(repr=False, compare=False, default=bytes)


@dataclass(frozen=True)
class Transition:
    """The result of a step: the next state, the message to send, and the bytes that follow if it is an Announcement."""

    state: WaitingState | ReadyState | WorkingState
    outgoing: Any = None
    vector: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Delivery:
    """A part of a client's upload and its destination: `size` bytes from `start` on, for the party `receiver`."""

    receiver: int
    start: int
    size: int


@runtime_checkable
class WaitingState(Protocol):
    """The interface of a party's state in which it waits for the server's next message."""

    awaits: ClassVar[type]

    def advance(self, context: SessionContext, me: LocalParty, incoming: Any) -> Transition:
        """Process the awaited message. Raises ProtocolViolation, blaming the server, for one that breaks the rules."""


@runtime_checkable
class ReadyState(Protocol):
    """The interface of a client's state in which it can protect its vector without waiting for a message."""

    def protect(self, context: SessionContext, me: LocalParty, residues: Residues) -> Transition:
        """Mask, share or encrypt the vector, to be uploaded; the next state can no longer reveal it."""


@runtime_checkable
class ReceiptState(Protocol):
    """The interface of a client's state that checks helpers' receipts, and `evidence` of how they used its upload."""

    receipt: ClassVar[type]
    evidence: ClassVar[type]

    def check_receipt(self, context: Any, receipt: Any) -> None:
        """Raise ProtocolViolation unless the receipt is valid and for this client's upload."""

    def broken_by(self, context: Any, receipts: Any, evidence: Any) -> tuple[str, ...]:
        """Return the names of helpers whose receipts the evidence refutes. Raises ProtocolViolation for a forgery."""


@runtime_checkable
class WorkingState(Protocol):
    """The interface of a helper's state that ends with the helper's own work, once the server has sent `opened_by`."""

    opened_by: ClassVar[type | None]

    def work(
        self, context: Any, me: LocalParty, kept: Callable[[int], bytes], noise: Callable[[], Integers] | None
    ) -> Transition:
        """Return what the helper sends next, from clients' uploads (`kept`) and its own `noise`, if any."""


@runtime_checkable
class CollectingState(WorkingState, Protocol):
    """The interface of a helper's state in which it accepts uploads, until the helper's own work ends it."""

    def accept(self, context: Any, me: LocalParty, announcement: Any, vector: bytes) -> CollectingState:
        """Accept part of a client's upload; a repeat changes nothing. Raises ProtocolViolation, blaming the client."""

    def receipt(self, context: Any, me: LocalParty, client: int) -> Any:
        """Return the receipt for the upload accepted from a client; the same each time."""


@runtime_checkable
class ServerState(Protocol):
    """The interface of a server's step, which collects messages of type `awaits` from `expected` parties until closed.

    `is_joining`: parties may come in their own time, until the plan's `join_seconds` are over.
    """

    awaits: ClassVar[type]
    is_joining: ClassVar[bool]

    @property
    def expected(self) -> frozenset[int]:
        """The indices of the parties that may answer in this step."""

    def accept(self, member: int, incoming: Any) -> None:
        """Accept one party's message; repeating the same one changes nothing. Raises ProtocolViolation."""

    @property
    def complete(self) -> bool:
        """Whether the step needs no further message."""

    @property
    def is_short(self) -> bool:
        """Whether too few have answered, so that closing the step now would end the session."""

    def close(self) -> tuple[ServerState | SumToDeclare | SumToOpen, Outgoing]:
        """End the step: return the next one and each receiver's message. Raises SessionAborted for too few answers.

        May raise ProtocolViolation or Equivocated when the messages together prove that someone lied.
        """


@runtime_checkable
class VectorState(ServerState, Protocol):
    """The interface of a server's step that collects vectors, each announced by a message with length and digest."""

    def vector_bytes(self, member: int) -> int:
        """Return the length in bytes that this party's message must announce for its vector."""

    def inspect(self, member: int, vector: bytes) -> None:
        """Check the bytes of a vector that their sender announced. Raises ProtocolViolation if they cannot be used."""


@runtime_checkable
class SumToDeclare(Protocol):
    """The interface of a server's step that adds clients' vectors and sends the sum to the party that opens it.

    `requests` is the message that shows it.
    """

    requests: ClassVar[type]

    @property
    def vectors(self) -> tuple[int, ...]:
        """The parties whose vectors are to be added."""

    def add(self, member: int, vector: bytes) -> None:
        """Add one party's vector to the running sum, so that memory holds one sum and not all vectors."""

    def request(self, identity: SigningKey) -> Any:
        """Return the request to open the complete sum, signed by the server."""

    def is_sum(self, request: Any) -> bool:
        """Return whether a request is for the complete sum of the added vectors, as `request` makes it."""

    def requested(self, request: Any) -> tuple[ServerState, Outgoing]:
        """Return the step that follows a request, whichever caller made it, and the message for each receiver."""


@runtime_checkable
class SumToOpen(Protocol):
    """The interface of the server's last stage, which says which vectors to add and opens their sum."""

    @property
    def members(self) -> tuple[int, ...]:
        """The clients whose vectors are in the sum."""

    @property
    def vectors(self) -> tuple[int, ...]:
        """The parties whose ring vectors add up to the sum: the clients themselves, or helpers that opened for them."""

    def open(self, context: SessionContext, total: Residues) -> Integers:
        """Return the sum as signed integers, from the ring vectors' sum `total`, which is overwritten."""


@runtime_checkable
class SumToRelease(SumToOpen, Protocol):
    """The interface of a last stage that shows others what its sum follows from."""

    def release(
        self, context: SessionContext, read: Callable[[int], bytes], frames: Mapping[int, bytes]
    ) -> tuple[bytes, ...]:
        """Return the files from which others open the sum themselves (`SumRelease`).

        `read` returns the vector of one of the `vectors`, `frames` are the signed frames that announced them.
        """


@dataclass(frozen=True)
class VectorSum:
    """A sum without masks to remove: the vectors of the parties `vectors` add up to the sum over the `members`."""

    members: tuple[int, ...]
    vectors: tuple[int, ...]

    def open(self, context: SessionContext, total: Residues) -> Integers:
        """Decode the ring vectors' sum and return it as signed integers."""
        return context.ring.decode(total)


class CollectingStep(ABC, Generic[M]):
    """A server's step that takes one message of each expected party; it is complete when all have answered.

    `enough` is how many must answer for the session to go on: all, unless another number is given.
    """

    is_joining: ClassVar[bool] = False

    def __init__(self, expected: Iterable[int], enough: int | None = None) -> None:
        self.expected = frozenset(expected)
        self.messages: dict[int, M] = {}
        self.enough = len(self.expected) if enough is None else enough

    @abstractmethod
    def check(self, member: int, incoming: M) -> None:
        """Raise ProtocolViolation for a message that is not valid in this step."""

    def accept(self, member: int, incoming: M) -> None:
        """Accept one message that passes `check`; an exact repetition changes nothing.

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
        """The indices of the parties that have answered, in ascending order."""
        return tuple(sorted(self.messages))

    @property
    def complete(self) -> bool:
        """Whether all expected parties have answered."""
        return len(self.messages) == len(self.expected)

    @property
    def is_short(self) -> bool:
        """Whether fewer parties have answered than the session needs (`enough`)."""
        return len(self.messages) < self.enough


class PackedVectors(CollectingStep[M]):
    """A server's step that collects announcements of vectors, each packed in the session's ring."""

    _context: Any  # a SessionContext, or a protection's own

    def vector_bytes(self, member: int) -> int:
        """Return the size in bytes of one packed vector, with the proofs that follow it."""
        size: int = self._context.packed_bytes + self._context.proof_bytes
        return size

    def inspect(self, member: int, vector: bytes) -> None:
        """Accept the bytes, since any bytes of the right length are a vector of ring elements."""


@dataclass(frozen=True)
class Script:
    """A party's part in a protection: first step, states that survive a crash, message that announces its vector.

    `proves` is what the transcript of such a party proves, for people.
    """

    begin: Callable[[Any, LocalParty], Transition]
    states: tuple[type, ...]
    announcement: type
    proves: str


@dataclass(frozen=True)
class Handover:
    """The rules by which clients send parts of uploads directly to helpers, past the server, for signed receipts.

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
class SumRelease:
    """The rules by which others check the files of an opened sum (`SumToRelease.release`), and open it from them.

    `evidence` are messages that the server has sent to each of them before. `check_lengths` takes (context, members,
    attachments) and raises ProtocolViolation before anything is downloaded. `open` takes (context, evidence by its
    class, members, files, a function that opens a signed frame of the round: its sender and its message of a class),
    and returns the sum as signed integers; it raises ProtocolViolation, blaming whose doing it is.
    `proves` is what the transcript of somebody who has checked them proves, for people.
    """

    evidence: tuple[type, ...]
    check_lengths: Callable[[Any, tuple[int, ...], Sequence[Attachment]], None]
    open: Callable[
        [Any, Mapping[type, Any], tuple[int, ...], Sequence[bytes], Callable[[bytes, type], tuple[int, Any]]], Integers
    ]
    proves: str


@dataclass(frozen=True)
class Acceptance:
    """The acceptance that the server signs (`Taken`): of a client's `message`, with the rules that it breaks by a lie.

    Each message of `lists` holds all senders of accepted ones in its `members`. No such sender is sent an abort of its
    own; `denies` says whether the reason of an abort for everyone says that the named client's message never came.
    """

    message: type
    lists: tuple[type, ...]
    denies: Callable[[str, str], bool] = lambda reason, name: False

    @property
    def broken(self) -> str:
        """A phrase that describes the violation, with the server as its subject."""
        return f"signed that it had accepted this client's {tag_of(self.message)}, and left it out"

    def is_broken_by(self, reason: str, name: str, *, is_personal: bool) -> bool:
        """Return whether an abort for this reason contradicts the acceptance of the named client's message."""
        return is_personal or self.denies(reason, name)


@dataclass(frozen=True)
class Protection:
    """A protection as plans and parties use it: its state machines, its properties and texts that describe it."""

    name: str
    """Name of the protection in plans and policies."""
    fewest: Callable[[Any], int]
    """The smallest number of clients whose sum can be opened. Raises BadInput where the plan's clients, colluders and
    dropouts do not go together."""
    explain: Callable[[Any], str]
    """Returns the reason for `fewest`, for people."""

    # The state machines.
    client: Script
    """The client's part."""
    begin_server: Callable[[Any], ServerState]
    """The server's first step."""
    server_steps: tuple[type, ...]
    """The messages that the server awaits, one for each of its steps, in order."""
    steps: tuple[type, ...]
    """Messages before which a client may vanish, first to last. A receipt stands for the upload's other parts, once the
    receiver of the first has given one."""
    reveals: type
    """The message from which on a party may know the sum, published or not."""
    revealed: str
    """The reason why a party may know it, for people."""

    # For people.
    proves: str
    """A text on what a server's transcript proves of the published sum, and whose word the rest needs."""
    trust: str
    """A text on the conditions under which a vector stays secret."""
    sum_trust: str
    """A text on the parties beside the clients that can add unseen to an opened sum that clients are shown, but for an
    exact census; empty where there are none."""
    visits: str
    """A text on when a client has to be online."""
    absence: str
    """A text on the consequences when a client leaves."""
    details: Callable[[Any], list[tuple[str, str]]] = lambda context: []
    """Further rows of a plan's description: (heading, text)."""

    # The helpers, where it has any, and the bytes that they get.
    helper_role: str = ""
    """The role of the protection's helpers in the roster; empty without helpers."""
    fewest_helpers: int = 0
    """The least number of helpers."""
    helper: Script | None = None
    """The helper's part."""
    deliveries: Callable[[Any], tuple[Delivery, ...]] = lambda context: (
        Delivery(SERVER_INDEX, 0, context.upload_bytes),
    )
    """Returns the parts of an upload and their receivers."""
    handover: Handover | None = None
    """The way in which bytes of an upload go to a helper, past the server."""

    acceptance: Acceptance | None = None
    """What the server signs for; None where clients' uploads go past it."""

    # Its facts.
    context: Callable[[SessionContext], SessionContext] = lambda context: context
    """Returns the session's facts with those that the protection itself derives from them."""
    most_dropouts: Callable[[int, int], int] = lambda clients, colluders: max(0, clients - colluders - 2)
    """Returns how many of so many clients may vanish, with so many colluders: by default all but two honest ones."""
    check_machine: Callable[[], None] = lambda: None
    """Raises BadInput, with the remedy, on a machine that lacks what a member's part needs."""
    hides_vectors: bool = True
    """Whether no party sees one client's vector alone: then all clients' shares of the noise protect each client."""
    release: SumRelease | None = None
    """The files from which others open the sum; None where the server gives them the sum alone, on its word."""
    speaks_once: bool = False
    """Whether a client may leave after its upload; then coming back for the outcome is optional."""
    encrypts: bool = False
    """Whether a key holder decrypts the exact sum, so that aggregators cannot add the noise."""
    confirmers: Callable[[Any], tuple[frozenset[int], int]] = lambda context: (
        frozenset(context.clients),
        quorum_of(context),
    )
    """Returns the parties whose acknowledgements confirm an outcome, and how many of them are enough.

    No two outcomes of a session can have enough: by default the least t of n clients with 2t > n + c, as any two such
    sets share an honest client."""
    keeps_noise: str = "no seeds of clients' noise are opened"
    """A text on why no surplus noise of clients is removed from a sum when fewer clients are missing than may be; empty
    where it can be (`secagg.privacy.noise_levels`)."""
    grows_with_clients: bool = False
    """Whether a client's work grows with the number of clients."""

    @property
    def helper_roles(self) -> dict[str, str]:
        """Names for the least number of helpers, mapped to their roles, for simulations and demos."""
        return {f"{self.helper_role}-{place}": self.helper_role for place in range(1, self.fewest_helpers + 1)}

    @property
    def leaving(self) -> tuple[str, ...]:
        """The names of the messages before which a client may drop out (`steps`)."""
        return tuple(tag_of(step) for step in self.steps)

    def usual_dropouts(self, clients: int, colluders: int) -> int:
        """Return the default number of tolerated drop-outs: ⌈clients/10⌉, or `most_dropouts` where that is less.

        Noise is calibrated for the clients that are left. To tolerate all that can vanish, nearly half, would cost √2
        in σ, and leave masks no neighbour graph.
        """
        return min(math.ceil(clients / 10), self.most_dropouts(clients, colluders))

    def receivers(self, context: SessionContext) -> frozenset[int]:
        """Return the indices of the parties that get a part of every client's upload."""
        return frozenset(part.receiver for part in self.deliveries(context))


OF_CLIENT = "what this client was told and what it gave, each frame signed; of the sum it has the server's word alone"
"""A text on what a client's transcript proves where its protection releases the sum alone."""
