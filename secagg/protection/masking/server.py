"""The server of the masked protection, with one class for each step that collects clients' messages.

    AwaitingKeys → AwaitingDealings → AwaitingUploads → UploadsToAdd → AwaitingEndorsements → AwaitingOpenings
        → MaskedSum

The server checks everything that it relays, so that what one client does wrong is laid at that client's door
and does not stop the others.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import ClassVar

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.agreement import is_usable
from secagg.crypto.envelopes import is_envelope_key
from secagg.crypto.sharing import SharesInconsistent, combine
from secagg.crypto.signatures import SigningKey
from secagg.errors import BadInput, ProtocolViolation, SessionAborted
from secagg.protection.interface import (
    CollectingStep,
    Outgoing,
    PackedVectors,
    ServerState,
    SessionContext,
    SumToDeclare,
    SumToOpen,
)
from secagg.protection.masking import derivations as bind
from secagg.protection.masking.messages import (
    Dealing,
    Directory,
    Endorsement,
    Inbox,
    KeyAdvertisement,
    OpenedSecret,
    Opening,
    Quorum,
    SealedShare,
    Survivors,
    UploadTags,
)
from secagg.protection.masking.quorum import NeighbourGraph
from secagg.protection.masking.removal import NoiseKey
from secagg.protection.masking.tags import Words, no_words, pack_total, words_of
from secagg.protection.masking.unmasking import Mask, MaskedSum, SummedUploads
from secagg.protection.messages import UploadHeader
from secagg.protection.proven_bits import check_proofs


class _DealtShares:
    """The shares that the `dealers` (U2) dealt over a directory's graph, by the hashes that each dealer signed.

    `hashes`: (dealer, holder) → hashes of the shares of self-mask seed, mask key, and noise seeds by level.
    """

    def __init__(self, directory: Directory, graph: NeighbourGraph, dealings: Mapping[int, Dealing]) -> None:
        self.directory = directory
        self.graph = graph
        self.dealers = tuple(sorted(dealings))
        self.hashes: dict[tuple[int, int], tuple[bytes, ...]] = {}
        for dealer, dealing in dealings.items():
            self.hashes[dealer, dealer] = (dealing.own_seed_hash, dealing.own_key_hash, *dealing.own_noise_hashes)
            for envelope in dealing.shares:
                self.hashes[dealer, envelope.holder] = (envelope.seed_hash, envelope.key_hash, *envelope.noise_hashes)

    def near(self, holder: int) -> tuple[int, ...]:
        """Return the dealers of which a client holds a share, itself among them."""
        return tuple(dealer for dealer in self.graph.holders(holder) if (dealer, dealer) in self.hashes)


class _OpenedShares:
    """The shares that survivors opened: seeds of survivors, mask keys of the dropped, never both of one dealer.

    Of survivors' noise seeds too, of the one level that is removed.
    """

    def __init__(
        self,
        context: SessionContext,
        dealt: _DealtShares,
        survivors: tuple[int, ...],
        missing: Mapping[int, tuple[int, ...]],
        digest: bytes,
        total: Words | None,
    ) -> None:
        self._context = context
        self._dealt = dealt
        self._total = total
        self._binding = bind.session_binding(context, dealt.directory.digest)
        self._summed = SummedUploads(context, dealt.directory, dealt.dealers, survivors)
        self.survivors = survivors
        self.parts = self._summed.endorsement_parts(digest)
        self._missing = missing
        self._threshold = bind.thresholds_of(context).shares
        self._shares: dict[int, dict[int, bytes]] = {dealer: {} for dealer in self._summed.needed}
        self._level = self._summed.removed_level
        self._noise: dict[int, dict[int, bytes]] = {dealer: {} for dealer in survivors if self._level is not None}
        self._tags: dict[int, UploadTags] = {}

    def add(self, holder: int, opening: Opening) -> None:
        """Add one client's opening if it fits the dealers' signed hashes. Raises ProtocolViolation (the holder)."""
        owed = [dealer for dealer in self._dealt.near(holder) if dealer not in self._missing[holder]]
        alive = set(self.survivors)
        seeds = {opened.dealer: opened.share for opened in opening.seed_shares}
        keys = {opened.dealer: opened.share for opened in opening.key_shares}
        noise = {opened.dealer: opened.share for opened in opening.noise_shares}
        if set(seeds) != {dealer for dealer in owed if dealer in alive} or set(keys) != set(owed) - alive:
            raise ProtocolViolation(holder, "did not open exactly one share for every dealer that it holds shares of")
        if set(noise) != (set(seeds) if self._level is not None else set()):
            raise ProtocolViolation(holder, "did not open exactly the shares of noise seeds that the sum asks for")
        kinds = [(0, "seed", seeds), (1, "mask key", keys)]
        if self._level is not None:
            kinds.append((1 + self._level, "noise seed", noise))
        for place, named, opened_shares in kinds:
            for dealer, share in opened_shares.items():
                computed = bind.share_hash(bind.SHARINGS[place], share, dealer, holder, self._binding)
                if not hmac.compare_digest(computed, self._dealt.hashes[dealer, holder][place]):
                    raise ProtocolViolation(holder, f"opened a wrong share of member {dealer}'s {named}")
        if opening.tags.member != holder or not bind.tags_are_signed(self._context, opening.tags, self.parts):
            raise ProtocolViolation(holder, "did not sign the tags of its upload for this sum")
        for dealer, share in (seeds | keys).items():
            self._shares[dealer][holder] = share
        for dealer, share in noise.items():
            self._noise[dealer][holder] = share
        self._tags[holder] = opening.tags

    def lacking(self) -> tuple[str, ...]:
        """Return the names of the dealers whose secret cannot be recovered yet."""
        short = (dealer for dealer, shares in self._shares.items() if len(shares) < self._threshold)
        return tuple(self._context.names[dealer] for dealer in short)

    def recover(self) -> MaskedSum:
        """Return the sum with the masks in it. Raises ProtocolViolation (culprit: a dealer of wrong shares)."""
        masks, secrets, seeds, noise = list[Mask](), list[OpenedSecret](), list[OpenedSecret](), list[NoiseKey]()
        for dealer, shares in self._shares.items():
            secret = self._combine(dealer, shares)
            if not self._summed.is_secret_of(dealer, secret):
                kind = "seed than it committed to" if dealer in self.survivors else "mask key than it advertised"
                raise ProtocolViolation(dealer, f"dealt shares of another {kind}")
            masks.extend(self._summed.masks(dealer, secret))
            secrets.append(OpenedSecret(dealer, secret))
        for dealer, shares in self._noise.items():
            seed = self._combine(dealer, shares)
            if not self._summed.is_noise_seed_of(dealer, seed):
                raise ProtocolViolation(dealer, "dealt shares of another noise seed than it committed to")
            noise.extend(self._summed.noise(dealer, seed))
            seeds.append(OpenedSecret(dealer, seed))
        tags = tuple(self._tags[member] for member in sorted(self._tags))
        found = tuple(masks), tuple(secrets), tags, self.parts, tuple(noise), tuple(seeds), self._total
        return MaskedSum(self.survivors, *found)

    def _combine(self, dealer: int, shares: Mapping[int, bytes]) -> bytes:
        """Return a dealer's secret from enough opened shares, by holder. Raises ProtocolViolation (the dealer)."""
        try:
            return combine(dict(sorted(shares.items())[: self._threshold]))
        except SharesInconsistent:
            raise ProtocolViolation(dealer, "dealt shares of no secret") from None


