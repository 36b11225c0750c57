"""Rounds in which every member trains a projection of its own; members share nothing but class prototypes.

What is summed is, for each class, how many records there are and the sum of their projections z of unit length, as
integers (Tan et al. 2022, "Federated Learning from Pre-Trained Models", Eq. 5 and 6 with the weights of a mean: Eq. 6
divides twice). In the first round all project by one public start, and nothing is trained; a later one begins with
training against the prototypes that the round before opened. The projection never leaves its member.

The records' projections depend on all of the member's records, through the training. So a record has no sensitivity
by itself, and there are two promises: about members, with `cap`, where all that one sends is inside lengths that are
checked on integers, and never negative, so that no two members' contributions are opposite; and about records, with
`sampling`, where what is sent is projected by tensors that the member trains apart, by DP-SGD, and the sums are further
releases (`methods.own_models.projected_sums` has the proof). Its own models it trains without noise in either case:
they stay with it.

Members may be divided into `groups`, which do not change and do not overlap: member i is of group i mod groups. Each
class then has a count and a sum for every group, side by side in one secure sum, and a member's are in its own group's
places alone. Groups are as large as a sum must be that hides a member (`PlanFacts` refuses smaller ones).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from methods.closed_form.prototypes import SHARES
from methods.method import SampledTraining, SimpleMethod, SumSpec, Traits, clipped
from methods.own_models.projected_sums import class_sums, released_sums
from methods.round import Contribution, Examples, Local, OpenedTotal, Round, Step
from methods.slots.slots import MAX_CENTRE_BYTES, MOST_TOLD, read_centres, told_centres
from methods.training.client_update import GRADIENT_LEVELS, KeptTensors, program_inputs, sampled_steps
from methods.training.trained_in_rounds import MOST, Sampling
from secagg.agreement.policy import Effort
from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.labels import digest
from secagg.encoding import Block, Grid, Integers, Kind
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation
from secagg.heads import Artifact
from secagg.networks import (
    DpSgdSettings,
    Projecting,
    TrainedModel,
    TrainingSettings,
    Untainted,
    dp_sgd,
    read_model,
    require_untainted,
    train,
)
from secagg.networks.programs import tensors_of
from secagg.networks.projection import MostSimilar
from secagg.networks.taint import public
from secagg.networks.training import NotNegative, OptimiserName, Positive, Share, row_size
from secagg.privacy import Adjacency, CellSensitivity, Unit
from secagg.wire import Range, require_in_range

COUNTS, SUMS = "counts", "class_sums"
Floats = NDArray[np.float64]


def blocks_of(classes: int, width: int, groups: int, most: int, levels: int) -> tuple[Block, Block]:
    """Return the arrays to sum: counts (C,), class sums (C, width), or with groups (C, groups) and (C, groups, width).

    A member, or a record, has no more than `most` records of a class, each projected to length ≤ `levels`.
    """
    cells = (classes,) if groups == 1 else (classes, groups)
    return (
        Block(COUNTS, cells, bound=most, kind=Kind.COUNTS),
        Block(SUMS, (*cells, width), bound=most * levels, kind=Kind.CLASS_SUMS),
    )


def put_in_group(counts: Integers, sums: Integers, member: int, groups: int) -> dict[str, Integers]:
    """Return a client's counts (C,) and class sums (C, w) in its group's columns, with zeros for the other groups."""
    if groups == 1:
        return {COUNTS: counts, SUMS: sums}
    all_counts = np.zeros((len(counts), groups), dtype=np.int64)
    all_sums = np.zeros((len(sums), groups, sums.shape[1]), dtype=np.int64)
    all_counts[:, member % groups], all_sums[:, member % groups] = counts, sums
    return {COUNTS: all_counts, SUMS: all_sums}


def shorten(counts: Integers, sums: Integers, cap: int) -> tuple[Integers, Integers]:
    """Cap class counts (C,) at the largest t with ‖counts‖₂ ≤ cap, and scale each class sum (C, w) as its count.

    Counts become min(n_j, t) for the largest whole t that fits, so that rare classes stay; sums of vectors without
    negative entries, each no longer than R, stay no longer than counts·R, so that ‖sums‖₂ ≤ cap·R. Nothing gets
    negative, no product being as large as 2⁶³.
    """
    low, high = 0, int(counts.max(initial=0))
    while low < high:
        middle = (low + high + 1) // 2
        fits = sum(min(count, middle) ** 2 for count in counts.tolist()) <= cap * cap
        low, high = (middle, high) if fits else (low, middle - 1)
    fewer = np.minimum(counts, low)
    divisors, factors = np.maximum(counts, 1)[:, None], fewer[:, None]
    whole, rest = np.divmod(sums, divisors)
    return fewer, whole * factors + rest * factors // divisors


def prototypes_of(opened: OpenedTotal) -> Integers:
    """Return S sets of prototypes (class means), (S, C, width) in quantised units: all clients' set, then each group's.

    A class that a group has no record of has all members' prototype there (Tan et al. 2022, Eq. 7).
    """
    counts = opened.blocks[COUNTS] / opened.multiplier(COUNTS)
    sums, levels = opened.blocks[SUMS] / opened.multiplier(SUMS), opened.grid.levels
    if counts.ndim == 1:
        return class_means(counts, sums, levels)[None]
    every = class_means(counts.sum(axis=1), sums.sum(axis=1), levels)
    own = [class_means(counts[:, group], sums[:, group], levels) for group in range(counts.shape[1])]
    padded = [np.where(each.any(axis=1, keepdims=True), each, every) for each in own]
    sets: Integers = np.stack([every, *padded])
    return sets


def class_means(counts: Floats, sums: Floats, levels: int) -> Integers:
    """Return each class's mean (C, width), truncated to integers; 0 for a class without records.

    What noise may break is mended: a count below 1 is 1, no entry is negative, no mean longer than `levels`. Divisions
    of float64 and integers alone, so that everybody has the same.
    """
    means: Integers = np.clip(np.trunc(sums / np.maximum(counts, 1.0)[:, None]), 0, levels).astype(np.int64)
    for row, square in enumerate((means * means).sum(axis=1).tolist()):
        if square > levels**2:
            means[row] = means[row] * levels // (math.isqrt(square) + 1)
    return means


OWN, MOMENTS, SENDS = "own", "moments", "sends."


@dataclass(frozen=True, eq=False)
class Kept:
    """A client's state between rounds: `program`'s tensors as a row `flat`, and own `prototypes` (C, width).

    A row is a vector (size,), and with Adam has its moments and steps behind it (`secagg.networks.training.RowAdam`).
    `sends` are the tensors of the same program by which it makes what it sends, where these are others: then no record
    has decided them, or their moments, but by noisy steps. All is sealed by one member for itself, in one file with
    what it sent: what was untainted still is, and a round that is lost leaves the moments of the one before.
    """

    program: Projecting
    flat: Floats = field(repr=False)
    prototypes: Floats = field(repr=False)
    sends: Untainted[Floats] | None = field(default=None, repr=False)

    @property
    def tensors(self) -> Mapping[str, NDArray[np.float32]]:
        """The tensors of the client's network by name."""
        return tensors_of(self.program, self.flat[: self.program.size])

    def to_bytes(self) -> bytes:
        """Return a safetensors file of float32. Raises TypeError if `sends` is not `Untainted` (safe to send)."""
        sends = [] if self.sends is None else [require_untainted(self.sends)]
        kept = kept_of(self.program, len(self.flat), len(self.prototypes), sends_others=self.sends is not None)
        return kept.to_bytes(np.concatenate([self.flat, self.prototypes.ravel(), *sends]))

    @classmethod
    def of(
        cls,
        content: bytes,
        program: Projecting,
        classes: int,
        *,
        optimiser: OptimiserName = "adam",
        sends_others: bool = False,
    ) -> Kept:
        """Read the state that `to_bytes` wrote. Raises BadInput for NaN, infinity, or tensors unlike `program`'s."""
        size = row_size(program, optimiser)
        end = size + classes * program.width
        row = kept_of(program, size, classes, sends_others=sends_others).row(content)
        sends = Untainted(row[end:]) if sends_others else None
        return cls(program, row[:size], row[size:end].reshape(classes, program.width), sends)


