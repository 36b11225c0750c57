"""The status of a server's sessions, read from their folders without verification or locks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import BadInput
from secagg.session.deadline import read_closing
from secagg.session.round_setup import RoundSetup
from secagg.session.server_protocol import ServerProtocol
from secagg.session.transcripts import setup_of
from secagg.transcript import FILE_NAME, peek, read_transcript


@dataclass(frozen=True)
class SessionStatus:
    """Progress of a session: awaited message (`step`), parties that sent it (`heard`), and others (`waiting_for`).

    `declined` are the clients that have declined the round and sent nothing since.
    `closes`: when the step does, in seconds since 1970; None where nobody noted it. `failure`: why there is no sum.
    `confirmations`: how many acknowledgements of the outcome there are, and how many make it a result.
    """

    folder: Path
    setup: RoundSetup
    step: str
    heard: tuple[str, ...]
    waiting_for: tuple[str, ...]
    declined: tuple[str, ...]
    closes: float | None
    is_opened: bool
    confirmations: tuple[int, int]
    failure: str | None

    @classmethod
    def of(cls, folder: Path, setup: RoundSetup, protocol: ServerProtocol) -> SessionStatus:
        """Return the status of a session from its protocol, and from its folder when the present step closes."""
        closing = read_closing(folder, protocol.awaits)
        who, closes = (protocol.answered, protocol.waiting_for, protocol.declined), closing.at if closing else None
        is_opened, confirmations = protocol.outcome is not None, protocol.confirmations
        return cls(folder, setup, protocol.awaits, *who, closes, is_opened, confirmations, protocol.failure)

    @property
    def is_over(self) -> bool:
        """Whether the session is over: it has failed, or its outcome is confirmed and nobody else is awaited."""
        return self.failure is not None or (self.is_opened and self.is_confirmed and not self.waiting_for)

    @property
    def is_confirmed(self) -> bool:
        """Whether enough parties have acknowledged the outcome."""
        heard, enough = self.confirmations
        return heard >= enough


def status_of(folder: Path) -> SessionStatus:
    """Read a session's status from the server's folder. Raises TranscriptInvalid, or BadInput for a member's folder."""
    setup, records = setup_of(read_transcript(folder / FILE_NAME, torn_tail_allowed=True))
    protocol = ServerProtocol(setup)
    for record in records:
        if record.kind in ("sent", "received") and (peek(record.content).sender == SERVER_INDEX) != (
            record.kind == "sent"
        ):
            raise BadInput(f"{folder} is another party's", remedy="give the --state folder of the server")
        protocol.replay(record)
    return SessionStatus.of(folder, setup, protocol)
