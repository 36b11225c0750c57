"""Members' parts of sums as rows of numbers, and the equations that the sums of several rounds are about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from threat_models.attacks.disclosure.subtraction import noise_left
from threat_models.attacks.targets import sums_in
from threat_models.session import SOMEBODY, Blocks, Floats, by_class
from threat_models.views import View

Rows = Mapping[str, Floats]
"""The rows (k, entries) of each block, by its name."""
WIDTH = 64
"""Entries of a row where a block is one long vector."""
DETERMINED = 1e-6


def rows_of(blocks: Blocks, classes: int) -> dict[str, Floats]:
    """Cut each block into rows: one for each class where it has one for each, counts in one row, else `WIDTH` entries.

    Cells that divide classes are added up, as they may be others in another round.
    """
    if "class_sums" in blocks and len(blocks["counts"]) > classes:
        blocks = by_class(blocks, classes)
    return {name: _cut(np.asarray(block, dtype=np.float64)) for name, block in blocks.items()}


def _cut(block: Floats) -> Floats:
    rows = len(block) if block.ndim > 1 else max(1, round(block.size / WIDTH))
    return np.pad(block.reshape(-1), (0, -block.size % rows)).reshape(rows, -1)


@dataclass(frozen=True, eq=False)
class Equations:
    """Sums of the parts of n hidden `members`, who are taken to send the same in every round.

    `incidence` (R, n) is 1 where a sum holds a member's part, `sums` are the rows (R, k, entries) of each block,
    `noise` their standard deviations (R,), None for exact sums; `numbers` (R,) are the rounds'. The noise of
    the blocks in `triangles` is σ/√2 off their diagonal.
    """

    members: tuple[str, ...]
    incidence: Floats
    sums: Mapping[str, Floats] = field(repr=False)
    noise: Mapping[str, Floats] | None
    numbers: tuple[int, ...]
    triangles: frozenset[str] = frozenset()

    @property
    def rank(self) -> int:
        """The number of independent equations."""
        return int(np.linalg.matrix_rank(self.incidence))

    @property
    def solver(self) -> Floats:
        """The matrix (n, R) from sums to members' parts: least squares, the shortest where there are several."""
        return np.linalg.pinv(self.incidence, rcond=1e-9).astype(np.float64)

    @property
    def singled_out(self) -> NDArray[np.bool_]:
        """Which members (n,) the equations determine: their own part alone is a combination of the sums."""
        found: NDArray[np.bool_] = np.einsum("nr,rn->n", self.solver, self.incidence) > 1 - DETERMINED
        return found

    @property
    def told_apart(self) -> NDArray[np.bool_]:
        """Which members (n,) were not with the very same others in every sum; of the rest nothing single comes out."""
        _, kinds, counts = np.unique(self.incidence, axis=1, return_inverse=True, return_counts=True)
        found: NDArray[np.bool_] = counts[kinds.reshape(-1)] == 1
        return found if len(self.members) > 1 else ~found

    @property
    def fewest_together(self) -> int:
        """The size of the smallest group whose own sum comes out: members who were never apart, or a cohort."""
        kinds, counts = np.unique(self.incidence, axis=1, return_counts=True)
        alone = np.einsum("nr,rn->n", np.linalg.pinv(kinds, rcond=1e-9), kinds) > 1 - DETERMINED
        return int(min(*counts[alone], *self.incidence.sum(axis=1)))

    @property
    def summed_with(self) -> NDArray[np.bool_]:
        """Which members (n, n) were in some sum together."""
        return self.incidence.T @ self.incidence > 0

    def first(self, rounds: int) -> Equations:
        """The first so many of the equations."""
        seen: NDArray[np.bool_] = self.incidence[:rounds].max(axis=0) > 0
        return Equations(
            tuple(member for member, is_there in zip(self.members, seen, strict=True) if is_there),
            self.incidence[:rounds, seen],
            {name: rows[:rounds] for name, rows in self.sums.items()},
            None if self.noise is None else {name: each[:rounds] for name, each in self.noise.items()},
            self.numbers[:rounds],
            self.triangles,
        )

    @property
    def weights(self) -> Floats:
        """The matrix (n, R) that makes of the sums each member's distance from the mean of all parts."""
        mean = 1 / (len(self.incidence) * self.incidence.sum(axis=1))
        found: Floats = self.solver - mean[None]
        return found

    def solve(self) -> dict[str, Floats]:
        """Each member's part less the mean part: rows (n, k, entries) of each block."""
        return {name: np.einsum("nr,rkm->nkm", self.weights, rows) for name, rows in self.sums.items()}

    def noises(self) -> dict[str, Floats] | None:
        """The standard deviation (n,) of the noise on what `solve` gives, by block."""
        if self.noise is None:
            return None
        return {name: np.sqrt(self.weights**2 @ each**2) for name, each in self.noise.items()}


def equations_in(view: View) -> Equations | None:
    """The equations that a view's rounds are: of the sums with the same blocks that most rounds have; None for none.

    What the view has in clear of some members is taken off; where it has everybody's there is nothing to solve.
    """
    classes = len(view.plan.classes)
    kinds: dict[tuple[Any, ...], list[tuple[View, frozenset[str], dict[str, Floats]]]] = {}
    for each in (*view.earlier, view):
        if "release" not in each.sees or set(each.members) <= set(each.in_clear):
            continue
        left = sums_in(each)[-1]
        rows = rows_of(left.blocks, classes)
        shape = tuple((name, rows[name].shape) for name in sorted(rows))
        kinds.setdefault(shape, []).append((each, left.owners - {SOMEBODY}, rows))
    if not kinds:
        return None
    rounds = max(kinds.values(), key=len)
    members = tuple(sorted(set().union(*(owners for _, owners, _ in rounds))))
    noises = [noise_left(each, len(owners)) or {} for each, owners, _ in rounds]
    names = rounds[0][2]
    sigmas = {name: np.array([each[name].sigma if each else 0.0 for each in noises]) for name in names}
    return Equations(
        members,
        np.array([[float(member in owners) for member in members] for _, owners, _ in rounds]),
        {name: np.stack([rows[name] for *_, rows in rounds]) for name in names},
        sigmas if any(noises) else None,
        tuple(each.number for each, *_ in rounds),
        frozenset(name for each in noises for name, noise in each.items() if noise.triangle),
    )
