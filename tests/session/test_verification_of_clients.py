"""`verify` on a client's transcript: the real one passes, a forged one names the record at fault."""

import pytest

from secagg.transcript import peek, sign_frame
from secagg.verification.transcript_series import verify_transcript
from tests.session.forging import Entry, invalid, position, rewrite
from tests.worlds.session import SimulatedSession


def test_client_transcript_verifies(over: SimulatedSession) -> None:
    """A client's real transcript verifies, countersigned by the server, and tells the same aggregate."""
    aggregate = verify_transcript(over.transcript(0))["aggregate_sha256"]
    for member in (1, 2, 3):
        found = verify_transcript(over.transcript(member))
        assert found["role"] == "client"
        assert found["countersigned_by_server"] is True
        assert found["aggregate_sha256"] == aggregate


@pytest.mark.parametrize("step", ["Directory", "Survivors", "Outcome"])
def test_client_transcript_with_a_forged_server_frame(over: SimulatedSession, step: str) -> None:
    """What a client claims to have been told must be signed by the server."""
    at = position(over, step, member=2)

    def forge(entries: list[Entry]) -> list[Entry]:
        return [*entries[:at], ("received", sign_frame(over.keys[2], peek(entries[at][1]))), *entries[at + 1 :]]

    rewrite(over, forge, member=2, key=2)
    assert invalid(over, member=2).record == at


@pytest.mark.parametrize("step", ["Dealing", "UploadHeader", "Opening"])
def test_client_transcript_with_a_dropped_frame(over: SimulatedSession, step: str) -> None:
    """A client that hides what it sent is caught at the next frame of the server that has seen it."""
    at = position(over, step, member=2)
    rewrite(over, lambda entries: entries[:at] + entries[at + 1 :], member=2, key=2)
    assert invalid(over, member=2).record >= at


def test_client_transcript_cut_off(over: SimulatedSession) -> None:
    """A client's transcript that ends early says where it ends."""
    at = position(over, "Outcome", member=2)
    rewrite(over, lambda entries: entries[:at], member=2, key=2)
    assert invalid(over, member=2).record == at
