"""Plans of several rounds, and a client that is gone once it has uploaded."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from tests.federation.test_second_rounds import EVERYONE, totals
from tests.worlds.federation import SimulatedFederation, Wire, run_federation
from tests.worlds.hosts import Left

GONE = 2


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client leaves for good once it has uploaded to both aggregators; the others upload slowly."""
    fetch, upload, uploaded = Wire.fetch, Wire.upload, set[int]()

    async def upload_and_note(self: Wire, *arguments: Any) -> bytes:
        reply = await upload(self, *arguments)
        if self._member == GONE:
            uploaded.add(self._receiver)
        return reply

    async def fetch_or_leave(self: Wire, plan: bytes, step: str, seconds: float) -> bytes:
        if self._member == GONE and step == "Outcome" and len(uploaded) == 2:
            raise Left
        frame = await fetch(self, plan, step, seconds)
        if step == "SessionKeys" and self._member in EVERYONE:
            await asyncio.sleep(0.5)
        return frame

    monkeypatch.setattr(Wire, "upload", upload_and_note)
    monkeypatch.setattr(Wire, "fetch", fetch_or_leave)


@pytest.mark.usefixtures("unhurried")
async def test_client_that_never_fetches_the_first_outcome_holds_no_round_up(tmp_path: Path) -> None:
    """Who uploads in the first of two rounds and never returns is in its sum; the others finish the second round."""
    times = {"join_seconds": 2, "step_seconds": 2}
    exact = {"epsilon": math.inf, "delta": None, "adjacency": None}
    world = SimulatedFederation.of(tmp_path, refine=1, protection="shared", **exact, **times)
    played = await run_federation(world)
    assert isinstance(played.clients.pop(GONE), Left)
    last = played.server.session.outcome
    assert last.members == (1, 3, 4)
    assert len(played.stages) == 2
    assert not totals(world, played)[0].any()
    assert not totals(world, played, last.members)[1].any()
    assert all(end[1] == last for end in (*played.clients.values(), *played.helpers.values()))
