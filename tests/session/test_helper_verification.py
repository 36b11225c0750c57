"""`verify` on the transcripts of shared and encrypted sums: real ones pass, changed ones name the record at fault."""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from secagg.protection.encryption.messages import OpenedSum, SumRequest
from secagg.protection.messages import Outcome
from secagg.transcript import payload_of, peek, read_transcript, sign_frame
from secagg.verification.transcript_series import verify_transcript
from secagg.wire import encode
from tests.session.forging import Entry, invalid, position, rewrite
from tests.worlds.session import SessionRun, SimulatedSession, make_session

SERVER, CLIENT, FIRST, SECOND, HOLDER = 0, 2, 4, 5, 4
TOGETHER = ["shared", "encrypted"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SimulatedSession]:
    """One session of three clients under each protection."""
    stages = {name: make_session(tmp_path_factory.mktemp(name), protection=name) for name in TOGETHER}
    for world in stages.values():
        asyncio.run(SessionRun(world).run())
    return stages


@pytest.fixture
def over(finished: dict[str, SimulatedSession], tmp_path: Path) -> Callable[[str], SimulatedSession]:
    """A copy of a finished session, to be damaged."""

    def copied(name: str) -> SimulatedSession:
        shutil.copytree(finished[name].folder, tmp_path / "copy")
        return replace(finished[name], folder=tmp_path / "copy")

    return copied


def flip(path: Path, place: int = 20) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("protection", TOGETHER)
def test_everyones_transcript_verifies(finished: dict[str, SimulatedSession], protection: str) -> None:
    """All parties' transcripts verify, say whose they are, and tell one aggregate; everybody countersigned."""
    world = finished[protection]
    found = verify_transcript(world.transcript(SERVER))
    names = [world.setup.roster.name(member) for member in (1, 2, 3, *world.setup.context.helpers)]
    assert sorted(found["countersigned_by"]) == sorted(names)
    assert found["members"] == names[:3]
    for member in (1, 2, 3, *world.setup.context.helpers):
        own = verify_transcript(world.transcript(member))
        assert own["role"] == world.setup.roster.role(member)
        assert own["aggregate_sha256"] == found["aggregate_sha256"]
        assert own["countersigned_by_server"] is True
    if protection == "shared":
        assert verify_transcript(world.transcript(FIRST))["uploads"] == 3
        assert verify_transcript(world.transcript(CLIENT))["receipts_from"] == ["aggregator-1", "aggregator-2"]


@pytest.mark.parametrize("protection", TOGETHER)
def test_client_that_has_left_can_show_its_part(over: Callable[[str], SimulatedSession], protection: str) -> None:
    """The transcript of a client that has uploaded and not come back says so; of one that has not, that too."""
    world = over(protection)
    at = position(world, "Outcome", CLIENT)
    rewrite(world, lambda entries: entries[:at], member=CLIENT, key=CLIENT)
    assert "has not fetched the outcome" in verify_transcript(world.transcript(CLIENT))["session"]
    first = next(number for number in range(at) if _kinds(world)[number] == "ledger")
    rewrite(world, lambda entries: entries[:first], member=CLIENT, key=CLIENT)
    assert verify_transcript(world.transcript(CLIENT))["session"] == "this client has sent nothing yet"


def _kinds(world: SimulatedSession) -> list[str]:
    return [record.kind for record in read_transcript(world.transcript(CLIENT))]


@pytest.mark.parametrize("number", [FIRST, SECOND])
def test_changed_share_is_found(over: Callable[[str], SimulatedSession], number: int) -> None:
    """One flipped bit in a share that an aggregator keeps is found at the client's upload, and the client is named."""
    world = over("shared")
    flip(world.home(number) / "uploads" / "2.bin")
    error = invalid(world, number)
    assert "client-2" in str(error)
    assert error.record >= position(world, "ShareManifest", number)


def test_missing_share_is_found(over: Callable[[str], SimulatedSession]) -> None:
    """A share that is gone is found."""
    world = over("shared")
    (world.home(FIRST) / "uploads" / "3.bin").unlink()
    assert "client-3" in str(invalid(world, FIRST))


def test_changed_sum_share_is_found(over: Callable[[str], SimulatedSession]) -> None:
    """One flipped bit in an aggregator's sum share is found at the outcome, and the aggregator is named."""
    world = over("shared")
    flip(world.home(SERVER) / "uploads" / f"{SECOND}.bin")
    error = invalid(world)
    assert error.record == position(world, "Outcome")
    assert "aggregator-2" in str(error)


