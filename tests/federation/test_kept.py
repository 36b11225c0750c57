"""What a plan of rounds leaves on disks: sums in ring width, the newest states, and no more than the plan says."""

from __future__ import annotations

import asyncio
import math
import re
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from secagg.errors import BadInput
from secagg.federation import session_folder
from secagg.plan_facts.explanation import explain
from secagg.plan_facts.facts import KEPT_OPENINGS
from secagg.session.attachments import OPENING_FILE, SUM_FILE
from secagg.session.purging import earlier_sessions, purge, purge_sum, session_folders
from secagg.transcript import FILE_NAME, Journal
from secagg.verification.transcript_series import verify_together
from secagg.verification.verification import NOTHING_BROUGHT, Verified
from tests.federation.test_training import UPDATES, world_of
from tests.worlds.federation import FederationRun, Finished, SimulatedFederation, opened, run_federation

ROUNDS = 6
PARTIES = range(5)
TRAINING = (("rounds", ROUNDS), *UPDATES[1:])


class Reading(FederationRun):
    """A run that counts what each party reads, in sessions of a number."""

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """Note every call that reads."""
        if step == "Read":
            self.read.append((member, self.number_of(plan)))

    @property
    def read(self) -> list[tuple[int, int]]:
        """Who has read, in which session."""
        return self.__dict__.setdefault("_read", [])  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, list[tuple[int, int]]]:
    """Six rounds of training, and who read what."""
    world = world_of(tmp_path_factory.mktemp("played"), TRAINING)
    run = Reading(world)
    return (world, asyncio.run(run.run())), run.read


@pytest.fixture
def over(played: tuple[Finished, list[tuple[int, int]]], tmp_path: Path) -> Finished:
    """A copy of the finished plan, to be purged."""
    (world, ended), _ = played
    shutil.copytree(world.folder, tmp_path / "copy")
    return replace(world, folder=tmp_path / "copy"), ended


def kept(world: SimulatedFederation, party: int, name: str) -> list[Path]:
    """A party's files of this name, in all its sessions."""
    return sorted(world.state(party).glob(f"*/{name}"))


def verdicts(finished: Finished, party: int) -> list[str]:
    """What verifying all rounds of a party together says of each."""
    world, ended = finished
    found = verify_together(world.transcripts(party, ended.stages), NOTHING_BROUGHT)
    return [each.verdict if isinstance(each, Verified) else str(each) for each in found]


def test_members_present_read_sums_and_no_state(played: tuple[Finished, list[tuple[int, int]]]) -> None:
    """Each member reads the two files of one sum in each round, and neither state nor model: these it makes itself."""
    (_, ended), read = played
    assert sorted(read) == [(member, number) for member in range(1, 5) for number in range(1, ROUNDS + 1) for _ in "YS"]
    assert {outcome.members for _, outcome in ended.clients.values()} == {(1, 2, 3, 4)}


def test_sums_are_in_ring_width(played: tuple[Finished, list[tuple[int, int]]]) -> None:
    """Every party has the same bytes of every sum, as many for an entry as the ring has, fewer than eight."""
    (world, ended), _ = played
    for stage in ended.stages:
        contents = {(session_folder(world.state(party), stage) / SUM_FILE).read_bytes() for party in PARTIES}
        (content,) = contents
        assert len(content) == stage.sum.layout.length * stage.context.ring.entry_bytes < 8 * stage.sum.layout.length
        assert opened(world, stage).any()


def test_the_newest_states_alone_are_kept(played: tuple[Finished, list[tuple[int, int]]]) -> None:
    """However many rounds there were, a party keeps no more than two states, the last one's among them."""
    (world, ended), _ = played
    for party in PARTIES:
        files = kept(world, party, OPENING_FILE)
        assert 1 <= len(files) <= KEPT_OPENINGS
        assert session_folder(world.state(party), ended.stages[-1]) / OPENING_FILE in files


def test_every_round_verifies_without_the_states_between(over: Finished) -> None:
    """A state that is not kept is made again of the sums before it: all rounds of every party verify."""
    for party in PARTIES:
        found = verdicts(over, party)
        assert all(said.endswith("nobody vouched for") or said == "verifies" for said in found), found
        assert not any("purged" in said or "needs the broadcasts" in said for said in found)


