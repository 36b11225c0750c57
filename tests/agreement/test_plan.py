"""The plan: one canonical form, strict reading, a digest of everything."""

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from secagg.agreement.plan import Plan, canonical_json, read_plan, write_plan
from secagg.encoding import Normalisation
from secagg.errors import BadInput, MalformedMessage, SecaggError
from secagg.experiments.settings import SimulationSettings
from secagg.plan_facts.explanation import explain
from secagg.privacy import Adjacency
from secagg.session import RoundSetup
from secagg.wire import decode, encode
from tests.agreement.federation_files import small_plan, small_roster

ROSTER = small_roster()
PLAN = small_plan(ROSTER, purpose="to test")
NOISY = small_plan(ROSTER, radius=None, epsilon=1.0, delta=1e-5, adjacency=Adjacency.ADD_REMOVE)


@pytest.fixture
def text(tmp_path: Path) -> dict[str, Any]:
    """The plan's JSON as values."""
    write_plan(PLAN, tmp_path / "plan.json")
    content: dict[str, Any] = json.loads((tmp_path / "plan.json").read_text())
    return content


def read_back(folder: Path, content: Any) -> Plan:
    """Write JSON and read it as a plan."""
    path = folder / "plan.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_plan(path)


def test_file_and_bytes_give_the_plan_back(tmp_path: Path, text: dict[str, Any]) -> None:
    """The readable file and the canonical bytes both give the same plan, with the same digest."""
    assert read_back(tmp_path, text) == PLAN == decode(Plan, encode(PLAN))
    assert read_back(tmp_path, text).digest == PLAN.digest


@pytest.mark.parametrize("name", [field.name for field in fields(Plan)])
def test_missing_field_is_refused(tmp_path: Path, text: dict[str, Any], name: str) -> None:
    """A plan's file has every field; the missing one is named."""
    del text[name]
    with pytest.raises(BadInput, match=name):
        read_back(tmp_path, text)


@pytest.mark.parametrize("name", [field.name for field in fields(Plan)])
def test_field_of_another_type_is_refused(tmp_path: Path, text: dict[str, Any], name: str) -> None:
    """A field of the wrong JSON type is refused; null, too."""
    for wrong in (None, {"a": 1}, [["a"]], True):
        with pytest.raises(BadInput):
            read_back(tmp_path, {**text, name: wrong})


@pytest.mark.parametrize(
    "content",
    ["", "[]", "null", "{", "\ufeff{}", "{}", '"plan"'],
    ids=["empty", "list", "null", "torn", "marked", "bare", "text"],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, content: str) -> None:
    """A file that is no JSON object of a plan's fields is refused by its name."""
    with pytest.raises(BadInput, match=r"plan\.json is no plan"):
        read_back(tmp_path, content)


def test_unknown_field_is_refused(tmp_path: Path, text: dict[str, Any]) -> None:
    """A field that this version does not know may matter: it is refused and named."""
    with pytest.raises(BadInput, match="surprise"):
        read_back(tmp_path, {**text, "surprise": 1})


def test_field_given_twice_is_refused(tmp_path: Path, text: dict[str, Any]) -> None:
    """A file that says one field twice could be read in two ways, so it is not read."""
    twice = json.dumps(text)[:-1] + ', "purpose": "another"}'
    with pytest.raises(BadInput, match="twice"):
        read_back(tmp_path, twice)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"version": -4},
        {"session": "00"},
        {"session": "zz" * 32},
        {"classes": ["one"]},
        {"classes": ["a", "a"]},
        {"classes": ["a", ""]},
        {"radius": 0},
        {"radius": -1.0},
        {"radius": "inf"},
        {"levels": 0},
        {"levels": 1 << 25},
        {"dimension": 0},
        {"max_records": 0},
        {"min_clients_in_sum": 0},
        {"colluders": -1},
        {"dropouts": 5000},
        {"epsilon": 1.0},
        {"epsilon": "INF"},
        {"epsilon": 0.0},
        {"delta": 1e-5},
        {"adjacency": "neighbour"},
        {"adjacency": "add-remove"},
        {"noise": "client"},
        {"noise": "nobody"},
        {"noises": [{"block": "counts", "multiplier": 1, "sigma": 4.0, "off_diagonal": 0.0}]},
        {"normalisation": "sphere"},
        {"unit": "patient"},
        {"result": "everyone"},
        {"data_kind": "video"},
        {"data_kind": "table"},
        {"schema": "{}"},
        {"join_seconds": 0},
        {"step_seconds": 10**9},
        {"round_seconds": 0},
        {"round_seconds": 10**9},
        {"at_least": -1},
        {"at_least": 1 << 41},
        {"security": 127},
        {"security": 129},
        {"security": 512},
        {"parameters": "{ }"},
        {"parameters": "[]"},
        {"parameters": '{"covariance": "within"}'},
        {"purpose": "x" * 201},
        {"contact": "x" * 201},
        {"retention": "x" * 201},
        {"roster": ""},
        {"input_shape": []},
    ],
    ids=str,
)
def test_value_out_of_bounds_is_refused(tmp_path: Path, text: dict[str, Any], change: dict[str, Any]) -> None:
    """Every field is bounded; an unknown choice or a value outside its bound is refused."""
    with pytest.raises(BadInput):
        read_back(tmp_path, {**text, **change})


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "-Infinity"])
def test_parameter_that_is_not_finite_is_refused(tmp_path: Path, text: dict[str, Any], number: str) -> None:
    """A number that float64 cannot hold, however it is spelt, is refused by its value: JSON has no such number."""
    with pytest.raises(BadInput, match=f"{number} is not a finite number"):
        read_back(tmp_path, {**text, "parameters": f'{{"refine":{number}}}'})
    with pytest.raises(BadInput, match="must be finite"):
        canonical_json({"refine": float(number)})


