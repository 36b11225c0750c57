"""`secagg status`: where a server's sessions stand, by the folder alone, at every moment of a session."""

import asyncio
import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from secagg.errors import BadInput
from secagg.protection.messages import Acknowledgement, Outcome
from secagg.session.status import status_of
from secagg.transcript import FILE_NAME, Journal, Record, peek, read_transcript
from tests.cli.command import Command
from tests.worlds.session import SessionRun, SimulatedSession, make_session

SERVER = 0


@pytest.fixture(scope="module", params=["masked", "shared", "encrypted"])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SimulatedSession:
    """A session of three clients that has ended."""
    world = make_session(tmp_path_factory.mktemp(request.param), protection=request.param)
    asyncio.run(SessionRun(world).run())
    return world


def until(records: list[Record], folder: Path) -> Path:
    """A folder in which a server has come as far as these records."""
    folder.mkdir(parents=True)
    with closing(Journal(folder / FILE_NAME)) as journal:
        for record in records:
            journal.append(record.kind, record.content)
    return folder


def test_every_moment_of_a_session(finished: SimulatedSession, tmp_path: Path) -> None:
    """After each record there is a step, nobody is both heard and waited for, and only at the end it is over."""
    records = read_transcript(finished.transcript(SERVER))
    found = [status_of(until(records[:end], tmp_path / str(end))) for end in range(2, len(records) + 1)]
    assert not any(set(each.heard) & set(each.waiting_for) for each in found)
    assert found[0].waiting_for
    assert not found[0].heard
    opened = [each.is_opened for each in found]
    assert opened == sorted(opened)
    assert found[-1].step == Acknowledgement.__name__
    assert len({each.step for each in found}) > 3


def test_session_is_over_once_everybody_has_the_outcome(
    finished: SimulatedSession, secagg: Command, tmp_path: Path
) -> None:
    """An opened session is unconfirmed, then confirmed by enough acknowledgements, and over with the last one."""
    records, parties = read_transcript(finished.transcript(SERVER)), set(range(1, len(finished.keys)))
    frames = [peek(each.content) if each.kind in ("sent", "received") else None for each in records]
    (opened,) = (place for place, body in enumerate(frames) if body and body.step == Outcome.__name__)
    confirmers, enough = finished.setup.protocol.confirmers(finished.setup.context)
    for end in range(opened, len(records) + 1):
        folder = until(records[:end], tmp_path / str(end) / "session")
        acknowledged = {body.sender for body in frames[:end] if body and body.step == Acknowledgement.__name__}
        missing = [finished.setup.roster.name(each) for each in sorted(parties - acknowledged)]
        expected = "under way" if end == opened else "opened, to be fetched" if missing else "over"
        if end > opened and len(acknowledged & confirmers) < enough:
            expected = f"unconfirmed: {len(acknowledged & confirmers)} of {enough} acknowledgements"
        (session,) = secagg("status", "--state", folder.parent, "--json", "-").json["sessions"]
        assert session["state"] == expected
        assert session["waiting_for"] == (missing if end > opened else [])
        assert (session["step"] is None) == (expected == "over")


def test_who_is_waited_for_and_until_when(secagg: Command, tmp_path: Path) -> None:
    """One client has come: it was heard, the others are waited for, and the step closes when the server noted."""
    world = make_session(tmp_path)
    asyncio.run(SessionRun(world).run())
    folder = until(read_transcript(world.transcript(SERVER))[:3], tmp_path / "again" / "session")
    (folder / "closing").write_text("KeyAdvertisement 4000000000.0 0")
    said = secagg("status", "--state", folder.parent, "--json", "-").json
    (session,) = said["sessions"]
    (first,) = session["heard"]
    assert session["waiting_for"] == [name for name in ("client-1", "client-2", "client-3") if name != first]
    assert (session["state"], session["step"]) == ("under way", "KeyAdvertisement")
    assert session["until"] == "2096-10-02T07:06:40+00:00"
    assert session["seconds_left"] > 0
    text = secagg("status", "--state", folder.parent).out
    assert f"heard         {first}" in text
    assert "over" in secagg("status", "--state", world.home(SERVER).parent).out


def test_an_aborted_session_says_why(secagg: Command, tmp_path: Path) -> None:
    """Nobody is waited for any more, and the reason is the one that was signed."""
    world = make_session(tmp_path)
    ending = asyncio.run(SessionRun(world).run(absent=(2, 3)))
    (session,) = secagg("status", "--state", world.home(SERVER).parent, "--json", "-").json["sessions"]
    assert session["state"] == f"aborted: {ending.server.reason}"
    assert (session["waiting_for"], session["until"]) == ([], None)


def test_only_a_server_tells_where_a_session_stands(secagg: Command, tmp_path: Path) -> None:
    """Another party's folder, and one without sessions, are refused, the first by name."""
    world = make_session(tmp_path)
    asyncio.run(SessionRun(world).run())
    with pytest.raises(BadInput, match="is another party's"):
        status_of(world.home(1))
    assert secagg("status", "--state", tmp_path / "none").code == 2


def test_watching_prints_a_line_for_each_change(
    secagg: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipe each change of a session is one line, the last one how it ended; before the session there is none."""
    world = make_session(tmp_path / "world")
    asyncio.run(SessionRun(world).run())
    records, state = read_transcript(world.transcript(SERVER)), tmp_path / "watched"
    looks = iter([3, 3, 5, len(records)])

    def later(_: float) -> None:
        shutil.rmtree(state, ignore_errors=True)
        until(records[: next(looks)], state / "session")

    monkeypatch.setattr("secagg.cli.status.time.sleep", later)
    said = secagg("status", "--state", state, "--watch", "1")
    lines = said.out.splitlines()
    assert (said.code, len(lines)) == (0, 3)
    assert ["under way" in line for line in lines] == [True, True, False]
    assert lines[-1].endswith("round 1 of 1: over")
    looks = iter([3, len(records)])
    shutil.rmtree(state)
    said = secagg("status", "--state", state, "--watch", "1", "--json", "-")
    assert [json.loads(line)["state"] for line in said.out.splitlines()] == ["under way", "over"]
