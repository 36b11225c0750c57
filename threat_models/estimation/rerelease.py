"""Empirical ε from re-releases: the plan's noise drawn many times, with a worst-case record and without it.

The test. Whoever guesses from a release whether the canary is in it, which is so in half of the cases, is right with
probability ½·(1 − FPR + TPR) ≤ Φ(μ/2) while the release is μ-Gaussian (Dong, Roth & Su 2022). Gaussian noise
reaches this with a linear score and a threshold at the midpoint; the plan fixes both before anything is drawn. The
right guesses give one exact interval [l, h] of that probability, hence μ ≥ 2·Φ⁻¹(l) and ε ≥ ε(2·Φ⁻¹(l), δ). Intervals
of FPR and TPR apart would be 1.4 times as wide.

What it rests on. Nothing else: rounded Gaussians are post-processing of a μ-Gaussian release, and so are sums of
discrete-Gaussian shares, but for a factor below 1 + 10⁻¹⁵ (`secagg.privacy.shares`).

Beside the guesses. What is missing on a few entries alone hardly moves a score over all of them: the variance of the
noise on each entry that the canary moves is compared with the plan's by χ².

What it covers. Records and clients, add/remove and replace-one, all sums of a plan together; of the noise, the entries
that the canary moves. It tests what is drawn, not whether a party draws it: `release` takes the place of the plan's own
noise where something else is to be tested. A bound above the claim disproves it; one below proves nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr, ndtri

from secagg.encoding.layout import Integers
from secagg.errors import BadInput
from secagg.privacy import Adjacency, BlockNoise, Mechanism, NoiseCalibration, PrivacyClaim, Releases, Unit
from secagg.privacy.sampler import discrete_gaussian, rounded_gaussian
from secagg.privacy.sensitivity import BlockwiseSensitivity, CellSensitivity, CensusSensitivity, MomentSensitivity
from secagg.randomness import OperatingSystem, RandomSource
from threat_models.estimation.ceilings import roc_ceiling
from threat_models.estimation.intervals import ConfidenceInterval, at_level, bonferroni, clopper_pearson
from threat_models.estimation.recomputation import epsilon_of, gaussian_epsilon
from threat_models.findings import Curve, Series
from threat_models.session import Floats

BATCH = 5_000
POWER = 0.95
REPEATED = 1e-9
"""Coincidences among releases less likely than this are reported as repeated noise."""


@dataclass(frozen=True)
class _EpsilonBound:
    """Bounds of ε from re-releases, at the claim's δ; every interval is wrong with probability `level` at most.

    `mu` is the distance of the two cases that the guesses show, `planned` the one that the claim's noise allows.
    `releases` were drawn of each case; `repeated` is the number of releases whose noise had been there before, where
    that is no chance, else 0. `short` are the blocks with an entry whose noise varies less than planned: what one block
    lacks shows little in guesses, which go by all. `detectable`: noise with σ too small everywhere by this fraction or
    more would have been found with probability 95 %; None where no fraction would. `recomputed` is the auditor's own ε
    of the claim's noise.
    """

    epsilon: ConfidenceInterval
    mu: ConfidenceInterval
    planned: float
    claimed: float
    recomputed: float
    delta: float
    level: float
    releases: int
    repeated: int
    short: tuple[str, ...]
    detectable: float | None
    curve: Curve

    @property
    def lower(self) -> float:
        """The lower bound of ε."""
        return self.epsilon.low

    @property
    def refuted(self) -> bool:
        """Whether the noise is not what the claim counts on: it is too little, or the same noise comes again."""
        return self.mu.low > self.planned or self.repeated > 0 or bool(self.short)

    @property
    def power(self) -> str:
        """The faults of the noise that this audit would have found, in words."""
        if self.detectable is None:
            return "Re-releases would have shown no lack of noise with probability 95 %."
        percent = math.ceil(1000 * self.detectable) / 10
        return f"Re-releases with noise >= {percent:g} % too small would have shown it with probability 95 %."

    @property
    def sentence(self) -> str:
        """The outcome, and what it does not show, in words."""
        found = (
            f"Of {2 * self.releases} re-releases: epsilon is at least {self.lower:.3g} at delta {self.delta:g} "
            f"({self.epsilon.method}); {self.claimed:.4g} is claimed."
        )
        if self.repeated:
            verdict = f"The noise of {self.repeated} releases had been there before."
        elif self.lower > self.claimed:
            verdict = "This disproves the claim."
        elif self.short:
            verdict = f"The noise on {', '.join(self.short)} is less than the plan says."
        elif self.refuted:
            verdict = "The noise is less than the plan says."
        else:
            verdict = "A bound below the claim proves nothing."
        return f"{found} {verdict}"


def audit_release(
    claim: PrivacyClaim,
    *,
    releases: int = 20_000,
    level: float = 0.05,
    spread: int = 1,
    release: Release | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> _EpsilonBound:
    """Bound ε from below: draw 2 · `releases` releases, half of them with the worst canary, and guess which those are.

    The canary is `worst_canary(claim.releases, spread)`. `release` takes the place of `draw_release`; `level` is the
    probability with which each interval may be wrong. Raises BadInput for numbers out of range.
    """
    if releases < 2:
        raise BadInput(f"{releases} re-releases", remedy="give 2 or more")
    at_level("", level)
    canary = worst_canary(claim.releases, spread)
    there, absent, repeated, variances = _draw_scores(canary, release or draw_release(canary), releases, progress)
    right = int((there > 0).sum() + (absent <= 0).sum())
    accuracy = clopper_pearson(right, 2 * releases, level)
    mu = accuracy.through(lambda probability: 2 * float(ndtri(probability)))
    delta, planned = claim.delta, claim.releases.cost().mu
    # Find blocks with an entry whose noise varies less than planned; by χ², which the guesses leave half the level.
    draws = 2 * releases
    least = stats.chi2.ppf(bonferroni(level / 2, len(variances)), draws) / draws
    short = [move.block for move, found in zip(canary.moves, variances, strict=True) if found < least]
    return _EpsilonBound(
        epsilon=mu.through(lambda distance: gaussian_epsilon(distance, delta)),
        mu=mu,
        planned=planned,
        claimed=claim.epsilon,
        recomputed=epsilon_of(claim.releases, delta),
        delta=delta,
        level=level,
        releases=releases,
        repeated=repeated,
        short=tuple(dict.fromkeys(short)),
        detectable=detectable(canary.mu, planned, 2 * releases, level),
        curve=_curve(claim, canary.mu, there, absent, level),
    )


def detectable(mu: float, planned: float, guesses: int, level: float = 0.05) -> float | None:
    """Return the least shortfall of σ, as a fraction, that guessing finds with probability 95 %; None if never.

    None: no fraction can. `mu` is the canary's distance under the planned noise, `planned` the one above which the test
    reports, `guesses` the number of releases guessed about.
    """
    most = stats.binom.isf(level / 2, guesses, ndtr(planned / 2))  # one right guess more is reported

    def is_found(fraction: float) -> bool:
        return bool(stats.binom.sf(most, guesses, ndtr(mu / (1 - fraction) / 2)) >= POWER)

    low, high = 0.0, 1 - 1e-6
    if not is_found(high):
        return None
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if is_found(middle) else (middle, high)
    return high


def _draw_scores(
    canary: _Canary, release: Release, releases: int, progress: Callable[[int, int], None] | None
) -> tuple[Floats, Floats, int, Floats]:
    """Draw releases; return scores with and without the canary, the repeats' number, variance over planned by entry."""
    scores: dict[bool, list[Floats]] = {True: [], False: []}
    squares = np.zeros(len(canary.moves))
    equal = compared = 0
    for start in range(0, releases, BATCH):
        count = min(BATCH, releases - start)
        opened = {there: np.asarray(release(there, count), dtype=np.float64) for there in (True, False)}
        for there, values in opened.items():
            if values.shape != (count, len(canary.moves)):
                raise BadInput(f"a release has the shape {values.shape}, not {(count, len(canary.moves))}")
            scores[there].append(canary.scores(values))
        noise = np.stack([opened[True] - canary.shifts, opened[False]])
        squares += ((noise / canary.sigmas) ** 2).sum(axis=(0, 1))
        # Release i of one case against release i of the other, and against the one before it in each case.
        pairs = [noise[0] == noise[1], *(case[1::2] == case[:-1:2] for case in noise)]
        equal += sum(int(pair.all(axis=1).sum()) for pair in pairs)
        compared += sum(len(pair) for pair in pairs)
        if progress is not None:
            progress(start + count, releases)
    coincidence = float(np.prod(1 / (2 * math.sqrt(math.pi) * canary.sigmas)))
    by_chance = stats.binom.sf(equal - 1, compared, min(1.0, 2 * coincidence)) >= REPEATED
    repeated = 0 if by_chance else equal
    return np.concatenate(scores[True]), np.concatenate(scores[False]), repeated, squares / (2 * releases)


