"""What anyone can prove from the public messages of a shared session: a client, an aggregator, an auditor.

Nobody can prove that a sum share is wrong or lacks its noise when its aggregator committed to it as it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from secagg.protection.sharing import binding as bind
from secagg.protection.sharing.context import SharedContext
from secagg.protection.sharing.messages import (
    AcceptedUploads,
    AggregatorPledge,
    ManifestConflict,
    PledgeConflict,
    ShareReceipt,
)
from secagg.protection.sharing.set_agreement import check_list


def missing(
    context: SharedContext, receipts: Iterable[ShareReceipt], lists: Iterable[AcceptedUploads]
) -> tuple[ShareReceipt, ...]:
    """The receipts whose own aggregator left the acknowledged upload out of the list that it committed to.

    A receipt with that list, which holds the aggregator's signed commitment, is proof. Receipts that are not signed,
    or whose aggregator's list is not given, prove nothing and are passed over. Raises ProtocolViolation for a list
    that is none.
    """
    listed: dict[int, set[tuple[int, bytes]]] = {}
    for shown in lists:
        check_list(context, (), shown, context.index_of(shown.aggregator))
        uploads = {(manifest.client, bind.manifest_digest(context, manifest)) for manifest in shown.manifests}
        listed[shown.aggregator] = uploads
    return tuple(
        receipt
        for receipt in receipts
        if bind.receipt_is_signed(context, receipt)
        and receipt.aggregator in listed
        and (receipt.client, receipt.manifest) not in listed[receipt.aggregator]
    )


def contradictions(context: SharedContext, pledges: Iterable[AggregatorPledge]) -> tuple[PledgeConflict, ...]:
    """Pairs among pledges, whoever saw them, in which one aggregator signed two different things for one step."""
    first: dict[tuple[int, str], AggregatorPledge] = {}
    found: list[PledgeConflict] = []
    for pledge in pledges:
        if bind.pledge_is_signed(context, pledge):
            known = first.setdefault((pledge.aggregator, pledge.step), pledge)
            if known.content != pledge.content:
                found.append(PledgeConflict(known, pledge))
    return tuple(found)


def is_proof(context: SharedContext, evidence: PledgeConflict | ManifestConflict) -> bool:
    """Whether the evidence holds: both halves are signed by the same party, for the same step, and differ."""
    one, other = evidence.one, evidence.other
    if isinstance(one, AggregatorPledge) and isinstance(other, AggregatorPledge):
        return len(contradictions(context, (one, other))) == 1
    if isinstance(one, AggregatorPledge) or isinstance(other, AggregatorPledge):
        return False
    signed = bind.manifest_is_signed(context, one) and bind.manifest_is_signed(context, other)
    return signed and one.client == other.client and one.digests != other.digests
