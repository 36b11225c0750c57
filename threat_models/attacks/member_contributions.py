"""Members' contributions to sums as rows of numbers, and the linear equations for them that several rounds give."""

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
"""The rows (k, entries) of each block, by the block's name."""
WIDTH = 64
"""Number of entries in a row of a block that is one long vector."""
DETERMINED = 1e-6


def rows_of(blocks: Blocks, classes: int) -> dict[str, Floats]:
    """Cut each block (named array) into rows: a matrix into its own, a vector into rows of about `WIDTH` entries.

    Cells that divide classes are added up, as they may be others in another round.
    """
    if "class_sums" in blocks and len(blocks["counts"]) > classes:
        blocks = by_class(blocks, classes)
    found = {}
    for name, block in blocks.items():
        rows = len(block) if block.ndim > 1 else max(1, round(block.size / WIDTH))
        flat = np.asarray(block, dtype=np.float64).reshape(-1)
        found[name] = np.pad(flat, (0, -block.size % rows)).reshape(rows, -1)
    return found


@dataclass(frozen=True, eq=False)
class Equations:
    """Linear equations for the contributions of n `members`, each contribution assumed to be the same in every round.

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
        """Matrix (n, R) that maps R sums to n members' contributions by least squares: the pseudo-inverse."""
        return np.linalg.pinv(self.incidence, rcond=1e-9).astype(np.float64)

    @property
    def singled_out(self) -> NDArray[np.bool_]:
        """Flags (n,) of the members whose own contribution is a linear combination of the sums, and so is disclosed."""
        return np.asarray(np.einsum("nr,rn->n", self.solver, self.incidence) > 1 - DETERMINED)

    @property
    def told_apart(self) -> NDArray[np.bool_]:
        """Flags (n,) of the members for whom no other member takes part in exactly the same sums."""
        _, kinds, counts = np.unique(self.incidence, axis=1, return_inverse=True, return_counts=True)
        found: NDArray[np.bool_] = counts[kinds.reshape(-1)] == 1
        return found if len(self.members) > 1 else ~found

    @property
    def fewest_together(self) -> int:
        """The size of the smallest group of members whose joint sum the equations determine."""
        kinds, counts = np.unique(self.incidence, axis=1, return_counts=True)
        alone = np.einsum("nr,rn->n", np.linalg.pinv(kinds, rcond=1e-9), kinds) > 1 - DETERMINED
        return int(min(*counts[alone], *self.incidence.sum(axis=1)))

    def first(self, rounds: int) -> Equations:
        """Return the first `rounds` equations, and only the members that occur in them."""
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
        """Matrix (n, R) that maps R sums to each of n members' contributions minus the mean contribution."""
        mean = 1 / (len(self.incidence) * self.incidence.sum(axis=1))
        return np.asarray(self.solver - mean[None])

    def solve(self) -> dict[str, Floats]:
        """Compute each member's contribution minus the mean: k rows of each block (named array), as (n, k, entries)."""
        return {name: np.einsum("nr,rkm->nkm", self.weights, rows) for name, rows in self.sums.items()}

    def noises(self) -> dict[str, Floats] | None:
        """Compute the noise's standard deviation (n,) in each member's result of `solve`, by block (named array)."""
        if self.noise is None:
            return None
        return {name: np.sqrt(self.weights**2 @ each**2) for name, each in self.noise.items()}


def equations_in(view: View) -> Equations | None:
    """Return the equations for members' contributions that an adversary's sums give; None without sums.

    They are of the sums with the blocks that most rounds have. What the view has in clear of some members is taken off;
    where it has everybody's there is nothing to solve.
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
