"""Projections that a record decides alone, and what is sent by them under the rule of taint."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from methods import method_named
from methods.declaration import check_declaration, check_steps
from methods.own_models.local_projection import Kept, LocalProjection
from methods.own_models.projected_sums import project_records, released_sums
from methods.round import Contribution, Examples, Local
from secagg.encoding import Grid, Normalisation, quantise
from secagg.errors import BadInput
from secagg.networks import Untainted
from secagg.networks.programs import tensors_of
from secagg.networks.taint import public
from secagg.privacy import Adjacency, Unit
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN

NAMES = ("fedpcl", "fedproto")
CLASSES, DIMENSION, WIDTH = 3, 6, 8
GRID = Grid(1.0, 1 << 12, normalisation=Normalisation.CENTRED_UNIT)
GENERATOR = np.random.default_rng(5)
LABELS = np.arange(60) % CLASSES
RECORDS = quantise(GENERATOR.normal(size=(60, DIMENSION)) + 2 * np.eye(DIMENSION)[LABELS], GRID)
EVERYONE = Examples.of(RECORDS, LABELS)
every_method = pytest.mark.parametrize("name", NAMES)


def begun(name: str, **parameters: Any) -> LocalProjection:
    """The first of three rounds of a plan about records."""
    fixed = {"rounds": 3, "width": WIDTH, "sampling": 0.5}
    round_ = method_named(name, {**fixed, **parameters}).begin(DIMENSION, CLASSES, GRID.levels)
    assert isinstance(round_, LocalProjection)
    return round_


def second(name: str, **parameters: Any) -> LocalProjection:
    """The second, at some prototypes."""
    prototypes = np.abs(GENERATOR.integers(0, 1000, size=(1, CLASSES, WIDTH)))
    return replace(begun(name, **parameters), number=2, prototypes=prototypes)


def contribution(round_: LocalProjection, state: bytes = b"", sigma: float = 3.0e6, **changes: Any) -> Contribution:
    """What a member contributes; it draws the same each time."""
    stream = SeededRandomness(b"member", TOKEN)
    return round_.contribute(Local(EVERYONE, CLASSES, GRID, 1, state, stream, sigma=sigma, **changes))


def kept_of(round_: LocalProjection, state: bytes) -> Kept:
    """What a member kept."""
    program = round_.local_program(DIMENSION, np.zeros((1, CLASSES, WIDTH)))
    return Kept.of(state, program, CLASSES, optimiser=round_.optimiser, sends_others=True)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40), st.floats(1e-20, 1e20))
def test_a_projection_is_its_records_own(seed: int, count: int, scale: float) -> None:
    """Alone, in company and in another order a record has the same integers, none below 0, no longer than R."""
    draw = np.random.default_rng(seed)
    weight = scale * draw.normal(size=(WIDTH, DIMENSION))
    rows = draw.integers(0, len(RECORDS), size=count)
    together = project_records(weight, RECORDS[rows], GRID.levels)
    for place in draw.integers(0, count, size=3):
        assert np.array_equal(project_records(weight, RECORDS[rows[place]][None], GRID.levels)[0], together[place])
    assert np.array_equal(project_records(weight, RECORDS[rows[::-1]], GRID.levels), together[::-1])
    assert (together >= 0).all()
    assert max(sum(entry * entry for entry in row) for row in together.tolist()) <= GRID.levels**2


class Watched(np.ndarray):
    """Records that note the factors of every product that they are in."""

    factors: ClassVar[list[tuple[Any, Any]]] = []

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """The same function of plain arrays."""
        plain = [np.asarray(each) for each in inputs]
        if ufunc is np.matmul:
            self.factors.append((plain[0], plain[1]))
        found = getattr(ufunc, method)(*plain, **options)
        return found.view(Watched) if ufunc is not np.matmul else found


@pytest.mark.parametrize("levels", [15, (1 << 13) - 1, 1 << 16, (1 << 20) - 1])
@pytest.mark.parametrize("longest", [0.5001, 0.9999, 3e-9])
def test_products_are_exact_in_any_order(monkeypatch: pytest.MonkeyPatch, levels: int, longest: float) -> None:
    """For a record as long as may be, along the longest row: integers whose absolute products add up to below 2⁵³."""
    monkeypatch.setattr(Watched, "factors", [])
    record = np.full(64, levels // 8, dtype=np.int64)
    weight = np.array([np.tile([1.0, -1.0], 32), np.ones(64), np.arange(64) / 500]) * longest / 8
    project_records(weight, record[None].view(Watched), levels)
    ((rows, columns),) = Watched.factors
    assert np.array_equal(columns, np.rint(columns))
    products = [sum(abs(int(q) * int(w)) for q, w in zip(rows[0], column, strict=True)) for column in columns.T]
    assert 2**47 < max(products) < 2**53


def test_projection_is_the_formula() -> None:
    """z = ReLU(Wq)/‖ReLU(Wq)‖ in grid units, truncated, but for a unit in an entry; 0 where ReLU leaves none."""
    weight = GENERATOR.normal(size=(WIDTH, DIMENSION))
    raised = np.maximum(RECORDS @ weight.T, 0)
    expected = GRID.levels * raised / np.linalg.norm(raised, axis=1, keepdims=True)
    assert np.abs(project_records(weight, RECORDS, GRID.levels) - expected).max() < 1.01
    for nothing in (np.zeros_like(weight), -np.ones((WIDTH, 1)) * np.sign(RECORDS[:1])):
        assert not project_records(nothing, RECORDS[:1], GRID.levels).any()


@every_method
def test_method_does_what_it_declares(name: str) -> None:
    """Extreme records stay within the bounds and lengths that are stated, and every round leads to the next."""
    method = method_named(name, {"width": 16, "sampling": 0.5, "rounds": 3})
    check_declaration(method, 12, 5, GRID)
    check_steps(method, 12, 5, GRID)


@every_method
def test_promise_is_about_one_record(name: str) -> None:
    """A record adds 1 to a count and R to a class's sum; steps are those of all rounds but the first."""
    (spec,) = begun(name).sums(DIMENSION, CLASSES, 100)
    assert spec.per is Unit.RECORD
    moved = spec.sensitivity(Unit.RECORD, Adjacency.ADD_REMOVE, 1000)
    assert moved.squared({"counts": 1.0, "class_sums": 1.0}) == 1 + 100**2
    assert spec.training is not None
    program = begun(name).local_program(DIMENSION, np.zeros((1, CLASSES, WIDTH)))
    assert (spec.training.rate, spec.training.times, spec.training.size) == (0.5, 2, program.size)


