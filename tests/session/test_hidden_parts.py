"""Exact sums of parts of classes are opened behind a class gate alone, where vectors are to be hidden."""

from __future__ import annotations

import math
from typing import Any

import pytest

from secagg.errors import BadInput
from secagg.session import RoundSetup
from tests.worlds.setups import make_setup

DOMAINS = ("domains", "art+photo")
EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": None, "adjacency": None, "radius": 1.0}
WHOLE = [("fedtc", ()), ("mpft", ()), ("fedbip", ()), ("fedbip", (("domains", "art"),))]
"""Methods whose sums are of classes."""
PARTS = [
    ("fedtc", (("slots", 2),)),
    ("fedtc", (("slots", 2), ("keep", 0.5))),
    ("fedtc", (("slots", 2), ("threshold", 0.5))),
    ("mpft", (("slots", 2),)),
    ("mpft", (DOMAINS,)),
    ("mpft", (("sampling", "cluster"), ("slots", 2), ("rounds", 1))),
    ("fedbip", (("slots", 2),)),
    ("fedbip", (DOMAINS,)),
    ("fedbip", (("concepts", 1),)),
]
"""And those whose sums are of more."""


def planned(method: str, parameters: tuple[tuple[str, Any], ...], **choices: Any) -> RoundSetup:
    """A plan of six members, one of whom may vanish, and one collude."""
    return make_setup(6, method=method, parameters=parameters, dropouts=1, colluders=1, **choices)


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
@pytest.mark.parametrize(("method", "parameters"), PARTS)
def test_parts_of_classes_need_a_gate(method: str, parameters: tuple[tuple[str, Any], ...], protection: str) -> None:
    """Without a gate, or with one that leaves a single honest member in a part, an exact plan is refused."""
    for gate in (0, 1):
        with pytest.raises(BadInput, match=r"a class gate of two honest clients.*give a class gate of 2"):
            planned(method, parameters, protection=protection, class_gate=gate, **EXACT)
    assert planned(method, parameters, protection=protection, class_gate=2, **EXACT).method.traits.class_threshold == 4


@pytest.mark.parametrize(("method", "parameters"), [each for each in PARTS if ("keep", 0.5) not in each[1]])
def test_noise_hides_parts(method: str, parameters: tuple[tuple[str, Any], ...]) -> None:
    """A finite ε takes the gate's place."""
    assert planned(method, parameters, epsilon=4.0).plan.has_noise


@pytest.mark.parametrize(("method", "parameters"), PARTS)
def test_where_nobody_is_hidden_no_part_is(method: str, parameters: tuple[tuple[str, Any], ...]) -> None:
    """Under no protection every vector is in clear anyway."""
    assert planned(method, parameters, protection="none", **EXACT).method.traits.class_threshold == 0


@pytest.mark.parametrize(("method", "parameters"), WHOLE)
def test_whole_classes_need_no_gate(method: str, parameters: tuple[tuple[str, Any], ...]) -> None:
    """As the defaults have it, so that a plan without a gate can be made of every method."""
    assert planned(method, parameters, **EXACT).method.traits.class_threshold == 0
