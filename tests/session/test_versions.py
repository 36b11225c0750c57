"""What an older version wrote is refused by that version's number, not called damaged."""

from pathlib import Path

import pytest

from secagg.agreement.plan import PLAN_VERSION
from secagg.errors import BadInput, TranscriptInvalid
from secagg.session.transcripts import setup_of
from secagg.transcript import FILE_NAME, Journal, read_transcript
from secagg.verification.transcript_series import verify_transcript
from secagg.wire import encode
from tests.agreement.federation_files import small_plan, small_roster
from tests.vectors.files import load
from tests.vectors.protobuf import canonical

ROSTER = small_roster()
PLAN = next(case["value"] for case in load("wire")["cases"] if case["message"] == "Plan")


def transcript(folder: Path, plan: bytes, roster: bytes) -> Path:
    """A transcript that begins so."""
    path = folder / FILE_NAME
    journal = Journal(path)
    journal.append("plan", plan)
    journal.append("roster", roster)
    journal.close()
    return path


@pytest.mark.parametrize("version", [1, PLAN_VERSION - 1, PLAN_VERSION + 1])
def test_transcript_of_another_plan_version_is_bad_input(tmp_path: Path, version: int) -> None:
    """`verify` says which version wrote the plan, and that nothing is wrong with the file otherwise."""
    path = transcript(tmp_path, canonical("Plan", PLAN | {"version": version}), encode(ROSTER))
    for attempt in (lambda: setup_of(read_transcript(path)), lambda: verify_transcript(path)):
        with pytest.raises(
            BadInput, match=f"a plan of version {version}, this program reads version {PLAN_VERSION}; use"
        ):
            attempt()


def test_transcript_of_another_roster_version_is_bad_input(tmp_path: Path) -> None:
    """The same for its roster."""
    members = {"consortium": "x", "members": []}
    path = transcript(tmp_path, encode(small_plan(ROSTER)), canonical("Roster", {"version": 9, **members}))
    with pytest.raises(BadInput, match="a roster of version 9, this program reads version"):
        verify_transcript(path)


@pytest.mark.parametrize(
    "damage", [lambda plan: plan + b"\x00", lambda plan: plan[:-1], lambda plan: b"", lambda plan: b"no"]
)
def test_plan_of_no_version_is_an_invalid_transcript(tmp_path: Path, damage) -> None:
    """Bytes that are a plan of no version are not excused by one."""
    path = transcript(tmp_path, damage(encode(small_plan(ROSTER))), encode(ROSTER))
    with pytest.raises(TranscriptInvalid):
        verify_transcript(path)
