"""Plans of several sums with aggregators or a key holder: each round a session of its own, with the same parties."""

import asyncio
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.agreement.plan import NoiseFrom
from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import BadInput
from secagg.federation import client
from secagg.session import RoundSetup, contribution_of, server_session
from secagg.verification.transcript_series import verify_transcript
from tests.session.noise_checks import check_noise
from tests.worlds.federation import Ending, FederationRun, SimulatedFederation, opened, run_federation
from tests.worlds.hosts import Left
from tests.worlds.setups import WIDE, exact

EVERYONE = (1, 2, 3, 4)
EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": None, "adjacency": None}
TOGETHER = ["shared", "encrypted"]


def totals(world: SimulatedFederation, played: Ending, members: tuple[int, ...] = EVERYONE) -> list[np.ndarray]:
    """What each session opened beyond the exact sum of its members' vectors."""
    return [
        opened(world, stage) - sum(exact(stage, world.records[member]) for member in members) for stage in played.stages
    ]


def check_transcripts(world: SimulatedFederation, played: Ending, *without: int) -> None:
    """Every party's transcript of every session verifies and tells the server's aggregate."""
    for stage in played.stages:
        found = verify_transcript(world.transcripts(0, (stage,))[0])
        for member in {*EVERYONE, *stage.context.helpers} - set(without):
            own = verify_transcript(world.transcripts(member, (stage,))[0])
            assert own["aggregate_sha256"] == found["aggregate_sha256"]


@pytest.mark.parametrize("stays", [True, False], ids=["stay", "told to leave"])
@pytest.mark.parametrize("protection", TOGETHER)
async def test_two_rounds_open_the_exact_sums(tmp_path: Path, protection: str, stays: bool) -> None:
    """Each of two sums is exact, everyone has its outcome, and between rounds clients stay whatever they were told."""
    world = SimulatedFederation.of(tmp_path, refine=1, protection=protection, **EXACT)
    played = await run_federation(world, stays=stays)
    assert len(played.stages) == 2
    assert not any(beyond.any() for beyond in totals(world, played))
    ends = (*played.clients.values(), *played.helpers.values())
    assert {end[1].members for end in ends} == {EVERYONE}
    assert {end[1].head_sha256 for end in ends} == {played.server.session.outcome.head_sha256}
    check_transcripts(world, played)


async def test_client_that_comes_back_contributes_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that upload, leave and come back for the outcome draw noise and read their records once a round."""
    rounds: list[tuple[int, int]] = []

    def counting(setup: RoundSetup, records: Any, randomness: Any, member: int, state: bytes) -> Any:
        rounds.append((setup.number, member))
        return contribution_of(setup, records, randomness, member, state)

    monkeypatch.setattr(client, "contribution_of", counting)
    await run_federation(SimulatedFederation.of(tmp_path, refine=1, protection="shared"), stays=False)
    assert sorted(rounds) == [(number, member) for number in (1, 2) for member in EVERYONE]


@pytest.mark.parametrize("protection", TOGETHER)
async def test_every_protection_ends_with_the_same_head(tmp_path: Path, protection: str) -> None:
    """Over the same records two rounds give the same head, to the bit, as under masks."""
    heads = []
    for name in ("masked", protection):
        played = await run_federation(SimulatedFederation.of(tmp_path / name, refine=1, protection=name, **EXACT))
        heads.append(played.server.session.outcome.head_sha256)
    assert heads[0] == heads[1]


@pytest.mark.parametrize(
    ("protection", "noise", "parties"),
    [("shared", "client", 4), ("shared", "aggregator", 2), ("encrypted", "client", 4)],
)
async def test_noise_is_that_of_the_plan(tmp_path: Path, protection: str, noise: str, parties: int) -> None:
    """Every sum bears the shares of all clients, or of both aggregators (fails at random once in 10⁹)."""
    world = SimulatedFederation.of(tmp_path, refine=1, protection=protection, noise=NoiseFrom(noise))
    played = await run_federation(world)
    for stage, beyond in zip(played.stages, totals(world, played), strict=True):
        assert beyond.any()
        check_noise(stage, beyond, parties)


async def test_every_aggregator_adds_all_of_the_noise(tmp_path: Path) -> None:
    """Two real aggregators add two full shares to 8,643 entries: one share too few fails (at random once in 10⁹)."""
    world = SimulatedFederation.of(tmp_path, refine=0, dimension=WIDE, protection="shared", noise=NoiseFrom.AGGREGATOR)
    played = await run_federation(world)
    (stage,), (beyond,) = played.stages, totals(world, played)
    assert max(block.size for block in stage.sum.layout.blocks) > 8_000
    check_noise(stage, beyond, 2)


@pytest.mark.parametrize("protection", TOGETHER)
async def test_client_that_leaves_between_rounds_is_in_no_later_one(tmp_path: Path, protection: str) -> None:
    """Who vanishes after the first round is not in the second, which the others finish with the exact sum."""
    world = SimulatedFederation.of(tmp_path, refine=1, protection=protection, **EXACT)
    played = await run_federation(world, leaves={2: 1})
    assert isinstance(played.clients.pop(2), Left)
    last = played.server.session.outcome
    assert last.members == (1, 3, 4)
    assert not totals(world, played, (1, 3, 4))[-1].any()
    assert all(end[1] == last for end in (*played.clients.values(), *played.helpers.values()))
    check_transcripts(world, played, 2)


@pytest.mark.parametrize(
    ("protection", "points"),
    [
        ("shared", [(1, "sent", "Outcome"), (2, "sent", "SetLists")]),
        ("encrypted", [(1, "sent", "Outcome"), (2, "sent", "SumRequest")]),
    ],
)
async def test_server_killed_between_and_in_rounds(
    tmp_path: Path, protection: str, points: list[tuple[int, str, str]]
) -> None:
    """A server killed between the rounds and within one goes on, and every sum is the exact one."""
    times = {"join_seconds": 30, "step_seconds": 30}
    world = SimulatedFederation.of(tmp_path, refine=1, protection=protection, **EXACT, **times)
    played = await run_federation(world, kill=list(points))
    assert played.restarts == 2
    assert not any(beyond.any() for beyond in totals(world, played))
    check_transcripts(world, played)


class FullForTheLast(FederationRun):
    """A run in which member 4 acknowledges round 1 once round 2 collects, and the disk refuses what that writes."""

    is_full = True

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """Have the member wait for round 2, and fill the disk of round 1."""
        if self.is_full and (member, self.number_of(plan), step) == (4, 1, "Acknowledgement"):
            server = self.hosts[SERVER_INDEX].session
            while True:
                if len(server.stages) == 2 and server.current is server.stages[1].session:
                    break
                await asyncio.sleep(0.01)
            self.is_full = False
            server.stages[0].session._journal.append = refuse


def refuse(kind: str, content: bytes) -> None:
    """Stand in for `Journal.append` on a full disk."""
    raise BadInput("no space is left", remedy="free the disk")


async def test_full_disk_of_an_earlier_round_ends_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of a past round that the disk refuses ends the server; started again, it loses nobody.

    Else it would go on, and refuse the late member for ever, which the next rounds would then leave behind.
    """
    monkeypatch.setattr(server_session, "LOOK_SECONDS", 0.1)
    world = SimulatedFederation.of(tmp_path, refine=1, join_seconds=30, step_seconds=30)
    ended = await FullForTheLast(world).run()
    assert isinstance(ended.server, BadInput)
    again = await run_federation(world)
    assert {outcome.members for _, outcome in again.clients.values()} == {EVERYONE}
    check_transcripts(world, again)
