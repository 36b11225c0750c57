"""States of the masked protection's client: Advertised → Dealt → Ready → Uploaded → Endorsed → Opened.

Bonawitz et al. 2017, Figure 4, rounds 0 to 4. Each step is a frozen type, so that the wrong order does not
type-check. Every refusal names its culprit: the server for what it chose or relayed wrongly, a dealer (as a
complaint inside the upload) for shares that are not what it signed. A client signs one survivor set of a session,
ever, and opens one share of each dealer, never both.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.agreement import AgreementKey, WeakPublicKey
from secagg.crypto.envelopes import EnvelopeKey, seal_envelope
from secagg.crypto.sealing import SealBroken
from secagg.crypto.sharing import SHARE_BYTES, is_canonical, share
from secagg.crypto.stream import MaskStream
from secagg.encoding import Residues
from secagg.errors import LeftBehind, ProtocolViolation
from secagg.protection.interface import LocalParty, SessionContext, Transition
from secagg.protection.masking import derivations as bind
from secagg.protection.masking.messages import (
    Dealing,
    Directory,
    Endorsement,
    Held,
    HeldShare,
    Inbox,
    Key,
    KeyAdvertisement,
    NoiseShares,
    OpenedShare,
    Opening,
    Quorum,
    SealedShare,
    Share,
    Survivors,
)
from secagg.protection.masking.quorum import NeighbourGraph
from secagg.protection.masking.removal import add_noise, keys_from, removed_level, seeds_from
from secagg.protection.masking.tags import tags_of, words_of
from secagg.protection.messages import Complaints, Digest, Members, Outcome, UploadHeader
from secagg.protection.proven_bits import Blindings, prove_entries
from secagg.wire import Length, message

NoiseSeed = Annotated[bytes, Length(0, 32)]
"""The seed of the lowest removable part of a client's noise; empty without noise levels."""


def advertise(context: SessionContext, me: LocalParty) -> Transition:
    """Generate the session keys and the self-mask seed, and publish their public parts (protocol round 0)."""
    channel = EnvelopeKey.generate(me.randomness)
    mask = AgreementKey.generate(me.randomness)
    seed = me.randomness.bytes(32)
    commitment = bind.seed_commitment(seed, me.member, context)
    nonce = me.randomness.bytes(32)
    noise_seed = me.randomness.bytes(32) if context.removable else b""
    noise_commitments = tuple(
        bind.noise_commitment(each, level, me.member, context)
        for level, each in seeds_from(context, noise_seed).items()
    )
    unsigned = KeyAdvertisement(me.member, channel.public, mask.public, commitment, nonce, bytes(64), noise_commitments)
    entry = bind.sign_advertisement(context, me.identity, unsigned)
    dealing_secret = me.randomness.bytes(32)
    secrets = channel.private_bytes(), mask.private_bytes(), seed, dealing_secret
    return Transition(Advertised(*secrets, entry, noise_seed), entry)


@message("Advertised")
@dataclass(frozen=True)
class Advertised:
    """The client's state after publishing its keys, while it waits for the directory of all clients' keys."""

    awaits: ClassVar[type] = Directory
    channel_secret: Key = field(repr=False)
    mask_secret: Key = field(repr=False)
    seed: Key = field(repr=False)
    dealing_secret: Key = field(repr=False)
    advertisement: KeyAdvertisement
    noise_seed: NoiseSeed = field(repr=False, default=b"")

    def advance(self, context: SessionContext, me: LocalParty, incoming: Directory) -> Transition:
        """Check the key directory, deal shares of this client's secrets to the neighbours (protocol round 1).

        The secrets are its self-mask seed, its mask key, and the seeds of the noise that may be removed. The shares
        follow from the state and the directory: dealt again after a rolled-back state, they are the same.
        """
        self._check(context, incoming)
        directory = incoming.digest
        thresholds = bind.thresholds_of(context)
        holders = NeighbourGraph(incoming.members, directory, thresholds).holders(me.member)
        if len(holders) < thresholds.shares:
            raise ProtocolViolation(SERVER_INDEX, f"{len(holders)} holders cannot hold {thresholds.shares}-of-n shares")
        binding, own = bind.session_binding(context, directory), me.member
        seeds = seeds_from(context, self.noise_seed).values()
        secrets = dict(zip(bind.SHARINGS, (self.seed, self.mask_secret, *seeds), strict=False))
        shares = {
            kind: share(
                secret, thresholds.shares, holders, bind.coefficients_key(self.dealing_secret, kind, own, binding)
            )
            for kind, secret in secrets.items()
        }
        dealing = _deal(me, binding, incoming, shares)
        seed_share, key_share, *noise_shares = (each[own] for each in shares.values())
        secret = self.channel_secret, self.mask_secret, self.seed
        dealt = Dealt(*secret, incoming, seed_share, key_share, self.noise_seed, tuple(noise_shares))
        return Transition(dealt, dealing)

    def _check(self, context: SessionContext, directory: Directory) -> None:
        if self.advertisement not in directory.entries:
            raise ProtocolViolation(SERVER_INDEX, "the directory does not hold this client's own keys")
        if len(directory.entries) < bind.thresholds_of(context).signatures:
            raise ProtocolViolation(SERVER_INDEX, f"the directory has only {len(directory.entries)} clients")
        keys = [key for entry in directory.entries for key in (entry.channel_key, entry.mask_key)]
        if len(set(keys)) != len(keys):
            raise ProtocolViolation(SERVER_INDEX, "the directory holds the same key twice")
        if any(len(entry.noise_commitments) != len(context.removable) for entry in directory.entries):
            raise ProtocolViolation(SERVER_INDEX, "the directory holds other noise seeds than the plan's noise levels")
        for entry in directory.entries:
            if not bind.advertisement_is_signed(context, entry):
                raise ProtocolViolation(
                    SERVER_INDEX, f"the directory's keys of member {entry.member} are not signed by it"
                )