class AwaitingKeys(CollectingStep[KeyAdvertisement]):
    """The server's first step (protocol round 0), in which clients join by publishing their session keys."""

    awaits: ClassVar[type] = KeyAdvertisement
    is_joining: ClassVar[bool] = True

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        super().__init__(context.clients, bind.thresholds_of(context).survivors)

    def check(self, member: int, incoming: KeyAdvertisement) -> None:
        if incoming.member != member or not bind.advertisement_is_signed(self._context, incoming):
            raise ProtocolViolation(member, "its keys are not signed by its identity")
        if not (is_envelope_key(incoming.channel_key) and is_usable(incoming.mask_key)):
            raise ProtocolViolation(member, "advertised a key of small order or not canonical")
        own = {incoming.channel_key, incoming.mask_key}
        if any(own & {entry.channel_key, entry.mask_key} for entry in self.messages.values()):
            raise ProtocolViolation(member, "advertised a key twice")
        if len(incoming.noise_commitments) != len(self._context.removable):
            raise ProtocolViolation(member, "commits to other noise seeds than the plan's noise levels")

    def close(self) -> tuple[ServerState, Outgoing]:
        """Fix the clients that joined (the set U1) and send them the directory of their keys. Raises SessionAborted."""
        members = at_least(self.enough, self.members, self._context, "joined")
        directory = Directory(tuple(self.messages[member] for member in members))
        return _AwaitingDealings(self._context, directory), dict.fromkeys(members, directory)


