"""The masks in a sum of uploads, and the release from which clients open and check the sum themselves.

A release is the integer sum Y of the survivors' masked uploads, then an `Unmasking`, in a census the proofs of its
entries, then the uploads that the `Unmasking` announces. X = Y less the masks that follow from the opened secrets. Its
digest and the signed tags (`.tags`) show that Y is what was endorsed, and the sum of what the survivors signed; their
commitments and public keys in the signed directory show that the masks are the clients' own. Where few clients are
missing, noise that follows from opened seeds is taken off, too (`.removal`). Nothing in it is new to the server.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.agreement import AgreementKey, WeakPublicKey
from secagg.crypto.stream import MaskStream
from secagg.encoding import Integers, Residues
from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection.interface import SessionContext
from secagg.protection.masking import derivations as bind
from secagg.protection.masking.messages import (
    MAX_HEADER_BYTES,
    Directory,
    Inbox,
    OpenedSecret,
    Survivors,
    Unmasking,
    UploadTags,
)
from secagg.protection.masking.quorum import NeighbourGraph
from secagg.protection.masking.removal import NoiseKey, add_noise, keys_from, removed_level
from secagg.protection.masking.tags import (
    Words,
    no_words,
    pack_total,
    packed_size,
    read_tags,
    residues_of,
    tags_of,
    unpack_total,
    words_of,
)
from secagg.protection.messages import Attachment, UploadHeader
from secagg.protection.proven_bits import NO_CENSUS, Blindings, check_census, is_census_of, split_proofs
from secagg.wire import decode, encode

_log = logging.getLogger("secagg.server")
_MOST_BYTES_A_CLIENT = 512
"""More than the secret and the tags of one client take in an `Unmasking`."""
EVIDENCE = (Directory, Inbox, Survivors)
"""The server's messages to a client that are needed to check a release."""


@dataclass(frozen=True)
class Mask:
    """The key of a mask's keystream, and whether to add it to the sum (sign 1) or to subtract it (−1)."""

    key: bytes = field(repr=False)
    sign: Literal[1, -1]


class SummedUploads:
    """The uploads of the survivors (U3) among the dealers (U2) of a directory, and the masks that are in their sum."""

    def __init__(
        self, context: SessionContext, directory: Directory, dealers: tuple[int, ...], survivors: tuple[int, ...]
    ) -> None:
        self._context = context
        self._dealers = dealers
        self._digest = directory.digest
        self._binding = bind.session_binding(context, directory.digest)
        self._entries = {entry.member: entry for entry in directory.entries}
        self._graph = NeighbourGraph(directory.members, directory.digest, bind.thresholds_of(context))
        self.survivors = survivors
        self._alive = alive = frozenset(survivors)
        # A dropped client's mask key matters only to the survivors that masked with it.
        self.needed = tuple(each for each in dealers if each in alive or alive & set(self._graph.holders(each)))
        """The dealers whose opened secret gives masks of the sum."""
        self.removed_level = removed_level(context, survivors)
        """The lowest level whose noise is taken off the sum, with all higher ones; None where all noise stays."""

    def endorsement_parts(self, total: bytes) -> tuple[bytes, ...]:
        """Return what an endorsement of these uploads signs, with the digest of their sum."""
        return bind.endorsement_parts(self._context, self._digest, self._dealers, self.survivors, total)

    def is_secret_of(self, dealer: int, secret: bytes) -> bool:
        """Return whether a secret is the seed that a survivor committed to, or the mask key of a client that is not."""
        entry = self._entries[dealer]
        if dealer in self._alive:
            return hmac.compare_digest(bind.seed_commitment(secret, dealer, self._context), entry.seed_commitment)
        return AgreementKey.from_bytes(secret).public == entry.mask_key

    def is_noise_seed_of(self, dealer: int, seed: bytes) -> bool:
        """Return whether a seed is that of the level of noise to remove, to which the dealer committed."""
        level, commitments = self.removed_level, self._entries[dealer].noise_commitments
        if level is None or len(commitments) < level:
            return False
        return hmac.compare_digest(bind.noise_commitment(seed, level, dealer, self._context), commitments[level - 1])

    def noise(self, dealer: int, seed: bytes) -> list[NoiseKey]:
        """Return the keys of the noise to take from the sum that follow from a survivor's opened noise seed."""
        return keys_from(self._context, seed, dealer, self._binding, self.removed_level or 1)

    def masks(self, dealer: int, secret: bytes) -> Iterator[Mask]:
        """Return the masks to take from the sum: a survivor's self mask, or all pairwise masks of a dropped client.

        Raises ProtocolViolation for a survivor's key of small order.
        """
        if dealer in self._alive:
            yield Mask(bind.self_mask_key(secret, dealer, self._binding), -1)
            return
        own, near = AgreementKey.from_bytes(secret), set(self._graph.holders(dealer))
        for survivor in self.survivors:
            if survivor in near:
                try:
                    key = bind.pairwise_key(own, dealer, survivor, self._entries[survivor].mask_key, self._binding)
                except WeakPublicKey:
                    raise ProtocolViolation(survivor, "advertised a key of small order") from None
                yield Mask(key, -1 if survivor < dealer else 1)


