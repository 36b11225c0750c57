"""Messages and states of the masked protocol. Bounds and meaning: protos/secagg/v1/."""

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
    """A client's session keys and the commitment to its self-mask seed, signed with its identity key."""

    member: Index
    channel_key: Key
    mask_key: Key
    seed_commitment: Digest
    nonce: Annotated[bytes, Length(32)]
    signature: Signature


@message("Directory")
@dataclass(frozen=True)
class Directory(Entries):
    """The set U1: the advertisements of every client that joined."""

    entries: Annotated[tuple[KeyAdvertisement, ...], Items(1, MAX_CLIENTS, ascending="member")]


@message("SealedShare")
@dataclass(frozen=True)
class SealedShare:
    """One holder's shares of one dealer's self-mask seed and mask key, sealed, with the dealer's signed hashes."""

    dealer: Index
    holder: Index
    seed_hash: Digest
    key_hash: Digest
    sealed: Annotated[bytes, Length(SEALED_BYTES)]
    signature: Signature


@message("Dealing")
@dataclass(frozen=True)
class Dealing:
    """All shares that one dealer hands out."""

    shares: Annotated[tuple[SealedShare, ...], Items(0, MAX_CLIENTS, ascending="holder")]
    own_seed_hash: Digest
    own_key_hash: Digest
    signature: Signature


@message("Inbox")
@dataclass(frozen=True)
class Inbox:
    """The set U2 of dealers, and the shares that were sealed to this client."""

    dealers: Members
    shares: Annotated[tuple[SealedShare, ...], Items(0, MAX_CLIENTS, ascending="dealer")]


@message("Survivors")
@dataclass(frozen=True)
class Survivors:
    """The set U3: the clients whose complete uploads the server holds."""

    members: Members


@message("Endorsement")
@dataclass(frozen=True)
class Endorsement:
    """One client's signature on the one U3 that it will ever help to open."""

    member: Index
    signature: Signature


@message("Quorum")
@dataclass(frozen=True)
class Quorum:
    """At least t endorsements of the same U3."""

    endorsements: Annotated[tuple[Endorsement, ...], Items(1, MAX_CLIENTS, ascending="member")]


@message("OpenedShare")
@dataclass(frozen=True)
class OpenedShare:
    """One share, opened to the server."""

    dealer: Index
    share: Share = field(repr=False)


@message("Opening")
@dataclass(frozen=True)
class Opening:
    """Shares of the survivors' self-mask seeds and of the dropped clients' mask keys; never both of one dealer."""

    seed_shares: Annotated[tuple[OpenedShare, ...], Items(0, MAX_CLIENTS, ascending="dealer")]
    key_shares: Annotated[tuple[OpenedShare, ...], Items(0, MAX_CLIENTS, ascending="dealer")]


@message("HeldShare")
@dataclass(frozen=True)
class HeldShare:
    """A client's shares of one dealer's secrets."""

    dealer: Index
    seed_share: Share = field(repr=False)
    key_share: Share = field(repr=False)


Held = Annotated[tuple[HeldShare, ...], Items(0, MAX_CLIENTS, ascending="dealer")]
