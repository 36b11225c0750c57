"""Refinement rounds: secure sums of clipped softmax gradients that improve the first sum's head (Mehta et al. 2023)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from methods.method import Fixed, SumSpec, ZeroSums, of_records
from methods.round import Contribution, Local, Noise, OpenedTotal, Round, SimpleRound, Step
from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Grid
from secagg.encoding.layout import Block, Integers, Kind
from secagg.encoding.softmax_gradient import EXACT as LARGEST_SCORE
from secagg.encoding.softmax_gradient import RESIDUAL_LEVELS, WEIGHT_BITS, Whitening, largest_score, softmax_gradient
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation, SecaggError
from secagg.heads import ReleaseNoise
from secagg.heads import refinement as rule
from secagg.privacy import OpenedNoise, Unit
from secagg.wire import Length, Range, decode, encode, message

AUTO = -1
"""A stand-in for the number of rounds where the plan's other fields decide it (`rounds_for`)."""
USUAL_ROUNDS = 16
"""The number of rounds where they pay: half as many lose up to half a point, twice as many gain little."""
GAIN = "0.5 to 9.4 points of accuracy at epsilon 1, mostly more below it and less above,"
"""The gain by refinement on the ten data sets, of 456 to 60,000 records, in methods/ACCURACY.md."""
MAX_ROUNDS = 100
MAX_DIMENSION = 1024
MAX_WEIGHT_BYTES = 8 << 20
GRADIENT_LEVELS = 1 << 16
"""R_x, the length of a mapped record in integers."""
TOLERANCE = 1e-3
"""The difference allowed between a client's recomputed first round and the server's, relative to the largest number.

Processors differ by 10⁻¹² under noise, by 10⁻⁵ for exact sums, whose null directions nothing regularises.
"""
EXACT = OpenedNoise(1.0)
"""A stand-in for the noise of an exact gradient (`secagg.heads.refinement.ONE_GRID_STEP`)."""


def rounds_for(fixed: Fixed) -> int:
    """Return how many refinement rounds improve a plan's head: `USUAL_ROUNDS`, or 0 if `why_none` gives a reason."""
    return 0 if why_none(fixed) else USUAL_ROUNDS


def why_none(fixed: Fixed) -> str:
    """Return the reason why refinement rounds would not improve a plan's head, or an empty text if they would."""
    if math.isinf(fixed.epsilon):
        return "there is no noise, without which one sum is nearly as good"
    if fixed.unit is not Unit.RECORD:
        return "they are tried under noise about records alone"
    if not fixed.stays:
        return "members stay for one sum only, or do not learn the head"
    if not _fits(fixed.dimension, fixed.classes):
        return f"too much would be broadcast for {fixed.dimension} features and {fixed.classes} classes"
    return ""


def refuse_unasked(rounds: int, uploads: Sequence[int], steps: int, step_seconds: int) -> None:
    """Raise BadInput that states gain and cost of refinement rounds, where a plan would get them without asking.

    `uploads`: bytes of one client, of each kind of sum. A sum takes `steps` messages of a client.
    """
    first, each = uploads[-2:]
    raise BadInput(
        f"rounds of refinement are not decided: {rounds} of them bring {GAIN} on public data, but every member stays "
        f"for, or comes back to, as many further sums ({first} bytes uploaded, then {each} for each) of "
        f"{steps} steps; a step takes seconds where all are online, and at most {step_seconds} s",
        remedy="give --refine auto for the rounds, or --refine 0 for none",
    )


def _fits(dimension: int, classes: int) -> bool:
    return dimension <= MAX_DIMENSION and 8 * classes * (dimension + 1) <= MAX_WEIGHT_BYTES


