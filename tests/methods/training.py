"""Records and rounds that the tests of training methods share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from methods import method_named
from methods.round import Contribution, Examples, Local, OpenedTotal, Step
from methods.training.training_round import TrainingRound
from secagg.encoding import Grid, Integers, Normalisation, quantise
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN

CLASSES, DIMENSION = 3, 6
GRID = Grid(1.0, 1 << 20, 0.0, Normalisation.UNIT)
FINE = {"rounds": 3, "rate": 0.3, "batch": 4, "clip": 50.0}


def first_round(**parameters: float | str) -> TrainingRound:
    """The first round of a plan of three, of softmax regression unless said otherwise."""
    method = method_named("fedavg", {**FINE, **parameters})
    round_ = method.begin(DIMENSION, CLASSES, GRID.levels)
    assert isinstance(round_, TrainingRound)
    return round_


def some_examples(count: int, seed: int = 0) -> Examples:
    """Records of length 1 around their classes' means, which overlap."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, count)
    features = generator.normal(size=(count, DIMENSION)) + 2 * np.eye(CLASSES, DIMENSION)[labels]
    return Examples.of(quantise(features, GRID), labels)


def seeded(*name: int) -> SeededRandomness:
    """The stream of a test's round and member, say."""
    return SeededRandomness(f"training: {name}".encode(), TOKEN)


def part(round_: TrainingRound, examples: Examples, member: int = 0) -> Contribution:
    """What a member contributes, its draws being those of the round and its number."""
    return round_.contribute(Local(examples, CLASSES, GRID, randomness=seeded(round_.number, member)))


def summed(parts: Sequence[Contribution]) -> dict[str, Integers]:
    """The sums of the members' blocks."""
    return {name: np.sum([each.blocks[name] for each in parts], axis=0) for name in parts[0].blocks}


def stepped(round_: TrainingRound, members: Sequence[Examples]) -> Step:
    """What follows from the sum of these members."""
    blocks = summed([part(round_, own, member) for member, own in enumerate(members)])
    return round_.finalize(OpenedTotal(blocks, GRID, clients=len(members)))


def next_round(round_: TrainingRound, members: Sequence[Examples]) -> TrainingRound:
    """The round that it leads to."""
    following = stepped(round_, members).next_round
    assert isinstance(following, TrainingRound)
    return following


def square(blocks: Mapping[str, Integers], name: str) -> int:
    """Σ of a block's squares in Python's integers."""
    return sum(int(entry) ** 2 for entry in blocks[name].reshape(-1))
