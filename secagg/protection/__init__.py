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
from secagg.protection.encryption.messages import EncryptedUpload, OpenedSum, SumRequest
from secagg.protection.encryption.server import AwaitingHolder
from secagg.protection.masking.binding import thresholds_of
from secagg.protection.masking.client_opening import Endorsed, Opened, Uploaded
from secagg.protection.masking.client_upload import Advertised, Dealt, advertise
from secagg.protection.masking.messages import Dealing, Endorsement, KeyAdvertisement, Opening
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
from secagg.protection.sharing.messages import ShareManifest, ShareReceipt, SumShare
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
    """How a party begins, the states that survive a crash (by class name), and its message that announces bytes.

    `proves` is what the transcript of such a party proves, for people.
    """

    begin: Callable[[Any, LocalParty], Transition]
    states: tuple[type, ...]
    announcement: type
    proves: str


@dataclass(frozen=True)
class Protection:
    """What a plan and its parties need to know of a protection.

    `fewest` is the smallest number of clients whose sum can be opened (BadInput when the plan's clients, colluders
    and dropouts do not go together); `explain` says why, for people. `begin_server` is the server's first step.
    `steps` are the messages that a client may vanish before, first to last; a receipt stands for the upload's other
    parts, once the receiver of the first has given one. `context` adds what the protection itself derives from the
    session's facts. Where members of the role `second_role` take part, at least `fewest_seconds`, `second` is what they
    do. `deliveries` says which bytes of an upload go to whom.
    `proves` is what a server's transcript proves of the published sum, and on whose word the rest stands, for people.
    From the first message of the class `reveals` on somebody may know the sum, published or not; `revealed` says why.
    `hides_vectors`: nobody sees one client's vector alone, so that the shares of noise of all that are in a sum protect
    each of them. `speaks_once`: a client uploads and may be gone; it comes back for the outcome or not.
    """

    fewest: Callable[[Any], int]
    explain: Callable[[Any], str]
    client: Script
    begin_server: Callable[[Any], ServerState]
    proves: str
    reveals: type
    revealed: str
    steps: tuple[type, ...]
    context: Callable[[SessionContext], SessionContext] = lambda context: context
    second_role: str = ""
    fewest_seconds: int = 0
    second: Script | None = None
    deliveries: Callable[[Any], tuple[Delivery, ...]] = lambda context: (
        Delivery(SERVER_INDEX, 0, context.upload_bytes),
    )
    hides_vectors: bool = True
    speaks_once: bool = False
    encrypts: bool = False

    @property
    def second_roles(self) -> dict[str, str]:
        """Name → role of as few second parties as there may be, for whoever makes them up."""
        return {f"{self.second_role}-{place}": self.second_role for place in range(1, self.fewest_seconds + 1)}

    @property
    def leaving(self) -> tuple[str, ...]:
        """The names of `steps`."""
        return tuple(step.__name__ for step in self.steps)


_OF_CLIENT = "what this client was told and what it gave, each frame signed; of the sum it has the server's word alone"

PROTECTIONS = {
    "masked": Protection(
        lambda context: thresholds_of(context).survivors,
        lambda context: thresholds_of(context).explain(),
        Script(advertise, (Advertised, Dealt, Uploaded, Endorsed, Opened), UploadHeader, _OF_CLIENT),
        AwaitingKeys,
        "the published sum is the sum of the accepted uploads",
        Opening,
        "the shares of the others were opened",
        (KeyAdvertisement, Dealing, UploadHeader, Endorsement, Opening),
    ),
    "shared": Protection(
        sharing.fewest,
        sharing.explain,
        Script(sharing_client.begin_client, sharing_client.CLIENT_STATES, ShareManifest, _OF_CLIENT),
        GatheringKeys,
        "the published sum follows from what the aggregators declared; that each declared the sum of the shares that "
        "it accepted stands on that aggregator's word",
        SumShare,
        "an aggregator had published its share of the sum",
        (ShareManifest, ShareReceipt),
        sharing.SharedContext.of,
        "aggregator",
        2,
        Script(
            begin_aggregator,
            AGGREGATOR_STATES,
            SumShare,
            "what this aggregator was told and what it gave, and that it keeps the shares that clients signed; that it "
            "added them up rightly stands on its word",
        ),
        sharing_client.deliveries,
        speaks_once=True,
    ),
    "encrypted": Protection(
        encryption.fewest,
        encryption.explain,
        Script(encryption_client.begin_client, encryption_client.CLIENT_STATES, EncryptedUpload, _OF_CLIENT),
        AwaitingHolder,
        "the published sum follows from what the key holder declared, who was shown the sum of the accepted uploads; "
        "that it opened this sum rightly stands on the key holder's word",
        SumRequest,
        "the key holder was shown the sum",
        (EncryptedUpload,),
        encryption.EncryptedContext.of,
        "key-holder",
        1,
        Script(
            begin_holder,
            HOLDER_STATES,
            OpenedSum,
            "what this key holder was told and what it gave; that it opened the sum rightly stands on its word",
        ),
        speaks_once=True,
        encrypts=True,
    ),
    "none": Protection(
        none.fewest,
        none.explain,
        Script(none.begin, (none.PlainUploaded,), UploadHeader, _OF_CLIENT),
        none.AwaitingPlainUploads,
        "the published sum is the sum of the accepted uploads, each of which the server saw in clear",
        UploadHeader,
        "vectors were uploaded in clear",
        (UploadHeader,),
        hides_vectors=False,
    ),
}


def protection_named(name: str) -> Protection:
    """Look a protection up. Raises BadInput for an unknown name."""
    if name not in PROTECTIONS:
        raise BadInput(f"there is no protection {name!r}", remedy=f"choose one of {', '.join(PROTECTIONS)}")
    return PROTECTIONS[name]
