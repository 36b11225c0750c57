"""The canonical encoding against bytes written by an independent protobuf writer."""

import json

import pytest

from secagg.errors import MalformedMessage
from secagg.wire import decode, encode, from_json, to_json
from tests.vectors.files import load, named
from tests.wire.values import CLASSES, by_name

VECTORS = load("wire")
CASES = VECTORS["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["message"])
def test_bytes_are_those_of_the_vector(case: dict) -> None:
    """A value encodes to exactly the vector's bytes, and they decode to the same value."""
    cls = by_name[case["message"]]
    value = from_json(cls, json.dumps(case["value"]))
    assert encode(value).hex() == case["bytes"]
    assert decode(cls, bytes.fromhex(case["bytes"])) == value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["message"])
def test_readable_form_is_that_of_the_vector(case: dict) -> None:
    """The bytes of the vector turn into its readable form, field for field and in order."""
    value = decode(by_name[case["message"]], bytes.fromhex(case["bytes"]))
    assert json.dumps(json.loads(to_json(value))) == json.dumps(case["value"])


def test_every_message_class_has_a_vector() -> None:
    """No registered class is without a vector."""
    assert {case["message"] for case in CASES} == {cls.__name__ for cls in CLASSES}


@pytest.mark.parametrize("case", VECTORS["refused"], ids=named)
def test_tampered_bytes_are_refused(case: dict) -> None:
    """What is not the one canonical encoding of an allowed value is a MalformedMessage that names its class."""
    with pytest.raises(MalformedMessage) as caught:
        decode(by_name[case["message"]], bytes.fromhex(case["bytes"]))
    assert str(caught.value).startswith("malformed ")
