"""The server of the masked protocol: one class for each step it collects.

    AwaitingKeys → AwaitingDealings → AwaitingUploads → AwaitingEndorsements → AwaitingOpenings → MaskedSum

The server checks everything that it relays, so that what one client does wrong is laid at that client's door
and does not stop the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from secagg.crypto.agreement import AgreementKey, WeakPublicKey, is_usable
from secagg.crypto.sharing import SharesInconsistent, combine
from secagg.crypto.stream import MaskStream
from secagg.encoding import Integers, Residues
from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection.interface import CollectingStep, PackedVectors, ServerState, SessionContext, SumToOpen
from secagg.protection.masking import derivations as bind
from secagg.protection.masking.messages import (
    Dealing,
    Directory,
    Endorsement,
    Inbox,
    KeyAdvertisement,
    Opening,
    Quorum,
    SealedShare,
    Survivors,
)
from secagg.protection.masking.quorum import NeighbourGraph
from secagg.protection.messages import UploadHeader


class DealtShares:
    """The shares that U2, the `dealers`, dealt over the graph of a directory: what each signed about every one.

    That is (dealer, holder) → (seed hash, key hash).
    """

    def __init__(self, directory: Directory, graph: NeighbourGraph, dealings: Mapping[int, Dealing]) -> None:
        self.directory = directory
        self.graph = graph
        self.dealers = tuple(sorted(dealings))
        self._hashes: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        for dealer, dealing in dealings.items():
            self._hashes[dealer, dealer] = (dealing.own_seed_hash, dealing.own_key_hash)
            for envelope in dealing.shares:
                self._hashes[dealer, envelope.holder] = (envelope.seed_hash, envelope.key_hash)

    def near(self, holder: int) -> tuple[int, ...]:
        """The dealers of which a client holds a share, itself among them."""
        return tuple(dealer for dealer in self.graph.holders(holder) if (dealer, dealer) in self._hashes)

    def seed(self, dealer: int, holder: int) -> bytes:
        """Hash of the share of the self-mask seed."""
        return self._hashes[dealer, holder][0]

    def key(self, dealer: int, holder: int) -> bytes:
        """Hash of the share of the mask key."""
        return self._hashes[dealer, holder][1]


class OpenedShares:
    """The shares that survivors open: seeds of survivors, mask keys of the dropped, never both of one dealer."""

    def __init__(
        self,
        context: SessionContext,
        dealt: DealtShares,
        survivors: tuple[int, ...],
        missing: Mapping[int, tuple[int, ...]],
    ) -> None:
        self._context = context
        self._dealt = dealt
        self._digest = dealt.directory.digest
        self._binding = bind.session_binding(context, self._digest)
        self.survivors = survivors
        self._missing = missing
        self._threshold = bind.thresholds_of(context).shares
        self._entries = {entry.member: entry for entry in dealt.directory.entries}
        alive = set(survivors)
        # A dropped client's mask key matters only to the survivors that masked with it.
        self._needed = tuple(
            dealer for dealer in dealt.dealers if dealer in alive or alive.intersection(dealt.graph.holders(dealer))
        )
        self._shares: dict[int, dict[int, bytes]] = {dealer: {} for dealer in self._needed}

    def endorsement_parts(self) -> tuple[bytes, ...]:
        """The parts that clients sign at the consistency step."""
        return bind.endorsement_parts(self._context, self._digest, self._dealt.dealers, self.survivors)

    def add(self, holder: int, opening: Opening) -> None:
        """Check one client's opening against the dealers' signed hashes. Raises ProtocolViolation (the holder)."""
        owed = [dealer for dealer in self._dealt.near(holder) if dealer not in self._missing[holder]]
        alive = set(self.survivors)
        seeds = {opened.dealer: opened.share for opened in opening.seed_shares}
        keys = {opened.dealer: opened.share for opened in opening.key_shares}
        if set(seeds) != {dealer for dealer in owed if dealer in alive} or set(keys) != set(owed) - alive:
            raise ProtocolViolation(holder, "did not open exactly one share for every dealer that it holds shares of")
        for dealer, share in seeds.items():
            computed = bind.share_hash("seed", share, dealer, holder, self._binding)
            if not bind.is_equal(computed, self._dealt.seed(dealer, holder)):
                raise ProtocolViolation(holder, f"opened a wrong share of member {dealer}'s seed")
        for dealer, share in keys.items():
            computed = bind.share_hash("key", share, dealer, holder, self._binding)
            if not bind.is_equal(computed, self._dealt.key(dealer, holder)):
                raise ProtocolViolation(holder, f"opened a wrong share of member {dealer}'s mask key")
        for dealer, share in (seeds | keys).items():
            self._shares[dealer][holder] = share

    def lacking(self) -> tuple[str, ...]:
        """Names of the dealers whose secret cannot be recovered yet."""
        return tuple(
            self._context.names[dealer] for dealer, shares in self._shares.items() if len(shares) < self._threshold
        )

    def recover(self) -> tuple[Mask, ...]:
        """The masks that stand in the survivors' sum. Raises ProtocolViolation naming a dealer of wrong shares."""
        masks: list[Mask] = []
        alive = set(self.survivors)
        for dealer in self._needed:
            chosen = dict(sorted(self._shares[dealer].items())[: self._threshold])
            try:
                secret = combine(chosen)
            except SharesInconsistent:
                raise ProtocolViolation(dealer, "dealt shares of no secret") from None
            masks.extend(self._self_mask(dealer, secret) if dealer in alive else self._pairwise_masks(dealer, secret))
        return tuple(masks)

    def _self_mask(self, dealer: int, seed: bytes) -> Iterator[Mask]:
        if not bind.is_equal(bind.seed_commitment(seed, dealer, self._context), self._entries[dealer].seed_commitment):
            raise ProtocolViolation(dealer, "dealt shares of another seed than it committed to")
        yield Mask(bind.self_mask_key(seed, dealer, self._binding), -1)

    def _pairwise_masks(self, dealer: int, key: bytes) -> Iterator[Mask]:
        secret = AgreementKey.from_bytes(key)
        if secret.public != self._entries[dealer].mask_key:
            raise ProtocolViolation(dealer, "dealt shares of another mask key than it advertised")
        near = self._dealt.graph.holders(dealer)
        for survivor in self.survivors:
            if survivor in near:
                try:
                    mask = bind.pairwise_key(secret, dealer, survivor, self._entries[survivor].mask_key, self._binding)
                except WeakPublicKey:
                    raise ProtocolViolation(survivor, "advertised a key of small order") from None
                yield Mask(mask, -1 if survivor < dealer else 1)


