"""One pledge of every aggregator for each step, and the proof when one of them has signed two."""

from __future__ import annotations

from collections.abc import Iterable

from secagg.crypto.agreement import is_usable
from secagg.errors import ProtocolViolation
from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.context import SharedContext
from secagg.protection.sharing.messages import AggregatorPledge, PledgeConflict

KEY, ACCEPTED, SUM = "key", "accepted", "sum"


class Equivocated(ProtocolViolation):
    """An aggregator signed two different pledges for one step; `evidence` convinces anyone. The session is over."""

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
    """Check that `shown` is one signed pledge of each aggregator in `of`, and none other than those `known` already.

    Raises ProtocolViolation (`culprit`: who shows them), Equivocated for an aggregator that signed another one.
    """
    if tuple(pledge.aggregator for pledge in shown) != of:
        raise ProtocolViolation(culprit, f"does not show one {step!r} pledge of {_names(context, of)}")
    contents = {pledge.aggregator: pledge for pledge in known}
    for pledge in shown:
        if pledge.step != step or not bind.pledge_is_signed(context, pledge):
            author = context.name_of(pledge.aggregator)
            raise ProtocolViolation(culprit, f"shows a {step!r} pledge that {author} did not sign")
        own = contents.get(pledge.aggregator, pledge)
        if own.content != pledge.content:
            raise Equivocated(context.index_of(pledge.aggregator), PledgeConflict(own, pledge))


def _names(context: SharedContext, numbers: tuple[int, ...]) -> str:
    return ", ".join(context.name_of(number) for number in numbers)


def session_keys(context: SharedContext, pledges: Iterable[AggregatorPledge]) -> dict[int, bytes]:
    """Each aggregator's X25519 session key, from checked pledges.

    Raises ProtocolViolation (the aggregator) for a key of small order, one not canonical or one that came before.
    """
    keys: dict[int, bytes] = {}
    for pledge in pledges:
        if not is_usable(pledge.content) or pledge.content in keys.values():
            raise ProtocolViolation(
                context.index_of(pledge.aggregator), "its session key is of small order or not its own"
            )
        keys[pledge.aggregator] = pledge.content
    return keys
