"""A plan that ends early is charged for every sum for which a vector may have left, and for no other."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from secagg.federation import client as returning
from secagg.federation.recovery import release_until
from secagg.privacy import Adjacency, Unit
from secagg.privacy.claim import format_epsilon
from tests.worlds.federation import FederationRun, SimulatedFederation
from tests.worlds.hosts import Left

LEAVING = (2, 3)


class Deserted(FederationRun):
    """Two of four members leave once they have uploaded in round 2: the plan cannot go on."""

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """Let the two go."""
        if member in LEAVING and (self.number_of(plan), step) == (2, "Endorsement"):
            raise Left


def test_plan_that_ends_after_an_upload_is_charged_for_it(tmp_path: Path) -> None:
    """After the upload of round 2 of 3 the ledger counts 2 sums, though the second was never opened."""
    world = SimulatedFederation.of(tmp_path)
    played = asyncio.run(Deserted(world).run())
    for member in (1, 4):
        whole, settled = world.ledger(member).entries()
        assert settled.release == release_until(world.setup.facts, world.policy(member).data_name, 2)
        assert settled.release.epsilon < whole.release.epsilon
        reason = played.clients[member].reason
        assert "a vector for 2 of 3 sums may have left" in reason
        assert ", for these sums alone" in reason
        assert f"charged epsilon {format_epsilon(settled.release.epsilon)} about" in reason


AWAY, OTHERS = 2, (1, 3, 4)


@dataclass
class AwayForTheSecond(FederationRun):
    """One member leaves as it uploads in round 2 and returns in round 3, in which too many leave."""

    is_due: asyncio.Event = field(default_factory=asyncio.Event)
    is_back: asyncio.Event = field(default_factory=asyncio.Event)
    lives: int = 1

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """Leave, wait for who is away, and end the plan."""
        number = self.number_of(plan)
        if member == AWAY and self.lives == 1 and (number, step) == (2, "UploadHeader"):
            raise Left
        if number == 3 and step == "KeyAdvertisement":
            if member == AWAY:
                self.is_back.set()
            else:
                self.is_due.set()
                await self.is_back.wait()
        if (number, step) == (3, "Endorsement") and member in (3, 4):
            raise Left

    async def _client(self, member: int) -> Any:
        while True:
            try:
                return await super()._client(member)
            except Left:
                if member != AWAY:
                    raise
                self.lives += 1
                await self.is_due.wait()


def test_member_that_missed_a_round_is_charged_for_the_whole_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its vector may have left in a round whose end it did not see: it settles nothing; a member that saw all does."""
    monkeypatch.setattr(returning, "KNOCK_SECONDS", 0.02)
    world = SimulatedFederation.of(
        tmp_path,
        refine=0,
        method="fedavg",
        parameters=(("rounds", 5),),
        unit=Unit.CLIENT,
        adjacency=Adjacency.ADD_REMOVE,
        round_seconds=1,
    )
    played = asyncio.run(AwayForTheSecond(world).run())
    assert "a vector for 3 of 5 sums may have left" in played.clients[AWAY].reason
    assert ", for the whole plan" in played.clients[AWAY].reason
    assert len(world.ledger(AWAY).uploads()) == 3
    (row,) = world.ledger(AWAY).entries()
    assert row.release.epsilon == world.setup.plan.epsilon
    *_, settled = world.ledger(1).entries()
    assert settled.release == release_until(world.setup.facts, world.policy(1).data_name, 3)