@dataclass(frozen=True)
class Mask:
    """One keystream to add to the sum (sign 1) or to subtract from it (−1)."""

    key: bytes = field(repr=False)
    sign: int


@dataclass(frozen=True)
class MaskedSum:
    """The survivors, and the masks that their sum still carries."""

    members: tuple[int, ...]
    masks: tuple[Mask, ...] = field(repr=False)

    @property
    def vectors(self) -> tuple[int, ...]:
        """The members' own."""
        return self.members

    def open(self, context: SessionContext, total: Residues) -> Integers:
        """Take the masks off `total` (in place) and return the signed integers of the sum."""
        stream = MaskStream()
        for mask in self.masks:
            stream.apply(total, mask.key, 1 if mask.sign == 1 else -1)
        return context.ring.decode(total)


class AwaitingKeys(CollectingStep):
    """Round 0: U1 gathers."""

    awaits: ClassVar[type] = KeyAdvertisement
    is_joining: ClassVar[bool] = True

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        super().__init__(context.clients)
        self.enough = bind.thresholds_of(context).signatures

    def check(self, member: int, incoming: KeyAdvertisement) -> None:
        """Take signed, fresh keys of their owner."""
        if incoming.member != member or not bind.advertisement_is_signed(self._context, incoming):
            raise ProtocolViolation(member, "its keys are not signed by its identity")
        if not (is_usable(incoming.channel_key) and is_usable(incoming.mask_key)):
            raise ProtocolViolation(member, "advertised a key of small order or not canonical")
        own = {incoming.channel_key, incoming.mask_key}
        others = self.messages.values()
        if len(own) == 1 or any(own & {entry.channel_key, entry.mask_key} for entry in others):
            raise ProtocolViolation(member, "advertised a key twice")

    def close(self) -> tuple[ServerState, Mapping[int, Any]]:
        """Fix U1 and show everyone the directory."""
        members = at_least(self.enough, self.members, self._context, "joined")
        directory = Directory(tuple(self.messages[member] for member in members))
        return AwaitingDealings(self._context, directory), dict.fromkeys(members, directory)


class AwaitingDealings(CollectingStep):
    """Round 1: every client of U1 deals its shares."""

    awaits: ClassVar[type] = Dealing

    def __init__(self, context: SessionContext, directory: Directory) -> None:
        self._context = context
        self._directory = directory
        self._digest = directory.digest
        self._binding = bind.session_binding(context, self._digest)
        self._graph = NeighbourGraph(directory.members, self._digest, bind.thresholds_of(context))
        super().__init__(directory.members)
        self.enough = bind.thresholds_of(context).signatures

    def check(self, member: int, incoming: Dealing) -> None:
        """Take one signed envelope for every other holder of the neighbourhood."""
        identity = self._context.identities[member]
        others = tuple(holder for holder in self._graph.holders(member) if holder != member)
        if tuple(envelope.holder for envelope in incoming.shares) != others:
            raise ProtocolViolation(member, "did not deal exactly one share to each neighbour")
        for envelope in incoming.shares:
            signed = bind.sealed_share_is_signed(identity, self._binding, envelope)
            if envelope.dealer != member or not signed:
                raise ProtocolViolation(member, f"dealt an unsigned share to member {envelope.holder}")
        if not bind.own_share_is_signed(identity, self._binding, member, incoming):
            raise ProtocolViolation(member, "did not sign the share that it keeps")

    def close(self) -> tuple[ServerState, Mapping[int, Any]]:
        """Fix U2 and give each of its clients the envelopes addressed to it."""
        dealers = at_least(self.enough, self.members, self._context, "dealt shares")
        inboxes: dict[int, list[SealedShare]] = {dealer: [] for dealer in dealers}
        for dealer in dealers:
            for envelope in self.messages[dealer].shares:
                if envelope.holder in inboxes:
                    inboxes[envelope.holder].append(envelope)
        following = AwaitingUploads(self._context, DealtShares(self._directory, self._graph, self.messages))
        return following, {holder: Inbox(dealers, tuple(shares)) for holder, shares in inboxes.items()}


