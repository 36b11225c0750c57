"""Ways to hide the same integers behind one seam; each is a pair of sans-I/O state machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from secagg.errors import BadInput
from secagg.protection import none
from secagg.protection.masking.binding import thresholds_of
from secagg.protection.masking.client_opening import Endorsed, Opened, Uploaded
from secagg.protection.masking.client_upload import Advertised, Dealt, advertise
from secagg.protection.masking.server import AwaitingKeys
from secagg.protection.seam import LocalParty, ServerState, SessionContext, SumToOpen, Transition

__all__ = ["PROTECTIONS", "LocalParty", "Protection", "SessionContext", "SumToOpen", "protection_named"]


@dataclass(frozen=True)
class Protection:
    """How a client and the server begin, and the client states that survive a crash (by class name).

    `fewest` is the smallest number of clients whose sum can be opened (BadInput when the plan's clients, colluders
    and dropouts do not go together); `explain` says why, for people. `hides_vectors`: nobody sees one client's vector
    alone, so that the shares of noise of all that are in a sum protect each of them.
    """

    begin_client: Callable[[SessionContext, LocalParty], Transition]
    begin_server: Callable[[SessionContext], ServerState]
    client_states: tuple[type, ...]
    fewest: Callable[[SessionContext], int]
    explain: Callable[[SessionContext], str]
    hides_vectors: bool = True


PROTECTIONS = {
    "masked": Protection(
        advertise,
        AwaitingKeys,
        (Advertised, Dealt, Uploaded, Endorsed, Opened),
        lambda context: thresholds_of(context).survivors,
        lambda context: thresholds_of(context).explain(),
    ),
    "none": Protection(none.begin, none.AwaitingPlainUploads, (none.PlainUploaded,), none.fewest, none.explain, False),
}


def protection_named(name: str) -> Protection:
    """Look a protection up. Raises BadInput for an unknown name."""
    if name not in PROTECTIONS:
        raise BadInput(f"there is no protection {name!r}", remedy=f"choose one of {', '.join(PROTECTIONS)}")
    return PROTECTIONS[name]
