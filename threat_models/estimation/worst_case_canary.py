"""The worst neighbour of a claim: where in the opened sums it shows, how far it moves them, and under which noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from secagg.encoding.layout import Integers
from secagg.errors import BadInput
from secagg.privacy import (
    Adjacency,
    BlockNoise,
    Calibration,
    CensusSensitivity,
    Mechanism,
    MomentSensitivity,
    Releases,
    Unit,
    discrete_gaussian,
    rounded_gaussian,
)
from secagg.randomness import OperatingSystem, RandomSource
from threat_models.session import Floats

Release = Callable[[bool, int], NDArray[np.int64] | Floats]
"""(is the canary there?, how many times) → (times, moves): what was opened at every move's place, less all that the
adversary knows: the others' records, the colluders' noise, and the record that a replacing canary stands in for."""
Sampler = Callable[[Sequence[tuple[float | Fraction, int]], RandomSource], Integers]
"""One party's noise, as `secagg.privacy.discrete_gaussian` draws it."""


@dataclass(frozen=True)
class Move:
    """One entry that the canary moves by `shift` integers, multiplier included; `sigma` is that of one noise share.

    `part` counts the kinds of sums and `turn` the sums of the kind; `place` is the entry in the flat `block`.
    """

    part: int
    turn: int
    block: str
    place: int
    shift: int
    sigma: float


@dataclass(frozen=True)
class Canary:
    """Two neighbouring data sets, by the entries in which their sums differ; `shares` honest parties add noise to each.

    Moments have real records: `absent` and `present` are (integers of the first features, class), `absent` None where
    the canary is added. Other sums are moved as far as their sensitivity allows, whether or not data could do so.
    """

    moves: tuple[Move, ...]
    mechanism: Mechanism
    shares: int
    present: tuple[tuple[int, ...], int] | None = None
    absent: tuple[tuple[int, ...], int] | None = None

    @property
    def shifts(self) -> Floats:
        """The moves of each entry, (moves,)."""
        return np.array([move.shift for move in self.moves], dtype=np.float64)

    @property
    def sigmas(self) -> Floats:
        """σ of the honest parties' noise on each entry, (moves,)."""
        return np.array([move.sigma for move in self.moves]) * math.sqrt(self.shares)

    @property
    def mu(self) -> float:
        """Standard deviations of the planned noise between the two data sets."""
        return float(np.linalg.norm(self.shifts / self.sigmas))

    def scores(self, opened: Floats) -> Floats:
        """The optimal linear statistic of releases (n, moves), less the midpoint: N(±μ/2, 1) under the planned noise.

        The log-likelihood ratio of two Gaussians with one covariance (Neyman & Pearson 1933), over μ.
        """
        weights = self.shifts / self.sigmas**2 / self.mu
        return opened @ weights - self.mu / 2


def worst_canary(releases: Releases, spread: int = 1) -> Canary:
    """The neighbours that are farthest apart under the releases' noise, for the fewest honest shares.

    `spread`: over how many features a record of moments is spread; 1 touches no entry off the diagonal of B, more do.
    Raises BadInput where there are too few features.
    """
    if spread < 1:
        raise BadInput(f"a canary over {spread} features", remedy="give 1 or more")
    moves: list[Move] = []
    present = absent = None
    for part, (calibration, times) in enumerate(releases.parts):
        noises = {noise.block.name: noise for noise in calibration.blocks}
        if isinstance(calibration.sensitivity, MomentSensitivity):
            absent, present = _worst_records(calibration.sensitivity, noises, spread)
            shifts = _moves_of_records(absent, present, calibration.sensitivity)
        else:
            shifts = _stated_moves(calibration)
        for turn in range(times):
            moves += [
                Move(part, turn, name, place, shift * noises[name].multiplier, _sigma(noises[name], place))
                for name, place, shift in shifts
            ]
    first = releases.first
    shares = first.fewest if first.mechanism is Mechanism.DISCRETE_SHARES else 1
    return Canary(tuple(moves), first.mechanism, shares, present, absent)


def draw_release(canary: Canary, sampler: Sampler | None = None) -> Release:
    """A function that draws re-releases of the canary's entries alone, with the plan's own noise from the OS generator.

    Each of the canary's shares is drawn with one call of `sampler`: the plan's unless another one is given.
    """
    draw = sampler or (rounded_gaussian if canary.mechanism is Mechanism.GAUSSIAN else discrete_gaussian)
    shifts = np.array([move.shift for move in canary.moves], dtype=np.int64)

    def release(there: bool, times: int) -> NDArray[np.int64]:
        opened = np.zeros((times, len(canary.moves)), dtype=np.int64)
        segments = [(move.sigma, times) for move in canary.moves]
        for _ in range(canary.shares):
            opened += draw(segments, OperatingSystem()).reshape(-1, times).T
        return opened + shifts if there else opened

    return release