@every_method
def test_what_is_sent_knows_nothing_of_ones_own_models(name: str) -> None:
    """Other tensors and prototypes of a member's own leave what it sends as it is, bit for bit."""
    round_ = second(name)
    kept = kept_of(round_, contribution(begun(name)).state)
    other = replace(kept, flat=-kept.flat + 1, prototypes=kept.prototypes + 1)
    sent = [contribution(round_, each.to_bytes()) for each in (kept, other)]
    assert all(np.array_equal(sent[0].blocks[block], sent[1].blocks[block]) for block in sent[0].blocks)
    assert sent[0].state != sent[1].state


@every_method
def test_what_is_sent_is_trained_with_the_plans_noise(name: str) -> None:
    """The tensors that a member sends by differ from those trained without noise, and move more under more noise."""
    by_sgd = {"optimiser": "sgd", "noisy_rate": 0.1}  # whose steps are as long as the noise
    start, round_ = contribution(begun(name, **by_sgd)).state, second(name, **by_sgd)
    before = kept_of(round_, start)
    moved = []
    for sigma in (0.0, 4.0e6, 4.0e7):
        sends = kept_of(round_, contribution(round_, start, sigma=sigma).state).sends
        assert sends is not None
        assert before.sends is not None
        moved.append(float(np.linalg.norm(sends.value - before.sends.value)))
    assert 0 < moved[0] < moved[1] < moved[2]
    assert moved[2] == pytest.approx(10 * moved[1], rel=0.2)


@every_method
def test_own_prototypes_enter_no_step(name: str) -> None:
    """A loss that holds a member's own exact prototypes is refused as what noisy steps read."""
    round_ = second(name)
    local = Local(EVERYONE, CLASSES, GRID, sigma=3.0e6)
    kept = kept_of(round_, contribution(begun(name)).state)
    tainted = round_.local_program(DIMENSION, kept.prototypes[None])
    assert kept.sends is not None
    with pytest.raises(TypeError, match="rule of taint"):
        round_._noisily_trained(tainted, kept.sends, local)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="rule of taint"):
        round_._noisily_trained(public(tainted), kept.flat, local)  # type: ignore[arg-type]


def test_own_projection_sends_nothing() -> None:
    """A projection that was trained without noise makes no sum that leaves, and is not kept as one that may."""
    weight = GENERATOR.normal(size=(WIDTH, DIMENSION))
    with pytest.raises(TypeError, match="rule of taint"):
        released_sums(weight, EVERYONE, CLASSES, GRID.levels)  # type: ignore[arg-type]
    kept = kept_of(begun("fedpcl"), contribution(begun("fedpcl")).state)
    with pytest.raises(TypeError, match="rule of taint"):
        replace(kept, sends=kept.flat).to_bytes()  # type: ignore[arg-type]


@every_method
def test_state_holds_both(name: str) -> None:
    """What a member kept comes back as it was; a state of another promise is refused."""
    state = contribution(second(name), contribution(begun(name)).state).state
    kept = kept_of(begun(name), state)
    assert isinstance(kept.sends, Untainted)
    assert kept.to_bytes() == state
    assert set(tensors_of(kept.program, kept.sends.value[: kept.program.size])) == set(kept.program.shapes)
    assert (kept.flat[-1], kept.sends.value[-1]) == (2, 2)  # batches of an epoch, and noisy steps
    assert not np.array_equal(kept.flat[kept.program.size :], kept.sends.value[kept.program.size :])
    with pytest.raises(BadInput, match="the private state holds"):
        Kept.of(state, kept.program, CLASSES)
    with pytest.raises(BadInput, match="the private state holds"):
        kept_of(begun(name), replace(kept, sends=None).to_bytes())


@every_method
@pytest.mark.parametrize(
    ("forbidden", "words"),
    [({"cap": 5}, "leave one of them"), ({"rounds": 1}, "2 rounds"), ({"sum_share": 0.0}, "sum_share"),
     ({"sum_share": 1.0}, "sum_share"), ({"sampling": 1.5}, "sampling is 1.5; give 0 to 1"), ({"steps": 0}, "steps"),
     ({"gradient_clip": 0.0}, "clip"), ({"noisy_rate": -1.0}, "rate")],
)  # fmt: skip
def test_what_cannot_be_is_refused(name: str, forbidden: dict[str, Any], words: str) -> None:
    """What promises two things, trains nothing, or is out of range."""
    with pytest.raises(BadInput, match=words):
        begun(name, **forbidden)