class AwaitingUploads(PackedVectors, CollectingStep):
    """Round 2: masked vectors, whose length and digest the party has checked; closing it decides who survived."""

    awaits: ClassVar[type] = UploadHeader

    def __init__(self, context: SessionContext, dealt: DealtShares) -> None:
        self._context = context
        self._dealt = dealt
        self._masked_for = dealt.directory.digest, bind.members_digest(dealt.dealers)
        super().__init__(dealt.dealers)
        self.enough = bind.thresholds_of(context).survivors

    def check(self, member: int, incoming: UploadHeader) -> None:
        """Take an upload that was masked for this directory and this U2."""
        if incoming.length != self._context.packed_bytes:
            raise ProtocolViolation(member, f"uploads {incoming.length} bytes, not {self._context.packed_bytes}")
        if not set(incoming.complaints) <= set(self._dealt.near(member)) - {member}:
            raise ProtocolViolation(member, "complains about members that dealt it no share")
        if (incoming.directory, incoming.dealers) != self._masked_for:
            raise ProtocolViolation(member, "masked its vector for another directory or other dealers")

    def close(self) -> tuple[ServerState, Mapping[int, Any]]:
        """Decide who survived (U3), once and for ever."""
        survivors = at_least(self.enough, self.members, self._context, "uploaded")
        missing = {member: self.messages[member].complaints for member in survivors}
        shares = OpenedShares(self._context, self._dealt, survivors, missing)
        return AwaitingEndorsements(self._context, shares), dict.fromkeys(survivors, Survivors(survivors))


class AwaitingEndorsements(CollectingStep):
    """Round 3: the consistency check. It is complete with t signatures; more change nothing."""

    awaits: ClassVar[type] = Endorsement

    def __init__(self, context: SessionContext, shares: OpenedShares) -> None:
        self._context = context
        self._shares = shares
        self._parts = shares.endorsement_parts()
        super().__init__(shares.survivors)
        self.enough = bind.thresholds_of(context).signatures

    def check(self, member: int, incoming: Endorsement) -> None:
        """Take a valid signature on U3."""
        if incoming.member != member or not bind.endorsement_is_signed(self._context, incoming, self._parts):
            raise ProtocolViolation(member, "did not sign the survivor set that it was shown")

    @property
    def complete(self) -> bool:
        """Whether t clients have signed."""
        return len(self.messages) >= self.enough

    def close(self) -> tuple[ServerState, Mapping[int, Any]]:
        """Show every survivor the signatures."""
        members = at_least(self.enough, self.members, self._context, "signed the survivor set")
        quorum = Quorum(tuple(self.messages[member] for member in members[: self.enough]))
        return AwaitingOpenings(self._context, self._shares), dict.fromkeys(self._shares.survivors, quorum)


class AwaitingOpenings(CollectingStep):
    """Round 4: shares. It is complete when every secret can be recovered."""

    awaits: ClassVar[type] = Opening

    def __init__(self, context: SessionContext, shares: OpenedShares) -> None:
        self._shares = shares
        super().__init__(shares.survivors)
        self.enough = bind.thresholds_of(context).shares

    def check(self, member: int, incoming: Opening) -> None:
        """Take shares that are exactly what their dealers signed; a wrong one names its holder."""
        self._shares.add(member, incoming)

    @property
    def complete(self) -> bool:
        """Whether every dealer's secret has enough shares."""
        return not self._shares.lacking()

    @property
    def is_short(self) -> bool:
        """Whether a dealer's secret lacks shares."""
        return not self.complete

    def close(self) -> tuple[SumToOpen, Mapping[int, Any]]:
        """Recover the secrets. Raises SessionAborted when shares are lacking, ProtocolViolation for a bad dealer."""
        if lacking := self._shares.lacking():
            raise SessionAborted(f"too few shares are left to unmask {', '.join(lacking)}")
        return MaskedSum(self._shares.survivors, self._shares.recover()), {}


def at_least(enough: int, members: tuple[int, ...], context: SessionContext, done: str) -> tuple[int, ...]:
    """`members`, or SessionAborted when there are fewer than `enough`."""
    if len(members) < enough:
        raise SessionAborted(
            f"only {len(members)} of {len(context.clients)} clients {done}; at least {enough} are needed"
        )
    return members