@dataclass(frozen=True)
class MaskedSum:
    """The survivors of a masked sum, what to remove from the sum of their uploads, and what shows both.

    `secrets` are those that the masks follow from, `tags` the clients' own, signed with `parts`; `noise` follows from
    the `noise_seeds`. `total` is the sum of the uploads, where this process has added them up before.
    """

    members: tuple[int, ...]
    masks: tuple[Mask, ...] = field(repr=False)
    secrets: tuple[OpenedSecret, ...] = field(repr=False, default=())
    tags: tuple[UploadTags, ...] = ()
    parts: tuple[bytes, ...] = ()
    noise: tuple[NoiseKey, ...] = field(repr=False, default=())
    noise_seeds: tuple[OpenedSecret, ...] = field(repr=False, default=())
    total: Words | None = field(repr=False, default=None)

    @property
    def vectors(self) -> tuple[int, ...]:
        """The clients whose uploads are still to be added: the survivors themselves, unless their `total` is known."""
        return self.members if self.total is None else ()

    def open(self, context: SessionContext, total: Residues) -> Integers:
        """Remove masks and surplus noise from `total` (in place) and return the sum as signed integers."""
        if self.total is not None:
            total += residues_of(context, self.total)
        return _unmasked(context, total, self.masks, self.noise)

    def release(
        self, context: SessionContext, read: Callable[[int], bytes], frames: Mapping[int, bytes]
    ) -> tuple[bytes, ...]:
        """Return the sum of the uploads, their `Unmasking`, and each upload whose tags are missing or wrong.

        In a census the proofs of its entries too. Wrong tags are left out, so that a client that signs them costs the
        others its upload and not their session; the server's transcript holds both, signed.
        `read` returns a client's upload, `frames` are those that announced them.
        Raises SessionAborted for a census that is not the sum of the proven entries.
        """
        total, proofs = no_words(context) if self.total is None else self.total, list[bytes]()
        for member in self.vectors:
            total += words_of(context, read(member))
        if context.proves_bits:
            proofs = [read(member)[context.packed_bytes :] for member in self.members]
            census = _unmasked(context, residues_of(context, total), self.masks)
            if not is_census_of(context, proofs, census, _blindings_in(context, self.masks)):
                raise SessionAborted(NO_CENSUS)
        tagged = {each.member: read_tags(each.tags) for each in self.tags}
        shown = [member for member in self.members if member not in tagged]
        of_total, *others = tags_of(self.parts, [total, *(words_of(context, read(member)) for member in shown)])
        if (of_total != sum((*tagged.values(), *others), np.zeros_like(of_total))).any():
            found = ((m, tags_of(self.parts, [words_of(context, read(m))])[0]) for m in tagged)
            shown = sorted((*shown, *(member for member, tags in found if (tags != tagged[member]).any())))
            names = ", ".join(context.names[member] for member in shown if member in tagged)
            _log.warning("tags that are not those of the upload, which is released in their place: %s", names)
        tags = tuple(each for each in self.tags if each.member not in shown)
        listed = Unmasking(self.secrets, tags, tuple(frames[member] for member in shown), self.noise_seeds)
        proven = (b"".join(proofs),) * context.proves_bits
        return pack_total(context, total), encode(listed), *proven, *map(read, shown)


def check_lengths(context: SessionContext, members: tuple[int, ...], named: Sequence[Attachment]) -> None:
    """Raise ProtocolViolation, blaming the server, unless a release has parts of the lengths that these members give.

    To be called before anything is downloaded.
    """
    proven = (len(members) * context.proof_bytes,) * context.proves_bits
    begun = 2 + len(proven)
    lengths, shown = [each.length for each in named], len(named) - begun
    most = len(context.identities) * _MOST_BYTES_A_CLIENT + max(0, shown) * MAX_HEADER_BYTES
    if (
        not 0 <= shown <= len(members)
        or lengths[0] != packed_size(context)
        or lengths[1] > most
        or tuple(lengths[2:begun]) != proven
        or any(length != context.upload_bytes for length in lengths[begun:])
    ):
        raise ProtocolViolation(SERVER_INDEX, "the released sum has another length than the plan's")