Shift = tuple[str, int, int]
Labelled = tuple[tuple[int, ...], int]


def _stated_moves(calibration: Calibration) -> list[Shift]:
    """Each block moved on one entry as far as stated; a census by 1 on one, two, or for a silo all entries."""
    sensitivity = calibration.sensitivity
    replaces = sensitivity.adjacency is Adjacency.REPLACE_ONE
    if isinstance(sensitivity, CensusSensitivity):
        if sensitivity.unit is Unit.SILO:
            return [("census", place, 1) for place in range(sensitivity.classes)]
        return [("census", 0, 1), ("census", 1, -1)] if replaces else [("census", 0, 1)]
    return [(block.name, 0, int((1 + replaces) * block.l2)) for block in sensitivity.blocks]


def _worst_records(
    sensitivity: MomentSensitivity, noises: dict[str, BlockNoise], spread: int
) -> tuple[Labelled | None, Labelled]:
    """The record to add, or the pair to exchange that lies farthest apart: opposite, orthogonal or between.

    Of one class, A and B move by (2 + 2t)·a + (2 − 2t²)·b for the cosine −t: most at t = min(1, a/2b).
    """
    levels, dimension = sensitivity.levels, sensitivity.dimension
    if sensitivity.adjacency is Adjacency.ADD_REMOVE:
        if dimension < spread:
            raise BadInput(f"a canary over {spread} of {dimension} features")
        return None, (_record(levels, spread, 1.0, 0.0)[:spread], 0)
    first = _record(levels, spread, 1.0, 0.0)
    a, b = (
        (levels**power * noises[name].multiplier / noises[name].sigma) ** 2
        for name, power in (("class_sums", 1), ("second_moment", 2))
    )
    t = min(1.0, a / (2 * b))
    candidates = [(_record(levels, spread, -1.0, 0.0), 0), (_record(levels, spread, -1.0, 0.0), 1)]
    if dimension >= 2 * spread:
        candidates += [(_record(levels, spread, -t, math.sqrt(1 - t * t)), 0), (_record(levels, spread, 0.0, 1.0), 1)]
    elif dimension < spread:
        raise BadInput(f"a canary over {spread} of {dimension} features")
    else:
        first, candidates = first[:spread], [(record[:spread], label) for record, label in candidates]

    def distance(other: Labelled) -> float:
        moved = _moves_of_records((first, 0), other, sensitivity)
        return math.fsum(
            (shift * noises[name].multiplier / _sigma(noises[name], place)) ** 2 for name, place, shift in moved
        )

    return (first, 0), max(candidates, key=distance)


def _record(levels: int, spread: int, along: float, across: float) -> tuple[int, ...]:
    """`along` times one direction plus `across` times an orthogonal one, of length ≤ `levels`, each over `spread`."""
    scale = levels / math.sqrt(spread)
    return (*[_round_inwards(along * scale)] * spread, *[_round_inwards(across * scale)] * spread)


def _round_inwards(value: float) -> int:
    """Round towards 0; what is a whole number but for rounding errors stays it."""
    nearest = round(value)
    return nearest if math.isclose(value, nearest, rel_tol=1e-12) else math.trunc(value)


def _moves_of_records(absent: Labelled | None, present: Labelled, sensitivity: MomentSensitivity) -> list[Shift]:
    """The entries of N, A and B that differ between the two data sets, in the layout of the whole blocks."""
    dimension = sensitivity.dimension
    moved: dict[tuple[str, int], int] = {}

    def add(record: Labelled, sign: int) -> None:
        entries, label = record
        steps = [("counts", label, 1)]
        steps += [("class_sums", label * dimension + i, entry) for i, entry in enumerate(entries)]
        for i, one in enumerate(entries):
            start = i * dimension - i * (i - 1) // 2
            steps += [("second_moment", start + j - i, one * entries[j]) for j in range(i, len(entries))]
        for name, place, value in steps:
            moved[name, place] = moved.get((name, place), 0) + sign * value

    add(present, 1)
    if absent is not None:
        add(absent, -1)
    return [(name, place, shift) for (name, place), shift in moved.items() if shift]


def _sigma(noise: BlockNoise, place: int) -> float:
    """σ of one share on one entry: for a triangle, its own off the diagonal."""
    if noise.off_diagonal is None:
        return noise.sigma
    row, rows = 0, noise.block.dimension
    while place >= rows - row:
        place -= rows - row
        row += 1
    return noise.off_diagonal if place else noise.sigma
