"""The noise of FedTC, FedPCL and MPFT on prototypes, in floating point: it reproduces the papers, and protects nothing.

Methods and a baseline for `secagg simulate --method tests/reproduction/paper_noise.py:NAME`:

    NoisyPrototypes, NoisyMPFT   class prototypes, and those of `mpft` with one slot, as secure sums of noisy prototypes
    FedTCSet                     FedTC as its paper has it: means of batches of a client's own records, in the clear

`python -m tests.reproduction.paper_noise NOISE FEWEST DIMENSION` prints which ε the noise amounts to where the fewest
records of a class that a client has are FEWEST, all of length 1. Floating-point noise gives bits of itself away
(Mironov 2012); protection comes from `secagg.privacy.calibrate` and `discrete_gaussian`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from methods.baselines.baseline import NUMBER, ClientData, Fitted, Linear, holders
from methods.closed_form.prototypes import Prototypes
from methods.method import SumSpec
from methods.round import Blocks, Contribution, Local
from methods.slots.fedtc import fit, nearest
from methods.slots.mpft import MPFT
from secagg.errors import BadInput
from secagg.privacy.claim import format_epsilon
from secagg.privacy.gaussian import LARGEST_MU, epsilon_of
from secagg.randomness import OperatingSystem, RandomSource

Reals = NDArray[np.float64]
Distribution = Literal["laplace", "gaussian", "exponential"]
DELTA = 1e-5
"""The δ at which ε is stated where none is given."""
ROUNDED = 1e-3
"""Records of length 1 are no further from it than this, once they are integers."""
ROOM = 1 << 16
"""How many lengths of the longest record an entry of a noisy prototype may have."""
OUTWARD = 1 + 2.0**-50
"""Factor that covers the rounding of a handful of float64 operations."""


@dataclass(frozen=True)
class FedTCNoise:
    """t·(1 − p) + noise, for FedTC (Eq. 6) and FedPCL (§5.6); `scale` > 0, 0 ≤ p < 1.

    `scale` is the distribution's parameter, as in FedPCL's code: the standard deviation is `scale` for gaussian and
    exponential noise and √2·`scale` for laplace. Exponential noise is never negative: it adds `scale` on average.
    """

    distribution: Distribution
    scale: float = 0.05
    p: float = 0.1

    def __post_init__(self) -> None:
        if self.distribution not in get_args(Distribution):
            problem = f"unknown noise distribution {self.distribution!r}"
            raise BadInput(problem, remedy=f"give {', '.join(get_args(Distribution))}")
        _check_above_zero("scale", self.scale)
        if not 0 <= self.p < 1:
            raise BadInput(f"p is {self.p}", remedy="give a number from 0 to below 1")

    def apply(self, prototypes: Reals, source: RandomSource | None = None) -> Reals:
        """Return the noisy prototypes (k, d); noise from `source`, by default the operating system. Raises BadInput."""
        _check_prototypes(prototypes)
        noise = DRAWS[self.distribution](_words(prototypes.size, source)).reshape(prototypes.shape)
        noisy: Reals = prototypes * (1 - self.p) + self.scale * noise
        return noisy

    def epsilon(self, *, sensitivity: float | None, dimension: int, delta: float) -> float:
        """Return an ε that holds at `delta`, rounded up, when one unit moves `dimension` numbers by L2 `sensitivity`.

        `sensitivity` is that of the prototypes; (1 − p) times it reaches the noise. None: records are not clipped, so
        ∞. Gaussian: exact. Laplace: pure ε from the L1 length, at most √`dimension` times the L2 length. Exponential:
        ∞, since no outcome lies below its prototype, which tells neighbours apart. Raises BadInput.
        """
        length = _move(sensitivity, dimension, delta) * (1 - self.p) / self.scale
        if self.distribution == "exponential":
            return math.inf
        if self.distribution == "laplace":
            return length * math.sqrt(dimension) * OUTWARD
        return _gaussian(length, delta)

    def sentence(self, epsilon: float, delta: float) -> str:
        """Return one line: what noise this is, and what the `epsilon` that it gives at `delta` is worth."""
        what = (
            f"FedTC's and FedPCL's {self.distribution} noise of scale {self.scale:g} on prototypes times {1 - self.p:g}"
        )
        one_sided = "its noise is never negative" if self.distribution == "exponential" else None
        return _sentence(what, epsilon, delta, one_sided)


@dataclass(frozen=True)
class MPFTNoise:
    """p + q·N(0, s²) for MPFT (§5.6): gaussian noise with standard deviation q·s; q > 0, s > 0."""

    q: float = 0.1
    s: float = 0.05

    def __post_init__(self) -> None:
        _check_above_zero("q", self.q)
        _check_above_zero("s", self.s)

    def apply(self, prototypes: Reals, source: RandomSource | None = None) -> Reals:
        """Return the noisy prototypes (k, d); noise from `source`, by default the operating system. Raises BadInput."""
        _check_prototypes(prototypes)
        noisy: Reals = prototypes + self.q * self.s * _normal(_words(prototypes.size, source)).reshape(prototypes.shape)
        return noisy

    def epsilon(self, *, sensitivity: float | None, dimension: int, delta: float) -> float:
        """Return ε at `delta`, rounded up, for L2 `sensitivity`; None: records are not clipped, so ∞. Raises BadInput.

        `dimension`, how many numbers one unit moves, does not matter to gaussian noise.
        """
        return _gaussian(_move(sensitivity, dimension, delta) / (self.q * self.s), delta)

    def sentence(self, epsilon: float, delta: float) -> str:
        """Return one line: what noise this is, and what the `epsilon` that it gives at `delta` is worth."""
        return _sentence(f"MPFT's noise {self.q:g}·N(0, {self.s:g}²) on prototypes", epsilon, delta)


PaperNoise = FedTCNoise | MPFTNoise
FORMS = "fedtc:DISTRIBUTION[:SCALE[:P]], fedpcl:DISTRIBUTION[:SCALE[:P]] or mpft[:Q[:S]]"


def paper_noise(text: str) -> PaperNoise:
    """Return the noise that a text names, such as fedtc:gaussian:0.05:0.1 or mpft:0.1:0.05. Raises BadInput.

    Numbers left out take the defaults: scale 0.05, p 0.1; q 0.1, s 0.05.
    """
    paper, *rest = text.split(":")
    if paper in ("fedtc", "fedpcl") and 1 <= len(rest) <= 3:
        # The class refuses a distribution that is not one of its names.
        return FedTCNoise(rest[0], **_numbers(text, ("scale", "p"), rest[1:]))  # type: ignore[arg-type]
    if paper == "mpft" and len(rest) <= 2:
        return MPFTNoise(**_numbers(text, ("q", "s"), rest))
    raise BadInput(f"unknown noise {text!r}", remedy=f"give {FORMS}")


def _numbers(text: str, names: tuple[str, ...], given: list[str]) -> dict[str, float]:
    try:
        return {name: float(number) for name, number in zip(names, given, strict=False)}
    except ValueError:
        raise BadInput(f"the noise {text!r} has something else than a number", remedy=f"give {FORMS}") from None


def _words(count: int, source: RandomSource | None) -> NDArray[np.uint64]:
    return np.frombuffer((source or OperatingSystem()).bytes(8 * count), "<u8")


def _uniform(words: NDArray[np.uint64]) -> Reals:
    """Odd multiples of 2⁻⁵³ between 0 and 1, from the upper 52 bits."""
    uniform: Reals = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return uniform


def _exponential(words: NDArray[np.uint64]) -> Reals:
    magnitudes: Reals = -np.log(_uniform(words))
    return magnitudes


def _laplace(words: NDArray[np.uint64]) -> Reals:
    """Exponential magnitudes whose sign is the lowest bit, which `_uniform` leaves."""
    signed: Reals = np.where(words & np.uint64(1), -1.0, 1.0) * _exponential(words)
    return signed


def _normal(words: NDArray[np.uint64]) -> Reals:
    quantiles: Reals = ndtri(_uniform(words))
    return quantiles


DRAWS: Mapping[str, Callable[[NDArray[np.uint64]], Reals]] = {
    "laplace": _laplace,
    "gaussian": _normal,
    "exponential": _exponential,
}
"""Draws with the distribution's parameter 1, one for each 64-bit word."""


