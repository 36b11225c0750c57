"""What the transcripts of clients and aggregators show of uploads that went past the server, and of their receipts."""

from __future__ import annotations

from secagg.protection.sharing.binding import manifest_is_signed, receipt_is_signed
from secagg.protection.sharing.context import SharedContext
from secagg.protection.sharing.messages import ShareManifest, ShareReceipt


def kept(context: SharedContext, manifest: ShareManifest, sender: int, receiver: int) -> bytes | None:
    """SHA-256 of the aggregator's share, as its client signed it; None where it did not, for these aggregators."""
    if manifest.client != sender or not manifest_is_signed(context, manifest):
        return None
    return manifest.digests[context.number_of(receiver) - 1]


def is_receipt(context: SharedContext, receipt: ShareReceipt, sender: int, receiver: int) -> bool:
    """Whether the aggregator `sender` signed this receipt for the client `receiver`."""
    return (
        sender in context.seconds
        and receipt.aggregator == context.number_of(sender)
        and receipt.client == receiver
        and receipt_is_signed(context, receipt)
    )
