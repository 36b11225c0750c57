"""The interface of methods, which need not do clipping, noise, encoding, protection, transport and audit themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar, Protocol

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


def domains_of(parameters: Mapping[str, str | float]) -> tuple[str, ...]:
    """Return the domains that a method with these parameters keeps apart, in order; empty if it keeps none apart."""
    return tuple(name for name in str(parameters.get(DOMAINS, "")).split("+") if name)


def domain_count(parameters: Mapping[str, str | float]) -> int:
    """Return the number of domains that a method with these parameters keeps apart; 1 if it keeps none apart."""
    return len(domains_of(parameters)) or 1


@dataclass(frozen=True)
class SampledTraining:
    """DP-SGD inside a member before each of `times` sums: `steps` on batches that hold a record at probability `rate`.

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
    """Sums of a block's entries that are 0 but for rounding and noise: audits measure the noise there.

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
    """One kind of secure sum: its blocks in order, how far one unit moves them, and its part of the privacy budget.

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
        """The largest L2 length of one unit's contribution to each block, in grid units; empty where not declared."""
        stated = next((each for each in self.sensitivities if each.unit is self.per), None)
        return {block.name: block.l2 for block in stated.blocks} if stated is not None else self.lengths

    def sensitivity(self, unit: Unit, adjacency: Adjacency, max_records: int) -> Sensitivity:
        """Return how far one unit moves the sum if a client has at most `max_records` records.

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
        blockwise = BlockwiseSensitivity(known.unit, adjacency, known.blocks)
        if same:
            return blockwise
        return of_client(blockwise, max_records) if unit is Unit.CLIENT else of_record(blockwise)

    @property
    def is_about_records(self) -> bool:
        """Whether the sum shows more about a client than which cells it holds; policies count only such sums."""
        return any(block.kind is not Kind.CENSUS for block in self.blocks)

    def has(self, kind: Kind) -> bool:
        """Return whether one of the blocks is of this kind."""
        return any(block.kind is kind for block in self.blocks)


def effort_of(sums: Sequence[SumSpec], programs: tuple[str, ...] = ()) -> Effort:
    """Return a member's training effort for these sums and code files: over all rounds, and the most of one round."""
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
    """Facts that a plan fixes before any record is read; a method decides its open parameters from them.

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
    blocks: tuple[Block, ...], lengths: Mapping[str, float], unit: Unit = Unit.CLIENT
) -> tuple[Sensitivity, ...]:
    """Return the sensitivities of blocks that every client clips to these L2 `lengths`.

    A client's part is zeroed (add-remove), or exchanged for any other, which moves each block by twice its length.
    """
    parts = tuple(
        BlockSensitivity(block.name, lengths[block.name], block.size, scalable=block.kind is Kind.COUNTS)
        for block in blocks
    )
    return tuple(BlockwiseSensitivity(unit, each, parts) for each in Adjacency)


def of_records(blocks: tuple[Block, ...]) -> tuple[Sensitivity, ...]:
    """Return the sensitivities of sums to which a record adds at most a block's `bound` (L2)."""
    return clipped(blocks, {block.name: float(block.bound) for block in blocks}, Unit.RECORD)


@dataclass(frozen=True)
class Traits:
    """Facts about a method with its parameters, for plans, policies and audits.

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
    """A method: its kinds of sums and its first round. A plan holds its name and parameters."""

    @property
    def name(self) -> str:
        """Name on the command line and in the plan."""

    @property
    def parameters(self) -> Parameters:
        """The parameters from which `method_named` makes this method again."""

    @property
    def traits(self) -> Traits:
        """Facts about the method besides its sums, for plans, policies and audits."""

    def cell_of(self, examples: Examples) -> Integers:
        """Return the part of its class (n,) that each example belongs to, from this example alone."""

    def resolve(self, fixed: Fixed) -> Method:
        """Return the method with its open parameters decided from the plan's facts; most methods return themselves."""

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """Return the kinds of sums for records q in Z^d with ‖q‖₂ ≤ `levels`: the first round's, then the others'."""

    def begin(self, dimension: int, classes: int, levels: int) -> Round:
        """Return the first round, for records q in Z^d with ‖q‖₂ ≤ `levels`."""

    def read_artifact(self, content: bytes) -> tuple[Artifact, dict[str, str]]:
        """Return the artifact in a file's bytes, and the file's texts. Raises BadInput for another kind of file."""


class OwnRound(Method, Round, Protocol):
    """The base of methods that are their own first round."""


class UsualMethod(Method):
    """The base of most methods: it takes records of any length, and gives a linear head without class means.

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
        """The usual facts; a class has one part for each domain that the method keeps apart."""
        domains = domain_count(self.parameters)
        return Traits(needs_gate=domains > 1, cells_per_class=domains)

    def cell_of(self, examples: Examples) -> Integers:
        return examples.domains

    def resolve(self, fixed: Fixed) -> Method:
        return self

    def read_artifact(self, content: bytes) -> tuple[Artifact, dict[str, str]]:
        """Return the head in a file, and the file's texts. Raises BadInput for another artifact, or for class means."""
        head, texts = parse_safetensors(content)
        if head.means is not None:
            raise BadInput("the head carries class means, which this method does not release")
        return head, texts


class SimpleMethod(UsualMethod, SimpleRound):
    """The base of most methods: a `UsualMethod` that is its own first round."""

    def begin(self, dimension: int, classes: int, levels: int) -> Round:
        return self