def _curve(claim: PrivacyClaim, mu: float, there: Floats, absent: Floats, level: float) -> Curve:
    """Make the ROC curve of the scores: an interval at each threshold, which the plan fixes, and the ceiling."""
    thresholds = -ndtri(np.geomspace(1e-4, 0.9, 33)) - mu / 2
    points = []
    for threshold in thresholds:
        false, true = int((absent > threshold).sum()), int((there > threshold).sum())
        if false and true:
            rate = clopper_pearson(true, len(there), level)
            points.append((false / len(absent), rate.value, rate.low, rate.high))
    measured = Series("re-releases", *zip(*points, strict=True)) if points else Series("re-releases", (), ())
    lines = measured, roc_ceiling(claim), Series("chance", (1e-4, 1.0), (1e-4, 1.0))
    title, rates = "Is the canary in the release?", ("false positive rate", "true positive rate")
    return Curve(title, *rates, lines, logarithmic=True)


Release = Callable[[bool, int], NDArray[np.int64] | Floats]
"""(is the canary there?, how many times) → (times, moves): the opened entry of every move, less all that the
adversary knows: the others' records, the colluders' noise, and the record that a replacing canary stands in for."""
Sampler = Callable[[Sequence[tuple[float | Fraction, int]], RandomSource], Integers]
"""Draws one party's noise, as `secagg.privacy.discrete_gaussian` does."""


