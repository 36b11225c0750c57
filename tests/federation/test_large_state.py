"""A model of ten million parameters, trained in rounds by the real parties in memory."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest

from methods.training.chain import ChainRound
from secagg.agreement.roster import SERVER_INDEX
from secagg.federation import session_folder
from secagg.session.attachments import OPENING_FILE, SUM_FILE
from tests.federation.test_training import world_of
from tests.worlds import federation
from tests.worlds.federation import run_federation

INPUTS, HIDDEN = 12, 625_000
"""Of a perceptron with 3 classes: 12 + 1 + 3 numbers for each hidden unit, and 3."""


@pytest.mark.long
def test_ten_million_parameters(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds of sums of 40 MB and states of 80 MB: all end with one model, which follows from the opened sums."""
    monkeypatch.setattr(federation, "PATIENCE", 1500.0)
    parameters = (("rounds", 2), ("model", f"mlp:{HIDDEN}"), ("rate", 0.5), ("clip", 5.0))
    times = dict.fromkeys(("join_seconds", "step_seconds", "round_seconds"), 600)
    world = world_of(tmp_path, parameters, dimension=INPUTS, **times)
    ended = asyncio.run(run_federation(world))
    outcomes = {outcome for _, outcome in ended.clients.values()}
    assert len(outcomes) == 1
    assert {outcome.members for outcome in outcomes} == {(1, 2, 3, 4)}
    for stage in ended.stages:
        assert isinstance(stage.round, ChainRound)
        assert stage.round.program.size == 16 * HIDDEN + 3
        homes = [session_folder(world.state(party), stage) for party in range(5)]
        (size,) = {(home / SUM_FILE).stat().st_size for home in homes}
        assert size == stage.sum.layout.length * stage.context.ring.entry_bytes
    states = [session_folder(world.state(party), ended.stages[-1]) / OPENING_FILE for party in range(5)]
    assert len({path.read_bytes() for path in states}) == 1
    with capfd.disabled():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(
            f"\nsums of {size} bytes, states of {states[SERVER_INDEX].stat().st_size}; {peak} MiB at most, five parties"
        )
