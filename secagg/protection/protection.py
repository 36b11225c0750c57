"""A protection as a value: its state machines, and every fact that plans, parties and people need.

Whoever asks about a protection asks this value, never its name: a further one is a folder with such a value, and its
place in the registry (`secagg.protection.PROTECTIONS`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.protection.interface import Delivery, LocalParty, ServerState, SessionContext, Transition


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
    """The way clients hand parts of their uploads to second parties, past the server: a signed upload for a signed receipt.

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
    """What a plan and its parties need to know of a protection.

    `name` stands in plans and policies. `fewest` is the smallest number of clients whose sum can be opened (BadInput
    when the plan's clients, colluders and dropouts do not go together); `explain` says why, for people.
    `begin_server` is the server's first step. `steps` are the messages that a client may vanish before, first to last;
    a receipt stands for the upload's other parts, once the receiver of the first has given one. `context` adds what the
    protection itself derives from the session's facts. Where members of the role `second_role` take part, at least
    `fewest_seconds`, `second` is what they do. `deliveries` says which bytes of an upload go to whom, `handover` how
    they go to whoever is not the server.
    `proves` is what a server's transcript proves of the published sum, and on whose word the rest stands, for people.
    From the first message of the class `reveals` on somebody may know the sum, published or not; `revealed` says why.
    `hides_vectors`: nobody sees one client's vector alone, so that the shares of noise of all that are in a sum protect
    each of them. `speaks_once`: a client uploads and may be gone; it comes back for the outcome or not.
    `check_machine` raises BadInput, with what to install, on a machine that cannot do a member's part.

    For people who choose: `trust` is what must hold for a vector to stay secret, `sum_trust` who beside the clients
    can add to an opened sum unseen, so that a class gate rests on their word, `visits` when a client is there,
    `absence` what becomes of one that leaves; `details` are further rows about a plan. `grows_with_clients`: the work
    of a client does. `most_dropouts` bounds, for clients and colluders, how many may vanish: all but two honest
    ones, unless said otherwise.
    """

    name: str
    fewest: Callable[[Any], int]
    explain: Callable[[Any], str]
    client: Script
    begin_server: Callable[[Any], ServerState]
    proves: str
    reveals: type
    revealed: str
    steps: tuple[type, ...]
    trust: str
    sum_trust: str
    visits: str
    absence: str
    context: Callable[[SessionContext], SessionContext] = lambda context: context
    second_role: str = ""
    fewest_seconds: int = 0
    second: Script | None = None
    deliveries: Callable[[Any], tuple[Delivery, ...]] = lambda context: (
        Delivery(SERVER_INDEX, 0, context.upload_bytes),
    )
    handover: Handover | None = None
    details: Callable[[Any], list[tuple[str, str]]] = lambda context: []
    most_dropouts: Callable[[int, int], int] = lambda clients, colluders: max(0, clients - colluders - 2)
    check_machine: Callable[[], None] = lambda: None
    hides_vectors: bool = True
    speaks_once: bool = False
    encrypts: bool = False
    grows_with_clients: bool = False

    @property
    def second_roles(self) -> dict[str, str]:
        """Name → role of the fewest second parties, for simulations and demos."""
        return {f"{self.second_role}-{place}": self.second_role for place in range(1, self.fewest_seconds + 1)}

    @property
    def leaving(self) -> tuple[str, ...]:
        """The names of `steps`."""
        return tuple(step.__name__ for step in self.steps)

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