@dataclass(frozen=True)
class Move:
    """One entry of a sum, the `shift` that the canary adds to it (multiplier included), and σ of one noise share.

    `part` counts the kinds of sums and `turn` the sums of the kind; `place` is the entry in the flat `block`.
    """

    part: int
    turn: int
    block: str
    place: int
    shift: int
    sigma: float


@dataclass(frozen=True)
class _Canary:
    """Two neighbouring data sets, with and without the canary, as the entries in which their sums differ.

    `shares` honest parties add noise to each entry. For moments and cells the records are real: `absent` and `present`
    are (integers of the first features, class), `absent` None where the canary is added. Other sums are moved as far as
    their sensitivity allows, whether or not data could do so.
    """

    moves: tuple[Move, ...]
    mechanism: Mechanism
    shares: int
    present: tuple[tuple[int, ...], int] | None = None
    absent: tuple[tuple[int, ...], int] | None = None

    @property
    def shifts(self) -> Floats:
        """The integer by which the canary moves each entry, (moves,)."""
        return np.array([move.shift for move in self.moves], dtype=np.float64)

    @property
    def sigmas(self) -> Floats:
        """σ of the honest parties' noise on each entry, (moves,)."""
        return np.array([move.sigma for move in self.moves]) * math.sqrt(self.shares)

    @property
    def mu(self) -> float:
        """Distance of the two data sets in standard deviations of the planned noise."""
        return float(np.linalg.norm(self.shifts / self.sigmas))

    def scores(self, opened: Floats) -> Floats:
        """Compute the optimal linear statistic of releases (n, moves), less the midpoint: N(±μ/2, 1) as planned.

        The log-likelihood ratio of two Gaussians with one covariance (Neyman & Pearson 1933), over μ.
        """
        weights = self.shifts / self.sigmas**2 / self.mu
        return opened @ weights - self.mu / 2