def gradient_sum(dimension: int, classes: int, rounds: int) -> SumSpec:
    """Specify the sum of a refinement round: C·(d + 1) gradient entries, which a record moves by ≤ 2¹²·2¹⁶ in L2 norm.

    Replace-one moves twice that: two records' residuals can be opposite.
    """
    if not _fits(dimension, classes):
        raise BadInput(
            f"refinement broadcasts d × d and C × (d + 1) numbers, too many for d = {dimension} and C = {classes}",
            remedy="use fewer features, or refine 0",
        )
    length = RESIDUAL_LEVELS * GRADIENT_LEVELS
    blocks = (Block("gradient", (classes, dimension + 1), bound=length, kind=Kind.UPDATE),)
    return SumSpec(
        blocks,
        of_records(blocks),
        shares="equal",
        times=rounds,
        budget=1 - rule.FIRST_SHARE,
        zero_sums=(ZeroSums("gradient", 0, float((classes + 1) * GRADIENT_LEVELS), centred=False),),
    )


def release_noise(noise: Noise) -> ReleaseNoise:
    """Collect the noise of counts, class sums and second moment in a `ReleaseNoise` (`secagg.heads.discriminant`)."""
    counts = noise["counts"]
    return ReleaseNoise(
        counts.sigma, noise["class_sums"].sigma, noise["second_moment"].sigma, count_multiplier=counts.multiplier
    )


@message("RefinementBroadcast")
@dataclass(frozen=True)
class RefinementBroadcast:
    """The broadcast of a refinement round: weights, in round 1 also the whitening map; little-endian int64 by rows."""

    number: Annotated[int, Range(1, MAX_ROUNDS)]
    scale: Annotated[float, Range(1e-6, 1e15)]
    weights: Annotated[bytes, Length(8, MAX_WEIGHT_BYTES)]
    matrix: Annotated[bytes, Length(0, 8 * MAX_DIMENSION**2)]
    centre: Annotated[bytes, Length(0, 8 * MAX_DIMENSION)]