def test_changed_ciphertext_is_found(over: Callable[[str], SimulatedSession]) -> None:
    """One flipped bit in a client's ciphertexts is found where the sum was shown to the key holder."""
    world = over("encrypted")
    flip(world.home(SERVER) / "uploads" / "2.bin")
    error = invalid(world)
    assert error.record == position(world, "SumRequest")
    assert "client-2" in str(error)


def test_changed_opened_sum_is_found(over: Callable[[str], SimulatedSession]) -> None:
    """One flipped bit in what the key holder opened is found at the outcome, and the key holder is named."""
    world = over("encrypted")
    flip(world.home(SERVER) / "uploads" / f"{HOLDER}.bin")
    error = invalid(world)
    assert error.record == position(world, "Outcome")
    assert "key-holder-1" in str(error)


def changed(
    world: SimulatedSession, step: str, payload: Callable[[bytes], bytes], key: int
) -> Callable[[list[Entry]], list[Entry]]:
    """The first frame of a step with another payload; `key` signs it."""
    at = position(world, step)

    def apply(entries: list[Entry]) -> list[Entry]:
        kind, frame = entries[at]
        body = peek(frame)
        return [
            *entries[:at],
            (kind, sign_frame(world.keys[key], replace(body, payload=payload(frame)))),
            *entries[at + 1 :],
        ]

    return apply


def test_server_that_declared_another_sum_is_found(over: Callable[[str], SimulatedSession]) -> None:
    """A request that shows another sum than that of the uploads is found, though the server signs everything anew."""
    world = over("encrypted")

    def other(frame: bytes) -> bytes:
        request = payload_of(peek(frame), SumRequest)
        return encode(replace(request, packed=request.packed[:-1] + b"\1"))

    rewrite(world, changed(world, "SumRequest", other, SERVER))
    assert invalid(world).record == position(world, "SumRequest")


@pytest.mark.parametrize(("protection", "step", "signer"), [
    ("shared", "SessionKeys", FIRST),
    ("shared", "SetLists", FIRST),
    ("shared", "SumShare", FIRST),
    ("encrypted", "PublishedKey", HOLDER),
    ("encrypted", "OpenedSum", HOLDER),
])  # fmt: skip
def test_frame_that_a_second_party_did_not_sign_is_found(
    over: Callable[[str], SimulatedSession], protection: str, step: str, signer: int
) -> None:
    """What the server claims to have heard of a helper must be signed by it."""
    world = over(protection)
    at = position(world, step)
    rewrite(world, changed(world, step, lambda frame: peek(frame).payload, CLIENT))
    error = invalid(world)
    assert error.record == at
    assert world.setup.roster.name(signer).rstrip("12") in str(error)


def test_opening_that_is_not_for_the_request_is_found(over: Callable[[str], SimulatedSession]) -> None:
    """An opening that names another declaration is found, even when the key holder itself has signed the frame."""
    world = over("encrypted")

    def other(frame: bytes) -> bytes:
        return encode(replace(payload_of(peek(frame), OpenedSum), declaration=bytes(32)))

    rewrite(world, changed(world, "OpenedSum", other, HOLDER))
    assert invalid(world).record == position(world, "OpenedSum")


@pytest.mark.parametrize("protection", TOGETHER)
@pytest.mark.parametrize("member", [CLIENT, FIRST])
def test_another_outcome_is_found(over: Callable[[str], SimulatedSession], protection: str, member: int) -> None:
    """A party's own transcript with an outcome that the server did not sign is refused."""
    world = over(protection)
    at = position(world, "Outcome", member)

    def forge(entries: list[Entry]) -> list[Entry]:
        body = peek(entries[at][1])
        outcome = replace(payload_of(body, Outcome), aggregate_sha256=bytes(32))
        frame = sign_frame(world.keys[member], replace(body, payload=encode(outcome)))
        return [*entries[:at], ("received", frame), *entries[at + 1 :]]

    rewrite(world, forge, member=member, key=member)
    assert invalid(world, member).record == at


@pytest.mark.parametrize(
    ("protection", "step"), [("shared", "SetPledges"), ("shared", "SumShare"), ("encrypted", "OpenedSum")]
)
def test_second_party_that_hides_what_it_sent_is_found(
    over: Callable[[str], SimulatedSession], protection: str, step: str
) -> None:
    """A frame dropped from a helper's transcript is missed by the server's next frame to it, or by the end."""
    world = over(protection)
    at = position(world, step, FIRST)
    rewrite(world, lambda entries: entries[:at] + entries[at + 1 :], member=FIRST, key=FIRST)
    assert invalid(world, FIRST).record >= at
