"""Exact sums of parts of classes are opened behind a class gate alone, where vectors are to be hidden."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import Any

import pytest

from secagg.errors import BadInput
from secagg.parties import SessionSetup
from secagg.parties.contexts import require_gate, require_groups
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


def planned(method: str, parameters: tuple[tuple[str, Any], ...], **choices: Any) -> SessionSetup:
    """A plan of six members, one of whom may vanish, and one collude."""
    return make_setup(6, method=method, parameters=parameters, dropouts=1, colluders=1, **choices)


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
@pytest.mark.parametrize(("method", "parameters"), PARTS)
def test_parts_of_classes_need_a_gate(method: str, parameters: tuple[tuple[str, Any], ...], protection: str) -> None:
    """Without a gate, or with one that leaves a single honest member in a part, an exact plan is refused."""
    for gate in (0, 1):
        with pytest.raises(BadInput, match=r"a class gate of two honest clients.*give a class gate of 2"):
            planned(method, parameters, protection=protection, class_gate=gate, **EXACT)
    assert planned(method, parameters, protection=protection, class_gate=2, **EXACT).method.class_threshold == 4


@pytest.mark.parametrize(("method", "parameters"), [each for each in PARTS if ("keep", 0.5) not in each[1]])
def test_noise_hides_parts(method: str, parameters: tuple[tuple[str, Any], ...]) -> None:
    """A finite ε takes the gate's place."""
    assert planned(method, parameters, epsilon=4.0).plan.has_noise


@pytest.mark.parametrize(("method", "parameters"), PARTS)
def test_where_nobody_is_hidden_no_part_is(method: str, parameters: tuple[tuple[str, Any], ...]) -> None:
    """Under no protection every vector is in clear anyway."""
    assert planned(method, parameters, protection="none", **EXACT).method.class_threshold == 0


@pytest.mark.parametrize(("method", "parameters"), WHOLE)
def test_whole_classes_need_no_gate(method: str, parameters: tuple[tuple[str, Any], ...]) -> None:
    """As the defaults have it, so that a plan without a gate can be made of every method."""
    assert planned(method, parameters, **EXACT).method.class_threshold == 0


GATED: dict[str, Any] = {"class_gate": 2, "dropouts": 2, "colluders": 1, **EXACT}
"""Ten members, two of whom may vanish: a gate of 2 counts on eight in every sum."""


def test_gate_refuses_a_sum_that_may_lack_one_client_more() -> None:
    """With n clients and D dropouts a sum of n - D - 1 is refused, one of n - D is not; without a gate neither is."""
    gated, plain = make_setup(10, **GATED), make_setup(10, **{**GATED, "class_gate": 0})
    for fewest in (2, 7):
        require_gate(plain.plan, plain.method, 10, fewest)
        with pytest.raises(BadInput, match=f"2 dropouts, but a sum of {fewest} clients.*set minimum_cohort to 8"):
            require_gate(gated.plan, gated.method, 10, fewest)
    for fewest in (8, 10):
        require_gate(gated.plan, gated.method, 10, fewest)


def test_groups_refuse_a_sum_that_may_lack_one_client_more() -> None:
    """The same border holds where each of two groups of members has a sum of its own."""
    setup = make_setup(10, **GATED)
    grouped = tuple(replace(kind, groups=2) for kind in setup.sums)
    with pytest.raises(BadInput, match=r"groups count on 2 dropouts, but a sum of 7 clients.*set minimum_cohort to 8"):
        require_groups(setup.plan, grouped, setup.roster, 7)
    require_groups(setup.plan, grouped, setup.roster, 8)


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
def test_no_sum_behind_a_gate_lacks_more_than_the_dropouts(protection: str) -> None:
    """A gated plan of a smaller minimum_cohort is refused or opens n - D vectors at least; n - D are enough."""
    setup = make_setup(10, protection=protection, **GATED)
    for least in (1, 7):
        with contextlib.suppress(BadInput):
            assert SessionSetup.of(replace(setup.plan, minimum_cohort=least), setup.roster).fewest == 8
    assert SessionSetup.of(replace(setup.plan, minimum_cohort=8), setup.roster).fewest == 8
