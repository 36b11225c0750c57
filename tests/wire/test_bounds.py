"""Ranges and choices that settings declare in their annotations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from secagg.errors import BadInput
from secagg.wire import Range, ranges_of, require_in_range


@dataclass(frozen=True)
class Base:
    """A range that another class inherits."""

    rounds: Annotated[int, Range(1, 10)] = 1

    def __post_init__(self):
        require_in_range(self)


@dataclass(frozen=True)
class Settings(Base):
    """Each kind of declaration, and a field without one."""

    share: Annotated[float, Range(0, 1, above=True, below=True)] = 0.5
    rate: Annotated[float, Range(0, math.inf, below=True)] = 0.0
    most: Annotated[int | None, Range(0, 3)] = None
    norm: Literal["own", "shared"] = "own"
    adjacency: Literal["add", "replace"] | None = None
    optimiser: Annotated[Literal["adam", "sgd"], "A text beside the choices"] = "adam"
    free: float = -1.0


@pytest.mark.parametrize(
    "inside",
    [{}, {"rounds": 10}, {"share": 1e-300}, {"rate": 1e300}, {"most": 3}, {"norm": "shared"}, {"adjacency": "add"}],
)
def test_what_is_declared_passes(inside):
    """A value inside its range, or among its choices, is taken, and so is None where it may be."""
    assert Settings(**inside)


@pytest.mark.parametrize(
    ("outside", "message"),
    [
        ({"rounds": 0}, "rounds is 0; give 1 to 10"),
        ({"rounds": 11}, "rounds is 11; give 1 to 10"),
        ({"share": 1.0}, "share is 1.0; give a number above 0 and below 1"),
        ({"share": 0.0}, "share is 0.0; give a number above 0 and below 1"),
        ({"rate": math.inf}, "rate is inf; give a finite number of 0 or more"),
        ({"rate": math.nan}, "rate is nan; give a finite number of 0 or more"),
        ({"most": 4}, "most is 4; give 0 to 3"),
        ({"norm": "mine"}, "norm is 'mine'; give own or shared"),
        ({"adjacency": "swap"}, "adjacency is 'swap'; give add or replace"),
        ({"optimiser": "lbfgs"}, "optimiser is 'lbfgs'; give adam or sgd"),
    ],
)
def test_what_is_not_declared_is_refused(outside, message):
    """A value outside is refused by its field's name, what is allowed and what was given."""
    with pytest.raises(BadInput) as caught:
        Settings(**outside)
    assert str(caught.value) == message


def test_ranges_are_told_in_the_words_of_a_refusal():
    """Each field's range or choices has the words that a refusal has; a field without one is left out."""
    assert ranges_of(Settings) == {
        "rounds": "1 to 10",
        "share": "a number above 0 and below 1",
        "rate": "a finite number of 0 or more",
        "most": "0 to 3",
        "norm": "own or shared",
        "adjacency": "add or replace",
        "optimiser": "adam or sgd",
    }