def _deal(me: LocalParty, binding: bytes, directory: Directory, shares: Mapping[str, Mapping[int, bytes]]) -> Dealing:
    """Seal and sign shares, by the kind of the secret (`share_hash`) and their holder."""
    channel_keys = {entry.member: entry.channel_key for entry in directory.entries}
    hashes = {
        holder: tuple(bind.share_hash(kind, each[holder], me.member, holder, binding) for kind, each in shares.items())
        for holder in shares["seed"]
    }
    sealed_shares = []
    for holder in sorted(hashes.keys() - {me.member}):
        address = bind.share_address(binding, me.member, holder)
        plain = b"".join(each[holder] for each in shares.values())
        try:
            sealed = seal_envelope(channel_keys[holder], plain, address)
        except WeakPublicKey:
            raise ProtocolViolation(holder, "advertised a key of small order, or none") from None
        seed_hash, key_hash, *noise_hashes = hashes[holder]
        unsigned = SealedShare(me.member, holder, seed_hash, key_hash, sealed, bytes(64), tuple(noise_hashes))
        sealed_shares.append(bind.sign_sealed_share(me.identity, binding, unsigned))
    return bind.sign_dealing(me.identity, binding, me.member, tuple(sealed_shares), hashes[me.member])


@message("Dealt")
@dataclass(frozen=True)
class Dealt:
    """The client's state after dealing its shares, while it waits for the shares that others dealt to it."""

    awaits: ClassVar[type] = Inbox
    channel_secret: Key = field(repr=False)
    mask_secret: Key = field(repr=False)
    seed: Key = field(repr=False)
    directory: Directory
    own_seed_share: Share = field(repr=False)
    own_key_share: Share = field(repr=False)
    noise_seed: NoiseSeed = field(repr=False, default=b"")
    own_noise_shares: NoiseShares = field(repr=False, default=())

    def advance(self, context: SessionContext, me: LocalParty, incoming: Inbox) -> Transition:
        """Decrypt the shares dealt to this client; note each dealer of a bad share (protocol round 2, receiving)."""
        directory = self.directory.digest
        thresholds = bind.thresholds_of(context)
        if me.member not in incoming.dealers or not set(incoming.dealers) <= set(self.directory.members):
            raise ProtocolViolation(
                SERVER_INDEX, "the dealers are not a subset of the directory that holds this client"
            )
        if len(incoming.dealers) < thresholds.signatures:
            raise ProtocolViolation(SERVER_INDEX, f"only {len(incoming.dealers)} clients dealt shares")
        neighbours = NeighbourGraph(self.directory.members, directory, thresholds).holders(me.member)
        expected = {dealer for dealer in neighbours if dealer in incoming.dealers} - {me.member}
        if {envelope.dealer for envelope in incoming.shares} != expected:
            raise ProtocolViolation(
                SERVER_INDEX, "the inbox does not hold exactly one share of every neighbouring dealer"
            )
        held, complaints = self._open(context, me, incoming, bind.session_binding(context, directory))
        held.append(HeldShare(me.member, self.own_seed_share, self.own_key_share, self.own_noise_shares))
        held.sort(key=lambda each: each.dealer)
        secrets, dealt = (self.mask_secret, self.seed), (tuple(held), tuple(complaints))
        return Transition(Ready(*secrets, self.directory, incoming.dealers, *dealt, self.noise_seed))

    def _open(
        self, context: SessionContext, me: LocalParty, inbox: Inbox, binding: bytes
    ) -> tuple[list[HeldShare], list[int]]:
        channel = EnvelopeKey.from_bytes(self.channel_secret)
        held, complaints = [], []
        for envelope in inbox.shares:
            dealer = envelope.dealer
            signed = bind.sealed_share_is_signed(context.identities[dealer], binding, envelope)
            if not signed or envelope.holder != me.member:
                raise ProtocolViolation(
                    SERVER_INDEX, f"relayed shares that member {dealer} did not sign for this client"
                )
            opened = _open_share(channel, envelope, binding, len(context.removable))
            if opened is None:
                complaints.append(dealer)
            else:
                held.append(opened)
        return held, complaints


