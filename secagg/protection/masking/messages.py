"""Messages of the masked protection; the bounds and meaning of fields are in protos/secagg/v1/."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from secagg.agreement.plan import MOST_NOISE_LEVELS
from secagg.agreement.roster import MAX_CLIENTS
from secagg.crypto.envelopes import ENVELOPE_BYTES, PUBLIC_KEY_BYTES
from secagg.crypto.sharing import SHARE_BYTES
from secagg.protection.messages import Digest, Entries, Index, Members, Signature
from secagg.wire import Items, Length, message

Key = Annotated[bytes, Length(32)]
Share = Annotated[bytes, Length(SHARE_BYTES)]
NoiseShares = Annotated[tuple[bytes, ...], Items(0, MOST_NOISE_LEVELS, each=Length(SHARE_BYTES))]
Digests = Annotated[tuple[bytes, ...], Items(0, MOST_NOISE_LEVELS, each=Length(32))]
SEALED_BYTES = 2 * SHARE_BYTES + ENVELOPE_BYTES
"""Size of an envelope with the shares of a seed and a mask key; each noise seed's share adds `SHARE_BYTES`."""
TAGS = 10
"""Number of tags of one upload (`secagg.protection.masking.tags`)."""
MAX_HEADER_BYTES = 1 << 14
"""The longest frame that announces an upload, with complaints about all other clients."""


@message("KeyAdvertisement")
@dataclass(frozen=True)
class KeyAdvertisement:
    """A client's public session keys and the commitments to its seeds, signed with its identity key.

    One commitment is to the self-mask seed, and one to the seed of each removable part of its noise.
    """

    member: Index
    channel_key: Annotated[bytes, Length(PUBLIC_KEY_BYTES)]
    mask_key: Key
    seed_commitment: Digest
    nonce: Annotated[bytes, Length(32)]
    signature: Signature
    noise_commitments: Digests = ()


@message("Directory")
@dataclass(frozen=True)
class Directory(Entries):
    """The directory of all clients that joined (the set U1): their signed session keys and commitments."""

    entries: Annotated[tuple[KeyAdvertisement, ...], Items(1, MAX_CLIENTS, ascending="member")]


@message("SealedShare")
@dataclass(frozen=True, slots=True)
class SealedShare:
    """A dealer's shares of its self-mask seed, mask key and noise seeds, sealed to one holder, with signed hashes."""

    dealer: Index
    holder: Index
    seed_hash: Digest
    key_hash: Digest
    sealed: Annotated[bytes, Length(SEALED_BYTES, SEALED_BYTES + MOST_NOISE_LEVELS * SHARE_BYTES)]
    signature: Signature
    noise_hashes: Digests = ()


@message("Dealing")
@dataclass(frozen=True)
class Dealing:
    """A dealer's message to the server: its sealed shares for all other holders, and the signed hashes of its own."""

    shares: Annotated[tuple[SealedShare, ...], Items(0, MAX_CLIENTS, ascending="holder")]
    own_seed_hash: Digest
    own_key_hash: Digest
    signature: Signature
    own_noise_hashes: Digests = ()


@message("Inbox")
@dataclass(frozen=True)
class Inbox:
    """The server's message to a client: who dealt shares (the set U2), and the shares sealed to this client."""

    dealers: Members
    shares: Annotated[tuple[SealedShare, ...], Items(0, MAX_CLIENTS, ascending="dealer")]


@message("Survivors")
@dataclass(frozen=True)
class Survivors:
    """The survivors (the set U3): the clients whose complete uploads the server holds, and SHA-256 of these' sum."""

    members: Members
    total: Digest


@message("Endorsement")
@dataclass(frozen=True)
class Endorsement:
    """A client's signature on the one survivor set, and sum of masked uploads, that it will ever help to open."""

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


@message("UploadTags")
@dataclass(frozen=True)
class UploadTags:
    """Ten random linear combinations of a client's masked upload, signed with all that they depend on."""

    member: Index
    tags: Annotated[bytes, Length(8 * TAGS)]
    signature: Signature


@message("Opening")
@dataclass(frozen=True)
class Opening:
    """A client's revealed shares: of survivors' self-mask seeds or drop-outs' mask keys, never both of one dealer.

    Of survivors' noise seeds too, where noise is removed.
    """

    seed_shares: Annotated[tuple[OpenedShare, ...], Items(0, MAX_CLIENTS, ascending="dealer")]
    key_shares: Annotated[tuple[OpenedShare, ...], Items(0, MAX_CLIENTS, ascending="dealer")]
    tags: UploadTags
    noise_shares: Annotated[tuple[OpenedShare, ...], Items(0, MAX_CLIENTS, ascending="dealer")] = ()


@message("OpenedSecret")
@dataclass(frozen=True)
class OpenedSecret:
    """A survivor's self-mask seed or noise seed, or the private mask key of a client that dropped out."""

    member: Index
    secret: Key = field(repr=False)


@message("Unmasking")
@dataclass(frozen=True)
class Unmasking:
    """The opened secrets and signed tags with which everyone opens the sum of the masked uploads, and checks it.

    `uploads` are the signed frames that announced the uploads shown whole: those of survivors without valid tags.
    `noise_seeds` are the survivors', where part of their noise is removed.
    """

    secrets: Annotated[tuple[OpenedSecret, ...], Items(1, MAX_CLIENTS, ascending="member")]
    tags: Annotated[tuple[UploadTags, ...], Items(0, MAX_CLIENTS, ascending="member")]
    uploads: Annotated[tuple[bytes, ...], Items(0, MAX_CLIENTS, each=Length(1, MAX_HEADER_BYTES))]
    noise_seeds: Annotated[tuple[OpenedSecret, ...], Items(0, MAX_CLIENTS, ascending="member")] = ()


@message("HeldShare")
@dataclass(frozen=True)
class HeldShare:
    """A client's shares of one dealer's self-mask seed, mask key and noise seeds."""

    dealer: Index
    seed_share: Share = field(repr=False)
    key_share: Share = field(repr=False)
    noise_shares: NoiseShares = field(repr=False, default=())


Held = Annotated[tuple[HeldShare, ...], Items(0, MAX_CLIENTS, ascending="dealer")]
