"""The server of the shared protection: it relays what the aggregators sign, and opens the sum. It never holds a share.

    GatheringKeys → GatheringSets → GatheringLists → GatheringSums → GatheringShares → VectorSum

It checks everything that it relays, so that what one aggregator does wrong is laid at that one's door.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection.interface import CollectingStep, PackedVectors, ServerState, SessionContext, VectorSum
from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.aggregator import check_lists, intersect
from secagg.protection.sharing.context import SharedContext, fewest
from secagg.protection.sharing.derivations import ACCEPTED, KEY, SUM, check_pledges, session_keys
from secagg.protection.sharing.messages import (
    AggregatorPledge,
    SessionKeys,
    SetLists,
    SetPledges,
    SumPledges,
    SumShare,
)


class _Gathering(CollectingStep):
    """One message of every aggregator; `lacking` is what one that is missing did not do."""

    lacking: ClassVar[str]

    def __init__(self, context: SharedContext) -> None:
        self._context = context
        super().__init__(context.helpers)

    def _all(self) -> tuple[Any, ...]:
        """The messages in order. Raises SessionAborted that names who is missing."""
        found = self.messages
        if absent := [self._context.names[index] for index in self._context.helpers if index not in found]:
            raise SessionAborted(f"{', '.join(absent)} did not {self.lacking}")
        return tuple(found[index] for index in self._context.helpers)


class _GatheringPledges(_Gathering):
    """One signed pledge of every aggregator for one step."""

    step: ClassVar[str]

    def accept(self, member: int, incoming: Any) -> None:
        """Take the sender's own pledge alone. Raises Equivocated for a second, different one that it signed too."""
        if (known := self.messages.get(member)) is not None:
            self._check_pledges(member, incoming.pledges, known.pledges)
        super().accept(member, incoming)

    def check(self, member: int, incoming: Any) -> None:
        """Refuse what is not the sender's pledge for this step. Raises ProtocolViolation."""
        self._check_pledges(member, incoming.pledges, ())

    def _check_pledges(
        self, member: int, pledges: tuple[AggregatorPledge, ...], known: tuple[AggregatorPledge, ...]
    ) -> None:
        own = (self._context.number_of(member),)
        check_pledges(self._context, self.step, pledges, member, of=own, known=known)

    def _pledges(self) -> tuple[AggregatorPledge, ...]:
        return tuple(pledge for message in self._all() for pledge in message.pledges)


class GatheringKeys(_GatheringPledges):
    """The aggregators' session keys, for the clients. Raises BadInput when no sum can ever be opened."""

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

    def close(self) -> tuple[ServerState, Mapping[int, Any]]:
        """Show everybody the session keys: clients may upload, and the aggregators' time for that begins."""
        keys = SessionKeys(self._pledges())
        return GatheringSets(self._context), dict.fromkeys((*self._context.clients, *self._context.helpers), keys)


class GatheringSets(_GatheringPledges):
    """The commitments to the accepted sets, once each aggregator has stopped taking uploads."""

    awaits: ClassVar[type] = SetPledges
    is_joining: ClassVar[bool] = True
    lacking: ClassVar[str] = "commit to what it accepted"
    step: ClassVar[str] = ACCEPTED

    def close(self) -> tuple[ServerState, Mapping[int, Any]]:
        """Show every aggregator the commitments."""
        pledges = self._pledges()
        return GatheringLists(self._context, pledges), dict.fromkeys(self._context.helpers, SetPledges(pledges))


class GatheringLists(_Gathering):
    """The lists behind the commitments."""

    awaits: ClassVar[type] = SetLists
    lacking: ClassVar[str] = "reveal what it accepted"

    def __init__(self, context: SharedContext, pledges: tuple[AggregatorPledge, ...]) -> None:
        super().__init__(context)
        self._pledges = pledges

    def check(self, member: int, incoming: SetLists) -> None:
        """Take the sender's own list alone, if it is the one committed to. Raises Equivocated for what it proves."""
        context = self._context
        own = (context.number_of(member),)
        check_lists(context, self._pledges, incoming.lists, member, of=own)

    def close(self) -> tuple[ServerState, Mapping[int, Any]]:
        """Agree on the set as every aggregator does, and show the lists to all, who can hold receipts against them."""
        context = self._context
        lists = tuple(shown for message in self._all() for shown in message.lists)
        manifests, _ = intersect(context, lists)
        members = tuple(manifest.client for manifest in manifests)
        following = GatheringSums(context, members, bind.set_digest(context, manifests))
        return following, dict.fromkeys((*context.helpers, *context.clients), SetLists(lists))


class GatheringSums(_GatheringPledges):
    """The commitments to the sum shares over the agreed set."""

    awaits: ClassVar[type] = SumPledges
    lacking: ClassVar[str] = "commit to its sum share"
    step: ClassVar[str] = SUM

    def __init__(self, context: SharedContext, members: tuple[int, ...], agreed: bytes) -> None:
        super().__init__(context)
        self._members = members
        self._agreed = agreed

    def close(self) -> tuple[ServerState, Mapping[int, Any]]:
        """Show every aggregator the commitments."""
        pledges = self._pledges()
        following = GatheringShares(self._context, self._members, self._agreed, pledges)
        return following, dict.fromkeys(self._context.helpers, SumPledges(pledges))


class GatheringShares(_Gathering, PackedVectors):
    """The sum shares, each with the commitments that its aggregator has seen."""

    awaits: ClassVar[type] = SumShare
    lacking: ClassVar[str] = "reveal its sum share"

    def __init__(
        self,
        context: SharedContext,
        members: tuple[int, ...],
        agreed: bytes,
        pledges: tuple[AggregatorPledge, ...],
    ) -> None:
        super().__init__(context)
        self._members = members
        self._agreed = agreed
        self._pledges = pledges

    def check(self, member: int, incoming: SumShare) -> None:
        """Take a sum share of the agreed set that is what its aggregator committed to. Raises Equivocated, too."""
        context, number = self._context, self._context.number_of(member)
        if incoming.aggregator != number:
            raise ProtocolViolation(member, "shows a sum share that is not its own")
        if incoming.length != context.packed_bytes:
            raise ProtocolViolation(member, f"its sum share has {incoming.length} bytes, not {context.packed_bytes}")
        check_pledges(context, SUM, incoming.pledges, member, of=context.numbers, known=self._pledges)
        if incoming.agreed != self._agreed:
            raise ProtocolViolation(member, "sums another set than the one that was agreed on")
        commitment = bind.sum_commitment(context, number, incoming.agreed, incoming.nonce, incoming.digest)
        if commitment != self._pledges[number - 1].content:
            raise ProtocolViolation(member, "reveals another sum share than the one that it committed to")

    def close(self) -> tuple[VectorSum, Mapping[int, Any]]:
        """All sum shares are in: they add up to the members' vectors, and to what noise they hold."""
        self._all()
        return VectorSum(self._members, tuple(self._context.helpers)), {}
