"""Functions of the shared protection that hash, sign, check signatures, derive keys and seal shares.

One function for each labelled string.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from secagg.crypto.agreement import derive
from secagg.crypto.envelopes import Address, EnvelopeKey, is_envelope_key
from secagg.crypto.labels import digest, number
from secagg.crypto.sealing import SealBroken
from secagg.crypto.signatures import SigningKey, is_signed
from secagg.errors import ProtocolViolation
from secagg.protection.sharing.context import FIRST, SEED_BYTES, SharedContext, sealed_bytes
from secagg.protection.sharing.messages import (
    AcceptedUploads,
    AggregatorPledge,
    PledgeConflict,
    ShareManifest,
    ShareReceipt,
)

UNSIGNED = bytes(64)


def stream_key(context: SharedContext, seed: bytes, client: int, aggregator: int) -> bytes:
    """Derive the key of the keystream that a share's 32-byte seed expands to."""
    return derive(seed, context.binding, "shared stream", number(client), number(aggregator))


def share_address(context: SharedContext, client: int, aggregator: int) -> Address:
    """Return what the envelope of a share is bound to: session, step, client and aggregator (by its roster index)."""
    return Address(context.binding, "ShareManifest", client, context.index_of(aggregator))


def _pledge_parts(context: SharedContext, pledge: AggregatorPledge) -> tuple[bytes, ...]:
    return (context.binding, number(pledge.aggregator), pledge.step.encode(), pledge.content)


def sign_pledge(
    context: SharedContext, identity: SigningKey, aggregator: int, step: str, content: bytes
) -> AggregatorPledge:
    """Return an aggregator's signed statement (pledge) for one step; equal content gives equal bytes (Ed25519)."""
    pledge = AggregatorPledge(aggregator, step, content, UNSIGNED)
    return replace(pledge, signature=identity.sign("shared pledge", *_pledge_parts(context, pledge)))


def pledge_is_signed(context: SharedContext, pledge: AggregatorPledge) -> bool:
    """Return whether the aggregator that the pledge (a signed statement) names signed it in this session."""
    identity = context.aggregators.get(pledge.aggregator, b"")
    return is_signed(identity, pledge.signature, "shared pledge", *_pledge_parts(context, pledge))


def _manifest_parts(context: SharedContext, manifest: ShareManifest) -> tuple[bytes, ...]:
    return (context.binding, number(manifest.client), *manifest.digests)


def manifest_digest(context: SharedContext, manifest: ShareManifest) -> bytes:
    """Return the digest of a client's list of share digests (manifest), whatever its signature."""
    return digest("shared manifest", *_manifest_parts(context, manifest))


def sign_manifest(context: SharedContext, identity: SigningKey, client: int, digests: Iterable[bytes]) -> ShareManifest:
    """Return the client's signed manifest of its sealed shares' digests, in the order of the aggregators."""
    manifest = ShareManifest(client, tuple(digests), UNSIGNED)
    return replace(manifest, signature=identity.sign("shared manifest", *_manifest_parts(context, manifest)))


def manifest_is_signed(context: SharedContext, manifest: ShareManifest) -> bool:
    """Return whether a client signed the list of its shares' digests, one for each aggregator, in this session."""
    identity = context.identities.get(manifest.client, b"")
    complete = len(manifest.digests) == len(context.aggregators)
    return complete and is_signed(identity, manifest.signature, "shared manifest", *_manifest_parts(context, manifest))


def _receipt_parts(context: SharedContext, receipt: ShareReceipt) -> tuple[bytes, ...]:
    return (context.binding, number(receipt.aggregator), number(receipt.client), receipt.manifest)


def sign_receipt(
    context: SharedContext, identity: SigningKey, aggregator: int, manifest: ShareManifest
) -> ShareReceipt:
    """Return an aggregator's signed receipt for one client's upload."""
    receipt = ShareReceipt(aggregator, manifest.client, manifest_digest(context, manifest), UNSIGNED)
    return replace(receipt, signature=identity.sign("shared receipt", *_receipt_parts(context, receipt)))


def receipt_is_signed(context: SharedContext, receipt: ShareReceipt) -> bool:
    """Return whether the aggregator that the receipt names signed it in this session."""
    identity = context.aggregators.get(receipt.aggregator, b"")
    return is_signed(identity, receipt.signature, "shared receipt", *_receipt_parts(context, receipt))


def set_digest(context: SharedContext, manifests: Iterable[ShareManifest]) -> bytes:
    """Return the digest of a set of uploads, given in the order of the clients."""
    entries = (number(manifest.client) + manifest_digest(context, manifest) for manifest in manifests)
    return digest("shared set", context.binding, *entries)


