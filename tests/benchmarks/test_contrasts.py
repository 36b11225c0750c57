"""What FedBiP's table says of a contrast follows from its paired interval, and from enough seeds."""

from __future__ import annotations

import pytest

from secagg.generation.pictures import TRAINING
from tests.benchmarks.fedbip import CLASSES, CONTRASTS, COUNT, FEDAVG, ROUNDS, SEEDS, STYLES, contrasted

MOVES = (0.01, 0.03, 0.02, 0.04, 0.025)


def runs_of(above: float, seeds: int = SEEDS) -> list[dict[str, float]]:
    """Accuracies of two rows, the first above the second by this much, and by some more from seed to seed."""
    ours, theirs = CONTRASTS[0]
    return [{ours: 0.5 + 0.1 * seed + above + MOVES[seed], theirs: 0.5 + 0.1 * seed} for seed in range(seeds)]


@pytest.mark.parametrize(("above", "verdict"), [(0.0, "above 0"), (-0.1, "below 0"), (-0.025, "cannot be told")])
def test_the_interval_decides(above: float, verdict: str) -> None:
    """Differences are paired: what moves both rows alike hides none of them. An interval around 0 tells nothing."""
    line = contrasted(runs_of(above), *CONTRASTS[0])
    assert line.endswith(f"5 seeds: {verdict}")
    assert f": {100 * (above + 0.025):+.1f} (" in line


def test_too_few_seeds_tell_nothing() -> None:
    """Four seeds whose differences are all far above 0 make no interval."""
    assert contrasted(runs_of(0.5, 4), *CONTRASTS[0]).endswith("cannot be told, 4 of 5 seeds")


def test_both_sides_take_as_many_steps() -> None:
    """The classifier's steps on the generated pictures are those of a member with 200 pictures in all rounds."""
    generated = COUNT * CLASSES * len(STYLES)
    assert TRAINING.epochs * -(-generated // TRAINING.batch) == ROUNDS * -(-200 // TRAINING.batch)
    assert f"rounds={ROUNDS} epochs=1 batch={TRAINING.batch} " in FEDAVG
