"""A step that too few connected members have answered is extended once, and the session goes on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from secagg.errors import SessionAborted
from secagg.federation import client as returning
from secagg.plan_facts.facts import longest_round
from secagg.privacy import Unit
from secagg.transcript import peek
from secagg.transport import Link
from tests.worlds.federation import FederationRun, SimulatedFederation
from tests.worlds.hosts import Left, Life
from tests.worlds.setups import make_setup
from threat_models.active.consortium import Consortium
from threat_models.active.stage import Everyone, play

SHORT = {"refine": 0, "join_seconds": 1, "step_seconds": 1, "round_seconds": 1}
EVERYBODY = (1, 2, 3, 4, 5)
GIVES_UP = 10.0


@dataclass
class Slow(FederationRun):
    """`slow` clients answer a step when it is extended (or the server is over), once; those in `gone` leave before it.

    From session `first` on.
    """

    step: str = "Dealing"
    slow: tuple[int, ...] = EVERYBODY
    gone: tuple[int, ...] = ()
    first: int = 1
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    waited: set[int] = field(default_factory=set)

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """Wait, as a member does whose machine is busy; without an extension it gives up."""
        if step != self.step or member in self.waited or self.number_of(plan) < self.first:
            return
        self.waited.add(member)
        if member in self.gone:
            raise Left
        if member in self.slow:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.goes_on.wait(), GIVES_UP)


class Silent(Slow):
    """The slow clients stay connected and say nothing until the server is over."""

    def _begin_server(self) -> Life:
        life = super()._begin_server()

        async def work() -> Any:
            try:
                return await life.work
            finally:
                self.goes_on.set()

        return Life(life.called, work(), life.close)


class Extensions(logging.Handler):
    """What the server's log says of extensions, and an event that the first one sets."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.first = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line."""
        if "extended once" in record.getMessage():
            self.lines.append(record.getMessage())
            self.first.set()


@pytest.fixture
def extensions() -> Iterator[Extensions]:
    """The extensions in the server's log."""
    handler, log = Extensions(), logging.getLogger("secagg.server")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


async def test_members_that_are_slow_to_join_a_round_are_waited_for(tmp_path: Path, extensions: Extensions) -> None:
    """All who were in the first sum are late for the second round: joining is extended, and the round has its sum."""
    world = SimulatedFederation.of(tmp_path, **{**SHORT, "refine": 1})
    ending = await Slow(world, step="KeyAdvertisement", first=2, goes_on=extensions.first).run()
    assert ending.server.session.outcome.members == (1, 2, 3, 4)
    assert len(ending.stages) == 2
    (line,) = extensions.lines
    where, said = line.split(": ", 1)
    assert where.endswith("round 2 of 2, step 1 of 5")
    assert said.startswith(
        "KeyAdvertisement: too few have answered, but these are connected: client-1, client-2, client-3, client-4"
    )


async def test_slow_members_are_waited_for_over_the_network(
    tmp_path: Path, extensions: Extensions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over gRPC and mutual TLS: all members deal their shares late, the step is extended, and all are in the sum."""
    submit = Link.submit

    async def late(self: Link, frame: bytes) -> bytes:
        if peek(frame).step == "Dealing":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(extensions.first.wait(), GIVES_UP)
        return await submit(self, frame)

    monkeypatch.setattr(Link, "submit", late)
    everyone = Everyone(Consortium.enrol(tmp_path, "masked", step_seconds=1))
    endings = await play(everyone)
    assert not any(endings.values()), endings
    assert everyone.server is not None
    outcome = everyone.server.stages[-1].session.outcome
    assert outcome is not None
    assert outcome.members == everyone.consortium.clients
    assert len(extensions.lines) == 1


@pytest.mark.long
async def test_members_that_are_slow_after_the_draw_are_waited_for(
    tmp_path: Path, extensions: Extensions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All who acknowledged the draw are late for the first round of their cohort: it is extended, and has its sum."""
    monkeypatch.setattr(returning, "KNOCK_SECONDS", 0.02)
    training: dict[str, Any] = {"method": "fedavg", "parameters": (("rounds", 2), ("clip", 5.0)), "cohort": 4}
    world = SimulatedFederation.of(tmp_path, 5, unit=Unit.CLIENT, colluders=1, **training, **SHORT)
    ending = await Slow(world, step="KeyAdvertisement", first=2, goes_on=extensions.first).run()
    assert not isinstance(ending.server, SessionAborted), ending.server
    assert extensions.lines[0].startswith("KeyAdvertisement: too few have answered")


async def test_extended_step_goes_on_without_those_who_are_gone(tmp_path: Path, extensions: Extensions) -> None:
    """Three of four are slow and one is gone: the step is extended for the three, whose sum is opened."""
    world = SimulatedFederation.of(tmp_path, **SHORT)
    ending = await Slow(world, gone=(4,), goes_on=extensions.first).run()
    assert ending.server.session.outcome.members == (1, 2, 3)
    assert len(extensions.lines) == 1


async def test_step_is_not_extended_twice(tmp_path: Path, extensions: Extensions) -> None:
    """Members that stay connected and never answer win one extension, and the session ends."""
    ending = await Silent(SimulatedFederation.of(tmp_path, **SHORT)).run()
    assert isinstance(ending.server, SessionAborted)
    assert "only 0 of 4 clients dealt shares" in ending.server.reason
    assert len(extensions.lines) == 1


async def test_step_that_enough_have_answered_is_not_extended(tmp_path: Path, extensions: Extensions) -> None:
    """One member that is connected and silent does not hold up three that are enough."""
    ending = await Silent(SimulatedFederation.of(tmp_path, **SHORT), slow=(4,)).run()
    assert ending.server.session.outcome.members == (1, 2, 3)
    assert extensions.lines == []


async def test_nobody_who_is_away_is_waited_for(tmp_path: Path, extensions: Extensions) -> None:
    """Where nobody who owes an answer is connected the step ends when its time is over."""
    ending = await Slow(
        SimulatedFederation.of(tmp_path, **SHORT), step="KeyAdvertisement", slow=(), gone=(1, 2, 3)
    ).run()
    assert isinstance(ending.server, SessionAborted)
    assert "only 1 of 4 clients joined" in ending.server.reason
    assert extensions.lines == []


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
def test_a_round_may_last_as_long_as_all_its_steps_extended(protection: str) -> None:
    """Who waits for a round to end waits for each of its steps twice."""
    setup = make_setup(protection=protection, join_seconds=30, step_seconds=70)
    steps = len(setup.protection.steps) - 1
    assert longest_round(setup.plan) >= 2 * (30 + 70 * steps)
