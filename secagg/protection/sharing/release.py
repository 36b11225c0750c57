"""The release of a shared sum: the aggregators' sum shares, which clients add up, and the frames that announced them.

Each aggregator committed to its share before it saw another's, and signed all commitments with the share that it then
revealed. So with one honest aggregator nobody chose its share by another one, and the server names no other sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Integers, Residues
from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection.interface import VectorSum
from secagg.protection.messages import Attachment
from secagg.protection.proven_bits import NO_CENSUS, Blindings, check_census, is_census_of, split_proofs
from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.context import FIRST, SharedContext, sum_share_bytes
from secagg.protection.sharing.messages import AggregatorPledge, ReleasedShares, ShareManifest, SumShare
from secagg.wire import decode, encode


@dataclass(frozen=True)
class _SplitShare:
    """A sum share's vector in the ring, and in a census its part of the blindings' sum, and the clients' proofs."""

    vector: Residues = field(repr=False)
    blindings: Blindings = field(repr=False)
    proofs: Mapping[int, bytes]


def split_share(context: SharedContext, members: Sequence[int], aggregator: int, share: bytes) -> _SplitShare:
    """Return the parts of a sum share of the right length, by the aggregator with this index in the roster."""
    begun = context.packed_bytes + context.blinding_bytes
    shows = context.proves_bits and context.number_of(aggregator) == FIRST
    return _SplitShare(
        context.ring.unpack(share[: context.packed_bytes], context.length),
        Blindings(context, share[context.packed_bytes : begun]),
        split_proofs(context, members, share[begun:]) if shows else {},
    )


@dataclass(frozen=True)
class _AddedShares:
    """The sum of all sum shares; in a census also that of the blindings, and the proofs of all clients."""

    total: Integers = field(repr=False)
    blindings: Blindings = field(repr=False)
    proofs: Mapping[int, bytes]

    @classmethod
    def of(cls, context: SharedContext, members: Sequence[int], shares: Sequence[bytes]) -> _AddedShares:
        """Add up the aggregators' shares, given in the aggregators' order."""
        total, blindings = np.zeros(context.length, context.ring.word), Blindings(context)
        proofs: dict[int, bytes] = {}
        for aggregator, share in zip(context.helpers, shares, strict=True):
            each = split_share(context, members, aggregator, share)
            total += each.vector
            blindings.add(each.blindings)
            proofs |= each.proofs
        return cls(context.ring.decode(total), blindings, proofs)


def check_sum_share(
    context: SharedContext,
    aggregator: int,
    share: SumShare,
    agreed: bytes,
    pledges: tuple[AggregatorPledge, ...],
    culprit: int,
) -> None:
    """Check that an aggregator announced its share of the sum of the `agreed` set, as it committed to in `pledges`.

    Raises ProtocolViolation (`culprit`: who shows it), Equivocated where two commitments of one aggregator differ.
    """
    number = context.number_of(aggregator)
    if share.aggregator != number:
        raise ProtocolViolation(culprit, "shows a sum share that is not its own")
    bind.check_pledges(context, bind.SUM, share.pledges, culprit, of=context.numbers, known=pledges)
    if share.agreed != agreed:
        raise ProtocolViolation(culprit, "sums another set than the one that was agreed on")
    commitment = bind.sum_commitment(context, number, share.agreed, share.nonce, share.digest)
    if commitment != share.pledges[number - 1].content:
        raise ProtocolViolation(culprit, "reveals another sum share than the one that it committed to")


@dataclass(frozen=True)
class SharedSum(VectorSum):
    """The sum of the aggregators' shares over the agreed clients, whose signed `manifests` are in all their lists."""

    manifests: tuple[ShareManifest, ...]

    def release(
        self, context: SharedContext, read: Callable[[int], bytes], frames: Mapping[int, bytes]
    ) -> tuple[bytes, ...]:
        """Return the aggregators' shares, then the frames that announced them with the manifests of the clients.

        Raises SessionAborted for a census that is not the sum of the proven entries.
        """
        shares = tuple(map(read, self.vectors))
        if context.proves_bits:
            added = _AddedShares.of(context, self.members, shares)
            if not is_census_of(context, added.proofs.values(), added.total, added.blindings):
                raise SessionAborted(NO_CENSUS)
        return *shares, encode(ReleasedShares(self.manifests, tuple(frames[each] for each in self.vectors)))


def check_lengths(context: SharedContext, members: tuple[int, ...], named: Sequence[Attachment]) -> None:
    """Raise ProtocolViolation, blaming the server, unless a release has files of the lengths that these members give.

    To be called before anything is downloaded.
    """
    lengths, several = [each.length for each in named], len(context.helpers)
    shares = [sum_share_bytes(context, number, len(members)) for number in context.numbers]
    most = len(members) * (128 + 40 * several) + several * (1024 + 256 * several)  # manifests, and frames with pledges
    if lengths[:-1] != shares or lengths[-1] > most:
        raise ProtocolViolation(SERVER_INDEX, "the released sum has another length than the plan's")


def open_release(
    context: SharedContext,
    heard: Mapping[type, Any],
    members: tuple[int, ...],
    parts: Sequence[bytes],
    signed: Callable[[bytes, type], tuple[int, Any]],
) -> Integers:
    """Check that all aggregators announced these shares of the sum of `members`; return the sum as signed integers.

    `signed` opens a frame of the round: its sender and its message. Raises ProtocolViolation, blaming the server.
    """
    *shares, last = parts
    listed = decode(ReleasedShares, last)
    if tuple(each.client for each in listed.manifests) != members:
        raise ProtocolViolation(SERVER_INDEX, "releases the uploads of other clients than the outcome names")
    for manifest in listed.manifests:
        if not bind.manifest_is_signed(context, manifest):
            raise ProtocolViolation(SERVER_INDEX, f"releases an upload that client {manifest.client} did not sign")
    agreed, known = bind.set_digest(context, listed.manifests), tuple[AggregatorPledge, ...]()
    for aggregator, share, frame in zip(context.helpers, shares, listed.shares, strict=False):
        sender, announced = signed(frame, SumShare)
        if sender != aggregator or announced.digest != sha256(share).digest():
            raise ProtocolViolation(SERVER_INDEX, f"releases a sum share that {context.names[aggregator]} did not sign")
        check_sum_share(context, aggregator, announced, agreed, known, SERVER_INDEX)
        known = announced.pledges
    if len(listed.shares) != len(shares):
        raise ProtocolViolation(SERVER_INDEX, "does not release one sum share of every aggregator")
    added = _AddedShares.of(context, members, shares)
    if context.proves_bits:
        check_census(context, added.proofs, added.total, added.blindings, SERVER_INDEX)
    return added.total
