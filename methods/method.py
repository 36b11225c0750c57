"""The interface of federated methods; clipping, noise, encoding, protection, transport and audit are done elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar, Protocol, get_type_hints

from methods.round import Examples, Round, SimpleRound
from secagg.agreement.policy import NOTHING, Effort
from secagg.encoding.layout import Block, Integers, Kind
from secagg.errors import BadInput
from secagg.heads import Artifact, parse_safetensors
from secagg.heads.linear import WeightKind
from secagg.privacy import Adjacency, BlockSensitivity, BlockwiseSensitivity, Sensitivity, Unit
from secagg.privacy.calibration import of_client, of_record

DOMAINS = "domains"
"""Name of the parameter that lists the domains that a method keeps apart, joined by "+"."""
Parameters = dict[str, str | float]
SHARED_LINES = {
    "rounds": "Secure sums of the training, one after the other",
    "epochs": "Passes over a member's records in its training of a round",
    "rate": "Learning rate of a training step",
    "batch": "Records of a training step; with sampling, the number that divides its sum of gradients",
    "clip": "Largest L2 norm of a member's update",
    "sampling": "Chance of each record to be in a step of DP-SGD; 0: members train without DP-SGD",
    "steps": "Steps of DP-SGD in a round, with sampling above 0",
    "gradient_clip": "Largest L2 norm of a record's gradient in DP-SGD, with sampling above 0",
    "momentum": "Factor on SGD's velocity from step to step",
    "proximal": "Weight of FedProx's penalty on the distance from the round's first model",
    "cap": "Most records by which a member weighs in the mean; 0: all members weigh alike",
    "domains": "Names of the domains that have sums of their own, joined by +; empty: none",
}
"""The lines that explain the parameters that several methods have; a text in a parameter's annotation goes before."""


def lines_of(kind: type) -> dict[str, str]:
    """Return by name the line that explains a parameter of a method or baseline, without its range and default.

    It is the text in the annotation of the class's field, or the one of `SHARED_LINES`; other fields are left out.
    """
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        own = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, str)]
        if own or name in SHARED_LINES:
            found[name] = own[-1] if own else SHARED_LINES[name]
    return found


def domains_of(parameters: Mapping[str, str | float]) -> tuple[str, ...]:
    """Return the names of the data domains for which a method keeps separate sums, in order; empty if it has none."""
    return tuple(name for name in str(parameters.get(DOMAINS, "")).split("+") if name)


def domain_count(parameters: Mapping[str, str | float]) -> int:
    """Return the number of data domains for which a method keeps separate sums; 1 if it separates none."""
    return len(domains_of(parameters)) or 1


@dataclass(frozen=True)
class SampledTraining:
    """DP-SGD at a client before each of `times` sums: `steps` on batches that hold each record with chance `rate`.

    A step sums gradients no longer than `levels` grid units, `size` numbers each, and adds discrete Gaussian noise.
    `sums` is the share of the plan's μ² that the sums get, where they are further releases about the same records.
    `further` are numbers of its own records that a member adds noise of its own to before each sum, beside its steps;
    all of them together have `share` of the plan's μ².
    """

    rate: float
    steps: int
    levels: int
    size: int
    times: int
    sums: float = 0.0
    further: tuple[BlockSensitivity, ...] = ()
    share: float = 0.0


@dataclass(frozen=True)
class ZeroSums:
    """Entries of a summed array that add up to 0 but for rounding and noise, from which audits measure the noise.

    `axis` is the one along which entries are added; None: the last axis holds upper triangles, and each row of each
    symmetric matrix is added. One record leaves at most `remainder`, the L2 norm over all these sums. `centred`: they
    are 0 only of records less their own mean (`centred-unit`).
    """

    block: str
    axis: int | None
    remainder: float
    centred: bool = True


