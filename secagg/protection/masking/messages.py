"""Messages of the masked protection; the bounds and meaning of fields are in protos/secagg/v1/."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from secagg.agreement.roster import MAX_CLIENTS
from secagg.crypto.sealing import TAG_BYTES
from secagg.crypto.sharing import SHARE_BYTES
from secagg.protection.messages import Digest, Entries, Index, Members, Signature
from secagg.wire import Items, Length, message

Key = Annotated[bytes, Length(32)]
Share = Annotated[bytes, Length(SHARE_BYTES)]
SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES


@message("KeyAdvertisement")
@dataclass(frozen=True)
class KeyAdvertisement:
    """A client's public session keys and the commitment to its self-mask seed, signed with its identity key."""

    member: Index
    channel_key: Key
    mask_key: Key
    seed_commitment: Digest
    nonce: Annotated[bytes, Length(32)]
    signature: Signature


@message("Directory")
@dataclass(frozen=True)
class Directory(Entries):
    """The directory of all clients that joined (the set U1): their signed session keys and commitments."""

    entries: Annotated[tuple[KeyAdvertisement, ...], Items(1, MAX_CLIENTS, ascending="member")]


@message("SealedShare")
@dataclass(frozen=True)
class SealedShare:
    """A dealer's shares of its self-mask seed and mask key, sealed to one holder, with signed hashes of both."""

    dealer: Index
    holder: Index
    seed_hash: Digest
    key_hash: Digest
    sealed: Annotated[bytes, Length(SEALED_BYTES)]
    signature: Signature


@message("Dealing")
@dataclass(frozen=True)
class Dealing:
    """A dealer's message to the server: its sealed shares for all other holders, and the signed hashes of its own."""

    shares: Annotated[tuple[SealedShare, ...], Items(0, MAX_CLIENTS, ascending="holder")]
    own_seed_hash: Digest
    own_key_hash: Digest
    signature: Signature


@message("Inbox")
@dataclass(frozen=True)
class Inbox:
    """The server's message to a client: who dealt shares (the set U2), and the shares sealed to this client."""

    dealers: Members
    shares: Annotated[tuple[SealedShare, ...], Items(0, MAX_CLIENTS, ascending="dealer")]


@message("Survivors")
@dataclass(frozen=True)
class Survivors:
    """The survivors (the set U3): the clients whose complete uploads the server holds."""

    members: Members


@message("Endorsement")
@dataclass(frozen=True)
class Endorsement:
    """A client's signature on the one survivor set that it will ever help to open."""

    member: Index
    signature: Signature


@message("Quorum")
@dataclass(frozen=True)
class Quorum:
    """Signatures on one survivor set by enough clients (the threshold t) for its sum to be opened."""

    endorsements: Annotated[tuple[Endorsement, ...], Items(1, MAX_CLIENTS, ascending="member")]


@message("OpenedShare")
@dataclass(frozen=True)
class OpenedShare:
    """A holder's share of one dealer's secret, revealed to the server."""

    dealer: Index
    share: Share = field(repr=False)


@message("Opening")
@dataclass(frozen=True)
class Opening:
    """A client's revealed shares: of survivors' self-mask seeds or drop-outs' mask keys, never both of one dealer."""

    seed_shares: Annotated[tuple[OpenedShare, ...], Items(0, MAX_CLIENTS, ascending="dealer")]
    key_shares: Annotated[tuple[OpenedShare, ...], Items(0, MAX_CLIENTS, ascending="dealer")]


@message("HeldShare")
@dataclass(frozen=True)
class HeldShare:
    """A client's shares of one dealer's self-mask seed and mask key."""

    dealer: Index
    seed_share: Share = field(repr=False)
    key_share: Share = field(repr=False)


Held = Annotated[tuple[HeldShare, ...], Items(0, MAX_CLIENTS, ascending="dealer")]
