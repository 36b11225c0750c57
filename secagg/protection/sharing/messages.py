"""Messages of the shared protection; the bounds and meaning of fields are in protos/secagg/v1/sharing.proto."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from secagg.agreement.roster import MAX_AGGREGATORS, MAX_CLIENTS
from secagg.crypto.envelopes import PUBLIC_KEY_BYTES
from secagg.protection.messages import MAX_VECTOR_BYTES, Announcement, Digest, Index, Signature
from secagg.wire import Items, Length, Range, message

FEWEST_AGGREGATORS = 2
Number = Annotated[int, Range(1, MAX_AGGREGATORS)]
Digests = Annotated[tuple[bytes, ...], Items(FEWEST_AGGREGATORS, MAX_AGGREGATORS, each=Length(32))]


@message("AggregatorPledge")
@dataclass(frozen=True)
class AggregatorPledge:
    """An aggregator's signed statement, only one for each step ("key", "accepted", "sum") of a session."""

    aggregator: Number
    step: Annotated[str, Length(3, 8)]
    content: Annotated[bytes, Length(32, PUBLIC_KEY_BYTES)]
    signature: Signature


@message("ShareManifest")
@dataclass(frozen=True)
class ShareManifest:
    """A client's signed list of the digests of its sealed shares, one for each aggregator."""

    client: Index
    digests: Digests
    signature: Signature


@message("ShareReceipt")
@dataclass(frozen=True)
class ShareReceipt:
    """An aggregator's signed statement that it stored a client's upload and will list it as accepted."""

    aggregator: Number
    client: Index
    manifest: Digest
    signature: Signature


Manifests = Annotated[tuple[ShareManifest, ...], Items(0, MAX_CLIENTS, ascending="client")]
Pledges = Annotated[tuple[AggregatorPledge, ...], Items(FEWEST_AGGREGATORS, MAX_AGGREGATORS, ascending="aggregator")]
Said = Annotated[tuple[AggregatorPledge, ...], Items(1, MAX_AGGREGATORS, ascending="aggregator")]
"""Pledges in a message: from an aggregator its own one, from the server all of them."""


@message("SessionKeys")
@dataclass(frozen=True)
class SessionKeys:
    """The aggregators' signed session keys."""

    pledges: Said


@message("SetPledges")
@dataclass(frozen=True)
class SetPledges:
    """The aggregators' signed commitments to the uploads that they accepted."""

    pledges: Said


@message("SumPledges")
@dataclass(frozen=True)
class SumPledges:
    """The aggregators' signed commitments to their shares of the sum."""

    pledges: Said


@message("AcceptedUploads")
@dataclass(frozen=True)
class AcceptedUploads:
    """An aggregator's list of accepted uploads, as it committed to it, signed with all commitments that it has seen."""

    aggregator: Number
    nonce: Digest
    manifests: Manifests
    pledges: Pledges
    signature: Signature


@message("SetLists")
@dataclass(frozen=True)
class SetLists:
    """The aggregators' lists of accepted uploads: one when an aggregator sends its own, all when the server does."""

    lists: Annotated[tuple[AcceptedUploads, ...], Items(1, MAX_AGGREGATORS, ascending="aggregator")]


@message("SumShare")
@dataclass(frozen=True)
class SumShare(Announcement):
    """The announcement of an aggregator's share of the sum, with all commitments that the aggregator has seen."""

    aggregator: Number
    agreed: Digest
    nonce: Digest
    length: Annotated[int, Range(1, MAX_VECTOR_BYTES)]
    digest: Digest
    pledges: Pledges


@message("ReleasedShares")
@dataclass(frozen=True)
class ReleasedShares:
    """The manifests of the clients in a sum, and the frames in which all aggregators announced their shares of it."""

    manifests: Manifests
    shares: Annotated[tuple[bytes, ...], Items(FEWEST_AGGREGATORS, MAX_AGGREGATORS, each=Length(1, 1 << 13))]


@message("ManifestConflict")
@dataclass(frozen=True)
class ManifestConflict:
    """Evidence against a client: two different lists of share digests, both signed by it."""

    one: ShareManifest
    other: ShareManifest


@message("PledgeConflict")
@dataclass(frozen=True)
class PledgeConflict:
    """Evidence against an aggregator: two different statements for one step, both signed by it."""

    one: AggregatorPledge
    other: AggregatorPledge
