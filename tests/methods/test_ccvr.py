"""CCVR: its sums are the classes' moments, its draws have them, and its head is softmax regression on the draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods import method_named
from methods.closed_form.ccvr import CCVR, RECIPE, gaussians_of, standard_normal
from methods.declaration import check_declaration
from methods.round import Examples, Local, OpenedTotal
from secagg.encoding import Grid, Integers, Normalisation, inputs_of, quantise
from secagg.errors import BadInput
from secagg.heads import LinearHead, ReleaseNoise
from secagg.plan_facts.records import LocalRecords
from secagg.privacy import Adjacency, OpenedNoise
from tests.session.noise_checks import delta_by_hand, distance, neighbours
from tests.worlds.setups import make_setup

CLASSES, DIMENSION = 3, 4
GRID = Grid(1.0, 1 << 16, 0.0, Normalisation.UNIT)
PLAIN = Grid(40.0, 1 << 16, 2.0)
DRAWS = np.random.default_rng(8)
LABELS = DRAWS.integers(0, CLASSES, 90)
FEATURES = DRAWS.normal(size=(90, DIMENSION)) @ DRAWS.normal(size=(DIMENSION, DIMENSION)) + 3 * np.eye(3, 4)[LABELS]
every_kind = pytest.mark.parametrize("moments", ["class", "pooled"])


def summed(method: CCVR, rows: np.ndarray, grid: Grid = GRID) -> dict[str, Integers]:
    """The blocks of some records."""
    examples = Examples.of(quantise(FEATURES[rows], grid), LABELS[rows])
    return dict(method.contribute(Local(examples, CLASSES, grid)).blocks)


def head_of(method: CCVR, blocks: dict[str, Integers], grid: Grid = GRID, **opened: object) -> LinearHead:
    """The head that a total leads to."""
    artifact = method.finalize(OpenedTotal(blocks, grid, **opened)).artifact  # type: ignore[arg-type]
    assert isinstance(artifact, LinearHead)
    return artifact


@every_kind
@given(cuts=st.lists(st.integers(0, 90), max_size=6))
def test_sums_are_additive_over_any_division(moments: str, cuts: list[int]) -> None:
    """However records are divided, empty parts included, the sum is the same integers."""
    method = method_named("ccvr", {"moments": moments})
    assert isinstance(method, CCVR)
    whole = summed(method, np.arange(90))
    parts = [summed(method, rows) for rows in np.split(np.arange(90), sorted(cuts))]
    for name, block in whole.items():
        assert (np.sum([part[name] for part in parts], axis=0) == block).all()


@every_kind
def test_contributions_keep_what_they_declare(moments: str) -> None:
    """Bounds and lengths hold for extreme records, in both units and adjacencies."""
    method = method_named("ccvr", {"moments": moments})
    check_declaration(method, 12, 5, GRID)
    (spec,) = method.sums(12, 5, GRID.levels)
    assert {each.adjacency for each in spec.sensitivities} == set(Adjacency)


@pytest.mark.parametrize("grid", [GRID, PLAIN], ids=["unit length", "as it is"])
def test_gaussians_have_each_class_s_moments(grid: Grid) -> None:
    """Count, mean and covariance of every class are numpy's of its records, in grid units."""
    blocks, records = summed(CCVR(), np.arange(90), grid), quantise(FEATURES, grid)
    for label in range(CLASSES):
        part = {name: blocks[name][label : label + 1] for name in ("counts", "class_sums")}
        (found,) = gaussians_of({**part, "second_moment": blocks["class_moments"][label]}, grid, None)
        own = records[label == LABELS].astype(np.float64)
        assert found is not None
        assert found.count == len(own)
        assert found.mean == pytest.approx(own.mean(axis=0), rel=1e-12)
        covariance = np.cov(own, rowvar=False)
        assert np.abs(found.root @ found.root - covariance).max() < 1e-6 * np.abs(covariance).max()


def test_shared_covariance_is_that_within_classes() -> None:
    """All classes have the pooled covariance about their own means."""
    blocks, records = summed(CCVR("pooled"), np.arange(90)), quantise(FEATURES, GRID).astype(np.float64)
    found = gaussians_of(blocks, GRID, None)
    means = np.stack([records[label == LABELS].mean(axis=0) for label in range(CLASSES)])
    apart = records - means[LABELS]
    for gaussian in found:
        assert gaussian is not None
        assert gaussian.root @ gaussian.root == pytest.approx(apart.T @ apart / (90 - CLASSES), rel=1e-6)


