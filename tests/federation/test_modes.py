"""Whatever the umask, nothing that a party keeps can be read by others, at any moment of a session or after it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worlds.federation import SimulatedFederation, run_federation
from tests.worlds.folders import open_to_others


@pytest.fixture
def careless() -> Iterator[None]:
    """A process whose umask takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
async def test_state_is_its_owners_alone(tmp_path: Path, careless: None, protection: str) -> None:
    """No file or folder under any party's state is open to group or world while frames travel, or at the end."""
    waits = {"join_seconds": 30, "step_seconds": 30}
    world = SimulatedFederation.of(tmp_path, refine=0, protection=protection, dropouts=0, **waits)
    states = {index: world.state(index) for index in range(len(world.setup.roster.members))}
    found: set[str] = set()
    seen: set[str] = set()

    def look(member: int, step: str, frame: bytes) -> bytes:
        for state in states.values():
            found.update(open_to_others(state))
            seen.update(path.name for path in state.rglob("*"))
        return frame

    await run_federation(world, tamper=look)
    look(0, "the end", b"")
    assert found == set()
    assert {"transcript.log", "ledger.sqlite", "uploads", "1.bin", "protected.bin", "aggregate.npz"} <= seen
