"""`verify` accepts real transcripts and names the record at fault in forged ones, even in those the server signs."""

import copy
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from secagg.agreement.roster import Member, Roster
from secagg.crypto.signatures import SigningKey
from secagg.errors import BadInput
from secagg.protection.masking.messages import Survivors
from secagg.protection.messages import Abort, Acknowledgement, Outcome
from secagg.randomness import OperatingSystem
from secagg.transcript import NOT_SEEN, make_body, payload_of, peek, read_transcript, sign_frame
from secagg.transcript.frames import Kind
from secagg.verification.transcript_series import verify_transcript
from secagg.wire import decode, encode
from tests.session.forging import Entry, invalid, position, rewrite, step_of
from tests.worlds.session import SimulatedSession


def test_server_transcript_proves_the_sum(over: SimulatedSession) -> None:
    """The real transcript proves the sum of the three survivors, countersigned by all of them."""
    found = verify_transcript(over.transcript(0))
    assert found["role"] == "server"
    assert found["members"] == ["client-1", "client-2", "client-3"]
    assert sorted(found["countersigned_by"]) == found["members"]
    assert found["head_recomputed_here"] == "the same bits"
    assert found["plan_sha256"] == over.setup.plan.digest.hex()


@pytest.mark.parametrize("place", [0, 30, -1])
def test_flipped_upload_byte(over: SimulatedSession, place: int) -> None:
    """One flipped byte in a staged vector is found where the server names the sum, and the client is named."""
    path = over.home(0) / "uploads" / "2.bin"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    error = invalid(over)
    assert error.record == position(over, "Survivors")
    assert "client-2" in str(error)


def test_missing_upload(over: SimulatedSession) -> None:
    """A vector that is gone is found where the server names the sum, and the client is named."""
    (over.home(0) / "uploads" / "3.bin").unlink()
    error = invalid(over)
    assert error.record == position(over, "Survivors")
    assert "client-3" in str(error)


def test_vector_of_another_client(over: SimulatedSession) -> None:
    """Two swapped vectors have the same sum and are still not those that were signed."""
    one, two = (over.home(0) / "uploads" / f"{member}.bin" for member in (1, 2))
    first = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(first)
    assert "client-1" in str(invalid(over))


def changed_outcome(change: Callable[[Outcome], Outcome]) -> Callable[[list[Entry]], list[Entry]]:
    """The outcome replaced, and everything after it dropped (acknowledgements are of the true one)."""

    def apply(entries: list[Entry]) -> list[Entry]:
        at = next(index for index, entry in enumerate(entries) if step_of(entry) == "Outcome")
        body = peek(entries[at][1])
        forged = replace(body, payload=encode(change(payload_of(body, Outcome))))
        return [*entries[:at], ("sent", sign_frame(SigningKey.generate(OperatingSystem()), forged))]

    return apply


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda outcome: replace(outcome, aggregate_sha256=bytes(32)), "not that of the uploads"),
        (lambda outcome: replace(outcome, members=(1, 2)), "names other clients"),
        (lambda outcome: replace(outcome, members=(1, 2, 3, 4)), "names other clients"),
    ],
)
def test_outcome_changed_by_the_server_itself(
    over: SimulatedSession, change: Callable[[Outcome], Outcome], words: str
) -> None:
    """A server that publishes another sum or other members, signed by its own key, is caught."""
    rewrite(over, changed_outcome(change))
    error = invalid(over)
    assert words in str(error)
    assert error.record == position(over, "Outcome")


def test_head_changed_by_the_server_itself(over: SimulatedSession) -> None:
    """A published head that is not the one named by its digest is caught, although the server signed both."""
    rewrite(over, changed_outcome(lambda outcome: replace(outcome, head_sha256=bytes(32))))
    error = invalid(over)
    assert error.record == position(over, "Outcome")
    assert "head" in str(error)


def test_published_head_file_is_the_digest_named(over: SimulatedSession) -> None:
    """Another head file than the one that lies beside the transcript is found."""
    rewrite(over, changed_outcome(lambda outcome: replace(outcome, head=(replace(outcome.head[0], digest=bytes(32)),))))
    assert invalid(over).record == position(over, "Outcome")