def open_release(
    context: SessionContext,
    heard: Mapping[type, Any],
    members: tuple[int, ...],
    parts: Sequence[bytes],
    signed: Callable[[bytes, type], tuple[int, Any]],
) -> Integers:
    """Check a release against what the server has sent before (`EVIDENCE`); return the sum as signed integers.

    `signed` opens a frame that a client signed in this round: its sender and its message. Raises ProtocolViolation: the
    server for whatever does not fit, a client whose signed tags are not those of the upload that it signed.
    """
    survivors: Survivors = heard[Survivors]
    directory, dealers = heard[Directory], heard[Inbox].dealers
    packed, listed, shown = parts[0], decode(Unmasking, parts[1]), parts[2 + context.proves_bits :]
    if survivors.members != members:
        raise ProtocolViolation(SERVER_INDEX, "the outcome names other clients than those that were opened")
    if not set(members) <= set(dealers) <= set(directory.members):
        problem = "opens a sum of clients that are not in its directory, or dealt no shares"
        raise ProtocolViolation(SERVER_INDEX, problem)
    if hashlib.sha256(packed).digest() != survivors.total:
        raise ProtocolViolation(SERVER_INDEX, "releases another sum of the uploads than the one that was endorsed")
    summed = SummedUploads(context, directory, dealers, members)
    total, announced = unpack_total(context, packed), dict[int, Words]()
    masked_for = directory.digest, bind.members_digest(dealers)
    for frame, upload in zip(listed.uploads, shown, strict=False):
        sender, header = signed(frame, UploadHeader)
        named = hashlib.sha256(upload).digest(), *masked_for
        if sender in announced or (header.digest, header.directory, header.dealers) != named:
            raise ProtocolViolation(SERVER_INDEX, f"shows an upload of member {sender} that it did not sign")
        announced[sender] = words_of(context, upload)
    if len(listed.uploads) != len(shown):
        raise ProtocolViolation(SERVER_INDEX, "releases other uploads than it announces")
    _check_tags(context, members, summed.endorsement_parts(survivors.total), listed, announced, total)
    masks = tuple(_masks_in(summed, listed))
    noise = [key for each in _noise_seeds_in(summed, listed) for key in summed.noise(each.member, each.secret)]
    opened = _unmasked(context, residues_of(context, total), masks, noise)
    if context.proves_bits:
        proofs = split_proofs(context, members, parts[2])
        check_census(context, proofs, opened, _blindings_in(context, masks), SERVER_INDEX)
    return opened


def _check_tags(
    context: SessionContext,
    members: tuple[int, ...],
    parts: tuple[bytes, ...],
    listed: Unmasking,
    announced: Mapping[int, Words],
    total: Words,
) -> None:
    """Raise ProtocolViolation unless the tags that the members signed, or of their uploads, add up to the sum's."""
    tagged = {each.member: read_tags(each.tags) for each in listed.tags}
    if set(tagged) | set(announced) != set(members):
        raise ProtocolViolation(SERVER_INDEX, "does not show tags or upload of every client in the sum, and no other's")
    for each in listed.tags:
        if not bind.tags_are_signed(context, each, parts):
            raise ProtocolViolation(SERVER_INDEX, f"shows tags that member {each.member} did not sign for this sum")
    of_total, *found = tags_of(parts, [total, *announced.values()])
    for member, tags in zip(announced, found, strict=True):
        if (tags != tagged.setdefault(member, tags)).any():
            raise ProtocolViolation(member, "signed tags that are not those of the masked vector that it signed")
    if (of_total != sum(tagged.values(), np.zeros_like(of_total))).any():
        raise ProtocolViolation(SERVER_INDEX, "the released sum is not that of the uploads: their tags do not add up")


def _masks_in(summed: SummedUploads, listed: Unmasking) -> Iterator[Mask]:
    """Return the masks that follow from the shown secrets. Raises ProtocolViolation, blaming the server."""
    if tuple(each.member for each in listed.secrets) != summed.needed:
        raise ProtocolViolation(SERVER_INDEX, "does not show the one secret of every client whose masks are in the sum")
    for each in listed.secrets:
        if not summed.is_secret_of(each.member, each.secret):
            problem = f"shows a secret of member {each.member} that is not the one in the directory"
            raise ProtocolViolation(SERVER_INDEX, problem)
        yield from summed.masks(each.member, each.secret)


def _noise_seeds_in(summed: SummedUploads, listed: Unmasking) -> tuple[OpenedSecret, ...]:
    """Return the shown noise seeds. Raises ProtocolViolation, blaming the server, unless the sum asks for these."""
    needed = summed.survivors if summed.removed_level is not None else ()
    if tuple(each.member for each in listed.noise_seeds) != needed:
        raise ProtocolViolation(SERVER_INDEX, "does not show the noise seeds of all clients in the sum, or of none")
    for each in listed.noise_seeds:
        if not summed.is_noise_seed_of(each.member, each.secret):
            problem = f"shows a noise seed of member {each.member} that is not the one in the directory"
            raise ProtocolViolation(SERVER_INDEX, problem)
    return listed.noise_seeds


def _blindings_in(context: SessionContext, masks: Iterable[Mask]) -> Blindings:
    """Return the sum of the clients' blindings that the masks in their sum give."""
    blindings = Blindings(context)
    for mask in masks:
        blindings.apply(mask.key, -mask.sign)
    return blindings


def _unmasked(
    context: SessionContext, total: Residues, masks: Iterable[Mask], noise: Sequence[NoiseKey] = ()
) -> Integers:
    """Remove masks and noise from a sum (in place) and return it as signed integers."""
    stream = MaskStream()
    for mask in masks:
        stream.apply(total, mask.key, mask.sign)
    add_noise(context, total, noise, -1)
    return context.ring.decode(total)
