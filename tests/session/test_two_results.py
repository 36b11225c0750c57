"""A server that signs two results of one session is refused and named by `verify`, whatever the two differ in."""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.errors import TranscriptInvalid
from secagg.heads import parse_safetensors, to_safetensors
from secagg.protection.messages import Attachment, Outcome
from secagg.session.outcome import HEAD_FILE
from secagg.transcript import FILE_NAME, Journal, payload_of, peek, read_transcript, sign_frame
from secagg.verification.transcript_series import verify_together
from secagg.verification.verification import NOTHING_BROUGHT, Verified
from secagg.wire import encode
from tests.worlds.session import SessionRun, SimulatedSession, make_session

SERVER, ME, OTHER, SECOND = 0, 2, 3, 5


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SimulatedSession]:
    """One session of four clients under each protection."""
    worlds = {
        name: make_session(tmp_path_factory.mktemp(name), clients=4, protection=name, dropouts=1, colluders=0)
        for name in ("masked", "shared", "encrypted")
    }
    for world in worlds.values():
        asyncio.run(SessionRun(world).run())
    return worlds


def another_head(home: Path) -> dict[str, Any]:
    """The fields that name another head, whose file is put into a party's folder."""
    head, metadata = parse_safetensors((home / HEAD_FILE).read_bytes())
    other = replace(head, weight=(head.weight * np.float32(2)).astype(np.float32))
    file = to_safetensors(other, metadata)
    (home / HEAD_FILE).write_bytes(file)
    return {"head_sha256": bytes.fromhex(other.digest), "head": (Attachment.of(file),)}


CHANGES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "sum": lambda home: {"aggregate_sha256": b"other".ljust(32)},
    "clients in the sum": lambda home: {"members": (1, 2, 4)},
    "head": another_head,
}


def told_otherwise(world: SimulatedSession, member: int, folder: Path, what: str) -> Path:
    """A copy of a party's transcript that ends with another outcome, which the server has signed for this session."""
    home = Path(shutil.copytree(world.home(member), folder / "home"))
    records = read_transcript(home / FILE_NAME)
    at = next(r.index for r in records if r.kind == "received" and peek(r.content).step == Outcome.__name__)
    body = peek(records[at].content)
    other = replace(payload_of(body, Outcome), **CHANGES[what](home))
    (home / FILE_NAME).unlink()
    journal = Journal(home / FILE_NAME)
    for record in records[:at]:
        journal.append(record.kind, record.content)  # type: ignore[arg-type]
    journal.append("received", sign_frame(world.keys[SERVER], replace(body, payload=encode(other))))
    journal.close()
    return home / FILE_NAME


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize(
    ("protection", "party"),
    [("masked", ME), ("shared", ME), ("shared", SECOND), ("encrypted", ME), ("encrypted", SECOND)],
)
def test_two_results_of_one_session_name_the_server(
    sessions: dict[str, SimulatedSession], tmp_path: Path, protection: str, party: int, what: str
) -> None:
    """Both transcripts hold alone; together both are refused, and each refusal says what differs and where."""
    world = sessions[protection]
    if what == "head" and party == SECOND:
        another = world.home(ME) / HEAD_FILE
        shutil.copyfile(another, world.home(party) / HEAD_FILE)
    lied, true = told_otherwise(world, party, tmp_path, what), world.transcript(OTHER)
    for each in (lied, true):
        assert isinstance(verify_together([each], NOTHING_BROUGHT)[0], Verified)
    for first, second in ((lied, true), (true, lied)):
        refusals = verify_together([first, second], NOTHING_BROUGHT)
        assert all(isinstance(each, TranscriptInvalid) for each in refusals)
        for refusal, path, there in zip(refusals, (first, second), (second, first), strict=True):
            assert f"{path}: transcript record " in str(refusal)
            assert f"server has signed two results of one session, which differ in the {what} (" in str(refusal)
            assert f" of {there}" in str(refusal)


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
def test_servers_own_transcript_counts(sessions: dict[str, SimulatedSession], tmp_path: Path, protection: str) -> None:
    """A member's transcript is held against the server's too, where they are the only two."""
    world = sessions[protection]
    given = [world.transcript(SERVER), told_otherwise(world, ME, tmp_path, "sum")]
    assert {type(each) for each in verify_together(given, NOTHING_BROUGHT)} == {TranscriptInvalid}


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
def test_honest_transcripts_do_not_contradict_each_other(
    sessions: dict[str, SimulatedSession], protection: str
) -> None:
    """The transcripts of all parties of one session verify together, one of them given twice."""
    world = sessions[protection]
    parties = (SERVER, *world.setup.context.identities, *world.setup.context.helpers, ME)
    found = verify_together([world.transcript(party) for party in parties], NOTHING_BROUGHT)
    assert all(isinstance(each, Verified) for each in found)


def test_sessions_of_two_plans_have_nothing_to_do_with_each_other(sessions: dict[str, SimulatedSession]) -> None:
    """Results of different sessions differ, and nobody is blamed for that."""
    given = [world.transcript(ME) for world in sessions.values()]
    assert all(isinstance(each, Verified) for each in verify_together(given, NOTHING_BROUGHT))