@pytest.mark.parametrize("step", ["KeyAdvertisement", "Dealing", "UploadHeader", "Endorsement", "Opening", "closed"])
def test_dropped_record(over: SimulatedSession, step: str) -> None:
    """A record that the server leaves out, chaining the rest anew, is found at that place or where it is missed."""
    at = position(over, step)
    rewrite(over, lambda entries: entries[:at] + entries[at + 1 :])
    assert invalid(over).record >= at


@pytest.mark.parametrize("step", ["KeyAdvertisement", "Directory", "Inbox", "UploadHeader", "Survivors", "Outcome"])
def test_removed_record_without_a_new_chain(over: SimulatedSession, step: str) -> None:
    """A record cut out of the file breaks the chain right there."""
    at = position(over, step)
    path = over.transcript(0)
    content, start = path.read_bytes(), 16
    for _ in range(at):
        start += 4 + int.from_bytes(content[start : start + 4], "big")
    end = start + 4 + int.from_bytes(content[start : start + 4], "big")
    path.write_bytes(content[:start] + content[end:])
    assert invalid(over).record == at


def test_truncated_before_the_outcome(over: SimulatedSession) -> None:
    """A transcript that ends before the outcome, at a record's end, proves nothing and says where it ends."""
    at = position(over, "Outcome")
    rewrite(over, lambda entries: entries[:at])
    error = invalid(over)
    assert error.record == at
    assert "ends before the session's outcome" in str(error)


def test_truncated_inside_a_record(over: SimulatedSession) -> None:
    """A torn file is no transcript to verify."""
    path = over.transcript(0)
    count = len(read_transcript(path))
    path.write_bytes(path.read_bytes()[:-5])
    assert invalid(over).record == count - 1


def test_truncated_after_the_outcome_is_not_countersigned(over: SimulatedSession) -> None:
    """When the acknowledgements are cut off, the finding says that nobody countersigned."""
    at = position(over, "Outcome")
    rewrite(over, lambda entries: entries[: at + 1])
    assert "nobody" in verify_transcript(over.transcript(0))["countersigned_by"]


def test_forged_receipt(over: SimulatedSession) -> None:
    """A receipt that names another head than the client's is found at its record."""
    at = position(over, "Receipt")

    def forge(entries: list[Entry]) -> list[Entry]:
        body = peek(entries[at][1])
        return [*entries[:at], ("sent", sign_frame(over.keys[0], replace(body, seen=bytes([5]) * 32)))]

    rewrite(over, forge)
    error = invalid(over)
    assert error.record == at
    assert "receipt" in str(error)


def test_forged_client_frame(over: SimulatedSession) -> None:
    """An upload header that the server wrote in a client's name is found at its record."""
    at = position(over, "UploadHeader")

    def forge(entries: list[Entry]) -> list[Entry]:
        body = replace(peek(entries[at][1]), seen=NOT_SEEN)
        return [*entries[:at], ("received", sign_frame(over.keys[0], body)), *entries[at + 1 :]]

    rewrite(over, forge)
    error = invalid(over)
    assert error.record == at
    assert "not signed" in str(error)


def test_other_survivors_shown(over: SimulatedSession) -> None:
    """A server that showed another survivor set than follows from the uploads is caught at that record."""
    at = position(over, "Survivors")

    def forge(entries: list[Entry]) -> list[Entry]:
        shown = payload_of(peek(entries[at][1]), Survivors)
        body = replace(peek(entries[at][1]), payload=encode(replace(shown, members=(1, 2, 3, 4))))
        return [*entries[:at], ("sent", sign_frame(over.keys[0], body)), *entries[at + 1 :]]

    rewrite(over, forge)
    error = invalid(over)
    assert error.record == at
    assert "names other survivors" in str(error)


