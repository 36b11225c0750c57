"""The server of the shared protection: it relays what aggregators sign and opens the sum, but never holds a share.

    GatheringKeys → GatheringSets → GatheringLists → GatheringSums → GatheringShares → SharedSum

It checks everything that it relays, so that what one aggregator does wrong is laid at that one's door.
"""

from __future__ import annotations

import logging
from typing import ClassVar, TypeVar

from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection.interface import CollectingStep, Outgoing, PackedVectors, ServerState, SessionContext
from secagg.protection.proven_bits import check_proofs
from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.aggregator import check_lists, intersect
from secagg.protection.sharing.context import SharedContext, fewest, sum_share_bytes
from secagg.protection.sharing.derivations import ACCEPTED, KEY, SUM, check_pledges, session_keys
from secagg.protection.sharing.messages import (
    AggregatorPledge,
    SessionKeys,
    SetLists,
    SetPledges,
    ShareManifest,
    SumPledges,
    SumShare,
)
from secagg.protection.sharing.release import SharedSum, check_sum_share, split_share

_log = logging.getLogger("secagg.server")
M = TypeVar("M")
Pledges = TypeVar("Pledges", bound=SessionKeys | SetPledges | SumPledges)


class _Gathering(CollectingStep[M]):
    """A server's step that takes one message of every aggregator; `lacking` names what a missing one did not do."""

    lacking: ClassVar[str]

    def __init__(self, context: SharedContext) -> None:
        self._context = context
        super().__init__(context.helpers)

    def _all(self) -> tuple[M, ...]:
        """Return the messages in order. Raises SessionAborted that names the missing aggregators."""
        found = self.messages
        if absent := [self._context.names[index] for index in self._context.helpers if index not in found]:
            raise SessionAborted(f"{', '.join(absent)} did not {self.lacking}")
        return tuple(found[index] for index in self._context.helpers)


class _GatheringPledges(_Gathering[Pledges]):
    """A server's step that takes one signed pledge of every aggregator."""

    step: ClassVar[str]

    def accept(self, member: int, incoming: Pledges) -> None:
        """Take the sender's own pledge alone. Raises Equivocated for a second, different one that it signed."""
        if (known := self.messages.get(member)) is not None:
            self._check_pledges(member, incoming.pledges, known.pledges)
        super().accept(member, incoming)

    def check(self, member: int, incoming: Pledges) -> None:
        self._check_pledges(member, incoming.pledges, ())

    def _check_pledges(
        self, member: int, pledges: tuple[AggregatorPledge, ...], known: tuple[AggregatorPledge, ...]
    ) -> None:
        own = (self._context.number_of(member),)
        check_pledges(self._context, self.step, pledges, member, of=own, known=known)

    def _pledges(self) -> tuple[AggregatorPledge, ...]:
        return tuple(pledge for message in self._all() for pledge in message.pledges)


class GatheringKeys(_GatheringPledges[SessionKeys]):
    """The server's step that collects the aggregators' session keys. Raises BadInput when no sum can ever be opened."""

    awaits: ClassVar[type] = SessionKeys
    is_joining: ClassVar[bool] = True
    lacking: ClassVar[str] = "publish a session key"
    step: ClassVar[str] = KEY

    def __init__(self, context: SessionContext) -> None:
        super().__init__(SharedContext.of(context))
        fewest(context)

    def _check_pledges(
        self, member: int, pledges: tuple[AggregatorPledge, ...], known: tuple[AggregatorPledge, ...]
    ) -> None:
        super()._check_pledges(member, pledges, known)
        others = [said.pledges[0] for other, said in self.messages.items() if other != member]
        session_keys(self._context, (*others, *pledges))

    def close(self) -> tuple[ServerState, Outgoing]:
        """Send all parties the session keys: clients may upload now, and the aggregators' time for uploads begins."""
        keys = SessionKeys(self._pledges())
        return _GatheringSets(self._context), dict.fromkeys((*self._context.clients, *self._context.helpers), keys)