def _open_share(channel: EnvelopeKey, envelope: SealedShare, binding: bytes, levels: int) -> HeldShare | None:
    """Return the shares inside an envelope, or None when they are not those that the dealer signed.

    There is one for each of the plan's noise `levels`, beside those of self-mask seed and mask key.
    """
    dealer, holder = envelope.dealer, envelope.holder
    try:
        plain = channel.open(envelope.sealed, bind.share_address(binding, dealer, holder))
    except SealBroken:
        return None
    kinds = bind.SHARINGS[: 2 + levels]
    hashes = (envelope.seed_hash, envelope.key_hash, *envelope.noise_hashes)
    if len(plain) != len(kinds) * SHARE_BYTES or len(hashes) != len(kinds):
        return None
    shares = [plain[start : start + SHARE_BYTES] for start in range(0, len(plain), SHARE_BYTES)]
    honest = all(
        is_canonical(each) and hmac.compare_digest(bind.share_hash(kind, each, dealer, holder, binding), hashed)
        for kind, each, hashed in zip(kinds, shares, hashes, strict=True)
    )
    return HeldShare(dealer, shares[0], shares[1], tuple(shares[2:])) if honest else None


@dataclass(frozen=True)
class Ready:
    """The client's state with all secrets that masking needs; the vector itself is never part of a state."""

    mask_secret: Key = field(repr=False)
    seed: Key = field(repr=False)
    directory: Directory
    dealers: Members
    held: Held
    complaints: Complaints
    noise_seed: NoiseSeed = field(repr=False, default=b"")

    def protect(self, context: SessionContext, me: LocalParty, residues: Residues) -> Transition:
        """Add masks, and the noise that may be removed, to the vector for upload (protocol round 2, sending).

        y = x + PRG(b_u) + Σ_{u<v} PRG(s_uv) − Σ_{v<u} PRG(s_uv), over neighbours v that dealt shares (U2), with the
        removable noise in x.
        In a census the masks' keys give the blindings of the entries' proofs too, which follow the vector.
        `residues` is overwritten. The next state holds neither seeds nor mask key.
        """
        directory = self.directory.digest
        binding = bind.session_binding(context, directory)
        thresholds = bind.thresholds_of(context)
        neighbours = NeighbourGraph(self.directory.members, directory, thresholds).holders(me.member)
        secret = AgreementKey.from_bytes(self.mask_secret)
        entries, stream, blindings = residues.tolist() if context.proves_bits else (), MaskStream(), Blindings(context)

        def mask(key: bytes, sign: Literal[1, -1]) -> None:
            stream.apply(residues, key, sign)
            blindings.apply(key, sign)

        add_noise(context, residues, keys_from(context, self.noise_seed, me.member, binding), 1)
        mask(bind.self_mask_key(self.seed, me.member, binding), 1)
        for entry in self.directory.entries:
            peer = entry.member
            if peer == me.member or peer not in self.dealers or peer not in neighbours:
                continue
            try:
                key = bind.pairwise_key(secret, me.member, peer, entry.mask_key, binding)
            except WeakPublicKey:
                raise ProtocolViolation(peer, "advertised a key of small order") from None
            mask(key, 1 if me.member < peer else -1)
        packed = context.ring.pack(residues) + prove_entries(context, me, entries, blindings)
        header = UploadHeader(
            length=len(packed),
            digest=hashlib.sha256(packed).digest(),
            directory=directory,
            dealers=bind.members_digest(self.dealers),
            complaints=self.complaints,
        )
        return Transition(Uploaded(directory, self.dealers, self.held, header.digest), header, packed)


