"""Transcripts changed by whoever owns them: chained anew, with the owner's own frames signed again."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from secagg.errors import TranscriptInvalid
from secagg.transcript import Journal, peek, read_transcript, sign_frame
from secagg.transcript.frames import Kind
from secagg.verification.transcript_series import verify_transcript
from tests.worlds.session import SimulatedSession

Entry = tuple[Kind, bytes]


def invalid(world: SimulatedSession, member: int = 0) -> TranscriptInvalid:
    """The refusal of a party's transcript."""
    with pytest.raises(TranscriptInvalid) as refusal:
        verify_transcript(world.transcript(member))
    assert refusal.value.exit_code == 3
    assert str(refusal.value).startswith(f"transcript record {refusal.value.record}: ")
    return refusal.value


def rewrite(
    world: SimulatedSession, change: Callable[[list[Entry]], list[Entry]], member: int = 0, key: int = 0
) -> None:
    """Change a transcript and chain it anew; frames that its owner sent are signed again over their new heads."""
    path = world.transcript(member)
    entries = change([(record.kind, record.content) for record in read_transcript(path)])  # type: ignore[misc]
    path.unlink()
    journal = Journal(path)
    for kind, content in entries:
        own = kind == "sent"
        journal.append(kind, sign_frame(world.keys[key], replace(peek(content), head=journal.head)) if own else content)
    journal.close()


def step_of(entry: Entry) -> str:
    """Which step's frame an entry is, if it is one."""
    return peek(entry[1]).step if entry[0] in ("sent", "received") else entry[0]


def position(world: SimulatedSession, step: str, member: int = 0) -> int:
    """The index of the first record of a step."""
    records = read_transcript(world.transcript(member))
    return next(record.index for record in records if step_of((record.kind, record.content)) == step)  # type: ignore[arg-type]
