"""From opened shares to the unmasked sum. Pure; the server and `secagg verify` run the same code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from secagg.crypto.agreement import AgreementKey, WeakPublicKey
from secagg.crypto.sharing import SharesInconsistent, combine
from secagg.crypto.stream import MaskStream
from secagg.encoding import Integers, Residues
from secagg.errors import ProtocolViolation
from secagg.protection.interface import SessionContext
from secagg.protection.masking import derivations as bind
from secagg.protection.masking.graph import NeighbourGraph
from secagg.protection.masking.messages import Dealing, Directory, Opening


class Dealt:
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
        dealt: Dealt,
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
            if not bind.same(computed, self._dealt.seed(dealer, holder)):
                raise ProtocolViolation(holder, f"opened a wrong share of member {dealer}'s seed")
        for dealer, share in keys.items():
            computed = bind.share_hash("key", share, dealer, holder, self._binding)
            if not bind.same(computed, self._dealt.key(dealer, holder)):
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
        if not bind.same(bind.seed_commitment(seed, dealer, self._context), self._entries[dealer].seed_commitment):
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