@pytest.mark.parametrize(("version", "remedy"), [(8, "write it again with plan new"), (10, "use the newer secagg")])
def test_plan_of_another_version_is_refused_by_its_version(
    tmp_path: Path, text: dict[str, Any], version: int, remedy: str
) -> None:
    """An older or newer plan, whatever fields it has, gets one line with both versions and what is to be done."""
    for content in ({**text, "version": version}, {"version": version, "unknown": 1}):
        with pytest.raises(BadInput, match=f"plan of version {version}, this program reads version 9; {remedy}"):
            read_back(tmp_path, content)


UNPRINTABLE = [
    "\x1b[8m",
    "bell\x07",
    "c1\x9b1m",
    "\u202eevil",
    "\u2066a",
    "hid\u200bden",
    "two\nlines",
    "a\u2028b",
    "del\x7f",
]


@pytest.mark.parametrize("odd", UNPRINTABLE, ids=ascii)
@pytest.mark.parametrize(
    "change",
    [
        lambda odd: {"purpose": odd},
        lambda odd: {"contact": odd},
        lambda odd: {"retention": odd},
        lambda odd: {"classes": ["cat", odd]},
        lambda odd: {"backbone": odd},
        lambda odd: {"method": odd},
        lambda odd: {"parameters": json.dumps({"domains": odd}, separators=(",", ":"))},
        lambda odd: {"parameters": json.dumps({odd: 1}, separators=(",", ":"))},
    ],
    ids=["purpose", "contact", "retention", "class", "backbone", "method", "value", "parameter"],
)
def test_what_cannot_be_shown_is_in_no_plan(tmp_path: Path, text: dict[str, Any], odd: str, change: Any) -> None:
    """Names and purposes are read before a member agrees: a plan with a character that hides or forges is refused."""
    with pytest.raises(BadInput, match="which cannot be shown") as refusal:
        read_back(tmp_path, {**text, **change(odd)})
    assert str(refusal.value).isprintable()


def test_what_cannot_be_shown_is_in_no_new_plan() -> None:
    """The planner is told, before anyone else sees the plan."""
    with pytest.raises(BadInput, match=r"no such plan: .*purpose: it holds the character U\+001B"):
        small_plan(ROSTER, purpose="\x1b[8m")


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": math.inf},
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"delta": 0.0},
        {"delta": math.nan},
        {"adjacency": ""},
        {"noise": ""},
        {"noises": ()},
        {"normalisation": "none"},
        {"radius": 2.0},
    ],
    ids=str,
)
def test_incomplete_promise_is_refused(change: dict[str, Any]) -> None:
    """A finite epsilon stands with delta, adjacency, noise and records of length 1, or not at all."""
    assert decode(Plan, encode(NOISY)) == NOISY
    with pytest.raises((BadInput, MalformedMessage)):
        encode(replace(NOISY, **change))


@pytest.mark.parametrize("delta", [0.0, 0.9e-15, 0.6, 1.0, math.nan])
def test_delta_has_one_range(delta: float) -> None:
    """Whoever plans or simulates sums with noise is told one range of δ, in the same words."""
    words = "delta cannot be .*; sums with noise keep a delta from 1e-15 to 0.5"
    asked = {"epsilon": 1.0, "delta": delta}
    with pytest.raises(BadInput, match=words):
        small_plan(ROSTER, radius=None, adjacency=Adjacency.ADD_REMOVE, **asked)
    with pytest.raises(BadInput, match=words):
        SimulationSettings(adjacency="add-remove", **asked)


