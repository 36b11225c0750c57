"""Ways to hide the same integers behind one seam, as sans-I/O state machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from secagg.errors import BadInput
from secagg.protection import none
from secagg.protection.encryption import binding as encryption
from secagg.protection.encryption.parameters import HeParameters, for_capacity
from secagg.protection.masking.binding import thresholds_of
from secagg.protection.masking.client_opening import Endorsed, Opened, Uploaded
from secagg.protection.masking.client_upload import Advertised, Dealt, advertise
from secagg.protection.masking.server import AwaitingKeys
from secagg.protection.seam import LocalParty, ServerState, SessionContext, SumToOpen, Transition
from secagg.protection.sharing import context as sharing

__all__ = ["PROTECTIONS", "LocalParty", "OneServer", "Protection", "SessionContext", "SumToOpen", "protection_named"]


@dataclass(frozen=True)
class OneServer:
    """How clients and a single server begin, and the client states that survive a crash (by class name)."""

    begin_client: Callable[[SessionContext, LocalParty], Transition]
    begin_server: Callable[[SessionContext], ServerState]
    client_states: tuple[type, ...]


@dataclass(frozen=True)
class Protection:
    """What a plan needs to know of a protection; `one_server` is what its processes run, None where they cannot yet.

    `fewest` is the smallest number of clients whose sum can be opened (BadInput when the plan's clients, colluders
    and dropouts do not go together); `explain` says why, for people. `openers` open the sum together: of two, neither
    alone learns anything, and each adds all the noise that a plan asks of an aggregator. `hides_vectors`: nobody sees
    one client's vector alone, so that the shares of noise of all that are in a sum protect each of them.
    `ciphertexts` gives the parameters for a capacity and a number of clients, None where vectors are not encrypted.
    """

    fewest: Callable[[SessionContext], int]
    explain: Callable[[SessionContext], str]
    openers: tuple[str, ...] = ("the server",)
    hides_vectors: bool = True
    ciphertexts: Callable[[int, int], HeParameters] | None = None
    one_server: OneServer | None = None

    def upload_bytes(self, context: SessionContext, largest: int) -> int:
        """Bytes of one protected vector, for a sum with entries up to `largest`. Raises CapacityExceeded."""
        if self.ciphertexts is None:
            return context.packed_bytes
        return self.ciphertexts(largest, len(context.clients)).packed_bytes(context.length)

    def served(self) -> OneServer:
        """What the processes of a federation run. Raises BadInput for a protection that only `simulate` has."""
        if self.one_server is None:
            raise BadInput(
                f"a sum that {' and '.join(self.openers)} open together is served in a later version",
                remedy="try it with simulate, or choose the protection masked",
            )
        return self.one_server

    def begin_client(self, context: SessionContext, me: LocalParty) -> Transition:
        """A client's first step. Raises BadInput like `served`."""
        return self.served().begin_client(context, me)

    def begin_server(self, context: SessionContext) -> ServerState:
        """The server's first step. Raises BadInput like `served`."""
        return self.served().begin_server(context)

    @property
    def client_states(self) -> tuple[type, ...]:
        """The client states that survive a crash. Raises BadInput like `served`."""
        return self.served().client_states


PROTECTIONS = {
    "masked": Protection(
        lambda context: thresholds_of(context).survivors,
        lambda context: thresholds_of(context).explain(),
        one_server=OneServer(advertise, AwaitingKeys, (Advertised, Dealt, Uploaded, Endorsed, Opened)),
    ),
    "none": Protection(
        none.fewest,
        none.explain,
        hides_vectors=False,
        one_server=OneServer(none.begin, none.AwaitingPlainUploads, (none.PlainUploaded,)),
    ),
    "shared": Protection(sharing.fewest, sharing.explain, ("the first aggregator", "the second aggregator")),
    "encrypted": Protection(
        encryption.fewest, encryption.explain, ("the server", "the key holder"), ciphertexts=for_capacity
    ),
}


def protection_named(name: str) -> Protection:
    """Look a protection up. Raises BadInput for an unknown name."""
    if name not in PROTECTIONS:
        raise BadInput(f"there is no protection {name!r}", remedy=f"choose one of {', '.join(PROTECTIONS)}")
    return PROTECTIONS[name]
