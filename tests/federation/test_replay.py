"""Nobody is made to release the same data twice: not by a lost folder or a lost memory."""

import asyncio
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import secagg.session.server_session
from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import COUNTS, PlanRefused, SessionAborted
from secagg.federation import session_folder
from secagg.federation.recovery import release_of
from secagg.transcript import FILE_NAME, Journal, read_transcript
from tests.worlds.federation import SimulatedFederation, run_federation


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> SimulatedFederation:
    """A plan of two sums, which everyone has finished."""
    world = SimulatedFederation.of(tmp_path_factory.mktemp("finished"), refine=1)
    asyncio.run(run_federation(world))
    return world


@pytest.fixture
def over(finished: SimulatedFederation, tmp_path: Path) -> SimulatedFederation:
    """A copy of it, to be damaged."""
    shutil.copytree(finished.folder, tmp_path / "copy")
    return replace(finished, folder=tmp_path / "copy")


def folders(world: SimulatedFederation, member: int) -> list[Path]:
    """A party's session folders."""
    return [path for path in world.state(member).iterdir() if path.is_dir()]


async def test_lost_folders_do_not_buy_a_second_noisy_sum(over: SimulatedFederation) -> None:
    """When every party's sessions are gone but the ledgers are there, every client refuses to take part again."""
    for party in (SERVER_INDEX, *over.setup.roster.clients):
        for folder in folders(over, party):
            shutil.rmtree(folder)
    played = await run_federation(over)
    for told in played.clients.values():
        assert "its folder" in str(told)
        assert "is gone" in str(told)


async def test_lost_round_is_not_taken_part_in_again(over: SimulatedFederation) -> None:
    """The folder of a later round alone is missed, too."""
    first = session_folder(over.state(1), over.setup)
    for folder in folders(over, 1):
        if folder != first:
            shutil.rmtree(folder)
    played = await run_federation(over)
    assert "is gone" in str(played.clients[1])


async def test_lost_memory_ends_the_session(tmp_path: Path) -> None:
    """A client whose transcript says that it has sent something, and whose memory is gone, does not begin again."""
    world = SimulatedFederation.of(tmp_path, refine=0)
    await run_federation(world)
    folder = session_folder(world.state(1), world.setup)
    records = [record for record in read_transcript(folder / FILE_NAME) if record.kind != "received"]
    (folder / FILE_NAME).unlink()
    journal = Journal(folder / FILE_NAME)
    for record in records[:5]:
        journal.append(record.kind, record.content)
    journal.close()
    assert "sent" in [record.kind for record in records[:5]]
    played = await run_federation(world)
    assert "remembered of the session is lost" in str(played.clients[1])


def test_heads_of_a_client_begin_with_a_salt(finished: SimulatedFederation) -> None:
    """Two members' first records are fresh random bytes: the heads that the server sees tell nothing of a policy."""
    salts = []
    for member in (1, 2):
        record = read_transcript(session_folder(finished.state(member), finished.setup) / FILE_NAME)[0]
        assert record.kind == "salt"
        salts.append(record.content)
    assert len(set(salts)) == 2
    assert {len(salt) for salt in salts} == {32}


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
async def test_abort_after_the_upload_stays_in_the_ledger(
    tmp_path: Path, protection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a session ends after the uploads without a published sum, every member is told that it counts, and it does.

    An exact sum about the same data is then refused.
    """

    def nowhere(*_: object) -> None:
        raise SessionAborted(f"the sum was opened; {COUNTS}")

    monkeypatch.setattr(secagg.session.server_session, "open_sum", nowhere)
    exact = {"epsilon": math.inf, "delta": None, "adjacency": None, "radius": 8.0}
    world = SimulatedFederation.of(
        tmp_path, clients=3, refine=0, protection=protection, dropouts=0, colluders=0, **exact
    )
    played = await run_federation(world)
    for member in world.setup.roster.clients:
        charged = (
            f"the upload may have left, and your ledger was charged epsilon inf about {world.policy(member).data_name}"
        )
        assert charged in str(played.clients[member])
        assert "the sum may have been opened" in str(played.clients[member])
        assert COUNTS in str(played.clients[member])
        (entry,) = world.ledger(member).entries()
        other = replace(entry.release, session=bytes(32), plan=bytes(32))
        with pytest.raises(PlanRefused):
            world.ledger(member).check(other, world.policy(member).budget)


async def test_member_that_has_not_uploaded_is_charged_nothing(tmp_path: Path) -> None:
    """Where a session ends before its upload a member's ledger stays as it is, whatever other plans have cost."""
    world = SimulatedFederation.of(
        tmp_path, clients=3, refine=0, dropouts=0, colluders=0, step_seconds=1, join_seconds=1
    )
    other = replace(release_of(world.setup.facts, "elsewhere"), session=bytes(32), plan=bytes(32))
    before = world.ledger(1).record(other, world.policy(1).budget)
    played = await run_federation(world, leaves={2: 0, 3: 0})
    assert "nothing of your records has left, and your ledger was not charged" in str(played.clients[1])
    assert "make a new plan, with new kits, policies and approvals" in str(played.clients[1])
    assert "more time than --join-seconds 1 and --step-seconds 1" in str(played.server)
    assert isinstance(played.clients[1], SessionAborted)
    assert world.ledger(1).entries() == (before,)