@dataclass(frozen=True, eq=False)
class RefinementRound(SimpleRound):
    """Refinement round `number` of `rounds`: clients sum whitened records' gradients at integer `weights` (C, d + 1).

    `before` are the weights of the round before; in the first the same.
    """

    number: int
    rounds: int
    place: rule.Refinement
    weights: Integers
    before: Integers

    @classmethod
    def first(cls, opened: OpenedTotal, rounds: int) -> RefinementRound:
        """Return the first refinement round, from the opened sum of counts, class sums and second moment."""
        if opened.noise is None:
            place = rule.begin_exact(opened.blocks, opened.grid)
        else:
            place = rule.begin(opened.blocks, opened.grid, release_noise(opened.noise))
        start = _exact_weights(place.start)
        return cls(1, rounds, place, start, start)

    def contribute(self, local: Local) -> Contribution:
        mapped = local.examples.once(self.place.whitening.map)
        gradient = softmax_gradient(mapped, local.examples.labels, self.weights, rule.CLIP)
        return Contribution({"gradient": gradient})

    @property
    def is_exact(self) -> bool:
        """True: a step begins at broadcast integers. What precedes the first decomposes a matrix, and is not."""
        return True

    def finalize(self, opened: OpenedTotal) -> Step:
        sigma = (opened.noise["gradient"] if opened.noise else EXACT).sigma
        pace = rule.NOISY_PACE if opened.noise else rule.EXACT_PACE
        weights, before = self.weights / 2.0**WEIGHT_BITS, self.before / 2.0**WEIGHT_BITS
        stepped = rule.step(weights, before, opened.blocks["gradient"], sigma, self.place, self.rounds, pace)
        head = rule.refined_head(stepped, self.place, opened.grid)
        if self.number == self.rounds:
            return Step(head)
        following = _exact_weights(stepped)
        return Step(head, replace(self, number=self.number + 1, weights=following, before=self.weights))

    def broadcast(self) -> bytes:
        """Return the bytes of the weights and, in the first round, of the whitening map, which does not change."""
        whitening = self.place.whitening
        first = self.number == 1
        return encode(
            RefinementBroadcast(
                self.number,
                self.place.scale,
                _bytes(self.weights),
                _bytes(whitening.matrix) if first else b"",
                _bytes(whitening.centre) if first else b"",
            )
        )

    @classmethod
    def read_first(cls, broadcast: bytes, grid: Grid, rounds: int) -> RefinementRound:
        """Read the first refinement round from the server's broadcast. Raises MalformedMessage."""
        told = decode(RefinementBroadcast, broadcast)
        centre = _integers(told.centre)
        dimension = len(centre)
        matrix = _integers(told.matrix, dimension)
        weights = _integers(told.weights, dimension + 1)
        if told.number != 1:
            raise MalformedMessage("RefinementBroadcast", f"opens round {told.number} before the first")
        try:
            whitening = Whitening(matrix, centre, grid.levels, GRADIENT_LEVELS)
        except SecaggError as error:
            raise MalformedMessage("RefinementBroadcast", str(error)) from None
        start = weights / 2.0**WEIGHT_BITS
        return cls(1, rounds, rule.Refinement(whitening, start, told.scale), weights, weights)

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        told = decode(RefinementBroadcast, broadcast)
        if told.number != self.number + 1 or told.number > self.rounds or told.matrix or told.centre:
            raise ProtocolViolation(SERVER_INDEX, f"announces round {told.number} after round {self.number}")
        weights = _integers(told.weights, self.weights.shape[1])
        if weights.shape != self.weights.shape or told.scale != self.place.scale:
            raise ProtocolViolation(SERVER_INDEX, "changes between two rounds what must not change")
        return replace(self, number=told.number, weights=weights, before=self.weights)

    def require_equal(self, told: Round) -> None:
        """Raise ProtocolViolation unless `told` is this round: the first but for rounding, a later one bit for bit."""
        if not isinstance(told, RefinementRound) or told.number != self.number:
            raise ProtocolViolation(SERVER_INDEX, "announces another kind of round than the sums lead to")
        own, its = self.place, told.place
        if not math.isclose(its.scale, own.scale, rel_tol=TOLERANCE):
            raise ProtocolViolation(SERVER_INDEX, "the scale it broadcasts does not follow from the released sums")
        _require_close(its.whitening.matrix, own.whitening.matrix, "whitening")
        _require_close(its.whitening.centre, own.whitening.centre, "whitening's centre")
        _require_close(told.weights, self.weights, "weights", exact=self.number > 1)


def _exact_weights(weights: NDArray[np.float64]) -> Integers:
    """Return integer weights (C, d + 1) for the broadcast. Raises BadInput if records' scores would not be exact."""
    integers = rule.integer_weights(weights)
    if largest_score(integers, GRADIENT_LEVELS) >= LARGEST_SCORE:
        raise BadInput(
            "the rounds of refinement have no weights: the records of the first sum do not fill their features, as "
            "where there are fewer records than features",
            remedy="use refine 0, which is as good without noise, or more records, or fewer features",
        )
    return integers


def _bytes(integers: Integers) -> bytes:
    return integers.astype("<i8").tobytes()


def _integers(content: bytes, columns: int = 0) -> Integers:
    """Decode little-endian int64, as rows of `columns` where given. Raises MalformedMessage."""
    if not content or len(content) % (8 * max(columns, 1)):
        raise MalformedMessage("RefinementBroadcast", f"{len(content)} bytes are no rows of {columns} integers")
    integers = np.frombuffer(content, dtype="<i8").astype(np.int64)
    return integers.reshape(-1, columns) if columns else integers


def _require_close(told: Integers, own: Integers, what: str, *, exact: bool = False) -> None:
    allowed = 0.0 if exact else TOLERANCE * float(np.abs(own).max()) + 2
    same = told.shape == own.shape
    if not (same and np.abs(told.astype(np.float64) - own.astype(np.float64)).max() <= allowed):
        raise ProtocolViolation(SERVER_INDEX, f"the {what} it broadcasts do not follow from the released sums")
