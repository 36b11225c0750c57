"""A member that is killed before its vector leaves keeps the private state of the vector that then leaves."""

import asyncio
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from methods import METHODS
from methods.method import Parameters, SimpleMethod, SumSpec
from methods.round import Contribution, Local, OpenedTotal, Step
from secagg.encoding import Block, Kind
from secagg.federation import session_folder
from secagg.heads import LinearHead
from secagg.ledger import Ledger
from secagg.privacy import Unit
from secagg.session.sealed_state import recall_state
from tests.worlds.federation import FederationRun, SimulatedFederation, opened
from tests.worlds.hosts import Left

EVERYONE = (1, 2, 3, 4)


@dataclass(frozen=True)
class Drawn(SimpleMethod):
    """A sum of one number that each try draws anew; a member's private state is its number."""

    name: ClassVar[str] = "drawn"

    @property
    def parameters(self) -> Parameters:
        """None."""
        return {}

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """One entry."""
        block = Block("number", (1,), bound=1 << 32, kind=Kind.OTHER)
        return (SumSpec((block,), (), "equal", per=Unit.CLIENT, is_additive=False, refusal="it is a test"),)

    def contribute(self, local: Local) -> Contribution:
        """Draw a number (two tries draw the same one in 2³²)."""
        drawn = local.randomness.bytes(4)
        return Contribution({"number": np.array([int.from_bytes(drawn, "big")])}, drawn)

    def finalize(self, opened: OpenedTotal) -> Step:
        """A head of zeros."""
        return Step(LinearHead(np.zeros((3, 4), dtype=np.float32), np.zeros(3, dtype=np.float32)))


class Restarting(FederationRun):
    """A member that dies is started again."""

    async def _client(self, member: int) -> Any:
        while True:
            try:
                return await super()._client(member)
            except Left:
                await asyncio.sleep(0)


def test_private_state_is_that_of_the_vector_in_the_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All members die between their state and their upload, and try again: the sum is that of the states they keep."""
    begin_upload, dead = Ledger.begin_upload, list[Path]()

    def die_once(ledger: Ledger, context: bytes) -> None:
        if ledger._path not in dead:
            dead.append(ledger._path)
            raise Left
        begin_upload(ledger, context)

    monkeypatch.setattr(Ledger, "begin_upload", die_once)
    monkeypatch.setitem(METHODS, "drawn", Drawn)  # type: ignore[arg-type]
    exact = {"epsilon": math.inf, "delta": None, "adjacency": None}
    world = SimulatedFederation.of(
        tmp_path, refine=0, method="drawn", parameters=(), radius=100.0, step_seconds=10, **exact
    )
    ended = asyncio.run(Restarting(world).run())
    (stage,) = ended.stages
    states = [
        recall_state(session_folder(world.state(member), stage), stage.context.round_digest) for member in EVERYONE
    ]
    assert len(dead) == len(EVERYONE)
    assert int(opened(world, stage)[0]) == sum(int.from_bytes(state, "big") for state in states)
