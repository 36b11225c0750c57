"""The shared protection: clients send additive shares, in one message, to aggregators that must not all collude."""

from secagg.protection.interface import OF_CLIENT, Handover, Protection, Script, SumRelease
from secagg.protection.proven_bits import check_libraries
from secagg.protection.sharing.aggregator import AGGREGATOR_STATES, begin_aggregator
from secagg.protection.sharing.client import CLIENT_STATES, begin_client, deliveries, is_receipt, share_digest
from secagg.protection.sharing.context import SharedContext, explain, fewest
from secagg.protection.sharing.messages import (
    FEWEST_AGGREGATORS,
    SessionKeys,
    SetLists,
    SetPledges,
    ShareManifest,
    ShareReceipt,
    SumPledges,
    SumShare,
)
from secagg.protection.sharing.release import check_lengths, open_release
from secagg.protection.sharing.server import GatheringKeys

PROTECTION = Protection(
    name="shared",
    fewest=fewest,
    explain=explain,
    client=Script(begin_client, CLIENT_STATES, ShareManifest, OF_CLIENT),
    begin_server=GatheringKeys,
    proves="the published sum follows from what the aggregators declared; that each declared the sum of the shares "
    "that it accepted stands on that aggregator's word",
    reveals=SumShare,
    revealed="an aggregator had published its share of the sum",
    server_steps=(SessionKeys, SetPledges, SetLists, SumPledges, SumShare),
    steps=(ShareManifest, ShareReceipt),
    trust="that not all aggregators collude; that every aggregator stays until the sum is opened",
    sum_trust="each aggregator",
    visits="one visit, in its own time; another one to fetch the outcome",
    absence="a client that has not reached every aggregator is left out; without an aggregator there is no sum",
    context=SharedContext.of,
    helper_role="aggregator",
    fewest_helpers=FEWEST_AGGREGATORS,
    helper=Script(
        begin_aggregator,
        AGGREGATOR_STATES,
        SumShare,
        "what this aggregator was told and what it gave, and that it keeps the shares that clients signed; that it "
        "added them up rightly stands on its word",
    ),
    deliveries=deliveries,
    check_machine=check_libraries,
    handover=Handover(ShareManifest, ShareReceipt, SetPledges, share_digest, is_receipt),
    confirmers=lambda context: (frozenset(context.helpers), len(context.helpers)),
    release=SumRelease(
        (),
        check_lengths,
        open_release,
        "that the published sum is that of the shares which all aggregators declared for its clients; that each is the "
        "sum of the shares that it accepted stands on that aggregator's word",
    ),
    speaks_once=True,
)