def test_single_record_has_no_spread_and_no_record_no_gaussian() -> None:
    """One record is its class's mean, with the covariance 0; a class without any is left out of the head."""
    rows = np.array([int(np.flatnonzero(LABELS == 0)[0]), *np.flatnonzero(LABELS == 2)])
    blocks = summed(CCVR(), rows)
    part = {name: blocks[name][:1] for name in ("counts", "class_sums")}
    (alone,) = gaussians_of({**part, "second_moment": blocks["class_moments"][0]}, GRID, None)
    assert alone is not None
    assert not alone.root.any()
    head = head_of(CCVR(virtual=50), blocks)
    assert head.present.tolist() == [True, False, True]
    with pytest.raises(BadInput, match="the sum holds no record"):
        head_of(CCVR(), summed(CCVR(), rows[:0]))


def test_draws_are_standard_normal_and_public() -> None:
    """Mean and variance of 40,000 draws within six standard errors; the class alone decides them."""
    drawn = standard_normal(1, 10_000, 4)
    assert abs(drawn.mean()) < 6 / math.sqrt(40_000)
    assert abs(drawn.var() - 1) < 6 * math.sqrt(2 / 40_000)
    assert np.abs(np.corrcoef(drawn, rowvar=False) - np.eye(4)).max() < 6 / math.sqrt(10_000)
    assert (standard_normal(1, 10, 4) == drawn[:10]).all()
    assert not np.isin(standard_normal(2, 10, 4), drawn[:10]).any()


