"""What a method declares is tried before any plan: bounds, sensitivities, additivity, shapes; planted faults."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import secagg
from methods import METHODS, method_named
from methods.closed_form.fedcgs import FedCGS
from methods.closed_form.prototypes import Prototypes
from methods.declaration import check_declaration, check_steps
from methods.method import SumSpec
from methods.round import Contribution, Examples, Local, OpenedTotal, Step
from methods.slots import fedbip
from methods.slots.fedbip import ConceptSums
from secagg.encoding import Grid, Integers, Kind, Normalisation
from secagg.errors import BadInput
from secagg.generation import ConceptTraining
from secagg.privacy import Adjacency, BlockSensitivity, BlockwiseSensitivity, Unit
from tests.cli.command import Command, command
from tests.experiments.test_simulation import FEATURES, LABELS
from tests.methods.readme import readme_method
from tests.methods.steps import contribute

GRIDS = (Grid(1.0, 1024, normalisation=Normalisation.CENTRED_UNIT), Grid(8.0), Grid(1.0, 1 << 26))
Blocks = dict[str, Integers]
NETWORK: Any = SimpleNamespace(latents=None)
"""In place of a diffusion model, where what is trained against it is given."""
LEAST = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Faulty(Prototypes):
    """Prototypes, with one thing wrong: what is contributed, or what is declared."""

    name: ClassVar[str] = "faulty"

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """What prototypes declare."""
        (kind,) = super().sums(dimension, classes, levels)
        return (declared(kind, levels),)

    def contribute(self, local: Local) -> Contribution:
        """What prototypes contribute."""
        return Contribution(contributed(dict(super().contribute(local).blocks), local.examples))


def declared(kind: SumSpec, levels: int) -> SumSpec:
    """Replaced by a test."""
    return kind


def contributed(blocks: Blocks, examples: Examples) -> Any:
    """Replaced by a test."""
    return blocks


def without(blocks: Blocks, name: str) -> Blocks:
    """The blocks but for one."""
    return {key: block for key, block in blocks.items() if key != name}


def centred(blocks: Blocks, examples: Examples) -> Blocks:
    """Class sums of records from which the mean of the batch was taken."""
    mean = examples.records.sum(axis=0) // max(len(examples), 1)
    return {**blocks, "class_sums": blocks["class_sums"] - np.outer(blocks["counts"], mean)}


def overwritten(blocks: Blocks, examples: Examples) -> Blocks:
    """Class sums by `sums[labels] += records`, which keeps one record of each class."""
    sums = np.zeros_like(blocks["class_sums"])
    sums[examples.labels] += examples.records
    return {**blocks, "class_sums": sums}


def by_place(blocks: Blocks, examples: Examples) -> Blocks:
    """The first of several records counts for one more, at the cost of the last."""
    counts = blocks["counts"].copy()
    if len(examples) > 1:
        counts[examples.labels[0]] += 1
        counts[examples.labels[-1]] -= 1
    return {**blocks, "counts": counts}


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{grid.levels} levels")
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *((name, {}) for name in METHODS),
        ("fedcgs", {"refine": 2}),
        ("fedtc", {"threshold": 0.5}),
        ("fedtc", {"keep": 0.5}),
        ("mpft", {"sampling": "cluster", "slots": 3, "rounds": 2}),
        ("mpft", {"domains": "art+photo", "slots": 2}),
    ],
    ids=str,
)
def test_packaged_methods_do_what_they_declare(name: str, parameters: Mapping[str, Any], grid: Grid) -> None:
    """Every method of the registry passes in all its kinds of sums, on every grid."""
    for dimension, classes in ((64, 10), (1, 2)):
        check_declaration(method_named(name, parameters), dimension, classes, grid)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda b, _: {**b, "class_sums": 3 * b["class_sums"]}, "adds 3072 to an entry of class_sums, .* 1024"),
        (lambda b, _: {**b, "counts": b["counts"] + 1}, "adds 2 to an entry of counts, declared bound 1"),
        (lambda b, _: {**b, "counts": np.minimum(b["counts"], 1)}, "counts of 48 records is not the sum"),
        (lambda b, _: {**b, "counts": b["counts"] // 2 * 2}, "counts of .* records is not the sum"),
        (centred, "class_sums of .* records is not the sum"),
        (overwritten, "class_sums of .* records is not the sum"),
        (by_place, "counts of .* records is not the sum"),
        (lambda b, _: {**b, "class_sums": b["class_sums"].astype(float)}, "block class_sums is int64 .* got float64"),
        (lambda b, _: {**b, "class_sums": b["class_sums"].T}, "block class_sums is int64 of shape"),
        (lambda b, _: without(b, "counts"), "the layout holds the blocks"),
        (lambda b, _: {**b, "more": b["counts"]}, "the layout holds the blocks"),
        (lambda b, _: None, "contribute fails on 1 records with TypeError"),
        (lambda b, e: {**b, "counts": b["counts"] * int(e.labels[0] >= 0)}, "fails on 0 records with IndexError"),
    ],
    ids=["thrice", "counts of one more", "bounded", "even", "centred", "overwritten", "by place", "floats", "turned",
         "missing", "surplus", "nothing", "empty client"],
)  # fmt: skip
def test_contribution_that_breaks_its_declaration(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[Blocks, Examples], Any], words: str
) -> None:
    """A contribution beyond its bound, not additive, or of another form is refused with the block and both numbers."""
    check_declaration(Faulty(), 64, 10, GRIDS[0])
    monkeypatch.setitem(globals(), "contributed", fault)
    with pytest.raises(BadInput, match=f"method faulty breaks its declaration: .*{words}"):
        check_declaration(Faulty(), 64, 10, GRIDS[0])


def louder(name: str, *places: slice) -> Callable[[Blocks, Examples], Blocks]:
    """A block whose entries at some places are three times what they should be."""

    def fault(blocks: Blocks, _: Examples) -> Blocks:
        block = blocks[name].copy()
        block[places] *= 3
        return {**blocks, name: block}

    return fault


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (louder("class_sums", slice(7, 8)), "adds 3072 to an entry of class_sums, declared bound 1024"),
        (louder("class_sums", slice(None), slice(60, 61)), "adds 3072 to an entry of class_sums, declared bound 1024"),
        (louder("counts", slice(9, None)), "adds 3 to an entry of counts, declared bound 1"),
        (lambda b, _: {**b, "counts": np.minimum(b["counts"], 300)}, "counts of 3072 records is not the sum"),
    ],
    ids=["one class", "one dimension", "last class", "many records"],
)
def test_fault_of_the_whole_plan(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[Blocks, Examples], Any], words: str
) -> None:
    """What is wrong only in a later class, a later dimension or a large client is found with the plan's own sizes."""
    monkeypatch.setitem(globals(), "contributed", fault)
    with pytest.raises(BadInput, match=words):
        check_declaration(Faulty(), 64, 10, GRIDS[0])


