"""Ranges and choices that settings declare in their annotations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from secagg.errors import BadInput
from secagg.wire import Range, require_in_range


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
        ({"rounds": 0}, "rounds must be between 1 and 10 (got 0)"),
        ({"rounds": 11}, "rounds must be between 1 and 10 (got 11)"),
        ({"share": 1.0}, "share must be above 0 and below 1 (got 1.0)"),
        ({"share": 0.0}, "share must be above 0 and below 1 (got 0.0)"),
        ({"rate": math.inf}, "rate must be at least 0 and finite (got inf)"),
        ({"rate": math.nan}, "rate must be at least 0 and finite (got nan)"),
        ({"most": 4}, "most must be between 0 and 3 (got 4)"),
        ({"norm": "mine"}, "norm must be one of own, shared (got 'mine')"),
        ({"adjacency": "swap"}, "adjacency must be one of add, replace (got 'swap')"),
    ],
)
def test_what_is_not_declared_is_refused(outside, message):
    """A value outside is refused by its field's name, what is allowed and what was given."""
    with pytest.raises(BadInput) as caught:
        Settings(**outside)
    assert str(caught.value) == message
