"""`verify` on the transcripts of shared and encrypted sums: real ones pass, changed ones name the record at fault."""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from secagg.parties.links import verify_transcript
from secagg.protection.encryption.messages import OpenedSum, SumRequest
from secagg.protection.messages import Outcome
from secagg.transcript import payload_of, peek, read_transcript, sign_frame
from secagg.wire import encode
from tests.parties.federation import Federation
from tests.parties.forging import Entry, invalid, position, rewrite
from tests.parties.stage import Stage, make_stage

SERVER, CLIENT, FIRST, SECOND, HOLDER = 0, 2, 4, 5, 4
TOGETHER = ["shared", "encrypted"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stage]:
    """One session of three clients under each protection."""
    stages = {name: make_stage(tmp_path_factory.mktemp(name), protection=name) for name in TOGETHER}
    for stage in stages.values():
        asyncio.run(Federation(stage).run())
    return stages


@pytest.fixture
def over(finished: dict[str, Stage], tmp_path: Path) -> Callable[[str], Stage]:
    """A copy of a finished session, to be damaged."""

    def copied(name: str) -> Stage:
        shutil.copytree(finished[name].folder, tmp_path / "copy")
        return replace(finished[name], folder=tmp_path / "copy")

    return copied


def flip(path: Path, place: int = 20) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("protection", TOGETHER)
def test_everyones_transcript_verifies(finished: dict[str, Stage], protection: str) -> None:
    """All parties' transcripts verify, say whose they are, and tell one aggregate; everybody countersigned."""
    stage = finished[protection]
    found = verify_transcript(stage.transcript(SERVER))
    names = [stage.setup.roster.name(member) for member in (1, 2, 3, *stage.setup.context.seconds)]
    assert sorted(found["countersigned_by"]) == sorted(names)
    assert found["members"] == names[:3]
    for member in (1, 2, 3, *stage.setup.context.seconds):
        own = verify_transcript(stage.transcript(member))
        assert own["role"] == stage.setup.roster.role(member)
        assert own["aggregate_sha256"] == found["aggregate_sha256"]
        assert own["countersigned_by_server"] is True
    if protection == "shared":
        assert verify_transcript(stage.transcript(FIRST))["uploads"] == 3
        assert verify_transcript(stage.transcript(CLIENT))["receipts_from"] == ["aggregator-1", "aggregator-2"]


@pytest.mark.parametrize("protection", TOGETHER)
def test_client_that_has_left_can_show_its_part(over: Callable[[str], Stage], protection: str) -> None:
    """The transcript of a client that has uploaded and not come back says so; of one that has not, that too."""
    stage = over(protection)
    at = position(stage, "Outcome", CLIENT)
    rewrite(stage, lambda entries: entries[:at], member=CLIENT, key=CLIENT)
    assert "has not fetched the outcome" in verify_transcript(stage.transcript(CLIENT))["session"]
    first = next(number for number in range(at) if _kinds(stage)[number] == "ledger")
    rewrite(stage, lambda entries: entries[:first], member=CLIENT, key=CLIENT)
    assert verify_transcript(stage.transcript(CLIENT))["session"] == "this client has sent nothing yet"


def _kinds(stage: Stage) -> list[str]:
    return [record.kind for record in read_transcript(stage.transcript(CLIENT))]


@pytest.mark.parametrize("number", [FIRST, SECOND])
def test_changed_share_is_found(over: Callable[[str], Stage], number: int) -> None:
    """One flipped bit in a share that an aggregator keeps is found at the client's upload, and the client is named."""
    stage = over("shared")
    flip(stage.home(number) / "uploads" / "2.bin")
    error = invalid(stage, number)
    assert "client-2" in str(error)
    assert error.record >= position(stage, "ShareManifest", number)


def test_missing_share_is_found(over: Callable[[str], Stage]) -> None:
    """A share that is gone is found."""
    stage = over("shared")
    (stage.home(FIRST) / "uploads" / "3.bin").unlink()
    assert "client-3" in str(invalid(stage, FIRST))


def test_changed_sum_share_is_found(over: Callable[[str], Stage]) -> None:
    """One flipped bit in an aggregator's sum share is found at the outcome, and the aggregator is named."""
    stage = over("shared")
    flip(stage.home(SERVER) / "uploads" / f"{SECOND}.bin")
    error = invalid(stage)
    assert error.record == position(stage, "Outcome")
    assert "aggregator-2" in str(error)