class _GatheringSets(_GatheringPledges[SetPledges]):
    """The server's step that takes commitments to accepted sets, once each aggregator has stopped taking uploads."""

    awaits: ClassVar[type] = SetPledges
    is_joining: ClassVar[bool] = True
    lacking: ClassVar[str] = "commit to what it accepted"
    step: ClassVar[str] = ACCEPTED

    def close(self) -> tuple[ServerState, Outgoing]:
        pledges = self._pledges()
        return _GatheringLists(self._context, pledges), dict.fromkeys(self._context.helpers, SetPledges(pledges))


class _GatheringLists(_Gathering[SetLists]):
    """The server's step that takes the lists behind the commitments."""

    awaits: ClassVar[type] = SetLists
    lacking: ClassVar[str] = "reveal what it accepted"

    def __init__(self, context: SharedContext, pledges: tuple[AggregatorPledge, ...]) -> None:
        super().__init__(context)
        self._pledges = pledges

    def check(self, member: int, incoming: SetLists) -> None:
        context = self._context
        own = (context.number_of(member),)
        check_lists(context, self._pledges, incoming.lists, member, of=own)

    def close(self) -> tuple[ServerState, Outgoing]:
        """Agree on the set as every aggregator does, and send the lists to all, who can compare them with receipts."""
        context = self._context
        lists = tuple(shown for message in self._all() for shown in message.lists)
        manifests, conflicts = intersect(context, lists)
        for each in conflicts:
            name = context.names[each.one.client]
            _log.warning("%s signed two different uploads; the aggregators' lists hold both, and it is left out", name)
        following = _GatheringSums(context, manifests)
        return following, dict.fromkeys((*context.helpers, *context.clients), SetLists(lists))


class _GatheringSums(_GatheringPledges[SumPledges]):
    """The server's step that takes the commitments to the sum shares over the agreed set."""

    awaits: ClassVar[type] = SumPledges
    lacking: ClassVar[str] = "commit to its sum share"
    step: ClassVar[str] = SUM

    def __init__(self, context: SharedContext, manifests: tuple[ShareManifest, ...]) -> None:
        super().__init__(context)
        self._manifests = manifests

    def close(self) -> tuple[ServerState, Outgoing]:
        pledges = self._pledges()
        following = _GatheringShares(self._context, self._manifests, pledges)
        return following, dict.fromkeys(self._context.helpers, SumPledges(pledges))


class _GatheringShares(_Gathering[SumShare], PackedVectors[SumShare]):
    """The server's step that takes the sum shares, each with the commitments that its aggregator has seen."""

    awaits: ClassVar[type] = SumShare
    lacking: ClassVar[str] = "reveal its sum share"

    def __init__(
        self, context: SharedContext, manifests: tuple[ShareManifest, ...], pledges: tuple[AggregatorPledge, ...]
    ) -> None:
        super().__init__(context)
        self._manifests = manifests
        self._members = tuple(manifest.client for manifest in manifests)
        self._agreed = bind.set_digest(context, manifests)
        self._pledges = pledges

    def vector_bytes(self, member: int) -> int:
        return sum_share_bytes(self._context, self._context.number_of(member), len(self._members))

    def check(self, member: int, incoming: SumShare) -> None:
        if incoming.length != (size := self.vector_bytes(member)):
            raise ProtocolViolation(member, f"its sum share has {incoming.length} bytes, not {size}")
        check_sum_share(self._context, member, incoming, self._agreed, self._pledges, member)

    def inspect(self, member: int, vector: bytes) -> None:
        """Accept any vector. Raises ProtocolViolation, blaming the first aggregator, for census entries not proven."""
        for client, proofs in split_share(self._context, self._members, member, vector).proofs.items():
            check_proofs(self._context, client, proofs, member)

    def close(self) -> tuple[SharedSum, Outgoing]:
        """End the collection: the sum shares add up to the members' vectors, with the noise that they hold."""
        self._all()
        return SharedSum(self._members, tuple(self._context.helpers), self._manifests), {}