def by_hand(rows: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Softmax regression in float64, with the recipe's batches, rate and momentum."""
    generator = torch.Generator().manual_seed(1)
    weight, velocity = np.zeros((CLASSES, DIMENSION + 1)), np.zeros((CLASSES, DIMENSION + 1))
    x, wanted, shares = np.column_stack([rows, np.ones(len(rows))]), np.eye(CLASSES)[labels], weights / weights.mean()
    for epoch in range(RECIPE.epochs):
        rate = RECIPE.rate * (1 + math.cos(math.pi * epoch / RECIPE.epochs)) / 2
        for own in torch.split(torch.randperm(len(rows), generator=generator), RECIPE.batch):
            scores = np.exp(x[own] @ weight.T)
            residual = (scores / scores.sum(axis=1, keepdims=True) - wanted[own]) * shares[own][:, None]
            velocity = RECIPE.momentum * velocity + residual.T @ x[own] / len(own)
            weight -= rate * velocity
    return weight[:, :-1], weight[:, -1]


@pytest.mark.parametrize("grid", [GRID, PLAIN], ids=["unit length", "as it is"])
def test_head_is_softmax_regression_on_the_draws(grid: Grid) -> None:
    """On features it gives the scores that a regression by hand gives, on draws from numpy's moments."""
    method, blocks = CCVR(virtual=400), summed(CCVR(), np.arange(90), grid)
    inputs = inputs_of(FEATURES, grid)
    rows, labels, weights = [], [], []
    for label in range(CLASSES):
        own = inputs[label == LABELS]
        values, vectors = np.linalg.eigh(np.cov(own, rowvar=False))
        root = vectors @ np.diag(np.sqrt(np.maximum(values, 0))) @ vectors.T
        rows.append(own.mean(axis=0) + standard_normal(label, 400, DIMENSION) @ root)
        labels += [label] * 400
        weights += [float(len(own))] * 400
    together, shares = np.concatenate(rows), np.array(weights)
    centre = np.average(together, axis=0, weights=shares)
    spread = np.sqrt(np.mean((together - centre) ** 2))
    weight, bias = by_hand((together - centre) / spread, np.array(labels), shares)
    expected = (inputs - centre) / spread @ weight.T + bias
    head = head_of(method, blocks, grid)
    assert head_of(method, blocks, grid, seed=bytes(range(32))).digest == head.digest
    found = inputs @ head.weight.T.astype(np.float64) + head.bias
    centred = [scores - scores.mean(axis=1, keepdims=True) for scores in (found, expected)]
    assert np.abs(centred[0] - centred[1]).max() < 2e-3 * np.abs(centred[1]).max()
    assert head.evaluate(inputs, LABELS).accuracy > 0.7


@every_kind
def test_little_noise_changes_little(moments: str) -> None:
    """Under noise of next to nothing the head decides as without; under much it is finite and knows every class."""
    names = ("counts", "class_sums", "class_moments" if moments == "class" else "second_moment")
    method, inputs = CCVR(moments, virtual=300), inputs_of(FEATURES, GRID)  # type: ignore[arg-type]
    blocks = summed(method, np.arange(90))
    exact = head_of(method, blocks)
    little = head_of(method, blocks, noise={name: OpenedNoise(1e-3) for name in names})
    assert (exact.predict(inputs) == little.predict(inputs)).mean() > 0.95
    levels = GRID.levels
    sigmas = dict(zip(names, (20.0, 20.0 * levels, 20.0 * levels**2), strict=True))
    noisy = {name: block + np.rint(DRAWS.normal(size=block.shape) * sigmas[name]).astype(np.int64)
             for name, block in blocks.items()}  # fmt: skip
    head = head_of(method, noisy, noise={name: OpenedNoise(sigma) for name, sigma in sigmas.items()})
    assert head.present.all()


def test_noisy_moments_are_those_of_the_release() -> None:
    """Under noise a class's count is at least 1, and its covariance has no negative direction."""
    blocks = summed(CCVR(), np.arange(90))
    part = {
        "counts": np.array([-5]),
        "class_sums": blocks["class_sums"][:1],
        "second_moment": -blocks["class_moments"][0],
    }
    (found,) = gaussians_of(part, GRID, ReleaseNoise(10.0, 1e6, 1e11))
    assert found is not None
    assert found.count >= 1
    assert np.linalg.eigvalsh(found.root).min() >= -1e-9 * np.abs(found.root).max()


def test_sums_that_no_records_have_are_told() -> None:
    """A second moment whose trace is negative, or larger than so many records can have, is not plausible."""
    blocks = summed(CCVR(), np.arange(90))
    assert CCVR().sanity_failures(blocks, GRID) == []
    for factor in (-1, 1000):
        wrong = {**blocks, "class_moments": blocks["class_moments"] * np.array([1, factor, 1])[:, None]}
        assert CCVR().sanity_failures(wrong, GRID) == ["the second moment of class 1 is none of its records"]
    assert CCVR("pooled").sanity_failures(summed(CCVR("pooled"), np.arange(90)), GRID) == []


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"moments": "diagonal"}, "moments is 'diagonal'; give class or pooled"),
        ({"virtual": 0}, "virtual is 0; give 1 to 1000000"),
        ({"virtual": 1_000_001}, "virtual is 1000001"),
    ],
)
def test_settings_that_cannot_be_are_refused(parameters: dict[str, float | str], words: str) -> None:
    """Moments that there are not, and numbers of draws out of range."""
    with pytest.raises(BadInput, match=words):
        method_named("ccvr", parameters)


def test_more_draws_than_there_is_room_for_are_refused() -> None:
    """A plan whose draws take more bytes than there may be is refused before anyone joins."""
    with pytest.raises(BadInput, match="100000 virtual features of 1000 classes"):
        method_named("ccvr", {"virtual": 100_000}).sums(1000, 1000, 16)


def test_worst_neighbours_use_the_promise_up() -> None:
    """No record replaced by another is told better than the plan says; (u, v) and (−v, −u) are told nearly as well."""
    setup = make_setup(method="ccvr", parameters=(), adjacency=Adjacency.REPLACE_ONE)

    def data(angle: float) -> LocalRecords:
        record = np.zeros((1, setup.plan.dimension), dtype=np.int64)
        record[0, :2] = np.trunc(setup.plan.levels * (1 - 1e-12) * np.array([np.cos(angle), np.sin(angle)]))
        return LocalRecords(record, np.zeros(1, np.int64), np.zeros(1, np.int64))

    turned = [(data(angle), data(1.5 * np.pi - angle)) for angle in np.linspace(0, np.pi / 2, 91)]
    worst = max(distance(setup, *pair) for pair in (*neighbours(setup), *turned))
    assert delta_by_hand(worst, setup.plan.epsilon) <= setup.plan.delta
    assert delta_by_hand(worst, 0.999 * setup.plan.epsilon) > setup.plan.delta