def kept_of(program: Projecting, row: int, classes: int, *, sends_others: bool) -> KeptTensors:
    """Return the layout of kept tensors: network, prototypes and, if `sends_others`, another network for sending.

    A network has `row` entries; those behind its tensors are an optimiser's moments.
    """
    network = {**program.shapes, **({MOMENTS: (row - program.size,)} if row > program.size else {})}
    sends = {f"{SENDS}{name}": shape for name, shape in network.items()} if sends_others else {}
    shapes = {**network, OWN: (classes, program.width), **sends}
    return KeptTensors(shapes, frozenset(shapes))


MOST_WIDTH = 1 << 13
REFUSAL = (
    "a member trains its projection on its records, so that one of them can move the sum of every class; with the "
    "parameter cap all that a member sends is bounded, and the promise is about members; with sampling what it sends "
    "is by a projection trained with noise, and the promise is about records"
)


@dataclass(frozen=True)
class LocalProjection(SimpleMethod, ABC):
    """The base of methods whose clients train projections to `width` numbers and sum them by class, in `rounds` rounds.

    From the second round on a member trains `epochs` in batches of `batch` at `rate` with weight `decay` (L2) by the
    `optimiser`: Adam, as FedPCL's paper has it (section 5.1), which goes on in each round with the moments that the
    member kept; or SGD with `momentum` (0.5 in its code for transformers' features), at rates some 100 times as large.
    Where `cap` is above 0, a member counts at most t records of each class, t as large as ‖counts‖₂ ≤ cap allows, and
    its sums are shortened alike.

    Where `sampling` is above 0, what is sent is projected by tensors trained apart: in each round `steps` of DP-SGD at
    `noisy_rate`, each on records drawn with that probability, with gradients no longer than `gradient_clip`; their sum
    is divided by `batch`, and Adam has moments of these noisy means alone. Of a promise's μ² the sums get the share
    `sum_share`, the steps what that leaves of (ε, δ).
    `dimension`, `number` and `prototypes` (S, C, width), in grid units, are the round's: those of all members, and then
    of each group where there are `cohorts`.
    """

    name: ClassVar[str]
    libraries: ClassVar[tuple[str, ...]] = ("torch",)
    rounds: Annotated[int, Range(1, MOST_TOLD)] = 50
    epochs: Annotated[int, Range(1, MOST)] = 1
    optimiser: Annotated[OptimiserName, "Optimiser of members' training"] = "adam"
    rate: Positive = 1e-3
    momentum: Share = 0.0
    batch: Annotated[int, Range(1, MOST)] = 32
    decay: Annotated[NotNegative, "Factor of the penalty on the weights' length, decay/2 times its square"] = 1e-4
    width: Annotated[int, Range(1, MOST_WIDTH), "Numbers of a projection"] = 256
    cap: Annotated[int, Range(0, MOST), "Largest L2 norm of a member's class counts; 0: no limit"] = 0
    sampling: Sampling = 0.0
    steps: Annotated[int, Range(1, math.inf)] = 2
    noisy_rate: Annotated[Positive, "Learning rate of DP-SGD, with sampling above 0"] = 1e-3
    gradient_clip: Positive = 1.0
    sum_share: Annotated[
        float, Range(0, 1, above=True, below=True), "Share of the plan's mu^2 that sums get, with sampling above 0"
    ] = 0.9
    dimension: int = field(default=0, metadata={"round": True})
    number: int = field(default=1, metadata={"round": True})
    prototypes: Integers | None = field(default=None, repr=False, compare=False, metadata={"round": True})

    def __post_init__(self) -> None:
        require_in_range(self)
        self.training  # noqa: B018  # refuses settings that cannot be
        if not self.sampling:
            return
        self.private_training  # noqa: B018  # as above
        if self.cap:
            raise BadInput("cap promises about members, sampling about records", remedy="leave one of them at 0")
        if self.rounds < 2:
            raise BadInput("nothing is trained in the first round", remedy="sampling takes 2 rounds or more")

    @abstractmethod
    def local_program(self, dimension: int, prototypes: Floats) -> Projecting:
        """Return the network that clients train against prototypes (S, C, width); its tensors' shapes stay the same."""

    @abstractmethod
    def own_models(
        self, kept: Mapping[str, NDArray[np.float32]], shared: Floats, own: Floats
    ) -> dict[str, TrainedModel]:
        """Return a client's models by name, from trained tensors, shared prototypes and the client's own (C, width)."""

    @property
    def cohorts(self) -> int:
        """The number of client groups, each with its own prototypes. Raises BadInput if it is not chosen yet."""
        return 1

    @property
    def training(self) -> TrainingSettings:
        """Settings of a client's local training in a round."""
        optimiser = self.optimiser
        return TrainingSettings(self.epochs, self.rate, self.batch, self.momentum, 0.0, self.decay, optimiser)

    @property
    def private_training(self) -> DpSgdSettings:
        """Settings of DP-SGD for the projection behind what a client sends, if `sampling` > 0; the plan sets noise."""
        settings = sampled_steps(self.noisy_rate, self.steps, self.sampling, self.gradient_clip, self.batch)
        return replace(settings, optimiser=self.optimiser, decay=self.decay)

    @property
    def traits(self) -> Traits:
        """Requirements: norm-1 records, for learning rates, and the last opened sum, for clients' own models."""
        return replace(super().traits, needs_unit_length=True, shows_last_sum=True)

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """Return the specification of the one kind of sum: counts and class sums of projections. Raises BadInput."""
        if 0 < self.cap**2 < classes:
            raise BadInput(
                f"with cap {self.cap} a member of all {classes} classes would send nothing",
                remedy=f"give {math.isqrt(classes - 1) + 1} or more",
            )
        groups = self.cohorts
        if 4 * self._sets * classes * self.width > MAX_CENTRE_BYTES:
            raise BadInput(f"{self._sets * classes} prototypes of {self.width} numbers are too many to be told")
        blocks = blocks_of(classes, self.width, groups, self.cap or 1, levels)
        size = self.local_program(dimension, self._no_prototypes(classes) / levels).size
        effort = Effort(epochs=self.epochs, parameters=size)
        spec = SumSpec(
            blocks=blocks,
            sensitivities=(),
            shares=SHARES,
            times=self.rounds,
            is_additive=False,
            keeps_state=True,
            refusal=REFUSAL,
            groups=groups,
            effort=effort,
        )
        if self.sampling:
            passes = self.epochs + math.ceil(self.sampling * self.steps)
            effort = replace(effort, epochs=passes, steps=self.steps)
            training = SampledTraining(
                self.sampling, self.steps, GRADIENT_LEVELS, size, times=self.rounds - 1, sums=self.sum_share
            )
            of_record = CellSensitivity(Adjacency.ADD_REMOVE, (COUNTS, SUMS), groups * classes, self.width, levels)
            return (replace(spec, sensitivities=(of_record,), training=training, refusal="", effort=effort),)
        if not self.cap:
            return (spec,)
        moved = clipped(blocks, {COUNTS: float(self.cap), SUMS: float(self.cap * levels)}, nonnegative=True)
        return (replace(spec, sensitivities=moved, per=Unit.CLIENT, refusal=""),)

    def begin(self, dimension: int, classes: int, levels: int) -> Round:
        return replace(self, dimension=dimension)

    def contribute(self, local: Local) -> Contribution:
        classes, levels = local.classes, local.grid.levels
        dimension = local.examples.records.shape[1]
        program = public(self._prototypes_of(classes)).then(lambda told: self.local_program(dimension, told / levels))
        kept = self._state_of(program, local)
        flat, sends = kept.flat, kept.sends
        if self.prototypes is not None:
            known = self._known(program.value, local)
            trained = train(program.value, flat, *known, self.training, local.randomness)
            flat = trained if np.isfinite(trained).all() else flat
            sends = self._noisily_trained(program, sends, local) if sends is not None else None
        counts, sums = class_sums(self._weight(flat, dimension), local.examples, classes, levels)
        kept = Kept(program.value, flat, sums / (levels * np.maximum(counts, 1)[:, None]), sends)
        if sends is not None:
            weight = sends.then(lambda row: self._weight(row, dimension))
            counts, sums = released_sums(weight, local.examples, classes, levels)
        if self.cap:
            counts, sums = shorten(counts, sums, self.cap)
        return Contribution(put_in_group(counts, sums, local.member, self.cohorts), kept.to_bytes())

    def cells(self, examples: Examples, classes: int) -> Integers:
        """Return each example's part of its class: 0, the only one; −1 with client groups, as the client decides."""
        return np.full(len(examples), 0 if self.cohorts == 1 else -1, dtype=np.int64)

    def read_artifact(self, content: bytes) -> tuple[Artifact, dict[str, str]]:
        return read_model(content)

    def _prototypes_of(self, classes: int) -> Integers:
        """Return the prototypes, zeros in the first round. Raises ProtocolViolation for another number of classes."""
        if self.prototypes is None:
            return self._no_prototypes(classes)
        if (found := self.prototypes.shape[1]) != classes:
            raise ProtocolViolation(SERVER_INDEX, f"broadcasts {found} prototypes for {classes} classes")
        return self.prototypes

    @property
    def _sets(self) -> int:
        return 1 if self.cohorts == 1 else 1 + self.cohorts

    def _no_prototypes(self, classes: int) -> Integers:
        return np.zeros((self._sets, classes, self.width), dtype=np.int64)

    def _start(self, program: Projecting) -> Floats:
        """Return the row of the public start, before any step of the optimiser."""
        row = np.zeros(row_size(program, self.optimiser))
        row[: program.size] = program.start(digest("public start", self.name.encode()))
        return row

    def _state_of(self, program: Untainted[Projecting], local: Local) -> Kept:
        """Return what the member kept of the round before; the public start if it kept nothing."""
        if local.state:
            return self._read(local.state, program.value, local.classes)
        start = program.then(self._start)
        none = np.zeros((local.classes, self.width))
        return Kept(program.value, start.value, none, start if self.sampling else None)

    def _read(self, state: bytes, program: Projecting, classes: int) -> Kept:
        return Kept.of(state, program, classes, optimiser=self.optimiser, sends_others=self.sampling > 0)

    def _weight(self, flat: Floats, dimension: int) -> Floats:
        """Return the projection W (width, d), which comes first among the tensors in one row."""
        return flat[: self.width * dimension].reshape(self.width, dimension)

    def _known(self, program: Projecting, local: Local) -> tuple[NDArray[np.float32], Integers]:
        """Return inputs and labels of the records whose class has a prototype: other records have no loss."""
        inputs, labels = program_inputs(local, program), local.examples.labels
        known: NDArray[np.bool_] = (self._prototypes_of(local.classes)[0] != 0).any(axis=1)[labels]
        return (inputs, labels) if known.all() else (inputs[known], labels[known])

    def _noisily_trained(
        self, program: Untainted[Projecting], start: Untainted[Floats], local: Local
    ) -> Untainted[Floats]:
        """Return the tensors after DP-SGD; the tensors before it if it gives NaN or infinity.

        Raises TypeError for a program, or a start, that the member's records decided.
        """
        settings = replace(self.private_training, sigma=local.sigma)
        records = self._known(require_untainted(program), local)
        trained = dp_sgd(program, start, *records, settings, local.randomness, local.watch)
        return trained.then(lambda row: row if np.isfinite(row).all() else start.value)

    @property
    def is_exact(self) -> bool:
        return True

    def finalize(self, opened: OpenedTotal) -> Step:
        """Return the next round with the new class means or, after the last round, the final model.

        The model has the new class means and the initial projection.
        The projection is the public start.
        Raises BadInput where no class has a mean.
        """
        found = prototypes_of(opened)
        means, levels = found[0], opened.grid.levels
        if not means.any():
            raise BadInput("no class has a prototype", remedy="the sum takes records of one class at least")
        if self.number < self.rounds:
            return Step(next_round=replace(self, number=self.number + 1, prototypes=found))
        program = MostSimilar(self.dimension, len(means), self.width)
        weight = self._weight(self._start(self.local_program(self.dimension, found / levels)), self.dimension)
        return Step(TrainedModel.of(program, np.concatenate([weight.ravel(), means.ravel() / levels])))

    def personal(self, state: bytes, opened: OpenedTotal) -> Mapping[str, TrainedModel]:
        shared = prototypes_of(opened) / opened.grid.levels
        program = self.local_program(self.dimension, shared)
        kept = self._read(state, program, program.classes)
        return self.own_models(kept.tensors, shared[0], kept.prototypes)

    def broadcast(self) -> bytes:
        return b"" if self.prototypes is None else told_centres(self.number, self.prototypes)

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        if self.number == self.rounds:
            raise ProtocolViolation(SERVER_INDEX, "announces a round that the plan does not have")
        entries = read_centres(broadcast, self.number + 1, grid.levels)
        if len(entries) % (self._sets * self.width):
            problem = f"{len(entries)} numbers are no prototypes of {self.width}, {self._sets} of each class"
            raise MalformedMessage("Centres", problem)
        return replace(self, number=self.number + 1, prototypes=entries.reshape(self._sets, -1, self.width))

    def require_equal(self, told: Round) -> None:
        """Raise ProtocolViolation unless the server's round `told` has this round's number and the same prototypes."""
        same = isinstance(told, type(self)) and told.number == self.number
        if not (same and np.array_equal(told.prototypes, self.prototypes)):  # type: ignore[attr-defined, arg-type]
            raise ProtocolViolation(SERVER_INDEX, "the prototypes it broadcasts do not follow from the released sum")