@dataclass(frozen=True)
class SumSpec:
    """The specification of one kind of secure sum: its arrays (`blocks`), their sensitivities, its share of the budget.

    `per` says of whom the blocks' bounds speak: of one record, or of a client's whole contribution (Unit.CLIENT).
    `sensitivities` are stated for the units and adjacencies that the method knows; `sensitivity` derives the others.
    `shares` says how μ² is divided among the blocks (a rule of `secagg.privacy.SHARE_RULES`, or "equal"), `times` how
    many sums of the kind there are, and `budget` the share of the plan's μ² of all of them together. A sum without
    sensitivities cannot be noised, for the reason `refusal`. `is_additive`: the blocks of a union of records are the
    sum of their blocks. `keeps_state`: what its rounds left to a member alone is in its blocks too, or which member it
    is, so that the same records in one place would be another method's. `training` is what members do to their records
    with noise of their own; where no sensitivity is stated that is all that a contribution depends on, and a sum no
    further release. `groups`: entry by entry it is of one of so many groups of members, member i being of group i mod
    groups, so that it hides a member among its group's alone. `effort` is what a contribution takes in training (of one
    round: `times` counts the rounds), for members' policies to bound. `zero_sums` says where noise shows by itself; an
    audit cannot measure the noise of a sum without them, unless it has all records. `lengths` of the blocks of one unit
    (L2) are stated where no sensitivity is.
    """

    blocks: tuple[Block, ...]
    sensitivities: tuple[Sensitivity, ...]
    shares: str | Mapping[str, float]
    per: Unit = Unit.RECORD
    times: int = 1
    budget: float = 1.0
    is_additive: bool = True
    keeps_state: bool = False
    refusal: str = ""
    training: SampledTraining | None = None
    groups: int = 1
    effort: Effort = NOTHING
    zero_sums: tuple[ZeroSums, ...] = ()
    lengths: Mapping[str, float] = field(default_factory=dict)

    @property
    def unit_lengths(self) -> Mapping[str, float]:
        """For each array, the largest L2 norm that one record or client adds, in grid units; empty if not declared."""
        stated = next((each for each in self.sensitivities if each.unit is self.per), None)
        return {block.name: block.l2 for block in stated.blocks} if stated is not None else self.lengths

    def sensitivity(self, unit: Unit, adjacency: Adjacency, max_records: int) -> Sensitivity:
        """Return how far one record or client (`unit`) moves the sum if a client has at most `max_records` records.

        As stated; otherwise by the lengths stated for the unit under another adjacency, block by block; otherwise a
        client as far as its records do one after the other (`of_client`), and a record as far as replacing all of its
        client's contribution (`of_record`). Raises BadInput for a sum that states none.
        """
        if not self.sensitivities:
            raise BadInput(f"there can be no finite epsilon: {self.refusal}", remedy="choose epsilon inf")
        stated = {(each.unit, each.adjacency): each for each in self.sensitivities}
        if found := stated.get((unit, adjacency)):
            return found
        same = [each for each in self.sensitivities if each.unit is unit]
        known = (same or self.sensitivities)[0]
        nonnegative = isinstance(known, BlockwiseSensitivity) and known.nonnegative
        blockwise = BlockwiseSensitivity(known.unit, adjacency, known.blocks, nonnegative)
        if same:
            return blockwise
        return of_client(blockwise, max_records) if unit is Unit.CLIENT else of_record(blockwise)

    @property
    def is_about_records(self) -> bool:
        """Whether the sum reveals more of a client than which classes it holds; policies count only such sums.

        Parts of a class (cells) count as classes here.
        """
        return any(block.kind is not Kind.CENSUS for block in self.blocks)

    def has(self, kind: Kind) -> bool:
        """Return whether one of the summed arrays is of this kind, such as counts."""
        return any(block.kind is kind for block in self.blocks)


def effort_of(sums: Sequence[SumSpec], programs: tuple[str, ...] = ()) -> Effort:
    """Return a client's training effort: number of all rounds, and largest epochs, steps, parameters of a round."""
    efforts = [kind.effort for kind in sums]
    return Effort(
        rounds=sum(kind.times for kind in sums),
        epochs=max(each.epochs for each in efforts),
        steps=max(each.steps for each in efforts),
        parameters=max(each.parameters for each in efforts),
        programs=programs,
    )


@dataclass(frozen=True)
class Fixed:
    """Settings that a plan fixes before any record is read, by which a method chooses parameters that were left open.

    `epsilon` is ∞ without noise. `stays`: members are there for more than one sum, and may know what each comes to.
    Of so many `clients` so many may be `colluders`, and so many `dropouts`.
    """

    dimension: int
    classes: int
    unit: Unit
    epsilon: float
    stays: bool
    clients: int
    colluders: int
    dropouts: int


def clipped(
    blocks: tuple[Block, ...],
    lengths: Mapping[str, float],
    unit: Unit = Unit.CLIENT,
    *,
    nonnegative: bool = False,
) -> tuple[Sensitivity, ...]:
    """Return the sensitivities, for every adjacency, of a sum whose arrays each client clips to these L2 `lengths`.

    A client's part is zeroed (add-remove), or exchanged for any other, which moves each block by twice its length; by
    √2 times its length if a part is `nonnegative`, in no entry below 0.
    """
    parts = tuple(
        BlockSensitivity(block.name, lengths[block.name], block.size, scalable=block.kind is Kind.COUNTS)
        for block in blocks
    )
    return tuple(BlockwiseSensitivity(unit, each, parts, nonnegative) for each in Adjacency)


