"""How far one step moves a release."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import BadInput
from secagg.privacy import Adjacency, BlockSensitivity, BlockwiseSensitivity, MomentSensitivity, Unit

RULE = (0.02, 0.58, 0.40)
weights_of = st.tuples(*[st.floats(0.01, 1.0)] * 3)
LEVELS = 1 << 10


def weights(shares: tuple[float, ...]) -> dict[str, float]:
    """Weights under which N, A and B take these shares of one record's μ²."""
    lengths = (1, LEVELS, LEVELS**2)
    names = ("counts", "class_sums", "second_moment")
    return {name: share / length**2 for name, share, length in zip(names, shares, lengths, strict=True)}


def moments(adjacency: Adjacency, classes: int = 3) -> MomentSensitivity:
    """The sensitivity of small moments."""
    return MomentSensitivity(adjacency, classes, 4, LEVELS)


def step(one: np.ndarray, other: np.ndarray, same_class: bool, shares: tuple[float, ...]) -> float:
    """Weighted squared length of exchanging one unit-ball record for another, from the definition."""
    n, a, b = shares
    sums = ((one - other) ** 2).sum() if same_class else (one**2).sum() + (other**2).sum()
    moved = ((np.outer(one, one) - np.outer(other, other)) ** 2).sum()
    return (0 if same_class else 2 * n) + a * float(sums) + b * float(moved)


def test_equal_noise_gives_the_textbook_values():
    """With one σ for all blocks: 1 + R² + R⁴ for add/remove and exactly twice that for replace-one."""
    same = dict.fromkeys(("counts", "class_sums", "second_moment"), 1.0)
    length = 1 + LEVELS**2 + LEVELS**4
    assert moments(Adjacency.ADD_REMOVE).squared(same) == length
    assert moments(Adjacency.REPLACE_ONE).squared(same) == 2 * length


def test_replacing_can_cost_more_than_twice():
    """Under the usual shares two records of one class, neither opposite nor orthogonal, are the worst: 2.3805."""
    assert moments(Adjacency.REPLACE_ONE).squared(weights(RULE)) == pytest.approx(2.3805)
    cosine = -0.58 / (2 * 0.40)
    one, other = np.array([1.0, 0.0]), np.array([cosine, math.sqrt(1 - cosine**2)])
    assert step(one, other, True, RULE) == pytest.approx(2.3805)


@given(weights_of, st.integers(0, 2**32), st.booleans())
def test_no_exchange_is_worse_than_the_bound(shares, seed, same_class):
    """Random records inside the unit ball, of one class or two, never move further than the sensitivity."""
    generator = np.random.default_rng(seed)
    pairs = generator.normal(size=(50, 2, 3))
    pairs *= generator.uniform(0.3, 1.0, (50, 2, 1)) / np.linalg.norm(pairs, axis=2, keepdims=True)
    bound = moments(Adjacency.REPLACE_ONE).squared(weights(shares))
    assert max(step(one, other, same_class, shares) for one, other in pairs) <= bound * (1 + 1e-12)


@pytest.mark.parametrize(
    "shares", [RULE, (0.2, 0.5, 0.3), (0.1, 0.7, 0.2), (0.3, 0.3, 0.4), (0.01, 0.9, 0.09), (0.9, 0.05, 0.05)]
)
def test_the_bound_is_reached(shares):
    """Some exchange on a fine grid of directions moves as far as the sensitivity says."""
    one = np.array([1.0, 0.0])
    turned = [np.array([math.cos(angle), math.sin(angle)]) for angle in np.linspace(0, math.pi, 2001)]
    worst = max(step(one, other, same, shares) for other in turned for same in (False, True))
    assert worst == pytest.approx(moments(Adjacency.REPLACE_ONE).squared(weights(shares)), rel=1e-5)


def test_one_class_has_no_exchange_between_classes():
    """With a single class no count moves."""
    assert moments(Adjacency.REPLACE_ONE, classes=1).squared(weights((0.8, 0.1, 0.1))) == pytest.approx(0.45)


def test_client_and_general_blocks():
    """Clipped contributions: lengths add in squares; an exchange moves every block by up to twice its length."""
    blocks = (BlockSensitivity("gradient", 3.0, 10), BlockSensitivity("moment", 2.0, 6, triangle=True))
    same = {"gradient": 1.0, "moment": 0.25}
    assert BlockwiseSensitivity(Unit.CLIENT, Adjacency.ADD_REMOVE, blocks).squared(same) == 10
    assert BlockwiseSensitivity(Unit.CLIENT, Adjacency.REPLACE_ONE, blocks).squared(same) == 40


@given(weights_of)
def test_general_blocks_never_claim_less_than_moments(shares):
    """What holds for any method is no less than what is known about the moments."""
    for adjacency in Adjacency:
        special = moments(adjacency)
        general = BlockwiseSensitivity(Unit.RECORD, adjacency, special.blocks)
        assert general.squared(weights(shares)) >= special.squared(weights(shares)) * (1 - 1e-12)


@pytest.mark.parametrize(
    "block",
    [
        {"l2": 0.0, "size": 1},
        {"l2": math.inf, "size": 1},
        {"l2": math.nan, "size": 1},
        {"l2": 1.0, "size": 0},
        {"l2": 1.0, "size": 5, "triangle": True},
    ],
)
def test_impossible_blocks_are_refused(block):
    """A block has a positive finite length, entries, and d(d + 1)/2 of them when it is a triangle."""
    with pytest.raises(BadInput):
        BlockSensitivity("block", **block)
