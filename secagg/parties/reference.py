"""What the same method would have given without noise, and where that means something with all records in one place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from secagg.encoding import Integers
from secagg.parties.contribution import LocalRecords, contribution_of
from secagg.parties.outcome import SumResult, conclude
from secagg.parties.rounds import Rounds
from secagg.parties.setup import SessionSetup
from secagg.plan import canonical_json
from secagg.privacy import Unit
from secagg.protection import UNPROTECTED
from secagg.randomness import OperatingSystem


def pooled_result(
    setup: SessionSetup, members: Mapping[int, LocalRecords], opened: SumResult | None = None
) -> SumResult:
    """The last round's result over all members' records, pooled; one place needs no class gate.

    Where what a client sends is computed from all of its records together, as an update is, pooling them would be
    another method: the members' own contributions are summed instead, exactly. `opened` is what the plan itself ended
    with: where that is the same exact sum of as many clients, its artifact is not made again.
    """
    exact = replace(
        setup.plan,
        parameters=canonical_json(setup.method.ungated.parameters),
        protection=UNPROTECTED,
        epsilon=math.inf,
        delta=0.0,
        adjacency="",
        noise="",
        noises=(),
    )
    first = SessionSetup.of(exact, setup.roster)
    rounds: Rounds[SumResult] = Rounds(first)
    is_pooled = all(kind.per is Unit.RECORD for kind in first.sums)
    sources = {0: LocalRecords.pooled(list(members.values()))} if is_pooled else dict(members)
    states = dict.fromkeys(sources, b"")
    for stage in rounds:
        clients = stage.context.clients
        vector, states = _sum(stage, sources, states)
        is_end = stage.is_last and not setup.plan.has_noise
        if is_end and opened is not None and (opened.members, opened.vector.tobytes()) == (clients, vector.tobytes()):
            return opened
        rounds.ended(conclude(stage, clients, vector))
    return rounds.last


def _sum(
    stage: SessionSetup, sources: Mapping[int, LocalRecords], states: Mapping[int, bytes]
) -> tuple[Integers, dict[int, bytes]]:
    """The exact sum of a round, and what it leaves to each source."""
    made = {
        index: contribution_of(stage, records, OperatingSystem(), index, states[index])
        for index, records in sources.items()
    }
    total: Integers = sum(each.vector for each in made.values())  # type: ignore[assignment]
    return total, {index: each.state for index, each in made.items()}
