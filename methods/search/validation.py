"""Which of a member's records judge settings and are never trained on, and the score that they give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from methods.round import Examples
from methods.slots.slots import MOST_SLOTS, slot_of
from secagg.encoding import Integers
from secagg.networks import Program, record_losses

LOSS_LEVELS = 1 << 10
"""The largest loss of a record, in integers."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Chosen:
    """Picks records by a public hash of their integers (`slot_of`): a part `share` of all, of them at most `most`.

    Both by rules under which a record more or less changes no other's lot but that of one at most: those beyond `most`
    have the largest hashes, and are neither judged by nor trained on.
    """

    share: float
    most: int

    def __call__(self, records: Integers) -> tuple[NDArray[np.bool_], Integers]:
        """Return which of the records (n, d) may be trained on (n,), and the places of those that judge."""
        slots = slot_of(records, MOST_SLOTS)
        trained = slots >= int(self.share * MOST_SLOTS)
        judging = np.flatnonzero(~trained)
        ranked = judging[np.argsort(slots[judging], kind="stable")]
        return trained, ranked[: self.most]


def score(
    program: Program,
    model: Floats,
    inputs: NDArray[np.float32],
    examples: Examples,
    largest: float,
    *,
    tolerant: bool = False,
) -> int:
    """Return Σ min(loss, `largest`) of records, each in units of largest/`LOSS_LEVELS`, truncated by itself.

    A loss that is no number counts as the largest, and so, with `tolerant`, does that of a record on which the program
    fails. So a record adds 0 … `LOSS_LEVELS`, whatever the others are.
    """
    losses = record_losses(program, model, inputs, examples.labels, tolerant=tolerant).astype(np.float64)
    shortened = np.minimum(np.nan_to_num(losses, nan=largest, posinf=largest), largest)
    return int(np.trunc(np.maximum(shortened, 0.0) * (LOSS_LEVELS / largest)).sum())
