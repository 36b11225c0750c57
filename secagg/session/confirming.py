"""Completion of an unconfirmed outcome from other parties' transcripts, where the server does not show who has it.

Acknowledgements are signed and can be shown to anybody: whoever carries the files can keep them back, but not forge
them. Each party's transcript holds its own, the server's those that came, and a confirmation enough of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from secagg.errors import BadInput, MalformedMessage, ProtocolViolation
from secagg.protection.messages import Acknowledgement, Confirmation, Outcome
from secagg.session.attachments import folder_name
from secagg.session.round_setup import RoundSetup
from secagg.session.rounds import acknowledgement_of, confirmer_of
from secagg.session.transcripts import outcome_of, setup_of
from secagg.transcript import FILE_NAME, Journal, Record, payload_of, peek, read_transcript
from secagg.wire import decode, encode, tag_of


def confirm_from(others: Sequence[Path], state: Path) -> tuple[Path, bool]:
    """Write the confirmation that the transcripts `others` make up to this party's own of their round.

    Returns its path, and whether it was confirmed before. `state` is this party's folder. Nothing is written unless
    enough parties have acknowledged the outcome that this party itself checked and acknowledged. Raises BadInput
    otherwise, TranscriptInvalid for what is not a transcript.
    """
    given = [setup_of(read_transcript(each, torn_tail_allowed=True)) for each in others]
    folders = {folder_name(setup.context.round_digest): setup.number for setup, _ in given}
    if len(folders) != 1:
        listed = ", ".join(f"{name} is round {number}" for name, number in folders.items())
        raise BadInput(f"the given transcripts are of different rounds: {listed}", remedy="give those of one round")
    own = state / next(iter(folders)) / FILE_NAME
    if not own.exists():
        raise BadInput(f"{state} has no session of that round", remedy="give the state folder of its plan")
    with closing(Journal(own)) as journal:
        setup, records = setup_of(tuple(journal.records()))
        outcome, sent = outcome_of(records), [peek(each.content).step for each in records if each.kind == "sent"]
        if outcome is None or tag_of(Acknowledgement) not in sent:
            raise BadInput(f"{own} holds no checked outcome", remedy="run the same client or helper command first")
        if any(record.kind == "aborted" for record in records):
            raise BadInput(f"{own} has ended for good", remedy="read its last record (secagg verify)")
        framed = [each for each in records if each.kind in ("received", "confirmed")]
        known = any(each.kind == "confirmed" or peek(each.content).step == tag_of(Confirmation) for each in framed)
        shown = (frame for _, found in ((setup, records), *given) for frame in _acknowledgements(found))
        journal.append("confirmed", encode(_confirmation(setup, outcome, shown)))
    return own, known


def _acknowledgements(records: Iterable[Record]) -> Iterator[bytes]:
    """Yield the frames of acknowledgements that stand in a transcript, alone or in a confirmation, unchecked."""
    for record in records:
        with contextlib.suppress(MalformedMessage):  # what cannot be read confirms nothing
            if record.kind == "confirmed":
                yield from decode(Confirmation, record.content).acknowledgements
            elif record.kind in ("sent", "received"):
                body = peek(record.content)
                if body.step == tag_of(Acknowledgement):
                    yield record.content
                elif body.step == tag_of(Confirmation):
                    yield from payload_of(body, Confirmation).acknowledgements


def _confirmation(setup: RoundSetup, outcome: Outcome, frames: Iterable[bytes]) -> Confirmation:
    """Build the confirmation of an outcome from those frames that acknowledge it. Raises BadInput for too few."""
    confirmers, enough = setup.protocol.confirmers(setup.context)
    expected, valid, reasons = acknowledgement_of(setup, outcome), dict[int, bytes](), list[str]()
    for frame in frames:
        try:
            if peek(frame).sender in confirmers:
                valid[confirmer_of(setup, frame, expected)] = frame
        except (MalformedMessage, ProtocolViolation) as error:
            reasons.append(error.problem)
    if len(valid) < enough:
        names = setup.roster.name
        held = f" ({', '.join(map(names, sorted(valid)))})" if valid else ""
        few = f"the files hold {len(valid)} of the {enough} acknowledgements"
        problem = f"{few} that confirm this party's outcome{held}"
        problem += f": one {reasons[0]}" if reasons else ""
        others = ", ".join(map(names, sorted(confirmers - valid.keys())))
        raise BadInput(problem, remedy=f"add the transcript of this round of {others}")
    return Confirmation(tuple(valid[each] for each in sorted(valid)[:enough]))