def set_commitment(context: SharedContext, aggregator: int, nonce: bytes, manifests: Iterable[ShareManifest]) -> bytes:
    """Return an aggregator's commitment to the uploads that it accepted; the uniform nonce hides them."""
    return digest("shared accepted", context.binding, number(aggregator), nonce, set_digest(context, manifests))


def _list_parts(context: SharedContext, shown: AcceptedUploads) -> tuple[bytes, ...]:
    return (context.binding, number(shown.aggregator), *(pledge.content for pledge in shown.pledges))


def sign_list(context: SharedContext, identity: SigningKey, shown: AcceptedUploads) -> AcceptedUploads:
    """Return an aggregator's list of uploads with its signature over all commitments that it has seen.

    The list itself is bound by the aggregator's own commitment among them.
    """
    return replace(shown, signature=identity.sign("shared list", *_list_parts(context, shown)))


def list_is_signed(context: SharedContext, shown: AcceptedUploads) -> bool:
    """Return whether the aggregator that the list of uploads names signed the commitments that it says it has seen."""
    identity = context.aggregators.get(shown.aggregator, b"")
    return is_signed(identity, shown.signature, "shared list", *_list_parts(context, shown))


def sum_commitment(context: SharedContext, aggregator: int, agreed: bytes, nonce: bytes, packed: bytes) -> bytes:
    """Return an aggregator's commitment to its share of the sum (SHA-256) and the agreed set; the nonce hides them."""
    return digest("shared sum", context.binding, number(aggregator), agreed, nonce, packed)


KEY, ACCEPTED, SUM = "key", "accepted", "sum"


class Equivocated(ProtocolViolation):
    """Raised, ending the session, if an aggregator signed two different statements for a step; `evidence` proves it."""

    def __init__(self, culprit: int, evidence: PledgeConflict) -> None:
        self.evidence = evidence
        super().__init__(culprit, f"signed two different {evidence.one.step!r} pledges in one session")


def check_pledges(
    context: SharedContext,
    step: str,
    shown: tuple[AggregatorPledge, ...],
    culprit: int,
    *,
    of: tuple[int, ...],
    known: tuple[AggregatorPledge, ...] = (),
) -> None:
    """Check that `shown` is one signed statement of each aggregator in `of`, none different from a `known` one.

    Raises ProtocolViolation (`culprit`: who shows them), Equivocated for an aggregator that signed another one.
    """
    if tuple(pledge.aggregator for pledge in shown) != of:
        raise ProtocolViolation(culprit, f"does not show one {step!r} pledge of {', '.join(map(context.name_of, of))}")
    contents = {pledge.aggregator: pledge for pledge in known}
    for pledge in shown:
        if pledge.step != step or not pledge_is_signed(context, pledge):
            author = context.name_of(pledge.aggregator)
            raise ProtocolViolation(culprit, f"shows a {step!r} pledge that {author} did not sign")
        own = contents.get(pledge.aggregator, pledge)
        if own.content != pledge.content:
            raise Equivocated(context.index_of(pledge.aggregator), PledgeConflict(own, pledge))


def session_keys(context: SharedContext, pledges: Iterable[AggregatorPledge]) -> dict[int, bytes]:
    """Return the aggregators' envelope keys of this session by their numbers, from their checked, signed statements.

    Raises ProtocolViolation (the aggregator) for what is no envelope key, and for a key that came before.
    """
    keys: dict[int, bytes] = {}
    for pledge in pledges:
        if not is_envelope_key(pledge.content) or pledge.content in keys.values():
            raise ProtocolViolation(
                context.index_of(pledge.aggregator), "its session key is of small order or not its own"
            )
        keys[pledge.aggregator] = pledge.content
    return keys


@dataclass(frozen=True)
class _OpenedPart:
    """A client's share as its aggregator reads it: a packed vector or a seed; the first's in a census holds all three.

    The seed is that of the aggregator's part of the blindings too.
    """

    vector: bytes = field(repr=False)
    seed: bytes = field(repr=False)
    proofs: bytes = field(repr=False)


def open_share(context: SharedContext, key: EnvelopeKey, client: int, aggregator: int, sealed: bytes) -> _OpenedPart:
    """Return the share in a client's envelope. Raises SealBroken for another length or any other difference."""
    if len(sealed) != sealed_bytes(context, aggregator):
        raise SealBroken("not a sealed share of this session")
    plain = key.open(sealed, share_address(context, client, aggregator))
    begun = context.packed_bytes if aggregator == FIRST else 0
    return _OpenedPart(plain[:begun], plain[begun : begun + SEED_BYTES], plain[begun + SEED_BYTES :])