@message("Uploaded")
@dataclass(frozen=True)
class Uploaded:
    """The client's state after uploading its masked vector, unable to unmask it, while it awaits the survivor set."""

    awaits: ClassVar[type] = Survivors
    directory: Digest
    dealers: Members
    held: Held
    upload: Digest

    def advance(self, context: SessionContext, me: LocalParty, incoming: Survivors) -> Transition:
        """Sign the survivor set if it is a possible one, and the digest of the uploads' sum (protocol round 3).

        The next state can sign no other set, and no other sum.
        """
        survivors = incoming.members
        if me.member not in survivors or not set(survivors) <= set(self.dealers):
            raise ProtocolViolation(
                SERVER_INDEX, "the survivors are not a subset of the dealers that holds this client"
            )
        fewest = bind.thresholds_of(context).survivors
        if len(survivors) < fewest:
            raise ProtocolViolation(
                SERVER_INDEX, f"asks to open the sum of {len(survivors)} clients; {fewest} is the least"
            )
        parts = bind.endorsement_parts(context, self.directory, self.dealers, survivors, incoming.total)
        endorsement = Endorsement(me.member, me.identity.sign("survivors", *parts))
        endorsed = Endorsed(self.directory, self.dealers, self.held, survivors, self.upload, incoming.total)
        return Transition(endorsed, endorsement)


@message("Endorsed")
@dataclass(frozen=True)
class Endorsed:
    """The client's state after signing a survivor set, while it waits for proof that enough others signed the same."""

    awaits: ClassVar[type] = Quorum
    directory: Digest
    dealers: Members
    held: Held
    survivors: Members
    upload: Digest
    total: Digest

    def advance(self, context: SessionContext, me: LocalParty, incoming: Quorum) -> Transition:
        """Check for enough signatures on this survivor set, then open one share of each dealer (protocol round 4).

        Signed tags of the client's own upload go with the shares. Raises LeftBehind if that upload is lost.
        """
        self._check(context, incoming)
        packed = me.upload()
        if hashlib.sha256(packed).digest() != self.upload:
            raise LeftBehind("the protected bytes are lost or damaged, so that nothing can be signed of them")
        (tags,) = tags_of(self._parts(context), [words_of(context, packed)])
        survivors, level = set(self.survivors), removed_level(context, self.survivors)
        opening = Opening(
            seed_shares=tuple(
                OpenedShare(each.dealer, each.seed_share) for each in self.held if each.dealer in survivors
            ),
            key_shares=tuple(
                OpenedShare(each.dealer, each.key_share) for each in self.held if each.dealer not in survivors
            ),
            tags=bind.sign_tags(me.identity, me.member, tags.tobytes(), self._parts(context)),
            noise_shares=tuple(
                OpenedShare(each.dealer, each.noise_shares[level - 1])
                for each in self.held
                if level is not None and each.dealer in survivors
            ),
        )
        return Transition(Opened(self.survivors), opening)

    def _parts(self, context: SessionContext) -> tuple[bytes, ...]:
        return bind.endorsement_parts(context, self.directory, self.dealers, self.survivors, self.total)

    def _check(self, context: SessionContext, quorum: Quorum) -> None:
        parts = self._parts(context)
        needed = bind.thresholds_of(context).signatures
        valid = 0
        for endorsement in quorum.endorsements:
            if endorsement.member not in self.survivors:
                raise ProtocolViolation(SERVER_INDEX, f"counts member {endorsement.member}, which did not survive")
            if not bind.endorsement_is_signed(context, endorsement, parts):
                raise ProtocolViolation(
                    SERVER_INDEX, f"shows a signature of member {endorsement.member} on another set"
                )
            valid += 1
            if valid == needed:
                return
        raise ProtocolViolation(SERVER_INDEX, f"shows {valid} of the {needed} signatures that an opening needs")


@message("Opened")
@dataclass(frozen=True)
class Opened:
    """The client's state after opening its shares, which it forgot, while it waits for the server's outcome message."""

    awaits: ClassVar[type] = Outcome
    survivors: Members

    def advance(self, context: SessionContext, me: LocalParty, incoming: Any) -> Transition:
        """Check that the outcome names the survivors for whom this client opened shares; the session is over."""
        if incoming.members != self.survivors:
            raise ProtocolViolation(SERVER_INDEX, "the outcome names other clients than those that were opened")
        return Transition(self)
