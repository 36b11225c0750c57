"""Completion of an unconfirmed outcome from another party's transcript, where the server is not there to do it.

Acknowledgements are signed and can be shown to anybody: whoever carries the file can keep it back, but not forge it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation
from secagg.protection.messages import Acknowledgement, Confirmation
from secagg.session.attachments import folder_name
from secagg.session.rounds import check_confirmation
from secagg.session.transcripts import outcome_of, setup_of
from secagg.transcript import EVERYONE, FILE_NAME, Journal, Record, open_frame, payload_of, peek, read_transcript
from secagg.wire import tag_of


def confirm_from(other: Path, state: Path) -> Path:
    """Copy the confirmation in the transcript `other` to this party's transcript of the same round; return its path.

    `state` is this party's folder. Nothing is written unless the confirmation is of the outcome that this party itself
    checked and acknowledged. Raises BadInput otherwise, TranscriptInvalid for a file that is not a transcript.
    """
    theirs, records = setup_of(read_transcript(other, torn_tail_allowed=True))
    round_digest = theirs.context.round_digest
    frame = _frame_with(Confirmation, records)
    if frame is None:
        raise BadInput(f"{other} holds no confirmation", remedy="ask another party of the round for its transcript")
    own = state / folder_name(round_digest) / FILE_NAME
    if not own.exists():
        raise BadInput(f"{state} has no session of that round", remedy="give the state folder of its plan")
    with closing(Journal(own)) as journal:
        setup, records = setup_of(tuple(journal.records()))
        outcome = outcome_of(records)
        if outcome is None or _frame_with(Acknowledgement, records) is None:
            raise BadInput(f"{own} holds no checked outcome", remedy="run the same client or helper command first")
        if any(record.kind == "aborted" for record in records):
            raise BadInput(f"{own} has ended for good", remedy="read its last record (secagg verify)")
        try:
            body = open_frame(frame, setup.roster, round_digest, SERVER_INDEX, EVERYONE)
            check_confirmation(setup, outcome, payload_of(body, Confirmation))
        except (MalformedMessage, ProtocolViolation) as error:
            problem = str(setup.roster.name_culprit(error))
            raise BadInput(f"{other} does not confirm this party's outcome: {problem}") from None
        journal.append("received", frame)
    return own


def _frame_with(message: type, records: Sequence[Record]) -> bytes | None:
    """Return the first frame of this step that the transcript's party sent or received."""
    frames = (record.content for record in records if record.kind in ("sent", "received"))
    return next((frame for frame in frames if peek(frame).step == tag_of(message)), None)
