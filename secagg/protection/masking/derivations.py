"""Functions of the masked protection that hash, sign, check signatures and derive keys.

One function for each labelled string.
"""

from __future__ import annotations

from dataclasses import replace

from secagg.crypto.agreement import AgreementKey, derive
from secagg.crypto.envelopes import Address
from secagg.crypto.labels import digest, number
from secagg.crypto.shared_work import once
from secagg.crypto.signatures import SigningKey, is_signed
from secagg.protection.interface import SessionContext
from secagg.protection.masking.messages import Dealing, Endorsement, KeyAdvertisement, SealedShare, UploadTags
from secagg.protection.masking.quorum import Thresholds, derive_thresholds

SHARINGS = ("seed", "key", "noise 1", "noise 2")
"""Kinds of secrets that a client deals, in order: self-mask seed, mask key, the noise seed of each level."""


def thresholds_of(context: SessionContext) -> Thresholds:
    """Return the thresholds for signatures, shares and survivors that follow from the session's plan."""
    return derive_thresholds(len(context.identities), context.colluders, context.dropouts, context.min_clients_in_sum)


def members_digest(members: tuple[int, ...]) -> bytes:
    """Return the digest of an ordered set of clients; in an upload, of those that dealt shares (U2)."""
    return once(("members", members), lambda: digest("members", *map(number, members)))


def session_binding(context: SessionContext, directory: bytes) -> bytes:
    """Return the HKDF salt of all session keys, a digest of the round and of the directory of clients' keys."""
    return digest("context", context.round_digest, directory)


def pairwise_key(secret: AgreementKey, own: int, peer: int, peer_key: bytes, binding: bytes) -> bytes:
    """Return the key of the pairwise mask between `own` and `peer`, the same on both sides. Raises WeakPublicKey."""
    low, high = sorted((own, peer))
    return secret.agree(peer_key, binding, "pairwise mask", number(low), number(high))


def self_mask_key(seed: bytes, member: int, binding: bytes) -> bytes:
    """Derive the key of a client's self mask from its seed."""
    return derive(seed, binding, "self mask", number(member))


def coefficients_key(secret: bytes, kind: str, dealer: int, binding: bytes) -> bytes:
    """Derive the key of one sharing's coefficients from the dealer's dealing secret; `kind` as in `share_hash`."""
    return derive(secret, binding, "share coefficients", kind.encode(), number(dealer))


def seed_commitment(seed: bytes, member: int, context: SessionContext) -> bytes:
    """Return a client's commitment to its self-mask seed, which is uniform and has 32 bytes."""
    return digest("seed commitment", context.round_digest, number(member), seed)


def noise_commitment(seed: bytes, level: int, member: int, context: SessionContext) -> bytes:
    """Return a client's commitment to the seed of the part of its noise that is removed at a level, 1 or 2."""
    return digest("noise commitment", context.round_digest, number(member), number(level), seed)


def next_noise_seed(seed: bytes) -> bytes:
    """Return the seed of the next level's noise: who has the seed of a level has those of all higher ones."""
    return digest("next noise seed", seed)


def noise_key(seed: bytes, level: int, member: int, binding: bytes) -> bytes:
    """Derive the key of the stream from which the noise of a level is drawn, from that level's seed."""
    return derive(seed, binding, "removable noise", number(level), number(member))


def share_hash(kind: str, share: bytes, dealer: int, holder: int, binding: bytes) -> bytes:
    """Return the hash of one share; it hides the share, which is a uniform field element.

    `kind` is one of `SHARINGS`.
    """
    return digest(f"{kind} share", binding, number(dealer), number(holder), share)


def _advertisement_parts(context: SessionContext, entry: KeyAdvertisement) -> tuple[bytes, ...]:
    return (
        context.round_digest,
        number(entry.member),
        entry.channel_key,
        entry.mask_key,
        entry.seed_commitment,
        entry.nonce,
        *entry.noise_commitments,
    )


def sign_advertisement(context: SessionContext, identity: SigningKey, entry: KeyAdvertisement) -> KeyAdvertisement:
    """Return the advertisement of session keys with its client's signature, in place of any other."""
    return replace(entry, signature=identity.sign("advertisement", *_advertisement_parts(context, entry)))


