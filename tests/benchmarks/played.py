"""Rounds of a method played without protection: its exact sums, and the models that follow from these.

Exact sums are the same under every protection, so that tables without noise need no session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from methods.method import Method
from methods.round import Examples, Local, OpenedTotal
from secagg.encoding import Grid
from secagg.heads import Artifact
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN


def played(
    members: Sequence[Examples], classes: int, method: Method, grid: Grid, seed: int
) -> list[dict[str, Artifact]]:
    """Play a method's rounds without noise and return each member's models by name, the shared artifact as "".

    `members` hold records on `grid`, of 0…`classes` − 1; `seed` decides what members draw to train.
    """

    def local(number: int, member: int, state: bytes) -> Local:
        stream = SeededRandomness(f"{seed} {number} {member}".encode(), TOKEN)
        return Local(members[member], classes, grid, member, state, stream)

    return play(method.begin(members[0].records.shape[1], classes, grid.levels), len(members), grid, local)


def play(round_: Any, count: int, grid: Grid, local: Callable[[int, int, bytes], Local]) -> list[dict[str, Artifact]]:
    """Play from a method's first round on, and return the models of each of `count` members, as `played` does.

    `local` makes a member's input to a round from the round's number (from 1), the member's index and its state.
    """
    states, number = [b""] * count, 0
    while True:
        number += 1
        made = [round_.contribute(local(number, member, state)) for member, state in enumerate(states)]
        states = [each.state for each in made]
        total = {block: sum(each.blocks[block] for each in made) for block in made[0].blocks}
        opened = OpenedTotal(total, grid, clients=count)
        step = round_.finalize(opened)
        if step.next_round is None:
            return [{"": cast("Artifact", step.artifact), **round_.personal(state, opened)} for state in states]
        round_ = step.next_round
