"""Ways to hide the same integers behind one seam, as sans-I/O state machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from secagg.errors import BadInput
from secagg.protection import none
from secagg.protection.encryption import binding as encryption
from secagg.protection.encryption import client as encryption_client
from secagg.protection.encryption.key_holder import HOLDER_STATES, begin_holder
from secagg.protection.encryption.messages import EncryptedUpload, OpenedSum
from secagg.protection.encryption.server import AwaitingHolder
from secagg.protection.masking.binding import thresholds_of
from secagg.protection.masking.client_opening import Endorsed, Opened, Uploaded
from secagg.protection.masking.client_upload import Advertised, Dealt, advertise
from secagg.protection.masking.server import AwaitingKeys
from secagg.protection.messages import UploadHeader
from secagg.protection.seam import (
    Delivery,
    LocalParty,
    ServerState,
    SessionContext,
    SumToDeclare,
    SumToOpen,
    Transition,
)
from secagg.protection.sharing import client as sharing_client
from secagg.protection.sharing import context as sharing
from secagg.protection.sharing.collecting import AGGREGATOR_STATES, begin_aggregator
from secagg.protection.sharing.coordinating import GatheringKeys
from secagg.protection.sharing.messages import ShareManifest, SumShare
from secagg.roster import SERVER_INDEX

__all__ = [
    "PROTECTIONS",
    "Delivery",
    "LocalParty",
    "Protection",
    "Script",
    "SessionContext",
    "SumToDeclare",
    "SumToOpen",
    "protection_named",
]


@dataclass(frozen=True)
class Script:
    """How a party begins, the states that survive a crash (by class name), and its message that announces bytes."""

    begin: Callable[[Any, LocalParty], Transition]
    states: tuple[type, ...]
    announcement: type


@dataclass(frozen=True)
class Protection:
    """What a plan and its parties need to know of a protection.

    `fewest` is the smallest number of clients whose sum can be opened (BadInput when the plan's clients, colluders
    and dropouts do not go together); `explain` says why, for people. `begin_server` is the server's first step.
    `context` adds what the protection itself derives from the session's facts. Where members of the role `second_role`
    take part, `second` is what they do. `deliveries` says which bytes of an upload go to whom.
    `hides_vectors`: nobody sees one client's vector alone, so that the shares of noise of all that are in a sum protect
    each of them. `speaks_once`: a client uploads and may be gone; it comes back for the outcome or not.
    """

    fewest: Callable[[Any], int]
    explain: Callable[[Any], str]
    client: Script
    begin_server: Callable[[Any], ServerState]
    context: Callable[[SessionContext], SessionContext] = lambda context: context
    second_role: str = ""
    second: Script | None = None
    deliveries: Callable[[Any], tuple[Delivery, ...]] = lambda context: (
        Delivery(SERVER_INDEX, 0, context.upload_bytes),
    )
    hides_vectors: bool = True
    speaks_once: bool = False
    encrypts: bool = False


PROTECTIONS = {
    "masked": Protection(
        lambda context: thresholds_of(context).survivors,
        lambda context: thresholds_of(context).explain(),
        Script(advertise, (Advertised, Dealt, Uploaded, Endorsed, Opened), UploadHeader),
        AwaitingKeys,
    ),
    "shared": Protection(
        sharing.fewest,
        sharing.explain,
        Script(sharing_client.begin_client, sharing_client.CLIENT_STATES, ShareManifest),
        GatheringKeys,
        sharing.SharedContext.of,
        "aggregator",
        Script(begin_aggregator, AGGREGATOR_STATES, SumShare),
        sharing_client.deliveries,
        speaks_once=True,
    ),
    "encrypted": Protection(
        encryption.fewest,
        encryption.explain,
        Script(encryption_client.begin_client, encryption_client.CLIENT_STATES, EncryptedUpload),
        AwaitingHolder,
        encryption.EncryptedContext.of,
        "key-holder",
        Script(begin_holder, HOLDER_STATES, OpenedSum),
        speaks_once=True,
        encrypts=True,
    ),
    "none": Protection(
        none.fewest,
        none.explain,
        Script(none.begin, (none.PlainUploaded,), UploadHeader),
        none.AwaitingPlainUploads,
        hides_vectors=False,
    ),
}


def protection_named(name: str) -> Protection:
    """Look a protection up. Raises BadInput for an unknown name."""
    if name not in PROTECTIONS:
        raise BadInput(f"there is no protection {name!r}", remedy=f"choose one of {', '.join(PROTECTIONS)}")
    return PROTECTIONS[name]
