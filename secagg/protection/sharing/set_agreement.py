"""The aggregators agree on one set: all commit, then all reveal, then the lists are intersected.

    SetCommitted → SetRevealed → SetAgreed

Nobody can choose its list after seeing another's, and lists shown to two aggregators that differ are found out
because each signs the commitments that it has seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, ClassVar

from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Integers
from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection.interface import LocalParty, SessionContext, Transition
from secagg.protection.messages import Digest
from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.aggregation import ShareSum, SumCommitted
from secagg.protection.sharing.context import SharedContext, fewest
from secagg.protection.sharing.equivocation import ACCEPTED, check_pledges
from secagg.protection.sharing.messages import (
    AcceptedUploads,
    AggregatorPledge,
    ManifestConflict,
    Manifests,
    Pledges,
    SetLists,
    SetPledges,
    ShareManifest,
    SumPledges,
)
from secagg.wire import Length, message

Secret = Annotated[bytes, Length(32)]


@message("SetCommitted")
@dataclass(frozen=True)
class SetCommitted:
    """The accepted set is fixed; the others' commitments are awaited."""

    awaits: ClassVar[type] = SetPledges
    secret: Secret = field(repr=False)
    manifests: Manifests
    nonce: Digest = field(repr=False)

    def pledge(self, context: SharedContext, me: LocalParty) -> AggregatorPledge:
        """The commitment to the accepted set."""
        number = context.number_of(me.member)
        commitment = bind.set_commitment(context, number, self.nonce, self.manifests)
        return bind.sign_pledge(context, me.identity, number, ACCEPTED, commitment)

    def advance(self, context: SessionContext, me: LocalParty, incoming: SetPledges) -> Transition:
        """Once everyone has committed, the list may be shown. Raises what `check_pledges` raises."""
        context = SharedContext.of(context)
        own, pledges = self.pledge(context, me), incoming.pledges
        check_pledges(context, ACCEPTED, pledges, SERVER_INDEX, of=context.numbers, known=(own,))
        shown = AcceptedUploads(own.aggregator, self.nonce, self.manifests, pledges, bind.UNSIGNED)
        return Transition(SetRevealed(self.secret, pledges), SetLists((bind.sign_list(context, me.identity, shown),)))


@message("SetRevealed")
@dataclass(frozen=True)
class SetRevealed:
    """The list is shown; the others' lists are awaited. That list is bound by this aggregator's own pledge."""

    awaits: ClassVar[type] = SetLists
    secret: Secret = field(repr=False)
    pledges: Pledges

    def advance(self, context: SessionContext, me: LocalParty, incoming: SetLists) -> Transition:
        """Agree on what all lists hold. Raises what `check_lists` and `intersect` raise."""
        context = SharedContext.of(context)
        check_lists(context, self.pledges, incoming.lists, SERVER_INDEX, of=context.numbers)
        return Transition(SetAgreed(self.secret, *intersect(context, incoming.lists)))


@dataclass(frozen=True)
class SetAgreed:
    """One set is agreed on, for ever; this aggregator's shares of exactly that set are to be added.

    `conflicts` is the evidence against clients that were left out because they told aggregators different things.
    """

    opened_by: ClassVar[type | None] = None
    secret: bytes = field(repr=False)
    manifests: tuple[ShareManifest, ...]
    conflicts: tuple[ManifestConflict, ...]

    @property
    def members(self) -> tuple[int, ...]:
        """The clients whose uploads are summed."""
        return tuple(manifest.client for manifest in self.manifests)

    def summing(self, context: SharedContext, me: LocalParty) -> ShareSum:
        """Where this aggregator's shares of the agreed set are added, one at a time."""
        return ShareSum(context, context.number_of(me.member), self.secret, self.manifests)

    def work(
        self,
        context: SharedContext,
        me: LocalParty,
        kept: Callable[[int], bytes],
        noise: Callable[[], Integers] | None,
    ) -> Transition:
        """Add the kept shares of the agreed set and this aggregator's own noise, and commit to the sum share."""
        total = self.summing(context, me)
        for client in total.waiting:
            total.add(client, kept(client))
        return self.commit(context, me, total.packed(noise() if noise is not None else None))

    def commit(self, context: SharedContext, me: LocalParty, packed: bytes) -> Transition:
        """Fix the sum share that `ShareSum.packed` gave, once and for ever, and forget the session key.

        That these bytes are the sum of the shares is known to this aggregator alone: nobody can check it.
        """
        state = SumCommitted.of(context, me, self.manifests, packed)
        return Transition(state, SumPledges((state.pledge(context, me),)), packed)


def check_lists(
    context: SharedContext,
    known: tuple[AggregatorPledge, ...],
    lists: tuple[AcceptedUploads, ...],
    culprit: int,
    *,
    of: tuple[int, ...],
) -> None:
    """Check one revealed list of each aggregator in `of` against the commitments that are `known`.

    Raises ProtocolViolation (`culprit`: who shows them), Equivocated when two aggregators were told different things.
    """
    if tuple(shown.aggregator for shown in lists) != of:
        raise ProtocolViolation(culprit, f"does not show one list of {', '.join(map(context.name_of, of))}")
    for shown in lists:
        check_list(context, known, shown, culprit)


def check_list(
    context: SharedContext, known: tuple[AggregatorPledge, ...], shown: AcceptedUploads, culprit: int
) -> None:
    """Check one revealed list against its commitment, and its commitments against those `known`; as `check_lists`."""
    number, name = shown.aggregator, context.name_of(shown.aggregator)
    if not bind.list_is_signed(context, shown):
        raise ProtocolViolation(culprit, f"shows a list that {name} did not sign")
    check_pledges(context, ACCEPTED, shown.pledges, culprit, of=context.numbers, known=known)
    if bind.set_commitment(context, number, shown.nonce, shown.manifests) != shown.pledges[number - 1].content:
        raise ProtocolViolation(culprit, f"shows another list than the one that {name} committed to")
    if any(later.client <= earlier.client for earlier, later in pairwise(shown.manifests)):
        raise ProtocolViolation(culprit, f"shows a list of {name} that is not in order")
    for manifest in shown.manifests:
        if not bind.manifest_is_signed(context, manifest):
            raise ProtocolViolation(culprit, f"shows an upload that client {manifest.client} did not sign")


def intersect(
    context: SharedContext, lists: tuple[AcceptedUploads, ...]
) -> tuple[tuple[ShareManifest, ...], tuple[ManifestConflict, ...]]:
    """The manifests that all checked lists hold alike, and a pair of manifests for each client listed with two.

    Raises SessionAborted when fewer uploads are left than may be summed.
    """
    agreed, conflicts = [], []
    by_client = [{manifest.client: manifest for manifest in shown.manifests} for shown in lists]
    for client in sorted({client for each in by_client for client in each}):
        found = [each[client] for each in by_client if client in each]
        other = next((manifest for manifest in found if manifest.digests != found[0].digests), None)
        if other is not None:
            conflicts.append(ManifestConflict(found[0], other))
        elif len(found) == len(lists):
            agreed.append(found[0])
    if len(agreed) < (needed := fewest(context)):
        raise SessionAborted(
            f"only {len(agreed)} clients' uploads reached every aggregator; at least {needed} are needed"
        )
    return tuple(agreed), tuple(conflicts)
