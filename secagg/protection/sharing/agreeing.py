"""The aggregators agree on one set: all commit, then all reveal, then the lists are intersected.

    Collecting → SetCommitted → SetRevealed → SetAgreed

Nobody can choose its list after seeing another's, and lists shown to two aggregators that differ are found out
because each shows the commitments that it has seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated

from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection.messages import Digest
from secagg.protection.seam import LocalParty
from secagg.protection.sharing import binding as bind
from secagg.protection.sharing.context import SharedContext, fewest
from secagg.protection.sharing.messages import (
    AcceptedUploads,
    AggregatorPledge,
    Conflicts,
    ManifestConflict,
    Manifests,
    Pledges,
    ShareManifest,
)
from secagg.protection.sharing.pledges import ACCEPTED, compare, gather
from secagg.protection.sharing.summing import ShareSum, SumCommitted
from secagg.wire import Length, message

Secret = Annotated[bytes, Length(32)]


@message("SetCommitted")
@dataclass(frozen=True)
class SetCommitted:
    """The accepted set is fixed; the others' commitments are awaited."""

    secret: Secret = field(repr=False)
    manifests: Manifests
    nonce: Digest = field(repr=False)

    def announcement(self, context: SharedContext, me: LocalParty) -> AggregatorPledge:
        """The commitment to the accepted set, for the other aggregators."""
        commitment = bind.set_commitment(context, me.member, self.nonce, self.manifests)
        return bind.sign_pledge(context, me.identity, me.member, ACCEPTED, commitment)

    def reveal(self, context: SharedContext, me: LocalParty, others: Iterable[AggregatorPledge]) -> SetRevealed:
        """Once everyone has committed, the list may be shown. Raises what `gather` raises."""
        pledges = gather(context, ACCEPTED, (self.announcement(context, me), *others))
        return SetRevealed(self.secret, self.manifests, self.nonce, pledges)


@message("SetRevealed")
@dataclass(frozen=True)
class SetRevealed:
    """The list is shown; the others' lists are awaited."""

    secret: Secret = field(repr=False)
    manifests: Manifests
    nonce: Digest
    pledges: Pledges

    def announcement(self, context: SharedContext, me: LocalParty) -> AcceptedUploads:
        """The list behind the commitment, for the other aggregators."""
        return AcceptedUploads(me.member, self.nonce, self.manifests, self.pledges)

    def agree(self, context: SharedContext, me: LocalParty, others: Iterable[AcceptedUploads]) -> SetAgreed:
        """Intersect all lists on equal manifests; a client with different ones is left out and stands in `conflicts`.

        Raises ProtocolViolation for a list that is not the one committed to, or holds an upload that its client did
        not sign; Equivocated when two aggregators were told different things; SessionAborted when a list is missing
        or fewer clients than the minimum cohort are left.
        """
        lists = {me.member: self.announcement(context, me)}
        for shown in others:
            check_list(context, self.pledges, shown)
            lists[shown.aggregator] = shown
        if absent := [context.names[number] for number in context.numbers if number not in lists]:
            raise SessionAborted(f"{', '.join(absent)} did not reveal what it accepted")
        manifests, conflicts = _intersect([lists[number].manifests for number in context.numbers])
        if len(manifests) < (needed := fewest(context.session)):
            raise SessionAborted(
                f"only {len(manifests)} clients' uploads reached every aggregator; at least {needed} are needed"
            )
        return SetAgreed(self.secret, manifests, conflicts)


def check_list(context: SharedContext, pledges: tuple[AggregatorPledge, ...], shown: AcceptedUploads) -> None:
    """Check a revealed list against the commitments in `pledges`. Raises ProtocolViolation (the one that shows it)."""
    number = shown.aggregator
    if number not in context.aggregators:
        raise ProtocolViolation(f"aggregator {number}", "is not an aggregator of this session")
    name = context.names[number]
    compare(context, ACCEPTED, pledges, shown.pledges, name)
    if bind.set_commitment(context, number, shown.nonce, shown.manifests) != pledges[number - 1].content:
        raise ProtocolViolation(name, "reveals another list than the one that it committed to")
    if any(later.client <= earlier.client for earlier, later in pairwise(shown.manifests)):
        raise ProtocolViolation(name, "reveals a list that is not in order")
    for manifest in shown.manifests:
        if not bind.manifest_is_signed(context, manifest):
            raise ProtocolViolation(name, f"lists an upload that client {manifest.client} did not sign")


def _intersect(
    lists: list[tuple[ShareManifest, ...]],
) -> tuple[tuple[ShareManifest, ...], tuple[ManifestConflict, ...]]:
    """What all lists hold alike, and one pair of manifests for each client that was listed with different ones."""
    agreed, conflicts = [], []
    by_client = [{manifest.client: manifest for manifest in each} for each in lists]
    for client in sorted({client for each in by_client for client in each}):
        found = [each[client] for each in by_client if client in each]
        other = next((manifest for manifest in found if manifest.digests != found[0].digests), None)
        if other is not None:
            conflicts.append(ManifestConflict(found[0], other))
        elif len(found) == len(lists):
            agreed.append(found[0])
    return tuple(agreed), tuple(conflicts)


@message("SetAgreed")
@dataclass(frozen=True)
class SetAgreed:
    """One set is agreed on, for ever; this aggregator's shares of exactly that set are to be added."""

    secret: Secret = field(repr=False)
    manifests: Manifests
    conflicts: Conflicts

    @property
    def members(self) -> tuple[int, ...]:
        """Whose uploads are summed."""
        return tuple(manifest.client for manifest in self.manifests)

    def summing(self, context: SharedContext, me: LocalParty) -> ShareSum:
        """Where this aggregator's shares of the agreed set are added, one at a time."""
        return ShareSum(context, me.member, self.secret, self.manifests)

    def commit(self, context: SharedContext, me: LocalParty, packed: bytes) -> SumCommitted:
        """Fix the sum share that `ShareSum.packed` gave, once and for ever. Keep `packed`, then the state.

        That these bytes are the sum of the shares is known to this aggregator alone: nobody can check it.
        """
        return SumCommitted.of(context, me, self.manifests, packed)