def _move(sensitivity: float | None, dimension: int, delta: float) -> float:
    if not 0 < delta < 1:
        raise BadInput(f"delta cannot be {delta}", remedy="give a number between 0 and 1")
    if dimension < 1:
        raise BadInput(f"one unit moves {dimension} numbers", remedy="give 1 or more")
    if sensitivity is None:
        return math.inf
    _check_above_zero("the sensitivity", sensitivity)
    return sensitivity


def _gaussian(mu: float, delta: float) -> float:
    mu *= OUTWARD
    return epsilon_of(mu, delta) if mu <= LARGEST_MU else math.inf


def _sentence(what: str, epsilon: float, delta: float, reason: str | None = None) -> str:
    if epsilon == math.inf:
        return f"{what} gives no differential privacy: {reason or 'records are not clipped'} (epsilon inf)."
    cost = f"epsilon {format_epsilon(epsilon)} at delta {delta:g}"
    return f"{what} amounts to {cost}; it reproduces a paper and protects nothing."


def _check_above_zero(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise BadInput(f"{name} is {value}", remedy="give a finite number above 0")


def _check_prototypes(prototypes: Reals) -> None:
    if prototypes.ndim != 2 or not np.isfinite(prototypes).all():
        raise BadInput(f"prototypes of shape {prototypes.shape}", remedy="give finite numbers (k, d)")


@dataclass(frozen=True)
class NoisyPrototypes(Prototypes):
    """`prototypes` whose clients add a paper's `noise` to the class means, times their exact counts."""

    name: ClassVar[str] = "noisy-prototypes"
    noise: str = "fedtc:gaussian"

    def __post_init__(self) -> None:
        paper_noise(self.noise)

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """Those of `prototypes`, with room for the noise."""
        return tuple(map(_with_room, super().sums(dimension, classes, levels)))

    def contribute(self, local: Local) -> Contribution:
        """Counts, exact, and sums of noisy prototypes."""
        return _noisy(super().contribute(local).blocks, local, self.noise)


@dataclass(frozen=True)
class NoisyMPFT(MPFT):
    """`mpft` with one slot whose clients add a paper's `noise` to the means of classes in domains."""

    name: ClassVar[str] = "noisy-mpft"
    noise: str = "mpft"

    def __post_init__(self) -> None:
        super().__post_init__()
        paper_noise(self.noise)
        if self.slots > 1:
            raise BadInput("the papers' noise belongs to prototypes", remedy="use mpft with one slot")

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """Those of `mpft`, with room for the noise."""
        return tuple(map(_with_room, super().sums(dimension, classes, levels)))

    def contribute(self, local: Local) -> Contribution:
        """Counts, exact, and sums of noisy prototypes."""
        return _noisy(super().contribute(local).blocks, local, self.noise)


def _with_room(spec: SumSpec) -> SumSpec:
    counts, sums = spec.blocks
    refusal = "the papers' noise keeps no epsilon that one could ask for"
    blocks = (counts, replace(sums, bound=ROOM * sums.bound))
    return replace(spec, blocks=blocks, sensitivities=(), zero_sums=(), is_additive=False, refusal=refusal)


def _noisy(blocks: Blocks, local: Local, noise: str) -> Contribution:
    """Counts as they are; prototypes p_j = A_j/N_j with the noise, times N_j again. Raises BadInput beyond `ROOM`."""
    names, (counts, sums) = tuple(blocks), (each.copy() for each in blocks.values())
    held, grid = np.nonzero(counts), local.grid
    unit = grid.unit(sums.shape[-1]) / grid.radius
    if len(local.examples):
        prototypes = paper_noise(noise).apply(sums[held] / counts[held][:, None] / unit, local.randomness)
        noisy = np.rint(prototypes * unit * counts[held][:, None])
        if (np.abs(noisy) > ROOM * grid.levels * counts[held][:, None]).any():
            raise BadInput("noise of this size does not fit into the ring", remedy="choose less noise")
        sums[held] = noisy.astype(np.int64)
    return Contribution(dict(zip(names, (counts, sums), strict=True)))


def amounts_to(
    smallest: int, dimension: int, mechanism: PaperNoise, *, longest: float | None = 1.0, delta: float | None = None
) -> str:
    """What noise is worth, in one line: ε for replacing a record by another of its label, the counts being public.

    With records no longer than `longest` a prototype of N records moves by at most 2·longest/N; the `smallest` N that a
    client has decides. None: records are not clipped, so that no ε holds.
    """
    at = delta or DELTA
    sensitivity = 2 * longest / smallest if longest is not None else None
    epsilon = mechanism.epsilon(sensitivity=sensitivity, dimension=dimension, delta=at)
    return f"{mechanism.sentence(epsilon, at)} (another record of the same label; counts are public and exact)"


@dataclass(frozen=True)
class FedTCSet:
    """Cosine filter, random batches of a class without replacement, their means, one head for all of them.

    `keep` α and `batch` B as in the paper (Eq. 1-4); a last batch of fewer than B records is dropped, as there. A class
    of which a client keeps fewer than B records would vanish with it: these make one short batch. `epochs` and
    `momentum` of SGD as in `methods.slots.fedtc`, every prototype weighing the same.

    `noise` is the paper's on every prototype (Eq. 6), as `paper_noise` names it; the run's note says
    what it is worth. Of records of length 1, none filtered out, another one of the same class in a batch of B moves one
    prototype by at most 2/B. With the filter, or where no rule bounds the records, no ε holds.
    """

    keep: float = 0.99
    batch: int = 5
    epochs: int = 200
    momentum: float = 0.9
    noise: str = ""

    name: ClassVar[str] = "fedtc-set"
    leaves: ClassVar[str] = "means of a few of the client's own records of a class, and how many there are of them"
    protections: ClassVar[str] = (
        "the server trains on every client's own prototypes, a set that has no sum, and the filter ranks records, so "
        "that no finite epsilon is possible; fedtc sums slots instead, under every protection"
    )

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1 or self.batch < 1 or self.epochs < 1 or not 0 <= self.momentum < 1:
            problem = f"keep {self.keep}, batch {self.batch}, epochs {self.epochs} and momentum {self.momentum}"
            raise BadInput(problem, remedy="keep is above 0 and at most 1, the momentum from 0 to below 1")
        if self.noise:
            paper_noise(self.noise)

    def fit(self, clients: Sequence[ClientData], classes: int, seed: int) -> Fitted:
        """One head; the seed decides the batches. A client sends d float32 and a class for each prototype."""
        generator = np.random.default_rng(seed)
        held = holders(clients)
        sets = [self.prototypes(client, generator) for client in held]
        rows, labels = (np.concatenate(parts) for parts in zip(*sets, strict=True))
        note = ""
        if self.noise:
            mechanism = paper_noise(self.noise)
            rows = mechanism.apply(rows, generator)
            epsilon = mechanism.epsilon(sensitivity=self._move(held), dimension=rows.shape[1], delta=DELTA)
            tail = "the filter ranks records" if self.keep < 1 else "another record of the same label, public batches"
            note = f"{mechanism.sentence(epsilon, DELTA)} ({tail})"
        head = fit(rows, labels, np.ones(len(labels)), classes, self.epochs, self.momentum)
        number = max(len(own) for _, own in sets)
        return Fitted((Linear(head),), NUMBER * (rows.shape[1] + 1) * number, note=note)

    def _move(self, clients: Sequence[ClientData]) -> float | None:
        """How far one record moves the one prototype that it is in: 2/B at length 1; None where nothing bounds it."""
        longest = max(float(np.abs(np.linalg.norm(client.features, axis=1) - 1).max()) for client in clients) + 1
        if self.keep < 1 or longest > 1 + ROUNDED:
            return None
        return 2 * longest / min(self.batch, *(int(np.unique_counts(each.labels).counts.min()) for each in clients))

    def prototypes(
        self, client: ClientData, generator: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return what a client with records sends: means (k, d) and their classes (k,)."""
        kept = client.take(nearest(client.features, client.labels, self.keep))
        means, labels = [], []
        for label in np.unique(kept.labels):
            own = generator.permutation(kept.features[kept.labels == label])
            size = min(self.batch, len(own))
            own = own[: len(own) // size * size]
            means.append(own.reshape(-1, size, own.shape[1]).mean(axis=1))
            labels.append(np.full(len(means[-1]), label))
        return np.concatenate(means), np.concatenate(labels)


if __name__ == "__main__":
    print(amounts_to(int(sys.argv[2]), int(sys.argv[3]), paper_noise(sys.argv[1])))
