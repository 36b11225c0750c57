"""Plans of several sums with aggregators or a key holder: each round a session of its own, with the same parties."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.parties.links import verify_transcript
from secagg.plan import NoiseFrom
from tests.federation.rounds import Cast, Gone, Play, Played, opened
from tests.parties.promised import WIDE, check_noise, exact

EVERYONE = (1, 2, 3, 4)
EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": None, "adjacency": None}
TOGETHER = ["shared", "encrypted"]


def totals(cast_: Cast, played: Played, members: tuple[int, ...] = EVERYONE) -> list[np.ndarray]:
    """What each session opened beyond the exact sum of its members' vectors."""
    return [
        opened(cast_, stage) - sum(exact(stage, cast_.records[member]) for member in members) for stage in played.stages
    ]


def check_transcripts(cast_: Cast, played: Played, *without: int) -> None:
    """Every party's transcript of every session verifies and tells the server's aggregate."""
    for stage in played.stages:
        found = verify_transcript(cast_.transcripts(0, (stage,))[0])
        for member in {*EVERYONE, *stage.context.seconds} - set(without):
            own = verify_transcript(cast_.transcripts(member, (stage,))[0])
            assert own["aggregate_sha256"] == found["aggregate_sha256"]


@pytest.mark.parametrize("stays", [True, False], ids=["stay", "told to leave"])
@pytest.mark.parametrize("protection", TOGETHER)
async def test_two_rounds_open_the_exact_sums(tmp_path: Path, protection: str, stays: bool) -> None:
    """Each of two sums is exact, everyone has its outcome, and between rounds clients stay whatever they were told."""
    cast_ = Cast.of(tmp_path, refine=1, protection=protection, **EXACT)
    played = await Play(cast_, stays=stays).run()
    assert len(played.stages) == 2
    assert not any(beyond.any() for beyond in totals(cast_, played))
    ends = (*played.clients.values(), *played.seconds.values())
    assert {end[1].members for end in ends} == {EVERYONE}
    assert {end[1].head_sha256 for end in ends} == {played.server.session.outcome.head_sha256}
    check_transcripts(cast_, played)


@pytest.mark.parametrize("protection", TOGETHER)
async def test_every_protection_ends_with_the_same_head(tmp_path: Path, protection: str) -> None:
    """Over the same records two rounds give the same head, to the bit, as under masks."""
    heads = []
    for name in ("masked", protection):
        played = await Play(Cast.of(tmp_path / name, refine=1, protection=name, **EXACT)).run()
        heads.append(played.server.session.outcome.head_sha256)
    assert heads[0] == heads[1]


@pytest.mark.parametrize(
    ("protection", "noise", "parties"),
    [("shared", "client", 4), ("shared", "aggregator", 2), ("encrypted", "client", 4)],
)
async def test_noise_is_that_of_the_plan(tmp_path: Path, protection: str, noise: str, parties: int) -> None:
    """Every sum bears the shares of all clients, or of both aggregators (fails at random once in 10⁹)."""
    cast_ = Cast.of(tmp_path, refine=1, protection=protection, noise=NoiseFrom(noise))
    played = await Play(cast_).run()
    for stage, beyond in zip(played.stages, totals(cast_, played), strict=True):
        assert beyond.any()
        check_noise(stage, beyond, parties)


async def test_every_aggregator_adds_all_of_the_noise(tmp_path: Path) -> None:
    """Two real aggregators add two full shares to 8,643 entries: one share too few fails (at random once in 10⁹)."""
    cast_ = Cast.of(tmp_path, refine=0, dimension=WIDE, protection="shared", noise=NoiseFrom.AGGREGATOR)
    played = await Play(cast_).run()
    (stage,), (beyond,) = played.stages, totals(cast_, played)
    assert max(block.size for block in stage.layout.blocks) > 8_000
    check_noise(stage, beyond, 2)


@pytest.mark.parametrize("protection", TOGETHER)
async def test_client_that_leaves_between_rounds_is_in_no_later_one(tmp_path: Path, protection: str) -> None:
    """Who vanishes after the first round is not in the second, which the others finish with the exact sum."""
    cast_ = Cast.of(tmp_path, refine=1, protection=protection, **EXACT)
    played = await Play(cast_, leaves={2: 1}).run()
    assert isinstance(played.clients.pop(2), Gone)
    last = played.server.session.outcome
    assert last.members == (1, 3, 4)
    assert not totals(cast_, played, (1, 3, 4))[-1].any()
    assert all(end[1] == last for end in (*played.clients.values(), *played.seconds.values()))
    check_transcripts(cast_, played, 2)


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
    cast_ = Cast.of(tmp_path, refine=1, protection=protection, **EXACT, **times)
    played = await Play(cast_, kill=list(points)).run()
    assert played.restarts == 2
    assert not any(beyond.any() for beyond in totals(cast_, played))
    check_transcripts(cast_, played)
