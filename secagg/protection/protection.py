"""A protection as a value: its state machines, and every fact that plans, parties and people need.

All other code asks this value and never the protection's name. What a new one needs is listed in CONTRIBUTING.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.protection.interface import Delivery, LocalParty, ServerState, SessionContext, Transition
from secagg.wire import tag_of


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
    """The way clients hand parts of their uploads to second parties, past the server, against signed receipts.

    Once a second party has said `closed_by` to the server, it takes no further uploads.
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
    second_role: str = ""
    """The role of its helpers in the roster; empty without any."""
    fewest_seconds: int = 0
    """How many helpers it needs at least."""
    second: Script | None = None
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
    def second_roles(self) -> dict[str, str]:
        """Name → role of the fewest second parties, for simulations and demos."""
        return {f"{self.second_role}-{place}": self.second_role for place in range(1, self.fewest_seconds + 1)}

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