def test_length_that_grows_with_the_dimension(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a record length in every place is none too long in four dimensions, and refused in a plan's 64."""

    def half(blocks: Blocks, _: Examples) -> Blocks:
        return {**blocks, "class_sums": 0 * blocks["class_sums"] + 512 * blocks["counts"][:, None]}

    monkeypatch.setitem(globals(), "contributed", half)
    check_declaration(Faulty(), 4, 10, GRIDS[0])
    with pytest.raises(BadInput, match=r"moves class_sums by the length 4096, declared 1024 \(add-remove"):
        check_declaration(Faulty(), 64, 10, GRIDS[0])


def test_a_fault_may_pass_over_single_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A contribution that drops equal records is refused, though every record is right alone."""

    def once(blocks: Blocks, examples: Examples) -> Blocks:
        """Each different record counts once."""
        rows = np.column_stack([examples.records, examples.labels])
        first = np.unique(rows, axis=0, return_index=True)[1]
        return contribute(Prototypes(), examples.take(first), len(blocks["counts"]), 1024)

    monkeypatch.setitem(globals(), "contributed", once)
    with pytest.raises(BadInput, match="counts of 96 records is not the sum"):
        check_declaration(Faulty(), 64, 10, GRIDS[0])


def bounded(kind: SumSpec, name: str, bound: int) -> SumSpec:
    """The same with another bound of a block."""
    return replace(kind, blocks=tuple(replace(b, bound=bound) if b.name == name else b for b in kind.blocks))


def sensed(
    kind: SumSpec, *names: str, factor: float = 0.1, adjacencies: tuple[Adjacency, ...] = tuple(Adjacency)
) -> SumSpec:
    """The same with lengths of some blocks declared too small, for some adjacencies."""
    blocks = kind.sensitivity(Unit.RECORD, Adjacency.ADD_REMOVE, 1).blocks
    less = tuple(replace(block, l2=factor * block.l2) if block.name in names else block for block in blocks)
    changed = {each: BlockwiseSensitivity(Unit.RECORD, each, less) for each in adjacencies}
    return replace(kind, sensitivities=tuple(changed.get(each.adjacency, each) for each in kind.sensitivities))


@dataclass(frozen=True)
class Together:
    """A sensitivity that is right for each block alone, and too small for both: as if one record moved only one."""

    blocks: tuple[BlockSensitivity, ...]
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    unit: Unit = Unit.RECORD

    def squared(self, weights: Mapping[str, float]) -> float:
        """The larger of two, which both are reached."""
        return max(weights[block.name] * block.l2**2 for block in self.blocks)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda kind, levels: bounded(kind, "class_sums", levels - 1), "adds 1024 to an entry of class_sums, .* 1023"),
        (lambda kind, _: sensed(kind, "class_sums"), "moves class_sums by the length 1024, declared 102.4 .add-remove"),
        (lambda kind, _: sensed(kind, "counts"), "moves counts by the length 1, declared 0.1 .add-remove"),
        (
            lambda kind, _: sensed(kind, "class_sums", factor=0.6, adjacencies=(Adjacency.REPLACE_ONE,)),
            "moves class_sums by the length 2048, declared 1228.8 .replace-one",
        ),
        (
            lambda kind, _: replace(
                kind, sensitivities=(Together(kind.sensitivity(Unit.RECORD, Adjacency.ADD_REMOVE, 1).blocks),)
            ),
            "moves all blocks together, .* length 1.41421, declared 1 .add-remove",
        ),
        (lambda kind, _: replace(kind, blocks=kind.blocks[::-1]), "sensitivity for add-remove is of"),
    ],
    ids=["bound off by one", "sums", "counts", "replace-one", "together", "order of blocks"],
)  # fmt: skip
def test_declaration_below_what_is_contributed(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[SumSpec, int], SumSpec], words: str
) -> None:
    """A bound or a sensitivity that a record reaches beyond is refused with declared and found, per adjacency."""
    monkeypatch.setitem(globals(), "declared", fault)
    with pytest.raises(BadInput, match=words):
        check_declaration(Faulty(), 64, 10, GRIDS[0])


def test_a_cast_of_no_number_is_beyond_any_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least int64, which casting NaN gives, is refused without sensitivities though np.abs makes it negative."""

    def unstated(kind: SumSpec, _: int) -> SumSpec:
        """The same without sensitivities."""
        return replace(kind, sensitivities=(), is_additive=False, refusal="none is known")

    monkeypatch.setitem(globals(), "declared", unstated)
    check_declaration(Faulty(), 64, 10, GRIDS[0])
    monkeypatch.setitem(globals(), "contributed", lambda b, _: {**b, "counts": np.where(b["counts"], LEAST, 0)})
    with pytest.raises(BadInput, match="adds 9223372036854775808 to an entry of counts, declared bound 1"):
        check_declaration(Faulty(), 64, 10, GRIDS[0])


@pytest.mark.parametrize("is_noisy", [False, True])
def test_a_broken_finalize_is_found(monkeypatch: pytest.MonkeyPatch, is_noisy: bool) -> None:
    """A name that does not exist is found wherever `finalize` uses it, and so is a last round without an artifact."""
    whole = Faulty.finalize

    def broken(self: Faulty, opened: OpenedTotal) -> Step:
        """Fails with noise, or without."""
        return nowhere if (opened.noise is not None) is is_noisy else whole(self, opened)  # type: ignore[name-defined] # noqa: F821

    check_steps(Faulty(), 8, 10, GRIDS[0])
    monkeypatch.setattr(Faulty, "finalize", broken)
    words = f"finalize of sum 1, {'with' if is_noisy else 'without'} noise, fails: NameError: name 'nowhere'"
    with pytest.raises(BadInput, match=words):
        check_steps(Faulty(), 8, 10, GRIDS[0])
    monkeypatch.setattr(Faulty, "finalize", lambda self, opened: Step())
    with pytest.raises(BadInput, match="its last round gives no artifact, without noise"):
        check_steps(Faulty(), 8, 10, GRIDS[0])


@pytest.mark.parametrize("check", [check_declaration, check_steps])
def test_sums_that_fail_are_named(monkeypatch: pytest.MonkeyPatch, check: Callable[..., None]) -> None:
    """A method whose `sums` raises an error of its own is refused with that error, before any record is used."""

    def sums(self: object, dimension: int, classes: int, levels: int) -> Any:
        raise KeyError("width")

    monkeypatch.setattr(Prototypes, "sums", sums)
    with pytest.raises(BadInput, match="sums fails: KeyError: 'width'"):
        check(Prototypes(), 2, 2, GRIDS[0])


def test_a_finalize_that_returns_its_head_alone_is_named() -> None:
    """What is no Step, such as the head that should be in one, is refused as a fault of the method."""

    class Bare(Prototypes):
        """Forgets the Step around its head."""

        def finalize(self, opened: OpenedTotal) -> Step:
            """Return the head."""
            return super().finalize(opened).artifact  # type: ignore[return-value]

    with pytest.raises(BadInput, match="finalize of sum 1, without noise, returns a LinearHead, not a Step"):
        check_steps(Bare(), 8, 3, GRIDS[0])


@pytest.mark.parametrize(
    "shares", [{"counts": 0.1, "class_sums": 0.8}, {"counts": 1.0}, {"counts": 0.0, "class_sums": 1.0}]
)
def test_shares_add_up_to_one(monkeypatch: pytest.MonkeyPatch, shares: dict[str, float]) -> None:
    """Shares of μ² that lose some of it, or leave a block out, are refused, and so are budgets."""
    monkeypatch.setitem(globals(), "declared", lambda kind, _: replace(kind, shares=shares))
    with pytest.raises(BadInput, match="add up to 1"):
        check_steps(Faulty(), 8, 10, GRIDS[0])
    monkeypatch.setitem(globals(), "declared", lambda kind, _: replace(kind, budget=0.5))
    with pytest.raises(BadInput, match=r"the budgets of its sums are \[0.5\]"):
        check_steps(Faulty(), 8, 10, GRIDS[0])


FEW = {"rounds": 4, "steps": 5, "interval": 1, "epochs": 10}


def quick(name: str) -> Any:
    """A method as it is by default, but for no more rounds, steps and epochs than a few."""
    given = method_named(name).parameters
    return method_named(name, {part: few for part, few in FEW.items() if int(given.get(part, 0)) > few})


@pytest.mark.parametrize("method", [*map(quick, METHODS), FedCGS(refine=3), readme_method("averaging")()])
def test_every_method_leads_to_an_artifact(method: Any) -> None:
    """What is registered, with rounds too, and the README's own, walks through all its sums."""
    check_steps(method, 8, 10, GRIDS[0])


@dataclass(frozen=True)
class Hidden(Together):
    """A sensitivity that is large enough, of lengths that are not."""

    def squared(self, weights: Mapping[str, float]) -> float:
        """More than any record moves."""
        return sum(weights[block.name] * (1e6 * block.l2) ** 2 for block in self.blocks)


def test_lengths_from_which_others_are_derived_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths that a record reaches beyond are refused, though the stated sensitivity itself allows for it."""

    def hidden(kind: SumSpec, _: int) -> SumSpec:
        """Sensitivities whose lengths are a tenth."""
        return replace(kind, sensitivities=(Hidden(sensed(kind, "counts").sensitivities[0].blocks),))

    monkeypatch.setitem(globals(), "declared", hidden)
    with pytest.raises(BadInput, match=r"one record moves counts by the length 1, declared 0\.1"):
        check_declaration(Faulty(), 64, 10, GRIDS[0])


def stated_too(kind: SumSpec, unit: Unit, l2: float) -> SumSpec:
    """The same, with sensitivities of another unit, all of this length, beside its own."""
    blocks = tuple(replace(block, l2=l2) for block in kind.sensitivities[0].blocks)
    more = (BlockwiseSensitivity(unit, each, blocks) for each in Adjacency)
    return replace(kind, sensitivities=(*kind.sensitivities, *more))


@pytest.mark.parametrize("l2", [1.0, 1e9])
def test_every_stated_unit_is_tried(monkeypatch: pytest.MonkeyPatch, l2: float) -> None:
    """A client in a sum per record, or a record in one per client, that moves it further than stated is refused."""

    class Averaged(readme_method("averaging")):  # type: ignore[misc]
        """The README's, which states a record's sensitivity too."""

        def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
            """With a record's."""
            return (stated_too(super().sums(dimension, classes, levels)[0], Unit.RECORD, l2),)

    monkeypatch.setitem(globals(), "declared", lambda kind, _: stated_too(kind, Unit.CLIENT, l2))
    for method, words in ((Faulty(), "one client moves counts"), (Averaged(), "one record moves update")):
        with nullcontext() if l2 > 1 else pytest.raises(BadInput, match=words):
            check_declaration(method, 64, 10, GRIDS[0])


def test_only_a_census_is_called_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts and sums of records that are declared as a census, which policies do not count, are refused."""

    def disguised(kind: SumSpec, _: int) -> SumSpec:
        """All blocks called a census."""
        return replace(kind, blocks=tuple(replace(block, kind=Kind.CENSUS) for block in kind.blocks))

    monkeypatch.setitem(globals(), "declared", disguised)
    with pytest.raises(BadInput, match="counts is no census: one client adds more to it than 0 or 1"):
        check_declaration(Faulty(), 64, 10, GRIDS[0])


@pytest.mark.parametrize("rows", [2, 3, 5, 10])
@pytest.mark.parametrize("levels", [1000, 1 << 16])
@pytest.mark.parametrize("longest", [1e-3, 1.0, 1e6])
def test_concepts_of_every_class_and_domain_are_inside_their_lengths(
    monkeypatch: pytest.MonkeyPatch, rows: int, levels: int, longest: float
) -> None:
    """A member of all classes and domains, whatever it trained: on integers, no longer than what is declared.

    Movements are no longer than R_q, and so are all presences together, each of which is R_q/(√rows + 1) or more.
    """
    moved = tuple(longest * np.random.default_rng(seed).normal(size=(rows, 4)) for seed in (1, 2))
    monkeypatch.setattr(fedbip, "train_concepts", lambda *arguments: moved)
    sums = ConceptSums(rows, 4, 2.0, levels, ConceptTraining(1, 0.1, 8))
    records, places = np.full((3 * rows, 5), levels // 3, dtype=np.int64), np.arange(3 * rows) % rows
    local = Local(Examples(records, places, places[::-1]), rows, Grid(1.0, levels), feature_map=NETWORK)
    declared = {each.name: each.l2 for each in sums.spec(rows, 1.0).sensitivities[0].blocks}
    for name, block in sums.contribute(local).blocks.items():
        squares = block.astype(object) ** 2
        assert squares.sum() <= declared[name] ** 2
        assert squares[:, :-1].sum() <= levels**2
        assert squares[:, -1].sum() <= levels**2
        assert (block[:, -1] * (math.sqrt(rows) + 1) >= levels - rows).all()


@pytest.mark.parametrize("known", Adjacency)
def test_other_neighbours_follow_from_lengths(known: Adjacency) -> None:
    """A sum that states one unit and adjacency has a sensitivity for all, never below what both would give it."""
    (kind,) = Prototypes().sums(4, 3, 100)
    lone = replace(kind, sensitivities=tuple(each for each in kind.sensitivities if each.adjacency is known))
    weights = {"counts": 1.0, "class_sums": 1e-4}
    for unit, adjacency in product(Unit, Adjacency):
        derived, stated = (each.sensitivity(unit, adjacency, 5) for each in (lone, kind))
        assert (derived.unit, derived.adjacency) == (unit, adjacency)
        assert derived.squared(weights) >= stated.squared(weights)


def test_triangle_counts_twice_beside_its_diagonal() -> None:
    """A second moment declared as a plain block of its triangle's length is refused: its off-diagonal noise is less."""

    class Plain(FedCGS):
        """FedCGS whose second moment is declared a little shorter than R²."""

        def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
            """The triangle's length without the doubled entries."""
            return (sensed(super().sums(dimension, classes, levels)[0], "second_moment", factor=0.99),)

    with pytest.raises(BadInput, match=r"moves second_moment by the length 1.04858e\+06, declared 1.03809e\+06"):
        check_declaration(Plain(), 64, 10, GRIDS[0])


@pytest.mark.parametrize("rounds", [1, 2])
def test_later_sums_are_tried_too(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    """A fault in the gradient of a refinement round is found, though the first sum is right."""
    from methods.closed_form.refinement import RefinementRound

    whole = RefinementRound.contribute
    monkeypatch.setattr(
        RefinementRound,
        "contribute",
        lambda *given: Contribution({name: 2 * block for name, block in whole(*given).blocks.items()}),
    )
    with pytest.raises(BadInput, match="gradient"):
        check_declaration(method_named("fedcgs", {"refine": rounds}), 8, 3, GRIDS[0])


def test_every_planned_round_must_come() -> None:
    """A method that declares more kinds of sums than it has rounds is refused."""

    class Promising(Prototypes):
        """Two kinds of sums, and no round after the first."""

        def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
            """Prototypes' sum twice."""
            return super().sums(dimension, classes, levels) * 2

    with pytest.raises(BadInput, match="declares 2 kinds of sums, and no round follows the first 1"):
        check_declaration(Promising(), 8, 3, GRIDS[0])


@pytest.mark.parametrize("promise", [{}, {"epsilon": 1.0, "delta": 1e-5, "adjacency": "add-remove"}], ids=["∞", "1"])
def test_no_plan_and_no_session_with_a_broken_method(
    monkeypatch: pytest.MonkeyPatch, promise: Mapping[str, Any]
) -> None:
    """A simulation with a planted fault is refused before a session runs, with noise and without."""
    monkeypatch.setitem(METHODS, Faulty.name, Faulty)  # type: ignore[arg-type]
    assert secagg.simulate(FEATURES, LABELS, method="faulty", protection="none", **promise).federated is not None
    monkeypatch.setitem(globals(), "contributed", lambda b, _: {**b, "class_sums": 3 * b["class_sums"]})
    monkeypatch.setattr("secagg.plan_facts.planning._CHECKED", set())  # no process has code that changes
    monkeypatch.setattr("secagg.experiments.simulation.play_rounds", None)
    with pytest.raises(BadInput, match="method faulty breaks its declaration: one record adds"):
        secagg.simulate(FEATURES, LABELS, method="faulty", protection="none", **promise)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process."""
    return command(monkeypatch, capsys)


def test_command_checks_one_or_all(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """`methods check` lists what passed, names what did not with exit code 2, and takes a method's parameters."""
    for name in set(METHODS) - {"fedcgs", "prototypes"}:
        monkeypatch.delitem(METHODS, name)
    assert set(run("methods", "check", "--json", "-").json["checked"]) == {"fedcgs", "prototypes"}
    found = run("methods", "check", "fedcgs", "--parameters", "refine=1", "--json", "-").json["checked"]
    assert found["fedcgs"]["blocks"][-1] == "gradient"
    assert "unknown method" in run("methods", "check", "magic").complaint
    monkeypatch.setitem(METHODS, Faulty.name, Faulty)  # type: ignore[arg-type]
    monkeypatch.setitem(globals(), "contributed", lambda b, _: {**b, "class_sums": 3 * b["class_sums"]})
    for arguments in (["faulty"], []):
        said = run("methods", "check", *arguments)
        assert said.code == 2
        assert "one record adds 3072 to an entry of class_sums, declared bound 1024; mend contribute" in said.complaint
