"""What anyone can prove from the public messages of a shared session, whoever saw them."""

from collections.abc import Iterable

from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.context import SharedContext
from secagg.protection.sharing.messages import AggregatorPledge, ManifestConflict, PledgeConflict


def contradictions(context: SharedContext, pledges: Iterable[AggregatorPledge]) -> tuple[PledgeConflict, ...]:
    """Pairs among pledges, whoever saw them, in which one aggregator signed two different things for one step."""
    first: dict[tuple[int, str], AggregatorPledge] = {}
    found: list[PledgeConflict] = []
    for pledge in pledges:
        if bind.pledge_is_signed(context, pledge):
            known = first.setdefault((pledge.aggregator, pledge.step), pledge)
            if known.content != pledge.content:
                found.append(PledgeConflict(known, pledge))
    return tuple(found)


def is_proof(context: SharedContext, evidence: PledgeConflict | ManifestConflict) -> bool:
    """Whether the evidence holds: both halves are signed by the same party, for the same step, and differ."""
    one, other = evidence.one, evidence.other
    if isinstance(one, AggregatorPledge) and isinstance(other, AggregatorPledge):
        return len(contradictions(context, (one, other))) == 1
    if isinstance(one, AggregatorPledge) or isinstance(other, AggregatorPledge):
        return False
    signed = bind.manifest_is_signed(context, one) and bind.manifest_is_signed(context, other)
    return signed and one.client == other.client and one.digests != other.digests
