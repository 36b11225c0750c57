"""The readable form carries exactly the value, and is read strictly."""

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.agreement.plan import NoiseFrom, Plan
from secagg.errors import MalformedMessage
from secagg.protection.masking.messages import Endorsement
from secagg.protection.messages import Abort, Outcome, Receipt
from secagg.wire import encode, from_json, plain, plain_fields, to_json
from tests.vectors.files import load
from tests.wire.values import CLASSES, FEWER, exact_plans, values


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@FEWER
@given(st.data())
def test_reading_undoes_writing(cls: type, data: st.DataObject) -> None:
    """Every value of every class comes back from its readable form."""
    value = data.draw(values(cls))
    assert from_json(cls, to_json(value)) == value
    assert encode(from_json(cls, to_json(value))) == encode(value)


ENDORSEMENT = {"member": 1, "signature": "00" * 64}
OUTCOME = {"members": [1, 2], "aggregate_sha256": "00" * 32, "head_sha256": "11" * 32, "head": ""}
OUTCOME |= {"broadcast": "", "release": ""}


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (Receipt, ""),
        (Receipt, "{"),
        (Receipt, "{} {}"),
        (Receipt, "[]"),
        (Receipt, "null"),
        (Receipt, '"{}"'),
        (Receipt, '{"a": 1}'),
        (Endorsement, "{}"),
        (Endorsement, json.dumps({"member": 1})),
        (Endorsement, json.dumps(ENDORSEMENT | {"more": 1})),
        (Endorsement, json.dumps(ENDORSEMENT | {"member": 1.0})),
        (Endorsement, json.dumps(ENDORSEMENT | {"member": "1"})),
        (Endorsement, json.dumps(ENDORSEMENT | {"member": True})),
        (Endorsement, json.dumps(ENDORSEMENT | {"member": None})),
        (Endorsement, json.dumps(ENDORSEMENT | {"member": [1]})),
        (Endorsement, json.dumps(ENDORSEMENT | {"member": 0})),
        (Endorsement, json.dumps(ENDORSEMENT | {"member": 10**30})),
        (Endorsement, json.dumps(ENDORSEMENT | {"signature": "00" * 63})),
        (Endorsement, json.dumps(ENDORSEMENT | {"signature": "zz" * 64})),
        (Endorsement, json.dumps(ENDORSEMENT | {"signature": 7})),
        (Endorsement, json.dumps(ENDORSEMENT | {"signature": [0] * 64})),
        (Outcome, json.dumps(OUTCOME | {"members": 1})),
        (Outcome, json.dumps(OUTCOME | {"members": {"1": 2}})),
        (Outcome, json.dumps(OUTCOME | {"members": [2, 1]})),
        (Outcome, json.dumps(OUTCOME | {"members": [1, 1]})),
        (Outcome, json.dumps(OUTCOME | {"members": [1, True]})),
        (Outcome, json.dumps(OUTCOME | {"members": [1, 2.0]})),
        (Outcome, json.dumps(OUTCOME | {"members": []})),
        (Abort, json.dumps({"reason": ""})),
    ],
)
def test_anything_unusual_is_refused(cls: type, text: str) -> None:
    """Missing, unknown or mistyped fields, values out of bounds and texts that are no JSON object are refused."""
    with pytest.raises(MalformedMessage):
        from_json(cls, text)


def test_field_twice_is_refused() -> None:
    """A field that stands twice is refused: a reader and this program could take different ones."""
    with pytest.raises(MalformedMessage):
        from_json(Abort, '{"reason": "what a person reads", "reason": "what the program takes"}')


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (Abort, json.dumps({"reason": "\ud800"})),
        (Receipt, "[" * 100_000),
        (Endorsement, f'{{"member": {"9" * 5000}, "signature": ""}}'),
    ],
    ids=["half_a_surrogate_pair", "deeply_nested", "number_of_5000_digits"],
)
def test_extreme_texts_are_refused(cls: type, text: str) -> None:
    """Texts at the edge of what JSON allows are a MalformedMessage as well, not a failure of the program."""
    with pytest.raises(MalformedMessage):
        from_json(cls, text)


@pytest.mark.parametrize(
    "content",
    [10**400, -(10**400), float("nan"), "nan", "-inf", "1", None, [1.0], True, 0, -1.0, "inf"],
    ids=lambda content: f"{str(content)[:8]}_{type(content).__name__}",
)
def test_plan_numbers_are_numbers(content: Any) -> None:
    """A radius that is not a finite number in its range is refused."""
    plan = next(case["value"] for case in load("wire")["cases"] if case["message"] == "Plan")
    assert from_json(Plan, json.dumps(plan)).radius == plan["radius"]
    with pytest.raises(MalformedMessage):
        from_json(Plan, json.dumps(plan | {"radius": content}))


@FEWER
@given(exact_plans())
def test_infinity_is_written_as_a_word(plan: Plan) -> None:
    """The readable form is JSON that every reader takes, and a whole number may stand for a float."""
    text = to_json(plan)
    json.loads(text, parse_constant=pytest.fail)
    assert json.loads(text)["epsilon"] == "inf"
    changed = json.loads(text) | {"centre": 3}
    assert from_json(Plan, json.dumps(changed)) == replace(plan, centre=3.0)


@dataclass(frozen=True)
class Sample:
    """A value with one of each kind that JSON does not have."""

    number: float
    limits: tuple[float, ...]
    by: NoiseFrom
    digest: bytes = b"\x01"

    @property
    def half(self) -> float:
        """A property, which is in the object by name alone."""
        return self.number / 2


def test_values_become_json() -> None:
    """What JSON cannot hold becomes words, lists and null; the keys are the fields, renamed or left out as asked."""
    sample = Sample(2.0, (-math.inf, math.inf, math.nan), NoiseFrom.CLIENT)
    whole = {"number": 2.0, "limits": ["-inf", "inf", None], "by": "client", "digest": "01"}
    assert plain({"each": [sample]}) == {"each": [whole]}
    assert list(plain_fields(sample, "half", without=["by", "digest"], value="number")) == ["value", "limits", "half"]
    json.loads(json.dumps(plain(sample), allow_nan=False), parse_constant=pytest.fail)