class _AwaitingDealings(CollectingStep[Dealing]):
    """The server's step of round 1: every client of U1 deals its shares."""

    awaits: ClassVar[type] = Dealing

    def __init__(self, context: SessionContext, directory: Directory) -> None:
        self._context = context
        super().__init__(directory.members, bind.thresholds_of(context).survivors)
        self._directory = directory
        self._binding = bind.session_binding(context, directory.digest)
        self._graph = NeighbourGraph(directory.members, directory.digest, bind.thresholds_of(context))

    def check(self, member: int, incoming: Dealing) -> None:
        identity = self._context.identities[member]
        others = tuple(holder for holder in self._graph.holders(member) if holder != member)
        if tuple(envelope.holder for envelope in incoming.shares) != others:
            raise ProtocolViolation(member, "did not deal exactly one share to each neighbour")
        for envelope in incoming.shares:
            signed = bind.sealed_share_is_signed(identity, self._binding, envelope)
            if envelope.dealer != member or not signed:
                raise ProtocolViolation(member, f"dealt an unsigned share to member {envelope.holder}")
        for hashes in (incoming.own_noise_hashes, *(each.noise_hashes for each in incoming.shares)):
            if len(hashes) != len(self._context.removable):
                raise ProtocolViolation(member, "dealt shares of other noise seeds than the plan's noise levels")
        if not bind.own_share_is_signed(identity, self._binding, member, incoming):
            raise ProtocolViolation(member, "did not sign the share that it keeps")

    def close(self) -> tuple[ServerState, Outgoing]:
        """Fix U2 and give each of its clients the envelopes addressed to it."""
        dealers = at_least(self.enough, self.members, self._context, "dealt shares")
        inboxes: dict[int, list[SealedShare]] = {dealer: [] for dealer in dealers}
        for dealer in dealers:
            for envelope in self.messages[dealer].shares:
                if envelope.holder in inboxes:
                    inboxes[envelope.holder].append(envelope)
        following = _AwaitingUploads(self._context, _DealtShares(self._directory, self._graph, self.messages))
        return following, {holder: Inbox(dealers, tuple(shares)) for holder, shares in inboxes.items()}


class _AwaitingUploads(PackedVectors[UploadHeader]):
    """The server's step of round 2: it collects masked vectors, checked for length and digest, and ends with U3."""

    awaits: ClassVar[type] = UploadHeader

    def __init__(self, context: SessionContext, dealt: _DealtShares) -> None:
        self._context = context
        super().__init__(dealt.dealers, bind.thresholds_of(context).survivors)
        self._dealt = dealt
        self._masked_for = dealt.directory.digest, bind.members_digest(dealt.dealers)

    def check(self, member: int, incoming: UploadHeader) -> None:
        if incoming.length != (size := self.vector_bytes(member)):
            raise ProtocolViolation(member, f"uploads {incoming.length} bytes, not {size}")
        if not set(incoming.complaints) <= set(self._dealt.near(member)) - {member}:
            raise ProtocolViolation(member, "complains about members that dealt it no share")
        if (incoming.directory, incoming.dealers) != self._masked_for:
            raise ProtocolViolation(member, "masked its vector for another directory or other dealers")

    def inspect(self, member: int, vector: bytes) -> None:
        """Accept any vector of the right length. Raises ProtocolViolation for a census entry that is not proven."""
        check_proofs(self._context, member, vector[self._context.packed_bytes :], member)

    def close(self) -> tuple[SumToDeclare, Outgoing]:
        """Decide who survived (U3), once and for ever."""
        survivors = at_least(self.enough, self.members, self._context, "uploaded")
        missing = {member: self.messages[member].complaints for member in survivors}
        return _UploadsToAdd(self._context, self._dealt, missing), {}


