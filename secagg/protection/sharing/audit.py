"""What a client can prove from receipts and public lists: who signed for its upload and left it out.

Nobody can prove that a sum share is wrong or lacks its noise when its aggregator committed to it as it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from secagg.protection.sharing import binding as bind
from secagg.protection.sharing.context import SharedContext
from secagg.protection.sharing.messages import AcceptedUploads, ShareReceipt
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
