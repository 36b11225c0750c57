"""One pledge of every aggregator, and the proof when one of them has signed two."""

from __future__ import annotations

from collections.abc import Iterable

from secagg.crypto.agreement import is_usable
from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection.sharing import binding as bind
from secagg.protection.sharing.context import SharedContext
from secagg.protection.sharing.messages import AggregatorPledge, PledgeConflict

KEY, ACCEPTED, SUM = "key", "accepted", "sum"


class Equivocated(ProtocolViolation):
    """An aggregator signed two different pledges for one step; `evidence` convinces anyone. The session is over."""

    def __init__(self, culprit: str, evidence: PledgeConflict) -> None:
        self.evidence = evidence
        super().__init__(culprit, f"signed two different {evidence.one.step!r} pledges in one session")


def check_pledge(context: SharedContext, step: str, pledge: AggregatorPledge) -> None:
    """Raise ProtocolViolation (the aggregator that the pledge names) unless it signed this for this step."""
    if pledge.step != step or not bind.pledge_is_signed(context, pledge):
        culprit = context.names.get(pledge.aggregator, f"aggregator {pledge.aggregator}")
        raise ProtocolViolation(culprit, f"did not sign the {step!r} pledge that is shown as its own")


def gather(context: SharedContext, step: str, pledges: Iterable[AggregatorPledge]) -> tuple[AggregatorPledge, ...]:
    """The pledges of all aggregators in order; repetitions change nothing.

    Raises ProtocolViolation for one that is not signed, Equivocated for two that differ, SessionAborted when one is
    missing.
    """
    known: dict[int, AggregatorPledge] = {}
    for pledge in pledges:
        check_pledge(context, step, pledge)
        _same(context, known.setdefault(pledge.aggregator, pledge), pledge)
    if absent := [context.names[number] for number in context.numbers if number not in known]:
        raise SessionAborted(f"no {step!r} pledge came from {', '.join(absent)}")
    return tuple(known[number] for number in context.numbers)


def compare(
    context: SharedContext,
    step: str,
    mine: tuple[AggregatorPledge, ...],
    shown: tuple[AggregatorPledge, ...],
    culprit: str,
) -> None:
    """Check that another aggregator (`culprit`) has seen the same pledges of a step as this one.

    Raises Equivocated for an aggregator that told the two different things, ProtocolViolation for pledges that are
    not there or not signed.
    """
    if [pledge.aggregator for pledge in shown] != list(context.numbers):
        raise ProtocolViolation(culprit, "does not show one pledge of every aggregator")
    for own, other in zip(mine, shown, strict=True):
        if other.step != step or not bind.pledge_is_signed(context, other):
            raise ProtocolViolation(culprit, f"shows a pledge that {context.names[own.aggregator]} did not sign")
        _same(context, own, other)


def _same(context: SharedContext, one: AggregatorPledge, other: AggregatorPledge) -> None:
    if one.content != other.content:
        raise Equivocated(context.names[one.aggregator], PledgeConflict(one, other))


def session_keys(context: SharedContext, pledges: Iterable[AggregatorPledge]) -> dict[int, bytes]:
    """Each aggregator's X25519 session key.

    Raises what `gather` raises, and ProtocolViolation for a key of small order, one not canonical or one of two.
    """
    keys: dict[int, bytes] = {}
    for pledge in gather(context, KEY, pledges):
        if not is_usable(pledge.content) or pledge.content in keys.values():
            raise ProtocolViolation(
                context.names[pledge.aggregator], "its session key is of small order or not its own"
            )
        keys[pledge.aggregator] = pledge.content
    return keys