@pytest.mark.parametrize("change", [{"aggregate_sha256": bytes(32)}, {"opens": b"o" * 32}], ids=["sum", "opens"])
def test_acknowledgement_of_another_sum(over: SimulatedSession, change: dict[str, bytes]) -> None:
    """An acknowledgement of another aggregate, or of one that opens something else, is no countersignature."""
    at = position(over, "Acknowledgement")

    def forge(entries: list[Entry]) -> list[Entry]:
        body = peek(entries[at][1])
        other = replace(body, payload=encode(replace(payload_of(body, Acknowledgement), **change)))
        return [*entries[:at], ("received", sign_frame(over.keys[body.sender], other))]

    rewrite(over, forge)
    assert invalid(over).record == at


def test_abort_without_a_reason(over: SimulatedSession) -> None:
    """A server cannot claim an abort that does not follow from what it received."""
    at = position(over, "Outcome")
    abort = make_body(over.setup.context.round_digest, 0, 0, bytes(32), NOT_SEEN, Abort("made up"))
    entries: list[Entry] = [("aborted", b"made up"), ("sent", sign_frame(over.keys[0], abort))]
    rewrite(over, lambda old: [*old[:at], *entries])
    assert invalid(over).record == at


def test_another_roster(over: SimulatedSession) -> None:
    """With another roster in it, the transcript is not of the plan's federation, and the record is named."""
    names = [Member(each.name, each.role, SigningKey.generate(OperatingSystem()).public)
             for each in over.setup.roster.members]  # fmt: skip
    rewrite(over, lambda entries: [entries[0], ("roster", encode(Roster.of("forged", names))), *entries[2:]])
    assert invalid(over).record == 1


@pytest.mark.parametrize(("index", "kind"), [(0, "plan"), (1, "roster")])
def test_damaged_plan_or_roster(over: SimulatedSession, index: int, kind: Kind) -> None:
    """A plan or roster that does not parse is named by its record."""
    rewrite(over, lambda entries: [*entries[:index], (kind, b"\xff"), *entries[index + 1 :]])
    assert invalid(over).record == index


@pytest.mark.parametrize("number", ["1e999", "NaN"])
def test_plan_with_a_number_that_is_not_finite(over: SimulatedSession, number: str) -> None:
    """A transcript whose plan holds a parameter beyond float64 is not valid: no internal error comes of it."""
    plan = copy.copy(over.setup.plan)
    object.__setattr__(plan, "parameters", f'{{"refine":{number}}}')  # a plan's own check would refuse it
    rewrite(over, lambda entries: [("plan", encode(plan)), *entries[1:]])
    assert f"{number} is not a finite number" in str(invalid(over))


def test_another_plan(over: SimulatedSession) -> None:
    """The frames of one session do not verify under the plan of another."""
    other = over.again().setup.plan
    rewrite(over, lambda entries: [("plan", encode(other)), *entries[1:]])
    assert invalid(over).record == 2


@pytest.mark.parametrize("at", range(2))
def test_hardly_begun(over: SimulatedSession, at: int) -> None:
    """A transcript that ends before plan and roster says which is missing."""
    rewrite(over, lambda entries: entries[:at])
    assert invalid(over).record == at


def test_garbage_after_the_end(over: SimulatedSession) -> None:
    """A record of an unknown kind, or of a client's kind, has no place in a server's transcript."""
    count = len(read_transcript(over.transcript(0)))
    rewrite(over, lambda entries: [*entries, ("policy", b"x")])
    assert invalid(over).record == count


def test_no_transcript(tmp_path: Path) -> None:
    """A path without a transcript is the user's mistake, not the party's."""
    with pytest.raises(BadInput):
        verify_transcript(tmp_path / "none.log")


def test_digest_of_the_outcome_is_of_the_opened_blocks(over: SimulatedSession) -> None:
    """The verified digest is SHA-256 of the survivors' exact sum as little-endian int64."""
    expected: Any = hashlib.sha256(over.total((1, 2, 3)).astype("<i8").tobytes()).hexdigest()
    assert verify_transcript(over.transcript(0))["aggregate_sha256"] == expected
    assert decode(Roster, read_transcript(over.transcript(0))[1].content) == over.setup.roster