@pytest.mark.parametrize("given", [{}, {"delta": 1e-5}, {"adjacency": Adjacency.ADD_REMOVE}], ids=str)
def test_epsilon_needs_delta_and_adjacency(given: dict[str, Any]) -> None:
    """Neither of the two has a default: a plan with a finite epsilon is not made without both."""
    with pytest.raises(BadInput, match="without its delta and adjacency"):
        small_plan(ROSTER, radius=None, epsilon=1.0, **given)


@pytest.mark.parametrize(
    "change", [{"epsilon": 0.99}, {"delta": 9e-6}, {"adjacency": "replace-one"}, {"unit": "client"}], ids=str
)
def test_noise_that_does_not_keep_the_promise_is_refused(change: dict[str, Any]) -> None:
    """Every member recomputes epsilon from the plan's noise: a stronger promise than that is not begun."""
    assert RoundSetup.of(NOISY, ROSTER).facts.claim is not None
    with pytest.raises(BadInput, match="is claimed, but the noise gives"):
        RoundSetup.of(replace(NOISY, **change), ROSTER)


def test_missing_file_is_named(tmp_path: Path) -> None:
    """A plan that is not there is the user's mistake, and its path is named."""
    with pytest.raises(BadInput, match="cannot read the plan"):
        read_plan(tmp_path / "none.json")


@pytest.mark.parametrize(
    "change",
    [
        {"purpose": "else"},
        {"contact": "anybody"},
        {"retention": "for ever"},
        {"max_records": 7},
        {"dropouts": 0},
        {"min_clients_in_sum": 2},
        {"radius": 2.0},
        {"session": bytes(32)},
        {"join_seconds": 5},
        {"result": "server"},
        {"normalisation": "unit", "radius": 1.0},
    ],
)
def test_digest_covers_the_field(change: dict[str, Any]) -> None:
    """Plans that differ in one field have different digests."""
    assert replace(PLAN, **change).digest != PLAN.digest


def test_sessions_are_never_reused() -> None:
    """Two plans made of the same choices are for two sessions."""
    assert small_plan(ROSTER).session != small_plan(ROSTER).session


def test_plan_for_another_roster_is_refused() -> None:
    """A member whose roster is not the plan's does not begin."""
    with pytest.raises(BadInput, match="the plan is for the roster"):
        RoundSetup.of(PLAN, small_roster())


@pytest.mark.parametrize(
    "choices",
    [
        {"dropouts": 2},
        {"colluders": 3},
        {"min_clients_in_sum": 5},
        {"protection": "magic"},
        {"method": "magic"},
        {"levels": 1 << 24, "max_records": 1 << 31},
        {"radius": None},
        {"radius": math.inf},
        {"radius": math.nan},
        {"expand": -1},
        {"parameters": (("covariance", "half"),)},
        {"parameters": (("speed", 1.0),)},
        {"parameters": (("refine", 2),), "result": "server"},
        {"parameters": (("refine", 2),), "radius": None, "normalise": Normalisation.NONE},
        {"parameters": (("refine", 2),), "radius": 2.0},
        {"normalise": Normalisation.UNIT, "radius": 2.0},
        {"normalise": Normalisation.CENTRED_UNIT, "centre": 1.0},
    ],
    ids=str,
)
def test_choices_that_do_not_go_together_are_refused(choices: dict[str, Any]) -> None:
    """A plan that could not be carried out is never made, and the refusal is one of ours."""
    with pytest.raises((BadInput, MalformedMessage)):
        small_plan(ROSTER, **choices)


@pytest.mark.parametrize(("clients", "dropouts"), [(2, 0), (3, 0), (4, 1), (10, 1), (25, 3), (300, 30)])
def test_new_plan_tolerates_a_tenth_of_the_clients(clients: int, dropouts: int) -> None:
    """Without a word about dropouts, a plan and what it explains tolerate ⌈n/10⌉, none of two or three members."""
    roster = small_roster(clients)
    plan = small_plan(roster)
    explained = dict(explain(RoundSetup.of(plan, roster).facts))["who must agree"]
    assert plan.dropouts == dropouts
    assert f"up to D = {dropouts} clients may vanish" in explained
    assert ("64 neighbours" if clients >= 300 else "complete graph") in explained


def test_minimum_cohort_limits_the_dropouts() -> None:
    """No more may vanish than the smallest cohort leaves room for."""
    assert small_plan(small_roster(10), min_clients_in_sum=10).dropouts == 0


def test_method_parameters_are_those_of_the_json() -> None:
    """The plan's parameters are one canonical JSON text."""
    assert canonical_json(PLAN.method_parameters) == PLAN.parameters
    with pytest.raises(SecaggError):
        replace(PLAN, parameters=PLAN.parameters + " ")
