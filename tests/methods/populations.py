"""Populations over the records that the tests of training methods share."""

from __future__ import annotations

from collections.abc import Sequence

from methods import method_named
from methods.method import SumSpec
from methods.round import Contribution, Examples, Local, OpenedTotal, Step
from methods.search.round import PopulationRound
from tests.methods.training import CLASSES, DIMENSION, GRID, seeded, some_examples, summed

MEMBERS = [some_examples(count, seed) for seed, count in enumerate((30, 40, 0, 25, 60, 10))]
"""Six members: three cohorts of two."""
SPACE = "batch=4|8|16;epochs=1:3;rate=log:0.01:1;server_rate=log:0.5:2"
SMALL = {"population": 3, "rounds": 6, "interval": 2, "fixed": "clip=5", "space": SPACE, "validation": 0.5}


def first_round(**parameters: float | str) -> PopulationRound:
    """The first round of a search over softmax regression."""
    round_ = method_named("fedpop", {**SMALL, **parameters}).begin(DIMENSION, CLASSES, GRID.levels)
    assert isinstance(round_, PopulationRound)
    return round_


def spec_of(**parameters: float | str) -> SumSpec:
    """What such a search sums."""
    (spec,) = method_named("fedpop", {**SMALL, **parameters}).sums(DIMENSION, CLASSES, GRID.levels)
    return spec


def part(round_: PopulationRound, examples: Examples, member: int) -> Contribution:
    """What the member with this index contributes."""
    source = seeded(round_.number, member)
    return round_.contribute(Local(examples, CLASSES, GRID, member, randomness=source))


def stepped(round_: PopulationRound, members: Sequence[Examples] = MEMBERS) -> Step:
    """What follows from the sum of these members, whose indices are from 1 on."""
    indices = tuple(range(1, len(members) + 1))
    blocks = summed([part(round_, own, index) for index, own in zip(indices, members, strict=True)])
    return round_.finalize(OpenedTotal(blocks, GRID, clients=len(members), members=indices))


def next_round(round_: PopulationRound, members: Sequence[Examples] = MEMBERS) -> PopulationRound:
    """The round that it leads to."""
    following = stepped(round_, members).next_round
    assert isinstance(following, PopulationRound)
    return following