def worst_canary(releases: Releases, spread: int = 1) -> _Canary:
    """Find the record whose presence shows most in the releases, with the smallest number of honest noise shares.

    With noise levels it is that of the lowest level, which leaves the least of each share. All make the same promise.
    `spread`: over how many features a record of moments is spread; 1 touches no entry off the diagonal of B, more do.
    Raises BadInput where there are too few features.
    """
    if spread < 1:
        raise BadInput(f"a canary over {spread} features", remedy="give 1 or more")
    moves: list[Move] = []
    present, absent, lowest = None, None, releases.first.levels[0]
    for part, (calibration, times) in enumerate(releases.parts):
        noises = {noise.block.name: noise for noise in calibration.blocks}
        if isinstance(calibration.sensitivity, MomentSensitivity | CellSensitivity):
            absent, present = _worst_records(calibration.sensitivity, noises, spread)
            shifts = _moves_of_records(absent, present, calibration.sensitivity)
        else:
            shifts = _stated_moves(calibration)
        for turn in range(times):
            moves += [
                Move(
                    part,
                    turn,
                    name,
                    place,
                    shift * noises[name].multiplier,
                    calibration.left_of(_sigma(noises[name], place), lowest.missing),
                )
                for name, place, shift in shifts
            ]
    mechanism = releases.first.mechanism
    shares = lowest.fewest if mechanism is Mechanism.DISCRETE_SHARES else 1
    return _Canary(tuple(moves), mechanism, shares, present, absent)


def draw_release(canary: _Canary, sampler: Sampler | None = None) -> Release:
    """Return a function that draws releases with or without the canary; `sampler` draws noise (default: as planned)."""
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


def _stated_moves(calibration: NoiseCalibration) -> list[Shift]:
    """Move one entry of each block as far as stated; of a census one or two entries by 1, or a client's all.

    Where a part without negative entries is replaced, one entry takes the other's place.
    """
    sensitivity = calibration.sensitivity
    replaces = sensitivity.adjacency is Adjacency.REPLACE_ONE
    if isinstance(sensitivity, CensusSensitivity):
        if sensitivity.unit is Unit.CLIENT:
            return [("census", place, 1) for place in range(sensitivity.classes)]
        return [("census", 0, 1), ("census", 1, -1)] if replaces else [("census", 0, 1)]
    if replaces and isinstance(sensitivity, BlockwiseSensitivity) and sensitivity.nonnegative:
        ends = ((place, sign) for place, sign in ((0, 1), (1, -1)))
        return [(block.name, place, sign * int(block.l2)) for place, sign in ends for block in sensitivity.blocks]
    return [(block.name, 0, int((1 + replaces) * block.l2)) for block in sensitivity.blocks]


