"""No protection: the server sees every client's vector. For research, and as the baseline of audits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Residues
from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection.interface import (
    OF_CLIENT,
    Acceptance,
    LocalParty,
    Outgoing,
    PackedVectors,
    Protection,
    Script,
    SessionContext,
    Transition,
    VectorSum,
)
from secagg.protection.messages import Outcome, UploadHeader
from secagg.wire import message

_ABSENT = bytes(32)


def fewest(context: SessionContext) -> int:
    """Return the smallest number of clients to sum: all but the tolerated drop-outs, or the plan's minimum if more."""
    return max(context.min_clients_in_sum, len(context.clients) - context.dropouts)


def explain(context: SessionContext) -> str:
    """Return the warning for people that vectors are not protected."""
    return f"NO PROTECTION: the server sees every client's vector; it waits for {fewest(context)} of them"


@dataclass(frozen=True)
class _PlainReady:
    """The client's state at which the vector can be sent at once."""

    def protect(self, context: SessionContext, me: LocalParty, residues: Residues) -> Transition:
        packed = context.ring.pack(residues)
        header = UploadHeader(len(packed), hashlib.sha256(packed).digest(), _ABSENT, _ABSENT, ())
        return Transition(PlainUploaded(), header, packed)


@message("PlainUploaded")
@dataclass(frozen=True)
class PlainUploaded:
    """The client's state after uploading its vector, while it waits for the server's outcome message."""

    awaits: ClassVar[type] = Outcome

    def advance(self, context: SessionContext, me: LocalParty, incoming: Outcome) -> Transition:
        """Check that the sum includes this client."""
        if me.member not in incoming.members:
            raise ProtocolViolation(SERVER_INDEX, "the outcome leaves this client out")
        return Transition(self)


class _AwaitingPlainUploads(PackedVectors[UploadHeader]):
    """The server's step in which it collects the vectors' headers."""

    awaits: ClassVar[type] = UploadHeader
    is_joining: ClassVar[bool] = True

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        super().__init__(context.clients, fewest(context))

    def check(self, member: int, incoming: UploadHeader) -> None:
        if incoming.length != self._context.packed_bytes:
            raise ProtocolViolation(member, f"uploads {incoming.length} bytes")

    def close(self) -> tuple[VectorSum, Outgoing]:
        if self.is_short:
            raise SessionAborted(f"only {len(self.members)} clients uploaded; at least {self.enough} are needed")
        return VectorSum(self.members, self.members), {}


PROTECTION = Protection(
    name="none",
    fewest=fewest,
    explain=explain,
    client=Script(lambda context, me: Transition(_PlainReady()), (PlainUploaded,), UploadHeader, OF_CLIENT),
    begin_server=_AwaitingPlainUploads,
    proves="the published sum is the sum of the accepted uploads, each of which the server saw in clear",
    reveals=UploadHeader,
    revealed="vectors were uploaded in clear",
    server_steps=(UploadHeader,),
    steps=(UploadHeader,),
    trust="the server, with every vector",
    sum_trust="the server",
    visits="one visit; stays for the outcome",
    absence="a client that has not uploaded is left out",
    hides_vectors=False,
    acceptance=Acceptance(UploadHeader, (Outcome,)),
    confirmers=lambda context: (frozenset(context.clients), 1),
)
