"""Steps that too few connected members have answered: extended once, and the session goes on."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from secagg.errors import SessionAborted
from secagg.federation import returning
from secagg.privacy import Unit
from secagg.roster import SERVER_INDEX
from tests.worlds.federation import Ending, FederationRun, SimulatedFederation
from tests.worlds.hosts import Left

SHORT = {"refine": 0, "join_seconds": 1, "step_seconds": 1, "round_seconds": 1}


@dataclass
class Slow(FederationRun):
    """Clients take their time before they say a step for the first time; those in `gone` leave before they say it."""

    seconds: dict[str, float] = field(default_factory=dict)
    gone: tuple[int, ...] = ()
    rounds_only: bool = False
    waited: set[tuple[int, str]] = field(default_factory=set)

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """Wait, as a member does whose machine is busy."""
        is_due = step in self.seconds and (member, step) not in self.waited
        if is_due and not (self.rounds_only and self.number_of(plan) == 1):
            self.waited.add((member, step))
            if member in self.gone:
                raise Left
            await asyncio.sleep(self.seconds[step])


def extensions(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of extensions."""
    return [line for line in caplog.messages if "extended once" in line]


async def ended(run: FederationRun, caplog: pytest.LogCaptureFixture) -> Ending:
    """The end of a plan that was run under a log."""
    caplog.set_level(logging.INFO, "secagg")
    return await run.run()


async def test_members_that_are_slow_to_join_a_round_are_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All who were in the first sum take longer for the second round than it allows: it is extended, and has its sum."""
    world = SimulatedFederation.of(tmp_path, **{**SHORT, "refine": 1})
    ending = await ended(Slow(world, seconds={"KeyAdvertisement": 1.5}, rounds_only=True), caplog)
    assert ending.server.session.outcome.members == (1, 2, 3, 4)
    assert len(ending.stages) == 2
    (line,) = extensions(caplog)
    assert line.startswith("KeyAdvertisement: too few have answered")


@pytest.mark.long
async def test_members_that_are_slow_after_the_draw_are_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All who were in the draw take longer for their first round than it allows: it is extended, and has its sum."""
    monkeypatch.setattr(returning, "KNOCK_SECONDS", 0.02)
    training: dict[str, Any] = {"method": "fedavg", "parameters": (("rounds", 2), ("clip", 5.0)), "cohort": 4}
    world = SimulatedFederation.of(tmp_path, 5, unit=Unit.SILO, colluders=1, **training, **SHORT)
    ending = await ended(Slow(world, seconds={"KeyAdvertisement": 1.5}, rounds_only=True), caplog)
    assert not isinstance(ending.server, SessionAborted), ending.server
    assert extensions(caplog)[0].startswith("KeyAdvertisement: too few have answered")


async def test_extended_step_goes_on_without_those_who_are_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Three of four are slow and one is gone: the step is extended for the three, whose sum is opened."""
    world = SimulatedFederation.of(tmp_path, **SHORT)
    ending = await ended(Slow(world, seconds={"Dealing": 1.5}, gone=(4,)), caplog)
    assert ending.server.session.outcome.members == (1, 2, 3)
    assert len(extensions(caplog)) == 1


async def test_step_is_not_extended_twice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Members that stay connected and never answer win one extension, and the session ends."""
    world = SimulatedFederation.of(tmp_path, **SHORT)
    run = Slow(world, seconds={"Dealing": 20.0})
    task = asyncio.ensure_future(ended(run, caplog))
    while not (run.hosts and run.hosts[SERVER_INDEX].is_over and run.waited):
        await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.wait([task])
    run.hosts[SERVER_INDEX].close()
    assert len(extensions(caplog)) == 1
    (end,) = [stage.session for stage in run.hosts[SERVER_INDEX].session.stages]
    assert end.outcome is None
    assert "dealt shares" in str(end._protocol.failure)


async def test_step_that_enough_have_answered_is_not_extended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One member that is connected and silent does not hold up three that are enough."""

    class OneIsSlow(Slow):
        async def pause(self, member: int, plan: bytes, step: str) -> None:
            if member == 4:
                await super().pause(member, plan, step)

    world = SimulatedFederation.of(tmp_path, **SHORT)
    ending = await ended(OneIsSlow(world, seconds={"Dealing": 2.0}), caplog)
    assert ending.server.session.outcome.members == (1, 2, 3)
    assert extensions(caplog) == []


async def test_nobody_who_is_away_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where nobody who owes an answer is connected the step ends when its time is over."""
    world = SimulatedFederation.of(tmp_path, **SHORT)
    ending = await ended(Slow(world, seconds={"KeyAdvertisement": 0.0}, gone=(1, 2, 3)), caplog)
    assert isinstance(ending.server, SessionAborted)
    assert "1 of 4 clients joined" in str(ending.server)
    assert extensions(caplog) == []