def test_changed_ciphertext_is_found(over: Callable[[str], Stage]) -> None:
    """One flipped bit in a client's ciphertexts is found where the sum was shown to the key holder."""
    stage = over("encrypted")
    flip(stage.home(SERVER) / "uploads" / "2.bin")
    error = invalid(stage)
    assert error.record == position(stage, "SumRequest")
    assert "client-2" in str(error)


def test_changed_opened_sum_is_found(over: Callable[[str], Stage]) -> None:
    """One flipped bit in what the key holder opened is found at the outcome, and the key holder is named."""
    stage = over("encrypted")
    flip(stage.home(SERVER) / "uploads" / f"{HOLDER}.bin")
    error = invalid(stage)
    assert error.record == position(stage, "Outcome")
    assert "key-holder-1" in str(error)


def changed(
    stage: Stage, step: str, payload: Callable[[bytes], bytes], key: int
) -> Callable[[list[Entry]], list[Entry]]:
    """The first frame of a step with another payload; `key` signs it."""
    at = position(stage, step)

    def apply(entries: list[Entry]) -> list[Entry]:
        kind, frame = entries[at]
        body = peek(frame)
        return [
            *entries[:at],
            (kind, sign_frame(stage.keys[key], replace(body, payload=payload(frame)))),
            *entries[at + 1 :],
        ]

    return apply


def test_server_that_declared_another_sum_is_found(over: Callable[[str], Stage]) -> None:
    """A request that shows another sum than that of the uploads is found, though the server signs everything anew."""
    stage = over("encrypted")

    def other(frame: bytes) -> bytes:
        request = payload_of(peek(frame), SumRequest)
        return encode(replace(request, packed=request.packed[:-1] + b"\1"))

    rewrite(stage, changed(stage, "SumRequest", other, SERVER))
    assert invalid(stage).record == position(stage, "SumRequest")


@pytest.mark.parametrize(("protection", "step", "signer"), [
    ("shared", "SessionKeys", FIRST),
    ("shared", "SetLists", FIRST),
    ("shared", "SumShare", FIRST),
    ("encrypted", "PublishedKey", HOLDER),
    ("encrypted", "OpenedSum", HOLDER),
])  # fmt: skip
def test_frame_that_a_second_party_did_not_sign_is_found(
    over: Callable[[str], Stage], protection: str, step: str, signer: int
) -> None:
    """What the server claims to have heard of a second party must be signed by it."""
    stage = over(protection)
    at = position(stage, step)
    rewrite(stage, changed(stage, step, lambda frame: peek(frame).payload, CLIENT))
    error = invalid(stage)
    assert error.record == at
    assert stage.setup.roster.name(signer).rstrip("12") in str(error)


def test_opening_that_is_not_for_the_request_is_found(over: Callable[[str], Stage]) -> None:
    """An opening that names another declaration is found, even when the key holder itself has signed the frame."""
    stage = over("encrypted")

    def other(frame: bytes) -> bytes:
        return encode(replace(payload_of(peek(frame), OpenedSum), declaration=bytes(32)))

    rewrite(stage, changed(stage, "OpenedSum", other, HOLDER))
    assert invalid(stage).record == position(stage, "OpenedSum")


@pytest.mark.parametrize("protection", TOGETHER)
@pytest.mark.parametrize("member", [CLIENT, FIRST])
def test_another_outcome_is_found(over: Callable[[str], Stage], protection: str, member: int) -> None:
    """A party's own transcript with an outcome that the server did not sign is refused."""
    stage = over(protection)
    at = position(stage, "Outcome", member)

    def forge(entries: list[Entry]) -> list[Entry]:
        body = peek(entries[at][1])
        outcome = replace(payload_of(body, Outcome), aggregate_sha256=bytes(32))
        frame = sign_frame(stage.keys[member], replace(body, payload=encode(outcome)))
        return [*entries[:at], ("received", frame), *entries[at + 1 :]]

    rewrite(stage, forge, member=member, key=member)
    assert invalid(stage, member).record == at


@pytest.mark.parametrize(
    ("protection", "step"), [("shared", "SetPledges"), ("shared", "SumShare"), ("encrypted", "OpenedSum")]
)
def test_second_party_that_hides_what_it_sent_is_found(
    over: Callable[[str], Stage], protection: str, step: str
) -> None:
    """A frame dropped from a second party's transcript is missed by the server's next frame to it, or by the end."""
    stage = over(protection)
    at = position(stage, step, FIRST)
    rewrite(stage, lambda entries: entries[:at] + entries[at + 1 :], member=FIRST, key=FIRST)
    assert invalid(stage, FIRST).record >= at