class _UploadsToAdd:
    """The server's step between rounds 2 and 3: it adds the survivors' uploads and names them with their sum."""

    requests: ClassVar[type] = Survivors

    def __init__(self, context: SessionContext, dealt: _DealtShares, missing: Mapping[int, tuple[int, ...]]) -> None:
        self._context = context
        self._dealt = dealt
        self._missing = missing
        self._lacking = set(missing)
        self._total = no_words(context)

    @property
    def vectors(self) -> tuple[int, ...]:
        return tuple(self._missing)

    def add(self, member: int, vector: bytes) -> None:
        if member in self._lacking:
            self._total += words_of(self._context, vector)
            self._lacking.remove(member)

    def request(self, identity: SigningKey) -> Survivors:
        """Return the survivors with the digest of their uploads' sum. Raises BadInput if an upload is lacking."""
        if self._lacking:
            names = ", ".join(self._context.names[member] for member in sorted(self._lacking))
            raise BadInput(f"the sum lacks the uploads of {names}")
        return Survivors(self.vectors, hashlib.sha256(pack_total(self._context, self._total)).digest())

    def is_sum(self, request: Survivors) -> bool:
        return request.total == hashlib.sha256(pack_total(self._context, self._total)).digest()

    def requested(self, request: Survivors) -> tuple[ServerState, Outgoing]:
        """Show the survivors to all of them. Raises ProtocolViolation (the server) for others than uploaded."""
        if request.members != self.vectors:
            raise ProtocolViolation(SERVER_INDEX, "names other survivors than those whose uploads it took")
        total = None if self._lacking else self._total
        shares = _OpenedShares(self._context, self._dealt, request.members, self._missing, request.total, total)
        return _AwaitingEndorsements(self._context, shares), dict.fromkeys(request.members, request)


class _AwaitingEndorsements(CollectingStep[Endorsement]):
    """The server's step of round 3, the consistency check. It is complete with t signatures; more change nothing."""

    awaits: ClassVar[type] = Endorsement

    def __init__(self, context: SessionContext, shares: _OpenedShares) -> None:
        self._context = context
        super().__init__(shares.survivors, bind.thresholds_of(context).signatures)
        self._shares = shares

    def check(self, member: int, incoming: Endorsement) -> None:
        if incoming.member != member or not bind.endorsement_is_signed(self._context, incoming, self._shares.parts):
            raise ProtocolViolation(member, "did not sign the survivor set that it was shown")

    @property
    def complete(self) -> bool:
        return len(self.messages) >= self.enough

    def close(self) -> tuple[ServerState, Outgoing]:
        members = at_least(self.enough, self.members, self._context, "signed the survivor set")
        quorum = Quorum(tuple(self.messages[member] for member in members[: self.enough]))
        return _AwaitingOpenings(self._context, self._shares), dict.fromkeys(self._shares.survivors, quorum)


class _AwaitingOpenings(CollectingStep[Opening]):
    """The server's step of round 4: it collects opened shares, enough of them to recover every secret, and all tags."""

    awaits: ClassVar[type] = Opening

    def __init__(self, context: SessionContext, shares: _OpenedShares) -> None:
        super().__init__(shares.survivors, bind.thresholds_of(context).shares)
        self._shares = shares

    def check(self, member: int, incoming: Opening) -> None:
        self._shares.add(member, incoming)

    @property
    def is_short(self) -> bool:
        return bool(self._shares.lacking())

    def close(self) -> tuple[SumToOpen, Outgoing]:
        """Recover the secrets. Raises SessionAborted when shares are lacking, ProtocolViolation for a bad dealer."""
        if lacking := self._shares.lacking():
            raise SessionAborted(f"too few shares are left to unmask {', '.join(lacking)}")
        return self._shares.recover(), {}


def at_least(enough: int, members: tuple[int, ...], context: SessionContext, done: str) -> tuple[int, ...]:
    """Return `members`. Raises SessionAborted, with `done` in its text, when they are fewer than `enough`."""
    if len(members) < enough:
        few = f"only {len(members)} of {len(context.clients)} clients {done}"
        raise SessionAborted(f"{few}; at least {enough} are needed")
    return members