def _worst_records(
    sensitivity: MomentSensitivity | CellSensitivity, noises: dict[str, BlockNoise], spread: int
) -> tuple[Labelled | None, Labelled]:
    """Find the record to add, or the pair to exchange that lies farthest apart: opposite, orthogonal or between.

    Of one class, A and B move by (2 + 2t)·a + (2 − 2t²)·b for the cosine −t: most at t = min(1, a/2b), b being 0 where
    there is no B. Between lie (1, 0) and (−t, √(1 − t²)), and (u, v) and (−v, −u), 2uv = t: the B of these differ in no
    product of two entries (`spread` 1), so that they lie as far apart where σ is the same on and off the diagonal.
    """
    levels, dimension = sensitivity.levels, sensitivity.dimension
    if dimension < spread:
        raise BadInput(f"a canary over {spread} of {dimension} features")
    if sensitivity.adjacency is Adjacency.ADD_REMOVE:
        return None, (_record(levels, spread, 1.0, 0.0)[:spread], 0)
    _, a, b, *_ = (*((levels**p * n.multiplier / n.sigma) ** 2 for p, n in enumerate(noises.values())), 0.0)
    t = a / (2 * b) if a < 2 * b else 1.0
    u, v = ((math.sqrt(1 + t) + sign * math.sqrt(1 - t)) / 2 for sign in (1, -1))
    pairs = [((1.0, 0.0), (-1.0, 0.0), label) for label in (0, 1)]
    if dimension >= 2 * spread:
        across = ((1.0, 0.0), (-t, math.sqrt(1 - t * t)), 0), ((u, v), (-v, -u), 0)
        pairs += [*across, ((1.0, 0.0), (0.0, 1.0), 1)]
    width = min(2, dimension // spread) * spread
    made = [[_record(levels, spread, *each)[:width] for each in pair[:2]] for pair in pairs]
    candidates = [((one, 0), (other, label)) for (one, other), (*_, label) in zip(made, pairs, strict=True)]

    def distance(pair: tuple[Labelled, Labelled]) -> float:
        moved = _moves_of_records(*pair, sensitivity)
        sizes = (shift * noises[name].multiplier / _sigma(noises[name], place) for name, place, shift in moved)
        return math.fsum(size**2 for size in sizes)

    return max(candidates, key=distance)


def _record(levels: int, spread: int, along: float, across: float) -> tuple[int, ...]:
    """Make a record of length ≤ `levels`: `along` one direction, `across` an orthogonal one, each over `spread`."""
    scale = levels / math.sqrt(spread)
    return (*[_round_inwards(along * scale)] * spread, *[_round_inwards(across * scale)] * spread)


def _round_inwards(value: float) -> int:
    """Round towards 0, except that a whole number with a rounding error becomes that number."""
    nearest = round(value)
    return nearest if math.isclose(value, nearest, rel_tol=1e-12) else math.trunc(value)


def _moves_of_records(
    absent: Labelled | None, present: Labelled, sensitivity: MomentSensitivity | CellSensitivity
) -> list[Shift]:
    """Return the entries of N, A and B (one, one of each class, or none) that differ, in the layout of whole blocks."""
    dimension, (counts, sums, *second) = sensitivity.dimension, sensitivity.blocks
    moved: dict[tuple[str, int], int] = {}

    def add(record: Labelled, sign: int) -> None:
        entries, label = record
        steps = [(counts.name, label, 1)]
        steps += [(sums.name, label * dimension + i, entry) for i, entry in enumerate(entries)]
        for (i, one), block in itertools.product(enumerate(entries), second):
            start = i * dimension - i * (i - 1) // 2 + (0 if block.triangle else label * (block.size // counts.size))
            steps += [(block.name, start + j - i, one * entries[j]) for j in range(i, len(entries))]
        for name, place, value in steps:
            moved[name, place] = moved.get((name, place), 0) + sign * value

    add(present, 1)
    if absent is not None:
        add(absent, -1)
    return [(name, place, shift) for (name, place), shift in moved.items() if shift]


def _sigma(noise: BlockNoise, place: int) -> float:
    """Return σ of one noise share on one entry; a triangle has another σ off the diagonal."""
    if noise.off_diagonal is None:
        return noise.sigma
    row, rows = 0, noise.block.dimension
    while place >= rows - row:
        place -= rows - row
        row += 1
    return noise.off_diagonal if place else noise.sigma