def of_records(blocks: tuple[Block, ...]) -> tuple[Sensitivity, ...]:
    """Return the sensitivities, for every adjacency, of a sum to which a record adds at most a block's `bound` (L2)."""
    return clipped(blocks, {block.name: float(block.bound) for block in blocks}, Unit.RECORD)


@dataclass(frozen=True)
class Traits:
    """Properties of a method that plans, policies and audits read, such as its requirements on clients' records.

    `reads_inputs`: members train on raw inputs through the feature map, and its loss reads these; else on examples.
    `needs_unit_length`: it takes records of one length only, so that a plan must normalise them.
    `needs_two_classes`: a member's records must be of more than one class, if it has any and a refusal tells of no
    record.
    `keeps_mean`: a record's own mean tells what it needs, so that a plan must not normalise by `centred-unit`.
    `shares_one_model`: its sums move one model of all classes, so that no class can be left out of them.
    `shows_last_sum`: members get the last opened sum too, to recompute the artifact from it.
    `cells_per_class`: how many parts of a class a class gate counts and leaves out by themselves; mostly domains.
    `needs_gate`: its exact sums tell more apart than classes, so that they may be of one member's records, or one.
    `class_threshold`: below how many clients that hold a class it is left out of the sums; 0: none is.
    `hyperparameters`: names of parameters that may differ between members and rounds, as they change neither a sum nor
    any clip; those that begin with "server" are the server's.
    `programs`: SHA-256 (hex) of the files of code that members run to train.
    `weights`: its head's weights, the class means or other numbers.
    """

    reads_inputs: bool = False
    needs_unit_length: bool = False
    needs_two_classes: bool = False
    keeps_mean: bool = False
    shares_one_model: bool = False
    shows_last_sum: bool = False
    cells_per_class: int = 1
    needs_gate: bool = False
    class_threshold: int = 0
    hyperparameters: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    weights: WeightKind = "other"


class Method(Protocol):
    """The interface of a federated method: its secure sums and first round. A plan holds its name and parameters."""

    @property
    def name(self) -> str:
        """The method's name on the command line and in the plan."""

    @property
    def parameters(self) -> Parameters:
        """The parameters from which `method_named` builds this method again."""

    @property
    def traits(self) -> Traits:
        """Properties besides the sums, such as requirements on records, that plans, policies and audits read."""

    def cell_of(self, examples: Examples) -> Integers:
        """Return the index (n,) of each example's part of its class, such as its domain, from that example alone."""

    def resolve(self, fixed: Fixed) -> Method:
        """Return the method with undecided parameters set from the plan's settings; most methods return themselves."""

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """Return each kind of sum's specification, in the order of rounds, for records q in Z^d, ‖q‖₂ ≤ `levels`."""

    def begin(self, dimension: int, classes: int, levels: int) -> Round:
        """Return the first round, for records q in Z^d with ‖q‖₂ ≤ `levels`."""

    def read_artifact(self, content: bytes) -> tuple[Artifact, dict[str, str]]:
        """Read an artifact (head or model) and its metadata from a file. Raises BadInput for other kinds of files."""


class OwnRound(Method, Round, Protocol):
    """The base of methods that are their own first round: one object serves as both."""


class UsualMethod(Method):
    """The base of most methods: it takes records of any L2 norm, and gives a linear head without class means.

    A dataclass's fields are its parameters, but for those that a round sets: `field(metadata={"round": True})`.
    `libraries` are the modules that its contributions and steps import on first use, which may take many seconds.
    """

    libraries: ClassVar[tuple[str, ...]] = ()

    @property
    def parameters(self) -> Parameters:
        given = (each for each in fields(self) if each.init and "round" not in each.metadata)  # type: ignore[arg-type]
        return {each.name: getattr(self, each.name) for each in given}

    @property
    def traits(self) -> Traits:
        """The usual method properties; a class gate counts domains separately where the method sums them separately."""
        domains = domain_count(self.parameters)
        return Traits(needs_gate=domains > 1, cells_per_class=domains)

    def cell_of(self, examples: Examples) -> Integers:
        return examples.domains

    def resolve(self, fixed: Fixed) -> Method:
        return self

    def read_artifact(self, content: bytes) -> tuple[Artifact, dict[str, str]]:
        """Read a linear head and its metadata from a file. Raises BadInput for other artifacts or class means."""
        head, texts = parse_safetensors(content)
        if head.means is not None:
            raise BadInput("the head carries class means, which this method does not release")
        return head, texts


class SimpleMethod(UsualMethod, SimpleRound):
    """The base of most methods: a `UsualMethod` whose object is also its first round."""

    def begin(self, dimension: int, classes: int, levels: int) -> Round:
        return self