def test_plan_states_how_much_is_kept(played: tuple[Finished, list[tuple[int, int]]]) -> None:
    """The bytes of sums and uploads that the plan states are those that lie there, at members and at the server."""
    (world, _), _ = played
    said = dict(explain(world.setup.facts))["kept on disk"]
    sums, clients, uploads = re.search(r"sums, (\d+) bytes in all.*uploads, (\d+) × (\d+) bytes", said).groups()  # type: ignore[union-attr]
    for party in PARTIES:
        assert sum(path.stat().st_size for path in kept(world, party, SUM_FILE)) == int(sums)
    assert sum(path.stat().st_size for path in world.state(0).glob("*/uploads/*")) == int(clients) * int(uploads)
    assert int(clients) == 4
    assert "the 2 newest" in said


def test_purge_leaves_digests_and_the_newest_sum(over: Finished) -> None:
    """After a purge a party has the last round's sum, its heads and all transcripts: these say what is gone."""
    world, ended = over
    for party in (0, 1):
        before = {path: path.read_bytes() for path in kept(world, party, FILE_NAME)}
        folders = session_folders(world.state(party))
        earlier = earlier_sessions(folders)
        last = session_folder(world.state(party), ended.stages[-1])
        assert earlier == set(folders) - {last}
        for folder in folders:
            purge(folder)
        assert sum(purge_sum(folder) for folder in earlier) >= ROUNDS - 1
        assert sum(purge_sum(folder) for folder in earlier) == 0
        assert kept(world, party, SUM_FILE) == [last / SUM_FILE]
        assert kept(world, party, OPENING_FILE) == [last / OPENING_FILE]
        assert {path: path.read_bytes() for path in kept(world, party, FILE_NAME)} == before
        *found, newest = verdicts(over, party)
        assert all("digests only" in said for said in found)
        assert ("digests only" in newest) == (party == 0)  # the server's uploads are gone, a member's sum is not


def test_session_that_is_open_keeps_the_sum_before_it(over: Finished) -> None:
    """Of a plan that goes on, the latest sum that was opened stays: some member may not have it yet."""
    world, ended = over
    shutil.rmtree(session_folder(world.state(0), ended.stages[-1]))
    earlier = earlier_sessions(session_folders(world.state(0)))
    assert earlier == {session_folder(world.state(0), stage) for stage in ended.stages[:-2]}


def test_open_plan_keeps_the_sums_that_lead_to_its_next_round(tmp_path: Path) -> None:
    """Where a round follows from those before it, no sum goes while there are rounds to come: who starts again asks."""
    world = SimulatedFederation.of(
        tmp_path, 4, 0, method="fedproto", parameters=(("rounds", 3), ("width", 4)), epsilon=math.inf, delta=None,
        adjacency=None,
    )  # fmt: skip
    ended = asyncio.run(run_federation(world))
    state = world.state(1)
    assert len(earlier_sessions(session_folders(state))) == 2
    shutil.rmtree(session_folder(state, ended.stages[-1]))
    assert earlier_sessions(session_folders(state)) == frozenset()


def test_other_bytes_in_place_of_a_sum_are_found(over: Finished) -> None:
    """A sum's file that is not the one that was signed for is refused by its name, at members and at the server."""
    world, ended = over
    for party in (0, 1):
        file = session_folder(world.state(party), ended.stages[1]) / SUM_FILE
        file.write_bytes(file.read_bytes()[::-1])
        assert str(file) in verdicts(over, party)[1]
        file.write_bytes(b"")
        assert str(file) in verdicts(over, party)[1]


def test_open_session_is_not_purged_of_its_sum(over: Finished) -> None:
    """While a process is at work in a folder, its sum stays."""
    world, ended = over
    folder = session_folder(world.state(0), ended.stages[0])
    with closing(Journal(folder / FILE_NAME)), pytest.raises(BadInput, match="another process is at work"):
        purge_sum(folder)
    assert (folder / SUM_FILE).exists()
