"""Status of a server's sessions, read from their folders without verification or locks."""

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
    """One session. `step`: the message that is awaited, and who has sent it (`heard`) or may still (`waiting_for`).

    `closes`: when the step does, in seconds since 1970; None where nobody noted it. `failure`: why there is no sum.
    """

    folder: Path
    setup: RoundSetup
    step: str
    heard: tuple[str, ...]
    waiting_for: tuple[str, ...]
    closes: float | None
    is_opened: bool
    failure: str | None

    @property
    def is_over(self) -> bool:
        """Whether nobody is waited for any more."""
        return self.failure is not None or (self.is_opened and not self.waiting_for)


def status_of(folder: Path) -> SessionStatus:
    """Read the status of the session in a server's folder. Raises BadInput for another party's, TranscriptInvalid."""
    setup, records = setup_of(read_transcript(folder / FILE_NAME, torn_tail_allowed=True))
    protocol = ServerProtocol(setup)
    for record in records:
        if record.kind in ("sent", "received") and (peek(record.content).sender == SERVER_INDEX) != (
            record.kind == "sent"
        ):
            raise BadInput(f"{folder} is another party's", remedy="give the --state folder of the server")
        protocol.replay(record)
    step = protocol.awaits
    closing = read_closing(folder, step)
    return SessionStatus(
        folder,
        setup,
        step,
        protocol.answered,
        protocol.waiting_for,
        closing and closing[0],
        protocol.outcome is not None,
        protocol.failure,
    )
