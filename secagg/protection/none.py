"""No protection: the server sees every client's vector. For research, and as the auditor's control."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Residues
from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection.interface import (
    OF_CLIENT,
    CollectingStep,
    LocalParty,
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
    """All clients but the tolerated dropouts, and never fewer than the minimum of clients."""
    return max(context.min_clients_in_sum, len(context.clients) - context.dropouts)


def explain(context: SessionContext) -> str:
    """The warning about what is lost."""
    return f"NO PROTECTION: the server sees every client's vector; it waits for {fewest(context)} of them"


def begin(context: SessionContext, me: LocalParty) -> Transition:
    """There is nothing to agree on."""
    return Transition(PlainReady())


@dataclass(frozen=True)
class PlainReady:
    """The vector can be sent at once."""

    def protect(self, context: SessionContext, me: LocalParty, residues: Residues) -> Transition:
        """Pack the vector as it is."""
        packed = context.ring.pack(residues)
        header = UploadHeader(len(packed), hashlib.sha256(packed).digest(), _ABSENT, _ABSENT, ())
        return Transition(PlainUploaded(), header, packed)


@message("PlainUploaded")
@dataclass(frozen=True)
class PlainUploaded:
    """The vector is out; the outcome is awaited."""

    awaits: ClassVar[type] = Outcome

    def advance(self, context: SessionContext, me: LocalParty, incoming: Outcome) -> Transition:
        """Check that this client is among those summed."""
        if me.member not in incoming.members:
            raise ProtocolViolation(SERVER_INDEX, "the outcome leaves this client out")
        return Transition(self)


class AwaitingPlainUploads(PackedVectors, CollectingStep):
    """Collects the vectors' headers."""

    awaits: ClassVar[type] = UploadHeader
    is_joining: ClassVar[bool] = True

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        super().__init__(context.clients)
        self.enough = fewest(context)

    def check(self, member: int, incoming: UploadHeader) -> None:
        """Take a vector of the right length."""
        if incoming.length != self._context.packed_bytes:
            raise ProtocolViolation(member, f"uploads {incoming.length} bytes")

    def close(self) -> tuple[VectorSum, Mapping[int, Any]]:
        """Fix the set of summed clients."""
        members = self.members
        if len(members) < self.enough:
            raise SessionAborted(f"only {len(members)} clients uploaded; at least {self.enough} are needed")
        return VectorSum(members, members), {}


PROTECTION = Protection(
    name="none",
    fewest=fewest,
    explain=explain,
    client=Script(begin, (PlainUploaded,), UploadHeader, OF_CLIENT),
    begin_server=AwaitingPlainUploads,
    proves="the published sum is the sum of the accepted uploads, each of which the server saw in clear",
    reveals=UploadHeader,
    revealed="vectors were uploaded in clear",
    steps=(UploadHeader,),
    trust="the server, with every vector",
    sum_trust="the server",
    visits="one visit; stays for the outcome",
    absence="a client that has not uploaded is left out",
    hides_vectors=False,
)