def advertisement_is_signed(context: SessionContext, entry: KeyAdvertisement) -> bool:
    """Return whether the client that the advertisement names signed it for this plan, by its identity in the roster."""
    identity = context.identities.get(entry.member, b"")
    return is_signed(identity, entry.signature, "advertisement", *_advertisement_parts(context, entry))


def share_address(binding: bytes, dealer: int, holder: int) -> Address:
    """Return what a dealer's envelope for one holder is bound to: round and directory, step, dealer and holder."""
    return Address(binding, "Dealing", dealer, holder)


def _sealed_share_parts(binding: bytes, share: SealedShare) -> tuple[bytes, ...]:
    hashes = share.seed_hash, share.key_hash, *share.noise_hashes
    return (binding, number(share.dealer), number(share.holder), *hashes, share.sealed)


def sign_sealed_share(identity: SigningKey, binding: bytes, share: SealedShare) -> SealedShare:
    """Return the sealed share with its dealer's signature."""
    return replace(share, signature=identity.sign("sealed share", *_sealed_share_parts(binding, share)))


def sealed_share_is_signed(identity: bytes, binding: bytes, share: SealedShare) -> bool:
    """Return whether the dealer signed this sealed share in this session."""
    return is_signed(identity, share.signature, "sealed share", *_sealed_share_parts(binding, share))


def sign_dealing(
    identity: SigningKey, binding: bytes, dealer: int, shares: tuple[SealedShare, ...], own: tuple[bytes, ...]
) -> Dealing:
    """Return a dealer's message: its sealed shares, and the signed hashes of those that it keeps.

    `own` are the hashes of its shares of the self-mask seed, of the mask key, and of the noise seeds.
    """
    seed_hash, key_hash, *noise_hashes = own
    signature = identity.sign("own share", binding, number(dealer), *own)
    return Dealing(shares, seed_hash, key_hash, signature, tuple(noise_hashes))


def own_share_is_signed(identity: bytes, binding: bytes, dealer: int, dealing: Dealing) -> bool:
    """Return whether the dealer signed the hashes of the shares that it keeps for itself."""
    parts = (binding, number(dealer), dealing.own_seed_hash, dealing.own_key_hash, *dealing.own_noise_hashes)
    return is_signed(identity, dealing.signature, "own share", *parts)


def endorsement_parts(
    context: SessionContext, directory: bytes, dealers: tuple[int, ...], survivors: tuple[int, ...], total: bytes
) -> tuple[bytes, ...]:
    """Return all that a signature on the survivors covers.

    These are round, session, roster, directory, dealers, survivors, and the digest of their masked uploads' sum.
    """
    return (
        context.round_digest,
        context.session_id,
        context.roster,
        directory,
        members_digest(dealers),
        members_digest(survivors),
        total,
    )


def endorsement_is_signed(context: SessionContext, endorsement: Endorsement, parts: tuple[bytes, ...]) -> bool:
    """Return whether the client that the endorsement names signed exactly these parts."""
    identity = context.identities.get(endorsement.member, b"")
    return is_signed(identity, endorsement.signature, "survivors", *parts)


def challenge(parts: tuple[bytes, ...]) -> bytes:
    """Return the hash of all that an endorsement signs, from which the vectors of the tags are expanded."""
    return digest("challenge", *parts)


def tag_vector_key(challenge: bytes, place: int) -> bytes:
    """Return the key of the stream that is the vector of the tag at this place, 1…10."""
    return digest("tag vector", challenge, number(place))


def sign_tags(identity: SigningKey, member: int, tags: bytes, parts: tuple[bytes, ...]) -> UploadTags:
    """Return the signed tags of a client's own upload; `parts` are what its endorsement signs."""
    return UploadTags(member, tags, identity.sign("tags", *parts, tags))


def tags_are_signed(context: SessionContext, shown: UploadTags, parts: tuple[bytes, ...]) -> bool:
    """Return whether the client that the tags name signed them for exactly these parts."""
    return is_signed(context.identities.get(shown.member, b""), shown.signature, "tags", *parts, shown.tags)
